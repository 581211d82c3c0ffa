"""What replication refuses, one class per Kafka error code that callers distinguish.

May touch:  barnabas_wire.kafka.errors.            Must not touch: everything else.
Invariants: the code sits on the class; messages are for people and name the partition.
Read next:  partition.py, which raises most of them; barnabas_log.errors for what the log below refuses.
"""

from __future__ import annotations

from barnabas_wire.kafka.errors import ErrorCode, KafkaError


class UnknownTopicOrPartition(KafkaError):
    """Neither hosted here nor in the metadata image."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class NotLeaderOrFollower(KafkaError):
    """This broker does not lead the partition, or the asking replica is not one of its followers."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class FencedLeaderEpoch(KafkaError):
    """The caller knows an older leader epoch than ours: it must refresh its metadata."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpoch(KafkaError):
    """The caller knows a newer leader epoch than ours: our metadata is behind."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class NotEnoughReplicas(KafkaError):
    """acks=all with fewer in-sync replicas than min.insync.replicas, or records to delete while an eligible one is away: nothing was
    written or deleted."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class NotEnoughReplicasAfterAppend(KafkaError):
    """The ISR fell below min.insync.replicas after the write: the records are in the log and may yet commit."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class RequestTimedOut(KafkaError):
    """The high watermark did not pass the records in time: they are in the log and may yet commit."""

    code = ErrorCode.REQUEST_TIMED_OUT


class DeletionTimedOut(KafkaError):
    """A replica that lives or may be elected has not moved its log start in time; the leader has, and the replica will."""

    code = ErrorCode.REQUEST_TIMED_OUT


class OffsetNotAvailable(KafkaError):
    """A new leader's high watermark has not reached its epoch yet (KIP-207): ask again shortly."""

    code = ErrorCode.OFFSET_NOT_AVAILABLE


class InternalTopic(KafkaError):
    """A client may neither write to nor shorten a topic of the system."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class InvalidRequiredAcks(KafkaError):
    """acks is none of -1, 0 and 1."""

    code = ErrorCode.INVALID_REQUIRED_ACKS
