"""GetTelemetrySubscriptions v0, PushTelemetry v0 (KIP-714).

May touch:  the telemetry room, the image's configs.    Must not touch: sockets, protobuf.
Invariants: no right is needed to ask and to push, as in Kafka; what others pushed is described to who may describe the group or read the
            topic that it is about.
Read next:  ../telemetry/receiver.py.

Behaviour: ApiVersions lists both once telemetry.receiver is on. Asked all the same, a broker without it answers as Kafka's does: it says
what subscriptions want, and throws away what is pushed. A request that names a group or a topic in our tagged fields asks what its
clients pushed to this broker, and changes nothing. Differs from Kafka: see ../telemetry; pushes are also refused with
THROTTLING_QUOTA_EXCEEDED while too many others wait to be read.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator

from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.registry import PARTITIONS_BYTES_MAX, handles
from barnabas_broker.api.services import BrokerServices
from barnabas_broker.telemetry.instances import RESERVED
from barnabas_broker.telemetry.pushed_clients import PushedClient
from barnabas_broker.telemetry.subscriptions import TEXT_MAX, Client
from barnabas_quorum.image.rights import DESCRIBE, GROUP, READ, TOPIC
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushingClient,
    Reading,
)
from barnabas_wire.kafka.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from barnabas_wire.records.compression import CompressionType

ACCEPTED = [CompressionType.ZSTD, CompressionType.LZ4, CompressionType.GZIP, CompressionType.SNAPPY]
"""The best first."""
DESCRIBED_MAX = 200
"""Clients in one answer, those first that pushed last."""


@handles(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions=(0, 0))
def get_subscriptions(
    services: BrokerServices, context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """What a client is to push; it gets an id if it has none."""
    telemetry = services.telemetry
    if request.described_group is not None or request.described_topic is not None:
        return GetTelemetrySubscriptionsResponse(clients=_described(services, context, request))
    telemetry.stats.asked += 1
    telemetry.subscriptions.follow(services.metadata.image.configs)
    instance_id = request.client_instance_id
    while instance_id in RESERVED:
        instance_id = Uuid(secrets.token_bytes(16))
    client = _client(context, instance_id)
    _hold(services, context, client)
    try:
        found = telemetry.instances.get(client, context.now_ms)
    except KafkaError:
        telemetry.stats.throttled += 1
        raise
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=found.wanted.subscription_id,
        accepted_compression_types=[int(each) for each in ACCEPTED],
        push_interval_ms=found.wanted.interval_ms,
        telemetry_max_bytes=telemetry.config.max_bytes,
        delta_temporality=True,
        requested_metrics=list(found.wanted.metrics),
    )


@handles(ApiKey.PUSH_TELEMETRY, versions=(0, 0), request_bytes_max=PARTITIONS_BYTES_MAX)
async def push(
    services: BrokerServices, context: RequestContext, request: PushTelemetryRequest
) -> PushTelemetryResponse:
    """Take a client's metrics."""
    telemetry = services.telemetry
    telemetry.subscriptions.follow(services.metadata.image.configs)
    client = _client(context, request.client_instance_id)
    _hold(services, context, client)
    try:
        found = telemetry.instances.check_push(
            client,
            subscription_id=request.subscription_id,
            is_last=request.terminating,
            compression=request.compression_type,
            size_bytes=len(request.metrics),
            bytes_max=telemetry.config.max_bytes,
            now_ms=context.now_ms,
        )
        if request.metrics and telemetry.config.receiver:
            await telemetry.receive(
                client,
                CompressionType(request.compression_type),
                request.metrics,
                interval_ms=found.wanted.interval_ms,
                now_ms=context.now_ms,
                may_name_group=lambda group: context.access.may(READ, GROUP, group, is_noted=False),
                may_name_topic=lambda topic: context.access.may(DESCRIBE, TOPIC, topic, is_noted=False),
            )
    except KafkaError as error:
        if error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            telemetry.stats.throttled += 1
        elif error.code is ErrorCode.UNKNOWN_SUBSCRIPTION_ID:
            telemetry.stats.unknown_subscription += 1
        else:
            telemetry.stats.refused += 1
        raise
    telemetry.stats.taken += 1
    return PushTelemetryResponse()


def _client(context: RequestContext, instance_id: Uuid) -> Client:
    return Client(
        instance_id,
        context.client_id[:TEXT_MAX],
        context.software.name,
        context.software.version,
        context.client_host,
        context.client_port,
    )


def _hold(services: BrokerServices, context: RequestContext, client: Client) -> None:
    """The broker forgets an instance with its connection, or when that has too many of them."""
    forget: Callable[[Uuid], None] = services.telemetry.instances.forget
    context.held.pop(f"telemetry {client.instance_id}", None)
    context.hold(f"telemetry {client.instance_id}", lambda: forget(client.instance_id))


def _described(
    services: BrokerServices, context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> list[PushingClient]:
    """Raises KafkaError GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED."""
    group, topic = request.described_group, request.described_topic
    if group is not None:
        context.access.require(DESCRIBE, GROUP, group)
    if topic is not None:
        context.access.require(READ, TOPIC, topic)
    found = [
        each
        for each in services.telemetry.clients.current(context.now_ms)
        if group in (None, each.group_id) and (topic is None or _names(each, topic))
    ]
    return [_described_client(each, context.now_ms) for each in found[: -DESCRIBED_MAX - 1 : -1]]


def _names(client: PushedClient, topic: str) -> bool:
    return any(series.topic == topic for values in (client.gauges, client.totals) for series in values)


def _described_client(found: PushedClient, now_ms: int) -> PushingClient:
    return PushingClient(
        client_instance_id=found.client.instance_id,
        client_id=found.client.client_id,
        client_host=found.client.host,
        software=f"{found.client.software_name} {found.client.software_version}",
        group_id=found.group_id,
        member_id=found.member_id,
        pushed_ago_ms=max(0, now_ms - found.pushed_ms),
        readings=list(_readings(found)),
    )


def _readings(found: PushedClient) -> Iterator[Reading]:
    for values in (found.gauges, found.totals):
        for series, value in values.items():
            yield Reading(series.metric, series.topic, series.partition, series.node, value)
