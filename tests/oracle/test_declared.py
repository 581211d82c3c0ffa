"""What Apache Kafka declares and Barnabas relies on: defaults of shared keys, feature levels, fields of metadata records.

Read from Kafka's own documentation of its keys, its storage tool and the schemas in its jar; no broker is started. A
difference that is not told here, or is gone, fails the test.
"""

from __future__ import annotations

import dataclasses
import html
import json
import re
import typing
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.api.registry import VERSIONS_SERVED
from barnabas_broker.config.keys import format_value
from barnabas_broker.node.properties import known_keys
from barnabas_quorum.image.features import BOOTSTRAP_LEVELS, METADATA_VERSION, SUPPORTED_FEATURES
from barnabas_quorum.records import Record
from barnabas_quorum.records_integrity import IntegrityRecord
from barnabas_quorum.records_security import SecurityRecord
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import fields_of, message_classes
from docs.kafka_apis import KAFKA_RANGES
from tests.oracle.apache import classpath, run_tool
from tests.proto.oracle import OWN_TAGS_FROM

OWN_DEFAULTS = {
    "controller.listener.names": "Kafka has none and wants one",
    "listeners": "loopback, not every interface",
    "log.retention.ms": "one unit: Kafka's default is in log.retention.hours",
    "log.roll.ms": "one unit: Kafka's default is in log.roll.hours",
    "log.roll.jitter.ms": "one unit: Kafka's default is in log.roll.jitter.hours",
    "group.consumer.assignors": "uniform-rack, too",
    "broker.heartbeat.interval.ms": "the heartbeat has a thread of its own",
    "broker.session.timeout.ms": "the heartbeat has a thread of its own",
    "log.cleaner.io.max.bytes.per.second": "the same number, written as Python writes it",
    "max.connections": "measured",
    "queued.max.request.bytes": "bounded: Kafka's default is no bound",
    "replica.fetch.max.bytes": "measured",
    "replica.fetch.response.max.bytes": "measured",
    "replica.fetch.wait.max.ms": "measured: many idle brokers",
    "socket.listen.backlog.size": "measured",
    "sasl.enabled.mechanisms": "none: Kafka's GSSAPI is not served",
    "sasl.mechanism.inter.broker.protocol": "Kafka's GSSAPI is not served",
    "ssl.keystore.type": "PEM: Java's key stores are not read",
    "ssl.truststore.type": "PEM: Java's key stores are not read",
}
HIDDEN_KEYS = {
    "group.consumer.regex.refresh.interval.ms",
    "group.share.initialize.retry.interval.ms",
    *("group.streams.acceptable.recovery.lag", "group.streams.task.offset.interval.ms"),
    *(f"share.coordinator.{key}.interval.ms" for key in ("cold.partition.snapshot", "state.topic.prune")),
    *("producer.id.expiration.check.interval.ms", "unclean.leader.election.interval.ms"),
    *("super.users", "allow.everyone.if.no.acl.found"),
}
"""Kafka has them and does not document them among its broker's keys; the last two belong to its authorizer."""
OWN_KEYS = {
    *("broker.host", "log.text.node.id", "telemetry.receiver"),
    *(
        "admin.listeners",
        "admin.listeners.allow.remote",
        "controller.listeners.allow.remote",
        "controller.listeners.dial.plaintext",
        "metrics.listeners",
        "log.flush.on.acks",
        "validate.batches",
    ),
    *("broker.data.lane.timeout.ms", "broker.disconnect.grace.ms", "controlled.shutdown.timeout.ms"),
    *("log.retention.clock.skew.max.ms", "log.scrub.bytes.per.second.max", "replica.fetch.silence.time.max.ms"),
    *("log.dir.free.bytes.min", "log.dir.free.bytes.resume", "log.dir.free.check.interval.ms", "log.dir.reserve.bytes"),
    *("broker.replicas.max", "cluster.partitions.max", "topic.partitions.max"),
    *("connection.in.flight.requests.max", "connection.queued.response.bytes.max", "inter.broker.connections.reserved"),
    *("leader.imbalance.elections.max", "leader.imbalance.settle.ms"),
    *("log.file", "log.file.backups", "log.file.max.bytes", "log.format", "log.level", "request.log.sample.every"),
    *("tracing.otlp.endpoint", "tracing.sample.ratio"),
    *("audit.log.path", "audit.log.max.bytes", "sasl.oauthbearer.algorithms", "tls.handshakes.per.second.max"),
    *("metadata.image.hash.interval.ms", "metadata.image.hash.interval.records"),
}
LEFT_OUT_RECORDS = {
    "FenceBrokerRecord": "replaced by BrokerRegistrationChangeRecord",
    "UnfenceBrokerRecord": "replaced by BrokerRegistrationChangeRecord",
    "ZkMigrationStateRecord": "ZooKeeper",
}
OWN_RECORDS = {"ImageHashRecord", "QuarantineRecord", "QuorumRecoveryRecord"}
LEFT_OUT_FIELDS = {"is_migrating_zk_broker", "zk_migration_ready", "remove", "cordoned_log_dirs"}
"""ZooKeeper; a quota that is removed is one without a value; directories that take no new replicas (KIP-1066) are not built."""
OWN_FIELDS = {"faults", "is_in_maintenance", "served", "serves"}
"""Which replicas are corrupt, lost or without room; which brokers are drained; in which epoch a directory was last served from."""
OWN_FIELDS_OF = {"RegisterBrokerRecord": {"host"}}
"""Which host a broker is lost with."""
OWN_FEATURES = {"barnabas.host.version", "barnabas.two.phase.version"}
"""Prepared transactions (PrepareTxn)."""
RENAMED = {
    "end_points": "endpoints",
    "fenced": "is_fenced",
    "in_controlled_shutdown": "is_in_controlled_shutdown",
    "log_dirs": "directories",
    "eligible_leader_replicas": "elr",
    "feature_level": "level",
    "permission_type": "permission",
    "issue_timestamp": "issue_timestamp_ms",
    "max_timestamp": "max_timestamp_ms",
    "expiration_timestamp": "expiration_timestamp_ms",
    "config_record.name": "key",
}


