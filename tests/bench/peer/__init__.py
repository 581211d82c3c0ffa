"""`make bench-peer`: Barnabas beside Apache Kafka, row by row, in one run on the same cores.

May touch:  processes it starts, a temporary directory, Maven.      Must not touch: broker code.
Invariants: the one source of figures that compare the two; systems take turns within a round.
Read next:  rows.py (what is measured), results.py (what becomes of it), __main__.py.
"""
