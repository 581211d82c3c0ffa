"""What people ask of a share group's offsets: where it begins, that topics or the whole group be forgotten, and what it looks like.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: only a group without members is changed; a request is answered once share coordinators have done what it asks.
Read next:  partitions.py, which answers who waits.

Differs from Kafka: AlterShareGroupOffsets raises the group's epoch, and with it the state epoch, so that a leader that still has the
state from before is refused; in Kafka two changes without a member in between leave it, and the leader's next write overrides the second.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from barnabas_coordination.errors import NonEmptyGroup
from barnabas_coordination.group.share import partitions
from barnabas_coordination.group.share.fencing import group_tombstones
from barnabas_coordination.group.share.group import PartitionOf, ShareGroup, Waiting
from barnabas_coordination.group.share.messages import ShareGroupDescription, ShareMemberDescription
from barnabas_coordination.group.share.records import Beginning
from barnabas_coordination.shard import CoordinatorResult, Ticket
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Uuid


def alter(group: ShareGroup, starts: Mapping[Uuid, Beginning], ticket: Ticket) -> CoordinatorResult:
    """Begin partitions elsewhere; `group` may be a new one. The reply is (topic id, partition) -> None, or why not.

    Raises KafkaError NON_EMPTY_GROUP.
    """
    _require_empty(group)
    out = CoordinatorResult()
    busy = KafkaError.of(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group is forgetting this topic: ask again")
    asked = frozenset((topic_id, partition) for topic_id, topic in starts.items() for partition in topic.starts)
    refused: dict[PartitionOf, KafkaError | None] = {of: busy for of in asked if of[0] in group.states.ending}
    if len(refused) == len(asked):
        out.reply(ticket, refused)
        return out
    after = partitions.begin(
        group.states, {topic_id: topic for topic_id, topic in starts.items() if topic_id not in group.states.ending}
    )
    for of in asked:
        group.soft.beginning.pop(of, None)
    group.soft.waiting.append(Waiting(ticket, after, partitions=asked, begun=refused))
    out.records.extend([*partitions.next_epoch(group), partitions.states_record(group, after)])
    return out


def forget(group: ShareGroup, topic_ids: Collection[Uuid], ticket: Ticket) -> CoordinatorResult:
    """Forget how far the group is in these topics. The reply is topic id -> None, or why not. Raises KafkaError NON_EMPTY_GROUP."""
    _require_empty(group)
    known = _topic_ids(group)
    unknown = KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the group has no offset information of this topic")
    refused: dict[Uuid, KafkaError | None] = {each: unknown for each in topic_ids if each not in known}
    if len(refused) < len(topic_ids):
        return _end(group, topic_ids, ticket, refused=refused, deletes_group=False)
    out = CoordinatorResult()
    out.reply(ticket, refused)
    return out


def delete(group: ShareGroup, ticket: Ticket) -> CoordinatorResult:
    """Forget the group: its share states first, then what the log has of it. Raises KafkaError NON_EMPTY_GROUP."""
    _require_empty(group)
    topic_ids = _topic_ids(group)
    if topic_ids:
        return _end(group, topic_ids, ticket, refused={}, deletes_group=True)
    out = CoordinatorResult(records=list(group_tombstones(group)))
    out.reply(ticket, None)
    return out


def _topic_ids(group: ShareGroup) -> set[Uuid]:
    """Topics of which it has states."""
    states = group.states
    return states.beginning.keys() | states.begun.keys() | states.ending.keys()


def _require_empty(group: ShareGroup) -> None:
    if group.members:
        raise NonEmptyGroup(f"group {group.group_id} has members: stop them first")


def _end(
    group: ShareGroup,
    topic_ids: Collection[Uuid],
    ticket: Ticket,
    *,
    refused: dict[Uuid, KafkaError | None],
    deletes_group: bool,
) -> CoordinatorResult:
    after = partitions.end(group.states, topic_ids)
    for of in [each for each in group.soft.beginning if each[0] in topic_ids]:
        del group.soft.beginning[of]
    waiting = Waiting(ticket, after, topic_ids=frozenset(topic_ids), deletes_group=deletes_group, ended=refused)
    group.soft.waiting.append(waiting)
    return CoordinatorResult(records=[partitions.states_record(group, after)])


def describe(group: ShareGroup, assignor: str) -> ShareGroupDescription:
    """The group as it is now; `assignor`: the one that makes its targets."""
    return ShareGroupDescription(
        group_id=group.group_id,
        state=group.state.value,
        epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=assignor,
        members=tuple(
            ShareMemberDescription(
                member_id=name, epoch=member.epoch, metadata=member.metadata, assignment=member.assigned
            )
            for name, member in sorted(group.members.items())
        ),
        states=group.states,
    )
