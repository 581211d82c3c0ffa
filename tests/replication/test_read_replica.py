"""KIP-392: consumers read from followers, and leaders send them there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from barnabas_replication.config import ReplicationConfig
from barnabas_replication.errors import NotLeaderOrFollower, OffsetNotAvailable
from barnabas_replication.leader.read_replica import LEADER_SELECTOR, RACK_AWARE_SELECTOR, preferred_read_replica
from barnabas_replication.leader.replica_state import RemoteReplica
from barnabas_replication.requests import FetchOutcome, FetchPartitionSpec, FetchSpec
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, Offset
from tests.support.replicas import MemoryBroker, MiniCluster, PartitionBench, batch, eventually

ONE, TWO, THREE = map(BrokerId, (1, 2, 3))


def replica(broker_id: int, end: int, *, start: int = 0) -> RemoteReplica:
    return RemoteReplica(BrokerId(broker_id), Offset(end), Offset(start))


@pytest.mark.parametrize(
    ("racks", "replicas", "in_sync", "chosen"),
    [
        ({1: "a", 2: "b", 3: "c"}, [replica(2, 9), replica(3, 9)], {1, 2, 3}, 2),
        ({1: "a", 2: "b", 3: "b"}, [replica(2, 8), replica(3, 9)], {1, 2, 3}, 3),
        ({1: "a", 2: "b", 3: "b"}, [replica(2, 9), replica(3, 9)], {1, 2, 3}, 2),
        ({1: "b", 2: "b", 3: "c"}, [replica(2, 9), replica(3, 9)], {1, 2, 3}, None),
        ({1: "a", 2: "b", 3: "c"}, [replica(2, 9), replica(3, 9)], {1, 3}, None),
        ({1: "a", 3: "c"}, [replica(2, 9), replica(3, 9)], {1, 2, 3}, None),
        ({1: "a", 2: "b", 3: "c"}, [replica(2, 4), replica(3, 9)], {1, 2, 3}, None),
        ({1: "a", 2: "b", 3: "c"}, [replica(2, 9, start=6), replica(3, 9)], {1, 2, 3}, None),
        ({1: None, 2: None, 3: "c"}, [replica(2, 9), replica(3, 9)], {1, 2, 3}, None),
    ],
    ids=[
        "the one",
        "the furthest",
        "any of two",
        "leader",
        "not in sync",
        "fenced",
        "behind",
        "begins later",
        "no racks",
    ],
)
def test_a_follower_in_the_rack_is_named_if_it_holds_what_is_asked_for(
    racks: dict[int, str | None], replicas: list[RemoteReplica], in_sync: set[int], chosen: int | None
) -> None:
    found = preferred_read_replica(
        client_rack="b",
        leader_id=ONE,
        racks={BrokerId(key): value for key, value in racks.items()},
        replicas=replicas,
        in_sync=frozenset(map(BrokerId, in_sync)),
        fetch_offset=Offset(5),
    )
    assert found == chosen


@pytest.mark.parametrize("selector", ["", LEADER_SELECTOR, RACK_AWARE_SELECTOR])
def test_a_leader_names_a_follower_only_with_the_rack_aware_selector(tmp_path: Path, selector: str) -> None:
    bench = PartitionBench(tmp_path)
    bench.config = bench.partition.config = ReplicationConfig(replica_selector_class=selector)
    bench.host.racks = lambda brokers: {ONE: "a", TWO: "b", THREE: "c"}  # type: ignore[method-assign]
    bench.lead()
    bench.append(3)
    for follower in (2, 3):
        bench.fetch(follower, 3, last_epoch=1)
    outcomes = [bench.read(rack=rack) for rack in ("", "a", "b", "x")]
    wanted = TWO if selector == RACK_AWARE_SELECTOR else NO_BROKER
    assert [outcome.preferred_read_replica for outcome in outcomes] == [NO_BROKER, NO_BROKER, wanted, NO_BROKER]
    assert [bool(outcome.size_bytes) for outcome in outcomes] == [True, True, wanted == NO_BROKER, True]
    assert all(outcome.error is None for outcome in outcomes)
    bench.close()


def test_an_unknown_selector_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"replica\.selector\.class=my\.Own: use org"):
        ReplicationConfig(replica_selector_class="my.Own")


async def read(
    broker: MemoryBroker, offset: int, *, wait_ms: int = 0, may_read_follower: bool = True, epoch: int = -1
) -> FetchOutcome:
    assert broker.manager is not None
    answer: asyncio.Future[list[FetchOutcome]] = asyncio.get_running_loop().create_future()
    request = FetchSpec(max_wait_ms=wait_ms, may_read_follower=may_read_follower)
    spec = FetchPartitionSpec("t", fetch_offset=Offset(offset), current_leader_epoch=Epoch(epoch))
    broker.manager.fetches.fetch_one(request, spec, answer.set_result)
    (outcome,) = await answer
    for part in outcome.parts:
        part.file.release()
    return outcome


async def test_a_follower_serves_consumers_up_to_its_high_watermark(tmp_path: Path) -> None:
    async with MiniCluster(tmp_path).with_topic("t") as cluster:
        assert (await cluster[1].produce("t", batch(3))).error is None
        await eventually(lambda: cluster[2].partition("t").high_watermark == 3)
        whole = await read(cluster[2], 0)
        assert (whole.error, whole.high_watermark, whole.size_bytes) == (None, 3, len(batch(3)))
        assert isinstance((await read(cluster[2], 0, may_read_follower=False)).error, NotLeaderOrFollower)
        assert isinstance((await read(cluster[2], 4)).error, OffsetNotAvailable), "the leader may have it"
        parked = asyncio.create_task(read(cluster[2], 3, wait_ms=20_000))
        await asyncio.sleep(0)
        assert (await cluster[1].produce("t", batch(2))).error is None
        woken = await parked
        assert (woken.error, woken.high_watermark, woken.size_bytes) == (None, 5, len(batch(2)))


async def test_a_follower_holds_to_the_leader_epoch_that_the_consumer_knows(tmp_path: Path) -> None:
    async with MiniCluster(tmp_path).with_topic("t") as cluster:
        cluster.controller.change("t", leader=2)
        assert cluster[3].partition("t").leader_epoch == 1
        codes = []
        for epoch in (0, 1, 2):
            outcome = await read(cluster[3], 0, epoch=epoch)
            codes.append(None if outcome.error is None else outcome.error.code.name)
        assert codes == ["FENCED_LEADER_EPOCH", None, "UNKNOWN_LEADER_EPOCH"]
