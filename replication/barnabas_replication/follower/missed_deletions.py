"""What a follower does about a leader whose log has forgotten deletions that it never had: pure.

May touch:  its arguments.                Must not touch: asyncio, clock, log, network.
Invariants: records are taken in only where they leave no deleted key behind: at or past what the leader has forgotten, or by a log
            that holds nothing but a copy of that leader's, made in one epoch of it and under one such offset.
Read next:  barnabas_log/forgotten.py; fetcher_partitions.py, which obeys; refill.py, which refills a log.

Why. A leader's compaction lets tombstones go some time after it took the values that they delete. A replica that was away for longer
has the values, and is never sent the tombstones: it would read deleted keys out once it leads. Likewise the end of a transaction goes
after its data: a replica that has the data would wait for the end for ever.

A leader has forgotten nothing above its high watermark, so whoever is in sync or eligible has had all of it. A replica that has not
is therefore neither, unless the leader does not know what it has forgotten: it is reported as corrupt before it is
refilled.
"""

from __future__ import annotations

from enum import Enum, auto

from barnabas_log.forgotten import Copied
from barnabas_wire.kafka.ids import Epoch, Offset


class Intake(Enum):
    """What becomes of records that came."""

    PLAIN = auto()
    """Take them in: nothing is missing before them."""
    FIRST_OF_COPY = auto()
    """Take them in, as the first of a copy of the leader's log: ours holds nothing."""
    COPY = auto()
    """Take them in: ours is a copy of the leader's so far."""
    REFUSED = auto()
    """Ours may hold what was deleted: it must be refilled."""


def intake_of(
    *,
    forgotten_below: Offset,
    leader_epoch: Epoch,
    log_start_offset: Offset,
    log_end_offset: Offset,
    copied: Copied | None,
) -> Intake:
    """What to do with records that continue a log from `log_start_offset` to `log_end_offset`.

    forgotten_below: as the leader of that epoch says; -1 where it has forgotten nothing past the log's end. copied: see Copied.
    """
    if forgotten_below <= log_end_offset:
        return Intake.PLAIN
    if log_start_offset == log_end_offset:
        return Intake.FIRST_OF_COPY
    return Intake.COPY if copied == (leader_epoch, forgotten_below) else Intake.REFUSED
