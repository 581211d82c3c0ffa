"""Laws of committed offsets: what readers see, when offsets expire, how they are deleted."""

from __future__ import annotations

import pytest

from barnabas_coordination.group import shard as shard_module
from barnabas_coordination.group.committed_offsets import NOTHING_COMMITTED
from barnabas_coordination.group.records import GroupMetadataRecord, OffsetCommitRecord
from barnabas_coordination.group.shard import EXPIRY
from barnabas_coordination.shard import CoordinatorResult
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import ZERO_UUID, TopicPartition
from tests.broker.coordinator.group_driver import GROUP, SESSION_MS, TOPIC, GroupDriver, classic, subscription

KEY = TopicPartition(TOPIC, 0)
RETENTION_MS = 60_000
CHECK_MS = 1_000


def driver_with_short_retention() -> GroupDriver:
    driver = GroupDriver(offsets_retention_minutes=1, offsets_retention_check_interval_ms=CHECK_MS)
    driver.perform(driver.shard.on_loaded(now_ms=driver.now_ms))
    return driver


def committed(driver: GroupDriver, key: TopicPartition = KEY, group: str = GROUP) -> int:
    return driver.shard.offsets.fetch(group, key).offset


def test_nothing_committed_is_minus_one() -> None:
    driver = GroupDriver()
    assert driver.shard.offsets.fetch("nobody", KEY) == NOTHING_COMMITTED == (-1, -1, "", ZERO_UUID)
    driver.commit_offset(3)
    assert driver.shard.offsets.fetch(GROUP, TopicPartition(TOPIC, 1)) == NOTHING_COMMITTED
    assert driver.shard.offsets.fetch(GROUP, KEY) == (3, 0, "", ZERO_UUID)


def test_a_reader_sees_an_offset_only_once_it_is_committed() -> None:
    driver = GroupDriver()
    driver.commit_offset(1)
    driver.holds_commits = True
    waiting = [driver.commit_offset(2), driver.commit_offset(3)]
    assert committed(driver) == 1
    assert driver.shard.offsets.partitions(GROUP) == [KEY]
    assert all(driver.is_open(ticket) for ticket in waiting)
    driver.commit()
    assert committed(driver) == 3
    assert not any(driver.is_open(ticket) for ticket in waiting)


def test_an_uncommitted_offset_is_lost_with_the_leader_and_a_committed_one_is_not() -> None:
    driver = GroupDriver()
    driver.commit_offset(1)
    driver.holds_commits = True
    waiting = driver.commit_offset(2)
    driver.fail_over()
    assert committed(driver) == 1
    assert driver.code(waiting) is ErrorCode.NOT_COORDINATOR


def test_metadata_that_is_too_long_refuses_its_offset_alone() -> None:
    driver = GroupDriver(offset_metadata_max_bytes=4)
    assert driver.outcome(driver.commit_offset(1, metadata="grünt")) == (ErrorCode.OFFSET_METADATA_TOO_LARGE,)
    assert driver.log == []
    assert driver.outcome(driver.commit_offset(1, metadata="four")) == (ErrorCode.NONE,)


def test_the_length_of_metadata_counts_utf_16_units_as_kafka_does() -> None:
    driver = GroupDriver(offset_metadata_max_bytes=4)
    for fits in ("grün", "日本語文", "𝄞𝄞"):
        assert driver.outcome(driver.commit_offset(1, metadata=fits)) == (ErrorCode.NONE,), fits
    for too_long in ("grünt", "𝄞𝄞!", "fives"):
        assert driver.outcome(driver.commit_offset(1, metadata=too_long)) == (ErrorCode.OFFSET_METADATA_TOO_LARGE,)


# ---- deletion --------------------------------------------------------------------------------------------------------


def delete_offsets(driver: GroupDriver, *keys: TopicPartition, group: str = GROUP) -> object:
    return driver.step(lambda ticket: driver.shard.delete_offsets(group, keys, ticket, now_ms=driver.now_ms))


def delete_group(driver: GroupDriver, group: str = GROUP) -> object:
    return driver.step(lambda ticket: driver.shard.delete_group(group, ticket, now_ms=driver.now_ms))


def test_offsets_of_a_subscribed_topic_cannot_be_deleted_and_others_can() -> None:
    driver = GroupDriver()
    other = TopicPartition("weather", 1)
    driver.commit_offset(1)
    driver.commit_offset(2, topic=other.topic, partition=other.partition)
    driver.stable_group(1)
    ticket = delete_offsets(driver, KEY, other)
    assert driver.outcome(ticket) == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE)
    assert (committed(driver), committed(driver, other)) == (1, -1)


