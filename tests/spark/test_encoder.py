"""Arrow columns become records: the record-by-record reader finds the same rows again, each in the partition that Java would choose."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.records.batch import HEADER_BYTES, Record, iterate_records, sealed_batch
from barnabas_wire.records.compression import CompressionType
from barnabas_wire.records.partitioning import partition_for_key
from pyspark_barnabas.encoder import RecordEncoder, RowError

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
PARTITIONS = {"t": 3, "u": 1, "w": 7}

blobs = st.one_of(st.none(), st.binary(max_size=40))
rows = st.tuples(
    blobs,
    blobs,
    st.sampled_from(sorted(PARTITIONS)),
    st.one_of(st.none(), st.just(0)),
    st.one_of(st.none(), st.lists(st.tuples(st.text(max_size=8), blobs), max_size=3)),
)
Row = tuple[bytes | None, bytes | None, str, int | None, list[tuple[str, bytes | None]] | None]


def encoder(**given: Any) -> RecordEncoder:
    settled: dict[str, Any] = {
        "topic": None,
        "partition_count": PARTITIONS.__getitem__,
        "batch_bytes": 1 << 20,
        "record_bytes_max": 1 << 20,
    }
    return RecordEncoder(**(settled | given))


def columns(table: list[Row]) -> dict[str, pa.Array]:
    lists = [None if row[4] is None else [{"key": k, "value": v} for k, v in row[4]] for row in table]
    return {
        "key": pa.array([row[0] for row in table], pa.binary()),
        "value": pa.array([row[1] for row in table], pa.binary()),
        "topic": pa.array([row[2] for row in table], pa.string()),
        "partition": pa.array([row[3] for row in table], pa.int32()),
        "headers": pa.array(lists, HEADERS),
    }


def opened(
    made: RecordEncoder, given: dict[str, pa.Array], count: int, **more: int
) -> list[tuple[TopicPartition, list[Record]]]:
    found = []
    for partition, section in made.encode(given, count, **more):
        batch = sealed_batch(
            section.payload,
            attributes=section.attributes,
            last_offset_delta=section.record_count - 1,
            base_timestamp_ms=section.timestamp_ms,
            max_timestamp_ms=section.timestamp_ms,
            record_count=section.record_count,
        )
        found.append((partition, list(iterate_records(batch))))
    return found


@settings(deadline=None, max_examples=200)
@given(
    st.lists(rows, min_size=1, max_size=40),
    st.sampled_from(list(CompressionType)),
    st.integers(HEADER_BYTES + 1, 600),
    st.integers(0, 5),
    st.integers(0, 5),
)
def test_every_row_becomes_one_record_of_its_partition_in_order(
    table: list[Row], kind: CompressionType, batch_bytes: int, before: int, after: int
) -> None:
    other: Row = (b"no", b"no", "t", None, [("no", b"no")])
    padded = [other] * before + table + [other] * after
    given = {name: array.slice(before, len(table)) for name, array in columns(padded).items()}
    wanted: dict[str, list[tuple]] = {}
    for key, value, topic, partition, headers in table:
        wanted.setdefault(topic, []).append((key, value, tuple(headers or ()), partition))
    found: dict[TopicPartition, list[Record]] = {}
    for place, records in opened(encoder(compression=kind, batch_bytes=batch_bytes), given, len(table)):
        assert [record.offset for record in records] == list(range(len(records)))
        sizes = sum(len(record.key or b"") + len(record.value or b"") for record in records)
        assert len(records) == 1 or sizes + 7 * len(records) <= batch_bytes - HEADER_BYTES
        found.setdefault(place, []).extend(records)
    for topic, expected in wanted.items():
        # a row without key and partition may be anywhere; all others are where Java's producer would put them, in order
        for index in range(PARTITIONS[topic]):
            here = [
                (record.key, record.value, record.headers) for record in found.get(TopicPartition(topic, index), [])
            ]
            fixed = [
                (key, value, headers)
                for key, value, headers, partition in expected
                if index
                == (partition if key is None or partition is not None else partition_for_key(key, PARTITIONS[topic]))
            ]
            remaining = iter(here)
            assert all(row in remaining for row in fixed), "the rows of a partition keep their order"
    total = [(record.key, record.value, record.headers) for records in found.values() for record in records]
    assert sorted(total, key=repr) == sorted(((row[0], row[1], tuple(row[4] or ())) for row in table), key=repr)


@settings(deadline=None)
@given(st.binary(max_size=70), st.integers(1, 400))
def test_the_compiled_hash_is_the_plain_one(key: bytes, count: int) -> None:
    made = encoder(topic="t", partition_count=lambda _: count)
    given = {"key": pa.array([key], pa.binary()), "value": pa.array([b""], pa.binary())}
    ((partition, _),) = opened(made, given, 1)
    assert partition.partition == partition_for_key(key, count)


def test_text_and_large_columns_are_taken_as_they_lie() -> None:
    for kind in (pa.string(), pa.large_string(), pa.large_binary(), pa.binary()):
        given = {
            "key": pa.array(["a", None, "ü"], pa.string()).cast(kind),
            "value": pa.array(["", "b", None]).cast(kind),
        }
        ((_, records),) = opened(encoder(topic="u"), given, 3)
        assert [record.key for record in records] == [b"a", None, "ü".encode()]
        assert [record.value for record in records] == [b"", b"b", None]


def test_rows_without_a_key_stay_together_until_a_partition_has_enough_and_then_move_on() -> None:
    made = encoder(topic="t", sticky_bytes=1000, seed=2)
    values = {"value": pa.array([b"v" * 100] * 30, pa.binary())}
    sizes = {place.partition: len(records) for place, records in opened(made, values, 30)}
    assert sizes == {2: 10, 0: 10, 1: 10}
    (place, records), *_ = opened(made, {"value": pa.array([b"v"], pa.binary())}, 1)
    assert place.partition == 2 and len(records) == 1


def test_keys_may_be_ignored_and_the_option_topic_overrules_the_column() -> None:
    given = columns([(b"%d" % at, b"v", "w", None, None) for at in range(20)])
    found = opened(encoder(topic="t", ignores_keys=True), given, 20)
    assert [(place, len(records)) for place, records in found] == [(TopicPartition("t", 0), 20)]


def test_a_smaller_bound_is_kept() -> None:
    given = {"value": pa.array([b"v" * 100] * 64, pa.binary())}
    assert len(opened(encoder(topic="u"), given, 64)) == 1
    assert len(opened(encoder(topic="u"), given, 64, bytes_max=1000)) == 8


def test_what_cannot_be_written_names_its_column() -> None:
    row: Row = (b"k", b"v", "t", None, None)
    cases = [
        ({"topic": pa.array([None], pa.string())}, {}, "null topic present in the data"),
        (
            {"partition": pa.array([3], pa.int32())},
            {},
            "partition 3 of topic t does not exist: it has partitions 0 to 2",
        ),
        ({"partition": pa.array([-2], pa.int32())}, {}, "partition -2 is below 0"),
        ({"headers": pa.array([[{"key": None, "value": b"x"}]], HEADERS)}, {}, "a record header has a null key"),
        (
            {"value": pa.array([b"v" * 200])},
            {"record_bytes_max": 150},
            "a record of 210 bytes for t-. is larger than kafka",
        ),
    ]
    for more, settled, message in cases:
        with pytest.raises(RowError, match=message):
            opened(encoder(**settled), columns([row]) | more, 1)
