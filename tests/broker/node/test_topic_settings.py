"""Topic settings: whose override wins, what is refused, and keys that only the controller reads."""

from __future__ import annotations

import pytest

from barnabas_broker.node.topic_settings import TopicSettings
from barnabas_log.config import CleanupPolicy
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.records import ConfigRecord, ConfigResourceType
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset

UNCLEAN = "unclean.leader.election.enable"
BROKER, TOPIC = ConfigResourceType.BROKER, ConfigResourceType.TOPIC


def image_of(*overrides: tuple[ConfigResourceType, str, str, str]) -> MetadataImage:
    """An image with these overrides."""
    delta = MetadataDelta(MetadataImage.EMPTY)
    for kind, name, key, value in overrides:
        delta.replay(ConfigRecord(resource_type=kind, resource_name=name, key=key, value=value))
    return delta.apply(Offset(1), Epoch(1), 1)


def settings(**properties: str) -> TopicSettings:
    """Those of broker 1."""
    return TopicSettings(broker_id=BrokerId(1), properties=properties)


@pytest.mark.parametrize(
    ("key", "value", "normal"),
    [
        ("retention.ms", "+0060000", "60000"),
        ("min.cleanable.dirty.ratio", ".5f", "0.5"),
        ("cleanup.policy", "delete, compact", "compact,delete"),
        (UNCLEAN, "TRUE", "true"),
        ("preallocate", "False", "false"),
        ("flush.ms", "+5", "5"),
        ("leader.replication.throttled.replicas", " * ", "*"),
    ],
)
def test_a_value_is_recorded_in_its_normal_form(key: str, value: str, normal: str) -> None:
    assert settings().validate_topic("t", key, value) == normal


@pytest.mark.parametrize(
    ("key", "value", "normal"),
    [
        ("log.retention.ms", "+05", "5"),
        ("log.retention.hours", "+05", "5"),
        ("log.retention.minutes", "-1", "-1"),
        (UNCLEAN, "False", "false"),
        ("leader.replication.throttled.rate", "+1000", "1000"),
    ],
)
def test_so_is_that_of_a_broker(key: str, value: str, normal: str) -> None:
    assert settings().validate_broker(key, value) == normal


@pytest.mark.parametrize("value", ["1_000", "1e3", "5L"])
def test_pythons_own_spellings_are_refused(value: str) -> None:
    for key in ("retention.ms", "flush.ms"):
        with pytest.raises(KafkaError, match="number"):
            settings().validate_topic("t", key, value)


def test_topic_wins_over_broker_over_cluster_over_file_over_default() -> None:
    own = settings(**{"log.retention.ms": "1000"})
    assert own.log_config("t", image_of()).retention_ms == 1000
    cluster = (BROKER, "", "log.retention.ms", "2000")
    broker = (BROKER, "1", "log.retention.ms", "3000")
    topic = (TOPIC, "t", "retention.ms", "4000")
    assert own.log_config("t", image_of(cluster)).retention_ms == 2000
    assert own.log_config("t", image_of(cluster, broker)).retention_ms == 3000
    assert own.log_config("t", image_of(cluster, broker, topic)).retention_ms == 4000
    assert own.log_config("other", image_of(topic)).retention_ms == 1000


def test_a_key_of_the_controller_is_accepted_and_leaves_the_log_alone() -> None:
    own = settings()
    own.validate_topic("t", UNCLEAN, "true")
    own.validate_broker(UNCLEAN, "false")
    image = image_of((TOPIC, "t", UNCLEAN, "true"), (TOPIC, "t", "retention.ms", "4000"))
    assert own.log_config("t", image).retention_ms == 4000


@pytest.mark.parametrize(
    ("key", "value"),
    [(UNCLEAN, "maybe"), ("retention.ms", "soon"), ("no.such.key", "1"), ("cleanup.policy", "compacted")],
)
def test_a_bad_override_is_refused(key: str, value: str) -> None:
    with pytest.raises(KafkaError) as refused:
        settings().validate_topic("t", key, value)
    assert refused.value.code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("topic", ["__x", "changes", "__consumer_offsets"])
def test_any_topic_may_be_compacted(topic: str) -> None:
    settings().validate_topic(topic, "cleanup.policy", "compact")
    settings().validate_topic_as_whole(topic, {"cleanup.policy": "compact"}, {})
    assert settings().log_config(topic, image_of((TOPIC, topic, "cleanup.policy", "compact"))).is_compacted


