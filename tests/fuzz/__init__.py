"""Bytes that nobody meant, into every decoder that strangers reach: `make fuzz BUDGET=60s`; the corpus runs in `make test`.

May touch:  the decoders, sans-IO parts.      Must not touch: sockets, nodes, clusters.
Invariants: nothing raises but the protocol's own errors; what is allocated is at most 16 times the input and 64 KiB, besides what
            a batch may open to; an input that broke this is kept in corpus/, named by what it broke.
Read next:  targets.py.
"""
