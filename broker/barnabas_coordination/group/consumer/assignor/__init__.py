"""Assignors: which member of a group gets which partitions. Members, topics and the former targets in, targets out.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network, the group.
Invariants: each partition of each topic that somebody subscribes to is given out once, to a subscriber; every member is in the answer;
            equal input gives equal output, whatever its order.
Read next:  subscribers.py (the input), uniform.py, range.py.

Each is a generator that gives way after a part of the work and returns the targets, so that a large group does not take the loop for
its whole assignment; `run` takes it at one go.
"""
