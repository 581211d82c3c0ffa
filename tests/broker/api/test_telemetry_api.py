"""GetTelemetrySubscriptions and PushTelemetry over a connection: who hears of them, what a push leaves, who sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from barnabas_broker.api.services import BrokerServices
from barnabas_broker.metadata.cache import MetadataCache
from barnabas_broker.telemetry import receiver as module
from barnabas_broker.telemetry.config import TelemetryConfig
from barnabas_broker.telemetry.receiver import ClientTelemetry
from barnabas_broker.telemetry.subscriptions import Client
from barnabas_quorum.image.metadata import MetadataDelta
from barnabas_quorum.records import ConfigRecord, ConfigResourceType
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Epoch, Offset, Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.api_versions import ApiVersionsRequest
from barnabas_wire.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas_wire.kafka.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from barnabas_wire.kafka.messages.list_config_resources import ListConfigResourcesRequest
from barnabas_wire.kafka.messages.push_telemetry import PushTelemetryRequest
from barnabas_wire.records.compression import CompressionType, compress
from tests.broker.telemetry.pushes import field, gauge, pushed, total
from tests.support.listener import RawClient, connected, make_image, make_services

INTERVAL_MS = 10_000
TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
LAG = "org.apache.kafka.consumer.fetch.manager.records.lag.max"
SAMPLE = pushed([gauge(LAG, 7, topic="orders"), total("rebalances", 1)], group_id="readers", group_member_id="m")


class Node:
    """A listener with a receiver, at a time that the test moves."""

    def __init__(self, client: RawClient, services: BrokerServices, clock: list[int]) -> None:
        self.client, self.services, self.clock = client, services, clock
        self.telemetry = services.telemetry

    async def get(self, **fields: Any) -> Any:
        return await self.client.call(GetTelemetrySubscriptionsRequest(**fields), 0)

    async def push(self, instance_id: Uuid, subscription_id: int, data: bytes = SAMPLE, **fields: Any) -> ErrorCode:
        request = PushTelemetryRequest(instance_id, subscription_id, metrics=data, **fields)
        return ErrorCode((await self.client.call(request, 0)).error_code)


@asynccontextmanager
async def node(*, receiver: bool = True, max_bytes: int = 1 << 20, **subscription: str) -> AsyncIterator[Node]:
    delta = MetadataDelta(make_image())
    for key, value in ({"metrics": "*", "interval.ms": str(INTERVAL_MS)} | subscription).items():
        delta.replay(
            ConfigRecord(resource_type=ConfigResourceType.CLIENT_METRICS, resource_name="s", key=key, value=value)
        )
    clock = [1_700_000_000_000]
    services = make_services(
        metadata=MetadataCache(delta.apply(Offset(20), Epoch(1), 2_000)),
        telemetry=ClientTelemetry(TelemetryConfig(receiver=receiver, max_bytes=max_bytes)),
        clock_ms=lambda: clock[0],
    )
    try:
        async with connected(services) as (_, client):
            yield Node(client, services, clock)
    finally:
        services.telemetry.close()


async def test_clients_hear_of_telemetry_where_somebody_receives_it() -> None:
    for receiver in (False, True):
        async with node(receiver=receiver) as broker:
            answer = await broker.client.call(ApiVersionsRequest(), 4)
            assert ({entry.api_key for entry in answer.api_keys} & TELEMETRY == TELEMETRY) is receiver


async def test_subscriptions_are_listed_and_described_whether_or_not_somebody_receives() -> None:
    async with node(receiver=False, match="client_id=a") as broker:
        for version in (0, 1):
            listed = await broker.client.call(
                ListConfigResourcesRequest(resource_types=[16] if version else []), version
            )
            assert [(each.resource_name, each.resource_type) for each in listed.config_resources] == [("s", 16)]
        resources = [DescribeConfigsResource(16, name, None) for name in ("s", "absent", "")]
        found, absent, nameless = (await broker.client.call(DescribeConfigsRequest(resources), 4)).results
        assert {entry.name: (entry.value, entry.config_source) for entry in found.configs} == {
            "interval.ms": (str(INTERVAL_MS), 7),
            "match": ("client_id=a", 7),
            "metrics": ("*", 7),
        }
        assert [entry.config_source for entry in absent.configs] == [5, 5, 5]
        assert nameless.error_code == ErrorCode.INVALID_REQUEST


async def test_without_a_receiver_it_answers_as_kafkas_and_keeps_nothing() -> None:
    async with node(receiver=False) as broker:
        found = await broker.get()
        assert found.error_code == 0 and found.requested_metrics == ["*"]
        assert await broker.push(found.client_instance_id, found.subscription_id, b"no metrics") is ErrorCode.NONE
        assert not broker.telemetry.clients.known


async def test_a_client_is_told_what_to_push_and_its_push_is_kept() -> None:
    async with node() as broker:
        software = ApiVersionsRequest(client_software_name="java", client_software_version="4.4.0")
        await broker.client.call(software, 4)
        found = await broker.get()
        assert found.client_instance_id != Uuid(bytes(16))
        assert found.accepted_compression_types == [4, 3, 1, 2]
        assert (found.push_interval_ms, found.telemetry_max_bytes) == (INTERVAL_MS, 1 << 20)
        assert found.delta_temporality and found.requested_metrics == ["*"] and found.clients is None
        for kind in CompressionType:
            broker.clock[0] += INTERVAL_MS
            data = compress(kind, SAMPLE)
            taken = await broker.push(found.client_instance_id, found.subscription_id, data, compression_type=int(kind))
            assert taken is ErrorCode.NONE
        assert (await broker.get(client_instance_id=found.client_instance_id)).error_code == 89
        asked = GetTelemetrySubscriptionsRequest
        for request in (asked(described_group="readers"), asked(described_topic="orders")):
            (client,) = (await broker.client.call(request, 0)).clients
            assert (client.group_id, client.member_id, client.software) == ("readers", "m", "java 4.4.0")
            assert {(each.metric, each.topic): each.value for each in client.readings} == {
                (LAG, "orders"): 7.0,
                ("rebalances", ""): 5.0,
            }
        assert (await broker.get(described_group="others")).clients == []


@pytest.mark.parametrize(
    ("data", "compression", "code"),
    [
        (b"\xff" * 20, 0, ErrorCode.INVALID_RECORD),
        (b"\xff" * 20, 4, ErrorCode.INVALID_RECORD),
        (compress(CompressionType.ZSTD, bytes(2_000_000)), 4, ErrorCode.INVALID_RECORD),
        (compress(CompressionType.GZIP, bytes(500_000)), 1, ErrorCode.INVALID_RECORD),
        (bytes(1001), 0, ErrorCode.TELEMETRY_TOO_LARGE),
        (bytes(2_000_000), 0, ErrorCode.TELEMETRY_TOO_LARGE),
        (b"", 0, ErrorCode.NONE),
    ],
)
async def test_bytes_count_as_they_come_and_after_decompression(data: bytes, compression: int, code: ErrorCode) -> None:
    async with node(max_bytes=1000) as broker:
        found = await broker.get()
        said = await broker.push(found.client_instance_id, found.subscription_id, data, compression_type=compression)
        assert said is code
        assert not broker.telemetry.clients.known


async def test_a_connection_that_ends_takes_the_clocks_of_its_instances_with_it_and_leaves_what_they_pushed() -> None:
    async with node() as broker:
        found = await broker.get()
        assert await broker.push(found.client_instance_id, found.subscription_id) is ErrorCode.NONE
        await broker.get()
        assert await broker.push(Uuid(bytes(15) + b"\x07"), 1) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        assert len(broker.telemetry.instances) == 3
        await broker.client.close()
        while len(broker.telemetry.instances):
            await asyncio.sleep(0)
        assert len(broker.telemetry.clients.current(broker.clock[0])) == 1


async def test_pushes_wait_for_one_thread_and_too_many_are_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many connections push without end, a tenth of a core opens what they push."""
    monkeypatch.setattr(module, "WAITING_MAX", 2)
    telemetry = ClientTelemetry(TelemetryConfig(receiver=True))
    begun: list[float] = []
    loop = asyncio.get_running_loop()
    submit = telemetry._worker()

    def counted(*work: Any) -> Any:
        begun.append(loop.time())
        return submit(*work)

    telemetry._submit = counted
    client = Client(Uuid(bytes(15) + b"\x07"), "c", "java", "4", "127.0.0.1", 1)
    data = pushed([gauge("m", 1)]) + field(15, bytes((1 << 20) - 300))

    async def push(data: bytes) -> str:
        try:
            await telemetry.receive(
                client,
                CompressionType.NONE,
                data,
                interval_ms=1,
                now_ms=1,
                may_name_group=lambda _: True,
                may_name_topic=lambda _: True,
            )
        except KafkaError as error:
            return error.code.name
        return "taken"

    first = await asyncio.gather(*(push(data) for _ in range(4)))
    assert first == ["taken"] * 2 + ["THROTTLING_QUOTA_EXCEEDED"] * 2 and telemetry.stats.busy == 2
    assert begun[1] - begun[0] >= 0.3
    telemetry.close()


async def test_a_group_and_a_topic_count_with_the_right_to_them() -> None:
    telemetry = ClientTelemetry(TelemetryConfig(receiver=True))
    client = Client(Uuid(bytes(15) + b"\x07"), "c", "java", "4", "127.0.0.1", 1)
    both = pushed([gauge(LAG, 7, topic="orders"), gauge(LAG, 8, topic="secret")], group_id="readers")
    await telemetry.receive(
        client,
        CompressionType.NONE,
        both,
        interval_ms=1,
        now_ms=1,
        may_name_group=lambda group: group != "readers",
        may_name_topic=lambda topic: topic != "secret",
    )
    (found,) = telemetry.clients.current(1)
    assert found.group_id == "" and [series.topic for series in found.gauges] == ["orders"]
    telemetry.close()
