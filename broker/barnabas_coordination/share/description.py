"""How a share partition is, for whoever asks why it does not advance: operators, metrics, `explain group`.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: it only reads.
Read next:  partition.py, window.py.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas_coordination.share.acquiring import room_in
from barnabas_coordination.share.partition import SharePartition
from barnabas_coordination.share_state.messages import DeliveryState
from barnabas_wire.kafka.ids import Offset


class ShareDescription(NamedTuple):
    """What it comes to."""

    start_offset: Offset
    end_offset: Offset
    """The last offset in flight; the one before the start offset if none is."""
    in_flight: int
    acquired: int
    available: int
    """Ready to be delivered again."""
    delayed: int
    archiving: int
    """Given up, and not yet among the dead letters."""
    held_letters: int
    """Dead letters that could not be written and are tried again."""
    complete: int
    oldest_lock_ms: int
    """When the record that is acquired longest was acquired; 0: none is."""
    next_due_ms: int
    """When the next delayed record is due; 0: none is."""
    deliveries: tuple[tuple[int, int], ...]
    """(count, offsets) of what is in flight and not complete, rising."""
    is_full: bool
    """Whether nothing new is delivered until something is complete."""
    is_bound_by_delayed: bool
    """Whether that is because as many records wait for their time as may."""


def describe(core: SharePartition) -> ShareDescription:
    """How it is now."""
    window = core.window
    deliveries: dict[int, int] = {}
    oldest_ms = due_ms = 0
    for run in window.runs:
        if run.state in (DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED):
            continue
        deliveries[run.deliveries] = deliveries.get(run.deliveries, 0) + len(run)
        if run.acquired_ms and (not oldest_ms or run.acquired_ms < oldest_ms):
            oldest_ms = run.acquired_ms
        if run.due_ms > 0 and (not due_ms or run.due_ms < due_ms):
            due_ms = run.due_ms
    available, acquired, _, archiving, _ = window.counts
    room = room_in(window, core.settings, below=window.end + 1)
    return ShareDescription(
        window.start,
        Offset(window.end),
        in_flight=core.settings.partition_max_record_locks - room,
        acquired=acquired,
        available=available - window.delayed,
        delayed=window.delayed,
        archiving=archiving,
        held_letters=core.letters.held,
        complete=window.complete,
        oldest_lock_ms=oldest_ms,
        next_due_ms=due_ms,
        deliveries=tuple(sorted(deliveries.items())),
        is_full=core.is_full,
        is_bound_by_delayed=core.is_bound_by_delayed,
    )
