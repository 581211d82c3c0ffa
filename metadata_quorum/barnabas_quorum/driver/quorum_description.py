"""The quorum as one node sees it, for whoever describes it to operators and clients.

May touch:  the core, to read.        Must not touch: asyncio, clocks.
Invariants: only the leader knows the replicas' progress; what is not known is -1; a leader that this node has lost is none.
Read next:  replica_status.py, what a node says of itself.
"""

from __future__ import annotations

from collections.abc import Collection

from barnabas_quorum.raft.core import QuorumCore
from barnabas_quorum.raft.replica import UNCOUNTED
from barnabas_quorum.raft.roles import Follower, Leader, ReplicaProgress
from barnabas_quorum.raft.voters import ReplicaKey
from barnabas_wire.kafka.ids import NO_BROKER, NO_OFFSET, BrokerId, Epoch, Offset
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDescription:
    """One replica as the leader sees it; -1 is unknown, times are wall clock."""

    key: ReplicaKey
    log_end_offset: Offset
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumDescription:
    """What DescribeQuorum and `barnabas quorum status` show. Only the leader knows the replicas' progress."""

    leader_id: BrokerId
    """-1 when unknown or lost."""
    epoch: Epoch
    high_watermark: Offset
    voters: tuple[ReplicaDescription, ...]
    observers: tuple[ReplicaDescription, ...]
    recovered_beside: tuple[str, ...] = ()
    """Incarnations of other recoveries of the same quorum, of which the node knows that describes it."""


def describe_quorum(
    core: QuorumCore, unreached: Collection[ReplicaKey], *, now_ms: int, wall_ms: int
) -> QuorumDescription:
    """`unreached`: peers whose last request failed. `now_ms` is the core's clock, `wall_ms` the wall's at the same moment."""
    role = core.role
    known: dict[ReplicaKey, ReplicaProgress] = role.voters if isinstance(role, Leader) else {}
    observers = role.observers if isinstance(role, Leader) else {}

    def wall(time_ms: int) -> int:
        return -1 if time_ms < 0 else wall_ms - (now_ms - time_ms)

    def of(key: ReplicaKey, progress: ReplicaProgress | None) -> ReplicaDescription:
        if key == core.me:
            seen_ms = wall_ms if core.is_leader else -1
            return ReplicaDescription(
                key=key, log_end_offset=core.end_offset, last_fetch_ms=seen_ms, last_caught_up_ms=seen_ms
            )
        if progress is None or progress.last_fetch_ms < 0:
            return ReplicaDescription(key=key, log_end_offset=NO_OFFSET, last_fetch_ms=-1, last_caught_up_ms=-1)
        return ReplicaDescription(
            key=key,
            log_end_offset=progress.end_offset,
            last_fetch_ms=wall(progress.last_fetch_ms),
            last_caught_up_ms=wall(progress.last_caught_up_ms),
        )

    # An epoch keeps its leader's name until another epoch begins, and without a majority none does (KIP-996): who lost the
    # leader continues naming it for ever, and must not report that there is one. Whom it has fetched from is lost with the fetch
    # timer, not with one request; whom it goes back to in vain, at once.
    is_led = isinstance(role, Leader) or (
        isinstance(role, Follower) and (role.has_fetched or role.leader not in unreached)
    )
    return QuorumDescription(
        leader_id=core.leader_id if is_led else NO_BROKER,
        epoch=core.epoch,
        high_watermark=core.high_watermark,
        voters=tuple(of(key, known.get(key)) for key in core.voters.keys),
        observers=tuple(of(key, progress) for key, progress in observers.items() if key.directory_id != UNCOUNTED),
    )
