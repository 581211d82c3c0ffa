"""Configuration: how the fields of the rooms' config dataclasses become keys and values, and what stands for itself: the environment,
topic keys, log output and levels.

May touch:  its arguments, the logging module, the log file that is named.   Must not touch: sockets, clocks, other rooms of the broker.
Invariants: a field is a key iff it says so, and has a type and a doc; a bad value names the key and the fix.
Read next:  keys.py (dataclass fields to keys), ../node/properties.py (one node's file, split into the config object of each room).
"""
