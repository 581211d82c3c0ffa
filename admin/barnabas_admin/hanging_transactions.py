"""Hanging transactions: open in a partition, and no coordinator will ever end them (KIP-664). Find them, end them.

May touch:  barnabas_wire.client.     Must not touch: printing.
Invariants: only what is open for longer than any transaction may be is suspected; what is called hanging is unknown to the coordinator
            of its producer as of a moment after it was seen open; an abort goes to the leader of the one partition that was named.
Read next:  commands/txn.py; broker/api/producers.py, which reports what is open.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas_admin.errors import AdminError
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.client.metadata import ClusterView, known_code
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas_wire.kafka.messages.describe_transactions import DescribeTransactionsRequest
from barnabas_wire.kafka.messages.list_transactions import ListTransactionsRequest
from barnabas_wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

TRANSACTION_KEY_TYPE = 1
GRACE_MS = 5 * 60_000
"""Beyond the longest time-out: a coordinator may take this long to end what it has decided. As Kafka's tool."""
PARTITIONS_PER_REQUEST = 1_000


class OpenTransaction(NamedTuple):
    """A transaction as one partition knows it."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """The epoch of the last marker that the producer got here; -1: none yet."""
    start_offset: int
    last_timestamp_ms: int
    """When the producer wrote here last."""


def suspects(found: Iterable[OpenTransaction], *, now_ms: int, timeout_max_ms: int) -> list[OpenTransaction]:
    """Those that have been open for longer than any transaction may be.

    timeout_max_ms: transaction.max.timeout.ms of the brokers.
    """
    return [each for each in found if now_ms - each.last_timestamp_ms > timeout_max_ms + GRACE_MS]


def hanging(
    suspected: Iterable[OpenTransaction],
    ids: Mapping[int, str],
    partitions: Mapping[str, frozenset[TopicPartition]],
) -> list[OpenTransaction]:
    """Those that no coordinator will end.

    Args:
        ids: transactional ids by producer id, as all coordinators list them.
        partitions: of each id's open transaction, by transactional id.
    """
    return [each for each in suspected if each.partition not in partitions.get(ids.get(each.producer_id, ""), ())]


async def open_transactions(
    client: ClusterClient, wanted: Sequence[TopicPartition], view: ClusterView
) -> list[OpenTransaction]:
    """What is open in these partitions, as their leaders report. Raises KafkaError, OSError, TimeoutError."""
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for partition in wanted:
        by_leader[view.leader(partition).id].append(partition)
    found: list[OpenTransaction] = []
    for broker_id, share in sorted(by_leader.items()):
        for first in range(0, len(share), PARTITIONS_PER_REQUEST):
            topics: dict[str, list[int]] = defaultdict(list)
            for topic, number in share[first : first + PARTITIONS_PER_REQUEST]:
                topics[topic].append(number)
            request = DescribeProducersRequest(topics=[TopicRequest(name, numbers) for name, numbers in topics.items()])
            answer = await client.call(request, broker_id=broker_id)
            for topic in answer.topics:
                for entry in topic.partitions:
                    key = TopicPartition(topic.name, entry.partition_index)
                    if entry.error_code:
                        raise KafkaError.of(known_code(entry.error_code), f"{key}: {entry.error_message or 'refused'}")
                    found += [
                        OpenTransaction(
                            key,
                            producer.producer_id,
                            producer.producer_epoch,
                            producer.coordinator_epoch,
                            producer.current_txn_start_offset,
                            producer.last_timestamp,
                        )
                        for producer in entry.active_producers
                        if producer.current_txn_start_offset >= 0
                    ]
    return sorted(found)


async def find_hanging(
    client: ClusterClient,
    wanted: Sequence[TopicPartition],
    view: ClusterView,
    *,
    now_ms: int,
    timeout_max_ms: int,
) -> list[OpenTransaction]:
    """The hanging ones in these partitions. Raises KafkaError, OSError, TimeoutError."""
    found = suspects(await open_transactions(client, wanted, view), now_ms=now_ms, timeout_max_ms=timeout_max_ms)
    if not found:
        return []
    request = ListTransactionsRequest(producer_id_filters=sorted({each.producer_id for each in found}))
    ids: dict[int, str] = {}
    for broker_id in sorted(view.brokers):
        answer = await client.call(request, broker_id=broker_id)
        if answer.error_code:
            raise KafkaError.of(known_code(answer.error_code), f"listing the transactions of broker {broker_id}")
        ids.update((entry.producer_id, entry.transactional_id) for entry in answer.transaction_states)
    partitions: dict[str, frozenset[TopicPartition]] = {}
    for transactional_id in sorted(set(ids.values())):
        describe = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        answer = await client.call_coordinator(transactional_id, describe, key_type=TRANSACTION_KEY_TYPE)
        (state,) = answer.transaction_states
        if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:  # it expired meanwhile
            continue
        if state.error_code:
            raise KafkaError.of(known_code(state.error_code), f"describing transactional id {transactional_id}")
        partitions[transactional_id] = frozenset(
            TopicPartition(topic.topic, number) for topic in state.topics for number in topic.partitions
        )
    return hanging(found, ids, partitions)


async def abort(client: ClusterClient, each: OpenTransaction, view: ClusterView) -> None:
    """Write the marker that ends it to its partition. Raises KafkaError, OSError, TimeoutError."""
    marker = WritableTxnMarker(
        producer_id=each.producer_id,
        producer_epoch=each.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(each.partition.topic, [each.partition.partition])],
        coordinator_epoch=max(0, each.coordinator_epoch),
    )
    answer = await client.call(WriteTxnMarkersRequest(markers=[marker]), broker_id=view.leader(each.partition).id)
    ((result,),) = [topic.partitions for written in answer.markers for topic in written.topics]
    if result.error_code:
        code = known_code(result.error_code)
        hint = "look again: `barnabas txn find-hanging`; another has ended it, or its coordinator has"
        raise AdminError(f"{each.partition} did not take the marker: {code.name}", code=code, hint=hint)
