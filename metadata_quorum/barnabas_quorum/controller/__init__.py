"""The controller: decides what the cluster shall be. Image in, records out.

May touch:  image, records, its arguments.   Must not touch: asyncio, clock, random sources of its own, files, gRPC, raft.
Invariants: a decision changes nothing; only replayed records do. A refusal is a KafkaError that names the rule and
            what mends it. Iteration that decides is over sorted ids, so that one seed gives one history.
Read next:  controller.py, then partition_change.py (the heart), brokers.py.
"""
