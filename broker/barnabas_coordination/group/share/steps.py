"""The share groups of one partition of `__consumer_offsets`: every request about one finds its group here.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: a group is of one protocol for good; a share group goes by being deleted alone.
Read next:  heartbeat.py, partitions.py, offsets.py, fencing.py for the steps; ../shard.py, which keeps the groups and replays records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from barnabas_coordination.errors import GroupIdNotFound
from barnabas_coordination.group import led_targets
from barnabas_coordination.group.any_group import AnyGroup
from barnabas_coordination.group.led_records import JOINS
from barnabas_coordination.group.share import fencing, offsets, partitions
from barnabas_coordination.group.share.group import ShareGroup, ShareSoftState
from barnabas_coordination.group.share.heartbeat import heartbeat
from barnabas_coordination.group.share.messages import (
    ShareGroupDescription,
    ShareHeartbeat,
    ShareSurroundings,
    StateDone,
    StateWork,
)
from barnabas_coordination.group.share.records import Beginning, ShareRecord
from barnabas_coordination.group.states import TimerKey, TimerKind
from barnabas_coordination.shard import CoordinatorResult, Ticket
from barnabas_coordination.share_group_config import ShareGroupConfig
from barnabas_coordination.share_settings import settings_of
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import Uuid


class ShareGroups:
    """What a shard asks of its share groups."""

    def __init__(
        self,
        config: ShareGroupConfig,
        *,
        groups: Mapping[str, AnyGroup],
        image: Callable[[], MetadataImage],
        on_work: Callable[[str], None],
    ) -> None:
        """`groups`: of every protocol; `on_work` hears of those with something to ask share coordinators."""
        self._config = config
        self._groups = groups
        self._image = image
        self._on_work = on_work

    def get(self, group_id: str) -> ShareGroup:
        """Raises KafkaError GROUP_ID_NOT_FOUND, also for a group of another protocol."""
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup):
            raise GroupIdNotFound(
                f"there is no group {group_id}"
                if group is None
                else f"group {group_id} is of group.protocol={group.type_name}: take another group.id"
            )
        return group

    def refuse_commits(self, group_id: str) -> None:
        """Raises KafkaError GROUP_ID_NOT_FOUND for a share group, which commits no offsets."""
        if isinstance(self._groups.get(group_id), ShareGroup):
            raise GroupIdNotFound(f"group {group_id} is a share group, which commits no offsets")

    def heartbeat(
        self, request: ShareHeartbeat, ticket: Ticket, *, now_ms: int
    ) -> tuple[ShareGroup, CoordinatorResult]:
        """ShareGroupHeartbeat, and its group; a member that joins founds one. Raises KafkaError as heartbeat.heartbeat, and
        GROUP_ID_NOT_FOUND."""
        is_new = request.epoch == JOINS and request.group_id not in self._groups
        group = ShareGroup(request.group_id) if is_new else self.get(request.group_id)
        around = self._around(request.group_id, now_ms)
        if request.epoch < JOINS:
            return group, fencing.leave(group, request, ticket, around.topics)
        return group, heartbeat(group, request, ticket, around)

    def _around(self, group_id: str, now_ms: int) -> ShareSurroundings:
        image = self._image()
        return ShareSurroundings(
            topics=image.topics,
            settings=settings_of(self._config, image, group_id),
            size_max=self._config.group_share_max_size,
            now_ms=now_ms,
        )

    def alter(
        self, group_id: str, starts: Mapping[Uuid, Beginning], ticket: Ticket
    ) -> tuple[ShareGroup, CoordinatorResult]:
        """AlterShareGroupOffsets, and its group, which may be a new one. Raises KafkaError as offsets.alter, and GROUP_ID_NOT_FOUND for
        a group of another protocol."""
        group = self.get(group_id) if group_id in self._groups else ShareGroup(group_id)
        return group, offsets.alter(group, starts, ticket)

    def forget(self, group_id: str, topic_ids: Collection[Uuid], ticket: Ticket) -> CoordinatorResult:
        """DeleteShareGroupOffsets. Raises KafkaError as offsets.forget, and GROUP_ID_NOT_FOUND."""
        return offsets.forget(self.get(group_id), topic_ids, ticket)

    def describe(self, group_id: str) -> ShareGroupDescription:
        """Raises KafkaError GROUP_ID_NOT_FOUND."""
        return offsets.describe(self.get(group_id), self._config.group_share_assignors[0])

    # ---- share coordinators --------------------------------------------------------------------------------------

    def take_work(self, group_id: str) -> StateWork | None:
        """What is to be asked for a group: see partitions.take_work; None where it went meanwhile."""
        group = self._groups.get(group_id)
        return partitions.take_work(group, self._image().topics) if isinstance(group, ShareGroup) else None

    def finish_work(self, group_id: str, done: StateDone) -> CoordinatorResult:
        """What came of it."""
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return CoordinatorResult()
        return partitions.done(group, done, retry_ms=self._config.group_share_initialize_retry_interval_ms)

    def note_work(self, group_id: str) -> None:
        """The log has what a group wants of share coordinators, if there is something."""
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup) and partitions.has_work(group):
            self._on_work(group_id)

    def on_topics_deleted(self, topics: Collection[str]) -> list[ShareRecord]:
        """The records without the share states that went with these topics."""
        image, records = self._image(), []
        for group in self._groups.values():
            if isinstance(group, ShareGroup):
                left = partitions.without_topics(group.states, topics, image.topics)
                if left != group.states:
                    records.append(partitions.states_record(group, left))
        return records

    def on_refused(
        self, soft: ShareSoftState, group_id: str, records: Iterable[Any], out: CoordinatorResult, error: KafkaError
    ) -> None:
        """Records of a group could not be appended: requests that wait for them are refused, the rest is tried
        again."""
        partitions.on_refused(soft, records, out, error)
        out.arm(partitions.state_timer(group_id), self._config.group_share_initialize_retry_interval_ms)

    # ---- time ----------------------------------------------------------------------------------------------------

    def resume(self, group: ShareGroup, out: CoordinatorResult) -> None:
        """A new coordinator has read the group."""
        out.timers.extend(fencing.resume(group, settings_of(self._config, self._image(), group.group_id)).timers)
        partitions.resume(group, out)

    def on_timer(self, group: ShareGroup, key: TimerKey, *, now_ms: int) -> CoordinatorResult:
        """A session is over, targets are in the making, or it is time to ask share coordinators again."""
        if key.kind is TimerKind.SESSION:
            return fencing.on_session_end(group, key, self._image().topics)
        if key.kind is TimerKind.STATE:
            result = partitions.retry(group)
            if not result.records:
                self.note_work(group.group_id)
            return result
        result = CoordinatorResult()
        if key.kind is TimerKind.TARGET:
            led_targets.on_slice(group, key, result, now_ms=now_ms)
        return result
