"""WriteTxnMarkers v1-2: a transaction's coordinator, or an operator, has the leaders of its partitions end it.

May touch:  the replica manager, the group coordinator.    Must not touch: logs, transactions' states.
Invariants: every partition of a request is answered once, when its marker is replicated or was refused; none waits for another.
Read next:  barnabas_coordination/transaction/markers.py, who sends; barnabas_replication/leader/appends.py (`append_marker`).

Behaviour: a marker for a partition of __consumer_offsets goes by the group coordinator, which applies or drops the offsets of the
transaction with it. v2 names the transaction's version (KIP-1228): a marker of version 2 has an epoch above its records'.
"""

from __future__ import annotations

import asyncio
from typing import Final

from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.registry import PARTITIONS_BYTES_MAX, handles
from barnabas_broker.api.services import BrokerServices
from barnabas_coordination.group.service import OFFSETS_TOPIC
from barnabas_coordination.shard import Marker
from barnabas_quorum.image.rights import ALTER, CLUSTER, CLUSTER_ACTION
from barnabas_replication.requests import TransactionMarker
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

APPEND_TIMEOUT_MS: Final = 30_000
"""How long a marker waits to be replicated; then its coordinator sends it again."""


def _not_written(request: WriteTxnMarkersRequest, error: KafkaError) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        [
            _result(marker, [error.code for topic in marker.topics for _ in topic.partition_indexes])
            for marker in request.markers
        ]
    )


MARKED_PARTITIONS_MAX = 16_384
"""Partitions that one request may name: each is a separate append, all begin in one turn. A coordinator of ours sends
2,000."""


@handles(
    ApiKey.WRITE_TXN_MARKERS,
    versions=(1, 2),
    on_error=_not_written,
    request_bytes_max=PARTITIONS_BYTES_MAX,
    elements_max=MARKED_PARTITIONS_MAX,
)
async def write_txn_markers(
    services: BrokerServices, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Write every marker that this broker leads the partition of."""
    if not context.access.may(ALTER, CLUSTER, is_noted=False):
        context.access.require(CLUSTER_ACTION, CLUSTER)
    written = await asyncio.gather(
        *(
            _write(services, marker, TopicPartition(topic.name, index))
            for marker in request.markers
            for topic in marker.topics
            for index in topic.partition_indexes
        )
    )
    codes = iter(written)
    return WriteTxnMarkersResponse(
        [
            _result(marker, [next(codes) for topic in marker.topics for _ in topic.partition_indexes])
            for marker in request.markers
        ]
    )


async def _write(services: BrokerServices, marker: WritableTxnMarker, key: TopicPartition) -> ErrorCode:
    fields = (
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.transaction_result,
        marker.transaction_version,
    )
    try:
        if key.topic == OFFSETS_TOPIC:
            # Judged and appended in one turn of the loop: nothing can come between.
            services.replica_manager.appends.check_marker(key, TransactionMarker(*fields))
            await services.groups.end_transaction(key.partition, Marker(*fields))
        else:
            led = services.replica_manager.hosted.leader_partition(key)
            await services.replica_manager.appends.append_marker(
                key, TransactionMarker(*fields), leader_epoch=led.leader_epoch, timeout_ms=APPEND_TIMEOUT_MS
            )
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _result(marker: WritableTxnMarker, codes: list[ErrorCode]) -> WritableTxnMarkerResult:
    left = iter(codes)
    return WritableTxnMarkerResult(
        marker.producer_id,
        [
            WritableTxnMarkerTopicResult(
                topic.name, [WritableTxnMarkerPartitionResult(index, next(left)) for index in topic.partition_indexes]
            )
            for topic in marker.topics
        ],
    )
