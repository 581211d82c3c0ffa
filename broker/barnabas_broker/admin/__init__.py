"""The services of a node's admin listener: admin verbs, inspection, explain; what they raise becomes a gRPC status at the edge.

May touch:  gRPC servicers, images, the controller client.   Must not touch: files, Kafka listeners, logs but through what is handed in.
Invariants: every call ends in edge.py, counted; a change is forwarded to the active controller and answered once it is committed.
Read next:  service.py, then edge.py.
"""
