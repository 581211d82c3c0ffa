"""An EndTxn that the network held back past the next transaction: with an epoch per transaction it ends nothing (KIP-890)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.client.metadata import LATEST
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.clusters import ForkedCluster
from tests.support.transactional_producer import TransactionalProducer

pytestmark = pytest.mark.cluster

KEY = TopicPartition("ended", 0)
TIMEOUT_S = 20.0


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
        producer = TransactionalProducer(client, f"new-{is_commit}", is_new=True)
        await producer.init()
        await producer.write(KEY)
        held_back = producer.end_request(is_commit=is_commit)
        await producer.end(is_commit=True)
        await producer.write(KEY)  # the next transaction is open
        before = await stable(client)
        answer = await producer.send_end(held_back)
        assert answer.error_code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH), answer
        await asyncio.sleep(0.3)  # markers would be written meanwhile
        assert (await producer.state(), await stable(client)) == ("Ongoing", before)
        await producer.write(KEY)
        await producer.end(is_commit=True)
        assert await producer.state() in ("PrepareCommit", "CompleteCommit")

    run(cluster, work)


def test_without_one_it_ends_the_next_transaction_which_is_the_known_hole(cluster: LocalCluster) -> None:
    """transaction.version 1: the epoch says nothing of which transaction is meant. Why version 2 exists."""

    async def work(client: ClusterClient) -> None:
        producer = TransactionalProducer(client, "old", is_new=False)
        await producer.init()
        await producer.write(KEY)
        held_back = producer.end_request(is_commit=False)
        await producer.end(is_commit=True)
        await producer.write(KEY)
        answer = await producer.send_end(held_back)
        assert not answer.error_code
        assert await producer.state() in ("PrepareAbort", "CompleteAbort")

    run(cluster, work)
