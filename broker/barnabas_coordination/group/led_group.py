"""A group of any protocol in which the coordinator assigns: epochs, members and targets, which records alone change.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: group epoch and assignment epoch never fall while the group lives, the second is never past the first; a record of a member
            that is not there makes it, the tombstone of one that is not there changes nothing.
Read next:  consumer/group.py, share/group.py and streams/group.py, which say what a record is and what else follows from members.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, Self, TypeVar

from barnabas_coordination.errors import FencedInstanceId, UnknownMemberId
from barnabas_coordination.group.admission import require_place
from barnabas_coordination.group.led_records import JOINS, TargetValue
from barnabas_coordination.group.states import GroupStats, revocation_timer, session_timer
from barnabas_coordination.shard import CoordinatorResult

FIRST_EPOCH: Final = 1
"""The epoch of a new group; the first change makes it 2."""


class RecordKinds(NamedTuple):
    """What makes the records of a protocol. Each takes the group's id, the member's where it is of one, and a value or None."""

    metadata: Callable[[str, Any], Any]
    """What the group is as a whole."""
    member: Callable[[str, str, Any], Any]
    """What a member says of itself."""
    target: Callable[[str, Any], Any]
    """The epoch of the targets."""
    member_target: Callable[[str, str, Any], Any]
    assignment: Callable[[str, str, Any], Any]
    """What a member has."""


class LedMember(Protocol):
    """A member; never changed in place."""

    @property
    def member_id(self) -> str:
        """Its own, or the coordinator's."""
        ...

    @property
    def metadata(self) -> Any:
        """What it says of itself."""
        ...

    @property
    def epoch(self) -> int:
        """The epoch that it was told last."""
        ...

    @property
    def previous_epoch(self) -> int:
        """The epoch that it was told before."""
        ...

    @property
    def is_stable(self) -> bool:
        """Whether it has all of its target."""
        ...

    @property
    def is_revoking(self) -> bool:
        """Whether it still has something to give up."""
        ...

    @property
    def size(self) -> int:
        """About how many bytes its own words take."""
        ...

    def to_value(self) -> Any:
        """What a record of its assignment has."""
        ...

    def with_assignment(self, value: Any) -> Self:
        """As that record says."""
        ...


M = TypeVar("M", bound=LedMember)
T = TypeVar("T")
S = TypeVar("S")
G = TypeVar("G", bound="LedGroupState[Any, Any, Any]")


