"""SASL (RFC 4422) as Kafka speaks it: one file per mechanism, and the session that picks one.

May touch:  what it is given.   Must not touch: sockets, clock, files.
Invariants: sans-IO: nothing waits here.
Read next:  session.py.
"""
