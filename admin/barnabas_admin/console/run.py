"""One step of a simulated run: what happened, what each node believed, and why the law held.

May touch:  its arguments.            Must not touch: the cluster, HTTP, templates.
Invariants: a page shows what the journal says and nothing else; the same step has the same address.
Read next:  barnabas_wire/run_journal.py, the journal; templates/sim.html.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from barnabas_admin.errors import WrongUsage
from barnabas_wire.run_journal import DETAILS, KINDS, Belief, Journal, Step

RECORDS_SHOWN = 12
"""Records at the end of the log, as boxes: the same offsets at every node."""
TIMELINE_UNITS = 1000
TONES = {
    "fault": "bad",
    "damage": "bad",
    "fence": "warn",
    "isr": "warn",
    "mended": "good",
    "unfence": "good",
    "operator": "operator",
}
"""The colours of marks in the time line; the others are quiet, elections and new leaders stand out."""
_CHANGES_SHOWN = tuple(field.name for field in fields(Belief) if field.name not in ("node", "life"))


def step_page(journal: Journal, query: Mapping[str, str]) -> dict[str, Any]:
    """The dictionary of `/sim`. `step`: its number, 1 where none is given; `all`: 1 goes through each record's steps too.

    Raises WrongUsage.
    """
    has_details = query.get("all") == "1"
    step = journal.steps[_number(query.get("step", "1"), len(journal.steps)) - 1]
    before = journal.steps[step.step - 2] if step.step > 1 else None
    shown = [each for each in journal.steps if has_details or each.kind not in DETAILS]
    return {
        "scenario": journal.scenario,
        "title": journal.title,
        "about": journal.about,
        "seed": journal.seed,
        "partition": journal.partition,
        "min_insync": journal.min_insync,
        "kept": journal.is_kept,
        "verdict": journal.verdict,
        "acknowledged": journal.acknowledged,
        "steps": len(journal.steps),
        "all": has_details,
        "step": step.step,
        "at_s": step.at_ms / 1000,
        "ends_s": journal.at_ms / 1000,
        "kind": step.kind,
        "kind_text": KINDS[step.kind],
        "node": step.node,
        "what": step.what,
        "law": step.law,
        "why": step.why,
        "cut": [list(link) for link in step.cut],
        "nodes": _nodes(step, before),
        "first": shown[0].step,
        "previous": max((each.step for each in shown if each.step < step.step), default=None),
        "next": min((each.step for each in shown if each.step > step.step), default=None),
        "last": shown[-1].step,
        "timeline": [_mark(each, journal) for each in shown],
        "now_x": _x(step, journal),
        "listed": [
            {"step": each.step, "at_s": each.at_ms / 1000, "kind": each.kind, "what": each.what} for each in shown
        ],
    }


def _number(text: str, count: int) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= count:
        raise WrongUsage(f"{text!r} is no step of this run", hint=f"it has the steps 1 to {count}")
    return int(text)


def _nodes(step: Step, before: Step | None) -> list[dict[str, Any]]:
    end = max((each.log_end for each in step.beliefs), default=0)
    window = range(max(0, end - RECORDS_SHOWN), max(0, end))
    former = {each.node: each for each in before.beliefs} if before is not None else {}
    return [
        asdict(each)
        | {
            "changed": [name for name in _CHANGES_SHOWN if _differs(each, former.get(each.node), name)],
            "records": [{"offset": offset, "state": _state(each, offset)} for offset in window],
            "cut_from": sorted(
                {other for link in step.cut if each.node in link for other in link if other != each.node}
            ),
        }
        for each in step.beliefs
    ]


def _differs(now: Belief, former: Belief | None, name: str) -> bool:
    return former is not None and getattr(now, name) != getattr(former, name)


def _state(belief: Belief, offset: int) -> str:
    """How safe a node takes the record at this offset to be."""
    if offset >= belief.log_end:
        return "missing"
    if offset < belief.high_watermark:
        return "committed"
    return "flushed" if offset < belief.flushed_end else "written"


def _x(step: Step, journal: Journal) -> int:
    return round(step.at_ms * TIMELINE_UNITS / max(1, journal.at_ms))


def _mark(step: Step, journal: Journal) -> dict[str, Any]:
    loud = "accent" if step.kind in ("elected", "leader", "voters") else "quiet"
    return {"step": step.step, "x": _x(step, journal), "tone": TONES.get(step.kind, loud), "what": step.what}
