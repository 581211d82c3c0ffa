"""Exactly once without Spark: tasks and drivers of the sink's own code, killed before and after everything they send."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from barnabas_wire.client import transactions
from barnabas_wire.client.blocking import BlockingCluster, BlockingConnection
from barnabas_wire.client.producer import ProducerIdentity
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.records.batch import iterate_batches, iterate_records
from pyspark_barnabas import decision, exactly_once
from pyspark_barnabas.decision import Decision, DecisionError, Winner
from pyspark_barnabas.exactly_once import Attempt, Prepared, decide, give_up, prepare_rows
from pyspark_barnabas.sink_options import SinkOptions, parse_sink_options
from pyspark_barnabas.writer import SinkError
from tests.spark.conftest import Topics

pytestmark = [pytest.mark.cluster]

Options = Callable[..., dict[str, str]]
PARTITIONS = 2
TASKS = 2
MARKERS_S = 20.0
"""How long the markers of a decision may take: they are written after the answer."""


class Killed(BaseException):
    """The process is gone: no code of its own runs any more."""


class Wire:
    """Everything that is sent, one frame after another; dies where it is told to, and stays dead until it is started again."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.sent = 0
        self.dies_at = -1
        self.is_after = False
        """Whether the frame it dies at has gone out, so that only its answer is lost."""
        self.is_dead = False
        plain = BlockingConnection._send

        def send(connection: BlockingConnection, frame: bytearray, deadline_s: float) -> None:
            if self.is_dead:
                raise Killed
            self.sent += 1
            self.is_dead = self.sent == self.dies_at
            if self.is_dead and not self.is_after:
                raise Killed
            plain(connection, frame, deadline_s)
            if self.is_dead:
                raise Killed

        patch.setattr(BlockingConnection, "_send", send)

    def start(self, dies_at: int = -1, *, is_after: bool = False) -> None:
        """A new process."""
        exactly_once._clients.clear()
        self.sent, self.dies_at, self.is_after, self.is_dead = 0, dies_at, is_after, False


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    return Wire(monkeypatch)


@pytest.fixture
def sink(topics: Topics, options: Options) -> SinkOptions:
    """Options with a topic and a prefix that no other test has."""
    topic = topics.create(PARTITIONS)
    made = parse_sink_options(options(topic=topic, mode="exactly_once", transactionalIdPrefix=f"prefix-{topic}"))
    exactly_once.check_brokers(made)  # as the driver does first
    return made


def rows(batch: int, task: int) -> list[pa.RecordBatch]:
    values = [f"{batch}.{task}.{at}".encode() for at in range(4)]
    return [pa.record_batch({"key": pa.array(values, pa.binary()), "value": pa.array(values, pa.binary())})]


WANTED = {
    batch: sorted(row.as_py() for task in range(TASKS) for row in rows(batch, task)[0]["value"]) for batch in range(9)
}


def run_batch(options: SinkOptions, batch: int, *, query: str = "q", number: int = 0) -> None:
    """What Spark does for a micro-batch."""
    exactly_once.check_brokers(options)
    messages = [prepare_rows(rows(batch, task), options, Attempt(query, batch, task, number)) for task in range(TASKS)]
    decide(messages, batch, options)


def committed(topics: Topics, topic: str) -> list[bytes | None]:
    """What readers of committed data see, once nothing is open."""
    found: list[bytes | None] = []
    for index in range(PARTITIONS):
        partition = TopicPartition(topic, index)
        deadline = time.monotonic() + MARKERS_S
        while True:
            end = topics.wire.list_offsets({partition: -1})[partition]
            stable = topics.wire.list_offsets({partition: -1}, is_read_committed=True)[partition]
            if stable == end or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        assert stable == end, f"a transaction is open in {partition}"
        data = topics.wire.fetch(partition, 0).records
        aborted: dict[int, list[bytes | None]] = {}
        for position, header in iterate_batches(data):
            batch = memoryview(data)[position : position + header.size_bytes]
            if header.is_control:
                (marker,) = iterate_records(batch)
                pending = aborted.pop(header.producer_id, [])
                if marker.key is not None and marker.key[3] == 1:
                    found += pending
            else:
                aborted.setdefault(header.producer_id, []).extend(record.value for record in iterate_records(batch))
        assert not any(aborted.values())
    return sorted(found, key=repr)


