"""Groups that move between the protocols while their members stay, and groups of both (KIP-848)."""

from __future__ import annotations

import pytest

from barnabas_coordination.errors import CoordinatorNotAvailable
from barnabas_coordination.group.classic import ClassicGroup
from barnabas_coordination.group.consumer.group import ConsumerGroupState
from barnabas_coordination.group.led_records import JOINS
from barnabas_coordination.group.messages import JoinOutcome
from barnabas_coordination.group.states import GroupState, RebalanceReason
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    decode_blob,
    encode_blob,
)
from tests.broker.coordinator.consumer_driver import INTERVAL_MS, Consumer, ConsumerDriver
from tests.broker.coordinator.group_driver import GROUP, REBALANCE_MS, SESSION_MS, TOPIC, classic
from tests.broker.coordinator.test_consumer_group import kinds


def assignment(*partitions: int, user_data: bytes | None = None) -> bytes:
    return encode_blob(ConsumerProtocolAssignment([TopicPartitions(TOPIC, list(partitions))], user_data), 1)


def subscription(owned: list[int]) -> bytes:
    return encode_blob(
        ConsumerProtocolSubscription([TOPIC], owned_partitions=[TopicPartitions(TOPIC, owned)] if owned else []), 1
    )


class Cooperative:
    """A classic member with the cooperative protocol: it gives up what it is not assigned, and joins again."""

    def __init__(self, driver: ConsumerDriver, member_id: str = "", instance: str | None = None) -> None:
        self.driver = driver
        self.member_id = member_id
        self.instance = instance
        self.generation = -1
        self.held: list[int] = []
        self.is_behind = True

    def take(self, generation: int, held: list[int]) -> Cooperative:
        """As of a group that stands."""
        self.generation, self.held, self.is_behind = generation, held, False
        return self

    def join(self, version: int = 3) -> JoinOutcome:
        ticket = self.driver.join(
            self.member_id,
            instance=self.instance,
            protocols=(("cooperative", subscription(self.held)),),
            version=version,
            session_ms=SESSION_MS,
        )
        joined = self.driver.joined(ticket)
        self.member_id, self.generation = joined.member_id, joined.generation
        # Alone in a classic group it leads, and takes everything.
        everything = assignment(*range(self.driver.topics[TOPIC]))
        given = {self.member_id: everything} if joined.members else None
        blob = self.driver.assigned(self.driver.sync(self.member_id, self.generation, given, instance=self.instance))
        told = [
            partition
            for of in decode_blob(ConsumerProtocolAssignment, blob).assigned_partitions
            for partition in of.partitions
        ]
        self.is_behind = not set(self.held) <= set(told)
        self.held = told
        return joined

    def beat(self) -> None:
        ticket = self.driver.heartbeat(self.member_id, self.generation, instance=self.instance)
        code = self.driver.code(ticket)
        assert code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS), code
        if code is ErrorCode.REBALANCE_IN_PROGRESS or self.is_behind:
            self.join()

    def numbers(self) -> list[int]:
        return sorted(self.held)


def classic_pair(driver: ConsumerDriver) -> list[Cooperative]:
    """A stable classic group of two, each with half of the topic."""
    protocols = (("cooperative", subscription([])),)
    names = driver.stable_group(2, protocols=protocols)
    assignments = {names[0]: assignment(0, 1), names[1]: assignment(2, 3)}
    tickets = [driver.join(name, protocols=protocols) for name in names]
    generation = driver.joined(tickets[0]).generation
    for name in reversed(names):
        driver.sync(name, generation, assignments if name == names[0] else None)
    return [
        Cooperative(driver, name).take(generation, held) for name, held in zip(names, ([0, 1], [2, 3]), strict=True)
    ]


def settle(driver: ConsumerDriver, *members: Consumer | Cooperative, rounds: int = 10) -> None:
    for _ in range(rounds):
        driver.advance(INTERVAL_MS)
        for member in members:
            member.beat()
        driver.advance(1)


def everything(*members: Consumer | Cooperative) -> list[int]:
    return sorted(number for member in members for number in member.numbers())


