"""What a step of a group has around it: the metadata of now, and what the group's configs say.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: read again for each step: nothing here outlives one.
Read next:  consumer/messages.py and streams/messages.py, which say what of it a step needs.
"""

from __future__ import annotations

from barnabas_coordination.config import GroupCoordinatorConfig
from barnabas_coordination.group.consumer.messages import Surroundings
from barnabas_coordination.group.consumer.settings import settings_of
from barnabas_coordination.group.streams.messages import StreamsSurroundings
from barnabas_coordination.group.streams.settings import settings_of as streams_settings_of
from barnabas_quorum.image.configs import ConfigResource
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.records import ConfigResourceType


def around_consumers(
    config: GroupCoordinatorConfig, image: MetadataImage, group_id: str, *, now_ms: int
) -> Surroundings:
    """What a step of a consumer group reads."""
    return Surroundings(
        topics=image.topics,
        brokers=image.cluster.brokers,
        metadata_offset=image.offset,
        settings=settings_of(config, image.configs.get(ConfigResource(ConfigResourceType.GROUP, group_id))),
        default_assignor=config.group_consumer_assignors[0],
        size_max=config.group_consumer_max_size,
        regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
        now_ms=now_ms,
    )


def around_streams(
    config: GroupCoordinatorConfig, image: MetadataImage, group_id: str, *, now_ms: int
) -> StreamsSurroundings:
    """What a step of a Streams group reads."""
    overrides = image.configs.get(ConfigResource(ConfigResourceType.GROUP, group_id))
    return StreamsSurroundings(
        topics=image.topics,
        settings=streams_settings_of(config, overrides),
        size_max=config.group_streams_max_size,
        now_ms=now_ms,
    )
