"""ApiVersions, broken frames, producer ids, and what the cluster says of itself."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.api_versions import ApiVersionsRequest
from barnabas_wire.kafka.messages.describe_cluster import DescribeClusterRequest
from barnabas_wire.kafka.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas_wire.kafka.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from barnabas_wire.kafka.messages.init_producer_id import InitProducerIdRequest
from barnabas_wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_wire.kafka.schema import encode_request
from tests.oracle.answers import Side, frame
from tests.oracle.cases import GZIP, batch, case
from tests.oracle.cases.produce import init_producer_id, produce

ALL_VERSIONS_MAX = 20


@case(
    {
        "v?.api_keys.<10000>": "two-phase",
        "v?.api_keys.<34>": "no-moves",
        "v?.supported_features.*": "own-features",
        "v?.finalized_features.*": "own-features",
        "v3 *": "any-client",
    }
)
def api_versions(side: Side) -> Iterator[tuple[str, Any]]:
    for version in range(6):
        request = ApiVersionsRequest(client_software_name="oracle", client_software_version="1")
        answer = side.call(request, version=version)
        answer.finalized_features_epoch = min(answer.finalized_features_epoch, 0)
        yield f"v{version}", answer
    for version in (6, 99, 32767, -1):
        yield f"v{version}", side.raw(frame(ApiKey.API_VERSIONS, version, b""))
    cluster_id = side.call(DescribeClusterRequest()).cluster_id
    for label, known, node_id in (
        ("another cluster", "elsewhere", 1),
        ("another node", cluster_id, 2),
        ("no node", cluster_id, -1),
        ("no cluster", None, 2),
        ("itself", cluster_id, 1),
    ):
        meant = ApiVersionsRequest("oracle", "1", cluster_id=known, node_id=node_id)
        answer = side.call(meant, version=5)
        yield f"v5 {label}", (answer.error_code, bool(answer.api_keys), bool(answer.supported_features))
    yield "v3 without a body", side.raw(frame(ApiKey.API_VERSIONS, 3, b""))
    for label, name, number in (
        ("no name", "", "1"),
        ("no version", "x", ""),
        ("odd name", "ü", "1"),
        ("spaces", "a b", "1"),
    ):
        yield f"v3 {label}", side.call(ApiVersionsRequest(name, number), version=3).error_code


@case({"negative array": "strict-lengths"})
def broken_frames(side: Side) -> Iterator[tuple[str, Any]]:
    body = bytearray()
    encode_request(
        MetadataRequest(topics=[MetadataRequestTopic(name="nowhere")], allow_auto_topic_creation=False), 5, body
    )
    good = frame(ApiKey.METADATA, 5, bytes(body))
    yield "unknown key", side.raw(frame(999, 0, b""))
    yield "key -1", side.raw(frame(-1, 0, b""))
    for key in (ApiKey.METADATA, ApiKey.FETCH, ApiKey.PRODUCE, ApiKey.JOIN_GROUP, ApiKey.LIST_OFFSETS):
        for version in (-1, ALL_VERSIONS_MAX):
            yield f"{key.name} v{version}", side.raw(frame(key, version, b""))
    yield "fetch v3", side.raw(frame(ApiKey.FETCH, 3, b"\0" * 40))
    for internal in (4, 5, 6, 7, ApiKey.VOTE, ApiKey.BROKER_REGISTRATION, ApiKey.ALTER_PARTITION):
        yield f"key {internal}", side.raw(frame(internal, 0, b"\0" * 40))
    yield "empty frame", side.raw(struct.pack(">i", 0))
    yield "negative size", side.raw(struct.pack(">i", -1))
    yield "huge size", side.raw(struct.pack(">i", 2**31 - 1))
    yield "size and nothing", side.raw(struct.pack(">i", 50), silence_s=0.2)
    yield "garbage", side.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    yield "header cut", side.raw(struct.pack(">ihh", 4, ApiKey.METADATA, 5))
    yield "body cut", side.raw(frame(ApiKey.METADATA, 5, bytes(body[:-4])))
    yield "huge array", side.raw(frame(ApiKey.METADATA, 5, struct.pack(">i", 2**31 - 1)))
    yield "negative array", side.raw(frame(ApiKey.METADATA, 5, struct.pack(">ib", -7, 0)))
    yield "tail", isinstance(side.raw(frame(ApiKey.METADATA, 5, bytes(body) + b"tail")), bytes)
    yield "null client id", isinstance(side.raw(_without_client_id(good)), bytes)
    yield "client id not utf-8", isinstance(side.raw(good.replace(b"oracle", b"\xff\xfe\xfd\xfc\xfb\xfa")), bytes)
    flexible = bytearray()
    encode_request(MetadataRequest(topics=[]), 12, flexible)
    tagged = frame(ApiKey.METADATA, 12, bytes(flexible[:-1]) + b"\1\x63\3abc")
    yield "unknown tag", isinstance(side.raw(tagged), bytes)


def _without_client_id(good: bytes) -> bytes:
    body = good[4:12] + struct.pack(">h", -1) + good[20:]
    return struct.pack(">i", len(body)) + body


@case()
def producer_ids(side: Side) -> Iterator[tuple[str, Any]]:
    first, second = init_producer_id(side), init_producer_id(side)
    yield "rises", second.producer_id - first.producer_id
    for version in range(6):
        answer = side.call(InitProducerIdRequest(None, 1000), version=version)
        yield f"v{version}", (answer.error_code, answer.producer_epoch)
    for label, fields in {
        "own id, own epoch": {"producer_id": second.producer_id, "producer_epoch": 0},
        "own id, later epoch": {"producer_id": second.producer_id, "producer_epoch": 9},
        "id without epoch": {"producer_id": second.producer_id, "producer_epoch": -1},
        "epoch without id": {"producer_id": -1, "producer_epoch": 3},
    }.items():
        answer = init_producer_id(side, **fields)
        yield label, (answer.error_code, answer.producer_id not in (-1, first.producer_id), answer.producer_epoch)
    for version in (0, 5):
        answer = side.call(InitProducerIdRequest("", 1000), version=version)
        yield f"v{version} empty transactional id", (answer.error_code, answer.producer_id, answer.producer_epoch)
    answer = side.call(InitProducerIdRequest("a-transaction", 10_000_000), version=5)
    yield "transactional id, huge time-out", (answer.error_code, answer.producer_id, answer.producer_epoch)


@case()
def describe_cluster(side: Side) -> Iterator[tuple[str, Any]]:
    for version in range(3):
        yield f"v{version}", side.call(DescribeClusterRequest(), version=version)
        asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
        yield f"v{version} operations", side.call(asked, version=version)
    for kind in (0, 2, 9):
        for version in (1, 2):
            yield f"v{version} endpoints {kind}", side.call(DescribeClusterRequest(endpoint_type=kind), version=version)
    yield "fenced", side.call(DescribeClusterRequest(include_fenced_brokers=True), version=2)


@case({"* other *": "no-quorum-told", "* two partitions.*": "no-quorum-told", "v2 no*.nodes": "no-quorum-told"})
def describe_quorum(side: Side) -> Iterator[tuple[str, Any]]:
    def ask(topic: str, *partitions: int, version: int) -> Any:
        listed = [DescribeQuorumRequestPartitionData(index) for index in partitions]
        return side.call(DescribeQuorumRequest([DescribeQuorumRequestTopicData(topic, listed)]), version=version)

    for version in range(3):
        answer = ask("__cluster_metadata", 0, version=version)
        for found in answer.topics[0].partitions:
            found.high_watermark, found.leader_epoch = int(found.high_watermark > 0), int(found.leader_epoch > 0)
            for replica in found.current_voters + found.observers:
                replica.log_end_offset = int(replica.log_end_offset > 0)
                replica.last_fetch_timestamp = min(replica.last_fetch_timestamp, 0)
                replica.last_caught_up_timestamp = min(replica.last_caught_up_timestamp, 0)
        yield f"v{version}", answer
        for label, topic, partitions in (
            ("other topic", "nowhere", (0,)),
            ("other partition", "__cluster_metadata", (1,)),
            ("two partitions", "__cluster_metadata", (0, 1)),
            ("no partition", "__cluster_metadata", ()),
        ):
            yield f"v{version} {label}", ask(topic, *partitions, version=version)
        yield f"v{version} nothing", side.call(DescribeQuorumRequest(), version=version)


@case()
def describe_log_dirs(side: Side) -> Iterator[tuple[str, Any]]:
    topic = side.topic("log-dirs", 2)
    for kind in ({}, {"compression": GZIP}):
        assert produce(side, topic, batch(7, **kind)).error_code == 0
    for version in range(1, 5):
        for label, asked in (
            ("both", DescribableLogDirTopic(topic, [0, 1])),
            ("one", DescribableLogDirTopic(topic, [0])),
            ("unknown partition", DescribableLogDirTopic(topic, [9])),
            ("unknown topic", DescribableLogDirTopic("nowhere", [0])),
        ):
            answer = side.call(DescribeLogDirsRequest(topics=[asked]), version=version)
            for found in answer.results:
                found.total_bytes = min(found.total_bytes, 0)
                found.usable_bytes = min(found.usable_bytes, 0)
            yield f"v{version} {label}", answer
    everything = side.call(DescribeLogDirsRequest(topics=None))
    yield "all", topic in [found.name for found in everything.results[0].topics]
    yield "no topics", side.call(DescribeLogDirsRequest(topics=[])).results[0].topics
