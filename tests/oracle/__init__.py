"""Apache Kafka itself as the judge: its dump tools read our files, its console tools drive our cluster, its broker answers
the same requests as ours.

May touch:  Java processes it started, jars in the local Maven cache, loopback.    Must not touch: the network otherwise.
Invariants: without Java, Maven or cached jars every test here skips with one line; `make compat-oracle` fetches the jars.
Read next:  apache.py (jars and processes), test_answers.py (what differs, and why).
"""
