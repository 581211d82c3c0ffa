"""The controller: decides how the cluster changes. Image in, records out.

May touch:  image, records, its arguments.   Must not touch: asyncio, clock, its own random source, files, gRPC, raft.
Invariants: a decision changes nothing; only replayed records do. A refusal is a KafkaError that names the rule and
            the remedy. Decisions iterate over sorted ids, so that one seed gives one history.
Read next:  controller.py, then partition_change.py (the heart), brokers.py.
"""
