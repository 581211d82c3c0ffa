"""Appends of producers and coordinators: queued, written once per turn of the loop, answered when their acks say so.

May touch:  hosted partitions and their logs, loop timers.       Must not touch: sockets, metadata, fetchers.
Invariants: every append is answered exactly once; none before its bytes count (acks=1: in our own log, acks=all: below the HW).
Read next:  partition.py, purgatory.py (who waits where), fetches.py.

Not obvious:
- The cork: appends only queue bytes. One `_drain` per loop iteration writes every dirty log with one system call, starts the
  flushes, moves HWs and answers parked follower fetches at once (delaying them by 3 ms costs 70 % of the throughput with
  five requests in flight; one write per iteration instead of per connection gives 33 -> 55 k small requests/s).
- Produces have no timer each: one sweep per SWEEP_MS expires them, so a time-out may come that much late. The same sweep looks
  whether they wait for silent followers, so that partitions without waiting writes cost nothing.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Sequence
from functools import partial

from barnabas_log.errors import StorageFailed
from barnabas_log.unified_log import UnifiedLog
from barnabas_replication.config import ReplicationConfig
from barnabas_replication.errors import InvalidRequiredAcks, NotLeaderOrFollower, RequestTimedOut
from barnabas_replication.hosting.hosted import HostedPartitions
from barnabas_replication.leader import isr_changes
from barnabas_replication.leader.batch_partitions import BatchPartitions
from barnabas_replication.leader.batch_work import BatchWork
from barnabas_replication.leader.follower_contacts import FollowerContacts
from barnabas_replication.leader.purgatory import ParkedProduce
from barnabas_replication.leader.replica_state import LONG_AGO_MS
from barnabas_replication.leader.scrutiny import Scrutiny
from barnabas_replication.partition import Partition
from barnabas_replication.requests import AppendEntry, AppendOutcome, Buffer, RespondAppend, TransactionMarker
from barnabas_replication.stats import Stats
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import Epoch, Offset, TopicPartition
from barnabas_wire.records.control import build_transaction_marker
from barnabas_wire.tuples import new_tuple

logger = logging.getLogger(__name__)

SWEEP_MS = 100
"""How often parked produces are checked for time-outs, while there are any."""
LATE_MS = 500
"""A sweep later than this gives followers the time back in which nothing was read of them."""
EXPIRED_REPORTED_EVERY_MS = 10_000
"""How often, in ms, records that were not acknowledged in time are logged: what they waited for is soon past."""
ACKS_ALL = -1
BUMPS_EPOCH_FROM = 2
"""From this transaction.version on a transaction ends with a higher producer epoch (KIP-890)."""

_NEVER_MS = 1 << 62
_unpack_times = struct.Struct(">27xQq").unpack_from
"""Base and greatest time in a batch's header; the base without its sign, so that none (-1) is above every greatest time."""


