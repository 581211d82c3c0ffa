"""What batch and stream reads share, and the batch read: offsets are resolved once, then handed out as ranges.

May touch:  client.py, resolution.py, pyspark types.   Must not touch: gRPC, rooms of the cluster.
Invariants: what a plan covers is fixed when it is made; a reader holds no socket (Spark pickles it into tasks).
Read next:  stream.py, then reader.py, which runs in the tasks.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
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

from barnabas_wire.kafka.errors import ErrorCode
from pyspark_barnabas import pushdown
from pyspark_barnabas.client import SourceClient, SourceError, SourceTopic, connected
from pyspark_barnabas.in_words import in_words
from pyspark_barnabas.offset_spec import EARLIEST, LATEST
from pyspark_barnabas.offsets import OffsetRange, Offsets, Position, SourcePartition, ranges, remade
from pyspark_barnabas.one_dict import for_source
from pyspark_barnabas.options import (
    OptionError,
    SourceOptions,
    includes_headers,
    parse_options,
    requested_columns,
)
from pyspark_barnabas.reader import lacking, read_range
from pyspark_barnabas.resolution import Resolved, resolve
from pyspark_barnabas.spark_versions import Filter
from pyspark_barnabas.splits import cuts, pieces

if TYPE_CHECKING:
    import pyarrow as pa

SHRUNK_PATIENCE_S = 3.0
"""How long an end that lies below what was there before is asked for again, at least."""
CUTS_MOVED_MAX = 1000
"""Cuts of a plan that are moved to record batches, one look at the log each; with more, tasks decode what they share twice."""

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
    """The columns of Spark's own Kafka source, with includeHeaders=true `headers` too; or those that `columns` names."""
    wanted = requested_columns(options)
    if wanted is None:
        return StructType([*COLUMNS.fields, HEADERS]) if includes_headers(options) else COLUMNS
    by_name = {field.name: field for field in (*COLUMNS.fields, HEADERS)}
    return StructType([by_name[name] for name in wanted])


@dataclass(frozen=True)
class RangePartition(InputPartition):
    """Offsets start … end − 1 of one partition: the work of one task."""

    topic: str
    topic_id: str | None
    partition: int
    start: int
    end: int

    @property
    def value(self) -> Any:
        """What Spark shows of it."""
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


