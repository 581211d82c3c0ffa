"""The cluster's metadata as immutable images, built from typed records: the only truth about what the cluster is.

May touch:  records, record_codec, rpds.   Must not touch: asyncio, clock, files, raft, controller.
Invariants: no image ever changes; change = a delta replayed, applied once, published to a fixed list.
Read next:  metadata.py, then topics.py.
"""
