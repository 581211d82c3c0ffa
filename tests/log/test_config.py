"""Topic settings: Kafka's keys, whole or refused with key and fix."""

from __future__ import annotations

import dataclasses

import pytest

from barnabas_log.config import FlushOnAcks, LogConfig, TimestampType, broker_defaults
from barnabas_log.errors import InvalidLogConfig
from barnabas_wire.kafka.errors import ErrorCode


def test_overrides_win_over_defaults_and_defaults_over_ours() -> None:
    config = LogConfig.from_overrides(
        {"retention.ms": "5", "segment.ms": "9"}, {"retention.ms": "-1", "log.flush.on.acks": "page-cache"}
    )
    assert (config.retention_ms, config.segment_ms, config.segment_bytes) == (-1, 9, 1 << 30)
    assert config.flush_on_acks is FlushOnAcks.PAGE_CACHE and LogConfig().flush_on_acks is FlushOnAcks.FSYNC


def test_a_config_survives_its_text_form() -> None:
    config = LogConfig(retention_bytes=77, message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert LogConfig.from_overrides({}, config.to_overrides()) == config


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("segment.bytes", "1000"),
        ("segment.bytes", str(2**31)),
        ("min.insync.replicas", "0"),
        ("message.timestamp.type", "Sometimes"),
        ("log.flush.on.acks", "maybe"),
        ("no.such.key", "1"),
    ],
)
def test_a_bad_value_names_its_key(key: str, value: str) -> None:
    with pytest.raises(InvalidLogConfig, match=key.replace(".", r"\.")) as caught:
        LogConfig.from_overrides({}, {key: value})
    assert caught.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete, compact"])
def test_a_compacted_log_is_shortened_by_time_and_size_only_where_it_is_deleted_from_too(policy: str) -> None:
    config = LogConfig.from_overrides({}, {"cleanup.policy": policy})
    assert config.is_compacted and config.is_retention_on is (policy != "compact")
    assert not LogConfig.from_overrides({}, {}).is_compacted


def test_a_record_cannot_have_to_wait_longer_than_it_may() -> None:
    lags = {"min.compaction.lag.ms": "11", "max.compaction.lag.ms": "10"}
    with pytest.raises(InvalidLogConfig, match=r"min\.compaction\.lag\.ms=11 is above"):
        LogConfig.from_overrides({}, lags)
    LogConfig.from_overrides({}, {**lags, "max.compaction.lag.ms": "11"})


@pytest.mark.parametrize("ratio", ["-0.1", "1.01", "nan", "much"])
def test_a_dirty_ratio_is_a_share(ratio: str) -> None:
    with pytest.raises(InvalidLogConfig, match=r"min\.cleanable\.dirty\.ratio"):
        LogConfig.from_overrides({}, {"min.cleanable.dirty.ratio": ratio})
    assert LogConfig.from_overrides({}, {"min.cleanable.dirty.ratio": "0.25"}).min_cleanable_dirty_ratio == 0.25


@pytest.mark.parametrize(("policy", "is_on"), [("", False), ("delete,delete", True), (" delete ", True)])
def test_an_empty_policy_keeps_everything_and_a_name_twice_is_one(policy: str, is_on: bool) -> None:
    assert LogConfig.from_overrides({}, {"cleanup.policy": policy}).is_retention_on is is_on


def test_broker_keys_become_topic_defaults_and_the_finer_unit_wins() -> None:
    properties = {"log.retention.hours": "2", "log.roll.hours": "3", "log.segment.bytes": "2000000", "node.id": "1"}
    assert broker_defaults(properties) == {
        "retention.ms": "7200000",
        "segment.ms": "10800000",
        "segment.bytes": "2000000",
    }
    assert broker_defaults({**properties, "log.retention.minutes": "3"})["retention.ms"] == "180000"
    assert broker_defaults({**properties, "log.retention.minutes": "3", "log.retention.ms": "4"})["retention.ms"] == "4"
    assert broker_defaults({"log.retention.hours": "-1"}) == {"retention.ms": "-1"}
    with pytest.raises(InvalidLogConfig, match=r"log\.retention\.hours"):
        broker_defaults({"log.retention.hours": "long"})


def test_every_setting_has_key_broker_key_and_doc() -> None:
    for field in dataclasses.fields(LogConfig):
        assert field.metadata["key"] and field.metadata["broker_key"] and len(field.metadata["doc"]) > 20
