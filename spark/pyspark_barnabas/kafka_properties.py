"""The options `kafka.*`: what of Kafka's consumer properties means something here, what is accepted and what is refused.

May touch:  its arguments, the PEM files that are named.     Must not touch: sockets, Spark.
Invariants: every property of Kafka's consumer is in exactly one of the three tables; one that is in none is refused with the
    nearest known one; no repr and no error shows a secret.
Read next:  options.py, the options without `kafka.`; client.py, which uses ClusterOptions.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas_wire.client.metadata import parse_bootstrap
from barnabas_wire.client.properties import client_security
from pyspark_barnabas.in_words import InWords

PREFIX = "kafka."
FETCH_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of one fetch: some 64 k rows of 100 bytes, so that one fetch makes about one Arrow batch."""
FETCH_BYTES_MIN = 64 * 1024
SECURITY = ("security.", "ssl.", "sasl.")


class OptionError(InWords, ValueError):
    """An option that cannot be used; the message says what to write."""


class OptionRow(NamedTuple):
    """One row of the table of options; an empty default says that there is none."""

    default: str
    doc: str
    is_stock: bool = True
    """Whether Spark's own connector, or the Kafka client in it, has it too."""


KAFKA_OPTIONS = {
    "kafka.bootstrap.servers": OptionRow("", "`host:port` of brokers, comma-separated; needed"),
    "kafka.group.id": OptionRow("", "the group of `startingOffsets=group` and `commitOffsets`; nobody joins it"),
    "kafka.client.id": OptionRow("pyspark-barnabas", "name in logs and quotas of the brokers"),
    "kafka.client.rack": OptionRow("", "read from a replica in this rack where brokers choose one (KIP-392)"),
    "kafka.isolation.level": OptionRow(
        "read_uncommitted", "`read_committed`: to the last stable offset, without aborted transactions"
    ),
    "kafka.max.partition.fetch.bytes": OptionRow(
        str(FETCH_BYTES_MAX), "bytes of one fetch; Kafka's consumer has 1048576"
    ),
    "kafka.fetch.max.bytes": OptionRow("52428800", "bounds max.partition.fetch.bytes: each fetch is of one partition"),
    "kafka.fetch.min.bytes": OptionRow("1", "bytes that a leader waits for before it answers"),
    "kafka.fetch.max.wait.ms": OptionRow("500", "how long a leader waits for them, ms"),
    "kafka.request.timeout.ms": OptionRow("10000", "wait for one answer, ms; Kafka's consumer has 30000"),
    "kafka.default.api.timeout.ms": OptionRow(
        "30000", "how long a cluster that answered before may be away when a micro-batch is planned, ms"
    ),
    "kafka.security.protocol": OptionRow("PLAINTEXT", "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT`, `SASL_SSL`"),
    "kafka.ssl.truststore.location": OptionRow("", "PEM file of authorities on every node; the system's if not set"),
    "kafka.ssl.truststore.type": OptionRow("PEM", "`PEM` alone"),
    "kafka.ssl.keystore.location": OptionRow("", "PEM file with private key and certificate"),
    "kafka.ssl.keystore.type": OptionRow("PEM", "`PEM` alone"),
    "kafka.ssl.key.password": OptionRow("", "of that private key"),
    "kafka.ssl.endpoint.identification.algorithm": OptionRow("https", "empty: the broker's name is not checked"),
    "kafka.sasl.mechanism": OptionRow("", "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER`"),
    "kafka.sasl.oauthbearer.token.endpoint.url": OptionRow(
        "",
        "for OAUTHBEARER: `file:///PATH` of a token on every node, or `https://…`, which is asked with clientId, clientSecret and scope "
        "of sasl.jaas.config",
    ),
    "kafka.sasl.jaas.config": OptionRow("", 'who logs in: `…LoginModule required username="…" password="…";`'),
    "kafka.sasl.username": OptionRow("", "instead of sasl.jaas.config, with sasl.password", is_stock=False),
    "kafka.sasl.password": OptionRow("", "", is_stock=False),
}
"""What means something."""

WITHOUT_MEANING = (
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "auto.include.jmx.reporter",
    "check.crcs",
    "client.dns.lookup",
    "connections.max.idle.ms",
    "enable.metrics.push",
    "exclude.internal.topics",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "max.poll.records",
    "metadata.max.age.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "partition.assignment.strategy",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "security.providers",
    "send.buffer.bytes",
    "session.timeout.ms",
    "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
    "ssl.cipher.suites",
    "ssl.enabled.protocols",
    "ssl.keymanager.algorithm",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
)
"""Properties of Kafka's consumer that are taken and do nothing: nobody joins a group here, and sockets are the system's affair."""

