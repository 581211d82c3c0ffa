"""Kafka clients of all kinds, each as one call that produces a record and reads it back, by any protocol and mechanism.

May touch:  client libraries, processes they are run in.  Must not touch: broker code.
Invariants: a client knows nothing but a Way; what it cannot do is said by `lacks`, in one line.
Read next:  test_secured_clients.py.
"""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.ecosystem.java import IS_FULL
from tests.oracle import apache

TIMEOUT_S = 60.0
TOOLS = "org.apache.kafka.tools."
LOGIN = "org.apache.kafka.common.security."
OAUTH = "OAUTHBEARER"
VALUE = b"through every door"


class Way:
    """One way into a cluster."""

    def __init__(self, bootstrap: str, protocol: str, mechanism: str, files: Path, user: str, password: str) -> None:
        """`files`: ca.pem, and ann.pem where a certificate is shown; `protocol`: SSL+CERT for SSL with one."""
        self.bootstrap = bootstrap
        self.shows_certificate = protocol == "SSL+CERT"
        self.protocol = protocol.partition("+")[0]
        self.mechanism = mechanism
        self.ca = files / "ca.pem"
        self.certificate = files / "ann.pem"
        self.user, self.password = user, password
        self.token_file = files / "token"

    @property
    def has_tls(self) -> bool:
        """Whether it is encrypted."""
        return self.protocol.endswith("SSL")

    def token(self) -> tuple[str, float]:
        """A bearer token, and when it ends."""
        token, _, ends_s = self.token_file.read_text().partition(" ")
        return token, float(ends_s)

    def java(self) -> dict[str, str]:
        """As Java's clients take it; Spark's too."""
        found = {"security.protocol": self.protocol}
        if self.has_tls:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
        if self.shows_certificate:
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.certificate)}
        if self.mechanism == OAUTH:
            found |= {
                "sasl.mechanism": OAUTH,
                "sasl.jaas.config": f"{LOGIN}oauthbearer.OAuthBearerLoginModule required;",
                "sasl.login.callback.handler.class": f"{LOGIN}oauthbearer.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url": self.token_file.with_name("jwt").as_uri(),
            }
        elif self.mechanism:
            module = "plain.PlainLoginModule" if self.mechanism == "PLAIN" else "scram.ScramLoginModule"
            jaas = f'{LOGIN}{module} required username="{self.user}" password="{self.password}";'
            found |= {"sasl.mechanism": self.mechanism, "sasl.jaas.config": jaas}
        return found

    def librdkafka(self) -> dict[str, Any]:
        """As librdkafka takes it, but for tokens."""
        found: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "security.protocol": self.protocol}
        if self.has_tls:
            found["ssl.ca.location"] = str(self.ca)
        if self.shows_certificate:
            found |= {"ssl.certificate.location": str(self.certificate), "ssl.key.location": str(self.certificate)}
        if self.mechanism:
            found["sasl.mechanism"] = self.mechanism
        if self.mechanism and self.mechanism != OAUTH:
            found |= {"sasl.username": self.user, "sasl.password": self.password}
        return found

    def ssl_context(self) -> ssl.SSLContext | None:
        """As Python's clients take it."""
        if not self.has_tls:
            return None
        context = ssl.create_default_context(cafile=str(self.ca))
        if self.shows_certificate:
            context.load_cert_chain(self.certificate)
        return context

    def python(self) -> dict[str, Any]:
        """As aiokafka and kafka-python take it, but for tokens."""
        found: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": self.protocol,
            "ssl_context": self.ssl_context(),
        }
        if self.mechanism:
            found["sasl_mechanism"] = self.mechanism
        if self.mechanism and self.mechanism != OAUTH:
            found |= {"sasl_plain_username": self.user, "sasl_plain_password": self.password}
        return found


class Client(NamedTuple):
    """One kind."""

    round_trip: Callable[[Way, str, Any], bytes]
    """(way, topic, a Spark session or None): produces VALUE into a new topic, returns what it read there."""
    lacks: Callable[[Way], str | None]
    """Why it cannot go that way; None when it can."""


