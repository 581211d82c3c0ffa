"""The rules of a log that its disk has damaged: what is an unfinished write, what is damage, what such a replica may do.

May touch:  its arguments.            Must not touch: asyncio, clock, files, network.
Invariants: a record that a flush has covered and a later flush has seen is never taken for an unfinished write; who has
            lost such records votes as if it still had them, and does not run for election, until its log is as far again.
Read next:  replica.py, which holds `lost_end`; broker/node/flush_marks.py, which keeps the marks on disk.

After a crash a log may end in bytes that make no batch. If nothing there was ever acknowledged, that is the end of an
unfinished write and is cut. If it was, the disk has lost what it had confirmed (a flipped bit, a lost or misplaced write),
and cutting alone would forget an acknowledgement: this replica could then help to elect one that never had the record, or
be elected itself, and what a majority held would be gone (Alagappan et al., Protocol-Aware Recovery for Consensus-Based
Storage, FAST '18). So the two must be told apart, by a mark that goes to the disk with each flush:

- `flushed_end` was durable when the mark was written: below it everything is damage.
- `begun` is where the flush ends that the mark goes with. Nothing beyond it was ever acknowledged.
- Between the two the flush may have been cut off by the crash, which is what happens on all nodes when the power fails; so
  there it is taken for unfinished. A mark that follows in a quiet moment closes this gap.

A replica that has lost records keeps its identity, its epoch and its vote. Raft compares ends of logs and nothing else when
it votes (5.4.1), so one that remembers where its log ended votes just as the whole log would have. That is never less safe
than to refuse every vote, and a voter that was merely slow is not missed. Only its own log must not win: it does not run.
The records come back from a leader, which has all that was committed, as they come to any follower that lags.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas_wire.kafka.ids import Epoch, Offset


class LogEnd(NamedTuple):
    """Where a log ends. Ordered as Raft orders logs: the later last epoch wins, then the length."""

    epoch: Epoch
    """Of the last record."""
    end_offset: Offset


class FlushMark(NamedTuple):
    """What a replica knows of its flushes, kept where damage to the log does not reach it."""

    flushed_end: Offset
    begun: LogEnd
    lost: LogEnd | None
    """What was lost before and is not back yet."""


def lost_end(mark: FlushMark | None, *, found: LogEnd) -> LogEnd | None:
    """Where the log ended before it was damaged; None when nothing is missing that may have been acknowledged.

    Args:
        mark: the last one that is whole; None on a disk that has none, where nothing can be said.
        found: where the sound part of the log ends.
    """
    if mark is None:
        return None
    lost = mark.lost
    if found.end_offset < mark.flushed_end and (lost is None or lost < mark.begun):
        lost = mark.begun
    return None if lost is None or found >= lost else lost
