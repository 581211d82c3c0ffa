"""What topics and brokers are configured with: which keys there are, of which type, from which source, and how they change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import alter_configs as replace
from barnabas_wire.kafka.messages import incremental_alter_configs as change
from barnabas_wire.kafka.messages.create_topics import CreateTopicsRequest
from barnabas_wire.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas_wire.kafka.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from barnabas_wire.kafka.messages.list_config_resources import ListConfigResourcesRequest
from barnabas_wire.kafka.messages.push_telemetry import PushTelemetryRequest
from tests.oracle.answers import Side
from tests.oracle.cases import case
from tests.oracle.cases.topics import wanted

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
NOTHING_GOES = "1000000000"
"""A log.retention.bytes above all that a test writes: one that deletes, however briefly set, takes segments of other topics."""

TOPIC_SHARED = [
    *("cleanup.policy", "file.delete.delay.ms", "index.interval.bytes", "max.message.bytes"),
    *("message.timestamp.after.max.ms", "message.timestamp.before.max.ms", "message.timestamp.type"),
    *("min.insync.replicas", "retention.bytes", "retention.ms"),
    *("segment.bytes", "segment.index.bytes", "segment.jitter.ms", "segment.ms"),
]
"""Topic keys that both serve."""
PLACES = ("advertised.listeners", "controller.quorum.bootstrap.servers", "listeners", "log.dirs")
BROKER_SHARED = [
    *PLACES,
    *("auto.create.topics.enable", "auto.leader.rebalance.enable", "broker.heartbeat.interval.ms", "broker.rack"),
    *("broker.session.timeout.ms", "connections.max.idle.ms", "controller.listener.names"),
    *("controller.quorum.append.linger.ms", "controller.quorum.election.backoff.max.ms"),
    *("controller.quorum.election.timeout.ms", "controller.quorum.fetch.timeout.ms"),
    *("controller.quorum.request.timeout.ms", "controller.quorum.retry.backoff.ms"),
    *("default.replication.factor", "delete.topic.enable", "fetch.max.bytes", "group.initial.rebalance.delay.ms"),
    *("group.max.session.timeout.ms", "group.max.size", "group.min.session.timeout.ms"),
    *("initial.broker.registration.timeout.ms", "inter.broker.listener.name"),
    *("leader.imbalance.check.interval.seconds", "log.cleanup.policy", "log.flush.offset.checkpoint.interval.ms"),
    *("log.index.interval.bytes", "log.index.size.max.bytes", "log.message.timestamp.after.max.ms"),
    *("log.message.timestamp.before.max.ms", "log.message.timestamp.type", "log.retention.bytes"),
    *("log.retention.check.interval.ms", "log.retention.ms", "log.roll.jitter.ms", "log.roll.ms"),
    *("log.segment.bytes", "log.segment.delete.delay.ms", "max.connections", "max.request.partition.size.limit"),
    *("message.max.bytes", "metadata.log.dir", "metadata.max.idle.interval.ms", "min.insync.replicas", "node.id"),
    *("num.partitions", "offset.metadata.max.bytes", "offsets.commit.timeout.ms", "offsets.load.buffer.size"),
    *("offsets.retention.check.interval.ms", "offsets.retention.minutes", "offsets.topic.num.partitions"),
    *("offsets.topic.replication.factor", "offsets.topic.segment.bytes", "process.roles", "producer.id.expiration.ms"),
    *("replica.fetch.backoff.ms", "replica.fetch.max.bytes", "replica.fetch.min.bytes"),
    *("replica.fetch.response.max.bytes", "replica.fetch.wait.max.ms", "replica.high.watermark.checkpoint.interval.ms"),
    *("replica.lag.time.max.ms", "replica.socket.timeout.ms", "socket.listen.backlog.size"),
    *("socket.request.max.bytes", "unclean.leader.election.enable"),
]
"""Broker keys that both serve."""


def describe(
    side: Side, kind: int, name: str, keys: list[str] | None = None, *, version: int = 4, **fields: Any
) -> Any:
    """One resource."""
    request = DescribeConfigsRequest(resources=[DescribeConfigsResource(kind, name, keys)], **fields)
    return side.call(request, version=version)


@case(
    {
        "* synonyms.*.<retention.ms>.synonyms.*": "one-unit",
        "* synonyms.*.<segment.*ms>.synonyms.*": "one-unit",
        "keys.log.flush.on.acks": "own-keys",
        "keys.validate.batches": "own-keys",
        "keys.max.decompressed.message.bytes": "unserved-keys",
        "keys.remote.copy.lag.*": "unserved-keys",
    }
)
def topic_configs(side: Side) -> Iterator[tuple[str, Any]]:
    topic = side.topic("configs-topic", retention_ms="5000", cleanup_policy="delete")
    for version in range(1, 5):
        yield f"v{version}", describe(side, TOPIC, topic, TOPIC_SHARED, version=version)
        yield f"v{version} synonyms", describe(side, TOPIC, topic, TOPIC_SHARED, version=version, include_synonyms=True)
        some = ["retention.ms", "min.insync.replicas", "no.such.key"]
        yield f"v{version} some", describe(side, TOPIC, topic, some, version=version)
        none = describe(side, TOPIC, topic, [], version=version).results[0].configs
        yield f"v{version} none", len(none) == len(describe(side, TOPIC, topic).results[0].configs)
    yield "keys", dict.fromkeys((entry.name for entry in describe(side, TOPIC, topic).results[0].configs), "served")
    documented = describe(side, TOPIC, topic, ["retention.ms"], include_documentation=True)
    yield "documented", len(documented.results[0].configs[0].documentation or "") > 20
    made = side.call(CreateTopicsRequest(topics=[wanted("configs-made", retention_ms="5000")]), version=7)
    yield "made", [entry for entry in made.topics[0].configs if entry.name in TOPIC_SHARED]


@case(
    {
        "keys.*": "unserved-keys",
        "values.log.roll.*ms": "one-unit",
        "values.broker.heartbeat.interval.ms": "own-defaults",
        "values.broker.session.timeout.ms": "own-defaults",
        "values.inter.broker.listener.name": "own-defaults",
        "values.max.connections": "own-defaults",
        "values.replica.fetch.max.bytes": "own-defaults",
        "values.replica.fetch.response.max.bytes": "own-defaults",
        "values.replica.fetch.wait.max.ms": "own-defaults",
        "values.socket.listen.backlog.size": "own-defaults",
        "read only.*": "less-dynamic",
    }
)
def broker_configs(side: Side) -> Iterator[tuple[str, Any]]:
    answer = describe(side, BROKER, "1", include_synonyms=True)
    shared = {entry.name: entry for entry in answer.results[0].configs if entry.name in BROKER_SHARED}
    yield "shared", sorted(shared)
    yield "types", {name: entry.config_type for name, entry in shared.items()}
    yield "values", {name: entry.value for name, entry in shared.items() if name not in PLACES}
    yield "read only", {name: entry.read_only for name, entry in shared.items()}
    yield "sources", {name: entry.config_source for name, entry in shared.items() if name not in PLACES}
    others = (entry.name for entry in answer.results[0].configs if entry.name not in BROKER_SHARED)
    yield "keys", dict.fromkeys(others, "served")
    yield "cluster default", describe(side, BROKER, "")


@case()
def describe_configs_refused(side: Side) -> Iterator[tuple[str, Any]]:
    for version in (1, 4):
        for kind, name in (
            *((TOPIC, "nowhere"), (TOPIC, "a/b"), (TOPIC, "")),
            *((BROKER, "9"), (BROKER, "one"), (BROKER, "-1")),
            *((0, "x"), (1, "x"), (77, "x")),
        ):
            yield f"v{version} {kind} {name}", describe(side, kind, name, version=version)
    twice = [DescribeConfigsResource(TOPIC, "nowhere", None)] * 2
    yield "twice", side.call(DescribeConfigsRequest(resources=twice))
    yield "nothing", side.call(DescribeConfigsRequest())


def alter(
    side: Side, kind: int, name: str, *changes: tuple[str, int, str | None], version: int = 1, dry: bool = False
) -> Any:
    """One resource, by single keys."""
    listed = [change.AlterableConfig(*entry) for entry in changes]
    resource = change.AlterConfigsResource(kind, name, listed)
    return side.call(change.IncrementalAlterConfigsRequest([resource], dry), version=version)


@case({"v? unknown operation.*": "kafka-stumbles", "resource twice.*": "named-twice"})
def incremental_changes(side: Side) -> Iterator[tuple[str, Any]]:
    topic = side.topic("configs-change", retention_ms="5000")
    changes: dict[str, tuple[tuple[str, int, str | None], ...]] = {
        "set": (("retention.ms", SET, "6000"),),
        "set two": (("retention.ms", SET, "7000"), ("retention.bytes", SET, "99")),
        "delete": (("retention.bytes", DELETE, None),),
        "delete what is not set": (("segment.ms", DELETE, None),),
        "delete with a value": (("retention.bytes", DELETE, "5"),),
        "append to what is inherited": (("cleanup.policy", APPEND, "compact"),),
        "append": (("cleanup.policy", APPEND, "delete"),),
        "subtract": (("cleanup.policy", SUBTRACT, "compact"),),
        "append to a number": (("retention.ms", APPEND, "1"),),
        "subtract from a number": (("retention.ms", SUBTRACT, "1"),),
        "unknown key": (("no.such.key", SET, "1"),),
        "delete unknown key": (("no.such.key", DELETE, None),),
        "no value": (("retention.ms", SET, None),),
        "not a number": (("retention.ms", SET, "soon"),),
        "out of range": (("retention.ms", SET, "-2"),),
        "empty": (("retention.ms", SET, ""),),
        "spaces": (("retention.ms", SET, " 8000 "),),
        "not a choice": (("message.timestamp.type", SET, "Never"),),
        "good and bad": (("retention.ms", SET, "9000"), ("segment.bytes", SET, "x")),
        "twice": (("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
        "unknown operation": (("retention.ms", 9, "1"),),
        "nothing": (),
        "empty key": (("", SET, "1"),),
    }
    for version in (0, 1):
        for label, entries in changes.items():
            yield f"v{version} {label}", alter(side, TOPIC, topic, *entries, version=version)
    yield "dry", alter(side, TOPIC, topic, ("retention.ms", SET, "1234"), dry=True)
    yield "dry bad", alter(side, TOPIC, topic, ("retention.ms", SET, "x"), dry=True)
    yield "unknown topic", alter(side, TOPIC, "nowhere", ("retention.ms", SET, "1"))
    yield "bad topic", alter(side, TOPIC, "a/b", ("retention.ms", SET, "1"))
    yield "empty topic", alter(side, TOPIC, "", ("retention.ms", SET, "1"))
    for kind in (0, 1, 77):
        yield f"kind {kind}", alter(side, kind, "x", ("retention.ms", SET, "1"))
    resource = change.AlterConfigsResource(TOPIC, topic, [change.AlterableConfig("retention.ms", SET, "1")])
    yield "resource twice", side.call(change.IncrementalAlterConfigsRequest([resource, resource], False))
    yield (
        "after all",
        describe(side, TOPIC, topic, ["retention.ms", "retention.bytes", "cleanup.policy", "segment.bytes"]),
    )


def described_once(side: Side, name: str, *, is_set: bool) -> Any:
    """log.retention.bytes of a broker resource, once the broker has heard of its change."""
    while True:
        answer = describe(side, BROKER, name, ["log.retention.bytes"], include_synonyms=True)
        if [entry.value for entry in answer.results[0].configs] == (
            [NOTHING_GOES] if is_set else ["-1"] if name else []
        ):
            return answer


@case(
    {
        "* topic key.*": "strict-broker-keys",
        "* unknown key.*": "strict-broker-keys",
        "* read only*": "strict-broker-keys",
        "* not a number.*": "strict-broker-keys",
        "'9'.*": "any-broker",
    }
)
def broker_changes(side: Side) -> Iterator[tuple[str, Any]]:
    for name in ("1", ""):
        yield f"{name!r} set", alter(side, BROKER, name, ("log.retention.bytes", SET, NOTHING_GOES))
        yield f"{name!r} described", described_once(side, name, is_set=True)
        yield f"{name!r} topic key", alter(side, BROKER, name, ("retention.ms", SET, "1"))
        yield f"{name!r} unknown key", alter(side, BROKER, name, ("no.such.key", SET, "1"))
        yield f"{name!r} read only", alter(side, BROKER, name, ("log.dirs", SET, "/elsewhere"))
        yield f"{name!r} read only node id", alter(side, BROKER, name, ("node.id", SET, "4"))
        yield f"{name!r} not a number", alter(side, BROKER, name, ("log.retention.bytes", SET, "x"))
        yield f"{name!r} delete", alter(side, BROKER, name, ("log.retention.bytes", DELETE, None))
        yield f"{name!r} described again", described_once(side, name, is_set=False)
    for name in ("9", "one", "-1"):
        yield f"{name!r}", alter(side, BROKER, name, ("log.retention.bytes", SET, NOTHING_GOES))


@case()
def replaced_configs(side: Side) -> Iterator[tuple[str, Any]]:
    topic = side.topic("configs-replace", retention_ms="5000", retention_bytes="77")

    def ask(name: str, *entries: tuple[str, str | None], version: int = 2, dry: bool = False, kind: int = TOPIC) -> Any:
        listed = [replace.AlterableConfig(*entry) for entry in entries]
        resource = replace.AlterConfigsResource(kind, name, listed)
        return side.call(replace.AlterConfigsRequest([resource], dry), version=version)

    def described_with(segment_ms: str) -> Any:
        """The topic, once the broker has heard of the last change: Kafka answers a change before."""
        while True:
            answer = describe(side, TOPIC, topic, ["retention.ms", "retention.bytes", "segment.ms"])
            if segment_ms in [entry.value for entry in answer.results[0].configs]:
                return answer

    for version in range(3):
        yield f"v{version}", ask(topic, ("segment.ms", "100000"), version=version)
        yield f"v{version} unknown key", ask(topic, ("no.such.key", "1"), version=version)
        yield f"v{version} no value", ask(topic, ("segment.ms", None), version=version)
        yield f"v{version} not a number", ask(topic, ("segment.ms", "x"), version=version)
        yield f"v{version} unknown topic", ask("nowhere", ("segment.ms", "1"), version=version)
        yield f"v{version} twice", ask(topic, ("segment.ms", "1"), ("segment.ms", "2"), version=version)
    yield "dry", ask(topic, ("retention.ms", "1"), dry=True)
    yield "after", described_with("100000")
    yield "nothing left", ask(topic)
    yield "at last", described_with("604800000")


@case()
def config_resources(side: Side) -> Iterator[tuple[str, Any]]:
    side.topic("configs-listed")
    yield "v0", side.call(ListConfigResourcesRequest(), version=0)
    for kinds in ([BROKER], [CLIENT_METRICS], [GROUP], [LOGGER], [77], [TOPIC, 77]):
        yield f"v1 {kinds}", side.call(ListConfigResourcesRequest(resource_types=kinds), version=1)
    listed = side.call(ListConfigResourcesRequest(resource_types=[TOPIC]), version=1)
    yield "topics", "configs-listed" in [found.resource_name for found in listed.config_resources]
    listed = side.call(ListConfigResourcesRequest(), version=1)
    yield "kinds", sorted({found.resource_type for found in listed.config_resources})


@case()
def client_metrics(side: Side) -> Iterator[tuple[str, Any]]:
    name = "configs-pushed"
    changes: dict[str, tuple[tuple[str, int, str | None], ...]] = {
        "metrics": (("metrics", SET, "org.apache.kafka.consumer.,org.apache.kafka.producer."),),
        "interval": (("interval.ms", SET, "5000"),),
        "match": (("match", SET, "client_id=a.*,client_software_name=librdkafka"),),
        "match nobody": (("match", SET, ""),),
        "append": (("metrics", APPEND, "more"),),
        "subtract": (("metrics", SUBTRACT, "more"),),
        "append to a number": (("interval.ms", APPEND, "1"),),
        "no value": (("metrics", SET, None),),
        "too short": (("interval.ms", SET, "99"),),
        "too long": (("interval.ms", SET, "3600001"),),
        "not a number": (("interval.ms", SET, "soon"),),
        "unknown key": (("colour", SET, "red"),),
        "unknown selector": (("match", SET, "colour=red"),),
        "two equals": (("match", SET, "client_id=a=b"),),
        "no equals": (("match", SET, "client_id"),),
        "no regex": (("match", SET, "client_id=("),),
        "delete unknown key": (("colour", DELETE, None),),
        "delete": (("match", DELETE, None),),
    }
    for label, entries in changes.items():
        yield label, alter(side, CLIENT_METRICS, name, *entries)
    yield "no name", alter(side, CLIENT_METRICS, "", ("metrics", SET, "*"))
    for version in (1, 4):
        yield f"v{version} described", set_metrics(side, name, version=version)
        yield f"v{version} unset", describe(side, CLIENT_METRICS, "configs-absent", version=version)
        yield f"v{version} nameless", describe(side, CLIENT_METRICS, "", version=version)
    yield "synonyms", describe(side, CLIENT_METRICS, name, include_synonyms=True)
    yield "listed v0", side.call(ListConfigResourcesRequest(), version=0)
    yield "listed", side.call(ListConfigResourcesRequest(resource_types=[CLIENT_METRICS]), version=1)
    yield "deleted", alter(side, CLIENT_METRICS, name, ("metrics", DELETE, None), ("interval.ms", DELETE, None))
    while side.call(ListConfigResourcesRequest(), version=0).config_resources:
        pass
    yield "gone", describe(side, CLIENT_METRICS, name)


def set_metrics(side: Side, name: str, *, version: int) -> Any:
    """A subscription, once the broker has heard of the last change, by which its `match` is a default: Kafka answers a change before."""
    while True:
        answer = describe(side, CLIENT_METRICS, name, version=version)
        sources = {entry.name: (entry.value, entry.config_source) for entry in answer.results[0].configs}
        value, source = sources.get("interval.ms", (None, None))
        if value == "5000" and sources["match"][1] != source:
            return answer


@case()
def telemetry_without_a_receiver(side: Side) -> Iterator[tuple[str, Any]]:
    """The keys are not listed, and answered all the same."""
    asked = side.call(GetTelemetrySubscriptionsRequest(), version=0)
    instance_id = asked.client_instance_id
    yield "has an id", instance_id != Uuid(bytes(16))
    yield "asked", {**asdict(asked), "client_instance_id": None, "subscription_id": None}
    yield "asked again", side.call(GetTelemetrySubscriptionsRequest(instance_id), version=0)

    def push(instance_id: Uuid, subscription_id: int = asked.subscription_id, **fields: Any) -> Any:
        request = PushTelemetryRequest(instance_id, subscription_id, metrics=b"no metrics", **fields)
        return side.call(request, version=0)

    yield "nobody", push(Uuid(bytes(16)))
    yield "reserved", push(Uuid(bytes(15) + b"\x01"))
    yield "first", push(instance_id)
    yield "early", push(instance_id)
    other = side.call(GetTelemetrySubscriptionsRequest(), version=0).client_instance_id
    yield "another's subscription", push(other)
    yield (
        "asks at once",
        asdict(side.call(GetTelemetrySubscriptionsRequest(other), version=0))
        | {
            "client_instance_id": None,
            "subscription_id": None,
        },
    )
    yield "bad codec", push(instance_id, compression_type=9, terminating=True)
    yield "ended", push(instance_id)
    third = side.call(GetTelemetrySubscriptionsRequest(), version=0)
    large = PushTelemetryRequest(third.client_instance_id, third.subscription_id, metrics=bytes(1024 * 1024 + 1))
    yield "too large", side.call(large, version=0)
