"""The options of the source, read and checked once, in the planner.

May touch:  its arguments, the PEM files that are named.     Must not touch: sockets, Spark.
Invariants: names, meanings and defaults are those of Spark's Kafka source, or the table says where they differ; an option nobody
    knows is refused with the nearest known one; a refusal says what to write instead.
Read next:  offset_spec.py, kafka_properties.py.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_barnabas.kafka_properties import (
    KAFKA_OPTIONS,
    PREFIX,
    ClusterOptions,
    OptionError,
    OptionRow,
    parse_kafka_options,
    whole_number,
)
from pyspark_barnabas.offset_spec import (
    EARLIEST,
    LATEST,
    Committed,
    OffsetSpec,
    are_numbers,
    duration_ms,
    ending_spec,
    parse_json,
    starting_spec,
)

__all__ = ["EARLIEST", "LATEST", "OffsetSpec", "OptionError", "SourceOptions", "parse_options"]

SOURCE_OPTIONS = {
    "subscribe": OptionRow("", "topics, comma-separated"),
    "subscribePattern": OptionRow(
        "", "regular expression that whole names of topics must match; internal ones never do"
    ),
    "assign": OptionRow("", '`{"topic":[0,1]}`; exactly one of these three is needed'),
    "startingOffsets": OptionRow(
        "latest; earliest in a batch",
        '`earliest`, `latest`, `{"topic":{"0":23,"1":-2}}`; beyond Spark\'s: `group` (what kafka.group.id committed), '
        "`-10 minutes`, `-100` (the last 100 offsets of each partition)",
    ),
    "startingOffsetsByTimestamp": OptionRow("", '`{"topic":{"0":1700000000000}}`, ms; wins over startingOffsets'),
    "startingTimestamp": OptionRow("", "ms, for every partition; wins over both"),
    "startingOffsetsByTimestampStrategy": OptionRow("error", "where no record is that late: `error` or `latest`"),
    "endingOffsets": OptionRow("latest", '`latest` or `{"topic":{"0":50,"1":-1}}`; batch only'),
    "endingOffsetsByTimestamp": OptionRow("", "as with starting; `latest` where no record is that late; batch only"),
    "endingTimestamp": OptionRow("", "ms, for every partition; batch only"),
    "maxOffsetsPerTrigger": OptionRow("", "most offsets of a micro-batch, shared among partitions by backlog"),
    "minOffsetsPerTrigger": OptionRow("", "fewest offsets of a micro-batch, unless maxTriggerDelay has passed"),
    "maxTriggerDelay": OptionRow("15m", "longest wait for minOffsetsPerTrigger"),
    "maxBytesPerTrigger": OptionRow(
        "", "most bytes of a micro-batch, as they lie in the logs; with maxOffsetsPerTrigger the lesser", is_stock=False
    ),
    "mode": OptionRow(
        "records",
        "`table`: of each key the latest record of its partition before the end offsets, without tombstones and records without a "
        "key; a task keeps the keys of its partition in memory, no values; batch only",
        is_stock=False,
    ),
    "partitionedByKey": OptionRow(
        "false",
        "`true`: every producer chose partitions by the key as Kafka's do, and their count never changed; a filter on `key` then reads "
        "one partition, where filter pushdown is on; batch only",
        is_stock=False,
    ),
    "minPartitions": OptionRow("", "at least about so many tasks: long ranges are split by bytes, at record batches"),
    "maxRecordsPerPartition": OptionRow("", "most offsets of a task"),
    "failOnDataLoss": OptionRow("true", "`false`: when wanted offsets are gone, go on at what is left, with a warning"),
    "includeHeaders": OptionRow("false", "`true` adds the column `headers`"),
    "kafkaConsumer.pollTimeoutMs": OptionRow("120000", "longest wait of a task for records that must be there, ms"),
    "fetchOffset.numRetries": OptionRow("3", "how often an end that went back is asked for again, at least"),
    "fetchOffset.retryIntervalMs": OptionRow("10", "first pause between, ms; doubled up to 3 s in all"),
    "groupIdPrefix": OptionRow("spark-kafka-source", "accepted without a meaning: nobody joins a group here"),
    "columns": OptionRow("", "comma-separated; only these are built, as with `.schema()`", is_stock=False),
    "commitOffsets": OptionRow(
        "false", "`true` commits each finished micro-batch to kafka.group.id, where lag tools see it", is_stock=False
    ),
}
"""By name as documented, in the order of the page."""
OPTIONS = SOURCE_OPTIONS | KAFKA_OPTIONS
MODES = ("records", "table")
COLUMN_NAMES = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")

_CANONICAL = {name.lower(): name for name in OPTIONS}
_BATCH_ONLY = ("endingoffsets", "endingoffsetsbytimestamp", "endingtimestamp")
_STREAM_ONLY = (
    "maxoffsetspertrigger",
    "minoffsetspertrigger",
    "maxbytespertrigger",
    "maxtriggerdelay",
    "commitoffsets",
)
_NOT_WITH_TABLE = ("minpartitions", "maxrecordsperpartition")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Everything the source takes from `.option(...)`."""

    cluster: ClusterOptions
    topics: tuple[str, ...]
    """Those of subscribe or assign; none with a pattern."""
    pattern: str | None
    assigned: dict[str, tuple[int, ...]] | None
    """Partitions of each topic where `assign` was given; None means all partitions."""
    starting_offsets: OffsetSpec
    starting_option: str
    is_start_too_late_fatal: bool
    ending_offsets: OffsetSpec
    ending_option: str
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    is_data_loss_fatal: bool
    includes_headers: bool
    commits_offsets: bool
    is_table: bool
    is_partitioned_by_key: bool
    poll_timeout_ms: int
    offset_retries: int
    offset_retry_ms: int

    @property
    def bootstrap_servers(self) -> tuple[str, ...]:
        """The addresses of the cluster."""
        return self.cluster.bootstrap_servers


