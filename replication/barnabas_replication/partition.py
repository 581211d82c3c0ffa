"""One partition on this broker: led or followed, its log, its ISR, its high watermark, and who waits for it.

May touch:  barnabas_log, the image, events to note.      Must not touch: asyncio, clock, network, the controller.
Invariants: HW <= LEO, on the leader HW never falls within a leader epoch; an end counts for the HW only when durable;
            one ISR proposal at a time, and it is settled by the controller's refusal or by a newer partition epoch in the image.
Read next:  manager.py, which owns all partitions of a broker; roles.py, reads.py, offset_lookup.py, follower_log.py,
            isr_changes.py and deletion.py for what is done with one; isr.py for the rules.

Not obvious:
- The durable end of a leader moves *after* a follower may have fetched and flushed the same records: a follower's end can be
  above ours, and the HW then waits for our own flush.
- An ISR names an incarnation, not only a broker: a fetch counts only when it comes from the one that the leader's image knows.
  A follower may have been restarted, and even have led a later epoch meanwhile, which it has forgotten; a deposed leader that
  has not heard of it would commit with its help what the present ISR does not hold. It is served, so that it catches up.
- A new leader's HW is its own and may be behind what clients have seen: it answers OFFSET_NOT_AVAILABLE for "latest" until the
  HW has reached the start of its epoch (KIP-207).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from barnabas_log.config import FlushOnAcks
from barnabas_log.errors import DiskFull, StorageFailed
from barnabas_log.tail.log_tail import AppendResult
from barnabas_log.unified_log import UnifiedLog
from barnabas_quorum.records import ReplicaFault
from barnabas_replication.config import ReplicationConfig
from barnabas_replication.controller import AlterPartitionItem
from barnabas_replication.errors import (
    FencedLeaderEpoch,
    InternalTopic,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    UnknownLeaderEpoch,
)
from barnabas_replication.hosting.cluster_view import ClusterView
from barnabas_replication.leader import isr as rules
from barnabas_replication.leader.follower_contacts import FollowerContacts
from barnabas_replication.leader.isr import IsrState
from barnabas_replication.leader.purgatory import ProduceQueue, WaitingList
from barnabas_replication.leader.replica_state import RemoteReplica
from barnabas_replication.leader.start_witness import witnessed_start
from barnabas_replication.replica_events import ReplicaEvents
from barnabas_replication.requests import (
    Buffer,
    CurrentLeader,
)
from barnabas_replication.stats import Stats, TopicTraffic
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import (
    INTERNAL_TOPICS,
    NO_BROKER,
    NO_EPOCH,
    NO_OFFSET,
    BrokerId,
    Epoch,
    Offset,
    TopicPartition,
    Uuid,
)
from barnabas_wire.records.batch import HEADER, HEADER_BYTES, BatchHeader

logger = logging.getLogger(__name__)

PIPELINED_MS = 1_000
"""After a batch was refused for a reason that passes, here or by the former leader, it comes again within this time; those that its
producer had sent behind it may come before."""


class Partition:
    """One replica on this broker. Owned by the data loop; every method is synchronous."""

    __slots__ = (
        "append_refusal",
        "cluster",
        "config",
        "consumer_fetches",
        "contacts",
        "events",
        "faulty_replicas",
        "follower_fetches",
        "has_space",
        "high_watermark",
        "is_corrupt",
        "is_known_corrupt",
        "is_known_lost",
        "is_leader",
        "is_lost",
        "is_of_internal_topic",
        "is_refilled",
        "isr",
        "leader_epoch",
        "leader_epoch_start_offset",
        "leader_id",
        "leading_since_ms",
        "log",
        "missed_below",
        "partition_epoch",
        "passing_refusal",
        "proposal",
        "remotes",
        "repeats",
        "replicas",
        "sent_high_watermarks",
        "stats",
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
        cluster: ClusterView,
        contacts: FollowerContacts,
        events: ReplicaEvents[Partition],
        config: ReplicationConfig,
        stats: Stats,
        traffic: TopicTraffic,
    ) -> None:
        """high_watermark: from the checkpoint; cut to what the log really has."""
        self.config = config
        self.cluster = cluster
        self.contacts = contacts
        self.events = events
        self.stats = stats
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
        self.repeats: dict[BrokerId, tuple[Offset, int]] = {}
        """Followers that were sent the same offset again: which, and how often."""
        self.storage_error: KafkaError | None = None
        self.append_refusal: KafkaError | None = None
        """Why a leader takes no records: its disk failed, or has no room. One look per append covers both."""
        self.passing_refusal: tuple[KafkaError, int] | None = None
        """Why batches were refused that their producers send again, and until when (ms) they may."""
        self.is_corrupt = False
        self.has_space = True
        self.faulty_replicas: frozenset[BrokerId] = frozenset()
        """As the image has them: the controller would refuse them for the ISR."""
        self.is_known_corrupt = False
        """Whether the image has this very replica as corrupt, or as one that has lost records: then the controller elects it only for
        want of any other, or by an operator's word."""
        self.is_lost = False
        """Whether it lacks records that it had: it leads nothing until it is refilled, or until somebody accepted the loss."""
        self.is_known_lost = False
        """Whether an image that knows this process has said so, too."""
        self.is_refilled = False
        """Whether it had all that its leader had committed, after it had lost records."""
        self.missed_below = NO_OFFSET
        """Below it the present leader has forgotten deletions that this replica may never have had: it must be
        refilled."""
        self.waiting_for_commit = ProduceQueue()
        self.waiting_for_flush = ProduceQueue()
        self.follower_fetches = WaitingList()
        self.consumer_fetches = WaitingList()
        self.sent_high_watermarks: dict[BrokerId, Offset] = {}
        self.high_watermark = Offset(0)
        self.set_high_watermark(min(max(high_watermark, log.log_start_offset), log.log_end_offset))

    def __repr__(self) -> str:
        """Its state in one line: its role, its log, who is where, and who waits."""
        log = self.log
        role = (
            "leads"
            if self.is_leader
            else f"follows {self.leader_id} in"
            if self.leader_id >= 0
            else "follows nobody in"
        )
        said = [
            f"{self.topic_partition} {role} epoch {self.leader_epoch}: {log.log_start_offset}..{log.log_end_offset}"
        ]
        if log.written_end_offset < log.log_end_offset:
            said.append(f"written {log.written_end_offset}")
        said.append(f"flushed {log.flushed_end_offset}, HW {self.high_watermark}")
        if self.is_leader:
            said.append(f"ISR {_names(self.isr.committed)}")
            said += [f"{number} at {max(0, each.end_offset)}" for number, each in sorted(self.remotes.items())]
            if self.proposal is not None:
                said.append(f"proposes {_names(member.broker_id for member in self.proposal.new_isr)}")
        if self.waiting_for_commit or self.waiting_for_flush:
            said.append(f"{len(self.waiting_for_commit) + len(self.waiting_for_flush)} waiting")
        if self.storage_error is not None or self.fault is not None:
            said.append(f"its disk failed: {self.storage_error}" if self.fault is None else self.fault.name)
        return f"<{', '.join(said)}>"

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
    def log_directory(self) -> str:
        """Path of the log directory that its log is in."""
        return self.log.directory.rpartition("/")[0]

    @property
    def fault(self) -> ReplicaFault | None:
        """What is wrong with this replica; what makes it lack committed records comes first."""
        if self.is_lost:
            return ReplicaFault.LOST
        if self.is_corrupt:
            return ReplicaFault.CORRUPT
        return None if self.has_space else ReplicaFault.NO_ROOM

    @property
    def is_known_out_of_sync(self) -> bool:
        """Whether the cluster knows that this replica is damaged and out of the ISR: no node counts on its records."""
        return self.is_known_corrupt and self.cluster.broker_id not in self.isr.committed

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
            raise self.not_leader()
        if self.storage_error is not None:
            raise self.storage_error

    # ------------------------------------------------------------------ leading and following

    def stop(self, error: KafkaError) -> None:
        """This broker hosts the partition no more: everybody who waits gets `error`."""
        self.is_leader = False
        self.proposal = None
        self.remotes = {}
        self.dismiss(error)

    def fail_storage(self, error: KafkaError) -> None:
        """The disk under it failed: nothing is served from it until the broker starts again."""
        self.storage_error = self.append_refusal = error
        self.proposal = None
        self.dismiss(error)

    def give_up(self, error: Exception) -> None:
        """Its log cannot be written: serve nothing from it until the broker starts again. Want of room is no reason."""
        if self.storage_error is not None or isinstance(error, DiskFull):
            return  # the log manager knows of a want of room, and reports it by itself
        logger.error("%s: its disk failed, giving it up: %s", self.topic_partition, error)
        self.fail_storage(
            error if isinstance(error, StorageFailed) else StorageFailed(f"{self.topic_partition}: {error}")
        )
        self.events.on_failed(self)

    def set_has_space(self, has_space: bool) -> None:
        """Whether the log may grow. Without room appends are refused with an error that clients retry; reads work."""
        self.has_space = has_space
        if self.storage_error is None:
            self.append_refusal = None
            if not has_space:
                self.append_refusal = DiskFull(
                    f"{self.topic_partition}: the log directory of broker {self.cluster.broker_id} is full; free space there, "
                    "it takes records again by itself"
                )

    def dismiss(self, error: KafkaError) -> None:
        """Send away everybody who waits: produces with the error, fetches look again."""
        hint = self.current_leader if isinstance(error, NotLeaderOrFollower) else None
        self.waiting_for_commit.fail_all(error, hint)
        self.waiting_for_flush.fail_all(error, hint)
        self.follower_fetches.wake()
        self.consumer_fetches.wake()

    def not_leader(self) -> NotLeaderOrFollower:
        """The refusal of what only the leader does."""
        return NotLeaderOrFollower(f"broker {self.cluster.broker_id} does not lead {self.topic_partition}")

    def led_anew(self) -> NotLeaderOrFollower:
        """The refusal of a batch that has come to a new leader before the one that it follows."""
        return NotLeaderOrFollower(
            f"{self.topic_partition} has a new leader, which lacks what the producer sent before: send all of it again, in order"
        )

    # ------------------------------------------------------------------ the leader's writes

    def append_as_leader(
        self, batches: Buffer, *, is_all_acks: bool, clock_ms: int, is_internal: bool = False
    ) -> AppendResult:
        """Append producer batches; they are queued for the disk, written by the host's next drain.

        is_internal: from a coordinator, which alone may write to its topic: what it cannot read it could never load again.

        Raises NotLeaderOrFollower, InternalTopic, NotEnoughReplicas (nothing is written), or what the log refuses.
        """
        if not self.is_leader:
            raise self.not_leader()
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
        if self.passing_refusal is not None and not is_internal:
            self._refuse_what_follows(batches)
        return self.log.tail.append_as_leader(
            batches, leader_epoch=self.leader_epoch, now_ms=clock_ms, is_internal=is_internal
        )

    def expect_again(self, error: KafkaError, now_ms: int) -> None:
        """Batches were refused with an error that passes, and will come again."""
        error.with_traceback(None)  # its frames hold the request
        if self.passing_refusal is None or self.passing_refusal[0] is not error:
            self.passing_refusal = error, now_ms + PIPELINED_MS

    def _refuse_what_follows(self, batches: Buffer) -> None:
        """Refuse a batch that follows one that was refused, for the same reason: its producer sends both again, in order.

        Kafka answers OUT_OF_ORDER_SEQUENCE_NUMBER, or takes the batch where it does not know the producer. librdkafka, which may send
        such a batch to a new leader before the one that the former leader refused, takes a new epoch then, and sends again in
        it what other partitions have already: there it is twice.
        """
        assert self.passing_refusal is not None, "a batch was refused"
        error, until_ms = self.passing_refusal
        if self.cluster.now_ms() >= until_ms:
            self.passing_refusal = None
        elif len(batches) >= HEADER_BYTES:  # else the log refuses it
            header = BatchHeader._make(HEADER.unpack_from(batches))
            if header.producer_id >= 0 and self.log.producers.misses_before(
                header.producer_id, header.producer_epoch, header.base_sequence
            ):
                raise error

    def on_durable_end_advance(self, *, now_ms: int) -> None:
        """The leader's own log is durable further than before."""
        if not self.is_leader:
            return
        if self.waiting_for_flush:
            self.waiting_for_flush.release(self.durable_end_offset)
        self.advance_high_watermark(now_ms)

    def advance_high_watermark(self, now_ms: int) -> None:
        """Move the leader's HW to what every member of the ISR has, and answer who waited for it."""
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
        self.set_high_watermark(following)
        self.waiting_for_commit.release(following)
        if self.consumer_fetches:
            self.consumer_fetches.wake()
        if self.remotes:
            self.events.on_high_watermark_advance(self)
        self.settle_log_start()

    def _is_about_to_join(self, replica: RemoteReplica, now_ms: int) -> bool:
        return (
            rules.is_caught_up(
                replica,
                leader_end_offset=self.log.log_end_offset,
                now_ms=now_ms,
                lag_ms_max=self.config.replica_lag_time_ms_max,
            )
            and self.is_eligible(replica)
            and not self.is_silent(replica.broker_id, now_ms)
        )

    def is_silent(self, broker_id: BrokerId, now_ms: int) -> bool:
        """Whether nothing was heard from the follower for replica.fetch.silence.ms.max; see isr.is_silent."""
        return rules.is_silent(
            last_contact_ms=self.contacts.until_ms(broker_id),
            leading_since_ms=self.leading_since_ms,
            now_ms=now_ms,
            silence_ms_max=self.config.replica_fetch_silence_ms_max,
        )

    def set_high_watermark(self, offset: Offset) -> None:
        """Set the HW, of the log too. No request is answered."""
        self.high_watermark = offset
        self.log.update_high_watermark(offset)

    def settle_log_start(self) -> None:
        """Have a leader's log start where its in-sync followers' do, if this broker is not sure where it starts."""
        log = self.log
        if not log.is_start_doubted or not self.is_leader or self.storage_error is not None:
            return
        if len(self.replicas) == 1:
            log.is_start_doubted = False  # no other replica knows, and that was said when it was opened
            return
        followers = [self.remotes.get(each) for each in self.isr.committed if each != self.cluster.broker_id]
        start = witnessed_start(
            log_start_offset=log.log_start_offset,
            high_watermark=self.high_watermark,
            follower_starts=[NO_OFFSET if each is None else each.log_start_offset for each in followers],
        )
        if start is None:
            return
        if start > log.log_start_offset:
            self.events.raise_log_start(self, start)
        else:
            log.is_start_doubted = False
            logger.info("%s: the log starts at %d, as its in-sync followers confirm", self.topic_partition, start)

    def check_log_start(self) -> None:
        """Raise OffsetNotAvailable while a consumer might be shown deleted records, and in-sync followers know which.

        One who leads alone gives the others replica.lag.time.max.ms to come in sync: after a stop of all they take turns.
        """
        if not self.log.is_start_doubted or not self.is_leader or len(self.replicas) == 1:
            return
        waited_ms = self.cluster.now_ms() - self.leading_since_ms
        if len(self.isr.committed) > 1 or waited_ms < self.config.replica_lag_time_ms_max:
            raise OffsetNotAvailable(
                f"{self.topic_partition}: broker {self.cluster.broker_id} does not know for sure where its log starts, and waits for "
                "what its in-sync followers say; ask again"
            )

    # ------------------------------------------------------------------ the ISR

    def refresh(self, *, now_ms: int) -> None:
        """Something the HW depends on beside ends and ISR changed: min.insync.replicas, flush mode, a broker's fencing."""
        if not self.is_leader:
            return
        self._fail_below_min_isr()
        self.on_durable_end_advance(now_ms=now_ms)

    def is_eligible(self, replica: RemoteReplica) -> bool:
        """Unfenced, not shutting down, whole, and the same incarnation that the controller knows (KIP-903)."""
        if replica.broker_id in self.faulty_replicas:
            return False
        registered = self.cluster.active_broker_epoch(replica.broker_id)
        return registered is not None and replica.broker_epoch == registered

    def is_known_incarnation(self, broker_id: BrokerId, broker_epoch: int) -> bool:
        """Whether the incarnation is the one that ISRs mean, as far as we have heard. A fenced broker is in none."""
        return self.cluster.active_broker_epoch(broker_id) in (None, broker_epoch)

    def install_isr(self, members: tuple[BrokerId, ...], partition_epoch: int, now_ms: int) -> None:
        """Take the ISR of the image; it settles whatever was proposed. The image's settings are in place before."""
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
            self.stats.isr_shrinks += len(before - self.isr.committed) > 0
            self.stats.isr_expands += len(self.isr.committed - before) > 0
            self.follower_fetches.note()
        self._fail_below_min_isr()
        self.advance_high_watermark(now_ms)
        self.settle_log_start()

    def _fail_below_min_isr(self) -> None:
        if self.waiting_for_commit and len(self.isr.committed) < self.min_isr:
            self.waiting_for_commit.fail_all(
                NotEnoughReplicasAfterAppend(
                    f"{self.topic_partition} fell to {len(self.isr.committed)} in-sync replicas, "
                    f"min.insync.replicas asks for {self.min_isr}"
                )
            )


def _names(brokers: Iterable[BrokerId]) -> str:
    return " ".join(map(str, sorted(brokers)))
