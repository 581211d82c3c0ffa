"""Configuration: the one place that reads files and the environment, validates, and hands down finished objects.

May touch:  files named by the caller, the config dataclasses of every room.   Must not touch: sockets, clocks.
Invariants: every key has a type, a default and a doc in its room's dataclass; a bad value names the key and the fix.
Read next:  keys.py (dataclass fields to keys), server.py (one node's properties file).
"""
