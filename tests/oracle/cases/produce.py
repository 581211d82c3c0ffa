"""Produce: what is appended, what is refused and with which code; idempotent sequences."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import Any

import google_crc32c

from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_wire.kafka.schema import encode_request
from tests.oracle.answers import SILENCE_S, UNKNOWN_ID, Side, frame
from tests.oracle.cases import GZIP, LZ4, SNAPPY, T0, ZSTD, batch, case
from tests.oracle.cases.groups import ready
from tests.support.poison import POISON, TAKEN

VERSIONS = range(3, 14)
BASE_OFFSET, LENGTH, MAGIC, CRC, ATTRIBUTES, LAST_DELTA, BASE_TIME, MAX_TIME, SEQUENCE, COUNT = (
    *(0, 8, 16, 17, 21, 23, 27, 35),
    *(53, 57),
)
"""Where the fields of a batch lie."""


def request(side: Side, topic: str, data: bytes | None, *, partition: int = 0, acks: int = -1) -> ProduceRequest:
    """One partition's worth."""
    return ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(
                name=topic,
                topic_id=side.topic_ids.get(topic, UNKNOWN_ID),
                partition_data=[PartitionProduceData(partition, data)],
            )
        ],
    )


def produce(
    side: Side, topic: str, data: bytes | None, *, version: int = 12, timeout_s: float = 5.0, **options: Any
) -> Any:
    """The answer for one partition, or CLOSED, or SILENT."""
    answer = side.call(request(side, topic, data, **options), version=version, timeout_s=timeout_s)
    return answer if isinstance(answer, str) else answer.responses[0].partition_responses[0]


def patched(data: bytes, *changes: tuple[str, int, int], is_crc_right: bool = True) -> bytes:
    """The batch with fields overwritten: (struct format, position, value)."""
    out = bytearray(data)
    for layout, position, value in changes:
        struct.pack_into(layout, out, position, value)
    if is_crc_right:
        struct.pack_into(">I", out, CRC, google_crc32c.value(bytes(out[ATTRIBUTES:])))
    return bytes(out)


def init_producer_id(side: Side, **fields: Any) -> InitProducerIdResponse:
    """A producer id, as soon as the broker has some."""
    while True:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000, **fields)
        answer: InitProducerIdResponse = side.call(request, version=5)
        if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return answer
        time.sleep(0.02)


@case()
def produce_in_every_version(side: Side) -> Iterator[tuple[str, Any]]:
    topic = side.topic("produce-versions")
    for version in VERSIONS:
        for acks in (1, -1):
            yield f"v{version} acks={acks}", side.call(request(side, topic, batch(3), acks=acks), version=version)
        yield f"v{version} unknown topic", side.call(request(side, "nowhere", batch()), version=version)
        yield f"v{version} unknown partition", side.call(request(side, topic, batch(), partition=7), version=version)
        yield f"v{version} acks", side.call(request(side, topic, batch(), acks=2), version=version)


@case({"v?": "old-produce"})
def produce_old_versions(side: Side) -> Iterator[tuple[str, Any]]:
    topic = side.topic("produce-old-versions")
    for version in (0, 1, 2):
        old = struct.pack(">hii", 1, 1000, 1) + struct.pack(">h", len(topic)) + topic.encode()
        old += struct.pack(">iii", 1, 0, len(batch())) + batch()
        yield f"v{version}", side.body(ApiKey.PRODUCE, version, old)


@case()
def produce_without_acknowledgement(side: Side) -> Iterator[tuple[str, Any]]:
    topic = side.topic("produce-acks-0")
    for label, name, partition, data in (
        ("good", topic, 0, batch()),
        ("unknown topic", "nowhere", 0, batch()),
        ("unknown partition", topic, 7, batch()),
        ("corrupt", topic, 0, patched(batch(), (">I", CRC, 1), is_crc_right=False)),
    ):
        body = bytearray()
        encode_request(request(side, name, data, partition=partition, acks=0), 9, body)
        yield label, side.raw(frame(ApiKey.PRODUCE, 9, bytes(body)))


