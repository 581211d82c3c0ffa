"""The rules of changing the voter set, one voter at a time (KIP-853, Raft dissertation 4.1).

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: two consecutive sets differ by one voter, so any two of their majorities meet; the next change begins only
            when the last one is committed, and only after this epoch has committed something; the set is never empty;
            none begins that the voters it leaves could not commit; a replica that an operator removed comes back only when
            an operator adds it.
Read next:  leading.py, which writes what these rules allow.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from barnabas_quorum.raft.messages import ReplyError, VoterChange, VoterChangeKind, VoterRefusal
from barnabas_quorum.raft.roles import ReplicaProgress
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_wire.kafka.ids import Offset


def may_begin(
    *, has_pending: bool, high_watermark: Offset, epoch_start: Offset, last_voters_offset: Offset
) -> VoterRefusal | None:
    """Whether any change may begin now: this epoch has committed a record, and no other change is under way.

    Without the first, a leader that was deposed long ago could undo a change that it does not know (the bug in the Raft
    dissertation, found in 2015): its own epoch's first commit proves that it has the newest committed set.
    """
    if high_watermark <= epoch_start:
        return VoterRefusal(
            ReplyError.REQUEST_TIMED_OUT,
            "the leader is new and has committed nothing in its epoch yet; try again",
            is_passing=True,
        )
    if has_pending or high_watermark <= last_voters_offset:
        return VoterRefusal(
            ReplyError.REQUEST_TIMED_OUT,
            "another change of the voter set is not committed yet; try again later",
            is_passing=True,
        )
    return None


def is_caught_up(progress: ReplicaProgress, *, now_ms: int, silence_ms_max: int) -> bool:
    """Whether a replica reached the leader's end recently, so that it would not delay commits as a voter."""
    return progress.last_caught_up_ms >= 0 and now_ms - progress.last_caught_up_ms <= silence_ms_max


def refusal(change: VoterChange, *, voters: VoterSet, caught_up: Set[ReplicaKey]) -> VoterRefusal | None:
    """Whether this change may be made to this set. `caught_up`: the replicas that are, the leader among them."""
    if change.kind is VoterChangeKind.UPGRADE:
        return None
    if voters.kraft_version < 1:
        return VoterRefusal(
            ReplyError.UNSUPPORTED_VERSION,
            "kraft.version 0 has a static voter set; upgrade the feature kraft.version to 1 first",
        )
    if change.joiner is not None:
        refused = _joiner_refusal(change.joiner, change, voters=voters, caught_up=caught_up)
        if refused is not None:
            return refused
    key = change.voter.key
    match change.kind:
        case VoterChangeKind.ADD:
            return _add_refusal(key, voters=voters, is_caught_up=key in caught_up)
        case VoterChangeKind.REMOVE:
            if key not in voters:
                return _not_found(key)
            if len(voters) == 1:
                return VoterRefusal(
                    ReplyError.INVALID_REQUEST, f"{key} is the last voter; add another one before you remove it"
                )
            return _remains_refusal(key, voters.without_voter(key), caught_up=caught_up)
        case VoterChangeKind.UPDATE:
            if key not in voters:
                return _not_found(key)
    return None


def _add_refusal(key: ReplicaKey, *, voters: VoterSet, is_caught_up: bool) -> VoterRefusal | None:
    present = voters.by_id(key.id)
    if present is not None:
        way = "it is a voter already" if present.key == key else f"remove {present.key} first"
        return VoterRefusal(ReplyError.DUPLICATE_VOTER, f"node {key.id} votes with directory {present.key}: {way}")
    if not is_caught_up:
        return VoterRefusal(
            ReplyError.REQUEST_TIMED_OUT,
            f"{key} has not caught up with the leader's log; start it as an observer, wait until its lag is 0, try again",
        )
    return None


