"""ConsumerGroupDescribe (key 69): state, epochs and members of groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int8, int16, int32, int64, string, struct, uuid
from barnabas_wire.lazy_dataclass import dataclass

EXPLANATION_TAG = 64
"""The tag of a field of ours, which Kafka's clients and brokers skip."""


@dataclass(slots=True)
class ConsumerGroupDescribeRequest(Message):
    """Ask about groups of the consumer protocol by id."""

    API_KEY = ApiKey.CONSUMER_GROUP_DESCRIBE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()
    explains: bool = boolean(tag=EXPLANATION_TAG)  # ours: why the groups are not stable


@dataclass(slots=True)
class TopicPartitions:
    """Some partitions of a topic."""

    topic_id: Uuid = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


@dataclass(slots=True)
class Assignment:
    """What a member has, or is to have."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@dataclass(slots=True)
class Member:
    """One member; its assignment has what it still has to give up, too."""

    member_id: str = string()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+", default=None)
    assignment: Assignment = struct(Assignment)
    target_assignment: Assignment = struct(Assignment)
    member_type: int = int8("1+", default=-1)  # 0 classic, 1 consumer


@dataclass(slots=True)
class Finding:
    """Ours: one thing that a group waits for, or that is wrong with a member; `kind` says what."""

    kind: str = string()
    member_id: str = string()
    partitions: list[TopicPartitions] = array(TopicPartitions)
    others: list[str] = array(string)  # member ids
    since_ms: int = int64(default=-1)  # for how long; -1: not known
    ends_in_ms: int = int64(default=-1)


@dataclass(slots=True)
class DescribedGroup:
    """What the coordinator knows about one group."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-2147483648)  # bit n: ACL operation n; the default: not asked for
    findings: list[Finding] | None = array(
        Finding, nullable="0+", default=None, tag=EXPLANATION_TAG
    )  # ours; None: not asked for


@dataclass(slots=True)
class ConsumerGroupDescribeResponse(Message):
    """The groups asked about; one of another type is GROUP_ID_NOT_FOUND."""

    API_KEY = ApiKey.CONSUMER_GROUP_DESCRIBE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 1, 0

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
