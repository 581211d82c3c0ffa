"""One partition on one disk: segments, indexes, epochs, producers, retention, recovery, flush rounds.

May touch:  barnabas_wire; files, through disk.py alone.   Must not touch: sockets, peers, metadata, other rooms.
Invariants: files are Kafka's own, byte for byte, and hold nothing local to this replica; a batch is opaque past its
            header; flushed end <= written end <= log end; nothing at or above the high watermark is ever retired.
Read next:  unified_log.py, then disk.py, which every durable file of the house goes through; memory_disk.py is what the
            tests and the simulation put in its place.
"""
