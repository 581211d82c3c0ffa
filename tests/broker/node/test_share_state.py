"""The share coordinator of a real node: found, asked by Kafka's messages, its log pruned, and read again by the next start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import barnabas
from barnabas_wire.client.aio import AioConnection
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas_wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas_wire.kafka.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
)
from barnabas_wire.kafka.messages.initialize_share_group_state import PartitionData as Beginning
from barnabas_wire.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas_wire.kafka.messages.read_share_group_state import PartitionData as Reader
from barnabas_wire.kafka.messages.read_share_group_state import ReadShareGroupStateRequest, ReadStateData, StateBatch
from barnabas_wire.kafka.messages.write_share_group_state import PartitionData as Change
from barnabas_wire.kafka.messages.write_share_group_state import WriteShareGroupStateRequest, WriteStateData

TOPIC = "__share_group_state"
PROPERTIES = {
    "share.coordinator.state.topic.prune.interval.ms": 200,
    "share.coordinator.snapshot.update.records.per.snapshot": 3,
}
KEPT = [StateBatch(4, 5, 2, 1), StateBatch(6, 6, 0, 2, 1_900_000_000_000)]


@asynccontextmanager
async def connected(node: barnabas.Broker) -> AsyncIterator[AioConnection]:
    host, port = node.bootstrap_servers.split(":")
    connection = await AioConnection.connect(host, int(port), client_id="broker-9", timeout_s=10)
    try:
        yield connection
    finally:
        await connection.close()


async def call(connection: AioConnection, request: Any) -> Any:
    return await connection.call(request, timeout_s=30)


async def read(connection: AioConnection, topic_id: Uuid, leader_epoch: int) -> Any:
    """The one partition's result, once the coordinator has loaded."""
    request = ReadShareGroupStateRequest("workers", [ReadStateData(topic_id, [Reader(0, leader_epoch)])])
    while True:
        (topic,) = (await call(connection, request)).results
        (result,) = topic.partitions
        if result.error_code not in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
            return result
        await asyncio.sleep(0.02)


async def log_start(connection: AioConnection) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-2)
    (topic,) = (
        await call(connection, ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(TOPIC, [partition])]))
    ).topics
    return int(topic.partitions[0].offset)


async def write_until_pruned(node: barnabas.Broker) -> Uuid:
    async with connected(node) as connection:
        made = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
        (created,) = (await call(connection, CreateTopicsRequest(topics=[made], timeout_ms=10_000))).topics
        topic_id: Uuid = created.topic_id
        find = FindCoordinatorRequest(key_type=2, coordinator_keys=[f"workers:{topic_id}:0"])
        while (await call(connection, find)).coordinators[0].error_code != ErrorCode.NONE:
            await asyncio.sleep(0.02)
        begin = InitializeShareGroupStateRequest("workers", [InitializeStateData(topic_id, [Beginning(0, 1, 3)])])
        while (await call(connection, begin)).results[0].partitions[0].error_code != ErrorCode.NONE:
            await asyncio.sleep(0.02)
        assert (await read(connection, topic_id, 7)).error_code == ErrorCode.NONE
        for _ in range(5):
            change = Change(0, 1, 7, 4, 2, KEPT)
            request = WriteShareGroupStateRequest("workers", [WriteStateData(topic_id, [change])])
            assert (await call(connection, request)).results[0].partitions[0].error_code == ErrorCode.NONE
        while not await log_start(connection):
            await asyncio.sleep(0.05)
        return topic_id


async def test_a_node_keeps_share_state_through_pruning_and_a_restart(tmp_path: Path) -> None:
    async with asyncio.timeout(120):
        with barnabas.broker(PROPERTIES, directory=tmp_path) as node:
            topic_id = await write_until_pruned(node)
        with barnabas.broker(PROPERTIES, directory=tmp_path) as node:
            async with connected(node) as connection:
                assert await log_start(connection) > 0
                found = await read(connection, topic_id, 7)
                assert (found.error_code, found.state_epoch, found.start_offset) == (ErrorCode.NONE, 1, 4)
                assert found.state_batches == KEPT
                assert (await read(connection, topic_id, 6)).error_code == ErrorCode.FENCED_LEADER_EPOCH
