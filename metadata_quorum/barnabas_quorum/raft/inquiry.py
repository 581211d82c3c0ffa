"""Is an empty log that of a first start, or has the disk lost everything? A replica that cannot tell asks the other voters.

May touch:  its arguments.            Must not touch: asyncio, clock, random generators, log, network.
Invariants: a replica that does not know what it has promised votes for nobody, is not elected, and acknowledges nothing; silence
            proves nothing.
Read next:  damage.py, which says when a disk has forgotten; campaign.py, which sends and hears; replica.py, `lost_end`.

The first start. A blank replica (empty log, nothing says that it ever took part) that its bootstrap checkpoint names as a voter may
stand before the first election of a new quorum, or it may be a voter whose directory was made anew with its old id while the
others hold committed records. It asks all the others for pre-votes, twice: in the second round, which begins when the first has
ended, each must be blank still and in the same life of its process. Then there was a moment between the rounds at which every
initial voter had an empty log: nothing that was committed exists, so nobody has lost any. The replica has begun; that goes to the
disk with its hard state, before its first vote. As a candidate it tells each of the others the life in which that one said to be blank: one
that is in that life still was blank at that moment too, so it has begun as well, and votes. So one voter asks, and all know.

The grant of a pre-vote to an empty log says that the granting log is empty. So do voters of versions that do not know of lives, and those
that have begun and were interrupted before anything was written.

A lost disk. Where another voter has a log, or none of the initial voters is known, the replica has lost what it had. What it
acknowledged is in the log of the present leader, and it is whole again once a leader of the present epoch has nothing that it lacks.
But it has forgotten its epoch as well, so an old leader, which does not know yet that it was replaced, could count it for records
that contradict committed ones. So it fetches in a name that no leader counts, and is whole only when so many others have told their
epochs, too, that a majority which elected without it would be among them (as in Viewstamped Replication Revisited, Liskov and
Cowling 2012, 4.3).
"""

from __future__ import annotations

from dataclasses import field

from barnabas_quorum.raft.messages import ReplyError, VoteReply
from barnabas_quorum.raft.voters import ReplicaKey, VoterSet
from barnabas_wire.lazy_dataclass import dataclass

WHOLE = 0
RECOVERING = -1
"""Lives of replicas that are not blank (VoteReply.life)."""
FORMER_LIFE = 1
"""Of a replica whose log is empty and that tells no life."""


@dataclass(slots=True)
class Inquiry:
    """What a replica has heard from the other voters about their logs."""

    answered: set[ReplicaKey] = field(default_factory=set)
    whole: set[ReplicaKey] = field(default_factory=set)
    """Those that know what they have promised; their epochs are known here."""
    lives: dict[ReplicaKey, int] = field(default_factory=dict)
    """Those that were blank in the first round, by the life in which they were."""
    asked_until: int = -1
    """The last correlation of the first round once all have answered it; -1 before."""
    confirmed: set[ReplicaKey] = field(default_factory=set)
    """Those that were still blank in the second round."""
    is_first_start: bool = False
    """Every initial voter was blank at one moment. `lives` is what the others are told."""

    def hear(self, reply: VoteReply, *, others: tuple[ReplicaKey, ...], is_empty: bool, correlation: int) -> None:
        """Take in what a voter says of itself.

        Args:
            others: the voters besides this one.
            is_empty: whether this replica's own log is.
            correlation: the last one that was given to a request.
        """
        if reply.source not in others or reply.error not in (ReplyError.NONE, ReplyError.FENCED_LEADER_EPOCH):
            return
        self.answered.add(reply.source)
        if reply.life == WHOLE:
            self.whole.add(reply.source)
        else:
            self.whole.discard(reply.source)
        if self.is_first_start or not is_empty:
            return
        life = reply.life if reply.life > 0 else FORMER_LIFE if reply.is_granted and reply.life == WHOLE else 0
        if self.asked_until >= 0 and reply.correlation <= self.asked_until:
            return
        if life == 0 or self.lives.get(reply.source, life) != life:
            self.lives.clear()
            self.confirmed.clear()
            self.asked_until = -1
        if life == 0:
            return
        if self.asked_until >= 0:
            self.confirmed.add(reply.source)
            self.is_first_start = len(self.confirmed) == len(others)
        else:
            self.lives[reply.source] = life
            if len(self.lives) == len(others):
                self.asked_until = correlation

    @property
    def is_second_round(self) -> bool:
        """Whether all others were blank, and are asked once more."""
        return self.asked_until >= 0 and not self.is_first_start

    def knows_epochs(self, voters: VoterSet, me: ReplicaKey) -> bool:
        """Whether so many others have told theirs that no majority can have elected without one of them."""
        others = voters.others(me)
        return sum(key in self.whole for key in others) >= min(voters.majority, len(others))

    def unheard(self, voters: VoterSet, me: ReplicaKey) -> tuple[ReplicaKey, ...]:
        """The other voters that have not said what they are."""
        return tuple(key for key in voters.others(me) if key not in self.answered)