_DECODED = "rows hold the bytes of keys and values: decode them with SQL functions"
_SCANNED = "there is no Java here: name PEM files with kafka.ssl.truststore.location and kafka.ssl.keystore.location"
REFUSED = {
    "kafka.key.deserializer": _DECODED,
    "kafka.value.deserializer": _DECODED,
    "kafka.auto.offset.reset": "startingOffsets says where a new query begins, failOnDataLoss what happens when offsets are gone",
    "kafka.enable.auto.commit": "the checkpoint holds the offsets; commitOffsets=true commits them to kafka.group.id, too",
    "kafka.interceptor.classes": "there is no Java here: change the rows after they are read",
    "kafka.config.providers": "there is no Java here: write the values themselves, or fill them in in Python",
    "kafka.ssl.engine.factory.class": _SCANNED,
    "kafka.ssl.truststore.password": _SCANNED,
    "kafka.ssl.truststore.certificates": _SCANNED,
    "kafka.ssl.keystore.password": _SCANNED,
    "kafka.ssl.keystore.certificate.chain": _SCANNED,
    "kafka.ssl.keystore.key": _SCANNED,
}
"""The first five are refused by Spark's own source too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """How to reach a cluster, and how to read from it; equal ones share a client."""

    bootstrap_servers: tuple[str, ...]
    group_id: str = ""
    client_id: str = KAFKA_OPTIONS["kafka.client.id"].default
    client_rack: str = ""
    is_read_committed: bool = False
    fetch_bytes_max: int = FETCH_BYTES_MAX
    fetch_bytes_min: int = 1
    """What a leader waits for."""
    fetch_wait_ms: int = 500
    request_timeout_ms: int = 10_000
    api_timeout_ms: int = 30_000
    security: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Client properties as Kafka's tools take them."""


def take_store_types(security: dict[str, str]) -> None:
    """Take out the types of key stores, which have no choice. Raises OptionError."""
    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        if security.pop(name, "PEM").upper() != "PEM":
            raise OptionError(f"{PREFIX}{name}: only PEM is read; convert the store with keytool and openssl")


def parse_kafka_options(given: Mapping[str, str]) -> ClusterOptions:
    """Check the options whose names begin with `kafka.`, in lower case. Raises OptionError naming the option and the fix."""
    own = {name: value for name, value in given.items() if name.startswith(PREFIX)}
    for name in own:
        _check_name(name)
    security = {
        name.removeprefix(PREFIX): value
        for name, value in own.items()
        if name in KAFKA_OPTIONS and name.removeprefix(PREFIX).startswith(SECURITY)
    }
    take_store_types(security)
    try:
        client_security(security)
    except ValueError as error:
        raise OptionError(f"kafka.{error}") from None
    isolation = _text(own, "kafka.isolation.level").lower()
    if isolation not in ("read_committed", "read_uncommitted"):
        raise OptionError(f"kafka.isolation.level={isolation}: write read_committed or read_uncommitted")
    fetch_bytes = whole_number(
        _text(own, "kafka.max.partition.fetch.bytes"), "kafka.max.partition.fetch.bytes", least=1
    )
    fetch_bytes_all = whole_number(_text(own, "kafka.fetch.max.bytes"), "kafka.fetch.max.bytes", least=1)
    return ClusterOptions(
        bootstrap_servers=parse_servers(own.get("kafka.bootstrap.servers", "")),
        group_id=own.get("kafka.group.id", "").strip(),
        client_id=_text(own, "kafka.client.id"),
        client_rack=_text(own, "kafka.client.rack"),
        is_read_committed=isolation == "read_committed",
        fetch_bytes_max=min(fetch_bytes, fetch_bytes_all),
        fetch_bytes_min=whole_number(_text(own, "kafka.fetch.min.bytes"), "kafka.fetch.min.bytes", least=0),
        fetch_wait_ms=whole_number(_text(own, "kafka.fetch.max.wait.ms"), "kafka.fetch.max.wait.ms", least=0),
        request_timeout_ms=whole_number(_text(own, "kafka.request.timeout.ms"), "kafka.request.timeout.ms", least=1),
        api_timeout_ms=whole_number(
            _text(own, "kafka.default.api.timeout.ms"), "kafka.default.api.timeout.ms", least=1
        ),
        security=tuple(sorted(security.items())),
    )


def whole_number(text: str, name: str, *, least: int) -> int:
    """A number of an option. Raises OptionError."""
    if not text.strip().isdecimal() or int(text) < least:
        raise OptionError(f"{name}={text}: write a whole number, at least {least}")
    return int(text)


def _text(own: Mapping[str, str], name: str) -> str:
    return own.get(name, KAFKA_OPTIONS[name].default).strip()


def _check_name(name: str) -> None:
    if name in KAFKA_OPTIONS or name.removeprefix(PREFIX) in WITHOUT_MEANING:
        return
    if name in REFUSED:
        raise OptionError(f"leave {name} out: {REFUSED[name]}")
    known = [*KAFKA_OPTIONS, *(PREFIX + bare for bare in WITHOUT_MEANING)]
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        raise OptionError(f"option {name} is not known to format barnabas; did you mean {near[0]}?")
    raise OptionError(
        f"option {name} is not known to format barnabas, and no property of Kafka's consumer; leave it out. "
        f"Those with a meaning are: {', '.join(KAFKA_OPTIONS)}"
    )


def parse_servers(text: str) -> tuple[str, ...]:
    """The value of kafka.bootstrap.servers as host:port each. Raises OptionError."""
    servers = tuple(part.strip() for part in text.split(",") if part.strip())
    if not servers:
        raise OptionError('say where the brokers are: .option("kafka.bootstrap.servers", "host:port")')
    try:
        parse_bootstrap(servers)
    except ValueError as error:
        raise OptionError(f"kafka.bootstrap.servers={text}: {error}, write host:port,host:port") from None
    return servers
