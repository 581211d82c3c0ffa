"""One partition on this broker: led or followed, its log, its ISR, its high watermark, and who waits for it.

May touch:  barnabas_log, its host (an interface).        Must not touch: asyncio, clock, network, the controller.
Invariants: HW <= LEO, on the leader HW never falls within a leader epoch; an end counts for the HW only when durable;
            one ISR proposal at a time, and it is settled by the controller's answer or by a newer partition epoch, whichever
            comes first; state from an older partition epoch is ignored.
Read next:  manager.py, which owns all partitions of a broker; isr.py for the rules.

Not obvious:
- A leader epoch is led by one process life only. A broker that comes back has perhaps lost what followers fetched from it in
  that epoch; writing on would give two records one (offset, epoch). So an epoch from an image that does not know this life's
  registration yet is not led, nor one that the log knows already: the controller gives the next when it sees the new life.
- The durable end of a leader moves *after* a follower may have fetched and flushed the same records: a follower's end can be
  above ours, and the HW then waits for our own flush.
- An ISR names a process life, not only a broker: a fetch counts only when it comes from the life that the leader's image knows.
  A follower may have been restarted, and even have led a later epoch meanwhile, which it has forgotten; a deposed leader that
  has not heard of it would commit with its help what the present ISR does not hold. It is served, so that it catches up.
- A new leader's HW is its own and may be behind what clients have seen: it answers OFFSET_NOT_AVAILABLE for "latest" until the
  HW has reached the start of its epoch (KIP-207).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from barnabas_log.config import FlushOnAcks
from barnabas_log.disk import FileRange
from barnabas_log.errors import InconsistentTopicId, NoRoom, OffsetOutOfRange, StorageFailed
from barnabas_log.unified_log import AppendResult, UnifiedLog
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.records import ReplicaFault
from barnabas_replication import isr as rules
from barnabas_replication.config import ReplicationConfig
from barnabas_replication.controller import AlterPartitionItem, AlterPartitionOutcome, IsrMember
from barnabas_replication.errors import (
    FencedLeaderEpoch,
    InternalTopic,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    UnknownLeaderEpoch,
)
from barnabas_replication.isr import IsrState
from barnabas_replication.purgatory import ProduceQueue, WaitingList
from barnabas_replication.read_replica import RACK_AWARE_SELECTOR, preferred_read_replica
from barnabas_replication.replica_state import (
    UNKNOWN_BROKER_EPOCH,
    RemoteReplica,
    initial_replica,
    replica_after_fetch,
)
from barnabas_replication.requests import (
    Buffer,
    CurrentLeader,
    DivergingEpoch,
    FetchOutcome,
    FetchPartitionSpec,
    FetchSpec,
    ListedOffset,
)
from barnabas_replication.stats import Stats, TopicTraffic
from barnabas_replication.truncation import EpochEnd, find_divergence, must_begin_anew, truncation_offset
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import (
    INTERNAL_TOPICS,
    NO_BROKER,
    NO_EPOCH,
    NO_OFFSET,
    ZERO_UUID,
    BrokerId,
    Epoch,
    Offset,
    TopicPartition,
    Uuid,
)
from barnabas_wire.records.batch import read_header
from barnabas_wire.tuples import new_tuple

logger = logging.getLogger(__name__)

HIGH_WATERMARK = Offset(-1)
"""In DeleteRecords: everything that is committed."""
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
RunBlocking = Callable[..., Awaitable[Any]]
"""Runs a function with its arguments in a thread of the disk."""
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5

SUSPECT_REPEATS = 5
"""A follower that is sent the same offset this often in a row, and asks again, is taken to refuse what it gets."""

_FORGET_PROPOSAL = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.INELIGIBLE_REPLICA,
    }
)
"""Refused for good: back to the committed ISR; the next fetch or lag check may propose anew."""
_AWAIT_IMAGE = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""The controller is ahead of us, perhaps because it accepted this proposal in an earlier try whose answer was lost: so the
proposal keeps counting until the image tells."""


class PartitionHost(Protocol):
    """What a partition needs of the broker around it."""

    broker_id: BrokerId

    def now_ms(self) -> int:
        """Monotonic time, for lag."""
        ...

    def broker_epoch(self) -> int:
        """This broker's own epoch."""
        ...

    def registered_broker_epoch(self, broker_id: BrokerId) -> int | None:
        """Epoch of an unfenced broker that is not shutting down, as the image has it; None for any other."""
        ...

    def racks(self, brokers: Iterable[BrokerId]) -> Mapping[BrokerId, str | None]:
        """Racks of those of the brokers that serve clients."""
        ...

    def heard_ms(self, broker_id: BrokerId) -> int:
        """When the broker's last fetch came, of whichever partitions; a time long ago when none did."""
        ...

    def propose_isr(self, partition: Partition, item: AlterPartitionItem) -> None:
        """Send the proposal to the controller; the answer comes to `on_isr_outcome`."""
        ...

    def suspect(self, partition: Partition, offset: Offset) -> None:
        """A follower does not take what our log holds at `offset`: it may be damaged."""
        ...

    def raise_log_start(self, partition: Partition, offset: Offset) -> None:
        """Move the start of a follower's log up, once that is saved: what it tells its leader must not fall again."""
        ...

    def on_high_watermark_advance(self, partition: Partition) -> None:
        """A leader's HW moved: followers that hear nothing else shall be told soon."""
        ...


