"""Produce (key 0): append record batches to partitions.

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.primitives import Buffer
from barnabas_wire.kafka.schema import Message, array, int16, int32, int64, records, string, struct, uuid


@dataclass(slots=True)
class PartitionProduceData:
    """Each partition to produce to."""

    index: int = int32()  # The partition index
    records: Buffer | None = records(nullable="0+")  # The record data to be produced


@dataclass(slots=True)
class TopicProduceData:
    """Each topic to produce to."""

    name: str = string("0-12")  # The topic name
    topic_id: Uuid = uuid("13+")  # The unique topic ID
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)  # Each partition to produce to


@dataclass(slots=True)
class ProduceRequest(Message):
    """Produce request.

    Versions 0-2 were removed in Apache Kafka 4.0, version 3 is the new baseline. Due to a bug in librdkafka, these
    versions have to be included in the api versions response (see KAFKA-18659), but are rejected otherwise. See
    `ApiKeys.PRODUCE_API_VERSIONS_RESPONSE_MIN_VERSION` for more details. Version 1 and 2 are the same as version 0.
    Version 3 adds the transactional ID, which is used for authorization when attempting to write transactional
    data. Version 3 also adds support for Kafka Message Format v2. Version 4 is the same as version 3, but the
    requester must be prepared to handle a KAFKA_STORAGE_ERROR. Version 5 and 6 are the same as version 3. Starting
    in version 7, records can be produced using ZStandard compression. See KIP-110. Starting in Version 8, response
    has RecordErrors and ErrorMessage. See KIP-467. Version 9 enables flexible versions. Version 10 is the same as
    version 9 (KIP-951). Version 11 adds support for new error code TRANSACTION_ABORTABLE (KIP-890). Version 12 is
    the same as version 11 (KIP-890). Note when produce requests are used in transaction, if transaction V2 (KIP_890
    part 2) is enabled, the produce request will also include the function for a AddPartitionsToTxn call. If V2 is
    disabled, the client can't use produce request version higher than 11 within a transaction. Version 13 replaces
    topic names with topic IDs (KIP-516). May return UNKNOWN_TOPIC_ID error code.
    """

    API_KEY = ApiKey.PRODUCE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 3, 13, 9

    # The transactional ID, or null if the producer is not transactional
    transactional_id: str | None = string("3+", nullable="3+", default=None)
    # The number of acknowledgments the producer requires the leader to have received before considering a request
    # complete. Allowed values: 0 for no acknowledgments, 1 for only the leader and -1 for the full ISR
    acks: int = int16()
    timeout_ms: int = int32()  # The timeout to await a response in milliseconds
    topic_data: list[TopicProduceData] = array(TopicProduceData)  # Each topic to produce to


@dataclass(slots=True)
class BatchIndexAndErrorMessage:
    """The batch indices of records that caused the batch to be dropped."""

    batch_index: int = int32("8+")  # The batch index of the record that caused the batch to be dropped
    # The error message of the record that caused the batch to be dropped
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


@dataclass(slots=True)
class LeaderIdAndEpoch:
    """The leader broker that the producer should use for future requests."""

    leader_id: int = int32("10+", default=-1)  # The ID of the current leader or -1 if the leader is unknown
    leader_epoch: int = int32("10+", default=-1)  # The latest known leader epoch


@dataclass(slots=True)
class PartitionProduceResponse:
    """Each partition that we produced to within the topic."""

    index: int = int32()  # The partition index
    error_code: int = int16()  # The error code, or 0 if there was no error
    base_offset: int = int64()  # The base offset
    # The timestamp returned by broker after appending the messages. If CreateTime is used for the topic, the
    # timestamp will be -1. If LogAppendTime is used for the topic, the timestamp will be the broker local time when
    # the messages are appended
    log_append_time_ms: int = int64("2+", default=-1)
    log_start_offset: int = int64("5+", default=-1)  # The log start offset
    # The batch indices of records that caused the batch to be dropped
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+")
    # The global error message summarizing the common root cause of the records that caused the batch to be dropped
    error_message: str | None = string("8+", nullable="8+", default=None)
    # The leader broker that the producer should use for future requests
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "10+", tag=0)


@dataclass(slots=True)
class TopicProduceResponse:
    """Each produce response."""

    name: str = string("0-12")  # The topic name
    topic_id: Uuid = uuid("13+")  # The unique topic ID
    # Each partition that we produced to within the topic
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


@dataclass(slots=True)
class NodeEndpoint:
    """Endpoints for all current-leaders enumerated in PartitionProduceResponses, with errors
    NOT_LEADER_OR_FOLLOWER.
    """

    node_id: int = int32("10+")  # The ID of the associated node
    host: str = string("10+")  # The node's hostname
    port: int = int32("10+")  # The node's port
    # The rack of the node, or null if it has not been assigned to a rack
    rack: str | None = string("10+", nullable="10+", default=None)


@dataclass(slots=True)
class ProduceResponse(Message):
    """Produce response.

    Versions 0-2 were removed in Apache Kafka 4.0, version 3 is the new baseline. Due to a bug in librdkafka, these
    versions have to be included in the api versions response (see KAFKA-18659), but are rejected otherwise. See
    `ApiKeys.PRODUCE_API_VERSIONS_RESPONSE_MIN_VERSION` for more details. Version 1 added the throttle time. Version
    2 added the log append time. Version 3 is the same as version 2. Version 4 added KAFKA_STORAGE_ERROR as a
    possible error code. Version 5 added LogStartOffset to filter out spurious OutOfOrderSequenceExceptions on the
    client. Version 8 added RecordErrors and ErrorMessage to include information about records that cause the whole
    batch to be dropped. See KIP-467 for details. Version 9 enables flexible versions. Version 10 adds
    'CurrentLeader' and 'NodeEndpoints' as tagged fields (KIP-951) Version 11 adds support for new error code
    TRANSACTION_ABORTABLE (KIP-890). Version 12 is the same as version 10 (KIP-890). Version 13 replaces topic names
    with topic IDs (KIP-516). May return UNKNOWN_TOPIC_ID error code.
    """

    API_KEY = ApiKey.PRODUCE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 3, 13, 9

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)  # Each produce response
    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32("1+")
    # Endpoints for all current-leaders enumerated in PartitionProduceResponses, with errors NOT_LEADER_OR_FOLLOWER
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)
