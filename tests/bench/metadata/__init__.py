"""`make bench-metadata`: what 1 000, 10 000 and 100 000 partitions cost the controllers and the brokers.

May touch:  real journals in temporary directories, real gRPC between processes on loopback.   Must not touch: product state
            other than through its own interfaces.
Invariants: controller, loader, publisher, replica manager, log and snapshot writer are the product's own; every size is
            measured in fresh processes, so that no size pays for the memory of another.
Read next:  __main__.py (the table and its targets), one_size.py, failover.py.
"""
