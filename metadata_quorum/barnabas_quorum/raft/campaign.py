"""A replica's side of elections: it loses its leader, asks for pre-votes and votes, wins or gives up; and it votes.

May touch:  the Replica it is given.  Must not touch: asyncio, clock, random generators, log, network.
Invariants: a replica votes once per epoch, whoever asks and whatever the voter set says: only the candidate, which counts,
            looks at the set (Raft dissertation 4.1), so a replica that does not know of its own addition can help to elect.
Read next:  election.py, the rules; leading.py, what the winner does.
"""

from __future__ import annotations

from barnabas_quorum.raft import election, leading
from barnabas_quorum.raft.messages import (
    BeginQuorumEpochReply,
    BeginQuorumEpochRequest,
    EndQuorumEpochReply,
    EndQuorumEpochRequest,
    ReplyError,
    VoteReply,
    VoteRequest,
)
from barnabas_quorum.raft.replica import Replica
from barnabas_quorum.raft.roles import NEVER_MS, Candidate, Follower, Prospective, Resigned, Tally, Unattached
from barnabas_quorum.raft.voters import ReplicaKey
from barnabas_wire.kafka.ids import NO_BROKER, Epoch

ASK_AGAIN_PARTS = 4
"""A voter that must ask does so again after this part of the election time-out."""


def tick(core: Replica) -> None:
    """Run the timers of a replica that follows nobody."""
    role = core.role
    now_ms = core.now_ms
    match role:
        case Unattached():
            if now_ms >= role.election_deadline_ms:
                become_prospective(core)
        case Prospective():
            if now_ms >= role.election_deadline_ms:
                give_up(core)
            else:
                send_votes(core, role.tally, is_pre_vote=True)
        case Candidate():
            if now_ms >= role.election_deadline_ms:
                become_prospective(core)
            else:
                send_votes(core, role.tally, is_pre_vote=False)
        case Resigned():
            if now_ms < role.election_deadline_ms:
                leading.send_end_quorum_epoch(core, role)
            elif core.may_campaign:
                core.become_unattached(Epoch(core.epoch + 1))
            else:
                # Removed: it must not raise the epoch, because no leader would serve an observer that is ahead of it.
                core.become(Unattached(NEVER_MS))


def lose_leader(core: Replica) -> None:
    """The fetch timer has expired: a voter runs for election, an observer looks for a leader."""
    if core.may_campaign or core.must_ask:
        become_prospective(core)
    else:
        core.become(Unattached(NEVER_MS))


def become_prospective(core: Replica) -> None:
    """Ask whether an election would succeed, without raising the epoch (KIP-996); a voter that must ask does so until it knows."""
    role = Prospective(NEVER_MS if core.must_ask else core.election_deadline_ms(), core.new_tally())
    core.become(role)
    if core.is_sole_voter:
        become_candidate(core)
    else:
        send_votes(core, role.tally, is_pre_vote=True)


def give_up(core: Replica) -> None:
    """Return to the leader that did not answer, or wait for another election."""
    leader = core.voters.by_id(core.leader_id)
    if leader is not None and leader.key.id != core.me.id:
        core.become_follower(leader)
    else:
        core.become(Unattached(core.election_deadline_ms()))


def become_candidate(core: Replica) -> None:
    """Raise the epoch and run for election. Nothing else raises an epoch without a message from a peer."""
    role = Candidate(core.election_deadline_ms(), core.new_tally())
    core.become(role)
    core.enter_epoch(Epoch(core.epoch + 1), leader_id=NO_BROKER, voted=core.me)
    if core.is_sole_voter:
        leading.become_leader(core, role)
    else:
        send_votes(core, role.tally, is_pre_vote=False)


def send_votes(core: Replica, tally: Tally, *, is_pre_vote: bool) -> None:
    """Send requests to every voter that has not answered and is due."""
    told = core.inquiry.lives if core.inquiry.is_first_start else {}
    for voter, due_ms in tally.resend_ms.items():
        if due_ms <= core.now_ms:
            tally.resend_ms[voter] = core.now_ms + core.timing.request_timeout_ms
            core.outbox.append(
                VoteRequest(
                    core.next_correlation(),
                    core.me,
                    voter,
                    core.epoch,
                    core.history.last_epoch,
                    core.end_offset,
                    is_pre_vote,
                    told.get(voter, 0),
                )
            )


