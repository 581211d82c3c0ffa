"""What clients push of their own metrics (KIP-714): which client pushes what, when a push counts, what is kept of it.

May touch:  the image's configs, a worker thread.    Must not touch: sockets, the handlers, Prometheus.
Invariants: nothing that a client names is kept without a bound; a push is opened off the data lane, never on it.
Read next:  receiver.py.
"""
