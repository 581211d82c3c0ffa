"""The transaction coordinator as a whole: its topic, ids, markers that are sent until they are written, fail-over at each step."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import wraps
from types import SimpleNamespace
from typing import Any, ParamSpec

import pytest

from barnabas_broker.api.transactions import add_offsets_to_txn, add_partitions_to_txn
from barnabas_coordination.errors import CoordinatorNotAvailable, NotCoordinator
from barnabas_coordination.runtime import ShardState
from barnabas_coordination.transaction.config import TransactionCoordinatorConfig
from barnabas_coordination.transaction.service import TRANSACTION_TOPIC, TransactionCoordinator
from barnabas_coordination.transaction.state import Producer, TransactionStatus
from barnabas_quorum.image.features import TRANSACTION_VERSION, TWO_PHASE_VERSION, FeaturesImage
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Epoch, TopicPartition
from barnabas_wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas_wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas_wire.kafka.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.broker.coordinator.fake_log import FakeLog
from tests.broker.coordinator.group_fixture import FakeController, FakeMetadata
from tests.support import virtual_loop
from tests.support.images import make_image

PARTITIONS = 2
TOPICS = {
    "t": [((1, 2), (1, 2), 1), ((1, 2), (1, 2), 2), ((1, 2), (1, 2), 2)],
    "gone": [((1, 2), (1, 2), 2)],
    TRANSACTION_TOPIC: [((1, 2), (1, 2), 1)] * PARTITIONS,
}
CONFIG = TransactionCoordinatorConfig(state_log_num_partitions=PARTITIONS, state_log_replication_factor=2)
ONE, TWO, THREE = (TopicPartition("t", number) for number in range(3))
GONE = TopicPartition("gone", 0)
ACCESS_ALL = SimpleNamespace(require=lambda *asked: None, may=lambda *asked: True)
Written = tuple[int, TopicPartition, Producer, bool, int]
"""(broker, partition, producer, commit?, coordinator epoch)"""


class FakeBrokers:
    """Brokers that write every marker, unless the test says otherwise."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, WriteTxnMarkersRequest]] = []
        self.written: list[Written] = []
        self.code: Callable[[TopicPartition], ErrorCode] = lambda partition: ErrorCode.NONE
        self.unreachable: set[int] = set()
        self.gate = asyncio.Event()
        self.gate.set()

    async def call(self, broker_id: BrokerId, request: Any) -> WriteTxnMarkersResponse:
        assert isinstance(request, WriteTxnMarkersRequest)
        self.requests.append((broker_id, request))
        await self.gate.wait()
        await asyncio.sleep(0.001)
        if broker_id in self.unreachable:
            raise ConnectionRefusedError(f"broker {broker_id}")
        results = []
        for marker in request.markers:
            topics = []
            for topic in marker.topics:
                partitions = []
                for index in topic.partition_indexes:
                    partition = TopicPartition(topic.name, index)
                    code = self.code(partition)
                    partitions.append(WritableTxnMarkerPartitionResult(index, code))
                    if code is ErrorCode.NONE:
                        producer = Producer(marker.producer_id, marker.producer_epoch)
                        self.written.append(
                            (broker_id, partition, producer, marker.transaction_result, marker.coordinator_epoch)
                        )
                topics.append(WritableTxnMarkerTopicResult(topic.name, partitions))
            results.append(WritableTxnMarkerResult(marker.producer_id, topics))
        return WriteTxnMarkersResponse(results)


TWO_PHASE = replace(
    make_image(topics=TOPICS), features=FeaturesImage(levels={TRANSACTION_VERSION: 2, TWO_PHASE_VERSION: 1})
)


class FakeProducerIds:
    def __init__(self) -> None:
        self.ids = itertools.count(100)

    async def next_id(self) -> int:
        await asyncio.sleep(0)
        return next(self.ids)