class LedGroupState(ABC, Generic[M, T, S]):
    """M: its members; T: what one is to have; S: what it knows beside its records. `replay` alone changes it, but for `soft` and
    `stats`."""

    type_name: ClassVar[str]
    """The word of group.protocol for it."""
    kinds: ClassVar[RecordKinds]
    member_type: ClassVar[Callable[..., Any]]
    unknown_metadata: ClassVar[Any]
    """What a member says of itself of whom the log has the assignment alone."""
    nothing: ClassVar[Any]
    """What a member is to have that has no target."""

    def __init__(self, group_id: str, value: Any, soft: S) -> None:
        """`value`: of the record that says the group's epoch."""
        self.group_id = group_id
        self.value = value
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        """When the targets were made; 0: nothing holds the next ones back."""
        self.members: dict[str, M] = {}
        self.static_members: dict[str, str] = {}
        """Instance id -> member id."""
        self.targets: dict[str, T] = {}
        self.bytes = 0
        """About how many bytes the members' own words take."""
        self.stable_at: Counter[int] = Counter()
        """Members that have all of their target, by epoch."""
        self.soft = soft
        self.stats = GroupStats()

    def __repr__(self) -> str:
        epochs = f"epoch {self.epoch}, targets of {self.assignment_epoch}"
        return f"{self.type_name} {self.state.value}, {epochs}, {len(self.members)} members"

    @property
    @abstractmethod
    def state(self) -> StrEnum:
        """By the name that describing shows."""

    @property
    def epoch(self) -> int:
        """The group's epoch."""
        epoch: int = self.value.epoch
        return epoch

    @property
    def is_settled(self) -> bool:
        """Whether every member has all of the newest target."""
        return self.epoch <= self.assignment_epoch and self.stable_at[self.assignment_epoch] == len(self.members)

    def new_member(self, member_id: str, metadata: Any) -> M:
        """A member that has nothing yet."""
        member: M = self.member_type(member_id=member_id, metadata=metadata)
        return member

    def target(self, member_id: str) -> T:
        """What a member is to have."""
        target: T = self.targets.get(member_id, self.nothing)
        return target

    def find(self, member_id: str, instance_id: str | None = None) -> M:
        """Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                raise UnknownMemberId(f"no member of group {self.group_id} has group.instance.id {instance_id}")
            if current != member_id:
                raise FencedInstanceId(f"instance {instance_id} is now member {current}")
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"{member_id!r} is not a member of group {self.group_id}")
        return member

    def admit(self, member_id: str, epoch: int, *, size_max: int, size_key: str) -> M:
        """Somebody who is no member yet, and has nothing.

        Args:
            epoch: that it names.
            size_max: most members, as the key `size_key` says.

        Raises KafkaError: UNKNOWN_MEMBER_ID for who does not join, GROUP_MAX_SIZE_REACHED.
        """
        if epoch != JOINS:
            raise UnknownMemberId(f"{member_id!r} is not a member of group {self.group_id}")
        require_place(self.group_id, len(self.members), size_max=size_max, size_key=size_key)
        return self.new_member(member_id, self.unknown_metadata)

    @abstractmethod
    def replay(self, record: Any) -> None:
        """Change state by one record of this group that is not its tombstone."""

    def copy(self) -> Self:
        """A draft, on which a step may replay what it is about to write."""
        draft = type(self)(self.group_id)  # type: ignore[call-arg]  # of a protocol, which knows its first value
        draft.value = self.value
        draft.assignment_epoch = self.assignment_epoch
        draft.assignment_timestamp_ms = self.assignment_timestamp_ms
        draft.targets = dict(self.targets)
        draft.soft = self.soft
        for member in self.members.values():
            draft._put(member)
        return draft

    # ---- replay --------------------------------------------------------------------------------------------------

    def replay_metadata(self, value: Any) -> None:
        """Take in the record of the group as a whole."""
        if value is not None:
            self.value = value

    def replay_member(self, member_id: str, metadata: Any) -> None:
        """What a member says of itself; None: it is gone."""
        member = self.members.get(member_id)
        if metadata is None:
            self._drop(member_id)
            self.members.pop(member_id, None)
        elif member is None:
            self._put(self.new_member(member_id, metadata))
        else:
            self._put(replace(member, metadata=metadata))  # type: ignore[type-var]  # a dataclass

    def replay_assignment(self, member_id: str, value: Any) -> None:
        """What a member has; None: nothing any more."""
        member = self.members.get(member_id)
        if value is not None:
            self._put((member or self.new_member(member_id, self.unknown_metadata)).with_assignment(value))
        elif member is not None:
            self._put(self.new_member(member_id, member.metadata))

    def replay_target(self, value: TargetValue | None) -> None:
        """The epoch of the targets."""
        if value is not None:
            self.assignment_epoch, self.assignment_timestamp_ms = value

    def replay_member_target(self, member_id: str, target: T | None) -> None:
        """What a member is to have."""
        if target is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = target

    def _put(self, member: M) -> None:
        self._drop(member.member_id)
        self.members[member.member_id] = member
        self._count(member, 1)
        instance_id = getattr(member.metadata, "instance_id", None)
        if instance_id is not None:
            self.static_members[instance_id] = member.member_id
        self._hold(member)

    def _drop(self, member_id: str) -> None:
        """Forget what follows from a member; it stays until another takes its place."""
        member = self.members.get(member_id)
        if member is None:
            return
        self._count(member, -1)
        instance_id = getattr(member.metadata, "instance_id", None)
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]
        self._release(member)

    def _count(self, member: M, sign: int) -> None:
        if member.is_stable:
            self.stable_at[member.epoch] += sign
            if not self.stable_at[member.epoch]:
                del self.stable_at[member.epoch]
        self.bytes += sign * member.size

    def _hold(self, member: M) -> None:
        """Note what a member has."""

    def _release(self, member: M) -> None:
        """Forget what a member had."""


def member_tombstones(kinds: RecordKinds, group_id: str, member_id: str) -> list[Any]:
    """The tombstones of a member, in the order that a compacted log keeps: a member holds nothing before it is gone."""
    return [
        kinds.assignment(group_id, member_id, None),
        kinds.member_target(group_id, member_id, None),
        kinds.member(group_id, member_id, None),
    ]


def led_tombstones(group: LedGroupState[Any, Any, Any]) -> list[Any]:
    """Everything that the log has of any such group but the record of the group itself, members first."""
    kinds, group_id, members = group.kinds, group.group_id, sorted(group.members)
    return [
        *(kinds.assignment(group_id, name, None) for name in members),
        *(kinds.member_target(group_id, name, None) for name in sorted(group.targets.keys() | group.members.keys())),
        kinds.target(group_id, None),
        *(kinds.member(group_id, name, None) for name in members),
    ]


def emptied(group: LedGroupState[Any, Any, Any], epoch: int) -> Any:
    """The record with which the last member goes: a group without members has the targets of its epoch, none, and
    nothing holds the next ones back."""
    return group.kinds.target(group.group_id, TargetValue(epoch))


def replace_static(group: G, gone: M, back: M, out: CoordinatorResult) -> G:
    """The same instance under another id: it has what the other had. Returns a draft of the group with `back` in the place of `gone`,
    for which `out` has the records."""
    kinds, group_id = group.kinds, group.group_id
    records = [
        *member_tombstones(kinds, group_id, gone.member_id),
        kinds.member(group_id, back.member_id, back.metadata),
        kinds.member_target(group_id, back.member_id, group.target(gone.member_id)),
        kinds.assignment(group_id, back.member_id, back.to_value()),
    ]
    draft = group.copy()
    for record in records:
        draft.replay(record)
    out.records.extend(records)
    if gone.member_id != back.member_id:
        out.cancel(session_timer(group_id, gone.member_id))
    out.cancel(revocation_timer(group_id, gone.member_id))
    return draft
