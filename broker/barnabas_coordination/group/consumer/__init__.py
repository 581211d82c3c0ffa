"""Groups of the consumer protocol (KIP-848): the coordinator assigns, each member is led to its assignment by its own heartbeats.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: a partition is held by one member at most, from the record that gives it to the one that says that it was given up.
Read next:  group.py (the state, which records alone change), heartbeat.py (the step that everything hangs on).
"""