class TruncationStep(NamedTuple):
    """What a follower did about a diverging epoch."""

    offset: Offset
    is_below_high_watermark: bool


class Partition:
    """One replica on this broker. Owned by the data loop; every method is synchronous."""

    __slots__ = (
        "_config",
        "_host",
        "_repeats",
        "_stats",
        "append_refusal",
        "consumer_fetches",
        "faulty_replicas",
        "follower_fetches",
        "has_room",
        "high_watermark",
        "is_corrupt",
        "is_leader",
        "is_of_internal_topic",
        "isr",
        "leader_epoch",
        "leader_epoch_start_offset",
        "leader_id",
        "leading_since_ms",
        "log",
        "partition_epoch",
        "proposal",
        "remotes",
        "replicas",
        "sent_high_watermarks",
        "storage_error",
        "topic_id",
        "topic_partition",
        "traffic",
        "waiting_for_commit",
        "waiting_for_flush",
    )

    def __init__(
        self,
        *,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        log: UnifiedLog,
        high_watermark: Offset,
        host: PartitionHost,
        config: ReplicationConfig,
        stats: Stats,
        traffic: TopicTraffic,
    ) -> None:
        """high_watermark: from the checkpoint; cut to what the log really has."""
        self._config = config
        self._host = host
        self._stats = stats
        self.traffic = traffic
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.is_of_internal_topic = topic_partition.topic in INTERNAL_TOPICS
        self.is_leader = False
        self.leader_id = NO_BROKER
        self.leading_since_ms = 0
        self.leader_epoch = NO_EPOCH
        self.leader_epoch_start_offset = Offset(0)
        self.partition_epoch = -1
        self.replicas: tuple[BrokerId, ...] = ()
        self.isr = IsrState.of(())
        self.proposal: AlterPartitionItem | None = None
        self.remotes: dict[BrokerId, RemoteReplica] = {}
        self._repeats: dict[BrokerId, tuple[Offset, int]] = {}
        """Followers that were sent the same offset again: which, and how often."""
        self.storage_error: KafkaError | None = None
        self.append_refusal: KafkaError | None = None
        """Why a leader takes no records: its disk failed, or has no room. One look per append covers both."""
        self.is_corrupt = False
        self.has_room = True
        self.faulty_replicas: frozenset[BrokerId] = frozenset()
        """As the image has them: the controller would refuse them for the ISR."""
        self.waiting_for_commit = ProduceQueue()
        self.waiting_for_flush = ProduceQueue()
        self.follower_fetches = WaitingList()
        self.consumer_fetches = WaitingList()
        self.sent_high_watermarks: dict[BrokerId, Offset] = {}
        self.high_watermark = Offset(0)
        self._set_high_watermark(min(max(high_watermark, log.log_start_offset), log.log_end_offset))

    # ------------------------------------------------------------------ what it is

    @property
    def is_durable_by_flush(self) -> bool:
        """Whether an end counts when flushed (fsync mode) rather than when written (page-cache mode)."""
        return self.log.config.flush_on_acks is FlushOnAcks.FSYNC

    @property
    def durable_end_offset(self) -> Offset:
        """How far this replica's own log counts."""
        durability = self.log.durability
        return durability.flushed_end_offset if self.is_durable_by_flush else durability.written_end_offset

    @property
    def fault(self) -> ReplicaFault | None:
        """What is wrong with this replica; corrupt comes first, because it may lack a committed record."""
        if self.is_corrupt:
            return ReplicaFault.CORRUPT
        return None if self.has_room else ReplicaFault.NO_ROOM

    @property
    def min_isr(self) -> int:
        """min.insync.replicas, at most the number of replicas."""
        return rules.effective_min_isr(
            min_insync_replicas=self.log.config.min_insync_replicas, replication_factor=len(self.replicas)
        )

    @property
    def current_leader(self) -> CurrentLeader:
        """The hint for clients that asked the wrong broker."""
        return CurrentLeader(self.leader_id, self.leader_epoch)

    def check_epoch(self, current_leader_epoch: Epoch) -> None:
        """Raise when the caller's view of the leader epoch is not ours; -1 is not checked."""
        if current_leader_epoch != self.leader_epoch and current_leader_epoch != NO_EPOCH:
            if current_leader_epoch < self.leader_epoch:
                raise FencedLeaderEpoch(f"{self.topic_partition} is in leader epoch {self.leader_epoch}")
            raise UnknownLeaderEpoch(f"{self.topic_partition} is in leader epoch {self.leader_epoch} here")

    def check_leader(self, current_leader_epoch: Epoch = NO_EPOCH) -> None:
        """Raise unless this broker leads the partition in the epoch the caller knows."""
        self.check_epoch(current_leader_epoch)
        if not self.is_leader:
            raise self._not_leader()
        if self.storage_error is not None:
            raise self.storage_error

    # ------------------------------------------------------------------ leading and following

    def make_leader(self, registration: PartitionRegistration, *, now_ms: int, is_present_life: bool = True) -> None:
        """Lead as the image says; within a leader epoch this only takes in the new ISR.

        is_present_life: whether the image knows this very process as the broker. Otherwise the epoch was given to an
        earlier life, and is not led.
        """
        if registration.partition_epoch < self.partition_epoch:
            return
        epoch = registration.leader_epoch
        is_new_epoch = epoch > self.leader_epoch
        if not is_new_epoch and not self.is_leader:
            return
        if is_new_epoch:
            was_led_before = self.leader_epoch == NO_EPOCH and self.log.latest_epoch >= epoch
            self._take_roles(registration)
            if was_led_before or not is_present_life:
                # every restart brings this for each partition that was led: the manager counts them in one line
                logger.debug("%s: epoch %d was led by an earlier process, not by this one", self.topic_partition, epoch)
                self._dismiss(self._not_leader())
                return
            self.is_leader = True
            self._begin_epoch(registration, now_ms)
            # Fetches parked in an earlier epoch learn of the new one; produces stay, their records are still ours.
            self.follower_fetches.wake()
            self.consumer_fetches.wake()
        elif registration.partition_epoch == self.partition_epoch:
            return
        else:
            self._take_replicas(registration, now_ms)
        self._install_isr(registration.isr, registration.partition_epoch, now_ms)

    def make_follower(self, registration: PartitionRegistration) -> bool:
        """Follow as the image says; returns whether leader or epoch changed, so that fetching must begin anew."""
        if registration.partition_epoch < self.partition_epoch:
            return False
        is_new = registration.leader_epoch > self.leader_epoch
        if not is_new and registration.partition_epoch == self.partition_epoch:
            return False
        was_leader = self.is_leader
        self._take_roles(registration)
        self.partition_epoch = registration.partition_epoch
        if was_leader or is_new:
            self._dismiss(self._not_leader())
            # An epoch that we began to lead and wrote nothing in must go from the epoch cache: the new leader knows
            # nothing of it, and its older records would not fit behind it.
            self.log.truncate_to(self.log.log_end_offset)
        return is_new

    def stop(self, error: KafkaError) -> None:
        """This broker holds the partition no more: everybody who waits is told `error`."""
        self.is_leader = False
        self.proposal = None
        self.remotes = {}
        self._dismiss(error)

    def fail_storage(self, error: KafkaError) -> None:
        """The disk under it failed: nothing is served from it until the broker starts again."""
        self.storage_error = self.append_refusal = error
        self.proposal = None
        self._dismiss(error)

    def set_room(self, has_room: bool) -> None:
        """Whether the log may grow. Without room appends are refused with an error that clients retry; reads go on."""
        self.has_room = has_room
        if self.storage_error is None:
            self.append_refusal = None
            if not has_room:
                self.append_refusal = NoRoom(
                    f"{self.topic_partition}: the log directory of broker {self._host.broker_id} is full; free space there, "
                    "it takes records again by itself"
                )

    def _take_roles(self, registration: PartitionRegistration) -> None:
        self.is_leader = False
        self.leader_id = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.replicas = registration.replicas
        self.partition_epoch = registration.partition_epoch
        self.isr = IsrState.of(registration.isr)
        self.faulty_replicas = frozenset(replica for replica, _ in registration.faults)
        self.proposal = None
        self.remotes = {}
        self.sent_high_watermarks = {}

    def _begin_epoch(self, registration: PartitionRegistration, now_ms: int) -> None:
        log = self.log
        end = log.log_end_offset
        assert self.high_watermark <= end, f"{self.topic_partition}: HW {self.high_watermark} above LEO {end}"
        self.leader_epoch_start_offset = end
        self.leading_since_ms = now_ms
        log.assign_epoch_start(registration.leader_epoch, end)
        me = self._host.broker_id
        self.remotes = {
            broker_id: initial_replica(
                broker_id, is_in_sync=broker_id in registration.isr, leader_end_offset=end, now_ms=now_ms
            )
            for broker_id in registration.replicas
            if broker_id != me
        }
        logger.info(
            "%s: leading epoch %d from offset %d, ISR %s",
            self.topic_partition,
            self.leader_epoch,
            end,
            registration.isr,
        )

    def _take_replicas(self, registration: PartitionRegistration, now_ms: int) -> None:
        """Replicas may come and go within a leader epoch (reassignment), and become faulty."""
        self.faulty_replicas = frozenset(replica for replica, _ in registration.faults)
        if registration.replicas == self.replicas:
            return
        me = self._host.broker_id
        end = self.log.log_end_offset
        self.replicas = registration.replicas
        self.remotes = {
            broker_id: self.remotes.get(broker_id)
            or initial_replica(
                broker_id, is_in_sync=broker_id in registration.isr, leader_end_offset=end, now_ms=now_ms
            )
            for broker_id in registration.replicas
            if broker_id != me
        }

    def _dismiss(self, error: KafkaError) -> None:
        hint = self.current_leader if isinstance(error, NotLeaderOrFollower) else None
        self.waiting_for_commit.fail_all(error, hint)
        self.waiting_for_flush.fail_all(error, hint)
        self.follower_fetches.wake()
        self.consumer_fetches.wake()

    def _not_leader(self) -> NotLeaderOrFollower:
        return NotLeaderOrFollower(f"broker {self._host.broker_id} does not lead {self.topic_partition}")

    # ------------------------------------------------------------------ the leader's writes

    def append_as_leader(
        self, batches: Buffer, *, is_all_acks: bool, clock_ms: int, is_internal: bool = False
    ) -> AppendResult:
        """Append producer batches; they are queued for the disk, written by the host's next drain.

        is_internal: from a coordinator, which alone may write to its topic: what it cannot read it could never load again.

        Raises NotLeaderOrFollower, InternalTopic, NotEnoughReplicas (nothing is written), or what the log refuses.
        """
        if not self.is_leader:
            raise self._not_leader()
        if self.append_refusal is not None:
            raise self.append_refusal
        if self.is_of_internal_topic and not is_internal:
            raise InternalTopic(f"{self.topic_partition.topic} is written by the brokers alone")
        # The effective minimum is at most the configured one, so the cheap look nearly always settles it.
        in_sync = len(self.isr.committed)
        if is_all_acks and in_sync < self.log.config.min_insync_replicas and in_sync < self.min_isr:
            raise NotEnoughReplicas(
                f"{self.topic_partition} has {len(self.isr.committed)} in-sync replicas, min.insync.replicas asks for "
                f"{self.min_isr}"
            )
        return self.log.append_as_leader(
            batches, leader_epoch=self.leader_epoch, now_ms=clock_ms, is_internal=is_internal
        )

    def deletion_offset(self, offset: Offset) -> Offset:
        """Where the log shall begin when the records before `offset` are deleted; -1 means before the high watermark.

        Raises check_leader's errors, and OffsetOutOfRange past the high watermark.
        """
        self.check_leader()
        if offset == HIGH_WATERMARK:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRange(f"{offset} is not between 0 and the high watermark {self.high_watermark}")
        return offset

    def low_watermark(self, is_live: Callable[[BrokerId], bool]) -> Offset:
        """The lowest log start of the leader and those of its followers that live or may be elected, as their fetches told."""
        starts = [
            replica.log_start_offset
            for replica in self.remotes.values()
            if replica.broker_id in self.isr.maximal or is_live(replica.broker_id)
        ]
        return min([self.log.log_start_offset, *starts])

    def on_durable_end_advance(self, *, now_ms: int) -> None:
        """The leader's own log is durable further than before."""
        if not self.is_leader:
            return
        if self.waiting_for_flush:
            self.waiting_for_flush.release(self.durable_end_offset)
        self._advance_high_watermark(now_ms)

    def _advance_high_watermark(self, now_ms: int) -> None:
        own_end = self.durable_end_offset
        current = self.high_watermark
        if own_end <= current:
            return
        maximal = self.isr.maximal
        ends = [
            replica.end_offset
            for replica in self.remotes.values()
            if replica.broker_id in maximal or self._is_about_to_join(replica, now_ms)
        ]
        following = rules.next_high_watermark(
            current=current,
            leader_durable_end=own_end,
            counted_ends=ends,
            isr_size=len(self.isr.committed),
            min_isr=self.min_isr,
        )
        if following == current:
            return
        self._set_high_watermark(following)
        self.waiting_for_commit.release(following)
        if self.consumer_fetches:
            self.consumer_fetches.wake()
        if self.remotes:
            self._host.on_high_watermark_advance(self)

    def _is_about_to_join(self, replica: RemoteReplica, now_ms: int) -> bool:
        return (
            rules.is_caught_up(
                replica,
                leader_end_offset=self.log.log_end_offset,
                now_ms=now_ms,
                lag_ms_max=self._config.replica_lag_time_ms_max,
            )
            and self._is_eligible(replica)
            and not self._is_silent(replica.broker_id, now_ms)
        )

    def _is_silent(self, broker_id: BrokerId, now_ms: int) -> bool:
        return rules.is_silent(
            heard_ms=self._host.heard_ms(broker_id),
            leading_since_ms=self.leading_since_ms,
            now_ms=now_ms,
            silence_ms_max=self._config.replica_fetch_silence_ms_max,
        )

    def _set_high_watermark(self, offset: Offset) -> None:
        self.high_watermark = offset
        self.log.update_high_watermark(offset)

    # ------------------------------------------------------------------ the ISR

    def shrink_isr(self, *, now_ms: int) -> None:
        """Propose to drop members that lag (called every half of replica.lag.time.max.ms)."""
        if not self.is_leader or self.storage_error is not None:
            return
        lagging = rules.replicas_out_of_sync(
            self.isr,
            self.remotes,
            leader_end_offset=self.log.log_end_offset,
            now_ms=now_ms,
            lag_ms_max=self._config.replica_lag_time_ms_max,
        )
        if not lagging:
            return
        logger.info("%s: followers %s lag, proposing an ISR without them", self.topic_partition, sorted(lagging))
        members = self.isr.committed - lagging
        self.isr = self.isr.shrinking()
        self._propose(members)

    def drop_silent(self, *, now_ms: int) -> None:
        """Propose to drop members that are silent while acks=all writes wait for them alone (called while any wait)."""
        awaited_end = self.waiting_for_commit.first_offset
        if awaited_end is None or not self.is_leader or self.storage_error is not None:
            return
        leavers = rules.replicas_to_drop_for_silence(
            self.isr,
            self.remotes,
            silent=[broker_id for broker_id in self.remotes if self._is_silent(broker_id, now_ms)],
            awaited_end=awaited_end,
            leader_durable_end=self.durable_end_offset,
            min_isr=self.min_isr,
        )
        if not leavers:
            return
        logger.info(
            "%s: nothing was heard from followers %s, and acks=all writes wait for them alone: proposing an ISR without them",
            self.topic_partition,
            sorted(leavers),
        )
        members = self.isr.committed - leavers
        self.isr = self.isr.shrinking()
        self._propose(members)

    def refresh(self, *, now_ms: int) -> None:
        """Something the HW depends on beside ends and ISR changed: min.insync.replicas, flush mode, a broker's fencing."""
        if not self.is_leader:
            return
        self._fail_below_min_isr()
        self.on_durable_end_advance(now_ms=now_ms)

    def on_isr_outcome(self, item: AlterPartitionItem, outcome: AlterPartitionOutcome, *, now_ms: int) -> bool:
        """The controller's word on a proposal; returns whether to send it again."""
        if self.proposal is not item:
            return False
        error = outcome.error
        if error is None:
            if outcome.leader_epoch == self.leader_epoch and outcome.partition_epoch >= self.partition_epoch:
                self._install_isr(outcome.isr, outcome.partition_epoch, now_ms)
            return False
        if error.code in _FORGET_PROPOSAL:
            self._stats.isr_proposals_refused += 1
            logger.info("%s: the controller refused an ISR: %s", self.topic_partition, error.code.name)
            self.proposal = None
            self.isr = self.isr.settled()
            self._advance_high_watermark(now_ms)
            return False
        return error.code not in _AWAIT_IMAGE

    def _expand_isr(self, replica: RemoteReplica) -> None:
        if replica.log_start_offset < self.log.log_start_offset:
            return  # elected, it would bring back what was deleted; it moves with its next fetches
        if rules.may_join(
            self.isr,
            replica,
            is_eligible=self._is_eligible(replica),
            high_watermark=self.high_watermark,
            leader_epoch_start_offset=self.leader_epoch_start_offset,
        ):
            logger.info("%s: follower %d caught up, proposing it for the ISR", self.topic_partition, replica.broker_id)
            self.isr = self.isr.expanding(replica.broker_id)
            self._propose(self.isr.maximal)

    def _is_eligible(self, replica: RemoteReplica) -> bool:
        """Unfenced, not shutting down, whole, and the same process life that the controller knows (KIP-903)."""
        if replica.broker_id in self.faulty_replicas:
            return False
        registered = self._host.registered_broker_epoch(replica.broker_id)
        return registered is not None and replica.broker_epoch == registered

    def _is_known_life(self, broker_id: BrokerId, broker_epoch: int) -> bool:
        """Whether the process is the one that ISRs mean, as far as we have heard. A fenced broker is in none."""
        return self._host.registered_broker_epoch(broker_id) in (None, broker_epoch)

    def _propose(self, members: frozenset[BrokerId]) -> None:
        me = self._host.broker_id
        isr = tuple(
            IsrMember(broker_id, self._host.broker_epoch() if broker_id == me else self._known_epoch(broker_id))
            for broker_id in self.replicas
            if broker_id in members
        )
        self.proposal = AlterPartitionItem(
            self.topic_id,
            self.topic_partition.topic,
            self.topic_partition.partition,
            self.leader_epoch,
            isr,
            self.partition_epoch,
        )
        self._host.propose_isr(self, self.proposal)

    def _known_epoch(self, broker_id: BrokerId) -> int:
        replica = self.remotes.get(broker_id)
        return UNKNOWN_BROKER_EPOCH if replica is None else replica.broker_epoch

    def _install_isr(self, members: tuple[BrokerId, ...], partition_epoch: int, now_ms: int) -> None:
        before = self.isr.committed
        self.proposal = None
        self.isr = IsrState.of(members)
        self.partition_epoch = partition_epoch
        if before != self.isr.committed:
            logger.info(
                "%s: ISR %s -> %s (partition epoch %d)",
                self.topic_partition,
                sorted(before),
                sorted(self.isr.committed),
                partition_epoch,
            )
            self._stats.isr_shrinks += len(before - self.isr.committed) > 0
            self._stats.isr_expands += len(self.isr.committed - before) > 0
        self._fail_below_min_isr()
        self._advance_high_watermark(now_ms)

    def _fail_below_min_isr(self) -> None:
        if self.waiting_for_commit and len(self.isr.committed) < self.min_isr:
            self.waiting_for_commit.fail_all(
                NotEnoughReplicasAfterAppend(
                    f"{self.topic_partition} fell to {len(self.isr.committed)} in-sync replicas, "
                    f"min.insync.replicas asks for {self.min_isr}"
                )
            )

    # ------------------------------------------------------------------ reads

    def fetch(
        self,
        spec: FetchPartitionSpec,
        request: FetchSpec,
        *,
        bytes_max: int,
        is_one_batch_due: bool,
        is_first_look: bool,
        now_ms: int,
    ) -> FetchOutcome:
        """Read for a consumer (up to the HW) or a follower (up to the LEO). Errors come back inside the outcome.

        bytes_max: what is left of the whole answer. is_one_batch_due: give one batch even if it is larger. is_first_look:
        False when a parked fetch is looked at again; only the first look tells where the follower is.
        """
        _, topic_id, _, known_epoch, offset, asked_epoch, follower_start, partition_bytes_max, flushed = spec
        log = self.log
        log_start, log_end = log.log_start_offset, log.log_end_offset
        topic, number = self.topic_partition
        is_repeat = False
        is_consumer = request.replica_id < 0
        try:
            if (
                not self.is_leader
                or self.storage_error
                or (known_epoch != NO_EPOCH and known_epoch != self.leader_epoch)
            ):
                if self.is_leader or not request.may_read_follower or not is_consumer:
                    self.check_leader(known_epoch)  # says why not
                self._check_follower_read(known_epoch, offset)
            if topic_id != self.topic_id and topic_id != ZERO_UUID:
                raise InconsistentTopicId(f"{self.topic_partition} has topic id {self.topic_id}")
            if asked_epoch >= 0 and (asked_epoch != log.latest_epoch or offset > log_end):
                divergence = self._divergence(asked_epoch, offset, None if is_consumer else follower_start)
                if divergence is not None:
                    high_watermark = self.high_watermark
                    return FetchOutcome(
                        topic, self.topic_id, number, None, high_watermark, high_watermark, log_start, divergence
                    )
            if not log_start <= offset <= log_end:
                raise OffsetOutOfRange(f"{self.topic_partition} holds {log_start} to {log_end}, not {offset}")
            if is_consumer:
                end = self.high_watermark
                if request.rack and self.is_leader:
                    preferred = self._preferred_read_replica(request.rack, offset)
                    if preferred is not None:
                        return FetchOutcome(
                            topic, self.topic_id, number, None, end, end, log_start, preferred_read_replica=preferred
                        )
            else:
                end = log_end
                if is_first_look:
                    # What it has not flushed yet is no promise: a power cut would take it.
                    durable_end = flushed if NO_OFFSET < flushed < offset else offset
                    is_repeat = self._note_follower(request, durable_end, follower_start, now_ms)
            high_watermark = self.high_watermark
            if partition_bytes_max < bytes_max:
                bytes_max = partition_bytes_max
            parts: tuple[FileRange, ...] = ()
            size_bytes = 0
            if offset < end and (bytes_max > 0 or is_one_batch_due):
                parts, size_bytes, _, _ = log.read(
                    offset, bytes_max=bytes_max, end=end, at_least_one_batch=is_one_batch_due
                )
                if is_repeat:
                    self._note_repeat(request.replica_id, offset)
            marks = (high_watermark, high_watermark, log_start)
            return new_tuple(
                FetchOutcome, (topic, self.topic_id, number, None, *marks, None, parts, size_bytes, None, NO_BROKER)
            )
        except KafkaError as error:
            return FetchOutcome(
                topic,
                self.topic_id,
                number,
                error,
                log_start_offset=log.log_start_offset if isinstance(error, OffsetOutOfRange) else Offset(-1),
                current_leader=self.current_leader
                if isinstance(error, NotLeaderOrFollower | FencedLeaderEpoch | UnknownLeaderEpoch)
                else None,
            )
        except OSError as error:
            failure = StorageFailed(f"{self.topic_partition} cannot be read: {error}")
            return FetchOutcome(topic, self.topic_id, number, failure)

    def _check_follower_read(self, known_epoch: Epoch, offset: Offset) -> None:
        """Raise where a follower cannot serve a consumer that was sent to it."""
        self.check_epoch(known_epoch)
        if self.storage_error is not None:
            raise self.storage_error
        if not self.is_leader and offset > self.log.log_end_offset:
            raise OffsetNotAvailable(
                f"{self.topic_partition} ends at {self.log.log_end_offset} on this follower so far"
            )

    def _preferred_read_replica(self, client_rack: str, offset: Offset) -> BrokerId | None:
        if self._config.replica_selector_class != RACK_AWARE_SELECTOR:
            return None
        return preferred_read_replica(
            client_rack=client_rack,
            leader_id=self.leader_id,
            racks=self._host.racks(self.replicas),
            replicas=self.remotes.values(),
            in_sync=self.isr.committed,
            fetch_offset=offset,
        )

    def _divergence(self, asked_epoch: Epoch, offset: Offset, follower_start: Offset | None) -> DivergingEpoch | None:
        """Where the asker's history leaves ours, if it does. Raises UnknownLeaderEpoch or OffsetOutOfRange when we cannot tell.

        follower_start: where the follower's log begins; None for a consumer, which keeps nothing that could come to light.
        """
        log = self.log
        log_start = log.log_start_offset
        local = EpochEnd(*log.end_offset_for_epoch(asked_epoch))
        if local.epoch < 0:
            # Records of an epoch newer than all ours: it is we who are behind, so nobody shall cut a log for us.
            raise UnknownLeaderEpoch(f"{self.topic_partition} knows no epoch {asked_epoch}")
        if follower_start is not None and must_begin_anew(
            log_start_offset=log_start, local=local, asker_start_offset=follower_start, fetch_offset=offset
        ):
            raise OffsetOutOfRange(f"{self.topic_partition} starts at {log_start}, after leader epoch {asked_epoch}")
        divergence = find_divergence(asked_epoch=asked_epoch, fetch_offset=offset, local=local)
        return None if divergence is None else DivergingEpoch(*divergence)

    def _note_repeat(self, replica_id: BrokerId, offset: Offset) -> None:
        """A follower is sent once more what it was sent before. It says so in no other way when it refuses a batch."""
        known, count = self._repeats.get(replica_id, (offset, 0))
        count = count + 1 if known == offset else 1
        self._repeats[replica_id] = (offset, count % SUSPECT_REPEATS)
        if count == SUSPECT_REPEATS:
            self._host.suspect(self, offset)

    def _note_follower(self, request: FetchSpec, durable_end: Offset, log_start_offset: Offset, now_ms: int) -> bool:
        """Returns whether it stands where it stood, below our end."""
        replica_id = request.replica_id
        replica = self.remotes.get(replica_id)
        if replica is None:
            raise NotLeaderOrFollower(f"broker {replica_id} is no replica of {self.topic_partition}")
        if not self._is_known_life(replica_id, request.replica_epoch):
            return False
        moved = replica_after_fetch(
            replica,
            durable_end=durable_end,
            log_start_offset=log_start_offset,
            leader_end_offset=self.log.log_end_offset,
            now_ms=now_ms,
            broker_epoch=request.replica_epoch,
        )
        self.remotes[replica_id] = moved
        if replica_id not in self.isr.maximal:
            self._expand_isr(moved)
        if durable_end != replica.end_offset:
            self._advance_high_watermark(now_ms)
            return False
        return durable_end < self.log.log_end_offset

    def list_offset(self, timestamp_ms: int, *, current_leader_epoch: Epoch = NO_EPOCH) -> ListedOffset:
        """Offset that a special time stands for: -1 latest, -2 earliest, -4 earliest local, -5 latest tiered.

        Raises OffsetNotAvailable while a new leader's HW is behind its epoch (KIP-207), and check_leader's errors.
        """
        self.check_leader(current_leader_epoch)
        log = self.log
        if timestamp_ms in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            return ListedOffset(-1, log.log_start_offset, log.leader_epochs.epoch_at(log.log_start_offset))
        if timestamp_ms == LATEST_TIERED_TIMESTAMP:
            return ListedOffset(-1, Offset(-1), NO_EPOCH)
        if timestamp_ms == LATEST_TIMESTAMP:
            if self.high_watermark < self.leader_epoch_start_offset:
                raise self._offset_not_available()
            return ListedOffset(-1, self.high_watermark, self.leader_epoch)
        raise ValueError(f"{timestamp_ms} stands for no offset by itself: list_offset_by_time looks times up")

    async def list_offset_by_time(
        self, timestamp_ms: int, *, run_blocking: RunBlocking, current_leader_epoch: Epoch = NO_EPOCH
    ) -> ListedOffset:
        """Offset of the first record at or after a time, or of the largest timestamp (-3), looked up off the loop.

        Raises what list_offset raises, CorruptBatch, StorageFailed and OutOfDescriptors.
        """
        self.check_leader(current_leader_epoch)
        led_epoch = self.leader_epoch
        try:
            found = await self._search(timestamp_ms, run_blocking)
        except FileNotFoundError:  # retention has passed the search; once more, it is quicker than that
            self.check_leader(current_leader_epoch)
            try:
                found = await self._search(timestamp_ms, run_blocking)
            except OSError as error:
                raise self.log.failed_search(error) from error
        except OSError as error:
            raise self.log.failed_search(error) from error
        self.check_leader(current_leader_epoch)
        if self.leader_epoch != led_epoch:
            raise self._not_leader()
        if found is not None and found[0] < self.high_watermark:
            return ListedOffset(found[1], found[0], self.log.leader_epochs.epoch_at(found[0]))
        if self.high_watermark < self.leader_epoch_start_offset:
            raise self._offset_not_available()
        return ListedOffset(-1, Offset(-1), NO_EPOCH)

    async def _search(self, timestamp_ms: int, run_blocking: RunBlocking) -> tuple[Offset, int] | None:
        is_greatest = timestamp_ms == MAX_TIMESTAMP
        search = self.log.search_by_time(None if is_greatest else timestamp_ms)
        try:
            found: tuple[Offset, int] | None = await (
                run_blocking(search.of_greatest) if is_greatest else run_blocking(search.first_at, timestamp_ms)
            )
        finally:
            search.close()
        return found

    def end_offset_for_epoch(self, epoch: Epoch, *, current_leader_epoch: Epoch = NO_EPOCH) -> EpochEnd:
        """Largest epoch not above the asked one and its end; (-1, -1) when none is known (OffsetForLeaderEpoch)."""
        self.check_leader(current_leader_epoch)
        return EpochEnd(*self.log.end_offset_for_epoch(epoch))

    def _offset_not_available(self) -> OffsetNotAvailable:
        return OffsetNotAvailable(
            f"{self.topic_partition}: high watermark {self.high_watermark} has not reached the start "
            f"{self.leader_epoch_start_offset} of leader epoch {self.leader_epoch}"
        )

    # ------------------------------------------------------------------ the follower's writes

    def append_as_follower(self, batches: Buffer, *, high_watermark: Offset, log_start_offset: Offset) -> bool:
        """Take in what the leader sent (possibly nothing); returns whether the log grew. Raises what the log refuses."""
        log = self.log
        has_grown = len(batches) > 0
        if has_grown:
            if log.log_start_offset == log.log_end_offset:
                self._begin_where_its_first_batch_does(batches)
            log.append_as_follower(batches, leader_epoch=self.leader_epoch)
            log.write_pending()
        following = min(high_watermark, log.log_end_offset)
        if following > self.high_watermark:
            self._set_high_watermark(following)
            if self.consumer_fetches:
                self.consumer_fetches.wake()
        if log_start_offset > log.log_start_offset and self.high_watermark > log.log_start_offset:
            self._host.raise_log_start(self, min(log_start_offset, self.high_watermark))
        return has_grown

    def _begin_where_its_first_batch_does(self, batches: Buffer) -> None:
        """Our log is empty. It may begin within a batch, since DeleteRecords may name any record; leaders send whole batches."""
        log = self.log
        first = read_header(batches)
        if first.base_offset < log.log_end_offset <= first.last_offset:
            log.truncate_fully_and_start_at(first.base_offset)
            self._set_high_watermark(first.base_offset)

    def truncate_for(self, leader: EpochEnd) -> TruncationStep:
        """Cut to where our history parts from the leader's; another round may cut further (KIP-279)."""
        log = self.log
        local = EpochEnd(*log.end_offset_for_epoch(leader.epoch))
        log.truncate_to(truncation_offset(leader=leader, local=local, log_end_offset=log.log_end_offset))
        end = log.log_end_offset
        is_below = end < self.high_watermark
        if is_below:
            # Legal only after an unclean election; then the new leader's history is the truth.
            logger.warning("%s: truncated to %d, below HW %d", self.topic_partition, end, self.high_watermark)
            self._set_high_watermark(end)
        return TruncationStep(end, is_below)

    def cut_before_damage(self, offset: Offset) -> None:
        """End the log at `offset`, below which all is sound: for a replica that nobody counts on. Raises StorageFailed."""
        self.log.truncate_to(offset)
        self._set_high_watermark(min(self.high_watermark, self.log.log_end_offset))

    def restart_at(self, offset: Offset) -> None:
        """Our whole log lies outside the leader's: drop it and begin at the leader's start."""
        self.log.truncate_fully_and_start_at(offset)
        self._set_high_watermark(offset)
