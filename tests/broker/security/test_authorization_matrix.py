"""Every Kafka API, every RPC of the admin listeners and of the controller, by whoever may and may not: made from the table of rights."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from barnabas_broker.admin.controller_calls import OPERATORS_VERBS
from barnabas_broker.admin.edge import SERVICES
from barnabas_broker.admin.errors import ERROR_METADATA_KEY
from barnabas_broker.api import registry
from barnabas_broker.node.servers import require_rows
from barnabas_quorum.controller.guard import RequestGuard
from barnabas_quorum.controller.request import Request
from barnabas_quorum.driver.verbs import VERBS
from barnabas_quorum.image import rights
from barnabas_quorum.image.authorizer import CLUSTER_NAME, Authorizer
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.image.rights import KAFKA_RIGHTS, REFUSALS, RPC_RIGHTS, Audience, Right, Row
from barnabas_quorum.records import TopicRecord
from barnabas_quorum.records_security import AccessControlEntryRecord, AclOperation, AclPatternType, AclPermission
from barnabas_wire.kafka.errors import ErrorCode, InvariantViolated, KafkaError
from barnabas_wire.kafka.ids import ANONYMOUS, NODE_PRINCIPAL, Epoch, Offset, Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas_wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas_wire.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas_wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas_wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas_wire.kafka.messages.list_groups import ListGroupsRequest
from barnabas_wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_wire.kafka.messages.streams_group_heartbeat import Subtopology as StreamsSubtopology
from barnabas_wire.kafka.messages.streams_group_heartbeat import Topology as StreamsTopology
from barnabas_wire.kafka.schema import FieldSpec, decode_response, encode_request, fields_of, message_classes
from barnabas_wire.rpc import admin_pb2, admin_pb2_grpc, controller_pb2, explain_pb2, inspection_pb2
from tests.broker.security.secured_node import PRINCIPAL_KEY, Client, SecuredNode, secured_node, until
from tests.metadata_quorum import golden_values

registry.load_handlers()

NAME = "1"
"""Of the topic that is there, of the group, of the broker, and of whatever else a request names."""
REFUSED = frozenset(int(code) for code in REFUSALS.values())
UNSEEN = {ApiKey.PRODUCE: frozenset((int(ErrorCode.UNKNOWN_TOPIC_ID),))}
"""Refusals, too, of what the client may not see: by its id it is as what is not there."""
HIDES = frozenset(
    (ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_DELEGATION_TOKEN)
)
"""Refuse nobody: who may not see something is not shown it. See the tests by name below."""
UNGUARDED = frozenset((ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY))
"""Anybody may ask what to push, and push; the rights count for what is told of others: test_telemetry_api.py."""
OWN = frozenset((ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN))
"""The token says who may; without one nobody."""
ONLY_HIDDEN = {
    (ApiKey.METADATA, rights.CLUSTER),
    (ApiKey.CREATE_TOPICS, (rights.DESCRIBE_CONFIGS, rights.TOPIC)),
    (ApiKey.DESCRIBE_TRANSACTIONS, (rights.DESCRIBE, rights.TOPIC)),
    (
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        (rights.DESCRIBE, rights.TOPIC),
    ),  # of what a group here has: test_consumer_groups_api.py
    (ApiKey.STREAMS_GROUP_DESCRIBE, (rights.DESCRIBE, rights.TOPIC)),  # likewise: test_streams_groups_api.py
    (ApiKey.SHARE_GROUP_DESCRIBE, (rights.DESCRIBE, rights.TOPIC)),  # likewise: test_share_groups_api.py
    (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, (rights.DESCRIBE, rights.TOPIC)),  # likewise
    (ApiKey.SHARE_ACKNOWLEDGE, (rights.READ, rights.TOPIC)),  # once there is a session: test_share_fetch_api.py
    (ApiKey.STREAMS_GROUP_HEARTBEAT, (rights.CREATE, rights.TOPIC)),  # a status: test_streams_groups_api.py
}
"""Needs of a row without which a part of the answer is left out."""
NUMBERS: dict[str, Any] = {
    "timeout_ms": 5_000,
    "max_wait_ms": 0,
    "replica_id": -1,
    "acks": 1,
    "session_epoch": -1,
    "resource_type": 2,
    "num_partitions": 1,
    "replication_factor": 1,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "member_id": "",
    "session_timeout_ms": 6_000,
    "rebalance_timeout_ms": 100,
    "transaction_timeout_ms": 1_000,
    "producer_id": -1,
    "producer_epoch": -1,
    "max_lifetime_ms": -1,
    "endpoint_type": 1,
    "duration_filter": -1,
    "include_cluster_authorized_operations": True,
    "validate_only": False,
}
FIXED: dict[ApiKey, dict[str, Any]] = {
    ApiKey.SHARE_FETCH: {
        "group_id": "1",
        "member_id": "1",
        "max_bytes": 1_024,
        "max_records": 1,
        "topics.partitions.acknowledgement_batches": [],
        "forgotten_topics_data": [],
    },
    ApiKey.SHARE_ACKNOWLEDGE: {"group_id": "1", "member_id": "1", "share_session_epoch": 1},
    ApiKey.CREATE_TOPICS: {"topics.name": "new", "topics.assignments": [], "topics.configs": []},
    ApiKey.DELETE_TOPICS: {"topics.topic_id": Uuid(bytes(16))},
    ApiKey.CREATE_PARTITIONS: {"topics.count": 9, "topics.assignments": None},
    ApiKey.METADATA: {
        "topics.topic_id": Uuid(bytes(16)),
        "topics.name": "to-be-made",
        "allow_auto_topic_creation": True,
    },
    ApiKey.OFFSET_FETCH: {"groups.member_id": None, "groups.member_epoch": -1},
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {
        "member_epoch": 0,
        "topic_partitions": [],
        "server_assignor": None,
        "instance_id": None,
        "subscribed_topic_regex": None,
        "rebalance_timeout_ms": 60_000,
    },
    ApiKey.STREAMS_GROUP_HEARTBEAT: {
        "member_epoch": 0,
        "instance_id": None,
        "rebalance_timeout_ms": 60_000,
        "topology": StreamsTopology(subtopologies=[StreamsSubtopology(subtopology_id="0", source_topics=[NAME])]),
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
    },
    ApiKey.SHARE_GROUP_HEARTBEAT: {"member_epoch": 0},
    ApiKey.UNREGISTER_BROKER: {"broker_id": 77},
    ApiKey.UNREGISTER_CONTROLLER: {"controller_id": 77},
    ApiKey.REMOVE_RAFT_VOTER: {"voter_id": 77, "cluster_id": None},
    ApiKey.ADD_RAFT_VOTER: {"voter_id": 77, "cluster_id": None},
    ApiKey.LIST_CONFIG_RESOURCES: {"resource_types": []},
    ApiKey.CREATE_DELEGATION_TOKEN: {"owner_principal_type": "User", "renewers": []},
    ApiKey.DESCRIBE_CONFIGS: {"resources.configuration_keys": None},
    ApiKey.DELETE_RECORDS: {"topics.partitions.offset": 0},
    ApiKey.DESCRIBE_PRODUCERS: {},
    ApiKey.FIND_COORDINATOR: {"key_type": 0},
    ApiKey.ELECT_LEADERS: {"election_type": 0},
}
VERSIONS = {ApiKey.ADD_PARTITIONS_TO_TXN: 3}
"""Where not the highest: that is of brokers alone, see below."""


def sample(cls: type[Any], version: int, fixed: dict[str, Any], topic_id: Uuid, path: str = "") -> Any:
    """A request in which each array has one element and each text is NAME."""
    values: dict[str, Any] = {}
    for name, spec in fields_of(cls):
        if not spec.exists(version) or spec.tag is not None:
            continue
        own = f"{path}{name}"
        if own in fixed:
            values[name] = fixed[own]
        elif name in NUMBERS and spec.kind not in ("array", "struct"):
            values[name] = NUMBERS[name]
        else:
            values[name] = _value(spec, version, fixed, topic_id, f"{own}.")
    return cls(**values)


def _value(spec: FieldSpec, version: int, fixed: dict[str, Any], topic_id: Uuid, path: str) -> Any:
    if spec.kind == "array":
        if isinstance(spec.element, type):
            return [sample(spec.element, version, fixed, topic_id, path)]
        return [_scalar(spec.element, topic_id)]
    if spec.kind == "struct":
        return None if version >= spec.nullable_since else sample(spec.element, version, fixed, topic_id, path)
    return _scalar(spec.kind, topic_id)


def _scalar(kind: str, topic_id: Uuid) -> Any:
    return {"string": NAME, "bytes": b"", "records": b"", "uuid": topic_id, "boolean": False, "float64": 1.0}.get(
        kind, 0
    )


def codes(answer: Any) -> Iterator[int]:
    """Every error code in an answer."""
    if dataclasses.is_dataclass(answer):
        for field in dataclasses.fields(answer):
            value = getattr(answer, field.name)
            if field.name.endswith("error_code"):
                yield value
            else:
                yield from codes(value)
    elif isinstance(answer, list):
        for each in answer:
            yield from codes(each)


def grants(principal: str, wanted: Iterable[Right]) -> list[AclCreation]:
    """ACLs that allow exactly this, on what the samples name."""
    return [
        AclCreation(
            resource_type=right.resource_type,
            resource_name=name,
            resource_pattern_type=AclPatternType.LITERAL,
            principal=principal,
            host="*",
            operation=right.operation,
            permission_type=AclPermission.ALLOW,
        )
        for right in wanted
        for name in names(right)
    ]


def names(right: Right) -> tuple[str, ...]:
    if right.resource_type is rights.CLUSTER:
        return (CLUSTER_NAME,)
    return ("User:1",) if right.resource_type is rights.USER else (NAME, "new", "to-be-made")


class Matrix:
    """Asks one node."""

    def __init__(self, node: SecuredNode) -> None:
        self._node = node
        self._clients: dict[str, Client] = {}
        self._topic_id = Uuid(bytes(16))

    async def set_up(self) -> None:
        """What the samples name is there."""
        await self._call("root", FindCoordinatorRequest(key=NAME, key_type=0), 3)
        await self._call("root", FindCoordinatorRequest(key=NAME, key_type=1), 3)
        await self.mend()

    async def mend(self) -> None:
        """Make anew what a request took away, and take away what it made."""
        topic = CreatableTopic(name=NAME, num_partitions=8, replication_factor=1)
        await self._call("root", CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        for name in ("new", "to-be-made"):
            delete = message_classes(ApiKey.DELETE_TOPICS)[0](topic_names=[name], timeout_ms=10_000)
            await self._call("root", delete, 5)

        async def is_there() -> bool:
            (found,) = (await self._call("root", MetadataRequest(topics=[MetadataRequestTopic(name=NAME)]), 12)).topics
            self._topic_id = found.topic_id
            return bool(found.error_code == ErrorCode.NONE and len(found.partitions) >= 8)

        await until(is_there)

    async def allow(self, user: str, wanted: Iterable[Right]) -> None:
        """Of all ACLs, leave these."""
        everything = DeleteAclsFilter(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
        assert not any(codes(await self._call("root", DeleteAclsRequest(filters=[everything]), 3)))
        created = await self._call("root", CreateAclsRequest(creations=grants(f"User:{user}", wanted)), 3)
        assert not any(codes(created)), created

    async def ask(self, user: str, key: ApiKey) -> set[int]:
        """The codes of an answer."""
        request, version = self.sample(key)
        found = set(codes(await self._call(user, request, version)))
        if user == "root" or key in (ApiKey.DELETE_TOPICS, ApiKey.CREATE_TOPICS, ApiKey.METADATA):
            await self.mend()
        return found

    def sample(self, key: ApiKey) -> tuple[Any, int]:
        """A request, and its version."""
        version = VERSIONS.get(key, registry.APIS[key].max_version)
        return sample(message_classes(key)[0], version, FIXED.get(key, {}), self._topic_id), version

    async def call(self, user: str, request: Any, version: int) -> Any:
        return await self._call(user, request, version)

    async def _call(self, user: str, request: Any, version: int) -> Any:
        if user not in self._clients:
            self._clients[user] = await self._node.client(user)
        return await self._clients[user].call(request, version)


def rows() -> Iterator[tuple[ApiKey, Row]]:
    for key in sorted(registry.APIS.keys() - UNGUARDED):
        yield ApiKey(key), KAFKA_RIGHTS[ApiKey(key)]


def without_one(key: ApiKey, row: Row) -> Iterator[tuple[Right, ...]]:
    """The rights of a row but for those of one need; nothing at all first."""
    yield ()
    for need in row.needs:
        if (key, need[-1].resource_type) in ONLY_HIDDEN or (key, tuple(need[-1])) in ONLY_HIDDEN:
            continue
        yield tuple(row.rights - with_implying(need))


def with_implying(need: Iterable[Right]) -> set[Right]:
    """The rights, and those that would allow the same (DELETE allows DESCRIBE)."""
    found = set(need)
    for right in need:
        if right.operation is AclOperation.DESCRIBE:
            found |= {
                Right(operation, right.resource_type)
                for operation in (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)
            }
    return found


async def test_every_kafka_api_by_everybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    async with secured_node(tmp_path, monkeypatch) as node:
        matrix = Matrix(node)
        await matrix.set_up()
        for key, row in rows():
            if row.audience is Audience.ANYBODY:
                continue
            refusals = REFUSED | UNSEEN.get(key, frozenset()) if key not in HIDES | OWN else frozenset()
            for allowed in without_one(key, row):
                await matrix.allow("wrong", allowed)
                reported = await matrix.ask("wrong", key)
                if refusals and not reported & refusals:
                    found.append(
                        f"{key.name}: allowed {[*map(str, allowed)]} and nothing else, and answered {reported}"
                    )
            await matrix.allow("right", row.rights)
            for user in ("", "right", "root"):
                reported = await matrix.ask(user, key)
                if user and reported & REFUSED and key not in OWN:
                    found.append(f"{key.name}: {user} is refused with {reported}")
                if not user and refusals and not reported & refusals and key is not ApiKey.CREATE_DELEGATION_TOKEN:
                    found.append(f"{key.name}: an anonymous client is answered {reported}")
            action = Right(AclOperation.CLUSTER_ACTION, rights.CLUSTER)
            await matrix.allow("peer", [action])
            may = (
                row.cluster_right is None
                and all(action in need for need in row.needs)
                and key not in (ApiKey.FETCH, ApiKey.FIND_COORDINATOR)
            )
            reported = await matrix.ask("peer", key)
            if refusals and may is bool(reported & refusals):
                found.append(f"{key.name}: another broker is answered {reported}")
    assert not found, "\n".join(found)


async def test_what_brokers_alone_send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower's fetch, a broker's AddPartitionsToTxn, where share state is: CLUSTER_ACTION and nothing else."""
    async with secured_node(tmp_path, monkeypatch) as node:
        matrix = Matrix(node)
        await matrix.set_up()
        partition = FetchPartition(partition=0, partition_max_bytes=1024)
        fetch = FetchRequest(
            replica_id=7, session_epoch=-1, min_bytes=0, topics=[FetchTopic(topic=NAME, partitions=[partition])]
        )
        cls = message_classes(ApiKey.ADD_PARTITIONS_TO_TXN)[0]
        add = sample(cls, 5, {}, Uuid(bytes(16)))
        find = FindCoordinatorRequest(key_type=2, coordinator_keys=[f"{NAME}:{Uuid(bytes(16))}:0"])
        everything = {right for row in KAFKA_RIGHTS.values() for right in row.rights}
        action = Right(AclOperation.CLUSTER_ACTION, rights.CLUSTER)
        await matrix.allow("peer", [action])
        for request, version in ((fetch, 12), (add, 5), (find, 6)):
            assert not set(codes(await matrix.call("peer", request, version))) & REFUSED
        await matrix.allow("wrong", everything - {action})
        for request, version in ((fetch, 12), (add, 5), (find, 6)):
            for user in ("wrong", ""):
                assert set(codes(await matrix.call(user, request, version))) & REFUSED


