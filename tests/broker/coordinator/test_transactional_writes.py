"""A transaction's first batch in a partition waits for its coordinator's word, in the producer's order, and the codes are Kafka's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas_broker.api.transactions import txn_offset_commit
from barnabas_broker.security.audit import AuditLog
from barnabas_broker.security.audit_config import AuditConfig
from barnabas_coordination.errors import CoordinatorNotAvailable
from barnabas_coordination.group.messages import MemberRef, OffsetCommit
from barnabas_coordination.group.service import OFFSETS_TOPIC
from barnabas_coordination.shard import Writer
from barnabas_coordination.transaction import writes as writes_module
from barnabas_coordination.transaction.config import TransactionCoordinatorConfig
from barnabas_coordination.transaction.state import Producer
from barnabas_coordination.transaction.verification import Verification
from barnabas_coordination.transaction.writes import TransactionalWrites, WriteVersion
from barnabas_log.errors import InvalidTransactionState
from barnabas_log.tail.producer_state import VerificationGuard
from barnabas_replication.requests import AppendEntry, AppendOutcome
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Offset, TopicPartition, Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from barnabas_wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas_wire.kafka.schema import decode_request, encode_request
from barnabas_wire.records.batch import Record, build_batch
from tests.support import virtual_loop
from tests.support.images import make_image

KEY, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)
CONFIG = TransactionCoordinatorConfig()
OLD, NEW = WriteVersion(False, False), WriteVersion(True, True)


def batch(producer_id: int = 7, epoch: int = 0, sequence: int = 0, *, is_transactional: bool = True) -> bytes:
    return build_batch(
        [Record(0, 0, b"k", b"v")],
        is_transactional=is_transactional,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


class FakeProducers:
    """Partitions' producer state, as far as the first batch of a transaction goes."""

    def __init__(self) -> None:
        self.open: set[int] = set()
        self.is_void = False
        self.guards: dict[int, VerificationGuard] = {}

    def needs_verification(self, producer_id: int, epoch: int) -> bool:
        guard = self.guards.get(producer_id)
        return producer_id not in self.open and (guard is None or not guard.is_confirmed)

    def begin_verification(self, producer_id: int, epoch: int) -> VerificationGuard:
        return self.guards.setdefault(producer_id, VerificationGuard(epoch))

    def confirm(self, producer_id: int, guard: VerificationGuard) -> bool:
        guard.is_confirmed = not self.is_void and self.guards.get(producer_id) is guard
        return guard.is_confirmed

    def mark(self, producer_id: int) -> None:
        """A marker comes."""
        self.guards.pop(producer_id, None)


class FakeReplicas:
    def __init__(self) -> None:
        self.producers = {KEY: FakeProducers(), OTHER: FakeProducers(), OFFSETS: FakeProducers()}
        self.appended: list[tuple[str, int, bytes]] = []
        self.error: KafkaError | None = None
        self.appends = self.hosted = self

    def partition(self, key: TopicPartition) -> Any:
        found = self.producers.get(key)
        return None if found is None else SimpleNamespace(is_leader=True, log=SimpleNamespace(producers=found))

    leader_partition = partition

    def append_records(self, entries: Any, *, respond: Any, **named: Any) -> None:
        for topic, number, batches in entries:
            self.appended.append((topic, number, bytes(batches)))
        respond([AppendOutcome(topic, number, self.error, Offset(9)) for topic, number, _ in entries])


