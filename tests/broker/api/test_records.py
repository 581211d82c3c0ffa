"""Records through the real listener, replica manager and logs: written, read back, timed, deleted; by raw frames and librdkafka."""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from barnabas_broker.network.config import NetworkConfig
from barnabas_log.config import BatchCompression, FlushOnAcks, LogConfig
from barnabas_log.directories.directory_health import DirectoryHealth
from barnabas_log.tail.segment import LogSegment
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import Offset, TopicPartition
from barnabas_wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas_wire.kafka.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas_wire.kafka.messages.describe_producers import DescribeProducersRequest, ProducerState, TopicRequest
from barnabas_wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas_wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas_wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_wire.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas_wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_wire.records.batch import Record, build_batch, iterate_batches, iterate_records
from barnabas_wire.records.compression import CompressionType
from tests.support.listener import RawClient
from tests.support.single_broker import SingleBroker, now_ms, single_broker

TOPIC = "flights"
PAGE_CACHE = LogConfig(flush_on_acks=FlushOnAcks.PAGE_CACHE)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[SingleBroker]:
    async with single_broker(tmp_path / "data", topics={TOPIC: 2}, log_config=PAGE_CACHE) as started:
        yield started


def batch_of(values: list[bytes], *, first_ms: int | None = None, compression: int = 0) -> bytes:
    """A producer's batch; record i has timestamp first_ms + 10 i."""
    start = now_ms() if first_ms is None else first_ms
    records = [
        Record(Offset(index), start + 10 * index, None if index % 3 == 0 else b"k%d" % index, value, (("h", b"v"),))
        for index, value in enumerate(values)
    ]
    return build_batch(records, compression=CompressionType(compression))


def produce(batch: bytes, *, acks: int = -1, partition: int = 0) -> ProduceRequest:
    data = [PartitionProduceData(index=partition, records=batch)]
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)])


def fetch(
    offset: int, *, wait_ms: int = 0, min_bytes: int = 1, max_bytes: int = 1 << 20, partition: int = 0
) -> FetchRequest:
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 26,
        topics=[FetchTopic(topic=TOPIC, partitions=[asked])],
    )


async def written(client: RawClient, batch: bytes, version: int = 9, *, acks: int = -1) -> int:
    """Base offset of a batch that must be taken."""
    answer = await client.call(produce(batch, acks=acks), version)
    (part,) = answer.responses[0].partition_responses
    assert part.error_code == 0, part.error_message
    return int(part.base_offset)


@pytest.mark.parametrize("mode", list(FlushOnAcks))
async def test_what_was_acknowledged_is_read_back_as_it_was_sent(tmp_path: Path, mode: FlushOnAcks) -> None:
    random_ = random.Random(2)
    config = LogConfig(flush_on_acks=mode)
    async with single_broker(tmp_path / "data", topics={TOPIC: 1}, log_config=config) as broker:
        client = await RawClient.connect(broker.server)
        sent: list[bytes] = []
        for index in range(30):
            values = [random_.randbytes(random_.randrange(2000)) for _ in range(random_.randrange(1, 40))]
            compression = index % 5
            base = await written(client, batch_of(values, compression=compression), acks=(-1, 1)[index % 2])
            assert base == len(sent)
            sent += values
        received: list[bytes | None] = []
        offset = 0
        while offset < len(sent):
            answer = await client.call(fetch(offset, max_bytes=random_.choice([100, 5_000, 60_000])), 12)
            (part,) = answer.responses[0].partitions
            assert part.high_watermark == len(sent)
            for position, header in iterate_batches(part.records):
                assert header.partition_leader_epoch == 0
                batch = bytes(part.records[position : position + header.size_bytes])
                received += [record.value for record in iterate_records(batch) if record.offset >= offset]
                offset = header.next_offset
        assert received == sent


