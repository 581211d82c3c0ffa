"""The follower's side: one task per leader broker keeps all partitions it leads in step with it.

May touch:  its peer, loop timers, what it follows through fetcher_partitions.py.     Must not touch: logs, requests of clients.
Invariants: one fetch in flight; a cancelled or interrupted fetch is never taken in.
Read next:  fetcher_partitions.py (what is asked for, what becomes of an answer), peer.py (the connection).

Not obvious:
- A leader drops followers that are silent while writes wait for them. A follower whose flush takes long is not silent: it fetches its
  other partitions, or nothing at all once a second. A fetch of some partitions counts for all of them.
- A partition given to us while a fetch is parked at the leader would wait for that fetch to end, up to
  replica.fetch.wait.max.ms. So a parked fetch is given up (INTERRUPT_AFTER_MS later) and sent again with the newcomer.
- Only the fetcher bounds how long its fetch takes, with one timer that is set again when it comes, not one per fetch: a
  round then costs a tenth less (asyncio.timeout and the timers below it took 20 of 185 us, measured).
"""

from __future__ import annotations

import asyncio
import logging

from barnabas_replication.follower.fetch_plan import backoff_ms
from barnabas_replication.follower.fetcher_partitions import FetcherPartitions, FetcherParts
from barnabas_replication.follower.peer import FetchAnswer, Peer
from barnabas_replication.partition import Partition
from barnabas_replication.requests import FetchPartitionSpec, FetchSpec
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Endpoint

logger = logging.getLogger(__name__)

NO_ANSWER = FetchAnswer(())
SESSION_LOST = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
ALIVE_EVERY_MS = 1_000
"""While nothing may be asked for, a fetch of nothing goes out this often: it shows the leader that we live."""
INTERRUPT_AFTER_MS = 10
"""A fetch that is still out this long after a partition was added is taken to be parked at the leader."""


