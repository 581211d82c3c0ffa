"""Reassignments, elections and unregistering as a Kafka client asks for them."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas_quorum.controller.requests_partitions import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsReply,
    ElectedPartition,
    ElectionType,
    ElectLeaders,
    ElectLeadersReply,
    ListPartitionReassignments,
    ListPartitionReassignmentsReply,
    OngoingReassignment,
    ReassignedPartition,
    UnregisterBroker,
    UnregisterBrokerReply,
)
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas_wire.kafka.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas_wire.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from barnabas_wire.kafka.messages.unregister_broker import UnregisterBrokerRequest
from tests.support.listener import connected, make_services


class Controller:
    """Refuses partition 9 and broker 9; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    @staticmethod
    def _judge(number: int) -> KafkaError | None:
        return KafkaError.of(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "not 9") if number == 9 else None

    async def ask(self, request: Any, *, principal: str, client_host: str) -> Any:
        match request:
            case AlterPartitionReassignments():
                wanted = request.partitions
                self.asked.append(
                    ([(p.topic, p.partition_id, p.replicas) for p in wanted], request.allow_replication_factor_change)
                )
                return AlterPartitionReassignmentsReply(
                    partitions=tuple(
                        ReassignedPartition(
                            topic=p.topic, partition_id=p.partition_id, error=self._judge(p.partition_id)
                        )
                        for p in wanted
                    )
                )
            case ListPartitionReassignments():
                self.asked.append(request.partitions)
                ids = [BrokerId(number) for number in (3, 2, 1)]
                ongoing = OngoingReassignment(
                    topic="t", partition_id=1, replicas=tuple(ids), adding=(ids[0],), removing=(ids[2],), isr=(ids[2],)
                )
                return ListPartitionReassignmentsReply(partitions=(ongoing,))
            case ElectLeaders():
                self.asked.append((request.election_type, request.partitions))
                return ElectLeadersReply(
                    partitions=tuple(
                        ElectedPartition(topic=topic, partition_id=index, error=self._judge(index))
                        for topic, index in request.partitions or [("t", 3)]
                    )
                )
            case UnregisterBroker():
                self.asked.append(request.broker_id)
                if error := self._judge(request.broker_id):
                    raise error
                return UnregisterBrokerReply()
        raise AssertionError(f"nobody here asks {request}")


@pytest.mark.parametrize("version", [0, 1])
async def test_reassignments_are_answered_once_each_and_doubles_are_not_sent(version: int) -> None:
    controller = Controller()
    async with connected(make_services(controller=controller)) as (_, client):
        parts = [ReassignablePartition(1, [3, 2]), ReassignablePartition(9, [1]), ReassignablePartition(2, None)]
        doubled = [ReassignablePartition(5, [1]), ReassignablePartition(5, [2])]
        request = AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=False,
            topics=[ReassignableTopic("t", parts), ReassignableTopic("u", doubled)],
        )
        answer = await client.call(request, version)
        found = {
            topic.name: [(p.partition_index, p.error_code) for p in topic.partitions] for topic in answer.responses
        }
        assert found == {
            "t": [(1, 0), (9, ErrorCode.INVALID_REPLICA_ASSIGNMENT), (2, 0)],
            "u": [(5, ErrorCode.INVALID_REQUEST)],
        }
        assert answer.responses[0].partitions[1].error_message == "not 9"
        assert controller.asked == [([("t", 1, (3, 2)), ("t", 9, (1,)), ("t", 2, None)], version == 0)]


async def test_ongoing_reassignments_are_reported_by_topic() -> None:
    controller = Controller()
    async with connected(make_services(controller=controller)) as (_, client):
        await client.call(ListPartitionReassignmentsRequest(topics=[ListPartitionReassignmentsTopics("t", [1, 2])]), 0)
        answer = await client.call(ListPartitionReassignmentsRequest(topics=None), 0)
        assert controller.asked == [(("t", 1), ("t", 2)), None]
        [part] = answer.topics[0].partitions
        assert (part.replicas, part.adding_replicas, part.removing_replicas) == ([3, 2, 1], [3], [1])


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_elections_are_preferred_before_version_1_and_of_either_kind_after(version: int) -> None:
    controller = Controller()
    async with connected(make_services(controller=controller)) as (_, client):
        request = ElectLeadersRequest(election_type=1, topic_partitions=[TopicPartitions("t", [1, 9, 1])])
        answer = await client.call(request, version)
        [topic] = answer.replica_election_results
        assert [(p.partition_id, p.error_code) for p in topic.partition_result] == [
            (1, 0),
            (9, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ]
        kind = ElectionType.UNCLEAN if version else ElectionType.PREFERRED
        assert controller.asked == [(kind, (("t", 1), ("t", 9)))]
        await client.call(ElectLeadersRequest(topic_partitions=None), version)
        assert controller.asked[1] == (ElectionType.PREFERRED, None)
        if version:
            unknown = await client.call(ElectLeadersRequest(election_type=7, topic_partitions=None), version)
            assert unknown.error_code == ErrorCode.INVALID_REQUEST


async def test_a_refusal_to_forget_a_broker_comes_with_its_reason() -> None:
    async with connected(make_services(controller=Controller())) as (_, client):
        assert (await client.call(UnregisterBrokerRequest(4), 0)).error_code == 0
        refused = await client.call(UnregisterBrokerRequest(9), 0)
        assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, "not 9")