def test_a_consumer_joins_a_classic_group_and_nobody_loses_more_than_its_share() -> None:
    driver = ConsumerDriver()
    a, b = classic_pair(driver)
    assert driver.code(driver.commit_offset(5, member_id=a.member_id, generation=a.generation)) is ErrorCode.NONE
    before = len(driver.log)
    c = Consumer(driver, "c", TOPIC)
    told = c.join()
    generation = a.generation
    upgrade = ["2t", "5", "5", "3", "7", "7", "6", "8", "8"]
    assert kinds(driver, before)[: len(upgrade)] == upgrade
    assert kinds(driver, before)[len(upgrade) :] == ["5", "3", "7", "7", "6", "8"]
    assert (told.epoch, told.assignment) == (generation + 1, {})
    assert driver.code(driver.heartbeat(a.member_id, a.generation)) is ErrorCode.REBALANCE_IN_PROGRESS
    settle(driver, a, b, c)
    assert everything(a, b, c) == [0, 1, 2, 3]
    assert set(a.numbers()) <= {0, 1}
    assert set(b.numbers()) <= {2, 3}
    assert len(c.numbers()) == 1
    assert driver.group.state is ConsumerGroupState.STABLE
    assert len(driver.shard.offsets.partitions(GROUP)) == 1
    driver.fail_over(loses_uncommitted=False)
    settle(driver, a, b, c)
    assert everything(a, b, c) == [0, 1, 2, 3]


def test_joins_and_syncs_that_wait_are_sent_to_join_again() -> None:
    driver = ConsumerDriver()
    a, b = classic_pair(driver)
    parked = driver.join(a.member_id, protocols=(("cooperative", subscription([0, 1])),))
    newcomer = driver.join("", version=3, protocols=(("cooperative", subscription([])),))
    assert driver.is_open(parked)
    Consumer(driver, "c", TOPIC).join()
    assert driver.code(parked) is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.code(newcomer) is ErrorCode.REBALANCE_IN_PROGRESS
    assert set(driver.group.members) == {a.member_id, b.member_id, "c"}, "who was not answered yet is no member"


def test_a_refused_upgrade_leaves_the_classic_group_and_those_who_wait() -> None:
    driver = ConsumerDriver()
    a, _ = classic_pair(driver)
    parked = driver.join(a.member_id, protocols=(("cooperative", subscription([0, 1])),))
    driver.refuses = CoordinatorNotAvailable("too few replicas")
    refused = driver.beat("c", JOINS, topic_names=frozenset({TOPIC}), owned={}, rebalance_timeout_ms=1)
    assert driver.code(refused) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.refuses = None
    assert driver.is_open(parked)
    assert classic(driver.shard)[GROUP].state is GroupState.PREPARING_REBALANCE


