"""What the console saw of the cluster in the last day: a few series in one SQLite file, bounded, which outlives the console.

May touch:  its file.                 Must not touch: the cluster, HTTP.
Invariants: a file is of one cluster; no series reaches back further than KEEP_S, and the file has at most SAMPLES_MAX samples; a counter
            that fell (a topic was made again) is no negative rate; a gap in which nobody looked is a gap, not a zero.
Read next:  sampler.py, which writes; charts.py, which reads.

A counter (the end offsets of a topic) is kept where it changed, and just before: what rests costs no room. A gauge (a group's lag) is
kept at each look.
"""

from __future__ import annotations

import math
import sqlite3
import threading
from bisect import bisect_right
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

KEEP_S = 25 * 3600
DAYS_KEPT = 400
SAMPLES_MAX = 2_000_000
PRUNE_EVERY_S = 600
GAP_S = 120
"""Two samples further apart have a gap between them: the console was not there, or the cluster did not answer."""
BUCKETS = 180

Point = tuple[int, float | None]

_SCHEMA = """
create table if not exists series (id integer primary key, kind text not null, name text not null, unique (kind, name));
create table if not exists samples (series integer not null, at_s integer not null, value real not null,
    primary key (series, at_s)) without rowid;
create index if not exists samples_by_time on samples (at_s);
create table if not exists about (cluster_id text not null);
create table if not exists looks (at_s integer primary key);
create table if not exists days (topic text not null, day text not null, records integer not null,
    primary key (topic, day)) without rowid;
"""


class Series(NamedTuple):
    """Samples by time, s since the epoch; a value of None is a gap."""

    points: list[Point]

    @property
    def latest(self) -> float | None:
        """None where the newest is a gap, or there is nothing."""
        return self.points[-1][1] if self.points else None


