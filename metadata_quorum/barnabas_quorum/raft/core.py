"""The consensus core of the metadata quorum: KRaft as a pure state machine. Messages and time in, Ready out.

May touch:  its arguments.            Must not touch: asyncio, clock, random generators, log, network.
Invariants: at most one leader per epoch; the high watermark never falls; nothing below it is ever cut; a vote or a
            fetch leaves only after what it promises is durable.
Read next:  replica.py (the state), roles.py (the roles), campaign.py, leading.py, following.py, downloading.py (the
            sides), election.py, replication.py, membership.py, snapshots.py, damage.py
            (the rules), ../driver/node.py (the driver).

The cycle: `step`, `tick`, `propose`, `flushed`, `resign`, `change_voters`, `snapshot_taken`, `log_start_moved` take an
event; `ready` returns what to do; `advance` confirms that it is done, and only then may the next event come. The core sees
only offsets and epochs, never records.

Not obvious; each was once a bug somewhere:
- The vote stands in the hard state, not in a role: following a leader must not forget the vote of the same epoch, or a
  restart makes a second one possible.
- A repeated vote request is checked again: the candidate may have crashed and lost what it had not flushed.
- A replica that led an epoch never leads it again after a restart (Resigned): its unflushed tail may be gone, and the same
  (epoch, offset) would then name two records. `leader_id` is therefore durable before the first message as a leader.
- A pre-vote of a higher epoch raises this replica's epoch, even a leader's. That is safe because a Prospective does not raise
  its own.
- The leader serves records that it has not flushed; its own end counts only after `flushed`, so the high watermark
  still means a majority of disks. With one voter this makes a commit wait for the flush (Kafka's does not).
- A follower fetches only when its whole log is flushed, because the fetch is the acknowledgement. So a truncation,
  which only a fetch reply can order, never meets a flush in flight; neither does a snapshot that replaces the log.
- A delayed fetch of the same epoch acknowledges less than a later one, never too much: progress takes the maximum.
- A voter set counts when it is appended, on every replica. The next change waits until this epoch has committed
  something and the last set is committed, or two leaders could change the set past each other.
- A replica that lags behind may have to follow, or to elect, one that its own voter set does not contain. So requests of
  leaders and all replies carry the leader's address, and a vote goes to any sender.
- A replica whose disk has lost acknowledged records votes as if it still had them, and does not run (damage.py). A leader
  of the same epoch may count it for these records meanwhile: no candidate that lacks them gets its vote.
- A removed leader leads until its removal is committed, without counting itself; then it must not raise the epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from barnabas_quorum.raft import campaign, downloading, following, leading, membership, snapshots
from barnabas_quorum.raft.messages import (
    BeginQuorumEpochReply,
    BeginQuorumEpochRequest,
    EndQuorumEpochReply,
    EndQuorumEpochRequest,
    FetchReply,
    FetchRequest,
    FetchSnapshotReply,
    FetchSnapshotRequest,
    HardState,
    Message,
    Ready,
    ReplyError,
    SnapshotId,
    Unreachable,
    VoterChange,
    VoteReply,
    VoteRequest,
    VoterRefusal,
)
from barnabas_quorum.raft.replica import Replica
from barnabas_quorum.raft.roles import NEVER_MS, Candidate, Follower, Leader, Prospective, Resigned, Unattached
from barnabas_quorum.raft.voters import Voter
from barnabas_wire.kafka.ids import Offset

__all__ = ["QuorumCore"]


def _on_fetch_snapshot_reply(core: Replica, reply: FetchSnapshotReply) -> None:
    if following.is_answer(core, reply):
        assert isinstance(core.role, Follower), "only a follower downloads"
        following.hear_leader(core, core.role)
        downloading.take_slice(core, reply)


HANDLERS: Final[dict[type, Callable[[Replica, Any], None]]] = {
    VoteRequest: campaign.on_vote_request,
    VoteReply: campaign.on_vote_reply,
    BeginQuorumEpochRequest: campaign.on_begin_request,
    BeginQuorumEpochReply: campaign.on_begin_reply,
    EndQuorumEpochRequest: campaign.on_end_request,
    EndQuorumEpochReply: campaign.on_end_reply,
    FetchRequest: leading.on_fetch_request,
    FetchReply: following.on_fetch_reply,
    FetchSnapshotRequest: leading.on_fetch_snapshot_request,
    FetchSnapshotReply: _on_fetch_snapshot_reply,
    Unreachable: following.on_unreachable,
}


class QuorumCore(Replica):
    """One replica of the metadata log, voter or observer: the interface for its driver."""

    __slots__ = ()

    # --- events -------------------------------------------------------------------------------------------------------

    def step(self, message: Message, now_ms: int) -> None:
        """Handle a request or a reply of a peer, or the failure of a request."""
        assert self.in_flight is None, "step before advance"
        self.now_ms = now_ms
        HANDLERS[message.__class__](self, message)
        if self.fetch_correlation == 0:
            following.maybe_fetch(self)

    def tick(self, now_ms: int) -> None:
        """Run timers; call it at `deadline_ms`. Earlier calls do no harm."""
        assert self.in_flight is None, "tick before advance"
        self.now_ms = now_ms
        role = self.role
        if isinstance(role, Follower):
            if now_ms >= role.fetch_deadline_ms:
                campaign.lose_leader(self)
        elif isinstance(role, Leader):
            leading.tick(self, role)
        else:
            campaign.tick(self)
        if self.fetch_correlation != 0 and now_ms >= self.fetch_due_ms:
            following.fetch_failed(self)
        following.maybe_fetch(self)

    def flushed(self, end_offset: Offset, now_ms: int) -> None:
        """Everything below end_offset, the log's end when the flush began, is durable now."""
        assert self.in_flight is None, "flushed before advance"
        assert end_offset <= self.end_offset, f"flushed to {end_offset}, the log ends at {self.end_offset}"
        self.now_ms = now_ms
        if end_offset > self.flushed_end:
            self.flushed_end = end_offset
            if self.lost_end is not None:
                self.note_regained()
        if isinstance(self.role, Leader):
            leading.advance_high_watermark(self, self.role)
        elif self.fetch_correlation == 0:
            following.maybe_fetch(self)

    def propose(self, payload: Any, *, record_count: int, now_ms: int, is_urgent: bool = True) -> Offset:
        """Append a batch as leader; returns its base offset. The caller has checked `role` and `epoch`.

        Replicas learn the commit of a batch that is not urgent with the next batch, or when their fetch times out.
        So a no-op record costs each replica one fetch and not two.
        """
        assert self.in_flight is None, "propose before advance"
        assert isinstance(self.role, Leader), "only the leader proposes"
        assert record_count > 0, "an empty batch has no offset"
        self.now_ms = now_ms
        base_offset = self.end_offset
        self.append(Offset(base_offset + record_count), payload)
        if is_urgent:
            self.role.urgent_end = self.end_offset
        return base_offset

    def change_voters(self, change: VoterChange, now_ms: int) -> VoterRefusal | None:
        """Add, remove or update a voter, or upgrade kraft.version (KIP-853). None: begun, Ready.finished reports the end.

        It appends a batch: a driver that has assigned offsets to proposals passes those on first.
        """
        assert self.in_flight is None, "change_voters before advance"
        self.now_ms = now_ms
        if not isinstance(self.role, Leader):
            return VoterRefusal(
                ReplyError.NOT_LEADER_OR_FOLLOWER, f"node {self.me.id} does not lead the quorum; ask its leader"
            )
        return leading.change_voters(self, self.role, change)

    def resign(self, now_ms: int) -> None:
        """Give up leadership in an orderly way (shutdown); does nothing on any other replica."""
        assert self.in_flight is None, "resign before advance"
        self.now_ms = now_ms
        if isinstance(self.role, Leader):
            leading.resign(self, self.role)

    def snapshot_taken(self, snapshot_id: SnapshotId, now_ms: int) -> bool:
        """This replica's own snapshot is frozen on disk. False: it is outdated by now; the driver must delete it.

        A leader may have committed records that its own disk has not flushed yet. Its driver freezes a snapshot only after
        that flush: a log cleaned up to the snapshot must not begin beyond its durable end.
        """
        assert self.in_flight is None, "snapshot_taken before advance"
        self.now_ms = now_ms
        if self.snapshot_refusal(snapshot_id) is not None or snapshot_id.end_offset > self.flushed_end:
            return False
        self.snapshots.append(snapshot_id)
        self.snapshots.sort()
        return True

    def snapshot_lost(self, snapshot_id: SnapshotId) -> None:
        """A snapshot is unusable and will be deleted. Never the oldest: the log begins with that one."""
        assert snapshot_id != self.snapshots[0], f"the log begins at snapshot {snapshot_id}"
        self.snapshots.remove(snapshot_id)

    def log_start_moved(self, offset: Offset, now_ms: int) -> None:
        """The log is to begin at the end of a snapshot. The driver then deletes everything before it."""
        assert self.in_flight is None, "log_start_moved before advance"
        self.now_ms = now_ms
        kept = [snapshot_id for snapshot_id in self.snapshots if snapshot_id.end_offset >= offset]
        assert kept and kept[0].end_offset == offset, f"the log cannot start at {offset}, no snapshot ends there"
        assert self.log_start <= offset <= min(self.high_watermark, self.flushed_end), (
            f"the log cannot start at {offset}"
        )
        self.log_start = offset
        self.snapshots = kept
        self.history.forget_before(offset, kept[0].epoch)
        self.voter_history.forget_before(offset)

    # --- what to do ---------------------------------------------------------------------------------------------------

    def ready(self) -> Ready | None:
        """What to do now, or None. The driver does it in the order that Ready states, then calls advance."""
        assert self.in_flight is None, "ready before advance"
        if self.has_news:
            self.has_news = False
            if isinstance(self.role, Leader):
                leading.answer_all_parked(self, self.role)
                leading.settle_voters(self, self.role)
        if not (
            self.outbox
            or self.appends
            or self.hard_state_changed
            or self.truncate_to is not None
            or self.snapshot_parts
            or self.finished
        ):
            return None
        ready = Ready(
            HardState(self.epoch, self.leader_id, self.voted, self.has_begun) if self.hard_state_changed else None,
            self.truncate_to,
            self.appends,
            self.outbox,
            self.snapshot_parts,
            self.install,
            self.finished,
        )
        self.hard_state_changed = False
        self.truncate_to = None
        self.appends = []
        self.outbox = []
        if self.snapshot_parts:
            self.snapshot_parts = []
        if self.finished:
            self.finished = []
        self.in_flight = ready
        return ready

    def advance(self, ready: Ready) -> None:
        """The driver has saved, truncated, written and sent. flushed() reports the flush of what was written."""
        assert self.in_flight is ready, "advance with another ready"
        self.in_flight = None
        if ready.install is not None:
            self.install = None
            downloading.finish(self, ready.install)
            following.maybe_fetch(self)

    def deadline_ms(self) -> int:
        """When tick is due next unless something happens before; NEVER_MS when nothing is due."""
        role = self.role
        if isinstance(role, Follower):
            if self.fetch_correlation == 0 and self.flushed_end != self.end_offset:
                return role.fetch_deadline_ms
            return min(role.fetch_deadline_ms, self.fetch_due_ms)
        match role:
            case Leader():
                return leading.deadline_ms(role)
            case Prospective() | Candidate():
                return min(role.election_deadline_ms, *role.tally.resend_ms.values(), NEVER_MS)
            case Resigned():
                return min(role.election_deadline_ms, *role.resend_ms.values(), NEVER_MS)
            case Unattached():
                if self.fetch_correlation == 0 and self.flushed_end != self.end_offset:
                    return role.election_deadline_ms
                return min(role.election_deadline_ms, self.fetch_due_ms)

    # --- what the driver asks -----------------------------------------------------------------------------------------

    def snapshot_refusal(self, snapshot_id: SnapshotId) -> str | None:
        """Why a snapshot of this id must not be taken here; None when it may."""
        return snapshots.refusal(
            snapshot_id,
            snapshots=self.snapshots,
            history=self.history,
            log_start=self.log_start,
            high_watermark=self.high_watermark,
        )

    def auto_join(self, me: Voter) -> VoterChange | None:
        """The request of this observer controller to the leader to become a voter, or None (membership.auto_join)."""
        role = self.role
        is_caught_up = isinstance(role, Follower) and role.is_caught_up
        return membership.auto_join(me, voters=self.voters, is_caught_up=is_caught_up)
