"""ListOffsets and OffsetForLeaderEpoch on the same records."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from barnabas_wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas_wire.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas_wire.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas_wire.records.batch import Record, build_batch
from tests.oracle.answers import Side
from tests.oracle.cases import GZIP, T0, ZSTD, batch, case
from tests.oracle.cases.produce import produce

VERSIONS = range(1, 12)
SPECIAL = (-1, -2, -3, -4, -5, -6, -7)


def list_offsets(side: Side, topic: str, *asked: ListOffsetsPartition, version: int = 11, **fields: Any) -> Any:
    """The whole answer."""
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(topic, list(asked))], timeout_ms=5000, **fields
    )
    return side.call(request, version=version)


def _timed(*times_ms: int, **options: Any) -> bytes:
    return build_batch([Record(i, T0 + ms, None, b"%d" % ms) for i, ms in enumerate(times_ms)], **options)


def with_times(side: Side, name: str) -> str:
    """A topic whose records' times rise, stand still, fall and meet, within batches and across them."""
    topic = side.topic(name, 2)
    for data in (
        _timed(0, 10, 20),
        _timed(30, 25, 40, compression=GZIP),
        _timed(40, 40, 40),
        _timed(100, 60, 80, compression=ZSTD),
        _timed(70),
        _timed(100, 90),
        _timed(50),
    ):
        assert produce(side, topic, data).error_code == 0
    return topic


@case()
def list_offsets_in_every_version(side: Side) -> Iterator[tuple[str, Any]]:
    topic = with_times(side, "list-versions")
    for version in VERSIONS:
        for timestamp in (*SPECIAL, T0, T0 + 35, T0 + 1000):
            asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            yield f"v{version} at {timestamp}", list_offsets(side, topic, asked, version=version)


@case()
def list_offsets_by_time(side: Side) -> Iterator[tuple[str, Any]]:
    topic = with_times(side, "list-times")
    for ms in range(-10, 120, 5):
        asked = ListOffsetsPartition(partition_index=0, timestamp=T0 + ms)
        yield f"{ms}", list_offsets(side, topic, asked)
    yield "ever", list_offsets(side, topic, ListOffsetsPartition(partition_index=0, timestamp=0))
    yield "never", list_offsets(side, topic, ListOffsetsPartition(partition_index=0, timestamp=2**63 - 1))
    for timestamp in (*SPECIAL, T0):
        yield (
            f"empty at {timestamp}",
            list_offsets(side, topic, ListOffsetsPartition(partition_index=1, timestamp=timestamp)),
        )


@case()
def list_offsets_by_time_across_segments(side: Side) -> Iterator[tuple[str, Any]]:
    topic = side.topic(
        "list-segments", segment_bytes="1048576", index_interval_bytes="100", max_message_bytes="2000000"
    )
    for index in range(30):
        data = build_batch([Record(i, T0 + index * 100 + i, None, b"x" * 10_000) for i in range(10)])
        assert produce(side, topic, data).error_code == 0
    for ms in (0, 5, 9, 10, 99, 100, 105, 1000, 1057, 1100, 2000, 2905, 2909, 2910):
        asked = ListOffsetsPartition(partition_index=0, timestamp=T0 + ms)
        yield f"{ms}", list_offsets(side, topic, asked)
    yield "max", list_offsets(side, topic, ListOffsetsPartition(partition_index=0, timestamp=-3))


@case({"from 1[145] at -3.*": "greatest-there"})
def list_offsets_of_a_shortened_log(side: Side) -> Iterator[tuple[str, Any]]:
    """Its start lies within a batch, later past the greatest time."""
    topic = with_times(side, "list-shortened")
    for start in (1, 4, 9, 11, 14, 15):
        side.call(
            DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, start)])], timeout_ms=5000
            )
        )
        for timestamp in (-1, -2, -3, -4, 0, T0 + 20, T0 + 30, T0 + 60, T0 + 95, T0 + 100, T0 + 101):
            asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            yield f"from {start} at {timestamp}", list_offsets(side, topic, asked)


@case({"0 at -3.*": "greatest-there"})
def list_offsets_of_undated_records(side: Side) -> Iterator[tuple[str, Any]]:
    topic = side.topic("list-undated", 2)
    undated = [Record(i, -1, None, b"v") for i in range(3)]
    for partition, data in (
        (0, build_batch(undated)),
        (1, build_batch(undated)),
        (1, _timed(5)),
        (1, build_batch(undated)),
    ):
        assert produce(side, topic, data, partition=partition).error_code == 0
    for partition in (0, 1):
        for timestamp in (-1, -2, -3, 0, T0, T0 + 5, T0 + 6):
            asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
            yield f"{partition} at {timestamp}", list_offsets(side, topic, asked)


@case()
def list_offsets_with_log_append_time(side: Side) -> Iterator[tuple[str, Any]]:
    topic = side.topic("list-append-time", message_timestamp_type="LogAppendTime")
    for kind in ({}, {"compression": GZIP}):
        assert produce(side, topic, batch(4, **kind)).error_code == 0
        time.sleep(0.01)  # two batches of one millisecond would have one append time, and the first would be found
    for timestamp in (-1, -2, -3, T0):
        answer = list_offsets(side, topic, ListOffsetsPartition(partition_index=0, timestamp=timestamp))
        found = answer.topics[0].partitions[0]
        yield f"{timestamp}", (found.error_code, found.offset, found.timestamp > T0)


@case({"* twice.*": "named-twice", "nothing.*": "named-never"})
def list_offsets_refused(side: Side) -> Iterator[tuple[str, Any]]:
    topic = with_times(side, "list-refused")
    for version in VERSIONS:
        asked = ListOffsetsPartition(partition_index=9, timestamp=-1)
        yield f"v{version} unknown partition", list_offsets(side, topic, asked, version=version)
        asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
        yield f"v{version} unknown topic", list_offsets(side, "nowhere", asked, version=version)
    for epoch in (-1, 0, 1, 5):
        asked = ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=epoch)
        yield f"epoch {epoch}", list_offsets(side, topic, asked)
    twice = [ListOffsetsPartition(partition_index=0, timestamp=stamp) for stamp in (-1, -2)]
    for version in (1, 11):
        yield f"v{version} twice", list_offsets(side, topic, *twice, version=version)
    yield "committed", list_offsets(side, topic, twice[0], isolation_level=1)
    yield "nothing", list_offsets(side, topic)
    bad_name = ListOffsetsPartition(partition_index=0, timestamp=-1)
    yield "bad name", list_offsets(side, "a/b", bad_name)


@case()
def offsets_for_leader_epochs(side: Side) -> Iterator[tuple[str, Any]]:
    topic = with_times(side, "epochs")

    def ask(version: int, *asked: OffsetForLeaderPartition, topic: str = topic) -> Any:
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic, list(asked))])
        return side.call(request, version=version)

    for version in (2, 3, 4):
        for epoch in (-1, 0, 1, 7):
            yield f"v{version} epoch {epoch}", ask(version, OffsetForLeaderPartition(0, -1, epoch))
            yield f"v{version} current {epoch}", ask(version, OffsetForLeaderPartition(0, epoch, 0))
        yield f"v{version} unknown partition", ask(version, OffsetForLeaderPartition(9, -1, 0))
        yield f"v{version} unknown topic", ask(version, OffsetForLeaderPartition(0, -1, 0), topic="nowhere")
        yield f"v{version} empty", ask(version, OffsetForLeaderPartition(1, -1, 0))
