"""Transactions in two phases, for code without a loop: begin, prepare, decide, and find what nobody decided on.

May touch:  sockets (through blocking.py).    Must not touch: asyncio, threads.
Invariants: every call may be repeated until it is answered; what is prepared is ended by `end` alone; nobody's transaction is ended
    but by its own id and epoch.
Read next:  producer.py, which writes in a transaction; broker/barnabas_coordination/transaction/state.py, the rules.

A transaction begins with its first batch (KIP-890, transaction.version 2), so there is nothing to ask for in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from barnabas_wire.client.blocking import BlockingCluster
from barnabas_wire.client.producer import ProducerIdentity
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.describe_transactions import DescribeTransactionsRequest
from barnabas_wire.kafka.messages.end_txn import EndTxnRequest
from barnabas_wire.kafka.messages.init_producer_id import InitProducerIdRequest
from barnabas_wire.kafka.messages.list_transactions import ListTransactionsRequest
from barnabas_wire.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas_wire.kafka.messages.prepare_txn import PrepareTxnRequest
from barnabas_wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

TRANSACTION_KEY_TYPE = 1
TRANSACTION_VERSION = "transaction.version"
EPOCH_PER_TRANSACTION = 2
"""The transaction.version from which on a write adds its partition, and every end raises the epoch."""
END_VERSION, PRODUCE_VERSION = 5, 12
"""The first versions of EndTxn and Produce that speak it."""
SINGLE_GROUP_VERSION_MAX = 7
COMMIT_BY_NAME_VERSION_MAX = 5
"""From version 6 on TxnOffsetCommit names topics by id."""
ONGOING, PREPARED = "Ongoing", "Prepared"
OPEN_STATES = (ONGOING, PREPARED)


class HeldId(NamedTuple):
    """A transactional id, who has it, and in which state."""

    transactional_id: str
    producer: ProducerIdentity
    state: str


class CommittedOffset(NamedTuple):
    """What a group has committed for a partition."""

    offset: int
    metadata: str


def two_phase_obstacle(cluster: BlockingCluster) -> str | None:
    """Why the brokers cannot prepare transactions; None when they can. Raises KafkaError, OSError."""
    connection = cluster.any_connection()
    if ApiKey.PREPARE_TXN not in connection.ranges:
        return (
            "the brokers do not prepare transactions (PrepareTxn): they are not Barnabas, or barnabas.two.phase.version is 0, then "
            "`barnabas cluster features upgrade --feature barnabas.two.phase.version=1`"
        )
    level = connection.features.get(TRANSACTION_VERSION, 0)
    if level < EPOCH_PER_TRANSACTION:
        return (
            f"{TRANSACTION_VERSION} is {level}: `barnabas cluster features upgrade --feature {TRANSACTION_VERSION}=2`"
        )
    return None


def begin(cluster: BlockingCluster, transactional_id: str, *, timeout_ms: int) -> ProducerIdentity:
    """Take a transactional id: whoever had it is fenced, and what it left unprepared is aborted.

    timeout_ms: how long a transaction may be open before it is prepared. Raises KafkaError INVALID_TXN_STATE when one is prepared.
    """
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    answer = cluster.call_coordinator(transactional_id, request, key_type=TRANSACTION_KEY_TYPE)
    return ProducerIdentity(answer.producer_id, answer.producer_epoch)


def prepare(cluster: BlockingCluster, transactional_id: str, producer: ProducerIdentity) -> None:
    """Leave the transaction to whoever decides on it; everything in it must be acknowledged. Raises KafkaError."""
    request = PrepareTxnRequest(
        transactional_id=transactional_id, producer_id=producer.id, producer_epoch=producer.epoch
    )
    cluster.call_coordinator(transactional_id, request, key_type=TRANSACTION_KEY_TYPE)


def end(cluster: BlockingCluster, transactional_id: str, producer: ProducerIdentity, *, is_commit: bool) -> None:
    """Decide. Asked again for the last transaction of the id, it is answered again.

    Raises KafkaError: INVALID_TXN_STATE when it was decided the other way, PRODUCER_FENCED, INVALID_PRODUCER_ID_MAPPING.
    """
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        committed=is_commit,
    )

    def code(answer: object) -> int:
        found = int(getattr(answer, "error_code", 0))
        # An end that is under way the way it is wanted is as good as done: its markers go out by themselves.
        return 0 if found == ErrorCode.CONCURRENT_TRANSACTIONS else found

    cluster.call_coordinator(transactional_id, request, key_type=TRANSACTION_KEY_TYPE, find=code)


def holder(cluster: BlockingCluster, transactional_id: str) -> HeldId | None:
    """Who has a transactional id now; None for one that is not known. The first who asks has the coordinators' topic made."""

    def code(answer: object) -> int:
        found = int(answer.transaction_states[0].error_code)  # type: ignore[attr-defined]
        return 0 if found == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND else found

    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    answer = cluster.call_coordinator(transactional_id, request, key_type=TRANSACTION_KEY_TYPE, find=code)
    (state,) = answer.transaction_states
    if state.error_code:
        return None
    producer = ProducerIdentity(state.producer_id, state.producer_epoch)
    return HeldId(transactional_id, producer, state.transaction_state)


def open_transactions(cluster: BlockingCluster, wanted: Callable[[str], bool]) -> list[HeldId]:
    """Those that nobody has decided on and whose transactional id is wanted. Asks every broker. Raises KafkaError, OSError."""
    names: set[str] = set()
    for broker in cluster.metadata([]).brokers.values():
        answer = cluster.call_checked(ListTransactionsRequest(state_filters=list(OPEN_STATES)), broker=broker)
        names |= {entry.transactional_id for entry in answer.transaction_states if wanted(entry.transactional_id)}
    found = []
    for name in sorted(names):
        held = holder(cluster, name)
        if held is not None and held.state in OPEN_STATES:
            found.append(held)
    return found


def commit_offsets(
    cluster: BlockingCluster,
    transactional_id: str,
    producer: ProducerIdentity,
    group: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
) -> None:
    """Offsets of a group that count once the transaction commits. Raises KafkaError."""
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, index), found in offsets.items():
        topics.setdefault(topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=found.offset, committed_metadata=found.metadata
            )
        )
    request = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )

    def code(answer: object) -> int:
        topics = answer.topics  # type: ignore[attr-defined]
        return next((entry.error_code for topic in topics for entry in topic.partitions if entry.error_code), 0)

    cluster.call_coordinator(group, request, version_max=COMMIT_BY_NAME_VERSION_MAX, find=code)


def stable_offsets(
    cluster: BlockingCluster, group: str, topic: str, partitions: Sequence[int]
) -> dict[int, CommittedOffset]:
    """What the group has committed, once no transaction may change it any more. Raises KafkaError."""
    request = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequestTopic(topic, list(partitions))], require_stable=True
    )

    def code(answer: object) -> int:
        top = int(answer.error_code)  # type: ignore[attr-defined]
        topics = answer.topics  # type: ignore[attr-defined]
        return top or next((entry.error_code for each in topics for entry in each.partitions if entry.error_code), 0)

    answer = cluster.call_coordinator(group, request, version_max=SINGLE_GROUP_VERSION_MAX, find=code)
    return {
        entry.partition_index: CommittedOffset(entry.committed_offset, entry.metadata or "")
        for each in answer.topics
        for entry in each.partitions
        if entry.committed_offset >= 0
    }
