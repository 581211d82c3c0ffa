"""What a node's properties may not say: it refuses to start rather than to be less than they promise."""

from __future__ import annotations

import pytest

from barnabas_broker.config.keys import ConfigError
from barnabas_broker.node.facts import NodeFacts
from barnabas_broker.node.properties import node_config
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.raft.voters import VoterSet

BROKER = {
    "process.roles": "broker",
    "node.id": "1",
    "log.dirs": "data",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9112",
}


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_a_wildcard_is_never_told_to_clients(host: str) -> None:
    """It was registered as it stands, and clients on other hosts failed in silence."""
    listening = BROKER | {"listeners": f"PLAINTEXT://{host}:9092"}
    with pytest.raises(ConfigError, match=r"advertised\.listeners=PLAINTEXT://HOST:9092"):
        node_config(listening)
    reported = node_config(listening | {"advertised.listeners": "PLAINTEXT://broker-1:9092"}).server
    assert [point.host for point in reported.advertised_endpoints()] == ["broker-1"]
    with pytest.raises(ConfigError, match="cannot connect to a wildcard"):
        node_config(BROKER | {"advertised.listeners": f"PLAINTEXT://{host}:9092"})


def test_a_node_that_advertises_by_itself_puts_its_own_address_in_place_of_wildcards() -> None:
    listeners = "OUT://0.0.0.0:9092,IN://10.0.0.1:9094"
    mapped = "OUT:PLAINTEXT,IN:PLAINTEXT"
    both = BROKER | {"listeners": listeners, "listener.security.protocol.map": mapped, "advertised.listeners": "auto"}
    server = node_config(both | {"inter.broker.listener.name": "IN"}).server
    assert server.auto_listeners() == {"OUT"}
    assert [(point.host, point.port) for point in server.advertised_endpoints("192.0.2.7")] == [
        ("192.0.2.7", 9092),
        ("10.0.0.1", 9094),
    ]
    assert server.advertised_controller_endpoint() is None
    with pytest.raises(ConfigError, match="auto stands alone"):
        node_config(BROKER | {"advertised.listeners": "auto,PLAINTEXT://a:9092"})
    assert not node_config(BROKER | {"advertised.listeners": "PLAINTEXT://auto:9092"}).server.auto_listeners()


def test_listeners_in_plain_text_have_any_other_name() -> None:
    plain = {"listeners": "INSIDE://127.0.0.1:9092", "listener.security.protocol.map": "INSIDE:PLAINTEXT"}
    assert [point.listener for point in node_config(BROKER | plain).server.kafka_endpoints()] == ["INSIDE"]


@pytest.mark.parametrize(
    ("key", "value", "reported"),
    [
        ("authorizer.class.name", "com.example.Authorizer", "StandardAuthorizer"),
        ("super.users", "User:admin", "authorizer.class.name"),
        ("allow.everyone.if.no.acl.found", "true", "authorizer.class.name"),
        ("sasl.enabled.mechanisms", "GSSAPI", "SCRAM-SHA-512"),
        ("sasl.kerberos.service.name", "kafka", "not served"),
        ("listener.name.inside.ssl.keystore.password", "opensesame", "not served"),
        ("ssl.keystore.type", "JKS", "only PEM"),
        ("listener.name.inside.principal.builder.class", "com.example.Builder", "no Java class"),
        ("security.inter.broker.protocol", "SSL", "none of the listeners"),
        ("create.topic.policy.class.name", "com.example.Policy", "no Java class"),
        ("controller.quorum.voters", "1@127.0.0.1:9093", "controller.quorum.bootstrap.servers"),
        ("log.message.format.version", "2.8", "leave it out"),
        ("remote.log.storage.system.enable", "true", "no tiered storage"),
    ],
)
def test_what_would_be_promised_and_not_kept_is_refused(key: str, value: str, reported: str) -> None:
    with pytest.raises(ConfigError, match=reported) as refused:
        node_config(BROKER | {key: value})
    assert key in refused.value.message


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "controller.example", "[::]"])
def test_a_controller_listener_off_loopback_needs_a_word_since_it_asks_nobody_who_he_is(host: str) -> None:
    controller = BROKER | {"process.roles": "controller", "listeners": f"CONTROLLER://{host}:9112"}
    with pytest.raises(ConfigError, match=r"controller\.listeners\.allow\.remote=true") as refused:
        node_config(controller)
    assert host.strip("[]") in refused.value.message
    assert node_config(controller | {"controller.listeners.allow.remote": "true"}).server.is_controller
    local = controller | {"listeners": "CONTROLLER://127.0.0.1:9112"}
    assert node_config(local).server.is_controller


