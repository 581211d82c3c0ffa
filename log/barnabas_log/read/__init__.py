"""Where in a log an offset or a time lies.

May touch:  segments and their index files.           Must not touch: what appends, other logs.
Invariants: an index is a hint: what it says is checked against the batch that it leads to.
Read next:  sparse_index.py; time_search.py, for times; unified_log.py `read`, for offsets.
"""
