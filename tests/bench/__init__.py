"""The benchmark: what a broker costs beside the floor that the machine itself sets.

May touch:  real processes on loopback, temporary directories.    Must not touch: broker code in its own process.
Invariants: a floor measured in the same run stands beside every figure; a run on a machine that is too slow is void.
Read next:  __main__.py (the table), floor.py (what the machine costs), blaster.py (the client).
"""
