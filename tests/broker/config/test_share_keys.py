"""A share group's own configs: their normal forms, what they come to within the node's bounds, and ISO-8601 durations."""

from __future__ import annotations

import pytest

from barnabas_broker.config.group_keys import group_value
from barnabas_broker.config.keys import keys_of
from barnabas_coordination.share_group_config import ShareGroupConfig
from barnabas_coordination.share_settings import SHARE_KEYS, ShareSettings, duration_ms, settings_of
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.records import ConfigResourceType
from tests.broker.node.test_topic_settings import image_of

CONFIG = ShareGroupConfig()


def come_to(overrides: dict[str, str], config: ShareGroupConfig = CONFIG) -> ShareSettings:
    """The settings of a group with these overrides."""
    given = [(ConfigResourceType.GROUP, "g", key, value) for key, value in overrides.items()]
    return settings_of(config, image_of(*given), "g")


@pytest.mark.parametrize("name", SHARE_KEYS)
def test_every_default_is_a_value_in_its_normal_form_that_changes_nothing(name: str) -> None:
    key = SHARE_KEYS[name]
    assert group_value(name, key.default, {}) == key.default
    assert come_to({name: key.default}) == ShareSettings()
    assert key.doc or f"group.{name}" in {node.name for node in keys_of(ShareGroupConfig)}


@pytest.mark.parametrize(
    ("name", "text", "normal"),
    [
        ("share.auto.offset.reset", "Earliest", "earliest"),
        ("share.auto.offset.reset", "by_duration:p2dt3h", "by_duration:P2DT3H"),
        ("share.isolation.level", "READ_COMMITTED", "read_committed"),
        ("share.renew.acknowledge.enable", "FALSE", "false"),
        ("share.delivery.count.limit", "+07", "7"),
        ("share.retry.backoff.factor", "2", "2.0"),
        ("errors.deadletterqueue.on.failure", "ARCHIVE", "archive"),
        ("errors.deadletterqueue.topic.name", " dlq.orders ", "dlq.orders"),
    ],
)
def test_values_are_kept_in_their_normal_form(name: str, text: str, normal: str) -> None:
    assert group_value(name, text, {}) == normal


def test_a_group_without_configs_has_the_nodes() -> None:
    config = ShareGroupConfig(group_share_delivery_count_limit=3, group_share_record_lock_duration_ms=20_000)
    expected = ShareSettings(delivery_count_limit=3, record_lock_duration_ms=20_000)
    assert settings_of(config, MetadataImage.EMPTY, "g") == expected


def test_own_configs_come_first_within_the_bounds_and_what_cannot_be_read_is_as_if_absent() -> None:
    found = come_to(
        {
            "share.delivery.count.limit": "99",
            "share.session.timeout.ms": "1",
            "share.auto.offset.reset": "by_duration:PT1H",
            "share.isolation.level": "read_committed",
            "share.retry.backoff.ms": "-4",
            "share.retry.backoff.factor": "1.5",
            "share.delayed.records.max": "many",
            "errors.deadletterqueue.topic.name": "dlq.g",
            "errors.deadletterqueue.on.failure": "archive",
            "consumer.session.timeout.ms": "50000",
            "share.of.a.newer.version": "1",
        }
    )
    assert found == ShareSettings(
        delivery_count_limit=10,
        auto_offset_reset="by_duration:PT1H",
        is_read_committed=True,
        retry_backoff_factor=1.5,
        dead_letter_topic="dlq.g",
        holds_on_dead_letter_failure=False,
    )


def test_bounds_are_those_of_the_node() -> None:
    config = ShareGroupConfig(group_share_max_delivery_count_limit=25)
    assert come_to({"share.delivery.count.limit": "20"}, config).delivery_count_limit == 20
    assert group_value("share.delivery.count.limit", "20", {"group.share.max.delivery.count.limit": "25"}) == "20"


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT0S", 0),
        ("PT1H", 3_600_000),
        ("P2DT3H4M5.5S", 183_845_500),
        ("pt.5s", None),
        ("PT5.S", 5_000),
        ("PT-1H61M", 60_000),
        ("-PT-1S", 1_000),
        ("PT1H-61M", None),
        ("P", None),
        ("PT", None),
        ("P1DT", None),
        ("1h", None),
        ("P1Y", None),
        ("P999999999999999D", None),
    ],
)
def test_durations_are_those_of_java_time(text: str, ms: int | None) -> None:
    if ms is None:
        with pytest.raises(ValueError):
            duration_ms(text)
    else:
        assert duration_ms(text) == ms


@pytest.mark.parametrize(
    "values",
    [
        {"group_share_session_timeout_ms": 5_000, "group_share_min_session_timeout_ms": 1_000},
        {"group_share_delivery_count_limit": 11, "group_share_max_delivery_count_limit": 25},
        {"group_share_min_record_lock_duration_ms": 40_000},
        {"group_share_max_size": 1_001},
        {"group_share_assignors": ("simple", "simple")},
        {"group_share_assignors": ("range",)},
        {"group_share_partition_max_record_locks": 99},
    ],
)
def test_keys_that_contradict_each_other_or_their_bounds_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"group\.share\."):
        ShareGroupConfig(**values)  # type: ignore[arg-type]
