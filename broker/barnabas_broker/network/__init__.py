"""Listeners and connections: bytes in, frames in order, responses in request order out.

May touch:  sockets, the receive buffer, FileRanges (sendfile).
Must not touch: logs, metadata, coordinators (api does).
Invariants: a response is never interleaved with another; a FileRange is released exactly once; a hostile frame costs
            its own connection only.
Read next:  listener.py, then connection.py, framing.py (bytes to frames) and output.py (answers to bytes).
"""
