"""One partition across brokers: its leader, its followers, the in-sync set, and how far is committed.

May touch:  barnabas_log, barnabas_wire, barnabas_quorum.image, asyncio; sockets in peer.py alone.
            Must not touch: broker, controller, raft.
Invariants: a replica's end counts for the high watermark only when it is durable (flushed, or written in page-cache mode);
            an ISR change counts against us at once and for us only when the controller has confirmed it.
Read next:  isr.py (the rules), partition.py (the state they decide on), manager.py (requests in, answers out).
"""
