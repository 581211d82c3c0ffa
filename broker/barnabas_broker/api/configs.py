"""DescribeConfigs v1-4, IncrementalAlterConfigs v0-1, AlterConfigs v0-2, ListConfigResources v0-1.

May touch:  the image's configs, the node's keys, the controller client.    Must not touch: files, logs.
Invariants: every resource of a request is answered once; changes are decided by the controller; a description of many
            resources gives way to other requests, and its answer is bounded.
Read next:  config_entries.py (values and their sources).

Behaviour: resources are topics (2), this broker by its id (4), all brokers by "" (4), client metrics (16) and groups (32). A
broker describes itself only; clients send the request for a broker to that broker. No keys, or an empty list of them, means all.
AlterConfigs is the same as incremental changes that delete every key left out. The log levels of a broker (8) are changed by that
broker itself, until it stops, and with IncrementalAlterConfigs alone. Resources beyond ANSWER_BYTES_MAX of one DescribeConfigs
answer get INVALID_REQUEST (Kafka has no bound). Difference from Kafka: a group has no keys of share groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from barnabas_broker.api.answers import error_fields
from barnabas_broker.api.config_entries import (
    ConfigEntry,
    TopicEntries,
    broker_entries,
    client_metrics_entries,
    cluster_entries,
    group_entries,
    is_list,
    logger_entries,
)
from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.metadata import is_valid_topic_name
from barnabas_broker.api.registry import PARTITION_ELEMENTS_MAX, PARTITIONS_BYTES_MAX, handles
from barnabas_broker.api.services import ControlServices
from barnabas_broker.config.loggers import change_levels
from barnabas_broker.config.loggers import levels as current_levels
from barnabas_broker.security.access import Access
from barnabas_quorum.controller.features import require_metadata_version
from barnabas_quorum.controller.requests import (
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
    IncrementalAlterConfigs,
)
from barnabas_quorum.image.configs import ConfigResource
from barnabas_quorum.image.features import METADATA_VERSION_CLIENT_METRICS
from barnabas_quorum.image.rights import ALTER_CONFIGS, CLUSTER, DESCRIBE_CONFIGS, GROUP, TOPIC
from barnabas_quorum.records import ConfigResourceType
from barnabas_quorum.records_security import AclOperation
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages import ApiKey, alter_configs, incremental_alter_configs, list_config_resources
from barnabas_wire.kafka.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from barnabas_wire.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from barnabas_wire.kafka.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas_wire.kafka.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from barnabas_wire.kafka.schema import encode_element, join_elements

BROKER_LOGGER = 8
"""Kafka's resource type for the log levels of one broker (KIP-412). They are never in the metadata."""
LISTABLE_RESOURCE_TYPES = frozenset((*ConfigResourceType, BROKER_LOGGER))
"""Kafka's: topics, brokers, groups, client metrics, loggers of brokers."""

CLIENT_METRICS = "subscriptions of client metrics"
ANSWER_BYTES_MAX = 32 * 1024 * 1024
"""The largest DescribeConfigs answer: 10,000 topics without documentation."""
ENTRIES_PER_TURN = 1_000
"""Described before other requests get their turn: about 10 ms."""


def _describe_error(request: DescribeConfigsRequest, error: KafkaError) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_undescribed(resource, error) for resource in request.resources])


@handles(
    ApiKey.DESCRIBE_CONFIGS,
    versions=(1, 4),
    on_error=_describe_error,
    request_bytes_max=PARTITIONS_BYTES_MAX,
    elements_max=PARTITION_ELEMENTS_MAX,
    memory_bytes_max=4 * ANSWER_BYTES_MAX,  # the elements, joined, framed, and the request
)
async def describe_configs(
    services: ControlServices, context: RequestContext, request: DescribeConfigsRequest
) -> bytes:
    """The configs of topics and of this broker. Each resource is encoded when it is described, and one that is named again is
    what it was: objects for all would be ten times the answer."""
    version = context.api_version
    describer = _Describer(services, request)
    elements: list[bytes] = []
    known: dict[tuple[int, str, tuple[str, ...]], bytes] = {}
    answer_bytes = entries = 0
    for resource in request.resources:
        key = (resource.resource_type, resource.resource_name, tuple(resource.configuration_keys or ()))
        element = known.get(key)
        if element is None:
            result = (
                describer.describe(resource, context.access) if answer_bytes < ANSWER_BYTES_MAX else _too_much(resource)
            )
            element = known[key] = encode_element(result, DescribeConfigsResponse, version)
            entries += 1 + len(result.configs)
        elif answer_bytes >= ANSWER_BYTES_MAX:
            element = encode_element(_too_much(resource), DescribeConfigsResponse, version)
            entries += 1
        elements.append(element)
        answer_bytes += len(element)
        if entries >= ENTRIES_PER_TURN:
            entries = 0
            await asyncio.sleep(0)
    return join_elements(DescribeConfigsResponse, version, elements)


