"""What a broker asks of the controllers: the active one's verbs, the leader's view of the quorum, a controller's own facts.

May touch:  gRPC, clocks handed in.      Must not touch: logs, replicas, Kafka listeners.
Invariants: a request is sent again only where that cannot apply it twice.
Read next:  client.py.
"""
