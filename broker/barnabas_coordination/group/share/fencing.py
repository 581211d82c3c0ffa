"""Members of a share group go: they leave, or fall silent.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: a member that leaves has nothing left behind but the group's next epoch, in one batch of records. What it
            has acquired is no matter of the coordinator's: the leaders let go of it.
Read next:  heartbeat.py, which hears of a leave; ../consumer/fencing.py, whose timers these are.
"""

from __future__ import annotations

from barnabas_coordination.group.consumer.messages import HeartbeatOutcome
from barnabas_coordination.group.consumer.subscription import metadata_hash, names_after
from barnabas_coordination.group.led_group import emptied, led_tombstones, member_tombstones
from barnabas_coordination.group.share.group import ShareGroup
from barnabas_coordination.group.share.member import ShareMember
from barnabas_coordination.group.share.messages import ShareHeartbeat
from barnabas_coordination.group.share.records import (
    ShareGroupMetadataRecord,
    ShareGroupStatePartitionMetadataRecord,
    ShareGroupValue,
    ShareRecord,
)
from barnabas_coordination.group.states import TimerKey, session_timer
from barnabas_coordination.shard import CoordinatorResult, Ticket
from barnabas_coordination.share_settings import ShareSettings
from barnabas_quorum.image.topics import TopicsImage


def leave(group: ShareGroup, request: ShareHeartbeat, ticket: Ticket, topics: TopicsImage) -> CoordinatorResult:
    """A member leaves. Raises KafkaError UNKNOWN_MEMBER_ID."""
    out = CoordinatorResult()
    remove(group, group.find(request.member_id), out, topics)
    out.reply(ticket, HeartbeatOutcome(member_id=request.member_id, epoch=request.epoch))
    return out


def remove(group: ShareGroup, gone: ShareMember, out: CoordinatorResult, topics: TopicsImage) -> None:
    """The member is out, and the group is in its next epoch."""
    group_id = group.group_id
    out.records.extend(member_tombstones(group.kinds, group_id, gone.member_id))
    out.cancel(session_timer(group_id, gone.member_id))
    names = names_after(group.topic_counts, gone.metadata.topic_names, ())
    value = ShareGroupValue(group.epoch + 1, metadata_hash(names, topics))
    out.records.append(ShareGroupMetadataRecord(group_id, value))
    if group.members.keys() == {gone.member_id}:
        out.records.append(emptied(group, value.epoch))


def group_tombstones(group: ShareGroup) -> list[ShareRecord]:
    """Everything that the log has of the group, members first."""
    return [
        *led_tombstones(group),
        ShareGroupStatePartitionMetadataRecord(group.group_id, None),
        ShareGroupMetadataRecord(group.group_id, None),
    ]


def on_session_end(group: ShareGroup, key: TimerKey, topics: TopicsImage) -> CoordinatorResult:
    """A member fell silent."""
    out = CoordinatorResult()
    member = group.members.get(key.member_id)
    if member is not None:
        remove(group, member, out, topics)
    return out


def resume(group: ShareGroup, settings: ShareSettings) -> CoordinatorResult:
    """A new coordinator has read the group from the log: every member gets a fresh session."""
    out = CoordinatorResult()
    for member_id in group.members:
        out.arm(session_timer(group.group_id, member_id), settings.session_timeout_ms)
    return out
