"""The leader's side: it serves fetches, counts what is durable, checks its majority, changes the voter set, resigns.

May touch:  the Replica it is given.  Must not touch: asyncio, clock, random generators, log, network.
Invariants: the leader's own end counts only when flushed, and only while it is a voter; the high watermark moves under
            the last voter set of the log, committed or not.
Read next:  replication.py and membership.py, the rules.
"""

from __future__ import annotations

from barnabas_quorum.raft import membership, replication, snapshots
from barnabas_quorum.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotReply,
    FetchSnapshotRequest,
    LeaderChange,
    ReplyError,
    VoterChange,
    VoterChangeResult,
    VoterRefusal,
    Voters,
)
from barnabas_quorum.raft.replica import Replica
from barnabas_quorum.raft.roles import NEVER_MS, Candidate, Leader, ReplicaProgress, Resigned
from barnabas_quorum.raft.voters import ReplicaKey, VoterSet
from barnabas_wire.kafka.ids import NO_OFFSET, Offset

# --- coming and going -------------------------------------------------------------------------------------------------


def become_leader(core: Replica, candidate: Candidate) -> None:
    """Open the epoch with a LeaderChange record; write a bootstrap voter set into the log, so that all replicas learn it."""
    now_ms = core.now_ms
    core.leader_id = core.me.id
    core.hard_state_changed = True
    others = core.voters.others(core.me)
    role = Leader(
        epoch_start=core.end_offset,
        check_quorum_deadline_ms=now_ms + core.timing.check_quorum_timeout_ms if others else NEVER_MS,
        voters={key: _new_progress(begin_due_ms=now_ms) for key in others},
        endpoint=core.own_endpoint or core.endpoint_of(core.me),
        recovered_epoch=core.history.recovered_epoch(),
    )
    core.become(role)
    granting = tuple(key for key in core.voters.keys if key in candidate.tally.granted)
    core.append(Offset(core.end_offset + 1), LeaderChange(core.me, core.voters.keys, granting))
    role.urgent_end = core.end_offset
    if core.voters.kraft_version >= 1 and core.voter_history.last_offset == NO_OFFSET:
        write_voters(core, role, core.voters, writes_version=True)
    send_begin_quorum_epoch(core, role)


def resign(core: Replica, leader: Leader) -> None:
    """Resign, and name the voters that should succeed: those with most of the log first."""
    ordered = sorted(leader.voters.items(), key=lambda item: item[1].end_offset, reverse=True)
    successors = tuple(key for key, _ in ordered)
    deadline_ms = core.election_deadline_ms() if core.may_campaign else core.now_ms + core.timing.election_timeout_ms
    role = Resigned(deadline_ms, successors, dict.fromkeys(successors, core.now_ms))
    core.become(role)
    send_end_quorum_epoch(core, role)


def send_begin_quorum_epoch(core: Replica, leader: Leader) -> None:
    """Send it to every voter that is due; a voter that fetches knows its leader already."""
    for key, replica in leader.voters.items():
        if replica.begin_due_ms <= core.now_ms:
            replica.begin_due_ms = core.now_ms + core.timing.fetch_timeout_ms // 2
            core.outbox.append(
                BeginQuorumEpochRequest(core.next_correlation(), core.me, key, core.epoch, leader.endpoint)
            )


def send_end_quorum_epoch(core: Replica, resigned: Resigned) -> None:
    """Send it to every voter that has not acknowledged it and is due."""
    for key, due_ms in resigned.resend_ms.items():
        if due_ms <= core.now_ms:
            resigned.resend_ms[key] = core.now_ms + core.timing.request_timeout_ms
            core.outbox.append(
                EndQuorumEpochRequest(core.next_correlation(), core.me, key, core.epoch, resigned.successors)
            )


# --- timers -----------------------------------------------------------------------------------------------------------


def tick(core: Replica, role: Leader) -> None:
    """Check the majority, forget silent observers, answer fetches that have waited, remind silent voters."""
    now_ms = core.now_ms
    if now_ms >= role.check_quorum_deadline_ms:
        role.check_quorum_deadline_ms = check_quorum_deadline_ms(core, role)
        if now_ms >= role.check_quorum_deadline_ms:
            resign(core, role)
            return
    silent = [
        key
        for key, replica in role.observers.items()
        if now_ms - replica.last_fetch_ms > core.timing.observer_session_ms
    ]
    for key in silent:
        del role.observers[key]
    for replica in (*role.voters.values(), *role.observers.values()):
        if now_ms >= replica.parked_until_ms:
            answer_parked(core, replica)
    send_begin_quorum_epoch(core, role)


def check_quorum_deadline_ms(core: Replica, role: Leader) -> int:
    """When the leader must resign unless it hears from voters before; a fetch of a snapshot counts too."""
    needed = replication.others_needed(majority=core.voters.majority, is_voter=core.is_voter)
    if needed == 0:
        return NEVER_MS
    heard_ms = replication.heard_from_majority_ms(
        [replica.last_fetch_ms for replica in role.voters.values()], needed=needed
    )
    return heard_ms + core.timing.check_quorum_timeout_ms


