"""The admin service's verbs on configs: of a topic, of a broker, of the cluster.

May touch:  the node's image and its keys, the controller client.    Must not touch: grpc, logs, the data lane.
Invariants: a value is named with the layer it is from; another broker's properties are known to that broker alone.
Read next:  service.py, which serves these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas_broker.admin.errors import unknown_topic
from barnabas_broker.admin.node_view import ConfigKeyView, NodeView
from barnabas_quorum.controller.request import ActiveController
from barnabas_quorum.controller.requests import (
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
    IncrementalAlterConfigs,
)
from barnabas_quorum.records import ConfigResourceType
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.rpc import admin_pb2


async def describe_configs(
    node: NodeView, request: admin_pb2.DescribeConfigsRequest
) -> admin_pb2.DescribeConfigsResponse:
    """Every key with its value, and the layer that sets it."""
    image = node.image
    cluster = image.configs.cluster_default
    if _resource_type(request.type) is ConfigResourceType.TOPIC:
        if image.topics.get(request.name) is None:
            raise unknown_topic(request.name)
        layers = [("topic", image.configs.topic(request.name)), ("cluster", cluster)]
        keys = node.topic_keys()
    elif request.name == "":
        layers, keys = [("cluster", cluster)], node.broker_keys()
    else:
        broker_id = _broker_id(request.name)
        if image.cluster.broker(broker_id) is None:
            raise KafkaError.of(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
        layers = [("broker", image.configs.broker(broker_id)), ("cluster", cluster)]
        # Another broker's properties file is known to that broker alone.
        keys = node.broker_keys() if broker_id == node.node_id else ()
    entries = merge_configs(keys, layers, own_layer=layers[0][0], only_overrides=request.only_overrides)
    return admin_pb2.DescribeConfigsResponse(entries=entries)


async def alter_configs(
    controller: ActiveController, request: admin_pb2.AlterConfigsRequest, *, timeout_ms: int
) -> admin_pb2.AlterConfigsResponse:
    """See controller/configs.py."""
    changes = tuple(
        ConfigChange(key=change.key, operation=ConfigOperation.SET, value=change.value)
        if change.HasField("value")
        else ConfigChange(key=change.key, operation=ConfigOperation.DELETE)
        for change in request.changes
    )
    if not changes:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, "no config change is named")
    alteration = ConfigAlteration(
        resource_type=_resource_type(request.type), resource_name=request.name, changes=changes
    )
    reply = await controller.ask(
        IncrementalAlterConfigs(resources=(alteration,), validate_only=request.validate_only),
        timeout_ms=timeout_ms,
    )
    (outcome,) = reply.resources
    if outcome.error is not None:
        raise outcome.error
    return admin_pb2.AlterConfigsResponse()


def merge_configs(
    keys: Sequence[ConfigKeyView],
    layers: Sequence[tuple[str, Mapping[str, str]]],
    *,
    own_layer: str,
    only_overrides: bool,
) -> list[admin_pb2.ConfigEntry]:
    """Each key once, with its value from the first layer (source name, overrides) that has it, else from the node's
    properties ("static") or its default ("default"); overrides of keys that are not listed come too."""
    known = {key.name: key for key in keys}
    names = known.keys() | {name for _, overrides in layers for name in overrides}
    entries = []
    for name in sorted(names):
        key = known.get(name)
        found = [(source, overrides[name]) for source, overrides in layers if name in overrides]
        if key is not None:
            found.append(("static" if key.is_static else "default", key.value))
        source, value = found[0]
        if not only_overrides or source == own_layer:
            entries.append(admin_pb2.ConfigEntry(key=name, value=value, source=source, doc=key.doc if key else ""))
    return entries


def _resource_type(kind: int) -> ConfigResourceType:
    if kind == admin_pb2.RESOURCE_TYPE_TOPIC:
        return ConfigResourceType.TOPIC
    if kind == admin_pb2.RESOURCE_TYPE_BROKER:
        return ConfigResourceType.BROKER
    raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"resource type {kind} has no configs")


def _broker_id(text: str) -> BrokerId:
    try:
        return BrokerId(int(text))
    except ValueError:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"{text!r} is not a broker id") from None
