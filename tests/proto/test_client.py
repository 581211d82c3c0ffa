"""Both drivers of the client against a scripted broker: order, memory, routing, retries, lost connections, forks."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas_wire.client import aio as aio_module
from barnabas_wire.client import metadata as rules
from barnabas_wire.client.aio import AioConnection
from barnabas_wire.client.blocking import BlockingCluster, BlockingConnection
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.client.connection import ClientConnection
from barnabas_wire.client.metadata import EARLIEST, LATEST, RetrySchedule, parse_bootstrap
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas_wire.kafka.messages.fetch_request import FetchRequestPartition
from barnabas_wire.kafka.messages.heartbeat import HeartbeatRequest
from barnabas_wire.kafka.messages.metadata import MetadataRequest
from barnabas_wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_wire.kafka.primitives import MalformedMessage
from barnabas_wire.kafka.schema import UnsupportedVersion
from tests.proto.fake_broker import FakeBroker, FakeCluster
from tests.support.frames import encode_response_frame

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """Two brokers; t-0 led by 1, t-1 by 2. Retries come at once."""
    monkeypatch.setattr(rules, "RETRY_DELAY_S", 0.001)
    found = FakeCluster()
    found.leaders = {("t", 0): 1, ("t", 1): 2}
    found.records = {("t", 0): b"a" * 1000, ("t", 1): os.urandom(3_000_000)}
    with FakeBroker(found, 1), FakeBroker(found, 2):
        yield found


def bootstrap(cluster: FakeCluster, broker_id: int = 1) -> str:
    return f"127.0.0.1:{cluster.brokers[broker_id].port}"


async def connect(cluster: FakeCluster, *, reuses_memory: bool = False) -> AioConnection:
    port = cluster.brokers[1].port
    return await AioConnection.connect("127.0.0.1", port, client_id="test", timeout_s=5, reuses_memory=reuses_memory)


def wanted(topic: str = "t", partition: int = 0) -> list[FetchRequestPartition]:
    return [FetchRequestPartition(topic, partition)]


FETCH: dict[str, Any] = {"max_wait_ms": 10, "min_bytes": 1, "max_bytes": 1 << 24, "timeout_s": 5.0}


# ---- sans-IO


def test_an_answer_out_of_order_is_malformed() -> None:
    state: ClientConnection[str] = ClientConnection(client_id="c")
    first = state.request(HeartbeatRequest(), 0, "one")
    state.request(HeartbeatRequest(), 0, "two")
    answer = state.answer(memoryview(first[8:12] + b"\0\0"))
    assert (answer.token, bytes(answer.body)) == ("one", b"\0\0")
    with pytest.raises(MalformedMessage):
        state.answer(memoryview(first[8:12] + b"\0\0"))
    assert state.abandon() == ["two"]
    with pytest.raises(MalformedMessage):
        state.answer(memoryview(bytes(6)))


def test_the_highest_common_version_is_taken() -> None:
    state: ClientConnection[str] = ClientConnection(client_id="c")
    state.ranges = {ApiKey.METADATA: (0, 99), ApiKey.FETCH: (4, 11), ApiKey.PRODUCE: (0, 2), ApiKey.HEARTBEAT: (7, 9)}
    assert state.version_for(ApiKey.METADATA) == 13
    assert state.version_for(ApiKey.FETCH) == 11
    for api_key in (ApiKey.PRODUCE, ApiKey.HEARTBEAT, ApiKey.JOIN_GROUP):
        with pytest.raises(UnsupportedVersion):
            state.version_for(api_key)


def test_bootstrap_servers() -> None:
    assert parse_bootstrap("a:1, b:2,") == [("a", 1), ("b", 2)]
    assert parse_bootstrap(["a:1", "[::1]:2"]) == [("a", 1), ("::1", 2)]
    for text in ("", "a", "a:", ":1", "a:x"):
        with pytest.raises(ValueError, match="bootstrap"):
            parse_bootstrap(text)


def test_a_last_try_without_time_says_what_the_one_before_it_found() -> None:
    schedule = RetrySchedule(now_s=100, timeout_s=3)
    now_s = 100 + schedule.next_delay_s(ConnectionRefusedError(), 100.0)
    now_s += 2 + schedule.next_delay_s(TimeoutError(), now_s + 2)
    with pytest.raises(ConnectionRefusedError):
        schedule.next_delay_s(TimeoutError(), 103.0)
    schedule = RetrySchedule(now_s=100, timeout_s=3)
    schedule.next_delay_s(ConnectionRefusedError(), 100.0)
    with pytest.raises(TimeoutError):  # the broker was there, and did not answer
        schedule.next_delay_s(TimeoutError(), 103.0)
    with pytest.raises(TimeoutError):
        RetrySchedule(now_s=100, timeout_s=0.5).next_delay_s(TimeoutError(), 100.5)


def test_retries_end_at_the_deadline_and_only_retriable_errors_are_retried() -> None:
    schedule = RetrySchedule(now_s=100, timeout_s=30)
    stale = KafkaError.of(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    delays = [schedule.next_delay_s(stale, 100) for _ in range(7)]
    assert delays == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert schedule.next_delay_s(ConnectionResetError(), 128.9) == 1.0
    for error, now_s in (
        (stale, 129.5),
        (KafkaError.of(ErrorCode.OFFSET_OUT_OF_RANGE), 100),
        (ValueError(), 100),
        (KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 105),
    ):
        with pytest.raises(type(error)):
            schedule.next_delay_s(error, now_s)


# ---- asyncio


async def test_calls_overlap_and_each_gets_its_own_answer(cluster: FakeCluster) -> None:
    connection = await connect(cluster)
    answers = await asyncio.gather(
        *(connection.call(MetadataRequest(topics=None), version=version, timeout_s=5) for version in range(1, 14)),
        connection.call(HeartbeatRequest(), timeout_s=5),
    )
    assert [len(answer.brokers) for answer in answers[:-1]] == [2] * 13
    assert answers[-1].error_code == 1
    await connection.close()
    assert connection.is_closed


async def test_an_old_broker_is_asked_again_in_version_0(cluster: FakeCluster) -> None:
    cluster.is_old = True
    connection = await connect(cluster)
    assert connection.version_for(ApiKey.METADATA) == 13
    assert [(key, version) for _, key, version in cluster.seen] == [(18, 3), (18, 0)]
    await connection.close()


@pytest.mark.parametrize("reuses_memory", [False, True])
async def test_large_and_small_fetches_keep_their_bytes(cluster: FakeCluster, reuses_memory: bool) -> None:
    cluster.leaders["t", 1] = 1
    connection = await connect(cluster, reuses_memory=reuses_memory)
    kept = []
    for version in (4, 11, 12, None, 12):
        for partition in (0, 1, 0):
            # version 13 and later name topics by id, which this broker does not resolve
            version = version if version is not None else 12
            answer = await connection.fetch(wanted(partition=partition), version=version, **FETCH)
            records = answer.partitions[0].records
            assert records == cluster.records["t", partition]
            kept.append(records)
    if not reuses_memory:
        assert [len(records) for records in kept] == [1000, 3_000_000, 1000] * 5
        assert all(records == cluster.records["t", index % 3 % 2] for index, records in enumerate(kept))
    await connection.close()


async def test_overlapping_fetches_keep_their_bytes(cluster: FakeCluster) -> None:
    cluster.leaders["t", 1] = 1
    connection = await connect(cluster)
    answers = await asyncio.gather(
        *(connection.fetch(wanted(partition=number % 2), version=12, **FETCH) for number in range(12))
    )
    for number, answer in enumerate(answers):
        assert answer.partitions[0].records == cluster.records["t", number % 2]
    await connection.close()


async def test_a_produce_without_acknowledgement_does_not_wait(cluster: FakeCluster) -> None:
    connection = await connect(cluster)
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(0, b"batch")])
    assert await connection.call(ProduceRequest(acks=0, topic_data=[data]), version=9, timeout_s=5) is None
    await connection.call(HeartbeatRequest(), timeout_s=5)
    assert cluster.brokers[1].produced == [("t", 0, b"batch", 0)]
    await connection.close()


@pytest.mark.parametrize(("host", "port"), [("a..b", 9092), ("a\0b", 9092), ("127.0.0.1", 1 << 32)])
async def test_an_address_that_is_none_is_a_connection_that_fails(host: str, port: int) -> None:
    """It may come from another broker's advertised.listeners; Python raises UnicodeError, ValueError, OverflowError."""
    with pytest.raises(OSError):
        await AioConnection.connect(host, port, client_id="test", timeout_s=5)


