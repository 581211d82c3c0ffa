"""The process: listeners, Kafka API, admin service, metrics, and the wiring of a node.

May touch:  every room below.         Must not touch: the outsiders (admin, spark), the simulation above.
Invariants: objects are wired only in node/node.py; errors become codes only in api/registry.py; files and environment are
    read only in config/.
Read next:  node/node.py, then api/produce.py for the hot path.
"""
