"""Damaged ranges of this broker's replicas: reported, refetched from their leaders, proved, put in place, cleared.

May touch:  its partitions and their logs, peers, loop timers.      Must not touch: the controller, requests of clients.
Invariants: a replica with known damage is marked CORRUPT until none is left and its producer state was read again;
            bytes are put in place only when their checksums, offsets and leader epochs are proved; a log is cut only
            while the cluster knows the replica as corrupt and out of the ISR; nothing is taken from an await into a log
            that changed meanwhile.
Read next:  barnabas_log/recovery/scrubber.py, which finds damage; barnabas_quorum/controller/partition_change.py for what a fault does.

The walk: mark (the controller moves leadership and drops us from the ISR), then as a follower fetch the range from the leader as a
consumer does, so that its view of us as a follower does not change, and only what is committed. Replicas are equal byte by byte
below the high watermark, so what comes has the size of what is damaged and is written in its place: no other byte of the segment
moves, its indexes stay right, and readers that hold the file see damaged or sound bytes, as before. A crash in between leaves a
range that is still known as damaged. Where sizes differ, the range is very large, or it lies above the high watermark, the log is
cut before it, and replication brings the rest again.

A replica that has missed deletions of a compacted log (missed_deletions.py) is no damaged one, but may be counted on no more than one:
it is marked in the same way, and refilled as a whole, beside what it has (refill.py).

A leader that no sound replica can take over from (RF 1 above all) stays leader: its range is reported, reads of it
answer CORRUPT_MESSAGE, all else is served. Kafka has no repair; there an operator deletes the replica's directory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from barnabas_log.directories.manager import LogManager
from barnabas_log.errors import OutOfDescriptors, StorageFailed
from barnabas_log.recovery import repair as log_repair
from barnabas_log.recovery.scrub import DamagedRange
from barnabas_quorum.records import ReplicaFault
from barnabas_replication.config import ReplicationConfig
from barnabas_replication.follower import follower_log
from barnabas_replication.follower.fetcher_pool import FetcherPool
from barnabas_replication.follower.peer import Peer, PeerFactory
from barnabas_replication.hosting.hosted import HostedPartitions
from barnabas_replication.hosting.hosting import Hosting
from barnabas_replication.hosting.refill import fill_anew
from barnabas_replication.hosting.replica_faults import ReplicaFaults
from barnabas_replication.partition import Partition
from barnabas_replication.requests import Buffer, FetchPartitionSpec, FetchSpec
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_BROKER, NO_OFFSET, BrokerId, Endpoint, Epoch, Offset, TopicPartition
from barnabas_wire.records.batch import MAGIC, CorruptBatch, crc_is_valid, iterate_batches

logger = logging.getLogger(__name__)

REPAIR_BYTES_MAX = 64 * 1024 * 1024
"""A larger range is not refetched in one piece of memory: the log is cut before it."""
RETURN_S = 60.0
"""The time within which a second log that was put in place is hosted, behind whatever else is being opened."""
REFILLS_MAX = 2
"""Replicas that are refilled at the same time."""
FETCH_BYTES = 2 * 1024 * 1024
FETCH_TIMEOUT_S = 10.0
CUT_S = 30.0
"""replica.socket.timeout.ms of a broker that does not set it."""
LOOK_EVERY_S = 0.5
"""While something is damaged."""
BACKOFF_S_MAX = 15.0
"""Longest pause after a refetch that failed; the first is LOOK_EVERY_S and they double. Four of them fit into a minute."""


class RepairStep(Enum):
    """What is to be done about a replica next."""

    CLEAR = "clear"
    """Nothing of it is damaged: it is whole again."""
    PROVE = "prove"
    """The cluster takes it for corrupt, from before a restart, and no damage is known: read all of it."""
    WAIT = "wait"
    """Wait for a leader, for the cluster to know, or for a high watermark."""
    REFETCH = "refetch"
    CUT = "cut"
    """End the log before the damage, and follow the leader from there."""
    REFILL = "refill"
    """Fill a second log from the leader, and let it take the first one's place."""


