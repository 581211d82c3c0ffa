"""The classic group protocol: members join, a leader assigns, everyone syncs (JoinGroup, SyncGroup, Heartbeat, LeaveGroup).

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: generation only grows; every member of a generation is told of it before any assignment of it; an assignment leaves
            only with the commit of its record; a parked ticket is answered exactly once.
Read next:  shard.py, which keeps the groups of one partition.

States (valid previous ones in `VALID_PREVIOUS`):
    Empty ─join─► PreparingRebalance ─all joined, or time is up─► CompletingRebalance ─leader's sync─► Stable ─change─► Preparing…
                       └─nobody left─► Empty                             └─change─► PreparingRebalance
Membership and timers are soft state, which steps change directly: a new coordinator starts from the last record, in which members
are as of the last assignment, and gives each a fresh session. Three moments write a record: the leader's assignment, a static
member's return to its old place, and the last member's leaving. What such a record carries changes by its replay alone.

Not obvious:
- A step raises KafkaError only before it has changed anything; afterwards refusals go out as replies.
- The session timer of a member that waits in a join or sync is moot: its request is its sign of life. Only a *new* member can
  expire while it joins: nobody ever told it its id, so nobody else can free its place.
- The first rebalance of an empty group waits a while even when all members are there, for others to come (initial delay).
- A record that is refused leaves the group as before the step, but for what the members must learn: an assignment that cannot be
  written starts a rebalance; a group that nobody is in becomes empty unwritten.
- Between the leader's record being appended and being committed the group is Stable already; answers wait in the runtime.

Sources: KIP-62, KIP-134 (initial delay), KIP-345 (static members), KIP-394 (member id), KIP-571, KIP-814.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from typing import NamedTuple

from barnabas_broker.coordinator.errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from barnabas_broker.coordinator.group.messages import (
    NO_MEMBER,
    GroupDescription,
    JoinedMember,
    JoinOutcome,
    JoinRequest,
    LeaveOutcome,
    LeavingMember,
    MemberDescription,
    MemberRef,
    SyncOutcome,
    SyncRequest,
)
from barnabas_broker.coordinator.group.protocols import (
    CONSUMER_PROTOCOL_TYPE,
    Offer,
    all_subscribed_topics,
    choose_protocol,
    common_protocols,
    subscribed_topics,
)
from barnabas_broker.coordinator.group.records import (
    NO_TIMESTAMP,
    GroupMetadataRecord,
    GroupMetadataValue,
    MemberValue,
)
from barnabas_broker.coordinator.shard import CoordinatorResult, Ticket
from barnabas_wire.kafka.errors import ErrorCode, InvariantViolated, KafkaError

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a member whose first join is unanswered keeps its place: it does not know its id, so it cannot heartbeat."""


class GroupState(StrEnum):
    """States by the names that DescribeGroups shows."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


VALID_PREVIOUS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(set(GroupState) - {GroupState.DEAD}),
}


class TimerKind(Enum):
    """What a group waits for."""

    SESSION = "session"
    REBALANCE = "rebalance"
    SYNC = "sync"


class TimerKey(NamedTuple):
    """Key of a group's timer; member id only for sessions."""

    kind: TimerKind
    group_id: str
    member_id: str = ""


class RebalanceReason(Enum):
    """Why a rebalance began."""

    JOIN = "join"
    """A member came, came back, or offers something else."""
    LEAVE = "leave"
    SESSION_TIMEOUT = "session_timeout"
    SYNC_TIMEOUT = "sync_timeout"
    """A member of the generation did not ask for its assignment."""
    WRITE_FAILED = "write_failed"
    """The assignment could not be written."""


@dataclass(slots=True)
class GroupStats:
    """Counters of one group since this coordinator has it."""

    rebalances: Counter[RebalanceReason] = field(default_factory=Counter)
    commits_done: int = 0
    commits_failed: int = 0


@dataclass(slots=True)
class ClassicMember:
    """One member and the request of it that is parked, if any."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Offer
    assignment: bytes = b""
    is_new: bool = False
    """Joined, but not yet told that it is in."""
    awaiting_join: Ticket | None = None
    awaiting_sync: Ticket | None = None

    def metadata(self, protocol: str | None) -> bytes:
        """What the member said for one protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