def test_a_secret_is_not_told_by_its_refusal() -> None:
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.password") as refused:
        node_config(BROKER | {"ssl.keystore.password": "opensesame"})
    assert "opensesame" not in refused.value.message


def test_flushes_by_count_are_refused_only_where_nothing_counts_them() -> None:
    flushes = {"log.flush.interval.messages": "1"}
    node_config(BROKER | flushes)
    with pytest.raises(ConfigError, match=r"log\.flush\.interval\.messages=1"):
        node_config(BROKER | flushes | {"log.flush.on.acks": "page-cache"})


def test_a_file_of_kafkas_that_promises_nothing_more_is_taken_and_tells_what_has_no_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kafkas = {
        "authorizer.class.name": "",
        "ssl.endpoint.identification.algorithm": "",
        "security.inter.broker.protocol": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL_LATER:PLAINTEXT",
        "log.cleaner.min.compaction.lag.ms": "0",
        "compression.type": "producer",
        "log.retention.hours": "168",
        "num.network.threads": "3",
        "log.segment.byts": "1073741824",
        "authorizer.clas.name": "",
    }
    node_config(BROKER | kafkas)
    unknown, mistyped, meant_to_secure = [record.getMessage() for record in caplog.records]
    assert unknown.startswith("num.network.threads is not a key") and "did you mean" not in unknown
    assert mistyped.endswith("ignored; did you mean log.segment.bytes?")
    assert meant_to_secure.endswith("ignored; did you mean authorizer.class.name?")


def test_a_setting_of_logs_is_refused_by_the_name_it_has_in_the_file() -> None:
    with pytest.raises(ConfigError, match=r"^log\.roll\.ms=0: "):
        node_config(BROKER | {"log.roll.ms": "0"})


def test_keys_are_described_once_for_all_topics_that_are_made() -> None:
    facts = NodeFacts(node_config(BROKER), cluster_id="", voters=VoterSet.unknown, image=lambda: MetadataImage.EMPTY)
    assert facts.described_keys() is facts.described_keys()


@pytest.mark.parametrize(
    ("listeners", "is_taken"),
    [
        ("A://127.0.0.1:9092,A://[::1]:9092", True),
        ("A://0.0.0.0:9092,A://[::]:9092", True),
        ("A://127.0.0.1:9092,A://[::1]:9093", False),
        ("A://127.0.0.1:9092,A://127.0.0.2:9092", False),
        ("A://localhost:9092,A://[::1]:9092", False),
        ("A://127.0.0.1:9092,A://[::1]:9092,A://127.0.0.2:9092", False),
    ],
)
def test_one_name_is_for_an_ipv4_and_an_ipv6_address_of_one_port(listeners: str, is_taken: bool) -> None:
    mapped = BROKER | {"listeners": listeners, "listener.security.protocol.map": "A:PLAINTEXT"}
    told = mapped | {"advertised.listeners": "A://broker-1:9092"}
    if is_taken:
        assert [point.host for point in node_config(told).server.advertised_endpoints()] == ["broker-1"]
    else:
        with pytest.raises(ConfigError, match="one name may have an IPv4 and an IPv6 address of one port"):
            node_config(told)
