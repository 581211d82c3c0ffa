"""What a scenario found: figures of its faults, and what every judge says of the history and the logs.

May touch:  its arguments.            Must not touch: processes, clocks.
Invariants: a run whose load was too thin, or whose fault did not bite, is void and no pass.
Read next:  scenarios.py, which fills the figures.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.metadata_logs import LogComparison
from tests.checker.linearizability import HistoryVerdict
from tests.checker.metadata_history import LocalReadVerdict, LogVerdict

EXPLAINED_MAX = 12
COLUMNS = (
    ("scenario", 22),
    ("faults", 7),
    ("ok/s", 6),
    ("leader p50", 11),
    ("p99", 7),
    ("write p50", 10),
    ("p99", 7),
    ("elections", 10),
    ("operations", 11),
    ("unknown", 8),
    ("lost", 5),
    ("verdict", 0),
)


@dataclass(slots=True)
class Figures:
    """What a scenario measured. Times in s."""

    faults: int = 0
    new_leader_s: list[float] = field(default_factory=list)
    """From each fault to the first sight of a leader in a new epoch."""
    first_write_s: list[float] = field(default_factory=list)
    """From each fault to the answer of the first acknowledged write that was begun after it."""
    elections: int = 0
    """Epochs that got a leader because of the faults."""
    steady_writes_per_s: float = 0.0
    """Acknowledged writes a second before the first fault."""
    notes: dict[str, Any] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    """Laws of the scenario itself that did not hold, in words."""


@dataclass(slots=True)
class Report:
    """One scenario's end."""

    scenario: str
    seed: int
    figures: Figures
    took_s: float
    history: HistoryVerdict
    acknowledged: LogVerdict
    local_reads: LocalReadVerdict
    logs: LogComparison
    outcomes: dict[str, int]
    unknown: dict[str, int]
    deaths: list[str]
    complaints: list[str]
    void: str | None = None

    @property
    def is_clean(self) -> bool:
        """Nothing broken, and the run was worth something."""
        judges = (self.acknowledged, self.local_reads, self.logs)
        return (
            self.history.is_linearizable
            and all(judge.is_clean for judge in judges)
            and not (self.deaths or self.complaints or self.figures.broken or self.void)
        )

    @property
    def verdict(self) -> str:
        """In one word or a few."""
        if self.is_clean:
            return "clean"
        found = []
        if self.history.broken:
            found.append(f"{len(self.history.broken)} topics not linearizable")
        if self.history.undecided:
            found.append(f"{len(self.history.undecided)} topics undecided")
        if not self.acknowledged.is_clean:
            found.append(str(self.acknowledged))
        if not self.local_reads.is_clean:
            found.append(str(self.local_reads))
        if not self.logs.is_clean:
            found.append(f"logs differ in {len(self.logs.differences)} places")
        for what, entries in (("deaths", self.deaths), ("complaints", self.complaints)):
            if entries:
                found.append(f"{len(entries)} {what}")
        found += self.figures.broken
        if self.void:
            found.append(f"void: {self.void}")
        return "BROKEN: " + "; ".join(found)

    def row(self) -> str:
        """One line of the table."""
        figures = self.figures
        cells = (
            self.scenario,
            figures.faults,
            f"{figures.steady_writes_per_s:.0f}",
            seconds(percentile(figures.new_leader_s, 50)),
            seconds(percentile(figures.new_leader_s, 99)),
            seconds(percentile(figures.first_write_s, 50)),
            seconds(percentile(figures.first_write_s, 99)),
            figures.elections,
            self.history.operations,
            sum(self.unknown.values()),
            len(self.acknowledged.lost),
            self.verdict,
        )
        return _line(cells)

    def details(self) -> list[str]:
        """What stands behind the line."""
        lines = [
            f"  history      {self.history}",
            f"  acknowledged {self.acknowledged}",
            f"  local        {self.local_reads}",
            f"  logs         {self.logs}",
            f"  writes       {self.outcomes}; unknown: {self.unknown}",
        ]
        lines += [f"  {name:<12} {value}" for name, value in self.figures.notes.items()]
        for found in self.history.broken[:3]:
            lines.append(f"  NOT LINEARIZABLE: {found.key} ({found.operations} operations); explained up to:")
            lines += [f"    {operation}" for operation in found.longest[-EXPLAINED_MAX:]]
            lines.append("  none of these can come next:")
            lines += [f"    {operation}" for operation in found.stuck[:EXPLAINED_MAX]]
        lines += [f"  LOST {operation}" for operation in self.acknowledged.lost[:EXPLAINED_MAX]]
        lines += [f"  DEATH {death}" for death in self.deaths]
        lines += [f"  COMPLAINT {line}" for line in self.complaints[:EXPLAINED_MAX]]
        lines += [f"  LOGS {line}" for line in self.logs.differences[:EXPLAINED_MAX]]
        return lines

    def as_json(self) -> dict[str, Any]:
        """Everything, for a machine."""
        figures = self.figures
        return {
            "scenario": self.scenario,
            "seed": self.seed,
            "is_clean": self.is_clean,
            "verdict": self.verdict,
            "seconds": round(self.took_s, 1),
            "faults": figures.faults,
            "steady_writes_per_s": round(figures.steady_writes_per_s, 1),
            "new_leader_s": _summary(figures.new_leader_s),
            "first_write_s": _summary(figures.first_write_s),
            "elections": figures.elections,
            "notes": figures.notes,
            "operations": self.history.operations,
            "topics": self.history.keys,
            "configurations": self.history.configurations,
            "outcomes": self.outcomes,
            "unknown": self.unknown,
            "lost": [str(operation) for operation in self.acknowledged.lost],
            "local_reads": self.local_reads.reads,
            "log_compared_to": self.logs.compared_to,
            "log_batches": self.logs.batches,
            "deaths": self.deaths,
            "complaints": self.complaints,
        }


def header() -> str:
    """The table's first line."""
    return _line([name for name, _ in COLUMNS])


def percentile(values: Sequence[float], percent: int) -> float | None:
    """Nearest rank; None of nothing."""
    if not values:
        return None
    if percent == 50:
        return statistics.median(values)
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def seconds(value: float | None) -> str:
    """Two decimals, or a dash."""
    return "-" if value is None else f"{value:.2f}"


def _summary(values: Sequence[float]) -> dict[str, Any]:
    return {
        "count": len(values),
        "p50": percentile(values, 50),
        "p99": percentile(values, 99),
        "worst": max(values, default=None),
        "all": [round(value, 3) for value in values],
    }


def _line(cells: Sequence[Any]) -> str:
    return "  ".join(
        str(cell).ljust(width) if width else str(cell) for cell, (_, width) in zip(cells, COLUMNS, strict=True)
    ).rstrip()