async def test_pipelined_produces_are_appended_in_order(broker: SingleBroker) -> None:
    client = await RawClient.connect(broker.server)
    sent = [client.frame(produce(batch_of([b"%d" % index])), 9) for index in range(200)]
    await client.send(b"".join(frame for _, frame in sent))
    for index, (correlation_id, _) in enumerate(sent):
        answer = client.decode(ProduceRequest.API_KEY, 9, correlation_id, await client.read_frame())
        assert answer.responses[0].partition_responses[0].base_offset == index


async def test_a_parked_fetch_wakes_when_records_are_committed(broker: SingleBroker) -> None:
    reader = await RawClient.connect(broker.server)
    writer = await RawClient.connect(broker.server)
    waiting = asyncio.create_task(reader.call(fetch(0, wait_ms=30_000), 12))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await written(writer, batch_of([b"awaited"]))
    answer = await asyncio.wait_for(waiting, 10)
    assert answer.responses[0].partitions[0].high_watermark == 1
    assert len(answer.responses[0].partitions[0].records) > 0


async def test_a_parked_fetch_comes_back_empty_when_its_time_is_over(broker: SingleBroker) -> None:
    client = await RawClient.connect(broker.server)
    answer = await client.call(fetch(0, wait_ms=20, min_bytes=1000), 12)
    assert len(answer.responses[0].partitions[0].records) == 0
    outside = await client.call(fetch(17, wait_ms=30_000), 12)
    assert outside.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_an_answer_of_many_megabytes_is_resumed_until_it_is_whole(tmp_path: Path) -> None:
    config = LogConfig(flush_on_acks=FlushOnAcks.PAGE_CACHE, segment_bytes=1 << 20)  # many files in one answer
    network = NetworkConfig(queued_response_bytes_max=1 << 20)
    async with single_broker(tmp_path / "data", topics={TOPIC: 1}, log_config=config, network=network) as broker:
        client = await RawClient.connect(broker.server)
        value = random.Random(3).randbytes(700_000)
        for _ in range(25):
            await written(client, batch_of([value]))
        asked = client.frame(fetch(0, max_bytes=1 << 25), 12)
        await client.send(asked[1] * 2)
        for _ in range(2):
            answer = client.decode(FetchRequest.API_KEY, 12, asked[0], await client.read_frame())
            offset = 0
            for position, header in iterate_batches(answer.responses[0].partitions[0].records):
                records = answer.responses[0].partitions[0].records
                (record,) = iterate_records(bytes(records[position : position + header.size_bytes]))
                assert (record.offset, record.value) == (offset, value)
                offset += 1
            assert offset > 0
        assert broker.server.stats.bytes_sent_from_files > 2 * 700_000


async def test_bad_batches_are_refused_each_with_its_code(broker: SingleBroker) -> None:
    client = await RawClient.connect(broker.server)
    good = batch_of([b"one", b"two"])
    bent = bytearray(good)
    bent[-1] ^= 1
    old_magic = bytearray(good)
    old_magic[16] = 1
    new_magic = bytearray(good)
    new_magic[16] = 3
    placed = b"\0" * 7 + b"\5" + good[8:]
    invalid = ErrorCode.INVALID_RECORD
    # The log start offset is reported where the records were judged, as Kafka does.
    for batch, code, start in (
        (bytes(bent), ErrorCode.CORRUPT_MESSAGE, -1),
        (bytes(new_magic), ErrorCode.CORRUPT_MESSAGE, -1),
        (bytes(old_magic), invalid, -1),
        (good + good, invalid, -1),
        (good[:40], invalid, -1),
        (good[:-1], invalid, -1),
        (b"", invalid, -1),
        (placed, invalid, 0),
        (batch_of([bytes(2_000_000)]), ErrorCode.MESSAGE_TOO_LARGE, -1),
        (batch_of([b"tomorrow"], first_ms=now_ms() + 86_400_000), ErrorCode.INVALID_TIMESTAMP, 0),
    ):
        answer = await client.call(produce(batch), 9)
        part = answer.responses[0].partition_responses[0]
        assert (part.error_code, part.base_offset, part.log_start_offset) == (code, -1, start), code.name
    zstd = batch_of([b"one"] * 9, compression=CompressionType.ZSTD)
    for version in range(3, 7):
        answer = await client.call(produce(zstd), version)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    answer = await client.call(produce(good, partition=9), 9)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = await client.call(produce(good, acks=2), 9)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert await written(client, good) == 0  # nothing of all that was written


