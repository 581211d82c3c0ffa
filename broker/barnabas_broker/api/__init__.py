"""The Kafka APIs: one family per file, a table of them, and what a handler is given.

May touch:  services (replica manager, metadata image, controller client, group coordinator).
Must not touch: sockets, files.
Invariants: an API is advertised iff a handler is registered; every item of a request is answered exactly once, each
            with its own error.
Read next:  registry.py (the table), produce.py and fetch.py (the hot path), metadata.py (a typical family).
"""
