"""The offsets that make a table of a log: of each key the last, where it lives; and what compaction takes meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_barnabas import table
from pyspark_barnabas.options import parse_options
from pyspark_barnabas.reader import DataLossError
from pyspark_barnabas.source import COLUMNS, RangePartition

KEYS = st.one_of(st.none(), st.binary(max_size=1))
VALUES = st.one_of(st.none(), st.binary(max_size=1))


def batches(
    records: list[tuple[bytes | None, bytes | None]], size: int, names: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Records at offsets 0, 2, 4, …"""
    for first in range(0, len(records), size):
        share = records[first : first + size]
        columns = {
            "key": pa.array([key for key, _ in share], pa.binary()),
            "value": pa.array([value for _, value in share], pa.binary()),
            "offset": pa.array([2 * at for at in range(first, first + len(share))], pa.int64()),
        }
        yield pa.record_batch({name: columns[name] for name in names})


@given(st.lists(st.tuples(KEYS, VALUES), max_size=40), st.integers(1, 7), st.integers(1, 10))
def test_of_each_key_the_last_record_counts_if_it_has_a_value(
    records: list[tuple[bytes | None, bytes | None]], size: int, pending: int
) -> None:
    expected = {key: (2 * at, value) for at, (key, value) in enumerate(records) if key is not None}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "ROWS_PENDING_MIN", pending)
        found = table.latest_offsets(batches(records, size, ("key", "value", "offset")))
    assert found.tolist() == sorted(at for at, value in expected.values() if value is not None)


def test_what_compaction_takes_between_the_reads_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    before: list[tuple[bytes | None, bytes | None]] = [(b"a", b"1"), (b"b", b"1")]
    left = iter([before, before[1:], before, before[1:]])

    def read_range(wanted: Any, options: Any, schema: Any) -> Iterator[pa.RecordBatch]:
        records = next(left)
        names = tuple(schema.fieldNames())
        # What is gone is the record at offset 0.
        shown = list(batches(before, 2, names))
        return iter([batch.slice(2 - len(records)) for batch in shown])

    monkeypatch.setattr(table, "read_range", read_range)
    wanted = RangePartition("t", None, 0, 0, 3)
    given = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "mode": "table"}
    schema = type(COLUMNS)([COLUMNS["value"]])
    with pytest.raises(DataLossError, match=r"compaction of t-0 removed the latest records of 1 keys below offset 3"):
        list(table.read_table(wanted, parse_options(given, is_stream=False), schema))
    options = parse_options(given | {"failOnDataLoss": "false"}, is_stream=False)
    assert [batch.to_pydict() for batch in table.read_table(wanted, options, schema)] == [{"value": [b"1"]}]
