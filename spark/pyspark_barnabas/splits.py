"""How offset ranges are shared among tasks and micro-batches, by what they weigh. Pure.

May touch:  its arguments.            Must not touch: sockets, Spark.
Invariants: the pieces of a range follow each other and cover it; none is empty; a limit of bytes moves every partition that lags
    by at least one offset, so that none starves.
Read next:  source.py, which moves the cuts to where record batches begin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from pyspark_barnabas.offsets import OffsetRange, Offsets, SourcePartition

BYTES_PER_OFFSET_GUESSED = 100.0
"""What an offset weighs where nobody says."""
Density = Mapping[SourcePartition, float]
"""Bytes that one offset of a partition takes in its log, on average."""


def cuts(
    wanted: Sequence[OffsetRange], density: Density, *, parts_min: int | None, records_max: int | None
) -> list[list[int]]:
    """For each range the offsets where it is cut, as Spark's Kafka source does it but by bytes.

    parts_min: about so many pieces in all, never more than offsets. records_max: most offsets of a piece.
    """
    weights = [(end - start) * density.get(key, BYTES_PER_OFFSET_GUESSED) for key, start, end in wanted]
    total = sum(weights)
    found = []
    for (_, start, end), weight in zip(wanted, weights, strict=True):
        pieces = 1
        if records_max is not None:
            pieces = -(-(end - start) // records_max)
        if parts_min is not None and parts_min > len(wanted) and total > 0:
            pieces = max(pieces, round(weight / total * parts_min))
        pieces = min(max(pieces, 1), end - start)
        found.append([start + (end - start) * piece // pieces for piece in range(1, pieces)])
    return found


def pieces(whole: OffsetRange, at: Sequence[int], *, records_max: int | None) -> list[OffsetRange]:
    """The range in pieces. `at`: where it is cut, in any order; a cut outside, or twice, counts for nothing.

    A piece that is longer than records_max, as a cut was moved, is cut once more.
    """
    key, start, end = whole
    bounds = [start, *sorted({offset for offset in at if start < offset < end}), end]
    found = []
    for first, last in pairwise(bounds):
        step = last - first if records_max is None else records_max
        found += [OffsetRange(key, at, min(at + step, last)) for at in range(first, last, step)]
    return found


def end_within_bytes(start: Offsets, end: Offsets, density: Density, bytes_max: int) -> Offsets:
    """Ends of at most about bytes_max bytes together, shared in proportion to each partition's backlog in bytes.

    `start` covers every partition of `end`. A partition of which nothing is known weighs a guess.
    """
    weigh = {key: max(density.get(key, BYTES_PER_OFFSET_GUESSED), 1e-9) for key in end}
    backlog = {key: max(0, end[key] - start[key]) * weigh[key] for key in end}
    total = sum(backlog.values())
    if total <= bytes_max:
        return dict(end)
    return {
        key: min(end[key], start[key] + max(1, int(behind * bytes_max / total / weigh[key]))) if behind else end[key]
        for key, behind in backlog.items()
    }
