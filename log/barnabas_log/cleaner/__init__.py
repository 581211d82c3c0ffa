"""Compaction: of a log's sealed part, the last value of each key stays (cleanup.policy=compact).

May touch:  its modules.              Must not touch: peers, metadata.
Invariants: offsets never change; nothing at or above the end of a run is touched; the broker's loop opens no record.
Read next:  survival.py (what stays), choice.py (which log), rewrite.py and worker.py (the work), swap.py, driver.py.
"""
