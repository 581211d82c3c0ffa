"""The state of one replica, and the few steps that may change it. Everything else in this room decides or sends.

May touch:  its arguments.            Must not touch: asyncio, clock, random generators, log, network.
Invariants: the epoch never falls; the vote stands here and not in a role, so that no change of role can forget it; the
            voter set that counts is the last one in the log, and a truncation brings the former one back.
Read next:  core.py (the cycle), then campaign.py, leading.py, following.py, downloading.py: the steps of each side, as
            functions of the replica.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from barnabas_quorum.raft import election, membership
from barnabas_quorum.raft.damage import UNKNOWN_END, LogEnd
from barnabas_quorum.raft.epoch_history import EpochHistory, is_before_recovery
from barnabas_quorum.raft.inquiry import RECOVERING, WHOLE, Inquiry
from barnabas_quorum.raft.messages import (
    Append,
    EpochStart,
    FetchReply,
    FetchRequest,
    HardState,
    Ready,
    Reply,
    ReplyError,
    Request,
    SnapshotId,
    SnapshotInstall,
    SnapshotPart,
    VoterChangeResult,
)
from barnabas_quorum.raft.roles import (
    LEGAL_CHANGES,
    NEVER_MS,
    Candidate,
    Download,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Tally,
    Unattached,
)
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterHistory, VoterSet
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, Offset, Uuid

RETRY_BACKOFF_DOUBLINGS_MAX = 4
UNCOUNTED = Uuid(b"\xff" * 16)
"""The directory id of replicas that get back what they have lost; of no directory."""


class Timing(Protocol):
    """The timers (ms) and sizes (bytes) of ../config.py that the core obeys."""

    @property
    def election_timeout_ms(self) -> int: ...
    @property
    def fetch_timeout_ms(self) -> int: ...
    @property
    def election_backoff_ms_max(self) -> int: ...
    @property
    def request_timeout_ms(self) -> int: ...
    @property
    def retry_backoff_ms(self) -> int: ...
    @property
    def fetch_wait_ms_max(self) -> int: ...
    @property
    def check_quorum_timeout_ms(self) -> int: ...
    @property
    def observer_session_ms(self) -> int: ...
    @property
    def fetch_snapshot_bytes_max(self) -> int: ...


class Replica:
    """What a replica of the metadata log knows, and what it has to send and to write before the next event."""

    __slots__ = (
        "appends",
        "asked",
        "bad_downloads",
        "bootstrap",
        "correlation",
        "download",
        "draw",
        "end_offset",
        "epoch",
        "fetch_correlation",
        "fetch_due_ms",
        "fetch_failures",
        "finished",
        "flushed_end",
        "hard_state_changed",
        "has_begun",
        "has_news",
        "high_watermark",
        "history",
        "in_flight",
        "inquiry",
        "install",
        "is_voter",
        "leader_id",
        "life",
        "log_start",
        "lost_end",
        "me",
        "now_ms",
        "outbox",
        "own_endpoint",
        "refused_cut",
        "role",
        "snapshot_parts",
        "snapshots",
        "timing",
        "truncate_to",
        "voted",
        "voter_history",
        "voters",
    )

    def __init__(
        self,
        *,
        timing: Timing,
        me: ReplicaKey,
        voters: VoterSet,
        hard_state: HardState,
        epoch_starts: Sequence[EpochStart],
        end_offset: Offset,
        draw: Callable[[], float],
        now_ms: int,
        first_correlation: int = 0,
        log_start: Offset = Offset(0),  # noqa: B008 - an int
        snapshots: Sequence[SnapshotId] = (),
        voter_sets: Sequence[tuple[Offset, VoterSet]] = (),
        bootstrap: Sequence[Voter] = (),
        lost_end: LogEnd | None = None,
        own_endpoint: Voter | None = None,
        life: int = 1,
    ) -> None:
        """Start from what is on disk.

        Args:
            timing: the timers.
            voters: the set before any Voters record: from the bootstrap checkpoint, or VoterSet.unknown(). Never one that
                was heard from others where it names this replica (inquiry.py).
            hard_state, epoch_starts, end_offset, log_start: as the journal loaded them; all of it is durable.
            draw: uniform in [0, 1), for timers and the choice of a peer; the driver's, never a global one.
            now_ms: monotonic ms.
            first_correlation: correlations start above it; needed where a reply to an earlier incarnation could still arrive.
            snapshots: the frozen ones, ascending, without 0-0. They agree with the log (snapshots.restart_point).
            voter_sets: the Voters records in the log with their offsets, ascending; before them, at log_start - 1, the
                set of the snapshot at the log's start.
            bootstrap: servers to ask for a leader besides the voters (controller.quorum.bootstrap.servers).
            lost_end: where the log ended before its disk damaged it (damage.lost_end); UNKNOWN_END when the disk has forgotten
                (damage.has_forgotten); None when it is undamaged.
            own_endpoint: this replica's address, which it announces as leader whatever the voter set says: it may have moved
                while it was down, and be the only one that can lead. None: use the voter set's.
            life: a number above 0 that no other life of this process's directory has.
        """
        self.timing = timing
        self.draw = draw
        self.now_ms = now_ms
        self.me = me
        self.own_endpoint = own_endpoint
        self.voter_history = VoterHistory(voters, voter_sets)
        self.voters = self.voter_history.last
        """The set that counts: the last one in the log, committed or not (KIP-853)."""
        self.is_voter = me in self.voters
        self.bootstrap = tuple(bootstrap)
        self.epoch = hard_state.epoch
        self.leader_id = hard_state.leader_id
        """The leader of this epoch once known, even if it is lost or is this replica and has resigned; -1 before."""
        self.voted = hard_state.voted
        self.has_begun = hard_state.has_begun
        self.life = life
        self.inquiry = Inquiry()
        self.log_start = log_start
        self.snapshots = list(snapshots)
        start_epoch = next((epoch for end, epoch in snapshots if end == log_start), Epoch(0))
        assert not log_start or start_epoch, f"the log starts at {log_start} and no snapshot ends there"
        assert not snapshots or snapshots[-1].end_offset <= end_offset, f"{snapshots[-1]} is beyond the log's end"
        self.history = EpochHistory(
            [start for start in epoch_starts if start.start_offset < end_offset],
            start_offset=log_start,
            start_epoch=start_epoch,
        )
        self.end_offset = end_offset
        self.flushed_end = end_offset
        """Everything below is durable on this disk."""
        self.lost_end = lost_end
        """How far the log reached before its disk damaged it, until it reaches that far again; None when nothing is missing."""
        self.high_watermark = snapshots[-1].end_offset if snapshots else Offset(0)
        """Everything below is committed. After a restart it is the snapshot's end until the leader sends it again."""
        self.refused_cut: EpochStart | None = None
        """The epoch whose leader told this replica to cut its log below its high watermark, and where: nothing is taken from that
        leader any more. None when there was no such leader since the start, or its quorum has everything again."""

        self.hard_state_changed = False
        self.has_news = False
        """Whether a leader's log or high watermark grew since the last ready."""
        self.truncate_to: Offset | None = None
        self.appends: list[Append] = []
        self.outbox: list[Request | Reply] = []
        self.snapshot_parts: list[SnapshotPart] = []
        self.install: SnapshotInstall | None = None
        self.download: Download | None = None
        self.bad_downloads = 0
        """Downloads given up since the last installed one, or since this role began."""
        self.finished: list[VoterChangeResult] = []
        self.in_flight: Ready | None = None
        """What the driver is doing; no event may arrive meanwhile."""
        self.correlation = first_correlation
        self.fetch_correlation = 0
        """The correlation of the fetch in flight, of records or of a snapshot; 0 when there is none."""
        self.fetch_due_ms = now_ms
        """When to fetch; while a fetch is in flight, when to abandon it."""
        self.fetch_failures = 0
        self.asked = int(draw() * len(self.voters))
        """Counts fetches that look for a leader, so that each goes to another voter; starts at random."""
        if self.lost_end == UNKNOWN_END and self.is_sole_voter and self.is_empty:
            self.begin()  # nobody can be asked
        self.role: Role = self._first_role(hard_state)

    def _first_role(self, state: HardState) -> Role:
        start = election.start_after_restart(
            state,
            last_epoch=self.history.last_epoch,
            me=self.me,
            voters=self.voters,
            may_campaign=self.may_campaign,
        )
        if self.history.last_epoch > state.epoch:
            self.epoch, self.leader_id, self.voted = self.history.last_epoch, NO_BROKER, None
            self.hard_state_changed = True
        match start:
            case election.Start.RESIGNED:
                return Resigned(self.election_deadline_ms(), (), {})
            case election.Start.CANDIDATE:
                return Candidate(self.election_deadline_ms(), self.new_tally())
            case election.Start.FOLLOWER:
                leader = self.voters.by_id(self.leader_id)
                assert leader is not None, "follower of an unknown leader"
                return Follower(leader.key, self.now_ms + self.timing.fetch_timeout_ms, endpoint=leader)
            case election.Start.UNATTACHED if self.epoch == 0 and self.is_voter and self.lost_end is None:
                delay_ms = election.first_delay_ms(
                    self.voters, self.me, election_timeout_ms=self.timing.election_timeout_ms, draw=self.draw()
                )
                return Unattached(self.now_ms + delay_ms)
            case _:
                return Unattached(self.election_deadline_ms())

    # --- what others read ---------------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads its epoch."""
        return self.role.__class__ is Leader

    @property
    def is_sole_voter(self) -> bool:
        """Whether an election needs no other voter."""
        return self.is_voter and self.voters.majority == 1

    @property
    def may_campaign(self) -> bool:
        """Whether this replica may run for election: not while it lacks acknowledged records; nor, if it knows an epoch of a
        recovered quorum, while its log ends before the recovery: there it names the former voters, which would elect each other."""
        if self.lost_end is not None or is_before_recovery(self.history.last_epoch, known=self.epoch):
            return False
        return self.is_voter or membership.may_campaign(
            self.me, self.voter_history.entries(), high_watermark=self.high_watermark
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in its log, nor ever was as far as its disk shows."""
        return self.end_offset == 0 and not self.snapshots

    @property
    def must_ask(self) -> bool:
        """Whether this voter does not know what it has promised, and asks the others (inquiry.py). One that is alone in its voter set
        has nobody to ask: it has got back a part of its log only, from before there were other voters, and looks for their leader."""
        return self.lost_end == UNKNOWN_END and self.is_voter and not self.is_sole_voter

    @property
    def fetch_key(self) -> ReplicaKey:
        """The name in which it fetches: that of a replica that acknowledges, or of one that no leader counts, because it does not know
        which leaders it must refuse."""
        return self.me if self.lost_end != UNKNOWN_END else ReplicaKey(self.me.id, UNCOUNTED)

    @property
    def told_life(self) -> int:
        """What it says of itself when it is asked for a vote (VoteReply.life)."""
        if self.lost_end != UNKNOWN_END:
            return WHOLE
        return self.life if self.is_empty else RECOVERING

    @property
    def vote_end(self) -> LogEnd:
        """The log end to compare with a candidate's: that of the undamaged log, even if the disk has damaged it."""
        end = LogEnd(self.history.last_epoch, self.end_offset)
        return end if self.lost_end is None or self.lost_end < end else self.lost_end

    @property
    def live_leader_id(self) -> BrokerId:
        """The leader of this epoch for replies; -1 when unknown, or when it is this replica and it has resigned."""
        if self.leader_id == self.me.id and self.role.__class__ is not Leader:
            return NO_BROKER
        return self.leader_id

    @property
    def leader_endpoint(self) -> Voter | None:
        """The live leader with its address, when known."""
        role = self.role
        if isinstance(role, Leader):
            return role.endpoint
        return role.endpoint if isinstance(role, Follower) else None

    def endpoint_of(self, key: ReplicaKey) -> Voter | None:
        """The address for a message to a replica: the leader, a voter of this or a former set, or a bootstrap server."""
        endpoint = self.leader_endpoint
        if endpoint is not None and endpoint.key == key:
            return endpoint
        for _, voters in reversed(self.voter_history.entries()):
            voter = voters.by_id(key.id)
            if voter is not None and voter.key == key:
                return voter
        return next((voter for voter in self.bootstrap if voter.key == key), None)

    # --- roles --------------------------------------------------------------------------------------------------------

    def become(self, role: Role) -> None:
        """The only place that changes the role."""
        old = self.role
        assert role.__class__ in LEGAL_CHANGES[old.__class__], f"{old} cannot become {role}"
        self.role = role
        if isinstance(old, Leader):
            for replica in (*old.voters.values(), *old.observers.values()):
                if replica.parked is not None:
                    self.answer_fetch(replica.parked, ReplyError.NOT_LEADER_OR_FOLLOWER)
            if old.pending is not None:
                self.finished.append(
                    VoterChangeResult(
                        old.pending.correlation,
                        ReplyError.REQUEST_TIMED_OUT,
                        "leadership was lost before the change was committed; check whether it took effect, then try again",
                    )
                )
        elif self.snapshot_parts:
            # Only a follower installs. It fetches unwritten parts again if this leader comes back.
            self.install = None
            self.snapshot_parts = []
            self.download = None
        self.fetch_correlation = 0
        self.fetch_due_ms = self.now_ms
        self.fetch_failures = self.bad_downloads = 0

    def enter_epoch(self, epoch: Epoch, *, leader_id: BrokerId, voted: ReplicaKey | None) -> None:
        """The only place that raises the epoch; a new epoch has no vote except the given one."""
        assert epoch > self.epoch, f"epoch {epoch} after {self.epoch}"
        self.epoch, self.leader_id, self.voted = epoch, leader_id, voted
        self.hard_state_changed = True
        self.download = None

    def become_unattached(self, epoch: Epoch) -> None:
        """Enter a higher epoch whose leader is not known."""
        # A replica that waits for an election keeps its deadline: a replica that can never win must not keep the others from
        # running by raising its epoch again and again.
        role = self.role
        match role:
            case Unattached() | Prospective() | Candidate() | Resigned() if (
                role.election_deadline_ms > self.now_ms and not self.must_ask
            ):
                deadline_ms = role.election_deadline_ms if self.may_campaign else NEVER_MS
            case _:
                deadline_ms = self.election_deadline_ms()
        self.enter_epoch(epoch, leader_id=NO_BROKER, voted=None)
        self.become(Unattached(deadline_ms))

    def become_follower(self, leader: Voter) -> None:
        """Follow the leader of the present epoch. The vote of this epoch stays."""
        key = leader.key
        assert key.id != self.me.id, "nobody follows itself"
        assert self.leader_id in (NO_BROKER, key.id), f"epoch {self.epoch} led by {self.leader_id} and {key.id}"
        if self.leader_id != key.id:
            self.leader_id = key.id
            self.hard_state_changed = True
        self.become(Follower(key, self.now_ms + self.timing.fetch_timeout_ms, endpoint=leader))

    def observe(self, epoch: Epoch, leader_id: BrokerId, endpoint: Voter | None) -> None:
        """A peer knows a higher epoch, or the leader of this one. The endpoint may be in no voter set of this replica: one that
        lags behind does not know the newest voters."""
        leader = endpoint if endpoint is not None else self.voters.by_id(leader_id)
        if leader is not None and leader.key.id == self.me.id:
            leader = None
        if epoch > self.epoch:
            if leader is None:
                self.become_unattached(epoch)
            else:
                self.enter_epoch(epoch, leader_id=leader.key.id, voted=None)
                self.become_follower(leader)
        elif leader is not None and (
            self.leader_id == NO_BROKER
            or self.role.__class__ is Unattached
            or (self.must_ask and self.role.__class__ is Prospective)
        ):
            self.become_follower(leader)

    def mark_leader_lost(self, role: Follower) -> None:
        """Run for election soon instead of after the fetch timer. Pre-vote makes a wrong guess harmless."""
        if not role.is_leader_lost and self.may_campaign:
            role.is_leader_lost = True
            # Never at once: a replica that cannot win returns here after each refusal, a round trip later.
            delay_ms = election.lost_leader_delay_ms(
                election_timeout_ms=self.timing.election_timeout_ms, draw=self.draw()
            )
            role.fetch_deadline_ms = min(role.fetch_deadline_ms, self.now_ms + delay_ms)

    # --- the log ------------------------------------------------------------------------------------------------------

    def append(self, end_offset: Offset, payload: Any) -> None:
        """Append at the log's end, as leader."""
        base_offset = self.end_offset
        self.history.assign(self.epoch, base_offset)
        self.end_offset = end_offset
        self.appends.append(Append(base_offset, end_offset, self.epoch, payload))
        self.has_news = True

    def truncate(self, offset: Offset) -> None:
        """Truncate what no leader will ever commit; the voter set of the shorter log counts again."""
        assert offset >= self.high_watermark, f"truncation to {offset}, below the high watermark {self.high_watermark}"
        assert offset < self.end_offset, f"truncation to {offset}, the log ends at {self.end_offset}"
        assert self.flushed_end == self.end_offset and not self.appends, "a cut meets a flush in flight"
        self.history.truncate_to(offset)
        self.end_offset = offset
        self.flushed_end = offset
        self.truncate_to = offset
        if self.voter_history.last_offset >= offset:
            self.voter_history.truncate_to(offset)
            self.use_last_voters()

    def use_last_voters(self) -> None:
        """The last set of the log has changed."""
        self.voters = self.voter_history.last
        self.is_voter = self.me in self.voters

    def note_regained(self) -> None:
        """The flushed log has grown: once it reaches as far as before the damage, this replica may be elected again."""
        if self.lost_end is None or LogEnd(self.history.last_epoch, self.flushed_end) < self.lost_end:
            return
        self.lost_end = None
        role = self.role
        if isinstance(role, Unattached) and role.election_deadline_ms == NEVER_MS:
            role.election_deadline_ms = self.election_deadline_ms()

    def begin(self) -> None:
        """The quorum begins, and with it this empty log: there is nothing that it could have lost."""
        self.lost_end = None
        if not self.has_begun:
            self.has_begun = True
            self.hard_state_changed = True

    # --- drawn, counted, answered -------------------------------------------------------------------------------------

    def election_deadline_ms(self) -> int:
        """When to run for election, drawn each time; at once for the only voter, never for an observer.

        At once, too, for a voter that must ask: it only asks.
        """
        if self.must_ask:
            return self.now_ms
        if not self.may_campaign:
            return NEVER_MS
        if self.is_sole_voter:
            return self.now_ms
        return self.now_ms + election.election_delay_ms(
            election_timeout_ms=self.timing.election_timeout_ms, draw=self.draw()
        )

    def new_tally(self) -> Tally:
        """A tally with this replica's own vote, if it is a voter, and all other voters due now."""
        return Tally(
            {self.me} if self.is_voter else set(), set(), dict.fromkeys(self.voters.others(self.me), self.now_ms)
        )

    def backoff_ms(self) -> int:
        """Longer with every fetch that failed since the last success, and with every download."""
        failures = self.fetch_failures + self.bad_downloads
        return self.timing.retry_backoff_ms << min(failures, RETRY_BACKOFF_DOUBLINGS_MAX)

    def next_correlation(self) -> int:
        """A number that no request of this incarnation has had."""
        self.correlation += 1
        return self.correlation

    def answer_fetch(
        self,
        request: FetchRequest,
        error: ReplyError,
        diverging: EpochStart | None = None,
        snapshot_id: SnapshotId | None = None,
    ) -> None:
        """Reply with all written records unless there is an error or a divergence or snapshot to settle first."""
        offset = request.fetch_offset
        has_records = error is ReplyError.NONE and diverging is None and snapshot_id is None
        role = self.role
        may_know = not isinstance(role, Leader) or request.last_epoch > role.recovered_epoch or not role.recovered_epoch
        self.outbox.append(
            FetchReply(
                request.correlation,
                self.me,
                request.source,
                self.epoch,
                self.live_leader_id,
                error,
                self.high_watermark if may_know else Offset(0),
                offset,
                self.end_offset if has_records else offset,
                diverging,
                (),
                None,
                snapshot_id,
                (),
                self.leader_endpoint,
            )
        )
