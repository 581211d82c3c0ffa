"""AlterPartition: every check, in the order of Kafka's validateAlterPartitionData."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas_quorum.controller.requests import (
    AlterPartition,
    IsrMemberEpoch,
    PartitionAlteration,
    PartitionAlterationReply,
)
from barnabas_quorum.records import LeaderRecoveryState, PartitionChangeRecord
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Uuid
from tests.support.decided_cluster import DecidedCluster, registration, uuid


class World:
    """Three brokers; partition t-0 led by 1 with ISR 1, 2 after 3 was dead and came back."""

    def __init__(self) -> None:
        self.cluster = DecidedCluster().start_brokers(1, 2, 3)
        self.topic_id = self.cluster.create("t", [1, 2, 3], [1, 2, 3])
        self.cluster.fence(3)
        self.cluster.heartbeat(3)
        assert self.cluster.partition("t").isr == (1, 2)

    def epoch(self, broker_id: int) -> int:
        return self.cluster.image.cluster.brokers[BrokerId(broker_id)].epoch

    def item(self, *isr: int, **more: Any) -> PartitionAlteration:
        present = self.cluster.partition("t")
        return PartitionAlteration(
            **{
                "topic_id": self.topic_id,
                "partition_id": 0,
                "leader_epoch": present.leader_epoch,
                "partition_epoch": present.partition_epoch,
                "new_isr": tuple(
                    IsrMemberEpoch(broker_id=BrokerId(b), broker_epoch=self.epoch(b) if 0 < b < 4 else -1) for b in isr
                ),
                **more,
            }
        )

    def ask(self, *items: PartitionAlteration, sender: int = 1, **more: Any) -> list[PartitionAlterationReply]:
        request = AlterPartition(broker_id=BrokerId(sender), broker_epoch=self.epoch(sender), partitions=items)
        return list(self.cluster.do(replace(request, **more)).partitions)

    def refused(self, item: PartitionAlteration, **more: Any) -> ErrorCode:
        before = len(self.cluster.log)
        [reply] = self.ask(item, **more)
        assert reply.error is not None and reply.error.message
        assert len(self.cluster.log) == before, "a refused proposal writes nothing"
        return reply.error.code


def test_the_isr_grows_and_shrinks_and_only_the_partition_epoch_moves() -> None:
    world = World()
    [reply] = world.ask(world.item(1, 2, 3))
    assert reply.error is None
    assert (reply.isr, reply.leader, reply.leader_epoch, reply.partition_epoch) == ((1, 2, 3), 1, 0, 2)
    [reply] = world.ask(world.item(1))
    assert (reply.isr, reply.partition_epoch) == ((1,), 3)
    present = world.cluster.partition("t")
    assert (present.isr, present.partition_epoch, present.leader_epoch) == ((1,), 3, 0)


def test_a_proposal_of_what_is_already_so_is_answered_without_a_record() -> None:
    world = World()
    before = len(world.cluster.log)
    [reply] = world.ask(world.item(1, 2))
    assert reply.error is None and reply.partition_epoch == 1
    assert len(world.cluster.log) == before


def test_a_sender_of_a_former_registration_is_refused_as_a_whole() -> None:
    world = World()
    with pytest.raises(KafkaError) as caught:
        world.ask(world.item(1), broker_epoch=world.epoch(1) - 1)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    with pytest.raises(KafkaError) as caught:
        world.ask(world.item(1), broker_id=BrokerId(9))
    assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


@pytest.mark.parametrize(
    ("isr", "what", "code"),
    [
        ((1, 2), {"topic_id": uuid(12345)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ((1, 2), {"partition_id": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((1, 2), {"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ((1, 2), {"partition_epoch": 2}, ErrorCode.NOT_CONTROLLER),
        ((1, 2), {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ((1, 2), {"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ((1, 1), {}, ErrorCode.INVALID_REQUEST),
        ((1, 4), {}, ErrorCode.INVALID_REQUEST),
        ((2, 3), {}, ErrorCode.INVALID_REQUEST),
        ((), {}, ErrorCode.INVALID_REQUEST),
        ((1, 2), {"leader_recovery_state": LeaderRecoveryState.RECOVERING}, ErrorCode.INVALID_REQUEST),
        ((1,), {"leader_recovery_state": LeaderRecoveryState.RECOVERING}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_proposal_that_does_not_fit_is_refused_with_its_code(
    isr: tuple[int, ...], what: dict[str, Any], code: ErrorCode
) -> None:
    world = World()
    assert world.refused(world.item(*isr, **what)) is code


def test_the_order_of_checks_is_kafkas() -> None:
    """Both wrong: the epochs are looked at before the sender, and the sender before the partition epoch."""
    world = World()
    assert world.refused(world.item(1, leader_epoch=-1, partition_epoch=5), sender=2) is ErrorCode.NOT_CONTROLLER
    assert world.refused(world.item(1, leader_epoch=-1), sender=2) is ErrorCode.FENCED_LEADER_EPOCH
    assert world.refused(world.item(1, partition_epoch=0), sender=2) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("why", ["fenced", "shutting down", "restarted"])
def test_a_member_that_cannot_lead_cannot_be_in_the_isr(why: str) -> None:
    world = World()
    item = world.item(1, 2, 3)
    if why == "fenced":
        world.cluster.fence(3)
    elif why == "shutting down":
        world.cluster.create("u", [3, 1])  # so that it has something to hand over
        world.cluster.heartbeat(3, want_shutdown=True)
    else:
        world.cluster.do(registration(3, incarnation=77))
        world.cluster.heartbeat(3)
    assert world.refused(item) is ErrorCode.INELIGIBLE_REPLICA


def test_a_member_without_epoch_is_taken_at_its_word() -> None:
    """-1 skips the check of KIP-903: the leader does not know the epoch yet."""
    world = World()
    item = world.item(1, 2, 3)
    members = tuple(IsrMemberEpoch(broker_id=member.broker_id) for member in item.new_isr)
    [reply] = world.ask(replace(item, new_isr=members))
    assert reply.isr == (1, 2, 3)


def test_each_partition_of_a_request_stands_alone_and_may_come_once() -> None:
    world = World()
    other = replace(world.item(1), partition_id=1)
    replies = world.ask(world.item(1, 2, 3), replace(other, partition_epoch=9), world.item(1), other)
    assert [reply.error.code if reply.error else None for reply in replies] == [
        None,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert world.cluster.partition("t").isr == (1, 2, 3)


def test_a_leader_elected_uncleanly_recovers_alone_and_then_says_so() -> None:
    cluster = DecidedCluster(unclean_leader_election_enable=True).start_brokers(1, 2)
    topic_id: Uuid = cluster.create("t", [1, 2])
    cluster.fence(2)
    cluster.heartbeat(2)
    cluster.fence(1)
    cluster.heartbeat(1)
    present = cluster.partition("t")
    assert (present.leader, present.leader_recovery_state) == (2, LeaderRecoveryState.RECOVERING)
    item = PartitionAlteration(
        topic_id=topic_id,
        partition_id=0,
        leader_epoch=present.leader_epoch,
        partition_epoch=present.partition_epoch,
        new_isr=(IsrMemberEpoch(broker_id=BrokerId(2)), IsrMemberEpoch(broker_id=BrokerId(1))),
    )
    request = AlterPartition(
        broker_id=BrokerId(2), broker_epoch=cluster.image.cluster.brokers[BrokerId(2)].epoch, partitions=(item,)
    )
    recovering = replace(item, leader_recovery_state=LeaderRecoveryState.RECOVERING)
    [reply] = cluster.do(replace(request, partitions=(recovering,))).partitions
    assert reply.error is not None and reply.error.code is ErrorCode.INVALID_REQUEST
    [reply] = cluster.do(request).partitions
    assert (reply.isr, reply.leader_recovery_state) == ((2, 1), LeaderRecoveryState.RECOVERED)
    assert isinstance(cluster.log[-1], PartitionChangeRecord)
