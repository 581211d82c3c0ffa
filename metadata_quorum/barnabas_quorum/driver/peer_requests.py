"""Requests of peers that wait for the core's reply, and the log's bytes that go with a reply.

May touch:  futures of the running loop, the RaftLog, reading only.   Must not touch: the core, the transport.
Invariants: a request gets one reply or one error; a reply to a peer that hung up is dropped; bytes are read only when they leave.
Read next:  node.py, which hands the requests to the core; snapshots.py, SnapshotProver; log_cleaner.py.
"""

from __future__ import annotations

import asyncio

from barnabas_quorum.driver.log_cleaner import LogCleaner
from barnabas_quorum.driver.snapshots import SnapshotProver, SnapshotStats
from barnabas_quorum.raft.journal import RaftLog
from barnabas_quorum.raft.messages import FetchReply, FetchSnapshotReply, Reply, ReplyError, Request


class PeerRequests:
    """What peers have asked and the core has not answered; a correlation leads from the reply to the request."""

    def __init__(
        self,
        *,
        log: RaftLog,
        fetch_bytes_max: int,
        prover: SnapshotProver,
        cleaner: LogCleaner,
        stats: SnapshotStats,
    ) -> None:
        self._log = log
        self._fetch_bytes_max = fetch_bytes_max
        self._prover = prover
        self._cleaner = cleaner
        self._stats = stats
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._last_token = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, request: Request) -> tuple[int, asyncio.Future[Reply]]:
        """Sets the request's correlation; returns it with the reply to come. To be followed by `end`, whatever happens."""
        self._last_token += 1
        token = self._last_token
        request.correlation = token
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[token] = reply
        return token, reply

    def end(self, token: int) -> None:
        """The request was answered, or its peer hung up."""
        del self._waiting[token]

    def answer(self, reply: Reply, *, now_ms: int) -> None:
        """Complete the core's reply with the bytes that it names, and give it to the request that waits for it."""
        waiting = self._waiting.get(reply.correlation)
        if waiting is None or waiting.done():
            return  # the peer hung up
        if isinstance(reply, FetchReply) and reply.end_offset > reply.base_offset:
            batches = self._log.read(reply.base_offset, end_offset=reply.end_offset, bytes_max=self._fetch_bytes_max)
            reply.payload = b"".join([batch.data for batch in batches])
        elif isinstance(reply, FetchSnapshotReply) and reply.error is ReplyError.NONE:
            self._read_slice(reply, now_ms)
        waiting.set_result(reply)

    def refuse_all(self, error: Exception) -> None:
        """No reply will come any more."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)

    def _read_slice(self, reply: FetchSnapshotReply, now_ms: int) -> None:
        if reply.position == 0:
            self._prover.want(reply.snapshot_id)
        try:
            reply.size, reply.payload = self._log.read_snapshot(reply.snapshot_id, reply.position, reply.bytes_max)
        except FileNotFoundError:
            reply.error = ReplyError.SNAPSHOT_NOT_FOUND
            return
        if reply.position >= reply.size:
            reply.error = ReplyError.POSITION_OUT_OF_RANGE
            return
        self._cleaner.on_slice_served(reply.snapshot_id, now_ms=now_ms)
        if reply.position + len(reply.payload) >= reply.size:
            self._stats.sent += 1
