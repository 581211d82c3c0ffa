"""A micro-batch stream, as Spark's planner drives it: what the next micro-batch covers, what is lost, how far it is behind.

May touch:  client.py, resolution.py, the clock.   Must not touch: gRPC, rooms of the cluster.
Invariants: an end that was given out is read to the same offsets however often it is planned, or what is missing is reported; a
    micro-batch takes no more than its limits; the group hears of offsets only when Spark has them in its own commit log.
Read next:  offsets.py for the arithmetic, lag.py for who looks at the progress.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_barnabas.client import SourceError
from pyspark_barnabas.in_words import in_words
from pyspark_barnabas.offset_spec import EARLIEST
from pyspark_barnabas.offsets import (
    RECORDS_BEHIND,
    SECONDS_BEHIND,
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
from pyspark_barnabas.one_dict import for_source
from pyspark_barnabas.options import OptionError, SourceOptions, parse_options
from pyspark_barnabas.reader import DataLossError
from pyspark_barnabas.source import RangeReader
from pyspark_barnabas.spark_versions import (
    HAS_READ_LIMITS,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark_barnabas.splits import Density, end_within_bytes

logger = logging.getLogger(__name__)

DENSITY_AGE_S_MAX = 10.0
"""How long the sizes of logs are believed."""
LAGGARDS_ASKED = 4
"""Partitions whose first unread record is looked at for the age of the lag: those with the most."""


@in_words("initialOffset", "latestOffset", "partitions", "commit")
class StreamReader(RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A micro-batch stream; one object stays in Spark's planner process for the whole query."""

    is_stream = True

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._initial: OffsetsJson | None = None
        self._complaint: OptionError | None = None
        self._frozen: Position | None = None
        self._seen: set[str] = set()
        """Topics that this run of the query knows."""
        self._triggered_s: float | None = None
        """When the last micro-batch with data was begun."""
        self._sizes: tuple[float, Density] | None = None
        self._chosen: Offsets | None = None
        """The end given out last."""
        self._told: Offsets = {}
        """What the group has heard of."""

    def initialOffset(self) -> OffsetsJson:
        """Where a query without a checkpoint begins. Asked more than once: the first answer stands.

        Spark asks a query that has a checkpoint too, and does not look at the answer; so offsets that the log does not hold are
        reported only when a micro-batch is to begin there.
        """
        if self._initial is None:
            # The frozen ends, if there are any: "latest" asked again could lie beyond them.
            latest = self._frozen if self._frozen is not None and self._frozen.topic_ids else self._latest()
            found, self._complaint = self._resolved_start(latest.offsets)
            self._initial = to_json(Position(found, latest.topic_ids))
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options allow a micro-batch, or everything there is."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: OffsetsJson, limit: ReadLimit) -> OffsetsJson:
        """The end of the next micro-batch. Partitions that appeared since are begun at their earliest offset."""
        if self._complaint is not None and start == self._initial:
            raise self._complaint
        self.commit(start)  # Spark asks on only when all before is in its commit log; so the last one is committed too
        then = from_json(start)
        latest = self._frozen or self._now(then)
        self._judge(losses(then, latest))
        begun = carried(then, latest)
        appeared = self._client.list_offsets(dict.fromkeys(missing(latest.offsets, begun), EARLIEST))
        known = {key.topic for key in begun} | ((set(latest.topic_ids) - self._seen) if self._seen else set())
        self._judge([f"{key} is new, but begins at {at}" for key, at in appeared.items() if at and key.topic in known])
        self._seen |= set(latest.topic_ids)
        first = begun | appeared
        last = self._limited(first, latest.offsets, limit)
        self._chosen = last
        end = Position(last, latest.topic_ids, appeared)
        # Text that differs only in where this micro-batch began would make another one, an empty one, and so for ever.
        return start if (last, latest.topic_ids) == (then.offsets, then.topic_ids) else to_json(end)

    def reportLatestOffset(self) -> OffsetsJson | None:
        """Shown as latestOffset in the query's progress: the ends of all partitions, and how far the query is behind them."""
        now = self._now()
        found = to_json(now)
        if self._chosen is None:
            return found
        behind = {key: now.offsets[key] - at for key, at in self._chosen.items() if key in now.offsets}
        ages = self._ages({key: count for key, count in behind.items() if count > 0})
        for topic, parts in found.items():
            parts[RECORDS_BEHIND] = sum(max(0, count) for key, count in behind.items() if key.topic == topic)
            parts[SECONDS_BEHIND] = max((age for key, age in ages.items() if key.topic == topic), default=0.0)
        return found

    def prepareForTriggerAvailableNow(self) -> None:
        """Freeze the target: what is there now, and nothing later."""
        self._frozen = self._now()

    def partitions(self, start: OffsetsJson, end: OffsetsJson) -> list[InputPartition]:
        """The tasks of this micro-batch; start and end may come from a checkpoint.

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
        held = {SourcePartition(name, index) for name, topic in topics.items() for index in topic.partitions}
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
        return self._tasks(clipped(wanted, earliest, latest), ids)

    def commit(self, end: OffsetsJson) -> None:
        """Offsets live in Spark's checkpoint; with commitOffsets=true the group hears of them, for tools that show lag."""
        if not self._options.commits_offsets:
            return
        offsets = from_json(end).offsets
        changed = {key: at for key, at in offsets.items() if self._told.get(key) != at}
        if not changed:
            return
        try:
            self._client.commit(self._options.cluster.group_id, changed)
        except SourceError as error:
            if not self._told:
                raise  # wrong from the beginning: who asked for it must hear of it
            logger.warning("%s; the query goes on, the next micro-batch commits again", error)
            return
        self._told |= changed

    def stop(self) -> None:
        """Nothing to release: connections belong to the process."""

    def _limited(self, start: Offsets, latest: Offsets, limit: ReadLimit) -> Offsets:
        if isinstance(limit, ReadAllAvailable):
            return dict(latest)
        options = self._options
        if self._is_too_little(sum(max(0, latest[key] - start[key]) for key in latest)):
            return {key: start[key] for key in latest}
        end = limited_end(start, latest, options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            end = end_within_bytes(start, end, self._known_density(latest), options.max_bytes_per_trigger)
        return end

    def _is_too_little(self, behind: int) -> bool:
        """Whether minOffsetsPerTrigger asks to wait for more. A frozen target will not grow: nothing waits there."""
        least, now_s = self._options.min_offsets_per_trigger, time.monotonic()
        if least is None or self._frozen is not None:
            return False
        is_due = self._triggered_s is None or now_s - self._triggered_s >= self._options.max_trigger_delay_ms / 1000
        if behind >= least or is_due:
            self._triggered_s = now_s
            return False
        return True

    def _known_density(self, latest: Offsets) -> Density:
        now_s = time.monotonic()
        if self._sizes is None or now_s - self._sizes[0] > DENSITY_AGE_S_MAX:
            self._sizes = now_s, self._density(latest, latest)
        return self._sizes[1]

    def _ages(self, behind: dict[SourcePartition, int]) -> dict[SourcePartition, float]:
        """Seconds since the first unread record of the partitions with the most of them."""
        assert self._chosen is not None
        most = sorted(behind, key=lambda key: behind[key], reverse=True)[:LAGGARDS_ASKED]
        found = {}
        for key in most:
            try:
                header = self._client.batch_at(key, self._chosen[key])
            except SourceError as error:
                logger.info("the age of the lag of %s is not known: %s", key, error)
                continue
            if header is not None:
                found[key] = round(max(0.0, time.time() - header.base_timestamp_ms / 1000), 3)
        return found

    def _now(self, then: Position | None = None) -> Position:
        return self._latest(may_be_missing=not self._options.is_data_loss_fatal, then=then)

    def _judge(self, lost: Sequence[str]) -> None:
        if lost and self._options.is_data_loss_fatal:
            raise DataLossError(
                f"{'; '.join(lost)}. Begin with a new checkpoint, or set failOnDataLoss=false to go on with what is there"
            )
        for what in lost:
            logger.warning("%s; going on as failOnDataLoss=false", what)


@in_words("latestOffset", "partitions")
class UnlimitedStreamReader(StreamReader):
    """A stream for Spark 4.0 and 4.1, which asks for an end without saying where the micro-batch begins: each takes all there is."""

    def latestOffset(self) -> OffsetsJson:  # type: ignore[override]
        """What is there now. What is lost is judged when the micro-batch is planned."""
        return to_json(self._now())

    def partitions(self, start: OffsetsJson, end: OffsetsJson) -> list[InputPartition]:
        """The tasks of a micro-batch, as StreamReader plans them."""
        if self._complaint is not None and start == self._initial:
            raise self._complaint
        self.commit(start)  # Spark plans on only when all before is in its commit log
        return super().partitions(start, end)


def stream_reader(options: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """The reader of a streaming query; raises OptionError."""
    parsed = parse_options(for_source(options), is_stream=True)
    if HAS_READ_LIMITS:
        return StreamReader(parsed, schema)
    limits = (parsed.max_offsets_per_trigger, parsed.min_offsets_per_trigger, parsed.max_bytes_per_trigger)
    if any(limit is not None for limit in limits):
        raise OptionError(
            "maxOffsetsPerTrigger, minOffsetsPerTrigger and maxBytesPerTrigger need Spark 4.2 or later: before it a Python source "
            "is not told where a micro-batch begins; leave them out, or read with Spark's own format kafka"
        )
    return UnlimitedStreamReader(parsed, schema)