def test_offsets_of_a_group_that_is_no_consumer_group_are_deleted_only_when_it_is_empty() -> None:
    driver = GroupDriver()
    driver.commit_offset(1)
    (member,) = driver.stable_group(1, protocol_type="connect", protocols=(("default", b"any"),))
    assert driver.code(delete_offsets(driver, KEY)) is ErrorCode.NON_EMPTY_GROUP
    driver.leave((member, None))
    assert driver.outcome(delete_offsets(driver, KEY)) == (ErrorCode.NONE,)
    assert driver.code(delete_offsets(driver, KEY, group="nobody")) is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_deleted_topics_go_even_from_living_groups() -> None:
    driver = GroupDriver()
    driver.stable_group(1)
    driver.commit_offset(1, group="simple")
    driver.commit_offset(2, group="simple", topic="weather")
    driver.perform(driver.shard.delete_topics({TOPIC}, now_ms=driver.now_ms))
    assert driver.shard.offsets.partitions("simple") == [TopicPartition("weather", 0)]
    assert driver.reload().offsets.partitions("simple") == [TopicPartition("weather", 0)]


def test_a_group_is_deleted_with_its_offsets_and_only_when_empty() -> None:
    driver = GroupDriver()
    driver.commit_offset(1)
    (member,) = driver.stable_group(1)
    assert driver.code(delete_group(driver)) is ErrorCode.NON_EMPTY_GROUP
    driver.leave((member, None))
    assert driver.code(delete_group(driver)) is ErrorCode.NONE
    assert driver.shard.groups == driver.shard.offsets.by_group == {}
    assert driver.reload().groups == driver.reload().offsets.by_group == {}
    assert driver.code(delete_group(driver)) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_deleted_group_starts_anew() -> None:
    driver = GroupDriver()
    (member,) = driver.stable_group(1)
    driver.leave((member, None))
    delete_group(driver)
    driver.stable_group(1)
    assert classic(driver.shard)[GROUP].generation == 1
    assert classic(driver.reload())[GROUP].generation == 1


def test_a_simple_consumers_group_is_known_while_it_has_offsets() -> None:
    driver = GroupDriver()
    driver.commit_offset(1)
    assert [tuple(listed) for listed in driver.shard.reads.listings()] == [(GROUP, "", "Empty", "classic")]
    assert driver.shard.reads.describe(GROUP).members == ()
    delete_offsets(driver, KEY)
    assert driver.shard.reads.listings() == []


# ---- expiry ----------------------------------------------------------------------------------------------------------


def test_offsets_without_membership_expire_after_their_last_commit() -> None:
    driver = driver_with_short_retention()
    driver.commit_offset(1)
    driver.advance(RETENTION_MS - CHECK_MS)
    driver.commit_offset(2, partition=1)
    driver.advance(CHECK_MS)
    assert driver.shard.offsets.partitions(GROUP) == [TopicPartition(TOPIC, 1)]
    driver.advance(RETENTION_MS)
    assert driver.shard.groups == driver.shard.offsets.by_group == {}
    assert driver.reload().groups == {}


def test_offsets_of_a_group_expire_counted_from_its_emptiness_and_the_group_with_them() -> None:
    driver = driver_with_short_retention()
    (member,) = driver.stable_group(1, session_ms=10 * RETENTION_MS)
    driver.commit_offset(1, member_id=member, generation=1)
    driver.advance(2 * RETENTION_MS)
    assert committed(driver) == 1
    driver.leave((member, None))
    driver.advance(RETENTION_MS - CHECK_MS)
    assert committed(driver) == 1
    driver.advance(2 * CHECK_MS)
    assert committed(driver) == -1
    assert GROUP not in driver.shard.groups
    assert driver.log[-1] == GroupMetadataRecord(GROUP, None)


def test_what_is_committed_for_a_group_that_is_long_empty_is_kept_as_long_as_any() -> None:
    """By an operator who resets offsets, or a consumer that assigns itself what a group once read."""
    driver = driver_with_short_retention()
    (member,) = driver.stable_group(1, session_ms=10 * RETENTION_MS)
    driver.commit_offset(1, member_id=member, generation=1)
    driver.leave((member, None))
    driver.advance(RETENTION_MS - 2 * CHECK_MS)
    driver.commit_offset(7)
    driver.advance(RETENTION_MS - CHECK_MS)
    assert committed(driver) == 7
    driver.advance(2 * CHECK_MS)
    assert committed(driver) == -1