def wanted(*batches: int) -> list[bytes]:
    return sorted((value for batch in batches for value in WANTED[batch]), key=repr)


def test_each_record_once_wherever_task_or_driver_die(
    topics: Topics, sink: SinkOptions, wire: Wire, is_full: bool
) -> None:
    batch = 0
    wire.start()
    run_batch(sink, batch)
    steps = wire.sent
    assert steps > 30
    done = [0]
    # the short form kills at each step once, before and after in turns
    deaths = [(step, is_after) for step in range(1, steps + 8) for is_after in (False, True)]
    for at, (step, is_after) in enumerate(deaths if is_full else deaths[::9]):
        batch = at + 1
        WANTED.setdefault(batch, sorted(row.as_py() for task in range(TASKS) for row in rows(batch, task)[0]["value"]))
        wire.start(step, is_after=is_after)
        try:
            run_batch(sink, batch)
        except Killed:
            wire.start()
            run_batch(sink, batch)  # Spark runs the batch again from its offsets
        wire.start()
        done.append(batch)
        if at % 10 == 9 or at < 3:
            assert committed(topics, sink.topic or "") == wanted(*done), f"killed at {step}, {is_after}"
    assert committed(topics, sink.topic or "") == wanted(*done)


@pytest.fixture
def is_full() -> bool:
    """Whether every step is killed at, as in make ecosystem."""
    import os

    return bool(os.environ.get("BARNABAS_ECOSYSTEM_FULL"))


def test_a_failed_attempt_a_retry_and_a_speculative_attempt_leave_each_record_once(
    topics: Topics, sink: SinkOptions, wire: Wire
) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from rows(0, 0)
        raise RuntimeError("the task fails here")

    with pytest.raises(RuntimeError):
        prepare_rows(failing(), sink, Attempt("q", 0, 0, 0))
    winner = prepare_rows(rows(0, 0), sink, Attempt("q", 0, 0, 1))
    speculative = prepare_rows(rows(0, 0), sink, Attempt("q", 0, 0, 1))
    assert winner.winner is not None and speculative.winner is not None
    assert winner.winner.suffix == 1 and speculative.winner.suffix == 2, "a prepared id is nobody else's"
    other = prepare_rows(rows(0, 1), sink, Attempt("q", 0, 1, 0))
    decide([winner, other], 0, sink)
    late = prepare_rows(rows(0, 0), sink, Attempt("q", 0, 0, 3))
    assert late.winner is None, "the batch is decided"
    assert committed(topics, sink.topic or "") == wanted(0)


def test_an_attempt_that_is_slower_than_the_decision_is_not_left_prepared(
    topics: Topics, sink: SinkOptions, wire: Wire
) -> None:
    winners = [prepare_rows(rows(0, task), sink, Attempt("q", 0, task, 0)) for task in range(TASKS)]

    def slow() -> Iterator[pa.RecordBatch]:
        yield from rows(0, 0)
        decide(winners, 0, sink)

    assert prepare_rows(slow(), sink, Attempt("q", 0, 0, 1)).winner is None
    assert committed(topics, sink.topic or "") == wanted(0)
    assert transactions.open_transactions(topics.wire, lambda name: decision.is_of(sink.prefix, name)) == []


def test_of_two_drivers_one_decides_and_the_other_loses_nothing(topics: Topics, sink: SinkOptions, wire: Wire) -> None:
    zombie = [prepare_rows(rows(0, task), sink, Attempt("q", 0, task, 0)) for task in range(TASKS)]
    run_batch(sink, 0)
    decide(zombie, 0, sink)
    give_up(0, sink)
    run_batch(sink, 1)
    assert committed(topics, sink.topic or "") == wanted(0, 1)


def test_what_a_dead_driver_still_has_on_its_way_counts_no_more_once_the_next_one_has_begun(sink: SinkOptions) -> None:
    cluster, name = exactly_once.client(sink), decision.driver_id(sink.prefix)
    dead = transactions.begin(cluster, name, timeout_ms=sink.transaction_timeout_ms)
    exactly_once.check_brokers(sink)
    late = {TopicPartition(decision.MARKER_TOPIC, 0): transactions.CommittedOffset(1, "late")}
    with pytest.raises(KafkaError) as refused:
        transactions.commit_offsets(cluster, name, dead, decision.group_of(sink.prefix), late)
    assert refused.value.code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
    run_batch(sink, 0)


