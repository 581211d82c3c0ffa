"""The group coordinator as a whole: routing, its topic, limits, failover."""

from __future__ import annotations

import asyncio

import pytest

from barnabas_coordination.errors import (
    CoordinatorNotAvailable,
    InvalidGroupId,
    InvalidSessionTimeout,
    MemberIdRequired,
    NotCoordinator,
    RebalanceInProgress,
)
from barnabas_coordination.group.messages import (
    LeavingMember,
    MemberRef,
    OffsetCommit,
    OffsetToCommit,
    SyncRequest,
)
from barnabas_coordination.group.service import OFFSETS_TOPIC
from barnabas_coordination.group.states import RebalanceReason
from barnabas_coordination.internal_topic import java_hash
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import ZERO_UUID, Epoch, Offset, TopicPartition
from tests.broker.coordinator.fake_log import FakeLog
from tests.broker.coordinator.group_fixture import (
    CONFIG,
    PARTITIONS,
    TOPICS,
    GroupBench,
    group_bench,
    join_request,
    ref,
)
from tests.support import virtual_loop
from tests.support.images import make_image

FLIGHTS = TopicPartition("flights", 0)
NO_OFFSETS_TOPIC = {name: partitions for name, partitions in TOPICS.items() if name != OFFSETS_TOPIC}


def commit(offset: int, member: MemberRef | None = None, group_id: str = "g") -> OffsetCommit:
    return OffsetCommit(
        member=member or MemberRef(group_id=group_id, member_id=""),
        offsets=(OffsetToCommit(FLIGHTS.topic, FLIGHTS.partition, Offset(offset), Epoch(0), "note"),),
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("flights-dashboard", -10719414),
        ("polygenelubricants", 0),  # Integer.MIN_VALUE in Java, 0 by Kafka's abs
        ("Aa", 2112),
        ("BB", 2112),
        ("console-consumer-12345", 158455506),
        ("grün", 3185949),
        ("😀", 1772899),  # two UTF-16 units
    ],
)
def test_the_hash_of_a_group_id_is_javas(text: str, value: int) -> None:
    assert java_hash(text) == value