@in_words("read")
class RangeReader:
    """What batch and stream readers share: which partitions are read, their ends, the tasks of a plan, the reading of one."""

    is_stream = False

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in a task: every record of the range, as Arrow batches."""
        if not isinstance(partition, RangePartition):
            assert partition.value is None, f"{partition} is of another source"
            return iter(())  # what Spark makes of a plan without partitions: no topic has a record
        if not self._options.is_table:
            return read_range(partition, self._options, self._schema)
        try:
            from pyspark_barnabas.table import read_table
        except ImportError as error:
            raise lacking(error) from error
        return read_table(partition, self._options, self._schema)

    @property
    def _client(self) -> SourceClient:
        """Never kept on self, which Spark pickles."""
        return connected(self._options.cluster, is_patient=self.is_stream)

    def _topics(self, *, may_be_missing: bool) -> dict[str, SourceTopic]:
        if self._options.pattern is not None:
            return self._client.matching(self._options.pattern)
        return self._client.topics(self._options.topics, may_be_missing=may_be_missing)

    def _covered(self, topics: Mapping[str, SourceTopic]) -> list[SourcePartition]:
        """The partitions that subscribe, its pattern or assign means."""
        if self._options.assigned is None:
            return [SourcePartition(name, index) for name, topic in topics.items() for index in topic.partitions]
        covered = []
        for name, topic in topics.items():
            unknown = sorted(set(self._options.assigned[name]) - set(topic.partitions))
            if unknown:
                raise OptionError(
                    f"assign names {', '.join(f'{name}-{index}' for index in unknown)}, but {name} has partitions "
                    f"0 to {len(topic.partitions) - 1}"
                )
            covered += [SourcePartition(name, index) for index in self._options.assigned[name]]
        return covered

    def _latest(self, *, may_be_missing: bool = False, then: Position | None = None) -> Position:
        """The ends of all partitions that the options mean, and the ids of their topics; `then` as `known` in _ends."""
        topics = self._topics(may_be_missing=may_be_missing)
        ids = {name: topic.id for name, topic in topics.items()}
        covered = dict.fromkeys(self._covered(topics), 0)
        if then is not None:
            others = remade(then, ids)
            covered |= {key: at for key, at in then.offsets.items() if key in covered and key.topic not in others}
        return Position(self._ends(covered), ids)

    def _ends(self, known: Mapping[SourcePartition, int]) -> Offsets:
        """The ends of these partitions, each of which was at least at `known` once.

        A leader that was just elected may not know yet how far the log was readable before: an end that went back is asked for
        again for a while before it is believed.
        """
        found = self._client.list_offsets(dict.fromkeys(known, LATEST))
        deadline_s = time.monotonic() + SHRUNK_PATIENCE_S
        tries, pause_s = 0, self._options.offset_retry_ms / 1000
        while short := [key for key in known if found[key] < known[key]]:
            if tries >= self._options.offset_retries and time.monotonic() >= deadline_s:
                break
            time.sleep(pause_s)
            tries, pause_s = tries + 1, min(max(2 * pause_s, 0.001), 0.5)
            found |= self._client.list_offsets(dict.fromkeys(short, LATEST))
        return found

    def _resolved_start(self, latest: Offsets) -> Resolved:
        options = self._options
        found = resolve(
            self._client,
            options.starting_offsets,
            options.starting_option,
            latest,
            is_none_fatal=options.is_start_too_late_fatal,
            group_id=options.cluster.group_id,
        )
        return found if options.is_data_loss_fatal else Resolved(found.offsets)

    def _density(self, partitions: Collection[SourcePartition], latest: Offsets) -> dict[SourcePartition, float]:
        """Bytes that an offset of each partition takes, on average over its log."""
        sizes = self._client.bytes_of(partitions)
        earliest = self._client.list_offsets(dict.fromkeys(partitions, EARLIEST))
        return {key: size / max(1, latest[key] - earliest[key]) for key, size in sizes.items() if key in earliest}

    def _tasks(self, wanted: Sequence[OffsetRange], topic_ids: Mapping[str, str]) -> list[InputPartition]:
        """The ranges, in pieces where minPartitions or maxRecordsPerPartition ask for it."""
        least, most = self._options.min_partitions, self._options.max_records_per_partition
        parts = list(wanted)
        if least is not None or most is not None:
            density: dict[SourcePartition, float] = {}
            if least is not None and len(wanted) > 1:
                density = self._density_if_allowed(wanted)
            at = cuts(wanted, density, parts_min=least, records_max=most)
            if sum(map(len, at)) <= CUTS_MOVED_MAX:
                at = [
                    [self._batch_start(whole.partition, offset) for offset in places]
                    for whole, places in zip(wanted, at, strict=True)
                ]
            parts = [
                part
                for whole, places in zip(wanted, at, strict=True)
                for part in pieces(whole, places, records_max=most)
            ]
        return [
            RangePartition(key.topic, topic_ids.get(key.topic), key.partition, first, last)
            for key, first, last in parts
        ]

    def _density_if_allowed(self, wanted: Sequence[OffsetRange]) -> dict[SourcePartition, float]:
        keys = [part.partition for part in wanted]
        try:
            return self._density(keys, self._client.list_offsets(dict.fromkeys(keys, LATEST)))
        except SourceError as error:
            if error.code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                raise
            return {}  # shared by offsets, as Spark's own source does

    def _batch_start(self, key: SourcePartition, offset: int) -> int:
        header = self._client.batch_at(key, offset)
        return offset if header is None else header.base_offset


@in_words("partitions")
class BatchReader(RangeReader, DataSourceReader):
    """A batch read: the offsets are resolved when Spark plans it."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._pruning = pushdown.Pruning()

    def partitions(self) -> list[InputPartition]:
        """One task per partition that has something to read, or more where the options ask for it."""
        latest = self._latest()
        options = self._options
        first = self._resolved_start(latest.offsets)
        last = resolve(
            self._client,
            options.ending_offsets,
            options.ending_option,
            latest.offsets,
            is_none_fatal=False,
            group_id=options.cluster.group_id,
        )
        for complaint in (first.complaint, last.complaint):
            if complaint is not None and options.is_data_loss_fatal:
                raise complaint
        start, end = first.offsets, last.offsets
        backwards = [key for key in start if start[key] > end[key]]
        if backwards:
            key = min(backwards)
            raise OptionError(
                f"{options.starting_option} of {key} ({start[key]}) is after {options.ending_option} ({end[key]})"
            )
        return self._tasks(self._pruned(ranges(start, end)), latest.topic_ids)

    def _pruned(self, wanted: Sequence[OffsetRange]) -> list[OffsetRange]:
        """What filters leave of the ranges."""
        pruning = self._pruning.without_end if self._options.is_table else self._pruning
        kept = [part for whole in wanted if (part := pruning.of_range(whole)) is not None]
        if kept and pruning.keys is not None and self._options.is_partitioned_by_key:
            counts = {name: len(topic.partitions) for name, topic in self._topics(may_be_missing=False).items()}
            kept = [part for part in kept if pruning.of_key(part, counts[part.partition.topic])]
        since = pruning.timestamp_ms_min
        if since is None or not kept:
            return kept
        found = self._client.list_offsets({part.partition: since for part in kept})
        # -1: no record is that late.
        moved = [(part, found[part.partition]) for part in kept if found[part.partition] >= 0]
        return [part._replace(start=max(part.start, at)) for part, at in moved if at < part.end]


class FilteredBatchReader(BatchReader):
    """A batch read that Spark gives its filters; only where the session has pushdown on, or Spark refuses the read."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Remember what narrows the ranges; Spark applies every filter itself, too."""
        self._pruning = pushdown.narrowed(filters)
        return filters


def batch_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """The reader of a batch query; raises OptionError."""
    kind = FilteredBatchReader if pushdown.is_on() else BatchReader
    return kind(parse_options(for_source(options), is_stream=False), schema)
