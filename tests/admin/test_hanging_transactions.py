"""`barnabas txn find-hanging` and `abort` against a broker that believes old clients: what hangs is found and ended, the rest stays."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from barnabas_admin.hanging_transactions import GRACE_MS, OpenTransaction, hanging, suspects
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from barnabas_admin.main import cli
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.client.metadata import LATEST, produce_request
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas_wire.kafka.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas_wire.kafka.messages.init_producer_id import InitProducerIdRequest
from barnabas_wire.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas_wire.kafka.messages.prepare_txn import PrepareTxnRequest
from barnabas_wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas_wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas_wire.records.batch import Record, build_batch

HOUR_MS = 3_600_000
TIMEOUT_MAX_MS = 900_000
TXN = 1
HANGS, HONEST = TopicPartition("t", 0), TopicPartition("t", 1)


def open_since(minutes: float, *, producer_id: int = 7, partition: TopicPartition = HANGS) -> OpenTransaction:
    return OpenTransaction(partition, producer_id, 0, -1, 10, int(-minutes * 60_000))


def test_only_what_is_open_for_longer_than_a_transaction_may_be_is_suspected() -> None:
    limit_minutes = (TIMEOUT_MAX_MS + GRACE_MS) / 60_000
    found = [open_since(limit_minutes), open_since(limit_minutes + 0.01)]
    assert suspects(found, now_ms=0, timeout_max_ms=TIMEOUT_MAX_MS) == found[1:]


@pytest.mark.parametrize(
    ("ids", "partitions", "hangs"),
    [
        ({}, {}, True),
        ({7: "id"}, {}, True),
        ({7: "id"}, {"id": frozenset({HONEST})}, True),
        ({8: "id"}, {"id": frozenset({HANGS})}, True),
        ({7: "id"}, {"id": frozenset({HANGS})}, False),
    ],
    ids=["nobody's", "expired", "of another partition", "of another producer", "its coordinator will end it"],
)
def test_what_no_coordinator_will_end_hangs(ids: Any, partitions: Any, hangs: bool) -> None:
    assert bool(hanging([open_since(60)], ids, partitions)) == hangs


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    overrides = {
        "transaction.partition.verification.enable": "false",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    with LocalCluster(
        tmp_path_factory.mktemp("hanging"), nodes=1, base_port=find_base_port(), overrides=overrides
    ) as found:
        yield found


@pytest.fixture
def run(cluster: LocalCluster) -> Callable[..., Any]:
    def run(*words: str, status: int = 0) -> Any:
        environment = {"BARNABAS_ADMIN": cluster.admin_addresses, "BARNABAS_BROKERS": cluster.bootstrap_servers}
        result = CliRunner().invoke(cli, [*words, "-o", "json"], env=environment, catch_exceptions=False)
        assert result.exit_code == status, result.output
        return json.loads(result.stdout) if result.stdout else None

    return run


def with_client(cluster: LocalCluster, work: Callable[[ClusterClient], Coroutine[Any, Any, Any]]) -> Any:
    async def run() -> Any:
        client = ClusterClient(cluster.bootstrap_servers, client_id="test")
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(run())


async def init(client: ClusterClient, name: str) -> tuple[int, int]:
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TIMEOUT_MAX_MS)
    answer = await client.call_coordinator(name, request, key_type=TXN)
    assert not answer.error_code
    return answer.producer_id, answer.producer_epoch


async def write(client: ClusterClient, partition: TopicPartition, producer: tuple[int, int]) -> None:
    """A record of an hour ago, in a transaction."""
    record = Record(0, int(time.time() * 1000) - HOUR_MS, b"k", b"v")
    batch = build_batch(
        [record], is_transactional=True, producer_id=producer[0], producer_epoch=producer[1], base_sequence=0
    )
    request = produce_request(partition, batch, acks=-1, timeout_ms=10_000)
    request.transactional_id = "of a client that asked nobody"
    await client.metadata([partition.topic])
    (connection,) = set(client._connections.values())
    answer = await connection.call(request, version=9, timeout_s=10)
    assert not answer.responses[0].partition_responses[0].error_code, answer


async def last_stable(client: ClusterClient, partition: TopicPartition) -> int:
    return (await client.list_offsets({partition: LATEST}, is_read_committed=True))[partition].offset


def test_what_hangs_is_found_and_ended_and_what_is_open_stays(cluster: LocalCluster, run: Callable[..., Any]) -> None:
    run("topic", "create", HANGS.topic, "--partitions", "2")

    async def prepare(client: ClusterClient) -> None:
        await client.metadata([HANGS.topic])
        await write(client, HANGS, await init(client, "stuck"))  # no coordinator was asked
        producer = await init(client, "honest")
        asked = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="honest",
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(HONEST.topic, [HONEST.partition])],
        )
        await _call_in(client, "honest", asked, version=3)
        await write(client, HONEST, producer)
        assert (await last_stable(client, HANGS), await last_stable(client, HONEST)) == (0, 0)

    with_client(cluster, prepare)
    (found,) = run("txn", "find-hanging")["hanging"]
    assert (found["topic"], found["partition"], found["start_offset"]) == (*HANGS, 0)
    assert 59 <= found["open_for_minutes"] <= 61
    assert run("txn", "find-hanging", "--max-transaction-timeout", "90")["hanging"] == []
    why = run("explain", "partition", "t", "0")
    facts = "\n".join(why["facts"])
    assert "readers of committed data stand at offset 0, 1 records behind the high watermark 1" in facts
    assert "epoch 0, of 'stuck', which is Empty" in facts
    assert why["next"][-1]["command"].endswith("barnabas txn abort -t t -p 0 --start-offset 0")
    assert run("explain", "partition", "t", "1")["next"][-1]["command"] == "barnabas txn describe honest"
    assert run("txn", "find-hanging", "--topic", HANGS.topic, "--broker", "99")["hanging"] == []

    run("txn", "abort", "-t", HANGS.topic, "-p", "0", "--start-offset", "1", "--yes", status=3)
    run("txn", "abort", "-t", HANGS.topic, "-p", "0", "--start-offset", "0", "--yes")
    assert run("txn", "find-hanging")["hanging"] == []
    assert not any("committed data" in fact for fact in run("explain", "partition", "t", "0")["facts"])
    run("txn", "abort", "honest", "--yes")
    run("txn", "abort", "nobody", "--yes", status=3)

    async def look(client: ClusterClient) -> tuple[int, int]:
        return await last_stable(client, HANGS), await last_stable(client, HONEST)

    deadline = time.monotonic() + 10
    while with_client(cluster, look) != (2, 2):
        assert time.monotonic() < deadline, with_client(cluster, look)
    assert run("txn", "describe", "honest")["state"] in ("CompleteAbort", "Empty")


def test_what_is_prepared_does_not_hang_and_is_ended_by_name(cluster: LocalCluster, run: Callable[..., Any]) -> None:
    partition = TopicPartition("prepared", 0)
    run("topic", "create", partition.topic, "--partitions", "1")

    async def prepare(client: ClusterClient) -> None:
        producer = await init(client, "two phases")
        asked = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="two phases",
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(partition.topic, [0])],
        )
        await _call_in(client, "two phases", asked, version=3)
        await write(client, partition, producer)
        request = PrepareTxnRequest(transactional_id="two phases", producer_id=producer[0], producer_epoch=producer[1])
        for _ in range(2):
            assert not (await client.call_coordinator("two phases", request, key_type=TXN)).error_code
        request.producer_epoch += 1
        refused = await client.call_coordinator("two phases", request, key_type=TXN)
        assert refused.error_code == ErrorCode.PRODUCER_FENCED and refused.error_message
        taking = InitProducerIdRequest(transactional_id="two phases", transaction_timeout_ms=1000)
        taken = await client.call_coordinator("two phases", taking, key_type=TXN)
        assert taken.error_code == ErrorCode.INVALID_TXN_STATE

    with_client(cluster, prepare)
    listed = [run("txn", "list", "--pattern", pattern)["transactions"] for pattern in (r"two\s.*", "two")]
    assert [[each["transactional_id"] for each in found] for found in listed] == [["two phases"], []]
    run("txn", "list", "--pattern", "(", status=1)
    assert run("txn", "describe", "two phases")["state"] == "Prepared"
    assert [each["transactional_id"] for each in run("txn", "list", "--state", "Prepared")["transactions"]] == [
        "two phases"
    ]
    assert run("txn", "find-hanging", "--topic", partition.topic)["hanging"] == []
    why = run("explain", "partition", partition.topic, "0")
    assert "of 'two phases', which is Prepared" in "\n".join(why["facts"])
    assert why["next"][-1]["command"] == "barnabas txn abort 'two phases'"
    run("txn", "abort", "two phases", "--yes")
    deadline = time.monotonic() + 10
    while with_client(cluster, lambda client: last_stable(client, partition)) != 2:
        assert time.monotonic() < deadline
    assert run("txn", "describe", "two phases")["state"] in ("CompleteAbort", "Empty")


@pytest.mark.parametrize(
    "words", [(), ("id", "-t", "t"), ("-t", "t", "-p", "0"), ("id", "-t", "t", "-p", "0", "--start-offset", "0")]
)
def test_an_abort_names_one_thing(run: Callable[..., Any], words: tuple[str, ...]) -> None:
    run("txn", "abort", *words, "--yes", status=2)


async def _call_in(client: ClusterClient, name: str, request: Any, *, version: int) -> Any:
    """To the coordinator, in a version that clients speak."""
    await client.call_coordinator(name, InitProducerIdRequest(transaction_timeout_ms=1), key_type=TXN)
    (connection,) = set(client._connections.values())
    return await connection.call(request, version=version, timeout_s=10)


def test_a_late_marker_of_a_former_coordinator_does_not_touch_offsets(cluster: LocalCluster) -> None:
    """Fenced in __consumer_offsets as in every other partition: it would end the next transaction of the producer."""
    group, partition = "g", TopicPartition("__consumer_offsets", 0)

    def marker(producer: tuple[int, int], coordinator_epoch: int) -> WriteTxnMarkersRequest:
        topics = [WritableTxnMarkerTopic(partition.topic, [partition.partition])]
        return WriteTxnMarkersRequest([WritableTxnMarker(*producer, True, topics, coordinator_epoch)])

    async def work(client: ClusterClient) -> None:
        producer = await init(client, "copier")
        await client.call_coordinator(
            group, OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None)])
        )  # makes the topic

        async def commit(offset: int) -> None:
            add = AddOffsetsToTxnRequest("copier", *producer, group)
            assert not (await _call_in(client, "copier", add, version=3)).error_code
            offsets = [TxnOffsetCommitRequestTopic("t", partitions=[TxnOffsetCommitRequestPartition(0, offset)])]
            asked = TxnOffsetCommitRequest("copier", group, *producer, topics=offsets)
            answer = await _call_in(client, "copier", asked, version=3)
            assert not answer.topics[0].partitions[0].error_code, answer

        async def written(coordinator_epoch: int) -> ErrorCode:
            answer = await client.call(marker(producer, coordinator_epoch))
            return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)

        async def committed() -> int:
            asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None)])
            answer = await client.call_coordinator(group, asked)
            return int(answer.groups[0].topics[0].partitions[0].committed_offset)

        await commit(5)
        assert await written(50) is ErrorCode.NONE
        assert await committed() == 5
        await commit(9)
        assert await written(49) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert await committed() == 5
        assert await written(50) is ErrorCode.NONE
        assert await committed() == 9

    with_client(cluster, work)
