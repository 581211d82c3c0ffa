"""The rules of elections: who may have my vote, what a replica is when it starts, how long to wait.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: a standard vote goes to one replica per epoch and only to a log at least as complete as the voter's own.
Read next:  core.py, which sends what these rules decide.
"""

from __future__ import annotations

from enum import Enum

from barnabas_quorum.raft.messages import HardState, VoteRequest
from barnabas_quorum.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Role, Unattached
from barnabas_quorum.raft.voters import ReplicaKey, VoterSet
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, Offset


def is_up_to_date(*, last_epoch: Epoch, end_offset: Offset, my_last_epoch: Epoch, my_end_offset: Offset) -> bool:
    """Whether a log is at least as complete as mine: the later last epoch wins, then the length (Raft 5.4.1)."""
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
    """Whether to grant a well-formed request of my own epoch (KIP-595, KIP-996).

    A follower that has fetched refuses pre-votes: its leader is alive, and the asker has merely lost sight of it.

    Who has my vote gets it again, if its log still deserves it: a candidate may run with records that it has not flushed, crash,
    and stand in the same epoch without them. (Kafka's flushes before it does anything else, and need not look again.)
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
    """What a replica is after a restart."""

    UNATTACHED = "unattached"
    CANDIDATE = "candidate"
    FOLLOWER = "follower"
    RESIGNED = "resigned"


def start_after_restart(
    state: HardState, *, last_epoch: Epoch, me: ReplicaKey, voters: VoterSet, may_campaign: bool
) -> Start:
    """What the saved state makes of me. Who was leader is Resigned, never leader again in that epoch.

    One that may not campaign (it was removed) only looks for the new leader; its recorded vote still binds it.
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
    """A wait in [timeout, 2 × timeout); draw is uniform in [0, 1)."""
    return election_timeout_ms + int(draw * election_timeout_ms)


def lost_leader_delay_ms(*, election_timeout_ms: int, draw: float) -> int:
    """A wait in [timeout / 4, timeout) for a voter whose leader is known to be gone, so that rarely two run at once."""
    return int((0.25 + 0.75 * draw) * election_timeout_ms)


def handover_delay_ms(successors: tuple[ReplicaKey, ...], me: ReplicaKey, *, delay_ms_max: int) -> int:
    """How long a voter waits before it runs for the place of a leader that resigned (KIP-595).

    The best successor runs at once; each further one waits twice as long as the one before, at most delay_ms_max.
    """
    if me not in successors:
        return delay_ms_max
    position = successors.index(me)
    if position == 0:
        return 0
    return min(delay_ms_max, (delay_ms_max >> (len(successors) - 1)) << (position - 1))
