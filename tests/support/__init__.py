"""What tests of more than one room need: disks in memory, logs, partitions, brokers and controllers made for a test, turns of the
loop. A helper that one folder needs stays in that folder."""
