"""Why something is as it is: from the metadata log, the image and what is known live, to a chain of causes.

May touch:  image, records, controller's rules.   Must not touch: asyncio, clock, files, gRPC.
Invariants: a cause that stands in the log has its offset and time; what no record states is marked as a guess; every
            explanation of something that is not well ends with a next step.
Read next:  chain.py (what an explanation is), history.py (what is taken from the log), then brokers.py, partitions.py,
            reassignments.py, leaders.py: one subject each.
"""
