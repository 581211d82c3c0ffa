"""What time it is by the median of the voters' wall clocks, for brokers that must not destroy anything by a clock that is wrong.

May touch:  its arguments.            Must not touch: asyncio, clocks, gRPC (the transport carries them).
Invariants: one wrong clock among three moves the median by nothing, this node's own too, and whenever it jumps; too few that are
            heard, or two that contradict each other, are no median.
Read next:  node.py, which hears them with the fetches of the voters; broker/metadata/voters_clock.py, which compares its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas_quorum.raft.voters import ReplicaKey, VoterSet

OLD_CONTROLLER_MS = 0
"""What a controller of a version before this says of the voters' clocks."""
UNKNOWN_MS = -1
"""The voters' clocks are not known, or contradict each other."""
HEARD_FOR_MS = 30_000
"""A voter's clock counts for so long after its last fetch."""
AGREEMENT_MS = 60_000
"""With an even number the two in the middle must be this close to each other."""


def median_skew_ms(skews_ms: Sequence[int], *, voters: int) -> int | None:
    """How far the median of the voters' clocks is ahead of the clock that the skews are against; None when there is none.

    Args:
        skews_ms: of the voters that are heard, this node's own among them.
        voters: how many there are in all.
    """
    ordered = sorted(skews_ms)
    if 2 * len(ordered) <= voters:
        return None
    high = ordered[len(ordered) // 2]
    low = ordered[(len(ordered) - 1) // 2]
    return None if high - low > AGREEMENT_MS else (high + low) // 2


class VotersClocks:
    """The voters' clocks as the leader hears them."""

    def __init__(self) -> None:
        self._skews: dict[ReplicaKey, tuple[int, int]] = {}
        """How far each is ahead of this node's monotonic clock, and when it was heard by that: the wall clock may jump meanwhile."""

    def hear(self, key: ReplicaKey, clock_ms: int, *, now_ms: int) -> None:
        """A replica said what its wall clock shows; 0 = it is of a version that does not say. `now_ms`: by the monotonic clock."""
        if clock_ms > 0:
            self._skews[key] = clock_ms - now_ms, now_ms

    def median_ms(self, voters: VoterSet, me: ReplicaKey, *, wall_ms: int, now_ms: int) -> int:
        """The median of the voters' clocks; UNKNOWN_MS when it is not known.

        Args:
            wall_ms: of this node.
            now_ms: by its monotonic clock.
        """
        self._skews = {key: found for key, found in self._skews.items() if now_ms - found[1] <= HEARD_FOR_MS}
        skews = [self._skews[key][0] for key in voters.keys if key != me and key in self._skews]
        median = median_skew_ms([*skews, wall_ms - now_ms], voters=len(voters))
        return UNKNOWN_MS if median is None else now_ms + median
