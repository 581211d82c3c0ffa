"""What can go wrong with a log, by class and with its code."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas_wire.kafka.errors import ErrorCode, KafkaError


class OffsetOutOfRange(KafkaError):
    """The offset lies before the log's start or after its end."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class BatchTooLarge(KafkaError):
    """A batch is larger than max.message.bytes."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class BatchPassesSegment(KafkaError):
    """A batch is larger than a whole segment may be."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE


class InvalidBatch(KafkaError):
    """A whole, checksummed batch that says something no producer may say."""

    code = ErrorCode.INVALID_RECORD

    def __init__(self, message: str, *, records: Sequence[int] = ()) -> None:
        """records: the indexes of the invalid records in the batch, ascending; none where the error concerns the whole batch, or too
        many records to name (KIP-467)."""
        super().__init__(message)
        self.records = records


class KeylessRecords(InvalidBatch):
    """Records without a key, which a compacted topic could never let go of."""


class NotOneBatch(KafkaError):
    """Not exactly one whole v2 batch: none, several, one that is cut off, or one of an older format."""

    code = ErrorCode.INVALID_RECORD


class InvalidTimestamp(KafkaError):
    """A timestamp too far from the broker's clock for message.timestamp.{before,after}.max.ms."""

    code = ErrorCode.INVALID_TIMESTAMP


class InvalidTransactionState(KafkaError):
    """A batch and the producer's transaction do not go together: it is not verified, or the batch is not of it."""

    code = ErrorCode.INVALID_TXN_STATE


class TransactionCoordinatorFenced(KafkaError):
    """A marker from a transaction coordinator that another has replaced."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class OutOfOrderSequence(KafkaError):
    """An idempotent producer left a gap, or repeats a batch older than the last five."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpoch(KafkaError):
    """A producer that a newer epoch has fenced."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class ProducersInDoubt(KafkaError):
    """Damage hides what producers wrote: whether this batch is a repeat is not known until the log is repaired. To be sent again."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class StorageFailed(KafkaError):
    """The disk under this log has failed; the log takes nothing more until the process starts again."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class DiskFull(StorageFailed):
    """The disk under this log is full, or a quota is: nothing is lost, and it takes records again once there is room."""


class OutOfDescriptors(KafkaError):
    """The process has no file descriptor left. Nothing was changed and the disk is well: to be tried again later."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class DirectoryLocked(KafkaError):
    """Another process serves this directory."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class InconsistentTopicId(KafkaError):
    """A directory of the asked name belongs to another incarnation of the topic."""

    code = ErrorCode.INCONSISTENT_TOPIC_ID


class InvalidLogConfig(KafkaError):
    """A topic or broker key with a value that cannot be used; the message names key and fix."""

    code = ErrorCode.INVALID_CONFIG


class CorruptCheckpoint(KafkaError):
    """A checkpoint, index or snapshot file that is not what was written."""

    code = ErrorCode.KAFKA_STORAGE_ERROR
