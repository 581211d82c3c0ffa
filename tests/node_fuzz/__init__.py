"""`make node-fuzz`: a cluster of real nodes with one durable file damaged, started, read and judged; and every decoder alone.

May touch:  what tests may: tmpfs, forked processes, network namespaces of its own.   Must not touch: other clusters.
Invariants: a seed and a number are one damage of one file; a verdict comes from what readers, health, the log and the disk say.
Read next:  __main__.py, the command; world.py (what a cluster holds), damage.py, images.py, laws.py; decoders.py.
"""
