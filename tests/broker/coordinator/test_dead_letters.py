"""Dead letters: where they may go, what their records say, and that none is lost or hidden when something stands in the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from barnabas_coordination.share import dead_letters
from barnabas_coordination.share.dead_letters import TOPIC_ENABLE_KEY, DeadLetters, copied, name_refusal, sealed
from barnabas_coordination.share.letters import EXHAUSTED, REJECTED, DeadLetter, DeadLettersFailed
from barnabas_coordination.share_group_config import ShareGroupConfig
from barnabas_coordination.share_settings import ShareSettings
from barnabas_log.config import FlushOnAcks, LogConfig
from barnabas_quorum.controller.requests import CreatedTopic, CreateTopics, CreateTopicsReply
from barnabas_quorum.image.configs import ConfigResource
from barnabas_quorum.records import ConfigRecord, ConfigResourceType
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Offset
from barnabas_wire.kafka.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas_wire.records.batch import Record, build_batch, iterate_batches, iterate_records
from barnabas_wire.records.compression import CompressionType
from barnabas_wire.records.crc32c import crc32c
from tests.support.listener import LISTENER
from tests.support.replicas import MiniCluster, topic_id_of
from tests.support.single_broker import single_broker

NOW_MS = 1_700_000_000_000
ORDERS = "orders"
DEAD = "dlq.orders"
CREATING = ShareGroupConfig(errors_deadletterqueue_auto_create_topics_enable=True)
SETTINGS = ShareSettings(dead_letter_topic=DEAD)
COPYING = replace(SETTINGS, copies_dead_records=True)
CONFIG = LogConfig(flush_on_acks=FlushOnAcks.PAGE_CACHE)


def letter(offset: int, *, partition: int = 0, cause: str = REJECTED, deliveries: int = 2) -> DeadLetter:
    return DeadLetter("workers", topic_id_of(ORDERS), ORDERS, partition, Offset(offset), deliveries, cause)


class ReachableBrokers:
    """The other brokers of a MiniCluster, as those that lead dead-letter topics; it counts requests and fails some."""

    def __init__(self, cluster: MiniCluster) -> None:
        self.cluster = cluster
        self.requests: list[tuple[int, ProduceRequest]] = []
        self.failures: list[Exception] = []
        """Raised one by one, before the append; with is_lost after it."""
        self.loses_answers = False

    async def call(self, broker_id: BrokerId, request: Any) -> Any:
        self.requests.append((broker_id, request))
        if self.failures and not self.loses_answers:
            raise self.failures.pop(0)
        topic = request.topic_data[0]
        produced = topic.partition_data[0]
        outcome = await self.cluster[broker_id].produce(topic.name, bytes(produced.records), partition=produced.index)
        if self.failures:
            raise self.failures.pop(0)
        code = ErrorCode.NONE if outcome.error is None else outcome.error.code
        return ProduceResponse(
            responses=[
                TopicProduceResponse(topic.name, topic.topic_id, [PartitionProduceResponse(produced.index, code)])
            ]
        )


class Controller:
    """Makes topics in a MiniCluster."""

    def __init__(self, cluster: MiniCluster) -> None:
        self.cluster = cluster
        self.asked: list[CreateTopics] = []
        self.error: KafkaError | None = None

    async def ask(self, request: Any, **_: Any) -> Any:
        self.asked.append(request)
        (wanted,) = request.topics
        if self.error is None:
            self.cluster.controller.create(wanted.name, partitions=wanted.partition_count, replicas=(1,))
            configure(self.cluster, wanted.name, **wanted.configs)
        return CreateTopicsReply(topics=(CreatedTopic(name=wanted.name, error=self.error),))


def configure(cluster: MiniCluster, topic: str, **configs: str) -> None:
    cluster.controller.commit(
        *(
            ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name=topic, key=key, value=value)
            for key, value in configs.items()
        )
    )


class Stage:
    """Broker 1 leads the source; who leads the dead letters a test says."""

    def __init__(self, cluster: MiniCluster, *, config: ShareGroupConfig, log_config: LogConfig) -> None:
        self.cluster = cluster
        self.brokers = ReachableBrokers(cluster)
        self.controller = Controller(cluster)
        manager = cluster[1].manager
        assert manager is not None
        self.letters = DeadLetters(
            config=config,
            partition_count=3,
            replication_factor=1,
            log_config=lambda topic, image: log_config,
            metadata=cluster.controller,
            controller=self.controller,
            brokers=self.brokers,
            replicas=manager,
            disk=cluster[1].disk,
            clock_ms=lambda: NOW_MS,
        )

    def create(self, *, partitions: int = 1, leader: int = 1, allows: str = "true") -> None:
        self.cluster.controller.create(DEAD, partitions=partitions, leader=leader, replicas=(leader,))
        configure(self.cluster, DEAD, **{TOPIC_ENABLE_KEY: allows})

    def records(self, partition: int = 0, *, broker: int = 1) -> list[Record]:
        data = self.cluster[broker].bytes_of(DEAD, partition)
        return [
            record
            for position, header in iterate_batches(data)
            for record in iterate_records(data[position : position + header.size_bytes])
        ]

    def offsets(self, partition: int = 0, *, broker: int = 1) -> list[int]:
        """Of the records that lie there, those that they stand for."""
        return [
            int(dict(record.headers)["__dlq.errors.offset"] or b"-1")
            for record in self.records(partition, broker=broker)
        ]


@asynccontextmanager
async def staged(
    directory: Path, *, brokers: int = 1, config: ShareGroupConfig | None = None, log_config: LogConfig = CONFIG
) -> AsyncIterator[Stage]:
    async with MiniCluster(directory, brokers=brokers, log_config=CONFIG) as cluster:
        cluster.controller.create(ORDERS, partitions=5, replicas=(1,))
        yield Stage(cluster, config=config or ShareGroupConfig(), log_config=log_config)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "RETRY_S", 0.0)


async def test_a_letter_says_where_it_came_from_and_why_and_no_more(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.create()
        await stage.letters.write(SETTINGS, [letter(7), letter(9, cause=EXHAUSTED, deliveries=5)])
        first, second = stage.records()
        assert (first.key, first.value, first.timestamp_ms) == (None, None, NOW_MS)
        assert first.headers == (
            ("__dlq.errors.topic", b"orders"),
            ("__dlq.errors.partition", b"0"),
            ("__dlq.errors.offset", b"7"),
            ("__dlq.errors.group", b"workers"),
            ("__dlq.errors.delivery.count", b"2"),
            ("__dlq.errors.message", b"Offset rejected by client."),
        )
        assert dict(second.headers)["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."
        assert dict(second.headers)["__dlq.errors.delivery.count"] == b"5"
        assert stage.letters.stats.written == 2
        assert stage.brokers.requests == [], "its own topic needs no socket"


async def test_letters_go_to_the_partition_of_their_source_modulo(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.create(partitions=2)
        await stage.letters.write(SETTINGS, [letter(1, partition=number) for number in (4, 3, 2, 1, 0)])
        by_partition = [
            sorted(int(dict(record.headers)["__dlq.errors.partition"] or b"") for record in stage.records(number))
            for number in (0, 1)
        ]
        assert by_partition == [[0, 2, 4], [1, 3]]


async def test_the_leader_of_the_topic_gets_a_produce_request_with_all_acks(tmp_path: Path) -> None:
    async with staged(tmp_path, brokers=2) as stage:
        stage.create(leader=2)
        await stage.letters.write(SETTINGS, [letter(number) for number in range(3)])
        assert stage.offsets(broker=2) == [0, 1, 2]
        ((broker_id, request),) = stage.brokers.requests
        assert (broker_id, request.acks, request.timeout_ms) == (2, -1, 30_000)
        assert request.transactional_id is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "names no topic"),
        ("__orders", "begin with __"),
        ("orders", "begin with 'dlq.'"),
        ("dlq.x", None),
        ("dlq.", None),
    ],
)
def test_a_name_has_the_prefix_and_is_none_of_the_systems(name: str, says: str | None) -> None:
    refusal = name_refusal(name, prefix="dlq.")
    assert refusal is None if says is None else refusal is not None and says in refusal
    assert name_refusal("anything", prefix="") is None
    assert name_refusal("__anything", prefix="") is not None


@pytest.mark.parametrize("allows", ["false", "TRUE-ish", ""])
async def test_a_topic_that_does_not_allow_it_gets_none(tmp_path: Path, allows: str) -> None:
    async with staged(tmp_path) as stage:
        stage.create(allows=allows)
        with pytest.raises(DeadLettersFailed, match=TOPIC_ENABLE_KEY) as failed:
            await stage.letters.write(SETTINGS, [letter(1), letter(2)])
        assert failed.value.code is ErrorCode.INVALID_CONFIG
        assert [each.offset for each in failed.value.unwritten] == [1, 2]
        assert (stage.letters.stats.failed, stage.letters.stats.written) == (2, 0)
        assert stage.records() == []


async def test_a_topic_that_is_missing_is_made_only_where_brokers_may(tmp_path: Path) -> None:
    async with staged(tmp_path / "no") as stage:
        with pytest.raises(DeadLettersFailed, match=r"auto\.create") as failed:
            await stage.letters.write(SETTINGS, [letter(1)])
        assert failed.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert stage.controller.asked == []
    async with staged(tmp_path / "yes", config=CREATING) as stage:
        await stage.letters.write(SETTINGS, [letter(1, partition=1)])
        await stage.letters.write(SETTINGS, [letter(2, partition=1)])
        assert stage.offsets(1) == [1, 2]
        ((wanted,),) = (request.topics for request in stage.controller.asked)
        assert (wanted.partition_count, wanted.replication_factor) == (3, 1)
        assert wanted.configs == {TOPIC_ENABLE_KEY: "true", "message.timestamp.type": "CreateTime"}
        assert stage.letters.stats.topics_created == 1


async def test_a_topic_that_the_controller_refuses_says_why(tmp_path: Path) -> None:
    async with staged(tmp_path, config=CREATING) as stage:
        stage.controller.error = KafkaError.of(ErrorCode.POLICY_VIOLATION, "five brokers are missing")
        with pytest.raises(DeadLettersFailed, match="five brokers") as failed:
            await stage.letters.write(SETTINGS, [letter(1)])
        assert failed.value.code is ErrorCode.POLICY_VIOLATION


async def test_who_comes_a_moment_later_with_the_same_topic_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(tmp_path, config=CREATING) as stage:

        async def made_by_another(request: Any, **_: Any) -> Any:
            asyncio.get_running_loop().call_later(0.02, stage.create)
            error = KafkaError.of(ErrorCode.TOPIC_ALREADY_EXISTS)
            return CreateTopicsReply(topics=(CreatedTopic(name=DEAD, error=error),))

        stage.controller.ask = made_by_another  # type: ignore[method-assign]
        monkeypatch.setattr(dead_letters, "RETRY_S", 0.05)
        await stage.letters.write(SETTINGS, [letter(1)])
        assert stage.offsets() == [1]


# ---- failures --------------------------------------------------------------------------------------------------------


async def test_what_passes_is_tried_again_and_written_once(tmp_path: Path) -> None:
    async with staged(tmp_path, brokers=2) as stage:
        stage.create(leader=2)
        stage.brokers.failures = [KafkaError.of(ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 4
        await stage.letters.write(SETTINGS, [letter(1)])
        assert len(stage.brokers.requests) == 5
        assert stage.offsets(broker=2) == [1]
        assert stage.letters.stats.uncertain == 0


async def test_five_attempts_are_all_and_the_code_is_that_of_the_last(tmp_path: Path) -> None:
    async with staged(tmp_path, brokers=2) as stage:
        stage.create(leader=2)
        stage.brokers.failures = [KafkaError.of(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")] * 9
        with pytest.raises(DeadLettersFailed, match="too few") as failed:
            await stage.letters.write(SETTINGS, [letter(1)])
        assert len(stage.brokers.requests) == 5
        assert failed.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        assert stage.offsets(broker=2) == []


async def test_what_will_not_pass_is_not_tried_again(tmp_path: Path) -> None:
    async with staged(tmp_path, brokers=2) as stage:
        stage.create(leader=2)
        stage.brokers.failures = [KafkaError.of(ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
        with pytest.raises(DeadLettersFailed) as failed:
            await stage.letters.write(SETTINGS, [letter(1)])
        assert failed.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert len(stage.brokers.requests) == 1


async def test_letters_of_a_lost_answer_are_written_again_and_counted_as_doubtful(tmp_path: Path) -> None:
    async with staged(tmp_path, brokers=2) as stage:
        stage.create(leader=2)
        stage.brokers.loses_answers = True
        stage.brokers.failures = [OSError("the connection was lost")]
        await stage.letters.write(SETTINGS, [letter(1), letter(2)])
        assert stage.offsets(broker=2) == [1, 2, 1, 2]
        assert (stage.letters.stats.uncertain, stage.letters.stats.written) == (2, 2)


async def test_only_letters_that_are_not_there_are_named_when_a_later_batch_fails(tmp_path: Path) -> None:
    small = replace(CONFIG, max_message_bytes=700)
    async with staged(tmp_path, brokers=2, log_config=small) as stage:
        stage.create(leader=2)
        real = stage.brokers.call

        async def third_fails(broker_id: BrokerId, request: Any) -> Any:
            if len(stage.brokers.requests) == 2:
                raise KafkaError.of(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return await real(broker_id, request)

        stage.brokers.call = third_fails  # type: ignore[method-assign]
        with pytest.raises(DeadLettersFailed) as failed:
            await stage.letters.write(SETTINGS, [letter(number) for number in range(10)])
        written = stage.offsets(broker=2)
        assert 0 < len(written) < 10
        assert written + [each.offset for each in failed.value.unwritten] == list(range(10))
        assert stage.letters.stats.written == len(written)
        assert stage.letters.stats.failed == 10 - len(written)


async def test_a_topic_without_a_leader_is_an_error_that_may_pass(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.create()
        stage.cluster.controller.change(DEAD, leader=-1)
        with pytest.raises(DeadLettersFailed, match="no leader") as failed:
            await stage.letters.write(SETTINGS, [letter(1)])
        assert failed.value.code is ErrorCode.LEADER_NOT_AVAILABLE


# ---- batches ---------------------------------------------------------------------------------------------------------


def test_batches_hold_what_the_topic_takes_and_no_letter_is_left_out() -> None:
    letters = [letter(number) for number in range(300)]
    copies = {Offset(number): (b"key-%d" % number, b"v" * (number % 97)) for number in range(0, 300, 2)}
    batches = sealed(letters, copies, NOW_MS, 2_000)
    assert len(batches) > 10
    assert all(len(batch.batch) <= 2_000 for batch in batches)
    assert min(len(batch.batch) for batch in batches[:-1]) > 1_400, "batches are filled"
    records = [record for batch in batches for record in iterate_records(batch.batch)]
    assert [dict(record.headers)["__dlq.errors.offset"] for record in records] == [b"%d" % n for n in range(300)]
    assert [(record.key, record.value) for record in records] == [
        copies.get(Offset(n), (None, None)) for n in range(300)
    ]
    assert sum(batch.letter_count for batch in batches) == 300
    assert sum(batch.copy_count for batch in batches) == 150


def test_a_copy_that_does_not_fit_is_left_out_and_its_letter_stays() -> None:
    copies = {Offset(1): (b"k", b"v" * 2_000), Offset(2): (b"k", b"v" * 20)}
    batches = sealed([letter(1), letter(2)], copies, NOW_MS, 1_000)
    first, second = (record for batch in batches for record in iterate_records(batch.batch))
    assert (first.key, first.value) == (None, None)
    assert second.value == b"v" * 20
    assert sum(batch.copy_count for batch in batches) == 1


# ---- copies ----------------------------------------------------------------------------------------------------------


def produced(first: int, count: int, *, size: int = 20, base_offset: int = 0, **named: Any) -> bytes:
    """A batch whose records say which offset they will have."""
    records = [
        Record(
            base_offset + number,
            5,
            None if (first + number) % 3 == 2 else b"k%d" % (first + number),
            b"%d:" % (first + number) + b"x" * size,
            (("secret", b"s"),),
        )
        for number in range(count)
    ]
    return build_batch(records, **named)


async def produce(stage: Stage, batch: bytes) -> None:
    assert (await stage.cluster[1].produce(ORDERS, batch)).error is None


@pytest.mark.parametrize("codec", list(CompressionType))
async def test_key_and_value_are_copied_where_the_group_asks_whatever_the_codec(
    tmp_path: Path, codec: CompressionType
) -> None:
    async with staged(tmp_path) as stage:
        stage.create()
        for first in range(0, 20, 5):
            await produce(stage, produced(first, 5, compression=codec))
        await stage.letters.write(COPYING, [letter(number) for number in (1, 2, 7, 19)])
        assert [(record.key, (record.value or b"")[:2]) for record in stage.records()] == [
            (b"k1", b"1:"),
            (None, b"2:"),
            (b"k7", b"7:"),
            (b"k19", b"19"),
        ]
        assert all("secret" not in dict(record.headers) for record in stage.records()), "headers are not copied"
        assert stage.letters.stats.without_copy == 0
        await stage.letters.write(SETTINGS, [letter(3)])
        assert stage.records()[-1].value is None


async def test_copies_of_many_batches_come_by_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "READ_BYTES", 3_000)
    monkeypatch.setattr(dead_letters, "LETTERS_MAX", 7)
    async with staged(tmp_path, log_config=replace(CONFIG, max_message_bytes=2_000)) as stage:
        stage.create()
        for first in range(0, 60, 3):
            await produce(stage, produced(first, 3, size=300))
        wanted = [number for number in range(60) if number % 7]
        await stage.letters.write(COPYING, [letter(number) for number in wanted])
        assert [(record.value or b"").split(b":")[0] for record in stage.records()] == [b"%d" % n for n in wanted]
        assert stage.letters.stats.without_copy == 0


async def test_letters_of_records_that_are_gone_go_without_copies(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.create()
        for first in range(0, 9, 3):
            await produce(stage, produced(first, 3))
        stage.cluster[1].partition(ORDERS).log.delete_records_before(Offset(3))
        await stage.letters.write(COPYING, [letter(number) for number in (0, 2, 3, 8, 40)])
        assert stage.offsets() == [0, 2, 3, 8, 40]
        assert [record.value is not None for record in stage.records()] == [False, False, True, True, False]
        assert stage.letters.stats.without_copy == 3


async def test_a_batch_that_opens_to_more_than_the_topic_takes_gives_no_copies(tmp_path: Path) -> None:
    async with staged(tmp_path, log_config=replace(CONFIG, max_message_bytes=5_000)) as stage:
        stage.create()
        await produce(stage, produced(0, 5, size=2_000, compression=CompressionType.GZIP))
        await produce(stage, produced(5, 5, size=200, compression=CompressionType.GZIP))
        await stage.letters.write(COPYING, [letter(1), letter(6)])
        assert [record.value is not None for record in stage.records()] == [False, True]
        assert stage.letters.stats.without_copy == 1


async def test_letters_wait_where_the_source_is_led_elsewhere(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.create()
        await produce(stage, produced(0, 5))
        stage.cluster.controller.change(ORDERS, leader=2)
        with pytest.raises(DeadLettersFailed) as failed:
            await stage.letters.write(COPYING, [letter(1)])
        assert failed.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await stage.letters.write(SETTINGS, [letter(1)])  # without copies nothing is read


def test_a_wrong_checksum_is_an_error_and_not_a_letter_without_its_copy() -> None:
    data = bytearray(produced(0, 2) + produced(2, 2, base_offset=2))
    data[-1] ^= 1
    copies, end = copied(bytes(data), [Offset(0)], bytes_max=1_000)
    assert (list(copies), end) == ([0], 4), "who asks for others is not disturbed"
    with pytest.raises(KafkaError, match="offset 2 has another checksum"):
        copied(bytes(data), [Offset(0), Offset(3)], bytes_max=1_000)


def test_records_that_cannot_be_opened_cost_their_batch_its_copies() -> None:
    sound, unsound = produced(0, 2), bytearray(produced(2, 2, base_offset=2))
    unsound[61] = 0x7F  # the first record's length
    unsound[17:21] = crc32c(bytes(unsound[21:])).to_bytes(4, "big")
    copies, end = copied(
        sound + bytes(unsound) + produced(4, 2, base_offset=4), [Offset(n) for n in range(6)], bytes_max=1_000
    )
    assert (sorted(copies), end) == ([0, 1, 4, 5], 6)


async def test_calls_beyond_the_bound_wait_for_their_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "WRITES_MAX", 2)
    async with staged(tmp_path, brokers=2) as stage:
        stage.create(leader=2)
        gate = asyncio.Event()
        under_way: list[int] = []
        real = stage.brokers.call

        async def held(broker_id: BrokerId, request: Any) -> Any:
            under_way.append(1)
            await gate.wait()
            return await real(broker_id, request)

        stage.brokers.call = held  # type: ignore[method-assign]
        async with asyncio.TaskGroup() as tasks:
            for number in range(5):
                tasks.create_task(stage.letters.write(SETTINGS, [letter(number)]))
            while len(under_way) < 2:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            assert len(under_way) == 2
            gate.set()
        assert sorted(stage.offsets(broker=2)) == [0, 1, 2, 3, 4]


# ---- a client --------------------------------------------------------------------------------------------------------


async def test_a_kafka_client_reads_the_letters(tmp_path: Path) -> None:
    async with single_broker(tmp_path, topics={ORDERS: 1, DEAD: 1}) as broker:
        topics = broker.metadata.image.topics
        source = topics.get(ORDERS)
        assert source is not None
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        broker.replicas.appends.append_records(
            [(ORDERS, 0, produced(0, 3, compression=CompressionType.LZ4))],  # type: ignore[list-item]
            required_acks=-1,
            timeout_ms=5_000,
            respond=answer.set_result,
        )
        await answer
        image = broker.metadata.image
        allowed = replace(
            image.configs,
            resources=image.configs.resources.insert(
                ConfigResource(ConfigResourceType.TOPIC, DEAD), {TOPIC_ENABLE_KEY: "true"}
            ),
        )
        writer = DeadLetters(
            config=ShareGroupConfig(),
            partition_count=1,
            replication_factor=1,
            log_config=lambda topic, image: LogConfig(),
            metadata=SimpleNamespace(image=replace(image, configs=allowed)),
            controller=broker,  # type: ignore[arg-type]
            brokers=None,  # type: ignore[arg-type]
            replicas=broker.replicas,
            disk=broker.logs._disk,
            clock_ms=lambda: NOW_MS,
        )
        await writer.write(COPYING, [letter(1)._replace(topic_id=source.id), letter(2)._replace(topic_id=source.id)])
        consumer = AIOKafkaConsumer(
            bootstrap_servers=f"127.0.0.1:{broker.server.bound[LISTENER][1]}", auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            consumer.assign([TopicPartition(DEAD, 0)])
            first, second = [await asyncio.wait_for(consumer.getone(), 20) for _ in range(2)]
        finally:
            await consumer.stop()
        assert (first.offset, first.key, first.value[:2], first.timestamp) == (0, b"k1", b"1:", NOW_MS)
        assert (second.offset, second.key, second.value[:2]) == (1, None, b"2:")
        assert dict(first.headers) == {
            "__dlq.errors.topic": b"orders",
            "__dlq.errors.partition": b"0",
            "__dlq.errors.offset": b"1",
            "__dlq.errors.group": b"workers",
            "__dlq.errors.delivery.count": b"2",
            "__dlq.errors.message": b"Offset rejected by client.",
        }
