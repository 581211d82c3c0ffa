"""Who leads, and what the cluster is: the metadata quorum, its image and its controller.

May touch:  the wire.                 Must not touch: the data log, replication; outside driver/ also asyncio, clock,
            socket, file.
Invariants: metadata is one replicated log of typed records; every node builds the same image from it.
Read next:  raft/core.py, then image/metadata.py and controller/controller.py.
"""
