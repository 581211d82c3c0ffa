"""`make bench-host`: see __init__.py.

May touch:  processes it starts, the files it is named.    Must not touch: broker code.
Invariants: exit status 1 where a goal was missed, an acknowledged record was lost or a record failed.
Read next:  cost.py, rest.py, loss.py, failover.py.

    python -m tests.bench.hosts [--only cost|rest|loss|failover] [--rounds 3] [--steps 1 2 4] [--rows PREFIX …] [--apart] [--hosts 3]
                                [--brokers 16] [--by-exec] [--others 1 1] [--kills 6]
                                [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.bench.hosts import cost, failover, loss, rest
from tests.bench.machine import congestion_control, stolen_s
from tests.chaos.network import Network, enter

PARTS = ("cost", "rest", "loss", "failover")
LOSS_BROKERS = 4
"""Brokers on each host that is killed: sixteen on two cores would measure how long they wait for a core."""


def main() -> int:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.hosts", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, nargs="+", default=cost.STEPS, help="numbers of brokers, the fewest first")
    parser.add_argument(
        "--rows", nargs="*", default=[], metavar="PREFIX", help="rows of cost whose names begin so; default all"
    )
    parser.add_argument(
        "--apart", action="store_true", help="cost beside as many clusters of one broker each, not beside one broker"
    )
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--brokers", type=int, default=16, help="of each host at rest, and of the one that fails over")
    parser.add_argument(
        "--by-exec", action="store_true", help="hosts at rest start their nodes by exec, as off loopback"
    )
    parser.add_argument(
        "--namespaces", action="store_true", help="give each host at rest a network namespace, on a bridge; needs root"
    )
    parser.add_argument(
        "--others", type=int, nargs=2, default=failover.OTHERS, help="brokers of the hosts that stay in a fail-over"
    )
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.namespaces:
        enter(sys.argv[1:], module="tests.bench.hosts")
    found: dict[str, Any] = {
        "machine": f"{platform.system()} {platform.release()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "congestion_control": congestion_control(),
        "load_average_before": round(os.getloadavg()[0], 2),
        "date": time.strftime("%Y-%m-%d"),
    }
    print(", ".join(f"{name}: {value}" for name, value in found.items()))
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # hosts are killed, what is there is written
    began, stolen = time.monotonic(), stolen_s()
    missed: list[str] = []
    tables: list[str] = []
    try:
        if "cost" in options.only:
            rows = [row for row in cost.ROWS if not options.rows or row.name.startswith(tuple(options.rows))]
            costs = cost.measure(options.rounds, sorted(options.steps), rows, is_apart=options.apart)
            found["cost"] = costs.as_json()
            missed += costs.missed()
            tables.append(costs.table())
            tables.append(
                f"The column for {cost.CORES} cores is an extrapolation from one broker's CPU for a MB at that step, not a measurement: "
                "clients, network, memory bandwidth and disks are not in it."
            )
        if "rest" in options.only:
            figures = rest.measure(
                options.hosts,
                options.brokers,
                by_exec=options.by_exec,
                network=Network() if options.namespaces else None,
            )
            found["rest"] = figures
            missed += rest.missed(figures)
        if "loss" in options.only:
            losses = loss.measure(options.hosts, LOSS_BROKERS, options.kills)
            found["loss"] = losses.as_json()
            tables.append(f"{losses.table()}\n\n{losses.verdict}; records that failed: {losses.failed}")
            if not losses.is_clean:
                missed.append(f"a host is killed: {losses.verdict}; records that failed: {losses.failed}")
        if "failover" in options.only:
            failovers = failover.measure(options.brokers, options.others, options.kills)
            found["failover"] = failovers.as_json()
            missed += failovers.missed()
            tables.append(failovers.table())
    finally:
        found["seconds"] = round(time.monotonic() - began)
        found["taken by the host"] = round((stolen_s() - stolen) / max(1, found["seconds"]) / (os.cpu_count() or 1), 3)
        found["missed"] = missed
        if options.json is not None:
            options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print("\n" + "\n\n".join(tables))
    for line in missed:
        print(f"missed: {line}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
