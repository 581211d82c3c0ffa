"""The rules of elections: who may get this replica's vote, its role after a start, how long to wait.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: a standard vote goes to one replica per epoch and only to a log at least as complete as the voter's own.
Read next:  campaign.py, which applies these rules.
"""

from __future__ import annotations

from enum import Enum

from barnabas_quorum.raft.messages import HardState, VoteRequest
from barnabas_quorum.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Role, Unattached
from barnabas_quorum.raft.voters import ReplicaKey, VoterSet
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, Offset


def is_up_to_date(*, last_epoch: Epoch, end_offset: Offset, my_last_epoch: Epoch, my_end_offset: Offset) -> bool:
    """Whether a log is at least as complete as this replica's: the later last epoch wins, then the length (Raft 5.4.1)."""
    return (last_epoch, end_offset) >= (my_last_epoch, my_end_offset)


def is_well_formed(request: VoteRequest) -> bool:
    """A candidate's log cannot contain the epoch it runs for; a pre-vote still carries the epoch before it."""
    if request.end_offset < 0 or request.last_epoch < 0:
        return False
    return request.last_epoch <= request.epoch if request.is_pre_vote else request.last_epoch < request.epoch


def may_grant(
    request: VoteRequest,
    *,
    role: Role,
    voted: ReplicaKey | None,
    leader_id: BrokerId,
    last_epoch: Epoch,
    end_offset: Offset,
) -> bool:
    """Whether to grant a well-formed request of this replica's own epoch (KIP-595, KIP-996).

    A follower that has fetched refuses pre-votes: its leader is alive, and only the sender has lost contact.

    The candidate that has the vote gets it again if its log is still complete enough: it may run with records that it has not
    flushed, crash, and run again in the same epoch without them. (Kafka's flushes before anything else, so it need not check.)
    """
    up_to_date = is_up_to_date(
        last_epoch=request.last_epoch,
        end_offset=request.end_offset,
        my_last_epoch=last_epoch,
        my_end_offset=end_offset,
    )
    match role:
        case Leader():
            return False
        case Follower():
            return request.is_pre_vote and up_to_date and (role.is_leader_lost or not role.has_fetched)
        case Candidate() | Resigned():
            return request.is_pre_vote and up_to_date
        case Unattached() | Prospective():
            if request.is_pre_vote:
                return up_to_date
            if voted is not None:
                return voted == request.source and up_to_date
            return leader_id == NO_BROKER and up_to_date


class Start(Enum):
    """The role of a replica after a restart."""

    UNATTACHED = "unattached"
    CANDIDATE = "candidate"
    FOLLOWER = "follower"
    RESIGNED = "resigned"


def start_after_restart(
    state: HardState, *, last_epoch: Epoch, me: ReplicaKey, voters: VoterSet, may_campaign: bool
) -> Start:
    """The role that follows from the saved state. A former leader is Resigned, and never leads that epoch again.

    A replica that may not campaign (it was removed) only looks for the new leader; its recorded vote still binds it.
    """
    if last_epoch > state.epoch:
        return Start.UNATTACHED
    if state.leader_id == me.id:
        return Start.RESIGNED if may_campaign else Start.UNATTACHED
    if not may_campaign:
        return Start.FOLLOWER if voters.by_id(state.leader_id) else Start.UNATTACHED
    if state.voted == me and state.leader_id == NO_BROKER:
        return Start.CANDIDATE
    return Start.FOLLOWER if voters.by_id(state.leader_id) else Start.UNATTACHED


def election_delay_ms(*, election_timeout_ms: int, draw: float) -> int:
    """A delay in [timeout, 2 × timeout); draw is uniform in [0, 1)."""
    return election_timeout_ms + int(draw * election_timeout_ms)


def first_delay_ms(voters: VoterSet, me: ReplicaKey, *, election_timeout_ms: int, draw: float) -> int:
    """How long a voter that knows of no election waits before it runs: less than half a time-out.

    It has no leader whose word it would have to wait for, and where it errs the pre-vote harms nobody. The first, by its id,
    runs at once, each other in a part of that time that is its own, so that votes are rarely split.
    """
    position = voters.keys.index(me)
    return int(max(0.0, position - draw / 2) * election_timeout_ms / (2 * len(voters)))


def lost_leader_delay_ms(*, election_timeout_ms: int, draw: float) -> int:
    """A delay in [timeout / 4, timeout) for a voter whose leader is known to be gone, so that two rarely run at once."""
    return int((0.25 + 0.75 * draw) * election_timeout_ms)


def handover_delay_ms(successors: tuple[ReplicaKey, ...], me: ReplicaKey, *, delay_ms_max: int) -> int:
    """How long a voter waits before it runs to succeed a leader that resigned (KIP-595).

    The best successor runs at once; each next one waits twice as long as the one before, at most delay_ms_max.
    """
    if me not in successors:
        return delay_ms_max
    position = successors.index(me)
    if position == 0:
        return 0
    return min(delay_ms_max, (delay_ms_max >> (len(successors) - 1)) << (position - 1))
