"""The readers against a real cluster, called as Spark's planner and tasks call them, without Spark."""

from __future__ import annotations

import dataclasses
import pickle
import socket
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from barnabas_wire.client import metadata
from barnabas_wire.records.batch import Record
from pyspark_barnabas import DefaultSource, client, source
from pyspark_barnabas.client import SourceError
from pyspark_barnabas.offsets import Offsets, OffsetsJson, SourcePartition, from_json
from pyspark_barnabas.options import OptionError
from pyspark_barnabas.reader import DataLossError
from pyspark_barnabas.source import BatchReader, RangePartition
from pyspark_barnabas.stream import StreamReader
from tests.spark.conftest import Topics

pytestmark = [pytest.mark.cluster]

Options = Callable[..., dict[str, str]]
ALL = ReadAllAvailable()


def batch(options: dict[str, str]) -> BatchReader:
    """The reader as the planner makes it."""
    made = DefaultSource(options)
    return cast(BatchReader, made.reader(made.schema()))


def stream(options: dict[str, str]) -> StreamReader:
    """The same for a stream."""
    made = DefaultSource(options)
    return cast(StreamReader, made.streamReader(made.schema()))


def rows(reader: BatchReader | StreamReader, partitions: list[Any]) -> list[dict]:
    """All rows of the ranges, read by a reader and ranges that were pickled, as tasks get them."""
    reader, partitions = pickle.loads(pickle.dumps((reader, partitions)))
    return [row for part in partitions for found in reader.read(part) for row in found.to_pylist()]


def values(reader: BatchReader | StreamReader, partitions: list[Any]) -> list[bytes]:
    """Their values."""
    return [row["value"] for row in rows(reader, partitions)]


