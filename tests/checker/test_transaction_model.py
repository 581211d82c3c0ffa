"""The laws find what they are for; the model keeps them in version 2 and has Kafka's hole in version 1; and the coordinator's rules,
with partitions that keep to producer epochs, do what the model does, whatever copies of requests arrive late."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from barnabas_coordination.transaction import state as rules
from barnabas_coordination.transaction.state import Producer, TransactionState, TransactionStatus
from barnabas_simulation.transaction_model import Outcome, Transaction, TransactionHistory, Write, judge
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from tests.checker.transaction_steps import Refused, Request, TransactionModel

A = Transaction(
    transactional_id="id",
    owner=1,
    writes=(Write("p", "a0"), Write("q", "a1")),
    consumed=("in0",),
    offsets={"in": 1},
    outcome=Outcome.COMMITTED,
    ended_at=1.0,
)
B = replace(A, writes=(Write("p", "b0"), Write("p", "b1")), consumed=("in1",), offsets={"in": 2}, ended_at=2.0)
GOOD = TransactionHistory(
    transactions=(A, B),
    taken_at={("id", 1): 0.0},
    read={"p": ["a0", "b0", "b1"], "q": ["a1"]},
    offsets={"in": 2},
)
ABORTED = replace(B, outcome=Outcome.ABORTED)
UNKNOWN = replace(B, outcome=Outcome.UNKNOWN)
ONLY_A = replace(GOOD, transactions=(A, UNKNOWN), read={"p": ["a0"], "q": ["a1"]}, offsets={"in": 1})


@pytest.mark.parametrize("history", [GOOD, ONLY_A, replace(GOOD, transactions=(A, UNKNOWN))])
def test_a_history_that_the_model_explains_passes(history: TransactionHistory) -> None:
    assert judge(history) == []


@pytest.mark.parametrize(
    ("law", "history"),
    [
        ("E8", replace(GOOD, read={"p": ["a0", "b0"], "q": ["a1"]})),
        ("E8", replace(GOOD, read={"p": ["a0", "b0", "b1"]})),
        ("E8", replace(ONLY_A, read={"p": ["a0", "b1"], "q": ["a1"]}, offsets={"in": 2})),
        ("E4", replace(GOOD, transactions=(A, ABORTED))),
        ("E1", replace(GOOD, read={"p": ["a0"], "q": ["a1"]}, offsets={"in": 1})),
        ("E2", replace(GOOD, read={"p": ["a0", "b0", "b1", "b0"], "q": ["a1"]})),
        ("E7", replace(GOOD, read={"p": ["a0", "b1", "b0"], "q": ["a1"]})),
        ("E7", replace(GOOD, read={"p": ["b0", "a0", "b1"], "q": ["a1"]})),
        ("E9", replace(GOOD, offsets={"in": 1})),
        ("E9", replace(ONLY_A, offsets={"in": 2})),
        ("E9", replace(GOOD, offsets={})),
        ("E15", replace(GOOD, taken_at={("id", 1): 0.0, ("id", 2): 1.5})),
        ("E11", replace(GOOD, transactions=(replace(A, consumed=("b0",)), replace(B, consumed=("a0",))))),
    ],
)
def test_each_law_finds_the_history_that_breaks_it(law: str, history: TransactionHistory) -> None:
    assert {violation.law for violation in judge(history)} == {law}


# ---- the model, and clients whose requests are copied and come late ------------------------------------------------------


class Brokers:
    """The coordinator's rules and partitions that refuse batches of an older epoch, behind the model's interface."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.read: dict[str, list[str]] = {}
        self.offsets: dict[str, int] = {}
        self._states: dict[str, TransactionState] = {}
        self._owners: dict[str, int] = {}
        self._producers: dict[tuple[str, int, int], Producer] = {}
        """By transactional id, owner and number of the transaction: as whom the client writes."""
        self._epochs: dict[int, int] = {}
        """What partitions know of a producer id, from batches and markers."""
        self._open: dict[str, list[Write]] = {}
        self._pending: dict[str, dict[str, int]] = {}

    def initialize(self, transactional_id: str) -> int:
        while True:
            state = self._states.get(transactional_id)
            after = rules.initialize(
                state,
                timeout_ms=1,
                expected=None,
                fresh_producer_id=len(self._states) + 1,
                server_version=self.version,
                now_ms=0,
            )
            if after.status is not TransactionStatus.PREPARE_ABORT:
                break
            self._mark(transactional_id, after)
        self._states[transactional_id] = after
        self._owners[transactional_id] = owner = self._owners.get(transactional_id, 0) + 1
        self._producers[transactional_id, owner, 1] = after.producer
        return owner

    def handle(self, request: Request) -> None:
        try:
            self._handle(request)
        except KafkaError as error:
            raise Refused(str(error)) from error

    def _handle(self, request: Request) -> None:
        name = request.transactional_id
        producer = self._producers.get((name, request.owner, request.number))
        if producer is None:
            raise Refused("the client has not got so far")
        state = self._states[name]
        if request.is_commit is None:
            partitions = {TopicPartition(write.partition, 0) for write in request.writes}
            partitions |= {TopicPartition("offsets", 0)} if request.offsets else set()
            added = rules.add_partitions(state, producer, partitions, client_version=self.version, now_ms=0)
            self._states[name] = state if added is None else added
            if producer.epoch < self._epochs.get(producer.producer_id, -1):
                raise Refused("an older epoch")
            self._epochs[producer.producer_id] = producer.epoch
            written = self._open.setdefault(name, [])
            written += [write for write in request.writes if write not in written]
            self._pending.setdefault(name, {}).update(request.offsets)
            return
        ended = rules.end(
            state,
            producer,
            is_commit=request.is_commit,
            client_version=self.version,
            fresh_producer_id=None,
            now_ms=0,
        )
        if ended.state is not None:
            self._mark(name, ended.state)
        self._producers.setdefault((name, request.owner, request.number + 1), ended.producer)

    def _mark(self, name: str, ending: TransactionState) -> None:
        self._epochs[ending.producer_id] = max(self._epochs.get(ending.producer_id, -1), ending.producer_epoch)
        written, offsets = self._open.pop(name, []), self._pending.pop(name, {})
        if ending.is_commit:
            for partition, value in written:
                self.read.setdefault(partition, []).append(value)
            self.offsets |= offsets
        self._states[name] = rules.complete(ending, now_ms=0)