async def test_who_may_not_see_it_is_not_shown_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with secured_node(tmp_path, monkeypatch) as node:
        matrix = Matrix(node)
        await matrix.set_up()
        commit = sample(message_classes(ApiKey.OFFSET_COMMIT)[0], 9, {}, Uuid(bytes(16)))
        assert not any(codes(await matrix.call("root", commit, 9)))
        describe_cluster = sample(message_classes(ApiKey.DESCRIBE_CLUSTER)[0], 2, {}, Uuid(bytes(16)))
        seen: dict[str, tuple[set[str], set[str], bool, bool]] = {}
        await matrix.allow(
            "right", [Right(AclOperation.DESCRIBE, kind) for kind in (rights.TOPIC, rights.GROUP, rights.CLUSTER)]
        )
        for user in ("", "wrong", "right", "root"):
            metadata = await matrix.call(
                user, MetadataRequest(topics=None, include_cluster_authorized_operations=True), 10
            )
            groups = await matrix.call(user, ListGroupsRequest(), 4)
            cluster = await matrix.call(user, describe_cluster, 2)
            seen[user] = (
                {topic.name for topic in metadata.topics},
                {group.group_id for group in groups.groups},
                bool(metadata.cluster_authorized_operations),
                bool(cluster.cluster_authorized_operations),
            )
        assert seen[""] == seen["wrong"] == (set(), set(), False, False)
        assert seen["right"] == ({NAME}, {NAME}, True, True)
        assert seen["root"][0] >= {NAME, "__consumer_offsets"}
        # Whether a topic is there is not told to who may not describe it.
        for name in (NAME, "no-such-topic"):
            (reported,) = (
                await matrix.call("wrong", MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 9)
            ).topics
            assert reported.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and not reported.partitions


