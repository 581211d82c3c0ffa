"""Which metrics a client is to push: what the configs may say, which clients they mean, and what they come to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas_broker.telemetry.subscriptions import Client, Subscriptions, subscription_value
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.records import ConfigResourceType
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Uuid
from tests.support.images import make_image

CLIENT = Client(Uuid(b"0123456789abcdef"), "rdkafka", "librdkafka", "2.16.1", "127.0.0.1", 4711)


def of(**subscriptions: dict[str, str]) -> MetadataImage:
    return make_image(
        configs={(ConfigResourceType.CLIENT_METRICS, name): values for name, values in subscriptions.items()}
    )


def following(image: MetadataImage) -> Subscriptions:
    found = Subscriptions()
    found.follow(image.configs)
    return found


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("metrics", "org.apache.kafka.consumer., *", None),
        ("interval.ms", "100", None),
        ("interval.ms", "3600000", None),
        ("interval.ms", "99", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "3600001", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "soon", ErrorCode.INVALID_CONFIG),
        ("match", "", None),
        ("match", "client_id=a.*,client_software_name=librdkafka", None),
        ("match", "client_id=(?=a)b", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=(", ErrorCode.INVALID_CONFIG),
        ("match", "client_id", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=a=b", ErrorCode.INVALID_CONFIG),
        ("match", "colour=red", ErrorCode.INVALID_CONFIG),
        ("colour", "red", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_a_subscription_may_say(key: str, value: str, code: ErrorCode | None) -> None:
    if code is None:
        assert subscription_value("s", key, value) == value
        return
    with pytest.raises(KafkaError) as caught:
        subscription_value("s", key, value)
    assert caught.value.code is code and caught.value.message


@pytest.mark.parametrize(
    ("match", "is_meant"),
    [
        ("client_id=rd.*", True),
        ("client_id=rd", False),  # the whole text
        ("client_id=rd.*,client_software_version=2\\.16\\..*", True),
        ("client_id=rd.*,client_software_name=apache-kafka-java", False),
        ("client_id=rd.*,client_id=java", False),  # the last of a selector
        ("client_source_address=127.*,client_source_port=4711", True),
        (f"client_instance_id={CLIENT.instance_id}", True),
    ],
)
def test_a_subscription_means_the_clients_of_which_all_selectors_match(match: str, is_meant: bool) -> None:
    wanted = following(of(s={"metrics": "m", "match": match})).wanted_of(CLIENT)
    assert wanted.metrics == (("m",) if is_meant else ())


def test_a_client_pushes_what_all_its_subscriptions_ask_for_at_the_shortest_interval() -> None:
    nothing = following(of()).wanted_of(CLIENT)
    assert nothing.metrics == () and nothing.interval_ms == 300_000
    both = of(a={"metrics": "b., a.", "interval.ms": "9000"}, b={"metrics": "a.", "interval.ms": "5000"}, c={})
    assert following(both).wanted_of(CLIENT)[1:] == (5_000, ("a.", "b."))
    slower = following(of(a={"metrics": "*", "interval.ms": "900000"}, b={"metrics": "a."})).wanted_of(CLIENT)
    assert slower[1:] == (300_000, ("*",)), "300 s is the longest, as in Kafka"


def test_the_subscription_id_changes_with_what_is_wanted_and_with_nothing_else() -> None:
    wanted = following(of(a={"metrics": "x,y"})).wanted_of(CLIENT)
    assert -(2**31) <= wanted.subscription_id < 2**31
    same = of(b={"metrics": "y"}, a={"metrics": "x"})
    assert following(same).wanted_of(CLIENT) == wanted
    assert following(of(a={"metrics": "x,y", "interval.ms": "500"})).wanted_of(CLIENT)[0] != wanted.subscription_id
    assert following(of(a={"metrics": "x"})).wanted_of(CLIENT).subscription_id != wanted.subscription_id
    other = CLIENT._replace(instance_id=Uuid(b"fedcba9876543210"))
    assert following(same).wanted_of(other).subscription_id != wanted.subscription_id


def test_only_a_change_of_subscriptions_is_a_new_version() -> None:
    found = following(of(a={"metrics": "x"}))
    version = found.version
    other = of(a={"metrics": "x"})
    found.follow(replace(other.configs))
    assert found.version == version
    found.follow(of(a={"metrics": "y"}).configs)
    assert found.version == version + 1
