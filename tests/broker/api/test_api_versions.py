"""ApiVersions is the table itself, and answers also those who ask in a version of the future."""

from __future__ import annotations

import struct
import subprocess
import sys
from dataclasses import replace

import pytest

from barnabas_broker.api import registry
from barnabas_broker.metadata.cache import MetadataCache
from barnabas_quorum.image.features import TWO_PHASE_VERSION, FeaturesImage
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_wire.kafka.messages.metadata import MetadataRequest
from barnabas_wire.kafka.schema import decode_response, message_classes
from tests.support.listener import RawClient, connected, make_services, running_server

ADVERTISED = {
    ApiKey.PRODUCE: (0, 13),
    ApiKey.FETCH: (4, 18),
    ApiKey.LIST_OFFSETS: (1, 11),
    ApiKey.METADATA: (0, 13),
    ApiKey.OFFSET_COMMIT: (2, 9),
    ApiKey.OFFSET_FETCH: (1, 9),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.DESCRIBE_GROUPS: (0, 6),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.API_VERSIONS: (0, 5),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.ALTER_CONFIGS: (0, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 5),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    ApiKey.SHARE_GROUP_HEARTBEAT: (1, 1),
    ApiKey.SHARE_GROUP_DESCRIBE: (1, 1),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (0, 1),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (0, 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (0, 0),
    ApiKey.STREAMS_GROUP_HEARTBEAT: (0, 1),
    ApiKey.STREAMS_GROUP_DESCRIBE: (0, 1),
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: (0, 0),
    ApiKey.SHARE_FETCH: (1, 2),
    ApiKey.SHARE_ACKNOWLEDGE: (1, 2),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (0, 0),
    ApiKey.READ_SHARE_GROUP_STATE: (0, 0),
    ApiKey.WRITE_SHARE_GROUP_STATE: (0, 1),
    ApiKey.DELETE_SHARE_GROUP_STATE: (0, 0),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (0, 1),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.ELECT_LEADERS: (0, 2),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.UNREGISTER_BROKER: (0, 0),
    ApiKey.DESCRIBE_QUORUM: (0, 2),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
    ApiKey.DESCRIBE_ACLS: (1, 3),
    ApiKey.CREATE_ACLS: (1, 3),
    ApiKey.DELETE_ACLS: (1, 3),
    ApiKey.CREATE_DELEGATION_TOKEN: (1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: (1, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (1, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (1, 3),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.UPDATE_FEATURES: (0, 2),
    ApiKey.ADD_RAFT_VOTER: (0, 1),
    ApiKey.REMOVE_RAFT_VOTER: (0, 0),
}
"""At least this much; the lowest versions are what old clients need to see (librdkafka up to 2.8, kafkajs, Java)."""


def test_the_table_covers_what_clients_need_and_nothing_that_no_message_declares() -> None:
    registry.load_handlers()
    for key, (low, high) in ADVERTISED.items():
        api = registry.APIS[key]
        assert api.min_version == low, key.name
        assert api.max_version >= high, key.name
    for api in registry.APIS.values():
        request_class, _ = message_classes(api.key)
        assert api.max_version <= request_class.MAX_VERSION, api.key.name
        assert api.min_version >= request_class.MIN_VERSION or api.key == ApiKey.PRODUCE, api.key.name


def test_what_is_served_is_known_before_its_file_is_imported() -> None:
    """A broker of a throw-away cluster imports the handlers of a key with its first request, and offers all before."""
    code = """
import sys
from barnabas_broker.api.registry import APIS, SERVED, VERSIONS_SERVED, api_of, load_handlers
from barnabas_wire.kafka.messages import ApiKey
assert not APIS
found = api_of(ApiKey.DESCRIBE_ACLS)
assert found is APIS[ApiKey.DESCRIBE_ACLS] and set(APIS) == set(SERVED["acls"]), APIS
assert api_of(32_000) is None
load_handlers()
assert [(api.key, api.min_version, api.max_version) for _, api in sorted(APIS.items())] == list(VERSIONS_SERVED)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_a_listener_imports_a_handler_with_the_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.load_handlers()
    known = dict(registry.APIS)
    monkeypatch.delitem(registry.APIS, ApiKey.METADATA, raising=False)
    async with running_server(make_services()) as server:
        monkeypatch.setitem(registry.APIS, ApiKey.METADATA, known[ApiKey.METADATA])
        client = await RawClient.connect(server)
        assert (await client.call(MetadataRequest(topics=[]), 12)).topics == []


async def test_every_version_is_answered_with_the_whole_table() -> None:
    registry.load_handlers()
    async with connected(make_services()) as (_, client):
        for version in range(6):
            answer = await client.call(ApiVersionsRequest(), version)
            ranges = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
            assert ranges == {
                key: (api.min_version, api.max_version)
                for key, api in registry.APIS.items()
                if key not in (ApiKey.PREPARE_TXN, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)
            }
            assert answer.error_code == 0
            if version >= 3:
                assert answer.finalized_features_epoch == 10
                lowest = [feature.min_version for feature in answer.supported_features]
                assert all(lowest) if version == 3 else not all(lowest)  # KAFKA-17011


async def test_a_client_that_means_another_cluster_or_node_is_sent_back_to_its_bootstrap() -> None:
    """KIP-1242: a node's address may be another's by now, of another cluster."""
    services = make_services()
    async with connected(services) as (_, client):
        for cluster_id, node_id, code in (
            (None, -1, ErrorCode.NONE),
            (services.cluster_id, int(services.node_id), ErrorCode.NONE),
            (services.cluster_id, 99, ErrorCode.REBOOTSTRAP_REQUIRED),
            ("elsewhere", int(services.node_id), ErrorCode.REBOOTSTRAP_REQUIRED),
            (None, int(services.node_id), ErrorCode.INVALID_REQUEST),
            (services.cluster_id, -1, ErrorCode.INVALID_REQUEST),
        ):
            answer = await client.call(ApiVersionsRequest(cluster_id=cluster_id, node_id=node_id), 5)
            assert answer.error_code == code
            assert bool(answer.api_keys) is bool(answer.supported_features) is (code is ErrorCode.NONE)
        assert (await client.call(ApiVersionsRequest(cluster_id="elsewhere"), 4)).error_code == ErrorCode.NONE


async def test_prepare_txn_is_offered_from_its_feature_level_on() -> None:
    services = make_services()
    for levels in ({}, {TWO_PHASE_VERSION: 1}):
        image = replace(services.metadata.image, features=FeaturesImage(levels=levels))
        async with connected(make_services(metadata=MetadataCache(image))) as (_, client):
            answer = await client.call(ApiVersionsRequest(), 4)
            assert (ApiKey.PREPARE_TXN in {entry.api_key for entry in answer.api_keys}) is bool(levels)


async def test_a_version_of_the_future_is_answered_in_version_0_with_error_35_and_the_range_to_retry_in() -> None:
    async with connected(make_services()) as (_, client):
        # A header as the client believes it to be: flexible, with whatever body follows.
        body = struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 7, -1) + b"\0" + b"\x05java\x034.9\0"
        await client.send(struct.pack(">i", len(body)) + body)
        frame = await client.read_frame()
        assert struct.unpack_from(">i", frame)[0] == 7
        answer = decode_response(ApiVersionsResponse, 0, memoryview(frame), 4)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        (own,) = answer.api_keys
        assert (own.api_key, own.min_version, own.max_version) == (ApiKey.API_VERSIONS, 0, 5)
        assert (await client.call(ApiVersionsRequest(), 4)).error_code == 0  # and the connection lives


async def test_it_may_be_asked_again_at_any_time() -> None:
    async with connected(make_services()) as (_, client):
        for _ in range(3):
            assert (await client.call(ApiVersionsRequest(), 3)).error_code == 0
