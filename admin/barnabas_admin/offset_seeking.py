"""Where a group shall continue reading: what was asked for, and the offset of each partition that follows from it.

May touch:  its arguments.            Must not touch: the brokers, printing.
Invariants: an offset that is planned lies between log start and end; one that was asked for beyond them is clamped and marked.
Read next:  commands/group_offsets.py, which asks brokers and commits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import Enum

from barnabas_admin.errors import WrongUsage
from barnabas_admin.time_argument import parse_time
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.lazy_dataclass import dataclass


class Kind(Enum):
    """What a target counts from."""

    START = "start"
    END = "end"
    OFFSET = "offset"
    TIME = "time"
    SHIFT = "shift"


@dataclass(frozen=True, slots=True)
class Target:
    """Where to; `number` is an offset, a moment in ms, or how far to shift."""

    kind: Kind
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seek:
    """One partition's way."""

    partition: TopicPartition
    now: int | None
    """Committed; None for none."""
    to: int
    start: int
    end: int
    is_clamped: bool


def parse_target(text: str, *, now_ms: int) -> Target:
    """start, end, N, @WHEN, +N or -N (shift). Raises WrongUsage."""
    if text in ("start", "end"):
        return Target(Kind(text))
    if text[:1] == "@":
        return Target(Kind.TIME, parse_time(text[1:], now_ms=now_ms))
    if text[:1] in ("+", "-") and text[1:].isdigit():
        return Target(Kind.SHIFT, int(text))
    if text.isdigit():
        return Target(Kind.OFFSET, int(text))
    raise WrongUsage(f"{text!r} is no place to seek to", hint="use start, end, an offset, @WHEN, +N or -N")


def plan_seek(
    target: Target,
    *,
    committed: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    at_time: Mapping[TopicPartition, int],
) -> list[Seek]:
    """One entry for each partition of `starts`, in order. A partition without a committed offset shifts from its log start;
    where no record is as late as the moment, reading continues at the end (`at_time` lacks it, or is negative)."""
    plan = []
    for partition in sorted(starts):
        start, end, now = starts[partition], ends[partition], committed.get(partition)
        match target.kind:
            case Kind.START:
                wanted = start
            case Kind.END:
                wanted = end
            case Kind.OFFSET:
                wanted = target.number
            case Kind.SHIFT:
                wanted = (start if now is None else now) + target.number
            case Kind.TIME:
                found = at_time.get(partition, -1)
                wanted = found if found >= 0 else end
        plan.append(clamped(partition, wanted, now=now, start=start, end=end))
    return plan


def clamped(partition: TopicPartition, wanted: int, *, now: int | None, start: int, end: int) -> Seek:
    """A seek to what is wanted, or to the nearest offset that is there."""
    to = min(max(wanted, start), end)
    return Seek(partition=partition, now=now, to=to, start=start, end=end, is_clamped=to != wanted)


def parse_offsets_file(text: str) -> dict[TopicPartition, int]:
    """Lines `topic,partition,offset` as kafka-consumer-groups --export has them, with or without the group before, or what
    `barnabas group describe -o json` prints. Raises WrongUsage."""
    if text.lstrip().startswith("{"):
        try:
            rows = json.loads(text)["partitions"]
            return {
                TopicPartition(row["topic"], int(row["partition"])): int(row["committed"])
                for row in rows
                if row["committed"] is not None
            }
        except (ValueError, KeyError, TypeError) as error:
            raise WrongUsage(f"not the JSON of `barnabas group describe -o json`: {error!r}") from None
    found: dict[TopicPartition, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        fields = [field.strip().strip('"') for field in line.split(",")]
        if not line.strip():
            continue
        if len(fields) not in (3, 4) or not fields[-1].isdigit() or not fields[-2].isdigit():
            raise WrongUsage(f"line {number} is not topic,partition,offset: {line!r}")
        found[TopicPartition(fields[-3], int(fields[-2]))] = int(fields[-1])
    return found


def parse_partitions(texts: Iterable[str]) -> dict[str, list[int] | None]:
    """TOPIC or TOPIC:0,2 as topic -> partitions, None for all. Raises WrongUsage."""
    found: dict[str, list[int] | None] = {}
    for text in texts:
        topic, separator, indexes = text.rpartition(":")
        if not separator:
            found[text] = None
            continue
        if not topic or not all(index.isdigit() for index in indexes.split(",")):
            raise WrongUsage(f"{text!r} is not TOPIC or TOPIC:PARTITION,PARTITION")
        found[topic] = sorted({int(index) for index in indexes.split(",")})
    return found
