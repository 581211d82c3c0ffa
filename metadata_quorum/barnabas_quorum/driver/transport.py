"""How a replica of the quorum reaches the others, whatever carries its messages.

May touch:  nothing, it is an interface.   Must not touch: gRPC (grpc_transport.py), sockets.
Invariants: an answer belongs to its own request; a node that does not answer is PeerUnreachable, whatever the reason.
Read next:  grpc_transport.py; node.py, which asks by it.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import NamedTuple, Protocol

from barnabas_quorum.raft.messages import Reply, ReplyError, Request, VoterChange
from barnabas_quorum.raft.voters import ReplicaKey, Voter


class ReplicaIdentity(NamedTuple):
    """The identity that a controller claims."""

    key: ReplicaKey
    kraft_version_min: int
    kraft_version_max: int


class VoterChangeAnswer(NamedTuple):
    """What came of a change of the voter set."""

    error: ReplyError
    reason: str
    """Names the rule and the way out."""
    leader: Voter | None
    """The leader, as far as the controller that answers knows."""


class ChangeVoters(Protocol):
    """QuorumNode.change_voters."""

    def __call__(self, change: VoterChange, *, principal: str, client_host: str) -> Awaitable[VoterChangeAnswer]:
        """See there."""
        ...


class Transport(Protocol):
    """How a replica reaches the voters."""

    async def call(self, request: Request, voter: Voter, *, timeout_s: float) -> Reply:
        """Send and wait for the reply, which carries the request's correlation. A FetchReply's payload is bytes.

        Raises PeerUnreachable when there is no answer, and when it is not from a member of this cluster.
        """
        ...

    async def describe(self, voter: Voter, *, timeout_s: float) -> ReplicaIdentity:
        """The identity of the controller that listens at the voter's address. Raises PeerUnreachable."""
        ...

    async def change_voters(
        self, change: VoterChange, leader: Voter, *, principal: str, client_host: str, timeout_s: float
    ) -> VoterChangeAnswer:
        """Ask the leader for a change of the voter set, on behalf of `principal` who came from the address `client_host`.

        Raises PeerUnreachable.
        """
        ...

    async def close(self) -> None:
        """Drop all connections."""
        ...
