"""AddPartitionsToTxn v0-5, AddOffsetsToTxn v0-4, EndTxn v0-5, TxnOffsetCommit v0-6, DescribeTransactions v0, ListTransactions v0-2,
PrepareTxn v0 (our own).

May touch:  the transaction coordinator, the group coordinator, the image (which topics exist).    Must not touch: their state, logs.
Invariants: every topic and partition of a request is answered once, in its order; an answer to EndTxn leaves once the end is decided
            for good, before its markers.
Read next:  barnabas_coordination/transaction/state.py (the rules and their codes), writes.py beside it,
            init_producer_id.py.

Behaviour: AddPartitionsToTxn comes from clients up to v3 and from brokers from v4 on, with many transactions, to add (the client
speaks transaction.version 2) or only to ask (`verify_only`). One unknown partition fails all of a client's, the others with
OPERATION_NOT_ATTEMPTED; of a broker's, the others are added. No partition is added that this broker's metadata does not have: its
marker would count as written, as that of a deleted one does. PRODUCER_FENCED is INVALID_PRODUCER_EPOCH for clients from before it
(v0-1). EndTxn v5 and TxnOffsetCommit v5 are those of transaction.version 2. A group's partition of __consumer_offsets is confirmed
with the transaction's coordinator before offsets are committed, and added to the transaction by v5. TxnOffsetCommit v6 names topics
by id, and knows the codes of the consumer protocol (KIP-1319).
A pattern of ListTransactions v2 that is none is INVALID_REGULAR_EXPRESSION for the request as a whole; an empty one is no filter.
Differences from Kafka: such a pattern must fit 256 KiB once compiled (id_pattern.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Sequence
from typing import Final

from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.offsets import committed_before, find_topic, note_commit
from barnabas_broker.api.registry import PARTITION_ELEMENTS_MAX, PARTITIONS_BYTES_MAX, handles
from barnabas_broker.api.services import BrokerServices
from barnabas_coordination.errors import CoordinatorNotAvailable
from barnabas_coordination.group.messages import MemberRef, OffsetCommit, OffsetToCommit
from barnabas_coordination.group.service import OFFSETS_TOPIC
from barnabas_coordination.shard import Writer
from barnabas_coordination.transaction.id_pattern import compile_id_pattern
from barnabas_coordination.transaction.state import BY_TITLE, CLASSIC, EPOCH_PER_TRANSACTION, Producer
from barnabas_quorum.image.rights import (
    CLUSTER,
    CLUSTER_ACTION,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    TWO_PHASE_COMMIT,
    WRITE,
)
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Epoch, Offset, TopicPartition
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas_wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from barnabas_wire.kafka.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from barnabas_wire.kafka.messages.describe_transactions import TransactionState as DescribedTransaction
from barnabas_wire.kafka.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas_wire.kafka.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas_wire.kafka.messages.list_transactions import TransactionState as ListedTransaction
from barnabas_wire.kafka.messages.prepare_txn import PrepareTxnRequest, PrepareTxnResponse
from barnabas_wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

logger = logging.getLogger(__name__)

TRANSACTIONS_PER_TURN: Final = 256
"""How many transactions of a broker's batch are handled between two turns of the loop."""
BATCHED_FROM: Final = 4
"""First version of AddPartitionsToTxn that brokers send."""
ABORTABLE_FROM: Final = 5
"""First version of AddPartitionsToTxn with TRANSACTION_ABORTABLE."""
FENCED_FROM: Final = 2
"""First version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn with PRODUCER_FENCED."""
END_EPOCH_PER_TRANSACTION_FROM: Final = 5
COMMIT_ADDS_FROM: Final = 5
"""First version of TxnOffsetCommit that adds the group's partition to the transaction."""
COMMIT_TOPIC_IDS_FROM: Final = 6
"""First version of TxnOffsetCommit that names topics by id, and has STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND."""
COMMIT_LOADING_FROM: Final = 2
"""First version of TxnOffsetCommit whose clients survive COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""
COMMIT_ABORTABLE_FROM: Final = 4
"""First version of TxnOffsetCommit with TRANSACTION_ABORTABLE."""
COMMITTED_ELEMENTS_MAX: Final = 8_192
DESCRIBED_MAX: Final = 8_192
"""Transactional ids that one DescribeTransactions may name: each is looked up alone, all in one turn."""
COMMIT_CALLS_MAX: Final = 700_000
"""A commit is a record, of which key and value are encoded."""


def _for_old_clients(code: int, version: int) -> int:
    if code == ErrorCode.PRODUCER_FENCED and version < FENCED_FROM:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


# ---- AddPartitionsToTxn ----------------------------------------------------------------------------------------------


def _not_added(request: AddPartitionsToTxnRequest, error: KafkaError) -> AddPartitionsToTxnResponse:
    if request.transactions:
        return AddPartitionsToTxnResponse(error_code=error.code)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=_results(request.v3_and_below_topics, {}, error.code)
    )


@handles(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    versions=(0, 5),
    on_error=_not_added,
    request_bytes_max=PARTITIONS_BYTES_MAX,
    elements_max=PARTITION_ELEMENTS_MAX,
)
async def add_partitions_to_txn(
    services: BrokerServices, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Partitions that a transaction is about to write to."""
    version = context.api_version
    access = context.access
    if version >= BATCHED_FROM:
        access.require(CLUSTER_ACTION, CLUSTER)
        results = []
        for number, transaction in enumerate(request.transactions, 1):
            topic_results = await _of_broker(services, version, transaction)
            results.append(AddPartitionsToTxnResult(transaction.transactional_id, topic_results))
            if number % TRANSACTIONS_PER_TURN == 0:
                await asyncio.sleep(0)  # one that is refused at once waits for nothing
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    access.require(WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id)
    asked = [TopicPartition(topic.name, index) for topic in request.v3_and_below_topics for index in topic.partitions]
    codes: dict[TopicPartition, int] = {}
    hidden = {topic.name for topic in request.v3_and_below_topics if not access.may(WRITE, TOPIC, topic.name)}
    refused = [partition for partition in asked if partition.topic in hidden]
    missing = services.metadata.image.topics.absent(partition for partition in asked if partition.topic not in hidden)
    if missing or refused:
        codes = dict.fromkeys(asked, ErrorCode.OPERATION_NOT_ATTEMPTED)
        codes |= dict.fromkeys(refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        codes |= dict.fromkeys(missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    else:
        try:
            await services.transactions.add_partitions(
                request.v3_and_below_transactional_id,
                Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
                frozenset(asked),
                client_version=CLASSIC,
            )
        except KafkaError as error:
            codes = dict.fromkeys(asked, _for_old_clients(error.code, version))
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=_results(request.v3_and_below_topics, codes, ErrorCode.NONE)
    )


async def _of_broker(
    services: BrokerServices, version: int, transaction: AddPartitionsToTxnTransaction
) -> list[AddPartitionsToTxnTopicResult]:
    """One transaction that another broker asks about: its client writes there."""
    producer = Producer(transaction.producer_id, transaction.producer_epoch)
    partitions = frozenset(
        TopicPartition(topic.name, index) for topic in transaction.topics for index in topic.partitions
    )
    codes: dict[TopicPartition, int] = {}
    otherwise: int = ErrorCode.NONE
    try:
        if transaction.verify_only:
            codes |= await services.transactions.verify_partitions(transaction.transactional_id, producer, partitions)
        else:
            absent = services.metadata.image.topics.absent(partitions)
            codes |= dict.fromkeys(absent, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            known = partitions.difference(absent)
            if known:
                await services.transactions.add_partitions(
                    transaction.transactional_id, producer, known, client_version=EPOCH_PER_TRANSACTION
                )
    except KafkaError as error:
        otherwise = error.code
    if version < ABORTABLE_FROM:
        codes = {
            partition: ErrorCode.INVALID_TXN_STATE if code == ErrorCode.TRANSACTION_ABORTABLE else code
            for partition, code in codes.items()
        }
    return _results(transaction.topics, codes, otherwise)


def _results(
    topics: Sequence[AddPartitionsToTxnTopic], codes: dict[TopicPartition, int], otherwise: int
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(index, codes.get(TopicPartition(topic.name, index), otherwise))
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


# ---- AddOffsetsToTxn, EndTxn -----------------------------------------------------------------------------------------


@handles(ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 4))
async def add_offsets_to_txn(
    services: BrokerServices, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """The group whose offsets a transaction is about to commit."""
    context.access.require(WRITE, TRANSACTIONAL_ID, request.transactional_id)
    context.access.require(READ, GROUP, request.group_id)
    partition = TopicPartition(OFFSETS_TOPIC, services.groups.partition_for(request.group_id))
    try:
        await services.transactions.add_partitions(
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            frozenset({partition}),
            client_version=CLASSIC,
        )
    except KafkaError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            # This broker's metadata is behind, or no client has looked for a group's coordinator yet: that makes the
            # topic, and some clients look only afterwards.
            with contextlib.suppress(CoordinatorNotAvailable):
                await services.groups.find_coordinator(request.group_id)
            return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return AddOffsetsToTxnResponse(error_code=_for_old_clients(error.code, context.api_version))
    return AddOffsetsToTxnResponse()


@handles(ApiKey.END_TXN, versions=(0, 5))
async def end_txn(services: BrokerServices, context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    """Commit or abort."""
    context.access.require(WRITE, TRANSACTIONAL_ID, request.transactional_id)
    speaks_epochs = context.api_version >= END_EPOCH_PER_TRANSACTION_FROM
    try:
        producer = await services.transactions.end(
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            is_commit=request.committed,
            client_version=EPOCH_PER_TRANSACTION if speaks_epochs else CLASSIC,
        )
    except KafkaError as error:
        return EndTxnResponse(error_code=_for_old_clients(error.code, context.api_version))
    return EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)


# ---- PrepareTxn ------------------------------------------------------------------------------------------------------


@handles(ApiKey.PREPARE_TXN, versions=(0, 0))
async def prepare_txn(
    services: BrokerServices, context: RequestContext, request: PrepareTxnRequest
) -> PrepareTxnResponse:
    """A transaction that waits for its decision from now on."""
    context.access.require(WRITE, TRANSACTIONAL_ID, request.transactional_id)
    context.access.require(TWO_PHASE_COMMIT, TRANSACTIONAL_ID, request.transactional_id)
    await services.transactions.prepare(request.transactional_id, Producer(request.producer_id, request.producer_epoch))
    return PrepareTxnResponse()


# ---- TxnOffsetCommit -------------------------------------------------------------------------------------------------


def _not_committed(request: TxnOffsetCommitRequest, error: KafkaError) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition.partition_index, error.code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@handles(
    ApiKey.TXN_OFFSET_COMMIT,
    versions=(0, 6),
    on_error=_not_committed,
    request_bytes_max=PARTITIONS_BYTES_MAX,
    elements_max=COMMITTED_ELEMENTS_MAX,
    calls_max=COMMIT_CALLS_MAX,
)
async def txn_offset_commit(
    services: BrokerServices, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Offsets that count once the transaction commits; answered once they are replicated."""
    context.access.require(WRITE, TRANSACTIONAL_ID, request.transactional_id)
    context.access.require(READ, GROUP, request.group_id)
    image = services.metadata.image
    found: list[tuple[str, ErrorCode]] = []
    wanted: dict[TopicPartition, OffsetToCommit] = {}
    for asked in request.topics:
        topic, refusal = find_topic(
            image, asked.name, asked.topic_id, is_by_id=context.api_version >= COMMIT_TOPIC_IDS_FROM
        )
        name = asked.name if topic is None else topic.name
        if name and not context.access.may(READ, TOPIC, name):
            topic, refusal = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        found.append((name, refusal))
        for partition in asked.partitions:
            if topic is None or partition.partition_index not in topic.partitions:
                continue
            wanted[TopicPartition(name, partition.partition_index)] = OffsetToCommit(
                name,
                partition.partition_index,
                Offset(partition.committed_offset),
                Epoch(partition.committed_leader_epoch),
                partition.committed_metadata or "",
                topic.id,
            )
    codes: dict[TopicPartition, ErrorCode] = {}
    if wanted:
        is_outside = not request.member_id and request.generation_id < 0
        before = committed_before(services, request.group_id, list(wanted.values())) if is_outside else []
        try:
            outcome = await _commit(services, context, request, tuple(wanted.values()))
        except KafkaError as error:
            code = error.code
            if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and context.api_version < COMMIT_LOADING_FROM:
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            if code is ErrorCode.TRANSACTION_ABORTABLE and context.api_version < COMMIT_ABORTABLE_FROM:
                code = ErrorCode.INVALID_TXN_STATE
            outcome = (code,) * len(wanted)
        codes = dict(zip(wanted, outcome, strict=True))
        note_commit(services, context, request.group_id, before, list(wanted.values()), outcome)
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition.partition_index, codes.get(TopicPartition(name, partition.partition_index), refusal)
                    )
                    for partition in topic.partitions
                ],
            )
            for topic, (name, refusal) in zip(request.topics, found, strict=True)
        ]
    )


async def _commit(
    services: BrokerServices,
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    offsets: tuple[OffsetToCommit, ...],
) -> tuple[ErrorCode, ...]:
    if not request.group_id:
        raise KafkaError.of(ErrorCode.INVALID_GROUP_ID, "a transaction commits offsets of a group that has an id")
    return await services.transactional.commit_offsets(
        request.transactional_id,
        OffsetCommit(
            member=MemberRef(
                group_id=request.group_id,
                member_id=request.member_id,
                generation=request.generation_id,
                instance_id=request.group_instance_id,
            ),
            offsets=offsets,
            knows_epochs=context.api_version >= COMMIT_TOPIC_IDS_FROM,
        ),
        Writer(request.producer_id, request.producer_epoch),
        is_add=context.api_version >= COMMIT_ADDS_FROM,
    )


# ---- for people ------------------------------------------------------------------------------------------------------


@handles(ApiKey.DESCRIBE_TRANSACTIONS, versions=(0, 0), elements_max=DESCRIBED_MAX)
def describe_transactions(
    services: BrokerServices, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """What is known of some transactional ids."""
    return DescribeTransactionsResponse(
        transaction_states=[_described(services, context, name) for name in dict.fromkeys(request.transactional_ids)]
    )


def _described(services: BrokerServices, context: RequestContext, transactional_id: str) -> DescribedTransaction:
    try:
        context.access.require(DESCRIBE, TRANSACTIONAL_ID, transactional_id)
        state = services.transactions.describe(transactional_id)
    except KafkaError as error:
        return DescribedTransaction(error_code=error.code, transactional_id=transactional_id)
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(state.partitions):
        if context.access.may(DESCRIBE, TOPIC, topic, is_noted=False):
            topics.setdefault(topic, []).append(partition)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=state.status.title,
        transaction_timeout_ms=state.timeout_ms,
        transaction_start_time_ms=state.start_ms,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        topics=[TopicData(topic, partitions) for topic, partitions in topics.items()],
    )


@handles(ApiKey.LIST_TRANSACTIONS, versions=(0, 2), elements_max=PARTITION_ELEMENTS_MAX)
def list_transactions(
    services: BrokerServices, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """The transactional ids that this broker coordinates and that pass every filter."""
    producer_ids = frozenset(request.producer_id_filters)
    pattern = request.transactional_id_pattern
    try:
        is_meant = compile_id_pattern(pattern) if pattern else None
    except KafkaError as error:
        logger.info("%s", error)
        return ListTransactionsResponse(error_code=error.code)
    return ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in BY_TITLE],
        transaction_states=[
            ListedTransaction(transactional_id, state.producer_id, state.status.title)
            for transactional_id, state in services.transactions.list_all()
            if _passes(state.status.title, request.state_filters)
            and (not producer_ids or state.producer_id in producer_ids)
            and (is_meant is None or is_meant(transactional_id))
            and (request.duration_filter < 0 or _is_open_for(state.start_ms, request.duration_filter, context.now_ms))
            and context.access.may(DESCRIBE, TRANSACTIONAL_ID, transactional_id, is_noted=False)
        ],
    )


def _passes(title: str, titles: Collection[str]) -> bool:
    return not titles or title in titles


def _is_open_for(start_ms: int, duration_ms: int, now_ms: int) -> bool:
    return start_ms >= 0 and now_ms - start_ms > duration_ms