@case(
    {
        "batch and tail.*": "strict-batch",
        "batch and long tail.*": "strict-batch",
        "log append time.*": "strict-batch",
        "producer without an epoch.*": "strict-batch",
        "compression ?.error_code": "kafka-stumbles",
        "null": "kafka-stumbles",
        "gzip of nothing.error_code": "kafka-stumbles",
        "broken records.record_errors": "named-record",
        "count too high.record_errors": "named-record",
        "last offset negative.record_errors": "named-record",
        "transactional without a producer.*": "strict-batch",
    }
)
def produce_malformed_batches(side: Side) -> Iterator[tuple[str, Any]]:
    good = batch(3)
    wrong = {
        "nothing": b"",
        "magic 0": patched(good, (">b", MAGIC, 0)),
        "magic 1": patched(good, (">b", MAGIC, 1)),
        "magic 3": patched(good, (">b", MAGIC, 3)),
        "wrong crc": patched(good, (">I", CRC, 12345), is_crc_right=False),
        "two batches": good + good,
        "batch and tail": good + good[:20],
        "batch and long tail": good + good[:70],
        "cut in the header": good[:40],
        "cut in the records": good[:-1],
        "length too short": patched(good, (">i", LENGTH, 20), is_crc_right=False),
        "length negative": patched(good, (">i", LENGTH, -1), is_crc_right=False),
        "length too long": patched(good, (">i", LENGTH, 1 << 20), is_crc_right=False),
        "length one too long": patched(good, (">i", LENGTH, len(good) - 11), is_crc_right=False),
        "count too high": patched(good, (">i", COUNT, 4)),
        "count too low": patched(good, (">i", COUNT, 2)),
        "count zero": patched(good, (">i", COUNT, 0)),
        "count negative": patched(good, (">i", COUNT, -1)),
        "last offset too high": patched(good, (">i", LAST_DELTA, 3)),
        "last offset negative": patched(good, (">i", LAST_DELTA, -1)),
        "base offset set": patched(good, (">q", BASE_OFFSET, 77)),
        "base offset negative": patched(good, (">q", BASE_OFFSET, -5)),
        "control": batch(3, is_control=True),
        "transactional without a producer": batch(3, is_transactional=True),
        "log append time": patched(good, (">h", ATTRIBUTES, 8)),
        "delete horizon": patched(good, (">h", ATTRIBUTES, 64)),
        "unused attribute": patched(good, (">h", ATTRIBUTES, 128)),
        "compression 5": patched(good, (">h", ATTRIBUTES, 5)),
        "compression 7": patched(good, (">h", ATTRIBUTES, 7)),
        "gzip of nothing": patched(good, (">h", ATTRIBUTES, 1)),
        "broken records": patched(good, (">i", 61, -1)),
        "sequence without a producer": batch(base_sequence=5),
        "producer without a sequence": batch(producer_id=1_000_000, producer_epoch=0),
        "producer without an epoch": batch(producer_id=1_000_000, base_sequence=0),
    }
    topic = side.topic("produce-malformed", len(wrong) + 1)
    for partition, (label, data) in enumerate(wrong.items()):
        yield label, produce(side, topic, data, partition=partition)
    yield "null", produce(side, topic, None, partition=len(wrong), timeout_s=SILENCE_S)


@case(
    {
        "*.record_errors": "named-record",
        "*garbage.error_code": "kafka-stumbles",
        "zlib for gzip.error_code": "kafka-stumbles",
        "gzip *.error_code": "kafka-stumbles",
        "* cut off.error_code": "kafka-stumbles",
        "lz4 without its end.error_code": "kafka-stumbles",
        "offset delta*": "strict-records",
        "time beyond 64 bits.error_code": "strict-records",
        "* of length -2.*": "strict-records",
    }
)
def produce_unsound_records(side: Side) -> Iterator[tuple[str, Any]]:
    asked = {kind: data for kind, (data, _) in POISON.items()} | {
        f"taken: {kind}": data for kind, data in TAKEN.items()
    }
    topic = side.topic("produce-unsound", len(asked))
    for partition, (kind, data) in enumerate(asked.items()):
        yield kind, produce(side, topic, data, partition=partition)


@case()
def produce_compressed(side: Side) -> Iterator[tuple[str, Any]]:
    topic = side.topic("produce-compressed")
    for kind in (GZIP, SNAPPY, LZ4, ZSTD):
        for version in (3, 6, 7, 12):
            yield f"{kind.name} v{version}", produce(side, topic, batch(20, compression=kind), version=version)


@case()
def produce_sizes(side: Side) -> Iterator[tuple[str, Any]]:
    topic = side.topic("produce-sizes", max_message_bytes="1000", segment_bytes="1048576")
    size = len(batch(20))
    assert size < 1000 < len(batch(60))
    yield "small enough", produce(side, topic, batch(20))
    yield "too large", produce(side, topic, batch(60))
    yield "small enough compressed", produce(side, topic, batch(60, compression=GZIP))
    big = side.topic("produce-sizes-segment", max_message_bytes="3000000", segment_bytes="1048576")
    yield "larger than a segment", produce(side, big, batch(60_000))
    yield "no more", produce(side, big, batch())


