"""How a broker learns which cluster it joins: it asks any controller it can reach for cluster id and voters.

May touch:  grpc.aio on the control lane.   Must not touch: the quorum's state, files.
Invariants: only a controller that knows voters answers, with those in its log; generated types stop here.
Read next:  storage.py, which checks the answer against the directories.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import grpc.aio

from barnabas_quorum.driver.incarnation import FIRST, Incarnation
from barnabas_quorum.raft.voters import VoterSet
from barnabas_wire.rpc import bootstrap_pb2, bootstrap_pb2_grpc
from barnabas_wire.rpc.dialing import PLAIN_DIALER, Dialer
from barnabas_wire.rpc.options import address_of

logger = logging.getLogger(__name__)

CALL_TIMEOUT_S = 1.0
RETRY_PAUSE_S = 0.1
PROGRESS_PERIOD_S = 5.0


class QuorumIdentity(NamedTuple):
    """Which cluster it is, and who votes in it."""

    cluster_id: str
    voters: VoterSet
    incarnation: Incarnation = FIRST


class BootstrapServicer(bootstrap_pb2_grpc.BootstrapServicer):
    """Answers on a controller's gRPC listener."""

    def __init__(self, identity: Callable[[], QuorumIdentity]) -> None:
        """`identity` is read again for each answer: voters come and go."""
        self._identity = identity

    async def DescribeQuorum(
        self, request: bootstrap_pb2.DescribeQuorumRequest, context: Any
    ) -> bootstrap_pb2.DescribeQuorumResponse:
        """Cluster id and voters."""
        identity = self._identity()
        if not identity.voters.voters:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this controller has not heard yet who votes")
        return bootstrap_pb2.DescribeQuorumResponse(
            cluster_id=identity.cluster_id, voters=str(identity.voters), incarnation=str(identity.incarnation)
        )

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register on a server that is not started yet."""
        bootstrap_pb2_grpc.add_BootstrapServicer_to_server(self, server)


async def discover_quorum(
    bootstrap_servers: Sequence[tuple[str, int]], *, known: Incarnation = FIRST, dialer: Dialer = PLAIN_DIALER
) -> QuorumIdentity:
    """Ask the given hosts and ports until one answers; says every 5 s that it still waits.

    All are asked at once and the highest incarnation is believed: a voter of a quorum that was recovered without it may
    have come back. None below `known`, which this node has followed, is believed at all, and none of two that were recovered
    beside each other. Runs until it is answered or cancelled: a broker may well be started before its controllers.
    """
    loop = asyncio.get_running_loop()
    reported_at = loop.time()
    while True:
        answers = await asyncio.gather(
            *(_ask(host, port, dialer) for host, port in bootstrap_servers), return_exceptions=True
        )
        found = [answer for answer in answers if isinstance(answer, QuorumIdentity)]
        chosen = choose_quorum(found, known=known)
        if chosen is not None:
            return chosen
        if loop.time() - reported_at >= PROGRESS_PERIOD_S:
            reported_at = loop.time()
            logger.warning(
                "still no controller among %s answers (%s)",
                ", ".join(address_of(host, port) for host, port in bootstrap_servers),
                _reason(answers, found, known),
            )
        await asyncio.sleep(RETRY_PAUSE_S)


def choose_quorum(found: Sequence[QuorumIdentity], *, known: Incarnation) -> QuorumIdentity | None:
    """The answer that a broker which has followed `known` last believes; None: none of these."""
    number = max((each.incarnation.number for each in found), default=-1)
    newest = [each for each in found if each.incarnation.number == number]
    is_one = len({each.incarnation for each in newest}) == 1
    if is_one and (number > known.number or newest[0].incarnation == known):
        return newest[0]
    return None


def _reason(answers: Sequence[object], found: Sequence[QuorumIdentity], known: Incarnation) -> str:
    newest = max(found, key=lambda identity: identity.incarnation.number, default=None)
    if newest is not None and newest.incarnation.number >= known.number:
        return (
            f"the quorum was recovered twice, as incarnation {newest.incarnation} and another of the same number: recover the "
            "one that shall stay once more, with the report of the other; see barnabas-server quorum recover --help"
        )
    if newest is not None:
        return f"those that do belong to incarnation {str(newest.incarnation) or 'first'}, this node to {known}"
    errors = [answer for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
    if errors:
        return f"{errors[0].code().name} {errors[0].details()}"
    return "; ".join(str(answer) for answer in answers)


async def _ask(host: str, port: int, dialer: Dialer) -> QuorumIdentity:
    async with await dialer.open(host, port) as channel:
        stub = bootstrap_pb2_grpc.BootstrapStub(channel)
        answer = await stub.DescribeQuorum(bootstrap_pb2.DescribeQuorumRequest(), timeout=CALL_TIMEOUT_S)
        return QuorumIdentity(answer.cluster_id, VoterSet.parse(answer.voters), Incarnation.parse(answer.incarnation))