def _too_much(resource: DescribeConfigsResource) -> DescribeConfigsResult:
    message = f"the answer is beyond {ANSWER_BYTES_MAX >> 20} MiB already: ask for the rest in another request"
    return _undescribed(resource, KafkaError.of(ErrorCode.INVALID_REQUEST, message))


class _Describer:
    """Describes the resources of one request. What does not differ between them is made once."""

    def __init__(self, services: ControlServices, request: DescribeConfigsRequest) -> None:
        self._services = services
        self._request = request
        self._topics = TopicEntries(services)
        self._broker: list[ConfigEntry] | None = None
        self._cluster: list[ConfigEntry] | None = None

    def describe(self, resource: DescribeConfigsResource, access: Access) -> DescribeConfigsResult:
        try:
            _require(access, DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name)
            entries = self._entries(resource)
        except KafkaError as error:
            return _undescribed(resource, error)
        wanted = frozenset(resource.configuration_keys) if resource.configuration_keys else None
        return DescribeConfigsResult(
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[_described(entry, self._request) for entry in entries if wanted is None or entry.name in wanted],
        )

    def _entries(self, resource: DescribeConfigsResource) -> list[ConfigEntry]:
        services = self._services
        if resource.resource_type == ConfigResourceType.TOPIC:
            return self._topics.of(_topic_overrides(services, resource.resource_name))
        if resource.resource_type == ConfigResourceType.BROKER:
            if resource.resource_name == "":
                if self._cluster is None:
                    self._cluster = cluster_entries(services)
                return self._cluster
            if resource.resource_name == str(services.node_id):
                if self._broker is None:
                    self._broker = broker_entries(services)
                return self._broker
        return _entries(services, resource)


def _topic_overrides(services: ControlServices, name: str) -> Mapping[str, str]:
    image = services.metadata.image
    if not is_valid_topic_name(name):
        raise KafkaError.of(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is not a topic name")
    if image.topics.get(name) is None:
        raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
    return image.configs.topic(name)


def _entries(services: ControlServices, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    """The config entries of a resource that is neither a topic nor this broker."""
    name = resource.resource_name
    if resource.resource_type == ConfigResourceType.BROKER:
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST, f"this is broker {services.node_id}: ask broker {name} for its own configs"
        )
    if resource.resource_type == ConfigResourceType.GROUP:
        if not name:
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, "there are no configs of all groups; name one")
        group = ConfigResource(ConfigResourceType.GROUP, name)
        return group_entries(services, services.metadata.image.configs.get(group))
    if resource.resource_type == ConfigResourceType.CLIENT_METRICS:
        if not name:
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, "a subscription of client metrics needs a name")
        subscription = ConfigResource(ConfigResourceType.CLIENT_METRICS, name)
        return client_metrics_entries(services.metadata.image.configs.get(subscription))
    if resource.resource_type == BROKER_LOGGER:
        _check_own_loggers(services, name)
        return logger_entries()
    raise _unknown_type(resource.resource_type)


def _described(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = []
    if request.include_synonyms:
        synonyms = [
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in entry.synonyms
        ]
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        is_sensitive=entry.is_sensitive,
        config_source=entry.source,
        synonyms=synonyms,
        config_type=entry.type,
        documentation=entry.doc if request.include_documentation else None,
    )


def _undescribed(resource: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        **error_fields(error), resource_type=resource.resource_type, resource_name=resource.resource_name
    )


def _incremental_error(request: IncrementalAlterConfigsRequest, error: KafkaError) -> IncrementalAlterConfigsResponse:
    outcomes = {(resource.resource_type, resource.resource_name): error for resource in request.resources}
    return IncrementalAlterConfigsResponse(
        responses=[_incremental_result(key, outcome) for key, outcome in outcomes.items()]
    )


