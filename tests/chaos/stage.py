"""What a scenario works with: the cluster, the watch, the load, its bounds, and the waits that all scenarios share.

May touch:  its parts.                Must not touch: faults.
Invariants: every wait is bounded, and ends with a TimeoutError that says what did not happen.
Read next:  scenarios.py, voters.py.
"""

from __future__ import annotations

import asyncio
import time
from random import Random
from typing import NamedTuple

from tests.chaos.nodes import ChaosCluster
from tests.chaos.report import Figures
from tests.chaos.watch import Watch
from tests.chaos.workload import Workload

LEADER_WITHIN_S = 60.0
SETTLED_WITHIN_S = 60.0
WRITE_WITHIN_S = 60.0


class Bounds(NamedTuple):
    """How much of a scenario is done."""

    times: int
    hold_s: float
    """How long one fault lasts, where it lasts."""
    budget_s: float
    """No new fault is begun after this long."""


class Stage(NamedTuple):
    """What a scenario works with."""

    cluster: ChaosCluster
    watch: Watch
    load: Workload
    random: Random
    bounds: Bounds
    figures: Figures
    begun: float

    def may_go_on(self, index: int) -> bool:
        """Whether one more fault is due."""
        return index < self.bounds.times and time.monotonic() - self.begun < self.bounds.budget_s

    async def settle(self) -> None:
        """Wait until one leader has all running controllers with it, then take fresh topics."""
        await self.watch.until(self.watch.is_settled, timeout_s=SETTLED_WITHIN_S, what="a settled quorum")
        self.load.next_round()
        await asyncio.sleep(self.random.uniform(0.3, 1.3))

    async def leader(self) -> int:
        """The leader, once one is seen: on a starved machine one may be silent, or voted out, a moment after all was settled."""
        await self.watch.until(lambda: self.watch.leader() is not None, timeout_s=SETTLED_WITHIN_S, what="a leader")
        leader = self.watch.leader()
        assert leader is not None, "nothing runs between the look that ended the wait and this one"
        return leader

    async def await_first_write(self, fault: float) -> float:
        """s from the fault to the answer of the first acknowledged write that began after it."""
        await self.watch.until(
            lambda: self.load.first_write_after(fault) is not None, timeout_s=WRITE_WITHIN_S, what="a write"
        )
        answered = self.load.first_write_after(fault)
        assert answered is not None
        return answered - fault
