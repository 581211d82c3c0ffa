"""The partitions that one fetcher keeps in step: what to ask their leader for now, and what becomes of its answer.

May touch:  its partitions and their logs.        Must not touch: asyncio, peers, the clock, metadata.
Invariants: a partition whose log is not durable to its end is not asked for, or names its flushed offset beside the one it asks
            at, because one of them is its promise to the leader; an answer counts only if leader epoch and log end are still
            those it was asked with.
Read next:  fetch_plan.py (what is decided), follower_log.py (what is done to a log), fetcher.py, which waits and asks.

Not obvious:
- After a fetch that brought data we wait for its flush before the next fetch, since a long poll without those partitions
  would delay their acknowledgement by its whole wait. A flush older than FLUSH_WAIT_MS no longer
  holds up the fetch of the others.
- But where the answer was full, the leader has more, and we ask for that at once, naming what is flushed (needs
  metadata.version 3): fetch, write and flush one after another left disk and CPU idle in turn. Measured in turn, RF 3, durable,
  1 MiB batches on two cores: from 0.70 to 0.76 of the page cache's MB/s, and four flushes in place of seven. Nothing is asked
  for ahead of a flush that takes long, or the unflushed would grow without bound.
- No fetch goes out only to report a flush. Traced under the same load, 16 MiB in flight to each leader: of 53 ms from append
  to commit 37 pass until the later follower has the bytes, 9 are a follower's flush, 6 the news of it (means). Most of the wait
  is for the fetches, which more of them would lengthen: concluded from the trace, not tried.
- UNKNOWN_LEADER_EPOCH and NOT_LEADER_OR_FOLLOWER right after a leader change mean that the leader's metadata is some ms
  behind ours: the first pauses are short and double up to replica.fetch.backoff.ms.
- Each fetch begins with the partitions that were not served last, or a busy one would starve the rest of a bounded answer.
- A partition in a fetch costs both sides some 6 us and the wire's share even when it is idle. Where there are many, the fetches
  are of a session (fetch_session.py): each names the partitions whose logs have moved, and the leader keeps the others in mind.
  A leader without sessions is asked for all of them each time. A few partitions need no session, and the two sides of their
  fetches take the shortest ways there are.
- A leader sends pages of its files, not copies (sendfile). When it follows another and cuts its log before those pages have
  left, they arrive as zeros from the cut on: a batch of length 0, which is refused once, and not the leader's again.
- What is asked for ahead of its flush is named again with the next fetch: the leader is to hear of the flush.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import islice
from random import Random
from typing import NamedTuple

from barnabas_log.errors import OutOfDescriptors, StorageFailed
from barnabas_log.tail import truncating
from barnabas_log.unified_log import UnifiedLog
from barnabas_replication.config import ReplicationConfig
from barnabas_replication.follower import follower_log
from barnabas_replication.follower.fetch_plan import (
    Meaning,
    backoff_ms,
    is_current,
    is_cut,
    is_full,
    leaves_session,
    meaning_of,
    throttled_until_ms,
    wait_ms,
)
from barnabas_replication.follower.missed_deletions import Intake, intake_of
from barnabas_replication.follower.peer import FetchedPartition, PeerFactory
from barnabas_replication.follower.truncation import EpochEnd
from barnabas_replication.leader.fetch_session import epoch_after
from barnabas_replication.partition import Partition
from barnabas_replication.requests import NO_SESSION_EPOCH, OPENS_SESSION_EPOCH, FetchPartitionSpec
from barnabas_replication.stats import Stats
from barnabas_replication.throttle import ThrottleSide
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import NO_OFFSET, BrokerId, TopicPartition
from barnabas_wire.lazy_dataclass import dataclass
from barnabas_wire.tuples import new_tuple

logger = logging.getLogger(__name__)

FLUSH_WAIT_MS = 20
"""How long a flush may block the next fetch of the other partitions; a flush older than this is a stall."""
NAMED_AT_ONCE = 512
"""Partitions that a fetch within a session names at most: thousands take either side a turn of a good part of a second."""
REFUSALS_REPORTED_EVERY_MS = 60_000
"""A partition whose batches are refused again and again logs one line, with their count, in this time, in ms."""


class PartitionFetchState:
    """One partition that a fetcher keeps in step, and its pauses."""

    __slots__ = ("failures", "leader_epoch", "named", "not_before_ms", "partition", "refusals", "report_at_ms")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.not_before_ms = 0
        self.failures = 0
        self.refusals = 0
        """Answers in a row that the log did not take."""
        self.report_at_ms = 0
        self.named: FetchPartitionSpec | None = None
        """What the leader was last asked for here, as far as an answer to it may come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherParts:
    """What all fetchers of a broker share."""

    broker_id: BrokerId
    broker_epoch: Callable[[], int]
    config: ReplicationConfig
    peers: PeerFactory
    request_flush: Callable[[UnifiedLog], None]
    random: Random
    """Randomness for jitter only."""
    stats: Stats
    throttle: ThrottleSide
    """The throttle for replicas that are not in sync."""
    may_fetch_ahead: Callable[[], bool]
    """Whether all leaders read flushed offsets."""
    knows_forgotten: Callable[[], bool]
    """Whether all leaders say what their logs have forgotten."""


