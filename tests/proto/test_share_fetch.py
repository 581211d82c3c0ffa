"""The ShareFetch answer that the broker encodes by hand: the bytes of the declared message."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas_wire.kafka import schema
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.leader_endpoints import LeaderEndpoint
from barnabas_wire.kafka.messages.share_acknowledge import LeaderIdAndEpoch, NodeEndpoint
from barnabas_wire.kafka.messages.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from barnabas_wire.kafka.messages.share_fetch_response import ShareFetchResponsePartition, encode_share_fetch_response

ONE, OTHER = Uuid(bytes(range(16))), Uuid(bytes(range(16, 32)))
PARTITIONS = [
    ShareFetchResponsePartition(
        ONE, 0, parts=(b"ab", b"c" * 200), size_bytes=202, acquired=((3, 9, 1), (10, 2**40, 2))
    ),
    ShareFetchResponsePartition(ONE, 1, 6, "not here", current_leader=(2, 7)),
    ShareFetchResponsePartition(OTHER, 5, acknowledge_error_code=121, acknowledge_error_message="done already"),
]
ENDPOINTS = [LeaderEndpoint(2, "host", 9092, None), LeaderEndpoint(3, "h", 1, "rack")]


def declared(partitions: list[ShareFetchResponsePartition], **fields: Any) -> ShareFetchResponse:
    topics: dict[Uuid, ShareFetchableTopicResponse] = {}
    for each in partitions:
        topic = topics.setdefault(each.topic_id, ShareFetchableTopicResponse(topic_id=each.topic_id))
        topic.partitions.append(
            PartitionData(
                partition_index=each.partition,
                error_code=each.error_code,
                error_message=each.error_message,
                acknowledge_error_code=each.acknowledge_error_code,
                acknowledge_error_message=each.acknowledge_error_message,
                current_leader=LeaderIdAndEpoch(*each.current_leader),
                records=b"".join(each.parts),
                acquired_records=[AcquiredRecords(*acquired) for acquired in each.acquired],
            )
        )
    return ShareFetchResponse(responses=list(topics.values()), **fields)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("partitions", [[], PARTITIONS, PARTITIONS[:1]])
def test_the_broker_sends_the_declared_bytes(version: int, partitions: list[ShareFetchResponsePartition]) -> None:
    parts, size = encode_share_fetch_response(
        77, partitions, lock_timeout_ms=30_000, error_code=0, node_endpoints=ENDPOINTS
    )
    frame = b"".join(parts)
    expected = bytearray(8)
    expected.append(0)
    nodes = [NodeEndpoint(*each) for each in ENDPOINTS]
    answer = declared(partitions, acquisition_lock_timeout_ms=30_000, node_endpoints=nodes)
    schema.encode_response(answer, version, expected)
    assert len(frame) == size == len(expected)
    assert frame[:9] == (size - 4).to_bytes(4, "big") + (77).to_bytes(4, "big") + b"\0"
    assert frame[9:] == bytes(expected[9:])


def test_an_error_of_the_whole_request_has_its_words() -> None:
    parts, _ = encode_share_fetch_response(1, (), error_code=133, error_message="full")
    answer = schema.decode_response(ShareFetchResponse, 2, b"".join(parts)[9:])
    assert (answer.error_code, answer.error_message, answer.responses) == (133, "full", [])


def test_records_are_handed_through_and_never_joined() -> None:
    parts, _ = encode_share_fetch_response(1, PARTITIONS)
    assert any(part is PARTITIONS[0].parts[1] for part in parts)
