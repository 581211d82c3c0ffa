"""The consensus core: KRaft as a pure state machine over offsets and epochs.

May touch:  itself and the ids of the wire.           Must not touch: asyncio, clock, random generators, log, network.
Invariants: one leader per epoch; what is committed stays; a promise leaves only after it is on disk.
Read next:  core.py, with one script of tests/scenarios/raft beside it.
"""
