"""Share groups as their coordinator knows them (KIP-932): members, what they are assigned, and which partitions have a share state.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: a partition is assigned only once its share state is begun; several members may have one partition; nothing is revoked.
Read next:  heartbeat.py (what a member says and hears), partitions.py (the life of a share state), assignor.py.
"""