def member_of(request: JoinRequest, member_id: str) -> ClassicMember:
    """Who asks to join, under the id it gets."""
    return ClassicMember(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocols=request.protocols,
    )


def restored_member(value: MemberValue, protocol: str | None, known: ClassicMember | None) -> ClassicMember:
    """A member as its record has it. Of what was known of it before, only the rest of the same offer stays."""
    chosen = (protocol or "", value.subscription)
    return ClassicMember(
        member_id=value.member_id,
        instance_id=value.instance_id,
        client_id=value.client_id,
        client_host=value.client_host,
        session_timeout_ms=value.session_timeout_ms,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        protocols=known.protocols if known is not None and chosen in known.protocols else (chosen,),
        assignment=value.assignment,
    )


class ClassicGroup:
    """One group. Every step returns what it wants done; see CoordinatorResult for the order."""

    def __init__(self, group_id: str, *, initial_rebalance_delay_ms: int, max_size: int) -> None:
        self.group_id = group_id
        self.initial_rebalance_delay_ms = initial_rebalance_delay_ms
        self.max_size = max_size
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.state_timestamp_ms = NO_TIMESTAMP
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        """Instance id -> member id."""
        self.pending_members: set[str] = set()
        """Ids given out by MEMBER_ID_REQUIRED whose owners have not come back yet."""
        self.pending_sync: set[str] = set()
        """Members of this generation that have not asked for their assignment."""
        self.returning: ClassicMember | None = None
        """A static member under its new id, between the step that takes it back and the replay of that step's record. The record
        carries what it subscribed to by the chosen protocol; the rest of its offer is only here."""
        self.topics: frozenset[str] | None = None
        """Topics the members subscribe to; None when the metadata cannot be read."""
        self.has_record = False
        """Whether the log holds a GroupMetadata record of this group."""
        self.stats = GroupStats()
        self._is_in_initial_delay = False
        self._has_new_member = False
        self._initial_remaining_ms = 0

    # ---- JoinGroup -----------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, ticket: Ticket, *, new_member_id: str, now_ms: int) -> CoordinatorResult:
        """A member wants into the next generation.

        Args:
            new_member_id: the id it gets if it has none; unique, drawn by the caller.

        Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED.
        """
        out = CoordinatorResult()
        if not self._has_place_for(request.member_id):
            raise GroupMaxSizeReached(f"group {self.group_id} has {self.max_size} members")
        if not self._shares_a_protocol(request):
            raise InconsistentGroupProtocol(
                f"group {self.group_id} speaks {self.protocol_type!r} with {sorted(common_protocols(self._offers()))}"
            )
        if request.member_id == NO_MEMBER:
            self._join_unnamed(request, ticket, out, new_member_id, now_ms)
        elif request.member_id in self.pending_members:
            self.pending_members.discard(request.member_id)
            self._add_member(request, ticket, out, request.member_id)
        else:
            self._validate_member(request.member_id, request.instance_id)
            self._rejoin(self.members[request.member_id], request, ticket, out)
        self._try_complete_join(out, now_ms)
        return out

    def _has_place_for(self, member_id: str) -> bool:
        if self.state is GroupState.EMPTY:
            return True
        member = self.members.get(member_id)
        if self.state is GroupState.PREPARING_REBALANCE:
            is_waiting = member is not None and member.awaiting_join is not None
            return is_waiting or sum(m.awaiting_join is not None for m in self.members.values()) < self.max_size
        return member is not None or len(self.members) < self.max_size

    def _shares_a_protocol(self, request: JoinRequest) -> bool:
        if not self.members:
            return bool(request.protocol_type) and bool(request.protocols)
        common = common_protocols(self._offers())
        return self.protocol_type == request.protocol_type and any(name in common for name, _ in request.protocols)

    def _offers(self) -> list[Offer]:
        return [member.protocols for member in self.members.values()]

    def _join_unnamed(
        self, request: JoinRequest, ticket: Ticket, out: CoordinatorResult, new_member_id: str, now_ms: int
    ) -> None:
        if request.instance_id is not None:
            old_member_id = self.static_members.get(request.instance_id)
            if old_member_id is None:
                self._add_member(request, ticket, out, new_member_id)
            else:
                self._replace_static_member(self.members[old_member_id], request, ticket, out, new_member_id, now_ms)
        elif request.requires_member_id:
            self.pending_members.add(new_member_id)
            out.arm(self._session_timer(new_member_id), request.session_timeout_ms)
            out.reply(ticket, MemberIdRequired(new_member_id))
        else:
            self._add_member(request, ticket, out, new_member_id)

    def _add_member(self, request: JoinRequest, ticket: Ticket, out: CoordinatorResult, member_id: str) -> None:
        if not self.members:
            self.protocol_type = request.protocol_type
        if self.leader_id is None:
            self.leader_id = member_id
        self.members[member_id] = replace(member_of(request, member_id), is_new=True, awaiting_join=ticket)
        if request.instance_id is not None:
            self.static_members[request.instance_id] = member_id
        if self.state is GroupState.PREPARING_REBALANCE and self.generation == 0:
            self._has_new_member = True
        out.arm(self._session_timer(member_id), NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._prepare_rebalance(out, RebalanceReason.JOIN)

    def _rejoin(self, member: ClassicMember, request: JoinRequest, ticket: Ticket, out: CoordinatorResult) -> None:
        is_unchanged = member.protocols == request.protocols
        if self.state is GroupState.COMPLETING_REBALANCE and is_unchanged:
            # Its answer got lost: tell it again.
            out.reply(ticket, self._join_outcome(member))
            return
        if self.state is GroupState.STABLE and is_unchanged and member.member_id != self.leader_id:
            out.reply(ticket, self._join_outcome(member))
            return
        # A leader joins a stable group again when the topics it assigns have changed.
        self._take_request(member, request, ticket, out)
        self._prepare_rebalance(out, RebalanceReason.JOIN)

    def _take_request(
        self, member: ClassicMember, request: JoinRequest, ticket: Ticket | None, out: CoordinatorResult
    ) -> None:
        member.protocols = request.protocols
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id = request.client_id
        member.client_host = request.client_host
        out.reply(member.awaiting_join, RebalanceInProgress("joined again over another request"))
        member.awaiting_join = ticket

    def _replace_static_member(
        self,
        old: ClassicMember,
        request: JoinRequest,
        ticket: Ticket,
        out: CoordinatorResult,
        new_member_id: str,
        now_ms: int,
    ) -> None:
        """KIP-345: the instance came back, under a new member id; the old id is fenced from here on."""
        back = replace(member_of(request, new_member_id), assignment=old.assignment, is_new=old.is_new)
        fenced = FencedInstanceId(f"instance {old.instance_id} joined again")
        out.reply(old.awaiting_join, fenced)
        out.reply(old.awaiting_sync, fenced)
        out.cancel(self._session_timer(old.member_id))
        timeout_ms = NEW_MEMBER_JOIN_TIMEOUT_MS if back.is_new else back.session_timeout_ms
        out.arm(self._session_timer(new_member_id), timeout_ms)
        if self.state is GroupState.STABLE and self._is_same_without(old, back):
            self._take_back(old, back, request, ticket, out, now_ms)
            return
        self.members = {m.member_id: m for m in self._with(old, back)}
        if back.instance_id is not None:
            self.static_members[back.instance_id] = new_member_id
        if self.leader_id == old.member_id:
            self.leader_id = new_member_id
        self._rename_pending_sync({old.member_id: new_member_id})
        back.awaiting_join = ticket
        self._prepare_rebalance(out, RebalanceReason.JOIN)

    def _with(self, old: ClassicMember, back: ClassicMember) -> list[ClassicMember]:
        """The members once `back` has taken the place of `old`."""
        return [back if member is old else member for member in self.members.values()]

    def _is_same_without(self, old: ClassicMember, back: ClassicMember) -> bool:
        """Whether the assignment stays good: nobody would choose another protocol, and the member wants the same topics."""
        return choose_protocol([m.protocols for m in self._with(old, back)]) == self.protocol and (
            subscribed_topics(back.metadata(self.protocol)) == subscribed_topics(old.metadata(self.protocol))
        )

    def _take_back(
        self,
        old: ClassicMember,
        back: ClassicMember,
        request: JoinRequest,
        ticket: Ticket,
        out: CoordinatorResult,
        now_ms: int,
    ) -> None:
        """Decide on a record of the same generation with the member under its new id; replaying it makes the change."""
        members = self._with(old, back)
        leader_id = back.member_id if self.leader_id == old.member_id else self.leader_id
        assignments = {member.member_id: member.assignment for member in members}
        value = self._to_value(members, leader_id, assignments, now_ms)
        out.records.append(GroupMetadataRecord(self.group_id, value))
        self.returning = back
        is_leader = leader_id == back.member_id
        known_leader_id = leader_id if request.supports_skipping_assignment else self.leader_id
        out.reply(
            ticket,
            JoinOutcome(
                generation=self.generation,
                protocol_type=self.protocol_type,
                protocol_name=self.protocol,
                leader_id=known_leader_id or "",
                member_id=back.member_id,
                members=self._joined(members) if is_leader and request.supports_skipping_assignment else (),
                skip_assignment=is_leader and request.supports_skipping_assignment,
            ),
        )

    # ---- the rebalance -------------------------------------------------------------------------------------------

    def _prepare_rebalance(self, out: CoordinatorResult, reason: RebalanceReason) -> None:
        if self.state is GroupState.PREPARING_REBALANCE:
            return
        self.stats.rebalances[reason] += 1
        for member in self.members.values():
            if member.awaiting_sync is not None:
                out.reply(
                    member.awaiting_sync, RebalanceInProgress("the group changed before its members were assigned")
                )
                member.awaiting_sync = None
                out.arm(self._session_timer(member.member_id), member.session_timeout_ms)
        self.pending_sync.clear()
        out.cancel(self._timer(TimerKind.SYNC))
        self._is_in_initial_delay = self.state is GroupState.EMPTY and self.initial_rebalance_delay_ms > 0
        self._move_to(GroupState.PREPARING_REBALANCE)
        if self._is_in_initial_delay:
            self._has_new_member = False
            self._initial_remaining_ms = max(self.rebalance_timeout_ms - self.initial_rebalance_delay_ms, 0)
            out.arm(self._timer(TimerKind.REBALANCE), self.initial_rebalance_delay_ms)
        else:
            out.arm(self._timer(TimerKind.REBALANCE), self.rebalance_timeout_ms)

    def _try_complete_join(self, out: CoordinatorResult, now_ms: int) -> None:
        if self.state is not GroupState.PREPARING_REBALANCE or self._is_in_initial_delay or self.pending_members:
            return
        if all(member.awaiting_join is not None for member in self.members.values()):
            self._complete_join(out, now_ms)

    def _complete_join(self, out: CoordinatorResult, now_ms: int) -> None:
        self._is_in_initial_delay = False
        out.cancel(self._timer(TimerKind.REBALANCE))
        for member in [m for m in self.members.values() if m.awaiting_join is None and m.instance_id is None]:
            self._remove(member, out)
        if not self.members:
            self._become_empty(out, now_ms)
        elif not self._elect_joined_leader():
            # Only static members are left and none has come back: their sessions decide.
            out.arm(self._timer(TimerKind.REBALANCE), self.rebalance_timeout_ms)
        else:
            self._start_generation(out)

    def _elect_joined_leader(self) -> bool:
        leader = self.members.get(self.leader_id or "")
        if leader is None or leader.awaiting_join is None:
            joined = next((m.member_id for m in self.members.values() if m.awaiting_join is not None), None)
            if joined is None:
                return False
            self.leader_id = joined
        return True

    def _start_generation(self, out: CoordinatorResult) -> None:
        self.generation += 1
        self.protocol = choose_protocol(self._offers())
        self.topics = self._subscribed_topics()
        self._move_to(GroupState.COMPLETING_REBALANCE)
        for member in self.members.values():
            out.reply(member.awaiting_join, self._join_outcome(member))
            member.awaiting_join = None
            member.is_new = False
            out.arm(self._session_timer(member.member_id), member.session_timeout_ms)
        self.pending_sync = set(self.members)
        out.arm(self._timer(TimerKind.SYNC), self.rebalance_timeout_ms)

    def _become_empty(self, out: CoordinatorResult, now_ms: int) -> None:
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation + 1,
            protocol=None,
            leader=None,
            state_timestamp_ms=now_ms,
        )
        out.records.append(GroupMetadataRecord(self.group_id, value))

    def on_refused(self, value: GroupMetadataValue, result: CoordinatorResult, error: KafkaError) -> CoordinatorResult:
        """A generation could not be written, so it was not replayed: the group is as the step found it, and the step's requests
        are still parked.

        Args:
            value: the generation, from the one record of `result`.
        """
        if not value.members:
            # Nobody is in the group, written or not: a coordinator that reads the older record will time its members out.
            self._become(value)
            return CoordinatorResult(replies=result.replies, timers=result.timers)
        if self.state is GroupState.STABLE:
            # A static member's return: the old id stays the member, its session goes on.
            self.returning = None
            return replace(result.refused(error), timers=[])
        out = result.refused(error)
        for member in self.members.values():
            member.awaiting_sync = None
        self._prepare_rebalance(out, RebalanceReason.WRITE_FAILED)
        return out

    # ---- SyncGroup -----------------------------------------------------------------------------------------------

    def sync(self, request: SyncRequest, ticket: Ticket, *, now_ms: int) -> CoordinatorResult:
        """A member asks for its assignment; the leader's request brings everyone's.

        Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL,
        REBALANCE_IN_PROGRESS.
        """
        member = self._current_member(request.member)
        if request.protocol_type is not None and request.protocol_type != self.protocol_type:
            raise InconsistentGroupProtocol(f"the group is of type {self.protocol_type!r}")
        if request.protocol_name is not None and request.protocol_name != self.protocol:
            raise InconsistentGroupProtocol(f"the group chose {self.protocol!r}")
        if self.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgress()
        out = CoordinatorResult()
        self.pending_sync.discard(member.member_id)
        if not self.pending_sync:
            out.cancel(self._timer(TimerKind.SYNC))
        if self.state is GroupState.STABLE:
            out.arm(self._session_timer(member.member_id), member.session_timeout_ms)
            out.reply(
                ticket,
                SyncOutcome(
                    protocol_type=self.protocol_type, protocol_name=self.protocol, assignment=member.assignment
                ),
            )
            return out
        out.reply(member.awaiting_sync, RebalanceInProgress("synced again over another request"))
        member.awaiting_sync = ticket
        if member.member_id == self.leader_id:
            self._assign(dict(request.assignments), out, now_ms)
        return out

    def _assign(self, assignments: dict[str, bytes], out: CoordinatorResult, now_ms: int) -> None:
        """Decide on the record of the assignment, and on the answers to everyone who waits for it."""
        for member in [m for m in self.members.values() if m.awaiting_sync is not None]:
            out.arm(self._session_timer(member.member_id), member.session_timeout_ms)
            out.reply(
                member.awaiting_sync,
                SyncOutcome(
                    protocol_type=self.protocol_type,
                    protocol_name=self.protocol,
                    assignment=assignments.get(member.member_id, b""),
                ),
            )
        value = self._to_value(self.members.values(), self.leader_id, assignments, now_ms)
        out.records.append(GroupMetadataRecord(self.group_id, value))

    # ---- Heartbeat, LeaveGroup, OffsetCommit ---------------------------------------------------------------------

    def heartbeat(self, member: MemberRef, ticket: Ticket) -> CoordinatorResult:
        """A sign of life. The reply is REBALANCE_IN_PROGRESS while the group wants everyone to join again.

        Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
        """
        current = self._current_member(member)
        out = CoordinatorResult()
        out.arm(self._session_timer(current.member_id), current.session_timeout_ms)
        out.reply(ticket, RebalanceInProgress() if self.state is GroupState.PREPARING_REBALANCE else None)
        return out

    def leave(self, members: Sequence[LeavingMember], ticket: Ticket, *, now_ms: int) -> CoordinatorResult:
        """Members go. The reply has one LeaveOutcome for each, in order."""
        out = CoordinatorResult()
        size = len(self.members)
        outcomes = [LeaveOutcome(*leaving, self._leave_one(leaving, out)) for leaving in members]
        out.reply(ticket, tuple(outcomes))
        if len(self.members) < size:
            self._rebalance_without_the_gone(out, RebalanceReason.LEAVE)
        self._try_complete_join(out, now_ms)
        return out

    def _leave_one(self, leaving: LeavingMember, out: CoordinatorResult) -> ErrorCode:
        member_id = leaving.member_id
        if member_id == NO_MEMBER:
            member_id = self.static_members.get(leaving.instance_id or "", NO_MEMBER)
        if member_id in self.pending_members:
            self.pending_members.remove(member_id)
            out.cancel(self._session_timer(member_id))
            return ErrorCode.NONE
        try:
            self._validate_member(member_id, leaving.instance_id)
        except KafkaError as error:
            return error.code
        self._remove(self.members[member_id], out)
        return ErrorCode.NONE

    def allow_commit(self, member: MemberRef) -> CoordinatorResult:
        """Whether these offsets may be committed now; a commit is a sign of life, too.

        Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS.
        """
        out = CoordinatorResult()
        is_simple = member.generation < 0
        if is_simple and self.state is GroupState.EMPTY:
            return out
        if is_simple and member.member_id == NO_MEMBER and member.instance_id is None:
            raise UnknownMemberId(f"group {self.group_id} has members: a commit needs a member id and a generation")
        current = self._current_member(member)
        if self.state is GroupState.COMPLETING_REBALANCE:
            # The member knows its generation but not yet what it is assigned in it.
            raise RebalanceInProgress()
        out.arm(self._session_timer(current.member_id), current.session_timeout_ms)
        return out

    # ---- time and lost connections -------------------------------------------------------------------------------

    def on_timer(self, key: TimerKey, *, now_ms: int) -> CoordinatorResult:
        """One of this group's timers fired."""
        out = CoordinatorResult()
        if key.kind is TimerKind.SESSION:
            self._session_expired(key.member_id, out)
        elif key.kind is TimerKind.REBALANCE:
            self._rebalance_time_is_up(out, now_ms)
        else:
            for member_id in sorted(self.pending_sync):
                self._remove(self.members[member_id], out)
            self._rebalance_without_the_gone(out, RebalanceReason.SYNC_TIMEOUT)
        self._try_complete_join(out, now_ms)
        return out

    def _session_expired(self, member_id: str, out: CoordinatorResult) -> None:
        if member_id in self.pending_members:
            self.pending_members.remove(member_id)
            return
        member = self.members.get(member_id)
        if member is None:
            return
        is_waiting = member.awaiting_join is not None or member.awaiting_sync is not None
        if member.is_new or not is_waiting:
            self._remove(member, out)
            self._rebalance_without_the_gone(out, RebalanceReason.SESSION_TIMEOUT)

    def _rebalance_time_is_up(self, out: CoordinatorResult, now_ms: int) -> None:
        if self.state is not GroupState.PREPARING_REBALANCE:
            return
        if self._is_in_initial_delay and self._has_new_member and self._initial_remaining_ms > 0:
            self._has_new_member = False
            delay_ms = min(self.initial_rebalance_delay_ms, self._initial_remaining_ms)
            self._initial_remaining_ms -= delay_ms
            out.arm(self._timer(TimerKind.REBALANCE), delay_ms)
        else:
            self._complete_join(out, now_ms)

    def abandon(self, ticket: Ticket, *, now_ms: int) -> CoordinatorResult:
        """The connection that waited for this ticket is gone: nobody will read its answer.

        A member that never learned its id leaves at once. Another one gets a session time-out to come back.
        """
        out = CoordinatorResult()
        for member in list(self.members.values()):
            if ticket not in (member.awaiting_join, member.awaiting_sync):
                continue
            if member.awaiting_sync == ticket:
                member.awaiting_sync = None
                self.pending_sync.add(member.member_id)
            else:
                member.awaiting_join = None
            if member.is_new:
                self._remove(member, out)
            else:
                out.arm(self._session_timer(member.member_id), member.session_timeout_ms)
        self._try_complete_join(out, now_ms)
        return out

    def resume(self) -> CoordinatorResult:
        """A new coordinator has read the group from the log: every member gets a fresh session."""
        out = CoordinatorResult()
        for member in self.members.values():
            out.arm(self._session_timer(member.member_id), member.session_timeout_ms)
        return out

    # ---- members -------------------------------------------------------------------------------------------------

    def _validate_member(self, member_id: str, instance_id: str | None) -> None:
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                raise UnknownMemberId(f"no member has group.instance.id {instance_id}")
            if current != member_id:
                raise FencedInstanceId(f"instance {instance_id} is now member {current}")
        elif member_id not in self.members:
            raise UnknownMemberId(f"{member_id!r} is not a member of group {self.group_id}")

    def _current_member(self, member: MemberRef) -> ClassicMember:
        self._validate_member(member.member_id, member.instance_id)
        if member.generation != self.generation:
            raise IllegalGeneration(f"generation {member.generation} is not the current one, {self.generation}")
        return self.members[member.member_id]

    def _remove(self, member: ClassicMember, out: CoordinatorResult) -> None:
        gone = UnknownMemberId(f"{member.member_id} was removed from group {self.group_id}")
        out.reply(member.awaiting_join, gone)
        out.reply(member.awaiting_sync, gone)
        del self.members[member.member_id]
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]
        self.pending_sync.discard(member.member_id)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)
        out.cancel(self._session_timer(member.member_id))

    def _rebalance_without_the_gone(self, out: CoordinatorResult, reason: RebalanceReason) -> None:
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._prepare_rebalance(out, reason)

    # ---- state ---------------------------------------------------------------------------------------------------

    def replay(self, value: GroupMetadataValue) -> None:
        """Take over the generation of a record: Stable with its members, or Empty. Nobody waits for a join or sync in it."""
        self._become(value)
        self.has_record = True

    def _become(self, value: GroupMetadataValue) -> None:
        if value.generation < self.generation:
            raise InvariantViolated(
                f"group {self.group_id}: generation {value.generation} after {self.generation} in the log"
            )
        known = dict(self.members)
        if self.returning is not None:
            known[self.returning.member_id] = self.returning
        static_members = {m.instance_id: m.member_id for m in value.members if m.instance_id is not None}
        self._rename_pending_sync(
            {old: static_members.get(instance, old) for instance, old in self.static_members.items()}
        )
        self.members = {m.member_id: restored_member(m, value.protocol, known.get(m.member_id)) for m in value.members}
        self.static_members = static_members
        self.returning = None
        self.protocol_type = value.protocol_type or None
        self.generation = value.generation
        self.protocol = value.protocol
        self.leader_id = value.leader
        self.state_timestamp_ms = value.state_timestamp_ms
        self.state = GroupState.STABLE if value.members else GroupState.EMPTY
        self.topics = self._subscribed_topics()

    def _rename_pending_sync(self, new_ids: dict[str, str]) -> None:
        self.pending_sync = {new_ids.get(member_id, member_id) for member_id in self.pending_sync}

    def die(self) -> None:
        """The group was deleted."""
        self._move_to(GroupState.DEAD)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest any member asks for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def is_vacant(self) -> bool:
        """Nobody is in it, nobody is about to come, and the log knows nothing of it."""
        return self.state is GroupState.EMPTY and not self.pending_members and not self.has_record

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a consumer of the group may be reading the topic; unreadable subscriptions count as yes."""
        if self.topics is not None:
            return topic in self.topics
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE and bool(self.members)

    def describe(self) -> GroupDescription:
        """The group as it is now, for people and admin clients."""
        is_stable = self.state is GroupState.STABLE
        return GroupDescription(
            group_id=self.group_id,
            state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol_name=(self.protocol or "") if is_stable else "",
            members=tuple(
                MemberDescription(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.metadata(self.protocol) if is_stable else b"",
                    member.assignment if is_stable else b"",
                )
                for member in self.members.values()
            ),
        )

    def _to_value(
        self, members: Iterable[ClassicMember], leader_id: str | None, assignments: Mapping[str, bytes], now_ms: int
    ) -> GroupMetadataValue:
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=leader_id,
            state_timestamp_ms=now_ms,
            members=tuple(
                MemberValue(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.session_timeout_ms,
                    member.metadata(self.protocol),
                    assignments.get(member.member_id, b""),
                )
                for member in members
            ),
        )

    def _subscribed_topics(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        return all_subscribed_topics(member.metadata(self.protocol) for member in self.members.values())

    def _joined(self, members: Iterable[ClassicMember]) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(self.protocol)) for member in members
        )

    def _join_outcome(self, member: ClassicMember) -> JoinOutcome:
        is_leader = member.member_id == self.leader_id
        return JoinOutcome(
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader_id=self.leader_id or "",
            member_id=member.member_id,
            members=self._joined(self.members.values()) if is_leader else (),
        )

    def _move_to(self, state: GroupState) -> None:
        if self.state not in VALID_PREVIOUS[state]:
            raise InvariantViolated(f"group {self.group_id}: {self.state} cannot become {state}")
        self.state = state

    def _timer(self, kind: TimerKind) -> TimerKey:
        return TimerKey(kind, self.group_id)

    def _session_timer(self, member_id: str) -> TimerKey:
        return TimerKey(TimerKind.SESSION, self.group_id, member_id)
