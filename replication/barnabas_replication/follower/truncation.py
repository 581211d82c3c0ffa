"""Where a follower must cut its log when the leader says that their histories part.

May touch:  its arguments.                Must not touch: asyncio, clock, log, network.
Invariants: what is kept lies below the end of every epoch both sides know; each answer cuts or ends the search.
Read next:  fetcher_partitions.py, which obeys; KIP-101 and KIP-279 for why offsets alone lose data.

Not obvious:
- Kafka serves a follower whose last epoch ended at or before the leader's log start. What such a follower holds below that start
  may never have been committed, and would come to light if it were elected before it hears of the start. Ours starts an
  empty log.
- A log that retention has emptied keeps its last epoch though no record is left of it. There is nothing to come to light, so it
  is served like one that never held a record. Refused, it would stop for good: it cannot start an empty log further on
  than its own end.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas_wire.kafka.ids import Epoch, Offset


class EpochEnd(NamedTuple):
    """A leader epoch and the offset where it ends; epoch -1 when none is known."""

    epoch: Epoch
    end_offset: Offset


def find_divergence(*, asked_epoch: Epoch, fetch_offset: Offset, local: EpochEnd) -> EpochEnd | None:
    """Leader's side: what to answer a follower whose last batch has asked_epoch and ends at fetch_offset; None when it fits.

    local: the leader's largest epoch not above asked_epoch, and its end.
    """
    if local.epoch < asked_epoch or local.end_offset < fetch_offset:
        return local
    return None


def must_begin_anew(
    *, log_start_offset: Offset, local: EpochEnd, asker_start_offset: Offset, fetch_offset: Offset
) -> bool:
    """Leader's side: whether the follower holds records, and our log begins where its last epoch ended or later.

    log_start_offset, local: ours; local is the largest epoch not above the follower's last, and its end. asker_start_offset:
    where the follower's log begins, -1 when it does not say, which counts as before every record.
    """
    return 0 < log_start_offset >= local.end_offset and asker_start_offset < fetch_offset


def truncation_offset(*, leader: EpochEnd, local: EpochEnd, log_end_offset: Offset) -> Offset:
    """Follower's side: where to cut, given the leader's answer and our own largest epoch not above leader.epoch.

    Same epoch on both sides: the shorter of the two. Ours is smaller: we do not know the leader's epoch, so the end of ours
    bounds it too, and the next fetch asks with that epoch (KIP-279). We know none so old: follow the leader. Never above
    our own end.
    """
    if local.epoch < 0:
        return min(leader.end_offset, log_end_offset)
    return min(local.end_offset, leader.end_offset, log_end_offset)
