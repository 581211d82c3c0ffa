"""DescribeQuorum (key 55): state of the metadata quorum (KIP-595, KIP-836, KIP-853)."""

from __future__ import annotations

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, int64, string, uint16, uuid
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class DescribeQuorumRequestPartitionData:
    """A partition asked about; the quorum keeps only 0."""

    partition_index: int = int32()


@dataclass(slots=True)
class DescribeQuorumRequestTopicData:
    """A topic asked about; the quorum keeps only __cluster_metadata."""

    topic_name: str = string()
    partitions: list[DescribeQuorumRequestPartitionData] = array(DescribeQuorumRequestPartitionData)


@dataclass(slots=True)
class DescribeQuorumRequest(Message):
    """Ask for voters, observers and how far each has come. Only the answer changes between versions."""

    API_KEY = ApiKey.DESCRIBE_QUORUM
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 0

    topics: list[DescribeQuorumRequestTopicData] = array(DescribeQuorumRequestTopicData)


@dataclass(slots=True)
class ReplicaState:
    """How far a voter or observer has come, as its leader sees it."""

    replica_id: int = int32()
    replica_directory_id: Uuid = uuid("2+")
    log_end_offset: int = int64()  # -1: not known yet
    # Both in ms by the leader's clock, -1 while not known. The first is -1 for the leader itself, the second is now.
    last_fetch_timestamp: int = int64("1+", default=-1)
    last_caught_up_timestamp: int = int64("1+", default=-1)


@dataclass(slots=True)
class PartitionData:
    """Leader, epoch, HW and members of the quorum."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", default=None)
    leader_id: int = int32()  # -1: none known
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


@dataclass(slots=True)
class TopicData:
    """The answer for one topic."""

    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


@dataclass(slots=True)
class Listener:
    """Where a controller of the quorum can be reached."""

    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


@dataclass(slots=True)
class Node:
    """A member of the quorum, with its addresses."""

    node_id: int = int32("2+")
    listeners: list[Listener] = array(Listener, "2+")


@dataclass(slots=True)
class DescribeQuorumResponse(Message):
    """The quorum's state. v1 says when each replica last fetched (KIP-836), v2 directory ids and addresses (KIP-853)."""

    API_KEY = ApiKey.DESCRIBE_QUORUM
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 0

    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", default=None)
    topics: list[TopicData] = array(TopicData)
    nodes: list[Node] = array(Node, "2+")