async def test_a_lost_connection_fails_every_waiting_call(cluster: FakeCluster) -> None:
    connection = await connect(cluster)
    cluster.before_answer = lambda api_key, frame: None
    calls = [asyncio.ensure_future(connection.call(HeartbeatRequest(), timeout_s=60)) for _ in range(3)]
    await asyncio.sleep(0)
    cluster.brokers[1].drop_connections()
    for result in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(result, ConnectionError)
    with pytest.raises(ConnectionError):
        await connection.call(HeartbeatRequest(), timeout_s=1)
    await connection.close()


async def test_a_call_without_answer_times_out_and_closes(cluster: FakeCluster) -> None:
    connection = await connect(cluster)
    cluster.before_answer = lambda api_key, frame: None
    other = asyncio.ensure_future(connection.call(HeartbeatRequest(), timeout_s=60))
    with pytest.raises(TimeoutError):
        await connection.call(HeartbeatRequest(), timeout_s=0.01)
    with pytest.raises(ConnectionError):
        await other
    assert connection.is_closed


async def test_a_cancelled_calls_answer_is_dropped(cluster: FakeCluster) -> None:
    connection = await connect(cluster)
    task = asyncio.ensure_future(connection.call(MetadataRequest(topics=None), timeout_s=5))
    await asyncio.sleep(0)
    task.cancel()
    assert (await connection.call(HeartbeatRequest(), timeout_s=5)).error_code == 1
    await connection.close()


