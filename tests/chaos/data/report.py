"""What a scenario found: its figures and every law that was broken, as a line of a table and for a machine.

May touch:  its arguments.            Must not touch: processes, clocks.
Invariants: a run whose load was too thin, or whose fault did not bite, is void and no pass.
Read next:  tests/checker/data_rules.py.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.checker.data_history import FAIL, INFO, OK, History
from tests.checker.data_rules import Finding, errors
from tests.checker.share_events import RENEWED
from tests.checker.transaction_rules import late_ends

SHOWN_PER_RULE = 4
COLUMNS = (
    ("scenario", 16),
    ("nodes", 6),
    ("faults", 6),
    ("ops", 8),
    ("ops/s", 6),
    ("acked", 7),
    ("lost", 5),
    ("doubled", 8),
    ("reordered", 9),
    ("gap s", 6),
    ("in sync s", 9),
    ("txns", 6),
    ("late ends", 9),
    ("settled", 7),
    ("verdict", 0),
)


@dataclass(slots=True)
class Figures:
    """What was measured. Times in s."""

    operations: int
    steady_per_s: float
    """Operations a second before the first fault."""
    acknowledged: int
    refused: int
    unknown: int
    longest_gap_s: float
    """The longest time without any acknowledged record between the first fault and the end of the load."""
    in_sync_s: float
    """From the last fault undone until all replicas were in sync."""
    committed: int
    """Transactions whose commit was acknowledged."""
    aborted: int
    undecided: int
    """Transactions whose commit was asked for and never answered."""
    late_ends: int
    """EndTxn requests that came to their broker in a later transaction."""
    settled: int
    """Records that members of the share group acknowledged, and were told so."""
    renewed: int
    """Locks of records that were renewed, and answered so."""
    dead_letters: int


@dataclass(slots=True)
class Report:
    """One scenario's end."""

    scenario: str
    seed: int
    budget_s: float
    nodes: str
    faults: int
    figures: Figures
    findings: list[Finding]
    notes: list[str]
    took_s: float
    void: str = ""

    @property
    def is_clean(self) -> bool:
        """Nothing broken, and the run was worth something."""
        return not errors(self.findings) and not self.void

    @property
    def verdict(self) -> str:
        """In one word or a few."""
        counts = Counter(finding.rule for finding in errors(self.findings))
        said = [f"{rule} ×{count}" for rule, count in counts.items()]
        if self.void:
            said.append(f"void: {self.void}")
        return "clean" if not said else ("BROKEN: " if counts else "") + ", ".join(said)

    def row(self) -> str:
        """One line of the table."""
        count = Counter(finding.rule for finding in self.findings)
        figures = self.figures
        cells = (
            self.scenario,
            self.nodes,
            self.faults,
            figures.operations,
            f"{figures.steady_per_s:.0f}",
            figures.acknowledged,
            count["E1"] + count["E10"],
            f"{count['E2']} ({count['E2r']})",
            count["E7"],
            f"{figures.longest_gap_s:.1f}",
            f"{figures.in_sync_s:.1f}",
            figures.committed,
            figures.late_ends,
            figures.settled,
            self.verdict,
        )
        return _line(cells)

    def details(self) -> list[str]:
        """What stands behind the line: what was done, and some of each law's breaks."""
        lines = [f"  {note}" for note in self.notes]
        shown: Counter[str] = Counter()
        for finding in self.findings:
            shown[finding.rule] += 1
            if shown[finding.rule] <= SHOWN_PER_RULE:
                lines.append(f"  {finding.rule:<4} {finding.what}")
        return lines

    def replay(self) -> str:
        """The command that does the same again."""
        return f"make chaos-data SCENARIOS={self.scenario} SEED={self.seed} BUDGET={self.budget_s:g}"

    def as_json(self) -> dict[str, Any]:
        """Everything, for a machine."""
        return {
            "scenario": self.scenario,
            "seed": self.seed,
            "budget_s": self.budget_s,
            "nodes": self.nodes,
            "is_clean": self.is_clean,
            "verdict": self.verdict,
            "seconds": round(self.took_s, 1),
            "faults": self.faults,
            "figures": asdict(self.figures),
            "findings": [finding._asdict() for finding in self.findings],
            "notes": self.notes,
            "void": self.void,
            "replay": self.replay(),
        }


def header() -> str:
    """The table's first line."""
    return _line([name for name, _ in COLUMNS])


def measure(history: History, *, steady: tuple[float, float], in_sync_s: float) -> Figures:
    """Figures of a history.

    Args:
        history: of the whole run.
        steady: begin and end of the time before the first fault (monotonic s).
        in_sync_s: from the last fault undone until all replicas were in sync.
    """
    begin, fault = steady
    ended = [event.ended for event in history.sends if event.outcome == OK]
    ended += [event.ended for event in history.polls if event.records]
    ended += [event.ended for event in history.commits if event.outcome == OK]
    ended += [event.ended for event in history.deletions if event.outcome == OK]
    ended += [event.ended for event in history.committed] + [event.ended for event in history.listed]
    acknowledged = sorted(event.ended for event in history.sends if event.outcome == OK)
    during = [fault, *(at for at in acknowledged if at > fault)]
    outcomes = Counter(event.outcome for event in history.sends)
    settled = Counter(kind for event in history.settled if event.outcome == OK for _, _, kind in event.offsets)
    ends = Counter(transaction.outcome for transaction in history.transactions)
    return Figures(
        operations=len(ended),
        steady_per_s=sum(begin <= at < fault for at in ended) / max(0.001, fault - begin),
        acknowledged=outcomes[OK],
        refused=outcomes[FAIL],
        unknown=outcomes[INFO],
        longest_gap_s=max((after - before for before, after in itertools.pairwise(during)), default=0.0),
        in_sync_s=in_sync_s,
        committed=ends[OK],
        aborted=ends[FAIL],
        undecided=ends[INFO],
        late_ends=sum(1 for _ in late_ends(history)),
        settled=settled.total() - settled[RENEWED],
        renewed=settled[RENEWED],
        dead_letters=len(history.dead_letters),
    )


def _line(cells: Sequence[Any]) -> str:
    return "  ".join(
        str(cell).ljust(width) if width else str(cell) for cell, (_, width) in zip(cells, COLUMNS, strict=True)
    ).rstrip()
