"""What metrics pull of the controller's driver.

May touch:  nothing.                  Must not touch: everything.
Invariants: plain counters and histograms; whoever counts says here what.
Read next:  controller_driver.py and periodic_tasks.py, which count.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from barnabas_quorum.controller.partition_change import ElectedFrom
from barnabas_wire.histogram import Histogram
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class ControllerDriverStats:
    """Counters that metrics pull."""

    decisions: int = 0
    refusals: int = 0
    failed_decisions: int = 0
    """How many of these are bugs: the decision raised what none may, or its records do not fit the metadata."""
    records_proposed: int = 0
    heartbeats: int = 0
    brokers_fenced: int = 0
    fenced_by_probe: int = 0
    leader_elections: Counter[ElectedFrom] = field(default_factory=Counter)
    """Counted when they are proposed."""
    times_active: int = 0
    waiters: int = 0
    process_s: Histogram = field(default_factory=Histogram)
    """Deciding, replaying and proposing, per request."""
    wait_s: Histogram = field(default_factory=Histogram)
    """From there to the commit that lets the answer leave; of those that had to wait for one."""
