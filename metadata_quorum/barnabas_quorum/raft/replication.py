"""The rules of replication: what is committed, and where two logs diverge.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: the high watermark never falls; it first moves past the start of the leader's own epoch, never onto it,
            so records of an older epoch commit only together with one of this epoch (Raft 5.4.2, figure 8).
Read next:  core.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas_quorum.raft.epoch_history import EpochHistory
from barnabas_quorum.raft.messages import EpochStart, FetchReply
from barnabas_wire.kafka.ids import Epoch, Offset


def next_high_watermark(
    durable_ends: Sequence[Offset], *, majority: int, epoch_start: Offset, high_watermark: Offset
) -> Offset:
    """The new high watermark of a leader, or the old one.

    Args:
        durable_ends: the end offset that each voter, the leader among them, has on disk.
        majority: the number of voters in a majority.
        epoch_start: where the leader's epoch begins.
        high_watermark: the present one.
    """
    reached = sorted(durable_ends)[len(durable_ends) - majority]
    if reached > epoch_start and reached > high_watermark:
        return reached
    return high_watermark


def others_needed(*, majority: int, is_voter: bool) -> int:
    """How many other voters make a majority together with the leader, or without it when it is being removed."""
    return majority - 1 if is_voter else majority


def heard_from_majority_ms(last_fetches_ms: Sequence[int], *, needed: int) -> int:
    """Since when the leader has heard from enough voters: the oldest of the `needed` latest fetches."""
    return sorted(last_fetches_ms, reverse=True)[needed - 1]


def divergence(history: EpochHistory, *, log_end: Offset, fetch_offset: Offset, last_epoch: Epoch) -> EpochStart | None:
    """Where the leader's log diverges from that of a replica which has `last_epoch` up to `fetch_offset`.

    None when the replica's log is a prefix of the leader's; else the largest epoch not above last_epoch that the leader
    has, and its end there. Not for a replica that needs a snapshot (snapshots.needed).
    """
    if fetch_offset == 0:
        return None
    found = history.end_of(last_epoch, log_end=log_end)
    if found.epoch != last_epoch or found.start_offset < fetch_offset:
        return found
    return None


def truncation_offset(history: EpochHistory, *, log_end: Offset, diverging: EpochStart) -> Offset:
    """Where a follower truncates its log after the leader named the end of an epoch; it may take several rounds (KIP-595).

    The offset is always between two batches. One leader wrote an epoch, so two logs that have it have the same batches of it, up
    to the shorter end. Where this log lacks the epoch, the leader's end of it may lie within a batch here: the log is truncated
    to the end of its own epoch before that, and the next fetch names that epoch.
    """
    mine = history.end_of(diverging.epoch, log_end=log_end)
    if mine.epoch < diverging.epoch:
        return mine.start_offset
    return min(diverging.start_offset, mine.start_offset)


def is_continuation(reply: FetchReply, *, log_end: Offset, last_epoch: Epoch, epoch: Epoch) -> bool:
    """Whether fetched records may be appended: they start at the log's end, and epochs ascend up to `epoch`."""
    if reply.base_offset != log_end or not reply.epochs or reply.epochs[0].start_offset != log_end:
        return False
    previous = EpochStart(last_epoch, Offset(-1))
    for entry in reply.epochs:
        if entry.epoch < previous.epoch or entry.start_offset <= previous.start_offset:
            return False
        previous = entry
    voters_offset = Offset(log_end - 1)
    for offset, _ in reply.voter_sets:
        if not voters_offset < offset < reply.end_offset:
            return False
        voters_offset = offset
    return previous.epoch <= epoch and previous.start_offset < reply.end_offset
