"""The follower's side: it fetches, appends, truncates what the leader lacks, and looks for a leader when it has none.

May touch:  the Replica it is given.  Must not touch: asyncio, clock, random generators, log, network.
Invariants: a fetch leaves only when the whole log is flushed, because it is the acknowledgement; at most one is in flight.
Read next:  replication.py, the rules; downloading.py, when the leader has a snapshot instead of the records.
"""

from __future__ import annotations

from barnabas_quorum.raft import campaign, downloading, replication
from barnabas_quorum.raft.damage import UNKNOWN_END
from barnabas_quorum.raft.epoch_history import is_before_recovery
from barnabas_quorum.raft.messages import (
    Append,
    EpochStart,
    FetchReply,
    FetchRequest,
    FetchSnapshotReply,
    ReplyError,
    Unreachable,
)
from barnabas_quorum.raft.replica import Replica
from barnabas_quorum.raft.roles import NEVER_MS, Candidate, Follower, Prospective, Resigned, Unattached
from barnabas_quorum.raft.voters import ReplicaKey
from barnabas_wire.kafka.ids import Offset

LEADER_LOST_FAILURES = 4
"""After this many failed fetches in a row, with growing waits between them, the leader's address counts as dead."""


def maybe_fetch(core: Replica) -> None:
    """Fetch when nothing is in flight, a fetch is due, and the whole log is durable: the fetch acknowledges it."""
    role = core.role
    if (
        core.fetch_correlation != 0
        or core.now_ms < core.fetch_due_ms
        or core.flushed_end != core.end_offset
        or core.install is not None
        or (role.__class__ is not Follower and role.__class__ is not Unattached)
    ):
        return
    target = fetch_target(core)
    if target is None:
        core.fetch_due_ms = NEVER_MS
        return
    correlation = core.next_correlation()
    core.fetch_correlation = correlation
    core.fetch_due_ms = core.now_ms + core.timing.request_timeout_ms
    if core.download is not None and isinstance(role, Follower) and target == role.leader:
        core.outbox.append(downloading.request(core, role.leader, core.download))
        return
    core.outbox.append(
        FetchRequest(
            correlation,
            core.fetch_key,
            target,
            core.epoch,
            core.end_offset,
            core.history.last_epoch,
            core.high_watermark,
            core.timing.fetch_wait_ms_max,
        )
    )


def fetch_target(core: Replica) -> ReplicaKey | None:
    """The leader; without one, and every other time after it failed, the voters and bootstrap servers in turn: one of them may
    know it."""
    role = core.role
    if isinstance(role, Follower) and core.fetch_failures % 2 == 0:
        return role.leader
    others = core.voters.others(core.me)
    count = len(others) + len(core.bootstrap)
    if not count:
        return None
    core.asked += 1
    index = core.asked % count
    return others[index] if index < len(others) else core.bootstrap[index - len(others)].key


def on_fetch_reply(core: Replica, reply: FetchReply) -> None:
    """Take the leader's records, or learn who leads."""
    if is_answer(core, reply):
        role = core.role
        assert isinstance(role, Follower), "only a follower takes records"
        take_fetched(core, role, reply)


def is_answer(core: Replica, reply: FetchReply | FetchSnapshotReply) -> bool:
    """Whether this is the leader's good answer to the request in flight; handles anything else."""
    if reply.correlation != core.fetch_correlation:
        if reply.epoch > core.epoch:
            core.observe(reply.epoch, reply.leader_id, reply.leader)
        return False
    core.fetch_correlation = 0
    role = core.role
    if reply.epoch > core.epoch or (role.__class__ is Unattached and reply.epoch == core.epoch):
        core.observe(reply.epoch, reply.leader_id, reply.leader)
        if core.role.__class__ is Unattached:
            fetch_failed(core)
        return False
    if not isinstance(role, Follower) or reply.epoch < core.epoch:
        fetch_failed(core)
        return False
    if reply.error is not ReplyError.NONE or reply.source != role.leader:
        fetch_failed(core)
        if reply.source == role.leader:
            if reply.error is ReplyError.NOT_LEADER_OR_FOLLOWER:
                # It led this epoch and has stopped: it never will again, so do not wait for the fetch timer.
                core.mark_leader_lost(role)
            elif core.download is not None and reply.error in downloading.DROPPING_ERRORS:
                downloading.give_up(core)
        return False
    return True


