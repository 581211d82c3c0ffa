"""Verbs of `barnabas-server` that work on the files of a stopped node: dump, verify, recover the quorum.

May touch:  files, standard output.      Must not touch: sockets, a directory that a running node has locked.
Invariants: nothing is changed without a report of what was there before.
Read next:  log_dump.py; quorum_recovery.py.
"""
