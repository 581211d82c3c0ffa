"""`make bench-host`: what many brokers of one machine cost.

May touch:  processes it starts, directories below /tmp, loopback.      Must not touch: broker code.
Invariants: CPU is read of processes, by role; steps take turns within a round, and a ratio is the median of the rounds' own; what was not
            measured here and is worked out says so.
Read next:  cost.py (CPU for each MB at 1 to 16 brokers), rest.py (three hosts of sixteen), loss.py (a host is killed), __main__.py.
"""
