"""The figures of a benchmark run: one row per case and round, their medians, and what is demanded of them.

May touch:  nothing.                  Must not touch: sockets, processes.
Invariants: a ratio or share is the median of the rounds' own, each measured in one state of the machine; a demand that the
            machine does not let be met stays a miss, and says so.
Read next:  __main__.py, which measures.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from tests.bench.frames import KIB, MIB, Load

FLOOR_MS_PER_MB_MAX = 0.9
FLOOR_US_PER_REQUEST_MAX = 30.0
SMALL, LARGE = 16 * KIB, MIB
LOADS = (Load(KIB, SMALL), Load(KIB, LARGE), Load(100, SMALL), Load(100, LARGE))
PAGE_CACHE, DURABLE = "page-cache", "fsync"
WINDOW = {SMALL: 64, LARGE: 4}
SATURATED_BYTES = 16 * MIB
"""In flight per connection where a run is to saturate; see __main__.py."""


@dataclass(slots=True)
class Row:
    """One line of the table: the medians of its rounds."""

    name: str
    cpu_ms_per_mb: float
    cpu_us_per_request: float
    mb_per_s: float
    krecords_per_s: float
    p50_ms: float
    p99_ms: float
    data_lag_p99_ms: float
    control_lag_p99_ms: float
    elections: int
    fdatasync_worst_ms: float
    ratio: float | None = None
    """To the floor of the same rounds."""
    disk_share: float | None = None
    """Of a durable run: what all replicas together wrote of what the disk alone takes in the same round."""
    stolen: float | None = None
    """Share of the machine's CPU that its host gave to others meanwhile, where that was looked at."""


@dataclass(slots=True)
class Demand:
    """One demand on the figures."""

    name: str
    value: float
    at_most: float | None = None
    at_least: float | None = None
    allowed: float | None = None
    """The most that the machine under the cluster allows, where that was measured."""

    @property
    def is_met(self) -> bool:
        """Whether the value is within its bound; without a bound it is there to be read."""
        if self.at_most is not None:
            return self.value <= self.at_most
        return self.at_least is None or self.value >= self.at_least

    def __str__(self) -> str:
        """Verdict, name, value, bound; a miss that the machine does not let be met says so."""
        if self.at_most is None and self.at_least is None:
            return f"         {self.name}: {self.value:.2f}"
        bound = f"at most {self.at_most:g}" if self.at_most is not None else f"at least {self.at_least:g}"
        line = f"  {'met   ' if self.is_met else 'MISSED'} {self.name}: {self.value:.2f} ({bound})"
        if not self.is_met and self.at_least is not None and self.allowed is not None and self.allowed < self.at_least:
            line += f" (the disk allows at most {self.allowed:.2f})"
        return line


