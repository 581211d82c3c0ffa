"""Spark reads and writes Barnabas partitions by `format("barnabas")`: no JAR, nothing for the user to import.

May touch:  pyspark, the standard library, in_words.py; the rest of this package only inside methods.   Must not touch: gRPC, any room.
Invariants: importing this never raises under Spark 4 and stays cheap: Spark's planner imports every top-level pyspark_* package, and an
    exception in any of them ends the look-up of all.
Read next:  source.py, stream.py, reader.py; sink.py, writer.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark

try:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
except ImportError:  # before 4.0, whose planner looks for no package
    raise ImportError(
        f"pyspark_barnabas needs Spark 4.0 or later, and this is {pyspark.__version__}. Its own connector reads Barnabas as it is: "
        'format("kafka") with the package org.apache.spark:spark-sql-kafka-0-10'
    ) from None

from pyspark_barnabas.in_words import in_words

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_barnabas.lag import Lag, LagListener, lag_metrics
    from pyspark_barnabas.session import configure, register

__all__ = ["DefaultSource", "Lag", "LagListener", "configure", "lag_metrics", "register"]

_FROM = {"Lag": "lag", "LagListener": "lag", "configure": "session", "lag_metrics": "lag", "register": "session"}
"""What users import from here, and the module that it is loaded from when it is asked for."""


def __getattr__(name: str) -> object:
    if name not in _FROM:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_FROM[name]}"), name)


# Not streamReader: Spark 4.3 stops the reader that it did not get, and of two errors in a row the last one would be shown alone.
@in_words("schema", "reader", "writer", "streamWriter")
class DefaultSource(DataSource):
    """The data source that Spark finds and registers under the name `barnabas`."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format(...)`."""
        return "barnabas"

    def schema(self) -> StructType:
        """Columns of Spark's own Kafka source; `headers` with includeHeaders=true."""
        from pyspark_barnabas.source import source_schema

        return source_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read of a fixed offset range."""
        from pyspark_barnabas.source import batch_reader

        return batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # the name is Spark's
        """A micro-batch stream."""
        from pyspark_barnabas.stream import stream_reader

        return stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write."""
        from pyspark_barnabas.sink import batch_writer

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # names are Spark's
        """A stream's sink; Spark names the parameters, so they must stay `schema` and `overwrite`."""
        from pyspark_barnabas.sink import stream_writer

        return stream_writer(self.options, schema)
