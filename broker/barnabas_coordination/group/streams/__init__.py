"""Streams groups (KIP-1071): the coordinator knows the application's topology, makes its internal topics and hands out its tasks.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: a task is active in one member at most, from the record that gives it to the one that says that it was given up; no process
            has one task in two of its members.
Read next:  tasks.py and topology.py (the words), group.py (the state, which records alone change), heartbeat.py (the step).

What is alike is shared with the consumer protocol's groups beside this: epochs, sessions, intervals, commits by member epoch.
"""
