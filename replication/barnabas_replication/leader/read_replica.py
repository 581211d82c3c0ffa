"""Where a consumer should read: the leader, or a follower in its own rack (KIP-392).

May touch:  its arguments.                Must not touch: asyncio, clock, log, network.
Invariants: the chosen replica is in sync and holds the asked offset; the leader is never named, and serves whoever
            stays.
Read next:  partition.py fetch, which asks where a consumer names its rack and serves those who were sent to a follower.

Differences from Kafka: the two selectors that come with it are the ones there are; classes cannot be loaded. A follower whose log
ends before the asked offset answers OFFSET_NOT_AVAILABLE, since the leader may well have what it lacks; Kafka answers
OFFSET_OUT_OF_RANGE, and leaves it to the client to doubt that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas_replication.leader.replica_state import RemoteReplica
from barnabas_wire.kafka.ids import BrokerId, Offset

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SELECTORS = ("", LEADER_SELECTOR, RACK_AWARE_SELECTOR)
"""Values of replica.selector.class; none and the first keep every consumer at the leader."""


def preferred_read_replica(
    *,
    client_rack: str,
    leader_id: BrokerId,
    racks: Mapping[BrokerId, str | None],
    replicas: Iterable[RemoteReplica],
    in_sync: frozenset[BrokerId],
    fetch_offset: Offset,
) -> BrokerId | None:
    """The follower in the consumer's rack that holds fetch_offset and is furthest; None: stay at the leader.

    racks: by id, the racks of the brokers that serve clients; no other broker is chosen.
    """
    if racks.get(leader_id) == client_rack:
        return None
    fit = [
        replica
        for replica in replicas
        if replica.broker_id in in_sync
        and racks.get(replica.broker_id) == client_rack
        and replica.log_start_offset <= fetch_offset <= replica.end_offset
    ]
    if not fit:
        return None
    return max(fit, key=lambda replica: (replica.end_offset, replica.last_caught_up_ms, -replica.broker_id)).broker_id
