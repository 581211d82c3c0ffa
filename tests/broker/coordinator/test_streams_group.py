"""Streams groups: what a member is told, what is written, who is fenced; a failover at any point."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from barnabas_coordination.group.classic import ClassicGroup
from barnabas_coordination.group.consumer.group import ConsumerGroup
from barnabas_coordination.group.records import GroupMetadataRecord
from barnabas_coordination.group.shard import EXPIRY
from barnabas_coordination.group.streams.group import StreamsGroup, StreamsGroupState
from barnabas_coordination.group.streams.internal_topics import StatusCode
from barnabas_coordination.group.streams.records import Endpoint, MemberState
from barnabas_coordination.group.streams.tasks import Task, Tasks
from barnabas_coordination.group.streams.topology import InternalTopic, Subtopology, Topology
from barnabas_quorum.records import ConfigResourceType
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from tests.broker.coordinator.consumer_driver import INTERVAL_MS, TIMEOUT_MS, Consumer
from tests.broker.coordinator.group_driver import DELAY_MS, GROUP
from tests.broker.coordinator.streams_driver import COUNTS, INTERNAL, StreamsDriver, Worker
from tests.support.images import make_image

ALL = {Task(part, number) for part in "01" for number in (0, 1)}


def codes(outcome: Any) -> list[StatusCode]:
    return [status.code for status in outcome.statuses]


def refused(act: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        act()
    return caught.value.code


def test_the_first_member_is_told_which_topics_to_have_made_and_works_once_they_are_there() -> None:
    driver = StreamsDriver({"lines": 2})
    worker = Worker(driver, "a")
    told = worker.join()
    assert codes(told) == [StatusCode.MISSING_INTERNAL_TOPICS]
    assert told.to_create == (
        InternalTopic("app-counts", 2, 0, (("cleanup.policy", "compact"),)),
        InternalTopic("app-words", 2),
    )
    assert driver.streams.state is StreamsGroupState.NOT_READY
    driver.set_topics({"lines": 2} | INTERNAL)
    told = worker.beat()
    assert (codes(told), told.to_create) == ([], ())
    assert worker.tasks.active == ALL
    assert driver.streams.state is StreamsGroupState.STABLE
    assert driver.streams.value.validated_topology_epoch == 0


def test_the_second_member_gets_its_half_once_the_first_has_given_it_up() -> None:
    driver = StreamsDriver()
    one, other = Worker(driver, "a"), Worker(driver, "b")
    one.join()
    assert other.join().tasks == Tasks()
    assert driver.streams.state is StreamsGroupState.RECONCILING
    driver.settle_streams([one, other])
    assert one.tasks.active | other.tasks.active == ALL
    assert len(one.tasks.active) == len(other.tasks.active) == 2
    before = len(driver.log)
    one.beat(), other.beat()
    assert len(driver.log) == before, "who changes nothing writes nothing"


def test_standbys_are_of_tasks_with_stores_in_another_process() -> None:
    driver = StreamsDriver(group_streams_num_standby_replicas=1)
    workers = [Worker(driver, "a", process="p"), Worker(driver, "b", process="p"), Worker(driver, "c", process="q")]
    for worker in workers:
        worker.join()
    driver.settle_streams(workers)
    standby = {task: worker for worker in workers for task in worker.tasks.standby}
    active = {task: worker for worker in workers for task in worker.tasks.active}
    assert active.keys() == ALL
    assert standby.keys() == {Task("1", 0), Task("1", 1)}
    assert all(active[task].process != worker.process for task, worker in standby.items())
    workers[2].leave()
    driver.settle_streams(workers[:2])
    assert workers[0].tasks.active | workers[1].tasks.active == ALL
    assert not workers[0].tasks.standby | workers[1].tasks.standby, "no other process is left"


def test_who_takes_over_has_the_stores() -> None:
    driver = StreamsDriver(group_streams_num_standby_replicas=1)
    workers = [Worker(driver, name) for name in "abc"]
    for worker in workers:
        worker.join()
    driver.settle_streams(workers)
    gone = next(worker for worker in workers if any(task.subtopology == "1" for task in worker.tasks.active))
    left = [worker for worker in workers if worker is not gone]
    copied = {task: worker for worker in left for task in worker.tasks.standby}
    gone.leave()
    driver.settle_streams(left)
    for task in gone.tasks.active:
        if task.subtopology == "1":
            assert task in copied[task].tasks.active


def test_the_first_members_wait_for_more_and_get_nothing_meanwhile() -> None:
    driver = StreamsDriver(group_streams_initial_rebalance_delay_ms=3_000)
    one, other = Worker(driver, "a"), Worker(driver, "b")
    told = one.join()
    assert (told.epoch, told.tasks, codes(told)) == (1, Tasks(), [StatusCode.ASSIGNMENT_DELAYED])
    driver.advance(2_999)
    other.join()
    assert driver.streams.assignment_epoch == 1
    driver.advance(1)
    assert driver.streams.assignment_epoch == driver.streams.epoch == 3
    told = one.beat()
    assert (codes(told), len(one.tasks.active)) == ([], 2)


def test_the_interval_holds_the_next_targets_back_and_says_so() -> None:
    driver = StreamsDriver(group_streams_assignment_interval_ms=1_000)
    one, other = Worker(driver, "a"), Worker(driver, "b")
    one.join()
    assert codes(other.join()) == [StatusCode.ASSIGNMENT_DELAYED]
    assert driver.streams.state is StreamsGroupState.ASSIGNING
    driver.advance(1_000)
    assert codes(other.beat()) == []
    assert driver.streams.state is StreamsGroupState.RECONCILING


def test_a_source_that_is_missing_is_named_and_nobody_works() -> None:
    driver = StreamsDriver({})
    worker = Worker(driver, "a")
    told = worker.join()
    assert [tuple(status) for status in told.statuses] == [
        (StatusCode.MISSING_SOURCE_TOPICS, "Source topics lines are missing.")
    ]
    assert told.to_create == ()
    assert driver.streams.targets == {"a": Tasks()}
    driver.set_topics({"lines": 2} | INTERNAL)
    driver.settle_streams([worker])
    driver.set_topics(INTERNAL)
    assert codes(worker.beat()) == [StatusCode.MISSING_SOURCE_TOPICS]
    assert worker.tasks == Tasks(), "a source that went away takes its tasks along"


def test_an_older_topology_is_let_in_and_told_another_one_is_refused() -> None:
    newer = Topology(1, COUNTS.subtopologies)
    driver = StreamsDriver()
    Worker(driver, "a", topology=newer).join()
    told = Worker(driver, "b").join()
    assert codes(told)[:1] == [StatusCode.STALE_TOPOLOGY]
    for other in (Topology(2, COUNTS.subtopologies), Topology(1, COUNTS.subtopologies[:1])):
        assert refused(Worker(driver, "c", topology=other).join) is ErrorCode.INVALID_REQUEST
    mixed = Topology(1, tuple(reversed(COUNTS.subtopologies)))
    Worker(driver, "d", topology=mixed).join()


def test_one_member_ends_the_application_for_all() -> None:
    driver = StreamsDriver()
    one, other = Worker(driver, "a"), Worker(driver, "b")
    one.join(), other.join()
    assert StatusCode.SHUTDOWN_APPLICATION in codes(other.beat(shuts_down=True))
    assert StatusCode.SHUTDOWN_APPLICATION in codes(one.beat())
    other.leave()
    assert StatusCode.SHUTDOWN_APPLICATION in codes(one.beat())
    one.leave()
    assert codes(one.join()) == []


def test_a_silent_member_is_fenced_and_its_tasks_go_to_others() -> None:
    driver = StreamsDriver()
    one, other = Worker(driver, "a"), Worker(driver, "b")
    one.join(), other.join()
    driver.settle_streams([one, other])
    for _ in range(10):
        driver.advance(INTERVAL_MS)
        one.beat()
    assert set(driver.streams.members) == {"a"}
    driver.settle_streams([one])
    assert one.tasks.active == ALL
    assert refused(other.beat) is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_does_not_give_up_in_time_is_fenced() -> None:
    driver = StreamsDriver()
    one, other = Worker(driver, "a"), Worker(driver, "b")
    one.join(), other.join()
    one.beat()
    assert driver.streams.members["a"].state is MemberState.UNREVOKED_TASKS
    for _ in range(TIMEOUT_MS // INTERVAL_MS):
        driver.advance(INTERVAL_MS)
        if "a" in driver.streams.members:
            driver.pulse("a", one.epoch)
        other.beat()
    assert set(driver.streams.members) == {"b"}
    assert other.tasks.active == ALL


def test_epochs_are_checked_and_a_lost_answer_is_told_again() -> None:
    driver = StreamsDriver()
    worker = Worker(driver, "a")
    worker.join()
    assert refused(lambda: driver.answered(driver.pulse("a", 7))) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(lambda: driver.answered(driver.pulse("x", 7))) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(lambda: driver.answered(driver.pulse("x", 7, group="none"))) is ErrorCode.GROUP_ID_NOT_FOUND
    other = Worker(driver, "b")
    other.join()
    driver.settle_streams([worker, other])
    epoch, tasks = worker.epoch, worker.tasks
    other.leave()
    driver.answered(driver.pulse("a", epoch))  # its answer is lost
    again = driver.answered(driver.pulse("a", epoch, owned=tasks))
    assert again.tasks is not None and again.tasks.active == ALL
    unknown = Tasks(frozenset({Task("9", 0)}))
    assert refused(lambda: driver.answered(driver.pulse("a", again.epoch, owned=unknown))) is ErrorCode.INVALID_REQUEST


def test_a_static_member_returns_to_its_tasks_without_a_bump() -> None:
    driver = StreamsDriver()
    one = Worker(driver, "a", instance="i", process="p")
    other = Worker(driver, "b")
    one.join(), other.join()
    driver.settle_streams([one, other])
    epoch, tasks = driver.streams.epoch, one.tasks
    back = Worker(driver, "c", instance="i", process="p")
    assert refused(back.join) is ErrorCode.UNRELEASED_INSTANCE_ID
    one.leave_for_a_while()
    back.join()
    assert (back.tasks, driver.streams.epoch) == (tasks, epoch)
    assert refused(one.beat) is ErrorCode.FENCED_INSTANCE_ID
    assert set(driver.streams.members) == {"b", "c"}


def test_offsets_are_committed_by_the_epoch_since_which_the_member_has_the_task() -> None:
    driver = StreamsDriver({"lines": 2, "weather": 2} | INTERNAL)
    one, other = Worker(driver, "a"), Worker(driver, "b")
    one.join()
    first = one.epoch
    other.join()
    driver.settle_streams([one, other])
    kept = sorted(task.partition for task in one.tasks.active if task.subtopology == "0")
    lost = sorted({0, 1} - set(kept))
    assert one.epoch > first
    if kept:
        assert driver.commit_by_epoch("a", first, *kept, topic="lines") is ErrorCode.NONE
    if lost:
        assert driver.commit_by_epoch("a", first, *lost, topic="lines") is ErrorCode.STALE_MEMBER_EPOCH
    assert driver.commit_by_epoch("a", first, 0, topic="weather") is ErrorCode.STALE_MEMBER_EPOCH, "it does not read it"
    assert driver.commit_by_epoch("a", one.epoch, 0, topic="lines") is ErrorCode.NONE
    assert driver.commit_by_epoch("a", one.epoch + 1, 0, topic="lines") is ErrorCode.STALE_MEMBER_EPOCH


def test_offsets_are_noted_of_tasks_that_there_are() -> None:
    driver = StreamsDriver()
    worker = Worker(driver, "a")
    worker.join()
    worker.beat(offsets={Task("1", 0): 7, Task("1", 2): 7, Task("9", 0): 7, Task("1", -1): 7})
    worker.beat(offsets={Task("1", 1): 8}, end_offsets={Task("1", 1): 9})
    assert driver.streams.soft.offsets["a"] == ({Task("1", 0): 7, Task("1", 1): 8}, {Task("1", 1): 9})
    worker.leave()
    assert not driver.streams.soft.offsets


def test_endpoints_are_told_when_they_change() -> None:
    driver = StreamsDriver()
    one = Worker(driver, "a", endpoint=Endpoint("here", 80))
    other = Worker(driver, "b", endpoint=Endpoint("there", 81))
    (mine,) = one.join().endpoints or ()
    assert (mine.endpoint, mine.active) == (Endpoint("here", 80), {"app-words": (0, 1), "lines": (0, 1)})
    assert one.beat().endpoints is None
    other.join()
    driver.settle_streams([one, other])
    found = one.beat(endpoint_epoch=-1).endpoints
    assert found is not None
    assert [each.endpoint.host for each in found] == ["here", "there"]
    other.leave()
    assert len(one.beat().endpoints or ()) == 1


def test_a_member_without_the_tags_that_are_wanted_is_told() -> None:
    driver = StreamsDriver(group_streams_rack_aware_assignment_tags=("zone",))
    assert codes(Worker(driver, "a", tags=(("zone", "x"),)).join()) == []
    assert StatusCode.MISSING_CLIENT_TAGS in codes(Worker(driver, "b").join())


def test_a_changed_number_of_standbys_counts_with_the_next_heartbeat() -> None:
    driver = StreamsDriver()
    workers = [Worker(driver, "a"), Worker(driver, "b")]
    for worker in workers:
        worker.join()
    driver.settle_streams(workers)
    assert not any(worker.tasks.standby for worker in workers)
    driver.image = make_image(
        topics={name: [((1,), (1,), 1)] * count for name, count in driver.topics.items()},
        configs={(ConfigResourceType.GROUP, GROUP): {"streams.num.standby.replicas": "5"}},
    )
    driver.settle_streams(workers)
    assert sorted(task for worker in workers for task in worker.tasks.standby) == [Task("1", 0), Task("1", 1)]


def test_groups_of_other_protocols_are_left_alone_unless_they_are_empty() -> None:
    driver = StreamsDriver()
    consumer = Consumer(driver, "c", "lines")
    consumer.join()
    assert refused(Worker(driver, "a").join) is ErrorCode.GROUP_ID_NOT_FOUND
    consumer.leave()
    assert isinstance(driver.shard.groups[GROUP], ConsumerGroup)
    assert refused(Worker(driver, "a").join) is ErrorCode.GROUP_ID_NOT_FOUND, "only a classic group makes way"
    driver.outcome(driver.step(lambda ticket: driver.shard.delete_group(GROUP, ticket, now_ms=driver.now_ms)))
    worker = Worker(driver, "a")
    worker.join()
    assert refused(consumer.join) is ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.code(driver.join()) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    worker.leave()
    driver.commit_by_epoch("", -1, 0, topic="lines")
    driver.join()
    assert isinstance(driver.shard.groups[GROUP], ClassicGroup)
    assert driver.shard.offsets.partitions(GROUP)


def test_a_classic_group_makes_way_once_it_is_empty_and_its_offsets_stay() -> None:
    driver = StreamsDriver()
    joined = driver.join(version=3)
    driver.advance(DELAY_MS)
    member_id = driver.joined(joined).member_id
    assert refused(Worker(driver, "a").join) is ErrorCode.GROUP_ID_NOT_FOUND
    driver.sync(member_id, 1, {member_id: b"all"})
    driver.commit_by_epoch(member_id, 1, 0, topic="lines")
    driver.outcome(driver.leave((member_id, None)))
    driver.advance(DELAY_MS)
    before = len(driver.log)
    Worker(driver, "a").join()
    assert driver.log[before] == GroupMetadataRecord(GROUP, None)
    assert driver.shard.offsets.partitions(GROUP)
    assert isinstance(driver.reload().groups[GROUP], StreamsGroup)


def test_offsets_of_what_is_read_stay_and_an_empty_group_goes_with_its_last_offset() -> None:
    driver = StreamsDriver({"lines": 2, "weather": 1} | INTERNAL, offsets_retention_minutes=1)
    worker = Worker(driver, "a")
    worker.join()
    for topic in ("lines", "weather"):
        driver.commit_by_epoch("a", worker.epoch, 0, topic=topic)

    def expire() -> None:
        driver.advance(40_000)
        driver.perform(driver.shard.on_timer(EXPIRY, now_ms=driver.now_ms))

    expire()
    worker.beat()
    expire()
    assert [key.topic for key in driver.shard.offsets.partitions(GROUP)] == ["lines"], "nobody reads the weather"
    worker.leave()
    expire()
    assert GROUP not in driver.shard.groups
    assert not driver.reload().groups


def test_a_group_is_deleted_once_it_is_empty_and_leaves_nothing() -> None:
    driver = StreamsDriver()
    worker = Worker(driver, "a")
    worker.join()

    def delete() -> None:
        driver.outcome(driver.step(lambda ticket: driver.shard.delete_group(GROUP, ticket, now_ms=driver.now_ms)))

    assert refused(delete) is ErrorCode.NON_EMPTY_GROUP
    worker.leave()
    delete()
    assert GROUP not in driver.shard.groups
    assert not driver.reload().groups


def test_a_refused_append_leaves_the_group_as_it_was() -> None:
    driver = StreamsDriver(group_streams_initial_rebalance_delay_ms=3_000)
    driver.refuses = KafkaError.of(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    worker = Worker(driver, "a")
    assert refused(worker.join) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not driver.shard.groups
    driver.refuses = None
    worker.join()
    driver.settle_streams([worker])
    assert worker.tasks.active == ALL
    driver.refuses = KafkaError.of(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    driver.advance(60_000)
    assert "a" in driver.streams.members
    driver.refuses = None
    driver.advance(60_000)
    assert not driver.streams.members


@pytest.mark.parametrize("seed", range(12))
def test_whatever_members_do_the_laws_hold_and_the_living_come_to_rest(seed: int) -> None:
    random = Random(seed)
    driver = StreamsDriver(
        {"lines": 3, "app-words": 3, "app-counts": 3},
        group_streams_num_standby_replicas=random.choice((0, 1, 2)),
        group_streams_assignment_interval_ms=random.choice((0, 1_000)),
        group_streams_initial_rebalance_delay_ms=random.choice((0, 3_000)),
    )
    topology = Topology(
        0,
        (
            *COUNTS.subtopologies,
            Subtopology(subtopology_id="2", source_topics=("lines",), changelogs=()),
        ),
    )
    living: dict[str, Worker] = {}
    for number in range(60):
        act = random.choice(("join", "beat", "beat", "beat", "beat", "leave", "die", "lost", "failover", "wait"))
        if act == "join" and len(living) < 6:
            name = f"m{number}"
            living[name] = Worker(driver, name, process=f"p{random.randrange(3)}", topology=topology)
            living[name].join()
        elif act == "failover":
            driver.fail_over(loses_uncommitted=False)
            for group in driver.shard.groups.values():
                assert isinstance(group, StreamsGroup)
        elif act == "wait":
            driver.advance(random.choice((1, 1_000, 5_000)))
        elif living:
            name = random.choice(sorted(living))
            worker = living[name]
            try:
                if act == "beat":
                    worker.beat()
                elif act == "lost":
                    driver.pulse(name, worker.epoch)
                    worker.is_behind = True
                elif act == "leave":
                    living.pop(name).leave()
                else:
                    living.pop(name)
            except KafkaError:
                worker.join() if name in living else None
    for _ in range(30):
        driver.advance(4_000)
        for worker in living.values():
            try:
                worker.beat()
            except KafkaError:
                worker.join()
    if living:
        assert driver.streams.state is StreamsGroupState.STABLE
        assert set(driver.streams.members) == set(living)
        active = [task for worker in living.values() for task in worker.tasks.active]
        assert sorted(active) == [Task(part, number) for part in "012" for number in range(3)]
        for reloaded in (driver.reload().groups[GROUP], compacted(driver, random)):
            assert isinstance(reloaded, StreamsGroup)
            assert (reloaded.members, reloaded.targets, reloaded.value, reloaded.topology) == (
                driver.streams.members,
                driver.streams.targets,
                driver.streams.value,
                topology,
            )


def compacted(driver: StreamsDriver, random: Random) -> StreamsGroup:
    """The group as a log has it that was compacted up to some place, which may have lost tombstones before it."""
    encoded = [driver.shard.encode(record) for record in driver.log]
    place = random.randrange(len(encoded) + 1)
    last = dict(encoded[:place])
    head = [
        (key, value) for number, (key, value) in enumerate(encoded[:place]) if last[key] is value and value is not None
    ]
    shard = driver.new_shard()
    for key, value in [*head, *encoded[place:]]:
        record = shard.decode(key, value)
        assert record is not None
        shard.replay(record)
        shard.on_committed(record)
    group = shard.groups[GROUP]
    assert isinstance(group, StreamsGroup)
    return group