def on_vote_request(core: Replica, request: VoteRequest) -> None:
    """Grant or refuse. The sender checks whether both are voters."""
    is_granted = False
    if request.target != core.me:
        error = ReplyError.INVALID_VOTER_KEY
    elif not election.is_well_formed(request):
        error = ReplyError.INVALID_REQUEST
    elif request.epoch < core.epoch:
        error = ReplyError.FENCED_LEADER_EPOCH
    else:
        error = ReplyError.NONE
        if request.life == core.told_life > 0 and request.source in core.voters:
            learn_first_start(core)
        if request.epoch > core.epoch:
            core.become_unattached(request.epoch)
        mine = core.vote_end
        is_granted = election.may_grant(
            request,
            role=core.role,
            voted=core.voted,
            leader_id=core.leader_id,
            last_epoch=mine.epoch,
            end_offset=mine.end_offset,
        )
        if is_granted and not request.is_pre_vote:
            record_vote(core, request.source)
    core.outbox.append(
        VoteReply(
            request.correlation,
            core.me,
            request.source,
            core.epoch,
            core.live_leader_id,
            error,
            is_granted,
            request.is_pre_vote,
            core.leader_endpoint,
            core.told_life,
        )
    )
    role = core.role
    is_news = core.must_ask and request.source in core.inquiry.unheard(core.voters, core.me)
    if is_news and isinstance(role, Prospective):
        role.tally.resend_ms[request.source] = core.now_ms  # it is there now
        send_votes(core, role.tally, is_pre_vote=True)


def learn_first_start(core: Replica) -> None:
    """The sender says that all initial voters, this replica in this life among them, were blank at one moment."""
    core.begin()
    role = core.role
    if isinstance(role, Prospective | Unattached):
        role.election_deadline_ms = core.election_deadline_ms()


def record_vote(core: Replica, candidate: ReplicaKey) -> None:
    """Record the vote, which is durable before the reply leaves, and give the candidate time."""
    if core.voted != candidate:
        core.voted = candidate
        core.hard_state_changed = True
    role = core.role
    assert isinstance(role, Unattached | Prospective), f"{role} voted"
    role.election_deadline_ms = core.election_deadline_ms()


def on_vote_reply(core: Replica, reply: VoteReply) -> None:
    """Count it, unless it is of an older epoch, or reports a higher epoch or a leader that can be followed. A leader without a
    known address must not void the vote: it may be gone, and only the replicas that remember it may be able to elect."""
    was_first_start, was_second_round = core.inquiry.is_first_start, core.inquiry.is_second_round
    if reply.is_pre_vote:
        core.inquiry.hear(
            reply,
            others=core.voters.others(core.me),
            is_empty=core.is_empty and core.role.__class__ is Prospective,
            correlation=core.correlation,
        )
    if reply.epoch < core.epoch:
        return
    if reply.epoch > core.epoch or core.leader_id == NO_BROKER or core.must_ask:
        core.observe(reply.epoch, reply.leader_id, reply.leader)
    role = core.role
    match role:
        case Prospective() if core.inquiry.is_first_start and not was_first_start:
            core.begin()
            delay_ms = election.first_delay_ms(
                core.voters, core.me, election_timeout_ms=core.timing.election_timeout_ms, draw=core.draw()
            )
            if delay_ms == 0:
                become_candidate(core)
            else:
                core.become(Unattached(core.now_ms + delay_ms))
        case Prospective() if reply.is_pre_vote and (core.must_ask or core.inquiry.is_second_round):
            ask_again(core, role, reply, is_new_round=core.inquiry.is_second_round and not was_second_round)
        case Prospective() if reply.is_pre_vote:
            if count_vote(core, role.tally, reply):
                become_candidate(core)
            elif len(role.tally.rejected) > len(core.voters) - core.voters.majority:
                give_up(core)
        case Candidate() if not reply.is_pre_vote:
            if count_vote(core, role.tally, reply):
                leading.become_leader(core, role)


