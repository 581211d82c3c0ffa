"""Share state: how far each partition of each share group is, kept in `__share_group_state` (KIP-932).

May touch:  its shards through the runtime, the metadata image, other brokers.   Must not touch: sockets, files, records of topics.
Invariants: a count of deliveries and the start offset never fall but by a new state epoch; a leader that was replaced is refused.
Read next:  messages.py (what is kept, and who keeps it).
"""
