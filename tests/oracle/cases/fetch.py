"""Fetch: the very bytes that come back, offsets out of range, epochs, sessions, limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from barnabas_wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas_wire.kafka.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from tests.oracle.answers import UNKNOWN_ID, Side
from tests.oracle.cases import GZIP, LZ4, SNAPPY, ZSTD, batch, case
from tests.oracle.cases.produce import produce

VERSIONS = range(4, 19)


def topic_entry(side: Side, topic: str, *partitions: FetchPartition) -> FetchTopic:
    """By name and by id; the version picks."""
    return FetchTopic(topic=topic, topic_id=side.topic_ids.get(topic, UNKNOWN_ID), partitions=list(partitions))


def at(offset: int, *, partition: int = 0, max_bytes: int = 1 << 20, **fields: Any) -> FetchPartition:
    """One partition from an offset on."""
    return FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes, **fields)


def fetch(side: Side, *topics: FetchTopic, version: int = 17, **fields: Any) -> FetchResponse:
    """The whole answer."""
    fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 26, "session_epoch": -1} | fields
    answer: FetchResponse = side.call(FetchRequest(topics=list(topics), **fields), version=version)
    return answer


def filled(side: Side, name: str) -> str:
    """A topic of two partitions with batches of every compression in the first, 45 records in all."""
    topic = side.topic(name, 2)
    for index, kind in enumerate((None, GZIP, SNAPPY, LZ4, ZSTD, None, None, None, None)):
        options = {} if kind is None else {"compression": kind}
        assert produce(side, topic, batch(5, first=5 * index, **options)).error_code == 0
    return topic


@case({"* beyond.*.log_start_offset": "start-told", "* negative.*.log_start_offset": "start-told"})
def fetch_in_every_version(side: Side) -> Iterator[tuple[str, Any]]:
    topic = filled(side, "fetch-versions")
    for version in VERSIONS:
        yield f"v{version}", fetch(side, topic_entry(side, topic, at(0), at(0, partition=1)), version=version)
        yield f"v{version} middle", fetch(side, topic_entry(side, topic, at(12)), version=version)
        yield f"v{version} end", fetch(side, topic_entry(side, topic, at(45)), version=version)
        yield f"v{version} beyond", fetch(side, topic_entry(side, topic, at(46)), version=version)
        yield f"v{version} negative", fetch(side, topic_entry(side, topic, at(-1)), version=version)
        yield f"v{version} unknown topic", fetch(side, topic_entry(side, "nowhere", at(0)), version=version)
        yield (
            f"v{version} unknown partition",
            fetch(side, topic_entry(side, topic, at(0, partition=9)), version=version),
        )
        committed = fetch(side, topic_entry(side, topic, at(40)), version=version, isolation_level=1)
        yield f"v{version} committed", committed


@case(
    {
        "partition *.records": "whole-batches",
        "all *.records": "whole-batches",
        "both *.records": "whole-batches",
        "negative partition limit.*": "kafka-stumbles",
        "odd isolation.*": "kafka-stumbles",
        "the same twice.*": "named-twice",
    }
)
def fetch_limits(side: Side) -> Iterator[tuple[str, Any]]:
    topic = filled(side, "fetch-limits")
    assert produce(side, topic, batch(5), partition=1).error_code == 0
    for size in (0, 1, 100, 300, 500, 1000):
        yield f"partition {size}", fetch(side, topic_entry(side, topic, at(0, max_bytes=size)))
        yield f"all {size}", fetch(side, topic_entry(side, topic, at(0), at(0, partition=1)), max_bytes=size)
        both = topic_entry(side, topic, at(0, max_bytes=size), at(0, partition=1, max_bytes=size))
        yield f"both {size}", fetch(side, both)
    yield "wait in vain", fetch(side, topic_entry(side, topic, at(45)), max_wait_ms=100)
    yield "wait for more", fetch(side, topic_entry(side, topic, at(44)), max_wait_ms=100, min_bytes=1 << 20)
    yield "no wait", fetch(side, topic_entry(side, topic, at(0)), min_bytes=0)
    yield (
        "bad partition beside data",
        fetch(side, topic_entry(side, topic, at(0), at(0, partition=9)), min_bytes=1 << 20),
    )
    yield "negative partition limit", fetch(side, topic_entry(side, topic, at(0, max_bytes=-1)))
    yield "nothing asked", fetch(side)
    yield "the same twice", fetch(side, topic_entry(side, topic, at(0), at(5)))
    yield "odd isolation", fetch(side, topic_entry(side, topic, at(40)), isolation_level=2)


@case(
    {
        "*.current_leader.*": "leader-told",
        "*.node_endpoints": "leader-told",
        "last fetched ?.*.error_code": "unknown-last-epoch",
    }
)
def fetch_epochs(side: Side) -> Iterator[tuple[str, Any]]:
    topic = filled(side, "fetch-epochs")
    for version in (9, 11, 12, 17):
        for epoch in (-1, 0, 1, 5):
            asked = at(40, current_leader_epoch=epoch)
            yield f"v{version} epoch {epoch}", fetch(side, topic_entry(side, topic, asked), version=version)
    for epoch in (-1, 0, 1, 5):
        yield f"last fetched {epoch}", fetch(side, topic_entry(side, topic, at(40, last_fetched_epoch=epoch)))
    beyond = at(50, last_fetched_epoch=0, current_leader_epoch=0)
    yield "last fetched, beyond the end", fetch(side, topic_entry(side, topic, beyond))


@case({"*.session_id": "no-sessions"})
def fetch_sessions(side: Side) -> Iterator[tuple[str, Any]]:
    topic = filled(side, "fetch-sessions")
    entry = topic_entry(side, topic, at(44))
    for version in (7, 12, 17):
        opened = fetch(side, entry, version=version, session_id=0, session_epoch=0)
        opened.session_id = int(opened.session_id != 0)
        yield f"v{version} open", opened
        yield f"v{version} unknown", fetch(side, entry, version=version, session_id=77, session_epoch=3)
        yield f"v{version} close unknown", fetch(side, entry, version=version, session_id=77, session_epoch=-1)
        yield f"v{version} id and epoch 0", fetch(side, entry, version=version, session_id=77, session_epoch=0)
        yield f"v{version} no id, epoch 1", fetch(side, entry, version=version, session_id=0, session_epoch=1)
        forgotten = [ForgottenTopic(topic, side.topic_ids[topic], [0])]
        yield f"v{version} forget", fetch(side, entry, version=version, forgotten_topics_data=forgotten)


@case({"from *.log_start_offset": "start-told"})
def fetch_after_delete_records(side: Side) -> Iterator[tuple[str, Any]]:
    topic = filled(side, "fetch-deleted")
    asked = DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, 12)])
    yield "delete", side.call(DeleteRecordsRequest([asked], 10_000))
    for offset in (0, 11, 12, 13):
        yield f"from {offset}", fetch(side, topic_entry(side, topic, at(offset)))
    yield "append", produce(side, topic, batch())


@case({"*.current_leader.*": "leader-told", "*.node_endpoints": "leader-told"})
def fetch_as_a_stranger(side: Side) -> Iterator[tuple[str, Any]]:
    topic = filled(side, "fetch-stranger")
    entry = topic_entry(side, topic, at(44))
    yield "replica 9", fetch(side, entry, version=12, replica_id=9)
    yield "replica 9 with its epoch", fetch(side, entry, version=17, replica_state=ReplicaState(9, 1))
    yield "debugging consumer", fetch(side, entry, version=12, replica_id=-2)
    yield "with a rack", fetch(side, entry, rack_id="somewhere")
    yield "with the wrong cluster id", fetch(side, entry, cluster_id="no such cluster")
