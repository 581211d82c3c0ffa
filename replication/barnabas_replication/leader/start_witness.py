"""Where a leader's log starts, when its own files do not prove that: what the in-sync followers say. Pure.

May touch:  its arguments.                Must not touch: asyncio, clock, log, network.
Invariants: nothing is deleted before every in-sync follower has told where its log starts, and nothing above the high watermark.
Read next:  partition.py `settle_log_start`, which obeys; barnabas_log/directories/checkpoint_twins.py for what puts a start in doubt.

A start that is too low shows records again that were deleted. A follower that is in sync has deleted them, or its retention has let
them go, and its own start is in its checkpoint: that is the proof. A start that is not in doubt is never moved by this.
"""

from __future__ import annotations

from collections.abc import Collection

from barnabas_wire.kafka.ids import Offset


def witnessed_start(
    *, log_start_offset: Offset, high_watermark: Offset, follower_starts: Collection[Offset]
) -> Offset | None:
    """Where the leader's log is to start; None while that is not known.

    Args:
        log_start_offset: the leader's own, which is in doubt and may be too low.
        follower_starts: of every in-sync follower; -1 where it has not told yet.
    """
    if not follower_starts or min(follower_starts) < 0:
        return None
    start = max(log_start_offset, *follower_starts)
    return start if start <= high_watermark else None