@pytest.mark.parametrize(
    "answer", [b"\xff\xff\xff\xff", b"\0\0\0\x06\x7f\0\0\0\0\0", b"\x7f\xff\xff\xff", b"\0\0\0\1\0"]
)
async def test_a_malformed_answer_closes_the_connection(cluster: FakeCluster, answer: bytes) -> None:
    connection = await connect(cluster)
    cluster.before_answer = lambda api_key, frame: answer
    with pytest.raises(ConnectionError):
        await connection.call(HeartbeatRequest(), timeout_s=5)
    assert connection.is_closed


async def test_close_does_not_wait_for_a_peer_that_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aio_module, "CLOSE_TIMEOUT_S", 0.01)
    answered = asyncio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(encode_response_frame(ApiVersionsResponse(api_keys=[ApiVersion(0, 3, 9)]), 3, 1))
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await answered.wait()
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connection = await AioConnection.connect("127.0.0.1", port, client_id="c", timeout_s=5)
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(0, bytes(16 << 20))])
    waiting = asyncio.ensure_future(connection.call(ProduceRequest(acks=0, topic_data=[data]), timeout_s=60))
    await asyncio.sleep(0)
    await connection.close()
    await waiting
    answered.set()
    server.close()


async def test_nobody_listens(cluster: FakeCluster) -> None:
    port = cluster.brokers[2].port
    cluster.brokers[2].stop()
    with pytest.raises(OSError):
        await AioConnection.connect("127.0.0.1", port, client_id="c", timeout_s=5)


async def test_the_cluster_client_finds_leaders_and_coordinators(cluster: FakeCluster) -> None:
    client = ClusterClient(bootstrap(cluster), timeout_s=5)
    view = await client.metadata()
    assert (view.cluster_id, sorted(view.brokers), sorted(view.topics["t"])) == ("fake", [1, 2], [0, 1])
    assert await client.produce(T1, b"batch") == 1000
    assert cluster.brokers[2].produced == [("t", 1, b"batch", -1)]
    assert (await client.fetch(T1, 7)).records == cluster.records["t", 1]
    offsets = await client.list_offsets({T0: EARLIEST, T1: LATEST})
    assert {partition: entry.offset for partition, entry in offsets.items()} == {T0: 5, T1: 100}
    assert (await client.call_coordinator("g", HeartbeatRequest())).error_code == 2
    assert (await client.call(HeartbeatRequest(), broker_id=2)).error_code == 2
    await client.close()


async def test_the_cluster_client_follows_a_leader_that_moved(cluster: FakeCluster) -> None:
    client = ClusterClient(bootstrap(cluster), timeout_s=5)
    await client.metadata(["t"])
    cluster.leaders["t", 0] = 2
    assert (await client.fetch(T0, 7)).records == cluster.records["t", 0]
    cluster.brokers[1].drop_connections()
    cluster.errors = [(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS)] * 3
    assert await client.produce(T0, b"batch") == 1000
    await client.close()


async def test_the_leaders_are_asked_for_offsets_at_once_and_only_what_failed_again(cluster: FakeCluster) -> None:
    client = ClusterClient(bootstrap(cluster), timeout_s=10)
    await client.metadata(["t"])
    await client.list_offsets({T0: LATEST, T1: LATEST})  # both are connected
    both = threading.Barrier(2)

    def meet(api_key: int, answer: bytes) -> bytes:
        if api_key == ApiKey.LIST_OFFSETS:
            both.wait(5)
        return answer

    cluster.before_answer = meet
    offsets = await client.list_offsets({T0: EARLIEST, T1: LATEST})
    assert {partition: entry.offset for partition, entry in offsets.items()} == {T0: 5, T1: 100}
    cluster.before_answer = lambda api_key, answer: answer
    cluster.leaders["t", 1] = 1
    cluster.seen.clear()
    offsets = await client.list_offsets({T0: EARLIEST, T1: LATEST})
    assert {partition: entry.offset for partition, entry in offsets.items()} == {T0: 5, T1: 100}
    asked = [broker for broker, key, _ in cluster.seen if key == ApiKey.LIST_OFFSETS]
    assert sorted(asked[:2]) == [1, 2] and asked[2:] == [1], "the moved one alone is asked again"
    await client.close()