def parse_options(options: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """Check the options of a batch or stream read; raises OptionError naming the option and the fix."""
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name not in _CANONICAL and not name.startswith(PREFIX):
            raise OptionError(_unknown(name))
    cluster = parse_kafka_options(given)
    topics, pattern, assigned = _topics(given)
    for name in _BATCH_ONLY:
        if is_stream and name in given:
            raise OptionError(
                f"{_CANONICAL[name]} is for batch reads: a stream has no end, use trigger(availableNow=True)"
            )
    for name in _STREAM_ONLY:
        if not is_stream and name in given:
            raise OptionError(f"{_CANONICAL[name]} is for streams: bound a batch read with endingOffsets")
    starting, starting_option = starting_spec(given, is_stream=is_stream)
    ending, ending_option = ending_spec(given)
    strategy = _word(given, "startingOffsetsByTimestampStrategy", ("error", "latest"))
    least, most = _limit(given, "minOffsetsPerTrigger"), _limit(given, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise OptionError(
            f"minOffsetsPerTrigger={least} is greater than maxOffsetsPerTrigger={most}: make it the lesser one"
        )
    commits = _flag(given, "commitOffsets")
    if (commits or starting == Committed()) and not cluster.group_id:
        what = "commitOffsets=true" if commits else "startingOffsets=group"
        raise OptionError(f'{what} needs a group: say which with .option("kafka.group.id", "name")')
    requested_columns(given)
    is_table, is_partitioned_by_key = (
        _word(given, "mode", MODES) == "table",
        _flag(given, "partitionedByKey"),
    )
    if is_stream and (is_table or is_partitioned_by_key):
        raise OptionError(
            f"{'mode=table' if is_table else 'partitionedByKey'} is for batch reads: of a stream, keep the latest of each key yourself, "
            "or join it with a batch read"
        )
    if is_table and starting != EARLIEST:
        raise OptionError(f"leave {starting_option} out with mode=table: the latest record of a key may lie anywhere")
    for name in _NOT_WITH_TABLE:
        if is_table and name in given:
            raise OptionError(f"leave {_CANONICAL[name]} out with mode=table: one task must see a partition whole")
    return SourceOptions(
        cluster=cluster,
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting_offsets=starting,
        starting_option=starting_option,
        is_start_too_late_fatal=strategy == "error",
        ending_offsets=ending,
        ending_option=ending_option,
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_bytes_per_trigger=_limit(given, "maxBytesPerTrigger"),
        max_trigger_delay_ms=duration_ms(_text(given, "maxTriggerDelay"), "maxTriggerDelay"),
        min_partitions=_limit(given, "minPartitions"),
        max_records_per_partition=_limit(given, "maxRecordsPerPartition"),
        is_data_loss_fatal=_flag(given, "failOnDataLoss"),
        includes_headers=includes_headers(given),
        commits_offsets=commits,
        is_table=is_table,
        is_partitioned_by_key=is_partitioned_by_key,
        poll_timeout_ms=whole_number(
            _text(given, "kafkaConsumer.pollTimeoutMs"), "kafkaConsumer.pollTimeoutMs", least=1
        ),
        offset_retries=whole_number(_text(given, "fetchOffset.numRetries"), "fetchOffset.numRetries", least=0),
        offset_retry_ms=whole_number(
            _text(given, "fetchOffset.retryIntervalMs"), "fetchOffset.retryIntervalMs", least=0
        ),
    )


def includes_headers(options: Mapping[str, str]) -> bool:
    """Whether the column headers is wanted, which decides the schema before anything else is looked at."""
    return _flag({name.lower(): value for name, value in options.items()}, "includeHeaders")


def requested_columns(options: Mapping[str, str]) -> tuple[str, ...] | None:
    """What the option `columns` names; None without it. Raises OptionError."""
    text = {name.lower(): value for name, value in options.items()}.get("columns")
    if text is None:
        return None
    by_lower = {name.lower(): name for name in COLUMN_NAMES}
    names = [part.strip() for part in text.split(",") if part.strip()]
    for name in names:
        if name.lower() not in by_lower:
            near = difflib.get_close_matches(name.lower(), by_lower, n=1)
            hint = f"did you mean {by_lower[near[0]]}?" if near else f"there are {', '.join(COLUMN_NAMES)}"
            raise OptionError(f"columns={text}: {name} is no column of format barnabas; {hint}")
    found = tuple(by_lower[name.lower()] for name in names)
    if not found or len(set(found)) < len(found):
        raise OptionError(f"columns={text}: name each column once, such as value,timestamp")
    return found


def _unknown(name: str) -> str:
    if name == "path":
        return 'load() takes no path: name the topics with .option("subscribe", "topic")'
    near = difflib.get_close_matches(name, _CANONICAL, n=1)
    if near:
        return f"option {name} is not known to format barnabas; did you mean {_CANONICAL[near[0]]}?"
    return f"option {name} is not known to format barnabas; leave it out. Known are: {', '.join(OPTIONS)}"


def _topics(given: Mapping[str, str]) -> tuple[tuple[str, ...], str | None, dict[str, tuple[int, ...]] | None]:
    if sum(name in given for name in ("subscribe", "subscribepattern", "assign")) != 1:
        raise OptionError(
            'say what to read with exactly one of .option("subscribe", "topic"), .option("subscribePattern", "events-.*") '
            'and .option("assign", JSON)'
        )
    if "subscribepattern" in given:
        pattern = given["subscribepattern"].strip()
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(f"subscribePattern={pattern} is no regular expression: {error}") from None
        if not pattern:
            raise OptionError('subscribePattern matches nothing: write a regular expression, such as "events-.*"')
        return (), pattern, None
    if "subscribe" in given:
        topics = tuple(dict.fromkeys(part.strip() for part in given["subscribe"].split(",") if part.strip()))
        if not topics:
            raise OptionError('subscribe names no topic: write .option("subscribe", "topic,other")')
        return topics, None, None
    parsed = parse_json(given["assign"], "assign", 'write {"topic":[0,1]}')
    if not isinstance(parsed, dict) or not all(are_numbers(partitions) for partitions in parsed.values()):
        raise OptionError(f'assign={given["assign"]}: write {{"topic":[0,1]}}')
    assigned = {topic: tuple(sorted(set(partitions))) for topic, partitions in parsed.items()}
    if not assigned or not all(assigned.values()):
        raise OptionError('assign names no partition: write {"topic":[0,1]}, or subscribe for all partitions')
    return tuple(sorted(assigned)), None, assigned


def _text(given: Mapping[str, str], name: str) -> str:
    return given.get(name.lower(), SOURCE_OPTIONS[name].default)


def _limit(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    return None if text is None else whole_number(text, name, least=1)


def _word(given: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    found = _text(given, name).strip().lower()
    if found not in words:
        raise OptionError(f"{name}={_text(given, name)}: write {' or '.join(words)}")
    return found


def _flag(given: Mapping[str, str], name: str) -> bool:
    return _word(given, name, ("true", "false")) == "true"
