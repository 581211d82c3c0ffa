"""Quotas on a real listener: what clients are told, and how long they are not read."""

from __future__ import annotations

import asyncio
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.network.client_quotas import CLIENT_IDS_MAX, with_throttle
from barnabas_broker.quota import QuotaConfig
from barnabas_broker.security.listener_security import load_listeners
from barnabas_quorum.image.quotas import EMPTY_QUOTAS, QuotasImage
from barnabas_quorum.records_security import QuotaEntityPart
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.leader_endpoints import LeaderEndpoint
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.api_versions import ApiVersionsRequest
from barnabas_wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas_wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas_wire.kafka.messages.metadata import MetadataRequest
from barnabas_wire.kafka.messages.produce import (
    PartitionProduceData,
    ProducedPartition,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    encode_produce_response_frame,
)
from barnabas_wire.kafka.schema import decode_response
from barnabas_wire.records.batch import Record, build_batch
from tests.support.listener import (
    LISTENER,
    TOPIC,
    RawClient,
    RememberingReplicas,
    connected,
    make_services,
    open_file,
    running_server,
)

CLIENT = "test"
"""The client id of RawClient."""


def quotas(
    *, user: str | None = "ANONYMOUS", client: str | None = CLIENT, ip: bool = False, **values: float
) -> QuotasImage:
    if ip:
        return QuotasImage(entities={(QuotaEntityPart("ip", "127.0.0.1"),): values})
    entity = (QuotaEntityPart("client-id", client), QuotaEntityPart("user", user))
    return QuotasImage(entities={entity: values})


def produce(size: int) -> ProduceRequest:
    batch = bytes(build_batch([Record(0, 0, b"", bytes(size))]))
    return ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])],
    )


async def seconds_until_answered(client: RawClient) -> float:
    began = time.monotonic()
    assert (await client.call(ApiVersionsRequest(), 3)).error_code == 0
    return time.monotonic() - began


@pytest.mark.parametrize("version", [3, 8, 9, 12])
async def test_a_producer_beyond_its_quota_is_reported_and_not_read(version: int) -> None:
    async with connected(make_services()) as (server, client):
        assert (await client.call(produce(1000), version)).throttle_time_ms == 0
        server.apply_quotas(quotas(producer_byte_rate=9_500))  # ten windows of it are 95,000 bytes
        began = time.monotonic()
        answer = await client.call(produce(98_000), version)
        throttle_s = answer.throttle_time_ms / 1000
        assert 0 < throttle_s < 0.6 and answer.responses[0].partition_responses[0].error_code == 0
        await seconds_until_answered(client)
        assert time.monotonic() - began >= throttle_s * 0.95
        server.apply_quotas(EMPTY_QUOTAS)
        assert (await client.call(produce(98_000), version)).throttle_time_ms == 0


async def test_connections_of_one_client_share_its_quota() -> None:
    async with running_server(make_services()) as server:
        server.apply_quotas(quotas(producer_byte_rate=9_500))
        first, second = await RawClient.connect(server), await RawClient.connect(server)
        assert (await first.call(produce(90_000), 9)).throttle_time_ms == 0
        assert (await second.call(produce(8_000), 9)).throttle_time_ms > 0


async def test_a_consumer_beyond_its_quota_is_reported_and_not_read(tmp_path: Path) -> None:
    replicas = RememberingReplicas()
    replicas.file = open_file(tmp_path / "log", bytes(98_000))
    replicas.ranges = [(0, 98_000)]
    fetch = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        topics=[FetchTopic(topic=TOPIC, partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])],
    )
    async with connected(make_services(replica_manager=replicas)) as (server, client):
        server.apply_quotas(quotas(consumer_byte_rate=9_500))
        began = time.monotonic()
        answer = await client.call(fetch, 12)
        assert 200 < answer.throttle_time_ms < 600
        assert len(answer.responses[0].partitions[0].records or b"") == 98_000
        await seconds_until_answered(client)
        assert time.monotonic() - began >= answer.throttle_time_ms / 1000 * 0.95


async def test_request_time_is_a_quota_of_its_own() -> None:
    async with connected(make_services()) as (server, client):
        server.apply_quotas(quotas(request_percentage=0.001))
        await client.call(MetadataRequest(topics=None), 12)
        began = time.monotonic()
        answer = await client.call(MetadataRequest(topics=None), 12)
        assert answer.throttle_time_ms > 0 or time.monotonic() - began > 0.05


