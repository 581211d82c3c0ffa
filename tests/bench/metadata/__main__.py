"""`make bench-metadata`: the cost of metadata by number of partitions, and whether one change costs more where there is more.

May touch:  processes it starts, temporary directories.    Must not touch: product code in its own process.
Invariants: each size and role is a fresh process; targets compare the largest size with the smallest; what is missed is
            printed and makes the exit status 1.
Read next:  one_size.py, failover.py: what is measured and how.

    python -m tests.bench.metadata [--sizes 1000,10000,100000] [--per-topic 100,1,10000] [--changes 200] [--kills 7]
                                   [--json FILE] [--directory DIR]

The first value of --per-topic is the main layout: all sizes and the failover. The others are run at the smallest and the
largest size, since topics with one partition and topics with very many go different ways. Sizes that 1 000 partitions make
fewer of (a topic of 10 000 cannot be in a cluster of 1 000) are cut to what there is.

Columns: creations per second through one controller with its journal on disk, and CPU µs of each; CPU ms of one change on the
controller (decided, written, committed, published) and on a broker (loader, delta, image, publisher, replica manager, cache) of a
partition that it holds and of one that it does not; CPU ms of a heartbeat, of fencing and unfencing a broker with 64 partitions,
of one look for leaderless and unbalanced partitions, of creating one topic; the snapshot's bytes, seconds and CPU seconds; seconds
and CPU seconds to load it on a broker, and its longest step, in which the control lane answers nobody; resident bytes per partition
on the controller that made them and on the broker that loaded them; seconds without a controller when the active one is killed.
The broker holds 64 partitions with real logs, whatever the size; other brokers are registrations without processes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

GROWTH_MAX = 2.0
"""Most that a change, or a failover, may cost at the largest size beside the smallest."""
SNAPSHOT_BYTES_MAX = 120.0
CHANGES = {
    "controller_change_ms": "an ISR change on the controller",
    "broker_change_ms": "a change on a broker that holds the partition",
    "broker_other_ms": "a change on a broker that does not hold it",
    "heartbeat_ms": "a heartbeat",
    "fence_ms": "fencing and unfencing a broker of 64 partitions",
    "create_one_ms": "creating a topic",
}
COLUMNS = (
    ("create_per_s", "created", "/s", 0),
    ("create_cpu_us", "CPU us", "each", 0),
    ("controller_change_ms", "change", "ctl ms", 3),
    ("broker_change_ms", "change", "own ms", 3),
    ("broker_other_ms", "change", "other ms", 3),
    ("heartbeat_ms", "heart-", "beat ms", 3),
    ("fence_ms", "fence+", "un- ms", 2),
    ("look_ms", "look", "ms", 2),
    ("create_one_ms", "create", "one ms", 2),
    ("snapshot_bytes", "snap", "bytes", 1),
    ("snapshot_s", "snap", "s", 2),
    ("snapshot_cpu_s", "snap", "CPU s", 2),
    ("load_s", "load", "s", 2),
    ("load_cpu_s", "load", "CPU s", 2),
    ("load_step_ms", "longest", "step ms", 0),
    ("controller_bytes", "RSS", "ctl B", 0),
    ("broker_bytes", "RSS", "brk B", 0),
    ("failover_median_s", "fail-", "over s", 2),
    ("failover_worst_s", "worst", "s", 2),
)


class Layout(NamedTuple):
    """One line of the table."""

    partitions: int
    per_topic: int


@dataclass(frozen=True, slots=True)
class Target:
    """A demand, and what was measured."""

    name: str
    value: float
    at_most: float

    @property
    def is_met(self) -> bool:
        """Whether the demand is met."""
        return self.value <= self.at_most


Rows = Mapping[Layout, Mapping[str, Any]]


def targets(rows: Rows) -> list[Target]:
    """What is demanded of these rows."""
    found = []
    for per_topic in dict.fromkeys(layout.per_topic for layout in rows):
        sizes = sorted(layout.partitions for layout in rows if layout.per_topic == per_topic)
        small, large = rows[Layout(sizes[0], per_topic)], rows[Layout(sizes[-1], per_topic)]
        of = f"{per_topic} partitions per topic, {sizes[-1]:,} beside {sizes[0]:,}"
        if len(sizes) > 1:
            found += [
                Target(f"{what} ({of})", large[key] / small[key], GROWTH_MAX)
                for key, what in CHANGES.items()
                if key in small
            ]
            if "failover_median_s" in small:
                growth = large["failover_median_s"] / small["failover_median_s"]
                found.append(Target(f"failover ({of})", growth, GROWTH_MAX))
        if "snapshot_bytes" in large:
            name = f"bytes of a snapshot per partition ({per_topic} partitions per topic, {sizes[-1]:,})"
            found.append(Target(name, large["snapshot_bytes"], SNAPSHOT_BYTES_MAX))
    return found


class Bench:
    """Runs the parts as processes, one after the other."""

    def __init__(self, directory: Path, *, changes: int, kills: int) -> None:
        self._directory = directory
        self._changes = changes
        self._kills = kills
        self._started = time.monotonic()

    def run(self, layouts: Sequence[Layout], *, main_per_topic: int) -> dict[Layout, dict[str, Any]]:
        """All of them."""
        rows: dict[Layout, dict[str, Any]] = {}
        for layout in layouts:
            row = rows[layout] = {}
            own = self._directory / f"{layout.partitions}-{layout.per_topic}"
            own.mkdir()
            row |= self._part("one_size", "controller", own, layout, self._changes)
            row |= self._part("one_size", "broker", own, layout, self._changes)
            shutil.rmtree(own)
            if self._kills and layout.per_topic == main_per_topic:
                own.mkdir()
                row |= self._part("failover", None, own, layout, self._kills)
                shutil.rmtree(own)
                row["failover_median_s"] = statistics.median(row["failover_s"])
                row["failover_worst_s"] = max(row["failover_s"])
        return rows

    def _part(self, module: str, role: str | None, directory: Path, layout: Layout, count: int) -> dict[str, Any]:
        what = role or module
        print(
            f"[{time.monotonic() - self._started:4.0f} s] {layout.partitions:,} partitions, {layout.per_topic} per topic: {what}",
            file=sys.stderr,
        )
        arguments = [
            *([role] if role else []),
            str(directory),
            str(layout.partitions),
            str(layout.per_topic),
            str(count),
        ]
        done = subprocess.run(
            [sys.executable, "-m", f"tests.bench.metadata.{module}", *arguments],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def print_table(rows: Rows) -> None:
    """One line per layout."""
    for line in (1, 2):
        names = ("partitions", "") if line == 1 else ("", "per topic")
        print(f"{names[0]:>10s} {names[1]:>9s}" + "".join(f" {column[line]:>8s}" for column in COLUMNS))
    for layout, row in rows.items():
        cells = "".join(f" {row[key]:8.{digits}f}" if key in row else f" {'':8s}" for key, _, _, digits in COLUMNS)
        print(f"{layout.partitions:10,d} {layout.per_topic:9,d}{cells}")


def main() -> int:
    """Parse, run, print; returns the exit status: 0 when every target is met, 1 when one is missed."""

    def numbers(text: str) -> list[int]:
        found = [int(number) for number in text.split(",")]
        if min(found) < 1:
            raise argparse.ArgumentTypeError("numbers are 1 or greater")
        return found

    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.metadata", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--sizes", type=numbers, default=[1000, 10_000, 100_000], help="numbers of partitions")
    parser.add_argument(
        "--per-topic", type=numbers, default=[100, 1, 10_000], help="partitions of each topic; see above"
    )
    parser.add_argument("--changes", type=int, default=200, help="changes of which the median counts (default 200)")
    parser.add_argument(
        "--kills", type=int, default=7, help="failovers of which the median counts (default 7; 0 = none)"
    )
    parser.add_argument("--json", type=Path, default=None, help="write rows and targets to this file, - for stdout")
    parser.add_argument("--directory", type=Path, default=None, help="where to keep journals meanwhile")
    options = parser.parse_args()
    sizes, (main_per_topic, *others) = sorted(set(options.sizes)), options.per_topic
    layouts = [Layout(size, main_per_topic) for size in sizes]
    layouts += [Layout(size, other) for other in others for size in dict.fromkeys((sizes[0], sizes[-1]))]
    directory = Path(tempfile.mkdtemp(prefix="barnabas-bench-metadata-", dir=options.directory))
    try:
        rows = Bench(directory, changes=options.changes, kills=options.kills).run(
            layouts, main_per_topic=main_per_topic
        )
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    demanded = targets(rows)
    document = json.dumps(
        {
            "rows": [{**layout._asdict(), **row} for layout, row in rows.items()],
            "targets": [{**asdict(target), "is_met": target.is_met} for target in demanded],
        },
        indent=1,
    )
    if str(options.json) == "-":
        print(document)
    else:
        print_table(rows)
        print("\ntargets")
        for target in demanded:
            print(
                f"  {'met   ' if target.is_met else 'MISSED'} {target.name}: {target.value:.2f} (at most {target.at_most:g})"
            )
        if options.json is not None:
            options.json.write_text(document)
    return 0 if all(target.is_met for target in demanded) else 1


if __name__ == "__main__":
    sys.exit(main())
