"""Topic and broker configs: the effective values that the controller needs, and their validators.

May touch:  image.                     Must not touch: what a key means (validators are arguments).
Invariants: a value that its validator rejects never becomes a record.
Read next:  config_changes.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.records import ConfigResourceType, FeatureLevelRecord
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.lazy_dataclass import dataclass

UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"

ConfigValidator = Callable[[str, str, str], str]
"""(resource name, key, value): the value in its normal form, which is what is recorded, or raises KafkaError INVALID_CONFIG
(INVALID_REQUEST where Kafka has it) that names the key and the fix. The rooms that own the keys supply it, because this room must not
know them. A broker's resource name is its id as text, "" for all brokers."""


WholeValidator = Callable[[str, Mapping[str, str], Mapping[str, str]], None]
"""(topic, all its overrides after the change, those of all brokers): raises KafkaError INVALID_CONFIG where keys that are valid
on their own contradict each other."""


GroupValidator = Callable[[Mapping[str, str]], None]
"""(all overrides of a group after the change): raises KafkaError INVALID_CONFIG as WholeValidator does."""


InheritedValue = Callable[[ConfigResourceType, str, Mapping[str, str]], str]
"""(kind of resource, key, overrides of all brokers): the value that holds where the resource does not set the key."""


def inherit_nothing(resource_type: ConfigResourceType, key: str, cluster_default: Mapping[str, str]) -> str:
    """The empty list, for keys without defaults."""
    return ""


def allow_together(overrides: Mapping[str, str]) -> None:
    """No keys contradict each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigValidators:
    """What the rooms that own the keys know of them: the validators of each kind of resource, and what it inherits."""

    topic: ConfigValidator
    broker: ConfigValidator
    group: ConfigValidator
    client_metrics: ConfigValidator
    topic_as_whole: WholeValidator
    group_as_whole: GroupValidator = allow_together
    inherited: InheritedValue = inherit_nothing
    levels_of_keys: Mapping[str, FeatureLevelRecord]
    """Topic and broker keys that nodes below a level of a feature do not know: to them a topic with such a key is invalid."""


def refuse_unknown_to_some(image: MetadataImage, key: str, validators: ConfigValidators) -> None:
    """Raise KafkaError INVALID_CONFIG for a key that a node of the cluster may not know."""
    needed = validators.levels_of_keys.get(key)
    present = 0 if needed is None else image.features.levels.get(needed.name, 0)
    if needed is not None and present < needed.level:
        raise KafkaError.of(
            ErrorCode.INVALID_CONFIG,
            f"{key} needs {needed.name} {needed.level}, this cluster is at {present}: upgrade all nodes, then run "
            "`barnabas cluster features upgrade`",
        )


def refuse_lost_to_some(image: MetadataImage, name: str, level: int, validators: ConfigValidators) -> None:
    """Raise KafkaError INVALID_UPDATE_VERSION for a level of a feature whose nodes may not know a key that somebody has."""
    for resource, overrides in image.configs.resources.items():
        for key in overrides.keys() & validators.levels_of_keys.keys():
            needed = validators.levels_of_keys[key]
            if needed.name == name and level < needed.level:
                raise KafkaError.of(
                    ErrorCode.INVALID_UPDATE_VERSION,
                    f"{name} cannot go back to {level}: {resource.type.name.lower()} {resource.name!r} has {key}, which nodes of "
                    "that level may not know; remove it",
                )


def allows_unclean_election(image: MetadataImage, topic: str, *, default: bool) -> bool:
    """The topic's effective unclean.leader.election.enable: its own, else the dynamic one of all brokers, else `default`
    from the controller's properties."""
    value = image.configs.topic(topic).get(UNCLEAN_LEADER_ELECTION)
    if value is None:
        value = image.configs.cluster_default.get(UNCLEAN_LEADER_ELECTION)
    return default if value is None else value.lower() == "true"  # recorded by former versions as it was written


def validated_topic_configs(
    image: MetadataImage, topic: str, configs: Mapping[str, str], validators: ConfigValidators
) -> dict[str, str]:
    """The configs of a topic that is to be created, in their normal form. Raises KafkaError INVALID_CONFIG."""
    found = {}
    for key in sorted(configs):
        refuse_unknown_to_some(image, key, validators)
        found[key] = validators.topic(topic, key, configs[key].strip())
    validators.topic_as_whole(topic, found, image.configs.cluster_default)
    return found