class ReplicaFacts(NamedTuple):
    """What the rule looks at."""

    damage: DamagedRange | None
    """The first."""
    is_proved: bool
    """Whether all of it was read since this broker started, or its damage was known."""
    is_following: bool
    """Whether another broker leads."""
    is_known_out_of_sync: bool
    """Whether the cluster knows it as corrupt, and not in the ISR: no other node counts on what it holds."""
    high_watermark: Offset
    is_unrepairable: bool
    """Whether the leader's batches do not fit in the place of the damage."""
    has_missed_deletions: bool = False
    """Whether the leader has forgotten deletions that it may never have had."""


def next_step(facts: ReplicaFacts) -> RepairStep:
    """The one rule."""
    damage = facts.damage
    if facts.has_missed_deletions and facts.is_following:
        # It leaves the ELR first: while it is eligible, somebody counts on what the second log replaces.
        return RepairStep.REFILL if facts.is_known_out_of_sync else RepairStep.WAIT
    if damage is None:
        return RepairStep.CLEAR if facts.is_proved else RepairStep.PROVE
    if not facts.is_following:
        return RepairStep.WAIT
    is_refetchable = (
        damage.end_offset <= facts.high_watermark
        and damage.stop - damage.position <= REPAIR_BYTES_MAX
        and not facts.is_unrepairable
    )
    if is_refetchable:
        return RepairStep.REFETCH
    # In the ISR it would be elected for records that it has just cut off.
    return RepairStep.CUT if facts.is_known_out_of_sync else RepairStep.WAIT


class DoesNotFit(KafkaError):
    """Sound batches of the leader that cannot take the place of what is damaged here."""

    code = ErrorCode.CORRUPT_MESSAGE


def proved_batches(records: Buffer, *, expected: Offset, end_offset: Offset, epochs: tuple[Epoch, Epoch]) -> int:
    """How many bytes of `records` are whole sound batches that continue at `expected` and do not pass `end_offset`.

    epochs: lowest and highest leader epoch that the range can have. Raises CorruptBatch, or DoesNotFit where what is sound begins
    or ends elsewhere than the range.
    """
    size = 0
    lowest, highest = epochs
    for position, header in iterate_batches(records):
        if not crc_is_valid(records, position, header):
            raise CorruptBatch(f"the leader's batch at {header.base_offset} fails its checksum")
        if header.magic != MAGIC or header.base_offset != expected or header.last_offset_delta < 0:
            raise DoesNotFit(f"the leader has a batch at {header.base_offset} where {expected} is wanted")
        if header.next_offset > end_offset:
            raise DoesNotFit(f"the leader's batch at {expected} passes {end_offset}, where the damage ends")
        if not lowest <= header.partition_leader_epoch <= highest:
            raise DoesNotFit(
                f"the leader's batch at {expected} is of epoch {header.partition_leader_epoch}, ours are {lowest} to {highest}"
            )
        lowest, expected = header.partition_leader_epoch, header.next_offset
        size = position + header.size_bytes
        if expected == end_offset:
            break
    return size


def _is_whole_again(partition: Partition) -> bool:
    """Whether a replica that had lost records has what its leader had committed; from its leader, not from a time when it led."""
    return (
        partition.is_refilled
        and not partition.is_leader
        and partition.leader_id not in (NO_BROKER, partition.cluster.broker_id)
    )


class Cut(NamedTuple):
    """A log was cut before its damage."""

    log_end_offset: Offset
    """The log end offset before the cut."""
    leader_epoch: Epoch
    at_s: float
    ranges: int
    """Damaged ones that went with it, and with the cuts before it."""


class _Patient:
    """One damaged replica."""

    def __init__(self) -> None:
        self.is_proved = False
        self.is_proving = False
        self.is_unrepairable = False
        self.is_being_filled = False
        self.returns_until_s = 0.0
        """Until then its second log may wait to be hosted."""
        self.failures = 0
        self.not_before_s = 0.0
        self.reported = ""
        self.cut: Cut | None = None
        """The last one, until its records are here again."""