@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), on_error=_incremental_error)
async def change_configs(
    services: ControlServices, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Set, delete, append to or subtract from single keys (KIP-339)."""
    wanted = [
        (
            (resource.resource_type, resource.resource_name),
            [(config.name, config.config_operation, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    outcomes = await _alter(services, context, wanted, validate_only=request.validate_only, changes_loggers=True)
    return IncrementalAlterConfigsResponse(
        responses=[_incremental_result(key, error) for key, error in outcomes.items()]
    )


def _incremental_result(
    key: tuple[int, str], error: KafkaError | None
) -> incremental_alter_configs.AlterConfigsResourceResponse:
    return incremental_alter_configs.AlterConfigsResourceResponse(
        **error_fields(error), resource_type=key[0], resource_name=key[1]
    )


def _replace_error(request: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponse:
    outcomes = {(resource.resource_type, resource.resource_name): error for resource in request.resources}
    return AlterConfigsResponse(responses=[_replace_result(key, outcome) for key, outcome in outcomes.items()])


@handles(ApiKey.ALTER_CONFIGS, versions=(0, 2), on_error=_replace_error)
async def replace_configs(
    services: ControlServices, context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    """Replace all configs of a resource: what the request leaves out goes back to its default."""
    image = services.metadata.image
    wanted = []
    for resource in request.resources:
        key = (resource.resource_type, resource.resource_name)
        changes: list[tuple[str, int, str | None]] = [
            (config.name, ConfigOperation.SET, config.value) for config in resource.configs
        ]
        if resource.resource_type in tuple(ConfigResourceType):
            kept = {config.name for config in resource.configs}
            present: Mapping[str, str] = image.configs.get(
                ConfigResource(ConfigResourceType(resource.resource_type), resource.resource_name)
            )
            changes += [(name, ConfigOperation.DELETE, None) for name in sorted(present) if name not in kept]
        wanted.append((key, changes))
    outcomes = await _alter(services, context, wanted, validate_only=request.validate_only)
    return AlterConfigsResponse(responses=[_replace_result(key, error) for key, error in outcomes.items()])


def _replace_result(key: tuple[int, str], error: KafkaError | None) -> alter_configs.AlterConfigsResourceResponse:
    return alter_configs.AlterConfigsResourceResponse(**error_fields(error), resource_type=key[0], resource_name=key[1])


async def _alter(
    services: ControlServices,
    context: RequestContext,
    wanted: Iterable[tuple[tuple[int, str], list[tuple[str, int, str | None]]]],
    *,
    validate_only: bool,
    changes_loggers: bool = False,
) -> dict[tuple[int, str], KafkaError | None]:
    """Send the resources that can be understood to the controller, and change own loggers; an outcome for each."""
    outcomes: dict[tuple[int, str], KafkaError | None] = {}
    sent: dict[tuple[int, str], ConfigAlteration] = {}
    logger_levels: dict[tuple[int, str], dict[str, str | None]] = {}
    for key, changes in wanted:
        if key in outcomes:
            sent.pop(key, None)
            logger_levels.pop(key, None)
            outcomes[key] = KafkaError.of(ErrorCode.INVALID_REQUEST, "each resource may be named once")
            continue
        outcomes[key] = None
        try:
            _require(context.access, ALTER_CONFIGS, *key)
            if key[0] == BROKER_LOGGER and changes_loggers:
                _check_own_loggers(services, key[1])
                logger_levels[key] = _logger_levels(changes)
            else:
                if (
                    key[0] == ConfigResourceType.CLIENT_METRICS
                ):  # a controller of a former version would not know the type
                    require_metadata_version(services.metadata.image, METADATA_VERSION_CLIENT_METRICS, CLIENT_METRICS)
                sent[key] = _alteration(key, changes)
        except KafkaError as error:
            outcomes[key] = error
    for key, levels in logger_levels.items():
        try:
            before = current_levels()
            change_levels(levels, validate_only=validate_only)
            services.audit.levels_changed(context.principal, context.client_host, before=before, after=current_levels())
        except KafkaError as error:
            outcomes[key] = error
    if sent:
        reply = await services.ask(
            context, IncrementalAlterConfigs(resources=tuple(sent.values()), validate_only=validate_only)
        )
        for key, altered in zip(sent, reply.resources, strict=True):
            outcomes[key] = altered.error
    return outcomes


def _require(access: Access, operation: AclOperation, resource_type: int, name: str) -> None:
    """Raises the KafkaError that refuses it. What has no configs is refused by whoever finds that out."""
    if resource_type == ConfigResourceType.TOPIC:
        access.require(operation, TOPIC, name)
    elif resource_type == ConfigResourceType.GROUP:
        access.require(operation, GROUP, name)
    elif resource_type in (ConfigResourceType.BROKER, ConfigResourceType.CLIENT_METRICS, BROKER_LOGGER):
        access.require(operation, CLUSTER)


def _check_own_loggers(services: ControlServices, name: str) -> None:
    if name != str(services.node_id):
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST, f"this is broker {services.node_id}: ask broker {name} for its own loggers"
        )


def _logger_levels(changes: list[tuple[str, int, str | None]]) -> dict[str, str | None]:
    levels: dict[str, str | None] = {}
    for name, operation, value in changes:
        if operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"{name}: a level is set or deleted, it is no list")
        if name in levels:
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, "each key may be changed once")
        if operation == ConfigOperation.SET and value is None:
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"{name} needs a value")
        levels[name] = value if operation == ConfigOperation.SET else None
    return levels


def _alteration(key: tuple[int, str], changes: list[tuple[str, int, str | None]]) -> ConfigAlteration:
    resource_type, resource_name = key
    if resource_type not in tuple(ConfigResourceType):
        raise _unknown_type(resource_type)
    if resource_type == ConfigResourceType.TOPIC and resource_name and not is_valid_topic_name(resource_name):
        raise KafkaError.of(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{resource_name!r} is not a topic name")
    if len({name for name, _, _ in changes}) != len(changes):
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, "each key may be changed once")
    typed = []
    for name, operation, value in changes:
        if operation not in tuple(ConfigOperation):
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"{name}: unknown operation {operation}")
        if value is None and operation != ConfigOperation.DELETE:
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"{name} needs a value")
        if operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT) and not is_list(resource_type, name):
            raise KafkaError.of(ErrorCode.INVALID_CONFIG, f"{name} is no list: set it")
        typed.append(ConfigChange(key=name, operation=ConfigOperation(operation), value=value))
    return ConfigAlteration(
        resource_type=ConfigResourceType(resource_type), resource_name=resource_name, changes=tuple(typed)
    )


def _unknown_type(resource_type: int) -> KafkaError:
    return KafkaError.of(ErrorCode.INVALID_REQUEST, f"resource type {resource_type} has no configs here")


@handles(ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1))
def list_config_resources_(
    services: ControlServices, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """Topics, brokers, their loggers, and groups and client metrics that have configs. v0 asks for client metrics alone."""
    image = services.metadata.image
    kinds = set(request.resource_types) or {BROKER_LOGGER, *(int(kind) for kind in ConfigResourceType)}
    if context.api_version == 0:
        kinds = {ConfigResourceType.CLIENT_METRICS}
    if not kinds <= LISTABLE_RESOURCE_TYPES:
        raise KafkaError.of(ErrorCode.UNSUPPORTED_VERSION, f"there is no such resource among {sorted(kinds)}")
    found: list[tuple[int, str]] = []
    if ConfigResourceType.TOPIC in kinds:
        found += [(ConfigResourceType.TOPIC, topic.name) for topic in image.topics.sorted_topics()]
    if ConfigResourceType.BROKER in kinds:
        found += [(ConfigResourceType.BROKER, str(broker.id)) for broker in image.cluster.sorted_brokers()]
    if BROKER_LOGGER in kinds:
        found += [(BROKER_LOGGER, str(broker.id)) for broker in image.cluster.sorted_brokers()]
    named_by_configs = kinds & {ConfigResourceType.CLIENT_METRICS, ConfigResourceType.GROUP}
    if named_by_configs:
        found += [(kind, name) for kind, name in sorted(image.configs.resources) if kind in named_by_configs]
    return ListConfigResourcesResponse(
        config_resources=[
            list_config_resources.ConfigResource(resource_name=name, resource_type=kind) for kind, name in found
        ]
    )
