"""What a replica says of its own place in the quorum: role, epoch, log, vote. For whoever asks why nobody leads.

May touch:  the core (reading).       Must not touch: asyncio, gRPC, the log.
Invariants: of other replicas only whether they answer is reported.
Read next:  ../explain/leaders.py.
"""

from __future__ import annotations

from collections.abc import Collection

from barnabas_quorum.raft.core import QuorumCore
from barnabas_quorum.raft.damage import LogEnd
from barnabas_quorum.raft.voters import ReplicaKey, VoterSet
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, Offset
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """One replica at one moment."""

    key: ReplicaKey
    role: str
    """leader, follower, candidate, prospective, unattached, resigned."""
    epoch: Epoch
    leader_id: BrokerId
    """-1 = none known."""
    voted_id: BrokerId
    """For whom it voted in its epoch; -1 = nobody."""
    last_epoch: Epoch
    log_end_offset: Offset
    flushed_end_offset: Offset
    high_watermark: Offset
    voters: VoterSet
    unreached: tuple[BrokerId, ...]
    """Voters whose last request failed."""
    lost_end: LogEnd | None
    """Where its log ended before its disk damaged it; None when it is whole."""


def replica_status(core: QuorumCore, unreached: Collection[ReplicaKey]) -> ReplicaStatus:
    """As `core` has it now; `unreached`: peers whose last request failed."""
    return ReplicaStatus(
        key=core.me,
        role=type(core.role).__name__.lower(),
        epoch=core.epoch,
        leader_id=core.live_leader_id,
        voted_id=NO_BROKER if core.voted is None else core.voted.id,
        last_epoch=core.history.last_epoch,
        log_end_offset=core.end_offset,
        flushed_end_offset=core.flushed_end,
        high_watermark=core.high_watermark,
        voters=core.voters,
        unreached=tuple(sorted(key.id for key in unreached if key in core.voters)),
        lost_end=core.lost_end,
    )