class FakeBrokers:
    """Coordinators that know every partition, unless the test says otherwise."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, AddPartitionsToTxnRequest]] = []
        self.code: Callable[[TopicPartition], int] = lambda partition: ErrorCode.NONE
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def call(self, broker_id: BrokerId, request: Any) -> AddPartitionsToTxnResponse:
        self.requests.append((broker_id, request))
        await self.gate.wait()
        await asyncio.sleep(0.001)
        if self.error is not None:
            raise self.error
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transaction.transactional_id,
                    [
                        AddPartitionsToTxnTopicResult(
                            topic.name,
                            [
                                AddPartitionsToTxnPartitionResult(index, self.code(TopicPartition(topic.name, index)))
                                for index in topic.partitions
                            ],
                        )
                        for topic in transaction.topics
                    ],
                )
                for transaction in request.transactions
            ]
        )


class Bench:
    def __init__(self, config: TransactionCoordinatorConfig = CONFIG) -> None:
        self.brokers = FakeBrokers()
        self.replicas = FakeReplicas()
        self.verification = Verification(brokers=self.brokers, coordinator_of=self.coordinator_of)
        self.has_coordinator = True
        self.committed: list[tuple[OffsetCommit, bool]] = []
        """Offsets, and whether their partition was still to be verified."""
        self.writes = TransactionalWrites(
            config=config,
            replicas=self.replicas,  # type: ignore[arg-type]
            groups=SimpleNamespace(  # type: ignore[arg-type]
                check_coordinates=lambda group_id: None,
                partition_for=lambda group_id: 0,
                commit_in_transaction=self.commit_in_transaction,
            ),
            verification=self.verification,
        )

    def coordinator_of(self, transactional_id: str) -> BrokerId:
        if not self.has_coordinator:
            raise CoordinatorNotAvailable("none")
        return BrokerId(3)

    async def commit_in_transaction(self, commit: OffsetCommit, writer: Writer) -> tuple[ErrorCode, ...]:
        self.committed.append((commit, self.replicas.producers[OFFSETS].needs_verification(*writer)))
        return ()

    def produce(
        self, *entries: AppendEntry, version: WriteVersion = NEW, transactional_id: str = "id"
    ) -> asyncio.Future[list[ErrorCode]]:
        """One code per entry, once the request is answered."""
        answer: asyncio.Future[list[ErrorCode]] = asyncio.get_running_loop().create_future()
        self.writes.append_records(
            transactional_id,
            entries,
            version=version,
            required_acks=-1,
            timeout_ms=1_000,
            respond=lambda outcomes: answer.set_result(
                [ErrorCode.NONE if outcome.error is None else outcome.error.code for outcome in outcomes]
            ),
        )
        return answer


def entry(key: TopicPartition = KEY, **named: Any) -> AppendEntry:
    return AppendEntry(*key, batch(**named))


def run(main: Callable[[Bench], Any], config: TransactionCoordinatorConfig = CONFIG) -> None:
    async def bounded() -> None:
        bench = Bench(config)
        owner = asyncio.create_task(bench.writes.run())
        try:
            async with asyncio.timeout(60):
                await main(bench)
        finally:
            owner.cancel()
            await asyncio.gather(owner, return_exceptions=True)

    virtual_loop.run(bounded())


@pytest.mark.parametrize(("version", "is_add"), [(OLD, False), (NEW, True)])
def test_the_first_batch_asks_and_the_next_ones_go_straight_to_the_log(version: WriteVersion, is_add: bool) -> None:
    async def main(bench: Bench) -> None:
        answer = bench.produce(entry(), entry(OTHER), version=version)
        assert bench.replicas.appended == []
        assert await answer == [ErrorCode.NONE, ErrorCode.NONE]
        ((broker_id, request),) = bench.brokers.requests
        (asked,) = request.transactions
        assert (broker_id, asked.transactional_id, asked.producer_id, asked.producer_epoch) == (3, "id", 7, 0)
        assert asked.verify_only is not is_add
        assert [(topic.name, sorted(topic.partitions)) for topic in asked.topics] == [("t", [0, 1])]
        bench.replicas.producers[KEY].open.add(7)
        assert bench.produce(entry(sequence=1), version=version).done()
        assert len(bench.replicas.appended) == 3
        assert len(bench.brokers.requests) == 1

    run(main)


def test_a_refused_partition_is_not_written_and_the_others_are() -> None:
    async def main(bench: Bench) -> None:
        bench.brokers.code = lambda key: ErrorCode.TRANSACTION_ABORTABLE if key == KEY else ErrorCode.NONE
        assert await bench.produce(entry(), entry(OTHER)) == [ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.NONE]
        assert [(topic, number) for topic, number, _ in bench.replicas.appended] == [OTHER]

    run(main)


@pytest.mark.parametrize(
    ("code", "for_old", "for_new"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING,) * 3,
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS),
        # the coordinator's metadata is behind: this broker leads the partition
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_a_producer_gets_a_code_that_it_knows_of_a_produce(
    code: ErrorCode, for_old: ErrorCode, for_new: ErrorCode
) -> None:
    async def main(bench: Bench) -> None:
        bench.brokers.code = lambda key: code
        assert await bench.produce(entry(), version=OLD) == [for_old]
        assert await bench.produce(entry()) == [for_new]
        assert bench.replicas.appended == []

    run(main)


def test_a_coordinator_that_is_away_makes_the_producer_try_again() -> None:
    async def main(bench: Bench) -> None:
        bench.brokers.error = ConnectionRefusedError()
        assert await bench.produce(entry()) == [ErrorCode.NOT_ENOUGH_REPLICAS]
        bench.has_coordinator = False
        assert await bench.produce(entry()) == [ErrorCode.NOT_ENOUGH_REPLICAS]
        bench.has_coordinator, bench.brokers.error = True, None
        assert await bench.produce(entry()) == [ErrorCode.NONE]

    run(main)


def test_offsets_are_committed_later_when_the_coordinator_does_not_know_their_partition_yet() -> None:
    async def main(bench: Bench) -> None:
        bench.brokers.code = lambda key: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        commit = OffsetCommit(member=MemberRef(group_id="g", member_id=""), offsets=())
        with pytest.raises(KafkaError) as refused:
            await bench.writes.commit_offsets("id", commit, Writer(7, 0), is_add=True)
        assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    run(main)


@pytest.mark.parametrize(
    ("is_add", "now"), [(False, ErrorCode.TRANSACTION_ABORTABLE), (True, ErrorCode.PRODUCER_FENCED)]
)
def test_offsets_whose_transaction_was_ended_while_its_coordinator_said_yes_are_not_committed(
    is_add: bool, now: ErrorCode
) -> None:
    """The answer is on its way for two seconds, the client has aborted meanwhile, and the marker is in the group's partition."""

    async def main(bench: Bench) -> None:
        bench.brokers.gate.clear()
        commit = OffsetCommit(member=MemberRef(group_id="g", member_id=""), offsets=())
        committing = asyncio.ensure_future(bench.writes.commit_offsets("id", commit, Writer(7, 0), is_add=is_add))
        await asyncio.sleep(2.0)
        bench.replicas.producers[OFFSETS].mark(7)
        bench.brokers.code = lambda key: ErrorCode.NONE if len(bench.brokers.requests) == 1 else now
        bench.brokers.gate.set()
        with pytest.raises(KafkaError) as refused:
            await committing
        assert refused.value.code is now
        assert bench.committed == []
        assert len(bench.brokers.requests) == 2, "asked again, since the yes was of a transaction that is over"

    run(main)