async def test_a_changed_acl_counts_at_once_and_on_open_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with secured_node(tmp_path, monkeypatch) as node:
        matrix = Matrix(node)
        await matrix.set_up()
        read = Right(AclOperation.READ, rights.TOPIC)
        for is_allowed in (False, True, False, True):
            await matrix.allow("right", [read] if is_allowed else [])
            assert bool(await matrix.ask("right", ApiKey.FETCH) & REFUSED) is not is_allowed


RPC_SAMPLES: dict[str, Any] = {
    "CreateTopics": admin_pb2.CreateTopicsRequest(
        topics=[admin_pb2.NewTopic(name="new", partitions=1, replication_factor=1)], validate_only=True
    ),
    "DeleteTopics": admin_pb2.DeleteTopicsRequest(names=["new"]),
    "AddPartitions": admin_pb2.AddPartitionsRequest(name="new", total=2, validate_only=True),
    "AlterConfigs": admin_pb2.AlterConfigsRequest(
        type=admin_pb2.RESOURCE_TYPE_TOPIC,
        name="new",
        changes=[admin_pb2.ConfigChange(key="retention.ms", value="1000")],
        validate_only=True,
    ),
}
"""Requests that need more than nothing to be about something."""


async def test_every_rpc_of_the_admin_listener_by_everybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    async with secured_node(tmp_path, monkeypatch) as node:
        matrix = Matrix(node)
        await matrix.set_up()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{node.admin_port}") as channel:
            for service, method, request, is_stream in rpcs():
                row = RPC_RIGHTS[f"{service.rpartition('.')[2]}/{method.name}"]
                await matrix.allow("right", row.rights)
                for user, is_allowed in (
                    ("", False),
                    ("wrong", False),
                    ("peer", False),
                    ("right", True),
                    ("root", True),
                ):
                    code = await rpc(channel, service, method, request, user, is_stream=is_stream)
                    if (code in REFUSED) is is_allowed:
                        found.append(f"{method.name}: {user or 'nobody'} is answered {code}")
    assert not found, "\n".join(found)


