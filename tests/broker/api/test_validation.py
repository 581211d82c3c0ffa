"""validate.batches through the real listener, replica manager and logs: what is refused, with which words, and what it costs whom."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any

import psutil
import pytest

from barnabas_log.batch_inspection import BatchInspector
from barnabas_log.config import CleanupPolicy, FlushOnAcks, LogConfig, ValidateBatches
from barnabas_replication.leader.scrutiny import FIRST_REQUESTS
from barnabas_replication.manager import TIME_SEARCHES_MAX
from barnabas_replication.requests import AppendEntry, AppendOutcome, TransactionMarker
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import Epoch, TopicPartition
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas_wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_wire.records.batch import Record, build_batch, read_header, with_max_timestamp
from barnabas_wire.records.compression import CompressionType, compress
from tests.support.listener import RawClient
from tests.support.poison import POISON, TWO, batch, record
from tests.support.single_broker import SingleBroker, now_ms, single_broker
from tests.support.turns import longest_turn

TOPIC = "flights"
PAGE_CACHE = LogConfig(flush_on_acks=FlushOnAcks.PAGE_CACHE)
POISONED = batch(record(0) + record(0), 2)


def produce(*batches: bytes, acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=each) for index, each in enumerate(batches)]
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)])


def end_of(broker: SingleBroker, partition: int = 0) -> int:
    return next(
        each for each in broker.replicas.partitions() if each.topic_partition.partition == partition
    ).log.log_end_offset


@pytest.mark.parametrize("kind", POISON)
async def test_the_first_batches_of_a_connection_are_opened_by_default(tmp_path: Path, kind: str) -> None:
    async with single_broker(tmp_path, topics={TOPIC: 1}, log_config=PAGE_CACHE) as broker:
        client = await RawClient.connect(broker.server)
        answer = await client.call(produce(POISON[kind][0]), 9)
        (part,) = answer.responses[0].partition_responses
        assert part.error_code == ErrorCode.INVALID_RECORD
        assert end_of(broker) == 0


async def test_a_refusal_names_the_record_and_the_fault(tmp_path: Path) -> None:
    async with single_broker(tmp_path, topics={TOPIC: 3}, log_config=PAGE_CACHE) as broker:
        client = await RawClient.connect(broker.server)
        answer = await client.call(produce(batch(TWO, 2), POISONED, batch(TWO, 2)), 9)
        parts = answer.responses[0].partition_responses
        assert [part.error_code for part in parts] == [0, ErrorCode.INVALID_RECORD, 0]
        assert [part.index for part in parts] == [0, 1, 2]
        ((error,),) = [parts[1].record_errors]
        assert error.batch_index == 1
        assert "offset delta" in error.batch_index_error_message
        assert parts[1].error_message == error.batch_index_error_message
        assert (parts[1].log_start_offset, parts[1].base_offset) == (0, -1)


async def test_a_poisoned_connection_is_looked_at_for_good_and_others_are_not(tmp_path: Path) -> None:
    async with single_broker(tmp_path, topics={TOPIC: 1}, log_config=PAGE_CACHE) as broker:
        good, bad = await RawClient.connect(broker.server), await RawClient.connect(broker.server)
        for client in (good, bad):
            for _ in range(FIRST_REQUESTS - 1):
                await client.call(produce(batch(TWO, 2)), 9)
        await bad.call(produce(POISONED), 9)
        await good.call(produce(batch(TWO, 2)), 9)
        before = broker.replicas.stats.inspected_batches
        for client, count in ((good, 0), (bad, 5)):
            for _ in range(5):
                await client.call(produce(batch(TWO, 2)), 9)
            assert broker.replicas.stats.inspected_batches == before + count


async def test_pipelined_requests_keep_their_order_and_their_answers(tmp_path: Path) -> None:
    """An idempotent producer with five in flight, whose second one is poison: Kafka's codes, in order, and the repeat is known."""

    def numbered(sequence: int, payload: bytes = TWO) -> bytes:
        return batch(payload, 2, producer_id=7, producer_epoch=0, sequence=sequence)

    config = LogConfig(flush_on_acks=FlushOnAcks.PAGE_CACHE, validate_batches=ValidateBatches.ALL)
    async with single_broker(tmp_path, topics={TOPIC: 1}, log_config=config) as broker:
        client = await RawClient.connect(broker.server)
        wanted = [numbered(0), numbered(2, record(0) + record(0)), numbered(2), numbered(0), numbered(6)]
        frames = [client.frame(produce(each), 9) for each in wanted]
        await client.send(b"".join(data for _, data in frames))
        found = []
        for number, _ in frames:
            answer = client.decode(ApiKey.PRODUCE, 9, number, await client.read_frame())
            (part,) = answer.responses[0].partition_responses
            found.append((part.error_code, part.base_offset))
        assert found == [
            (0, 0),
            (ErrorCode.INVALID_RECORD, -1),
            (0, 2),
            (0, 0),
            (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
        ]


async def test_acks_0_with_poison_costs_the_connection(tmp_path: Path) -> None:
    async with single_broker(tmp_path, topics={TOPIC: 1}, log_config=PAGE_CACHE) as broker:
        client = await RawClient.connect(broker.server)
        await client.send(client.frame(produce(POISONED, acks=0), 9)[1])
        assert await client.is_closed_by_server()
        assert end_of(broker) == 0


@pytest.mark.parametrize("mode", list(ValidateBatches))
async def test_a_search_by_time_finds_what_a_client_without_greatest_times_wrote(
    tmp_path: Path, mode: ValidateBatches
) -> None:
    config = LogConfig(flush_on_acks=FlushOnAcks.PAGE_CACHE, validate_batches=mode)
    now = now_ms() - 60_000
    sound = build_batch([Record(i, now + 10 * i, b"k", b"v") for i in range(3)])
    wrong = with_max_timestamp(sound, read_header(sound), -1)
    async with single_broker(tmp_path, topics={TOPIC: 1}, log_config=config) as broker:
        client = await RawClient.connect(broker.server)
        for _ in range(FIRST_REQUESTS + 2):
            answer = await client.call(produce(wrong), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
        for asked_ms, offset in ((now, 0), (now + 5, 1), (now + 15, 2), (now + 21, -1)):
            request = ListOffsetsRequest(
                topics=[ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(timestamp=asked_ms)])]
            )
            listed = await client.call(request, 6)
            assert listed.topics[0].partitions[0].offset == offset


