"""Every fault that a run injects has a number, so that it can be left out.

May touch:  its arguments.            Must not touch: the simulations, any random generator.
Invariants: a run with the same seed and the same faults left out is the same run.
Read next:  cluster.py, whose faults have these numbers; tests/simulation/shrinking.py, which leaves some out.

Numbers count the moments at which a fault was to strike, left out or not, in the order of the run. Leaving one out changes
what comes after it, and so what later numbers stand for; the run stays one run all the same.
"""

from __future__ import annotations

import re
from typing import NamedTuple

FOR_EVER = 1 << 60


class Without(NamedTuple):
    """Faults that are left out: single numbers, and all from `beyond` on."""

    numbers: frozenset[int] = frozenset()
    beyond: int = FOR_EVER

    @classmethod
    def parse(cls, text: str) -> Without:
        """Read `3,7-12,40-` (the last: all from 40 on). Raises ValueError that names the faulty part."""
        numbers: set[int] = set()
        beyond = FOR_EVER
        for part in text.split(",") if text else []:
            found = re.fullmatch(r"(\d+)(?:(-)(\d*))?", part.strip())
            if found is None:
                raise ValueError(f"{part!r} is not a number, a range such as 7-12, or one without an end such as 40-")
            first = int(found[1])
            if found[2] is None:
                numbers.add(first)
            elif found[3]:
                numbers.update(range(first, int(found[3]) + 1))
            else:
                beyond = min(beyond, first)
        return cls(frozenset(numbers), beyond)

    def __str__(self) -> str:
        parts: list[str] = []
        left = sorted(number for number in self.numbers if number < self.beyond)
        start = 0
        for index in range(1, len(left) + 1):
            if index == len(left) or left[index] != left[index - 1] + 1:
                first, last = left[start], left[index - 1]
                parts.append(str(first) if first == last else f"{first}-{last}")
                start = index
        if self.beyond != FOR_EVER:
            parts.append(f"{self.beyond}-")
        return ",".join(parts)


class Fault(NamedTuple):
    """One that was to strike."""

    number: int
    time_us: int
    kind: str
    source: int
    target: int
    is_left_out: bool

    def __str__(self) -> str:
        where = f"{self.source}" if self.target < 0 else f"{self.source} -> {self.target}"
        return f"{self.number:6} at {self.time_us / 1e6:.6f} s: {self.kind} {where}"


class FaultList:
    """The faults of one run, as they come."""

    __slots__ = ("_beyond", "_numbers", "count", "kept", "only_count")

    def __init__(self, without: Without = Without(), *, only_count: bool = False) -> None:  # noqa: B008 - immutable
        """`only_count`: keep no list, for runs that will not be looked into."""
        self._numbers, self._beyond = without
        self.count = 0
        self.only_count = only_count
        self.kept: list[Fault] = []

    def strikes(self, time_us: int, kind: str, source: int, target: int = -1) -> bool:
        """A fault is about to happen; False when it is left out."""
        number = self.count
        self.count = number + 1
        is_left_out = number >= self._beyond or number in self._numbers
        if not self.only_count:
            self.kept.append(Fault(number, time_us, kind, source, target, is_left_out))
        return not is_left_out

    def struck(self) -> list[Fault]:
        """Those that were not left out."""
        return [fault for fault in self.kept if not fault.is_left_out]
