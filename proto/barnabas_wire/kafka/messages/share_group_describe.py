"""ShareGroupDescribe (key 77): state, epochs and members of share groups (KIP-932)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.consumer_group_describe import EXPLANATION_TAG, Assignment, TopicPartitions
from barnabas_wire.kafka.schema import Message, array, boolean, int16, int32, string, struct
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class ShareGroupDescribeRequest(Message):
    """Ask about share groups by id."""

    API_KEY = ApiKey.SHARE_GROUP_DESCRIBE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 1, 0

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


@dataclass(slots=True)
class Member:
    """One member. Several may have the same partition."""

    member_id: str = string()
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    assignment: Assignment = struct(Assignment)


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
    beginning: list[TopicPartitions] | None = array(
        TopicPartitions, nullable="0+", default=None, tag=EXPLANATION_TAG
    )  # ours: without a share state yet, so not assigned


@dataclass(slots=True)
class ShareGroupDescribeResponse(Message):
    """The groups asked about; one of another type is GROUP_ID_NOT_FOUND."""

    API_KEY = ApiKey.SHARE_GROUP_DESCRIBE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 1, 0

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
