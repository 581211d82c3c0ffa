"""What a topic or broker key is worth, and where the value comes from.

May touch:  the image's configs, the node's keys.    Must not touch: files, sockets.
Invariants: the first source that sets a key wins, in Kafka's order: topic, this broker, all brokers, properties, default.
Read next:  configs.py, topics.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field
from enum import Enum, IntEnum
from typing import Any, NamedTuple

from barnabas_broker.api.services import BrokerKey, ControlServices
from barnabas_broker.config.group_keys import GROUP_KEYS
from barnabas_broker.config.loggers import levels
from barnabas_broker.config.topic_keys import ACCEPTED_TOPIC_KEYS, AcceptedKey
from barnabas_broker.telemetry import subscriptions
from barnabas_coordination.share_settings import SHARE_KEYS
from barnabas_log.config import INT32_MAX, TOPIC_KEYS, CleanupPolicy
from barnabas_quorum.controller.configs import UNCLEAN_LEADER_ELECTION
from barnabas_quorum.records import ConfigResourceType
from barnabas_replication.throttle import FOLLOWER_REPLICAS_KEY, LEADER_REPLICAS_KEY


class ConfigSource(IntEnum):
    """Kafka's numbers (DescribeConfigs)."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigType(IntEnum):
    """Kafka's numbers (DescribeConfigs v3+)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


TYPE_OF = {
    "long": ConfigType.LONG,
    "boolean": ConfigType.BOOLEAN,
    "string": ConfigType.STRING,
    "int": ConfigType.INT,
    "double": ConfigType.DOUBLE,
    "list": ConfigType.LIST,
}
OTHER_INTEGERS = {
    "connections.max.idle.ms": ConfigType.LONG,
    "leader.imbalance.check.interval.seconds": ConfigType.LONG,
    "log.retention.check.interval.ms": ConfigType.LONG,
    "offsets.retention.check.interval.ms": ConfigType.LONG,
    "offsets.topic.replication.factor": ConfigType.SHORT,
    "transaction.state.log.replication.factor": ConfigType.SHORT,
    "share.coordinator.state.topic.replication.factor": ConfigType.SHORT,
    "share.coordinator.state.topic.min.isr": ConfigType.SHORT,
    "replica.high.watermark.checkpoint.interval.ms": ConfigType.LONG,
    "replica.lag.time.max.ms": ConfigType.LONG,
}
"""Broker keys with whole numbers that are no INT in Kafka. Keys that topics take as defaults are known by their range."""


TOPIC_DEFAULTS = {field.metadata["broker_key"]: field for field in TOPIC_KEYS.values()}
"""Broker keys that topics take as defaults."""


def is_list(resource_type: int, name: str) -> bool:
    """Whether a key's value is a list of parts, which can be added and taken away; True for a key that is unknown."""
    if resource_type == ConfigResourceType.CLIENT_METRICS:
        return False  # Kafka's controller takes none of these keys for a list
    field = (TOPIC_KEYS if resource_type == ConfigResourceType.TOPIC else TOPIC_DEFAULTS).get(name)
    return field is None or _topic_type(field) is ConfigType.LIST


OTHER_TOPIC_KEYS: Mapping[str, AcceptedKey] = {
    **ACCEPTED_TOPIC_KEYS,
    UNCLEAN_LEADER_ELECTION: AcceptedKey(
        type_name="boolean",
        default="false",
        broker_key=UNCLEAN_LEADER_ELECTION,
        doc="Let a replica that is not in sync lead when no in-sync one is left: acknowledged records may be lost.",
        refusal=lambda text: None,
    ),
    **{
        name: AcceptedKey(
            type_name="list",
            default="",
            broker_key="",
            doc=f"Replicas whose {side} is held to {side}.replication.throttled.rate: partition:broker, ... or *.",
            refusal=lambda text: None,
        )
        for name, side in ((LEADER_REPLICAS_KEY, "leader"), (FOLLOWER_REPLICAS_KEY, "follower"))
    },
}
"""Topic keys beside those of logs."""


class Synonym(NamedTuple):
    """One place that sets, or could have set, the value."""

    name: str
    value: str
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One key of a resource with its value in effect."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    type: ConfigType
    doc: str
    synonyms: tuple[Synonym, ...]
    """Every source that has a value, the winner first."""
    is_sensitive: bool = False
    """A secret: value and synonyms show none."""