@case({"*.record_errors": "opaque-batch"})
def produce_timestamps(side: Side) -> Iterator[tuple[str, Any]]:
    topic = side.topic("produce-timestamps")
    now_ms = int(time.time() * 1000)
    hour_ms = 3_600_000
    yield "in two hours", produce(side, topic, batch(timestamp_ms=now_ms + 2 * hour_ms))
    yield "one in two hours", produce(side, topic, batch(3, timestamp_ms=now_ms, step_ms=hour_ms))
    yield "in half an hour", produce(side, topic, batch(timestamp_ms=now_ms + hour_ms // 2))
    yield "long ago", produce(side, topic, batch(timestamp_ms=1))
    yield "none", produce(side, topic, batch(timestamp_ms=-1))
    yield "negative", produce(side, topic, batch(timestamp_ms=-2))
    yield "max below the records", produce(side, topic, patched(batch(3), (">q", MAX_TIME, T0)))
    yield "max far above the records", produce(side, topic, patched(batch(3), (">q", MAX_TIME, now_ms + 9 * hour_ms)))
    for version in (3, 7, 8):
        late = batch(timestamp_ms=now_ms + 2 * hour_ms)
        yield f"in two hours v{version}", produce(side, topic, late, version=version)
    strict = side.topic("produce-timestamps-strict", message_timestamp_before_max_ms="1000")
    yield "too old", produce(side, strict, batch())
    yield "some too old", produce(side, strict, batch(2, timestamp_ms=now_ms - hour_ms, step_ms=hour_ms))
    stamped = side.topic("produce-timestamps-stamped", message_timestamp_type="LogAppendTime")
    for label, data in (
        ("now", batch(2)),
        ("gzip", batch(2, compression=GZIP)),
        ("ahead", batch(timestamp_ms=1 << 60)),
    ):
        answer = produce(side, stamped, data)
        yield label, (answer.error_code, answer.base_offset, abs(answer.log_append_time_ms - now_ms) < hour_ms)


@case({"*again.log_append_time_ms": "repeated-batch"})
def produce_with_sequences(side: Side) -> Iterator[tuple[str, Any]]:
    topic = side.topic("produce-sequences", 3)
    given = init_producer_id(side)
    yield "init", (given.error_code, given.producer_epoch)

    def send(
        sequence: int, count: int = 2, *, epoch: int = 0, partition: int = 0, producer: int = given.producer_id
    ) -> Any:
        data = batch(count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        return produce(side, topic, data, partition=partition)

    for sequence in (0, 2, 4, 6, 8, 10, 12):
        yield f"sequence {sequence}", send(sequence)
    yield "last again", send(12)
    yield "fifth last again", send(4)
    yield "sixth last again", send(2)
    yield "first again", send(0)
    yield "gap", send(20)
    yield "gap of one", send(15)
    yield "overlap", send(13)
    yield "same first, more records", send(12, 3)
    yield "negative", send(-2)
    yield "after the refusals", send(14)
    yield "new epoch, not from zero", send(16, epoch=1)
    yield "new epoch", send(0, epoch=1)
    yield "old epoch", send(16, epoch=0)
    yield "epoch jumps", send(0, epoch=7)
    yield "unknown producer, from five", send(5, partition=1)
    yield "unknown producer, goes on", send(7, partition=1)
    yield "unknown producer, gap", send(10, partition=1)
    top = 2**31 - 1
    yield "near the top", send(top - 1, partition=2)
    yield "wraps", send(0, partition=2)
    yield "wraps again", send(0, partition=2)
    yield "at the top again", send(top - 1, partition=2)
    yield "across the top", send(top, 3, partition=2, epoch=1)
    yield "another producer", send(0, producer=given.producer_id + 500_000, partition=2)


@case()
def produce_several(side: Side) -> Iterator[tuple[str, Any]]:
    first, second = side.topic("produce-several-a", 2), side.topic("produce-several-b")

    def entry(topic: str, *partitions: tuple[int, bytes]) -> TopicProduceData:
        data = [PartitionProduceData(index, records) for index, records in partitions]
        return TopicProduceData(topic, side.topic_ids.get(topic, UNKNOWN_ID), data)

    mixed = [
        entry(first, (0, batch()), (1, patched(batch(), (">I", CRC, 1), is_crc_right=False)), (9, batch())),
        entry("nowhere", (0, batch())),
        entry(second, (0, batch(5))),
    ]
    for version in (3, 9, 12, 13):
        yield f"mixed v{version}", side.call(ProduceRequest(None, -1, 1000, mixed), version=version)
    yield "no topics", side.call(ProduceRequest(None, -1, 1000, []), version=12)
    yield "no partitions", side.call(ProduceRequest(None, -1, 1000, [entry(first)]), version=12)
    ready(side, "produce-several")  # makes the topic
    internal = ProduceRequest(None, -1, 1000, [entry("__consumer_offsets", (0, batch()))])
    yield "internal topic", side.call(internal, version=12)
