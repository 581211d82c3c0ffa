"""Totals of log directories, from brokers of this version and of others."""

from __future__ import annotations

from typing import Any, cast

from barnabas_admin.disks import DirectoryTotals, read_replica_sizes, read_totals
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from barnabas_wire.kafka.schema import decode_response, encode_response


class Answering:
    """A client whose brokers answer so: through the bytes of a version."""

    def __init__(self, answer: DescribeLogDirsResponse, version: int) -> None:
        self._answer, self._version = answer, version
        self.asked: list[tuple[DescribeLogDirsRequest, int]] = []

    async def call(self, request: DescribeLogDirsRequest, *, broker_id: int) -> Any:
        self.asked.append((request, broker_id))
        frame = bytearray()
        encode_response(self._answer, self._version, frame)
        return decode_response(DescribeLogDirsResponse, self._version, frame)


def listing(*topics: DescribeLogDirsTopic) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir="/gone", topics=[]),
            DescribeLogDirsResult(log_dir="/data", topics=list(topics), total_bytes=900, usable_bytes=300),
        ]
    )


ORDERS = DescribeLogDirsTopic("orders", [DescribeLogDirsPartition(0, 7, 0), DescribeLogDirsPartition(2, 11, 0)])
FLIGHTS = DescribeLogDirsTopic("flights", [DescribeLogDirsPartition(0, 100, 0)])
GONE = DirectoryTotals("/gone", ErrorCode.KAFKA_STORAGE_ERROR, None, None, 0, 0)


async def test_a_broker_that_sums_is_believed() -> None:
    summed = listing()
    summed.results[1].replica_count, summed.results[1].replica_bytes = 3, 118
    client = Answering(summed, 5)
    assert await read_totals(cast(ClusterClient, client), 2) == [GONE, DirectoryTotals("/data", 0, 900, 300, 3, 118)]
    ((request, broker_id),) = client.asked
    assert request.is_summed and request.topics is None and broker_id == 2


async def test_the_replicas_of_an_older_broker_are_summed_here() -> None:
    for version, total_bytes, usable_bytes in ((4, 900, 300), (3, None, None)):
        client = cast(ClusterClient, Answering(listing(ORDERS, FLIGHTS), version))
        assert await read_totals(client, 1) == [GONE, DirectoryTotals("/data", 0, total_bytes, usable_bytes, 3, 118)]


async def test_the_replicas_of_some_partitions_are_sized_by_one_question() -> None:
    client = Answering(listing(ORDERS, FLIGHTS), 5)
    wanted = [*(TopicPartition("orders", each) for each in range(3)), TopicPartition("flights", 0)]
    assert await read_replica_sizes(cast(ClusterClient, client), 1, wanted) == {
        TopicPartition("orders", 0): 7,
        TopicPartition("orders", 2): 11,
        TopicPartition("flights", 0): 100,
    }
    ((request, _),) = client.asked
    assert request.topics is not None and not request.is_summed
    assert [(each.topic, each.partitions) for each in request.topics] == [("orders", [0, 1, 2]), ("flights", [0])]
