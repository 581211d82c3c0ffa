"""`df.write.format("barnabas")` and `df.writeStream.format("barnabas")`: what Spark's planner asks of a sink.

May touch:  sink_options.py, Spark's types; writer.py inside methods.    Must not touch: gRPC.
Invariants: columns and their errors are those of Spark's Kafka sink; a write is refused before its first task where that can be
    known; writers are pickled into tasks, so they hold options and nothing that is open.
Read next:  writer.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from pyspark_barnabas.in_words import in_words
from pyspark_barnabas.one_dict import for_sink
from pyspark_barnabas.options import OptionError
from pyspark_barnabas.sink_options import SinkOptions, parse_sink_options
from pyspark_barnabas.spark_versions import DataSourceStreamArrowWriter

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_barnabas.exactly_once import Prepared

REACH_S = 8.0
"""How long a batch write looks for the cluster before it says that it is down."""
_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_TYPES: dict[str, tuple[DataType, ...]] = {
    "topic": (StringType(),),
    "key": (StringType(), BinaryType()),
    "value": (StringType(), BinaryType()),
    "headers": (_HEADERS,),
    "partition": (IntegerType(),),
}
"""Types that a column may have, as in Spark's Kafka sink."""


@dataclass(frozen=True, slots=True)
class TaskWrote(WriterCommitMessage):
    """What one task wrote."""

    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TaskPrepared(WriterCommitMessage):
    """What one task leaves to the driver's decision, in mode=exactly_once."""

    prepared: Prepared


Messages = Sequence[WriterCommitMessage | None]


@in_words("write")
class BatchWriter(DataSourceArrowWriter):
    """A write of what a DataFrame holds, at least once: a task that is run again writes its rows again."""

    def __init__(self, options: SinkOptions) -> None:
        """The options are checked already."""
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWrote:
        """In a task: write the rows, and return once they are acknowledged."""
        return _write(iterator, self._options)


@in_words("write", "commit", "abort")
class ExactBatchWriter(DataSourceArrowWriter):
    """A write of what a DataFrame holds, each row once."""

    def __init__(self, options: SinkOptions, batch: int) -> None:
        """batch: the number of the write under its prefix."""
        self._options = options
        self._batch = batch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskPrepared:
        """In a task: write the rows, and leave them to the driver's decision."""
        return _prepare(iterator, self._options, batch=self._batch)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """In the driver: decide, and make all rows visible."""
        _decide(messages, self._batch, self._options)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """In the driver: undo what is not decided."""
        _give_up(self._batch, self._options)


@in_words("write")
class StreamWriter(DataSourceStreamArrowWriter):
    """A stream's micro-batches, at least once: one that is run again is written again."""

    def __init__(self, options: SinkOptions) -> None:
        """The options are checked already."""
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWrote:
        """In a task: write the rows, and return once they are acknowledged."""
        return _write(iterator, self._options)


@in_words("write", "commit", "abort")
class ExactStreamWriter(DataSourceStreamArrowWriter):
    """A stream's micro-batches, each row once."""

    def __init__(self, options: SinkOptions) -> None:
        """The options are checked already."""
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskPrepared:
        """In a task: write the rows, and leave them to the driver's decision."""
        return _prepare(iterator, self._options, batch=None)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # the name is Spark's
        """In the driver: decide, and make all rows of the micro-batch visible."""
        _decide(messages, batchId, self._options)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """In the driver: undo what is not decided."""
        _give_up(batchId, self._options)


def _write(rows: Iterator[pa.RecordBatch], options: SinkOptions) -> TaskWrote:
    from pyspark_barnabas.writer import write_idempotently

    return TaskWrote(*write_idempotently(rows, options))


def _prepare(rows: Iterator[pa.RecordBatch], options: SinkOptions, *, batch: int | None) -> TaskPrepared:
    from pyspark_barnabas.exactly_once import current_attempt, prepare_rows

    return TaskPrepared(prepare_rows(rows, options, current_attempt(batch=batch)))


def _decide(messages: Messages, batch: int, options: SinkOptions) -> None:
    from pyspark_barnabas.exactly_once import decide

    decide([each.prepared for each in messages if isinstance(each, TaskPrepared)], batch, options)


def _give_up(batch: int, options: SinkOptions) -> None:
    from pyspark_barnabas.exactly_once import give_up

    give_up(batch, options)


def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceArrowWriter:
    """The writer of a batch query; raises OptionError, SinkError for a cluster that is down or cannot do what is asked."""
    if overwrite:
        raise OptionError('mode("overwrite") would replace a topic, which no write does: use mode("append")')
    parsed = parse_sink_options(for_sink(options))
    check_columns(schema, parsed)
    _reach(parsed)
    if not parsed.is_exactly_once:
        return BatchWriter(parsed)
    from pyspark_barnabas.exactly_once import begin_batch_write, check_brokers

    check_brokers(parsed)
    return ExactBatchWriter(parsed, begin_batch_write(parsed))


def stream_writer(options: Mapping[str, str], schema: StructType) -> DataSourceStreamArrowWriter:
    """The writer of a streaming query; raises OptionError. Output mode complete writes every row of each result again."""
    parsed = parse_sink_options(for_sink(options))
    check_columns(schema, parsed)
    if not parsed.is_exactly_once:
        return StreamWriter(parsed)
    from pyspark_barnabas.exactly_once import check_brokers

    check_brokers(parsed)
    return ExactStreamWriter(parsed)


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Raise OptionError for a column that is missing or of a type that cannot be written."""
    if options.topic is None and "topic" not in schema.fieldNames():
        raise OptionError('say where to write: .option("topic", "name"), or a column topic')
    if "value" not in schema.fieldNames():
        raise OptionError("required attribute 'value' not found: give the column to write that name")
    for field in schema.fields:
        allowed = _TYPES.get(field.name)
        if allowed is not None and not any(_same(field.dataType, kind) for kind in allowed):
            wanted = " or ".join(kind.simpleString() for kind in allowed)
            raise OptionError(
                f"{field.name} attribute has the unsupported type {field.dataType.simpleString()}: "
                f"{field.name} must be a {wanted}, cast the column"
            )


def _same(found: DataType, wanted: DataType) -> bool:
    """Whether two types are equal but for what may be null."""
    if isinstance(found, ArrayType) and isinstance(wanted, ArrayType):
        return _same(found.elementType, wanted.elementType)
    if isinstance(found, StructType) and isinstance(wanted, StructType):
        return found.fieldNames() == wanted.fieldNames() and all(
            _same(one.dataType, other.dataType) for one, other in zip(found.fields, wanted.fields, strict=True)
        )
    return type(found) is type(wanted)


def _reach(options: SinkOptions) -> None:
    from barnabas_wire.kafka.errors import KafkaError
    from pyspark_barnabas.writer import SinkError, connect, words

    cluster = connect(options, timeout_s=min(REACH_S, options.block_ms_max / 1000))
    try:
        cluster.metadata([] if options.topic is None else [options.topic], creates_topics=True)
    except (KafkaError, OSError) as error:
        raise SinkError(words(error, options)) from None
    finally:
        cluster.close()
