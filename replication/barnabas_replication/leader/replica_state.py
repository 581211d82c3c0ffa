"""What a leader knows of one follower: how far it is, and when it was last caught up.

May touch:  its arguments.                Must not touch: asyncio, clock, log, network.
Invariants: a value, replaced on every fetch; last_caught_up_ms never falls while the same leader epoch lasts.
Read next:  isr.py, which judges these values.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas_wire.kafka.ids import NO_OFFSET, BrokerId, Offset

LONG_AGO_MS = -(1 << 62)
"""A time before every other: the follower was not yet seen caught up."""
UNKNOWN_BROKER_EPOCH = -1


class RemoteReplica(NamedTuple):
    """One follower in the eyes of its leader. Built on every follower fetch, so a NamedTuple.

    end_offset: its durable log end, as its last fetch reported it (-1 unknown).
    goal_offset, goal_ms: where the leader's log ended at one of its fetches, and when that was.
    broker_epoch: the one its last fetch carried (KIP-903).
    """

    broker_id: BrokerId
    end_offset: Offset = NO_OFFSET
    log_start_offset: Offset = NO_OFFSET
    goal_offset: Offset = NO_OFFSET
    goal_ms: int = LONG_AGO_MS
    last_caught_up_ms: int = LONG_AGO_MS
    broker_epoch: int = UNKNOWN_BROKER_EPOCH


def initial_replica(broker_id: BrokerId, *, is_in_sync: bool, leader_end_offset: Offset, now_ms: int) -> RemoteReplica:
    """The follower at the start of a leader epoch: ISR members get a full lag period before they can be judged."""
    return RemoteReplica(
        broker_id=broker_id,
        last_caught_up_ms=now_ms if is_in_sync else LONG_AGO_MS,
        goal_offset=leader_end_offset if is_in_sync else NO_OFFSET,
    )


def replica_seen(replica: RemoteReplica, fetched_ms: int) -> RemoteReplica:
    """The follower, which stood at our end when it fetched at that time without saying so once more."""
    return replica._replace(
        goal_offset=replica.end_offset,
        goal_ms=max(replica.goal_ms, fetched_ms),
        last_caught_up_ms=max(replica.last_caught_up_ms, fetched_ms),
    )


def replica_after_fetch(
    replica: RemoteReplica,
    *,
    durable_end: Offset,
    log_start_offset: Offset,
    leader_end_offset: Offset,
    now_ms: int,
    broker_epoch: int,
) -> RemoteReplica:
    """The follower after a fetch that reported its durable end.

    It is caught up now when that is our end; and when it has come to where our end was at an earlier fetch, then it *was* at
    that time: a follower that is always a little behind a busy leader is in sync (KAFKA-1546). Kafka looks at the previous
    fetch alone, and drops who stays two fetches behind, however short they are; here the goal stays until it is reached.
    """
    goal_offset, goal_ms, caught_up_ms = replica.goal_offset, replica.goal_ms, replica.last_caught_up_ms
    if durable_end >= leader_end_offset:
        goal_offset = leader_end_offset
        goal_ms = caught_up_ms = max(caught_up_ms, now_ms)
    elif durable_end >= goal_offset:
        caught_up_ms = max(caught_up_ms, goal_ms)
        goal_offset, goal_ms = leader_end_offset, now_ms
    return RemoteReplica(
        replica.broker_id, durable_end, log_start_offset, goal_offset, goal_ms, caught_up_ms, broker_epoch
    )