def confluent(way: Way, topic: str, _: Any) -> bytes:
    """confluent-kafka."""
    from confluent_kafka import Consumer, Producer

    settings = way.librdkafka() | ({"oauth_cb": lambda _: way.token()} if way.mechanism == OAUTH else {})
    errors: list[Any] = []
    producer = Producer(settings)
    producer.produce(topic, VALUE, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0 and errors == [None], errors
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None and message.error() is None, message and message.error()
        found = message.value()
        assert isinstance(found, bytes)
        return found
    finally:
        consumer.close()


def aiokafka(way: Way, topic: str, _: Any) -> bytes:
    """aiokafka."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):
        async def token(self) -> str:
            return way.token()[0]

    async def go() -> bytes:
        settings = way.python() | ({"sasl_oauth_token_provider": Tokens()} if way.mechanism == OAUTH else {})
        async with asyncio.timeout(TIMEOUT_S):
            async with AIOKafkaProducer(**settings) as producer:
                await producer.send_and_wait(topic, VALUE)
            async with AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings) as consumer:
                found = (await consumer.getone()).value
                assert isinstance(found, bytes)
                return found

    return asyncio.run(go())


def kafka_python(way: Way, topic: str, _: Any) -> bytes:
    """kafka-python."""
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):
        def token(self) -> str:
            return way.token()[0]

    settings = way.python() | ({"sasl_oauth_token_provider": Tokens()} if way.mechanism == OAUTH else {})
    producer = KafkaProducer(**settings)
    try:
        producer.send(topic, VALUE).get(TIMEOUT_S)
    finally:
        producer.close()
    consumer = KafkaConsumer(
        topic, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=int(TIMEOUT_S * 1000), **settings
    )
    try:
        return bytes(next(consumer).value)
    finally:
        consumer.close()


def kcat(way: Way, topic: str, _: Any) -> bytes:
    """kcat."""
    words = [word for key, value in way.librdkafka().items() for word in ("-X", f"{key}={value}")]
    for more, given in ((["-P", "-t", topic], VALUE), (["-C", "-t", topic, "-o", "beginning", "-c", "1", "-q"], b"")):
        done = subprocess.run(["kcat", *words, *more], input=given, capture_output=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, done.stderr.decode()
    return done.stdout.rstrip(b"\n")


def java(way: Way, topic: str, _: Any) -> bytes:
    """Kafka's console producer and consumer."""
    file = way.token_file.with_name(f"{topic}.properties")
    file.write_text("".join(f"{key}={value}\n" for key, value in way.java().items()))
    allowed = way.token_file.with_name("jwt")
    flags = (
        *apache.JAVA_FLAGS,
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={allowed.as_uri()}",
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={allowed}",
    )
    where = ("--bootstrap-server", way.bootstrap, "--topic", topic)
    producing = apache.java_command(TOOLS + "ConsoleProducer", *where, "--command-config", str(file), flags=flags)
    more = ("--from-beginning", "--max-messages", "1", "--timeout-ms", str(int(TIMEOUT_S * 1000)))
    consuming = apache.java_command(
        TOOLS + "consumer.ConsoleConsumer", *where, *more, "--command-config", str(file), flags=flags
    )
    for command, given in ((producing, VALUE + b"\n"), (consuming, b"")):
        done = subprocess.run(
            command, env=apache.java_environment(), input=given, capture_output=True, timeout=2 * TIMEOUT_S
        )
        assert done.returncode == 0, done.stderr.decode()
    return done.stdout.rstrip(b"\n")


def spark(way: Way, topic: str, session: Any) -> bytes:
    """Spark's sink and source of ours."""
    options = {f"kafka.{key}": value for key, value in way.java().items()}
    options["kafka.bootstrap.servers"] = way.bootstrap
    row = session.createDataFrame([(VALUE,)], "value binary")
    row.write.format("barnabas").options(**options).option("topic", topic).mode("append").save()
    read = session.read.format("barnabas").options(**options).option("subscribe", topic).load()
    (found,) = read.select("value").collect()
    return bytes(found["value"])


def _never(_: Way) -> str | None:
    return None


def _java_lacks(_: Way) -> str | None:
    return apache.fetch() if IS_FULL else apache.missing()


def _kcat_lacks(way: Way) -> str | None:
    if shutil.which("kcat") is None:
        return "kcat is not installed (Debian package kcat)"
    return "kcat asks an https endpoint for tokens, and there is none here" if way.mechanism == OAUTH else None


def _spark_lacks(way: Way) -> str | None:
    return "Spark's source logs in with PLAIN and SCRAM" if way.mechanism == OAUTH else None


CLIENTS = {
    "confluent-kafka": Client(confluent, _never),
    "aiokafka": Client(aiokafka, _never),
    "kafka-python": Client(kafka_python, _never),
    "kcat": Client(kcat, _kcat_lacks),
    "java": Client(java, _java_lacks),
    "spark": Client(spark, _spark_lacks),
}
