"""The journal of a simulated run: what happened, what each node believed then, and why the laws held. JSON lines.

May touch:  its arguments.            Must not touch: files, clocks, the simulation.
Invariants: one journal has one text, byte for byte; nothing is read that is longer than the bounds below, or unknown.
Read next:  broker/barnabas_simulation/scripted.py, which writes it; admin/barnabas_admin/console/run.py, which shows it.

Layout: each line is one JSON object, without blanks, keys in the order of these classes, UTF-8.
    first line    {"journal": 1, "scenario", "title", "about", "seed", "nodes", "min_insync", "partition"}
    steps         {"step", "at_ms", "kind", "node", "what", "law", "why", "cut", "beliefs"}
    last line     {"end": "kept" | "broken", "at_ms", "acknowledged", "verdict"}
A step is what changed in one turn of the event loop; `beliefs` is what every node believed after it, whether it is true or not. A file
without its last line was cut off and is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any, Final

from barnabas_wire.lazy_dataclass import dataclass

VERSION: Final = 1
BYTES_MAX: Final = 16 << 20
STEPS_MAX: Final = 5_000
NODES_MAX: Final = 9
TEXT_CHARS_MAX: Final = 2_000
KINDS: Final = {
    "fault": "something breaks",
    "mended": "something works again",
    "operator": "what an operator does",
    "role": "a node takes another role in the quorum, or of the partition",
    "vote": "a voter votes",
    "elected": "a leader of the quorum",
    "leader": "the controller names a leader of the partition",
    "isr": "the controller changes the in-sync set",
    "fence": "the controller fences a broker",
    "unfence": "the controller lets a broker serve again",
    "voters": "the set of voters changes",
    "append": "a replica writes records",
    "committed": "a high watermark moves",
    "acknowledged": "the client learns that its records are kept",
    "damage": "a replica finds rotten bytes, or has got them again",
}
"""The kinds of steps."""
DETAILS: Final = frozenset({"append", "committed", "acknowledged"})
"""Kinds of which a run has many: the life of each record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """What one node believes. A node that is down believes nothing: its numbers are -1, its lists empty."""

    node: int
    is_up: bool
    life: int
    """Counts its starts and its deaths."""
    role: str
    """In the quorum: leader, follower, candidate, prospective, unattached, resigned; observer where it does not vote."""
    epoch: int
    """The quorum's epoch."""
    leader: int
    """The quorum's leader, as it knows; -1: none."""
    voted: int
    """For whom in this epoch; -1: nobody."""
    voters: tuple[int, ...]
    metadata_end: int
    """One past the last record of its metadata log."""
    metadata_committed: int
    fenced: tuple[int, ...]
    """Brokers that its image of the cluster takes for fenced."""
    partition_role: str
    """leader or follower of the partition; none where it holds no replica."""
    leader_epoch: int
    partition_leader: int
    """As its image has it; -1: none."""
    log_end: int
    """LEO: one past the last record of its replica."""
    flushed_end: int
    """How far of these is on its disk for certain."""
    high_watermark: int
    isr: tuple[int, ...]
    """A leader's own, elsewhere the image's."""
    is_damaged: bool
    """Whether it knows of rot in its replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that happened."""

    step: int
    """From 1."""
    at_ms: int
    """Virtual time since the start."""
    kind: str
    """One of KINDS."""
    node: int
    """Whom it happened to; 0: nobody alone."""
    what: str
    law: str
    why: str
    """Why the law holds here."""
    cut: tuple[tuple[int, int], ...]
    """Links that are closed, or on which a follower's fetches alone are lost: from, to."""
    beliefs: tuple[Belief, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """A whole run."""

    scenario: str
    title: str
    about: str
    seed: int
    nodes: tuple[int, ...]
    min_insync: int
    partition: str
    steps: tuple[Step, ...]
    is_kept: bool
    """Whether every law held to the end."""
    at_ms: int
    acknowledged: int
    verdict: str

    def lines(self) -> Iterator[str]:
        """The text, line by line, without line ends."""
        yield _line(
            {
                "journal": VERSION,
                "scenario": self.scenario,
                "title": self.title,
                "about": self.about,
                "seed": self.seed,
                "nodes": self.nodes,
                "min_insync": self.min_insync,
                "partition": self.partition,
            }
        )
        for step in self.steps:
            yield _line(asdict(step))
        yield _line(
            {
                "end": "kept" if self.is_kept else "broken",
                "at_ms": self.at_ms,
                "acknowledged": self.acknowledged,
                "verdict": self.verdict,
            }
        )


class NotAJournal(ValueError):
    """The text is no journal, or one of another version; says in which line, and what to do."""


def read_journal(text: bytes) -> Journal:
    """Read what `Journal.lines` gave, with or without a line end after the last.

    Raises NotAJournal.
    """
    if len(text) > BYTES_MAX:
        raise NotAJournal(f"it has {len(text):,} bytes; a journal has at most {BYTES_MAX:,}")
    lines = text.removesuffix(b"\n").split(b"\n")
    if len(lines) > STEPS_MAX + 2:
        raise NotAJournal(f"it has {len(lines):,} lines; a journal has at most {STEPS_MAX + 2:,}")
    head = _object(lines[0], 1)
    if "journal" not in head:
        raise NotAJournal("line 1: this is no journal; make one with `barnabas-server sim --scenario NAME --out FILE`")
    if head["journal"] != VERSION:
        raise NotAJournal(
            f"line 1: the journal has version {head['journal']!r}, this release reads {VERSION}: make it anew"
        )
    if len(lines) < 2 or "end" not in (end := _object(lines[-1], len(lines))):
        raise NotAJournal(f"line {len(lines)}: the journal was cut off before its last line: make it anew")
    try:
        nodes = _numbers(head["nodes"], NODES_MAX)
        steps = []
        for number, line in enumerate(lines[1:-1], start=2):
            steps.append(_step(_object(line, number), number, nodes))
            if steps[-1].step != len(steps):
                raise NotAJournal(f"line {number}: step {len(steps)} is missing")
        number = len(lines)
        return Journal(
            scenario=_text(head["scenario"]),
            title=_text(head["title"]),
            about=_text(head["about"]),
            seed=_number(head["seed"]),
            nodes=nodes,
            min_insync=_number(head["min_insync"]),
            partition=_text(head["partition"]),
            steps=tuple(steps),
            is_kept=end["end"] == "kept",
            at_ms=_number(end["at_ms"]),
            acknowledged=_number(end["acknowledged"]),
            verdict=_text(end["verdict"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, NotAJournal):
            raise
        raise NotAJournal(f"the first or the last line is damaged ({error}): make the journal anew") from None


def _step(found: Mapping[str, Any], number: int, nodes: tuple[int, ...]) -> Step:
    try:
        beliefs = tuple(_belief(each) for each in _list(found["beliefs"], NODES_MAX))
        if tuple(each.node for each in beliefs) != nodes:
            raise ValueError("the nodes are not those of the first line")
        kind = _text(found["kind"])
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is no kind of step")
        return Step(
            step=_number(found["step"]),
            at_ms=_number(found["at_ms"]),
            kind=kind,
            node=_number(found["node"]),
            what=_text(found["what"]),
            law=_text(found["law"]),
            why=_text(found["why"]),
            cut=tuple((_number(a), _number(b)) for a, b in _list(found["cut"], NODES_MAX**2)),
            beliefs=beliefs,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise NotAJournal(f"line {number}: this is no step of a journal ({error}): make it anew") from None


def _belief(found: Mapping[str, Any]) -> Belief:
    readers: dict[str, Callable[[Any], Any]] = {"int": _number, "str": _text, "bool": _truth}
    values: dict[str, Any] = {}
    for field in fields(Belief):
        read = readers.get(str(field.type))
        value = found[field.name]
        values[field.name] = _numbers(value, NODES_MAX) if read is None else read(value)
    return Belief(**values)


def _line(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def _object(line: bytes, number: int) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise NotAJournal(
            f"line {number}: this is no JSON object; a journal is made by `barnabas-server sim --out FILE`"
        )
    return found


def _list(value: Any, length_max: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > length_max:
        raise ValueError(f"a list of at most {length_max} is wanted")
    return value


def _numbers(value: Any, length_max: int) -> tuple[int, ...]:
    return tuple(_number(each) for each in _list(value, length_max))


def _number(value: Any) -> int:
    if type(value) is not int or not -1 <= value < 1 << 63:
        raise ValueError(f"{value!r} is no number of a journal")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > TEXT_CHARS_MAX:
        raise ValueError(f"a text of at most {TEXT_CHARS_MAX:,} characters is wanted")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value