async def listed(client: RawClient, timestamp: int, version: int = 7, *, partition: int = 0) -> tuple[int, int, int]:
    """(error, timestamp, offset) of one ListOffsets."""
    asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[asked])])
    (part,) = (await client.call(request, version)).topics[0].partitions
    return part.error_code, part.timestamp, part.offset


@pytest.mark.parametrize("compression", list(CompressionType))
async def test_offsets_are_found_by_time_to_the_record(broker: SingleBroker, compression: CompressionType) -> None:
    client = await RawClient.connect(broker.server)
    start = now_ms() - 1_000_000
    for number in range(3):  # records at start + 0, 10 … 90, then + 100 …
        await written(client, batch_of([b"v"] * 10, first_ms=start + 100 * number, compression=compression))
    assert await listed(client, -2) == (0, -1, 0)
    assert await listed(client, -1) == (0, -1, 30)
    assert await listed(client, start) == (0, start, 0)
    assert await listed(client, start + 71) == (0, start + 80, 8)
    assert await listed(client, start + 195) == (0, start + 200, 20)
    assert await listed(client, start + 10_000) == (0, -1, -1)
    assert await listed(client, -3) == (0, start + 290, 29)
    for version in range(1, 12):
        assert await listed(client, -1, version) == (0, -1, 30)
    assert (await listed(client, -3, 6))[0] == ErrorCode.UNSUPPORTED_VERSION
    assert await listed(client, -4, 8) == (0, -1, 0)
    assert await listed(client, -5, 9) == (0, -1, -1)
    assert (await listed(client, -1, partition=7))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_batch_is_opened_for_its_times_while_others_are_served(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    searching, other = [await RawClient.connect(broker.server) for _ in range(2)]
    start = now_ms() - 1_000_000
    await written(searching, batch_of([b"v"] * 10, first_ms=start))
    opening, may_go_on = threading.Event(), threading.Event()
    batch_at = LogSegment.batch_at

    def open_slowly(segment: LogSegment, position: int) -> Any:
        opening.set()
        assert may_go_on.wait(30), "the loop waits for this"
        return batch_at(segment, position)

    monkeypatch.setattr(LogSegment, "batch_at", open_slowly)
    found = asyncio.ensure_future(listed(searching, start + 71))
    assert await asyncio.to_thread(opening.wait, 30)
    assert await listed(other, -1) == (0, -1, 10)
    await written(other, batch_of([b"v"] * 10, first_ms=start + 100))
    may_go_on.set()
    assert await found == (0, start + 80, 8)


async def test_a_topics_codec_is_kept_on_disk_whatever_the_producer_uses(broker: SingleBroker) -> None:
    client = await RawClient.connect(broker.server)
    zstd = replace(PAGE_CACHE, compression_type=BatchCompression.ZSTD)
    broker.replicas.apply_delta(None, broker.metadata.image, settings={TOPIC: zstd})
    values = [[b"%d" % number] * 50 for number in range(12)]
    sent = [client.frame(produce(batch_of(some, compression=index % 5)), 9) for index, some in enumerate(values)]
    await client.send(b"".join(frame for _, frame in sent))
    for index, (correlation_id, _) in enumerate(sent):
        answer = client.decode(ProduceRequest.API_KEY, 9, correlation_id, await client.read_frame())
        (part,) = answer.responses[0].partition_responses
        assert (part.error_code, part.base_offset) == (0, 50 * index), "pipelined produces keep their order"
    (part,) = (await client.call(fetch(0), 11)).responses[0].partitions
    data = bytes(part.records)
    found = []
    for position, header in iterate_batches(data):
        assert header.compression is CompressionType.ZSTD
        found += [record.value for record in iterate_records(data[position : position + header.size_bytes])]
    assert found == [value for some in values for value in some]


async def test_a_new_leader_without_its_high_watermark_answers_what_the_version_knows(broker: SingleBroker) -> None:
    client = await RawClient.connect(broker.server)
    await written(client, batch_of([b"v"] * 10))
    broker.replicas.hosted.leader_partition(TopicPartition(TOPIC, 0)).leader_epoch_start_offset = Offset(11)
    answers = {version: (await listed(client, -1, version))[0] for version in (1, 4, 5, 11)}
    assert answers == {
        1: ErrorCode.LEADER_NOT_AVAILABLE,
        4: ErrorCode.LEADER_NOT_AVAILABLE,
        5: ErrorCode.OFFSET_NOT_AVAILABLE,
        11: ErrorCode.OFFSET_NOT_AVAILABLE,
    }


async def test_the_end_of_a_leader_epoch_is_reported(broker: SingleBroker) -> None:
    client = await RawClient.connect(broker.server)
    await written(client, batch_of([b"v"] * 10))
    for version in (2, 3, 4):
        asked = [
            OffsetForLeaderPartition(partition=0, current_leader_epoch=0, leader_epoch=0),
            OffsetForLeaderPartition(partition=0, current_leader_epoch=9, leader_epoch=0),
            OffsetForLeaderPartition(partition=8, leader_epoch=0),
        ]
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=asked)])
        found = (await client.call(request, version)).topics[0].partitions
        assert [(part.error_code, part.leader_epoch, part.end_offset) for part in found] == [
            (0, 0, 10),
            (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1),
        ]


