"""What the rounds of a comparison say: medians, ratios with their spread, the table, the JSON file.

May touch:  nothing.                  Must not touch: sockets, processes, files.
Invariants: a ratio is the median of the rounds' own ratios, each of one state of the machine; no figure is left out because
            it speaks for the other side.
Read next:  picture.py.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

OURS, THEIRS, CLIENT = "Barnabas", "Apache Kafka", "client alone"
HIGHER_IS_BETTER = frozenset(("MB/s",))
"""Of all other figures less is better."""
Seen = Mapping[str, float]
"""Figures of one run, by name with unit."""


class Ratio(NamedTuple):
    """Barnabas divided by Kafka, over the rounds."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f}–{self.most:.2f})"


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """Value below which that fraction of an ascending sequence lies; of none 0."""
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))] if ordered else 0.0


@dataclass(slots=True)
class Results:
    """Row -> figure -> system -> one value per round."""

    about: dict[str, Any] = field(default_factory=dict)
    """Machine, versions, command."""
    rows: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    """Runs that gave no figures, and why."""

    def add(self, row: str, system: str, seen: Seen) -> None:
        """One run of one system."""
        for figure, value in seen.items():
            self.rows.setdefault(row, {}).setdefault(figure, {}).setdefault(system, []).append(value)

    def median(self, row: str, figure: str, system: str) -> float | None:
        """None where it was not measured."""
        values = self.rows[row][figure].get(system)
        return statistics.median(values) if values else None

    def ratio(self, row: str, figure: str) -> Ratio | None:
        """None where one of the two was not measured, or Kafka's figure is zero."""
        ours, theirs = (self.rows[row][figure].get(system, []) for system in (OURS, THEIRS))
        ratios = [mine / other for mine, other in zip(ours, theirs, strict=False) if other]
        return Ratio(statistics.median(ratios), min(ratios), max(ratios)) if ratios else None

    def behind(self) -> list[tuple[str, str, Ratio]]:
        """(row, figure, ratio) where Barnabas does worse than Kafka at the median."""
        found = []
        for row, figures in self.rows.items():
            for figure in figures:
                ratio = self.ratio(row, figure)
                if ratio is not None and (ratio.median < 1 if figure in HIGHER_IS_BETTER else ratio.median > 1):
                    found.append((row, figure, ratio))
        return found

    def table(self) -> str:
        """For people and for the documentation: Markdown, an exclamation mark where Kafka is ahead."""
        behind = {(row, figure) for row, figure, _ in self.behind()}
        lines = [
            f"| row | figure | {OURS} | {THEIRS} | ratio (spread) | {CLIENT} |",
            "|---|---|---|---|---|---|",
        ]
        for row, figures in self.rows.items():
            for figure in figures:
                cells = [_cell(self.median(row, figure, system)) for system in (OURS, THEIRS)]
                ratio = self.ratio(row, figure)
                said = "–" if ratio is None else f"{ratio}{' !' if (row, figure) in behind else ''}"
                alone = _cell(self.median(row, figure, CLIENT))
                lines.append(f"| {row} | {figure} | {cells[0]} | {cells[1]} | {said} | {alone} |")
        return "\n".join(lines)

    def to_json(self) -> str:
        """All rounds."""
        return (
            json.dumps(
                {"about": self.about, "rows": self.rows, "failures": self.failures}, indent=1, ensure_ascii=False
            )
            + "\n"
        )

    @classmethod
    def from_json(cls, text: str) -> Results:
        """What to_json wrote."""
        found = json.loads(text)
        return cls(about=found["about"], rows=found["rows"], failures=found["failures"])


def _cell(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}" if value >= 0.1 else f"{value:.4f}"