class Due(NamedTuple):
    """What to ask a leader for now."""

    specs: list[FetchPartitionSpec]
    wait_ms: int
    """How long the leader may park the fetch."""
    next_due_ms: int | None
    """When something that is left out is due; None when nothing is."""
    is_flush_awaited: bool = False
    """Whether nothing is asked for before a flush is done, or `next_due_ms` has come."""
    is_asking: bool = False
    """Whether a fetch brings something: for what it names, or for what the leader has in mind."""


class FetcherPartitions:
    """What one fetcher follows. Every method is synchronous; `now_ms` is the loop's clock."""

    def __init__(self, leader_id: BrokerId, parts: FetcherParts) -> None:
        self._leader_id = leader_id
        self._parts = parts
        self._config = parts.config
        self._stats = parts.stats
        self._throttle = parts.throttle
        self._partitions: dict[TopicPartition, PartitionFetchState] = {}
        self.session_id = 0
        self._session_epoch = OPENS_SESSION_EPOCH
        """The session epoch that the next fetch sends."""
        self._session_broker_epoch = -1
        self._unnamed: dict[TopicPartition, PartitionFetchState] = {}
        """Within a session: partitions that the leader's session lacks; one that was not served last comes first."""
        self._unflushed: dict[Partition, None] = {}
        """Those whose flush the next fetch waits for."""
        self._cut: dict[Partition, None] = {}
        """Not flushed, and the leader has more of them than its last answer held."""
        self._go_without_unflushed_ms = 0
        """When the next fetch waits no longer for a flush."""

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, partition: Partition) -> None:
        """Follow the leader in this partition from its log end on; again with a newer epoch replaces the older."""
        state = self._partitions[partition.topic_partition] = PartitionFetchState(partition)
        self._unname(partition.topic_partition, state)

    def remove(self, partition: Partition) -> None:
        """Follow it no more; an answer on its way is ignored."""
        self._partitions.pop(partition.topic_partition, None)
        self._unnamed.pop(partition.topic_partition, None)
        self._unflushed.pop(partition, None)
        self._cut.pop(partition, None)

    def note_flushed(self, partition: Partition) -> bool:
        """The partition's log is durable further than before; returns whether it may be asked for now and could not be before."""
        if partition not in self._unflushed:
            return False
        if _is_durable(partition):
            del self._unflushed[partition]
            return True
        return partition in self._cut  # a flush that took long held it back

    def note_log_start(self, partition: Partition) -> None:
        """The partition's log begins later than before: the leader is to hear of it."""
        state = self._partitions.get(partition.topic_partition)
        if state is not None and state.partition is partition:
            self._unnamed[partition.topic_partition] = state

    # ------------------------------------------------------------------ the session

    @property
    def session_epoch(self) -> int:
        """The session epoch that the next fetch sends; NO_SESSION_EPOCH when it opens no session."""
        if self.session_id or len(self._partitions) > self._config.sessionless_size:
            return self._session_epoch
        return NO_SESSION_EPOCH

    def check_session(self, broker_epoch: int) -> None:
        """A session is of one registration of this broker: the leader counts followers by it."""
        if broker_epoch != self._session_broker_epoch:
            self._session_broker_epoch = broker_epoch
            self.end_session()

    def note_session(self, session_id: int) -> None:
        """The leader has answered, and keeps that session; 0: none."""
        if session_id == self.session_id or not self.session_id:
            self.session_id = session_id
            self._session_epoch = epoch_after(self._session_epoch) if session_id else OPENS_SESSION_EPOCH
        else:
            self.end_session()

    def end_session(self) -> bool:
        """Drop the session, since what the leader still knows of it is uncertain; returns whether there was one."""
        if not self.session_id:
            return False
        self.session_id = 0
        self._session_epoch = OPENS_SESSION_EPOCH
        for topic_partition, state in self._partitions.items():
            self._unname(topic_partition, state)
        return True

    def _unname(self, topic_partition: TopicPartition, state: PartitionFetchState) -> None:
        """The next fetch is to name it, behind the others."""
        state.named = None
        self._unnamed.pop(topic_partition, None)
        self._unnamed[topic_partition] = state

    # ------------------------------------------------------------------ what to ask for

    def _is_flush_awaited(self, now_ms: int) -> bool:
        return bool(self._unflushed) and now_ms < self._go_without_unflushed_ms

    def due(self, now_ms: int) -> Due:
        """What to ask for now. Flushes that it needs are requested."""
        if self._is_flush_awaited(now_ms) and not self._cut:
            return Due([], 0, self._go_without_unflushed_ms, True)
        is_cut_short = self.session_id != 0 and len(self._unnamed) > NAMED_AT_ONCE
        specs, next_due_ms, is_ahead = self._look_through(now_ms, is_cut_short=is_cut_short)
        if is_ahead:
            # One that asks ahead must not be parked: it would keep the news of its flush from the leader.
            self._name(specs)
            return Due(specs, 0, next_due_ms, is_asking=True)
        if self._is_flush_awaited(now_ms):
            return Due([], 0, self._go_without_unflushed_ms, True)
        self._name(specs)
        longest_ms = FLUSH_WAIT_MS if self._unflushed else self._config.replica_fetch_wait_ms_max
        if is_cut_short and specs:
            longest_ms = 0  # the others are to be named soon
        is_asking = bool(specs) or (self.session_id != 0 and len(self._unnamed) < len(self._partitions))
        return Due(specs, wait_ms(longest_ms, next_due_ms=next_due_ms, now_ms=now_ms), next_due_ms, is_asking=is_asking)

    def _name(self, specs: Sequence[FetchPartitionSpec]) -> None:
        """A fetch with these goes out."""
        for spec in specs:
            topic, _, number, _, _, _, _, _, flushed_offset = spec
            state = self._partitions[topic, number]  # type: ignore[index]
            state.named = spec
            topic_partition = state.partition.topic_partition
            if flushed_offset == NO_OFFSET:
                self._unnamed.pop(topic_partition, None)
            else:
                self._unnamed[topic_partition] = state

    def _look_through(self, now_ms: int, *, is_cut_short: bool) -> tuple[list[FetchPartitionSpec], int | None, bool]:
        """What may be asked for, when something that is left out is due, and whether some of it is asked for ahead of a flush."""
        specs = []
        next_due_ms: int | None = None
        is_ahead = False
        bytes_max = self._config.replica_fetch_bytes_max
        asked_for = self._unnamed if self.session_id else self._partitions
        throttle = self._throttle
        is_throttling = throttle.is_on
        items = asked_for.items() if not is_cut_short else islice(asked_for.items(), NAMED_AT_ONCE)
        for topic_partition, state in tuple(items):  # a log that fails while it is flushed is removed
            not_before_ms = state.not_before_ms
            if is_throttling and self._is_throttled(state.partition):
                not_before_ms = throttled_until_ms(
                    not_before_ms=not_before_ms, ready_at_ms=throttle.ready_at_ms(now_ms), now_ms=now_ms
                )
            if not_before_ms > now_ms:
                if next_due_ms is None or not_before_ms < next_due_ms:
                    next_due_ms = not_before_ms
                self._unnamed[topic_partition] = state
                continue
            partition = state.partition
            flushed_offset = NO_OFFSET
            if not _is_durable(partition) and not self._await_flush(partition, now_ms):
                if partition not in self._cut or not _may_fetch_on(partition):
                    self._unnamed[topic_partition] = state
                    continue
                flushed_offset = partition.durable_end_offset
                is_ahead = True
            if self._unflushed:
                self._unflushed.pop(partition, None)
            if self._cut:
                self._cut.pop(partition, None)
            log = partition.log
            spec = new_tuple(
                FetchPartitionSpec,
                (
                    topic_partition.topic,
                    partition.topic_id,
                    topic_partition.partition,
                    state.leader_epoch,
                    log.log_end_offset,
                    log.latest_epoch,
                    log.log_start_offset,
                    throttle.bytes_max(now_ms, bytes_max)
                    if is_throttling and self._is_throttled(partition)
                    else bytes_max,
                    flushed_offset,
                ),
            )
            specs.append(spec)
        return specs, next_due_ms, is_ahead

    def _is_throttled(self, partition: Partition) -> bool:
        """Whether our replica may catch up only as fast as the throttle says; one in sync is never held back."""
        return self._parts.broker_id not in partition.isr.committed and self._throttle.covers(
            *partition.topic_partition, self._parts.broker_id
        )

    # ------------------------------------------------------------------ what the leader said

    def take_in(self, answer: Sequence[FetchedPartition], now_ms: int) -> bool:
        """Do what the leader's answer means; returns whether the connection itself is in doubt: a log refused what came,
        for the first time in a row."""
        is_connection_doubted = False
        states = self._partitions
        served: list[TopicPartition] = []
        is_whole_cut = is_full(answer, bytes_max=self._config.replica_fetch_response_bytes_max)
        for fetched in answer:
            key = (fetched.topic, fetched.partition)
            state = states.get(key)  # type: ignore[call-overload]
            asked = None if state is None else state.named
            if asked is None or state is None:
                continue
            partition = state.partition
            is_asked_still = is_current(
                asked, leader_epoch=state.leader_epoch, log_end_offset=partition.log.log_end_offset
            )
            if not is_asked_still or leaves_session(fetched):
                self._unname(partition.topic_partition, state)
            if not is_asked_still:
                continue
            try:
                if self._take_in_one(state, fetched, now_ms):
                    served.append(partition.topic_partition)
                    has_more = is_whole_cut or is_cut(fetched, asked)
                    if has_more and partition in self._unflushed and self._parts.may_fetch_ahead():
                        self._cut[partition] = None
            except (OSError, StorageFailed) as error:
                self._give_up(partition, error)
            except OutOfDescriptors as error:
                logger.warning("%s: fetched again later: %s", partition.topic_partition, error)
                self._pause(state, now_ms)
            except KafkaError as error:
                self._refuse(state, error, now_ms)
                is_connection_doubted |= state.refusals == 1
        if len(states) > 1 and not self.session_id:
            for topic_partition in served:
                moved = states.pop(topic_partition, None)
                if moved is not None:
                    states[topic_partition] = moved
        return is_connection_doubted

    def _take_in_one(self, state: PartitionFetchState, fetched: FetchedPartition, now_ms: int) -> bool:
        """Returns whether it brought data."""
        partition = state.partition
        log = partition.log
        meaning = meaning_of(
            fetched,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            latest_epoch=log.latest_epoch,
        )
        if meaning is Meaning.APPEND:
            return self._append(state, fetched, now_ms)
        if meaning is Meaning.TRUNCATE:
            assert fetched.diverging_epoch is not None
            if not self._truncate(partition, EpochEnd(*fetched.diverging_epoch)):
                self._pause(state, now_ms)
            else:
                state.failures = 0
        elif meaning is Meaning.START_OVER:
            logger.warning(
                "%s: offset %d is out of the leader's range, starting over at %d",
                partition.topic_partition,
                log.log_end_offset,
                fetched.log_start_offset,
            )
            follower_log.restart_at(partition, fetched.log_start_offset)
        elif meaning is Meaning.FORGET_EPOCH:
            truncating.truncate_to(log, log.log_end_offset)
        elif meaning is Meaning.WAIT:
            self._pause(state, now_ms)
        else:
            self._stats.replica_fetch_errors += 1
            level = logging.INFO if state.failures else logging.DEBUG
            code = fetched.error_code
            logger.log(level, "%s: broker %d answers %s", partition.topic_partition, self._leader_id, code.name)
            self._pause(state, now_ms)
        return False

    def _append(self, state: PartitionFetchState, fetched: FetchedPartition, now_ms: int) -> bool:
        """Returns whether the log grew."""
        partition = state.partition
        if fetched.forgotten_below > NO_OFFSET and not self._may_take(partition, fetched):
            self._pause(state, now_ms)
            return False
        has_grown = follower_log.append_as_follower(
            partition,
            fetched.records,
            high_watermark=fetched.high_watermark,
            log_start_offset=fetched.log_start_offset,
        )
        state.failures = state.refusals = 0
        if has_grown:
            self._stats.replicated_bytes += len(fetched.records)
            if partition.log.tail.has_gaps and not self._parts.knows_forgotten():
                follower_log.doubt_deletions(partition)
            if self._throttle.is_on and self._is_throttled(partition):
                self._throttle.take(len(fetched.records), now_ms)
            if not _is_durable(partition):
                self._await_flush(partition, now_ms)
        return has_grown

    def _may_take(self, partition: Partition, fetched: FetchedPartition) -> bool:
        """Whether records may be taken in from a leader that has forgotten deletions past our end; if not, ours needs a
        refill."""
        log = partition.log
        intake = intake_of(
            forgotten_below=fetched.forgotten_below,
            leader_epoch=partition.leader_epoch,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            copied=log.forgotten.copied,
        )
        if intake is Intake.REFUSED and self._parts.knows_forgotten():
            follower_log.refuse_forgotten(partition, fetched.forgotten_below)
            self.remove(partition)
            return False
        if len(fetched.records) and intake in (Intake.FIRST_OF_COPY, Intake.REFUSED):
            follower_log.note_forgotten(partition, fetched.forgotten_below, is_copy=intake is Intake.FIRST_OF_COPY)
        return True

    def _give_up(self, partition: Partition, error: Exception) -> None:
        partition.give_up(error)
        if partition.storage_error is not None:
            self.remove(partition)

    def _refuse(self, state: PartitionFetchState, error: KafkaError, now_ms: int) -> None:
        """The log did not take what came. Once it may have been the connection, or a leader that is none any more and truncates; one
        that is asked for the same offset again and again checks its own copy (reads.py)."""
        state.refusals += 1
        if state.refusals == 1:
            logger.warning(
                "%s: what broker %d sent is refused, it is asked again: %s",
                state.partition.topic_partition,
                self._leader_id,
                error,
            )
        elif now_ms >= state.report_at_ms:
            state.report_at_ms = now_ms + REFUSALS_REPORTED_EVERY_MS
            logger.error(
                "%s: what broker %d sent is refused (%d in a row): %s; if that goes on, its copy is damaged: "
                "`barnabas explain partition %s` says what becomes of it",
                state.partition.topic_partition,
                self._leader_id,
                state.refusals,
                error,
                state.partition.topic_partition,
            )
        self._pause(state, now_ms)

    def _truncate(self, partition: Partition, leader: EpochEnd) -> bool:
        """False when the log is damaged where it must be cut, and the cluster does not know that yet."""
        end_before = partition.log.log_end_offset
        step = follower_log.truncate_for(partition, leader)
        if step is None:
            logger.info("%s: damaged where it is to be truncated; reported first", partition.topic_partition)
            return False
        self._stats.truncations += 1
        self._stats.truncations_below_high_watermark += step.is_below_high_watermark
        logger.info(
            "%s: truncated from %d to %d (leader's epoch %d ends at %d)",
            partition.topic_partition,
            end_before,
            step.offset,
            leader.epoch,
            leader.end_offset,
        )
        return True

    def _await_flush(self, partition: Partition, now_ms: int) -> bool:
        """Have the log made durable; returns whether it is already."""
        if partition in self._unflushed or partition.storage_error is not None:
            return False
        try:
            partition.log.tail.write_pending()
        except (OSError, StorageFailed) as error:
            self._give_up(partition, error)
            return False
        if _is_durable(partition):
            return True
        self._unflushed[partition] = None
        self._go_without_unflushed_ms = now_ms + FLUSH_WAIT_MS
        self._parts.request_flush(partition.log)
        return False

    def _pause(self, state: PartitionFetchState, now_ms: int) -> None:
        state.not_before_ms = now_ms + backoff_ms(
            state.failures,
            longest_ms=self._config.replica_fetch_backoff_ms,
            jitter=self._parts.random.uniform(0.8, 1.2),
        )
        state.failures += 1


def _may_fetch_on(partition: Partition) -> bool:
    """Whether what comes could be written: no flush that takes long holds writes back."""
    return not partition.log.tail.is_held_back


def _is_durable(partition: Partition) -> bool:
    return partition.durable_end_offset >= partition.log.log_end_offset
