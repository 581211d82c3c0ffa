"""Whether this broker's wall clock may be believed when something is to be destroyed because it is old.

May touch:  the clocks it is given.   Must not touch: asyncio, files, the network (heartbeat answers bring the voters' clocks).
Invariants: a clock that is not confirmed since the start, or that is off by more than the limit now, judges no age; one
            that was confirmed and jumps afterwards is off at once, for the time since then is counted by the monotonic
            clock.
Read next:  lifecycle.py, which hears; barnabas_quorum/driver/voters_clocks.py, the median.

Differs from Kafka, where one follower whose clock is 20 days ahead for six seconds takes the records from all replicas once it leads.

Decisions. A controller of a version that does not tell the voters' clocks confirms any clock, or a cluster would never retire while
it is upgraded. One that tells that it does not know them (too few are heard, two of two contradict each other) confirms none: nothing is
lost by waiting. Nor is anything confirmed before the first answer. A broker that is cut off keeps the last answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from barnabas_quorum.driver.voters_clocks import OLD_CONTROLLER_MS, UNKNOWN_MS

logger = logging.getLogger(__name__)


class VotersClock:
    """The voters' clock beside this node's. Heard on the control lane, asked on the data lane: one attribute is replaced whole."""

    def __init__(self, *, wall_ms: Callable[[], int], monotonic_ms: Callable[[], int], skew_ms_max: int) -> None:
        """`skew_ms_max`: log.retention.clock.skew.max.ms."""
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self._skew_ms_max = skew_ms_max
        self._heard: tuple[int, int] | None = None
        """What the controller said last, and when by the monotonic clock."""
        self._was_off = False

    def hear(self, voters_ms: int) -> None:
        """A heartbeat was answered with this."""
        self._heard = voters_ms, self._monotonic_ms()
        is_off = self.is_off
        if is_off != self._was_off:
            self._was_off = is_off
            if is_off:
                logger.error(
                    "this node's clock is %.0f s off the median of the voters' clocks: nothing is retired, expired or compacted by age "
                    "here until it is set right (log.retention.clock.skew.max.ms); by size and DeleteRecords it goes on",
                    self.skew_s,
                )
            else:
                logger.warning("this node's clock agrees with the voters' again")

    @property
    def skew_ms(self) -> int | None:
        """How far this node's clock is ahead of the voters' now; None when that is not known."""
        if self._heard is None:
            return None
        voters_ms, heard_ms = self._heard
        if voters_ms in (OLD_CONTROLLER_MS, UNKNOWN_MS):
            return None
        return self._wall_ms() - (voters_ms + self._monotonic_ms() - heard_ms)

    @property
    def skew_s(self) -> float:
        """The same in seconds; 0 when it is not known."""
        return (self.skew_ms or 0) / 1000

    @property
    def is_off(self) -> bool:
        """Whether it is known to be further off than is allowed."""
        skew_ms = self.skew_ms
        return skew_ms is not None and abs(skew_ms) > self._skew_ms_max

    @property
    def told_skew_ms(self) -> int:
        """What the controller is told: how far it is off, where that is too far; else 0."""
        return (self.skew_ms or 0) if self.is_off else 0

    def may_judge_age(self) -> bool:
        """Whether something may be destroyed because it is old by this node's clock."""
        if self._heard is None or self._heard[0] == UNKNOWN_MS:
            return False
        return not self.is_off
