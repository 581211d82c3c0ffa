"""A whole cluster on virtual time: the real nodes over a network, disks and clients that one seed decides.

May touch:  every room, to build nodes of it, as node/node.py does.   Must not touch: sockets, gRPC, threads, real files, the wall clock.
Invariants: one seed gives one run, message for message, in any process; every law is looked at after every turn of the loop.
Read next:  cluster.py (a run), nodes.py (a node), loop.py, network.py and disk.py (the world), invariants.py (the laws); the
            searches and the planted bugs that prove the laws are in tests/simulation.
"""
