"""What a topic may set of its logs, with Kafka's keys, defaults and meanings; own key: log.flush.on.acks. And what a broker sets
of all of them.

May touch:  its arguments.            Must not touch: files, environment.
Invariants: a LogConfig is whole and valid; an error names the key and what to do.
Read next:  unified_log.py and retention.py, which obey it.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from barnabas_log.errors import InvalidLogConfig
from barnabas_log.tail.producer_state import PRODUCER_ID_EXPIRATION_MS
from barnabas_wire.config_key import config_key
from barnabas_wire.java_values import java_float, java_int
from barnabas_wire.lazy_dataclass import dataclass

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
LZ4_LEVEL_DEFAULT: Final = 9
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS


class TimestampType(Enum):
    """message.timestamp.type: whose clock dates a record."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class FlushOnAcks(Enum):
    """log.flush.on.acks: what must have happened to a replica's bytes before they count for the high watermark."""

    FSYNC = "fsync"
    PAGE_CACHE = "page-cache"


class BatchCompression(Enum):
    """compression.type: in which codec a leader keeps the batches of producers."""

    PRODUCER = "producer"
    UNCOMPRESSED = "uncompressed"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class ValidateBatches(Enum):
    """validate.batches: which batches of producers a leader opens before it acknowledges them."""

    SAMPLED = "sampled"
    ALL = "all"
    HEADER = "header"


class CleanupPolicy(Enum):
    """cleanup.policy: how a log is kept from growing for ever."""

    DELETE = "delete"
    COMPACT = "compact"
    COMPACT_AND_DELETE = "compact,delete"
    NONE = ""


