"""What a follower does: fetches from leaders, appends what they sent, cuts what they do not have.

May touch:  barnabas_log, asyncio; sockets in peer.py alone.    Must not touch: clients' requests, the controller.
Invariants: a fetch offset is a promise of durable bytes, or names the flushed offset beside it; a log is cut only to where its
            history parts from its leader's.
Read next:  fetcher.py, which waits and asks; truncation.py, the rules.
"""
