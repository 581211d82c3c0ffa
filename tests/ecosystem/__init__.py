"""Systems that stand on a Kafka, run on Barnabas: Kafka Streams, Connect, MirrorMaker 2, a consumer with a database.

`make ecosystem` runs the full forms, `make test` a short one of each.

May touch:  clusters, Java processes and directories of the tests' own.  Must not touch: broker code.
Invariants: what a system computed is compared with what its input says, never with an earlier run.
Read next:  java.py; docs/ecosystem.md.
"""