async def test_every_kafka_api_that_the_admin_listener_carries_by_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at the Kafka listeners; what an operator may see of the whole cluster counts for each topic. Denials are in the audit log."""
    found: list[str] = []
    audit = tmp_path / "audit.log"
    of_cluster = {
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: Right(rights.DESCRIBE, rights.CLUSTER),
        ApiKey.DESCRIBE_CONFIGS: Right(rights.DESCRIBE_CONFIGS, rights.CLUSTER),
    }
    async with secured_node(tmp_path, monkeypatch, audit_log_path=str(audit)) as node:
        matrix = Matrix(node)
        await matrix.set_up()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{node.admin_port}") as channel:
            for key in sorted(registry.CARRIED):
                row = KAFKA_RIGHTS[key]
                for allowed in without_one(key, row):
                    await matrix.allow("wrong", allowed)
                    for user in ("wrong", ""):
                        reported = await carried(channel, matrix, key, user)
                        if not reported & REFUSED:
                            found.append(f"{key.name}: {user or 'nobody'} with {[*map(str, allowed)]}: {reported}")
                for granted in (row.rights, frozenset({of_cluster[key]}) if key in of_cluster else row.rights):
                    await matrix.allow("right", granted)
                    reported = await carried(channel, matrix, key, "right")
                    if reported & REFUSED:
                        found.append(f"{key.name}: right is refused with {reported}")
                if await carried(channel, matrix, key, "root") & REFUSED:
                    found.append(f"{key.name}: root is refused")
    assert not found, "\n".join(found)
    denied = {line["operation"] for line in audited(tmp_path) if line.get("principal") == "User:wrong"}
    assert denied >= {"CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"}


def audited(directory: Path) -> Iterator[dict[str, Any]]:
    for path in directory.glob("audit.log*"):
        yield from filter(lambda line: "operation" in line, map(json.loads, path.read_text().splitlines()))


async def test_a_user_sees_what_own_rights_show_at_the_kafka_listener(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The admin listener takes the command line for nobody here: topics, groups and offsets are listed and described none the less."""
    async with secured_node(tmp_path, monkeypatch) as node:
        matrix = Matrix(node)
        await matrix.set_up()
        commit = sample(message_classes(ApiKey.OFFSET_COMMIT)[0], 9, {}, Uuid(bytes(16)))
        assert not any(codes(await matrix.call("root", commit, 9)))
        await matrix.call("root", CreateTopicsRequest(topics=[CreatableTopic("unseen", 1, 1)], timeout_ms=10_000), 7)
        await matrix.allow("right", [Right(AclOperation.DESCRIBE, kind) for kind in (rights.TOPIC, rights.GROUP)])
        config = tmp_path / "right.properties"
        login = 'x.PlainLoginModule required username="right" password="right";'
        config.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n")
        config.chmod(0o600)

        async def run(*words: str) -> tuple[int, dict[str, Any], str]:
            at = ("-o", "json", "-b", f"127.0.0.1:{node.sasl_port}", "--client-config", str(config), "--timeout", "30")
            command = [sys.executable, "-m", "barnabas_admin.main", *words, *at]
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=120)
            return done.returncode, json.loads(done.stdout or "{}"), done.stderr

        for more in ((), ("--admin", f"127.0.0.1:{node.admin_port}")):  # none that may be looked for; one that refuses
            code, found, words = await run("topic", "list", *more)
            assert code == 0 and [(t["name"], t["partitions"]) for t in found["topics"]] == [(NAME, 8)], words
        code, found, words = await run("topic", "describe", NAME, "unseen")
        assert code == 5 and "you may not DESCRIBE topic unseen" in words, words
        (topic,) = found["topics"]
        assert topic["overrides"] == {} and [each["high_watermark"] for each in topic["partitions"]] == [0] * 8
        code, found, words = await run("group", "list")
        assert code == 0 and [each["group"] for each in found["groups"]] == [NAME], words
        code, found, words = await run("group", "describe", NAME)
        assert code == 0 and [each["committed"] for each in found["partitions"]] == [0], words
        code, _, words = await run("topic", "delete", NAME, "--yes")
        assert code == 5 and "User:right may not DELETE topic 1" in words, words
        code, _, words = await run("cluster", "health")
        assert code == 2 and "admin listeners" in words, words


