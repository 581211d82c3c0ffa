"""The controller hears in which directory each replica is: the newest word, until it has answered, in bounded requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from barnabas_broker.metadata import placements
from barnabas_broker.metadata.placements import Placements
from barnabas_quorum.controller.requests_partitions import PlacedReplica, ReplicaPlacement
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Uuid

TOPIC, ONE, TWO = Uuid(b"t" * 16), Uuid(b"1" * 16), Uuid(b"2" * 16)


class Channel:
    """A controller that fails as often as it is told to, and may be held up in the middle of a request."""

    def __init__(self) -> None:
        self.asked: list[dict[int, Uuid]] = []
        self.failures: list[Exception] = []
        self.refused: set[int] = set()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def assign_replicas_to_directories(self, told: Sequence[ReplicaPlacement]) -> Sequence[PlacedReplica]:
        assert all(placement.topic_id == TOPIC for placement in told)
        self.asked.append({placement.partition_id: placement.directory_id for placement in told})
        await self.may_answer.wait()
        if self.failures:
            raise self.failures.pop(0)
        gone = KafkaError.of(ErrorCode.UNKNOWN_TOPIC_ID, "it is deleted")
        return [
            PlacedReplica(
                topic_id=TOPIC, partition_id=p.partition_id, error=gone if p.partition_id in self.refused else None
            )
            for p in told
        ]


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> Channel:
    monkeypatch.setattr(placements, "RETRY_MS", 0)
    return Channel()


@asynccontextmanager
async def running(told: Placements) -> AsyncIterator[None]:
    task = asyncio.create_task(told.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def turn() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_what_is_known_together_is_told_together_and_once(channel: Channel) -> None:
    told = Placements(channel.assign_replicas_to_directories)
    told.note(TOPIC, 0, ONE)
    told.note(TOPIC, 1, TWO)
    told.note(TOPIC, 0, TWO)
    async with running(told):
        await turn()
        assert channel.asked == [{0: TWO, 1: TWO}]
        told.note(TOPIC, 2, ONE)
        await turn()
    assert channel.asked[1:] == [{2: ONE}]


@pytest.mark.parametrize("failure", [KafkaError.of(ErrorCode.REQUEST_TIMED_OUT, "x"), OSError("x"), TimeoutError()])
async def test_what_nobody_answered_is_told_again(channel: Channel, failure: Any) -> None:
    channel.failures = [failure, failure]
    told = Placements(channel.assign_replicas_to_directories)
    told.note(TOPIC, 0, ONE)
    async with running(told):
        await turn()
    assert channel.asked == [{0: ONE}] * 3


async def test_a_replica_that_moved_while_it_was_told_is_told_anew(channel: Channel) -> None:
    channel.may_answer.clear()
    told = Placements(channel.assign_replicas_to_directories)
    told.note(TOPIC, 0, ONE)
    async with running(told):
        await turn()
        told.note(TOPIC, 0, TWO)
        await turn()
        assert channel.asked == [{0: ONE}], "one request at a time"
        channel.may_answer.set()
        await turn()
    assert channel.asked == [{0: ONE}, {0: TWO}]


async def test_a_refused_placement_is_not_told_again(channel: Channel) -> None:
    channel.refused = {1}
    told = Placements(channel.assign_replicas_to_directories)
    told.note(TOPIC, 0, ONE)
    told.note(TOPIC, 1, ONE)
    async with running(told):
        await turn()
    assert channel.asked == [{0: ONE, 1: ONE}]


async def test_many_are_told_in_bounded_requests(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placements, "PLACEMENTS_MAX", 4)
    told = Placements(channel.assign_replicas_to_directories)
    for partition in range(10):
        told.note(TOPIC, partition, ONE)
    async with running(told):
        await turn()
    assert [len(request) for request in channel.asked] == [4, 4, 2]
    assert sorted(partition for request in channel.asked for partition in request) == list(range(10))
