"""The readers that Spark's planner asks for: resolve options and offsets once, then hand out ranges.

May touch:  the blocking wire client, pyspark types.   Must not touch: gRPC, rooms of the cluster.
Invariants: what a plan covers is fixed when it is made; a reader holds no socket (Spark pickles it into tasks).
Read next:  reader.py, which runs in the tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_barnabas.offsets import Offsets, SourcePartition, from_json, limited_end, missing, ranges, to_json
from pyspark_barnabas.options import EARLIEST, LATEST, OffsetSpec, OptionError, SourceOptions, parse_options
from pyspark_barnabas.reader import DataLossError, connected, read_range

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
HEADERS = StructField(
    "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
)


def source_schema(options: Mapping[str, str]) -> StructType:
    """The columns of Spark's own Kafka source; `headers` only with includeHeaders=true, as there."""
    wants_headers = {name.lower(): value for name, value in options.items()}.get(
        "includeheaders", "false"
    ).lower() == "true"
    return StructType([*COLUMNS.fields, HEADERS]) if wants_headers else COLUMNS


@dataclass(frozen=True)
class RangePartition(InputPartition):
    """Offsets start … end − 1 of one partition: the work of one task."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def value(self) -> Any:
        """What Spark shows of it."""
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


class _RangeReader:
    """What batch and stream readers share: options, schema, and the reading of one range in a task."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        """Runs in a task: every record of the range, as Arrow batches."""
        return read_range(partition, self._options, self._schema)

    def _resolve(self, keys: Sequence[SourcePartition], spec: OffsetSpec, name: str) -> Offsets:
        """Offsets for the partitions from an option: sentinels are asked of the leaders, numbers are taken as they are."""
        if isinstance(spec, int):
            return self._ask(dict.fromkeys(keys, spec))
        wanted: Offsets = {}
        for key in keys:
            found = spec.get(key.topic, {}).get(key.partition)
            if found is None:
                raise OptionError(f"{name} has no offset for {key}: give one for every partition that is read")
            wanted[key] = found
        unknown = {f"{t}-{p}" for t, parts in spec.items() for p in parts} - {str(key) for key in keys}
        if unknown:
            raise OptionError(f"{name} names partitions that are not read: {', '.join(sorted(unknown))}")
        asked = self._ask({key: offset for key, offset in wanted.items() if offset < 0})
        return wanted | asked

    def _ask(self, wanted: Mapping[SourcePartition, int]) -> Offsets:
        if not wanted:
            return {}
        return connected(self._options).list_offsets(wanted)

    def _partitions(self) -> list[SourcePartition]:
        if self._options.assigned is not None:
            return [SourcePartition(topic, index) for topic, parts in self._options.assigned.items() for index in parts]
        return connected(self._options).partitions(self._options.topics)


class BatchReader(_RangeReader, DataSourceReader):
    """A batch read: the offsets are resolved when Spark plans it."""

    def partitions(self) -> list[InputPartition]:
        """One task per partition that has something to read."""
        keys = self._partitions()
        start = self._resolve(keys, self._options.starting_offsets, "startingOffsets")
        end = self._resolve(keys, self._options.ending_offsets, "endingOffsets")
        return [RangePartition(part.topic, part.partition, first, last) for part, first, last in ranges(start, end)]


class StreamReader(_RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A micro-batch stream; one object lives in Spark's planner process for the whole query."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._initial: dict[str, dict[str, int]] | None = None
        self._frozen: Offsets | None = None

    def initialOffset(self) -> dict[str, dict[str, int]]:
        """Where a query without a checkpoint begins. Asked more than once: the first answer stands."""
        if self._initial is None:
            found = self._resolve(self._partitions(), self._options.starting_offsets, "startingOffsets")
            self._initial = to_json(found)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """maxOffsetsPerTrigger, or everything there is."""
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, dict[str, int]], limit: ReadLimit) -> dict[str, dict[str, int]]:
        """The end of the next micro-batch. Partitions that appeared since are begun at their earliest offset."""
        begun = from_json(start)
        latest = dict(self._frozen) if self._frozen is not None else self._latest()
        self._check_loss(begun, latest)
        new = missing(latest, begun)
        begun |= self._ask(dict.fromkeys(new, EARLIEST))
        for gone in [key for key in begun if key not in latest]:
            latest[gone] = begun[gone]
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return to_json(limited_end(begun, latest, rows))

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:
        """Shown as latestOffset in the query's progress: lag can be seen."""
        return to_json(self._latest())

    def prepareForTriggerAvailableNow(self) -> None:
        """Freeze the target: what is there now, and nothing later."""
        self._frozen = self._latest()

    def partitions(self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]) -> list[InputPartition]:
        """One task per partition with offsets in this micro-batch; start and end may come from a checkpoint."""
        first, last = from_json(start), from_json(end)
        first |= self._ask(dict.fromkeys(missing(last, first), EARLIEST))
        return [RangePartition(part.topic, part.partition, a, b) for part, a, b in ranges(first, last)]

    def commit(self, end: dict[str, dict[str, int]]) -> None:
        """Offsets live in Spark's checkpoint, as with Spark's Kafka source."""

    def stop(self) -> None:
        """Nothing to release: connections belong to the process."""

    def _latest(self) -> Offsets:
        return self._ask(dict.fromkeys(self._partitions(), LATEST))

    def _check_loss(self, begun: Offsets, latest: Offsets) -> None:
        lost = [f"{key} is gone" for key in begun if key not in latest]
        lost += [
            f"{key} ends at {latest[key]}, the query is at {at}"
            for key, at in begun.items()
            if latest.get(key, at) < at
        ]
        if lost and self._options.is_data_loss_fatal:
            raise DataLossError(
                f"{'; '.join(lost)}: the topic was deleted, made again, or lost its tail. "
                "Start a new checkpoint, or set failOnDataLoss=false to go on with what is there"
            )


def batch_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """The reader of a batch query; raises OptionError."""
    return BatchReader(parse_options(dict(options), is_stream=False), schema)


def stream_reader(options: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """The reader of a streaming query; raises OptionError."""
    return StreamReader(parse_options(dict(options), is_stream=True), schema)
