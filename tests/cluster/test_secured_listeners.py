"""A cluster whose Kafka listeners take nobody without TLS and a login: brokers log in to each other, clients by their users."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import ec

from barnabas_admin import pki
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port

TIMEOUT_S = 30.0
PLAIN_LINE = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="broker" password="between brokers" user_broker="between brokers" user_admin="the admin\'s";'
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pki")
    pki.init(directory)
    pki.issue(directory, "node", hosts=["127.0.0.1", "localhost"])
    return directory


SIGNING_KEY = ec.generate_private_key(ec.SECP256R1())
ISSUER = "https://login.example"


def keys_of_tokens(directory: Path) -> Path:
    """The JWKS of who signs tokens."""
    key = jwt.algorithms.ECAlgorithm.to_jwk(SIGNING_KEY.public_key(), as_dict=True)
    file = directory / "jwks.json"
    file.write_text(json.dumps({"keys": [{**key, "kid": "1"}]}))
    return file


def token_of(user: str, issuer: str = ISSUER) -> tuple[str, float]:
    """A token, and when it ends: what librdkafka asks an application for."""
    ends_s = time.time() + 300
    claims = {"iss": issuer, "aud": "kafka", "sub": user, "exp": int(ends_s)}
    return jwt.encode(claims, SIGNING_KEY, algorithm="ES256", headers={"kid": "1"}), ends_s


@pytest.fixture(scope="module")
def secured(authority: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    overrides = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL",
        "ssl.keystore.location": str(authority / "node.pem"),
        "ssl.truststore.location": str(authority / "ca.pem"),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys_of_tokens(authority).as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": PLAIN_LINE,
    }
    with LocalCluster(
        tmp_path_factory.mktemp("secured"), nodes=3, base_port=find_base_port(), overrides=overrides
    ) as cluster:
        yield cluster


def client(
    cluster: LocalCluster, authority: Path, mechanism: str, user: str, password: str, **more: Any
) -> dict[str, Any]:
    """Settings of a librdkafka client."""
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority / "ca.pem"),
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
        **more,
    }


@pytest.fixture(scope="module")
def admin(secured: LocalCluster, authority: Path) -> AdminClient:
    return AdminClient(client(secured, authority, "PLAIN", "admin", "the admin's"))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_records_go_through_tls_and_a_login(
    secured: LocalCluster, authority: Path, admin: AdminClient, mechanism: str
) -> None:
    user, password, topic = "admin", "the admin's", f"secured-{uuid.uuid4().hex[:8]}"
    if mechanism != "PLAIN":
        user, password = f"alice-{mechanism.lower()}", "hers alone"
        kind = getattr(ScramMechanism, mechanism.replace("-", "_"))
        credential = UserScramCredentialUpsertion(user, ScramCredentialInfo(kind, 4096), password.encode())
        admin.alter_user_scram_credentials([credential])[user].result(TIMEOUT_S)
    admin.create_topics([NewTopic(topic, 3, 3, config={"min.insync.replicas": "3"})])[topic].result(TIMEOUT_S)
    settings = client(secured, authority, mechanism, user, password)
    errors: list[Any] = []
    producer = Producer({**settings, "acks": "all", "enable.idempotence": True})
    value = b"v" * 3_000
    for number in range(1_000):
        producer.produce(topic, value, key=str(number), on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == [None] * 1_000
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen: list[int] = []
    while len(seen) < 1_000:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None and message.error() is None, message and message.error()
        assert message.value() == value
        seen.append(int(message.key()))
    consumer.close()
    assert sorted(seen) == list(range(1_000))


def test_a_bearer_token_lets_its_subject_in(secured: LocalCluster, authority: Path, admin: AdminClient) -> None:
    topic = f"tokens-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(TIMEOUT_S)
    settings = {
        "bootstrap.servers": secured.bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority / "ca.pem"),
        "sasl.mechanism": "OAUTHBEARER",
        "log_level": 0,
    }
    errors: list[Any] = []
    producer = Producer({**settings, "oauth_cb": lambda _: token_of("alice")})
    producer.produce(topic, b"v", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0 and errors == [None]
    heard: list[KafkaError] = []
    refused = Producer(
        {**settings, "oauth_cb": lambda _: token_of("alice", "https://evil.example"), "error_cb": heard.append}
    )
    deadline = time.monotonic() + TIMEOUT_S
    while not any("another issuer" in error.str() for error in heard) and time.monotonic() < deadline:
        refused.poll(0.1)
    assert any("another issuer" in error.str() for error in heard), heard


@pytest.mark.parametrize(
    ("mechanism", "user", "password"),
    [
        ("PLAIN", "admin", "guessed"),
        ("PLAIN", "nobody", "guessed"),
        ("SCRAM-SHA-512", "admin", "the admin's"),
        ("SCRAM-SHA-256", "nobody", "guessed"),
    ],
)
def test_a_wrong_login_is_refused_with_its_reason(
    secured: LocalCluster, authority: Path, mechanism: str, user: str, password: str
) -> None:
    found: list[KafkaError] = []
    settings = client(secured, authority, mechanism, user, password, error_cb=found.append)
    wrong = AdminClient(settings)
    with pytest.raises(KafkaException):
        wrong.list_topics(timeout=3)
    wrong.poll(0)
    assert any(error.code() == KafkaError._AUTHENTICATION for error in found), found
    assert any("user or password is wrong" in str(error) for error in found), found


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT", "SSL"])
def test_nobody_gets_in_without_both(secured: LocalCluster, authority: Path, protocol: str) -> None:
    settings = client(secured, authority, "PLAIN", "admin", "the admin's") | {"security.protocol": protocol}
    with pytest.raises(KafkaException):
        AdminClient(settings).list_topics(timeout=2)