def _remains_refusal(key: ReplicaKey, remaining: VoterSet, *, caught_up: Set[ReplicaKey]) -> VoterRefusal | None:
    """The new set counts from the moment it is written: too few of it that have the log, and neither it nor anything after is committed.
    If the leader is lost then, nobody may ever be elected: who lacks records, or does not know what it has promised, is not."""
    lagging = [str(voter) for voter in remaining.keys if voter not in caught_up]
    if len(remaining) - len(lagging) >= remaining.majority:
        return None
    return VoterRefusal(
        ReplyError.REQUEST_TIMED_OUT,
        f"without {key} no majority of the voters would have caught up with the leader's log: start {', '.join(lagging)}, or wait "
        "until the lag is 0, then try again",
        is_passing=True,
    )


def _joiner_refusal(
    joiner: ReplicaKey, change: VoterChange, *, voters: VoterSet, caught_up: Set[ReplicaKey]
) -> VoterRefusal | None:
    """A replica may ask to add itself, or to remove the directory with which its node voted before its disk was replaced."""
    if joiner in voters.removed:
        return VoterRefusal(
            ReplyError.INVALID_REQUEST, f"{joiner} was removed and does not join by itself; add it as an operator"
        )
    key = change.voter.key
    is_own = key == joiner if change.kind is VoterChangeKind.ADD else key.id == joiner.id
    if not is_own or joiner in voters:
        return VoterRefusal(ReplyError.INVALID_REQUEST, f"{joiner} may not ask to {change.kind.value} {key}")
    if joiner not in caught_up:
        return VoterRefusal(ReplyError.REQUEST_TIMED_OUT, f"{joiner} has not caught up with the leader's log yet")
    return None


def _not_found(key: ReplicaKey) -> VoterRefusal:
    return VoterRefusal(
        ReplyError.VOTER_NOT_FOUND,
        f"{key} is not a voter; the quorum's description lists voters with their directories",
    )


def may_campaign(me: ReplicaKey, sets: Sequence[tuple[Offset, VoterSet]], *, high_watermark: Offset) -> bool:
    """Whether a replica may run for election: it votes, or its removal is not known to be committed.

    A removed leader can be the only replica that has its own removal, while the others cannot elect without it: so it must be
    able to win (without voting for itself), commit the removal, and resign (Raft dissertation 4.2.2).

    Args:
        sets: the voter sets of its log with their offsets, ascending.
    """
    offset, last = sets[-1]
    if me in last:
        return True
    return len(sets) > 1 and high_watermark <= offset and me in sets[-2][1]


def changed(voters: VoterSet, change: VoterChange) -> VoterSet:
    """The set after an allowed change."""
    match change.kind:
        case VoterChangeKind.ADD:
            return voters.with_voter(change.voter)
        case VoterChangeKind.REMOVE:
            return voters.without_voter(change.voter.key)
        case VoterChangeKind.UPDATE:
            return voters.with_voter(change.voter)
        case VoterChangeKind.UPGRADE:
            return voters.upgraded()


def auto_join(me: Voter, *, voters: VoterSet, is_caught_up: bool) -> VoterChange | None:
    """The request of an observer controller to the leader to become a voter by itself, or None.

    First the removal of the directory with which its node voted before (a replaced disk), then the addition. Never when this
    very replica was removed: it would undo what an operator did. The caller sets the correlation.
    """
    if not is_caught_up or voters.kraft_version < 1 or me.key in voters or me.key in voters.removed:
        return None
    former = voters.by_id(me.key.id)
    if former is not None:
        return VoterChange(VoterChangeKind.REMOVE, former, 0, me.key)
    return VoterChange(VoterChangeKind.ADD, me, 0, me.key)


def own_update(me: Voter, *, voters: VoterSet) -> VoterChange | None:
    """The request of a voter to the leader when the set has another address for it; None when the address is right."""
    known = voters.by_id(me.key.id)
    if voters.kraft_version < 1 or known is None or known.key != me.key or known == me:
        return None
    return VoterChange(VoterChangeKind.UPDATE, me, 0)