def test_offsets_are_committed_in_the_turn_in_which_their_partition_is_known_to_be_in_the_transaction() -> None:
    async def main(bench: Bench) -> None:
        commit = OffsetCommit(member=MemberRef(group_id="g", member_id=""), offsets=())
        assert await bench.writes.commit_offsets("id", commit, Writer(7, 0), is_add=False) == ()
        assert bench.committed == [(commit, False)]
        bench.replicas.producers[OFFSETS].is_void = True
        with pytest.raises(KafkaError) as refused:
            await bench.writes.commit_offsets("id", commit, Writer(8, 0), is_add=False)
        assert refused.value.is_retriable
        assert len(bench.committed) == 1

    run(main)


def test_a_fast_producer_waits_a_little_for_the_end_of_its_last_transaction() -> None:
    async def main(bench: Bench) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + 0.05
        bench.brokers.code = lambda key: ErrorCode.CONCURRENT_TRANSACTIONS if loop.time() < until else ErrorCode.NONE
        assert await bench.produce(entry()) == [ErrorCode.NONE]
        assert len(bench.brokers.requests) > 1
        # a client that adds its partitions itself never sends before the answer
        until = loop.time() + 0.05
        assert await bench.produce(entry(OTHER), version=OLD) == [ErrorCode.NOT_ENOUGH_REPLICAS]

    run(main)