def between(reader: StreamReader, start: OffsetsJson, end: OffsetsJson) -> list[bytes]:
    """Values of one micro-batch."""
    return values(reader, reader.partitions(start, end))


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown topic is believed to be unknown after half a second."""
    monkeypatch.setattr(metadata, "UNKNOWN_TOPIC_TIMEOUT_S", 0.5)


def numbered(count: int, first: int = 0) -> list[bytes]:
    """Values that tell which record they are."""
    return [b"%d" % at for at in range(first, first + count)]


def test_a_batch_is_one_range_per_partition_that_has_something(topics: Topics, options: Options) -> None:
    topic = topics.create(3)
    topics.fill(topic, numbered(5), partition=0)
    topics.fill(topic, numbered(3), partition=2)
    reader = batch(options(subscribe=topic))
    found = cast(list[RangePartition], reader.partitions())
    assert [(part.topic, part.partition, part.start, part.end) for part in found] == [
        (topic, 0, 0, 5),
        (topic, 2, 0, 3),
    ]
    assert values(reader, found) == numbered(5) + numbered(3)


def test_offsets_may_be_given_for_each_partition(topics: Topics, options: Options) -> None:
    topic = topics.create(2)
    for index in (0, 1):
        topics.fill(topic, numbered(10), partition=index)
    reader = batch(
        options(
            subscribe=topic,
            startingOffsets=f'{{"{topic}":{{"0":4,"1":-2}}}}',
            endingOffsets=f'{{"{topic}":{{"0":-1,"1":3}}}}',
        )
    )
    assert values(reader, reader.partitions()) == numbered(6, 4) + numbered(3)


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        ({"startingOffsets": '{"T":{"0":1}}'}, "startingOffsets has no offset for T-1: give one for every partition"),
        ({"startingOffsets": '{"T":{"0":1,"1":0,"2":0}}'}, "startingOffsets names partitions that are not read: T-2"),
        (
            {"endingOffsets": '{"T":{"0":99,"1":-1}}'},
            "endingOffsets asks for 99 of T-0, whose log holds offsets 0 to 10",
        ),
        (
            {"startingOffsets": '{"T":{"0":8,"1":0}}', "endingOffsets": '{"T":{"0":2,"1":-1}}'},
            r"startingOffsets of T-0 \(8\) is after endingOffsets \(2\)",
        ),
    ],
)
def test_offsets_that_make_no_sense_are_refused_when_planned(
    topics: Topics, options: Options, given: dict[str, str], fix: str
) -> None:
    topic = topics.create(2)
    topics.fill(topic, numbered(10))
    reported = {name: text.replace("T", topic) for name, text in given.items()}
    with pytest.raises(OptionError, match=fix.replace("T-", f"{topic}-")):
        batch(options(subscribe=topic, **reported)).partitions()


def test_offsets_outside_the_log_are_moved_into_it_if_loss_is_allowed(topics: Topics, options: Options) -> None:
    topic = topics.create()
    topics.fill(topic, numbered(10))
    topics.delete_records(topic, before=4)
    asked = options(
        subscribe=topic,
        startingOffsets=f'{{"{topic}":{{"0":1}}}}',
        endingOffsets=f'{{"{topic}":{{"0":50}}}}',
    )
    with pytest.raises(OptionError, match=r"asks for 1 of .*, whose log holds offsets 4 to 10"):
        batch(asked).partitions()
    reader = batch(asked | {"failOnDataLoss": "false"})
    assert values(reader, reader.partitions()) == numbered(6, 4)


def test_assign_reads_those_partitions_alone(topics: Topics, options: Options) -> None:
    one, two = topics.create(3), topics.create(2)
    for index in range(3):
        topics.fill(one, [b"one-%d" % index], partition=index)
    topics.fill(two, [b"two-1"], partition=1)
    reader = batch(options(assign=f'{{"{one}":[0,2],"{two}":[1]}}'))
    assert values(reader, reader.partitions()) == [b"one-0", b"one-2", b"two-1"]


def test_assigning_a_partition_that_is_not_there_is_refused(topics: Topics, options: Options) -> None:
    topic = topics.create(2)
    with pytest.raises(OptionError, match=f"assign names {topic}-7, but {topic} has partitions 0 to 1"):
        batch(options(assign=f'{{"{topic}":[1,7]}}')).partitions()


@pytest.mark.usefixtures("hasty")
def test_an_unknown_topic_is_named_with_the_servers_and_the_fix(topics: Topics, options: Options) -> None:
    known = topics.create()
    with pytest.raises(SourceError, match=r"topic nowhere: there is none at .*127\.0\.0\.1:\d+.*; create it"):
        batch(options(subscribe=f"{known},nowhere")).partitions()


def test_a_wrong_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "REACH_TIMEOUT_S", 0.2)
    reader = batch({"kafka.bootstrap.servers": "127.0.0.1:1,127.0.0.1:2", "subscribe": "t"})
    reported = r"=127\.0\.0\.1:1,127\.0\.0\.1:2 can be reached for its topics: tried 127\.0\.0\.1:1 \(Conn.*refused\), 127\.0\.0\.1:2 \("
    with pytest.raises(SourceError, match=reported):
        reader.partitions()


def test_a_cluster_that_is_down_is_reported_within_ten_seconds_though_nothing_refuses() -> None:
    """Addresses that swallow packets: listeners that never accept, their queues full."""
    silent = [socket.create_server(("127.0.0.1", 0), backlog=0) for _ in range(3)]
    fillers = [socket.socket() for _ in range(3 * len(silent))]
    for at, filler in enumerate(fillers):
        filler.setblocking(False)
        filler.connect_ex(silent[at % len(silent)].getsockname())
    servers = ",".join(f"127.0.0.1:{listener.getsockname()[1]}" for listener in silent)
    reader = stream({"kafka.bootstrap.servers": servers, "subscribe": "t"})
    begun = time.monotonic()
    try:
        with pytest.raises(SourceError) as raised:
            reader.initialOffset()
    finally:
        for one in (*fillers, *silent):
            one.close()
    assert time.monotonic() - begun < 8
    assert all(f"{server} (timed out)" in str(raised.value) for server in servers.split(","))


def test_a_stream_is_cut_into_micro_batches_that_miss_nothing(topics: Topics, options: Options) -> None:
    topic = topics.create(2)
    topics.fill(topic, numbered(40), partition=0)
    topics.fill(topic, numbered(7), partition=1)
    reader = stream(options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="10"))
    assert reader.getDefaultReadLimit() == ReadMaxRows(10)
    at = reader.initialOffset()
    found: list[bytes] = []
    sizes = []
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        got = between(reader, at, end)
        found += got
        sizes.append(len(got))
        at = end
    assert sorted(found) == sorted(numbered(40) + numbered(7))
    assert max(sizes) <= 12


def test_a_frozen_target_does_not_move(topics: Topics, options: Options) -> None:
    topic = topics.create()
    topics.fill(topic, numbered(3))
    reader = stream(options(subscribe=topic, startingOffsets="latest"))
    reader.prepareForTriggerAvailableNow()
    topics.fill(topic, numbered(4))
    at = reader.initialOffset()
    assert reader.latestOffset(at, ALL) == at
    assert reader.reportLatestOffset()[topic]["0"] == 7  # type: ignore[index]


def test_new_partitions_and_topics_are_read_from_their_beginning(topics: Topics, options: Options) -> None:
    topic, other = topics.create(1), topics.create(1)
    topics.fill(topic, numbered(2))
    begun = stream(options(subscribe=topic, startingOffsets="earliest"))
    at = begun.latestOffset(begun.initialOffset(), ALL)
    with topics.admin() as admin:
        admin.add_partitions(topic, total=2)
    topics.fill(topic, [b"new partition"], partition=1)
    topics.fill(other, [b"new topic"])
    reader = stream(options(subscribe=f"{topic},{other}", startingOffsets="latest"))
    end = reader.latestOffset(at, ALL)
    assert sorted(between(reader, at, end)) == [b"new partition", b"new topic"]


def test_a_new_partition_that_lost_its_beginning_is_loss(topics: Topics, options: Options) -> None:
    topic = topics.create(1)
    begun = stream(options(subscribe=topic, startingOffsets="earliest"))
    at = begun.initialOffset()
    with topics.admin() as admin:
        admin.add_partitions(topic, total=2)
    topics.fill(topic, numbered(5), partition=1)
    topics.delete_records(topic, before=2, partition=1)
    with pytest.raises(DataLossError, match=f"{topic}-1 is new, but begins at 2"):
        begun.latestOffset(at, ALL)
    tolerant = stream(options(subscribe=topic, failOnDataLoss="false"))
    assert between(tolerant, at, tolerant.latestOffset(at, ALL)) == numbered(3, 2)


def test_a_topic_made_again_is_found_out_though_it_is_longer(topics: Topics, options: Options) -> None:
    topic = topics.create()
    topics.fill(topic, numbered(3))
    reader = stream(options(subscribe=topic, startingOffsets="earliest"))
    start = reader.initialOffset()
    at = reader.latestOffset(start, ALL)
    topics.delete(topic)
    topics.create(name=topic)
    topics.fill(topic, numbered(9, 100))
    with pytest.raises(DataLossError, match=f"topic {topic} was deleted and made again. Begin with a new checkpoint"):
        reader.latestOffset(at, ALL)
    with pytest.raises(DataLossError, match="was deleted and made again"):
        reader.partitions(start, at)

    tolerant = stream(options(subscribe=topic, failOnDataLoss="false"))
    assert between(tolerant, start, at) == []
    end = tolerant.latestOffset(at, ALL)
    assert between(tolerant, at, end) == numbered(9, 100)
    assert tolerant.latestOffset(end, ALL) == end


@pytest.mark.usefixtures("hasty")
def test_a_task_never_reads_a_topic_made_again_after_it_was_planned(topics: Topics, options: Options) -> None:
    topic = topics.create()
    topics.fill(topic, numbered(3))
    reader = batch(options(subscribe=topic))
    planned = reader.partitions()
    topics.delete(topic)
    topics.create(name=topic)
    topics.fill(topic, numbered(9, 100))
    with pytest.raises(DataLossError, match="its topic was made again"):
        values(reader, planned)
    by_name = [dataclasses.replace(cast(RangePartition, part), topic_id=None) for part in planned]
    assert values(reader, by_name) == numbered(3, 100)


@pytest.mark.usefixtures("hasty")
def test_a_deleted_topic_is_loss_and_otherwise_ends_quietly(topics: Topics, options: Options) -> None:
    kept, gone = topics.create(), topics.create()
    topics.fill(kept, numbered(2))
    topics.fill(gone, numbered(2, 50))
    reader = stream(options(subscribe=f"{kept},{gone}", startingOffsets="earliest"))
    at = reader.initialOffset()
    topics.delete(gone)
    with pytest.raises(SourceError, match=f"topic {gone}: there is none"):
        reader.latestOffset(at, ALL)
    tolerant = stream(options(subscribe=f"{kept},{gone}", failOnDataLoss="false"))
    assert between(tolerant, at, tolerant.latestOffset(at, ALL)) == numbered(2)


def test_a_micro_batch_that_is_planned_again_says_what_is_gone_by_then(topics: Topics, options: Options) -> None:
    topic = topics.create(2)
    topics.fill(topic, numbered(10), partition=0)
    topics.fill(topic, numbered(10, 100), partition=1)
    asked = options(subscribe=topic, startingOffsets="earliest")
    reader = stream(asked)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    topics.delete_records(topic, before=4, partition=1)
    with pytest.raises(DataLossError, match=rf"{topic}-1 begins at 4, offsets from 0 on were removed\. Begin with"):
        stream(asked).partitions(start, end)
    tolerant = stream(asked | {"failOnDataLoss": "false"})
    assert between(tolerant, start, end) == numbered(10) + numbered(6, 104)


def test_a_new_partition_begins_again_where_its_micro_batch_began(topics: Topics, options: Options) -> None:
    """Where it begins is in no earlier offset: asked for anew, what is gone meanwhile would be passed over without a word."""
    topic, other = topics.create(1), topics.create(1)
    topics.fill(other, numbered(9))
    topics.delete_records(other, before=3)
    asked = options(subscribe=f"{topic},{other}", startingOffsets="earliest")
    start = stream(options(subscribe=topic, startingOffsets="earliest")).initialOffset()
    end = stream(asked).latestOffset(start, ALL)
    assert between(stream(asked), start, end) == numbered(6, 3), (
        "a topic that is new to the query begins where it begins"
    )
    topics.delete_records(other, before=5)
    with pytest.raises(DataLossError, match=f"{other}-0 begins at 5, offsets from 3 on were removed"):
        stream(asked).partitions(start, end)
    without = {name: {key: at for key, at in parts.items() if key != "from"} for name, parts in end.items()}
    assert between(stream(asked), start, without) == numbered(4, 5), "the form of Spark's own source does not know"
    assert stream(asked).latestOffset(end, ALL) == end, "nothing new is no new micro-batch"


def test_starting_offsets_that_are_gone_stop_only_a_query_that_begins_there(topics: Topics, options: Options) -> None:
    """Spark asks for the initial offset of a query that has a checkpoint, too."""
    topic = topics.create()
    topics.fill(topic, numbered(10))
    topics.delete_records(topic, before=4)
    reader = stream(options(subscribe=topic, startingOffsets=f'{{"{topic}":{{"0":1}}}}'))
    initial = reader.initialOffset()
    assert between(reader, {topic: {"0": 7}}, reader.latestOffset({topic: {"0": 7}}, ALL)) == numbered(3, 7)
    with pytest.raises(OptionError, match=r"startingOffsets asks for 1 of .*, whose log holds offsets 4 to 10"):
        reader.latestOffset(initial, ALL)


def test_an_end_that_went_back_for_a_moment_is_no_loss(
    topics: Topics, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that was just elected may answer with an end that lies before what was read already."""
    topic = topics.create()
    topics.fill(topic, numbered(5))
    reader = stream(options(subscribe=topic))
    real, asked = client.SourceClient.list_offsets, []

    def lagging(self: client.SourceClient, wanted: dict[SourcePartition, int]) -> Offsets:
        found = real(self, wanted)
        if set(wanted.values()) == {-1}:
            asked.append(wanted)
            if len(asked) < 3:
                return dict.fromkeys(found, 3)
        return found

    monkeypatch.setattr(client.SourceClient, "list_offsets", lagging)
    at: OffsetsJson = {topic: {"0": 5}}
    assert from_json(reader.latestOffset(at, ALL)).offsets == {SourcePartition(topic, 0): 5}
    assert len(asked) == 3
    monkeypatch.setattr(source, "SHRUNK_PATIENCE_S", 0.3)
    with pytest.raises(DataLossError, match=f"{topic}-0 ends at 5, the query is at 6"):
        reader.latestOffset({topic: {"0": 6}}, ALL)


