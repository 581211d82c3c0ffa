"""All logs of a broker, in the log directories that they are in, and the files beside them there.

May touch:  asyncio, the Disk and clock they are given.   Must not touch: peers, metadata.
Invariants: a failed directory is used no more until the broker starts again; a full one only read; a checkpoint never says more than
            is durable.
Read next:  manager.py, which has them all; log_directory.py, one of them.
"""