def hear_leader(core: Replica, role: Follower) -> None:
    """The leader sent a useful answer: it counts as alive for another fetch timeout."""
    role.fetch_deadline_ms = core.now_ms + core.timing.fetch_timeout_ms
    role.has_fetched = True
    role.is_leader_lost = False
    core.fetch_failures = 0
    core.fetch_due_ms = core.now_ms


def take_fetched(core: Replica, role: Follower, reply: FetchReply) -> None:
    """Append, truncate, or begin to download a snapshot; then the leader's high watermark counts up to the log's end.

    Damaged records count as no answer. Damage in transit happens once. But a leader whose disk returns wrong bytes can send
    nothing else to anyone, and a quorum that keeps following it would never commit again.
    """
    has_records = reply.snapshot_id is None and reply.diverging is None and reply.end_offset > reply.base_offset
    if has_records and not replication.is_continuation(
        reply, log_end=core.end_offset, last_epoch=core.history.last_epoch, epoch=core.epoch
    ):
        fetch_failed(core)
        return
    hear_leader(core, role)
    if reply.snapshot_id is not None:
        if may_lose(core, role, reply.snapshot_id.end_offset):
            downloading.begin(core, role, reply.snapshot_id)
        return
    if reply.diverging is not None:
        cut_to = replication.truncation_offset(core.history, log_end=core.end_offset, diverging=reply.diverging)
        if may_lose(core, role, cut_to):
            core.truncate(cut_to)
        return
    if core.refused_cut is not None:
        if core.refused_cut.epoch == core.epoch:
            # It has grown beyond our end meanwhile: that the epochs agree there does not make the records the same.
            refuse(core, role, core.refused_cut.start_offset)
            return
        core.refused_cut = None
    if has_records:
        for epoch, start_offset in reply.epochs:
            core.history.assign(epoch, start_offset)
        core.appends.append(Append(reply.base_offset, reply.end_offset, core.history.last_epoch, reply.payload))
        core.end_offset = reply.end_offset
        if reply.voter_sets:
            for offset, voters in reply.voter_sets:
                core.voter_history.append(offset, voters)
            core.use_last_voters()
    elif core.lost_end == UNKNOWN_END:
        if core.must_ask and not core.inquiry.knows_epochs(core.voters, core.me):
            campaign.become_prospective(core)
            return
        # All that it can have acknowledged to anybody is in this leader's log, and so in its own now.
        core.lost_end = None
    role.is_caught_up = 0 < reply.high_watermark <= core.end_offset
    high_watermark = min(reply.high_watermark, core.end_offset)
    if high_watermark > core.high_watermark:
        core.high_watermark = Offset(high_watermark)


def may_lose(core: Replica, role: Follower, end_offset: Offset) -> bool:
    """Whether to give up what lies beyond end_offset, as the leader tells. Not what is committed: the leader's quorum has lost it, and
    this replica may have the last copy. It keeps that, asks again now and then, and its driver tells an operator.

    In a recovered quorum an operator has decided already: truncate and begin refuse, the node ends, and begins anew (incarnation.py).
    """
    if end_offset >= core.high_watermark or is_before_recovery(core.history.last_epoch, known=core.epoch):
        return True
    refuse(core, role, end_offset)
    return False


def refuse(core: Replica, role: Follower, end_offset: Offset) -> None:
    """Keep what is committed, and ask again later."""
    core.refused_cut = EpochStart(core.epoch, end_offset)
    role.is_caught_up = False
    core.fetch_due_ms = core.now_ms + core.timing.fetch_timeout_ms // 2


def on_unreachable(core: Replica, failure: Unreachable) -> None:
    """Ask again after a pause; a download continues where it was."""
    if failure.correlation == core.fetch_correlation:
        fetch_failed(core)
        return
    due_ms = core.now_ms + core.backoff_ms()
    role = core.role
    match role:
        case Prospective() | Candidate():
            if core.must_ask:
                due_ms = core.now_ms + core.timing.election_timeout_ms // campaign.ASK_AGAIN_PARTS
            if failure.peer in role.tally.resend_ms:
                role.tally.resend_ms[failure.peer] = due_ms
        case Resigned():
            if failure.peer in role.resend_ms:
                role.resend_ms[failure.peer] = due_ms


def fetch_failed(core: Replica) -> None:
    """The fetch in flight brought nothing."""
    core.fetch_correlation = 0
    core.fetch_due_ms = core.now_ms + core.backoff_ms()
    core.fetch_failures += 1
    if core.fetch_failures == LEADER_LOST_FAILURES and isinstance(core.role, Follower):
        core.mark_leader_lost(core.role)
