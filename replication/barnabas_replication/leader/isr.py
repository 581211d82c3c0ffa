"""The in-sync set of one partition: the replicas that are in, must leave or may join, and how far is committed.

May touch:  its arguments.                Must not touch: asyncio, clock, log, network.
Invariants: the HW is the least end over the *maximal* ISR: a proposed joiner counts from the proposal on, a proposed
            leaver counts until the image is without it; the HW never falls, and never moves below min ISR.
Read next:  partition.py, which holds the state these rules decide on.

Not obvious:
- A caught-up replica outside the ISR that is fit to join holds the HW back too. Else a busy partition moves on between
  its fetch and our proposal, and it never qualifies (KAFKA-13790).
- A joiner needs the start of the leader epoch as well as the HW: a new leader's HW may be older than what it wrote
  off as committed under its predecessor.
- A follower that is slow keeps its place for replica.lag.time.max.ms, as in Kafka. One that is *silent* while writes wait for it
  alone leaves sooner. Kafka knows no silence: with one follower cut off, its acks=all writes stop for 30 s and more.
- **Below min.insync.replicas the HW does not move** (KIP-966): what a consumer has seen is then always on
  min.insync.replicas copies, and who was in the ISR when it fell below holds all that was ever committed. The
  controller's eligible leader replicas (controller/elr.py) are true because of this rule alone, by the same effective
  minimum. The price: acks=1 records stay unread until the ISR is whole again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from enum import Enum

from barnabas_replication.leader.replica_state import RemoteReplica
from barnabas_wire.kafka.ids import BrokerId, Offset
from barnabas_wire.lazy_dataclass import dataclass


class IsrChange(Enum):
    """What a proposal in flight wants."""

    EXPAND = "expand"
    SHRINK = "shrink"


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrState:
    """The committed ISR and the one proposal that may be in flight.

    `maximal` is what HW and acks must reckon with: whatever the controller's answer will be, its ISR lies inside.
    """

    committed: frozenset[BrokerId]
    maximal: frozenset[BrokerId]
    change: IsrChange | None = None

    @classmethod
    def of(cls, members: Iterable[BrokerId]) -> IsrState:
        """The state right after the controller's word: nothing in flight."""
        isr = frozenset(members)
        return cls(committed=isr, maximal=isr)

    def expanding(self, joiner: BrokerId) -> IsrState:
        """The state once `joiner` is proposed."""
        assert self.change is None, "one ISR proposal at a time"
        assert joiner not in self.committed, f"{joiner} is in the ISR already"
        return replace(self, maximal=self.committed | {joiner}, change=IsrChange.EXPAND)

    def shrinking(self) -> IsrState:
        """The state once leavers are proposed: they count until the controller confirms."""
        assert self.change is None, "one ISR proposal at a time"
        return replace(self, change=IsrChange.SHRINK)

    def settled(self) -> IsrState:
        """The state once a proposal is known to have failed."""
        return IsrState.of(self.committed)


def effective_min_isr(*, min_insync_replicas: int, replication_factor: int) -> int:
    """min.insync.replicas cannot ask for more replicas than there are (KIP-966)."""
    return min(min_insync_replicas, replication_factor)


def is_caught_up(replica: RemoteReplica, *, leader_end_offset: Offset, now_ms: int, lag_ms_max: int) -> bool:
    """Whether it is at the leader's end, or was there not longer ago than lag_ms_max."""
    return replica.end_offset == leader_end_offset or now_ms - replica.last_caught_up_ms <= lag_ms_max


def replicas_out_of_sync(
    state: IsrState,
    replicas: Mapping[BrokerId, RemoteReplica],
    *,
    leader_end_offset: Offset,
    now_ms: int,
    lag_ms_max: int,
) -> frozenset[BrokerId]:
    """ISR members that must leave: neither at the leader's end nor there within lag_ms_max. Empty while a proposal is out."""
    if state.change is not None:
        return frozenset()
    return frozenset(
        broker_id
        for broker_id in state.committed
        if (replica := replicas.get(broker_id)) is not None
        and not is_caught_up(replica, leader_end_offset=leader_end_offset, now_ms=now_ms, lag_ms_max=lag_ms_max)
    )


def is_silent(*, last_contact_ms: int, leading_since_ms: int, now_ms: int, silence_ms_max: int) -> bool:
    """Whether nothing came from a follower for longer than silence_ms_max. A new leader gives everybody that time."""
    return now_ms - max(last_contact_ms, leading_since_ms) > silence_ms_max


def replicas_to_drop_for_silence(
    state: IsrState,
    replicas: Mapping[BrokerId, RemoteReplica],
    *,
    silent: Collection[BrokerId],
    awaited_end: Offset,
    leader_durable_end: Offset,
    min_isr: int,
) -> frozenset[BrokerId]:
    """Silent ISR members that must leave, so that the offset which the oldest acks=all write waits for is committed.

    None where that would not commit it: something else holds it back too, the ISR would fall below min_isr, or a proposal is out.
    """
    if state.change is not None or leader_durable_end < awaited_end:
        return frozenset()
    behind = frozenset(
        broker_id
        for broker_id in state.committed
        if (replica := replicas.get(broker_id)) is not None and replica.end_offset < awaited_end
    )
    if not behind.issubset(silent) or len(state.committed) - len(behind) < min_isr:
        return frozenset()
    return behind


def may_join(
    state: IsrState,
    replica: RemoteReplica,
    *,
    is_eligible: bool,
    high_watermark: Offset,
    leader_epoch_start_offset: Offset,
) -> bool:
    """Whether to propose the replica now. is_eligible: unfenced, not shutting down, and its broker epoch is the registered one."""
    return (
        state.change is None
        and replica.broker_id not in state.committed
        and is_eligible
        and replica.end_offset >= high_watermark
        and replica.end_offset >= leader_epoch_start_offset
    )


def next_high_watermark(
    *,
    current: Offset,
    leader_durable_end: Offset,
    counted_ends: Iterable[Offset],
    isr_size: int,
    min_isr: int,
) -> Offset:
    """The HW now: the least of the leader's durable end and counted_ends (the other members of the maximal ISR and
    the joiners waited for); `current` if that would be lower or if the committed ISR is smaller than min_isr."""
    if isr_size < min_isr:
        return current
    return max(current, min((leader_durable_end, *counted_ends)))
