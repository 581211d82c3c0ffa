"""The settings of a topic's logs: topic override, then broker, cluster-wide, properties file, built-in default.

May touch:  its arguments, LogConfig.   Must not touch: files, environment, open logs.
Invariants: the precedence is Kafka's; a topic whose overrides became invalid (a newer node wrote them) keeps the defaults
    and says so instead of stopping the broker.
Read next:  barnabas_log/config.py, which knows the keys.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum

from barnabas_broker.config.group_keys import check_group_together, group_value
from barnabas_broker.config.keys import nearest
from barnabas_broker.config.topic_keys import (
    ACCEPTED_TOPIC_KEYS,
    DEAD_LETTERS_KEY,
    accepted_topic_value,
    check_together,
)
from barnabas_broker.node.properties import refuse_unknown
from barnabas_broker.node.refused_keys import WITHOUT_EFFECT
from barnabas_log.config import TOPIC_KEYS, CleanupPolicy, FlushOnAcks, LogConfig, broker_defaults
from barnabas_quorum.controller.configs import UNCLEAN_LEADER_ELECTION
from barnabas_quorum.image.features import METADATA_VERSION, METADATA_VERSION_PROOF, SHARE_VERSION
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.records import ConfigResourceType, FeatureLevelRecord
from barnabas_replication.throttle import (
    THROTTLED_RATE_KEYS,
    THROTTLED_REPLICAS_KEYS,
    ReplicationThrottle,
    parse_throttled_rate,
    parse_throttled_replicas,
)
from barnabas_wire.java_values import java_boolean, java_int
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import COMPACTED_TOPICS, SHARE_STATE_TOPIC, BrokerId

logger = logging.getLogger("barnabas_broker.config.dynamic")  # the name that operators set a level of

CONTROLLER_KEYS = frozenset({UNCLEAN_LEADER_ELECTION})
"""Topic and broker keys that only the controller reads: logs know nothing of them."""
LEVELS_OF_KEYS = {
    "validate.batches": FeatureLevelRecord(name=METADATA_VERSION, level=METADATA_VERSION_PROOF),
    DEAD_LETTERS_KEY: FeatureLevelRecord(name=SHARE_VERSION, level=2),
}
"""Topic and broker keys that nodes below a level of a feature do not know."""
CLEANUP_POLICY = "cleanup.policy"
SYSTEM_SETTINGS: Mapping[str, Mapping[str, str]] = {
    **{topic: {CLEANUP_POLICY: CleanupPolicy.COMPACT.value} for topic in COMPACTED_TOPICS},
    SHARE_STATE_TOPIC: {CLEANUP_POLICY: CleanupPolicy.DELETE.value, "retention.ms": "-1", "retention.bytes": "-1"},
}
"""By internal topic: settings that another value of would lose state."""
NOT_OF_LOGS = CONTROLLER_KEYS | THROTTLED_REPLICAS_KEYS | ACCEPTED_TOPIC_KEYS.keys()
"""Topic keys that logs know nothing of."""


class TopicSettings:
    """Resolves LogConfigs for one node."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        properties: Mapping[str, str],
        shape: Callable[[LogConfig], LogConfig] = lambda config: config,
    ) -> None:
        """`properties` is the node's file; `shape`: see NodeConfig.shape_log. Raises InvalidLogConfig when its own defaults are
        invalid."""
        self._broker_id = broker_id
        self._properties = properties
        self._shape = shape
        self._static = broker_defaults(properties)
        LogConfig.from_overrides(self._static, {})

    def log_config(self, topic: str, image: MetadataImage) -> LogConfig:
        """The settings of a topic's logs under an image."""
        return self._shape(self._log_config(topic, image))

    def _log_config(self, topic: str, image: MetadataImage) -> LogConfig:
        defaults = (
            self._static
            | broker_defaults(image.configs.cluster_default)
            | broker_defaults(image.configs.broker(self._broker_id))
        )
        try:
            overrides = {key: value for key, value in image.configs.topic(topic).items() if key not in NOT_OF_LOGS}
            # Also where an operator took the key away: the default would forget what groups committed seven days ago.
            return LogConfig.from_overrides(defaults, {**overrides, **SYSTEM_SETTINGS.get(topic, {})})
        except KafkaError as error:
            logger.error("topic %s is kept whole and without the settings that are invalid here: %s", topic, error)
            sound = {key: value for key, value in (defaults | overrides).items() if _is_sound(key, value)}
            sound.pop("max.compaction.lag.ms", None)  # each may be sound, and both together not
            config = LogConfig.from_overrides({}, sound)
            return replace(config, retention_ms=-1, retention_bytes=-1)

    def changed_topics(self, delta: MetadataDelta, image: MetadataImage) -> list[str]:
        """Topics whose settings a delta may have changed."""
        if delta.configs is None:
            return []
        if any(resource.type == ConfigResourceType.BROKER for resource in delta.configs.changed):
            return [topic.name for topic in image.topics.sorted_topics()]
        return sorted(
            resource.name
            for resource in delta.configs.changed
            if resource.type == ConfigResourceType.TOPIC and image.topics.get(resource.name) is not None
        )

    def changed_log_configs(self, delta: MetadataDelta, image: MetadataImage) -> dict[str, LogConfig]:
        """What they come to for the logs of each of these topics, by name."""
        return {topic: self.log_config(topic, image) for topic in self.changed_topics(delta, image)}

    def apply_throttles(
        self, throttle: ReplicationThrottle, delta: MetadataDelta, image: MetadataImage, now_ms: int
    ) -> None:
        """Take the replication throttles of a changed image over; what is invalid (a newer node wrote it) is left as it was."""
        try:
            for topic in self.changed_topics(delta, image):
                throttle.set_topic(topic, image.configs.topic(topic))
            rates = {**image.configs.cluster_default, **image.configs.broker(self._broker_id)}
            throttle.set_rates(rates, now_ms)
        except KafkaError as error:
            logger.error("replication throttles are left as they were: %s", error)

    def validate_topic(self, topic: str, key: str, value: str) -> str:
        """What the controller asks before it records an override: the value in its normal form, as DescribeConfigs shows it.

        Raises KafkaError INVALID_CONFIG naming key and fix.
        """
        if key in CONTROLLER_KEYS:
            return _boolean(key, value)
        accepted = accepted_topic_value(key, value)
        if accepted is not None:
            return accepted
        if key in THROTTLED_REPLICAS_KEYS:
            parse_throttled_replicas(key, value)
            return value.strip()
        needed = SYSTEM_SETTINGS.get(topic, {}).get(key, value)
        if value != needed:
            raise KafkaError.of(
                ErrorCode.INVALID_CONFIG,
                f"{topic} holds the state of the system, which another value would lose: leave {key}={needed}",
            )
        if key not in TOPIC_KEYS:
            meant = nearest(key, (*TOPIC_KEYS, *NOT_OF_LOGS))
            if meant is not None:
                raise KafkaError.of(ErrorCode.INVALID_CONFIG, f"{key} is no topic setting; did you mean {meant}?")
        return LogConfig.from_overrides(self._static, {key: value}).to_overrides()[key]

    def validate_topic_as_whole(self, topic: str, overrides: Mapping[str, str], cluster: Mapping[str, str]) -> None:
        """What all overrides of a topic together come to, over those of all brokers (`cluster`). Raises KafkaError
        INVALID_CONFIG for keys that contradict each other."""
        of_logs = {key: value for key, value in overrides.items() if key not in NOT_OF_LOGS}
        config = LogConfig.from_overrides(self._static | broker_defaults(cluster), of_logs)
        check_together(overrides, is_page_cache=config.flush_on_acks is FlushOnAcks.PAGE_CACHE)

    def inherited(self, resource_type: ConfigResourceType, key: str, cluster: Mapping[str, str]) -> str:
        """The value of a key that the resource does not set: from all brokers (`cluster`), the properties or the default; "" for
        keys that have none."""
        if resource_type is ConfigResourceType.TOPIC:
            topic_key = key
        else:
            topic_key = next((name for name, field in TOPIC_KEYS.items() if field.metadata["broker_key"] == key), "")
        if topic_key not in TOPIC_KEYS:
            return ""
        default = TOPIC_KEYS[topic_key].default
        fallback = str(default.value if isinstance(default, Enum) else default)
        return (self._static | broker_defaults(cluster)).get(topic_key, fallback)

    def validate_group(self, group: str, key: str, value: str) -> str:
        """The same as validate_topic for a consumer group's key."""
        return group_value(key, value, self._properties)

    def validate_group_as_whole(self, overrides: Mapping[str, str]) -> None:
        """What all overrides of a group come to, over the node's properties. Raises KafkaError INVALID_CONFIG as
        validate_topic_as_whole."""
        check_group_together(overrides, self._properties)

    def validate_broker(self, key: str, value: str) -> str:
        """The same for a dynamic broker key: only the defaults of topics can change while a broker runs."""
        if key in CONTROLLER_KEYS:
            return _boolean(key, value)
        if key in THROTTLED_RATE_KEYS:
            return str(parse_throttled_rate(key, value))
        defaults = broker_defaults({key: value})
        if not defaults:
            if key in WITHOUT_EFFECT:
                logger.warning("%s=%s is kept and has no effect: Barnabas has no use for the key", key, value)
                return value.strip()
            refuse_unknown([key])
            raise KafkaError.of(
                ErrorCode.INVALID_CONFIG,
                f"{key} cannot change while brokers run: set it in server.properties and restart the broker",
            )
        config = LogConfig.from_overrides(defaults, {}).to_overrides()
        (topic_key,) = defaults
        if TOPIC_KEYS[topic_key].metadata["broker_key"] != key:
            return str(java_int(value))  # hours or minutes, which stay what they are
        return config[topic_key]


def _is_sound(key: str, value: str) -> bool:
    try:
        LogConfig.from_overrides({}, {key: value})
    except KafkaError:
        return False
    return True


def _boolean(key: str, value: str) -> str:
    try:
        return "true" if java_boolean(value) else "false"
    except ValueError as error:
        raise KafkaError.of(ErrorCode.INVALID_CONFIG, f"{key}={value!r} is not a boolean: {error}") from None
