"""Performs what coordinators decide: one shard per led partition of the coordinator's topic.

May touch:  asyncio (loop timers, futures), a CoordinatorLog, the clock it is given.   Must not touch: network, api, groups.
Invariants: a record is replayed iff it was appended, in the order of the log; a reply leaves once everything appended before it
            is committed; every ticket is answered exactly once, at the latest when the shard goes.
Read next:  shard.py (the interface), replicated_log.py (the real CoordinatorLog), group/service.py (the user).

A shard's states: elected ─► loading (log read up to its end, then the HW has to reach it) ─► active ─► resigned, and dropped.
Losing leadership drops the whole shard, decided and committed alike: the next leader has it in its log.

Not obvious:
- A step without records still waits for what was appended before it, or it would report state that may be rolled back.
- An append refused at once changes nothing, for nothing was replayed: the shard's `on_refused` returns what happens instead. One
  that fails later leaves the log's end unknown: the shard is thrown away and read again.
- A new leader reads up to its log's end, not its HW, which may be behind: committed offsets lie between the two.
- The log is state by key: loading keeps the last raw value of each raw key and decodes and replays those alone, in the order in
  which their keys first came. Where the coordinator says that every record counts, all are replayed as they come.
  One partition works at a time and for one slice, whatever number of them is being read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import field
from enum import Enum
from functools import partial
from itertools import chain, islice
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from barnabas_coordination.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator
from barnabas_coordination.shard import (
    ArmTimer,
    CoordinatorResult,
    CoordinatorShard,
    Pending,
    Placed,
    Reply,
    Ticket,
    TransactionEnd,
)
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.lazy_dataclass import dataclass
from barnabas_wire.records.batch import Record, build_batch, iterate_batches, iterate_records
from barnabas_wire.records.control import build_transaction_marker
from barnabas_wire.records.last_values import OpenTransactions, collect_last_values

logger = logging.getLogger("barnabas_broker.coordinator.runtime")  # the name that operators set a level of

LOAD_FAILURES_TOLD = 10
"""A partition that could not be read so often in a row, RELOAD_DELAY_S apart, is reported."""
HIGH_WATERMARK_POLL_S = 0.01
"""How often a loading shard looks whether the HW has reached the end it read."""
RELOAD_DELAY_S = 1.0
"""Pause before a partition that could not be read is read again."""
LOAD_SLICE_BYTES = 64 * 1024
"""Bytes of records read before the loop gets its turn: under 1 ms of commits."""
REPLAY_SLICE_RECORDS = 100
"""Last records of their keys that are replayed before the loop gets its turn: about 1 ms."""
EVERY_SLICE_RECORDS = 25
"""The same where every record is opened and replayed."""

S = TypeVar("S", bound=CoordinatorShard)

_NOT_COORDINATOR_CODES = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
_NOT_AVAILABLE_CODES = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class LogEnds(NamedTuple):
    """Where a led partition begins, is committed to, and ends."""

    start: Offset
    high_watermark: Offset
    end: Offset


class CoordinatorLog(Protocol):
    """What a coordinator needs of replication. Partitions are those of the coordinator's own topic."""

    def ends(self, partition: int) -> LogEnds:
        """Raises KafkaError when this broker does not lead the partition."""
        ...

    async def read(self, partition: int, offset: Offset, *, end: Offset, bytes_max: int) -> bytes:
        """Whole batches from the one that holds `offset`, at least one, none at or past `end`. Raises KafkaError."""
        ...

    def append(self, partition: int, batch: bytes, *, leader_epoch: Epoch) -> asyncio.Future[Offset]:
        """Append one batch. The future is done once the HW has passed it.

        Raises KafkaError (or returns a future that has failed already) when nothing was appended.
        """
        ...


class ShardState(Enum):
    """The state of a led partition."""

    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


@dataclass(slots=True)
class CoordinatorStats:
    """Counters of one coordinator."""

    loads: int = 0
    load_failures: int = 0
    records_loaded: int = 0
    unknown_records: int = 0
    batches_written: int = 0
    records_written: int = 0
    appends_refused: int = 0
    appends_lost: int = 0
    commit_timeouts: int = 0


@dataclass(slots=True, eq=False)
class _Write:
    """One appended batch and who waits for it."""

    records: list[Any]
    replies: list[Reply] = field(default_factory=list)
    deadline: asyncio.TimerHandle | None = None
    is_late: bool = False


