"""`make attack`: runs every test that is marked `attack`, prints a line for each thing that must hold; 1 where one does not."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
BUDGET_S = 570.0
"""In all, starts of clusters included; what has not begun by then is not run."""
FINDINGS = {
    "A1": "a closed dev cluster opens to no other account",
    "A2": "no claimed size holds the data loop",
    "A3": "no broker's text runs on the operator's host",
    "A4": "nobody pushes the audit trail out",
    "A5": "a client without rights fills no memory",
    "A6": "silent connections take no turn from others",
    "A7": "trust ends when it is taken away",
    "A8": "nothing tells who or what exists, nor holds the loop by a pattern",
    "A9": "no page, text or file of others acts for the operator",
}
"""Those of part A; a sweep that no single one named is under the finding whose kind it is."""
MARK = "attack"


class Attack(NamedTuple):
    """One line of the table."""

    finding: str
    what: str


class Outcome:
    """Of the cases of an attack so far."""

    def __init__(self) -> None:
        self.cases = 0
        self.held = 0
        self.seconds = 0.0
        self.why: list[str] = []

    @property
    def word(self) -> str:
        """What the table says."""
        if self.held == self.cases:
            return "held"
        return "NOT RUN" if all(each.startswith("skipped") for each in self.why) else "NOT HELD"


class Plugin:
    """Collects what pytest finds and reports."""

    def __init__(self, wanted: set[str], deadline_s: float) -> None:
        self.outcomes: dict[Attack, Outcome] = {}
        self.errors: list[str] = []
        self._wanted = wanted
        self._deadline_s = deadline_s
        self._attacks: dict[str, list[Attack]] = {}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kept = []
        for item in items:
            attacks = [Attack(*mark.args) for mark in item.iter_markers(MARK)]
            attacks = [attack for attack in attacks if not self._wanted or attack.finding in self._wanted]
            if attacks:
                kept.append(item)
                self._attacks[item.nodeid] = attacks
                for attack in attacks:
                    self.outcomes.setdefault(attack, Outcome()).cases += 1
        items[:] = kept

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.errors.append(f"{report.nodeid}: {report.longreprtext}")

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if time.monotonic() > self._deadline_s:
            pytest.skip("no time was left")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for attack in self._attacks.get(report.nodeid, ()):
            outcome = self.outcomes[attack]
            outcome.seconds += report.duration
            if report.when == "call" and report.passed:
                outcome.held += 1
            elif not report.passed:
                if report.when == "teardown":
                    outcome.held -= 1
                words = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longreprtext
                outcome.why.append(f"{report.outcome} {report.nodeid}: {words}")


def files() -> list[str]:
    """Those that have an attack: to collect all tests takes longer than most of the attacks."""
    marked = f"pytest.mark.{MARK}("
    return sorted(str(path) for path in (ROOT / "tests").rglob("test_*.py") if marked in path.read_text())


def run(wanted: set[str], budget_s: float) -> Plugin:
    """Attack. `wanted`: findings, none for all."""
    plugin = Plugin(wanted, time.monotonic() + budget_s)
    quiet = ["-o", "addopts=", "--strict-markers", "-p", "no:terminal", "-p", "no:cacheprovider", "-W", "ignore"]
    pytest.main([*quiet, "-c", str(ROOT / "pyproject.toml"), "-m", MARK, *files()], plugins=[plugin])
    return plugin


def rows(outcomes: dict[Attack, Outcome], wanted: set[str]) -> Iterator[dict[str, Any]]:
    """What is said of each attack; and of a finding that has none."""
    for finding in sorted(wanted or FINDINGS):
        of_it = [(attack, outcome) for attack, outcome in outcomes.items() if attack.finding == finding]
        if not of_it:
            yield {"finding": finding, "attack": "(none)", "outcome": "NOT RUN", "cases": 0, "seconds": 0.0, "why": []}
        for attack, outcome in of_it:
            yield {
                "finding": finding,
                "attack": attack.what,
                "outcome": outcome.word,
                "cases": outcome.cases,
                "seconds": round(outcome.seconds, 1),
                "why": outcome.why,
            }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("findings", nargs="*", metavar="FINDING", help=f"some of {', '.join(FINDINGS)}; all by default")
    parser.add_argument("--json", action="store_true", help="print one object")
    parser.add_argument("--budget", type=float, default=BUDGET_S, metavar="S", help="seconds in all")
    options = parser.parse_args(arguments)
    wanted = set(options.findings)
    if not wanted <= FINDINGS.keys():
        parser.error(f"there is no finding {', '.join(sorted(wanted - FINDINGS.keys()))}")
    signal.signal(signal.SIGALRM, _end)
    signal.setitimer(signal.ITIMER_REAL, options.budget + 20.0)
    began_s = time.monotonic()
    plugin = run(wanted, options.budget)
    signal.setitimer(signal.ITIMER_REAL, 0)
    found = list(rows(plugin.outcomes, wanted))
    all_held = not plugin.errors and all(row["outcome"] == "held" for row in found)
    seconds = round(time.monotonic() - began_s, 1)
    if options.json:
        print(json.dumps({"held": all_held, "seconds": seconds, "attacks": found, "errors": plugin.errors}, indent=1))
        return 0 if all_held else 1
    for row in found:
        cases = "" if row["cases"] < 2 else f" ({row['cases']} cases)"
        print(f"{row['finding']}  {row['outcome']:<8}  {row['seconds']:>6.1f} s  {row['attack']}{cases}")
    for why in (*plugin.errors, *(why for row in found for why in row["why"])):
        print(f"\n{why}")
    count = sum(row["outcome"] == "held" for row in found)
    print(f"\n{count} of {len(found)} held in {seconds:.0f} s")
    return 0 if all_held else 1


def _end(number: int, frame: FrameType | None) -> None:
    raise TimeoutError("the attack took longer than all of them may")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
