"""One member on its way to its target: what it has to give up first, what it may have already, and when it has arrived.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network, other members.
Invariants: nothing new is given while something is to be given up; a partition that another member holds is not given; what is given
            comes from the target; the member's epoch becomes the target's only once it owns nothing that it had to give up.
Read next:  heartbeat.py, the caller. KIP-848, "Member epoch".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from barnabas_coordination.group.consumer.errors import FencedMemberEpoch
from barnabas_coordination.group.consumer.member import ConsumerMember, Owned, touches
from barnabas_coordination.group.consumer.records import HeldPartitions, MemberState
from barnabas_coordination.group.led_records import Partitions
from barnabas_wire.kafka.ids import Uuid

IsFree = Callable[[Uuid, int], bool]
"""Whether no other member has a partition, or still has to give it up."""


def reconcile(
    member: ConsumerMember,
    *,
    epoch: int,
    target: Partitions,
    owned: Owned | None,
    topics: Collection[Uuid],
    has_subscription_changed: bool,
    is_free: IsFree,
) -> ConsumerMember:
    """The member after one heartbeat; the same where nothing changes.

    Args:
        epoch, target: of the group's targets, and the member's own.
        owned: what the member says that it owns; None: as it said last.
        topics: that it subscribes to and that exist.

    Raises:
        FencedMemberEpoch: the state is of a later version, and the member owns something.
    """
    step = _Step(member, epoch, target, owned, topics, is_free)
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if owned is not None and not touches(owned, member.pending):
            return step.next(member.epoch)
        return step.without_unsubscribed() if has_subscription_changed else member
    if member.state is MemberState.UNRELEASED_PARTITIONS:
        return step.next(member.epoch)
    if member.state is MemberState.UNKNOWN:
        if owned is None or any(owned.values()):
            raise FencedMemberEpoch("the member's state is of a later version: join again")
        return step.next(epoch)
    if member.epoch != epoch:
        return step.next(member.epoch)
    return step.without_unsubscribed() if has_subscription_changed else member


class _Step:
    """The arguments of one reconciliation."""

    def __init__(
        self,
        member: ConsumerMember,
        epoch: int,
        target: Partitions,
        owned: Owned | None,
        topics: Collection[Uuid],
        is_free: IsFree,
    ) -> None:
        self.member = member
        self.epoch = epoch
        self.target = target
        self.owned = owned
        self.topics = topics
        self.is_free = is_free

    def next(self, member_epoch: int) -> ConsumerMember:
        """Towards the target: first what must go goes, then what is free comes."""
        member = self.member
        kept: dict[Uuid, dict[int, int]] = {}
        revoked: dict[Uuid, dict[int, int]] = {}
        wanted = {topic_id: frozenset(of) for topic_id, of in self.target.items() if topic_id in self.topics}
        for topic_id, partitions in sorted(member.assigned.items()):
            of_target = wanted.get(topic_id, frozenset())
            for partition, assigned_in in sorted(partitions.items()):
                part = kept if partition in of_target else revoked
                part.setdefault(topic_id, {})[partition] = assigned_in
        if revoked and (self.owned is None or touches(self.owned, revoked)):
            return _moved(member, member_epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)
        is_waiting = False
        assigned: dict[Uuid, dict[int, int]] = {}
        for topic_id, of_target in sorted(wanted.items()):
            present = kept.get(topic_id, {})
            given: dict[int, int] = {}
            for partition in sorted(of_target):
                if partition in present:
                    given[partition] = present[partition]
                elif self.is_free(topic_id, partition):
                    given[partition] = self.epoch
                else:
                    is_waiting = True
            if given:
                assigned[topic_id] = given
        state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
        return _moved(member, self.epoch, state, assigned, {})

    def without_unsubscribed(self) -> ConsumerMember:
        """The member between two targets, without what it no longer subscribes to."""
        member = self.member
        gone = {topic_id: of for topic_id, of in member.assigned.items() if topic_id not in self.topics}
        if not gone:
            return member
        kept = {topic_id: of for topic_id, of in member.assigned.items() if topic_id in self.topics}
        pending: dict[Uuid, Mapping[int, int]] = dict(member.pending)
        for topic_id, of in gone.items():
            pending[topic_id] = {**pending.get(topic_id, {}), **of}
        if self.owned is None or touches(self.owned, pending):
            return _moved(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, pending)
        return _moved(member, member.epoch, MemberState.STABLE, kept, {})


def _moved(
    member: ConsumerMember, epoch: int, state: MemberState, assigned: HeldPartitions, pending: HeldPartitions
) -> ConsumerMember:
    """The former epoch is kept, for an answer that was lost on its way."""
    return replace(member, epoch=epoch, previous_epoch=member.epoch, state=state, assigned=assigned, pending=pending)