@dataclass(slots=True, eq=False)
class _Hosted(Generic[S]):
    """One led partition."""

    partition: int
    leader_epoch: Epoch
    shard: S
    state: ShardState = ShardState.LOADING
    writes: deque[_Write] = field(default_factory=deque)
    """Appended and not yet committed, oldest first."""
    tickets: dict[asyncio.Future[Any], None] = field(default_factory=dict)
    """The tickets of requests that are not answered, oldest first: a set of objects has the order of their
    addresses."""
    timers: dict[Hashable, asyncio.TimerHandle] = field(default_factory=dict)
    after_load: list[Callable[[S, int], CoordinatorResult]] = field(default_factory=list)
    load_failures: int = 0

    @property
    def is_closed(self) -> bool:
        """Whether the partition is led no more; to be asked again after each await."""
        return self.state is ShardState.CLOSED


class CoordinatorRuntime(Generic[S]):
    """Hosts the shards of one coordinator. Everything runs on the data lane's loop."""

    def __init__(
        self,
        name: str,
        *,
        log: CoordinatorLog,
        make_shard: Callable[[], S],
        clock_ms: Callable[[], int],
        commit_timeout_ms: int,
        load_bytes: int,
        on_loaded: Callable[[int, S], None] = lambda partition, shard: None,
        replays_all: bool = False,
    ) -> None:
        """`clock_ms` is the wall clock; `commit_timeout_ms` bounds how long a reply waits for replication; `on_loaded` hears which
        partition was read, before anything is decided in it. `replays_all`: every record counts, not only the last of its key; the
        shards get each as a Placed, and nothing in their log is part of a transaction."""
        self.name = name
        self.stats = CoordinatorStats()
        self._unreadable: dict[int, KafkaError] = {}
        """Partitions that the next such line is about."""
        self._log = log
        self._make_shard = make_shard
        self._clock_ms = clock_ms
        self._commit_timeout_ms = commit_timeout_ms
        self._load_bytes = load_bytes
        self._on_loaded = on_loaded
        self._replays_all = replays_all
        self._hosted: dict[int, _Hosted[S]] = {}
        self._load_turn = asyncio.Lock()
        """Taken for one slice of loading: fifty partitions that load at once would else take the loop for fifty slices."""
        self._work: asyncio.Queue[_Hosted[S] | BaseException] = asyncio.Queue()

    # ---- leadership ----------------------------------------------------------------------------------------------

    def on_elected(self, partition: int, leader_epoch: Epoch) -> None:
        """This broker leads the partition. A later epoch of a partition it led all along changes nothing else."""
        hosted = self._hosted.get(partition)
        if hosted is not None:
            hosted.leader_epoch = max(hosted.leader_epoch, leader_epoch)
            return
        self._start_loading(partition, leader_epoch)

    def on_resigned(self, partition: int) -> None:
        """This broker no longer leads the partition: everyone who waits is sent to the new coordinator."""
        hosted = self._hosted.pop(partition, None)
        if hosted is not None:
            self._close(hosted)

    def _start_loading(self, partition: int, leader_epoch: Epoch) -> None:
        hosted = _Hosted(partition, leader_epoch, self._make_shard())
        self._hosted[partition] = hosted
        self._work.put_nowait(hosted)

    def _close(self, hosted: _Hosted[S]) -> None:
        hosted.state = ShardState.CLOSED
        for timer in hosted.timers.values():
            timer.cancel()
        for write in hosted.writes:
            if write.deadline is not None:
                write.deadline.cancel()
        gone = NotCoordinator(
            f"this broker no longer leads partition {hosted.partition} of the {self.name} coordinator"
        )
        for ticket in list(hosted.tickets):
            self._answer(hosted, Reply(ticket, gone))
        hosted.timers.clear()
        hosted.writes.clear()

    # ---- requests ------------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> dict[int, ShardState]:
        """Led partitions and how far each is."""
        return {partition: hosted.state for partition, hosted in self._hosted.items()}

    def shard(self, partition: int) -> S:
        """The active shard, for reads of committed state. Raises NotCoordinator, CoordinatorLoadInProgress."""
        return self._active(partition).shard

    def leader_epoch(self, partition: int) -> Epoch:
        """The epoch in which this broker leads the partition. Raises NotCoordinator, CoordinatorLoadInProgress."""
        return self._active(partition).leader_epoch

    def _active(self, partition: int) -> _Hosted[S]:
        hosted = self._hosted.get(partition)
        if hosted is None:
            raise NotCoordinator(f"this broker does not lead partition {partition} of the {self.name} coordinator")
        if hosted.state is not ShardState.ACTIVE:
            raise CoordinatorLoadInProgress(f"partition {partition} is being read")
        return hosted

    async def write(
        self,
        partition: int,
        decide: Callable[[S, Ticket, int], CoordinatorResult],
        *,
        on_abandoned: Callable[[S, Ticket, int], CoordinatorResult] | None = None,
    ) -> Any:
        """Run one step `(shard, ticket, now_ms) -> result` and wait until the ticket is answered.

        `on_abandoned` runs when the waiting task is cancelled, so that the shard can forget the ticket.
        Raises the KafkaError of the step, or of the reply.
        """
        hosted = self._active(partition)
        ticket: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        result = decide(hosted.shard, ticket, self._clock_ms())
        hosted.tickets[ticket] = None
        self._perform(hosted, result)
        try:
            return await ticket
        except asyncio.CancelledError:
            hosted.tickets.pop(ticket, None)
            if on_abandoned is not None and hosted.state is ShardState.ACTIVE:
                self._perform(hosted, on_abandoned(hosted.shard, ticket, self._clock_ms()))
            raise

    def write_alone(self, partition: int, decide: Callable[[S, int], CoordinatorResult]) -> None:
        """Run a step `(shard, now_ms)` that no request waits for, if the shard is here and active."""
        hosted = self._hosted.get(partition)
        if hosted is not None and hosted.state is ShardState.ACTIVE:
            self._perform(hosted, decide(hosted.shard, self._clock_ms()))

    def write_to_all(self, decide: Callable[[S, int], CoordinatorResult]) -> None:
        """Run a step `(shard, now_ms)` that no request waits for on every shard, on a loading one when it is loaded."""
        for hosted in list(self._hosted.values()):
            if hosted.state is ShardState.ACTIVE:
                self._perform(hosted, decide(hosted.shard, self._clock_ms()))
            else:
                hosted.after_load.append(decide)

    # ---- results -------------------------------------------------------------------------------------------------

    def _perform(self, hosted: _Hosted[S], result: CoordinatorResult) -> None:
        """Append, replay, arm, and park the replies behind whatever is not committed yet."""
        if result.records or result.marker is not None:
            result = self._append(hosted, result)
        for timer in result.timers:
            running = hosted.timers.pop(timer.key, None)
            if running is not None:
                running.cancel()
            if isinstance(timer, ArmTimer):
                hosted.timers[timer.key] = asyncio.get_running_loop().call_later(
                    timer.delay_ms / 1000, self._on_timer, hosted, timer.key
                )
        if hosted.writes and not hosted.writes[-1].is_late:
            hosted.writes[-1].replies.extend(result.replies)
            return
        for reply in result.replies:
            late = CoordinatorNotAvailable("earlier records of the coordinator are not replicated yet")
            self._answer(hosted, Reply(reply.ticket, late) if hosted.writes else reply)

    def _append(self, hosted: _Hosted[S], result: CoordinatorResult) -> CoordinatorResult:
        try:
            written = self._log.append(
                hosted.partition, self._to_batch(hosted.shard, result), leader_epoch=hosted.leader_epoch
            )
            if written.done() and written.exception() is not None:
                written.result()
        except KafkaError as error:
            self.stats.appends_refused += 1
            instead = hosted.shard.on_refused(result, coordinator_error(error))
            assert not instead.records, "a refused step must not write"
            return instead
        records = _replayed(result)
        if self._replays_all:
            base = self._log.ends(hosted.partition).end - len(records)
            records = [Placed(Offset(base + index), record) for index, record in enumerate(records)]
        self.stats.batches_written += 1
        self.stats.records_written += len(records)
        for record in records:
            hosted.shard.replay(record)
        write = _Write(records)
        write.deadline = asyncio.get_running_loop().call_later(
            self._commit_timeout_ms / 1000, self._on_late, hosted, write
        )
        hosted.writes.append(write)
        if written.done():
            self._on_written(hosted, write, written)
        else:
            written.add_done_callback(partial(self._on_written, hosted, write))
        return result

    def _to_batch(self, shard: S, result: CoordinatorResult) -> bytes:
        now_ms = self._clock_ms()
        marker, writer = result.marker, result.writer
        if marker is not None:
            return build_transaction_marker(
                producer_id=marker.producer_id,
                producer_epoch=marker.epoch,
                coordinator_epoch=marker.coordinator_epoch,
                is_commit=marker.is_commit,
                now_ms=now_ms,
            )
        records = [Record(index, now_ms, *shard.encode(record)) for index, record in enumerate(result.records)]
        if writer is None:
            return build_batch(records)
        return build_batch(records, is_transactional=True, producer_id=writer.producer_id, producer_epoch=writer.epoch)

    def _on_written(self, hosted: _Hosted[S], write: _Write, written: asyncio.Future[Offset]) -> None:
        """The HW passed one batch, and so every older one."""
        error = asyncio.CancelledError() if written.cancelled() else written.exception()
        if hosted.is_closed or write not in hosted.writes:
            return
        if error is not None:
            self.stats.appends_lost += 1
            logger.warning(
                "%s coordinator, partition %d: read again after a lost append: %r", self.name, hosted.partition, error
            )
            self._close(hosted)
            self._start_loading(hosted.partition, hosted.leader_epoch)
            return
        while hosted.writes:
            oldest = hosted.writes.popleft()
            if oldest.deadline is not None:
                oldest.deadline.cancel()
            for record in oldest.records:
                hosted.shard.on_committed(record)
            for reply in oldest.replies:
                self._answer(hosted, reply)
            if oldest is write:
                break

    def _on_late(self, hosted: _Hosted[S], write: _Write) -> None:
        """The batch was not committed in time. It may still be: only those who wait are sent away."""
        self.stats.commit_timeouts += 1
        write.is_late = True
        late = CoordinatorNotAvailable(f"a record was not replicated within {self._commit_timeout_ms} ms")
        for reply in write.replies:
            self._answer(hosted, Reply(reply.ticket, late))
        write.replies.clear()

    def _answer(self, hosted: _Hosted[S], reply: Reply) -> None:
        ticket = reply.ticket
        assert isinstance(ticket, asyncio.Future)
        hosted.tickets.pop(ticket, None)
        if ticket.done():
            return
        if isinstance(reply.outcome, KafkaError):
            ticket.set_exception(reply.outcome)
        else:
            ticket.set_result(reply.outcome)

    def _on_timer(self, hosted: _Hosted[S], key: Hashable) -> None:
        hosted.timers.pop(key, None)
        try:
            self._perform(hosted, hosted.shard.on_timer(key, now_ms=self._clock_ms()))
        except Exception as error:  # run() raises it: a timer has no caller to raise to
            self._work.put_nowait(error)

    # ---- loading -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Load elected partitions until cancelled; raises what a timer's step raised. Owner task of all shards."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    work = await self._work.get()
                    if isinstance(work, BaseException):
                        raise work
                    tasks.create_task(self._load(work), name=f"load {self.name} {work.partition}")
        finally:
            for partition in list(self._hosted):
                self.on_resigned(partition)

    async def _load(self, hosted: _Hosted[S]) -> None:
        try:
            await self._read_all(hosted)
        except KafkaError as error:
            if not hosted.is_closed:
                self.stats.load_failures += 1
                self._note_load_failure(hosted, error)
                await asyncio.sleep(RELOAD_DELAY_S)
            if not hosted.is_closed:
                hosted.shard = self._make_shard()
                self._work.put_nowait(hosted)
            return
        if hosted.is_closed:
            return
        self._unreadable.pop(hosted.partition, None)
        hosted.state = ShardState.ACTIVE
        self.stats.loads += 1
        self._on_loaded(hosted.partition, hosted.shard)
        self._perform(hosted, hosted.shard.on_loaded(now_ms=self._clock_ms()))
        for decide in hosted.after_load:
            self._perform(hosted, decide(hosted.shard, self._clock_ms()))
        hosted.after_load.clear()

    def _note_load_failure(self, hosted: _Hosted[S], error: KafkaError) -> None:
        """A partition that changes hands cannot be read for a moment, and at a restart all of them do: that is no news. What
        stays so is reported in one line for all of them."""
        logger.debug("%s coordinator cannot read partition %d: %r", self.name, hosted.partition, error)
        hosted.load_failures += 1
        if hosted.load_failures == LOAD_FAILURES_TOLD:
            if not self._unreadable:
                asyncio.get_running_loop().call_later(RELOAD_DELAY_S, self._tell_unreadable)
            self._unreadable[hosted.partition] = error

    def _tell_unreadable(self) -> None:
        for partition, error in islice(self._unreadable.items(), 1):
            logger.warning(
                "%s coordinator: %d partitions could not be read for %.0f s, and the groups in them wait; the first is %d: %s. "
                "Look at barnabas cluster health, and at this broker's log directories",
                self.name,
                len(self._unreadable),
                LOAD_FAILURES_TOLD * RELOAD_DELAY_S,
                partition,
                error,
            )
        self._unreadable.clear()

    async def _read_all(self, hosted: _Hosted[S]) -> None:
        """Replay the partition up to its end, then wait until all of that is committed. Returns early once closed."""
        start, _, end = self._log.ends(hosted.partition)
        offset = start
        last: dict[bytes, bytes | None] = {}
        open_transactions: OpenTransactions = {}
        while offset < end and not hosted.is_closed:
            batches = await self._log.read(hosted.partition, offset, end=end, bytes_max=self._load_bytes)
            before = offset
            slices = (
                self._replay_every(hosted.shard, batches, start=start)
                if self._replays_all
                else collect_last_values(
                    batches, last, slice_bytes=LOAD_SLICE_BYTES, open_transactions=open_transactions
                )
            )
            while not hosted.is_closed:
                async with self._load_turn:
                    progress = next(slices, None)
                    await asyncio.sleep(0)
                if progress is None:
                    break
                offset, records, keyless = progress
                self.stats.records_loaded += records
                self.stats.unknown_records += keyless
            if offset == before and not hosted.is_closed:
                raise CoordinatorNotAvailable(
                    f"partition {hosted.partition} ends at {end} but has no batch at {offset}"
                )
        if last or open_transactions:
            await self._replay_last(hosted, last, open_transactions)
        # Polled: the HW moves on the hot path of every produce, which shall not know of coordinators.
        while not hosted.is_closed and self._log.ends(hosted.partition).high_watermark < end:
            await asyncio.sleep(HIGH_WATERMARK_POLL_S)

    def _replay_every(self, shard: S, batches: bytes, *, start: Offset) -> Iterator[tuple[Offset, int, int]]:
        """Replay the records of whole batches from `start` on, of which the first batch may hold older ones. Yields as
        collect_last_values does, at the ends of batches."""
        count = keyless = 0
        next_offset: Offset | None = None
        for position, header in iterate_batches(batches):
            for record in () if header.is_control else iterate_records(memoryview(batches)[position:]):
                if record.offset < start:
                    continue
                count += 1
                decoded = None if record.key is None else shard.decode(record.key, record.value)
                if decoded is None:
                    keyless += 1
                    continue
                placed = Placed(Offset(record.offset), decoded)
                shard.replay(placed)
                shard.on_committed(placed)
            next_offset = header.next_offset
            if count >= EVERY_SLICE_RECORDS:
                yield next_offset, count, keyless
                count = keyless = 0
        if next_offset is not None:
            yield next_offset, count, keyless

    async def _replay_last(
        self, hosted: _Hosted[S], last: Mapping[bytes, bytes | None], open_transactions: OpenTransactions
    ) -> None:
        """Replay the last record of each key; a key whose last is a tombstone is as one that never was. Then, in their order, what
        open transactions wrote."""
        shard = hosted.shard
        survivors: Iterator[tuple[int | None, bytes, bytes | None]] = chain(
            ((None, key, value) for key, value in last.items() if value is not None),
            (
                (producer_id, key, value)
                for _, producer_id, key, value in sorted(
                    (pending.offset, producer_id, key, pending.value)
                    for producer_id, values in open_transactions.items()
                    for key, pending in values.items()
                )
            ),
        )
        while not hosted.is_closed:
            async with self._load_turn:
                batch = list(islice(survivors, REPLAY_SLICE_RECORDS))
                for producer_id, key, value in batch:
                    record = shard.decode(key, value)
                    if record is None:
                        self.stats.unknown_records += 1
                        continue
                    if producer_id is not None:
                        record = Pending(producer_id, record)
                    shard.replay(record)
                    shard.on_committed(record)
                await asyncio.sleep(0)
            if not batch:
                return


def _replayed(result: CoordinatorResult) -> list[Any]:
    """What a result's records are to the shard."""
    if result.marker is not None:
        assert not result.records, "a marker is a batch of its own"
        return [TransactionEnd(result.marker.producer_id, result.marker.is_commit)]
    if result.writer is not None:
        return [Pending(result.writer.producer_id, record) for record in result.records]
    return result.records


def coordinator_error(error: KafkaError) -> KafkaError:
    """What a group's client gets for a replication error: look elsewhere, try again, or that the record is bad."""
    if error.code in _NOT_COORDINATOR_CODES:
        return NotCoordinator(error.message)
    if error.code in _NOT_AVAILABLE_CODES:
        return CoordinatorNotAvailable(error.message)
    if error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE):
        return KafkaError.of(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, error.message)
    return error
