"""Proposals on their way: one batch in flight, dropped when the partition has moved on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from barnabas_replication.controller import AlterPartitionItem, AlterPartitionOutcome
from barnabas_replication.leader.alter_partition import IsrProposals
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from tests.support.replicas import PartitionBench, eventually


class Channel:
    """Answers when told to, with what it is told."""

    def __init__(self) -> None:
        self.sent: list[Sequence[AlterPartitionItem]] = []
        self.answers: asyncio.Queue[list[AlterPartitionOutcome] | Exception] = asyncio.Queue()

    async def alter_partition(self, requests: Sequence[AlterPartitionItem]) -> list[AlterPartitionOutcome]:
        self.sent.append(requests)
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer


@asynccontextmanager
async def proposals(tmp_path: Path) -> AsyncIterator[tuple[IsrProposals, Channel, PartitionBench]]:
    bench, channel = PartitionBench(tmp_path), Channel()
    sender = IsrProposals(channel, now_ms=lambda: 0)
    bench.host.propose_isr = sender.propose  # type: ignore[method-assign]
    task = asyncio.create_task(sender.run())
    yield sender, channel, bench
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    bench.close()


def accept(item: AlterPartitionItem) -> AlterPartitionOutcome:
    isr = tuple(member.broker_id for member in item.new_isr)
    return AlterPartitionOutcome(
        item.topic_id, item.partition, None, isr[0], item.leader_epoch, isr, item.partition_epoch + 1
    )


async def test_an_accepted_proposal_is_not_sent_again_and_becomes_the_isr_by_the_image(tmp_path: Path) -> None:
    async with proposals(tmp_path) as (_, channel, bench):
        bench.lead(isr=(1,))
        bench.fetch(2, 0)
        await eventually(lambda: len(channel.sent) == 1)
        item = channel.sent[0][0]
        channel.answers.put_nowait([accept(item)])
        await asyncio.sleep(0.1)
        assert (len(channel.sent), bench.partition.proposal, bench.partition.isr.committed) == (1, item, {1})
        bench.lead(isr=(1, 2), partition_epoch=2)
        assert (bench.partition.proposal, bench.partition.isr.committed) == (None, {1, 2})


async def test_what_was_not_answered_or_not_now_possible_is_sent_again(tmp_path: Path) -> None:
    async with proposals(tmp_path) as (_, channel, bench):
        bench.lead(isr=(1,))
        bench.fetch(2, 0)
        item = bench.partition.proposal
        assert item is not None
        channel.answers.put_nowait(ConnectionError("gone"))
        channel.answers.put_nowait(KafkaError.of(ErrorCode.NOT_CONTROLLER))
        refusal = KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR)
        channel.answers.put_nowait([AlterPartitionOutcome(item.topic_id, item.partition, refusal)])
        channel.answers.put_nowait([])
        channel.answers.put_nowait([accept(item)])
        await eventually(lambda: len(channel.sent) == 5)
        await asyncio.sleep(0.1)
        assert channel.sent == [[item]] * 5


async def test_a_proposal_that_the_image_has_overtaken_is_not_sent(tmp_path: Path) -> None:
    async with proposals(tmp_path) as (_, channel, bench):
        bench.lead(isr=(1,))
        bench.fetch(2, 0)
        bench.lead(isr=(1, 2), partition_epoch=2)
        await asyncio.sleep(0.01)
        assert channel.sent == []
        bench.fetch(3, 0)
        await eventually(lambda: len(channel.sent) == 1)
        assert channel.sent[0][0].partition_epoch == 2


async def test_a_proposal_overtaken_while_its_answer_fails_is_not_repeated(tmp_path: Path) -> None:
    async with proposals(tmp_path) as (_, channel, bench):
        bench.lead(isr=(1,))
        bench.fetch(2, 0)
        await eventually(lambda: len(channel.sent) == 1)
        bench.lead(isr=(1, 2), partition_epoch=2)
        bench.fetch(3, 0)
        channel.answers.put_nowait(ConnectionError("gone"))
        await eventually(lambda: len(channel.sent) == 2)
        assert [item.partition_epoch for item in channel.sent[1]] == [2]
