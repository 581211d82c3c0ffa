"""The readers that Spark's planner asks for: resolve options and offsets once, then hand out ranges.

May touch:  client.py, pyspark types.   Must not touch: gRPC, rooms of the cluster.
Invariants: what a plan covers is fixed when it is made; a reader holds no socket (Spark pickles it into tasks).
Read next:  reader.py, which runs in the tasks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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

from pyspark_barnabas.client import SourceClient, SourceTopic, connected
from pyspark_barnabas.offsets import (
    OffsetRange,
    Offsets,
    OffsetsJson,
    Position,
    SourcePartition,
    carried,
    clipped,
    from_json,
    limited_end,
    losses,
    missing,
    range_losses,
    ranges,
    remade,
    to_json,
)
from pyspark_barnabas.options import (
    EARLIEST,
    LATEST,
    OffsetSpec,
    OptionError,
    SourceOptions,
    includes_headers,
    parse_options,
)
from pyspark_barnabas.reader import DataLossError, read_range

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

SHRUNK_PATIENCE_S = 3.0
SHRUNK_RETRY_S = 0.1
"""How long, and how often, an end that lies below what was there before is asked for again."""

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
    return StructType([*COLUMNS.fields, HEADERS]) if includes_headers(options) else COLUMNS


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


class _RangeReader:
    """What batch and stream readers share: options, schema, how an option becomes offsets, the reading of one range."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in a task: every record of the range, as Arrow batches."""
        assert isinstance(partition, RangePartition), f"{partition} is of another source"
        return read_range(partition, self._options, self._schema)

    @property
    def _client(self) -> SourceClient:
        """Never kept on self, which Spark pickles."""
        return connected(self._options.bootstrap_servers, is_patient=isinstance(self, StreamReader))

    def _covered(self, topics: Mapping[str, SourceTopic]) -> list[SourcePartition]:
        """The partitions that subscribe or assign means."""
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
        """The ends of all partitions that the options mean, and the ids of their topics; `then` as in _ends."""
        topics = self._client.topics(self._options.topics, may_be_missing=may_be_missing)
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
        while (short := [key for key in known if found[key] < known[key]]) and time.monotonic() < deadline_s:
            time.sleep(SHRUNK_RETRY_S)
            found |= self._client.list_offsets(dict.fromkeys(short, LATEST))
        return found

    def _resolved(self, spec: OffsetSpec, name: str, latest: Offsets) -> tuple[Offsets, OptionError | None]:
        """Offsets that an option means for the partitions of `latest`; a complaint if numbers had to be moved into the log."""
        keys = list(latest)
        if spec == LATEST:
            return dict(latest), None
        if isinstance(spec, int):
            return self._client.list_offsets(dict.fromkeys(keys, EARLIEST)), None
        given = {SourcePartition(topic, index): at for topic, parts in spec.items() for index, at in parts.items()}
        left_out, unknown = missing(keys, given), missing(given, latest)
        if left_out:
            raise OptionError(f"{name} has no offset for {_named(left_out)}: give one for every partition that is read")
        if unknown:
            raise OptionError(f"{name} names partitions that are not read: {_named(unknown)}")
        earliest = self._client.list_offsets({key: EARLIEST for key, at in given.items() if at != LATEST})
        found: Offsets = {}
        complaint: OptionError | None = None
        for key, at in given.items():
            if at in (EARLIEST, LATEST):
                found[key] = earliest[key] if at == EARLIEST else latest[key]
                continue
            found[key] = max(earliest[key], min(at, latest[key]))
            if found[key] != at and self._options.is_data_loss_fatal and complaint is None:
                complaint = OptionError(
                    f"{name} asks for {at} of {key}, whose log holds offsets {earliest[key]} to {latest[key]}: "
                    "name one of these, or set failOnDataLoss=false to take the nearest"
                )
        return found, complaint


class BatchReader(_RangeReader, DataSourceReader):
    """A batch read: the offsets are resolved when Spark plans it."""

    def partitions(self) -> list[InputPartition]:
        """One task per partition that has something to read."""
        latest = self._latest()
        start = self._offsets(self._options.starting_offsets, "startingOffsets", latest.offsets)
        end = self._offsets(self._options.ending_offsets, "endingOffsets", latest.offsets)
        backwards = [key for key in start if start[key] > end[key]]
        if backwards:
            key = min(backwards)
            raise OptionError(f"startingOffsets of {key} ({start[key]}) is after endingOffsets ({end[key]})")
        return _range_partitions(ranges(start, end), latest.topic_ids)

    def _offsets(self, spec: OffsetSpec, name: str, latest: Offsets) -> Offsets:
        found, complaint = self._resolved(spec, name, latest)
        if complaint is not None:
            raise complaint
        return found


