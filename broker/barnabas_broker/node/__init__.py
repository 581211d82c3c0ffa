"""One node of the cluster: its storage on disk and the wiring of its parts.

May touch:  everything below the broker, to build it.   Must not touch: requests, records, rules.
Invariants: objects are wired in control.py and data.py alone, started and stopped in node.py, in whatever world (world.py); a node
    starts only on storage that says who it is.
Read next:  node.py; world.py; the metadata log on disk is ../metadata/metadata_log.py.
"""
