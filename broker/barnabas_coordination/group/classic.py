"""A group of the classic protocol: its state, what a record carries of it, and how a record changes it.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: generation only grows; every member of a generation learns of it before any assignment of it; an assignment leaves
            only with the commit of its record; a parked ticket is answered exactly once.
Read next:  joining.py, rebalance.py, syncing.py and sessions.py: the steps, each of which returns what it wants done (see
            CoordinatorResult for the order); shard.py, which keeps the groups of one partition.

States (valid previous ones in states.py):
    Empty ─join─► PreparingRebalance ─all joined, or time is up─► CompletingRebalance ─leader's sync─► Stable ─change─► Preparing…
                       └─last leaves─► Empty                             └─change─► PreparingRebalance
Membership and timers are soft state, which steps change directly: a new coordinator starts from the last record, in which members
are as of the last assignment, and gives each a fresh session. Three moments write a record: the leader's assignment, a static
member's return to its old place, and the last member's leaving. What such a record carries changes by its replay alone.

Not obvious:
- A step raises KafkaError only before it has changed anything; afterwards refusals go out as replies.
- A record that is refused leaves the group as before the step, but for what the members must learn: an assignment that cannot be
  written starts a rebalance; a group without members becomes empty unwritten.
- The session timer of a member that waits in a join or sync is moot: its request shows that it is there. Only a *new* member can
  expire while it joins: it does not know its id yet, so no other can free its place.
- The first rebalance of an empty group waits a while even when all members are there, for others to come (initial delay).
- Between the leader's record being appended and being committed the group is Stable already; answers wait in the runtime.

Sources: KIP-62, KIP-134 (initial delay), KIP-345 (static members), KIP-394 (member id), KIP-571, KIP-814.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas_coordination.errors import FencedInstanceId, IllegalGeneration, UnknownMemberId
from barnabas_coordination.group.members import ClassicMember, restored_member
from barnabas_coordination.group.messages import (
    GroupDescription,
    JoinedMember,
    JoinOutcome,
    MemberDescription,
    MemberRef,
    SyncOutcome,
)
from barnabas_coordination.group.protocols import CONSUMER_PROTOCOL_TYPE, Offer, all_subscribed_topics
from barnabas_coordination.group.records import NO_TIMESTAMP, GroupMetadataRecord, GroupMetadataValue
from barnabas_coordination.group.states import (
    VALID_PREVIOUS,
    GroupState,
    GroupStats,
    InitialDelay,
    TimerKey,
    TimerKind,
)
from barnabas_coordination.shard import CoordinatorResult
from barnabas_wire.kafka.errors import InvariantViolated


class ClassicGroup:
    """One group. Steps change its soft state, `replay` changes what records carry."""

    type_name: Final = "classic"

    def __init__(self, group_id: str, *, initial_rebalance_delay_ms: int, max_size: int) -> None:
        """`initial_rebalance_delay_ms`: how long an empty group waits for others to come; `max_size`: its most members."""
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
        self.pending_members: dict[str, None] = {}
        """Ids given out by MEMBER_ID_REQUIRED whose owners have not come back yet, the oldest first; see joining.PENDING_MAX."""
        self.pending_sync: set[str] = set()
        """Members of this generation that have not asked for their assignment."""
        self.returning: ClassicMember | None = None
        """A static member under its new id, between the step that takes it back and the replay of that step's record. The record
        carries what it subscribed to by the chosen protocol; the rest of its offer is only here."""
        self.initial_delay: InitialDelay | None = None
        """Set while an empty group's first rebalance waits for others to come."""
        self.topics: frozenset[str] | None = None
        """Topics the members subscribe to; None when the metadata cannot be read."""
        self.has_record = False
        """Whether the log has a GroupMetadata record of this group."""
        self.stats = GroupStats()

    def __repr__(self) -> str:
        return f"classic {self.state.value}, generation {self.generation}, {len(self.members)} members"

    # ---- records -------------------------------------------------------------------------------------------------

    def replay(self, value: GroupMetadataValue) -> None:
        """Take over the generation of a record: Stable with its members, or Empty. No member waits for a join or sync
        in it."""
        self.become(value)
        self.has_record = True

    def become(self, value: GroupMetadataValue) -> None:
        """As replay, of a generation that the log does not have. Raises InvariantViolated for an older generation."""
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
        self.topics = self.subscribed_topics()

    def _rename_pending_sync(self, new_ids: Mapping[str, str]) -> None:
        self.pending_sync = {new_ids.get(member_id, member_id) for member_id in self.pending_sync}

    def generation_record(
        self, members: Iterable[ClassicMember], leader_id: str | None, assignments: Mapping[str, bytes], now_ms: int
    ) -> GroupMetadataRecord:
        """The record of this generation with these members, led by `leader_id`; a member without an assignment is
        assigned nothing."""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=leader_id,
            state_timestamp_ms=now_ms,
            members=tuple(m.to_value(self.protocol, assignments.get(m.member_id, b"")) for m in members),
        )
        return GroupMetadataRecord(self.group_id, value)

    def empty_record(self, now_ms: int) -> GroupMetadataRecord:
        """The record of the next generation, without members."""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation + 1,
            protocol=None,
            leader=None,
            state_timestamp_ms=now_ms,
        )
        return GroupMetadataRecord(self.group_id, value)

    def die(self) -> None:
        """The group was deleted."""
        self.move_to(GroupState.DEAD)

    # ---- members -------------------------------------------------------------------------------------------------

    def validate_member(self, member_id: str, instance_id: str | None) -> None:
        """Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                raise UnknownMemberId(f"no member has group.instance.id {instance_id}")
            if current != member_id:
                raise FencedInstanceId(f"instance {instance_id} is now member {current}")
        elif member_id not in self.members:
            raise UnknownMemberId(f"{member_id!r} is not a member of group {self.group_id}")

    def current_member(self, member: MemberRef) -> ClassicMember:
        """The member, if it speaks of the current generation. Raises KafkaError as validate_member, and ILLEGAL_GENERATION."""
        self.validate_member(member.member_id, member.instance_id)
        if member.generation != self.generation:
            raise IllegalGeneration(f"generation {member.generation} is not the current one, {self.generation}")
        return self.members[member.member_id]

    def with_replaced(self, old: ClassicMember, back: ClassicMember) -> list[ClassicMember]:
        """The members once `back` has taken the place of `old`."""
        return [back if member is old else member for member in self.members.values()]

    def replace_member(self, old: ClassicMember, back: ClassicMember) -> None:
        """`back`, the same instance under another member id, takes the place of `old`."""
        self.members = {member.member_id: member for member in self.with_replaced(old, back)}
        if back.instance_id is not None:
            self.static_members[back.instance_id] = back.member_id
        if self.leader_id == old.member_id:
            self.leader_id = back.member_id
        self._rename_pending_sync({old.member_id: back.member_id})

    def remove_member(self, member: ClassicMember, out: CoordinatorResult) -> None:
        """The member is out: its parked requests are refused, the next in line leads if it led."""
        gone = UnknownMemberId(f"{member.member_id} was removed from group {self.group_id}")
        out.reply(member.awaiting_join, gone)
        out.reply(member.awaiting_sync, gone)
        del self.members[member.member_id]
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]
        self.pending_sync.discard(member.member_id)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)
        out.cancel(self.session_timer(member.member_id))

    def offers(self) -> list[Offer]:
        """The protocols that each member offers."""
        return [member.protocols for member in self.members.values()]

    def subscribed_topics(self) -> frozenset[str] | None:
        """Topics the members ask for by the chosen protocol; None when one of them cannot be read."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        return all_subscribed_topics(member.metadata(self.protocol) for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest any member asks for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # ---- answers -------------------------------------------------------------------------------------------------

    def join_outcome(self, member: ClassicMember) -> JoinOutcome:
        """The member's place in the current generation; the leader's has all members."""
        is_leader = member.member_id == self.leader_id
        return JoinOutcome(
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader_id=self.leader_id or "",
            member_id=member.member_id,
            members=self.joined_members(self.members.values()) if is_leader else (),
        )

    def joined_members(self, members: Iterable[ClassicMember]) -> tuple[JoinedMember, ...]:
        """These members as a leader sees them."""
        return tuple(JoinedMember(m.member_id, m.instance_id, m.metadata(self.protocol)) for m in members)

    def sync_outcome(self, assignment: bytes) -> SyncOutcome:
        """An assignment by the chosen protocol."""
        return SyncOutcome(protocol_type=self.protocol_type, protocol_name=self.protocol, assignment=assignment)

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

    # ---- state ---------------------------------------------------------------------------------------------------

    @property
    def is_vacant(self) -> bool:
        """It has no members, none is about to join, and the log has nothing of it."""
        return self.state is GroupState.EMPTY and not self.pending_members and not self.has_record

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a consumer of the group may be reading the topic; unreadable subscriptions count as yes."""
        if self.topics is not None:
            return topic in self.topics
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE and bool(self.members)

    def move_to(self, state: GroupState) -> None:
        """Change state without a record. Raises InvariantViolated unless VALID_PREVIOUS allows it."""
        if self.state not in VALID_PREVIOUS[state]:
            raise InvariantViolated(f"group {self.group_id}: {self.state} cannot become {state}")
        self.state = state

    def timer(self, kind: TimerKind) -> TimerKey:
        """Key of one of the group's own timers."""
        return TimerKey(kind, self.group_id)

    def session_timer(self, member_id: str) -> TimerKey:
        """Key of a member's session timer."""
        return TimerKey(TimerKind.SESSION, self.group_id, member_id)
