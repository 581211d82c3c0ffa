"""Whether this node runs and whether it can do its work: the rules behind /livez and /readyz.

May touch:  its arguments.            Must not touch: asyncio, clock, network.
Invariants: only this node is judged, never the cluster: a node must not be taken out because another one is down.
Read next:  http.py, which answers with the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas_quorum.image.bad_records import Blocked
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Offset

LANE_SILENCE_MS_MAX = 10_000
"""A lane whose loop has not turned for this long is dead: nothing that runs on it may take longer."""
METADATA_LAG_RECORDS_MAX = 1000
"""A node this many committed records behind still answers well enough from its image."""


def find_dead(*, now_ms: int, last_tick_ms: Mapping[str, int]) -> list[str]:
    """Lanes (name -> time of the last turn, on the clock of `now_ms`) that have stopped."""
    return [
        f"the {lane} lane has not turned for {(now_ms - tick_ms) / 1000:.1f} s"
        for lane, tick_ms in last_tick_ms.items()
        if now_ms - tick_ms > LANE_SILENCE_MS_MAX
    ]


def find_unready(
    *,
    node_id: BrokerId,
    is_broker: bool,
    image: MetadataImage,
    leader_id: BrokerId,
    high_watermark: Offset,
    is_serving: bool = True,
    blocked: Blocked | None = None,
) -> list[str]:
    """Why the node cannot serve: no quorum leader known, metadata behind or blocked by a bad record, or (a broker) not registered,
    fenced, or not serving clients yet (`is_serving`)."""
    reasons = []
    if blocked is not None:
        reasons.append(
            f"the metadata record at offset {blocked.record.offset} cannot be replayed ({blocked.record.fault.value}): see "
            "`barnabas quorum quarantine list`, and put it aside with `barnabas quorum quarantine sign-off`"
        )
    if leader_id == NO_BROKER:
        reasons.append("no leader of the metadata quorum is known")
    behind = high_watermark - (image.offset + 1)
    if behind > METADATA_LAG_RECORDS_MAX:
        reasons.append(f"the metadata image is {behind} records behind")
    if is_broker:
        broker = image.cluster.broker(node_id)
        if broker is None:
            reasons.append(f"broker {node_id} is not registered")
        elif broker.is_fenced:
            reasons.append(f"broker {node_id} is fenced")
        elif broker.is_in_controlled_shutdown:
            reasons.append(f"broker {node_id} is shutting down")
        elif not is_serving:
            reasons.append(f"broker {node_id} has not applied that it is unfenced: it serves clients in a moment")
    return reasons
