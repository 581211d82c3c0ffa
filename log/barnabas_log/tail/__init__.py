"""The end of a log: how it grows, becomes durable, is cut, and how its oldest segments go.

May touch:  disk.py, asyncio in flush.py alone.       Must not touch: other logs, peers, clocks.
Invariants: flushed end <= written end <= log end; what a truncation cut off is known nowhere any more.
Read next:  log_tail.py; durability.py and flush.py; truncating.py and retiring.py.
"""
