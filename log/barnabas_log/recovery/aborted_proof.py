"""What a segment itself says of its aborted transactions: its markers, read again where its .txnindex is doubtful.

May touch:  the Disk and segments, reading; the files of the entries, to make them again.   Must not touch: clocks, the loop.
Invariants: entries come from markers alone, and from where their transactions began; where a segment cannot be read to its end, what
            its file said stays.
Read next:  aborted_transactions.py, what the files are; producer_replay.py, which reads the batches; scrubber.py, which compares.

Readers of committed records take what no entry names for committed: a damaged file would show them aborted records, for good.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from barnabas_log.disk import Disk
from barnabas_log.tail.aborted_transactions import AbortedTransaction, AbortedTransactions
from barnabas_log.tail.producer_replay import load_producers, replay_producers
from barnabas_log.tail.segment import LogSegment
from barnabas_wire.kafka.ids import Offset

logger = logging.getLogger(__name__)


def read_aborted(
    disk: Disk, directory: str, segments: Sequence[LogSegment], base: Offset, end: Offset
) -> list[AbortedTransaction] | None:
    """The aborted transactions whose markers are in the segment from base to end; None where it cannot be read to its end.

    segments: of the log, at least up to that one. Reads headers and markers, from the newest producer snapshot not after base on: that
    has the transactions that were open there. Blocks; raises OSError.
    """
    before = [segment for segment in segments if segment.base_offset < base]
    state = load_producers(disk, directory, before, end_offset=base, high_watermark=base)
    state.unread = ()
    replay_producers(state, segments, end_offset=end)
    hidden = [each for segment in segments for each in segment.damaged if state.begin_offset < each.end_offset]
    if state.unread or any(each.first_offset < end for each in hidden):
        return None
    return [each for each in state.aborted if base <= each.last_offset < end]


def remake_aborted(
    aborted: AbortedTransactions,
    disk: Disk,
    directory: str,
    segments: Sequence[LogSegment],
    base: Offset,
    *,
    end_offset: Offset,
    known_from: Offset,
) -> None:
    """At a start: make the files of one segment again that are not what was written.

    end_offset: of the log. known_from: the entries from there on were read from the batches already. Blocks; raises OSError.
    """
    end = min((segment.base_offset for segment in segments if segment.base_offset > base), default=end_offset)
    entries: Sequence[AbortedTransaction] | None = [each for each in aborted if base <= each.last_offset < end]
    if base < known_from:
        entries = read_aborted(disk, directory, segments, base, end)
    if entries is None:
        logger.error(
            "%s/%020d.txnindex is damaged and so is its segment: readers of committed records may see records that were aborted, "
            "until the segment is repaired",
            directory,
            base,
        )
        aborted.unproved.add(base)
        return
    if base < known_from:  # else it may only be behind
        logger.warning(
            "%s/%020d.txnindex is lost or damaged: made again from the markers of its segment, %d aborted transactions",
            directory,
            base,
            len(entries),
        )
    aborted.remake(base, end, entries)