async def test_records_are_deleted_up_to_an_offset(broker: SingleBroker) -> None:
    client = await RawClient.connect(broker.server)
    for _ in range(3):
        await written(client, batch_of([b"v"] * 10))

    async def delete(offset: int, version: int) -> tuple[int, int]:
        asked = [DeleteRecordsPartition(partition_index=0, offset=offset)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=TOPIC, partitions=asked)], timeout_ms=1000)
        (part,) = (await client.call(request, version)).topics[0].partitions
        explained = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT)
        assert bool(part.error_message) is (part.error_code in explained and version >= 2)
        return part.error_code, part.low_watermark

    assert await delete(31, 2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await delete(31, 0) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await delete(12, 1) == (0, 12)
    assert await listed(client, -2) == (0, -1, 12)
    assert await delete(5, 2) == (0, 12)  # already gone
    assert await delete(-1, 2) == (0, 30)
    internal = DeleteRecordsTopic(name="__consumer_offsets", partitions=[DeleteRecordsPartition(0, -1)])
    (reported,) = (await client.call(DeleteRecordsRequest([internal], 1000), 2)).topics[0].partitions
    assert reported.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "here is none; where one is, its records stay"
    answer = await client.call(fetch(3), 12)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_log_directories_say_what_they_hold(broker: SingleBroker) -> None:
    client = await RawClient.connect(broker.server)
    batch = batch_of([b"v"] * 10)
    await written(client, batch)
    for version in range(1, 6):
        (directory,) = (await client.call(DescribeLogDirsRequest(topics=None), version)).results
        sizes = {part.partition_index: part.partition_size for part in directory.topics[0].partitions}
        assert sizes == {0: len(batch), 1: 0}
        volume = shutil.disk_usage(directory.log_dir)
        assert directory.total_bytes == (volume.total if version >= 4 else -1)
        assert (0 < directory.usable_bytes <= volume.total) is (version >= 4)
        assert (directory.replica_count, directory.replica_bytes) == (-1, -1), "Kafka's answer, byte for byte"
        summed = DescribeLogDirsRequest(topics=None, is_summed=True)
        (directory,) = (await client.call(summed, version)).results
        if version == 1:  # it has no room for the question, nor for the answer
            assert len(directory.topics[0].partitions) == 2 and directory.replica_count == -1
        else:
            assert (directory.topics, directory.replica_count, directory.replica_bytes) == ([], 2, len(batch))
            one = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(TOPIC, [1])], is_summed=True)
            (directory,) = (await client.call(one, version)).results
            assert (directory.replica_count, directory.replica_bytes) == (1, 0)
    # A directory that failed is named, with why; and one of which nothing is asked, too.
    with patch.object(DirectoryHealth, "offline_directories", ["/gone"]):
        answer = await client.call(DescribeLogDirsRequest(topics=[]), 4)
    assert [(each.error_code, each.topics) for each in answer.results] == [
        (ErrorCode.KAFKA_STORAGE_ERROR, []),
        (ErrorCode.NONE, []),
    ]