@pytest.mark.parametrize(
    ("policy", "ups", "joins", "downs"),
    [
        ("bidirectional", True, True, True),
        ("UPGRADE", True, True, False),
        ("downgrade", False, True, True),
        ("disabled", False, False, False),
    ],
)
def test_the_policy_says_which_way_a_group_with_members_goes(policy: str, ups: bool, joins: bool, downs: bool) -> None:
    driver = ConsumerDriver(group_consumer_migration_policy=policy)
    classic_pair(driver)
    told = driver.beat("c", JOINS, topic_names=frozenset({TOPIC}), owned={}, rebalance_timeout_ms=1)
    assert driver.code(told) is (ErrorCode.NONE if ups else ErrorCode.GROUP_ID_NOT_FOUND)
    other = ConsumerDriver(group_consumer_migration_policy=policy)
    c = Consumer(other, "c", TOPIC)
    c.join()
    if not joins:
        assert other.code(other.join(version=3)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return
    a = Cooperative(other)
    a.join()
    settle(other, a, c)
    assert len(a.numbers()) == len(c.numbers()) == 2
    c.leave()
    other.advance(1)
    assert isinstance(other.shard.groups[GROUP], ClassicGroup) == downs
    if not downs:
        settle(other, a)
        assert a.numbers() == [0, 1, 2, 3], "with classic members alone it goes on as a consumer group"


def test_a_custom_assignor_and_another_type_stay_classic() -> None:
    for protocol_type in ("connect", "consumer"):
        driver = ConsumerDriver()
        (name,) = driver.stable_group(1, protocol_type=protocol_type)
        if protocol_type == "consumer":
            group = classic(driver.shard)[GROUP]
            group.members[name].assignment = assignment(0, user_data=b"mine")
        told = driver.beat("c", JOINS, topic_names=frozenset({TOPIC}), owned={}, rebalance_timeout_ms=1)
        assert driver.code(told) is ErrorCode.GROUP_ID_NOT_FOUND
        assert GROUP in classic(driver.shard)


def test_the_last_consumer_leaves_a_classic_group_behind_with_its_assignments() -> None:
    driver = ConsumerDriver()
    c = Consumer(driver, "c", TOPIC)
    c.join()
    members = [Cooperative(driver), Cooperative(driver)]
    for member in members:
        member.join()
    settle(driver, c, *members)
    assert everything(c, *members) == [0, 1, 2, 3]
    epoch = driver.group.epoch
    before = len(driver.log)
    c.leave()
    driver.advance(1)
    assert kinds(driver, before) == [
        *("8t", "7t", "5t", "3"),
        *("8t", "8t", "7t", "7t", "6t", "5t", "5t", "3t", "2"),
    ]
    group = classic(driver.shard)[GROUP]
    assert (group.generation, group.state) == (epoch, GroupState.PREPARING_REBALANCE)
    assert group.stats.rebalances[RebalanceReason.DOWNGRADE] == 1
    assert set(group.members) == {member.member_id for member in members}
    for member in members:
        ticket = driver.heartbeat(member.member_id, member.generation)
        assert driver.code(ticket) is ErrorCode.REBALANCE_IN_PROGRESS, "it is in the generation, and loses nothing"
    tickets = [
        driver.join(member.member_id, protocols=(("cooperative", subscription(member.held)),)) for member in members
    ]
    assert {driver.joined(ticket).generation for ticket in tickets} == {epoch + 1}
    assert isinstance(driver.reload().groups[GROUP], ClassicGroup)


def test_a_downgrade_that_was_refused_or_cut_off_is_made_later() -> None:
    driver = ConsumerDriver()
    c, a = Consumer(driver, "c", TOPIC), Cooperative(driver)
    c.join()
    a.join()
    settle(driver, c, a)
    c.leave()
    driver.refuses = CoordinatorNotAvailable("too few replicas")
    driver.advance(1)
    driver.refuses = None
    assert set(driver.group.members) == {a.member_id}
    driver.fail_over(loses_uncommitted=False)
    driver.advance(1)
    assert isinstance(driver.shard.groups[GROUP], ClassicGroup)


def test_a_static_member_goes_from_one_protocol_to_the_other_and_back() -> None:
    driver = ConsumerDriver()
    other = Consumer(driver, "other", TOPIC)
    other.join()
    one = Cooperative(driver, instance="one")
    one.join()
    settle(driver, other, one)
    had = one.numbers()
    new = Consumer(driver, "new", TOPIC, instance="one")
    new.join()
    settle(driver, other, new)
    assert new.numbers() == had
    assert driver.group.classic_count == 0
    old = Cooperative(driver, instance="one")
    old.held = []
    old.join()
    settle(driver, other, old)
    assert old.numbers() == had
    assert driver.code(driver.beat("new", new.epoch, instance_id="one")) is ErrorCode.FENCED_INSTANCE_ID


def test_classic_members_are_out_when_they_are_silent_do_not_join_again_or_do_not_sync() -> None:
    for silence in ("session", "join", "sync"):
        driver = ConsumerDriver(group_consumer_migration_policy="upgrade")
        c, a = Consumer(driver, "c", TOPIC), Cooperative(driver)
        c.join()
        a.join()
        settle(driver, c, a)
        if silence == "sync":
            driver.join(a.member_id, protocols=(("cooperative", subscription(a.held)),))
        if silence == "join":
            Consumer(driver, "d", TOPIC).join()
        for _ in range((REBALANCE_MS if silence != "session" else SESSION_MS) // INTERVAL_MS + 1):
            driver.advance(INTERVAL_MS)
            c.beat()
            if silence != "session" and a.member_id in driver.group.members:
                generation = driver.group.members[a.member_id].epoch
                driver.heartbeat(a.member_id, generation)
        assert a.member_id not in driver.group.members, silence


def test_classic_members_leave_and_commit_by_their_generation() -> None:
    driver = ConsumerDriver()
    c, a = Consumer(driver, "c", TOPIC), Cooperative(driver)
    c.join()
    a.join()
    settle(driver, c, a)
    assert driver.commit_by_epoch(a.member_id, a.generation, *a.numbers(), knows_epochs=False) is ErrorCode.NONE
    assert driver.commit_by_epoch(a.member_id, a.generation + 1, 0) is ErrorCode.ILLEGAL_GENERATION
    assert driver.code(driver.heartbeat(a.member_id, a.generation + 1)) is ErrorCode.ILLEGAL_GENERATION
    assert driver.code(driver.heartbeat("c", c.epoch)) is ErrorCode.UNKNOWN_MEMBER_ID
    left = driver.outcome(driver.leave((a.member_id, None), ("c", None), ("x", None), (a.member_id, None)))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [one.error for one in left] == [ErrorCode.NONE, unknown, unknown, unknown]
    settle(driver, c)
    assert c.numbers() == [0, 1, 2, 3]


def test_classic_members_notice_partitions_that_came() -> None:
    driver = ConsumerDriver(group_consumer_migration_policy="upgrade")
    c, a = Consumer(driver, "c", TOPIC), Cooperative(driver)
    c.join()
    a.join()
    settle(driver, c, a)
    c.leave()
    settle(driver, a)
    driver.set_topics({TOPIC: 6})
    settle(driver, a)
    assert a.numbers() == [0, 1, 2, 3, 4, 5]
