"""Share groups: joining, share states, targets, fencing, failover, and what people ask of their offsets."""

from __future__ import annotations

from random import Random

import pytest

from barnabas_coordination.errors import NotCoordinator
from barnabas_coordination.group.led_records import JOINS, LEAVES
from barnabas_coordination.group.share.group import ShareGroup, ShareGroupState
from barnabas_coordination.group.share.records import (
    ShareGroupCurrentMemberAssignmentRecord,
    ShareGroupMemberMetadataRecord,
    ShareGroupMetadataRecord,
    ShareGroupStatePartitionMetadataRecord,
    ShareGroupTargetAssignmentMemberRecord,
    ShareGroupTargetAssignmentMetadataRecord,
)
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.records import ConfigResourceType
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_OFFSET
from tests.broker.coordinator.consumer_driver import INTERVAL_MS
from tests.broker.coordinator.group_driver import GROUP
from tests.broker.coordinator.share_driver import ShareDriver, Sharer

MEMBER, GROUP_OF = ShareGroupMemberMetadataRecord, ShareGroupMetadataRecord
TARGET, MEMBERS_TARGET = ShareGroupTargetAssignmentMetadataRecord, ShareGroupTargetAssignmentMemberRecord
HAS, STATES = ShareGroupCurrentMemberAssignmentRecord, ShareGroupStatePartitionMetadataRecord
LOST = KafkaError.of(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no share coordinator")


def kinds(driver: ShareDriver, since: int = 0) -> list[type]:
    """Of the records since a place in the log."""
    return [type(record) for record in driver.log[since:]]


def settled(driver: ShareDriver, *names: str, topics: tuple[str, ...] = ("flights",)) -> list[Sharer]:
    """Members that have joined, and have what they are to have."""
    sharers = [Sharer(driver, name, *topics) for name in names]
    for sharer in sharers:
        sharer.join()
    driver.settle_sharers(sharers)
    return sharers


def test_the_first_member_gets_partitions_once_their_states_are_begun() -> None:
    driver = ShareDriver({"flights": 2})
    driver.is_asking = False
    one = Sharer(driver, "m1", "flights")
    outcome = one.join()
    assert (outcome.epoch, outcome.assignment, outcome.heartbeat_interval_ms) == (2, {}, 5_000)
    assert kinds(driver) == [MEMBER, GROUP_OF, MEMBERS_TARGET, TARGET, HAS, STATES]
    before = len(driver.log)
    one.beat()
    assert len(driver.log) == before, "nothing changes while the states are being begun"
    driver.ask()
    assert kinds(driver, before) == [STATES]
    assert driver.persister.kept.keys() == {driver.key("flights", 0), driver.key("flights", 1)}
    assert {kept.state_epoch for kept in driver.persister.kept.values()} == {2}
    assert driver.start_of("flights", 0) == NO_OFFSET, "where share.auto.offset.reset says"
    outcome = one.beat()
    assert (outcome.epoch, one.of("flights")) == (3, [0, 1])
    assert kinds(driver, before + 1) == [GROUP_OF, MEMBERS_TARGET, TARGET, HAS]
    before = len(driver.log)
    assert one.beat().assignment is None
    assert len(driver.log) == before, "a heartbeat that changes nothing writes nothing"


def test_leaving_and_deleting_write_what_kafka_writes() -> None:
    driver = ShareDriver({"flights": 1})
    (one,) = settled(driver, "m1")
    before = len(driver.log)
    assert one.leave().epoch == LEAVES
    assert kinds(driver, before) == [HAS, MEMBERS_TARGET, MEMBER, GROUP_OF, TARGET]
    assert driver.log[-1].value == (4, 0) and driver.log[-2].value == (4, 0), "no hash, no time"
    assert driver.shared.state is ShareGroupState.EMPTY
    before = len(driver.log)
    assert driver.code(driver.delete()) is ErrorCode.NONE
    assert kinds(driver, before) == [STATES, TARGET, STATES, GROUP_OF]
    assert [record.value for record in driver.log[before + 1 :]] == [None] * 3
    assert not driver.shard.groups and not driver.persister.kept
    assert not driver.reload().groups


def test_partitions_go_to_as_many_members_as_it_takes() -> None:
    driver = ShareDriver({"flights": 2})
    sharers = settled(driver, "m1", "m2", "m3", "m4")
    assert sorted(sharer.of("flights") for sharer in sharers) == [[0], [0], [1], [1]]
    sharers[0].leave()
    sharers[1].leave()
    driver.settle_sharers(sharers[2:])
    assert sorted(sharer.of("flights") for sharer in sharers[2:]) == [[0], [1]]


def test_a_topic_that_grows_begins_its_new_partitions_at_their_start() -> None:
    driver = ShareDriver({"flights": 1})
    (one,) = settled(driver, "m1")
    driver.set_topics({"flights": 2})
    driver.settle_sharers([one])
    assert one.of("flights") == [0, 1]
    assert (driver.start_of("flights", 0), driver.start_of("flights", 1)) == (NO_OFFSET, 0)


def test_a_topic_that_is_deleted_leaves_the_group() -> None:
    driver = ShareDriver({"flights": 1, "weather": 1})
    (one,) = settled(driver, "m1", topics=("flights", "weather"))
    gone = driver.topic_id("weather")
    driver.set_topics({"flights": 1})
    driver.perform(driver.shard.delete_topics({"weather"}, now_ms=driver.now_ms))
    assert gone not in driver.shared.states.begun
    driver.settle_sharers([one])
    assert {topic_id for topic_id, _ in one.has} == {driver.topic_id("flights")}


def test_an_image_that_is_behind_makes_no_state_forgotten() -> None:
    """A broker that has just started may not know a topic yet: only a deletion that it saw counts."""
    driver = ShareDriver({"flights": 1, "weather": 1})
    settled(driver, "m1", topics=("flights", "weather"))
    states = driver.shared.states
    driver.image = MetadataImage.EMPTY
    driver.perform(driver.shard.delete_topics({"others"}, now_ms=driver.now_ms))
    driver.fail_over()
    driver.advance(1)
    assert driver.shared.states == states


def test_what_a_member_subscribes_to_changes_what_it_has() -> None:
    driver = ShareDriver({"flights": 1, "weather": 1})
    (one,) = settled(driver, "m1")
    outcome = one.beat(topic_names=frozenset({"weather"}))
    assert outcome.assignment == {}
    driver.settle_sharers([one])
    assert (one.of("flights"), one.of("weather")) == ([], [0])
    assert one.beat(topic_names=frozenset({"weather"})).assignment, "who names its topics is told what it has"


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (2, ErrorCode.NONE),
        (1, ErrorCode.FENCED_MEMBER_EPOCH),
        (9, ErrorCode.FENCED_MEMBER_EPOCH),
        (JOINS, ErrorCode.NONE),
    ],
)
def test_an_epoch_is_the_last_or_the_one_before(epoch: int, code: ErrorCode) -> None:
    driver = ShareDriver()
    (one,) = settled(driver, "m1")
    assert one.epoch == 3
    ticket = driver.share_beat("m1", epoch)
    assert driver.code(ticket) is code
    if code is ErrorCode.NONE:
        assert driver.told(ticket).assignment, "an answer may have been lost: it is told again"


