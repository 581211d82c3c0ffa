"""ShareFetch (key 78): a member of a share group acquires records, and may say what became of earlier ones (KIP-932, 1206, 1222).

The declared response serves clients and tests; the broker encodes with share_fetch_response.py, which copies no record.
"""

from __future__ import annotations

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.share_acknowledge import AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint
from barnabas_wire.kafka.primitives import Buffer
from barnabas_wire.kafka.schema import Message, array, boolean, int8, int16, int32, int64, records, string, struct, uuid
from barnabas_wire.lazy_dataclass import dataclass

BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1
"""Modes to acquire in: whole batches, the last of which may pass max_records; or at most max_records."""


@dataclass(slots=True)
class FetchPartition:
    """A partition to fetch, with what became of records of it that were acquired before."""

    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


@dataclass(slots=True)
class FetchTopic:
    """The partitions of one topic."""

    topic_id: Uuid = uuid()
    partitions: list[FetchPartition] = array(FetchPartition)


@dataclass(slots=True)
class ForgottenTopic:
    """Partitions that the session shall fetch no more."""

    topic_id: Uuid = uuid()
    partitions: list[int] = array(int32)


@dataclass(slots=True)
class ShareFetchRequest(Message):
    """Fetch from all partitions of the session, after its changes."""

    API_KEY = ApiKey.SHARE_FETCH
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 2, 0

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    share_session_epoch: int = int32()  # 0 opens a session, -1 ends it
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2147483647)
    max_records: int = int32()  # see the modes
    batch_size: int = int32()  # offsets of an acquired range from which on the next batch begins another
    share_acquire_mode: int = int8("2+")
    is_renew_ack: bool = boolean("2+")  # some type is RENEW: the four limits are 0 and nothing is fetched
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic)


@dataclass(slots=True)
class AcquiredRecords:
    """Offsets that the member has from now on, inclusive at both ends. What the batches hold beside them is others'."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_count: int = int16()


@dataclass(slots=True)
class PartitionData:
    """What a partition gave, and whether its acknowledgements count."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acknowledge_error_code: int = int16()
    acknowledge_error_message: str | None = string(nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)
    records: Buffer = records()
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords)


@dataclass(slots=True)
class ShareFetchableTopicResponse:
    """The partitions of one topic."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@dataclass(slots=True)
class ShareFetchResponse(Message):
    """Partitions with records, acknowledgements or errors; the others are left out."""

    API_KEY = ApiKey.SHARE_FETCH
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 1, 2, 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32()  # how long the acquired records are locked
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
