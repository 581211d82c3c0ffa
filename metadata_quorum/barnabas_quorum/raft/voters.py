"""Who votes: replicas by (id, directory id), their endpoints, and the arithmetic of a majority.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: a voter set is immutable; a wiped disk has a new directory id and so is another replica (KIP-853).
Read next:  messages.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from barnabas_wire.kafka.ids import BrokerId, Uuid


class ReplicaKey(NamedTuple):
    """One replica of the metadata log: the node, and the disk it keeps the log on."""

    id: BrokerId
    directory_id: Uuid

    def __str__(self) -> str:
        return f"{self.id}:{self.directory_id}"


class Voter(NamedTuple):
    """A member of the quorum and the address of its controller listener."""

    key: ReplicaKey
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.key.id}@{host}:{self.port}:{self.key.directory_id}"


class VoterSet:
    """The voters, by id and by key; equal when they hold the same voters."""

    __slots__ = ("_by_id", "keys", "majority", "voters")

    def __init__(self, voters: Sequence[Voter]) -> None:
        """Raises ValueError when the set is empty or an id occurs twice."""
        ordered = tuple(sorted(voters, key=lambda voter: voter.key.id))
        if not ordered:
            raise ValueError("a quorum needs at least one voter")
        self._by_id = {voter.key.id: voter for voter in ordered}
        if len(self._by_id) != len(ordered):
            raise ValueError("a voter id occurs twice")
        self.voters = ordered
        self.keys = tuple(voter.key for voter in ordered)
        self.majority = len(ordered) // 2 + 1

    @classmethod
    def parse(cls, text: str) -> VoterSet:
        """Read `id@host:port:directory-id,…` (the form of `storage format --initial-controllers`).

        Raises ValueError that names the faulty part. IPv6 hosts stand in square brackets.
        """
        return cls([_parse_voter(part.strip()) for part in text.split(",") if part.strip()])

    def __contains__(self, key: ReplicaKey) -> bool:
        voter = self._by_id.get(key.id)
        return voter is not None and voter.key == key

    def __len__(self) -> int:
        return len(self.voters)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and other.voters == self.voters

    def __hash__(self) -> int:
        return hash(self.voters)

    def __str__(self) -> str:
        return ",".join(str(voter) for voter in self.voters)

    __repr__ = __str__

    def by_id(self, replica_id: BrokerId) -> Voter | None:
        """The voter with this node id, or None."""
        return self._by_id.get(replica_id)

    def others(self, key: ReplicaKey) -> tuple[ReplicaKey, ...]:
        """All voters but this one."""
        return tuple(other for other in self.keys if other != key)


def _parse_voter(part: str) -> Voter:
    try:
        id_text, rest = part.split("@", 1)
        address, directory_text = rest.rsplit(":", 1)
        host, port_text = address.rsplit(":", 1)
        key = ReplicaKey(BrokerId(int(id_text)), Uuid.parse(directory_text))
        return Voter(key, host.strip("[]"), int(port_text))
    except ValueError as error:
        raise ValueError(f"voter {part!r} is not of the form id@host:port:directory-id ({error})") from None