def test_members_and_groups_that_are_not_there_are_refused() -> None:
    driver = ShareDriver(group_share_max_size=1)
    assert driver.code(driver.share_beat("m1", 3)) is ErrorCode.GROUP_ID_NOT_FOUND
    settled(driver, "m1")
    assert driver.code(driver.share_beat("m2", 3)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.code(driver.share_beat("m2", LEAVES)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert (
        driver.code(driver.share_beat("m2", JOINS, topic_names=frozenset({"flights"})))
        is ErrorCode.GROUP_MAX_SIZE_REACHED
    )


def test_a_silent_member_goes_and_a_heard_one_stays() -> None:
    driver = ShareDriver()
    one, two = settled(driver, "m1", "m2")
    for _ in range(9):
        driver.advance(INTERVAL_MS)
        one.beat()
    assert driver.shared.members.keys() == {"m1"}
    driver.advance(45_000)
    assert not driver.shared.members
    assert driver.code(driver.share_beat("m2", two.epoch)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_is_of_one_protocol_for_good() -> None:
    driver = ShareDriver()
    (one,) = settled(driver, "m1")
    one.leave()
    assert driver.code(driver.join(version=3)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.code(driver.beat("c", JOINS, topic_names=frozenset({"flights"}))) is ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.code(driver.commit_offset(1)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.code(driver.heartbeat("m1", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    driver.beat("c", JOINS, group="other", topic_names=frozenset({"flights"}), owned={})
    joins = driver.share_beat("m1", JOINS, group="other", topic_names=frozenset({"flights"}))
    assert driver.code(joins) is ErrorCode.GROUP_ID_NOT_FOUND
    assert {listed.group_type for listed in driver.shard.reads.listings()} == {"share", "consumer"}


def test_a_share_group_never_expires() -> None:
    driver = ShareDriver()
    (one,) = settled(driver, "m1")
    one.leave()
    driver.perform(driver.shard.on_loaded(now_ms=driver.now_ms))
    driver.advance(30 * 24 * 3_600_000)
    assert driver.shared.states.begun


def test_a_state_that_cannot_be_begun_is_asked_for_again_in_another_epoch() -> None:
    driver = ShareDriver({"flights": 2})
    driver.persister.fails = lambda call, key: LOST if key.partition == 1 else None
    one = Sharer(driver, "m1", "flights")
    one.join()
    driver.settle_sharers([one])
    assert one.of("flights") == [0], "what is begun is read meanwhile"
    asked = len(driver.persister.calls)
    driver.persister.fails = lambda call, key: None
    one.beat()
    assert len(driver.persister.calls) == asked, "not before its time"
    epoch = driver.shared.epoch
    driver.advance(30_000)
    one.join()
    driver.settle_sharers([one])
    assert one.of("flights") == [0, 1]
    assert driver.persister.kept[driver.key("flights", 1)].state_epoch > epoch


def test_what_a_former_coordinator_asked_cannot_wipe_what_members_acknowledged() -> None:
    """To begin a state wipes it: the late one is of a lower state epoch, which the share coordinator refuses."""
    driver = ShareDriver({"flights": 1})
    driver.is_asking = False
    one = Sharer(driver, "m1", "flights")
    one.join()
    late = driver.take()
    assert late is not None
    driver.fail_over()
    driver.ask()
    assert not driver.persister.kept, "not in the epoch in which the former coordinator may have asked"
    driver.is_asking = True
    driver.advance(1)
    driver.settle_sharers([one])
    assert one.of("flights") == [0]
    driver.is_asking = False
    answers = driver.finish(late)
    assert [error and error.code for error in answers.begun.values()] == [ErrorCode.FENCED_STATE_EPOCH]
    assert driver.shared.states.begun and not driver.shared.states.beginning


def test_failover_keeps_members_and_begins_what_was_being_begun() -> None:
    driver = ShareDriver({"flights": 2})
    driver.is_asking = False
    sharers = [Sharer(driver, name, "flights") for name in ("m1", "m2")]
    for sharer in sharers:
        sharer.join()
    driver.share_work.clear()
    driver.fail_over()
    assert driver.shared.members.keys() == {"m1", "m2"}
    driver.advance(1)
    driver.is_asking = True
    driver.ask()
    driver.settle_sharers(sharers)
    assert sorted(sharer.of("flights") for sharer in sharers) == [[0], [1]]
    driver.fail_over()
    driver.advance(46_000)
    assert not driver.shared.members, "every member got a fresh session, and no more"


def test_altered_offsets_are_where_the_group_begins() -> None:
    driver = ShareDriver({"flights": 2})
    (one,) = settled(driver, "m1")
    assert driver.code(driver.alter("flights", p0=7)) is ErrorCode.NON_EMPTY_GROUP
    one.leave()
    former = driver.persister.kept[driver.key("flights", 0)].state_epoch
    outcome = driver.outcome(driver.alter("flights", p0=7))
    assert outcome == {(driver.topic_id("flights"), 0): None}
    kept = driver.persister.kept[driver.key("flights", 0)]
    assert (kept.start_offset, kept.complete_count) == (7, 0)
    assert kept.state_epoch > former, "a leader that has the state from before is refused"
    second = kept.state_epoch
    driver.outcome(driver.alter("flights", p0=9))
    assert driver.persister.kept[driver.key("flights", 0)].state_epoch > second
    assert driver.shared.epoch == driver.shared.assignment_epoch
    one.join()
    driver.settle_sharers([one])
    assert one.of("flights") == [0, 1]
    assert driver.start_of("flights", 0) == 9


def test_altering_founds_a_group() -> None:
    driver = ShareDriver({"flights": 1})
    assert driver.outcome(driver.alter("flights", p0=3)) == {(driver.topic_id("flights"), 0): None}
    assert isinstance(driver.reload().groups[GROUP], ShareGroup)
    assert driver.start_of("flights", 0) == 3


def test_an_altered_start_survives_the_coordinator_that_was_asked() -> None:
    """Kafka's records do not say it: there the next coordinator would begin where share.auto.offset.reset says."""
    driver = ShareDriver({"flights": 1})
    (one,) = settled(driver, "m1")
    one.leave()
    driver.is_asking = False
    ticket = driver.alter("flights", p0=5)
    assert driver.is_open(ticket)
    driver.share_work.clear()
    driver.fail_over()
    assert isinstance(driver.answers[ticket], NotCoordinator)
    driver.is_asking = True
    driver.advance(1)
    assert driver.start_of("flights", 0) == 5 and driver.shared.states.begun


def test_who_alters_is_told_what_failed_and_it_is_tried_again() -> None:
    driver = ShareDriver({"flights": 2})
    driver.persister.fails = lambda call, key: LOST if key.partition == 1 else None
    outcome = driver.outcome(driver.alter("flights", p0=1, p1=2))
    assert [error and error.code for _, error in sorted(outcome.items())] == [None, LOST.code]
    driver.persister.fails = lambda call, key: None
    driver.advance(30_000)
    assert driver.start_of("flights", 1) == 2
    assert not driver.shared.states.beginning


def test_forgotten_topics_begin_anew() -> None:
    driver = ShareDriver({"flights": 1, "weather": 1})
    (one,) = settled(driver, "m1", topics=("flights", "weather"))
    assert driver.code(driver.forget("weather")) is ErrorCode.NON_EMPTY_GROUP
    one.leave()
    driver.outcome(driver.alter("weather", p0=4))
    assert driver.outcome(driver.forget("weather")) == {driver.topic_id("weather"): None}
    assert driver.key("weather", 0) not in driver.persister.kept
    assert not driver.shared.states.ending
    one.join()
    driver.settle_sharers([one])
    assert driver.start_of("weather", 0) == NO_OFFSET


def test_what_cannot_be_forgotten_stays_to_be_forgotten() -> None:
    driver = ShareDriver({"flights": 1})
    (one,) = settled(driver, "m1")
    one.leave()
    driver.persister.fails = lambda call, key: LOST
    outcome = driver.outcome(driver.forget("flights"))
    assert [error.code for error in outcome.values()] == [LOST.code]
    assert driver.code(driver.delete()) is LOST.code
    assert GROUP in driver.shard.groups
    driver.persister.fails = lambda call, key: None
    driver.fail_over()
    driver.advance(1)
    assert not driver.shared.states.ending and not driver.persister.kept
    assert driver.code(driver.delete()) is ErrorCode.NONE
    assert not driver.shard.groups


def test_a_group_that_is_joined_while_it_is_deleted_stays() -> None:
    driver = ShareDriver({"flights": 1})
    (one,) = settled(driver, "m1")
    one.leave()
    driver.is_asking = False
    ticket = driver.delete()
    one.join()
    driver.ask()
    assert driver.code(ticket) is ErrorCode.NON_EMPTY_GROUP
    driver.is_asking = True
    driver.settle_sharers([one])
    assert one.of("flights") == [0]


def test_who_waits_for_records_that_are_refused_is_sent_away() -> None:
    driver = ShareDriver({"flights": 1})
    driver.refuses = KafkaError.of(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")
    assert driver.code(driver.alter("flights", p0=1)) is ErrorCode.NOT_ENOUGH_REPLICAS
    driver.refuses = None
    (one,) = settled(driver, "m1")
    one.leave()
    driver.refuses = KafkaError.of(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")
    for ticket in (driver.alter("flights", p0=1), driver.forget("flights"), driver.delete()):
        assert driver.code(ticket) is ErrorCode.NOT_ENOUGH_REPLICAS
    driver.refuses = None
    assert driver.start_of("flights", 0) == NO_OFFSET
    assert not driver.open


def test_a_refused_end_of_a_session_is_tried_again_and_what_is_begun_is_noted_later() -> None:
    driver = ShareDriver({"flights": 1})
    driver.is_asking = False
    one = Sharer(driver, "m1", "flights")
    one.join()
    work = driver.take()
    assert work is not None
    driver.refuses = KafkaError.of(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")
    driver.finish(work)
    driver.advance(46_000)
    assert driver.shared.members
    driver.refuses = None
    driver.advance(1_000)
    assert not driver.shared.members
    driver.is_asking = True
    driver.advance(30_000)
    assert driver.shared.states.begun


def test_an_interval_holds_the_next_targets_back() -> None:
    driver = ShareDriver({"flights": 1}, group_share_assignment_interval_ms=15_000)
    one = Sharer(driver, "m1", "flights")
    one.join()
    for _ in range(2):
        driver.advance(INTERVAL_MS)
        assert one.beat().assignment is None
    driver.advance(INTERVAL_MS)
    one.beat()
    assert one.of("flights") == [0]


def test_a_large_group_gets_its_targets_in_slices() -> None:
    driver = ShareDriver({"flights": 4_100})
    one, two = Sharer(driver, "m1", "flights"), Sharer(driver, "m2", "flights")
    one.join()
    two.join()
    one.beat()
    assert driver.shared.soft.target_job is not None
    driver.settle_sharers([one, two])
    assert len(one.has) == len(two.has) == 2_050 and not one.has & two.has


def test_a_group_has_its_own_settings() -> None:
    driver = ShareDriver()
    delta = {"share.heartbeat.interval.ms": "6000", "share.session.timeout.ms": "50000"}
    from tests.broker.node.test_topic_settings import image_of

    given = image_of(*((ConfigResourceType.GROUP, GROUP, key, value) for key, value in delta.items()))
    driver.image = given
    assert Sharer(driver, "m1", "flights").join().heartbeat_interval_ms == 6_000
    driver.advance(49_000)
    assert driver.shared.members
    driver.advance(2_000)
    assert not driver.shared.members


@pytest.mark.parametrize("seed", range(30))
def test_a_random_walk_keeps_the_laws(seed: int) -> None:
    """Members come, go and fall silent, topics grow, coordinators move and share coordinators fail; in the end all is read."""
    random = Random(seed)
    driver = ShareDriver({"flights": 2, "weather": 1})
    sharers = [Sharer(driver, f"m{i}", "flights") for i in range(4)]
    for _ in range(120):
        sharer = random.choice(sharers)
        match random.randrange(9):
            case 0 | 1:
                sharer.join(*random.sample(["flights", "weather"], random.randint(1, 2)))
            case 2:
                driver.share_beat(sharer.member_id, LEAVES)
            case 3:
                driver.advance(random.choice((1, INTERVAL_MS, 46_000)))
            case 4:
                driver.fail_over()
            case 5:
                driver.set_topics({**driver.topics, "flights": driver.topics["flights"] + 1})
            case 6:
                driver.persister.fails = lambda call, key: LOST if random.random() < 0.3 else None
            case 7:
                driver.is_asking = random.random() < 0.7
            case _:
                ticket = driver.share_beat(sharer.member_id, sharer.epoch)
                if driver.code(ticket) is ErrorCode.NONE:
                    sharer.epoch = driver.told(ticket).epoch
        assert driver.reload().groups.keys() == driver.shard.groups.keys()
    driver.persister.fails = lambda call, key: None
    driver.is_asking = True
    driver.advance(46_000)
    for sharer in sharers[:3]:
        sharer.join("flights", "weather")
    driver.advance(30_000)
    for sharer in sharers[:3]:
        sharer.join()
    driver.settle_sharers(sharers[:3])
    has = set().union(*(sharer.has for sharer in sharers[:3]))
    assert len(has) == sum(driver.topics.values())
    group = driver.shared
    again = driver.reload().groups[GROUP]
    assert isinstance(again, ShareGroup)
    for attribute in ("value", "assignment_epoch", "members", "targets", "states", "topic_counts"):
        assert getattr(again, attribute) == getattr(group, attribute), attribute
