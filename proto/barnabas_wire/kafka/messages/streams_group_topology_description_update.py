"""StreamsGroupTopologyDescriptionUpdate (key 93): a member describes the application for people to see (KIP-1331)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int8, int16, int32, string, struct
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class TopologyDescriptionNode:
    """A step of the application."""

    name: str = string()
    node_type: int = int8()  # 1 source, 2 processor, 3 sink
    source_topics: list[str] = array(string)
    sink_topic: str | None = string(nullable="0+", default=None)
    stores: list[str] = array(string)
    successors: list[str] = array(string)


@dataclass(slots=True)
class TopologyDescriptionSubtopology:
    """Its steps that are connected."""

    subtopology_id: str = string()
    nodes: list[TopologyDescriptionNode] = array(TopologyDescriptionNode)


@dataclass(slots=True)
class TopologyDescriptionGlobalStore:
    """A store that each instance has whole."""

    source: TopologyDescriptionNode = struct(TopologyDescriptionNode)
    processor: TopologyDescriptionNode = struct(TopologyDescriptionNode)


@dataclass(slots=True)
class TopologyDescription:
    """The application as a graph."""

    subtopologies: list[TopologyDescriptionSubtopology] = array(TopologyDescriptionSubtopology)
    global_stores: list[TopologyDescriptionGlobalStore] = array(TopologyDescriptionGlobalStore)


@dataclass(slots=True)
class StreamsGroupTopologyDescriptionUpdateRequest(Message):
    """Store this description; brokers without a plugin that does so refuse it."""

    API_KEY = ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    group_id: str = string()
    member_id: str = string()
    topology_epoch: int = int32()
    topology_description: TopologyDescription = struct(TopologyDescription)


@dataclass(slots=True)
class StreamsGroupTopologyDescriptionUpdateResponse(Message):
    """Whether it was stored."""

    API_KEY = ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
