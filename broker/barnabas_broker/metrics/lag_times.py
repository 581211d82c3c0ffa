"""When the high watermarks passed which offset, as far as scrapes have seen it: what turns a lag in records into seconds.

May touch:  its own points.           Must not touch: logs, records, a clock.
Invariants: at most POINTS_MAX points per partition, only of the partitions of the last scrape; a lag is never reported longer than
            it is, but shorter by up to the distance of two points, which is one scrape and grows with their age.
Read next:  groups.py.

Not the records' own time stamps: events of 2013 that are produced today would lag for years.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas_wire.kafka.ids import TopicPartition

POINTS_MAX = 32
"""The most points kept. Beyond it the point goes whose neighbours are closest for their age: the older, the sparser."""


class Point(NamedTuple):
    """A high watermark, and when it was first seen."""

    at_ms: int
    high_watermark: int


Points = tuple[Point, ...]


class Behind(NamedTuple):
    """What one scrape knows."""

    now_ms: int
    points: Mapping[TopicPartition, Points]

    def seconds(self, partition: TopicPartition, offset: int) -> float:
        """How long the high watermark has been beyond this offset; 0 when it is not."""
        passed = (point.at_ms for point in self.points[partition] if point.high_watermark > offset)
        return max(0, self.now_ms - next(passed, self.now_ms)) / 1000


class LagTimes:
    """The points of all partitions. Scrapes may overlap: each replaces the whole map."""

    def __init__(self) -> None:
        self._points: Mapping[TopicPartition, Points] = {}

    def sample(self, now_ms: int, high_watermarks: Mapping[TopicPartition, int]) -> Behind:
        """Take note of the high watermarks now; partitions that are not named are forgotten."""
        before = self._points
        points = {key: with_point(before.get(key, ()), Point(now_ms, end)) for key, end in high_watermarks.items()}
        self._points = points
        return Behind(now_ms, points)


def with_point(points: Points, point: Point) -> Points:
    """The points with a newer one, if it brings anything new."""
    if points and points[-1].high_watermark == point.high_watermark:
        return points
    if points and points[-1].high_watermark > point.high_watermark:
        return (point,)  # committed records were lost: the same offsets are other records now
    points = (*points, point)
    if len(points) <= POINTS_MAX:
        return points

    def gap(index: int) -> float:
        """What would be left open without the point, as a share of its age."""
        opens_ms = points[index - 1].at_ms
        return (points[index + 1].at_ms - opens_ms) / max(1, point.at_ms - opens_ms)

    spare = min(range(1, POINTS_MAX), key=gap)
    return points[:spare] + points[spare + 1 :]
