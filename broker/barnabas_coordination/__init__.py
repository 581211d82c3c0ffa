"""Coordinators: state machines whose state is a partition of an internal topic.

May touch:  replication (append, read a led partition), other brokers, the metadata image, loop timers.
Must not touch: sockets, files, api.
Invariants: state changes only by replay of a record or in the pure step that returns it; no answer leaves before what it reports
            is committed; a shard that is not led answers NOT_COORDINATOR, one that is loading COORDINATOR_LOAD_IN_PROGRESS.
Read next:  shard.py (the shape of every coordinator), runtime.py (who performs it), group/service.py (groups), share/leader.py (share
            groups where their records lie).
"""
