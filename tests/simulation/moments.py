"""Whether a seed that a test names still reaches the moment that it is named for.

May touch:  what nodes log, the figures of a run.   Must not touch: the run.
Invariants: a test whose seed and those that follow it lead elsewhere, after a change of the code or of the simulation, fails instead of
            testing nothing.
Read next:  test_nodes.py and test_transactions.py, whose seeds say what they must reach.

A moment is a regular expression. It is looked for in every line that a node logs (level INFO), and in one line for each of the run's
figures that is not 0: `bits_flipped: 3`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from barnabas_simulation.cluster import Cluster
from barnabas_simulation.run import Figures
from barnabas_simulation.swarm import Slant
from tests.simulation.side_by_side import telling

STEPS = 12_000
SEEDS_MAX = 60
"""Every change of what is written moves the moments of all seeds. The rarest one here is in one seed of ten."""

DAMAGED = "damaged in "
"""The scrub found rot."""
DAMAGED_AT_START = "damaged below its recovery point"
REPAIRED = "repaired .* from broker"
CUT = "cut at offset .*, before"
CORRUPT = "this replica is corrupt"
WHOLE = "is whole again"
LEADS_DAMAGED = "cannot be read, and no other replica in sync"
OFFLINE = "failed and is offline"
FULL = "is full and takes no records"
START_MOVED = "is out of the leader's range, starting over"
"""Retention or an operator took what a follower lacked."""
DELETED = "^deletions: "
SHORT_OF_DESCRIPTORS = "^descriptor_shortages: "
COMPACTED = "^compactions: "
TRANSACTIONS = "^transactions: "


class _Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """See Handler."""
        self.lines.append(record.getMessage())


def until_reached(seed: int, slant: Slant, moments: Sequence[str]) -> None:
    """Run seeds, from this one on, until one reaches all the moments. AssertionError when SEEDS_MAX do not, or one breaks a law."""
    for number in range(seed, seed + SEEDS_MAX):
        lines, figures = _heard(number, slant)
        if not (left := missed(moments, lines, figures)):
            return
    raise AssertionError(f"seeds {seed} to {number} do not reach {left}")


@cache
def _heard(seed: int, slant: Slant) -> tuple[list[str], Figures]:
    """What nodes log in one run, and its figures. Rules that begin with one seed share its run, and those behind it."""
    with listening() as lines, telling(seed):
        figures = Cluster(seed, steps=STEPS, slant=slant).run()
    return lines, figures


@contextmanager
def listening() -> Iterator[list[str]]:
    """The lines that nodes log meanwhile, as they come."""
    root, heard = logging.getLogger(), _Lines()
    before = root.level, root.manager.disable
    root.addHandler(heard)
    root.setLevel(logging.INFO)
    logging.disable(logging.NOTSET)
    try:
        yield heard.lines
    finally:
        root.removeHandler(heard)
        root.setLevel(before[0])
        logging.disable(before[1])


def missed(moments: Sequence[str], lines: Sequence[str], figures: Figures) -> list[str]:
    """Those of the moments that the run did not reach."""
    figured = [f"{name}: {value}" for name in figures.__slots__ if (value := getattr(figures, name))]
    return [moment for moment in moments if not any(re.search(moment, line) for line in [*lines, *figured])]
