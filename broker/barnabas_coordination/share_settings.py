"""What a share group's own configs say, with what holds where they say nothing.

May touch:  its arguments.            Must not touch: files, environment.
Invariants: every value is within its bounds; a stored value beyond them counts as the nearest within, since bounds may differ after a
    restart (KIP-1240), and one that cannot be read as if it were not there.
Read next:  share_group_config.py, the nodes' keys.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from barnabas_coordination.share_group_config import BOUNDED, ShareGroupConfig
from barnabas_quorum.image.configs import ConfigResource
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.records import ConfigResourceType
from barnabas_wire.java_values import java_boolean, java_float, java_int
from barnabas_wire.lazy_dataclass import dataclass

DAY_MS: Final = 86_400_000
BY_DURATION: Final = "by_duration:"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSettings:
    """The settings of one share group, as KIP-932, 1191 and 1222 have them; the last six are ours."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    record_lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    partition_max_record_locks: int = 2_000
    """Most offsets from the start offset to the last one delivered."""
    auto_offset_reset: str = "latest"
    """latest, earliest, or by_duration: and an ISO-8601 duration."""
    is_read_committed: bool = False
    may_renew: bool = True
    dead_letter_topic: str = ""
    """Empty: rejected and exhausted records are archived."""
    copies_dead_records: bool = False
    """Whether a dead letter has the record's key and value."""
    holds_on_dead_letter_failure: bool = True
    """errors.deadletterqueue.on.failure: hold (the record stays ARCHIVING and is tried again) or archive."""
    retry_backoff_ms: int = 0
    """How long a released record waits for its next delivery."""
    retry_backoff_factor: float = 1.0
    """By how much each further wait is longer."""
    retry_backoff_max_ms: int = 3_600_000
    deliver_at_header: str = ""
    """The header that says in ms since 1970 when a record is due; empty: none does."""
    delayed_records_max: int = 10_000
    """Most records of a partition that wait for their time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKey:
    """A config that a share group has for itself."""

    field: str
    """The field of ShareSettings that it sets."""
    type_name: str
    """boolean, string, int, long, double: as DescribeConfigs types it."""
    default: str
    doc: str
    read: Callable[[str], Any]
    """The value that a text says; raises ValueError with what would be accepted."""
    written: Callable[[Any], str] = str
    """The text of a value, in its normal form."""
    bounds: tuple[float, float] | None = None
    """Least and most of a number where no group.share.min.… and group.share.max.… of the node say otherwise."""


def settings_of(config: ShareGroupConfig, image: MetadataImage, group_id: str) -> ShareSettings:
    """What holds for a group: its own configs within the bounds of the node's, and else the node's."""
    settings = _node_settings(config)
    overrides = image.configs.get(ConfigResource(ConfigResourceType.GROUP, group_id))
    if not overrides:
        return settings
    own = {}
    for name in overrides.keys() & SHARE_KEYS.keys():
        key = SHARE_KEYS[name]
        bounds = config.share_bounds[key.field] if key.field in BOUNDED else key.bounds
        try:
            value = key.read(overrides[name])
        except ValueError:  # a newer node took it
            continue
        own[key.field] = value if bounds is None else min(max(value, bounds[0]), bounds[1])
    return replace(settings, **own)


def _node_settings(config: ShareGroupConfig) -> ShareSettings:
    return ShareSettings(**{what: getattr(config, f"group_share_{what}") for what in BOUNDED})


def duration_ms(text: str) -> int:
    """How long a duration of ISO-8601 (P2DT3H4M5.5S) is in ms, as java.time.Duration reads it. Raises ValueError, also for one that
    is negative."""
    found = _DURATION.fullmatch(text.strip())
    parts = [] if found is None else [part for part in found.groups()[1:] if part is not None]
    if found is None or not parts or text.strip()[-1] in "tT":
        raise ValueError("write a duration like PT1H or P7D")
    total = sum(
        float(part) * unit_ms for part, unit_ms in zip(found.groups()[1:], _UNITS_MS, strict=True) if part is not None
    )
    total = -total if found[1] == "-" else total
    if not 0 <= total <= _MS_MAX:
        raise ValueError("a duration must not be negative, nor longer than time is")
    return int(total)


_MS_MAX: Final = 2**53
_DURATION: Final = re.compile(
    r"([+-]?)P(?:([+-]?\d{1,15})D)?(?:T(?:([+-]?\d{1,15})H)?(?:([+-]?\d{1,15})M)?(?:([+-]?\d{1,15}(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE | re.ASCII,
)
_UNITS_MS: Final = (DAY_MS, 3_600_000, 60_000, 1_000)


def _offset_reset(text: str) -> str:
    word = text.strip()
    if word.lower() in ("latest", "earliest"):
        return word.lower()
    if word.lower().startswith(BY_DURATION):
        duration = word[len(BY_DURATION) :].upper()
        duration_ms(duration)
        return f"{BY_DURATION}{duration}"
    raise ValueError("use latest, earliest or by_duration: with a duration like PT1H")


def _one_of(off: str, on: str) -> Callable[[str], bool]:
    def read(text: str) -> bool:
        word = text.strip().lower()
        if word not in (off, on):
            raise ValueError(f"use {off} or {on}")
        return word == on

    return read


def _topic(text: str) -> str:
    name = text.strip()
    if name.startswith("__"):
        raise ValueError("topics whose name begins with __ are the system's own; name another")
    if name and not _TOPIC_NAME.fullmatch(name):
        raise ValueError("a topic's name is 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'; correct it")
    return name


_TOPIC_NAME: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")


def _header(text: str) -> str:
    if len(text.encode()) > HEADER_BYTES_MAX:
        raise ValueError(f"a header's name may have {HEADER_BYTES_MAX} bytes here; choose a shorter one")
    return text.strip()


HEADER_BYTES_MAX: Final = 249


def _factor(text: str) -> float:
    value = java_float(text)
    if not math.isfinite(value):
        raise ValueError("it must be a finite number")
    return value


_DEFAULTS: Final = {field.name: field.default for field in fields(ShareSettings)}


def _number(field: str, least: int, most: int, doc: str) -> GroupKey:
    return GroupKey(
        field=field, type_name="int", default=str(_DEFAULTS[field]), doc=doc, read=java_int, bounds=(least, most)
    )


def _boolean(field: str, doc: str) -> GroupKey:
    return GroupKey(
        field=field,
        type_name="boolean",
        default=str(_DEFAULTS[field]).lower(),
        doc=doc,
        read=java_boolean,
        written=lambda value: str(value).lower(),
    )


def _text(field: str, read: Callable[[str], str], doc: str) -> GroupKey:
    return GroupKey(field=field, type_name="string", default=str(_DEFAULTS[field]), doc=doc, read=read)


def _choice(field: str, off: str, on: str, doc: str) -> GroupKey:
    def written(value: bool) -> str:
        return on if value else off

    return GroupKey(
        field=field,
        type_name="string",
        default=written(bool(_DEFAULTS[field])),
        doc=doc,
        read=_one_of(off, on),
        written=written,
    )


SHARE_KEYS: Final[Mapping[str, GroupKey]] = {
    "share.session.timeout.ms": _number("session_timeout_ms", 45_000, 60_000, ""),
    "share.heartbeat.interval.ms": _number("heartbeat_interval_ms", 5_000, 15_000, ""),
    "share.assignment.interval.ms": _number("assignment_interval_ms", 0, 15_000, ""),
    "share.record.lock.duration.ms": _number("record_lock_duration_ms", 15_000, 60_000, ""),
    "share.delivery.count.limit": _number("delivery_count_limit", 2, 10, ""),
    "share.partition.max.record.locks": _number("partition_max_record_locks", 100, 4_000, ""),
    "share.auto.offset.reset": _text(
        "auto_offset_reset",
        _offset_reset,
        "Where a share group begins in a partition that it never read: latest, earliest, or by_duration: and how long ago "
        "(by_duration:PT1H).",
    ),
    "share.isolation.level": _choice(
        "is_read_committed",
        "read_uncommitted",
        "read_committed",
        "Whether a share group gets records of transactions only once they are committed.",
    ),
    "share.renew.acknowledge.enable": _boolean(
        "may_renew", "Whether members may prolong the lock of a record (KIP-1222)."
    ),
    "errors.deadletterqueue.topic.name": _text(
        "dead_letter_topic",
        _topic,
        "Where a share group's records go that are rejected or were delivered too often (KIP-1191); empty: nowhere.",
    ),
    "errors.deadletterqueue.copy.record.enable": _boolean(
        "copies_dead_records", "Whether a dead letter has the key and the value of its record."
    ),
    "errors.deadletterqueue.on.failure": _choice(
        "holds_on_dead_letter_failure",
        "archive",
        "hold",
        "What becomes of a record whose dead letter cannot be written (ours): hold keeps it and tries again, archive gives it up "
        "as Kafka does.",
    ),
    "share.retry.backoff.ms": _number(
        "retry_backoff_ms",
        0,
        7 * DAY_MS,
        "How long a released record waits for its next delivery, in ms (ours); 0: not at all.",
    ),
    "share.retry.backoff.factor": GroupKey(
        field="retry_backoff_factor",
        type_name="double",
        default="1.0",
        doc="By how much each further wait of a released record is longer than the last (ours).",
        read=_factor,
        bounds=(1.0, 10.0),
    ),
    "share.retry.backoff.max.ms": _number(
        "retry_backoff_max_ms", 0, 7 * DAY_MS, "Longest wait of a released record, in ms (ours)."
    ),
    "share.deliver.at.header": _text(
        "deliver_at_header",
        _header,
        "The header that says in ms since 1970 when a record is due for a share group (ours); empty: every record is at once.",
    ),
    "share.delayed.records.max": _number(
        "delayed_records_max",
        1,
        10_000,
        "Most records of a partition that may wait for their time in a share group (ours).",
    ),
}
"""By name. Those without a doc are the group's form of a node's key, group.NAME."""