def test_a_batch_whose_winner_somebody_aborted_is_not_decided(topics: Topics, sink: SinkOptions, wire: Wire) -> None:
    messages = [prepare_rows(rows(0, task), sink, Attempt("q", 0, task, 0)) for task in range(TASKS)]
    give_up(0, sink)
    with pytest.raises(SinkError, match=r"was aborted before the batch was decided.*nothing of the batch is written"):
        decide(messages, 0, sink)
    assert committed(topics, sink.topic or "") == []
    run_batch(sink, 0)
    assert committed(topics, sink.topic or "") == wanted(0)


def test_batch_writes_go_on_where_the_last_one_died(topics: Topics, sink: SinkOptions, wire: Wire) -> None:
    for number, dies_at in enumerate((-1, 45, -1, 60, -1)):
        wire.start()
        batch = exactly_once.begin_batch_write(sink)
        wire.start(dies_at)
        try:
            messages = [
                prepare_rows(rows(number, task), sink, Attempt(exactly_once.BATCH_QUERY, batch, task, 0))
                for task in range(TASKS)
            ]
            decide(messages, batch, sink)
        except Killed:
            continue
    wire.start()
    exactly_once.begin_batch_write(sink)
    found = committed(topics, sink.topic or "")
    assert set(wanted(0, 2, 4)) <= set(found)
    for number in (1, 3):
        assert set(WANTED[number]) <= set(found) or not set(WANTED[number]) & set(found), "all of a write or nothing"
    assert len(found) == len(set(found))


def test_the_marker_belongs_to_one_query_and_must_be_there(topics: Topics, sink: SinkOptions, wire: Wire) -> None:
    with pytest.raises(
        DecisionError, match=r"batch 5 of query q has no marker in group .*\.decisions: .*exactlyOnceAdopt=true"
    ):
        run_batch(sink, 5)
    run_batch(sink, 0)
    with pytest.raises(DecisionError, match=r"belongs to query q, this is other: give each query a prefix of its own"):
        run_batch(sink, 1, query="other")
    with pytest.raises(DecisionError, match=r"batch 3 of query q does not follow the marker .* expects batch 1"):
        run_batch(sink, 3)
    decide([], 1, sink)  # a batch without a task
    run_batch(sink, 2)
    assert committed(topics, sink.topic or "") == wanted(0, 2)


def test_a_decision_survives_its_text_whatever_its_size() -> None:
    for count in (0, 1, 300, 3000):
        made = Decision(7, "q", tuple(Winner(at, at % 3, ProducerIdentity(10**9 + at, at)) for at in range(count)))
        assert decision.decode(decision.encode(made, partitions=50)) == made
    with pytest.raises(DecisionError, match=r"3000 tasks are too many .*coalesce"):
        decision.encode(made, partitions=3)
    pieces = decision.encode(made, partitions=50)
    pieces[1] = pieces[1]._replace(offset=6)
    with pytest.raises(DecisionError, match=r"of different batches"):
        decision.decode(pieces)
    assert decision.decode({}) is None


def test_only_a_prefixs_own_ids_are_swept() -> None:
    assert decision.is_of("a", decision.transactional_id("a", 3, 0))
    assert not any(decision.is_of("a", name) for name in ("a.driver", "a-1", "a-b-1-2", "ab-1-2", "a-1-2-3", "a-1-2x"))


def test_brokers_that_cannot_are_named_with_the_reason(sink: SinkOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    exactly_once._clients.clear()
    exactly_once.check_brokers(sink)
    plain: Any = BlockingCluster.any_connection

    def without(self: BlockingCluster) -> BlockingConnection:
        connection: BlockingConnection = plain(self)
        connection.ranges.pop(10_000, None)
        return connection

    monkeypatch.setattr(BlockingCluster, "any_connection", without)
    with pytest.raises(SinkError, match=r"mode=exactly_once is not possible at .*PrepareTxn.*use mode=at_least_once"):
        exactly_once.check_brokers(sink)


def test_messages_are_small_and_picklable(sink: SinkOptions) -> None:
    import pickle

    from pyspark_barnabas.sink import TaskPrepared

    message = TaskPrepared(Prepared(Attempt("q", 0, 1, 2), 3, 4, Winner(1, 2, ProducerIdentity(5, 6))))
    assert pickle.loads(pickle.dumps(message)) == message