async def test_a_partition_says_which_producers_it_remembers(broker: SingleBroker) -> None:
    client = await RawClient.connect(broker.server)
    for sequence in (0, 3):
        records = [Record(Offset(i), 1_700_000_000_000 + sequence, None, b"v", ()) for i in range(3)]
        await written(client, build_batch(records, producer_id=77, producer_epoch=2, base_sequence=sequence))
    asked = [TopicRequest(TOPIC, [0, 1, 0, 9]), TopicRequest("nowhere", [0]), TopicRequest("no/name", [0])]
    answer = await client.call(DescribeProducersRequest(asked), 0)
    known, nowhere, unnamed = answer.topics
    assert [(part.partition_index, part.error_code) for part in known.partitions] == [
        (0, 0),
        (1, 0),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert known.partitions[0].active_producers == [ProducerState(77, 2, 5, 1_700_000_000_003, -1, -1)]
    assert known.partitions[1].active_producers == []
    assert nowhere.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert unnamed.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    with patch("barnabas_broker.api.producers.PRODUCERS_MAX", 0):
        answer = await client.call(DescribeProducersRequest(asked[:1]), 0)
    full, empty, _ = answer.topics[0].partitions
    assert (full.error_code, empty.error_code) == (ErrorCode.INVALID_REQUEST, 0) and "alone" in full.error_message


async def test_a_topic_made_by_asking_takes_records_at_once(broker: SingleBroker) -> None:
    client = await RawClient.connect(broker.server)
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="made")], allow_auto_topic_creation=True)
    answer = await client.call(asked, 12)
    assert answer.topics[0].error_code == 0
    data = [PartitionProduceData(index=0, records=batch_of([b"first"]))]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="made", partition_data=data)])
    assert (await client.call(request, 9)).responses[0].partition_responses[0].error_code == 0


LIBRDKAFKA = """
import sys
from confluent_kafka import Consumer, Producer, TopicPartition
bootstrap, codec = sys.argv[1:]
failures = []
producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": codec, "linger.ms": 2})
for index in range(3000):
    producer.produce("flights", str(index) * 20, key=str(index), partition=index % 2, headers=[("n", str(index))],
                     on_delivery=lambda error, message: failures.append(error) if error else None)
assert producer.flush(20) == 0 and not failures, failures
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
consumer.assign([TopicPartition("flights", 0, 0), TopicPartition("flights", 1, 0)])
seen = {}
while len(seen) < 3000:
    messages = consumer.consume(3000 - len(seen), 20)
    assert messages, f"{len(seen)} of 3000"
    for message in messages:
        assert message.error() is None, message.error()
        seen[message.key()] = (message.partition(), message.value(), message.headers())
for index in range(3000):
    key = str(index).encode()
    assert seen[key] == (index % 2, key * 20, [("n", key)])
"""


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_librdkafka_writes_and_reads_with_every_codec(broker: SingleBroker, codec: str) -> None:
    host, port = broker.server.bound["PLAINTEXT"]
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LIBRDKAFKA, f"{host}:{port}", codec, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await asyncio.wait_for(client.communicate(), 60)
    assert client.returncode == 0, errors.decode()
    assert broker.server.stats.connections_closed["bug"] <= 1  # a consumer looks for its group, and there is none
