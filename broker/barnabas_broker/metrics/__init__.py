"""What a node shows of itself: counters of every room under Prometheus names, liveness and readiness.

May touch:  every room's Stats and the image, to read.    Must not touch: anything it reads.
Invariants: metrics are pulled, a room never imports this; label values are bounded.
Read next:  exporter.py.
"""