def ask_again(core: Replica, role: Prospective, reply: VoteReply, *, is_new_round: bool) -> None:
    """What the others say may change: who has answered is asked again after a pause, in a new round everybody at once."""
    if not core.must_ask and count_vote(core, role.tally, reply):
        become_candidate(core)
        return
    if is_new_round:
        role.tally.resend_ms = dict.fromkeys(core.voters.others(core.me), core.now_ms)
        send_votes(core, role.tally, is_pre_vote=True)
    elif reply.source in core.voters:
        role.tally.resend_ms[reply.source] = core.now_ms + core.timing.election_timeout_ms // ASK_AGAIN_PARTS


def count_vote(core: Replica, tally: Tally, reply: VoteReply) -> bool:
    """Enter a vote; returns whether a majority granted. A candidate without one waits for its timer."""
    if reply.source not in core.voters:
        return False
    tally.resend_ms.pop(reply.source, None)
    if reply.is_granted:
        tally.granted.add(reply.source)
        tally.rejected.discard(reply.source)
    elif reply.source not in tally.granted:
        tally.rejected.add(reply.source)
    return len(tally.granted) >= core.voters.majority


# --- a leader begins and ends -----------------------------------------------------------------------------------------


def on_begin_request(core: Replica, request: BeginQuorumEpochRequest) -> None:
    """A new leader announces itself; it may be a voter that this replica does not know yet."""
    leader = request.leader if request.leader is not None else core.voters.by_id(request.source.id)
    if request.target != core.me or leader is None or leader.key != request.source:
        error = ReplyError.INVALID_VOTER_KEY
    elif request.epoch < core.epoch:
        error = ReplyError.FENCED_LEADER_EPOCH
    else:
        error = ReplyError.NONE
        if request.epoch > core.epoch:
            core.observe(request.epoch, request.source.id, leader)
        elif not isinstance(core.role, Follower):
            core.become_follower(leader)
        assert core.leader_id == request.source.id, f"epoch {core.epoch} led by {core.leader_id} and {request.source}"
    core.outbox.append(
        BeginQuorumEpochReply(
            request.correlation,
            core.me,
            request.source,
            core.epoch,
            core.live_leader_id,
            error,
            core.leader_endpoint,
        )
    )


def on_begin_reply(core: Replica, reply: BeginQuorumEpochReply) -> None:
    """Only a higher epoch is news."""
    if reply.epoch > core.epoch:
        core.observe(reply.epoch, reply.leader_id, reply.leader)


def on_end_request(core: Replica, request: EndQuorumEpochRequest) -> None:
    """The leader resigns: the best successor runs at once, the others after a delay."""
    if request.target != core.me:
        error = ReplyError.INVALID_VOTER_KEY
    elif request.epoch < core.epoch:
        error = ReplyError.FENCED_LEADER_EPOCH
    else:
        error = ReplyError.NONE
        core.observe(request.epoch, request.source.id, None)
        role = core.role
        if isinstance(role, Follower) and role.leader == request.source:
            role.is_leader_lost = True
            core.fetch_correlation = 0  # a late success must not make the leader look alive again
            delay_ms = election.handover_delay_ms(
                request.successors, core.me, delay_ms_max=core.timing.election_backoff_ms_max
            )
            role.fetch_deadline_ms = min(role.fetch_deadline_ms, core.now_ms + delay_ms)
            core.fetch_due_ms = role.fetch_deadline_ms
            if delay_ms == 0:
                lose_leader(core)
    core.outbox.append(
        EndQuorumEpochReply(
            request.correlation,
            core.me,
            request.source,
            core.epoch,
            core.live_leader_id,
            error,
            core.leader_endpoint,
        )
    )


def on_end_reply(core: Replica, reply: EndQuorumEpochReply) -> None:
    """This voter knows now."""
    if reply.epoch > core.epoch:
        core.observe(reply.epoch, reply.leader_id, reply.leader)
    elif isinstance(core.role, Resigned) and reply.epoch == core.epoch:
        core.role.resend_ms.pop(reply.source, None)
