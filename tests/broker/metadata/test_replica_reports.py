"""The controller hears where replicas are and which are faulty: the newest report, until it has answered, in bounded requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from barnabas_broker.metadata import replica_reports
from barnabas_broker.metadata.replica_reports import ReplicaReports, ReportQueue
from barnabas_quorum.controller.requests_partitions import PlacedReplica, ReplicaFaultReport, ReplicaPlacement
from barnabas_quorum.records import ReplicaFault
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Uuid
from tests.support.turns import turns

TOPIC, ONE, TWO = Uuid(b"t" * 16), Uuid(b"1" * 16), Uuid(b"2" * 16)


def placement(partition: int, directory_id: Uuid = ONE) -> ReplicaPlacement:
    return ReplicaPlacement(topic_id=TOPIC, partition_id=partition, directory_id=directory_id)


class Channel:
    """A controller that fails as often as a test says, and may be held up in the middle of a request."""

    def __init__(self) -> None:
        self.asked: list[dict[int, Uuid]] = []
        self.failures: list[Exception] = []
        self.refused: set[int] = set()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.reports = ReportQueue(self.send)

    async def send(self, reports: Sequence[ReplicaPlacement]) -> Sequence[PlacedReplica]:
        self.asked.append({report.partition_id: report.directory_id for report in reports})
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

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.reports.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> Channel:
    monkeypatch.setattr(replica_reports, "RETRY_MS", 0)
    return Channel()


async def test_what_is_known_together_is_sent_together_and_once(channel: Channel) -> None:
    for report in (placement(0), placement(1, TWO), placement(0, TWO)):
        channel.reports.add(report)
    async with channel.running():
        await turns()
        assert channel.asked == [{0: TWO, 1: TWO}]
        channel.reports.add(placement(2))
        await turns()
    assert channel.asked[1:] == [{2: ONE}]


@pytest.mark.parametrize("failure", [KafkaError.of(ErrorCode.REQUEST_TIMED_OUT, "x"), OSError("x"), TimeoutError()])
async def test_what_nobody_answered_is_sent_again_and_what_is_refused_is_not(channel: Channel, failure: Any) -> None:
    channel.failures, channel.refused = [failure, failure], {1}
    channel.reports.add(placement(0))
    channel.reports.add(placement(1))
    async with channel.running():
        await turns()
    assert channel.asked == [{0: ONE, 1: ONE}] * 3


async def test_what_changes_while_it_is_sent_replaces_what_is_under_way(channel: Channel) -> None:
    """Sent until a controller took it, a fault that was over put the last replica out of the ISR."""
    channel.may_answer.clear()
    channel.reports.add(placement(0))
    channel.reports.add(placement(1))
    async with channel.running():
        await turns()
        channel.reports.add(placement(2))
        channel.reports.add(placement(0))
        await turns()
        assert channel.asked == [{0: ONE, 1: ONE}], "one request at a time, if it says what is known still"
        channel.reports.add(placement(0, TWO))
        await turns()
        assert channel.asked == [{0: ONE, 1: ONE}, {0: TWO, 1: ONE, 2: ONE}]
        channel.may_answer.set()
        await turns()
    assert channel.asked == [{0: ONE, 1: ONE}, {0: TWO, 1: ONE, 2: ONE}]


async def test_what_changes_before_it_is_sent_again_is_sent_at_once(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_reports, "RETRY_MS", 3_600_000)
    channel.failures = [TimeoutError()]
    channel.reports.add(placement(0))
    async with channel.running():
        await turns()
        channel.reports.add(placement(0, TWO))
        await turns()
    assert channel.asked == [{0: ONE}, {0: TWO}]


async def test_what_is_said_of_a_replica_that_is_gone_is_not_sent(channel: Channel) -> None:
    """It would be taken for what the next one says, that came back in its place."""
    channel.may_answer.clear()
    for partition in range(3):
        channel.reports.add(placement(partition))
    channel.reports.withdraw(TOPIC, 0)
    async with channel.running():
        await turns()
        channel.reports.withdraw(TOPIC, 7)
        channel.reports.withdraw(TOPIC, 0)
        await turns()
        assert channel.asked == [{1: ONE, 2: ONE}]
        channel.reports.withdraw(TOPIC, 1)
        await turns()
        assert channel.asked == [{1: ONE, 2: ONE}, {2: ONE}]
        channel.reports.withdraw(TOPIC, 2)
        await turns()
        channel.may_answer.set()
        await turns()
        channel.reports.add(placement(1))
        await turns()
    assert channel.asked == [{1: ONE, 2: ONE}, {2: ONE}, {1: ONE}]


async def test_many_are_sent_in_bounded_requests(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_reports, "REPORTS_MAX", 4)
    for partition in range(10):
        channel.reports.add(placement(partition))
    async with channel.running():
        await turns()
    assert [len(request) for request in channel.asked] == [4, 4, 2]
    assert sorted(partition for request in channel.asked for partition in request) == list(range(10))


async def test_a_fault_that_cleared_is_reported_as_none() -> None:
    sent: list[tuple[int, ReplicaFault | None]] = []

    async def send_faults(reports: Sequence[ReplicaFaultReport]) -> Sequence[PlacedReplica]:
        sent.extend((report.partition_id, report.fault) for report in reports)
        return []

    async def send_placements(_: Sequence[ReplicaPlacement]) -> Sequence[PlacedReplica]:
        return []

    faults = ReportQueue(send_faults)
    failed: list[str] = []
    reports = ReplicaReports(
        placements=ReportQueue(send_placements), faults=faults, on_directory_failed=lambda path, _: failed.append(path)
    )
    reports.on_replica_fault(TOPIC, 0, ReplicaFault.NO_ROOM)
    reports.on_replica_fault(TOPIC, 0, None)
    reports.on_replica_fault(TOPIC, 1, ReplicaFault.CORRUPT)
    reports.on_replica_fault(TOPIC, 2, ReplicaFault.CORRUPT)
    reports.on_replica_gone(TOPIC, 2)
    reports.on_directory_failed("d", OSError())
    task = asyncio.create_task(faults.run())
    await turns()
    task.cancel()
    assert sent == [(0, None), (1, ReplicaFault.CORRUPT)] and failed == ["d"]