class StreamReader(_RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A micro-batch stream; one object stays in Spark's planner process for the whole query."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._initial: OffsetsJson | None = None
        self._complaint: OptionError | None = None
        self._frozen: Position | None = None
        self._seen: set[str] = set()
        """Topics that this run of the query knows."""

    def initialOffset(self) -> OffsetsJson:
        """Where a query without a checkpoint begins. Asked more than once: the first answer stands.

        Spark asks a query that has a checkpoint too, and does not look at the answer; so offsets that the log does not hold are
        reported only when a micro-batch is to begin there.
        """
        if self._initial is None:
            # The frozen ends, if there are any: "latest" asked again could lie beyond them.
            latest = self._frozen if self._frozen is not None and self._frozen.topic_ids else self._latest()
            found, self._complaint = self._resolved(self._options.starting_offsets, "startingOffsets", latest.offsets)
            self._initial = to_json(Position(found, latest.topic_ids))
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """maxOffsetsPerTrigger, or everything there is."""
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: OffsetsJson, limit: ReadLimit) -> OffsetsJson:
        """The end of the next micro-batch. Partitions that appeared since are begun at their earliest offset."""
        if self._complaint is not None and start == self._initial:
            raise self._complaint
        then = from_json(start)
        latest = self._frozen or self._now(then)
        self._judge(losses(then, latest))
        begun = carried(then, latest)
        appeared = self._client.list_offsets(dict.fromkeys(missing(latest.offsets, begun), EARLIEST))
        known = {key.topic for key in begun} | ((set(latest.topic_ids) - self._seen) if self._seen else set())
        self._judge([f"{key} is new, but begins at {at}" for key, at in appeared.items() if at and key.topic in known])
        self._seen |= set(latest.topic_ids)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = Position(limited_end(begun | appeared, latest.offsets, rows), latest.topic_ids, appeared)
        # Text that differs only in where this micro-batch began would make another one, an empty one, and so for ever.
        return start if (end.offsets, end.topic_ids) == (then.offsets, then.topic_ids) else to_json(end)

    def reportLatestOffset(self) -> OffsetsJson | None:
        """Shown as latestOffset in the query's progress: lag can be seen."""
        return to_json(self._now())

    def prepareForTriggerAvailableNow(self) -> None:
        """Freeze the target: what is there now, and nothing later."""
        self._frozen = self._now()

    def partitions(self, start: OffsetsJson, end: OffsetsJson) -> list[InputPartition]:
        """One task per partition with offsets in this micro-batch; start and end may come from a checkpoint.

        What was there when the end was chosen may be gone when the micro-batch is planned again: judged here, before Spark
        runs it, so that no offset is passed over without a word.
        """
        first, last = from_json(start), from_json(end)
        names = list(dict.fromkeys(key.topic for key in last.offsets))
        topics = self._client.topics(names, may_be_missing=True)
        ids = {name: topic.id for name, topic in topics.items()}
        gone, others = set(names) - set(topics), remade(last, ids)
        # What the batch begins with may belong to a topic that was made again before its end was chosen.
        former = remade(first, last.topic_ids)
        begun = last.begun | {key: at for key, at in first.offsets.items() if key.topic not in former}
        lost = [f"topic {name} was deleted" for name in sorted(gone)]
        lost += [f"topic {name} was deleted and made again" for name in sorted(others)]
        held = {
            part for name, topic in topics.items() for part in map(partial(SourcePartition, name), topic.partitions)
        }
        ends = {key: at for key, at in last.offsets.items() if key.topic not in gone | others}
        lost += [f"{key} is gone" for key in sorted(set(ends) - held)]
        ends = {key: at for key, at in ends.items() if key in held}
        appeared = self._client.list_offsets(dict.fromkeys(missing(ends, begun), EARLIEST))
        known = {key.topic for key in begun}
        lost += [f"{key} is new, but begins at {at}" for key, at in appeared.items() if at and key.topic in known]
        wanted = ranges(begun | appeared, ends)
        earliest = self._client.list_offsets({part.partition: EARLIEST for part in wanted})
        latest = self._ends({part.partition: part.end for part in wanted})
        self._judge(lost + range_losses(wanted, earliest, latest))
        return _range_partitions(clipped(wanted, earliest, latest), ids)

    def commit(self, end: OffsetsJson) -> None:
        """Offsets live in Spark's checkpoint, as with Spark's Kafka source."""

    def stop(self) -> None:
        """Nothing to release: connections belong to the process."""

    def _now(self, then: Position | None = None) -> Position:
        return self._latest(may_be_missing=not self._options.is_data_loss_fatal, then=then)

    def _judge(self, lost: Sequence[str]) -> None:
        if lost and self._options.is_data_loss_fatal:
            raise DataLossError(
                f"{'; '.join(lost)}. Begin with a new checkpoint, or set failOnDataLoss=false to go on with what is there"
            )
        for what in lost:
            logger.warning("%s; going on as failOnDataLoss=false", what)


def _range_partitions(wanted: Sequence[OffsetRange], topic_ids: Mapping[str, str]) -> list[InputPartition]:
    return [
        RangePartition(key.topic, topic_ids.get(key.topic), key.partition, first, last) for key, first, last in wanted
    ]


def _named(keys: Sequence[SourcePartition]) -> str:
    return ", ".join(str(key) for key in keys)


def batch_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """The reader of a batch query; raises OptionError."""
    return BatchReader(parse_options(dict(options), is_stream=False), schema)


def stream_reader(options: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """The reader of a streaming query; raises OptionError."""
    return StreamReader(parse_options(dict(options), is_stream=True), schema)