class Appends:
    """The appends of one broker. Lives on the data loop; all methods are synchronous."""

    def __init__(
        self,
        hosted: HostedPartitions,
        *,
        contacts: FollowerContacts,
        config: ReplicationConfig,
        judged: BatchPartitions,
        batch_work: BatchWork,
        request_flush: Callable[[UnifiedLog], None],
        clock_ms: Callable[[], int],
        stats: Stats,
    ) -> None:
        """clock_ms: wall clock for append times."""
        self._hosted = hosted
        self._contacts = contacts
        self._config = config
        self._judged = judged
        self._batch_work = batch_work
        self._request_flush = request_flush
        self._clock_ms = clock_ms
        self._stats = stats
        self._loop = asyncio.get_running_loop()
        self._dirty: dict[Partition, None] = {}
        self._is_drain_scheduled = False
        self._turn_clock_ms = self._turn_ms = 0
        self._held_back: dict[Partition, None] = {}
        """Those with bytes that a slow flush delays."""
        self._awaited: dict[Partition, None] = {}
        """Those that produces wait for."""
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_at_ms = _NEVER_MS
        self._expired_reported_ms = -EXPIRED_REPORTED_EVERY_MS

    def append_records(
        self,
        entries: Sequence[AppendEntry],
        *,
        required_acks: int,
        timeout_ms: int,
        respond: RespondAppend,
        scrutiny: Scrutiny | None = None,
        is_internal: bool = False,
        is_ready: bool = False,
    ) -> None:
        """Append one produce request. `respond` is called once: at once (acks=0, or nothing to wait for) or later.

        required_acks: 0 answers after the append, 1 once our own log counts it, -1 (all) once the HW passed it.
        scrutiny: of the connection that it came over; None for a caller that is no client. is_ready: no work on the batches is left.
        """
        stats = self._stats
        if not -1 <= required_acks <= 1:
            error = InvalidRequiredAcks(f"acks must be -1, 0 or 1, not {required_acks}")
            respond([AppendOutcome(topic, number, error) for topic, number, _ in entries])
            return
        if not (is_ready or is_internal):
            # This is the hot path: what is shown to `takes` costs several times as much as these looks.
            is_shown = self._batch_work.is_needed
            if scrutiny is not None:
                left = scrutiny.left
                if left:
                    scrutiny.left = left - 1
                else:
                    is_shown = True
            try:
                for entry in entries:
                    base_time_ms, max_time_ms = _unpack_times(entry[2])
                    if max_time_ms < base_time_ms:  # is_unsound_maximum
                        is_shown = True
            except struct.error:
                logger.debug("a produce holds less than the header of a batch: the log refuses it")
            if is_shown:
                append = partial(self.append_records, required_acks=required_acks, timeout_ms=timeout_ms, is_ready=True)
                if self._batch_work.takes(entries, append, respond, scrutiny):
                    return
        if not self._is_drain_scheduled:
            self._schedule_drain()
        clock_ms = self._turn_clock_ms
        is_all_acks = required_acks == ACKS_ALL
        partitions = self._hosted.partitions
        outcomes: list[AppendOutcome] = []
        parked: ParkedProduce | None = None
        for topic, number, batches in entries:
            partition = partitions.get((topic, number))
            try:
                if partition is None:
                    raise self._hosted.absent(topic, number)
                result = partition.append_as_leader(
                    batches, is_all_acks=is_all_acks, clock_ms=clock_ms, is_internal=is_internal
                )
            except KafkaError as error:
                outcomes.append(self._judged.refused(topic, number, error))
                continue
            first_offset, last_offset, _, append_time_ms, record_count, size_bytes, is_duplicate = result
            if not is_duplicate:
                stats.appended_bytes += size_bytes
                stats.appended_records += record_count
                traffic = partition.traffic
                traffic.bytes_in += size_bytes
                traffic.records_in += record_count
                self._dirty[partition] = None
            start = partition.log.log_start_offset
            outcomes.append(new_tuple(AppendOutcome, (topic, number, None, first_offset, append_time_ms, start, None)))
            if required_acks == 0:
                continue
            required_offset: Offset = last_offset + 1  # type: ignore[assignment]  # a cast per request would be a call
            if is_all_acks:
                if partition.high_watermark >= required_offset:
                    continue
                queue = partition.waiting_for_commit
            else:
                if partition.durable_end_offset >= required_offset:
                    continue
                queue = partition.waiting_for_flush
            if parked is None:
                parked = ParkedProduce(outcomes, respond, self._turn_ms + timeout_ms)
            queue.park(required_offset, parked, len(outcomes) - 1)
            self._awaited[partition] = None
        if parked is None:
            respond(outcomes)
            return
        if parked.deadline_ms < self._sweep_at_ms:
            self._schedule_sweep(parked.deadline_ms)
        parked.settle()

    def append_marker(
        self, topic_partition: TopicPartition, marker: TransactionMarker, *, leader_epoch: Epoch, timeout_ms: int
    ) -> asyncio.Future[Offset]:
        """End a producer's transaction in the partition; as `append_internal`, which writes the control batch.

        Fails with InvalidProducerEpoch or TransactionCoordinatorFenced, too. A marker that is there already is written again:
        the coordinator asks once more where it did not hear of the first.
        """
        try:
            self.check_marker(topic_partition, marker)
        except KafkaError as error:
            refused: asyncio.Future[Offset] = self._loop.create_future()
            refused.set_exception(error)
            return refused
        producer_id, epoch, coordinator_epoch, is_commit, _ = marker
        batch = build_transaction_marker(
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            is_commit=is_commit,
            now_ms=self._clock_ms(),
        )
        return self.append_internal(topic_partition, batch, leader_epoch=leader_epoch, timeout_ms=timeout_ms)

    def check_marker(self, topic_partition: TopicPartition, marker: TransactionMarker) -> None:
        """Judge a marker by what its producer and its coordinators have done in the partition; one that is not led here is not judged.

        Raises InvalidProducerEpoch, TransactionCoordinatorFenced.
        """
        partition = self._hosted.partitions.get(topic_partition)
        if partition is not None and partition.is_leader:
            partition.log.producers.check_marker(
                producer_id=marker.producer_id,
                epoch=marker.epoch,
                coordinator_epoch=marker.coordinator_epoch,
                bumps_epoch=marker.transaction_version >= BUMPS_EPOCH_FROM,
            )

    def append_internal(
        self, topic_partition: TopicPartition, batch: Buffer, *, leader_epoch: Epoch, timeout_ms: int
    ) -> asyncio.Future[Offset]:
        """Append a coordinator's batch with acks=all; resolves with its last offset once the HW has passed it.

        Fails with the KafkaError of the append (already set when this returns, nothing written), or later with
        RequestTimedOut, NotEnoughReplicasAfterAppend or NotLeaderOrFollower (written, may yet commit).
        """
        future: asyncio.Future[Offset] = self._loop.create_future()
        partition = self._hosted.partitions.get(topic_partition)
        if partition is None or partition.leader_epoch != leader_epoch:
            future.set_exception(
                NotLeaderOrFollower(
                    f"broker {self._hosted.broker_id} does not lead {topic_partition} in epoch {leader_epoch}"
                )
            )
            return future
        log = partition.log

        def respond(outcomes: list[AppendOutcome]) -> None:
            if future.done():
                return
            error = outcomes[0].error
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(last_offset)

        end_before = log.log_end_offset
        last_offset = Offset(-1)
        self.append_records(
            [AppendEntry(topic_partition.topic, topic_partition.partition, batch)],
            required_acks=ACKS_ALL,
            timeout_ms=timeout_ms,
            respond=respond,
            is_internal=True,
        )
        if not future.done():
            assert log.log_end_offset > end_before, f"{topic_partition}: an internal append parked without appending"
            last_offset = Offset(log.log_end_offset - 1)
        return future

    def _schedule_drain(self) -> None:
        """Drain in the next turn of the loop, and take the time of this one: once for all its appends."""
        if not self._is_drain_scheduled:
            self._is_drain_scheduled = True
            self._turn_clock_ms = self._clock_ms()
            self._turn_ms = self._now_ms()
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        """Once per loop iteration with appends: write, start flushes, move HWs, answer followers."""
        self._is_drain_scheduled = False
        dirty, self._dirty = self._dirty, {}
        now_ms = self._now_ms()
        request_flush = self._request_flush
        for partition in dirty:
            log = partition.log
            try:
                log.tail.write_pending()
            except (OSError, StorageFailed) as error:
                partition.give_up(error)
                continue
            if log.durability.written_end_offset < log.log_end_offset:
                self._held_back[partition] = None
            if partition.is_durable_by_flush:
                request_flush(log)
            else:
                partition.on_durable_end_advance(now_ms=now_ms)
        for partition in dirty:
            if partition.follower_fetches:
                partition.follower_fetches.wake()

    def _schedule_sweep(self, due_ms: int) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        now_ms = self._now_ms()
        self._sweep_at_ms = min(due_ms, now_ms + SWEEP_MS)
        self._sweep = self._loop.call_later(max(0, self._sweep_at_ms - now_ms + 1) / 1000, self._expire_produces)

    def _expire_produces(self) -> None:
        now_ms = self._now_ms()
        late_ms = now_ms - self._sweep_at_ms
        self._sweep = None
        self._sweep_at_ms = _NEVER_MS
        if late_ms > LATE_MS:
            # This process stood still, so what its followers said meanwhile may not be read yet.
            self._contacts.give_back(late_ms)
        is_somebody_silent = self._contacts.is_any_silent(
            self._hosted.image.cluster.brokers, now_ms=now_ms, silence_ms=self._config.replica_fetch_silence_ms_max
        )
        for partition in tuple(self._awaited):
            if is_somebody_silent:
                isr_changes.drop_silent(partition, now_ms=now_ms)

            def make_error(name: TopicPartition = partition.topic_partition) -> RequestTimedOut:
                return RequestTimedOut(f"{name}: the records were not acknowledged in time; they are in the log")

            expired = partition.waiting_for_commit.expire(now_ms, make_error)
            expired += partition.waiting_for_flush.expire(now_ms, make_error)
            if expired:
                self._stats.produce_timeouts += expired
                self._report_expired(partition, expired, now_ms)
            if not partition.waiting_for_commit and not partition.waiting_for_flush:
                self._awaited.pop(partition, None)
        if self._awaited and self._sweep is None:
            self._schedule_sweep(_NEVER_MS)

    def _report_expired(self, partition: Partition, count: int, now_ms: int) -> None:
        """Log what the records waited for: it cannot be found out later."""
        if now_ms - self._expired_reported_ms < EXPIRED_REPORTED_EVERY_MS:
            return
        self._expired_reported_ms = now_ms
        durability = partition.log.durability
        followers = []
        for broker_id, replica in sorted(partition.remotes.items()):
            until_ms = self._contacts.until_ms(broker_id)
            heard = "never heard" if until_ms == LONG_AGO_MS else f"heard {max(0, now_ms - until_ms)} ms ago"
            followers.append(f"broker {broker_id} has {max(0, replica.end_offset)} and was {heard}")
        logger.warning(
            "%s: %d produce requests were not acknowledged in time: the high watermark is %d, the log ends at %d (written to %d, flushed "
            "to %d), ISR %s; %s",
            partition.topic_partition,
            count,
            partition.high_watermark,
            partition.log.log_end_offset,
            durability.written_end_offset,
            durability.flushed_end_offset,
            sorted(partition.isr.committed),
            ", ".join(followers) or "no followers",
        )

    # ------------------------------------------------------------------ reported by the manager

    def note_dirty(self, partition: Partition) -> None:
        """There is something to be written that no append announces."""
        self._dirty[partition] = None
        self._schedule_drain()

    def on_flushed(self) -> None:
        """A flush round is over: writes that it delayed can go now, and their followers wait for nothing else."""
        if self._held_back:
            self._dirty.update(self._held_back)
            self._held_back.clear()
            self._schedule_drain()

    def forget(self, partition: Partition) -> None:
        """The partition is hosted no more."""
        self._dirty.pop(partition, None)
        self._held_back.pop(partition, None)
        self._awaited.pop(partition, None)

    def close(self) -> None:
        """No sweep any more."""
        if self._sweep is not None:
            self._sweep.cancel()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
