"""The options of the source, read and checked once, in the planner.

May touch:  its arguments.            Must not touch: sockets, Spark.
Invariants: names and meanings are those of Spark's Kafka source; an option nobody knows is refused with the nearest known
    one; a refusal says what to write instead.
Read next:  offsets.py.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

EARLIEST = -2
LATEST = -1
"""The sentinels of Kafka's ListOffsets, which stand in offset JSON too."""

OffsetSpec = int | dict[str, dict[int, int]]
"""EARLIEST or LATEST for every partition, or an offset (or sentinel) for each."""

KNOWN_OPTIONS = {
    "kafka.bootstrap.servers": "host:port of brokers, comma-separated",
    "subscribe": "topic names, comma-separated",
    "assign": 'JSON: {"topic":[0,1]}',
    "startingoffsets": 'earliest, latest, or JSON {"topic":{"0":23,"1":-2}}',
    "endingoffsets": 'latest, or JSON {"topic":{"0":50,"1":-1}}; batch only',
    "maxoffsetspertrigger": "most offsets of one micro-batch, shared among partitions by backlog",
    "failondataloss": "true: fail when wanted offsets are gone; false: go on at what is left",
    "includeheaders": "true adds the column headers",
    "kafkaconsumer.polltimeoutms": "longest wait for records that must be there, ms",
}


class OptionError(ValueError):
    """An option that cannot be used; the message says what to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Everything the source takes from `.option(...)`."""

    bootstrap_servers: tuple[str, ...]
    topics: tuple[str, ...]
    assigned: dict[str, tuple[int, ...]] | None
    """Partitions of each topic where `assign` was given; None means all partitions of `topics`."""
    starting_offsets: OffsetSpec
    ending_offsets: OffsetSpec
    max_offsets_per_trigger: int | None
    is_data_loss_fatal: bool
    includes_headers: bool
    poll_timeout_ms: int


def parse_options(options: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """Check the options of a batch or stream read; raises OptionError naming the option and the fix."""
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name not in KNOWN_OPTIONS and name != "path":
            near = difflib.get_close_matches(name, KNOWN_OPTIONS, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(sorted(KNOWN_OPTIONS))}"
            raise OptionError(f"option {name} is not known to format barnabas{hint}")
    servers = tuple(part.strip() for part in given.get("kafka.bootstrap.servers", "").split(",") if part.strip())
    if not servers:
        raise OptionError('say where the brokers are: .option("kafka.bootstrap.servers", "host:port")')
    topics, assigned = _topics(given)
    if is_stream and "endingoffsets" in given:
        raise OptionError("endingOffsets is for batch reads: a stream has no end, use trigger(availableNow=True)")
    starting = _offsets(given.get("startingoffsets", "latest" if is_stream else "earliest"), "startingOffsets")
    if not is_stream and (starting == LATEST or _has(starting, LATEST)):
        raise OptionError("startingOffsets=latest would read nothing in a batch: use earliest or offsets")
    ending = _offsets(given.get("endingoffsets", "latest"), "endingOffsets")
    if ending == EARLIEST or _has(ending, EARLIEST):
        raise OptionError("endingOffsets=earliest would read nothing: use latest or offsets")
    limit = given.get("maxoffsetspertrigger")
    return SourceOptions(
        bootstrap_servers=servers,
        topics=topics,
        assigned=assigned,
        starting_offsets=starting,
        ending_offsets=ending,
        max_offsets_per_trigger=None if limit is None else _number(limit, "maxOffsetsPerTrigger", least=1),
        is_data_loss_fatal=_flag(given.get("failondataloss", "true"), "failOnDataLoss"),
        includes_headers=_flag(given.get("includeheaders", "false"), "includeHeaders"),
        poll_timeout_ms=_number(
            given.get("kafkaconsumer.polltimeoutms", "120000"), "kafkaConsumer.pollTimeoutMs", least=1
        ),
    )


def _topics(given: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, tuple[int, ...]] | None]:
    if ("subscribe" in given) == ("assign" in given):
        raise OptionError(
            'say what to read with exactly one of .option("subscribe", "topic") and .option("assign", JSON)'
        )
    if "subscribe" in given:
        topics = tuple(part.strip() for part in given["subscribe"].split(",") if part.strip())
        if not topics:
            raise OptionError("subscribe names no topic")
        return topics, None
    parsed = _json(given["assign"], "assign")
    try:
        assigned = {
            str(topic): tuple(sorted(int(index) for index in partitions)) for topic, partitions in parsed.items()
        }
    except (TypeError, ValueError, AttributeError):
        raise OptionError(f'assign={given["assign"]}: write {{"topic":[0,1]}}') from None
    if not assigned or not all(assigned.values()):
        raise OptionError("assign names no partition")
    return tuple(sorted(assigned)), assigned


def _offsets(text: str, name: str) -> OffsetSpec:
    if text.strip().lower() == "earliest":
        return EARLIEST
    if text.strip().lower() == "latest":
        return LATEST
    parsed = _json(text, name)
    try:
        offsets = {
            str(topic): {int(index): int(offset) for index, offset in partitions.items()}
            for topic, partitions in parsed.items()
        }
    except (TypeError, ValueError, AttributeError):
        raise OptionError(f'{name}={text}: write {{"topic":{{"0":23}}}}, earliest or latest') from None
    if any(offset < EARLIEST for partitions in offsets.values() for offset in partitions.values()):
        raise OptionError(f"{name}={text}: offsets are 0 or greater, -1 for latest, -2 for earliest")
    return offsets


def _json(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f"{name}={text} is not JSON: {error}") from None


def _has(spec: OffsetSpec, sentinel: int) -> bool:
    return isinstance(spec, dict) and any(offset == sentinel for parts in spec.values() for offset in parts.values())


def _number(text: str, name: str, *, least: int) -> int:
    if not text.strip().isdigit() or int(text) < least:
        raise OptionError(f"{name}={text}: write a whole number, at least {least}")
    return int(text)


def _flag(text: str, name: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise OptionError(f"{name}={text}: write true or false")
    return text.strip().lower() == "true"
