"""A small Kafka client: one meaning (connection.py, metadata.py), two drivers (aio.py and cluster.py, blocking.py).

May touch:  sockets, asyncio, barnabas_wire.kafka.    Must not touch: rooms of the cluster, files; kafka/ and records/ never import it.
Invariants: answers are matched to requests in order and by correlation id; what is retried may have been done already.
Read next:  connection.py (sans-IO), aio.py (followers, tools), blocking.py (Spark tasks, command line).
"""
