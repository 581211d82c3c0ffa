"""How a directory becomes a log again, and how damage is found and mended.

May touch:  files through the Disk, a separate process.   Must not touch: peers, what decides that a replica is faulty.
Invariants: what is dropped is proved torn or was never acknowledged; what is proved damaged is kept until something sound replaces it.
Read next:  opening.py, recovery.py; scrubber.py and repair.py.
"""