class TopicEntries:
    """The topic keys as one request sees them: what is alike for many topics is made once.

    Topics with the same overrides have the same entries, and in most clusters nearly all have none; forty entries take 0.4 ms.
    """

    def __init__(self, services: ControlServices) -> None:
        self._services = services
        self._node = {key.name: key for key in services.broker_keys()}
        self._known: dict[tuple[tuple[str, str], ...], list[ConfigEntry]] = {}

    def of(self, overrides: Mapping[str, str]) -> list[ConfigEntry]:
        """All topic keys, given a topic's own overrides; by name. The list is shared: it must not be changed."""
        key = tuple(sorted(overrides.items()))
        entries = self._known.get(key)
        if entries is None:
            entries = self._known[key] = _topic_entries(self._services, self._node, overrides)
        return entries


def _topic_entries(
    services: ControlServices, node: Mapping[str, BrokerKey], overrides: Mapping[str, str]
) -> list[ConfigEntry]:
    entries = []
    for name, field in sorted(TOPIC_KEYS.items()):
        synonyms = []
        if name in overrides:
            synonyms.append(Synonym(name, overrides[name], ConfigSource.DYNAMIC_TOPIC))
        default = _text(field.default)
        broker_name = field.metadata["broker_key"]
        synonyms += _node_synonyms(services, node.get(broker_name), broker_name, default)
        winner = synonyms[0]
        entries.append(
            ConfigEntry(
                name=name,
                value=winner.value,
                source=winner.source,
                is_read_only=False,
                type=_topic_type(field),
                doc=field.metadata["doc"],
                synonyms=tuple(synonyms),
            )
        )
    entries += [_other_topic_entry(services, node, overrides, name) for name in sorted(OTHER_TOPIC_KEYS)]
    return sorted(entries, key=lambda entry: entry.name)


def _other_topic_entry(
    services: ControlServices, node: Mapping[str, BrokerKey], overrides: Mapping[str, str], name: str
) -> ConfigEntry:
    """A topic key that no log obeys."""
    key = OTHER_TOPIC_KEYS[name]
    synonyms = []
    if name in overrides:
        synonyms.append(Synonym(name, overrides[name], ConfigSource.DYNAMIC_TOPIC))
    synonyms += _node_synonyms(services, node.get(key.broker_key), key.broker_key or name, key.default)
    return ConfigEntry(
        name=name,
        value=synonyms[0].value,
        source=synonyms[0].source,
        is_read_only=False,
        type=TYPE_OF[key.type_name],
        doc=key.doc,
        synonyms=tuple(synonyms),
    )


