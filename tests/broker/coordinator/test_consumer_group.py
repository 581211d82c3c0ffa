"""Laws of the consumer protocol (KIP-848), one heartbeat at a time. Numbers of sections are those of Kafka's behaviour by hand."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas_coordination.errors import CoordinatorNotAvailable, UnknownMemberId
from barnabas_coordination.group.consumer import regexes, target
from barnabas_coordination.group.consumer.errors import StaleMemberEpoch
from barnabas_coordination.group.consumer.group import ConsumerGroup, ConsumerGroupState
from barnabas_coordination.group.consumer.records import (
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    MemberState,
)
from barnabas_coordination.group.led_records import JOINS, LEAVES
from barnabas_coordination.group.records import GroupMetadataRecord, OffsetCommitRecord
from barnabas_coordination.shard import Writer
from barnabas_quorum.records import ConfigResourceType
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import TopicPartition
from tests.broker.coordinator.consumer_driver import INTERVAL_MS, TIMEOUT_MS, Consumer, ConsumerDriver
from tests.broker.coordinator.group_driver import GROUP, TOPIC, classic
from tests.support.images import make_image

SESSION_MS = 45_000


def two_members(driver: ConsumerDriver) -> tuple[Consumer, Consumer]:
    """Members a and b, each with two of four partitions, on epoch 3."""
    a, b = Consumer(driver, "a", TOPIC), Consumer(driver, "b", TOPIC)
    a.join()
    b.join()
    driver.settle((a, b))
    assert (a.numbers(), b.numbers()) == ([0, 1], [2, 3])
    assert driver.group.state is ConsumerGroupState.STABLE
    return a, b


def kinds(driver: ConsumerDriver, since: int) -> list[str]:
    """Numbers of the record types that were written, t for tombstones."""
    numbers: dict[type, str] = {
        OffsetCommitRecord: "1",
        GroupMetadataRecord: "2",
        ConsumerGroupMetadataRecord: "3",
        ConsumerGroupMemberMetadataRecord: "5",
        ConsumerGroupTargetAssignmentMetadataRecord: "6",
        ConsumerGroupTargetAssignmentMemberRecord: "7",
        ConsumerGroupCurrentMemberAssignmentRecord: "8",
    }
    return [numbers.get(type(record), "16") + ("t" if record.value is None else "") for record in driver.log[since:]]


# ---- join, share, leave ----------------------------------------------------------------------------------------------


def test_the_first_member_gets_everything_at_once_on_epoch_2() -> None:
    driver = ConsumerDriver()
    a = Consumer(driver, "a", TOPIC)
    told = a.join()
    assert (told.epoch, told.heartbeat_interval_ms) == (2, 5_000)
    assert a.numbers() == [0, 1, 2, 3]
    assert kinds(driver, 0) == ["5", "3", "7", "6", "8"]
    assert driver.group.state is ConsumerGroupState.STABLE


def test_a_partition_is_given_once_its_former_owner_says_that_it_is_free() -> None:
    driver = ConsumerDriver()
    a, b = Consumer(driver, "a", TOPIC), Consumer(driver, "b", TOPIC)
    a.join()
    joined = b.join()
    assert (joined.epoch, joined.assignment) == (3, {})
    assert driver.group.state is ConsumerGroupState.RECONCILING
    asked = driver.told(driver.beat("a", 2, owned=a.owned()))
    assert (asked.epoch, asked.assignment) == (2, {driver.topic_id(TOPIC): (0, 1)})
    assert b.beat().assignment is None, "a has not said yet that it let go"
    held = {driver.topic_id(TOPIC): frozenset({0, 1})}
    freed = driver.told(driver.beat("a", 2, owned=held))
    assert (freed.epoch, freed.assignment) == (3, None)
    assert b.beat().assignment == {driver.topic_id(TOPIC): (2, 3)}
    assert driver.group.state is ConsumerGroupState.STABLE


def test_records_come_in_kafkas_order() -> None:
    driver = ConsumerDriver()
    a, b = Consumer(driver, "a", TOPIC), Consumer(driver, "b", TOPIC)
    a.join()
    before = len(driver.log)
    b.join()
    assert kinds(driver, before) == ["5", "3", "7", "7", "6", "8"]
    driver.settle((a, b))
    before = len(driver.log)
    b.leave()
    assert kinds(driver, before) == ["8t", "7t", "5t", "3"]
    before = len(driver.log)
    driver.settle((a,))
    assert kinds(driver, before) == ["7", "6", "8"]
    before = len(driver.log)
    a.leave()
    assert kinds(driver, before) == ["8t", "7t", "5t", "3", "6"]
    assert driver.group.state is ConsumerGroupState.EMPTY
    before = len(driver.log)
    driver.step(lambda ticket: driver.shard.delete_group(GROUP, ticket, now_ms=driver.now_ms))
    assert kinds(driver, before) == ["6t", "3t"]
    assert GROUP not in driver.shard.groups


def test_a_heartbeat_of_a_stable_group_writes_nothing() -> None:
    driver = ConsumerDriver()
    a, b = two_members(driver)
    before = len(driver.log)
    for consumer in (a, b, a):
        assert consumer.beat().assignment is None
    assert len(driver.log) == before


def test_a_repeated_heartbeat_is_answered_and_one_that_owns_too_much_is_fenced() -> None:
    driver = ConsumerDriver()
    a, _ = two_members(driver)
    own = a.owned()
    topic_id = driver.topic_id(TOPIC)
    assert driver.told(driver.beat("a", 2, owned=own)).epoch == 3
    for refused in (
        driver.beat("a", 2),
        driver.beat("a", 2, owned={topic_id: frozenset({0, 1, 2})}),
        driver.beat("a", 9),
        driver.beat("a", 1, owned=own),
    ):
        assert driver.code(refused) is ErrorCode.FENCED_MEMBER_EPOCH
    assert driver.code(driver.beat("c", 3)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.code(driver.beat("a", 3, group="another")) is ErrorCode.GROUP_ID_NOT_FOUND


def test_who_joins_again_keeps_its_place_and_is_told_all() -> None:
    driver = ConsumerDriver()
    a, _ = two_members(driver)
    before = len(driver.log)
    told = a.join()
    assert (told.epoch, told.assignment) == (3, {driver.topic_id(TOPIC): (0, 1)})
    assert len(driver.log) == before


def test_a_full_heartbeat_is_told_its_assignment() -> None:
    driver = ConsumerDriver()
    a, _ = two_members(driver)
    told = driver.told(driver.beat("a", 3, topic_names=a.topics, rebalance_timeout_ms=TIMEOUT_MS, owned=a.owned()))
    assert told.assignment == {driver.topic_id(TOPIC): (0, 1)}


def test_a_subscription_changes_what_a_member_has() -> None:
    driver = ConsumerDriver({"flights": 2, "weather": 2})
    a = Consumer(driver, "a", "flights")
    a.join()
    assert a.numbers("weather") == []
    a.subscribe("flights", "weather")
    driver.settle((a,))
    assert (a.numbers("flights"), a.numbers("weather")) == ([0, 1], [0, 1])
    a.subscribe("weather")
    driver.settle((a,))
    assert (a.numbers("flights"), a.numbers("weather")) == ([], [0, 1])


def test_topics_that_come_grow_and_go_reach_the_members() -> None:
    driver = ConsumerDriver({"flights": 2})
    a = Consumer(driver, "a", "flights", "weather")
    a.join()
    driver.set_topics({"flights": 2, "weather": 1})
    driver.settle((a,))
    assert a.numbers("weather") == [0]
    driver.set_topics({"flights": 3, "weather": 1})
    driver.settle((a,))
    assert a.numbers("flights") == [0, 1, 2]
    flights = driver.topic_id("flights")
    driver.image = make_image(topics={"weather": [((1,), (1,), 1)]}, topic_ids_from=1001)
    driver.settle((a,))
    assert all(topic_id != flights for topic_id, _ in a.held)
    before = len(driver.log)
    driver.image = make_image(topics={"weather": [((1,), (1,), 1)], "else": [((1,), (1,), 1)]}, topic_ids_from=1001)
    a.beat()
    assert len(driver.log) == before, "a topic that nobody subscribes to changes nothing"


def test_most_votes_choose_the_assignor() -> None:
    driver = ConsumerDriver({"flights": 3, "weather": 3})
    names = ("a", "b")
    consumers = [Consumer(driver, name, "flights", "weather", assignor="range") for name in names]
    for consumer in consumers:
        consumer.join()
    driver.settle(consumers)
    assert [c.numbers("flights") for c in consumers] == [[0, 1], [2]]
    assert [c.numbers("weather") for c in consumers] == [[0, 1], [2]]
    for consumer in consumers:
        consumer.beat(server_assignor="uniform")
    driver.settle(consumers)
    assert sorted(len(c.held) for c in consumers) == [3, 3]


# ---- time ------------------------------------------------------------------------------------------------------------


def test_a_silent_member_is_out_and_a_heard_one_is_not() -> None:
    driver = ConsumerDriver()
    a, b = two_members(driver)
    for _ in range(12):
        driver.advance(INTERVAL_MS)
        a.beat()
    assert set(driver.group.members) == {"a"}
    driver.settle((a,))
    assert a.numbers() == [0, 1, 2, 3]
    assert driver.code(driver.beat("b", b.epoch)) is ErrorCode.UNKNOWN_MEMBER_ID
    b.join()
    driver.settle((a, b))
    assert b.numbers() == [2, 3]


def test_who_does_not_give_up_in_time_is_out() -> None:
    driver = ConsumerDriver()
    a, b = Consumer(driver, "a", TOPIC), Consumer(driver, "b", TOPIC)
    a.join()
    b.join()
    for _ in range(TIMEOUT_MS // INTERVAL_MS + 1):
        driver.advance(INTERVAL_MS)
        b.beat()
        if "a" in driver.group.members:
            driver.beat("a", 2)  # alive, but never says what it owns
    assert set(driver.group.members) == {"b"}
    driver.settle((b,))
    assert b.numbers() == [0, 1, 2, 3]


def test_who_gives_up_in_time_stays() -> None:
    driver = ConsumerDriver()
    a, b = Consumer(driver, "a", TOPIC), Consumer(driver, "b", TOPIC)
    a.join()
    b.join()
    driver.told(driver.beat("a", 2, owned=a.owned()))
    assert driver.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    driver.advance(TIMEOUT_MS // 2)
    a.beat(owned={driver.topic_id(TOPIC): frozenset({0, 1})})
    for _ in range(20):
        driver.advance(INTERVAL_MS)
        a.beat()
        b.beat()
    assert set(driver.group.members) == {"a", "b"}


def test_an_interval_makes_one_assignment_of_many_comers() -> None:
    driver = ConsumerDriver(group_consumer_assignment_interval_ms=1_000)
    a = Consumer(driver, "a", TOPIC)
    a.join()
    others = [Consumer(driver, name, TOPIC) for name in "bcd"]
    for other in others:
        driver.advance(100)
        told = other.join()
        assert (told.epoch, told.assignment) == (2, {}), "the last targets are of epoch 2"
    assert driver.group.state is ConsumerGroupState.ASSIGNING
    assert driver.group.assignment_epoch == 2
    driver.advance(1_000)
    a.beat()
    assert driver.group.assignment_epoch == driver.group.epoch == 5
    driver.settle((a, *others))
    assert sorted(n for consumer in (a, *others) for n in consumer.numbers()) == [0, 1, 2, 3]


def test_a_clock_that_goes_back_holds_no_assignment_back() -> None:
    driver = ConsumerDriver(group_consumer_assignment_interval_ms=15_000)
    a, b = Consumer(driver, "a", TOPIC), Consumer(driver, "b", TOPIC)
    a.join()
    driver.now_ms -= 10_000_000
    b.join()
    assert driver.group.assignment_epoch == 3


def test_a_groups_configs_come_before_the_brokers_within_its_bounds() -> None:
    driver = ConsumerDriver()
    for text, counts in (("50000", 50_000), ("1", 45_000), ("100000", 60_000)):
        configs = {(ConfigResourceType.GROUP, GROUP): {"consumer.session.timeout.ms": text}}
        driver.image = make_image(topics={TOPIC: [((1,), (1,), 1)]}, configs=configs)
        a = Consumer(driver, "a", TOPIC)
        a.join()
        driver.advance(counts - 1)
        assert "a" in driver.group.members
        driver.advance(1)
        assert not driver.group.members


def test_a_rack_aware_assignor_is_there_for_who_asks() -> None:
    driver = ConsumerDriver()
    driver.image = make_image(topics={TOPIC: [((number,), (number,), number) for number in (3, 3, 2, 2, 1, 1)]})
    members = []
    for name, rack in (("a", "rack-1"), ("b", "rack-2"), ("c", "rack-3")):
        member = Consumer(driver, name, TOPIC, assignor="uniform-rack", rack=rack)
        member.join()
        members.append(member)
    driver.settle(members)
    assert [member.numbers() for member in members] == [[4, 5], [2, 3], [0, 1]]
    for member in members:
        member.beat(server_assignor="uniform")
    driver.settle(members)
    assert [member.numbers() for member in members] == [[4, 5], [2, 3], [0, 1]], "nothing moves without need"


def test_a_full_group_takes_no_more_but_a_static_member_back() -> None:
    driver = ConsumerDriver(group_consumer_max_size=1)
    a = Consumer(driver, "a", TOPIC, instance="one")
    a.join()
    assert driver.code(driver.beat("b", JOINS, topic_names=frozenset({TOPIC}), owned={})) is (
        ErrorCode.GROUP_MAX_SIZE_REACHED
    )
    a.leave_for_a_while()
    Consumer(driver, "a2", TOPIC, instance="one").join()
    assert set(driver.group.members) == {"a2"}


# ---- static members --------------------------------------------------------------------------------------------------


def test_a_static_member_returns_to_its_partitions_without_an_epoch_more() -> None:
    driver = ConsumerDriver()
    a, b = Consumer(driver, "a", TOPIC, instance="one"), Consumer(driver, "b", TOPIC)
    a.join()
    b.join()
    driver.settle((a, b))
    epoch = driver.group.epoch
    assert a.leave_for_a_while().epoch == -2
    b.beat()
    assert b.numbers() == [2, 3], "what it has stays its own"
    back = Consumer(driver, "a2", TOPIC, instance="one")
    before = len(driver.log)
    told = back.join()
    assert (told.epoch, back.numbers()) == (epoch, [0, 1])
    assert driver.group.epoch == epoch
    assert kinds(driver, before) == ["8t", "7t", "5t", "5", "7", "8", "8"]
    assert driver.code(driver.beat("a", epoch, instance_id="one")) is ErrorCode.FENCED_INSTANCE_ID
    back.leave()
    assert set(driver.group.members) == {"b"}


def test_a_static_member_that_does_not_return_is_out() -> None:
    driver = ConsumerDriver()
    a, b = Consumer(driver, "a", TOPIC, instance="one"), Consumer(driver, "b", TOPIC)
    a.join()
    b.join()
    driver.settle((a, b))
    a.leave_for_a_while()
    for _ in range(SESSION_MS // INTERVAL_MS + 1):
        driver.advance(INTERVAL_MS)
        b.beat()
    driver.settle((b,))
    assert b.numbers() == [0, 1, 2, 3]


def test_an_instance_that_is_there_is_not_replaced() -> None:
    driver = ConsumerDriver()
    a = Consumer(driver, "a", TOPIC, instance="one")
    a.join()
    named: dict[str, Any] = {"instance_id": "one", "topic_names": frozenset({TOPIC}), "owned": {}}
    for member_id in ("a", "b"):
        assert driver.code(driver.beat(member_id, JOINS, **named)) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert driver.code(driver.beat("b", 2, instance_id="one")) is ErrorCode.FENCED_INSTANCE_ID
    assert driver.code(driver.beat("a", 2, instance_id="two")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.code(driver.beat("b", LEAVES, instance_id="one")) is ErrorCode.FENCED_INSTANCE_ID
    assert driver.told(driver.beat("a", LEAVES, instance_id="one")).epoch == -1
    assert driver.code(driver.beat("a", LEAVES, instance_id="one")) is ErrorCode.UNKNOWN_MEMBER_ID


# ---- regular expressions ---------------------------------------------------------------------------------------------


def test_a_regular_expression_is_resolved_by_the_coordinator() -> None:
    driver = ConsumerDriver({"fa": 1, "fb": 2, "weather": 1, "__f": 1})
    a = Consumer(driver, "a", regex="f.")
    told = a.join()
    assert (told.epoch, told.assignment) == (1, {})
    assert kinds(driver, 0) == ["5", "8"]
    driver.settle((a,))
    assert {driver.topic_id("fa"), driver.topic_id("fb")} == {topic_id for topic_id, _ in a.held}
    assert driver.group.epoch == 2
    driver.set_topics({"fa": 1, "fb": 2, "weather": 1, "__f": 1, "fc": 1})
    driver.advance(regexes.REFRESH_FLOOR_MS)
    driver.settle((a,))
    assert a.numbers("fc") == [0]


def test_a_regular_expression_sees_what_its_member_may_describe() -> None:
    driver = ConsumerDriver({"fa": 1, "fb": 1})
    a = Consumer(driver, "a", regex="f.", may_describe=lambda topic: topic != "fb")
    a.join()
    driver.settle((a,))
    assert (a.numbers("fa"), a.numbers("fb")) == ([0], [])


@pytest.mark.parametrize("regex", ["(a", "(?=a)b", r"(a)\1"])
def test_what_re2_does_not_take_is_refused(regex: str) -> None:
    driver = ConsumerDriver()
    refused = driver.beat("a", JOINS, topic_regex=regex, owned={}, rebalance_timeout_ms=1)
    assert driver.code(refused) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not driver.shard.groups


def test_an_unused_regular_expression_is_forgotten() -> None:
    driver = ConsumerDriver({"fa": 1, "fb": 1})
    a, b = Consumer(driver, "a", regex="fa"), Consumer(driver, "b", regex="f.")
    a.join()
    b.join()
    driver.settle((a, b))
    assert set(driver.group.regexes) == {"fa", "f."}
    a.beat(topic_regex="")
    assert set(driver.group.regexes) == {"f."}
    driver.settle((a, b))
    assert (len(a.held), len(b.held)) == (0, 2)
    b.leave()
    assert not driver.group.regexes


def test_regular_expressions_are_resolved_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regexes, "MATCHES_BEFORE_GIVING_WAY", 3)
    driver = ConsumerDriver({f"f{number}": 1 for number in range(20)})
    a = Consumer(driver, "a", regex="f.*")
    a.join()
    assert driver.group.soft.regex_job is not None
    driver.settle((a,))
    assert len(a.held) == 20


# ---- large groups ----------------------------------------------------------------------------------------------------


def test_targets_of_a_large_group_are_made_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "SLICED_FROM", 3)
    driver = ConsumerDriver()
    a, b = Consumer(driver, "a", TOPIC), Consumer(driver, "b", TOPIC)
    assert a.join().assignment == {}
    assert driver.group.state is ConsumerGroupState.ASSIGNING
    driver.settle((a,))
    assert a.numbers() == [0, 1, 2, 3]
    b.join()
    job = driver.group.soft.target_job
    assert job is not None
    Consumer(driver, "c", TOPIC).join()
    assert driver.group.soft.target_job is not job, "the group is another: the work begins anew"
    driver.settle((a, b))
    assert driver.group.assignment_epoch == driver.group.epoch


def test_a_topic_that_is_made_again_is_another() -> None:
    driver = ConsumerDriver()
    a = Consumer(driver, "a", TOPIC)
    a.join()
    before = driver.group.epoch
    driver.image = make_image(topics={TOPIC: [((1,), (1,), 1)] * 4}, topic_ids_from=2_000)
    driver.settle((a,))
    assert driver.group.epoch == before + 1
    assert a.numbers() == [0, 1, 2, 3], "of the new one"


def test_regular_expressions_of_a_group_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regexes, "REGEXES_MAX", 2)
    driver = ConsumerDriver()
    for name in "ab":
        Consumer(driver, name, regex=f"{name}.*").join()
    said: dict[str, Any] = {"topic_names": frozenset[str](), "owned": {}, "rebalance_timeout_ms": TIMEOUT_MS}
    refused = driver.beat("c", JOINS, topic_regex="c.*", **said)
    assert driver.code(refused) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.code(driver.beat("c", JOINS, topic_regex="a.*", **said)) is ErrorCode.NONE


def test_a_static_member_that_is_away_remembers_its_epoch() -> None:
    driver = ConsumerDriver()
    a = Consumer(driver, "a", TOPIC, instance="one")
    a.join()
    a.leave_for_a_while()
    member = driver.group.members["a"]
    assert (member.epoch, member.previous_epoch) == (-2, 2)


def test_targets_in_the_making_are_dropped_when_a_member_goes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "SLICED_FROM", 3)
    driver = ConsumerDriver()
    a, b = Consumer(driver, "a", TOPIC), Consumer(driver, "b", TOPIC)
    a.join()
    driver.settle((a,))
    b.join()
    assert driver.group.soft.target_job is not None
    b.leave()
    driver.advance(1)
    assert driver.group.soft.target_job is None
    assert set(driver.group.targets) == {"a"}, "nobody is there for the others"
    assert driver.group.assignment_epoch < driver.group.epoch
    driver.settle((a,))
    assert a.numbers() == [0, 1, 2, 3]
    assert driver.group.state is ConsumerGroupState.STABLE


# ---- failures --------------------------------------------------------------------------------------------------------


def test_a_refused_write_changes_nothing_and_the_next_heartbeat_does_it() -> None:
    driver = ConsumerDriver()
    a, b = two_members(driver)
    driver.refuses = CoordinatorNotAvailable("too few replicas")
    before = len(driver.log)
    assert driver.code(driver.beat("c", JOINS, topic_names=frozenset({TOPIC}), owned={})) is (
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    )
    driver.set_topics({TOPIC: 6})
    assert driver.code(driver.beat("a", 3)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (len(driver.log), set(driver.group.members)) == (before, {"a", "b"})
    driver.refuses = None
    driver.settle((a, b))
    assert sorted(a.numbers() + b.numbers()) == [0, 1, 2, 3, 4, 5]


def test_topics_whose_resolution_was_refused_are_found_by_the_next() -> None:
    driver = ConsumerDriver({"fa": 1})
    a = Consumer(driver, "a", regex="f.*")
    a.join()
    driver.settle((a,))
    driver.advance(regexes.REFRESH_FLOOR_MS)
    driver.set_topics({"fa": 1, "fb": 1})
    a.beat()
    driver.refuses = CoordinatorNotAvailable("too few replicas")
    driver.advance(100)
    driver.refuses = None
    assert driver.group.soft.regex_job is None and driver.group.regexes["f.*"].topics == ("fa",)
    driver.settle((a,))
    assert len(a.held) == 1, "not before the next may begin"
    driver.advance(regexes.REFRESH_FLOOR_MS)
    driver.settle((a,))
    assert len(a.held) == 2


def test_a_member_whose_removal_was_refused_is_removed_later() -> None:
    driver = ConsumerDriver()
    a, _ = two_members(driver)
    driver.refuses = CoordinatorNotAvailable("too few replicas")
    for _ in range(12):
        driver.advance(INTERVAL_MS)
        a.beat()
    assert set(driver.group.members) == {"a", "b"}
    driver.refuses = None
    driver.advance(2_000)
    a.beat()
    assert set(driver.group.members) == {"a"}


@pytest.mark.parametrize("loses", [True, False])
def test_another_coordinator_goes_on_where_the_log_ends(loses: bool) -> None:
    driver = ConsumerDriver()
    a, b = two_members(driver)
    c = Consumer(driver, "c", TOPIC)
    c.join()
    driver.fail_over(loses_uncommitted=loses)
    driver.settle((a, b, c))
    assert sorted(n for consumer in (a, b, c) for n in consumer.numbers()) == [0, 1, 2, 3]
    driver.advance(SESSION_MS)
    assert not driver.group.members, "sessions are armed anew for all"


def test_a_log_read_in_any_order_is_the_same_group() -> None:
    driver = ConsumerDriver()
    two_members(driver)
    last = {driver.shard.encode(record): record for record in driver.log}
    values: dict[bytes, object] = {key: record for (key, _), record in last.items()}
    for order in (list(values.values()), list(reversed(values.values()))):
        shard = driver.new_shard()
        for record in order:
            shard.replay(record)  # type: ignore[arg-type]
        found = shard.groups[GROUP]
        assert isinstance(found, ConsumerGroup)
        assert found.members == driver.group.members
        assert (found.epoch, found.targets, found.state) == (3, driver.group.targets, ConsumerGroupState.STABLE)


# ---- beside classic groups -------------------------------------------------------------------------------------------


def test_an_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets() -> None:
    driver = ConsumerDriver()
    (member,) = driver.stable_group(1)
    driver.commit_offset(5, member_id=member, generation=1)
    driver.leave((member, None))
    before = len(driver.log)
    Consumer(driver, "a", TOPIC).join()
    assert kinds(driver, before) == ["2t", "5", "3", "7", "6", "8"]
    assert driver.shard.reads.listings()[0].group_type == "consumer"
    assert len(driver.shard.offsets.partitions(GROUP)) == 1


def test_an_empty_consumer_group_becomes_a_classic_group_and_keeps_its_offsets() -> None:
    driver = ConsumerDriver()
    a = Consumer(driver, "a", TOPIC)
    a.join()
    assert driver.commit_by_epoch("a", 2, 0) is ErrorCode.NONE
    a.leave()
    driver.stable_group(1)
    assert GROUP in classic(driver.shard)
    assert len(driver.shard.offsets.partitions(GROUP)) == 1
    assert not isinstance(driver.reload().groups[GROUP], ConsumerGroup)


def test_a_group_with_members_is_of_their_protocol_where_the_policy_keeps_it_so() -> None:
    driver = ConsumerDriver(group_consumer_migration_policy="disabled")
    driver.stable_group(1)
    refused = driver.beat("a", JOINS, topic_names=frozenset({TOPIC}), owned={})
    assert driver.code(refused) is ErrorCode.GROUP_ID_NOT_FOUND
    other = ConsumerDriver(group_consumer_migration_policy="disabled")
    Consumer(other, "a", TOPIC).join()
    assert other.code(other.join(version=3)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert other.code(other.heartbeat("a", 2)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_generation_of_an_older_version_overrules_what_it_could_not_read() -> None:
    driver = ConsumerDriver()
    Consumer(driver, "a", TOPIC).join()
    remains = list(driver.log)
    older = ConsumerDriver()
    older.stable_group(1)
    for log in (remains + older.log, older.log + remains):
        driver.log = log
        driver.fail_over(loses_uncommitted=False)
        assert GROUP in classic(driver.shard)
        assert len(driver.log) > len(log) - 1
        assert kinds(driver, len(remains) + len(older.log)) == ["8t", "7t", "6t", "5t", "3t"]
        driver.log = []


# ---- offsets ---------------------------------------------------------------------------------------------------------


def test_offsets_are_committed_by_member_epoch() -> None:
    driver = ConsumerDriver()
    a, _ = two_members(driver)
    assert driver.commit_by_epoch("a", 3, 2) is ErrorCode.NONE, "the current epoch is taken at its word"
    assert driver.commit_by_epoch("a", 2, 0, 1) is ErrorCode.NONE, "it has had these since epoch 2 (KIP-1251)"
    assert driver.commit_by_epoch("a", 2, 0, 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert driver.commit_by_epoch("a", 9, 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert driver.commit_by_epoch("b", 2, 2) is ErrorCode.STALE_MEMBER_EPOCH, "it has had it since epoch 3"
    assert driver.commit_by_epoch("", -1, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.commit_by_epoch("c", 3, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.commit_by_epoch("a", 3, 0, knows_epochs=False) is ErrorCode.UNSUPPORTED_VERSION
    a.leave()
    assert driver.commit_by_epoch("a", 3, 0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_transaction_commits_by_member_epoch_in_the_codes_that_its_client_knows() -> None:
    driver = ConsumerDriver()
    two_members(driver)
    for knows_epochs, stale in ((True, ErrorCode.STALE_MEMBER_EPOCH), (False, ErrorCode.ILLEGAL_GENERATION)):
        named: dict[str, Any] = {"writer": Writer(7, 0), "knows_epochs": knows_epochs}
        assert driver.commit_by_epoch("a", 3, 2, **named) is ErrorCode.NONE
        assert driver.commit_by_epoch("a", 2, 0, 1, **named) is ErrorCode.NONE
        assert driver.commit_by_epoch("a", 2, 0, 2, **named) is stale
        assert driver.commit_by_epoch("a", 9, 0, **named) is stale
        assert driver.commit_by_epoch("c", 3, 0, **named) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_zombie_does_not_commit_over_the_new_owner() -> None:
    driver = ConsumerDriver()
    _, b = two_members(driver)
    driver.advance(SESSION_MS)
    assert not driver.group.members
    c = Consumer(driver, "c", TOPIC)
    c.join()
    assert driver.commit_by_epoch("c", c.epoch, 2) is ErrorCode.NONE
    assert driver.commit_by_epoch("b", b.epoch, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_subscribed_topics_do_not_expire_and_an_unused_group_goes() -> None:
    driver = ConsumerDriver({"flights": 1, "weather": 1})
    driver.perform(driver.shard.on_loaded(now_ms=driver.now_ms))
    a = Consumer(driver, "a", "flights")
    a.join()
    assert driver.commit_by_epoch("a", 2, 0) is ErrorCode.NONE
    assert driver.commit_by_epoch("a", 2, 0, topic="weather") is ErrorCode.NONE
    week_ms = driver.config.offsets_retention_minutes * 60_000
    until_ms = driver.now_ms + week_ms + 700_000
    while driver.now_ms < until_ms:
        driver.advance(40_000)
        a.beat()
    assert [key.topic for key in driver.shard.offsets.partitions(GROUP)] == ["flights"]
    a.leave()
    driver.advance(700_000)
    assert GROUP not in driver.shard.groups, "the commit is a week old: by Kafka's rule it goes once the group is empty"


def test_offset_delete_spares_what_is_subscribed_to() -> None:
    driver = ConsumerDriver({"flights": 1, "weather": 1})
    a = Consumer(driver, "a", "flights")
    a.join()
    for topic in ("flights", "weather"):
        assert driver.commit_by_epoch("a", 2, 0, topic=topic) is ErrorCode.NONE
    keys = [TopicPartition(topic, 0) for topic in ("flights", "weather")]
    ticket = driver.step(lambda t: driver.shard.delete_offsets(GROUP, keys, t, now_ms=driver.now_ms))
    assert driver.outcome(ticket) == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE)
    refused = driver.step(lambda t: driver.shard.delete_group(GROUP, t, now_ms=driver.now_ms))
    assert driver.code(refused) is ErrorCode.NON_EMPTY_GROUP


def test_what_an_unresolved_pattern_may_match_is_subscribed_to() -> None:
    driver = ConsumerDriver({"fa": 1})
    a = Consumer(driver, "a", regex="f.")
    a.join()
    assert not driver.group.regexes
    assert driver.commit_by_epoch("a", a.epoch, 0, topic="fa") is ErrorCode.NONE
    key = TopicPartition("fa", 0)
    retention_ms = driver.config.offsets_retention_minutes * 60_000
    assert not driver.shard.offsets.expired(
        driver.group, now_ms=driver.now_ms + 2 * retention_ms, retention_ms=retention_ms
    )
    ticket = driver.step(lambda t: driver.shard.delete_offsets(GROUP, [key], t, now_ms=driver.now_ms))
    assert driver.outcome(ticket) == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,)


def test_a_member_fetches_by_its_current_epoch_alone() -> None:
    driver = ConsumerDriver()
    two_members(driver)
    driver.shard.allow_fetch(GROUP, "a", 3)
    with pytest.raises(StaleMemberEpoch):
        driver.shard.allow_fetch(GROUP, "a", 2)
    with pytest.raises(UnknownMemberId):
        driver.shard.allow_fetch(GROUP, "c", 3)
    driver.shard.allow_fetch("no such group", "a", 3)
