"""The outsider's tools: the command line, the local cluster behind `barnabas dev`, and the pytest fixture.

May touch:  the wire (gRPC admin service, Kafka protocol), processes it starts.   Must not touch: code of the broker's rooms.
Invariants: what needs a room's code is asked of `barnabas-server`; importing the command tree loads neither gRPC nor rich.
Read next:  main.py, the command tree; local_cluster.py.
"""