class Bench:
    """The coordinator of broker 1, which leads every partition of the topic."""

    def __init__(
        self,
        log: FakeLog | None = None,
        *,
        image: MetadataImage | None = None,
        config: TransactionCoordinatorConfig = CONFIG,
    ) -> None:
        self.log = log or FakeLog()
        self.brokers = FakeBrokers()
        self.controller = FakeController()
        self.is_current = True
        self.metadata = FakeMetadata(image or make_image(topics=TOPICS))
        self.coordinator = TransactionCoordinator(
            config=config,
            log=self.log,
            metadata=self.metadata,
            controller=self.controller,
            producer_ids=FakeProducerIds(),
            brokers=self.brokers,
            is_current=lambda: self.is_current,
            clock_ms=virtual_loop.now_ms,
        )

    async def lead(self, epoch: int = 1) -> None:
        for partition in range(PARTITIONS):
            self.coordinator.on_elected(partition, Epoch(epoch))
        while set(self.coordinator.partitions.values()) != {ShardState.ACTIVE}:
            await asyncio.sleep(0.001)

    async def init(self, transactional_id: str = "id", *, timeout_ms: int = 60_000) -> Producer:
        return await self.coordinator.initialize(transactional_id, timeout_ms=timeout_ms, expected=None)

    async def begin(self, *partitions: TopicPartition, transactional_id: str = "id") -> Producer:
        producer = await self.init(transactional_id)
        await self.coordinator.add_partitions(transactional_id, producer, partitions, client_version=2)
        return producer

    async def commit(self, producer: Producer, transactional_id: str = "id") -> Producer:
        return await self.coordinator.end(transactional_id, producer, is_commit=True, client_version=2)

    def status(self, transactional_id: str = "id") -> TransactionStatus:
        return self.coordinator.describe(transactional_id).status

    async def until(self, status: TransactionStatus, transactional_id: str = "id") -> None:
        while self.status(transactional_id) is not status:
            await asyncio.sleep(0.001)


P = ParamSpec("P")


@asynccontextmanager
async def bench(log: FakeLog | None = None, **named: Any) -> AsyncIterator[Bench]:
    made = Bench(log, **named)
    owner = asyncio.create_task(made.coordinator.run())
    try:
        yield made
    finally:
        owner.cancel()
        await asyncio.gather(owner, return_exceptions=True)


