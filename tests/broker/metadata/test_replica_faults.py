"""The controller hears which replicas are faulty: the newest word, until it has answered, in bounded requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from barnabas_broker.metadata import replica_faults
from barnabas_broker.metadata.replica_faults import ReplicaFaultReports
from barnabas_quorum.controller.requests_partitions import PlacedReplica, ReplicaFaultReport
from barnabas_quorum.records import ReplicaFault
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Uuid

TOPIC, CORRUPT, NO_ROOM = Uuid(b"t" * 16), ReplicaFault.CORRUPT, ReplicaFault.NO_ROOM


class Channel:
    """A controller that fails as often as a test says, and may be held up in the middle of a request."""

    def __init__(self) -> None:
        self.asked: list[dict[int, ReplicaFault | None]] = []
        self.failures: list[Exception] = []
        self.refused: set[int] = set()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def alter_replica_faults(self, reports: Sequence[ReplicaFaultReport]) -> Sequence[PlacedReplica]:
        assert all(report.topic_id == TOPIC for report in reports)
        self.asked.append({report.partition_id: report.fault for report in reports})
        await self.may_answer.wait()
        if self.failures:
            raise self.failures.pop(0)
        gone = KafkaError.of(ErrorCode.UNKNOWN_TOPIC_ID, "it is deleted")
        return [
            PlacedReplica(
                topic_id=TOPIC, partition_id=r.partition_id, error=gone if r.partition_id in self.refused else None
            )
            for r in reports
        ]


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> Channel:
    monkeypatch.setattr(replica_faults, "RETRY_MS", 0)
    return Channel()


@asynccontextmanager
async def running(reports: ReplicaFaultReports) -> AsyncIterator[None]:
    task = asyncio.create_task(reports.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def turn() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_the_newest_word_is_reported_until_it_is_answered(channel: Channel) -> None:
    channel.failures = [KafkaError.of(ErrorCode.REQUEST_TIMED_OUT, "x"), OSError("x"), TimeoutError()]
    channel.refused = {1}
    reports = ReplicaFaultReports(channel.alter_replica_faults)
    reports.note(TOPIC, 0, CORRUPT)
    reports.note(TOPIC, 0, NO_ROOM)
    reports.note(TOPIC, 1, CORRUPT)
    async with running(reports):
        await turn()
    assert channel.asked == [{0: NO_ROOM, 1: CORRUPT}] * 4, "a refusal is an answer"


async def test_a_fault_that_clears_while_it_is_reported_is_reported_anew(channel: Channel) -> None:
    channel.may_answer.clear()
    reports = ReplicaFaultReports(channel.alter_replica_faults)
    reports.note(TOPIC, 0, NO_ROOM)
    async with running(reports):
        await turn()
        reports.note(TOPIC, 0, None)
        await turn()
        assert channel.asked == [{0: NO_ROOM}], "one request at a time"
        channel.may_answer.set()
        await turn()
    assert channel.asked == [{0: NO_ROOM}, {0: None}]


async def test_many_are_reported_in_bounded_requests(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_faults, "REPORTS_MAX", 4)
    reports = ReplicaFaultReports(channel.alter_replica_faults)
    for partition in range(10):
        reports.note(TOPIC, partition, NO_ROOM)
    async with running(reports):
        await turn()
    assert [len(request) for request in channel.asked] == [4, 4, 2]
