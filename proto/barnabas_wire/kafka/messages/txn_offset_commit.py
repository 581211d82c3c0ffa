"""TxnOffsetCommit (key 28): offsets of a group that count once a transaction commits."""

from __future__ import annotations

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, int64, string, uuid
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class TxnOffsetCommitRequestPartition:
    """How far the group will have come in one partition."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("2+", default=-1)  # -1: not known
    committed_metadata: str | None = string(nullable="0+")  # a free note of the client's, kept beside the offset


@dataclass(slots=True)
class TxnOffsetCommitRequestTopic:
    """A topic, with the offsets to keep."""

    name: str = string("0-5")
    topic_id: Uuid = uuid("6+")
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


@dataclass(slots=True)
class TxnOffsetCommitRequest(Message):
    """Store offsets that wait for the transaction's end.

    v3 names the consumer, so that one of an old generation is refused (KIP-447). v5 adds the group's partition to the
    transaction as well (KIP-890); clients of transaction.version 0 and 1 send at most v4. v6 names topics by id (KIP-1319).
    """

    API_KEY = ApiKey.TXN_OFFSET_COMMIT
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 6, 3

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    # who consumed: -1 and "" where the consumer is no member, or the client is too old to say
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)  # null: not a static member
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


@dataclass(slots=True)
class TxnOffsetCommitResponsePartition:
    """Whether one partition's offset was stored."""

    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class TxnOffsetCommitResponseTopic:
    """The outcomes of one topic."""

    name: str = string("0-5")
    topic_id: Uuid = uuid("6+")
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


@dataclass(slots=True)
class TxnOffsetCommitResponse(Message):
    """The outcome by partition. TRANSACTION_ABORTABLE may occur from v4 on (KIP-890), GROUP_ID_NOT_FOUND, STALE_MEMBER_EPOCH and
    UNKNOWN_TOPIC_ID from v6 on."""

    API_KEY = ApiKey.TXN_OFFSET_COMMIT
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 6, 3

    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
