"""Incremental config changes and their immediate consequences (KIP-339). Image in, records out.

May touch:  image, configs, elections.   Must not touch: what a key means (the context brings the validators).
Invariants: all changes of one resource are made, or none; the consequences of a change are in the same batch.
Read next:  configs.py for effective values; elections.py, elr.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from barnabas_quorum.controller.configs import UNCLEAN_LEADER_ELECTION, ConfigValidators, refuse_unknown_to_some
from barnabas_quorum.controller.decisions import RECORDS_PER_BATCH_MAX, DecisionContext, decides
from barnabas_quorum.controller.elections import elect_leaderless
from barnabas_quorum.controller.features import require_metadata_version
from barnabas_quorum.controller.partition_rules import MIN_INSYNC_REPLICAS, rules_of
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
from barnabas_quorum.image.features import METADATA_VERSION_CLIENT_METRICS
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.records import ClearElrRecord, ConfigRecord, ConfigResourceType, Record
from barnabas_wire.kafka.errors import ErrorCode, KafkaError


@decides(IncrementalAlterConfigs)
def incremental_alter_configs(
    image: MetadataImage, request: IncrementalAlterConfigs, context: DecisionContext
) -> ControllerResult[IncrementalAlterConfigsReply]:
    """Each resource succeeds or fails as a whole: INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, BROKER_ID_NOT_REGISTERED,
    INVALID_CONFIG, POLICY_VIOLATION, UNSUPPORTED_VERSION."""
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
            changes = _alter_one(image, resource, alteration, context.validators)
            if len(records) + len(changes) > RECORDS_PER_BATCH_MAX:
                raise KafkaError.of(
                    ErrorCode.POLICY_VIOLATION,
                    f"one request may change at most {RECORDS_PER_BATCH_MAX} configs; send the rest in another",
                )
            records += changes
        except KafkaError as refusal:
            error = refusal
        replies.append(AlteredConfig(resource_type=resource.type, resource_name=resource.name, error=error))
    return ControllerResult(
        records=[] if request.validate_only else _with_consequences(records, context),
        response=IncrementalAlterConfigsReply(resources=tuple(replies)),
    )


def _with_consequences(changed: list[Record], context: DecisionContext) -> list[Record]:
    """Add the immediate consequences of changed configs: a new min.insync.replicas invalidates ELRs, and a new
    unclean.leader.election.enable may give leaders to partitions without one."""
    configs = [record for record in changed if isinstance(record, ConfigRecord)]
    cleared = {
        record.resource_name if record.resource_type is ConfigResourceType.TOPIC else ""
        for record in configs
        if record.key == MIN_INSYNC_REPLICAS
    }
    records = [
        *changed,
        *(ClearElrRecord(topic_name=name) for name in ([""] if "" in cleared else sorted(cleared))),
    ]
    if any(record.key == UNCLEAN_LEADER_ELECTION for record in configs):
        after = context.after(records)
        records += elect_leaderless(
            after, rules=rules_of(after, context.config), records_max=RECORDS_PER_BATCH_MAX - len(records)
        )
    return records


def _check_exists(image: MetadataImage, resource: ConfigResource) -> None:
    if resource.type is ConfigResourceType.TOPIC:
        if resource.name == "":
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, "topics have no common configs; name one topic")
        if image.topics.get(resource.name) is None:
            raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {resource.name!r} does not exist")
        return
    if resource.type is ConfigResourceType.GROUP:
        if resource.name == "":
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, "groups have no common configs; name one group")
        return
    if resource.type is ConfigResourceType.CLIENT_METRICS:
        if resource.name == "":
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, "a subscription of client metrics needs a name")
        require_metadata_version(image, METADATA_VERSION_CLIENT_METRICS, "subscriptions of client metrics")
        return
    if resource.name == "":
        return
    if not resource.name.isdecimal():
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST, f'name a broker by its id, or all brokers by "", not {resource.name!r}'
        )
    if resource.name not in map(str, image.cluster.brokers):  # 01 is not 1: no broker would read it
        raise KafkaError.of(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {resource.name} is not registered")


def _alter_one(
    image: MetadataImage, resource: ConfigResource, alteration: ConfigAlteration, validators: ConfigValidators
) -> list[Record]:
    validate = {
        ConfigResourceType.TOPIC: validators.topic,
        ConfigResourceType.BROKER: validators.broker,
        ConfigResourceType.CLIENT_METRICS: validators.client_metrics,
        ConfigResourceType.GROUP: validators.group,
    }[resource.type]
    present = image.configs.get(resource)
    inherited_from = {} if resource == CLUSTER_DEFAULT else image.configs.cluster_default
    after = dict(present)
    times = Counter(change.key for change in alteration.changes)
    records: list[Record] = []
    for change in alteration.changes:
        if times[change.key] > 1:
            raise KafkaError.of(
                ErrorCode.INVALID_REQUEST, f"{change.key} is changed twice in one request; change it once"
            )
        value = _changed_value(
            present.get(change.key),
            change,
            inherited=partial(validators.inherited, resource.type, change.key, inherited_from),
        )
        if value is not None:
            refuse_unknown_to_some(image, change.key, validators)
            value = validate(alteration.resource_name, change.key, value)
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
    elif resource.type is ConfigResourceType.GROUP:
        validators.group_as_whole(after)
    return records


def _check_removal(image: MetadataImage, resource: ConfigResource, key: str) -> None:
    """While ELRs are in use, the metadata must contain min.insync.replicas for all brokers: each broker's own file might
    differ from the controller's (KIP-966)."""
    if resource == CLUSTER_DEFAULT and key == MIN_INSYNC_REPLICAS and image.features.is_elr_enabled:
        raise KafkaError.of(
            ErrorCode.INVALID_CONFIG,
            f"{key} of all brokers cannot be removed while eligible.leader.replicas.version is on; set it to another value",
        )


def _changed_value(present: str | None, change: ConfigChange, *, inherited: Callable[[], str]) -> str | None:
    """The key's override after the change; None = no override. APPEND and SUBTRACT work on the value in effect, the override or
    else what is `inherited`, as lists of comma-separated parts; an empty list is an override too."""
    if change.operation is ConfigOperation.DELETE:
        return None
    if change.value is None:
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST, f"{change.key}: {change.operation.name} needs a value; DELETE removes a key"
        )
    if change.operation is ConfigOperation.SET:
        return change.value.strip()
    parts = [part.strip() for part in (inherited() if present is None else present).split(",") if part.strip()]
    operands = [part.strip() for part in change.value.split(",") if part.strip()]
    if change.operation is ConfigOperation.APPEND:
        parts += [part for part in operands if part not in parts]
    else:
        for part in operands:
            if part in parts:
                parts.remove(part)  # the first of equal ones, as Kafka has it
    return ",".join(parts)
