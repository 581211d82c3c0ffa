"""Which incarnation of the quorum this is: raised when an operator recovers it from the loss of a majority, so that voters of the
former incarnation, when they come back, can neither elect for this one nor be followed by anybody of it.

May touch:  its arguments.            Must not touch: asyncio, files, gRPC (the transport carries it, the node keeps it).
Invariants: replicas of different incarnations exchange nothing but their incarnations; a replica that cannot come to lead joins a
            higher one and never goes back; one that can come to lead stops for good when it hears of a higher one.
Read next:  grpc_transport.py, which puts it into every call; broker/metadata/incarnation_file.py; broker/offline/quorum_recovery.py.

Why epochs are not enough. After a recovery by one survivor of three, the two others hold a majority of the voter set in their own
logs: they may elect in the very epochs that the recovered quorum counts through, and an (epoch, offset) would name two records.
Nobody can keep two machines that see only each other from doing so. What can be kept up is that nobody who has heard of the
recovery believes them, and that they end as soon as one message crosses.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from barnabas_quorum.raft.voters import ReplicaKey
from barnabas_wire.kafka.ids import ZERO_UUID, Uuid

METADATA_KEY = "barnabas-incarnation-bin"
"""Trailing metadata of a refused call: the answerer's own incarnation."""


class Incarnation(NamedTuple):
    """The number of recoveries so far, and the id of the last one."""

    number: int
    id: Uuid

    def __str__(self) -> str:
        """`number:id`; empty when the quorum was never recovered."""
        return f"{self.number}:{self.id}" if self.number else ""

    @classmethod
    def parse(cls, text: str) -> Incarnation:
        """Read what `str` wrote. Raises ValueError."""
        if not text:
            return FIRST
        number, _, recovery_id = text.partition(":")
        made = cls(int(number), Uuid.parse(recovery_id))
        if made.number < 1:
            raise ValueError(f"{text!r} is no incarnation")
        return made


FIRST = Incarnation(0, ZERO_UUID)
"""The incarnation of a quorum that was never recovered."""


CONFLICTS_MAX = 16
"""So many are remembered; a peer that invents incarnations fills nothing."""
AGREEING_MAX = 1024
"""The same of replicas."""


class Verdict(Enum):
    """What another replica's incarnation means for this one."""

    SAME = "same"
    ADOPT = "adopt"
    """The quorum was recovered; this replica cannot come to lead and joins it."""
    SUPERSEDED = "superseded"
    """The quorum was recovered without this voter."""
    OUTDATED_PEER = "outdated peer"
    CONFLICT = "conflict"
    """Two survivors were recovered, each for itself."""


def judge(mine: Incarnation, theirs: Incarnation, *, may_lead: bool) -> Verdict:
    """`may_lead`: this replica votes, or may come to lead, as its own log says."""
    if mine == theirs:
        return Verdict.SAME
    if theirs.number == mine.number:
        return Verdict.CONFLICT
    if theirs.number < mine.number:
        return Verdict.OUTDATED_PEER
    return Verdict.SUPERSEDED if may_lead else Verdict.ADOPT


class IncarnationGuard:
    """This replica's incarnation, and what follows from hearing of others. Belongs to the loop of its node."""

    def __init__(
        self,
        current: Incarnation = FIRST,
        *,
        may_lead: Callable[[], bool] = lambda: True,
        on_adopted: Callable[[Incarnation], None] = lambda found: None,
        on_superseded: Callable[[Incarnation], None] = lambda found: None,
        on_conflict: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """`may_lead`: it votes, or was removed and leads or may run for election all the same: in another incarnation, former voters
        that begin again there could elect it by its former log.
        `on_adopted` makes it durable before it returns; `on_superseded` too, and ends the node; `on_conflict` is called once for
        each incarnation that was recovered beside this one."""
        self.current = current
        self.superseded_by: Incarnation | None = None
        self._may_lead = may_lead
        self._on_adopted = on_adopted
        self._on_superseded = on_superseded
        self._on_conflict = on_conflict
        self._agreeing: set[ReplicaKey] = set()
        self.conflicts: set[Incarnation] = set()
        """Recoveries of the same quorum beside this one, met since the start. Few: each is a human's deed."""

    @property
    def recovered_beside(self) -> tuple[str, ...]:
        """The conflicts, as they are reported to others."""
        return tuple(str(each) for each in sorted(self.conflicts))

    def note_agreeing(self, replica: ReplicaKey) -> None:
        """A request or a reply of this replica was taken: it is of the same incarnation."""
        if len(self._agreeing) < AGREEING_MAX:
            self._agreeing.add(replica)

    def take_agreeing(self) -> set[ReplicaKey]:
        """The voters that were noted since this was last called."""
        agreeing, self._agreeing = self._agreeing, set()
        return agreeing

    def hear(self, text: str) -> str | None:
        """Another replica named its incarnation. Returns why the two may not deal with each other, None when they may.

        Raises ValueError for nonsense.
        """
        theirs = Incarnation.parse(text)
        verdict = judge(self.current, theirs, may_lead=self._may_lead())
        if self.superseded_by is None:
            if verdict is Verdict.SUPERSEDED:
                self._on_superseded(theirs)
                self.superseded_by = theirs  # not before it is durable: with a full disk the next word tries again
            elif verdict is Verdict.ADOPT:
                self._on_adopted(theirs)
                self._agreeing.clear()
                self.current = theirs
                self.conflicts.clear()
                return None
        if verdict is Verdict.SAME:
            return None
        reason = self._reason(verdict, theirs)
        if verdict is Verdict.CONFLICT and theirs not in self.conflicts and len(self.conflicts) < CONFLICTS_MAX:
            self.conflicts.add(theirs)
            self._on_conflict(reason)
        return reason

    def _reason(self, verdict: Verdict, theirs: Incarnation) -> str:
        mine = f"incarnation {str(self.current) or 'first'}"
        match verdict:
            case Verdict.SUPERSEDED:
                return f"this voter belongs to {mine}; the quorum was recovered without it as {theirs}"
            case Verdict.CONFLICT:
                return (
                    f"the quorum was recovered twice: {mine} here, {theirs} there. Neither deals with the other. Stop the "
                    "controllers of both, and recover the one that shall stay once more: barnabas-server quorum recover "
                    "METADATA_DIR --report FILE, where FILE is what --inspect -o json says of the other"
                )
            case _:
                return f"the quorum was recovered: it is {mine} now, not {str(theirs) or 'first'}"