def run_clients(
    brokers: TransactionModel | Brokers, random: Random, *, beside: TransactionModel | None = None
) -> TransactionHistory:
    """Clients that take the same ids from each other, and a network that delivers copies of old requests at any time."""
    transactions: list[Transaction] = []
    taken_at: dict[tuple[str, int], float] = {}
    sent: list[Request] = []
    clock = 0.0
    progress: dict[str, int] = {}

    def deliver(request: Request) -> bool:
        outcomes = []
        for place in (brokers, beside):
            if place is None:
                continue
            try:
                place.handle(request)
                outcomes.append(True)
            except Refused:
                outcomes.append(False)
        assert len(set(outcomes)) == 1, f"{request}: the brokers and the model differ"
        return outcomes[0]

    for _ in range(random.randrange(2, 6)):
        name = random.choice(["id", "other"])
        owner = brokers.initialize(name)
        if beside is not None:
            assert beside.initialize(name) == owner
        clock += 1
        taken_at[name, owner] = clock
        for number in range(1, random.randrange(2, 6)):
            writes = tuple(
                Write(random.choice("pq"), f"{name}.{owner}.{number}.{place}")
                for place in range(random.randrange(1, 4))
            )
            stands = progress.get(name, 0)
            offsets = ((f"in-{name}", stands + 1),)
            is_acknowledged = []
            for write in writes:
                for late in random.choices(sent, k=random.randrange(2)) if sent else ():
                    deliver(late)
                request = Request(name, owner, number, (write,))
                sent.append(request)
                is_acknowledged.append(deliver(request))
            request = Request(name, owner, number, (), offsets)
            sent.append(request)
            deliver(request)
            is_commit = random.random() < 0.6
            request = Request(name, owner, number, is_commit=is_commit)
            for late in random.choices(sent, k=random.randrange(3)):
                deliver(late)
            clock += 1
            is_ended = deliver(request)
            sent.append(request)
            acknowledged = tuple(write for write, done in zip(writes, is_acknowledged, strict=True) if done)
            outcome = Outcome.COMMITTED if is_commit and is_ended else Outcome.ABORTED
            if outcome is Outcome.COMMITTED:
                progress[name] = stands + 1
            transactions.append(
                Transaction(
                    transactional_id=name,
                    owner=owner,
                    writes=acknowledged,
                    offsets=dict(offsets),
                    outcome=outcome,
                    ended_at=clock,
                )
            )
    return TransactionHistory(transactions=transactions, taken_at=taken_at, read=brokers.read, offsets=brokers.offsets)


@pytest.mark.parametrize("seed", range(100))
def test_the_model_of_version_2_keeps_every_law(seed: int) -> None:
    assert judge(run_clients(TransactionModel(2), Random(seed))) == []


@pytest.mark.parametrize("seed", range(100))
def test_the_rules_of_version_2_do_what_the_model_does(seed: int) -> None:
    model = TransactionModel(2)
    history = run_clients(Brokers(2), Random(seed), beside=model)
    assert judge(history) == []
    assert (history.read, history.offsets) == (model.read, model.offsets)


def test_a_late_end_in_version_1_tears_the_next_transaction_and_in_version_2_it_does_not() -> None:
    def torn(brokers: TransactionModel | Brokers) -> list[str]:
        owner = brokers.initialize("id")
        first, second = (tuple(Write("p", f"{number}.{place}") for place in range(2)) for number in (1, 2))
        commit = Request("id", owner, 1, is_commit=True)
        brokers.handle(Request("id", owner, 1, first))
        brokers.handle(commit)
        brokers.handle(Request("id", owner, 2, second[:1]))
        try:
            brokers.handle(commit)  # the copy
        except Refused:
            assert brokers.version == 2
        brokers.handle(Request("id", owner, 2, second[1:]))
        brokers.handle(Request("id", owner, 2, is_commit=False))
        history = TransactionHistory(
            transactions=(
                replace(A, writes=first, offsets={}, consumed=()),
                replace(A, writes=second, offsets={}, consumed=(), outcome=Outcome.ABORTED),
            ),
            taken_at={("id", owner): 0.0},
            read=brokers.read,
        )
        return [violation.law for violation in judge(history)]

    assert torn(TransactionModel(2)) == torn(Brokers(2)) == []
    assert torn(TransactionModel(1)) == torn(Brokers(1)) == ["E8", "E4"]
