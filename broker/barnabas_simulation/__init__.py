"""A whole cluster on virtual time: the real nodes over a network, disks and clients that one seed decides.

May touch:  every room, through what a node shows; barnabas_broker/node assembles, starts and stops it.   Must not touch: sockets, gRPC,
            threads, real files, the wall clock.
Invariants: one seed gives one run, message for message, in any process; every law is looked at after every turn of the loop.
Read next:  cluster.py (a run), nodes.py (a node), world.py with loop.py, network.py and disk.py (its world), invariants.py (the laws); the
            searches and the planted bugs that prove the laws are in tests/simulation.
"""