async def carried(channel: Any, matrix: Matrix, key: ApiKey, user: str) -> set[int]:
    """The codes of an answer through CallKafka, or the one that ended the call."""
    request, version = matrix.sample(key)
    body = bytearray()
    encode_request(request, version, body)
    call = admin_pb2.KafkaCall(api_key=key, api_version=version, body=bytes(body))
    metadata = ((PRINCIPAL_KEY, f"User:{user}"),) if user else ()
    try:
        answer = await admin_pb2_grpc.AdminStub(channel).CallKafka(call, timeout=10, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        trailer = dict(error.trailing_metadata() or ())
        detail: Any = trailer[ERROR_METADATA_KEY]
        return {int(admin_pb2.ErrorDetail.FromString(detail).code)}
    finally:
        if user in ("right", "root") and key in (ApiKey.DELETE_TOPICS, ApiKey.CREATE_TOPICS):
            await matrix.mend()
    return set(codes(decode_response(message_classes(key)[1], version, answer.body)))


def test_what_the_admin_listener_carries_needs_no_data_lane() -> None:
    """Every handler that CARRIED names takes ControlServices, and is handed its request decoded."""
    for key in registry.CARRIED:
        api = registry.APIS[key]
        assert not api.is_direct and api.handler.__annotations__["services"] == "ControlServices", key.name


def rpcs() -> Iterator[tuple[str, Any, Any, bool]]:
    controller = controller_pb2.DESCRIPTOR.services_by_name["Controller"]
    for verb in OPERATORS_VERBS:
        yield controller.full_name, controller.methods_by_name[verb.method], verb.call_type(), False
    for module in (admin_pb2, explain_pb2, inspection_pb2):
        for service in module.DESCRIPTOR.services_by_name.values():
            if service.name in SERVICES:
                for method in service.methods:
                    if method.name == "CallKafka":
                        continue  # by the API that it carries, see above
                    request = RPC_SAMPLES.get(method.name, getattr(module, method.input_type.name)())
                    yield service.full_name, method, request, method.server_streaming


async def rpc(channel: Any, service: str, method: Any, request: Any, user: str, *, is_stream: bool) -> int:
    """The code of the answer, or of the one outcome in it; 0 for none."""
    path = f"/{service}/{method.name}"
    answer_type = getattr(
        {"admin": admin_pb2, "controller": controller_pb2, "explain": explain_pb2, "inspection": inspection_pb2}[
            method.output_type.file.name.rpartition("/")[2].removesuffix(".proto")
        ],
        method.output_type.name,
    )
    make = channel.unary_stream if is_stream else channel.unary_unary
    call = make(
        path, request_serializer=lambda each: each.SerializeToString(), response_deserializer=answer_type.FromString
    )
    metadata = ((PRINCIPAL_KEY, f"User:{user}"),) if user else ()
    running = call(request, timeout=10, metadata=metadata)
    try:
        if is_stream:
            async for _ in running:
                break
            running.cancel()
        else:
            answer = await running
            return next((each.error.code for each in getattr(answer, "topics", ()) if hasattr(each, "error")), 0)
    except grpc.aio.AioRpcError as error:
        trailer = dict(error.trailing_metadata() or ())
        if ERROR_METADATA_KEY not in trailer:
            return -1
        return int(admin_pb2.ErrorDetail.FromString(trailer[ERROR_METADATA_KEY]).code)
    return 0


# ---- the controller --------------------------------------------------------------------------------------------------


def image_with(wanted: Iterable[Right], principal: str, *, resources: Iterable[str]) -> MetadataImage:
    delta = MetadataDelta(MetadataImage.EMPTY)
    for name, topic_id in TOPICS.items():
        delta.replay(TopicRecord(name=name, topic_id=topic_id))
    number = 0
    for right in wanted:
        for name in (CLUSTER_NAME,) if right.resource_type is rights.CLUSTER else resources:
            number += 1
            delta.replay(
                AccessControlEntryRecord(
                    id=Uuid(number.to_bytes(16, "big")),
                    resource_type=right.resource_type,
                    resource_name=name,
                    pattern_type=AclPatternType.LITERAL,
                    principal=principal,
                    host="*",
                    operation=right.operation,
                    permission=AclPermission.ALLOW,
                )
            )
    return delta.apply(Offset(1), Epoch(1), 1)


TOPICS = {"by-id": Uuid(b"by-id".ljust(16, b"\0"))}


@pytest.mark.parametrize("request_", golden_values.REQUESTS, ids=lambda each: type(each).__name__)
def test_every_forwarded_request_is_checked_by_the_controller(request_: Request[Any]) -> None:
    row = RPC_RIGHTS[f"Controller/{type(request_).__name__}"]
    guard = RequestGuard(Authorizer(super_users=["User:root"]))

    def is_refused(principal: str, wanted: Iterable[Right]) -> bool:
        image = image_with(wanted, principal, resources=("*",))
        try:
            guard.check(image, request_, principal=principal, host="10.0.0.9")
        except KafkaError as error:
            assert error.code in REFUSED and principal in error.message
            return True
        return False

    needs = bool(row.rights) and not request_.is_nodes_own
    if type(request_).__name__ == "CreateDelegationToken":
        needs = request_.owner != request_.requester  # type: ignore[attr-defined]
    for principal in (ANONYMOUS, "User:wrong"):
        assert is_refused(principal, ()) is needs
    assert not is_refused("User:right", row.rights)
    assert not is_refused("User:root", ())
    assert not is_refused(NODE_PRINCIPAL, ())


def test_every_call_of_the_controller_has_a_sample_here() -> None:
    assert {type(each) for each in golden_values.REQUESTS} == {verb.request_type for verb in VERBS}


# ---- the table -------------------------------------------------------------------------------------------------------


def test_what_has_no_row_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    require_rows()
    missing = {name: row for name, row in RPC_RIGHTS.items() if name != "Inspection/SignOff"}
    monkeypatch.setattr("barnabas_broker.node.servers.RPC_RIGHTS", missing)
    with pytest.raises(InvariantViolated, match="Inspection/SignOff"):
        require_rows()
    with pytest.raises(AssertionError, match="ALTER_REPLICA_LOG_DIRS has no row"):
        registry.handles(ApiKey.ALTER_REPLICA_LOG_DIRS, versions=(0, 0))(lambda services, context, request: None)


def test_the_table_has_no_row_for_what_is_not_served() -> None:
    assert set(KAFKA_RIGHTS) == set(registry.APIS)