@pytest.mark.parametrize("what", ["marker", "leader epoch"])
async def test_a_batch_that_waited_belongs_to_where_it_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The marker of its transaction came meanwhile and the producer's next one has begun: it must not get this batch."""
    release, real = Event(), BatchInspector.inspected

    def slow(self: BatchInspector, data: bytes, *rest: Any, **named: Any) -> bytes:
        assert release.wait(10)
        return real(self, data, *rest, **named)

    monkeypatch.setattr(BatchInspector, "inspected", slow)
    config = LogConfig(flush_on_acks=FlushOnAcks.PAGE_CACHE, validate_batches=ValidateBatches.ALL)
    where = TopicPartition(TOPIC, 0)
    async with single_broker(tmp_path, topics={TOPIC: 1}, log_config=config) as broker:
        partition = broker.replicas.hosted.leader_partition(where)
        producers = partition.log.producers
        data = build_batch(
            [Record(0, now_ms(), b"k", b"v")], is_transactional=True, producer_id=7, producer_epoch=0, base_sequence=0
        )
        assert producers.confirm(7, producers.begin_verification(7, 0))
        answer: asyncio.Future[list[AppendOutcome]] = asyncio.get_running_loop().create_future()
        entries = [AppendEntry(TOPIC, 0, memoryview(data))]
        broker.replicas.appends.append_records(entries, required_acks=-1, timeout_ms=1_000, respond=answer.set_result)
        if what == "marker":
            marker = TransactionMarker(
                producer_id=7, epoch=0, coordinator_epoch=0, is_commit=False, transaction_version=1
            )
            await broker.replicas.appends.append_marker(where, marker, leader_epoch=Epoch(0), timeout_ms=1_000)
            assert producers.confirm(7, producers.begin_verification(7, 0)), "the next transaction"
        else:
            partition.leader_epoch = Epoch(1)
        end = partition.log.log_end_offset
        release.set()
        (outcome,) = await answer
        assert outcome.error is not None
        assert outcome.error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert outcome.error.is_retriable
        assert partition.log.log_end_offset == end


COMPACTED = LogConfig(
    flush_on_acks=FlushOnAcks.PAGE_CACHE,
    cleanup_policy=CleanupPolicy.COMPACT,
    validate_batches=ValidateBatches.HEADER,
)


