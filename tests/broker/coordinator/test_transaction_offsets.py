"""Offsets of open transactions: unseen until the marker, unstable until it is committed, and the same after a fail-over."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from barnabas_coordination.errors import GroupIdNotFound, IllegalGeneration, UnknownMemberId
from barnabas_coordination.group.messages import MemberRef, OffsetCommit, OffsetToCommit
from barnabas_coordination.shard import Marker, Writer
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import Epoch, Offset, TopicPartition
from barnabas_wire.records.batch import TRANSACTIONAL_FLAG, read_header
from tests.broker.coordinator.fake_log import FakeLog
from tests.broker.coordinator.group_fixture import GroupBench, group_bench, ref
from tests.support import virtual_loop

KEYS = [TopicPartition("flights", 0), TopicPartition("flights", 1)]
FIRST, SECOND = Writer(7, 0), Writer(8, 3)


def commit(*offsets: int, member: MemberRef | None = None, group_id: str = "g") -> OffsetCommit:
    """One offset for each partition, from the first on; negative leaves the partition out."""
    return OffsetCommit(
        member=member or MemberRef(group_id=group_id, member_id=""),
        offsets=tuple(
            OffsetToCommit(key.topic, key.partition, Offset(offset), Epoch(0), "")
            for key, offset in zip(KEYS, offsets, strict=False)
            if offset >= 0
        ),
    )


def committed(bench: GroupBench, group_id: str = "g") -> list[int]:
    return [found.offset for found in bench.groups.fetch_offsets(group_id, KEYS)]


def unstable(bench: GroupBench) -> list[int]:
    return sorted(key.partition for key in bench.groups.unstable_partitions("g", KEYS))


async def end(bench: GroupBench, writer: Writer, *, is_commit: bool, epoch: int | None = None) -> None:
    marker = Marker(writer.producer_id, writer.epoch if epoch is None else epoch, 0, is_commit, 2)
    await bench.groups.end_transaction(bench.groups.partition_for("g"), marker)


async def after_fail_over(log: FakeLog) -> GroupBench:
    bench = GroupBench(log.successor())
    owner = asyncio.create_task(bench.groups.run())
    await bench.lead(epoch=2)
    owner.cancel()
    return bench


@pytest.mark.parametrize("is_commit", [True, False])
@virtual_loop.on_virtual_time
async def test_what_a_transaction_committed_counts_with_its_marker(is_commit: bool) -> None:
    async with group_bench() as bench:
        await bench.lead()
        await bench.groups.commit_offsets(commit(1))
        assert await bench.groups.commit_in_transaction(commit(5, 6), FIRST) == (ErrorCode.NONE, ErrorCode.NONE)
        header = read_header(bench.log.batches[bench.groups.partition_for("g")][-1])
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 0, -1)
        assert header.attributes & TRANSACTIONAL_FLAG
        assert committed(bench) == [1, -1]
        assert unstable(bench) == [0, 1]
        await end(bench, SECOND, is_commit=True)
        assert unstable(bench) == [0, 1], "another producer's marker"
        between = await after_fail_over(bench.log)
        assert (committed(between), unstable(between)) == ([1, -1], [0, 1])
        await end(bench, FIRST, is_commit=is_commit, epoch=1)
        expected: tuple[list[int], list[int]] = ([5, 6], []) if is_commit else ([1, -1], [])
        assert (committed(bench), unstable(bench)) == expected
        behind = await after_fail_over(bench.log)
        assert (committed(behind), unstable(behind)) == expected


@virtual_loop.on_virtual_time
async def test_a_marker_counts_once_it_is_below_the_high_watermark() -> None:
    log = FakeLog()
    async with group_bench(log) as bench:
        await bench.lead()
        await bench.groups.commit_in_transaction(commit(5), FIRST)
        log.commits_at_once = False
        ending = asyncio.ensure_future(end(bench, FIRST, is_commit=True))
        await asyncio.sleep(0.01)
        assert (committed(bench), unstable(bench)) == ([-1, -1], [0])
        log.commit(bench.groups.partition_for("g"))
        await ending
        assert (committed(bench), unstable(bench)) == ([5, -1], [])


@virtual_loop.on_virtual_time
async def test_of_a_partitions_offsets_the_one_written_last_wins_whenever_its_transaction_ends() -> None:
    async with group_bench() as bench:
        await bench.lead()
        await bench.groups.commit_in_transaction(commit(1), FIRST)
        await bench.groups.commit_in_transaction(commit(2), SECOND)
        await bench.groups.commit_in_transaction(commit(-1, 3), FIRST)
        await bench.groups.commit_offsets(commit(-1, 4))
        await end(bench, SECOND, is_commit=True)
        assert (committed(bench), unstable(bench)) == ([2, 4], [0, 1])
        await end(bench, FIRST, is_commit=True)
        assert (committed(bench), unstable(bench)) == ([2, 4], [])
        behind = await after_fail_over(bench.log)
        assert committed(behind) == [2, 4]


@virtual_loop.on_virtual_time
async def test_a_group_with_unstable_offsets_is_there_and_a_deleted_one_gets_none_of_them_back() -> None:
    async with group_bench() as bench:
        await bench.lead()
        await bench.groups.commit_in_transaction(commit(5), FIRST)
        assert [listed.group_id for listed in bench.groups.list_groups()] == ["g"]
        await bench.groups.delete_group("g")
        await end(bench, FIRST, is_commit=True)
        assert (committed(bench), bench.groups.list_groups()) == ([-1, -1], [])
        behind = await after_fail_over(bench.log)
        assert (committed(behind), behind.groups.list_groups()) == ([-1, -1], [])


@virtual_loop.on_virtual_time
async def test_an_aborted_transaction_leaves_no_group_behind() -> None:
    async with group_bench() as bench:
        await bench.lead()
        await bench.groups.commit_in_transaction(commit(5), FIRST)
        await end(bench, FIRST, is_commit=False)
        assert bench.groups.list_groups() == []


@virtual_loop.on_virtual_time
async def test_a_transaction_commits_for_a_member_of_the_current_generation_only() -> None:
    async with group_bench() as bench:
        await bench.lead()
        joined = await bench.stable_member()
        member = ref(joined)
        assert await bench.groups.commit_in_transaction(commit(5, member=member), FIRST) == (ErrorCode.NONE,)
        old = MemberRef(group_id="g", member_id=joined.member_id, generation=joined.generation - 1)
        with pytest.raises(IllegalGeneration):
            await bench.groups.commit_in_transaction(commit(5, member=old), FIRST)
        stranger = MemberRef(group_id="g", member_id="stranger", generation=joined.generation)
        with pytest.raises(UnknownMemberId):
            await bench.groups.commit_in_transaction(commit(5, member=stranger), FIRST)
        nobodys = commit(5, member=MemberRef(group_id="none", member_id="m", generation=1))
        with pytest.raises(GroupIdNotFound):
            await bench.groups.commit_in_transaction(nobodys, FIRST)
        with pytest.raises(IllegalGeneration):  # before TxnOffsetCommit v6
            await bench.groups.commit_in_transaction(replace(nobodys, knows_epochs=False), FIRST)
        # clients before KIP-447 do not say who they are
        assert await bench.groups.commit_in_transaction(commit(6), FIRST) == (ErrorCode.NONE,)
