"""The rules for a log that its disk has damaged: what is an unfinished write, what is damage, what such a replica may do.

May touch:  its arguments.            Must not touch: asyncio, clock, files, network.
Invariants: a record that a flush covered, with a later flush after it, is never treated as an unfinished write; a replica
            that has lost such records votes as if it still had them, and does not run for election, until its log reaches
            as far again.
Read next:  replica.py, which has `lost_end`; broker/metadata/flush_marks.py, which keeps the marks on disk.

After a crash a log may end in bytes that are not a batch. If nothing there was ever acknowledged, they are the end of an
unfinished write and are cut. Otherwise the disk has lost what it had confirmed (a flipped bit, a lost or misplaced write),
and merely cutting would forget an acknowledgement: this replica could then help to elect one that never had the record, or
be elected itself, and records that a majority had would be gone (Alagappan et al., Protocol-Aware Recovery for
Consensus-Based Storage, FAST '18). To distinguish the two, a mark goes to the disk with each flush:
- `flushed_end` was durable when the mark was written: below it everything is damage.
- `begun` is the end of the flush that the mark belongs to. Nothing beyond it was ever acknowledged.
- Between the two the crash may have interrupted the flush, which happens on all nodes when the power fails; so this range
  counts as unfinished. A mark that follows in a quiet moment closes this gap.

A replica that has lost records keeps its identity, its epoch and its vote. Raft compares only the ends of logs when it votes
(5.4.1), so a replica that remembers where its log ended votes as the undamaged log would have. That is as safe as refusing
every vote, and the quorum does not lose a voter. But its own log must not win an election, so it does not run. It gets the
records back from a leader, which has everything that was committed, as any lagging follower does.

A replica whose directory is gone does not even remember where its log ended, or whom it voted for. Its lost end is UNKNOWN_END: no
candidate's log reaches that, so it votes for nobody, until inquiry.py finds that nothing is lost or that all has come back.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas_wire.kafka.ids import Epoch, Offset


class LogEnd(NamedTuple):
    """The end of a log. Ordered as Raft orders logs: the later last epoch wins, then the length."""

    epoch: Epoch
    """The epoch of the last record."""
    end_offset: Offset


UNKNOWN_END = LogEnd(Epoch(2**31 - 1), Offset(2**63 - 1))
"""Beyond every log: what this replica once acknowledged or promised cannot be told from its disk."""


class FlushMark(NamedTuple):
    """What a replica knows about its flushes, kept outside the log so that damage to the log does not affect it."""

    flushed_end: Offset
    begun: LogEnd
    lost: LogEnd | None
    """The log's end before earlier damage, until the log reaches it again."""


def lost_end(mark: FlushMark | None, *, found: LogEnd) -> LogEnd | None:
    """Where the log ended before it was damaged; None when nothing is missing that may have been acknowledged.

    Args:
        mark: the last intact one; None on a disk that has none, where loss cannot be detected.
        found: where the intact part of the log ends.
    """
    if mark is None:
        return None
    lost = mark.lost
    if found.end_offset < mark.flushed_end and (lost is None or lost < mark.begun):
        lost = mark.begun
    return None if lost is None or found >= lost else lost


def has_forgotten(mark: FlushMark | None, *, found: LogEnd, has_hard_state: bool, has_begun: bool) -> bool:
    """Whether a disk does not show what its replica has promised: its log is empty, and nothing says that it began that way; or
    the hard state is gone, and with it the vote.

    Args:
        mark: the last intact one; None on a disk that has none.
        found: where the intact part of the log ends.
        has_hard_state: whether there was a saved one.
        has_begun: it says that this log began empty with the quorum itself.
    """
    if found.end_offset == 0:
        return mark is None or not has_begun
    return not has_hard_state
