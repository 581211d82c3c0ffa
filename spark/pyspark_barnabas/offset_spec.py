"""Where a read begins and ends, as options say it. Pure.

May touch:  its arguments.            Must not touch: sockets, Spark, the clock.
Invariants: of several options the most precise wins, as in Spark's Kafka source: one timestamp, then timestamps by partition,
    then offsets; a refusal says what to write instead.
Read next:  resolution.py, which asks the cluster what a spec means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark_barnabas.kafka_properties import OptionError, whole_number

EARLIEST = -2
LATEST = -1
"""The sentinels of Kafka's ListOffsets, which stand in offset JSON too."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time, in ms since 1970, in every partition."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The same with a time for each partition."""

    timestamps_ms: Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class Ago:
    """The first record of the last so many ms, as seen when the query begins; the end where there is none."""

    milliseconds: int


@dataclass(frozen=True, slots=True)
class Last:
    """So many offsets before the end of each partition, or its start."""

    offsets: int


@dataclass(frozen=True, slots=True)
class Committed:
    """What the group kafka.group.id has committed; the earliest where it has nothing."""


OffsetSpec = int | dict[str, dict[int, int]] | AtTime | AtTimes | Ago | Last | Committed
"""EARLIEST or LATEST for every partition, an offset (or sentinel) for each, or one of the others."""

_AGO = re.compile(r"-\s*(\d+)\s*([a-z]+)")
_UNITS_MS = {
    "ms": 1,
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}


def starting_spec(given: Mapping[str, str], *, is_stream: bool) -> tuple[OffsetSpec, str]:
    """(spec, the option it comes from) of where to begin; names are in lower case. Raises OptionError."""
    if "startingtimestamp" in given:
        return AtTime(whole_number(given["startingtimestamp"], "startingTimestamp", least=0)), "startingTimestamp"
    if "startingoffsetsbytimestamp" in given:
        return _times(given["startingoffsetsbytimestamp"], "startingOffsetsByTimestamp"), "startingOffsetsByTimestamp"
    text = given.get("startingoffsets", "latest" if is_stream else "earliest").strip()
    spec = _relative(text)
    if spec is None:
        fix = 'write {"topic":{"0":23}}, earliest, latest, group, "-10 minutes" or -100'
        spec = _offsets(text, "startingOffsets", fix)
    if not is_stream and (spec == LATEST or _has(spec, LATEST)):
        raise OptionError("startingOffsets=latest would read nothing in a batch: use earliest or offsets")
    return spec, "startingOffsets"


def ending_spec(given: Mapping[str, str]) -> tuple[OffsetSpec, str]:
    """(spec, the option it comes from) of where a batch ends. Raises OptionError."""
    if "endingtimestamp" in given:
        return AtTime(whole_number(given["endingtimestamp"], "endingTimestamp", least=0)), "endingTimestamp"
    if "endingoffsetsbytimestamp" in given:
        return _times(given["endingoffsetsbytimestamp"], "endingOffsetsByTimestamp"), "endingOffsetsByTimestamp"
    spec = _offsets(given.get("endingoffsets", "latest"), "endingOffsets", 'write {"topic":{"0":23}} or latest')
    if spec == EARLIEST or _has(spec, EARLIEST):
        raise OptionError("endingOffsets=earliest would read nothing: use latest or offsets")
    return spec, "endingOffsets"


def duration_ms(text: str, name: str) -> int:
    """`15m`, `90 seconds`, `500ms` as milliseconds. Raises OptionError."""
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]+)\s*", text.lower())
    unit = None if match is None else _unit_ms(match[2])
    if match is None or unit is None:
        raise OptionError(f"{name}={text}: write a number and a unit, such as 15m, 90 seconds or 500ms")
    return int(match[1]) * unit


def parse_json(text: str, name: str, fix: str) -> Any:
    """The value of an option that is JSON. Raises OptionError."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f"{name}={text} is not JSON ({error}): {fix}") from None


def _relative(text: str) -> OffsetSpec | None:
    if text.lower() == "group":
        return Committed()
    if re.fullmatch(r"-\d+", text):
        return Last(int(text[1:]))
    match = _AGO.fullmatch(text.lower())
    if match is None:
        return None
    unit = _unit_ms(match[2])
    if unit is None:
        raise OptionError(
            f'startingOffsets={text}: {match[2]} is no unit of time; write "-10 minutes", "-2 hours" or "-1 day"'
        )
    return Ago(int(match[1]) * unit)


def _unit_ms(word: str) -> int | None:
    short = {
        "s": "second",
        "m": "minute",
        "h": "hour",
        "d": "day",
        "w": "week",
        "min": "minute",
        "mins": "minute",
        "sec": "second",
    }
    word = short.get(word, word)
    return _UNITS_MS.get(word, _UNITS_MS.get(word.removesuffix("s")))


def _offsets(text: str, name: str, fix: str) -> OffsetSpec:
    if text.strip().lower() in ("earliest", "latest"):
        return EARLIEST if text.strip().lower() == "earliest" else LATEST
    offsets = _by_partition(text, name, fix)
    if any(at < EARLIEST for parts in offsets.values() for at in parts.values()):
        raise OptionError(f"{name}={text}: offsets are 0 or greater, -1 for latest, -2 for earliest")
    return offsets


def _times(text: str, name: str) -> AtTimes:
    times = _by_partition(text, name, 'write {"topic":{"0":1700000000000}}, in ms since 1970')
    if any(at < 0 for parts in times.values() for at in parts.values()):
        raise OptionError(f"{name}={text}: a time is ms since 1970, 0 or greater")
    return AtTimes(times)


def _by_partition(text: str, name: str, fix: str) -> dict[str, dict[int, int]]:
    parsed = parse_json(text, name, fix)
    if not isinstance(parsed, dict) or not all(
        isinstance(parts, dict) and are_numbers(list(parts.values())) and all(index.isdecimal() for index in parts)
        for parts in parsed.values()
    ):
        raise OptionError(f"{name}={text}: {fix}")
    return {topic: {int(index): at for index, at in parts.items()} for topic, parts in parsed.items()}


def are_numbers(values: Any) -> bool:
    """Whether parsed JSON is a list of whole numbers."""
    return isinstance(values, list) and all(type(value) is int for value in values)


def _has(spec: OffsetSpec, sentinel: int) -> bool:
    return isinstance(spec, dict) and any(at == sentinel for parts in spec.values() for at in parts.values())