def test_a_fast_producer_is_not_refused_for_the_marker_of_its_last_transaction() -> None:
    async def main(bench: Bench) -> None:
        left = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS]

        def answer(key: TopicPartition) -> int:
            if not left:
                return ErrorCode.NONE
            bench.replicas.producers[KEY].mark(
                7
            )  # it comes after the question, and before the last transaction is over
            return left.pop()

        bench.brokers.code = answer
        assert await bench.produce(entry()) == [ErrorCode.NONE]
        assert len(bench.replicas.appended) == 1

    run(main)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_the_coordinator_is_asked_again_after_a_marker_that_came_with_its_answer(version: WriteVersion) -> None:
    async def main(bench: Bench) -> None:
        def answer(key: TopicPartition) -> int:
            if len(bench.brokers.requests) == 1:
                bench.replicas.producers[KEY].mark(7)
            return ErrorCode.NONE

        bench.brokers.code = answer
        assert await bench.produce(entry(), entry(OTHER), version=version) == [ErrorCode.NONE, ErrorCode.NONE]
        asked = [[len(topic.partitions) for topic in each.transactions[0].topics] for _, each in bench.brokers.requests]
        assert asked == [[2], [1]], "only of the partition that the marker came to"

    run(main)


@pytest.mark.parametrize(
    ("version", "code"), [(OLD, ErrorCode.NOT_ENOUGH_REPLICAS), (NEW, ErrorCode.CONCURRENT_TRANSACTIONS)]
)
def test_no_batch_gets_in_while_markers_come_and_its_producer_may_try_again(
    version: WriteVersion, code: ErrorCode
) -> None:
    async def main(bench: Bench) -> None:
        bench.replicas.producers[KEY].is_void = True
        assert await bench.produce(entry(), version=version) == [code]
        assert bench.replicas.appended == []

    run(main)


def test_a_partition_that_is_never_confirmed_is_asked_about_now_and_then() -> None:
    """A coordinator of this broker itself answers at once."""

    async def main(bench: Bench) -> None:
        bench.replicas.producers[KEY].is_void = True
        assert await bench.produce(entry()) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        assert len(bench.brokers.requests) < 60

    run(main, TransactionCoordinatorConfig(add_partitions_retry_backoff_max_ms=1_000))


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_marker_during_a_question_that_takes_longer_than_the_patience_is_followed_by_one_more(
    version: WriteVersion,
) -> None:
    async def main(bench: Bench) -> None:
        bench.brokers.gate.clear()
        answer = bench.produce(entry(), version=version)
        await asyncio.sleep(0.05)
        bench.replicas.producers[KEY].mark(7)  # the last transaction's, once
        await asyncio.sleep(2.4)
        bench.brokers.gate.set()
        assert await answer == [ErrorCode.NONE]
        assert len(bench.brokers.requests) == 2

    run(main)


def test_a_marker_that_comes_before_the_question_leaves_costs_none() -> None:
    async def main(bench: Bench) -> None:
        bench.brokers.gate.clear()
        first = bench.produce(entry(producer_id=8), transactional_id="other")
        await asyncio.sleep(0.01)  # it is under way, and the next one waits for it
        answer = bench.produce(entry())
        await asyncio.sleep(0.01)
        bench.replicas.producers[KEY].mark(7)
        bench.brokers.gate.set()
        assert await answer == await first == [ErrorCode.NONE]
        assert len(bench.brokers.requests) == 2

    run(main)


