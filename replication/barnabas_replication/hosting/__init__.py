"""Which replicas are here, in which role, and how they are kept whole.

May touch:  partitions, the log manager, the image, asyncio.    Must not touch: clients' requests.
Invariants: what is hosted follows the newest image; a log is deleted, cut or replaced only as the cluster has agreed to.
Read next:  hosting.py, which obeys the image; placement.py, its plan; repair.py for damaged replicas.
"""