class History:
    """The file. Its methods block; they may be called from any thread."""

    def __init__(self, path: Path | None) -> None:
        """None keeps it in memory. Raises sqlite3.Error for a file that is no history, OSError."""
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(":memory:" if path is None else path, check_same_thread=False)
        self._connection.execute("pragma journal_mode=wal")
        self._connection.execute("pragma synchronous=normal")  # a power cut may cost the last looks, never the file
        self._connection.executescript(_SCHEMA)
        self._ids = {
            (kind, name): number for number, kind, name in self._connection.execute("select id, kind, name from series")
        }
        self._seen: set[int] = set()
        """Counters that the last look found: what rested is known to have rested until then."""
        self._pruned_s = 0

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def begin(self, cluster_id: str) -> None:
        """Continue with the history of this cluster; what is there of another one at the same address goes."""
        with self._lock, self._connection:
            run = self._connection.execute
            known = run("select cluster_id from about").fetchone()
            if known is not None and known[0] != cluster_id:
                for table in ("series", "samples", "looks", "days", "about"):
                    run(f"delete from {table}")
                self._ids.clear()
                known = None
            if known is None:
                run("insert into about values (?)", (cluster_id,))

    def add_look(
        self,
        at_s: int,
        day: str,
        *,
        counters: Mapping[tuple[str, str], float],
        gauges: Mapping[tuple[str, str], float],
        topics: str,
    ) -> None:
        """Keep one look at the cluster, later than all before.

        counters, gauges: (kind, name) -> value. topics: the kind whose growth counts as records of that day (YYYY-MM-DD, UTC).
        """
        with self._lock, self._connection:
            run = self._connection.execute
            before = run("select max(at_s) from looks").fetchone()[0]
            if before is not None and at_s <= before:
                return  # the clock was set back: what is there stays
            run("insert into looks values (?)", (at_s,))
            for (kind, name), value in counters.items():
                number = self._series(kind, name)
                last = run(
                    "select at_s, value from samples where series = ? order by at_s desc limit 1", (number,)
                ).fetchone()
                if last is None or last[1] != value:
                    if last is not None and before is not None and last[0] < before and number in self._seen:
                        run("insert or ignore into samples values (?, ?, ?)", (number, before, last[1]))
                    run("insert into samples values (?, ?, ?)", (number, at_s, value))
                    if kind == topics and last is not None and value > last[1]:
                        run(
                            "insert into days values (?, ?, ?) on conflict (topic, day) do update set records = records + excluded.records",
                            (name, day, int(value - last[1])),
                        )
            self._seen = {self._series(kind, name) for kind, name in counters}
            for (kind, name), value in gauges.items():
                run("insert into samples values (?, ?, ?)", (self._series(kind, name), at_s, value))
            if at_s - self._pruned_s >= PRUNE_EVERY_S:
                self._pruned_s = at_s
                self._prune(at_s)

    def rate(self, kind: str, name: str, *, since_s: int, until_s: int) -> Series:
        """Growth per second of a counter, in at most BUCKETS steps."""
        with self._lock:
            looks = self._looks(since_s, until_s)
            samples = self._samples(kind, name, since_s, until_s, is_counter=True)
        if not samples:
            return Series([])
        steps: list[Point] = []
        for from_s, to_s in pairwise(looks):
            if to_s - from_s > GAP_S:
                steps.append((to_s, None))
            elif from_s >= samples[0][0]:
                growth = _value_at(samples, to_s) - _value_at(samples, from_s)
                steps.append((to_s, max(0.0, growth) / (to_s - from_s)))
        return Series(_thinned(steps, since_s, until_s))

    def gauge(self, kind: str, name: str, *, since_s: int, until_s: int) -> Series:
        """A gauge in at most BUCKETS steps."""
        with self._lock:
            samples = self._samples(kind, name, since_s, until_s, is_counter=False)
        points: list[Point] = []
        for at_s, value in samples:
            if points and at_s - points[-1][0] > GAP_S:
                points.append((points[-1][0] + 1, None))
            points.append((at_s, value))
        return Series(_thinned(points, since_s, until_s))

    def days(self, topic: str, *, limit: int) -> list[tuple[str, int]]:
        """(day, records that came) of a topic, newest first."""
        with self._lock:
            found = self._connection.execute(
                "select day, records from days where topic = ? order by day desc limit ?", (topic, limit)
            ).fetchall()
        return [(str(day), int(records)) for day, records in found]

    def names(self, kind: str) -> list[str]:
        """The names of the series of a kind."""
        with self._lock:
            return sorted(name for of, name in self._ids if of == kind)

    def _series(self, kind: str, name: str) -> int:
        number = self._ids.get((kind, name))
        if number is None:
            cursor = self._connection.execute("insert into series (kind, name) values (?, ?)", (kind, name))
            assert cursor.lastrowid is not None
            number = self._ids[kind, name] = cursor.lastrowid
        return number

    def _looks(self, since_s: int, until_s: int) -> list[int]:
        found = self._connection.execute(
            "select at_s from looks where at_s between ? and ? order by at_s", (since_s, until_s)
        )
        return [at_s for (at_s,) in found]

    def _samples(
        self, kind: str, name: str, since_s: int, until_s: int, *, is_counter: bool
    ) -> list[tuple[int, float]]:
        number = self._ids.get((kind, name))
        if number is None:
            return []
        run = self._connection.execute
        found = run(
            "select at_s, value from samples where series = ? and at_s between ? and ? order by at_s",
            (number, since_s, until_s),
        ).fetchall()
        if is_counter:  # what it was when the span began: it may have rested since
            earlier = run(
                "select at_s, value from samples where series = ? and at_s < ? order by at_s desc limit 1",
                (number, since_s),
            ).fetchone()
            if earlier is not None:
                found.insert(0, earlier)
        return found

    def _prune(self, now_s: int) -> None:
        run = self._connection.execute
        count = run("select count(*) from samples").fetchone()[0]
        oldest_s = now_s - KEEP_S
        if count > SAMPLES_MAX:
            cut = run(
                "select at_s from samples order by at_s limit 1 offset ?", (count - SAMPLES_MAX * 9 // 10,)
            ).fetchone()
            oldest_s = max(oldest_s, cut[0])
        # A counter that rests keeps its newest sample: the next change is counted from there.
        run(
            "delete from samples where at_s < ? and at_s < "
            "(select max(newer.at_s) from samples as newer where newer.series = samples.series)",
            (oldest_s,),
        )
        run("delete from looks where at_s < ?", (oldest_s,))
        run("delete from days where julianday(day) < julianday(?, 'unixepoch') - ?", (now_s, DAYS_KEPT))


def _value_at(samples: list[tuple[int, float]], at_s: int) -> float:
    """The value of a counter whose samples rise in time: it grows evenly from one to the next, and rests behind the last."""
    after = bisect_right(samples, (at_s, math.inf))
    if after == len(samples) or after == 0:
        return samples[max(0, after - 1)][1]
    (first_s, first), (second_s, second) = samples[after - 1], samples[after]
    return first + (second - first) * (at_s - first_s) / (second_s - first_s)


def _thinned(points: list[Point], since_s: int, until_s: int) -> list[Point]:
    """The mean of each bucket; a bucket with a gap alone is a gap."""
    if len(points) <= BUCKETS:
        return points
    width = max(1, (until_s - since_s) / BUCKETS)
    buckets: dict[int, list[Point]] = {}
    for at_s, value in points:
        buckets.setdefault(int((at_s - since_s) / width), []).append((at_s, value))
    thinned: list[Point] = []
    for bucket in buckets.values():
        known = [value for _, value in bucket if value is not None]
        thinned.append((bucket[-1][0], sum(known) / len(known) if known else None))
    return thinned
