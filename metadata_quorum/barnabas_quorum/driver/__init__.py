"""What makes the pure rooms run: the quorum's and the controller's loops, and their gRPC.

May touch:  asyncio, grpc.aio, all of its own room.   Must not touch: files (a RaftLog brings them), the data lane.
Invariants: everything here runs on the control lane; generated types stop at the transport and codec files.
Read next:  node.py.
"""
