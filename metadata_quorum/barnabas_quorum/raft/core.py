"""The consensus core of the metadata quorum: KRaft as a pure state machine. Messages and time in, Ready out.

May touch:  its arguments.            Must not touch: asyncio, clock, random generators, log, network.
Invariants: at most one leader per epoch; the high watermark never falls; nothing below it is ever cut; a vote or a
            fetch leaves only after what it promises is durable.
Read next:  roles.py (the states), election.py and replication.py (the rules), ../driver/node.py (who obeys Ready).

The cycle: `step`, `tick`, `propose`, `flushed`, `resign` take an event; `ready` tells what to do; `advance` says it is
done, and only then the next event may come. Records never pass through here, only their offsets and epochs.

Not obvious, each once a bug somewhere:
- The vote lives in the hard state, not in a role: following a leader must not forget the vote of the same epoch, or a
  restart makes a second one possible.
- Who led an epoch never leads it again after a restart (Resigned): its unflushed tail may be gone, and the same
  (epoch, offset) would then name two records. `leader_id` is therefore durable before the first message as a leader.
- A pre-vote of a higher epoch raises mine, leader or not. That is safe because a Prospective does not raise its own.
- The leader hands out records that it has not flushed; its own end counts only after `flushed`, so the high watermark
  still means a majority of disks. With one voter this makes a commit wait for the flush (Kafka's does not).
- A follower fetches only when its whole log is flushed, because the fetch is the acknowledgement. So a truncation,
  which only a fetch reply can order, never meets a flush in flight.
- A delayed fetch of the same epoch says less than a later one, never something false: progress takes the maximum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from barnabas_quorum.raft import election, replication
from barnabas_quorum.raft.epoch_history import EpochHistory
from barnabas_quorum.raft.messages import (
    Append,
    BeginQuorumEpochReply,
    BeginQuorumEpochRequest,
    EndQuorumEpochReply,
    EndQuorumEpochRequest,
    EpochStart,
    FetchReply,
    FetchRequest,
    HardState,
    LeaderChange,
    Message,
    Ready,
    Reply,
    ReplyError,
    Request,
    Unreachable,
    VoteReply,
    VoteRequest,
)
from barnabas_quorum.raft.roles import (
    LEGAL_CHANGES,
    NEVER_MS,
    Candidate,
    Follower,
    Leader,
    Prospective,
    ReplicaProgress,
    Resigned,
    Role,
    Tally,
    Unattached,
)
from barnabas_quorum.raft.voters import ReplicaKey, VoterSet
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, Offset

LEADER_LOST_FAILURES = 4
"""So many failed fetches in a row, with a growing wait between them, and the leader's address counts as dead."""
RETRY_BACKOFF_DOUBLINGS_MAX = 4


class Timing(Protocol):
    """The timers of ../config.py that the core obeys, all in ms."""

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