class Repairs:
    """The damaged replicas of one broker. `run` is the owner task; the rest is called on the same loop."""

    def __init__(
        self,
        hosted: HostedPartitions,
        *,
        config: ReplicationConfig,
        hosting: Hosting,
        fetchers: FetcherPool,
        faults: ReplicaFaults,
        logs: LogManager,
        peers: PeerFactory,
    ) -> None:
        self._hosted = hosted
        self._config = config
        self._hosting = hosting
        self._fetchers = fetchers
        self._faults = faults
        self._logs = logs
        self._peers = peers
        self._patients: dict[TopicPartition, _Patient] = {}
        self._is_due = asyncio.Event()

    def note(self, partition: Partition) -> None:
        """Something of the partition is damaged, or was, or is taken for damaged by the cluster; or it has missed deletions."""
        was_sound = partition.topic_partition not in self._patients and not partition.is_corrupt
        patient = self._patients.setdefault(partition.topic_partition, _Patient())
        if partition.log.damage:
            patient.is_proved = True
            self._faults.set_fault(partition.topic_partition, ReplicaFault.CORRUPT)
        elif partition.missed_below > NO_OFFSET:
            patient.is_proved |= was_sound
            self._faults.set_fault(partition.topic_partition, ReplicaFault.CORRUPT)
        elif not partition.is_corrupt:
            patient.is_proved = True  # what was damaged is gone: its producers must still be read again
        self._is_due.set()

    def wake(self) -> None:
        """The cluster's metadata has changed: a leader may be there now."""
        if self._patients:
            self._is_due.set()

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._is_due.wait()
                self._is_due.clear()
                for name in list(self._patients):
                    patient = self._patients.get(name)
                    if patient is not None and loop.time() >= patient.not_before_s and not patient.is_being_filled:
                        await self._look_after(name, patient, tasks)
                if self._patients:
                    loop.call_later(LOOK_EVERY_S, self._is_due.set)

    async def _look_after(self, name: TopicPartition, patient: _Patient, tasks: asyncio.TaskGroup) -> None:
        partition = self._hosted.partitions.get(name)
        if partition is None and asyncio.get_running_loop().time() < patient.returns_until_s:
            return
        if partition is None or partition.storage_error is not None:
            del self._patients[name]
            return
        log, me = partition.log, self._hosted.broker_id
        damages = [damage for damage in log.damage if damage.end_offset > log.log_start_offset]
        if patient.is_proving and not damages and not self._logs.repairs.is_check_requested(log):
            patient.is_proved = True
        facts = ReplicaFacts(
            damage=damages[0] if damages else None,
            is_proved=patient.is_proved,
            is_following=not partition.is_leader and partition.leader_id not in (NO_BROKER, me),
            is_known_out_of_sync=partition.is_known_out_of_sync,
            high_watermark=partition.high_watermark,
            is_unrepairable=patient.is_unrepairable,
            has_missed_deletions=partition.missed_below > NO_OFFSET,
        )
        step = next_step(facts)
        if step is RepairStep.CLEAR:
            if not self._is_back(partition, patient) or (partition.is_lost and not _is_whole_again(partition)):
                return
            if not await self._logs.repairs.reload_producers(log):
                return
            if log.damage or self._hosted.partitions.get(name) is not partition:
                return  # looked at again
            del self._patients[name]
            if patient.cut is not None:
                self._logs.repairs.count_fetched_anew(log, patient.cut.ranges)
            self._faults.set_fault(name, None)
        elif step is RepairStep.PROVE:
            if not patient.is_proving:
                patient.is_proving = True
                # what was repaired before the restart may have been read damaged
                log.tail.doubt_producers(log.log_start_offset)
                logger.warning("%s: taken for corrupt since before the restart, reading all of it", name)
                self._logs.repairs.request_check(log)
        elif step is RepairStep.REFILL:
            if sum(each.is_being_filled for each in self._patients.values()) < REFILLS_MAX and partition.has_space:
                patient.is_being_filled = True
                tasks.create_task(self._refill(name, partition, patient))
        elif step is RepairStep.WAIT:
            self._tell_why_it_waits(name, partition, patient, damages)
        elif step is RepairStep.CUT:
            ranges = len(damages) + (patient.cut.ranges if patient.cut else 0)
            cut = Cut(log.log_end_offset, partition.leader_epoch, asyncio.get_running_loop().time(), ranges)
            try:
                follower_log.cut_before_damage(partition, damages[0].first_offset)
            except (StorageFailed, OutOfDescriptors):
                return  # the log has informed its listener, or is cut at the next look
            patient.cut = cut
            self._fetchers.stop(partition)  # at the log end, which is another than the leader knows
            if not partition.is_leader:
                self._fetchers.begin(partition)
            logger.warning("%s: cut at offset %d, before %s; it is fetched again", name, log.log_end_offset, damages[0])
        else:
            await self._refetch(name, partition, patient, damages[0])

    def _is_back(self, partition: Partition, patient: _Patient) -> bool:
        """Whether the replica has again what was cut off. Its leader counts it by where it stood before, until a fetch says
        otherwise: mended at once it would be taken into the ISR without records that are committed.

        A leader of a later epoch knows nothing of before. A tail that no leader has does not come back: CUT_S is longer than any
        fetch from before the cut can be under way.
        """
        cut = patient.cut
        if (
            cut is None
            or partition.log.log_end_offset >= cut.log_end_offset
            or partition.leader_epoch != cut.leader_epoch
        ):
            return True
        return asyncio.get_running_loop().time() - cut.at_s >= CUT_S

    def _tell_why_it_waits(
        self, name: TopicPartition, partition: Partition, patient: _Patient, damages: Sequence[DamagedRange]
    ) -> None:
        if not damages:  # it waits for the cluster to know, for some ms
            return
        ranges = "; ".join(map(str, damages))
        if partition.is_leader:
            state = (
                f"{ranges} cannot be read, and no other replica in sync is there to repair from: these offsets answer "
                "CORRUPT_MESSAGE, all others are served; bring another replica back, or let consumers seek past them"
            )
        else:
            state = f"{ranges} waits for a leader to repair from"
        if state != patient.reported:
            patient.reported = state
            logger.error("%s: %s", name, state)

    async def _refill(self, name: TopicPartition, partition: Partition, patient: _Patient) -> None:
        missed_below, leader_id = partition.missed_below, partition.leader_id
        try:
            if await fill_anew(
                partition,
                hosting=self._hosting,
                logs=self._logs,
                leader=self._endpoint_of(leader_id),
                peers=self._peers,
            ):
                patient.is_proved, patient.is_unrepairable, patient.failures = True, False, 0
                patient.returns_until_s = asyncio.get_running_loop().time() + RETURN_S
        except (KafkaError, OSError, TimeoutError) as error:
            what = f"deletions below {missed_below}"
            self._try_later(name, patient, what, leader_id, error)
        finally:
            patient.is_being_filled = False
            self._is_due.set()

    async def _refetch(
        self, name: TopicPartition, partition: Partition, patient: _Patient, damage: DamagedRange
    ) -> None:
        log, epoch = partition.log, partition.leader_epoch
        try:
            if log.base_offsets[-1] == damage.segment:
                # What grows is not repaired; and where the damage ends is known for certain when it does not.
                log_repair.seal(log, damage.segment)
                await self._logs.repairs.check(log, damage.segment)
                self._is_due.set()
                return
            batches = await self._fetch(partition, damage)
            is_same = self._hosted.partitions.get(name) is partition and partition.leader_epoch == epoch
            if not is_same or partition.is_leader or damage not in log.damage:
                return  # looked at again, with what is true then
            if log.base_offsets[-1] == damage.segment:
                return  # the log was cut meanwhile, so that this segment grows again: it is sealed first, at the next look
            is_tail = len(batches) != damage.stop - damage.position
            if is_tail and damage.stop < log_repair.segment_size(log, damage.segment):
                raise DoesNotFit(f"{len(batches)} bytes for the {damage.stop - damage.position} of {damage}")
            if await self._logs.repairs.replace_damaged(log, damage, batches):
                logger.warning("%s: repaired %s from broker %d", name, damage, partition.leader_id)
                patient.failures = 0
                self._is_due.set()
                return
            raise CorruptBatch("it is damaged again after it was repaired: is the disk failing?")
        except DoesNotFit as error:
            patient.is_unrepairable = True
            logger.warning("%s: cannot be repaired in place, it will be cut and fetched again: %s", name, error)
        except StorageFailed:
            return  # the log has informed its listener
        except (KafkaError, OSError, TimeoutError) as error:
            self._try_later(name, patient, str(damage), partition.leader_id, error)

    def _try_later(
        self, name: TopicPartition, patient: _Patient, what: str, leader_id: BrokerId, error: BaseException
    ) -> None:
        pause_s = min(BACKOFF_S_MAX, LOOK_EVERY_S * 2**patient.failures)
        level = logging.WARNING if patient.failures in (0, 5) else logging.INFO
        patient.failures = min(patient.failures + 1, 16)
        patient.not_before_s = asyncio.get_running_loop().time() + pause_s
        logger.log(
            level,
            "%s: %s could not be refetched from broker %d, again in %.0f s: %s",
            name,
            what,
            leader_id,
            pause_s,
            error or type(error).__name__,
        )

    def _endpoint_of(self, broker_id: BrokerId) -> Endpoint | None:
        return self._hosted.endpoint_of(broker_id, self._config.inter_broker_listener_name)

    async def _fetch(self, partition: Partition, damage: DamagedRange) -> bytes:
        """The range's batches, from the leader, proved. Raises KafkaError, OSError, TimeoutError."""
        leader_id, log = partition.leader_id, partition.log
        endpoint = self._endpoint_of(leader_id)
        if endpoint is None:
            raise ConnectionError(f"broker {leader_id} has no listener for other brokers")
        first, end = damage.first_offset, damage.end_offset
        known_end = log.leader_epochs.epoch_at(end) if end < log.log_end_offset else partition.leader_epoch
        epochs = (log.leader_epochs.epoch_at(Offset(first - 1)), known_end)
        request = FetchSpec(max_bytes=FETCH_BYTES)
        pieces = bytearray()
        peer = self._peers(leader_id, endpoint)
        try:
            async with asyncio.timeout(FETCH_TIMEOUT_S):
                while first < end:
                    spec = FetchPartitionSpec(
                        *(partition.topic_partition.topic, partition.topic_id, partition.topic_partition.partition),
                        current_leader_epoch=partition.leader_epoch,
                        # DeleteRecords may have moved the log start into the range's first batch, which is read by its rest then.
                        fetch_offset=max(first, log.log_start_offset),
                        max_bytes=FETCH_BYTES,
                    )
                    records = await _fetch_one(peer, request, spec)
                    size = proved_batches(records, expected=first, end_offset=end, epochs=epochs)
                    if not size:
                        raise DoesNotFit(f"the leader has nothing at {first}")
                    pieces += records[:size]
                    if len(pieces) > REPAIR_BYTES_MAX:
                        raise DoesNotFit(f"more than {REPAIR_BYTES_MAX} bytes")
                    *_, (_, last) = iterate_batches(records[:size])
                    first = last.next_offset
        finally:
            await peer.close()
        return bytes(pieces)


async def _fetch_one(peer: Peer, request: FetchSpec, spec: FetchPartitionSpec) -> bytes:
    ((fetched,), _) = await peer.fetch(request, [spec])
    if fetched.error_code is not ErrorCode.NONE:
        raise KafkaError.of(fetched.error_code, f"the leader does not give offset {spec.fetch_offset}")
    return bytes(fetched.records)