def test_offsets_of_topics_no_longer_subscribed_expire_in_a_living_group() -> None:
    driver = driver_with_short_retention()
    protocols = (("range", subscription(TOPIC)),)
    (member,) = driver.stable_group(1, session_ms=10 * RETENTION_MS, protocols=protocols)
    driver.commit_offset(1, member_id=member, generation=1)
    driver.commit_offset(1, member_id=member, generation=1, topic="left")
    driver.advance(RETENTION_MS + CHECK_MS)
    assert driver.shard.offsets.partitions(GROUP) == [KEY]


def test_offsets_of_a_group_whose_subscription_is_unreadable_do_not_expire_while_it_lives() -> None:
    driver = driver_with_short_retention()
    (member,) = driver.stable_group(1, session_ms=10 * RETENTION_MS, protocols=(("range", b"?"),))
    driver.commit_offset(1, member_id=member, generation=1)
    driver.advance(3 * RETENTION_MS)
    assert committed(driver) == 1


def test_a_retention_of_its_own_rules_an_offset() -> None:
    driver = driver_with_short_retention()
    driver.commit_offset(1, retention_ms=5_000)
    driver.commit_offset(2, partition=1, retention_ms=10 * RETENTION_MS)
    driver.advance(5_000)
    assert driver.shard.offsets.partitions(GROUP) == [TopicPartition(TOPIC, 1)]
    driver.advance(3 * RETENTION_MS)
    assert committed(driver, TopicPartition(TOPIC, 1)) == 2


def test_an_offset_with_a_commit_on_its_way_does_not_expire() -> None:
    driver = driver_with_short_retention()
    driver.commit_offset(1)
    driver.advance(RETENTION_MS - CHECK_MS)
    driver.holds_commits = True
    driver.commit_offset(2)
    driver.advance(2 * CHECK_MS)
    driver.commit()
    assert committed(driver) == 2


def test_expiry_writes_bounded_batches_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_module, "EXPIRY_BATCH_RECORDS_MAX", 20)
    driver = driver_with_short_retention()
    for group in range(50):
        driver.commit_offset(1, group=f"g{group}")
    sizes = []

    class Watching(GroupDriver):
        def perform(self, result: CoordinatorResult) -> None:
            sizes.append(len(result.records))
            super().perform(result)

    driver.__class__ = Watching
    driver.advance(RETENTION_MS + CHECK_MS)
    assert [size for size in sizes if size] == [20, 20, 10]
    assert driver.shard.offsets.by_group == {}
    assert EXPIRY in driver.timers


def test_an_empty_group_that_never_committed_goes_too() -> None:
    driver = driver_with_short_retention()
    driver.stable_group(1)
    driver.advance(SESSION_MS + CHECK_MS)
    assert GROUP not in driver.shard.groups
    assert driver.log[-1] == GroupMetadataRecord(GROUP, None)
    assert driver.reload().groups == {}


def test_a_group_tombstone_before_its_offsets_leaves_a_simple_group() -> None:
    driver = GroupDriver()
    driver.stable_group(1)
    driver.commit_offset(5, group="x")
    offset = driver.log.pop()
    assert isinstance(offset, OffsetCommitRecord)
    driver.log += [offset._replace(group_id=GROUP), GroupMetadataRecord(GROUP, None)]
    shard = driver.reload()
    assert shard.offsets.fetch(GROUP, KEY).offset == 5
    assert shard.reads.describe(GROUP).state == "Empty"


@pytest.mark.parametrize("state_name", ["PreparingRebalance", "CompletingRebalance", "Stable"])
def test_a_description_shows_assignments_only_while_they_hold(state_name: str) -> None:
    driver = GroupDriver()
    (member,) = driver.stable_group(1)
    if state_name != "Stable":
        driver.join(version=3)
    if state_name == "CompletingRebalance":
        driver.join(member)
    described = driver.shard.reads.describe(GROUP)
    assert described.state == state_name
    shown = next(m for m in described.members if m.member_id == member)
    assert (shown.assignment, shown.metadata != b"", described.protocol_name) == (
        (b"0", True, "range") if state_name == "Stable" else (b"", False, "")
    )