def group_entries(services: ControlServices, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """The keys of groups in which the coordinator assigns (KIP-848, 932 and 1071), by name; what one does not set itself is the
    broker's, or the default."""
    node = {key.name: key for key in services.broker_keys()}
    entries = []
    for name in sorted(GROUP_KEYS):
        own, key, of_share = overrides.get(name), node.get(f"group.{name}"), SHARE_KEYS.get(name)
        synonyms = [] if own is None else [Synonym(name, own, ConfigSource.GROUP)]
        if key is not None:
            synonyms.append(Synonym(name, key.value, ConfigSource.DEFAULT))
        elif of_share is not None:
            synonyms.append(Synonym(name, of_share.default, ConfigSource.DEFAULT))
        if synonyms:
            entries.append(
                ConfigEntry(
                    name=name,
                    value=synonyms[0].value,
                    source=synonyms[0].source,
                    is_read_only=False,
                    type=ConfigType.INT if of_share is None else TYPE_OF[of_share.type_name],
                    doc=key.doc if key is not None else "" if of_share is None else of_share.doc,
                    synonyms=tuple(synonyms),
                )
            )
    return entries


def client_metrics_entries(overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """The keys of a subscription of client metrics (KIP-714), by name; as in Kafka a default is no synonym."""
    entries = []
    for name, default in subscriptions.DEFAULTS.items():
        own = overrides.get(name)
        entries.append(
            ConfigEntry(
                name=name,
                value=default if own is None else own,
                source=ConfigSource.DEFAULT if own is None else ConfigSource.CLIENT_METRICS,
                is_read_only=False,
                type=ConfigType.INT if name == subscriptions.INTERVAL_MS else ConfigType.LIST,
                doc=subscriptions.DOCS[name],
                synonyms=() if own is None else (Synonym(name, own, ConfigSource.CLIENT_METRICS),),
            )
        )
    return entries


def logger_entries() -> list[ConfigEntry]:
    """The levels of this broker's loggers, by name."""
    return [
        ConfigEntry(
            name=name,
            value=level,
            source=ConfigSource.DYNAMIC_BROKER_LOGGER,
            is_read_only=False,
            type=ConfigType.UNKNOWN,
            doc="",
            synonyms=(),
        )
        for name, level in levels().items()
    ]


def broker_entries(services: ControlServices) -> list[ConfigEntry]:
    """All keys of this node; by name. Keys that topics take as defaults may be changed while it runs."""
    entries = []
    keys = sorted(services.broker_keys())
    for key in keys:
        synonyms = _node_synonyms(services, key, key.name, key.default)
        entries.append(
            ConfigEntry(
                name=key.name,
                value=synonyms[0].value if synonyms and not key.is_sensitive else None,
                source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
                is_read_only=key.name not in TOPIC_DEFAULTS,
                type=_broker_type(key),
                doc=key.doc,
                synonyms=() if key.is_sensitive else tuple(synonyms),
                is_sensitive=key.is_sensitive,
            )
        )
    known = {key.name for key in keys}
    configs = services.metadata.image.configs
    for name in sorted({*configs.broker(services.node_id), *configs.cluster_default} - known):
        synonyms = _node_synonyms(services, None, name, None)
        entries.append(
            ConfigEntry(name, synonyms[0].value, synonyms[0].source, False, ConfigType.UNKNOWN, "", tuple(synonyms))
        )
    return sorted(entries, key=lambda entry: entry.name)


def cluster_entries(services: ControlServices) -> list[ConfigEntry]:
    """The configs of all brokers that were set while the cluster ran (broker resource with the empty name)."""
    node = {key.name: key for key in services.broker_keys()}
    entries = []
    for name, value in sorted(services.metadata.image.configs.cluster_default.items()):
        key = node.get(name)
        entries.append(
            ConfigEntry(
                name=name,
                value=value,
                source=ConfigSource.DYNAMIC_DEFAULT_BROKER,
                is_read_only=False,
                type=_broker_type(key) if key is not None else ConfigType.UNKNOWN,
                doc=key.doc if key is not None else "",
                synonyms=(Synonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER),),
            )
        )
    return entries


def _node_synonyms(services: ControlServices, key: BrokerKey | None, name: str, default: str | None) -> list[Synonym]:
    configs = services.metadata.image.configs
    synonyms = []
    own = configs.broker(services.node_id).get(name)
    if own is not None:
        synonyms.append(Synonym(name, own, ConfigSource.DYNAMIC_BROKER))
    everyone = configs.cluster_default.get(name)
    if everyone is not None:
        synonyms.append(Synonym(name, everyone, ConfigSource.DYNAMIC_DEFAULT_BROKER))
    if key is not None and key.is_set:
        synonyms.append(Synonym(name, key.value, ConfigSource.STATIC_BROKER))
    if default is not None:
        synonyms.append(Synonym(name, default, ConfigSource.DEFAULT))
    return synonyms


def _text(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _topic_type(field: Field[Any]) -> ConfigType:
    value = field.default
    if isinstance(value, bool):
        return ConfigType.BOOLEAN
    if isinstance(value, int):
        return ConfigType.INT if field.metadata["at_most"] <= INT32_MAX else ConfigType.LONG
    if isinstance(value, float):
        return ConfigType.DOUBLE
    return ConfigType.LIST if isinstance(value, CleanupPolicy) else ConfigType.STRING


def _broker_type(key: BrokerKey) -> ConfigType:
    if key.name in TOPIC_DEFAULTS:
        return _topic_type(TOPIC_DEFAULTS[key.name])
    return OTHER_INTEGERS.get(key.name) or TYPE_OF.get(key.type_name, ConfigType.STRING)
