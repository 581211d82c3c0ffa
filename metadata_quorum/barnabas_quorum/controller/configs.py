"""Topic and broker configs: effective values the controller itself needs, and incremental changes (KIP-339).

May touch:  image.                     Must not touch: what a key means (validators come in as arguments).
Invariants: the changes of one resource are all made or none; a value that its validator refuses never becomes a record.
Read next:  controller.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from barnabas_quorum.controller.requests import (
    AlteredConfig,
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
    IncrementalAlterConfigs,
    IncrementalAlterConfigsReply,
)
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.configs import CLUSTER_DEFAULT, ConfigResource
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.records import ConfigRecord, ConfigResourceType, Record
from barnabas_wire.kafka.errors import ErrorCode, KafkaError

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"

ConfigValidator = Callable[[str, str, str], None]
"""(resource name, key, value): raises KafkaError INVALID_CONFIG that names key and fix. The rooms that own the keys supply
it, because this room must not know them. For a broker the resource name is its id in text, "" for all brokers."""


WholeValidator = Callable[[str, Mapping[str, str], Mapping[str, str]], None]
"""(topic, all its overrides after the change, those of all brokers): raises KafkaError INVALID_CONFIG where they contradict
each other, which no single key shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigValidators:
    """Who knows which keys."""

    topic: ConfigValidator
    broker: ConfigValidator
    group: ConfigValidator
    topic_as_whole: WholeValidator


def allows_unclean_election(image: MetadataImage, topic: str, *, default: bool) -> bool:
    """The topic's effective unclean.leader.election.enable: its own, else the dynamic one of all brokers, else `default`
    from the controller's properties."""
    value = image.configs.topic(topic).get(UNCLEAN_LEADER_ELECTION)
    if value is None:
        value = image.configs.cluster_default.get(UNCLEAN_LEADER_ELECTION)
    return default if value is None else value == "true"


def incremental_alter_configs(
    image: MetadataImage, request: IncrementalAlterConfigs, *, validators: ConfigValidators, records_max: int
) -> ControllerResult[IncrementalAlterConfigsReply]:
    """Each resource succeeds or fails as a whole: INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, BROKER_ID_NOT_REGISTERED,
    INVALID_CONFIG, POLICY_VIOLATION."""
    records: list[Record] = []
    replies: list[AlteredConfig] = []
    named = [ConfigResource(resource.resource_type, resource.resource_name) for resource in request.resources]
    times = Counter(named)
    for alteration, resource in zip(request.resources, named, strict=True):
        error: KafkaError | None = None
        try:
            if times[resource] > 1:
                raise KafkaError.of(
                    ErrorCode.INVALID_REQUEST,
                    f"{resource.type.name.lower()} {resource.name!r} is named twice in one request; name it once",
                )
            _check_exists(image, resource)
            changes = _alter_one(image, resource, alteration, validators)
            if len(records) + len(changes) > records_max:
                raise KafkaError.of(
                    ErrorCode.POLICY_VIOLATION,
                    f"one request may change at most {records_max} configs; send the rest in another",
                )
            records += changes
        except KafkaError as refusal:
            error = refusal
        replies.append(AlteredConfig(resource_type=resource.type, resource_name=resource.name, error=error))
    return ControllerResult(
        records=[] if request.validate_only else records,
        response=IncrementalAlterConfigsReply(resources=tuple(replies)),
    )


def validated_topic_configs(
    topic: str, configs: Mapping[str, str], validators: ConfigValidators, *, cluster_default: Mapping[str, str]
) -> None:
    """Check the configs a topic shall be created with; `cluster_default` are those of all brokers. Raises KafkaError
    INVALID_CONFIG."""
    for key in sorted(configs):
        validators.topic(topic, key, configs[key])
    validators.topic_as_whole(topic, configs, cluster_default)


def _check_exists(image: MetadataImage, resource: ConfigResource) -> None:
    if resource.type is ConfigResourceType.TOPIC:
        if resource.name == "":
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, "there are no configs of all topics; name one")
        if image.topics.get(resource.name) is None:
            raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {resource.name!r} does not exist")
        return
    if resource.type is ConfigResourceType.GROUP:
        if resource.name == "":
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, "there are no configs of all groups; name one")
        return
    if resource.name == "":
        return
    if not resource.name.isdecimal():
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST, f'a broker is named by its id, or "" for all brokers, not {resource.name!r}'
        )
    if resource.name not in map(str, image.cluster.brokers):  # 01 is not 1: nobody would read it
        raise KafkaError.of(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {resource.name} is not registered")


def _alter_one(
    image: MetadataImage, resource: ConfigResource, alteration: ConfigAlteration, validators: ConfigValidators
) -> list[Record]:
    validate = {
        ConfigResourceType.TOPIC: validators.topic,
        ConfigResourceType.BROKER: validators.broker,
        ConfigResourceType.GROUP: validators.group,
    }[resource.type]
    present = image.configs.get(resource)
    after = dict(present)
    times = Counter(change.key for change in alteration.changes)
    records: list[Record] = []
    for change in alteration.changes:
        if times[change.key] > 1:
            raise KafkaError.of(
                ErrorCode.INVALID_REQUEST, f"{change.key} is changed twice in one request; once will do"
            )
        value = _changed_value(present.get(change.key), change)
        if value is not None:
            validate(alteration.resource_name, change.key, value)
        if value is None:
            after.pop(change.key, None)
            _check_removal(image, resource, change.key)
        else:
            after[change.key] = value
        if value != present.get(change.key):
            records.append(
                ConfigRecord(
                    resource_type=alteration.resource_type,
                    resource_name=alteration.resource_name,
                    key=change.key,
                    value=value,
                )
            )
    if resource.type is ConfigResourceType.TOPIC:
        validators.topic_as_whole(resource.name, after, image.configs.cluster_default)
    return records


def _check_removal(image: MetadataImage, resource: ConfigResource, key: str) -> None:
    """While there are ELRs, min.insync.replicas of all brokers must stand in the metadata: each broker's own file might say
    something else than the controller's (KIP-966)."""
    if resource == CLUSTER_DEFAULT and key == MIN_INSYNC_REPLICAS and image.features.is_elr_enabled:
        raise KafkaError.of(
            ErrorCode.INVALID_CONFIG,
            f"{key} of all brokers cannot be removed while eligible.leader.replicas.version is on; set it to another value",
        )


def _changed_value(present: str | None, change: ConfigChange) -> str | None:
    """The key's override after the change; None = no override. APPEND and SUBTRACT work on the override, as lists of
    comma-separated parts; a list without parts is an override too."""
    if change.operation is ConfigOperation.DELETE:
        return None
    if change.value is None:
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST, f"{change.key}: {change.operation.name} needs a value; DELETE removes a key"
        )
    if change.operation is ConfigOperation.SET:
        return change.value.strip()
    parts = [part.strip() for part in (present or "").split(",") if part.strip()]
    operands = [part.strip() for part in change.value.split(",") if part.strip()]
    if change.operation is ConfigOperation.APPEND:
        parts += [part for part in operands if part not in parts]
    else:
        parts = [part for part in parts if part not in operands]
    return ",".join(parts)
