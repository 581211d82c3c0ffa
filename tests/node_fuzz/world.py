"""A cluster that has used every kind of file, and the truth of it: what was acknowledged, aborted, deleted.

May touch:  nodes through the Kafka protocol, files of the cluster's directories to copy them.   Must not touch: damage.
Invariants: the truth holds only what was acknowledged; a copy of the directories is taken while nothing is written.
Read next:  images.py.

Topics. Replication factor 3: `safe` (three partitions, each node leads one), `trimmed` (records deleted by DeleteRecords),
`compacted` (keys overwritten and removed, cleaned), `copied` (committed and aborted transactions), and the internal ones with
a group's offsets. Replication factor 1, a partition on each node: `lone`, `lone-trimmed`, `lone-copied`, `lone-compacted`. `gone` was
deleted. Segments are rolled by record time, so that each log has several.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from barnabas_broker.node.properties import node_config
from barnabas_broker.node.storage import format_storage
from barnabas_log.disk import RealDisk
from barnabas_quorum.raft.voters import VoterSet
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.client.metadata import EARLIEST, LATEST, FetchedRecords
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition, Uuid
from barnabas_wire.kafka.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas_wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas_wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas_wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_wire.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas_wire.records.batch import (
    CorruptBatch,
    Record,
    build_batch,
    crc_is_valid,
    iterate_batches,
    iterate_records,
)
from barnabas_wire.records.control import ControlRecordType, decode_control_key
from tests.node_fuzz.cluster import BOOTSTRAP, CONTROLLER, HOST, NODES, RealNodes, data_directory, port, properties
from tests.support.transactional_producer import TransactionalProducer

GROUP = "readers"
_COORDINATOR_CODES = {14, 15, 16}
"""It loads, it is not there yet, it is another."""
SEGMENT_MS = 1_000
RECORD_STEP_MS = 300
"""Of record time between two batches: a segment for every fourth."""
STATES = ("old", "killed", "clean")
"""Copies of the directories: half-way; at the end, with all nodes running; after a stop in order."""
CLEANED_S = 60.0
STILL_S = 1.0
PARTS = 2
STEPS = 8
_PLAIN = {
    "retention.ms": "-1",
    "segment.ms": str(SEGMENT_MS),
    "index.interval.bytes": "0",
    "file.delete.delay.ms": "300",
}
_COMPACTED = _PLAIN | {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
    "min.compaction.lag.ms": "0",
}
_EVERYWHERE = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
_ALONE = [[1], [2], [3]]
TOPICS: dict[str, tuple[list[list[int]], dict[str, str]]] = {
    "safe": (_EVERYWHERE, _PLAIN),
    "trimmed": (_EVERYWHERE[:2], _PLAIN),
    "compacted": (_EVERYWHERE[1:2], _COMPACTED),
    "copied": (_EVERYWHERE[2:], _PLAIN),
    "lone": (_ALONE, _PLAIN),
    "lone-trimmed": (_ALONE, _PLAIN),
    "lone-copied": (_ALONE, _PLAIN),
    "lone-compacted": (_ALONE, _COMPACTED),
    "gone": (_EVERYWHERE[:1], _PLAIN),
}


@dataclass
class PartitionTruth:
    """What clients were told of one partition."""

    acknowledged: dict[int, bytes] = field(default_factory=dict)
    """Offset -> value; with compaction the newest of each key."""
    keys: dict[bytes, int] = field(default_factory=dict)
    """With compaction: key -> its newest offset."""
    removed: set[bytes] = field(default_factory=set)
    """With compaction: keys whose last record is a tombstone, which the cleaner has taken away."""
    aborted: set[int] = field(default_factory=set)
    start: int = 0
    """Records below it were deleted."""
    directory: str = ""


@dataclass
class Truth:
    """Of the cluster."""

    partitions: dict[TopicPartition, PartitionTruth] = field(default_factory=dict)
    committed: dict[str, int] = field(default_factory=dict)
    """Of the group, by topic: partition 0."""
    batches: dict[TopicPartition, dict[int, int]] = field(default_factory=dict)
    """Base offset -> last offset."""

    def save(self, root: Path) -> None:
        """Keep it beside the copies."""
        (root / "truth").write_bytes(pickle.dumps(self))

    @classmethod
    def load(cls, root: Path) -> Truth:
        """As `save` left it."""
        truth = pickle.loads((root / "truth").read_bytes())
        assert isinstance(truth, Truth)
        return truth


def is_lone(key: TopicPartition) -> bool:
    """Whether one replica is all there is."""
    return key.topic.startswith("lone")


async def make_world(root: Path) -> Truth:
    """Run a cluster below `root`/live, use it, leave the copies in `root`/<state>."""
    live = root / "live"
    _format(live)
    nodes = RealNodes(live, is_busy=True)
    nodes.start()
    client = ClusterClient(BOOTSTRAP, timeout_s=60)
    truth = Truth()
    try:
        await _create(client)
        await _write(client, truth, 0)
        await asyncio.sleep(1.0)  # checkpoints are written, deleted files are gone
        _copy(live, root / "old")
        await _write(client, truth, 1)
        await _trim(client, truth)
        answer = await client.call(DeleteTopicsRequest(topics=[DeleteTopicState("gone")], timeout_ms=10_000))
        assert answer.responses[0].error_code == 0, answer
        await _wait_cleaned(client, truth)
        await _commit(client, truth)
        await asyncio.sleep(1.5)
        for node in nodes.nodes.values():
            assert node.error is None, node.error
        _copy(live, root / "killed")
    finally:
        await client.close()
    await nodes.stop()
    _copy(live, root / "clean")
    shutil.rmtree(live)
    truth.save(root)
    return truth


def _format(live: Path) -> None:
    ids = {node_id: Uuid(os.urandom(16)) for node_id in NODES}
    voters = VoterSet.parse(",".join(f"{each}@{HOST}:{port(each, CONTROLLER)}:{ids[each]}" for each in NODES))
    cluster_id = str(Uuid(os.urandom(16)))
    for node_id in NODES:
        disk = RealDisk()
        server = node_config(properties(live, node_id)).server
        format_storage(
            disk, server, cluster_id=cluster_id, make_voters=lambda _: voters, new_uuid=lambda: Uuid(os.urandom(16))
        )
        disk.close()


def _copy(live: Path, to: Path) -> None:
    shutil.copytree(live, to)


async def _create(client: ClusterClient) -> None:
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(index, ids) for index, ids in enumerate(placed)],
                configs=[CreatableTopicConfig(key, value) for key, value in configs.items()],
            )
            for name, (placed, configs) in TOPICS.items()
        ],
        timeout_ms=30_000,
    )
    while True:
        answer = await client.call(request)
        codes = {topic.error_code for topic in answer.topics}
        if codes <= {0, 36}:
            return
        await asyncio.sleep(0.1)  # not all brokers are there yet


async def _write(client: ClusterClient, truth: Truth, part: int) -> None:
    """Batches of three records, or transactions of one, into each partition of each topic; part: 0 or 1."""
    began_ms = time.time_ns() // 1_000_000 - 100_000 + part * 50_000
    producer = TransactionalProducer(client, f"copier-{part}", is_new=True)
    await producer.init()
    for topic, (placed, configs) in TOPICS.items():
        for index in range(len(placed)):
            key = TopicPartition(topic, index)
            at = truth.partitions.setdefault(key, PartitionTruth())
            for step in range(STEPS):
                age_ms = time.time_ns() // 1_000_000 - began_ms - step * RECORD_STEP_MS
                value = f"{topic}-{index} {part}.{step} ".encode() * 3
                if "copied" in topic:
                    await _write_transaction(producer, key, at, value, age_ms=age_ms, is_commit=step % 3 != 1)
                else:
                    await _write_plain(client, key, at, value, age_ms, step, is_compacted="compact" in str(configs))


async def _write_transaction(
    producer: TransactionalProducer,
    key: TopicPartition,
    at: PartitionTruth,
    value: bytes,
    *,
    age_ms: int,
    is_commit: bool,
) -> None:
    offset = await producer.write(key, value, age_ms=age_ms)
    await producer.end(is_commit=is_commit)
    if is_commit:
        at.acknowledged[offset] = value
    else:
        at.aborted.add(offset)


async def _write_plain(
    client: ClusterClient,
    key: TopicPartition,
    at: PartitionTruth,
    value: bytes,
    age_ms: int,
    step: int,
    *,
    is_compacted: bool,
) -> None:
    now_ms = time.time_ns() // 1_000_000
    records = []
    for number in range(3):
        # Of compacted topics one key is new with every batch, one is written again and again, one goes at last.
        name = (b"key-%d" % step, b"again", b"removed-%d" % (step // 2))[number]
        is_removed = is_compacted and number == 2 and step % 2 == 1
        records.append(Record(number, now_ms - age_ms + number, name, None if is_removed else value + b"%d" % number))
    base = await client.produce(key, build_batch(records))
    for record in records:
        assert record.key is not None
        if not is_compacted:
            at.acknowledged[base + record.offset] = record.value or b""
            continue
        former = at.keys.pop(record.key, None)
        if former is not None:
            at.acknowledged.pop(former)
        at.removed.discard(record.key)
        if record.value is None:
            at.removed.add(record.key)
        else:
            at.keys[record.key] = base + record.offset
            at.acknowledged[base + record.offset] = record.value


async def _trim(client: ClusterClient, truth: Truth) -> None:
    """Delete the first third of the trimmed topics' records, in the middle of a segment."""
    for key, at in truth.partitions.items():
        if "trimmed" not in key.topic:
            continue
        start = sorted(at.acknowledged)[len(at.acknowledged) // 3 + 2]
        await client.metadata([key.topic])
        topic = DeleteRecordsTopic(key.topic, [DeleteRecordsPartition(key.partition, start)])
        leader = client.routing.view.leader(key).id
        answer = await client.call(DeleteRecordsRequest([topic], timeout_ms=10_000), broker_id=leader)
        assert answer.topics[0].partitions[0].error_code == 0, answer
        at.start = start
        at.acknowledged = {offset: value for offset, value in at.acknowledged.items() if offset >= start}


async def _commit(client: ClusterClient, truth: Truth) -> None:
    """Offsets of a group without members."""
    for topic in ("safe", "lone"):
        truth.committed[topic] = max(truth.partitions[TopicPartition(topic, 0)].acknowledged)
        wanted = OffsetCommitRequestTopic(
            name=topic, partitions=[OffsetCommitRequestPartition(0, truth.committed[topic], committed_metadata="")]
        )
        request = OffsetCommitRequest(group_id=GROUP, topics=[wanted])
        while True:
            answer = await client.call_coordinator(GROUP, request, version_max=9)
            code = answer.topics[0].partitions[0].error_code
            if code == 0:
                break
            assert code in _COORDINATOR_CODES, answer
            await asyncio.sleep(0.1)


async def _wait_cleaned(client: ClusterClient, truth: Truth) -> None:
    """Until the cleaner has been over the compacted topics: what still changes is not waited for."""
    for key, at in truth.partitions.items():
        if "compacted" not in key.topic:
            continue
        written = 3 * STEPS * PARTS
        deadline, former, since, removed = time.monotonic() + CLEANED_S, written, time.monotonic(), set[bytes]()
        while time.monotonic() < since + STILL_S or not removed:
            found = (await read_partition(client, key)).records
            # What the active segment still holds is no promise: only what is gone now must stay away.
            removed = at.removed - {record.key for record in found.values() if record.key is not None and record.value}
            if len(found) < former or former == written:
                former, since = len(found), time.monotonic()
            assert time.monotonic() < deadline, f"the cleaner leaves {former} of {written} records in {key}"
            await asyncio.sleep(0.2)
        at.removed = removed


@dataclass
class Found:
    """What a reader gets of one partition."""

    start: int
    end: int
    records: dict[int, Record] = field(default_factory=dict)
    """By offset, of read_uncommitted."""
    committed: set[int] = field(default_factory=set)
    """Offsets that a reader of committed records gets."""
    damaged: str = ""
    """What was answered for a batch that cannot be read."""


async def read_partition(client: ClusterClient, key: TopicPartition, *, known: Sequence[int] = ()) -> Found:
    """All of it. Raises what the cluster answers, but where a reader may go on behind it.

    known: offsets at which batches are known to begin, rising: from the next of them a reader goes on behind one that is damaged.
    """
    start = (await client.list_offsets({key: EARLIEST}))[key].offset
    end = (await client.list_offsets({key: LATEST}))[key].offset
    found = Found(start, end)
    for is_read_committed in (False, True) if "copied" in key.topic else (False,):
        reader = _Reader(found, is_read_committed)
        offset: int = start
        while offset < end:
            try:
                got = await client.fetch(key, offset, wait_ms_max=100, is_read_committed=is_read_committed)
                former, offset = offset, reader.take(got, offset)
            except KafkaError as error:
                if error.code is not ErrorCode.CORRUPT_MESSAGE:
                    raise
                found.damaged = str(error)
                if reader.sound_end > offset:  # what came before the damage was taken, as every client does
                    offset = reader.sound_end
                    continue
                later = [each for each in known if each > offset]
                if not later:
                    break
                offset = later[0]
                continue
            if offset == former:
                break  # nothing more is served: the law asks what is missing
    return found


class _Reader:
    """Takes what is fetched in order, as a consumer does."""

    def __init__(self, found: Found, is_read_committed: bool) -> None:
        self._found = found
        self._is_read_committed = is_read_committed
        self._aborted: list[tuple[int, int]] = []
        self.sound_end = 0
        """Behind the last batch that was taken."""

    def take(self, got: FetchedRecords, offset: int) -> int:
        """Returns the offset to go on from. Raises CorruptBatch where a batch's checksum is wrong, as every client does."""
        self._aborted += [each for each in got.aborted if each not in self._aborted]
        first = offset
        for position, header in iterate_batches(got.records):
            if header.next_offset <= first or position + header.size_bytes > len(got.records):
                continue
            if not crc_is_valid(got.records, position, header):
                raise CorruptBatch(f"the batch at {header.base_offset} has a wrong checksum")
            self.sound_end = offset = max(offset, header.next_offset)
            batch = got.records[position : position + header.size_bytes]
            if header.is_control:
                self._end(header.producer_id, header.last_offset, batch)
                continue
            is_aborted = header.is_transactional and any(
                producer == header.producer_id and begun <= header.last_offset for producer, begun in self._aborted
            )
            for record in iterate_records(batch):
                if record.offset < first:
                    continue
                if not self._is_read_committed:
                    self._found.records[record.offset] = record
                elif not is_aborted:
                    self._found.committed.add(record.offset)
        return offset

    def _end(self, producer_id: int, offset: int, batch: memoryview) -> None:
        """Of a transaction."""
        for record in iterate_records(batch):
            if decode_control_key(record.key or b"") == ControlRecordType.ABORT:
                self._aborted = [each for each in self._aborted if each[0] != producer_id or each[1] > offset]


async def read_committed_offsets(client: ClusterClient, topics: list[str]) -> dict[str, int]:
    """Of the group, by topic."""
    request = OffsetFetchRequest(group_id=GROUP, topics=[OffsetFetchRequestTopic(topic, [0]) for topic in topics])
    answer = await client.call_coordinator(GROUP, request, version_max=7)
    return {topic.name: topic.partitions[0].committed_offset for topic in answer.topics}


def files_of(copy: Path) -> Iterator[Path]:
    """Every file of all nodes, relative to the node's directory."""
    for node_id in NODES:
        directory = data_directory(copy, node_id)
        yield from (path.relative_to(directory) for path in directory.rglob("*") if path.is_file())
