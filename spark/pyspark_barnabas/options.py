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

from barnabas_wire.client.metadata import parse_bootstrap

EARLIEST = -2
LATEST = -1
"""The sentinels of Kafka's ListOffsets, which stand in offset JSON too."""

OffsetSpec = int | dict[str, dict[int, int]]
"""EARLIEST or LATEST for every partition, or an offset (or sentinel) for each."""

KNOWN_OPTIONS = {
    "kafka.bootstrap.servers": "host:port of brokers, comma-separated",
    "subscribe": "topic names, comma-separated",
    "assign": 'JSON: {"topic":[0,1]}',
    "startingOffsets": 'earliest, latest, or JSON {"topic":{"0":23,"1":-2}}',
    "endingOffsets": 'latest, or JSON {"topic":{"0":50,"1":-1}}; batch only',
    "maxOffsetsPerTrigger": "most offsets of one micro-batch, shared among partitions by backlog; stream only",
    "failOnDataLoss": "true: fail when wanted offsets are gone; false: go on at what is left",
    "includeHeaders": "true adds the column headers",
    "kafkaConsumer.pollTimeoutMs": "longest wait for records that must be there, ms",
}
_CANONICAL = {name.lower(): name for name in KNOWN_OPTIONS}


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
        if name not in _CANONICAL:
            raise OptionError(_unknown(name))
    topics, assigned = _topics(given)
    if is_stream and "endingoffsets" in given:
        raise OptionError("endingOffsets is for batch reads: a stream has no end, use trigger(availableNow=True)")
    if not is_stream and "maxoffsetspertrigger" in given:
        raise OptionError("maxOffsetsPerTrigger is for streams: bound a batch read with endingOffsets")
    starting = _offsets(given.get("startingoffsets", "latest" if is_stream else "earliest"), "startingOffsets")
    if not is_stream and (starting == LATEST or _has(starting, LATEST)):
        raise OptionError("startingOffsets=latest would read nothing in a batch: use earliest or offsets")
    ending = _offsets(given.get("endingoffsets", "latest"), "endingOffsets")
    if ending == EARLIEST or _has(ending, EARLIEST):
        raise OptionError("endingOffsets=earliest would read nothing: use latest or offsets")
    limit = given.get("maxoffsetspertrigger")
    return SourceOptions(
        bootstrap_servers=_servers(given.get("kafka.bootstrap.servers", "")),
        topics=topics,
        assigned=assigned,
        starting_offsets=starting,
        ending_offsets=ending,
        max_offsets_per_trigger=None if limit is None else _number(limit, "maxOffsetsPerTrigger", least=1),
        is_data_loss_fatal=_flag(given.get("failondataloss", "true"), "failOnDataLoss"),
        includes_headers=includes_headers(given),
        poll_timeout_ms=_number(
            given.get("kafkaconsumer.polltimeoutms", "120000"), "kafkaConsumer.pollTimeoutMs", least=1
        ),
    )


def includes_headers(options: Mapping[str, str]) -> bool:
    """Whether the column headers is wanted, which decides the schema before anything else is looked at."""
    found = {name.lower(): value for name, value in options.items()}.get("includeheaders", "false")
    return _flag(found, "includeHeaders")


def _unknown(name: str) -> str:
    if name == "path":
        return 'load() takes no path: name the topics with .option("subscribe", "topic")'
    near = difflib.get_close_matches(name, _CANONICAL, n=1)
    if near:
        return f"option {name} is not known to format barnabas; did you mean {_CANONICAL[near[0]]}?"
    return f"option {name} is not known to format barnabas; leave it out. Known are: {', '.join(KNOWN_OPTIONS)}"


def _servers(text: str) -> tuple[str, ...]:
    servers = tuple(part.strip() for part in text.split(",") if part.strip())
    if not servers:
        raise OptionError('say where the brokers are: .option("kafka.bootstrap.servers", "host:port")')
    try:
        parse_bootstrap(servers)
    except ValueError as error:
        raise OptionError(f"kafka.bootstrap.servers={text}: {error}, write host:port,host:port") from None
    return servers


def _topics(given: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, tuple[int, ...]] | None]:
    if ("subscribe" in given) == ("assign" in given):
        raise OptionError(
            'say what to read with exactly one of .option("subscribe", "topic") and .option("assign", JSON)'
        )
    if "subscribe" in given:
        topics = tuple(dict.fromkeys(part.strip() for part in given["subscribe"].split(",") if part.strip()))
        if not topics:
            raise OptionError('subscribe names no topic: write .option("subscribe", "topic,other")')
        return topics, None
    parsed = _json(given["assign"], "assign", 'write {"topic":[0,1]}')
    if not isinstance(parsed, dict) or not all(_are_numbers(partitions) for partitions in parsed.values()):
        raise OptionError(f'assign={given["assign"]}: write {{"topic":[0,1]}}')
    assigned = {topic: tuple(sorted(set(partitions))) for topic, partitions in parsed.items()}
    if not assigned or not all(assigned.values()):
        raise OptionError('assign names no partition: write {"topic":[0,1]}, or subscribe for all partitions')
    return tuple(sorted(assigned)), assigned


def _offsets(text: str, name: str) -> OffsetSpec:
    if text.strip().lower() == "earliest":
        return EARLIEST
    if text.strip().lower() == "latest":
        return LATEST
    fix = 'write {"topic":{"0":23}}, earliest or latest'
    parsed = _json(text, name, fix)
    if not isinstance(parsed, dict) or not all(
        isinstance(parts, dict) and _are_numbers(list(parts.values())) and all(index.isdecimal() for index in parts)
        for parts in parsed.values()
    ):
        raise OptionError(f"{name}={text}: {fix}")
    offsets = {topic: {int(index): at for index, at in parts.items()} for topic, parts in parsed.items()}
    if any(at < EARLIEST for parts in offsets.values() for at in parts.values()):
        raise OptionError(f"{name}={text}: offsets are 0 or greater, -1 for latest, -2 for earliest")
    return offsets


def _json(text: str, name: str, fix: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f"{name}={text} is not JSON ({error}): {fix}") from None


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int for value in values)


def _has(spec: OffsetSpec, sentinel: int) -> bool:
    return isinstance(spec, dict) and any(at == sentinel for parts in spec.values() for at in parts.values())


def _number(text: str, name: str, *, least: int) -> int:
    if not text.strip().isdecimal() or int(text) < least:
        raise OptionError(f"{name}={text}: write a whole number, at least {least}")
    return int(text)


def _flag(text: str, name: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise OptionError(f"{name}={text}: write true or false")
    return text.strip().lower() == "true"
