"""Share groups where their records lie: what the leader of a partition does for members that share it (KIP-932, KIP-1191).

May touch:  replicas led here, the share state's persister, other brokers, loop timers.   Must not touch: sockets, the api.
Invariants: no record is opened on the loop; what is acquired is locked, and every lock ends.
Read next:  partition.py (the core), letters.py and dead_letters.py (what becomes of records that could not be
            processed), due_times.py.
"""