def runs(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """On virtual time, of which a test has ten minutes."""

    @wraps(test)
    async def bounded(*args: P.args, **named: P.kwargs) -> None:
        async with asyncio.timeout(600):
            await test(*args, **named)

    return virtual_loop.on_virtual_time(bounded)


@runs
async def test_the_topic_is_made_with_what_a_transaction_needs_when_the_first_client_looks() -> None:
    async with bench(image=make_image(topics={"t": TOPICS["t"]})) as it:
        with pytest.raises(CoordinatorNotAvailable):
            await it.coordinator.find_coordinator("id")
        (asked,) = it.controller.asked
        assert (asked.name, asked.partition_count, asked.replication_factor) == (TRANSACTION_TOPIC, PARTITIONS, 2)
        assert asked.configs == {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "2",
            "segment.bytes": "104857600",
            "unclean.leader.election.enable": "false",
        }


@runs
async def test_a_commit_is_answered_once_it_is_replicated_and_its_markers_go_out_only_then() -> None:
    log = FakeLog()
    async with bench(log) as it:
        await it.lead()
        producer = await it.begin(ONE, TWO)
        log.commits_at_once = False
        ending = asyncio.ensure_future(it.commit(producer))
        await asyncio.sleep(1)
        assert not ending.done()
        assert it.brokers.requests == []
        log.commits_at_once = True
        log.commit(it.coordinator.partition_for("id"))
        assert await ending == Producer(100, 1)
        await it.until(TransactionStatus.COMPLETE_COMMIT)
        marked = Producer(100, 1)
        assert sorted(it.brokers.written) == [(1, ONE, marked, True, 1), (2, TWO, marked, True, 1)]


@runs
async def test_markers_of_many_transactions_go_to_a_broker_in_one_request() -> None:
    async with bench() as it:
        await it.lead()
        names = [f"id-{number}" for number in range(20)]
        producers = [await it.begin(TWO, THREE, transactional_id=name) for name in names]
        await asyncio.gather(*(it.commit(producer, name) for name, producer in zip(names, producers, strict=True)))
        for name in names:
            await it.until(TransactionStatus.COMPLETE_COMMIT, name)
        (request,) = it.brokers.requests
        assert request[0] == 2
        assert len(request[1].markers) == 20
        assert {topic.name: topic.partition_indexes for topic in request[1].markers[0].topics} == {"t": [1, 2]}


@runs
async def test_ids_in_another_partition_than_their_count_says_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    log = FakeLog()
    async with bench(log) as it:
        await it.lead()
        await it.init("id")
        home = it.coordinator.partition_for("id")
    # by two more partitions the id belongs to another one
    grown = make_image(topics=TOPICS | {TRANSACTION_TOPIC: [((1, 2), (1, 2), 1)] * 4})
    async with bench(log.successor(), image=grown) as it:
        assert it.coordinator.partition_for("id") != home
        await it.lead(epoch=2)
        assert it.coordinator.misplaced_partitions == {home}
        assert any(f"{TRANSACTION_TOPIC} has 4 partitions" in record.getMessage() for record in caplog.records)
        it.coordinator.on_resigned(home)
        assert it.coordinator.misplaced_partitions == set()


@pytest.mark.parametrize("trouble", ["refused", "unreachable", "no leader"])
@runs
async def test_a_marker_is_sent_until_it_is_written(trouble: str) -> None:
    async with bench() as it:
        await it.lead()
        producer = await it.begin(ONE, TWO)
        if trouble == "refused":
            it.brokers.code = lambda partition: ErrorCode.NOT_LEADER_OR_FOLLOWER if partition == TWO else ErrorCode.NONE
        elif trouble == "unreachable":
            it.brokers.unreachable = {2}
        else:
            topics = TOPICS | {"t": [TOPICS["t"][0], ((1, 2), (1, 2), -1), TOPICS["t"][2]]}
            it.metadata.image = make_image(topics=topics)
        await it.commit(producer)
        await asyncio.sleep(30)
        assert it.status() is TransactionStatus.PREPARE_COMMIT
        assert it.coordinator.describe("id").partitions == {TWO}
        with pytest.raises(KafkaError) as raised:
            await it.init()
        assert raised.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
        assert [written[1] for written in it.brokers.written] == [ONE]
        it.brokers.code = lambda partition: ErrorCode.NONE
        it.brokers.unreachable = set()
        # its leader has moved meanwhile
        it.metadata.image = make_image(topics=TOPICS | {"t": [TOPICS["t"][0], ((1, 2), (1, 2), 1), TOPICS["t"][2]]})
        await it.until(TransactionStatus.COMPLETE_COMMIT)
        assert [(written[0], written[1]) for written in it.brokers.written] == [(1, ONE), (1, TWO)]


@runs
async def test_a_partition_that_is_deleted_needs_no_marker() -> None:
    async with bench() as it:
        await it.lead()
        producer = await it.begin(ONE, GONE)
        it.brokers.code = lambda partition: ErrorCode.NONE if partition == ONE else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await it.commit(producer)
        await asyncio.sleep(5)
        assert it.status() is TransactionStatus.PREPARE_COMMIT
        it.metadata.image = make_image(topics={name: made for name, made in TOPICS.items() if name != "gone"})
        await it.until(TransactionStatus.COMPLETE_COMMIT)


@runs
async def test_a_partition_that_the_coordinator_does_not_know_is_not_added() -> None:
    """Its metadata may be behind: it would take the partition for a deleted one, and write no marker there."""
    async with bench() as it:
        await it.lead()
        producer = await it.init()
        for unknown in (TopicPartition("new", 0), TopicPartition("t", 3)):
            with pytest.raises(KafkaError) as refused:
                await it.coordinator.add_partitions("id", producer, (ONE, unknown), client_version=2)
            assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert it.status() is TransactionStatus.EMPTY


@pytest.mark.parametrize("asks", ["broker", "broker that only verifies", "client with offsets"])
@runs
async def test_brokers_and_clients_add_no_partition_that_the_coordinator_does_not_know(asks: str) -> None:
    async with bench() as it:
        await it.lead()
        producer = await it.init()
        looked_for: list[str] = []

        async def find_coordinator(group_id: str) -> BrokerId:
            looked_for.append(group_id)
            raise CoordinatorNotAvailable("its topic is being made")

        services: Any = SimpleNamespace(
            transactions=it.coordinator,
            metadata=it.metadata,
            groups=SimpleNamespace(partition_for=lambda group_id: 0, find_coordinator=find_coordinator),
        )
        if asks == "client with offsets":
            context: Any = SimpleNamespace(api_version=3, access=ACCESS_ALL)
            added = await add_offsets_to_txn(
                services, context, AddOffsetsToTxnRequest("id", producer.producer_id, producer.epoch, "g")
            )
            assert added.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert it.status() is TransactionStatus.EMPTY
            assert looked_for == ["g"], "some clients look for the group's coordinator only afterwards"
            return
        context = SimpleNamespace(api_version=5, access=ACCESS_ALL)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id="id",
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            verify_only=asks != "broker",
            topics=[AddPartitionsToTxnTopic("t", [0]), AddPartitionsToTxnTopic("new", [0])],
        )
        answer = await add_partitions_to_txn(services, context, AddPartitionsToTxnRequest(transactions=[transaction]))
        (result,) = answer.results_by_transaction
        codes = {
            (topic.name, partition.partition_index): partition.partition_error_code
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        if asks == "broker":
            assert codes == {("t", 0): ErrorCode.NONE, ("new", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            assert it.coordinator.describe("id").partitions == {ONE}
        else:
            assert codes == dict.fromkeys(codes, ErrorCode.TRANSACTION_ABORTABLE)


@runs
async def test_a_coordinator_that_starts_takes_no_partition_for_deleted_before_its_metadata_is_current() -> None:
    log = FakeLog()
    async with bench(log) as it:
        await it.lead()
        it.brokers.unreachable = {1, 2}
        await it.commit(await it.begin(ONE, TWO))
    async with bench(log, image=make_image(topics={TRANSACTION_TOPIC: TOPICS[TRANSACTION_TOPIC]})) as it:
        it.is_current = False
        await it.lead(2)
        await asyncio.sleep(5)
        assert it.status() is TransactionStatus.PREPARE_COMMIT
        it.metadata.image, it.is_current = make_image(topics=TOPICS), True
        await it.until(TransactionStatus.COMPLETE_COMMIT)
        assert sorted(written[1] for written in it.brokers.written) == [ONE, TWO]


@runs
async def test_a_coordinator_that_is_reported_of_a_later_one_sends_no_more() -> None:
    async with bench() as it:
        await it.lead()
        producer = await it.begin(ONE)
        it.brokers.code = lambda partition: ErrorCode.TRANSACTION_COORDINATOR_FENCED
        await it.commit(producer)
        await asyncio.sleep(60)
        assert len(it.brokers.requests) == 1
        assert it.coordinator.marker_stats.fenced == 1
        assert it.status() is TransactionStatus.PREPARE_COMMIT


@runs
async def test_a_commit_whose_completion_cannot_be_written_is_completed_later() -> None:
    log = FakeLog()
    async with bench(log) as it:
        await it.lead()
        producer = await it.begin(ONE)
        it.brokers.gate.clear()
        await it.commit(producer)
        log.refuses = KafkaError.of(ErrorCode.NOT_ENOUGH_REPLICAS)
        it.brokers.gate.set()
        await asyncio.sleep(10)
        assert it.status() is TransactionStatus.PREPARE_COMMIT
        log.refuses = None
        await it.until(TransactionStatus.COMPLETE_COMMIT)
        assert len(it.brokers.requests) == 1


@pytest.mark.parametrize(
    "step", ["before PREPARE is replicated", "before markers", "between markers", "before COMPLETE"]
)
@runs
async def test_the_next_coordinator_goes_on_with_what_was_decided(step: str) -> None:
    log = FakeLog()
    async with bench(log) as it:
        await it.lead()
        producer = await it.begin(ONE, TWO)
        if step == "before PREPARE is replicated":
            log.commits_at_once = False
            ending = asyncio.ensure_future(it.commit(producer))
            await asyncio.sleep(1)
            for partition in range(PARTITIONS):
                it.coordinator.on_resigned(partition)
            with pytest.raises(NotCoordinator):
                await ending
            log.commit(it.coordinator.partition_for("id"))  # it reached the other replica all the same
        elif step == "before markers":
            it.brokers.gate.clear()
            await it.commit(producer)
        elif step == "between markers":
            it.brokers.unreachable = {2}
            await it.commit(producer)
            await asyncio.sleep(1)
        else:
            it.brokers.gate.clear()
            await it.commit(producer)
            log.refuses = KafkaError.of(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            it.brokers.gate.set()
            await asyncio.sleep(1)
    async with bench(log.successor()) as after:
        await after.lead(epoch=2)
        await after.until(TransactionStatus.COMPLETE_COMMIT)
        marked = Producer(100, 1)
        assert sorted(after.brokers.written) == [(1, ONE, marked, True, 2), (2, TWO, marked, True, 2)]
        assert await after.commit(producer) == Producer(100, 1), "its client asks again"


@runs
async def test_an_end_that_was_lost_with_its_coordinator_never_was() -> None:
    log = FakeLog()
    async with bench(log) as it:
        await it.lead()
        producer = await it.begin(ONE)
        log.commits_at_once = False
        ending = asyncio.ensure_future(it.commit(producer))
        await asyncio.sleep(1)
        ending.cancel()
    async with bench(log.successor()) as after:
        await after.lead(epoch=2)
        await asyncio.sleep(5)
        assert after.status() is TransactionStatus.ONGOING
        assert after.brokers.requests == []
        assert await after.commit(producer) == Producer(100, 1)


@runs
async def test_a_prepared_transaction_waits_for_its_decision_whatever_becomes_of_producers_and_coordinators() -> None:
    log = FakeLog()
    async with bench(log, image=TWO_PHASE) as it:
        await it.lead()
        producer = await it.init(timeout_ms=5_000)
        await it.coordinator.add_partitions("id", producer, {ONE}, client_version=2)
        for _ in range(2):
            await it.coordinator.prepare("id", producer)
        assert it.status() is TransactionStatus.PREPARED
    async with bench(log.successor(), image=TWO_PHASE) as after:
        await after.lead(epoch=2)
        await asyncio.sleep(30)  # its time-out is 5 s
        assert after.status() is TransactionStatus.PREPARED
        assert after.coordinator.describe("id").partitions == {ONE}
        with pytest.raises(KafkaError, match=r"prepared and waits for its decision; use another") as refused:
            await after.init()
        assert refused.value.code is ErrorCode.INVALID_TXN_STATE
        assert not refused.value.is_retriable
        assert await after.commit(producer) == Producer(100, 1)
        await after.until(TransactionStatus.COMPLETE_COMMIT)
        assert after.brokers.written == [(1, ONE, Producer(100, 1), True, 2)]
        assert await after.commit(producer) == Producer(100, 1), "whoever decides may ask again"
        assert await after.init() == Producer(100, 2)


@runs
async def test_nothing_is_prepared_below_its_feature_level() -> None:
    async with bench() as it:
        await it.lead()
        producer = await it.begin(ONE)
        with pytest.raises(KafkaError, match=r"features upgrade --feature barnabas.two.phase.version=1") as refused:
            await it.coordinator.prepare("id", producer)
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
        assert it.status() is TransactionStatus.ONGOING


@runs
async def test_a_transaction_that_stays_open_is_aborted_also_by_the_next_coordinator() -> None:
    log = FakeLog()
    async with bench(log) as it:
        await it.lead()
        producer = await it.init(timeout_ms=5_000)
        await it.coordinator.add_partitions("id", producer, {ONE}, client_version=2)
    async with bench(log.successor()) as after:
        await after.lead(epoch=2)
        await after.until(TransactionStatus.COMPLETE_ABORT)
        assert after.brokers.written == [(1, ONE, Producer(100, 1), False, 2)]
        with pytest.raises(KafkaError) as raised:
            await after.coordinator.add_partitions("id", producer, {ONE}, client_version=2)
        assert raised.value.code is ErrorCode.PRODUCER_FENCED


def test_a_transactional_id_at_rest_is_forgotten_in_time_and_an_open_one_is_not() -> None:
    config = replace(CONFIG, transactional_id_expiration_ms=20_000, remove_expired_interval_ms=5_000)

    def known(it: Bench) -> set[str]:
        return {name for name, _ in it.coordinator.list_all()}

    async def main() -> None:
        log = FakeLog()
        async with bench(log, config=config) as it:
            await it.lead()
            idle = await it.begin(ONE, transactional_id="idle")
            idle = await it.commit(idle, "idle")
            await it.init("never used")
            await it.coordinator.add_partitions("open", await it.init("open"), {TWO}, client_version=2)
            await asyncio.sleep(15)
            assert known(it) == {"idle", "never used", "open"}
            await it.coordinator.add_partitions("idle", idle, {ONE}, client_version=2)  # it is used again
            idle = await it.commit(idle, "idle")
            await asyncio.sleep(12)
            assert known(it) == {"idle", "open"}
            await asyncio.sleep(15)
            assert known(it) == {"open"}
            with pytest.raises(KafkaError) as raised:
                await it.coordinator.add_partitions("idle", idle, {ONE}, client_version=2)
            assert raised.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        async with bench(log.successor(), config=config) as after:
            await after.lead(epoch=2)
            assert known(after) == {"open"}, "it is forgotten in the log too"
            assert await after.init("idle") == Producer(100, 0), "as an id that nobody had"

    virtual_loop.run(main())


@runs
async def test_what_needs_no_state_is_refused_at_once() -> None:
    async with bench() as it:
        await it.lead()
        for timeout_ms in (0, -1, CONFIG.max_timeout_ms + 1):
            with pytest.raises(KafkaError) as raised:
                await it.init(timeout_ms=timeout_ms)
            assert raised.value.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT
        with pytest.raises(KafkaError) as raised:
            await it.init("")
        assert raised.value.code is ErrorCode.INVALID_REQUEST
        with pytest.raises(KafkaError) as raised:
            it.coordinator.describe("nobody")
        assert raised.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@runs
async def test_transactional_ids_are_listed_and_counted_as_they_are_committed() -> None:
    async with bench() as it:
        await it.lead()
        await it.begin(ONE, transactional_id="busy")
        await it.init("idle")
        listed = {name: state.status for name, state in it.coordinator.list_all()}
        assert listed == {"busy": TransactionStatus.ONGOING, "idle": TransactionStatus.EMPTY}
        found = sorted(state.status for state in it.coordinator.states())
        assert found == [TransactionStatus.EMPTY, TransactionStatus.ONGOING]