class QuorumCore:
    """One replica of the metadata log, voter or observer."""

    __slots__ = (
        "_appends",
        "_asked",
        "_correlation",
        "_draw",
        "_fetch_correlation",
        "_fetch_due_ms",
        "_fetch_failures",
        "_handlers",
        "_hard_state_changed",
        "_has_news",
        "_in_flight",
        "_now_ms",
        "_send",
        "_timing",
        "_truncate_to",
        "end_offset",
        "epoch",
        "flushed_end",
        "high_watermark",
        "history",
        "is_voter",
        "leader_id",
        "me",
        "role",
        "voted",
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
    ) -> None:
        """Start from what the disk holds.

        Args:
            timing: the timers.
            hard_state, epoch_starts, end_offset: as the journal loaded them; all of it is durable.
            draw: uniform in [0, 1), for timers and the choice of a peer; the driver's, never a global one.
            now_ms: monotonic ms.
            first_correlation: correlations start above it; needed where a reply to an earlier life could still arrive.
        """
        self._timing = timing
        self._draw = draw
        self._now_ms = now_ms
        self.me = me
        self.voters = voters
        self.is_voter = me in voters
        self.epoch = hard_state.epoch
        self.leader_id = hard_state.leader_id
        """The leader of this epoch once known, also when it is lost or (this replica itself) resigned; -1 before."""
        self.voted = hard_state.voted
        self.history = EpochHistory(epoch_starts)
        self.end_offset = end_offset
        self.flushed_end = end_offset
        """Everything below is durable on this disk."""
        self.high_watermark = Offset(0)
        """Everything below is committed. A restart forgets it; the leader tells it again."""

        self._hard_state_changed = False
        self._has_news = False
        """Whether a leader's log or high watermark grew since the last ready."""
        self._truncate_to: Offset | None = None
        self._appends: list[Append] = []
        self._send: list[Request | Reply] = []
        self._in_flight: Ready | None = None
        self._correlation = first_correlation
        self._fetch_correlation = 0
        """Of the fetch in flight, 0 when there is none."""
        self._fetch_due_ms = now_ms
        """When to fetch; while a fetch is in flight, when to give it up."""
        self._fetch_failures = 0
        self._asked = int(draw() * len(voters))
        """Counts fetches that look for a leader, so that each goes to another voter; begins anywhere."""
        self._handlers: dict[type, Callable[[Any], None]] = {
            VoteRequest: self._on_vote_request,
            VoteReply: self._on_vote_reply,
            BeginQuorumEpochRequest: self._on_begin_request,
            BeginQuorumEpochReply: self._on_begin_reply,
            EndQuorumEpochRequest: self._on_end_request,
            EndQuorumEpochReply: self._on_end_reply,
            FetchRequest: self._on_fetch_request,
            FetchReply: self._on_fetch_reply,
            Unreachable: self._on_unreachable,
        }
        self.role: Role = self._first_role(hard_state)

    # --- the driver's side --------------------------------------------------------------------------------------------

    def step(self, message: Message, now_ms: int) -> None:
        """Take a request or a reply of a peer, or the news that a request failed."""
        assert self._in_flight is None, "step before advance"
        self._now_ms = now_ms
        self._handlers[message.__class__](message)
        if self._fetch_correlation == 0:
            self._maybe_fetch()

    def tick(self, now_ms: int) -> None:
        """Let timers run; to be called at `deadline_ms`, earlier does no harm."""
        assert self._in_flight is None, "tick before advance"
        self._now_ms = now_ms
        role = self.role
        match role:
            case Follower():
                if now_ms >= role.fetch_deadline_ms:
                    self._lose_leader()
            case Leader():
                self._tick_leader(role)
            case Unattached():
                if now_ms >= role.election_deadline_ms:
                    self._become_prospective()
            case Prospective():
                if now_ms >= role.election_deadline_ms:
                    self._give_up_prospective()
                else:
                    self._send_votes(role.tally, is_pre_vote=True)
            case Candidate():
                if now_ms >= role.election_deadline_ms:
                    self._become_prospective()
                else:
                    self._send_votes(role.tally, is_pre_vote=False)
            case Resigned():
                if now_ms >= role.election_deadline_ms:
                    self._become_unattached(Epoch(self.epoch + 1))
                else:
                    self._send_end_quorum_epoch(role)
        if self._fetch_correlation != 0 and now_ms >= self._fetch_due_ms:
            self._fetch_failed()
        self._maybe_fetch()

    def flushed(self, end_offset: Offset, now_ms: int) -> None:
        """Everything below end_offset, as it stood when the flush was started, is durable now."""
        assert self._in_flight is None, "flushed before advance"
        assert end_offset <= self.end_offset, f"flushed to {end_offset}, the log ends at {self.end_offset}"
        self._now_ms = now_ms
        if end_offset > self.flushed_end:
            self.flushed_end = end_offset
        if self.role.__class__ is Leader:
            self._advance_high_watermark()
        elif self._fetch_correlation == 0:
            self._maybe_fetch()

    def propose(self, payload: Any, *, record_count: int, now_ms: int) -> Offset:
        """Append a batch as leader; returns its base offset. The caller has looked at `role` and `epoch`."""
        assert self._in_flight is None, "propose before advance"
        assert self.role.__class__ is Leader, "only the leader proposes"
        assert record_count > 0, "an empty batch has no offset"
        self._now_ms = now_ms
        base_offset = self.end_offset
        self._append(Offset(base_offset + record_count), payload)
        return base_offset

    def resign(self, now_ms: int) -> None:
        """Give up leadership in good order (shutdown); does nothing on any other replica."""
        assert self._in_flight is None, "resign before advance"
        self._now_ms = now_ms
        if isinstance(self.role, Leader):
            self._resign(self.role)

    def ready(self) -> Ready | None:
        """What to do now, or None. After doing it, in the order that Ready states, call advance."""
        assert self._in_flight is None, "ready before advance"
        if self._has_news:
            self._answer_all_parked()
        if not (self._send or self._appends or self._hard_state_changed or self._truncate_to is not None):
            return None
        ready = Ready(
            HardState(self.epoch, self.leader_id, self.voted) if self._hard_state_changed else None,
            self._truncate_to,
            self._appends,
            self._send,
        )
        self._hard_state_changed = False
        self._truncate_to = None
        self._appends = []
        self._send = []
        self._in_flight = ready
        return ready

    def advance(self, ready: Ready) -> None:
        """The driver has saved, cut, written and sent. The flush of what was written is told by flushed()."""
        assert self._in_flight is ready, "advance with another ready"
        self._in_flight = None

    def deadline_ms(self) -> int:
        """When tick has something to do next, if nothing else happens before; NEVER_MS when nothing is due."""
        role = self.role
        if role.__class__ is Follower:
            if self._fetch_correlation == 0 and self.flushed_end != self.end_offset:
                return role.fetch_deadline_ms
            return min(role.fetch_deadline_ms, self._fetch_due_ms)
        match role:
            case Leader():
                deadline = role.check_quorum_deadline_ms
                for replica in role.voters.values():
                    deadline = min(deadline, replica.parked_until_ms, replica.begin_due_ms)
                for replica in role.observers.values():
                    deadline = min(deadline, replica.parked_until_ms)
                return deadline
            case Prospective() | Candidate():
                return min(role.election_deadline_ms, *role.tally.resend_ms.values(), NEVER_MS)
            case Resigned():
                return min(role.election_deadline_ms, *role.resend_ms.values(), NEVER_MS)
            case Unattached():
                if self._fetch_correlation == 0 and self.flushed_end != self.end_offset:
                    return role.election_deadline_ms
                return min(role.election_deadline_ms, self._fetch_due_ms)
        raise AssertionError(f"no deadline for {role}")

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads its epoch."""
        return self.role.__class__ is Leader

    @property
    def live_leader_id(self) -> BrokerId:
        """The leader of this epoch for whoever asks; -1 when unknown, or when it is me and I have resigned."""
        if self.leader_id == self.me.id and self.role.__class__ is not Leader:
            return NO_BROKER
        return self.leader_id

    # --- roles --------------------------------------------------------------------------------------------------------

    def _first_role(self, state: HardState) -> Role:
        start = election.start_after_restart(state, last_epoch=self.history.last_epoch, me=self.me, voters=self.voters)
        if self.history.last_epoch > state.epoch:
            self.epoch, self.leader_id, self.voted = self.history.last_epoch, NO_BROKER, None
            self._hard_state_changed = True
        match start:
            case election.Start.RESIGNED:
                return Resigned(self._election_deadline_ms(), (), {})
            case election.Start.CANDIDATE:
                return Candidate(self._election_deadline_ms(), self._new_tally())
            case election.Start.FOLLOWER:
                leader = self.voters.by_id(self.leader_id)
                assert leader is not None, "follower of an unknown leader"
                return Follower(leader.key, self._now_ms + self._timing.fetch_timeout_ms)
            case election.Start.UNATTACHED:
                return Unattached(self._election_deadline_ms())

    def _become(self, role: Role) -> None:
        old = self.role
        assert role.__class__ in LEGAL_CHANGES[old.__class__], f"{old} cannot become {role}"
        if isinstance(old, Leader):
            self.role = role
            for replica in (*old.voters.values(), *old.observers.values()):
                if replica.parked is not None:
                    self._answer_fetch(replica.parked, ReplyError.NOT_LEADER_OR_FOLLOWER)
        self.role = role
        self._fetch_correlation = 0
        self._fetch_due_ms = self._now_ms
        self._fetch_failures = 0

    def _enter_epoch(self, epoch: Epoch, *, leader_id: BrokerId, voted: ReplicaKey | None) -> None:
        """The only place that raises the epoch; a new epoch has no vote yet but the one given."""
        assert epoch > self.epoch, f"epoch {epoch} after {self.epoch}"
        self.epoch, self.leader_id, self.voted = epoch, leader_id, voted
        self._hard_state_changed = True

    def _become_unattached(self, epoch: Epoch) -> None:
        # Whoever waits for an election goes on waiting for it: a replica that can never win must not, by raising its
        # epoch again and again, keep the others from running.
        role = self.role
        match role:
            case Unattached() | Prospective() | Candidate() | Resigned() if role.election_deadline_ms > self._now_ms:
                deadline_ms = role.election_deadline_ms
            case _:
                deadline_ms = self._election_deadline_ms()
        self._enter_epoch(epoch, leader_id=NO_BROKER, voted=None)
        self._become(Unattached(deadline_ms))

    def _become_follower(self, leader: ReplicaKey) -> None:
        """Of the present epoch. The vote of this epoch stays."""
        assert leader.id != self.me.id, "nobody follows itself"
        assert self.leader_id in (NO_BROKER, leader.id), f"epoch {self.epoch} led by {self.leader_id} and {leader.id}"
        if self.leader_id != leader.id:
            self.leader_id = leader.id
            self._hard_state_changed = True
        self._become(Follower(leader, self._now_ms + self._timing.fetch_timeout_ms))

    def _observe(self, epoch: Epoch, leader_id: BrokerId) -> None:
        """A peer knows a higher epoch, or the leader of this one."""
        leader = self.voters.by_id(leader_id) if leader_id != self.me.id else None
        if epoch > self.epoch:
            if leader is None:
                self._become_unattached(epoch)
            else:
                self._enter_epoch(epoch, leader_id=leader.key.id, voted=None)
                self._become_follower(leader.key)
        elif leader is not None and (self.leader_id == NO_BROKER or self.role.__class__ is Unattached):
            self._become_follower(leader.key)

    def _lose_leader(self) -> None:
        if self.is_voter:
            self._become_prospective()
        else:
            self._become(Unattached(NEVER_MS))

    def _become_prospective(self) -> None:
        role = Prospective(self._election_deadline_ms(), self._new_tally())
        self._become(role)
        if self.voters.majority == 1:
            self._become_candidate()
        else:
            self._send_votes(role.tally, is_pre_vote=True)

    def _give_up_prospective(self) -> None:
        leader = self.voters.by_id(self.leader_id)
        if leader is not None and leader.key != self.me:
            self._become_follower(leader.key)
        else:
            self._become(Unattached(self._election_deadline_ms()))

    def _become_candidate(self) -> None:
        role = Candidate(self._election_deadline_ms(), self._new_tally())
        self._become(role)
        self._enter_epoch(Epoch(self.epoch + 1), leader_id=NO_BROKER, voted=self.me)
        if self.voters.majority == 1:
            self._become_leader(role)
        else:
            self._send_votes(role.tally, is_pre_vote=False)

    def _become_leader(self, candidate: Candidate) -> None:
        now_ms = self._now_ms
        self.leader_id = self.me.id
        self._hard_state_changed = True
        others = self.voters.others(self.me)
        role = Leader(
            epoch_start=self.end_offset,
            check_quorum_deadline_ms=now_ms + self._timing.check_quorum_timeout_ms if others else NEVER_MS,
            voters={key: ReplicaProgress(Offset(0), -1, -1, Offset(0), begin_due_ms=now_ms) for key in others},
        )
        self._become(role)
        granting = tuple(key for key in self.voters.keys if key in candidate.tally.granted)
        self._append(Offset(self.end_offset + 1), LeaderChange(self.me, self.voters.keys, granting))
        self._send_begin_quorum_epoch(role)

    def _resign(self, leader: Leader) -> None:
        ordered = sorted(leader.voters.items(), key=lambda item: item[1].end_offset, reverse=True)
        successors = tuple(key for key, _ in ordered)
        role = Resigned(self._election_deadline_ms(), successors, dict.fromkeys(successors, self._now_ms))
        self._become(role)
        self._send_end_quorum_epoch(role)

    def _election_deadline_ms(self) -> int:
        if not self.is_voter:
            return NEVER_MS
        if self.voters.majority == 1:
            return self._now_ms
        return self._now_ms + election.election_delay_ms(
            election_timeout_ms=self._timing.election_timeout_ms, draw=self._draw()
        )

    def _new_tally(self) -> Tally:
        return Tally({self.me}, set(), dict.fromkeys(self.voters.others(self.me), self._now_ms))

    # --- elections ----------------------------------------------------------------------------------------------------

    def _send_votes(self, tally: Tally, *, is_pre_vote: bool) -> None:
        for voter, due_ms in tally.resend_ms.items():
            if due_ms <= self._now_ms:
                tally.resend_ms[voter] = self._now_ms + self._timing.request_timeout_ms
                self._send.append(
                    VoteRequest(
                        self._next_correlation(),
                        self.me,
                        voter,
                        self.epoch,
                        self.history.last_epoch,
                        self.end_offset,
                        is_pre_vote,
                    )
                )

    def _on_vote_request(self, request: VoteRequest) -> None:
        is_granted = False
        if request.target != self.me or not self.is_voter:
            error = ReplyError.INVALID_VOTER_KEY
        elif not election.is_well_formed(request):
            error = ReplyError.INVALID_REQUEST
        elif request.epoch < self.epoch:
            error = ReplyError.FENCED_LEADER_EPOCH
        else:
            error = ReplyError.NONE
            if request.epoch > self.epoch:
                self._become_unattached(request.epoch)
            is_granted = election.may_grant(
                request,
                role=self.role,
                voted=self.voted,
                leader_id=self.leader_id,
                last_epoch=self.history.last_epoch,
                end_offset=self.end_offset,
            )
            if is_granted and not request.is_pre_vote:
                self._record_vote(request.source)
        self._send.append(
            VoteReply(
                request.correlation,
                self.me,
                request.source,
                self.epoch,
                self.live_leader_id,
                error,
                is_granted,
                request.is_pre_vote,
            )
        )

    def _record_vote(self, candidate: ReplicaKey) -> None:
        if self.voted != candidate:
            self.voted = candidate
            self._hard_state_changed = True
        role = self.role
        assert isinstance(role, Unattached | Prospective), f"{role} voted"
        role.election_deadline_ms = self._election_deadline_ms()

    def _on_vote_reply(self, reply: VoteReply) -> None:
        if reply.epoch != self.epoch or (self.leader_id == NO_BROKER and reply.leader_id != NO_BROKER):
            if reply.epoch >= self.epoch:
                self._observe(reply.epoch, reply.leader_id)
            return
        role = self.role
        match role:
            case Prospective() if reply.is_pre_vote:
                if self._count_vote(role.tally, reply):
                    self._become_candidate()
                elif len(role.tally.rejected) > len(self.voters) - self.voters.majority:
                    self._give_up_prospective()
            case Candidate() if not reply.is_pre_vote:
                if self._count_vote(role.tally, reply):
                    self._become_leader(role)

    def _count_vote(self, tally: Tally, reply: VoteReply) -> bool:
        """Enter a vote; returns whether a majority granted. A candidate without one waits for its timer."""
        if reply.source not in self.voters:
            return False
        tally.resend_ms.pop(reply.source, None)
        if reply.is_granted:
            tally.granted.add(reply.source)
            tally.rejected.discard(reply.source)
        elif reply.source not in tally.granted:
            tally.rejected.add(reply.source)
        return len(tally.granted) >= self.voters.majority

    def _send_begin_quorum_epoch(self, leader: Leader) -> None:
        """To every voter whose time has come; a voter that fetches knows its leader already."""
        for key, replica in leader.voters.items():
            if replica.begin_due_ms <= self._now_ms:
                replica.begin_due_ms = self._now_ms + self._timing.fetch_timeout_ms // 2
                self._send.append(BeginQuorumEpochRequest(self._next_correlation(), self.me, key, self.epoch))

    def _on_begin_request(self, request: BeginQuorumEpochRequest) -> None:
        leader = self.voters.by_id(request.source.id)
        if request.target != self.me or leader is None or leader.key != request.source:
            error = ReplyError.INVALID_VOTER_KEY
        elif request.epoch < self.epoch:
            error = ReplyError.FENCED_LEADER_EPOCH
        else:
            error = ReplyError.NONE
            if request.epoch > self.epoch:
                self._observe(request.epoch, request.source.id)
            elif not isinstance(self.role, Follower):
                self._become_follower(request.source)
            assert self.leader_id == request.source.id, (
                f"epoch {self.epoch} led by {self.leader_id} and {request.source}"
            )
        self._send.append(
            BeginQuorumEpochReply(request.correlation, self.me, request.source, self.epoch, self.live_leader_id, error)
        )

    def _on_begin_reply(self, reply: BeginQuorumEpochReply) -> None:
        if reply.epoch > self.epoch:
            self._observe(reply.epoch, reply.leader_id)

    def _send_end_quorum_epoch(self, resigned: Resigned) -> None:
        for key, due_ms in resigned.resend_ms.items():
            if due_ms <= self._now_ms:
                resigned.resend_ms[key] = self._now_ms + self._timing.request_timeout_ms
                self._send.append(
                    EndQuorumEpochRequest(self._next_correlation(), self.me, key, self.epoch, resigned.successors)
                )

    def _on_end_request(self, request: EndQuorumEpochRequest) -> None:
        if request.target != self.me:
            error = ReplyError.INVALID_VOTER_KEY
        elif request.epoch < self.epoch:
            error = ReplyError.FENCED_LEADER_EPOCH
        else:
            error = ReplyError.NONE
            self._observe(request.epoch, request.source.id)
            role = self.role
            if isinstance(role, Follower) and role.leader == request.source:
                role.is_leader_lost = True
                self._fetch_correlation = 0  # a late success must not make the leader look alive again
                delay_ms = election.handover_delay_ms(
                    request.successors, self.me, delay_ms_max=self._timing.election_backoff_ms_max
                )
                role.fetch_deadline_ms = min(role.fetch_deadline_ms, self._now_ms + delay_ms)
                self._fetch_due_ms = role.fetch_deadline_ms
                if delay_ms == 0:
                    self._lose_leader()
        self._send.append(
            EndQuorumEpochReply(request.correlation, self.me, request.source, self.epoch, self.live_leader_id, error)
        )

    def _on_end_reply(self, reply: EndQuorumEpochReply) -> None:
        if reply.epoch > self.epoch:
            self._observe(reply.epoch, reply.leader_id)
        elif isinstance(self.role, Resigned) and reply.epoch == self.epoch:
            self.role.resend_ms.pop(reply.source, None)

    # --- the leader's side of replication -----------------------------------------------------------------------------

    def _append(self, end_offset: Offset, payload: Any) -> None:
        base_offset = self.end_offset
        self.history.assign(self.epoch, base_offset)
        self.end_offset = end_offset
        self._appends.append(Append(base_offset, end_offset, self.epoch, payload))
        self._has_news = True

    def _tick_leader(self, role: Leader) -> None:
        now_ms = self._now_ms
        if now_ms >= role.check_quorum_deadline_ms:
            # The majority, me included, that I heard from last: the least recent of them counts.
            heard = sorted((replica.last_fetch_ms for replica in role.voters.values()), reverse=True)
            role.check_quorum_deadline_ms = heard[self.voters.majority - 2] + self._timing.check_quorum_timeout_ms
            if now_ms >= role.check_quorum_deadline_ms:
                self._resign(role)
                return
        silent = [
            key
            for key, replica in role.observers.items()
            if now_ms - replica.last_fetch_ms > self._timing.observer_session_ms
        ]
        for key in silent:
            del role.observers[key]
        for replica in (*role.voters.values(), *role.observers.values()):
            if now_ms >= replica.parked_until_ms:
                self._answer_parked(replica)
        self._send_begin_quorum_epoch(role)

    def _on_fetch_request(self, request: FetchRequest) -> None:
        role = self.role
        if request.fetch_offset < 0 or not 0 <= request.last_epoch <= request.epoch:
            self._answer_fetch(request, ReplyError.INVALID_REQUEST)
        elif request.epoch != self.epoch:
            is_old = request.epoch < self.epoch
            self._answer_fetch(request, ReplyError.FENCED_LEADER_EPOCH if is_old else ReplyError.UNKNOWN_LEADER_EPOCH)
        elif role.__class__ is not Leader or request.target != self.me:
            self._answer_fetch(request, ReplyError.NOT_LEADER_OR_FOLLOWER)
        else:
            self._serve_fetch(role, request)

    def _serve_fetch(self, role: Leader, request: FetchRequest) -> None:
        diverging = replication.divergence(
            self.history, log_end=self.end_offset, fetch_offset=request.fetch_offset, last_epoch=request.last_epoch
        )
        source = request.source
        replica = role.voters.get(source)
        is_from_voter = replica is not None
        if replica is None:
            replica = role.observers.get(source)
            if replica is None:
                replica = role.observers[source] = ReplicaProgress(Offset(0), -1, -1, Offset(0))
        if replica.parked is not None:
            self._answer_parked(replica)
        now_ms = self._now_ms
        if diverging is None:
            offset = request.fetch_offset
            if offset >= self.end_offset:
                replica.last_caught_up_ms = now_ms
            elif offset >= replica.end_offset_at_last_fetch:
                replica.last_caught_up_ms = max(replica.last_caught_up_ms, replica.last_fetch_ms)
            replica.end_offset_at_last_fetch = self.end_offset
            replica.end_offset = max(replica.end_offset, offset)
        replica.last_fetch_ms = now_ms
        if is_from_voter:
            replica.begin_due_ms = now_ms + self._timing.fetch_timeout_ms // 2
            if diverging is None:
                self._advance_high_watermark()
        if (
            diverging is None
            and request.fetch_offset == self.end_offset
            and request.high_watermark >= self.high_watermark
            and request.wait_ms_max > 0
        ):
            replica.parked = request
            replica.parked_until_ms = now_ms + min(request.wait_ms_max, self._timing.fetch_wait_ms_max)
        else:
            self._answer_fetch(request, ReplyError.NONE, diverging)

    def _answer_all_parked(self) -> None:
        """The log or the high watermark has grown: a parked fetch may have its answer now. Done once per ready, so that
        a follower gets all batches of one round in one reply, and the high watermark at once (KIP-1166)."""
        self._has_news = False
        role = self.role
        if isinstance(role, Leader):
            for replica in (*role.voters.values(), *role.observers.values()):
                parked = replica.parked
                if parked is not None and (
                    parked.fetch_offset < self.end_offset or parked.high_watermark < self.high_watermark
                ):
                    self._answer_parked(replica)

    def _answer_parked(self, replica: ReplicaProgress) -> None:
        request = replica.parked
        assert request is not None, "nothing is parked"
        replica.parked = None
        replica.parked_until_ms = NEVER_MS
        self._answer_fetch(request, ReplyError.NONE)

    def _answer_fetch(self, request: FetchRequest, error: ReplyError, diverging: EpochStart | None = None) -> None:
        offset = request.fetch_offset
        has_records = error is ReplyError.NONE and diverging is None
        self._send.append(
            FetchReply(
                request.correlation,
                self.me,
                request.source,
                self.epoch,
                self.live_leader_id,
                error,
                self.high_watermark,
                offset,
                self.end_offset if has_records else offset,
                diverging,
            )
        )

    def _advance_high_watermark(self) -> None:
        role = self.role
        assert isinstance(role, Leader), "only the leader counts"
        durable_ends = [replica.end_offset for replica in role.voters.values()]
        durable_ends.append(self.flushed_end)
        high_watermark = replication.next_high_watermark(
            durable_ends,
            majority=self.voters.majority,
            epoch_start=role.epoch_start,
            high_watermark=self.high_watermark,
        )
        if high_watermark == self.high_watermark:
            return
        assert high_watermark <= self.end_offset, f"HW {high_watermark} beyond the log's end {self.end_offset}"
        self.high_watermark = high_watermark
        self._has_news = True

    # --- the follower's side of replication ---------------------------------------------------------------------------

    def _maybe_fetch(self) -> None:
        """Fetch when nothing is in flight, the time has come, and the whole log is durable: a fetch acknowledges it."""
        role = self.role
        if (
            self._fetch_correlation != 0
            or self._now_ms < self._fetch_due_ms
            or self.flushed_end != self.end_offset
            or (role.__class__ is not Follower and role.__class__ is not Unattached)
        ):
            return
        target = self._fetch_target()
        if target is None:
            self._fetch_due_ms = NEVER_MS
            return
        correlation = self._next_correlation()
        self._fetch_correlation = correlation
        self._fetch_due_ms = self._now_ms + self._timing.request_timeout_ms
        self._send.append(
            FetchRequest(
                correlation,
                self.me,
                target,
                self.epoch,
                self.end_offset,
                self.history.last_epoch,
                self.high_watermark,
                self._timing.fetch_wait_ms_max,
            )
        )

    def _fetch_target(self) -> ReplicaKey | None:
        """The leader; every other time after it failed, and when there is none, the voters in turn: one may know it."""
        role = self.role
        if isinstance(role, Follower) and self._fetch_failures % 2 == 0:
            return role.leader
        others = self.voters.others(self.me)
        if not others:
            return None
        self._asked += 1
        return others[self._asked % len(others)]

    def _on_fetch_reply(self, reply: FetchReply) -> None:
        if reply.correlation != self._fetch_correlation:
            if reply.epoch > self.epoch:
                self._observe(reply.epoch, reply.leader_id)
            return
        self._fetch_correlation = 0
        role = self.role
        if reply.epoch > self.epoch or (role.__class__ is Unattached and reply.epoch == self.epoch):
            self._observe(reply.epoch, reply.leader_id)
            if self.role.__class__ is Unattached:
                self._fetch_failed()
            return
        if role.__class__ is not Follower or reply.epoch < self.epoch:
            self._fetch_failed()
        elif reply.error is not ReplyError.NONE or reply.source != role.leader:
            if reply.source == role.leader and reply.error is ReplyError.NOT_LEADER_OR_FOLLOWER:
                # It led this epoch and does not any more: it never will again, so do not wait for the fetch timer.
                self._mark_leader_lost(role)
            self._fetch_failed()
        else:
            self._take_fetched(role, reply)

    def _take_fetched(self, role: Follower, reply: FetchReply) -> None:
        now_ms = self._now_ms
        role.fetch_deadline_ms = now_ms + self._timing.fetch_timeout_ms
        role.has_fetched = True
        role.is_leader_lost = False
        self._fetch_failures = 0
        self._fetch_due_ms = now_ms
        if reply.diverging is not None:
            self._truncate(
                replication.truncation_offset(self.history, log_end=self.end_offset, diverging=reply.diverging)
            )
            return
        if reply.end_offset > reply.base_offset:
            if not replication.is_continuation(
                reply, log_end=self.end_offset, last_epoch=self.history.last_epoch, epoch=self.epoch
            ):
                # Damaged on its way: not fatal, the same offset is fetched again.
                self._fetch_due_ms = now_ms + self._timing.retry_backoff_ms
                return
            for epoch, start_offset in reply.epochs:
                self.history.assign(epoch, start_offset)
            self._appends.append(Append(reply.base_offset, reply.end_offset, self.history.last_epoch, reply.payload))
            self.end_offset = reply.end_offset
        high_watermark = min(reply.high_watermark, self.end_offset)
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark

    def _truncate(self, offset: Offset) -> None:
        assert offset >= self.high_watermark, f"told to cut to {offset}, below the high watermark {self.high_watermark}"
        assert offset < self.end_offset, f"told to cut to {offset}, the log ends at {self.end_offset}"
        assert self.flushed_end == self.end_offset and not self._appends, "a cut meets a flush in flight"
        self.history.truncate_to(offset)
        self.end_offset = offset
        self.flushed_end = offset
        self._truncate_to = offset

    def _on_unreachable(self, failure: Unreachable) -> None:
        if failure.correlation == self._fetch_correlation:
            self._fetch_failed()
            return
        due_ms = self._now_ms + self._backoff_ms()
        role = self.role
        match role:
            case Prospective() | Candidate():
                if failure.peer in role.tally.resend_ms:
                    role.tally.resend_ms[failure.peer] = due_ms
            case Resigned():
                if failure.peer in role.resend_ms:
                    role.resend_ms[failure.peer] = due_ms

    def _fetch_failed(self) -> None:
        self._fetch_correlation = 0
        self._fetch_due_ms = self._now_ms + self._backoff_ms()
        self._fetch_failures += 1
        if self._fetch_failures == LEADER_LOST_FAILURES and isinstance(self.role, Follower):
            self._mark_leader_lost(self.role)

    def _mark_leader_lost(self, role: Follower) -> None:
        """Run for election soon instead of after the fetch timer. Pre-vote makes a wrong guess harmless."""
        if not role.is_leader_lost and self.is_voter:
            role.is_leader_lost = True
            # Never at once: one that cannot win comes back here after each refusal, a round trip later.
            delay_ms = election.lost_leader_delay_ms(
                election_timeout_ms=self._timing.election_timeout_ms, draw=self._draw()
            )
            role.fetch_deadline_ms = min(role.fetch_deadline_ms, self._now_ms + delay_ms)

    def _backoff_ms(self) -> int:
        return self._timing.retry_backoff_ms << min(self._fetch_failures, RETRY_BACKOFF_DOUBLINGS_MAX)

    def _next_correlation(self) -> int:
        self._correlation += 1
        return self._correlation