class Fetcher:
    """Follows one leader broker. `run` is its owner task; the other methods are called on the same loop."""

    def __init__(self, leader_id: BrokerId, *, endpoint: Endpoint | None, parts: FetcherParts) -> None:
        """endpoint: where the leader listens, None while unknown."""
        self.leader_id = leader_id
        self.is_stopped = False
        self._endpoint = endpoint
        self._parts = parts
        self._config = parts.config
        self._stats = parts.stats
        self._loop = asyncio.get_running_loop()
        self._partitions = FetcherPartitions(leader_id, parts)
        self._peer: Peer | None = None
        self._peer_endpoint: Endpoint | None = None
        self._failures = 0
        self._not_before_ms = 0
        self._waiter: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._fetch_began_s: float | None = None
        """While a fetch is out: when it began, by the loop's clock."""
        self._last_fetch_ms = 0
        self._fetch_number = 0
        self._is_given_up = False
        """Whether the fetch that is out was cancelled here."""
        self._is_interrupted = False
        self._watchdog: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        """Its state in one line: whom it asks, for how much, and what it waits for."""
        doing = "asks" if self._fetch_began_s is not None else "pauses" if self._failures else "waits"
        session = f", session {self._partitions.session_id}" if self._partitions.session_id else ""
        failed = f", {self._failures} failures" if self._failures else ""
        doing = "stopped" if self.is_stopped else doing
        return f"<fetcher of {self.leader_id}, partitions: {len(self._partitions)}{session}, {doing}{failed}>"

    # ------------------------------------------------------------------ called by the pool

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, partition: Partition) -> None:
        """Follow the leader in this partition from its log end on; again with a newer epoch replaces the older."""
        self._partitions.add(partition)
        self._wake()
        if self._fetch_began_s is not None:
            self._loop.call_later(INTERRUPT_AFTER_MS / 1000, self._interrupt, self._fetch_number)

    def remove(self, partition: Partition) -> None:
        """Follow it no more; an answer on its way is ignored."""
        self._partitions.remove(partition)
        self._wake()

    def on_flushed(self, partition: Partition) -> None:
        """The partition's log is durable further than before."""
        if self._partitions.note_flushed(partition):
            self._wake()

    def on_log_start_moved(self, partition: Partition) -> None:
        """The partition's log begins later than before."""
        self._partitions.note_log_start(partition)
        self._wake()

    def set_endpoint(self, endpoint: Endpoint | None) -> None:
        """The leader may have moved to another address."""
        if endpoint != self._endpoint:
            self._endpoint = endpoint
            self._not_before_ms = 0
            self._failures = 0
            self._wake()

    def stop(self) -> None:
        """End `run` soon."""
        self.is_stopped = True
        self._wake()
        self._interrupt(self._fetch_number)

    # ------------------------------------------------------------------ the owner task

    async def run(self) -> None:
        """Fetch until stopped or cancelled."""
        self._task = asyncio.current_task()
        try:
            while not self.is_stopped:
                now_s = self._loop.time()
                now_ms = int(now_s * 1000)
                if now_ms < self._not_before_ms:
                    await self._pause_until(self._not_before_ms)
                    continue
                self._partitions.check_session(self._parts.broker_epoch())
                due = self._partitions.due(now_ms)
                if due.is_asking:
                    await self._fetch_once(due.specs, due.wait_ms, now_s)
                elif due.is_flush_awaited or not self._partitions:
                    await self._pause_until(due.next_due_ms)
                elif now_ms >= (alive_due_ms := self._last_fetch_ms + ALIVE_EVERY_MS):
                    await self._fetch_once([], 0, now_s)
                else:
                    next_due_ms = due.next_due_ms
                    await self._pause_until(alive_due_ms if next_due_ms is None else min(next_due_ms, alive_due_ms))
        finally:
            if self._watchdog is not None:
                self._watchdog.cancel()
            if self._peer is not None:
                await self._peer.close()

    async def _fetch_once(self, specs: list[FetchPartitionSpec], wait_ms: int, began_s: float) -> None:
        config = self._config
        request = FetchSpec(
            replica_id=self._parts.broker_id,
            replica_epoch=self._parts.broker_epoch(),
            max_wait_ms=wait_ms,
            min_bytes=config.replica_fetch_bytes_min,
            max_bytes=config.replica_fetch_response_bytes_max,
            session_id=self._partitions.session_id,
            session_epoch=self._partitions.session_epoch,
        )
        task = self._task
        assert task is not None, "a fetch belongs to run()"
        cancelling = task.cancelling()
        self._is_interrupted = self._is_given_up = False
        self._fetch_number += 1
        self._fetch_began_s = began_s
        self._last_fetch_ms = int(began_s * 1000)
        if self._watchdog is None:
            self._watchdog = self._loop.call_later(config.replica_socket_timeout_ms / 1000, self._watch)
        failure: BaseException | None = None
        answer = NO_ANSWER
        try:
            peer = self._peer
            if peer is None or self._peer_endpoint != self._endpoint:
                peer = await self._connected_peer()
            answer = await peer.fetch(request, specs)
        except (KafkaError, OSError, TimeoutError, asyncio.CancelledError) as error:
            failure = error
        finally:
            self._fetch_began_s = None
        # As asyncio.timeout has it: our cancellation ends the fetch, anybody else's the task.
        is_ours = self._is_given_up and task.uncancel() <= cancelling
        if failure is None:
            now_s = self._loop.time()
            self._stats.replica_fetch_s.observe(now_s - began_s)
            self._failures = 0
            self._partitions.note_session(answer.session_id)
            if self._partitions.take_in(answer.partitions, int(now_s * 1000)):
                self._peer_endpoint = None  # the next fetch opens a new connection
            return
        had_session = self._partitions.end_session()
        if had_session and isinstance(failure, KafkaError) and failure.code in SESSION_LOST:
            return  # the leader has begun a new session, so do we
        if isinstance(failure, asyncio.CancelledError):
            if not is_ours:
                raise failure
            failure = TimeoutError(f"no answer within {config.replica_socket_timeout_ms} ms")
        if not self._is_interrupted:
            self._stats.replica_fetch_errors += 1
            self._back_off(failure)

    def _watch(self) -> None:
        """Give up the fetch that is out if it began too long ago, else look again when it would be."""
        self._watchdog = None
        if self._fetch_began_s is None:
            return
        left_s = self._fetch_began_s + self._config.replica_socket_timeout_ms / 1000 - self._loop.time()
        if left_s > 0:
            self._watchdog = self._loop.call_later(left_s, self._watch)
        else:
            self._give_up()

    def _give_up(self) -> None:
        if not self._is_given_up and self._task is not None:
            self._is_given_up = True
            self._task.cancel()

    async def _connected_peer(self) -> Peer:
        endpoint = self._endpoint
        if endpoint is None:
            raise ConnectionError(f"broker {self.leader_id} has no listener {self._config.inter_broker_listener_name}")
        if self._peer is not None and self._peer_endpoint != endpoint:
            stale, self._peer = self._peer, None
            await stale.close()
        if self._peer is None:
            self._peer = self._parts.peers(self.leader_id, endpoint)
            self._peer_endpoint = endpoint
        return self._peer

    # ------------------------------------------------------------------ waiting

    def _back_off(self, error: BaseException) -> None:
        jitter = self._parts.random.uniform(0.8, 1.2)
        pause_ms = backoff_ms(self._failures, longest_ms=self._config.replica_fetch_backoff_ms, jitter=jitter)
        level = logging.DEBUG if self._failures else logging.INFO
        logger.log(
            level, "fetching from broker %d failed, again in %d ms: %s", self.leader_id, pause_ms, error or type(error)
        )
        self._failures += 1
        self._not_before_ms = self._now_ms() + pause_ms

    async def _pause_until(self, due_ms: int | None) -> None:
        """Sleep until then (None: for as long as it takes) or until woken."""
        waiter = self._waiter = self._loop.create_future()
        timer = None
        if due_ms is not None:
            # One ms more than the clock says: timers may come a little early, and a second round would spin.
            timer = self._loop.call_later(max(0, due_ms - self._now_ms() + 1) / 1000, self._wake)
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _interrupt(self, fetch_number: int) -> None:
        """Give up this very fetch, if it is still out."""
        if self._fetch_began_s is not None and self._fetch_number == fetch_number and not self._is_given_up:
            self._is_interrupted = True
            self._give_up()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