# ---- blocking


def test_blocking_calls(cluster: FakeCluster) -> None:
    client = BlockingCluster([bootstrap(cluster)], timeout_s=5)
    assert client.partitions(["t"]) == {"t": [0, 1]}
    assert client.list_offsets({T0: EARLIEST, T1: LATEST}) == {T0: 5, T1: 100}
    assert client.list_offsets_and_timestamps({T1: 1234})[T1] == (42, 1234)
    for partition in (T0, T1, T0):
        fetched = client.fetch(partition, 3)
        assert fetched.records == cluster.records[partition]
        assert (fetched.high_watermark, fetched.log_start_offset) == (100, 5)
    assert client.produce(T1, b"batch") == 1000
    assert client.produce(T1, b"quiet", acks=0) == -1
    assert client.call(HeartbeatRequest()).error_code in (1, 2)
    assert ("t", 1, b"batch", -1) in cluster.brokers[2].produced
    client.close()
    assert client.partitions(["t"]) == {"t": [0, 1]}, "a closed client opens new connections"
    client.close()


def test_blocking_follows_a_leader_that_moved_or_died(cluster: FakeCluster) -> None:
    client = BlockingCluster(bootstrap(cluster, 2), timeout_s=10)
    client.metadata(["t"])
    cluster.leaders["t", 1] = 1
    assert client.fetch(T1, 0).records == cluster.records["t", 1]
    cluster.leaders["t", 1] = 2
    cluster.brokers[1].stop()
    assert client.fetch(T1, 0).records == cluster.records["t", 1]
    client.close()


def test_blocking_retries_what_may_be_retried_only(cluster: FakeCluster) -> None:
    client = BlockingCluster(bootstrap(cluster), timeout_s=5)
    cluster.errors = [(ApiKey.FETCH, ErrorCode.KAFKA_STORAGE_ERROR)] * 3 + [
        (ApiKey.LIST_OFFSETS, 6),
        (ApiKey.LIST_OFFSETS, 6),
    ]
    assert client.fetch(T0, 0).records == cluster.records["t", 0]
    assert client.list_offsets({T0: LATEST, T1: LATEST}) == {T0: 100, T1: 100}
    cluster.errors = [(ApiKey.FETCH, ErrorCode.OFFSET_OUT_OF_RANGE)]
    with pytest.raises(KafkaError) as caught:
        client.fetch(T0, 10**9)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert not cluster.errors
    client.close()


def test_a_missing_topic_is_named(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "UNKNOWN_TOPIC_TIMEOUT_S", 0.01)
    client = BlockingCluster(bootstrap(cluster), timeout_s=5)
    with pytest.raises(KafkaError, match="nowhere") as caught:
        client.partitions(["t", "nowhere"])
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    client.close()


def test_blocking_drops_a_connection_in_the_middle_of_an_answer(cluster: FakeCluster) -> None:
    client = BlockingCluster(bootstrap(cluster), timeout_s=5)
    client.metadata(["t"])
    frames: list[bytes] = []

    def spoil_once(api_key: int, frame: bytes) -> bytes:
        frames.append(frame)
        return frame if len(frames) > 1 else b"\0\0\0\x09" + bytes(9)

    cluster.before_answer = spoil_once
    with pytest.raises(MalformedMessage):
        client.fetch(T0, 0)
    assert client.fetch(T0, 0).records == cluster.records["t", 0]
    client.close()


def test_a_forked_child_leaves_its_parents_sockets_alone(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    client = BlockingCluster(bootstrap(cluster), timeout_s=5)
    client.metadata(["t"])
    before = dict(client._connections)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    client.fetch(T0, 0)
    assert not set(map(id, before.values())) & set(map(id, client._connections.values()))
    client.close()


def test_a_blocking_call_times_out(cluster: FakeCluster) -> None:
    connection = BlockingConnection("127.0.0.1", cluster.brokers[1].port, client_id="c")
    cluster.before_answer = lambda api_key, frame: None
    with pytest.raises(TimeoutError):
        connection.call(HeartbeatRequest(), timeout_s=0.02)
    connection.close()