def test_a_checkpoint_of_sparks_kafka_source_goes_on(topics: Topics, options: Options) -> None:
    topic = topics.create()
    topics.fill(topic, numbered(5))
    reader = stream(options(subscribe=topic))
    at: OffsetsJson = {topic: {"0": 2}}
    assert between(reader, at, reader.latestOffset(at, ALL)) == numbered(3, 2)


def test_records_of_every_kind_come_out_as_they_went_in(topics: Topics, options: Options) -> None:
    topic = topics.create()
    written = [
        Record(0, 1_700_000_000_123, b"key", b"value", (("one", b"1"), ("none", None), ("one", b""))),
        Record(1, 1_700_000_000_124, None, None),
        Record(2, 0, b"", b""),
        Record(3, 1, b"\x00\xff", b"x" * 100_000),
    ]
    topics.produce(topic, written)
    reader = batch(options(subscribe=topic, includeHeaders="true"))
    for row, record in zip(rows(reader, reader.partitions()), written, strict=True):
        assert (row["key"], row["value"], row["offset"]) == (record.key, record.value, record.offset)
        assert round(row["timestamp"].timestamp() * 1000) == record.timestamp_ms
        assert (row["topic"], row["partition"], row["timestampType"]) == (topic, 0, 0)
        headers = [(header["key"], header["value"]) for header in row["headers"] or []]
        assert headers == list(record.headers)


def test_a_leader_that_stamps_records_is_reported_by_the_timestamp_type(topics: Topics, options: Options) -> None:
    topic = topics.create(message_timestamp_type="LogAppendTime")
    topics.fill(topic, numbered(3))
    reader = batch(options(subscribe=topic))
    found = rows(reader, reader.partitions())
    assert [row["timestampType"] for row in found] == [1, 1, 1]
    assert len({row["timestamp"] for row in found}) == 1 and found[0]["timestamp"].year > 2000
