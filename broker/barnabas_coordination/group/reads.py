"""What others read of the groups of one partition: lists and descriptions.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: nothing here changes a group; a forgettable group is not reported.
Read next:  shard.py, whose groups these are; consumer/description.py, streams/description.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas_coordination.config import GroupCoordinatorConfig
from barnabas_coordination.errors import GroupIdNotFound
from barnabas_coordination.group.any_group import AnyGroup
from barnabas_coordination.group.classic import ClassicGroup
from barnabas_coordination.group.committed_offsets import CommittedOffsets
from barnabas_coordination.group.consumer import target
from barnabas_coordination.group.consumer.description import describe as describe_consumers
from barnabas_coordination.group.consumer.explanation import explain
from barnabas_coordination.group.consumer.group import ConsumerGroup
from barnabas_coordination.group.consumer.messages import ConsumerGroupDescription
from barnabas_coordination.group.messages import GroupDescription, GroupListing
from barnabas_coordination.group.streams.description import describe as describe_streams
from barnabas_coordination.group.streams.group import StreamsGroup
from barnabas_coordination.group.streams.messages import StreamsGroupDescription
from barnabas_coordination.group.surroundings import around_consumers
from barnabas_quorum.image.metadata import MetadataImage


class GroupReads:
    """Reads the groups of one shard."""

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        *,
        image: Callable[[], MetadataImage],
        groups: Mapping[str, AnyGroup],
        offsets: CommittedOffsets,
    ) -> None:
        self._config = config
        self._image = image
        self._groups = groups
        self._offsets = offsets

    def is_forgettable(self, group: AnyGroup) -> bool:
        """Whether it may be left out: it has no members, no offsets and no record."""
        if not isinstance(group, ClassicGroup):
            return False  # the log has it
        return group.is_vacant and not self._offsets.is_used(group.group_id)

    def existing(self, group_id: str) -> AnyGroup:
        """The group. Raises KafkaError GROUP_ID_NOT_FOUND."""
        group = self._groups.get(group_id)
        if group is None or self.is_forgettable(group):
            raise GroupIdNotFound(f"there is no group {group_id}")
        return group

    def all(self) -> list[AnyGroup]:
        """Every group here, by id, to be read only."""
        return [group for _, group in sorted(self._groups.items()) if not self.is_forgettable(group)]

    def listings(self) -> list[GroupListing]:
        """The same, as they are listed."""
        return [
            GroupListing(group.group_id, group.protocol_type or "", group.state.value, group.type_name)
            for group in self.all()
        ]

    def describe(self, group_id: str) -> GroupDescription:
        """One classic group. Raises KafkaError GROUP_ID_NOT_FOUND."""
        group = self.existing(group_id)
        if not isinstance(group, ClassicGroup):
            raise GroupIdNotFound(f"group {group_id} is not a classic group")
        return group.describe()

    def describe_consumers(self, group_id: str, *, explains: bool = False, now_ms: int = 0) -> ConsumerGroupDescription:
        """One group of the consumer protocol, with findings where it is to be explained. Raises KafkaError GROUP_ID_NOT_FOUND."""
        group = self.existing(group_id)
        if not isinstance(group, ConsumerGroup):
            raise GroupIdNotFound(f"group {group_id} is not a consumer group")
        around = around_consumers(self._config, self._image(), group_id, now_ms=now_ms)
        findings = explain(group, around) if explains else ()
        return describe_consumers(group, target.assignor_name(group, around.default_assignor), findings)

    def describe_streams(self, group_id: str) -> StreamsGroupDescription:
        """One Streams group. Raises KafkaError GROUP_ID_NOT_FOUND."""
        group = self.existing(group_id)
        if not isinstance(group, StreamsGroup):
            raise GroupIdNotFound(f"group {group_id} is not a Streams group")
        return describe_streams(group, self._config.group_streams_assignors[0], self._image().topics)
