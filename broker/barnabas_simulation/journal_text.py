"""A journal as text: a table of what happened, and one step with all that was believed then.

May touch:  its arguments.            Must not touch: the terminal, the simulation.
Invariants: nothing is shown that the journal does not say.
Read next:  command.py, which prints it; barnabas_wire/run_journal.py.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from barnabas_wire.run_journal import DETAILS, KINDS, Belief, Journal, Step

CELL_CHARS = 26
WHAT_CHARS_MIN = 44
DOWN = "down"
UNKNOWN = "–"


def overview(journal: Journal, *, width: int, has_details: bool, has_reasons: bool) -> Iterator[str]:
    """The whole run. width: of the terminal, in characters. has_details: every record too. has_reasons: why the laws held."""
    yield from _head(journal, width)
    what_chars = width - 18 - CELL_CHARS * len(journal.nodes)
    has_cells = what_chars >= WHAT_CHARS_MIN
    if not has_cells:
        what_chars = width - 18
    title = f"{'step':>5} {'seconds':>9}  {'what happened':{what_chars}}"
    if has_cells:
        yield "each node: place in the quorum and epoch, then place in the partition: end of its log/committed"
        title += "".join(f"  {f'node {node}':{CELL_CHARS - 2}}" for node in journal.nodes)
    yield ""
    yield title.rstrip()
    for is_detail, group in groupby(journal.steps, lambda step: step.kind in DETAILS):
        steps = list(group)
        if is_detail and not has_details:
            yield f"{'':17}{_records_between(steps)}"
            continue
        for step in steps:
            lines = textwrap.wrap(step.what, what_chars)
            cells = "".join(f"  {_cell(each):{CELL_CHARS - 2}}" for each in step.beliefs) if has_cells else ""
            yield f"{step.step:5} {step.at_ms / 1000:9.3f}  {lines[0]:{what_chars}}{cells}".rstrip()
            yield from (f"{'':17}{line}" for line in lines[1:])
            if has_reasons:
                yield from textwrap.wrap(
                    f"{step.law}. {step.why}", width, initial_indent=" " * 19, subsequent_indent=" " * 19
                )
    yield ""
    yield from textwrap.wrap(f"{'kept' if journal.is_kept else 'BROKEN'}: {journal.verdict}", width)


def one_step(journal: Journal, step: Step, *, width: int) -> Iterator[str]:
    """All that the journal says of one step."""
    yield f"step {step.step} of {len(journal.steps)}, {step.at_ms / 1000:.3f} s, {KINDS[step.kind]}"
    yield ""
    yield from textwrap.wrap(step.what, width, initial_indent="  ", subsequent_indent="  ")
    yield ""
    rows = [("", *(f"node {each.node}" for each in step.beliefs))]
    rows += [(name, *(show(each) for each in step.beliefs)) for name, show in _ROWS]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(f"{cell:{size}}" for cell, size in zip(row, widths, strict=True)).rstrip()
    if step.cut:
        yield ""
        yield "  cut: " + ", ".join(f"{source} → {target}" for source, target in step.cut)
    yield ""
    yield from textwrap.wrap(
        f"{step.law}. {step.why}", width, initial_indent="  why it holds: ", subsequent_indent="    "
    )


def _head(journal: Journal, width: int) -> Iterator[str]:
    yield from textwrap.wrap(f"{journal.title}: scenario {journal.scenario}, seed {journal.seed}", width)
    yield from textwrap.wrap(
        f"{len(journal.nodes)} nodes, {journal.partition} with min.insync.replicas {journal.min_insync}, "
        f"{journal.at_ms / 1000:.1f} virtual seconds, {len(journal.steps)} steps",
        width,
    )
    yield ""
    yield from textwrap.wrap(journal.about, width)
    yield ""


def _records_between(steps: Sequence[Step]) -> str:
    acknowledged = sum(step.kind == "acknowledged" for step in steps)
    end = max(each.high_watermark for each in steps[-1].beliefs)
    count = "1 step" if len(steps) == 1 else f"{len(steps)} steps"
    answers = "1 acknowledgement" if acknowledged == 1 else f"{acknowledged} acknowledgements"
    return f"· {count} of records: {answers}, {max(end, 0)} committed"


def _cell(belief: Belief) -> str:
    if not belief.is_up:
        return DOWN
    place = f"{belief.role} {belief.epoch}"
    if belief.partition_role == "none":
        return place
    leads = "leads " if belief.partition_role == "leader" else ""
    return f"{place}, {leads}{belief.log_end}/{belief.high_watermark}{' rot' if belief.is_damaged else ''}"


def _number(value: int) -> str:
    return UNKNOWN if value < 0 else str(value)


def _set(members: Sequence[int]) -> str:
    return ",".join(map(str, members)) or UNKNOWN


_ROWS: tuple[tuple[str, Callable[[Belief], str]], ...] = (
    ("quorum: role", lambda each: each.role if each.is_up else DOWN),
    ("  epoch", lambda each: _number(each.epoch)),
    ("  leader", lambda each: _number(each.leader)),
    ("  voted for", lambda each: _number(each.voted)),
    ("  voters", lambda each: _set(each.voters)),
    ("  log end / committed", lambda each: f"{_number(each.metadata_end)} / {_number(each.metadata_committed)}"),
    ("  fenced brokers", lambda each: _set(each.fenced)),
    ("partition: role", lambda each: each.partition_role if each.is_up else DOWN),
    ("  leader epoch", lambda each: _number(each.leader_epoch)),
    ("  leader", lambda each: _number(each.partition_leader)),
    ("  log end / on disk", lambda each: f"{_number(each.log_end)} / {_number(each.flushed_end)}"),
    ("  high watermark", lambda each: _number(each.high_watermark)),
    ("  in-sync set", lambda each: _set(each.isr)),
    ("  damaged", lambda each: "yes" if each.is_damaged else "no" if each.is_up else UNKNOWN),
)
