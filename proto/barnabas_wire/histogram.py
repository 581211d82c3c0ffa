"""A histogram in seconds, as plain numbers: what a room keeps in its Stats and the broker's metrics read.

May touch:  nothing.                  Must not touch: a clock, any metrics library.
Invariants: one bucket more than bounds; counts only grow.
Read next:  barnabas_broker/metrics/exporter.py.

It lies below all rooms because log and metadata_quorum, which never see each other, both keep times.
"""

from __future__ import annotations

from bisect import bisect_left

BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    """Counts per bucket and the sum of what was observed."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = BUCKETS_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        """Count a value, seen so many times."""
        self.counts[bisect_left(self.bounds, seconds)] += times
        self.total += seconds * times

    @property
    def count(self) -> int:
        """How many values were observed."""
        return sum(self.counts)