@pytest.mark.attack("A2", "a few bytes that claim a million keys cost the loop nothing")
@pytest.mark.parametrize("kind", [CompressionType.ZSTD, CompressionType.GZIP])
async def test_a_few_bytes_that_are_a_million_keys_cost_the_loop_nothing(tmp_path: Path, kind: CompressionType) -> None:
    """6 KB took three seconds of it: the broker was fenced, and other producers waited for a minute."""
    count = 1_000_000
    bomb = batch(compress(kind, record(0) * count), count, codec=kind)
    async with single_broker(tmp_path, topics={TOPIC: 2}, log_config=COMPACTED) as broker:
        client = await RawClient.connect(broker.server)
        with longest_turn() as turn:
            answer = await client.call(produce(bomb, batch(TWO, 2)), 9)
        assert turn.cpu_s < 0.1
        assert [part.error_code for part in answer.responses[0].partition_responses] == [ErrorCode.INVALID_RECORD, 0]


async def test_a_topic_that_becomes_compacted_takes_no_batch_that_waited_unopened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, real = Event(), BatchInspector.inspected

    def slow(self: BatchInspector, data: bytes, *rest: Any, **named: Any) -> bytes:
        assert release.wait(10)
        return real(self, data, *rest, **named)

    monkeypatch.setattr(BatchInspector, "inspected", slow)
    async with single_broker(tmp_path, topics={TOPIC: 1}, log_config=PAGE_CACHE) as broker:
        partition = broker.replicas.hosted.leader_partition(TopicPartition(TOPIC, 0))
        client = await RawClient.connect(broker.server)
        keyless = produce(build_batch([Record(0, now_ms(), None, b"v")]))
        asked = asyncio.create_task(client.call(keyless, 9))
        while not broker.replicas.batch_work.is_needed:
            await asyncio.sleep(0)
        partition.log.update_config(COMPACTED)
        release.set()
        (part,) = (await asked).responses[0].partition_responses
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert end_of(broker) == 0


LIE_RECORDS = 3_000_000


@asynccontextmanager
async def broker_with_a_lie(directory: Path) -> AsyncIterator[tuple[SingleBroker, int]]:
    """A broker with a batch of a few bytes, and a time that its header claims and none of its millions of records has."""
    config = LogConfig(flush_on_acks=FlushOnAcks.PAGE_CACHE, validate_batches=ValidateBatches.HEADER)
    base_ms = now_ms() - 100_000
    zstd = CompressionType.ZSTD
    lie = batch(
        compress(zstd, record(0) * LIE_RECORDS), LIE_RECORDS, codec=zstd, base_ms=base_ms, max_ms=base_ms + 90_000
    )
    async with single_broker(directory, topics={TOPIC: 1}, log_config=config) as broker:
        answer = await (await RawClient.connect(broker.server)).call(produce(lie), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
        yield broker, base_ms + 50_000


def listing(timestamp_ms: int) -> ListOffsetsRequest:
    asked = ListOffsetsPartition(timestamp=timestamp_ms)
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=[asked])])


@pytest.mark.attack("A2", "a search by time opens a lying batch once, off the loop")
async def test_a_search_by_time_opens_a_lie_once_and_not_in_this_process(tmp_path: Path) -> None:
    """Each one took 10 s of CPU, under the lock that the data loop needs, for DESCRIBE alone."""
    async with broker_with_a_lie(tmp_path) as (broker, asked_ms):
        client = await RawClient.connect(broker.server)
        began_s = time.process_time()
        for _ in range(3):
            listed = await client.call(listing(asked_ms), 6)
            assert (listed.topics[0].partitions[0].error_code, listed.topics[0].partitions[0].offset) == (0, -1)
        assert time.process_time() - began_s < 1


@pytest.mark.attack("A2", "a search by time ends with its client")
async def test_a_search_ends_with_the_client_that_asked_for_it(tmp_path: Path) -> None:
    async with broker_with_a_lie(tmp_path) as (broker, asked_ms):
        client = await RawClient.connect(broker.server)
        await client.send(client.frame(listing(asked_ms), 6)[1])
        await asyncio.sleep(0.3)
        await client.close()
        searches = broker.replicas._time_searches
        async with asyncio.timeout(2):
            while searches._value < TIME_SEARCHES_MAX:
                await asyncio.sleep(0.02)
        children = psutil.Process().children()
        busy_s = sum(sum(each.cpu_times()[:2]) for each in (psutil.Process(), *children))
        await asyncio.sleep(0.5)
        after_s = sum(sum(each.cpu_times()[:2]) for each in (psutil.Process(), *children) if each.is_running())
        assert after_s - busy_s < 0.3, "nobody searches any more"
