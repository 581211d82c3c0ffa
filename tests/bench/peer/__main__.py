"""`make bench-peer`: see __init__.py.

May touch:  processes it starts, a temporary directory, the files it is named.    Must not touch: broker code.
Invariants: the systems take turns within a round and change order from one to the next; Java's hot paths are compiled
            before its first row.
Read next:  rows.py, measure.py.

    python -m tests.bench.peer [--rows PREFIX …] [--rounds 3] [--warm-up SECONDS] [--json FILE] [--picture FILE]
                               [--directory DIR] [--list] [--show FILE]

Where Maven does not fetch Apache Kafka, Barnabas's rows are measured alone. Both clusters run all the time, three combined
nodes each where a row does not say otherwise: the idle one costs the other's row a few hundredths of a core.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from confluent_kafka import KafkaException

from tests.bench.machine import congestion_control, stolen_s
from tests.bench.peer import host, measure, tls
from tests.bench.peer.picture import draw
from tests.bench.peer.results import CLIENT, OURS, THEIRS, Results
from tests.bench.peer.rows import ROWS, Kind, RowSpec, UnknownRows, choose
from tests.bench.peer.systems import KAFKA_VERSION, NODES, System, running
from tests.oracle import apache

Item = TypeVar("Item")
FAILURES = (RuntimeError, OSError, KafkaException)
"""What a run raises when a broker does not do its part; TimeoutError and ConnectionError are OSErrors."""
ONCE = (Kind.MEMORY,)
"""What does not change from round to round."""


def run(rows: Sequence[RowSpec], rounds: int, warm_up_s: float, directory: Path, results: Results) -> None:
    """Measure all rows."""
    names = [OURS, THEIRS] if results.about["kafka"] else [OURS]
    for row in (row for row in rows if row.kind is Kind.START):
        for number in range(rounds):
            for name in _turn(names, number):
                results.add(row.name, name, measure.start(name, directory))
        _show(results, row)
    rows = [row for row in rows if row.kind is not Kind.START]
    for brokers, start in ((1, tls.running), (2, host.running), (NODES, running)):
        chosen = [row for row in rows if row.brokers == brokers]
        if not chosen:
            continue
        with start(directory / f"{brokers}", with_kafka=THEIRS in names) as systems:
            if warm_up_s:
                of_theirs_s = warm_up_s if brokers == NODES else warm_up_s / NODES
                for system in systems:
                    cpu_seconds = of_theirs_s if system.name == THEIRS else min(5, warm_up_s)
                    measure.warm(system, directory, cpu_seconds, chosen)
            for row in chosen:
                for system in systems:
                    system.add_idle(row.idle_partitions)
                _run_row(row, 1 if row.kind in ONCE else rounds, systems, directory, results)
                _show(results, row)


def _run_row(row: RowSpec, rounds: int, systems: list[System], directory: Path, results: Results) -> None:
    for number in range(rounds):
        for system in _turn(systems, number):
            try:
                results.add(row.name, system.name, measure.measure(system, row, directory))
            except FAILURES as failure:  # the other rows are worth having
                results.failures.append(f"{row.name}, {system.name}, round {number + 1}: {failure}")
                print(f"failed: {results.failures[-1]}", file=sys.stderr)
    if row.kind is Kind.LATENCY:
        results.add(row.name, CLIENT, measure.client_alone(row))


def _turn(items: list[Item], number: int) -> list[Item]:
    return items[::-1] if number % 2 else items


def _show(results: Results, row: RowSpec) -> None:
    """A row as soon as it is there."""
    part = Results(rows={row.name: results.rows.get(row.name, {})})
    print("\n".join(part.table().splitlines()[2:]), flush=True)


def main() -> int:
    """Run and print; 1 when a run failed, 2 when the choice of rows names none."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peer", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--rows", nargs="*", default=[], metavar="PREFIX", help="rows whose names begin so; default all"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--warm-up", type=float, default=150.0, metavar="SECONDS", help="of Kafka's CPU time, before its first row"
    )
    parser.add_argument("--json", type=Path, help="write all rounds here")
    parser.add_argument("--picture", type=Path, help="draw the ratios here (.png, .svg)")
    parser.add_argument("--directory", type=Path, help="where the brokers keep their files; default a temporary one")
    parser.add_argument("--list", action="store_true", help="print the names of the rows and end")
    parser.add_argument("--show", type=Path, metavar="FILE", help="print the table of a --json file and end")
    options = parser.parse_args()
    if options.show is not None:
        print(Results.from_json(options.show.read_text(encoding="utf-8")).table())
        return 0
    if options.list:
        print("\n".join(row.name for row in ROWS))
        return 0
    try:
        rows = choose(options.rows)
    except UnknownRows as unknown:
        print(unknown, file=sys.stderr)
        return 2
    reason = apache.fetch(KAFKA_VERSION)
    if reason is not None:
        print(f"{reason}: Barnabas is measured alone, without ratios", file=sys.stderr)
    results = Results(
        about={
            "kafka": KAFKA_VERSION if reason is None else "",
            "cpus": os.cpu_count(),
            "machine": f"{platform.system()} {platform.release()} {platform.machine()}, Python {platform.python_version()}",
            "congestion control": congestion_control(),
            "load average before": round(os.getloadavg()[0], 2),
            "rounds": options.rounds,
            "date": time.strftime("%Y-%m-%d"),
        }
    )
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # the brokers are stopped, what is there is written
    began, stolen_before_s = time.perf_counter(), stolen_s()
    print(", ".join(f"{name}: {value}" for name, value in results.about.items()))
    try:
        with tempfile.TemporaryDirectory(dir=options.directory) as place:
            run(rows, options.rounds, options.warm_up, Path(place), results)
    finally:
        seconds = time.perf_counter() - began
        results.about["seconds"] = round(seconds)
        results.about["taken by the host"] = round((stolen_s() - stolen_before_s) / seconds / (os.cpu_count() or 1), 3)
        if options.json is not None:
            options.json.write_text(results.to_json(), encoding="utf-8")
    print(f"\n{results.table()}\n")
    for row, figure, ratio in results.behind():
        print(f"behind: {row}, {figure}: {ratio}")
    if options.picture is not None and reason is None:
        draw(results, options.picture)
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
