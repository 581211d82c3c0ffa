"""How a broker learns which cluster it joins: it asks any controller it can reach for cluster id and voters.

May touch:  grpc.aio on the control lane.   Must not touch: the quorum's state, files.
Invariants: only a controller that read its voters from its own disk answers; generated types stop here.
Read next:  storage.py, which checks the answer against the directories.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

import grpc.aio

from barnabas_quorum.raft.voters import VoterSet
from barnabas_wire.rpc import bootstrap_pb2, bootstrap_pb2_grpc
from barnabas_wire.rpc.options import CHANNEL_OPTIONS

logger = logging.getLogger(__name__)

CALL_TIMEOUT_S = 1.0
RETRY_PAUSE_S = 0.1
PROGRESS_PERIOD_S = 5.0


class QuorumIdentity(NamedTuple):
    """Which cluster it is, and who votes in it."""

    cluster_id: str
    voters: VoterSet


class BootstrapServicer(bootstrap_pb2_grpc.BootstrapServicer):
    """Answers on a controller's gRPC listener."""

    def __init__(self, identity: QuorumIdentity) -> None:
        self._identity = identity

    async def DescribeQuorum(
        self, request: bootstrap_pb2.DescribeQuorumRequest, context: grpc.aio.ServicerContext
    ) -> bootstrap_pb2.DescribeQuorumResponse:
        """Cluster id and voters, as format wrote them."""
        return bootstrap_pb2.DescribeQuorumResponse(
            cluster_id=self._identity.cluster_id, voters=str(self._identity.voters)
        )

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register on a server that is not started yet."""
        bootstrap_pb2_grpc.add_BootstrapServicer_to_server(self, server)


async def discover_quorum(bootstrap_servers: Sequence[str]) -> QuorumIdentity:
    """Ask the given host:port addresses in turn until one answers; says every 5 s that it still waits.

    Runs until it is answered or cancelled: a broker may well be started before its controllers.
    """
    loop = asyncio.get_running_loop()
    told = loop.time()
    while True:
        for address in bootstrap_servers:
            try:
                return await _ask(address)
            except grpc.aio.AioRpcError as error:
                reason = f"{address}: {error.code().name} {error.details()}"
        if loop.time() - told >= PROGRESS_PERIOD_S:
            told = loop.time()
            logger.warning("still no controller among %s answers (%s)", ", ".join(bootstrap_servers), reason)
        await asyncio.sleep(RETRY_PAUSE_S)


async def _ask(address: str) -> QuorumIdentity:
    async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        stub = bootstrap_pb2_grpc.BootstrapStub(channel)
        answer = await stub.DescribeQuorum(bootstrap_pb2.DescribeQuorumRequest(), timeout=CALL_TIMEOUT_S)
        return QuorumIdentity(answer.cluster_id, VoterSet.parse(answer.voters))