def deadline_ms(role: Leader) -> int:
    """When tick is due next."""
    deadline = role.check_quorum_deadline_ms
    for replica in role.voters.values():
        deadline = min(deadline, replica.parked_until_ms, replica.begin_due_ms)
    for replica in role.observers.values():
        deadline = min(deadline, replica.parked_until_ms)
    return deadline


# --- fetches ----------------------------------------------------------------------------------------------------------


def refused(core: Replica, request: FetchRequest | FetchSnapshotRequest) -> ReplyError:
    """Why a well-formed fetch is not served; NONE when it is.

    A leader yields to a replica with a higher epoch, as in Raft (5.1) and unlike Kafka. An observer has the higher epoch from a
    voter that could win an election. If that voter is lost before any other replica learns of the epoch, the observer could
    fetch from nobody, and no election would follow. No replica raises an epoch without a majority's pre-votes.
    """
    if request.epoch < core.epoch:
        return ReplyError.FENCED_LEADER_EPOCH
    if request.epoch > core.epoch:
        if core.role.__class__ is Leader and request.target == core.me:
            core.become_unattached(request.epoch)
        return ReplyError.UNKNOWN_LEADER_EPOCH
    if core.role.__class__ is not Leader or request.target != core.me:
        return ReplyError.NOT_LEADER_OR_FOLLOWER
    return ReplyError.NONE


def on_fetch_request(core: Replica, request: FetchRequest) -> None:
    """Serve, or return the reason for not serving."""
    role = core.role
    if request.fetch_offset < 0 or not 0 <= request.last_epoch <= request.epoch:
        core.answer_fetch(request, ReplyError.INVALID_REQUEST)
        return
    error = refused(core, request)
    if error is ReplyError.NONE and isinstance(role, Leader):
        serve_fetch(core, role, request)
    else:
        core.answer_fetch(request, error)


def serve_fetch(core: Replica, role: Leader, request: FetchRequest) -> None:
    """Count the acknowledgement in the fetch, then answer it, or park it when there is nothing new."""
    offset = request.fetch_offset
    snapshot_id = snapshots.needed(
        core.snapshots, log_start=core.log_start, fetch_offset=offset, last_epoch=request.last_epoch
    )
    diverging = None
    if snapshot_id is None:
        diverging = replication.divergence(
            core.history, log_end=core.end_offset, fetch_offset=offset, last_epoch=request.last_epoch
        )
    is_prefix = diverging is None and snapshot_id is None
    replica = heard_from(core, role, request.source)
    if replica.parked is not None:
        answer_parked(core, replica)
    now_ms = core.now_ms
    if is_prefix:
        if offset >= core.end_offset:
            replica.last_caught_up_ms = now_ms
        elif offset >= replica.end_offset_at_last_fetch:
            replica.last_caught_up_ms = max(replica.last_caught_up_ms, replica.last_fetch_ms)
        replica.end_offset = max(replica.end_offset, offset)
    replica.last_fetch_ms = now_ms
    replica.end_offset_at_last_fetch = core.end_offset
    if is_prefix and replica.is_voter:
        advance_high_watermark(core, role)
    if (
        is_prefix
        and offset == core.end_offset
        and request.high_watermark >= min(core.high_watermark, role.urgent_end)
        and request.wait_ms_max > 0
    ):
        replica.parked = request
        replica.parked_until_ms = now_ms + min(request.wait_ms_max, core.timing.fetch_wait_ms_max)
    else:
        core.answer_fetch(request, ReplyError.NONE, diverging, snapshot_id)


def heard_from(core: Replica, role: Leader, source: ReplicaKey) -> ReplicaProgress:
    """The progress of a replica that sent a request; an unknown one is an observer from now on."""
    replica = role.voters.get(source)
    if replica is not None:
        replica.begin_due_ms = core.now_ms + core.timing.fetch_timeout_ms // 2
        return replica
    replica = role.observers.get(source)
    if replica is None:
        replica = role.observers[source] = _new_progress()
    return replica


def on_fetch_snapshot_request(core: Replica, request: FetchSnapshotRequest) -> None:
    """Serve one bounded slice. It acknowledges no record, but shows that the follower is alive and busy."""
    role = core.role
    bytes_max = 0
    if request.position < 0 or request.bytes_max <= 0:
        error = ReplyError.INVALID_REQUEST
    else:
        error = refused(core, request)
    if error is ReplyError.NONE and isinstance(role, Leader):
        replica = heard_from(core, role, request.source)
        replica.last_fetch_ms = core.now_ms
        replica.end_offset_at_last_fetch = core.end_offset
        if request.snapshot_id in core.snapshots:
            bytes_max = min(request.bytes_max, core.timing.fetch_snapshot_bytes_max)
        else:
            error = ReplyError.SNAPSHOT_NOT_FOUND
    core.outbox.append(
        FetchSnapshotReply(
            request.correlation,
            core.me,
            request.source,
            core.epoch,
            core.live_leader_id,
            error,
            request.snapshot_id,
            0,
            request.position,
            b"",
            bytes_max,
            core.leader_endpoint,
        )
    )


