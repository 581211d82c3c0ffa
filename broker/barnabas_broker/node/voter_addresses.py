"""The controllers that vote, as this node's own log has them now: ids, addresses, and where this one is reached.

May touch:  its arguments.            Must not touch: asyncio, sockets, files.
Invariants: nothing is copied: a reader sees the voter set that counts at that moment; the leader is in it even
            while this node's set does not hold it yet.
Read next:  node.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from barnabas_broker.node.properties import WILDCARDS, ServerConfig
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_wire.kafka.ids import BrokerId


class VoterAddresses(Mapping[BrokerId, tuple[str, int]]):
    """Host and port of each voter's controller listener, by id."""

    def __init__(self, voters: Callable[[], VoterSet], leader: Callable[[], Voter | None]) -> None:
        """Both are read again each time (QuorumNode.voters, QuorumNode.leader_endpoint)."""
        self._voters = voters
        self._leader = leader

    def __getitem__(self, node_id: BrokerId) -> tuple[str, int]:
        leader = self._leader()
        voter = leader if leader is not None and leader.key.id == node_id else self._voters().by_id(node_id)
        if voter is None:
            raise KeyError(node_id)
        return voter.host, voter.port

    def __iter__(self) -> Iterator[BrokerId]:
        ids = [key.id for key in self._voters().keys]
        leader = self._leader()
        if leader is not None and leader.key.id not in ids:
            ids.append(leader.key.id)
        return iter(ids)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def node_address(server: ServerConfig, formatted: VoterSet | None, replica: ReplicaKey) -> tuple[str, int] | None:
    """Where other controllers reach this one: what advertised.listeners says of the controller listener, else what was
    said on formatting, else where it is bound. None on a broker, and when all that is known is a wildcard."""
    bound = server.controller_endpoint()
    if bound is None:
        return None
    advertised = server.advertised_controller_endpoint()
    if advertised is not None:
        return advertised.host, advertised.port
    voter = None if formatted is None else formatted.by_id(replica.id)
    if voter is not None and voter.key == replica:
        return voter.host, voter.port
    return None if bound.host in WILDCARDS else (bound.host, bound.port)
