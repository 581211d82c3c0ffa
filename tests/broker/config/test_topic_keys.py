"""Kafka's topic keys that no log obeys: which values hold as they are, and why the others are refused."""

from __future__ import annotations

import pytest

from barnabas_broker.config.topic_keys import ACCEPTED_TOPIC_KEYS
from barnabas_broker.node.topic_settings import TopicSettings
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId
from tests.broker.node.test_topic_settings import TOPIC, image_of

SETTINGS = TopicSettings(broker_id=BrokerId(1), properties={})


@pytest.mark.parametrize("key", sorted(ACCEPTED_TOPIC_KEYS))
def test_every_default_is_accepted_and_leaves_the_log_alone(key: str) -> None:
    value = ACCEPTED_TOPIC_KEYS[key].default
    SETTINGS.validate_topic("t", key, value)
    plain = SETTINGS.log_config("t", MetadataImage.EMPTY)
    assert SETTINGS.log_config("t", image_of((TOPIC, "t", key, value), (TOPIC, "t", "retention.ms", "1"))) != plain
    assert SETTINGS.log_config("t", image_of((TOPIC, "t", key, value))) == plain


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("flush.messages", "1"),
        ("flush.ms", "0"),
        ("min.cleanable.dirty.ratio", "0.1"),
        ("compression.zstd.level", "22"),
        ("compression.type", "gzip"),
        ("compression.type", "uncompressed"),
        ("cleanup.policy", ""),
        ("remote.log.copy.disable", "false"),
    ],
)
def test_a_value_whose_meaning_holds_is_accepted(key: str, value: str) -> None:
    SETTINGS.validate_topic("t", key, value)
    SETTINGS.validate_topic_as_whole("t", {key: value}, {})


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("compression.type", "brotli", "use one of: producer, uncompressed, gzip"),
        ("compression.gzip.level", "0", "between -1 and 9, but not 0"),
        ("compression.lz4.level", "18", "between 1 and 17"),
        ("remote.log.copy.disable", "true", "leave it at false"),
        ("preallocate", "true", "leave it at false"),
        ("remote.storage.enable", "true", "no tiered storage"),
        ("flush.messages", "0", "between 1"),
        ("min.cleanable.dirty.ratio", "2", "between 0 and 1"),
        ("min.cleanable.dirty.ratio", "NaN", "between 0 and 1"),
        ("message.format.version", "3.0", "Kafka 4 has it no more"),
        ("message.downconversion.enable", "true", "Kafka 4 has it no more"),
    ],
)
def test_a_value_that_cannot_be_honoured_is_refused_with_the_reason(key: str, value: str, reason: str) -> None:
    with pytest.raises(KafkaError, match=reason) as refused:
        SETTINGS.validate_topic("t", key, value)
    assert refused.value.code is ErrorCode.INVALID_CONFIG and key in refused.value.message


def test_flush_intervals_and_page_cache_contradict_each_other_whoever_set_them() -> None:
    for overrides, cluster in (
        ({"flush.ms": "5", "log.flush.on.acks": "page-cache"}, {}),
        ({"flush.messages": "5"}, {"log.flush.on.acks": "page-cache"}),
    ):
        with pytest.raises(KafkaError, match=r"log\.flush\.on\.acks=fsync"):
            SETTINGS.validate_topic_as_whole("t", overrides, cluster)
    SETTINGS.validate_topic_as_whole("t", {"log.flush.on.acks": "page-cache"}, {})


@pytest.mark.parametrize(
    ("key", "value", "is_fine"),
    [
        ("consumer.session.timeout.ms", "45000", True),
        ("consumer.session.timeout.ms", "1", False),
        ("streams.num.standby.replicas", "2", True),
        ("streams.num.standby.replicas", "3", False),
        ("streams.session.timeout.ms", "60001", False),
        ("streams.initial.rebalance.delay.ms", "0", True),
        ("consumer.heartbeat.interval.ms", "x", False),
        ("share.record.lock.duration.ms", "30000", True),
        ("share.record.lock.duration.ms", "14999", False),
        ("share.partition.max.record.locks", "4001", False),
        ("share.auto.offset.reset", "by_duration:-PT1S", False),
        ("share.isolation.level", "serializable", False),
        ("share.renew.acknowledge.enable", "yes", False),
        ("errors.deadletterqueue.topic.name", "__consumer_offsets", False),
        ("errors.deadletterqueue.topic.name", "a/b", False),
        ("errors.deadletterqueue.on.failure", "drop", False),
        ("share.retry.backoff.factor", "0.5", False),
        ("share.retry.backoff.factor", "NaN", False),
        ("share.delayed.records.max", "0", False),
        ("share.deliver.at.header", "h" * 250, False),
        ("share.max.size", "10", False),
    ],
)
def test_groups_have_the_keys_of_their_protocols(key: str, value: str, is_fine: bool) -> None:
    if is_fine:
        SETTINGS.validate_group("g", key, value)
        return
    with pytest.raises(KafkaError):
        SETTINGS.validate_group("g", key, value)


def test_the_session_of_a_group_is_longer_than_its_heartbeat_interval() -> None:
    """Each side is the group's own, or the node's."""
    properties = {
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.max.heartbeat.interval.ms": "60000",
        "group.consumer.heartbeat.interval.ms": "6000",
    }
    settings = TopicSettings(broker_id=BrokerId(1), properties=properties)
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    for overrides in ({session: "6000"}, {heartbeat: "45000"}, {session: "7000", heartbeat: "7000"}):
        for key, value in overrides.items():
            settings.validate_group("g", key, value)
        with pytest.raises(KafkaError, match="a session must be longer") as refused:
            settings.validate_group_as_whole(overrides)
        assert refused.value.code is ErrorCode.INVALID_CONFIG
    for overrides in ({}, {session: "6001"}, {heartbeat: "44999"}, {session: "5000", heartbeat: "4999"}):
        settings.validate_group_as_whole(overrides)
