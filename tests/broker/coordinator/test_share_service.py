"""The share coordinator as a whole: its topic, what a load comes to, fencing, cold snapshots, pruning, deleted topics, the persister."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from types import SimpleNamespace
from typing import Any, ParamSpec

import pytest

from barnabas_broker.api import share_state as api
from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.groups import find_coordinator
from barnabas_coordination.errors import CoordinatorNotAvailable, NotCoordinator
from barnabas_coordination.internal_topic import java_hash
from barnabas_coordination.runtime import ShardState
from barnabas_coordination.share_config import ShareCoordinatorConfig
from barnabas_coordination.share_state.messages import DeliveryState, ShareKey, ShareState, ShareSummary, StateBatch
from barnabas_coordination.share_state.persister import ATTEMPTS_MAX, BrokersPersister
from barnabas_coordination.share_state.service import ShareCoordinator
from barnabas_coordination.share_state.state import Change, KeptState
from barnabas_replication.errors import NotEnoughReplicas
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_OFFSET, SHARE_STATE_TOPIC, BrokerId, Epoch, Offset, Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas_wire.kafka.messages.read_share_group_state import ReadShareGroupStateRequest
from barnabas_wire.kafka.messages.read_share_group_state import StateBatch as WireBatch
from barnabas_wire.kafka.messages.write_share_group_state import (
    PartitionData,
    WriteShareGroupStateRequest,
    WriteStateData,
)
from tests.broker.coordinator.fake_log import FakeLog
from tests.broker.coordinator.group_fixture import FakeController, FakeMetadata
from tests.support import virtual_loop
from tests.support.images import make_image, uuid

PARTITIONS = 2
ORDERS = [((1, 2), (1, 2), 1)] * 6
TOPICS = {SHARE_STATE_TOPIC: [((1, 2), (1, 2), 1)] * PARTITIONS, "orders": ORDERS}
ORDERS_ID = uuid(1001)
CONFIG = ShareCoordinatorConfig(
    state_topic_num_partitions=PARTITIONS, snapshot_update_records_per_snapshot=4, prune_interval_ms=10_000_000
)
KEY = ShareKey("workers", ORDERS_ID, 0)
AVAILABLE, ACKNOWLEDGED = DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED
ONE, TWO = Epoch(1), Epoch(2)


def batch(first: int, last: int, state: DeliveryState = ACKNOWLEDGED, deliveries: int = 1, due: int = 0) -> StateBatch:
    return StateBatch(Offset(first), Offset(last), state, deliveries, due)


class Bench:
    """The coordinator of broker 1, which leads every partition of the topic."""

    def __init__(
        self, log: FakeLog | None = None, *, topics: Any = None, config: ShareCoordinatorConfig = CONFIG
    ) -> None:
        self.log = log or FakeLog()
        self.controller = FakeController()
        self.is_current = True
        self.metadata = FakeMetadata(make_image(topics=topics or TOPICS))
        self.coordinator = ShareCoordinator(
            config=config,
            log=self.log,
            delete_before=self.log.delete_before,
            metadata=self.metadata,
            controller=self.controller,
            is_current=lambda: self.is_current,
            clock_ms=virtual_loop.now_ms,
        )

    async def lead(self, epoch: int = 1) -> None:
        for partition in range(PARTITIONS):
            self.coordinator.on_elected(partition, Epoch(epoch))
        while set(self.coordinator.partitions.values()) != {ShardState.ACTIVE}:
            await asyncio.sleep(0.001)

    async def begin(self, key: ShareKey = KEY, *, state_epoch: Epoch = ONE, start: int = -1) -> None:
        await self.coordinator.initialize(key, state_epoch=state_epoch, start_offset=Offset(start))

    async def write(
        self,
        *batches: StateBatch,
        key: ShareKey = KEY,
        state: int = 1,
        leader: int = 0,
        start: int = -1,
        count: int = -1,
    ) -> None:
        change = Change(Epoch(state), Epoch(leader), Offset(start), count, batches)
        await self.coordinator.write(key, change)

    async def read(self, key: ShareKey = KEY, *, leader: int = 0) -> ShareState:
        return await self.coordinator.read(key, leader_epoch=Epoch(leader))

    def states(self) -> dict[ShareKey, KeptState]:
        runtime = self.coordinator._runtime
        return {key: state for index in range(PARTITIONS) for key, state in runtime.shard(index).states.items()}


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
    """On virtual time, of which a test has a day."""

    @wraps(test)
    async def bounded(*args: P.args, **named: P.kwargs) -> None:
        async with asyncio.timeout(86_400):
            await test(*args, **named)

    return virtual_loop.on_virtual_time(bounded)


async def code_of(asked: Coroutine[Any, Any, Any]) -> ErrorCode:
    try:
        await asked
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


# ---- where keys live -------------------------------------------------------------------------------------------------


@runs
async def test_the_topic_is_made_with_what_share_state_needs_when_a_coordinator_is_first_looked_for() -> None:
    config = ShareCoordinatorConfig(state_topic_replication_factor=1)
    async with bench(topics={"orders": ORDERS}, config=config) as it:
        with pytest.raises(CoordinatorNotAvailable):
            await it.coordinator.find_coordinator(KEY.coordinator_key)
        (asked,) = it.controller.asked
        assert (asked.name, asked.partition_count, asked.replication_factor) == (SHARE_STATE_TOPIC, 50, 1)
        assert asked.configs == {
            "cleanup.policy": "delete",
            "compression.type": "uncompressed",
            "min.insync.replicas": "1",  # never above the replication factor: one broker alone works
            "retention.ms": "-1",
            "segment.bytes": "104857600",
        }


@runs
async def test_a_key_belongs_to_the_partition_that_its_text_hashes_to() -> None:
    async with bench() as it:
        text = f"a:b:{ORDERS_ID}:4"
        assert await it.coordinator.find_coordinator(text) == 1
        assert it.coordinator.topic.partition_for(text) == abs(java_hash(text)) % PARTITIONS
        for wrong in ("", "workers", f"workers:{ORDERS_ID}", f":{ORDERS_ID}:0", "workers:short:0", f"w:{ORDERS_ID}:x"):
            assert await code_of(it.coordinator.find_coordinator(wrong)) is ErrorCode.INVALID_REQUEST, wrong


@runs
async def test_brokers_find_share_coordinators_from_version_6_on() -> None:
    async with bench() as it:
        services: Any = SimpleNamespace(share_state=it.coordinator, metadata=it.metadata, node_id=BrokerId(1))

        async def find(key: str, version: int) -> tuple[int, int]:
            context: Any = RequestContext(
                api_key=ApiKey.FIND_COORDINATOR,
                api_version=version,
                correlation_id=7,
                client_id="broker-2",
                listener_name="PLAINTEXT",
                client_host="127.0.0.1",
                now_ms=0,
            )
            request = FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
            (found,) = (await find_coordinator(services, context, request)).coordinators
            return found.error_code, found.node_id

        assert await find(KEY.coordinator_key, 6) == (ErrorCode.NONE, 1)
        assert await find(KEY.coordinator_key, 5) == (ErrorCode.INVALID_REQUEST, -1)
        assert await find("workers", 6) == (ErrorCode.INVALID_REQUEST, -1)


# ---- loading ---------------------------------------------------------------------------------------------------------


async def fill(it: Bench) -> None:
    """Snapshots, updates, fenced leaders, forgotten keys."""
    for partition in range(4):
        key = KEY._replace(partition=partition)
        await it.begin(key, start=-1 if partition else 0)
        await it.read(key, leader=3)
        for index in range(3 * partition):
            state = AVAILABLE if index % 2 else ACKNOWLEDGED
            await it.write(batch(index, index + 1, state, index, 5 * index), key=key, leader=3, start=index // 2)
    await it.coordinator.delete(KEY._replace(partition=2))
    await it.begin(KEY._replace(partition=3), state_epoch=TWO)
    await it.write(batch(8, 9), key=KEY._replace(partition=3), state=2, leader=3)


@runs
async def test_another_coordinator_loads_the_very_state_that_this_one_had() -> None:
    async with bench() as it:
        await it.lead()
        await fill(it)
        before = it.states()
        assert {key.partition for key in before} == {0, 1, 3}
        log = it.log.successor()
    async with bench(log) as it:
        await it.lead(2)
        assert it.states() == before
        assert it.coordinator.stats.unknown_records == 0
        assert it.coordinator.topic.misplaced == set()


@runs
async def test_an_answer_waits_until_what_it_says_is_replicated() -> None:
    log = FakeLog()
    async with bench(log) as it:
        await it.lead()
        await it.begin()
        log.commits_at_once = False
        reading = asyncio.ensure_future(it.read(leader=4))
        await asyncio.sleep(1)
        summary = asyncio.ensure_future(it.coordinator.summary(KEY))
        await asyncio.sleep(1)
        assert not reading.done() and not summary.done()
        log.commit(it.coordinator._partition(KEY))
        assert await reading == ShareState(ONE)
        assert await summary == ShareSummary(ONE, Epoch(4))


# ---- who may -----------------------------------------------------------------------------------------------------


@runs
async def test_reading_shuts_former_leaders_out_also_where_the_reader_loads_from_the_log() -> None:
    async with bench() as it:
        await it.lead()
        await it.begin()
        assert await it.read(leader=5) == ShareState(ONE, NO_OFFSET, ())
        log = it.log.successor()
    async with bench(log) as it:
        await it.lead(2)
        assert await code_of(it.write(batch(1, 2), leader=4)) is ErrorCode.FENCED_LEADER_EPOCH
        assert await code_of(it.read(leader=4)) is ErrorCode.FENCED_LEADER_EPOCH
        await it.write(batch(1, 2), leader=5, start=1, count=2)
        await it.begin(state_epoch=TWO)
        assert await code_of(it.write(batch(1, 2), leader=5)) is ErrorCode.FENCED_STATE_EPOCH
        assert await code_of(it.begin(state_epoch=ONE)) is ErrorCode.FENCED_STATE_EPOCH
        assert await it.read(leader=5) == ShareState(TWO, NO_OFFSET, ())


@runs
async def test_what_is_unknown_is_refused_and_its_summary_is_empty() -> None:
    async with bench() as it:
        await it.lead()
        elsewhere = KEY._replace(topic_id=Uuid(bytes(16)))
        beyond = KEY._replace(partition=6)
        for key in (elsewhere, beyond):
            assert await code_of(it.begin(key)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await code_of(it.read()) is ErrorCode.INVALID_REQUEST
        assert await code_of(it.write(batch(1, 2))) is ErrorCode.INVALID_REQUEST
        assert await it.coordinator.summary(KEY) == await it.coordinator.summary(elsewhere) == ShareSummary()
        await it.coordinator.delete(KEY)
        assert it.coordinator.stats.records_written == 0


# ---- time ------------------------------------------------------------------------------------------------------------


@runs
async def test_pruning_changes_no_read_and_leaves_one_snapshot_of_each_key() -> None:
    config = ShareCoordinatorConfig(
        state_topic_num_partitions=PARTITIONS, snapshot_update_records_per_snapshot=4, prune_interval_ms=1_000
    )
    async with bench(config=config) as it:
        await it.lead()
        await fill(it)
        before = {key: await it.read(key, leader=3) for key in it.states()}
        # Cold keys hold the log's start back, until they are repeated once; then every key's snapshot is near the end.
        await asyncio.sleep(610)  # the first look comes a moment too early
        assert all(state.is_cold for state in it.states().values())
        await it.coordinator.prune()
        assert sum(len(batches) for batches in it.log.batches.values()) <= len(before)
        written = it.coordinator.stats.records_written
        await asyncio.sleep(3_600)
        assert it.coordinator.stats.records_written == written, (
            "nothing changes, and snapshots are written all the same"
        )
        assert {key: await it.read(key, leader=3) for key in it.states()} == before
        log, states = it.log.successor(), it.states()
    async with bench(log) as it:
        await it.lead(2)
        assert it.states() == states
        assert {key: await it.read(key, leader=3) for key in it.states()} == before


@runs
async def test_a_snapshot_that_is_not_committed_makes_nothing_redundant() -> None:
    log = FakeLog()
    async with bench(log) as it:
        await it.lead()
        partition = it.coordinator._partition(KEY)
        await it.begin()
        log.commits_at_once = False
        again = asyncio.ensure_future(it.begin(state_epoch=TWO))
        await asyncio.sleep(0.1)
        await it.coordinator.prune()
        assert log.starts.get(partition, 0) == 0
        log.commit(partition)
        await again
        await it.coordinator.prune()
        assert log.starts[partition] == 1


@runs
async def test_what_could_not_be_deleted_is_tried_again() -> None:
    async with bench() as it:
        await it.lead()
        await it.begin()
        await it.begin(state_epoch=TWO)
        delete = it.coordinator._delete_before

        async def refuse(partition: int, offset: Offset) -> None:
            raise NotEnoughReplicas("an eligible replica is away")

        it.coordinator._delete_before = refuse
        await it.coordinator.prune()
        assert it.log.starts == {}
        it.coordinator._delete_before = delete
        await it.coordinator.prune()
        assert it.log.starts == {it.coordinator._partition(KEY): 1}


@runs
async def test_state_of_a_deleted_topic_goes_once_the_image_can_be_believed() -> None:
    async with bench() as it:
        await it.lead()
        await it.begin()
        await it.begin(KEY._replace(partition=5))
        it.is_current = False  # a process that starts has seen older images only
        it.metadata.image = make_image(topics={SHARE_STATE_TOPIC: TOPICS[SHARE_STATE_TOPIC]})
        it.coordinator.on_topics_deleted({"orders"})
        await asyncio.sleep(5)
        assert len(it.states()) == 2
        it.is_current = True
        it.coordinator.on_topics_deleted({"orders"})
        await asyncio.sleep(5)
        assert it.states() == {}


@runs
async def test_many_cold_states_are_repeated_in_batches_that_fit() -> None:
    from barnabas_coordination.share_state import shard as shard_module

    config = ShareCoordinatorConfig(state_topic_num_partitions=1, prune_interval_ms=10_000_000)
    async with bench(config=config, topics={**TOPICS, SHARE_STATE_TOPIC: [((1, 2), (1, 2), 1)]}) as it:
        it.coordinator.on_elected(0, ONE)
        while it.coordinator.partitions[0] is not ShardState.ACTIVE:
            await asyncio.sleep(0.001)
        many = [batch(2 * index, 2 * index) for index in range(shard_module.COLD_BATCHES_MAX // 2)]
        for partition in range(6):
            await it.begin(KEY._replace(partition=partition))
            await it.write(*many, key=KEY._replace(partition=partition))
        before = it.coordinator.stats.batches_written
        await asyncio.sleep(700)
        assert it.coordinator.stats.records_written == before + 6
        assert it.coordinator.stats.batches_written == before + 3


# ---- by the wire ------------------------------------------------------------------------------------------------------


class FakeBrokers:
    """Brokers of which every one has the same coordinator, behind the API handlers."""

    def __init__(self, it: Bench) -> None:
        self._services: Any = SimpleNamespace(share_state=it.coordinator)
        self.requests: list[tuple[int, Any]] = []
        self.failures: list[BaseException | ErrorCode] = []
        """Of the next requests, in order."""
        self.loses_answers = 0
        self.delay_s = 0.01

    async def call(self, broker_id: BrokerId, request: Any) -> Any:
        self.requests.append((broker_id, request))
        await asyncio.sleep(self.delay_s)
        handler = {
            83: api.initialize_share_group_state,
            84: api.read_share_group_state,
            85: api.write_share_group_state,
            86: api.delete_share_group_state,
            87: api.read_share_group_state_summary,
        }[request.API_KEY]
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, BaseException):
                raise failure
            answers: dict[int, Any] = {
                83: api.INITIALIZED,
                84: api.READ,
                85: api.WRITTEN,
                86: api.DELETED,
                87: api.SUMMARY,
            }
            return answers[request.API_KEY].on_error(request, KafkaError.of(failure))
        context: Any = SimpleNamespace(access=SimpleNamespace(require=lambda *asked: None))
        answer = await handler(self._services, context, request)
        if self.loses_answers:
            self.loses_answers -= 1
            raise TimeoutError
        return answer


@asynccontextmanager
async def persisting(**named: Any) -> AsyncIterator[tuple[Bench, FakeBrokers, BrokersPersister]]:
    async with bench(**named) as it:
        brokers = FakeBrokers(it)
        persister = BrokersPersister(brokers=brokers, find_coordinator=it.coordinator.topic.find_leader_for)
        owner = asyncio.create_task(persister.run())
        try:
            yield it, brokers, persister
        finally:
            owner.cancel()
            await asyncio.gather(owner, return_exceptions=True)


async def keep(
    persister: BrokersPersister, *batches: StateBatch, key: ShareKey = KEY, leader: int = 5, start: int = 3
) -> None:
    await persister.write(
        key, state_epoch=ONE, leader_epoch=Epoch(leader), start_offset=Offset(start), complete_count=2, batches=batches
    )


@runs
async def test_the_five_calls_come_back_with_what_is_kept() -> None:
    async with persisting() as (it, _, persister):
        await it.lead()
        await persister.initialize(KEY, state_epoch=ONE)
        assert await persister.read(KEY, leader_epoch=Epoch(5)) == ShareState(ONE, NO_OFFSET, ())
        kept = (batch(4, 5), batch(6, 6, AVAILABLE, 2, 1_700_000_000_000), batch(7, 7, DeliveryState.ARCHIVING, 5))
        await keep(persister, *kept)
        assert await persister.read(KEY, leader_epoch=Epoch(6)) == ShareState(ONE, Offset(3), kept)
        assert await persister.summary(KEY) == ShareSummary(ONE, Epoch(6), Offset(3), 2)
        assert await code_of(keep(persister, batch(8, 8))) is ErrorCode.FENCED_LEADER_EPOCH
        await persister.delete(KEY)
        assert await persister.summary(KEY) == ShareSummary()
        assert await code_of(persister.read(KEY, leader_epoch=Epoch(6))) is ErrorCode.INVALID_REQUEST
        assert persister.retries == 0


@runs
async def test_a_call_is_asked_again_until_a_coordinator_judges_it() -> None:
    async with persisting() as (it, brokers, persister):
        await it.lead()
        await persister.initialize(KEY, state_epoch=ONE)
        brokers.failures = [
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ConnectionRefusedError("broker 1"),
            TimeoutError(),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        await keep(persister, batch(4, 5))
        assert persister.retries == 5
        brokers.failures = [ErrorCode.FENCED_STATE_EPOCH]
        assert await code_of(keep(persister, batch(4, 5))) is ErrorCode.FENCED_STATE_EPOCH
        assert persister.retries == 5, "what was judged is asked again"


@runs
async def test_a_call_that_nobody_judges_ends_with_coordinator_not_available() -> None:
    async with persisting() as (it, brokers, persister):
        await it.lead()
        for failure in (ErrorCode.NOT_COORDINATOR, TimeoutError(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            brokers.requests.clear()
            brokers.failures = [failure] * ATTEMPTS_MAX
            began_s = asyncio.get_running_loop().time()
            expected = (
                failure if failure is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else ErrorCode.COORDINATOR_NOT_AVAILABLE
            )
            assert await code_of(keep(persister, batch(4, 5))) is expected
            assert 10 < asyncio.get_running_loop().time() - began_s < 16
            assert len(brokers.requests) == ATTEMPTS_MAX
    async with persisting(topics={"orders": ORDERS}) as (it, brokers, persister):
        assert await code_of(persister.delete(KEY)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert not brokers.requests and it.controller.asked


@runs
async def test_an_answer_that_was_lost_costs_nothing_but_time() -> None:
    async with persisting() as (it, brokers, persister):
        await it.lead()
        await persister.initialize(KEY, state_epoch=ONE)
        brokers.loses_answers = 1
        late = asyncio.ensure_future(keep(persister, batch(4, 4, AVAILABLE, 1, 99)))
        await asyncio.sleep(0.05)
        await keep(persister, batch(4, 4, ACKNOWLEDGED, 2))
        await late
        assert (await persister.read(KEY, leader_epoch=Epoch(5))).batches == (batch(4, 4, ACKNOWLEDGED, 2),)


@runs
async def test_what_comes_together_goes_together_of_one_group_and_each_key_once() -> None:
    async with persisting() as (it, brokers, persister):
        await it.lead()
        keys = [ShareKey(group, ORDERS_ID, index) for group in ("a", "b") for index in range(6)]
        await asyncio.gather(*(persister.initialize(key, state_epoch=ONE) for key in keys))
        sent = [sorted(p.partition for t in request.topics for p in t.partitions) for _, request in brokers.requests]
        assert sent == [[0, 1, 2, 3, 4, 5]] * 2
        brokers.requests.clear()
        await asyncio.gather(*(keep(persister, batch(index, index), key=keys[0], start=-1) for index in range(3)))
        assert len(brokers.requests) == 3
        assert (await persister.read(keys[0], leader_epoch=Epoch(0))).batches == (batch(0, 2),)


@runs
async def test_a_call_leaves_in_the_turn_after_it_was_made() -> None:
    """Each turn more is one that every acknowledgement waits for."""
    async with persisting() as (it, brokers, persister):
        await it.lead()
        await persister.initialize(KEY, state_epoch=ONE)
        brokers.requests.clear()
        call = asyncio.ensure_future(keep(persister, batch(1, 1)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(brokers.requests) == 1
        await call


@runs
async def test_who_is_cancelled_is_left_out_and_who_waits_at_the_stop_is_sent_away() -> None:
    async with persisting() as (it, brokers, persister):
        await it.lead()
        await persister.initialize(KEY, state_epoch=ONE)
        brokers.requests.clear()
        first = asyncio.ensure_future(keep(persister, batch(1, 1)))
        await asyncio.sleep(0.001)
        gone = asyncio.ensure_future(keep(persister, batch(2, 2)))
        await asyncio.sleep(0.001)
        gone.cancel()
        await first
        await keep(persister, batch(3, 3))
        assert len(brokers.requests) == 2
        brokers.delay_s = 1_000
        waiting = asyncio.ensure_future(code_of(keep(persister, batch(4, 4))))
        behind = asyncio.ensure_future(code_of(keep(persister, batch(5, 5))))
        await asyncio.sleep(1)
    assert not waiting.done() or waiting.result() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    for each in (waiting, behind):
        each.cancel()
    await asyncio.gather(waiting, behind, return_exceptions=True)


@runs
async def test_the_handlers_refuse_each_partition_for_itself() -> None:
    async with bench() as it:
        await it.lead()
        await it.begin()
        services: Any = SimpleNamespace(share_state=it.coordinator)
        context: Any = SimpleNamespace(access=SimpleNamespace(require=lambda *asked: None))
        partitions = [
            PartitionData(0, 1, 0, 1, 0, [WireBatch(1, 2, 2, 1)]),
            PartitionData(1, 1, 0, 1, 0, [WireBatch(1, 2, 2, 1)]),
            PartitionData(0, 0, 0, 1, 0, []),
            PartitionData(0, 1, 0, 1, 0, [WireBatch(1, 2, 7, 1)]),
        ]
        request = WriteShareGroupStateRequest("workers", [WriteStateData(ORDERS_ID, partitions)])
        (topic,) = (await api.write_share_group_state(services, context, request)).results
        assert topic.topic_id == ORDERS_ID
        assert [(each.partition, each.error_code) for each in topic.partitions] == [
            (0, ErrorCode.NONE),
            (1, ErrorCode.INVALID_REQUEST),
            (0, ErrorCode.FENCED_STATE_EPOCH),
            (0, ErrorCode.INVALID_REQUEST),
        ]
        with pytest.raises(KafkaError, match="name one"):
            await api.read_share_group_state(services, context, ReadShareGroupStateRequest("", []))
        it.coordinator.on_resigned(it.coordinator._partition(KEY))
        with pytest.raises(NotCoordinator):
            await it.read()
