"""What a leader does: takes records in, answers fetches, keeps its ISR, moves the high watermark.

May touch:  barnabas_log, barnabas_quorum.image, asyncio; partitions.   Must not touch: sockets, the follower's side.
Invariants: nothing is acknowledged that the high watermark has not passed (acks=all) or our own log does not count (acks=1); an ISR
            counts for us only once the image has it.
Read next:  appends.py and fetches.py, where requests come in; isr.py, the rules.
"""