@pytest.fixture(scope="module")
def their_defaults(jars: None) -> dict[str, str]:
    """Key to default, "" for none, as Kafka documents its broker's keys."""
    documented = run_tool("kafka.server.KafkaConfig")
    assert documented.exit_code == 0, documented.stderr
    found: dict[str, str] = {}
    for block in documented.stdout.split("<h4>")[1:]:
        name = re.search(r'<a id="([^"]+)">', block)
        assert name is not None, block
        default = re.search(r"<th>Default:</th><td>(.*?)</td>", block, re.DOTALL)
        text = "" if default is None else html.unescape(default[1])
        found[name[1]] = "" if text in ("null", '""') else re.sub(r" \(.*\)$", "", text)
    assert len(found) > 200
    return found


def test_keys_that_both_read_have_one_default(their_defaults: dict[str, str]) -> None:
    ours = {key.name: key for key in known_keys()}
    shared = ours.keys() & their_defaults.keys()
    assert ours.keys() - shared == OWN_KEYS | HIDDEN_KEYS
    differing = {
        name
        for name in shared
        if not ours[name].is_required and format_value(ours[name].default) != their_defaults[name]
    }
    assert differing == OWN_DEFAULTS.keys()


def test_a_new_cluster_has_the_feature_levels_of_kafkas_latest_release(jars: None) -> None:
    said = run_tool("kafka.tools.StorageTool", "version-mapping").stdout
    theirs = {name: int(level) for name, level in re.findall(r"^([a-z.]+)=(\d+)", said, re.MULTILINE)}
    del theirs[METADATA_VERSION]  # ours counts our own levels
    built = (
        {feature.name for feature in SUPPORTED_FEATURES if feature.max_level > 0} - {METADATA_VERSION} - OWN_FEATURES
    )
    assert built == {
        "kraft.version",
        "eligible.leader.replicas.version",
        "group.version",
        "share.version",
        "streams.version",
        "transaction.version",
    }
    for name in built:
        assert BOOTSTRAP_LEVELS[name] == theirs[name]
    unbuilt = {feature.name for feature in SUPPORTED_FEATURES if feature.max_level == 0}
    assert unbuilt <= theirs.keys()


def test_metadata_records_have_the_fields_of_kafkas(jars: None) -> None:
    theirs = _schemas()
    ours = {record.__name__: record for record in _records(Record | SecurityRecord | IntegrityRecord)}
    assert theirs.keys() - ours.keys() == LEFT_OUT_RECORDS.keys()
    assert ours.keys() - theirs.keys() == OWN_RECORDS
    for name in theirs.keys() & ours.keys():
        fields = {field.name for field in dataclasses.fields(ours[name])}
        assert {
            _renamed(name, field) for field in theirs[name]
        } - LEFT_OUT_FIELDS == fields - OWN_FIELDS - OWN_FIELDS_OF.get(name, set()), name


