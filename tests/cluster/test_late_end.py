"""An EndTxn that the network held back past the next transaction: with an epoch per transaction it ends nothing (KIP-890)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from barnabas_admin.local_cluster import LocalCluster, find_base_port
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.client.metadata import LATEST, produce_request
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas_wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas_wire.kafka.messages.describe_transactions import DescribeTransactionsRequest
from barnabas_wire.kafka.messages.end_txn import EndTxnRequest
from barnabas_wire.kafka.messages.init_producer_id import InitProducerIdRequest
from barnabas_wire.records.batch import Record, build_batch
from tests.support.clusters import ForkedCluster

pytestmark = pytest.mark.cluster

TXN = 1
KEY = TopicPartition("ended", 0)
TIMEOUT_S = 20.0


class RawProducer:
    """A transactional producer by hand, in the versions of one kind of client."""

    def __init__(self, client: ClusterClient, name: str, *, is_new: bool) -> None:
        """is_new: speaks transaction.version 2; else 1, as every client before Kafka 4."""
        self.client, self.name, self.is_new = client, name, is_new
        self.producer_id = self.epoch = self.sequence = -1

    async def init(self) -> None:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        self._take(await self.client.call_coordinator(self.name, request, key_type=TXN))

    async def write(self) -> None:
        """One record, which begins the transaction."""
        if not self.is_new:
            add = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(KEY.topic, [KEY.partition])],
            )
            await self._retried(lambda: self.client.call_coordinator(self.name, add, key_type=TXN, version_max=3))
        batch = build_batch(
            [Record(0, 1_700_000_000_000, b"k", b"v")],
            is_transactional=True,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
        )
        request = produce_request(KEY, batch, acks=-1, timeout_ms=10_000)
        request.transactional_id = self.name
        (connection,) = set(self.client._connections.values())
        answer = await connection.call(request, version=12 if self.is_new else 9, timeout_s=TIMEOUT_S)
        assert not answer.responses[0].partition_responses[0].error_code, answer
        self.sequence += 1

    def end_request(self, *, is_commit: bool) -> EndTxnRequest:
        """As it is sent now; a copy of it may come late."""
        return EndTxnRequest(self.name, self.producer_id, self.epoch, is_commit)

    async def send_end(self, request: EndTxnRequest) -> Any:
        return await self.client.call_coordinator(self.name, request, key_type=TXN, version_max=5 if self.is_new else 3)

    async def commit(self) -> None:
        answer = await self._retried(lambda: self.send_end(self.end_request(is_commit=True)))
        if self.is_new:
            self._take(answer)

    async def state(self) -> str:
        request = DescribeTransactionsRequest(transactional_ids=[self.name])
        answer = await self.client.call_coordinator(self.name, request, key_type=TXN)
        return str(answer.transaction_states[0].transaction_state)

    def _take(self, answer: Any) -> None:
        assert not answer.error_code, answer
        if (answer.producer_id, answer.producer_epoch) != (self.producer_id, self.epoch):
            self.sequence = 0
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    @staticmethod
    async def _retried(call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """While the last transaction is still being ended."""
        for _ in range(100):
            answer = await call()
            if ErrorCode.CONCURRENT_TRANSACTIONS.value not in _codes(answer):
                assert _codes(answer) == {0}, answer
                return answer
            await asyncio.sleep(0.05)
        raise TimeoutError(call)


def _codes(answer: Any) -> set[int]:
    topics = getattr(answer, "results_by_topic_v3_and_below", None)
    if topics is None:
        return {int(answer.error_code)}
    return {int(each.partition_error_code) for topic in topics for each in topic.results_by_partition}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with ForkedCluster(tmp_path_factory.mktemp("late"), nodes=1, base_port=find_base_port()) as running:
        yield running


def run(cluster: LocalCluster, work: Callable[[ClusterClient], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        client = ClusterClient(cluster.bootstrap_servers, client_id="late", timeout_s=TIMEOUT_S)
        try:
            await client.call(CreateTopicsRequest(topics=[CreatableTopic(KEY.topic, 1, 1)]))
            await client.metadata([KEY.topic])
            await work(client)
        finally:
            await client.close()

    asyncio.run(whole())


async def stable(client: ClusterClient) -> int:
    return (await client.list_offsets({KEY: LATEST}, is_read_committed=True))[KEY].offset


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_with_an_epoch_per_transaction_a_late_end_ends_nothing(cluster: LocalCluster, is_commit: bool) -> None:
    async def work(client: ClusterClient) -> None:
        producer = RawProducer(client, f"new-{is_commit}", is_new=True)
        await producer.init()
        await producer.write()
        held_back = producer.end_request(is_commit=is_commit)
        await producer.commit()
        await producer.write()  # the next transaction is open
        before = await stable(client)
        answer = await producer.send_end(held_back)
        assert answer.error_code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH), answer
        await asyncio.sleep(0.3)  # markers would be written meanwhile
        assert (await producer.state(), await stable(client)) == ("Ongoing", before)
        await producer.write()
        await producer.commit()
        assert await producer.state() in ("PrepareCommit", "CompleteCommit")

    run(cluster, work)


def test_without_one_it_ends_the_next_transaction_which_is_the_known_hole(cluster: LocalCluster) -> None:
    """transaction.version 1: the epoch says nothing of which transaction is meant. Why version 2 exists."""

    async def work(client: ClusterClient) -> None:
        producer = RawProducer(client, "old", is_new=False)
        await producer.init()
        await producer.write()
        held_back = producer.end_request(is_commit=False)
        await producer.commit()
        await producer.write()
        answer = await producer.send_end(held_back)
        assert not answer.error_code
        assert await producer.state() in ("PrepareAbort", "CompleteAbort")

    run(cluster, work)
