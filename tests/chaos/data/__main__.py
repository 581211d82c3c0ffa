"""`python -m tests.chaos.data [SCENARIO …] --seed N --budget S`: break a real cluster under real clients, and judge what they saw.

May touch:  the terminal, a temporary directory.   Must not touch: anything else.
Invariants: exit status 1 when a law broke or a run was void, 2 where network namespaces are not permitted.
Read next:  faults.py, run.py.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.chaos import network
from tests.chaos.data.faults import FAULTS
from tests.chaos.data.report import Report, header
from tests.chaos.data.run import run_scenario

BUDGET_S = 30.0
PATIENCE_S = 120.0


def main(arguments: Sequence[str]) -> int:
    """Run scenarios; returns the exit status."""
    options = _parser().parse_args(arguments)
    unknown = [name for name in options.scenarios if name not in FAULTS]
    if unknown:
        print(f"chaos-data: no scenario {', '.join(unknown)}; there are {', '.join(FAULTS)}", file=sys.stderr)
        return 2
    network.enter(arguments, module="tests.chaos.data")
    reports: list[Report] = []
    skipped = []
    print(header(), flush=True)
    for name in options.scenarios or [name for name in FAULTS if name != "sample"]:
        needed = FAULTS[name].needs
        if needed and not Path(needed).exists():
            skipped.append(name)
            print(f"{name:<16}  NOT RUN: {needed} is not there", flush=True)
            continue
        reports.append(_run(name, options))
        print(reports[-1].row(), flush=True)
        if options.details or not reports[-1].is_clean:
            print("\n".join(reports[-1].details()), flush=True)
        if options.json:  # after each: a run that is interrupted keeps what it has
            Path(options.json).write_text(json.dumps([report.as_json() for report in reports], indent=2) + "\n")
    broken = [report for report in reports if not report.is_clean]
    for report in broken:
        print(f"{report.scenario}: {report.verdict}; again: {report.replay()}")
    return 1 if broken or skipped else 0


def _run(name: str, options: argparse.Namespace) -> Report:
    def run(directory: Path) -> Report:
        return run_scenario(
            name,
            seed=options.seed,
            budget_s=options.budget,
            patience_s=options.patience,
            directory=directory,
            bug=options.bug,
        )

    if options.keep:
        kept = Path(options.keep).resolve() / name
        kept.mkdir(parents=True)
        return run(kept)
    temporary = Path(tempfile.mkdtemp(prefix=f"barnabas-chaos-{name}-"))
    is_kept = False
    try:
        report = run(temporary)
        is_kept = not report.is_clean  # it may not break again
    finally:
        if not is_kept:
            shutil.rmtree(temporary, ignore_errors=True)
    if is_kept:
        print(f"{name}: histories, logs and files of the run are in {temporary}", flush=True)
    return report


def _parser() -> argparse.ArgumentParser:
    described = "\n".join(f"  {name:<16} {fault.meaning}" for name, fault in FAULTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.data",
        description=f"Scenarios:\n{described}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="all of them if none is named")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--budget", type=float, default=BUDGET_S, metavar="SECONDS", help="of faults, per scenario")
    parser.add_argument(
        "--patience",
        type=float,
        default=PATIENCE_S,
        metavar="SECONDS",
        help="all must be in sync so long after healing",
    )
    parser.add_argument("--bug", default="", help="plant this bug of tests/simulation/node_mutants.py: it must go red")
    parser.add_argument("--details", action="store_true", help="what was done and found, also of clean runs")
    parser.add_argument(
        "--keep",
        metavar="DIRECTORY",
        help="keep histories, logs and files below this new directory, also of clean runs",
    )
    parser.add_argument("--json", metavar="FILE", help="write the reports there")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