def test_messages_have_the_fields_of_kafkas(jars: None) -> None:
    """Name, type, versions, nullability and tag of every field of every message that is served, in wire order."""
    theirs = {(schema["apiKey"], schema["type"]): schema for schema in _messages()}
    compared = 0
    for key, lowest, highest in VERSIONS_SERVED:
        if key == ApiKey.PREPARE_TXN:
            continue
        for cls, kind in zip(message_classes(key), ("request", "response"), strict=True):
            for version in range(max(lowest, cls.MIN_VERSION), highest + 1):
                declared = theirs[key, kind]
                assert list(_our_fields(cls, version)) == list(_their_fields(declared, version)), (cls, version)
                assert (version >= cls.FLEXIBLE_FROM) is _has(declared["flexibleVersions"], version), (cls, version)
                compared += 1
    assert compared > 300


def test_the_versions_that_the_table_says_kafka_serves_are_kafkas(jars: None) -> None:
    found = {}
    for schema in _messages():
        if "broker" in schema.get("listeners", ()) and schema["validVersions"] != "none":
            lowest, _, highest = schema["validVersions"].partition("-")
            last = int(highest or lowest) - bool(schema.get("latestVersionUnstable"))
            found[ApiKey(schema["apiKey"])] = (int(lowest), last)
    assert found == KAFKA_RANGES


def _messages() -> list[dict[str, Any]]:
    """Every request and response that the clients' jar of Kafka declares."""
    (jar,) = (path for path in classpath().split(":") if Path(path).name.startswith("kafka-clients-"))
    with zipfile.ZipFile(jar) as archive:
        names = [
            name for name in archive.namelist() if re.fullmatch(r"common/message/.*(Request|Response)\.json", name)
        ]
        texts = [archive.read(name).decode() for name in names]
    return [json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)) for text in texts]


def _has(versions: str | None, version: int) -> bool:
    """Whether a range such as 3+, 0-5, 4 or none has the version."""
    if not versions or versions == "none":
        return False
    if versions.endswith("+"):
        return version >= int(versions[:-1])
    lowest, _, highest = versions.partition("-")
    return int(lowest) <= version <= int(highest or lowest)


def _their_fields(declared: dict[str, Any], version: int) -> Iterator[tuple[Any, ...]]:
    structs = {struct["name"]: struct["fields"] for struct in declared.get("commonStructs", ())}

    def walk(fields: list[dict[str, Any]], depth: int) -> Iterator[tuple[Any, ...]]:
        for field in fields:
            if not _has(field["versions"], version):
                continue
            is_array = field["type"].startswith("[]")
            kind = field["type"].removeprefix("[]")
            inner = field.get("fields") or structs.get(kind)
            tag = field.get("tag") if _has(field.get("taggedVersions"), version) else None
            yield (
                depth,
                _squashed(field["name"]),
                is_array,
                "struct" if inner else {"bool": "boolean"}.get(kind, kind),
                _has(field.get("nullableVersions"), version),
                tag,
            )
            if inner:
                yield from walk(inner, depth + 1)

    return walk(declared["fields"], 0)


def _our_fields(cls: type[Any], version: int, depth: int = 0) -> Iterator[tuple[Any, ...]]:
    for name, spec in fields_of(cls):
        if not spec.exists(version) or (spec.tag is not None and spec.tag >= OWN_TAGS_FROM):
            continue
        element = spec.element if isinstance(spec.element, type) else None
        kind = "struct" if element else (spec.element if spec.kind == "array" else spec.kind)
        is_nullable = version >= spec.nullable_since
        yield depth, _squashed(name), spec.kind == "array", kind, is_nullable, spec.tag
        if element:
            yield from _our_fields(element, version, depth + 1)


def _squashed(name: str) -> str:
    return name.replace("_", "").lower().removesuffix("ormemberepoch")  # kio has the name of before


def _schemas() -> dict[str, list[str]]:
    """Metadata record to the names of its fields, as the schemas in Kafka's jar say."""
    (jar,) = (path for path in classpath().split(":") if Path(path).name.startswith("kafka-metadata-"))
    found: dict[str, list[str]] = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith("common/metadata/") and name.endswith(".json"):
                schema = json.loads(re.sub(r"//.*", "", archive.read(name).decode()))
                found[schema["name"]] = [field["name"] for field in schema["fields"]]
    return found


def _records(union: object) -> list[type]:
    return [kind for member in typing.get_args(union) for kind in (typing.get_args(member) or (member,))]


def _renamed(record: str, field: str) -> str:
    snake = _snake(field)
    return RENAMED.get(f"{_snake(record)}.{snake}", RENAMED.get(snake, snake))


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