async def test_a_connection_too_many_of_an_address_is_closed_after_a_while() -> None:
    async with running_server(make_services()) as server:
        server.apply_quotas(quotas(ip=True, connection_creation_rate=0.3))  # three in ten windows
        clients = [await RawClient.connect(server) for _ in range(4)]
        for client in clients[:3]:
            await seconds_until_answered(client)
        async with asyncio.timeout(5):
            assert await clients[3].is_closed_by_server()
        assert server.stats.connections_closed["throttled"] == 1


async def test_changes_beyond_the_quota_are_refused_where_the_client_knows_of_it() -> None:
    asked: list[Any] = []

    class Controller:
        async def ask(self, request: Any, **options: Any) -> Any:
            asked.append(request)
            raise AssertionError("not to be reached")

    create = CreateTopicsRequest(
        topics=[CreatableTopic(name="t", num_partitions=50, replication_factor=1)], timeout_ms=100
    )
    async with running_server(make_services(controller=Controller()), quota_config=QuotaConfig()) as server:
        server.apply_quotas(quotas(controller_mutation_rate=1))
        charge = server.quotas.of("User:ANONYMOUS")
        assert charge is not None
        limits = server.quotas.limits_of("ANONYMOUS", CLIENT)
        assert limits is not None and limits.mutations is not None
        limits.mutations.spend(50)  # of eleven: 39 too many
        client = await RawClient.connect(server)
        answer = await client.call(create, 7)
        assert answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED and not asked
        assert 30_000 < answer.throttle_time_ms <= 39_000


async def test_quotas_are_by_the_name_that_a_client_logged_in_with() -> None:
    from barnabas_wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
    from barnabas_wire.kafka.messages.sasl_handshake import SaslHandshakeRequest

    properties = {
        "listener.security.protocol.map": f"{LISTENER}:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": 'x.PlainLoginModule required user_ann="a" user_bob="b";',
    }
    security = load_listeners([LISTENER], properties)[LISTENER]
    async with running_server(make_services(), security=security) as server:
        server.apply_quotas(quotas(user="ann", producer_byte_rate=1))
        throttled = {}
        for token in (b"\0ann\0a", b"\0bob\0b"):
            client = await RawClient.connect(server)
            await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert (await client.call(SaslAuthenticateRequest(auth_bytes=token), 2)).error_code == 0
            throttled[token] = (await client.call(produce(100), 9)).throttle_time_ms > 0
        assert list(throttled.values()) == [True, False]


def test_an_answer_whose_throttle_time_is_nowhere_known_stays_as_it_is() -> None:
    frame = bytes(range(64))
    assert with_throttle(ApiKey.API_VERSIONS, 3, (frame,), 5) == (frame,)
    assert with_throttle(ApiKey.SASL_AUTHENTICATE, 2, (frame,), 5) == (frame,)
    assert with_throttle(ApiKey.METADATA, 12, (), 5) == ()


@pytest.mark.attack("A5", "client ids that a client makes up do not fill the memory")
async def test_names_that_a_client_makes_up_do_not_fill_the_memory() -> None:
    """Each of 10,000 windows was kept by a client id of up to 32 KB."""
    async with running_server(make_services()) as server:
        server.apply_quotas(quotas(user=None, client=None, producer_byte_rate=9_500))
        client = await RawClient.connect(server)
        for number in range(2 * CLIENT_IDS_MAX):
            name = b"x" * 30_000 + b"%d" % number
            header = struct.pack(">hhih", ApiKey.API_VERSIONS, 0, number, len(name)) + name
            await client.send(struct.pack(">i", len(header)) + header)
            await client.read_frame()
        kept = [part.name or "" for _, entity in server.quotas._windows for part in entity]  # type: ignore[union-attr]
        assert kept and max(map(len, kept)) <= 255
        assert len(kept) <= 4, "those that begin alike share a quota"


def test_an_answer_that_names_another_leader_is_not_written_into() -> None:
    """What follows the throttle time ends in a zero byte too."""
    moved = ProducedPartition("t", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=(2, 7))
    for rack in (None, "r"):
        leader = LeaderEndpoint(2, "b2.example", 9092, rack)
        frame = encode_produce_response_frame(1, 12, [moved], node_endpoints=[leader])
        assert with_throttle(ApiKey.PRODUCE, 12, (frame,), 5) == (frame,)
    (told,) = with_throttle(ApiKey.PRODUCE, 12, (encode_produce_response_frame(1, 12, [moved]),), 5)
    assert isinstance(told, bytearray)
    assert decode_response(ProduceResponse, 12, memoryview(told)[9:]).throttle_time_ms == 5
