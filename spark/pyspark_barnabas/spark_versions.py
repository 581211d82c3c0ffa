"""Which parts of Spark's Python data source API the installed pyspark has, and substitutes for the others: Spark 4.0 and later.

May touch:  pyspark.                  Must not touch: sockets, other files of this package.
Invariants: with the newest pyspark every name is pyspark's own; a stand-in is never shown to a Spark that has the real one.
Read next:  stream.py, sink.py, pushdown.py, which differ by version.

Not obvious
- Filter pushdown and Arrow sinks of streams came with 4.1, read limits of streams with 4.2: before it Spark asks a stream for its end
  without saying where it begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import signature
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.types import DataType, StructType

VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
HAS_FILTERS = VERSION >= (4, 1)
HAS_ARROW_STREAM_SINKS = VERSION >= (4, 1)
HAS_READ_LIMITS = VERSION >= (4, 2)
ROWS_AT_ONCE = 10_000

if TYPE_CHECKING or HAS_FILTERS:
    from pyspark.sql.datasource import (
        EqualNullSafe,
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        LessThan,
        LessThanOrEqual,
    )
else:

    class Filter:
        """No Spark of this version gives one."""

        value: Any

    EqualNullSafe = EqualTo = GreaterThan = GreaterThanOrEqual = In = LessThan = LessThanOrEqual = Filter

if TYPE_CHECKING or HAS_ARROW_STREAM_SINKS:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    from pyspark.sql.datasource import DataSourceStreamWriter

    class DataSourceStreamArrowWriter(DataSourceStreamWriter):
        """A stream's sink that is given rows, and gives its `write` record batches."""

        def __init_subclass__(cls) -> None:
            write = cls.write

            def write_rows(self: Any, iterator: Iterator[Any]) -> Any:
                return write(self, _batches(iterator))

            cls.write = write_rows


if TYPE_CHECKING or HAS_READ_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """What a micro-batch may take; no Spark of this version asks."""

        def __init__(self, *most: int) -> None:
            pass

    class ReadAllAvailable(ReadLimit):
        """All that is there."""

    ReadMaxBytes = ReadMaxRows = ReadMinRows = ReadLimit

    class SupportsTriggerAvailableNow:
        """Spark takes what is there at the start by itself."""


def arrow_type(kind: DataType) -> Any:
    """The Arrow type of a column, times in UTC."""
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(kind, **_utc(to_arrow_type))


def arrow_schema(schema: StructType) -> Any:
    """What a reader's record batches must have, times in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, prefers_large_types=False, **_utc(to_arrow_schema))


def _utc(function: Callable[..., Any]) -> dict[str, Any]:
    """4.0 and 4.1 have a flag where later ones take a zone."""
    return {"timezone": "UTC"} if "timezone" in signature(function).parameters else {"timestamp_utc": True}


def _batches(rows: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    rows = iter(rows)
    while some := list(islice(rows, ROWS_AT_ONCE)):
        yield pa.RecordBatch.from_pylist([each.asDict(recursive=True) for each in some])


__all__ = [
    "DataSourceStreamArrowWriter",
    "EqualNullSafe",
    "EqualTo",
    "Filter",
    "GreaterThan",
    "GreaterThanOrEqual",
    "In",
    "LessThan",
    "LessThanOrEqual",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "arrow_type",
]
