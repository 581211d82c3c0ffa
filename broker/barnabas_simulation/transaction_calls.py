"""What clients with transactions ask brokers for, in both ways: of the parts behind the listener, and in frames that come through it.

May touch:  coordinators and transactional writes of the node that is asked.   Must not touch: clocks, randomness, what comes of an answer.
Invariants: both ways of an Ask mean the same, and raise KafkaError where it is refused.
Read next:  transactions.py, whose clients ask; client_calls.py, by which way; barnabas_broker/api/transactions.py, which is asked.

A client speaks transaction.version 1 or 2 by the versions of its requests: those of 1 stop below the first that speak 2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from barnabas_coordination.group.messages import MemberRef, OffsetCommit, OffsetToCommit
from barnabas_coordination.shard import Writer
from barnabas_coordination.transaction.state import CLASSIC, EPOCH_PER_TRANSACTION, Producer
from barnabas_coordination.transaction.writes import WriteVersion
from barnabas_quorum.records_security import AclOperation, AclResourceType
from barnabas_replication.requests import AppendEntry, AppendOutcome
from barnabas_simulation.client_calls import ACKS_ALL, PRODUCE_TIMEOUT_MS
from barnabas_simulation.node_parts import NodeParts
from barnabas_simulation.run import Ask, Send
from barnabas_wire.client.metadata import known_code, produce_request, read_produced
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_EPOCH, Offset, TopicPartition
from barnabas_wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas_wire.kafka.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas_wire.kafka.messages.end_txn import EndTxnRequest
from barnabas_wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas_wire.kafka.messages.init_producer_id import InitProducerIdRequest
from barnabas_wire.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas_wire.kafka.messages.prepare_txn import PrepareTxnRequest
from barnabas_wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

WRITES_THE_ID = (AclResourceType.TRANSACTIONAL_ID, AclOperation.WRITE)
ONE_KEY_VERSION_MAX = 3
"""The last version of FindCoordinator with one key."""
ONE_GROUP_VERSION_MAX = 7
"""The last version of OffsetFetch for one group."""
CLIENTS_ADD_VERSION_MAX = 3
"""The last version of AddPartitionsToTxn from clients, and of AddOffsetsToTxn."""
INITIALIZE_VERSION_MAX = 5


class Dialect(NamedTuple):
    """How a client speaks one transaction.version."""

    end: int
    """What its EndTxn says to the coordinator."""
    write: WriteVersion
    end_version_max: int
    produce_version_max: int
    commit_version_max: int

    @property
    def adds_by_writing(self) -> bool:
        """Whether a write adds its partition; otherwise the client does, and its requests arrive once."""
        return self.write.adds_partitions


TV1 = Dialect(CLASSIC, WriteVersion(adds_partitions=False, knows_abortable=False), 4, 10, 3)
TV2 = Dialect(EPOCH_PER_TRANSACTION, WriteVersion(adds_partitions=True, knows_abortable=True), 5, 12, 5)


class TransactionalClient(NamedTuple):
    """A transactional id, and the producer by which its owner speaks."""

    name: str
    producer: Producer
    dialect: Dialect = TV2


def find_coordinators(name: str, group: str) -> Ask:
    """Find the coordinators of a transactional id and a group; the first request has their topics made."""

    async def handle(node: NodeParts) -> bool:
        await node.transactions.find_coordinator(name)
        await node.groups.find_coordinator(group)
        return True

    async def send(send: Send) -> bool:
        for key, key_type in ((name, 1), (group, 0)):
            answer = await send(FindCoordinatorRequest(key=key, key_type=key_type), ONE_KEY_VERSION_MAX)
            _check(answer.error_code)
        return True

    rights = tuple((each, AclOperation.DESCRIBE) for each in (AclResourceType.TRANSACTIONAL_ID, AclResourceType.GROUP))
    return Ask("FindCoordinator", handle, send, rights)


def initialize(name: str, *, timeout_ms: int, counted: Callable[[], AbstractContextManager[int]]) -> Ask:
    """Take a transactional id: the producer, and the number under which `counted` has noted that, while it is under way."""

    async def handle(node: NodeParts) -> tuple[Producer, int]:
        with counted() as number:
            return await node.transactions.initialize(name, timeout_ms=timeout_ms, expected=None), number

    async def send(send: Send) -> tuple[Producer, int]:
        with counted() as number:
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
            answer = await send(request, INITIALIZE_VERSION_MAX)
            _check(answer.error_code)
            return Producer(answer.producer_id, answer.producer_epoch), number

    return Ask("InitProducerId", handle, send, [WRITES_THE_ID])


def stable_position(group: str, of: TopicPartition) -> Ask:
    """The group's committed offset, once no transaction may change that any more (KIP-447): (the offset,), 0 for
    none."""

    async def handle(node: NodeParts) -> tuple[int]:
        if node.groups.unstable_partitions(group, [of]):
            raise KafkaError.of(ErrorCode.UNSTABLE_OFFSET_COMMIT, "a transaction is open")
        return (max(0, node.groups.fetch_offsets(group, [of])[0].offset),)

    async def send(send: Send) -> tuple[int]:
        topics = [OffsetFetchRequestTopic(name=of.topic, partition_indexes=[of.partition])]
        request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=True)
        answer = await send(request, ONE_GROUP_VERSION_MAX)
        _check(answer.error_code)
        ((found,),) = (topic.partitions for topic in answer.topics)
        _check(found.error_code)
        return (max(0, found.committed_offset),)

    rights = tuple((each, AclOperation.DESCRIBE) for each in (AclResourceType.GROUP, AclResourceType.TOPIC))
    return Ask("OffsetFetch", handle, send, rights)


def add_partition(client: TransactionalClient, to: TopicPartition) -> Ask:
    """About to be written to by a client of transaction.version 1."""

    async def handle(node: NodeParts) -> bool:
        await node.transactions.add_partitions(client.name, client.producer, {to}, client_version=CLASSIC)
        return True

    async def send(send: Send) -> bool:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=client.name,
            v3_and_below_producer_id=client.producer.producer_id,
            v3_and_below_producer_epoch=client.producer.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=to.topic, partitions=[to.partition])],
        )
        answer = await send(request, CLIENTS_ADD_VERSION_MAX)
        ((found,),) = (topic.results_by_partition for topic in answer.results_by_topic_v3_and_below)
        _check(found.partition_error_code)
        return True

    rights = [WRITES_THE_ID, (AclResourceType.TOPIC, AclOperation.WRITE)]
    return Ask("AddPartitionsToTxn", handle, send, rights, is_copied=False)


def add_offsets(client: TransactionalClient, group: str, partition: TopicPartition) -> Ask:
    """As add_partition, of the group whose offsets are about to be committed. partition: where these are kept."""

    async def send(send: Send) -> bool:
        request = AddOffsetsToTxnRequest(client.name, *client.producer, group_id=group)
        _check((await send(request, CLIENTS_ADD_VERSION_MAX)).error_code)
        return True

    rights = [WRITES_THE_ID, (AclResourceType.GROUP, AclOperation.READ)]
    return add_partition(client, partition)._replace(send=send, rights=rights)


def write(client: TransactionalClient, to: TopicPartition, batch: bytes) -> Ask:
    """One transactional batch, to all in-sync replicas."""

    async def handle(node: NodeParts) -> bool:
        answer: asyncio.Future[AppendOutcome] = asyncio.get_running_loop().create_future()

        def respond(outcomes: list[AppendOutcome]) -> None:
            if not answer.done():
                answer.set_result(outcomes[0])

        node.transactional.append_records(
            client.name,
            [AppendEntry(to.topic, to.partition, memoryview(batch))],
            version=client.dialect.write,
            required_acks=ACKS_ALL,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            respond=respond,
        )
        outcome = await answer
        if outcome.error is not None:
            raise outcome.error
        return True

    async def send(send: Send) -> bool:
        request = produce_request(to, batch, acks=ACKS_ALL, timeout_ms=PRODUCE_TIMEOUT_MS)
        request.transactional_id = client.name
        read_produced(await send(request, client.dialect.produce_version_max), to)
        return True

    rights = [WRITES_THE_ID, (AclResourceType.TOPIC, AclOperation.WRITE)]
    return Ask("Produce", handle, send, rights, is_copied=client.dialect.adds_by_writing)


def commit_offset(client: TransactionalClient, group: str, of: TopicPartition, offset: int) -> Ask:
    """Commit the offset that the group continues from if the transaction commits."""
    commit = OffsetCommit(
        member=MemberRef(group_id=group, member_id=""),
        offsets=(OffsetToCommit(of.topic, of.partition, Offset(offset), NO_EPOCH, ""),),
    )
    is_add = client.dialect.adds_by_writing

    async def handle(node: NodeParts) -> bool:
        (code,) = await node.transactional.commit_offsets(client.name, commit, Writer(*client.producer), is_add=is_add)
        _check(code)
        return True

    async def send(send: Send) -> bool:
        partition = TxnOffsetCommitRequestPartition(
            partition_index=of.partition, committed_offset=offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=client.name,
            group_id=group,
            producer_id=client.producer.producer_id,
            producer_epoch=client.producer.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=of.topic, partitions=[partition])],
        )
        answer = await send(request, client.dialect.commit_version_max)
        ((found,),) = (topic.partitions for topic in answer.topics)
        _check(found.error_code)
        return True

    rights = [WRITES_THE_ID, *((each, AclOperation.READ) for each in (AclResourceType.GROUP, AclResourceType.TOPIC))]
    return Ask("TxnOffsetCommit", handle, send, rights, is_copied=is_add)


def prepare(client: TransactionalClient) -> Ask:
    """Leave the transaction to its decision."""

    async def handle(node: NodeParts) -> bool:
        await node.transactions.prepare(client.name, client.producer)
        return True

    async def send(send: Send) -> bool:
        answer = await send(PrepareTxnRequest(client.name, *client.producer), 0)
        _check(answer.error_code)
        return True

    return Ask(
        "PrepareTxn",
        handle,
        send,
        [WRITES_THE_ID, (AclResourceType.TRANSACTIONAL_ID, AclOperation.TWO_PHASE_COMMIT)],
    )


def end(client: TransactionalClient, *, is_commit: bool) -> Ask:
    """Decide; the answer is the producer to continue as."""
    dialect = client.dialect

    async def handle(node: NodeParts) -> Producer:
        return await node.transactions.end(
            client.name, client.producer, is_commit=is_commit, client_version=dialect.end
        )

    async def send(send: Send) -> Producer:
        answer = await send(EndTxnRequest(client.name, *client.producer, committed=is_commit), dialect.end_version_max)
        _check(answer.error_code)
        return Producer(answer.producer_id, answer.producer_epoch)

    return Ask("EndTxn", handle, send, [WRITES_THE_ID], is_copied=dialect.adds_by_writing)


def _check(code: Any) -> None:
    if code:
        raise KafkaError.of(known_code(code), "refused")