def test_lags_that_contradict_each_other_are_refused_and_an_old_contradiction_starts_all_the_same() -> None:
    lags = {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}
    with pytest.raises(KafkaError, match=r"min\.compaction\.lag\.ms=9 is above"):
        settings().validate_topic_as_whole("t", lags, {})
    image = image_of(*((TOPIC, "t", key, value) for key, value in lags.items()))
    assert settings().log_config("t", image).min_compaction_lag_ms == 9


@pytest.mark.parametrize(("key", "meant"), [("retention.mss", "retention.ms"), ("compresion.type", "compression.type")])
def test_a_mistyped_topic_key_is_reported_with_the_one_it_means(key: str, meant: str) -> None:
    with pytest.raises(KafkaError, match=rf"{key} is no topic setting; did you mean {meant}\?"):
        settings().validate_topic("t", key, "1")


def test_a_mistyped_broker_key_is_not_sent_to_the_properties_file() -> None:
    with pytest.raises(KafkaError, match=r"log\.segment\.byts is not a key .*did you mean log\.segment\.bytes\?"):
        settings().validate_broker("log.segment.byts", "1")


def test_a_broker_key_that_cannot_change_at_run_time_is_refused_with_the_way_to_change_it() -> None:
    with pytest.raises(KafkaError, match="restart the broker"):
        settings().validate_broker("log.dirs", "/elsewhere")


def test_a_setting_that_this_version_does_not_know_neither_shortens_a_log_nor_takes_the_others_with_it() -> None:
    """A newer node wrote it, or one that was downgraded since: the node's own seven days are not what the topic asked for."""
    kept = (TOPIC, "t", "retention.ms", "-1")
    image = image_of(kept, (TOPIC, "t", "min.insync.replicas", "2"), (TOPIC, "t", "of.a.newer.node", "1"))
    config = settings().log_config("t", image)
    assert (config.retention_ms, config.min_insync_replicas) == (-1, 2)
    limited = (TOPIC, "t", "retention.ms", "5000"), (TOPIC, "t", "retention.bytes", "5000")
    unknown = settings().log_config("t", image_of(*limited, (TOPIC, "t", "cleanup.policy", "of-a-newer-node")))
    assert (unknown.retention_ms, unknown.retention_bytes) == (-1, -1), "nobody knows what it meant for old records"


def test_what_groups_have_committed_is_never_shortened() -> None:
    name = "__consumer_offsets"
    own = settings(**{"log.cleanup.policy": "delete"})
    compact, delete = (TOPIC, name, "cleanup.policy", "compact"), (TOPIC, name, "cleanup.policy", "delete")
    # The key may be taken away, and older metadata may say anything.
    for image in (image_of(compact), image_of(), image_of(delete)):
        assert not own.log_config(name, image).is_retention_on
    own.validate_topic(name, "cleanup.policy", "compact")
    for value in ("delete", "compact,delete"):
        with pytest.raises(KafkaError, match=r"leave cleanup\.policy=compact") as refused:
            own.validate_topic(name, "cleanup.policy", value)
        assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert own.log_config("__of_a_user", image_of()).is_retention_on


def test_what_is_kept_of_share_groups_is_neither_shortened_nor_compacted() -> None:
    """Of a share partition several records count, and however old they are."""
    name = "__share_group_state"
    own = settings(**{"log.cleanup.policy": "compact", "log.retention.ms": "1", "log.retention.bytes": "1"})
    for image in (image_of(), image_of((TOPIC, name, "retention.ms", "5"), (TOPIC, name, "cleanup.policy", "compact"))):
        config = own.log_config(name, image)
        assert (config.cleanup_policy, config.retention_ms, config.retention_bytes) == (CleanupPolicy.DELETE, -1, -1)
    own.validate_topic(name, "retention.ms", "-1")
    own.validate_topic(name, "segment.bytes", "20000000")
    for key, value in (("cleanup.policy", "compact"), ("retention.ms", "5"), ("retention.bytes", "5")):
        with pytest.raises(KafkaError, match="leave "):
            own.validate_topic(name, key, value)


def test_what_a_list_inherits_comes_from_all_brokers_the_properties_or_the_default() -> None:
    plain, in_file = settings(), settings(**{"log.cleanup.policy": "compact"})
    everywhere = {"log.cleanup.policy": "compact,delete"}
    assert plain.inherited(TOPIC, "cleanup.policy", {}) == "delete"
    assert in_file.inherited(TOPIC, "cleanup.policy", {}) == "compact"
    assert in_file.inherited(TOPIC, "cleanup.policy", everywhere) == "compact,delete"
    assert plain.inherited(BROKER, "log.cleanup.policy", everywhere) == "compact,delete"
    assert plain.inherited(TOPIC, "leader.replication.throttled.replicas", everywhere) == ""