def answer_all_parked(core: Replica, role: Leader) -> None:
    """The log or the high watermark has grown: answer parked fetches. Done once per ready, so that a follower gets all batches
    of one round in one reply, and the high watermark at once (KIP-1166)."""
    urgent = min(core.high_watermark, role.urgent_end)
    for replica in (*role.voters.values(), *role.observers.values()):
        parked = replica.parked
        if parked is not None and (parked.fetch_offset < core.end_offset or parked.high_watermark < urgent):
            answer_parked(core, replica)


def answer_parked(core: Replica, replica: ReplicaProgress) -> None:
    """Answer with whatever there is now."""
    request = replica.parked
    assert request is not None, "nothing is parked"
    replica.parked = None
    replica.parked_until_ms = NEVER_MS
    core.answer_fetch(request, ReplyError.NONE)


def advance_high_watermark(core: Replica, role: Leader) -> None:
    """Count the disks of the last voter set."""
    durable_ends = [replica.end_offset for replica in role.voters.values()]
    if core.is_voter:
        durable_ends.append(core.flushed_end)
    high_watermark = replication.next_high_watermark(
        durable_ends,
        majority=core.voters.majority,
        epoch_start=role.epoch_start,
        high_watermark=core.high_watermark,
    )
    if high_watermark == core.high_watermark:
        return
    assert high_watermark <= core.end_offset, f"HW {high_watermark} beyond the log's end {core.end_offset}"
    core.high_watermark = high_watermark
    core.has_news = True


# --- the voter set ----------------------------------------------------------------------------------------------------


def change_voters(core: Replica, role: Leader, change: VoterChange) -> VoterRefusal | None:
    """Begin a change, or return the reason for refusing it (KIP-853)."""
    refused = membership.may_begin(
        has_pending=role.pending is not None,
        high_watermark=core.high_watermark,
        epoch_start=role.epoch_start,
        last_voters_offset=core.voter_history.last_offset,
    ) or membership.refusal(change, voters=core.voters, caught_up=_caught_up(core, role))
    if refused is not None:
        return refused
    voters = membership.changed(core.voters, change)
    if voters == core.voters:
        core.finished.append(VoterChangeResult(change.correlation, ReplyError.NONE, ""))
    else:
        role.pending = change
        write_voters(core, role, voters, writes_version=voters.kraft_version != core.voters.kraft_version)
    return None


def _caught_up(core: Replica, role: Leader) -> set[ReplicaKey]:
    silence_ms_max = core.timing.check_quorum_timeout_ms
    return {core.me} | {
        key
        for replicas in (role.voters, role.observers)
        for key, progress in replicas.items()
        if membership.is_caught_up(progress, now_ms=core.now_ms, silence_ms_max=silence_ms_max)
    }


def write_voters(core: Replica, role: Leader, voters: VoterSet, *, writes_version: bool) -> None:
    """Append a voter set; it counts from now on. A former voter becomes an observer."""
    core.append(Offset(core.end_offset + (2 if writes_version else 1)), Voters(voters, writes_version))
    role.urgent_end = core.end_offset
    core.voter_history.append(Offset(core.end_offset - 1), voters)
    core.use_last_voters()
    for key in [key for key in role.voters if key not in voters]:
        left = role.observers[key] = role.voters.pop(key)
        left.begin_due_ms = NEVER_MS
        left.is_voter = False
    for key in voters.others(core.me):
        if key not in role.voters:
            joined = role.voters[key] = role.observers.pop(key) if key in role.observers else _new_progress()
            joined.begin_due_ms = core.now_ms
            joined.is_voter = True
    mine = voters.by_id(core.me.id)
    if mine is not None and mine.key == core.me:
        role.endpoint = core.own_endpoint or mine
    if not role.voters:
        role.check_quorum_deadline_ms = NEVER_MS
    elif role.check_quorum_deadline_ms == NEVER_MS:
        role.check_quorum_deadline_ms = core.now_ms + core.timing.check_quorum_timeout_ms


def settle_voters(core: Replica, role: Leader) -> None:
    """The last set is committed: report it to the waiting caller; a leader that is no longer a voter resigns."""
    if core.high_watermark <= core.voter_history.last_offset:
        return
    if role.pending is not None:
        core.finished.append(VoterChangeResult(role.pending.correlation, ReplyError.NONE, ""))
        role.pending = None
    if not core.is_voter:
        resign(core, role)


def _new_progress(*, begin_due_ms: int = NEVER_MS) -> ReplicaProgress:
    return ReplicaProgress(Offset(0), -1, -1, Offset(0), begin_due_ms=begin_due_ms, is_voter=begin_due_ms != NEVER_MS)
