"""What a controller says of itself comes over the wire as it was said."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest

from barnabas_broker.controller_client.facts import ControllerFactsServicer, ask_replica
from barnabas_quorum.controller.config import ControllerConfig
from barnabas_quorum.driver.replica_status import ReplicaStatus
from barnabas_quorum.explain.leaders import ControllerReport
from barnabas_quorum.raft.damage import LogEnd
from barnabas_quorum.raft.voters import VoterSet
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset
from barnabas_wire.rpc.options import SERVER_OPTIONS
from tests.support.images import make_voters


@pytest.mark.parametrize("lost_end", [None, LogEnd(Epoch(6), Offset(120))])
async def test_a_replicas_own_word_arrives_whole(lost_end: LogEnd | None) -> None:
    voters = VoterSet.parse(str(make_voters()))
    said: dict[str, Any] = {
        "key": voters.keys[0],
        "role": "follower",
        "epoch": Epoch(7),
        "leader_id": BrokerId(2),
        "voted_id": BrokerId(3),
        "last_epoch": Epoch(5),
        "log_end_offset": Offset(101),
        "high_watermark": Offset(99),
        "voters": voters,
        "lost_end": lost_end,
    }
    own = ReplicaStatus(**said, flushed_end_offset=Offset(100), unreached=(BrokerId(2),))
    servicer = ControllerFactsServicer(
        replica=SimpleNamespace(describe_own=lambda: own),
        sessions=SimpleNamespace(),
        config=ControllerConfig(),
        incarnation=SimpleNamespace(current="1:x", recovered_beside=("1:y",)),  # type: ignore[arg-type]
        clock_ms=lambda: 0,
    )
    server = grpc.aio.server(options=SERVER_OPTIONS)
    servicer.add_to(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        reported = await ask_replica(("127.0.0.1", port))
    finally:
        await server.stop(None)
    beside: dict[str, Any] = {"unreached": frozenset({BrokerId(2)}), "incarnation": "1:x", "recovered_beside": ("1:y",)}
    assert reported == ControllerReport(**said, **beside)