def _key(
    default: Any,
    key: str,
    broker_key: str,
    doc: str,
    *,
    at_least: int | None = None,
    at_most: int = INT64_MAX,
    never: int | None = None,
) -> Any:
    metadata = {
        "key": key,
        "broker_key": broker_key,
        "doc": doc,
        "at_least": at_least,
        "at_most": at_most,
        "never": never,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Settings of one partition's log. Field metadata: key (topic), broker_key (its default), doc, at_least, at_most."""

    segment_bytes: int = _key(
        1024**3,
        "segment.bytes",
        "log.segment.bytes",
        "Largest size of a segment file in bytes. Small segments mean many open files.",
        at_least=1024**2,
        at_most=INT32_MAX,
    )
    segment_ms: int = _key(
        7 * _DAY_MS,
        "segment.ms",
        "log.roll.ms",
        "Longest span of record time in one segment, in ms, so that retention by time can let go of it.",
        at_least=1,
    )
    segment_jitter_ms: int = _key(
        0,
        "segment.jitter.ms",
        "log.roll.jitter.ms",
        "Most ms taken off segment.ms, differently for each segment, so that logs do not all roll at once.",
        at_least=0,
    )
    segment_index_bytes: int = _key(
        10 * 1024**2,
        "segment.index.bytes",
        "log.index.size.max.bytes",
        "Largest size of an index file in bytes; a full index rolls the segment.",
        at_least=4,
        at_most=INT32_MAX,
    )
    index_interval_bytes: int = _key(
        4096,
        "index.interval.bytes",
        "log.index.interval.bytes",
        "Log bytes between two index entries, at most 64 KiB in effect: fewer make look-ups shorter and indexes larger.",
        at_least=0,
        at_most=INT32_MAX,
    )
    retention_ms: int = _key(
        7 * _DAY_MS,
        "retention.ms",
        "log.retention.ms",
        "Records older than this many ms may be deleted, by segment; -1 keeps them. DANGER: it goes by record timestamps, "
        "so replayed old events go at the next check.",
        at_least=-1,
    )
    retention_bytes: int = _key(
        -1,
        "retention.bytes",
        "log.retention.bytes",
        "Size in bytes above which the oldest segments of a partition may be deleted; -1 is no limit.",
        at_least=-1,
    )
    file_delete_delay_ms: int = _key(
        60_000,
        "file.delete.delay.ms",
        "log.segment.delete.delay.ms",
        "How long a deleted segment's files stay on disk under the suffix .deleted, in ms.",
        at_least=0,
    )
    max_message_bytes: int = _key(
        1_048_588,
        "max.message.bytes",
        "message.max.bytes",
        "Largest record batch in bytes that a producer may write (after compression).",
        at_least=0,
        at_most=INT32_MAX,
    )
    message_timestamp_type: TimestampType = _key(
        TimestampType.CREATE_TIME,
        "message.timestamp.type",
        "log.message.timestamp.type",
        "Whose clock dates a record: CreateTime (the producer's) or LogAppendTime (the leader's).",
    )
    message_timestamp_before_max_ms: int = _key(
        INT64_MAX,
        "message.timestamp.before.max.ms",
        "log.message.timestamp.before.max.ms",
        "How many ms a record's time may lie before the broker's clock.",
        at_least=0,
    )
    message_timestamp_after_max_ms: int = _key(
        _HOUR_MS,
        "message.timestamp.after.max.ms",
        "log.message.timestamp.after.max.ms",
        "How many ms a record's time may lie after the broker's clock.",
        at_least=0,
    )
    min_insync_replicas: int = _key(
        1,
        "min.insync.replicas",
        "min.insync.replicas",
        "How many in-sync replicas acks=all needs; with fewer, writes are refused.",
        at_least=1,
        at_most=INT32_MAX,
    )
    cleanup_policy: CleanupPolicy = _key(
        CleanupPolicy.DELETE,
        "cleanup.policy",
        "log.cleanup.policy",
        "How old data goes: delete (by retention), compact (the last record of each key stays), both, or empty: it is kept. A "
        "compacted topic takes no record without a key.",
    )
    delete_retention_ms: int = _key(
        _DAY_MS,
        "delete.retention.ms",
        "log.cleaner.delete.retention.ms",
        "How long compaction keeps tombstones, and markers of transactions, after it first saw them, in ms: a consumer that reads "
        "from the beginning must reach the end within it, or may miss a deletion.",
        at_least=0,
    )
    min_cleanable_dirty_ratio: float = _key(
        0.5,
        "min.cleanable.dirty.ratio",
        "log.cleaner.min.cleanable.ratio",
        "A compacted log is cleaned when more than this share of its bytes was written since it was cleaned last.",
        at_least=0,
        at_most=1,
    )
    min_compaction_lag_ms: int = _key(
        0,
        "min.compaction.lag.ms",
        "log.cleaner.min.compaction.lag.ms",
        "How long a record stays as it was written before compaction may take it, in ms.",
        at_least=0,
    )
    max_compaction_lag_ms: int = _key(
        INT64_MAX,
        "max.compaction.lag.ms",
        "log.cleaner.max.compaction.lag.ms",
        "How long a record may wait for compaction, in ms, however small the dirty share is.",
        at_least=1,
    )
    compression_type: BatchCompression = _key(
        BatchCompression.PRODUCER,
        "compression.type",
        "compression.type",
        "Codec of the batches on disk: producer keeps them as they came; with another one the leader recompresses those that "
        "differ, in threads of its own, which takes CPU and a copy of each.",
    )
    compression_gzip_level: int = _key(
        -1,
        "compression.gzip.level",
        "compression.gzip.level",
        "Level of recompression with gzip: 1 (fast) to 9 (small), -1 the library's default.",
        at_least=-1,
        at_most=9,
        never=0,
    )
    compression_lz4_level: int = _key(
        LZ4_LEVEL_DEFAULT,
        "compression.lz4.level",
        "compression.lz4.level",
        "Level of recompression with lz4: 1 to 17; the default 9 is the fast compressor, as in Kafka, others are slower.",
        at_least=1,
        at_most=17,
    )
    compression_zstd_level: int = _key(
        3,
        "compression.zstd.level",
        "compression.zstd.level",
        "Level of recompression with zstd: -131072 (fast) to 22 (small).",
        at_least=-131072,
        at_most=22,
    )
    validate_batches: ValidateBatches = _key(
        ValidateBatches.SAMPLED,
        "validate.batches",
        "validate.batches",
        "Whose batches a leader opens before it acknowledges them: sampled (the first of each connection, later ones at random, and "
        "all of a connection that ever sent an unsound one), all (as Kafka; it takes CPU for every record), or header. DANGER: "
        "with header a buggy client's batch may be acknowledged that no consumer can read. All of a compacted topic are opened anyway.",
    )
    flush_on_acks: FlushOnAcks = _key(
        FlushOnAcks.FSYNC,
        "log.flush.on.acks",
        "log.flush.on.acks",
        "fsync: a record counts as replicated once flushed to the disk of every in-sync replica. page-cache: once written "
        "to its memory, as in Kafka. DANGER: page-cache loses acknowledged records when replicas lose power together.",
    )

    @classmethod
    def from_overrides(cls, defaults: Mapping[str, str], overrides: Mapping[str, str]) -> LogConfig:
        """A topic's settings over the broker's defaults, both by topic key (broker_defaults makes the latter).

        Raises InvalidLogConfig.
        """
        values: dict[str, Any] = {}
        for key, text in {**defaults, **overrides}.items():
            field = TOPIC_KEYS.get(key)
            if field is None:
                raise InvalidLogConfig(f"{key} is no topic setting; known are: {', '.join(sorted(TOPIC_KEYS))}")
            values[field.name] = _parse(field, text)
        config = cls(**values)
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise InvalidLogConfig(
                f"min.compaction.lag.ms={config.min_compaction_lag_ms} is above max.compaction.lag.ms="
                f"{config.max_compaction_lag_ms}: lower the one or raise the other"
            )
        return config

    @property
    def is_retention_on(self) -> bool:
        """Whether time and size may shorten the log: not a compacted one, the state of the system, nor one that keeps all."""
        return self.cleanup_policy in (CleanupPolicy.DELETE, CleanupPolicy.COMPACT_AND_DELETE)

    @property
    def is_compacted(self) -> bool:
        """Whether the cleaner keeps the last record of each key, and takes no record without one."""
        return self.cleanup_policy in (CleanupPolicy.COMPACT, CleanupPolicy.COMPACT_AND_DELETE)

    def compression_level(self, kind: BatchCompression) -> int | None:
        """The level to recompress with; None is the codec's own default."""
        if kind is BatchCompression.GZIP:
            return None if self.compression_gzip_level == -1 else self.compression_gzip_level
        if kind is BatchCompression.LZ4:
            return None if self.compression_lz4_level == LZ4_LEVEL_DEFAULT else self.compression_lz4_level
        return self.compression_zstd_level if kind is BatchCompression.ZSTD else None

    def to_overrides(self) -> dict[str, str]:
        """Every topic key with its value as text, for DescribeConfigs."""
        return {key: _format(getattr(self, field.name)) for key, field in TOPIC_KEYS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogManagerConfig:
    """Settings of the whole broker."""

    retention_check_interval_ms: int = config_key(
        "log.retention.check.interval.ms",
        300_000,
        "How often retention looks at every log, in ms.",
    )
    retention_initial_delay_ms: int = 30_000
    """Before the first look. Without a key: only a simulation has a reason to set it."""
    retention_clock_skew_ms_max: int = config_key(
        "log.retention.clock.skew.max.ms",
        60_000,
        "How far this broker's clock may be off the median of the voters' (controllers') clocks, in ms. Beyond that nothing is "
        "deleted, expired or compacted here because it is old; by size and DeleteRecords it goes on. Kafka has no such check.",
    )
    recovery_point_checkpoint_interval_ms: int = config_key(
        "log.flush.offset.checkpoint.interval.ms",
        60_000,
        "How often recovery points are written, in ms: a longer time makes recovery after a crash longer.",
    )
    producer_id_expiration_ms: int = config_key(
        "producer.id.expiration.ms",
        PRODUCER_ID_EXPIRATION_MS,
        "How long a silent idempotent producer is remembered, in ms; a retry after that may be written twice.",
    )
    producer_id_expiration_check_interval_ms: int = config_key(
        "producer.id.expiration.check.interval.ms",
        600_000,
        "How often silent producers are looked for, in ms.",
    )
    scrub_bytes_per_second_max: int = config_key(
        "log.scrub.bytes.per.second.max",
        10_000_000,
        "How fast a broker reads its logs again to find damaged batches, in bytes/s for each log directory; 0 turns it "
        "off. A pass over a directory takes its size divided by this. Kafka has no such check.",
    )

    free_bytes_min: int = config_key(
        "log.dir.free.bytes.min",
        32 * 1024 * 1024,
        "A log directory with fewer bytes free takes no more records: other replicas lead, reads go on. On a small "
        "file system at most a sixteenth of it; 0 = only when a write fails.",
    )
    free_bytes_resume: int = config_key(
        "log.dir.free.bytes.resume",
        64 * 1024 * 1024,
        "A log directory that ran full takes records again once so many bytes are free; above log.dir.free.bytes.min, so "
        "that leadership does not go back and forth. On a small file system at most an eighth of it.",
    )
    free_check_interval_ms: int = config_key(
        "log.dir.free.check.interval.ms",
        1_000,
        "How often free bytes are looked at, in ms.",
    )
    is_cleaner_enabled: bool = config_key(
        "log.cleaner.enable",
        True,
        "Whether compacted logs are cleaned. Without it they grow for ever, __consumer_offsets among them.",
    )
    cleaner_backoff_ms: int = config_key(
        "log.cleaner.backoff.ms",
        15_000,
        "How long the cleaner waits when no log is dirty enough, in ms; its first wait after a run that failed is twice that.",
    )
    cleaner_bytes_per_second_max: float = config_key(
        "log.cleaner.io.max.bytes.per.second",
        sys.float_info.max,
        "How fast the cleaner reads and writes, together, in bytes/s; the default is no limit. It runs in a process "
        "of its own, niced.",
    )
    cleaner_map_bytes_max: int = config_key(
        "log.cleaner.dedupe.buffer.size",
        128 * 1024 * 1024,
        "Memory in bytes for the last offset of each key in one cleaning run, some 170 bytes a key: with more keys than fit, "
        "a log is cleaned in several runs.",
    )
    reserve_bytes: int = config_key(
        "log.dir.reserve.bytes",
        1024 * 1024,
        "Bytes that each log directory keeps for checkpoints, in a file that is removed when the disk is full.",
    )


TOPIC_KEYS: Final[Mapping[str, dataclasses.Field[Any]]] = {
    field.metadata["key"]: field for field in dataclasses.fields(LogConfig)
}
"""The field of each topic key."""

_SYNONYMS: Final = (
    # (broker key, unit in ms, topic key); the finer unit wins, as in Kafka
    ("log.retention.hours", _HOUR_MS, "retention.ms"),
    ("log.retention.minutes", 60_000, "retention.ms"),
    ("log.roll.hours", _HOUR_MS, "segment.ms"),
    ("log.roll.jitter.hours", _HOUR_MS, "segment.jitter.ms"),
)


SYNONYM_KEYS: Final = frozenset(broker_key for broker_key, _, _ in _SYNONYMS)
"""Broker keys in coarser units that stand for a topic key."""


def broker_defaults(properties: Mapping[str, str]) -> dict[str, str]:
    """Topic defaults by topic key, from a broker's own keys (log.segment.bytes, log.retention.hours, ...).

    Keys that set no topic default are passed over. Raises InvalidLogConfig for a span that is no number.
    """
    defaults: dict[str, str] = {}
    for broker_key, unit_ms, key in _SYNONYMS:
        if broker_key in properties:
            try:
                number = java_int(properties[broker_key])
            except ValueError:
                raise InvalidLogConfig(f"{broker_key}={properties[broker_key]!r} is no whole number") from None
            defaults[key] = str(number * unit_ms if number >= 0 else number)
    for key, field in TOPIC_KEYS.items():
        broker_key = field.metadata["broker_key"]
        if broker_key in properties:
            defaults[key] = properties[broker_key]
    return defaults


def _parse(field: dataclasses.Field[Any], text: str) -> Any:
    key = field.metadata["key"]
    if isinstance(field.default, Enum):
        kind = type(field.default)
        wanted = ",".join(sorted({part.strip() for part in text.split(",")}))
        for member in kind:
            if member.value == wanted:
                return member
        raise InvalidLogConfig(f"{key}={text!r} is unknown; use one of: {', '.join(member.value for member in kind)}")
    is_whole = isinstance(field.default, int)
    try:
        number = java_int(text) if is_whole else java_float(text)
    except ValueError:
        raise InvalidLogConfig(f"{key}={text!r} is no {'whole ' if is_whole else ''}number") from None
    at_least, at_most = field.metadata["at_least"], field.metadata["at_most"]
    never = field.metadata["never"]
    if not at_least <= number <= at_most or number == never:
        but = "" if never is None else f", but not {never}"
        raise InvalidLogConfig(f"{key}={number} must be between {at_least} and {at_most}{but}")
    return number


def _format(value: Any) -> str:
    return value.value if isinstance(value, Enum) else str(value)
