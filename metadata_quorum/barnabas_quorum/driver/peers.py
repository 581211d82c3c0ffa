"""The other replicas of the quorum, as this one reaches them: by which address, and who does not answer.

May touch:  the Transport, the core's endpoints.     Must not touch: the log, timers.
Invariants: every request gets one answer, a reply or Unreachable.
Read next:  grpc_transport.py.
"""

from __future__ import annotations

import logging

from barnabas_quorum.config import QuorumConfig
from barnabas_quorum.driver.committed import take_fetched
from barnabas_quorum.driver.transport import Transport
from barnabas_quorum.errors import PeerUnreachable
from barnabas_quorum.raft.core import QuorumCore
from barnabas_quorum.raft.messages import FetchReply, Reply, Request, Unreachable
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet

logger = logging.getLogger(__name__)


class Peers:
    """Calls them."""

    def __init__(
        self, *, config: QuorumConfig, core: QuorumCore, transport: Transport, formatted_voters: VoterSet
    ) -> None:
        """`formatted_voters`: those that format named."""
        self._config = config
        self._core = core
        self._transport = transport
        self._formatted_voters = formatted_voters
        self._unreached: set[ReplicaKey] = set()
        """To be tried by their other address next."""
        self.silent: set[ReplicaKey] = set()
        """Whose last request failed."""

    async def call(self, request: Request) -> Reply | Unreachable:
        """Bring a request to its target."""
        target = request.target
        try:
            reply = await self._transport.call(
                request, self._address_of(target), timeout_s=self._config.request_timeout_ms / 1000
            )
        except PeerUnreachable as error:
            self._unreached ^= {target}
            self.silent.add(target)
            logger.debug("%s", error)
            return Unreachable(request.correlation, target)
        self._unreached.discard(target)
        self.silent.discard(target)
        if isinstance(reply, FetchReply):
            take_fetched(reply)
        return reply

    def _address_of(self, key: ReplicaKey) -> Voter:
        """Where to reach a replica: every other time after a failure where format says. All voters may have moved while
        they were down, and nobody leads who could write that into the log. Raises PeerUnreachable."""
        known = self._core.endpoint_of(key)
        formatted = self._formatted_voters.by_id(key.id)
        if formatted is not None and formatted.key == key and (known is None or key in self._unreached):
            return formatted
        if known is None:
            raise PeerUnreachable(f"no address of {key} is known")
        return known
