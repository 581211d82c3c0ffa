"""`python -m tests.chaos [SCENARIO …] --seed N`: break a real quorum under load, and judge what its clients were told.

May touch:  the terminal, a temporary directory.   Must not touch: anything else.
Invariants: exit status 1 when a law broke or a run was void, 2 where network namespaces are not permitted.
Read next:  scenarios.py.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.chaos import network
from tests.chaos.report import Report, header
from tests.chaos.run import run_scenario
from tests.chaos.scenarios import SCENARIOS
from tests.chaos.stage import Bounds
from tests.chaos.workload import WRITES_PER_SECOND


def main(arguments: Sequence[str]) -> int:
    """Run scenarios; returns the exit status."""
    options = _parser().parse_args(arguments)
    unknown = [name for name in options.scenarios if name not in SCENARIOS]
    if unknown:
        print(f"chaos: no scenario {', '.join(unknown)}; there are {', '.join(SCENARIOS)}", file=sys.stderr)
        return 2
    network.enter(arguments)
    reports: list[Report] = []
    print(header(), flush=True)
    for name in options.scenarios or [name for name in SCENARIOS if name != "sample"]:
        reports.append(_run(name, options))
        print(reports[-1].row(), flush=True)
        if options.details or not reports[-1].is_clean:
            print("\n".join(reports[-1].details()), flush=True)
        if options.json:  # after each: a run that is interrupted keeps what it has
            Path(options.json).write_text(json.dumps([report.as_json() for report in reports], indent=2) + "\n")
    broken = [report.scenario for report in reports if not report.is_clean]
    if broken:
        print(f"BROKEN: {', '.join(broken)}; again: python -m tests.chaos {' '.join(broken)} --seed {options.seed}")
    return 1 if broken else 0


def _run(name: str, options: argparse.Namespace) -> Report:
    scenario = SCENARIOS[name]
    full = scenario.bounds
    bounds = Bounds(
        times=full.times if options.times is None else options.times,
        hold_s=full.hold_s if options.hold is None else options.hold,
        budget_s=full.budget_s if options.budget is None else options.budget,
    )
    if options.keep:
        directory = Path(options.keep) / name
        directory.mkdir(parents=True)
        return run_scenario(
            name,
            scenario,
            bounds=bounds,
            seed=options.seed,
            directory=directory,
            rate=options.rate,
            brokers=options.brokers,
        )
    with tempfile.TemporaryDirectory(prefix="barnabas-chaos-") as temporary:
        return run_scenario(
            name,
            scenario,
            bounds=bounds,
            seed=options.seed,
            directory=Path(temporary),
            rate=options.rate,
            brokers=options.brokers,
        )


def _parser() -> argparse.ArgumentParser:
    described = "\n".join(f"  {name:<18} {scenario.meaning}" for name, scenario in SCENARIOS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description=f"Scenarios:\n{described}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="all of them if none is named")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--times", type=int, help="faults per scenario, instead of its own number")
    parser.add_argument("--hold", type=float, metavar="SECONDS", help="longest time that a pause or a cut lasts")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="no new fault after this long, per scenario")
    parser.add_argument("--rate", type=float, default=WRITES_PER_SECOND, help="writes a second")
    parser.add_argument("--brokers", type=int, default=1, help="brokers beside the three controllers")
    parser.add_argument("--details", action="store_true", help="what each judge said, also of clean runs")
    parser.add_argument("--keep", metavar="DIRECTORY", help="keep the nodes' files and logs below this new directory")
    parser.add_argument("--json", metavar="FILE", help="write the reports there")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