@pytest.mark.parametrize("length", [0, 1, 2, 255, 256, 257, 511, 512, 513, 30_000])
def test_the_hash_of_a_long_name_is_that_of_its_units_one_by_one(length: int) -> None:
    text = "".join("aZ9-\u00fc\u20ac\U0001f600"[index * index % 7] for index in range(length))
    value = 0
    raw = text.encode("utf-16-be")
    for high, low in zip(raw[::2], raw[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) % (1 << 32)
    assert java_hash(text) == (value - (1 << 32) if value >> 31 else value)


def test_the_partition_of_a_group_follows_from_the_topics_size() -> None:
    bench = GroupBench()
    assert [bench.groups.partition_for(name) for name in ("a", "flights-dashboard", "polygenelubricants")] == [
        97 % PARTITIONS,
        10719414 % PARTITIONS,
        0,
    ]


# ---- the topic -------------------------------------------------------------------------------------------------------


@virtual_loop.on_virtual_time
async def test_the_topic_is_made_when_the_first_client_looks_and_only_once() -> None:
    async with group_bench(image=make_image(topics=NO_OFFSETS_TOPIC)) as bench:
        bench.controller.gate.clear()
        first = asyncio.ensure_future(bench.groups.find_coordinator("g"))
        await asyncio.sleep(0)
        with pytest.raises(CoordinatorNotAvailable):
            await bench.groups.find_coordinator("h")
        bench.controller.gate.set()
        with pytest.raises(CoordinatorNotAvailable):
            await first
        (asked,) = bench.controller.asked
        assert (asked.name, asked.partition_count, asked.replication_factor) == (OFFSETS_TOPIC, PARTITIONS, 3)
        assert asked.configs == {"cleanup.policy": "compact", "segment.bytes": "104857600"}
        bench.metadata.image = make_image(topics=TOPICS)
        assert await bench.groups.find_coordinator("g") == 1


@virtual_loop.on_virtual_time
async def test_a_topic_that_cannot_be_made_is_said_to_be_unavailable_with_the_reason() -> None:
    async with group_bench(image=make_image(topics=NO_OFFSETS_TOPIC)) as bench:
        bench.controller.error = KafkaError.of(ErrorCode.INVALID_REPLICATION_FACTOR, "1 broker for 3 replicas")
        with pytest.raises(CoordinatorNotAvailable, match="1 broker for 3 replicas"):
            await bench.groups.find_coordinator("g")
        bench.controller.unreachable = KafkaError.of(ErrorCode.REQUEST_TIMED_OUT, "nobody answers")
        with pytest.raises(CoordinatorNotAvailable, match="nobody answers"):
            await bench.groups.find_coordinator("g")
        assert len(bench.controller.asked) == 2


@virtual_loop.on_virtual_time
async def test_a_partition_without_leader_has_no_coordinator() -> None:
    image = make_image(topics={OFFSETS_TOPIC: [((1, 2), (1,), -1)] * PARTITIONS})
    async with group_bench(image=image) as bench:
        with pytest.raises(CoordinatorNotAvailable):
            await bench.groups.find_coordinator("g")


# ---- what needs no state ---------------------------------------------------------------------------------------------


@virtual_loop.on_virtual_time
async def test_membership_needs_a_group_id_and_a_session_within_the_bounds() -> None:
    async with group_bench() as bench:
        await bench.lead()
        with pytest.raises(InvalidGroupId):
            await bench.join("")
        for session_ms in (CONFIG.group_min_session_timeout_ms - 1, CONFIG.group_max_session_timeout_ms + 1):
            with pytest.raises(InvalidSessionTimeout):
                await bench.join(session_timeout_ms=session_ms)
        assert await bench.groups.commit_offsets(commit(1, group_id="")) == (ErrorCode.NONE,)


@virtual_loop.on_virtual_time
async def test_a_broker_that_does_not_lead_the_groups_partition_says_so() -> None:
    async with group_bench() as bench:
        for work in (bench.join(), bench.groups.heartbeat(MemberRef(group_id="g", member_id="m"))):
            with pytest.raises(NotCoordinator):
                await work
        with pytest.raises(NotCoordinator):
            bench.groups.fetch_offsets("g", [FLIGHTS])
        assert bench.groups.list_groups() == []


@virtual_loop.on_virtual_time
async def test_while_a_group_is_loaded_heartbeats_pass_and_syncs_start_over() -> None:
    async with group_bench() as bench:
        bench.groups.on_elected(bench.groups.partition_for("g"), Epoch(1))
        member = MemberRef(group_id="g", member_id="m", generation=1)
        await bench.groups.heartbeat(member)
        with pytest.raises(KafkaError) as raised:
            bench.groups.list_groups()
        assert raised.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        with pytest.raises(RebalanceInProgress):
            await bench.groups.sync_group(SyncRequest(member=member))


# ---- groups ----------------------------------------------------------------------------------------------------------


@virtual_loop.on_virtual_time
async def test_members_join_sync_commit_and_leave() -> None:
    async with group_bench() as bench:
        await bench.lead()
        one, two = await asyncio.gather(bench.join(), bench.join())
        leader, follower = (one, two) if one.members else (two, one)
        hands = {leader.member_id: b"0", follower.member_id: b"1"}
        synced = await asyncio.gather(bench.sync(follower), bench.sync(leader, assignments=hands))
        assert [outcome.assignment for outcome in synced] == [b"1", b"0"]
        assert await bench.groups.commit_offsets(commit(42, ref(leader))) == (ErrorCode.NONE,)
        assert bench.groups.fetch_offsets("g", [FLIGHTS, TopicPartition("flights", 1)]) == [
            (42, 0, "note", ZERO_UUID),
            (-1, -1, "", ZERO_UUID),
        ]
        assert [listed.state for listed in bench.groups.list_groups()] == ["Stable"]
        for group_id in ("g", "nobody"):
            with pytest.raises(KafkaError):
                await bench.groups.commit_offsets(
                    commit(43, MemberRef(group_id=group_id, member_id="stranger", generation=1))
                )
        (group,) = bench.groups.existing_groups()
        assert (group.stats.commits_done, group.stats.commits_failed) == (1, 1)
        assert group.stats.rebalances == {RebalanceReason.JOIN: 1}
        leaving = [LeavingMember(member, None) for member in hands]
        assert [o.error for o in await bench.groups.leave_group("g", leaving)] == [ErrorCode.NONE] * 2
        assert bench.groups.describe_group("g").state == "Empty"
        await bench.groups.delete_group("g")
        assert bench.groups.list_groups() == []


@virtual_loop.on_virtual_time
async def test_member_ids_tell_who_drew_them() -> None:
    async with group_bench() as bench:
        await bench.lead()
        with pytest.raises(MemberIdRequired) as raised:
            await bench.groups.join_group(join_request())
        assert raised.value.member_id == "client-1"
        assert (await bench.join("static", instance_id="inst")).member_id == "inst-2"


@virtual_loop.on_virtual_time
async def test_a_join_whose_caller_goes_away_frees_its_place() -> None:
    async with group_bench() as bench:
        await bench.lead()
        old = await bench.stable_member()
        new = asyncio.ensure_future(bench.join())
        await asyncio.sleep(1)
        again = asyncio.ensure_future(
            bench.groups.join_group(join_request(member_id=old.member_id, protocols=(("range", b"changed"),)))
        )
        third = asyncio.ensure_future(bench.join())
        await asyncio.sleep(0)
        new.cancel()
        third.cancel()
        await asyncio.gather(new, third, return_exceptions=True)
        assert (await again).generation >= 2
        members = bench.groups.describe_group("g").members
        assert old.member_id in {member.member_id for member in members}


@virtual_loop.on_virtual_time
async def test_offsets_of_deleted_topics_are_forgotten() -> None:
    async with group_bench() as bench:
        await bench.lead()
        await bench.groups.commit_offsets(commit(1))
        bench.groups.on_topics_deleted(["flights"])
        assert bench.groups.committed_partitions("g") == []


# ---- failover --------------------------------------------------------------------------------------------------------


@virtual_loop.on_virtual_time
async def test_another_broker_takes_over_with_offsets_members_and_generation() -> None:
    async with group_bench(FakeLog()) as first:
        await first.lead()
        groups = [f"group-{n}" for n in range(9)]
        members = {}
        for number, group_id in enumerate(groups):
            members[group_id] = await first.stable_member(group_id)
            member = ref(members[group_id], group_id)
            assert await first.groups.commit_offsets(commit(number, member)) == (ErrorCode.NONE,)
        assert len({first.groups.partition_for(group_id) for group_id in groups}) == PARTITIONS
        async with group_bench(first.log.successor()) as second:
            for partition in range(PARTITIONS):
                first.groups.on_resigned(partition)
            await second.lead(epoch=2)
            for number, group_id in enumerate(groups):
                member = ref(members[group_id], group_id)
                with pytest.raises(NotCoordinator):
                    await first.groups.heartbeat(member)
                await second.groups.heartbeat(member)
                assert second.groups.fetch_offsets(group_id, [FLIGHTS])[0].offset == number
                assert (await second.sync(members[group_id], group_id)).assignment == b"all"
                assert await second.groups.commit_offsets(commit(number + 100, member)) == (ErrorCode.NONE,)


@virtual_loop.on_virtual_time
async def test_members_that_do_not_find_the_new_coordinator_time_out_there() -> None:
    async with group_bench() as first:
        await first.lead()
        joined = await first.stable_member()
        async with group_bench(first.log.successor()) as second:
            await second.lead(epoch=2)
            await asyncio.sleep(9.9)
            assert second.groups.describe_group("g").state == "Stable"
            await asyncio.sleep(0.2)
            assert second.groups.describe_group("g").state == "Empty"
            with pytest.raises(KafkaError) as raised:
                await second.groups.heartbeat(ref(joined))
            assert raised.value.code is ErrorCode.UNKNOWN_MEMBER_ID


@virtual_loop.on_virtual_time
async def test_an_answered_commit_survives_and_an_unanswered_one_may_not() -> None:
    log = FakeLog()
    async with group_bench(log) as first:
        await first.lead()
        await first.groups.commit_offsets(commit(1))
        log.commits_at_once = False
        unanswered = asyncio.ensure_future(first.groups.commit_offsets(commit(2)))
        await asyncio.sleep(0)
        assert first.groups.fetch_offsets("g", [FLIGHTS])[0].offset == 1
        async with group_bench(log.successor()) as second:
            for partition in range(PARTITIONS):
                first.groups.on_resigned(partition)
            with pytest.raises(NotCoordinator):
                await unanswered
            await second.lead(epoch=2)
            assert second.groups.fetch_offsets("g", [FLIGHTS])[0].offset == 1


@virtual_loop.on_virtual_time
async def test_a_topic_that_was_given_more_partitions_is_reported_by_who_loads_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What a partition holds bears witness to the count it was written under."""
    log = FakeLog()
    names = [f"g{number}" for number in range(20)]
    async with group_bench(log) as bench:
        await bench.lead()
        for name in names:
            await bench.groups.commit_offsets(commit(5, group_id=name))
    async with group_bench(log.successor()) as bench:
        await bench.lead(epoch=2)
        assert bench.groups.misplaced_partitions == set()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    grown = make_image(topics=TOPICS | {OFFSETS_TOPIC: TOPICS[OFFSETS_TOPIC] * 2})
    async with group_bench(log.successor(), image=grown) as bench:
        await bench.lead(epoch=3)
        moved = [name for name in names if bench.groups.partition_for(name) >= PARTITIONS]
        assert bench.groups.misplaced_partitions == {bench.groups.partition_for(name) - PARTITIONS for name in moved}
        (reported,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert f"{OFFSETS_TOPIC} has {2 * PARTITIONS} partitions" in reported
        for partition in range(PARTITIONS):
            bench.groups.on_resigned(partition)
        assert bench.groups.misplaced_partitions == set()