@dataclass(slots=True)
class Figures:
    """What a run has measured so far."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    facts: dict[str, list[float]] = field(default_factory=dict)

    def medians(self) -> list[Row]:
        """One row per case."""
        found = []
        for name, rows in self.rows.items():
            values: dict[str, Any] = {}
            for key in Row.__dataclass_fields__:
                if key == "name":
                    continue
                column = [getattr(row, key) for row in rows]
                if key in ("ratio", "disk_share", "stolen"):
                    values[key] = None if None in column else statistics.median(column)
                elif key == "elections":
                    values[key] = sum(column)
                elif key == "fdatasync_worst_ms":
                    values[key] = max(column)
                else:
                    values[key] = statistics.median(column)
            found.append(Row(name=name, **values))
        return found

    def share(self, part: str, whole: str, figure: str = "mb_per_s") -> float | None:
        """A figure of one case as a share of another's, the median of the rounds' own; None where one was not measured."""
        pairs = zip(self.rows.get(part, ()), self.rows.get(whole, ()), strict=False)
        shares = [getattr(one, figure) / getattr(other, figure) for one, other in pairs]
        return statistics.median(shares) if shares else None

    def targets(self, rows: list[Row]) -> list[Demand]:
        """The demands, as far as their figures were measured."""
        by_name = {row.name: row for row in rows}
        small, large = LOADS[0], LOADS[1]
        found = []

        def ratio(name: str, at_most: float) -> None:
            row = by_name.get(name)
            if row is not None and row.ratio is not None:
                found.append(Demand(f"{name}: broker CPU / floor CPU", row.ratio, at_most=at_most))

        ratio(f"produce, RF 1, page cache, {large.name}", 1.5)
        ratio(f"produce, RF 1, page cache, {small.name}", 2.5)
        ratio(f"fetch, RF 1, {large.name}", 1.5)
        ratio(f"fetch, RF 1, {small.name}", 1.5)
        for load, at_most in ((small, 4.0), (large, 6.0)):
            for name_of, window, bound in (
                (saturated_name, SATURATED_BYTES, at_most),
                (produce_name, window_bytes(load), None),
            ):
                one, three = (name_of(load, PAGE_CACHE, replicas) for replicas in (1, 3))
                cost = self.share(three, one, "cpu_ms_per_mb")
                if cost is not None:
                    name = f"{load.name}, {window // MIB} MiB in flight: CPU of all brokers, RF 3 / RF 1"
                    found.append(Demand(name, cost, at_most=bound))
        for replicas in (1, 3):
            for load in (small, large):
                page, durable = (saturated_name(load, kind, replicas) for kind in (PAGE_CACHE, DURABLE))
                part = self.share(durable, page)
                disk = self.share(disk_name(durable), page)
                # A cluster that keeps the disk busy all the time and costs nothing would reach this.
                allowed = None if disk is None else disk / replicas
                if part is not None:
                    name = (
                        f"{load.name}, RF {replicas}, {SATURATED_BYTES // MIB} MiB in flight: durable / page cache MB/s"
                    )
                    found.append(Demand(name, part, at_least=0.75, allowed=allowed))
                    if allowed is not None:
                        found.append(Demand(f"{name}, at most, as the disk alone takes it", allowed))
                part = self.share(*(produce_name(load, kind, replicas) for kind in (DURABLE, PAGE_CACHE)))
                if part is not None:
                    name = f"{load.name}, RF {replicas}, {window_bytes(load) // MIB} MiB in flight: durable / page cache MB/s"
                    found.append(Demand(name, part))
        served = [row for row in rows if not row.name.startswith("floor")]
        if served:
            lag = max(row.control_lag_p99_ms for row in served)
            found.append(Demand("control-lane tick p99 under load, worst case, ms", lag, at_most=50.0))
            found.append(Demand("elections under load", sum(row.elections for row in served), at_most=0.0))
        bounds = {
            "lone writer p50 - fdatasync p50, ms": 1.0,
            "idle, % of a core": 3.0,
            "memory of a node, idle, MiB": 120.0,
            "start, s": 3.0,
        }
        for name, at_most in bounds.items():
            if name in self.facts:
                found.append(Demand(name, statistics.median(self.facts[name]), at_most=at_most))
        return found

    def void_reason(self, rows: list[Row]) -> str | None:
        """Why the figures mean nothing, if so."""
        by_name = {row.name: row for row in rows}
        large = by_name.get(f"floor, produce, {LOADS[1].name}")
        if large is not None and large.cpu_ms_per_mb > FLOOR_MS_PER_MB_MAX:
            return f"the floor is {large.cpu_ms_per_mb:.2f} ms/MB with 1 MiB batches (at most {FLOOR_MS_PER_MB_MAX})"
        small = by_name.get(f"floor, produce, {LOADS[0].name}")
        if small is not None and small.cpu_us_per_request > FLOOR_US_PER_REQUEST_MAX:
            return f"the floor is {small.cpu_us_per_request:.0f} us per 16 KiB request (at most {FLOOR_US_PER_REQUEST_MAX:.0f})"
        return None


def window_bytes(load: Load) -> int:
    return WINDOW[load.batch_bytes] * load.batch_bytes


def produce_name(load: Load, durability: str, replicas: int) -> str:
    kind = "durable" if durability == DURABLE else "page cache"
    return f"produce, RF {replicas}, {kind}, {load.name}"


def saturated_name(load: Load, durability: str, replicas: int) -> str:
    """The saturated run of a load."""
    return f"{produce_name(load, durability, replicas)}, {SATURATED_BYTES // MIB} MiB in flight"


def disk_name(durable: str) -> str:
    """The row of the disk alone that belongs to a durable run."""
    return f"floor, disk{durable.removeprefix('produce')}"


def print_table(rows: list[Row]) -> None:
    print(
        f"\n{'median of the rounds':58s} {'CPU':>8s} {'CPU':>9s} {'':>7s} {'':>9s} {'p50':>8s} {'p99':>8s} {'data lag':>9s}"
        f" {'ctl lag':>8s} {'elec-':>6s} {'worst':>9s} {'host':>6s} {'x':>6s} {'of the':>6s}"
    )
    print(
        f"{'':58s} {'ms/MB':>8s} {'us/req':>9s} {'MB/s':>7s} {'krec/s':>9s} {'ms':>8s} {'ms':>8s} {'p99 ms':>9s}"
        f" {'p99 ms':>8s} {'tions':>6s} {'fsync ms':>9s} {'took':>6s} {'floor':>6s} {'disk':>6s}"
    )
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        disk = "" if row.disk_share is None else f"{row.disk_share:.2f}"
        stolen = "" if row.stolen is None else f"{row.stolen:.0%}"
        print(
            f"{row.name:58s} {row.cpu_ms_per_mb:8.3f} {row.cpu_us_per_request:9.1f} {row.mb_per_s:7.0f}"
            f" {row.krecords_per_s:9.1f} {row.p50_ms:8.2f} {row.p99_ms:8.2f} {row.data_lag_p99_ms:9.1f}"
            f" {row.control_lag_p99_ms:8.1f} {row.elections:6d} {row.fdatasync_worst_ms:9.1f} {stolen:>6s}"
            f" {ratio:>6s} {disk:>6s}"
        )
