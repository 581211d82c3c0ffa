"""Quotas set over the Kafka protocol count on the node that took them, for open connections too."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas_wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from barnabas_wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas_wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_wire.records.batch import Record, build_batch
from tests.broker.security.secured_node import Client, secured_node


async def set_rate(root: Client, rate: float | None) -> None:
    entity = [EntityData(entity_type="user", entity_name="broker")]
    op = OpData(key="producer_byte_rate", value=rate or 0.0, remove=rate is None)
    answer = await root.call(AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=[op])]), 1)
    assert [entry.error_code for entry in answer.entries] == [0], answer


async def test_a_quota_counts_once_it_is_set_and_no_more_once_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = bytes(build_batch([Record(0, 0, b"", bytes(5000))]))
    produce = ProduceRequest(
        acks=1,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])],
    )
    async with secured_node(tmp_path, monkeypatch) as node:
        root, client = await node.client("root"), await node.client("broker")
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        await root.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        assert (await client.call(produce, 9)).throttle_time_ms == 0
        await set_rate(root, 490)  # ten windows of it are less than the request
        assert (await client.call(produce, 9)).throttle_time_ms > 0
        assert (await root.call(produce, 9)).throttle_time_ms == 0
        await set_rate(root, None)
        assert (await client.call(produce, 9)).throttle_time_ms == 0
