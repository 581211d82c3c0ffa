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
from pathlib import Path

import pytest

from barnabas_broker.config.keys import format_value
from barnabas_broker.node.properties import known_keys
from barnabas_quorum.image.features import BOOTSTRAP_LEVELS, METADATA_VERSION, SUPPORTED_FEATURES
from barnabas_quorum.records import Record
from barnabas_quorum.records_integrity import IntegrityRecord
from barnabas_quorum.records_security import SecurityRecord
from barnabas_wire.lazy_dataclass import realised
from tests.oracle.apache import classpath, run_tool

OWN_DEFAULTS = {
    "controller.listener.names": "Kafka has none and wants one",
    "listeners": "loopback, not every interface",
    "log.retention.ms": "one unit: Kafka's default is in log.retention.hours",
    "log.roll.ms": "one unit: Kafka's default is in log.roll.hours",
    "log.roll.jitter.ms": "one unit: Kafka's default is in log.roll.jitter.hours",
    "broker.heartbeat.interval.ms": "the heartbeat has a thread of its own",
    "broker.session.timeout.ms": "the heartbeat has a thread of its own",
    "log.cleaner.io.max.bytes.per.second": "the same number, written as Python writes it",
    "max.connections": "measured",
    "queued.max.request.bytes": "bounded: Kafka's default is no bound",
    "replica.fetch.max.bytes": "measured",
    "replica.fetch.response.max.bytes": "measured",
    "socket.listen.backlog.size": "measured",
    "sasl.enabled.mechanisms": "none: Kafka's GSSAPI is not served",
    "sasl.mechanism.inter.broker.protocol": "Kafka's GSSAPI is not served",
    "ssl.keystore.type": "PEM: Java's key stores are not read",
    "ssl.truststore.type": "PEM: Java's key stores are not read",
}
LATER_KEYS = {
    *("controller.quorum.fetch.max.bytes", "controller.quorum.fetch.snapshot.max.bytes"),
    "group.consumer.assignment.interval.ms",
    *("group.consumer.min.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"),
}
"""Keys of Kafka 4.3 (KIP-1219) and 4.4 (KIP-1263)."""
HIDDEN_KEYS = {
    "group.consumer.regex.refresh.interval.ms",
    *("producer.id.expiration.check.interval.ms", "unclean.leader.election.interval.ms"),
    *("super.users", "allow.everyone.if.no.acl.found"),
}
"""Kafka has them and does not document them among its broker's keys; the last two belong to its authorizer."""
OWN_KEYS = {
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
OWN_RECORDS = {"UnregisterControllerRecord", "ImageHashRecord", "QuarantineRecord", "QuorumRecoveryRecord"}
"""The first is Kafka's from 4.4 on."""
LEFT_OUT_FIELDS = {"is_migrating_zk_broker", "zk_migration_ready", "remove"}
"""ZooKeeper; a quota that is removed is one without a value."""
OWN_FIELDS = {"faults", "is_in_maintenance", "served", "serves"}
"""Which replicas are corrupt, lost or without room; which brokers are drained; in which epoch a directory was last served from."""
OWN_FEATURES = {"barnabas.two.phase.version"}
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
    assert ours.keys() - shared == OWN_KEYS | LATER_KEYS | HIDDEN_KEYS
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
    assert built == {"kraft.version", "eligible.leader.replicas.version", "group.version", "transaction.version"}
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
        fields = {field.name for field in dataclasses.fields(realised(ours[name]))}
        assert {_renamed(name, field) for field in theirs[name]} - LEFT_OUT_FIELDS == fields - OWN_FIELDS, name


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