def test_a_partition_that_a_marker_comes_to_while_another_is_waited_for_is_asked_of_again() -> None:
    async def main(bench: Bench) -> None:
        left = [ErrorCode.CONCURRENT_TRANSACTIONS]

        def answer(key: TopicPartition) -> int:
            if key == OTHER and left:
                asyncio.get_running_loop().call_later(0.01, bench.replicas.producers[KEY].mark, 7)
                return left.pop()
            return ErrorCode.NONE

        bench.brokers.code = answer
        assert await bench.produce(entry(), entry(OTHER)) == [ErrorCode.NONE, ErrorCode.NONE]
        assert not any(bench.replicas.producers[each].needs_verification(7, 0) for each in (KEY, OTHER))

    run(main)


@pytest.mark.parametrize(
    ("version", "code"), [(OLD, ErrorCode.NOT_ENOUGH_REPLICAS), (NEW, ErrorCode.CONCURRENT_TRANSACTIONS)]
)
def test_a_batch_that_a_marker_overtakes_while_it_is_recompressed_may_be_sent_again(
    version: WriteVersion, code: ErrorCode
) -> None:
    async def main(bench: Bench) -> None:
        bench.replicas.error = InvalidTransactionState("not known to be in the transaction")
        assert await bench.produce(entry(), version=version) == [code]

    run(main)


@pytest.mark.parametrize(("version", "code"), [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)])
def test_offsets_outside_the_transaction_have_a_code_that_the_client_knows(version: int, code: ErrorCode) -> None:
    async def main(bench: Bench) -> None:
        bench.brokers.code = lambda key: ErrorCode.TRANSACTION_ABORTABLE
        request = TxnOffsetCommitRequest(
            transactional_id="id",
            group_id="g",
            producer_id=7,
            producer_epoch=0,
            topics=[TxnOffsetCommitRequestTopic("t", partitions=[TxnOffsetCommitRequestPartition(0, 5)])],
        )
        services = SimpleNamespace(
            metadata=SimpleNamespace(image=make_image(topics={"t": [((1,), (1,), 1)]})),
            transactional=bench.writes,
            audit=AuditLog(AuditConfig(), node_id=-1, clock_ms=lambda: 0),
        )
        access = SimpleNamespace(require=lambda *asked: None, may=lambda *asked: True)
        context = SimpleNamespace(api_version=version, access=access)
        answer = await txn_offset_commit(services, context, request)  # type: ignore[arg-type]
        assert [partition.error_code for topic in answer.topics for partition in topic.partitions] == [code]

    run(main)


