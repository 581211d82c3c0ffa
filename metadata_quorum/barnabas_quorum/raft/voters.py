"""The voters: replicas by (id, directory id), their endpoints, and the arithmetic of a majority.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: a voter set is immutable; a wiped disk has a new directory id and so is another replica (KIP-853).
Read next:  messages.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from barnabas_wire.kafka.ids import NO_OFFSET, BrokerId, Offset, Uuid


class ReplicaKey(NamedTuple):
    """One replica of the metadata log: the node, and the disk with its log."""

    id: BrokerId
    directory_id: Uuid

    def __str__(self) -> str:
        return f"{self.id}:{self.directory_id}"


class Voter(NamedTuple):
    """A member of the quorum and the address of its controller listener."""

    key: ReplicaKey
    host: str
    port: int

    @property
    def address(self) -> str:
        """host:port, an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.key.id}@{self.address}:{self.key.directory_id}"


REMOVED_MAX = 1000
"""The most removed replicas that a voter set remembers, the newest; an operator or a lost disk removed each."""


class VoterSet:
    """The voters, by id and by key; equal when they have the same voters and remember the same removals."""

    __slots__ = ("_by_id", "keys", "kraft_version", "majority", "removed", "voters")

    def __init__(self, voters: Sequence[Voter], *, kraft_version: int = 0, removed: Sequence[ReplicaKey] = ()) -> None:
        """Raises ValueError when the set is empty or an id occurs twice.

        Args:
            voters: in any order.
            kraft_version: 0 is a static set, which cannot be changed; 1 is KIP-853.
            removed: replicas that were removed and not added again, oldest first. They do not join by themselves.
        """
        ordered = tuple(sorted(voters, key=lambda voter: voter.key.id))
        if not ordered:
            raise ValueError("a quorum needs at least one voter")
        self._by_id = {voter.key.id: voter for voter in ordered}
        if len(self._by_id) != len(ordered):
            raise ValueError("the set contains a voter id twice")
        self.voters = ordered
        self.keys = tuple(voter.key for voter in ordered)
        self.majority = len(ordered) // 2 + 1
        self.kraft_version = kraft_version
        self.removed = tuple(removed)

    @classmethod
    def unknown(cls) -> VoterSet:
        """The set of a replica formatted without voters, until it finds a leader: no voters, kraft.version 0."""
        made = cls.__new__(cls)
        made._by_id, made.voters, made.keys = {}, (), ()
        made.majority, made.kraft_version, made.removed = 1, 0, ()
        return made

    @classmethod
    def parse(cls, text: str) -> VoterSet:
        """Read `id@host:port:directory-id,…` (the form of `storage format --initial-controllers`).

        Raises ValueError that names the faulty part. IPv6 hosts are in square brackets.
        """
        return cls([_parse_voter(part.strip()) for part in text.split(",") if part.strip()], kraft_version=1)

    def __contains__(self, key: ReplicaKey) -> bool:
        voter = self._by_id.get(key.id)
        return voter is not None and voter.key == key

    def __len__(self) -> int:
        return len(self.voters)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, VoterSet)
            and other.voters == self.voters
            and other.kraft_version == self.kraft_version
            and other.removed == self.removed
        )

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

    def with_voter(self, voter: Voter) -> VoterSet:
        """This set with one more voter, or one at a new address; forgets an earlier removal of it."""
        kept = [other for other in self.voters if other.key.id != voter.key.id]
        removed = [key for key in self.removed if key != voter.key]
        return VoterSet([*kept, voter], kraft_version=self.kraft_version, removed=removed)

    def without_voter(self, key: ReplicaKey) -> VoterSet:
        """This set without one voter, remembered as removed. Raises ValueError when none would be left."""
        kept = [other for other in self.voters if other.key != key]
        removed = [other for other in self.removed if other != key]
        return VoterSet(kept, kraft_version=self.kraft_version, removed=[*removed, key][-REMOVED_MAX:])

    def upgraded(self) -> VoterSet:
        """The same voters under kraft.version 1."""
        return VoterSet(self.voters, kraft_version=1, removed=self.removed)


class VoterHistory:
    """Which voter set counts from which offset on, so that truncating the log brings the former one back.

    The last set counts, committed or not (KIP-853). An entry has the offset of its Voters record; the set before any record
    (bootstrap, static configuration) has offset -1. A snapshot's set has the offset before its end.
    """

    __slots__ = ("_entries",)

    def __init__(self, bootstrap: VoterSet, entries: Iterable[tuple[Offset, VoterSet]] = ()) -> None:
        self._entries: list[tuple[Offset, VoterSet]] = [(NO_OFFSET, bootstrap)]
        for offset, voters in entries:
            self.append(offset, voters)

    @property
    def last(self) -> VoterSet:
        """The set that counts now."""
        return self._entries[-1][1]

    @property
    def last_offset(self) -> Offset:
        """Offset of the last Voters record, -1 when there is none."""
        return self._entries[-1][0]

    def append(self, offset: Offset, voters: VoterSet) -> None:
        """A Voters record was written at offset."""
        assert offset > self._entries[-1][0], f"a voter set at {offset} after one at {self._entries[-1][0]}"
        self._entries.append((offset, voters))

    def before(self, offset: Offset) -> VoterSet:
        """The set that counts for a log (or snapshot) that ends at offset."""
        return next((voters for at, voters in reversed(self._entries) if at < offset), self._entries[0][1])

    def truncate_to(self, offset: Offset) -> None:
        """Forget the sets written at offset or later."""
        while len(self._entries) > 1 and self._entries[-1][0] >= offset:
            self._entries.pop()

    def forget_before(self, offset: Offset) -> None:
        """The log begins at offset now: keep only the last of the earlier sets."""
        first = max((i for i, (at, _) in enumerate(self._entries) if at < offset), default=0)
        del self._entries[:first]

    def restart(self, offset: Offset, voters: VoterSet | None) -> None:
        """A snapshot that ends at offset replaced the log; `voters` is its set, None if it has none."""
        self._entries = [self._entries[0]] if voters is None else [(Offset(offset - 1), voters)]

    def entries(self) -> tuple[tuple[Offset, VoterSet], ...]:
        """All of them, ascending."""
        return tuple(self._entries)


def _parse_voter(part: str) -> Voter:
    try:
        id_text, rest = part.split("@", 1)
        address, directory_text = rest.rsplit(":", 1)
        host, port_text = address.rsplit(":", 1)
        key = ReplicaKey(BrokerId(int(id_text)), Uuid.parse(directory_text))
        return Voter(key, host.strip("[]"), int(port_text))
    except ValueError as error:
        raise ValueError(f"voter {part!r} is not of the form id@host:port:directory-id ({error})") from None