def test_the_offsets_of_a_transaction_name_topics_by_id_from_v6_on() -> None:
    async def main(bench: Bench) -> None:
        image = make_image(topics={"t": [((1,), (1,), 1)], "hidden": [((1,), (1,), 1)]})
        known, hidden = image.topics.get("t"), image.topics.get("hidden")
        assert known is not None and hidden is not None
        commits: list[OffsetCommit] = []

        async def commit_offsets(name: str, commit: OffsetCommit, writer: Writer, *, is_add: bool) -> list[ErrorCode]:
            commits.append(commit)
            return [ErrorCode.NONE] * len(commit.offsets)

        services = SimpleNamespace(
            metadata=SimpleNamespace(image=image),
            transactional=SimpleNamespace(commit_offsets=commit_offsets),
            audit=AuditLog(AuditConfig(), node_id=-1, clock_ms=lambda: 0),
        )
        access = SimpleNamespace(require=lambda *asked: None, may=lambda *asked: "hidden" not in asked)
        asked = [
            (known.id, "t", 0),
            (known.id, "t", 7),
            (hidden.id, "hidden", 0),
            (Uuid(b"nobody's topicid"), "none", 0),
        ]
        request = TxnOffsetCommitRequest(
            transactional_id="id",
            group_id="g",
            producer_id=7,
            producer_epoch=0,
            topics=[
                TxnOffsetCommitRequestTopic(name, topic_id, [TxnOffsetCommitRequestPartition(partition, 5)])
                for topic_id, name, partition in asked
            ],
        )
        for version, absent in ((5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (6, ErrorCode.UNKNOWN_TOPIC_ID)):
            body = bytearray()
            encode_request(request, version, body)
            received = decode_request(ApiKey.TXN_OFFSET_COMMIT, version, memoryview(bytes(body)))
            context = SimpleNamespace(api_version=version, access=access)
            answer = await txn_offset_commit(services, context, received)  # type: ignore[arg-type]
            assert [topic.partitions[0].error_code for topic in answer.topics] == [
                ErrorCode.NONE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                absent,
            ]
            names = [(topic.name, topic.topic_id) for topic in received.topics]
            assert [(topic.name, topic.topic_id) for topic in answer.topics] == names
            (commit,) = commits
            assert [(offset.topic, offset.topic_id) for offset in commit.offsets] == [("t", known.id)]
            assert commit.knows_epochs is (version >= 6)
            commits.clear()

    run(main)


def test_the_writes_of_a_producer_keep_their_order_and_others_pass() -> None:
    async def main(bench: Bench) -> None:
        bench.brokers.gate.clear()
        first = bench.produce(entry(sequence=0))
        bench.replicas.producers[OTHER].open.add(7)
        second = bench.produce(entry(OTHER, sequence=0))
        bench.replicas.producers[KEY].open.add(8)
        other = bench.produce(entry(producer_id=8), transactional_id="other")
        assert (first.done(), second.done(), other.done()) == (False, False, True)
        bench.brokers.gate.set()
        await asyncio.gather(first, second)
        assert [number for _, number, _ in bench.replicas.appended] == [0, 0, 1]

    run(main)


def test_questions_to_one_coordinator_go_together() -> None:
    async def main(bench: Bench) -> None:
        bench.brokers.gate.clear()
        first = bench.produce(entry(), transactional_id="id-0")
        await asyncio.sleep(0.01)
        more = [
            bench.produce(entry(producer_id=10 + number), transactional_id=f"id-{number}") for number in range(1, 9)
        ]
        await asyncio.sleep(0.01)
        bench.brokers.gate.set()
        await asyncio.gather(first, *more)
        assert [len(request.transactions) for _, request in bench.brokers.requests] == [1, 8]

    run(main)


def test_what_is_not_of_a_transaction_or_not_led_here_asks_nothing() -> None:
    async def main(bench: Bench) -> None:
        assert bench.produce(entry(is_transactional=False)).done()
        assert bench.produce(AppendEntry("elsewhere", 0, batch())).done()
        assert bench.produce(AppendEntry(*KEY, b"rubbish")).done()
        assert bench.brokers.requests == []

    run(main)


def test_without_verification_an_old_client_is_believed() -> None:
    async def main(bench: Bench) -> None:
        assert bench.produce(entry(), version=OLD).done()
        assert bench.brokers.requests == []
        assert await bench.produce(entry(producer_id=8)) == [ErrorCode.NONE]
        assert len(bench.brokers.requests) == 1, "a new client's partitions have to be added"

    run(main, TransactionCoordinatorConfig(is_verification_enabled=False))


def test_bytes_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes_module, "WAITING_BYTES_MAX", 100)

    async def main(bench: Bench) -> None:
        bench.brokers.gate.clear()
        first = bench.produce(entry())
        assert await bench.produce(entry(producer_id=8), transactional_id="other") == [ErrorCode.REQUEST_TIMED_OUT]
        bench.brokers.gate.set()
        assert await first == [ErrorCode.NONE]
        assert await bench.produce(entry(producer_id=8), transactional_id="other") == [ErrorCode.NONE]

    run(main)


def test_a_question_about_one_id_twice_is_two_requests() -> None:
    async def main(bench: Bench) -> None:
        asked = [bench.verification.ask("id", Producer(7, epoch), frozenset({KEY}), is_add=False) for epoch in range(2)]
        assert await asyncio.gather(*asked) == [{KEY: ErrorCode.NONE}] * 2
        assert [request.transactions[0].producer_epoch for _, request in bench.brokers.requests] == [0, 1]

    run(main)
