"""Exactly once: tasks prepare transactions, the driver decides on all of them by one marker, then commits them.

May touch:  the blocking wire client, Spark's task context.   Must not touch: gRPC.
Invariants: nothing is committed before the marker names it, and what the marker names is committed whoever dies; a batch that the marker
    has passed is not written again; what no marker names is aborted, never left prepared.
Read next:  decision.py, barnabas_wire/client/transactions.py.

    task      read the marker (decided: write nothing) ─ take a transactional id ─ write ─ read the marker again ─ PREPARE
    driver    take the driver's id ─ read the marker ─ marker, in a transaction ─ commit each winner ─ abort the losers

Whoever dies between two steps: unprepared transactions time out; prepared ones wait for the batch to be run again, which finds the
marker and commits, or finds none, writes again and aborts them.

Not obvious:
- An attempt whose transactional id is prepared by another takes the next suffix: InitProducerId on it is refused, so no attempt can
  abort a winner.
- The marker is read again before PREPARE. If it names no decision then, the driver lists open transactions after it was written, so
  it finds this one and aborts it; else the attempt aborts itself. Without that a late attempt would stay prepared for ever.
- Only the driver's id writes markers, and taking it fences another driver: of two drivers of one query one decides.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from barnabas_wire.client import transactions
from barnabas_wire.client.blocking import BlockingCluster
from barnabas_wire.client.producer import ProducerIdentity
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from pyspark_barnabas import decision
from pyspark_barnabas.decision import MARKER_TOPIC, Decision, DecisionError, Winner
from pyspark_barnabas.sink_options import SinkOptions
from pyspark_barnabas.writer import SinkError, connect, make_producer, words, write_rows

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

SUFFIXES_MAX = 100
"""Attempts of one task that may be prepared at once, before it is said that nobody decides on them."""
BATCH_QUERY = "batch writes"
"""Stands for the query where a DataFrame is written once."""


class Attempt(NamedTuple):
    """Which attempt of which task of which batch runs here."""

    query: str
    batch: int
    task: int
    number: int


class Prepared(NamedTuple):
    """What an attempt leaves to the driver; no winner where it had nothing to write, or the batch was decided already."""

    attempt: Attempt
    records: int
    bytes: int
    winner: Winner | None


def current_attempt(*, batch: int | None) -> Attempt:
    """As Spark's task context says; batch: of a batch write, which no query runs."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "a task runs in a task context"
    task, number = context.partitionId(), context.attemptNumber()
    if batch is not None:
        return Attempt(BATCH_QUERY, batch, task, number)
    query, of_batch = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
    if query is None or of_batch is None:
        raise SinkError(
            "this Spark does not give a task its query and batch, which mode=exactly_once needs: use Spark 4.3"
        )
    return Attempt(query, int(of_batch), task, number)


_clients: dict[tuple[int, SinkOptions], BlockingCluster] = {}


def client(options: SinkOptions) -> BlockingCluster:
    """This process's client of the cluster."""
    key = (os.getpid(), options)
    if key not in _clients:
        _clients.clear()
        _clients[key] = connect(options)
    return _clients[key]


# ---- in a task


def prepare_rows(rows: Iterable[pa.RecordBatch], options: SinkOptions, attempt: Attempt) -> Prepared:
    """Write the rows in a transaction of the attempt's own and leave it prepared. Raises SinkError, DecisionError."""
    cluster, prefix = client(options), options.prefix
    nothing = Prepared(attempt, 0, 0, None)
    with _in_words(options):
        if _is_decided(cluster, options, attempt):
            _drain(rows)
            return nothing
        suffix, identity = _take_id(cluster, options, attempt)
    name = decision.transactional_id(prefix, attempt.task, suffix)
    producer = make_producer(cluster, options, identity, name)
    try:
        written = write_rows(rows, options, producer, cluster)
        if not written.records:
            return nothing
        with _in_words(options):
            if _is_decided(cluster, options, attempt):
                transactions.end(cluster, name, identity, is_commit=False)
                return nothing
            transactions.prepare(cluster, name, identity)
    except Exception:
        # The next sweep would end it too; until then it would hold back readers of committed data.
        with contextlib.suppress(KafkaError, OSError):
            transactions.end(cluster, name, identity, is_commit=False)
        raise
    finally:
        producer.close()
    return Prepared(attempt, written.records, written.bytes, Winner(attempt.task, suffix, identity))


def _is_decided(cluster: BlockingCluster, options: SinkOptions, attempt: Attempt) -> bool:
    return decision.is_decided(
        _read(cluster, options.prefix),
        prefix=options.prefix,
        query=attempt.query,
        batch=attempt.batch,
        adopts=options.adopts,
    )


def _take_id(cluster: BlockingCluster, options: SinkOptions, attempt: Attempt) -> tuple[int, ProducerIdentity]:
    """(suffix, producer): the first transactional id of the task that no other attempt has prepared, from the attempt's number on."""
    for suffix in range(attempt.number, attempt.number + SUFFIXES_MAX):
        name = decision.transactional_id(options.prefix, attempt.task, suffix)
        try:
            return suffix, _take(cluster, options, name)
        except KafkaError as error:
            if error.code != ErrorCode.INVALID_TXN_STATE:
                raise
    raise SinkError(
        f"{SUFFIXES_MAX} attempts of task {attempt.task} are prepared and nobody decided on them: `barnabas txn list --state Prepared`"
    )


def _drain(rows: Iterable[pa.RecordBatch]) -> None:
    for _ in rows:
        pass


# ---- in the driver


def check_brokers(options: SinkOptions) -> None:
    """Before the tasks of a batch: raise SinkError when the brokers cannot do it, with the reason."""
    with _in_words(options):
        obstacle = transactions.two_phase_obstacle(client(options))
        if obstacle is None:
            # A driver may have died while it wrote its marker, which may still be on its way: while that is open no task can read what
            # is decided.
            _begin(client(options), options)
    if obstacle is not None:
        raise SinkError(
            f"mode=exactly_once is not possible at kafka.bootstrap.servers={','.join(options.bootstrap_servers)}: {obstacle}; "
            "or use mode=at_least_once"
        )


def begin_batch_write(options: SinkOptions) -> int:
    """The number of a batch write under the prefix, once everything of the one before is ended as it was decided."""
    with _in_words(options):
        cluster = client(options)
        driver = _begin(cluster, options)
        found = _read(cluster, options.prefix)
        if found is None:
            winners: tuple[Winner, ...] = ()
        else:
            if found.query not in ("", BATCH_QUERY):
                raise DecisionError(
                    f"transactionalIdPrefix={options.prefix} belongs to query {found.query}: give each query "
                    "and each job of batch writes a prefix of its own"
                )
            winners = found.winners
            for winner in winners:
                _commit(cluster, options.prefix, winner, may_be_past=True)
        _sweep(cluster, options.prefix, driver, winners)
        return 0 if found is None else found.next_batch


def decide(prepared: Sequence[Prepared], batch: int, options: SinkOptions) -> None:
    """Commit what the tasks of a batch prepared: the marker first. May be repeated after any failure. Raises SinkError, DecisionError."""
    cluster, prefix = client(options), options.prefix
    query = next((each.attempt.query for each in prepared), "")
    with _in_words(options):
        driver = _begin(cluster, options)
        found = _read(cluster, prefix)
        if query and not decision.is_decided(found, prefix=prefix, query=query, batch=batch, adopts=options.adopts):
            winners = tuple(each.winner for each in prepared if each.winner is not None)
            _verify(cluster, prefix, winners)
            found = Decision(batch + 1, query, winners)
            driver = _write(cluster, prefix, driver, found)
        elif found is None or found.next_batch <= batch:
            # Spark ran no task: the marker continues all the same, or the next batch would find a gap.
            found = Decision(batch + 1, found.query if found is not None else "", ())
            driver = _write(cluster, prefix, driver, found)
        if found.next_batch == batch + 1:
            for winner in found.winners:
                _commit(cluster, prefix, winner, may_be_past=False)
        else:
            found = Decision(found.next_batch, found.query, ())
    try:
        _sweep(cluster, prefix, driver, found.winners)
    except (KafkaError, OSError) as error:  # the batch is written; the next one sweeps again
        logger.warning("losers of batch %d under %s are not aborted yet: %s", batch, prefix, error)


def give_up(batch: int, options: SinkOptions) -> None:
    """Abort what the tasks of a batch wrote, unless it is decided: then commit it."""
    cluster, prefix = client(options), options.prefix
    with _in_words(options):
        driver = _begin(cluster, options)
        found = _read(cluster, prefix)
        winners = found.winners if found is not None and found.next_batch == batch + 1 else ()
        for winner in winners:
            _commit(cluster, prefix, winner, may_be_past=False)
        _sweep(cluster, prefix, driver, winners)


def _read(cluster: BlockingCluster, prefix: str) -> Decision | None:
    count = len(cluster.metadata([MARKER_TOPIC]).topics[MARKER_TOPIC])
    return decision.decode(transactions.stable_offsets(cluster, decision.group_of(prefix), MARKER_TOPIC, range(count)))


def _write(cluster: BlockingCluster, prefix: str, driver: ProducerIdentity, made: Decision) -> ProducerIdentity:
    """The marker: from here on what it names is committed, whoever dies. Returns how the driver continues."""
    count = len(cluster.metadata([MARKER_TOPIC]).topics[MARKER_TOPIC])
    name = decision.driver_id(prefix)
    pieces = decision.encode(made, partitions=count)
    offsets = {TopicPartition(MARKER_TOPIC, place): piece for place, piece in pieces.items()}
    transactions.commit_offsets(cluster, name, driver, decision.group_of(prefix), offsets)
    transactions.end(cluster, name, driver, is_commit=True)
    return ProducerIdentity(driver.id, driver.epoch + 1)


def _commit(cluster: BlockingCluster, prefix: str, winner: Winner, *, may_be_past: bool) -> None:
    """may_be_past: its transactional id may have gone on since, which shows that it was ended."""
    name = decision.transactional_id(prefix, winner.task, winner.suffix)
    try:
        transactions.end(cluster, name, winner.producer, is_commit=True)
    except KafkaError as error:
        if may_be_past and error.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
            return
        if error.code == ErrorCode.INVALID_TXN_STATE:
            raise SinkError(
                f"the transaction of {name} was decided to be committed, and somebody has aborted it "
                "(`barnabas txn abort`): its records are lost"
            ) from error
        raise


def _begin(cluster: BlockingCluster, options: SinkOptions) -> ProducerIdentity:
    """Take the driver's id, so that no other driver of the prefix can decide any more."""
    return _take(cluster, options, decision.driver_id(options.prefix))


def _take(cluster: BlockingCluster, options: SinkOptions, name: str) -> ProducerIdentity:
    try:
        return transactions.begin(cluster, name, timeout_ms=options.transaction_timeout_ms)
    except KafkaError as error:
        if error.code != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise
        raise SinkError(
            f"kafka.transaction.timeout.ms={options.transaction_timeout_ms} is more than the brokers' "
            "transaction.max.timeout.ms: lower it"
        ) from None


def _verify(cluster: BlockingCluster, prefix: str, winners: Sequence[Winner]) -> None:
    """Raise SinkError unless all of them are prepared: once the marker names one it must not be aborted any more."""
    found = {
        (each.transactional_id, each.producer)
        for each in transactions.open_transactions(cluster, lambda name: decision.is_of(prefix, name))
        if each.state == transactions.PREPARED
    }
    for winner in winners:
        name = decision.transactional_id(prefix, winner.task, winner.suffix)
        if (name, winner.producer) in found:
            continue
        held = transactions.holder(cluster, name)  # perhaps its coordinator moved while all were listed
        if held is None or (held.producer, held.state) != (winner.producer, transactions.PREPARED):
            raise SinkError(
                f"the transaction of {name} was aborted before the batch was decided, by another driver under the prefix {prefix} or by "
                "`barnabas txn abort`: nothing of the batch is written, run it again"
            )


def _sweep(cluster: BlockingCluster, prefix: str, driver: ProducerIdentity, winners: Sequence[Winner]) -> None:
    """Abort every open transaction under the prefix but the winners', as long as no other driver has taken over."""
    kept = {(decision.transactional_id(prefix, each.task, each.suffix), each.producer) for each in winners}
    for found in transactions.open_transactions(cluster, lambda name: decision.is_of(prefix, name)):
        if (found.transactional_id, found.producer) not in kept:
            held = transactions.holder(cluster, decision.driver_id(prefix))
            if held is None or held.producer != driver:
                return  # what is open may be another driver's
            with contextlib.suppress(KafkaError):  # it ended meanwhile
                transactions.end(cluster, found.transactional_id, found.producer, is_commit=False)


@contextlib.contextmanager
def _in_words(options: SinkOptions) -> Iterator[None]:
    try:
        yield
    except (KafkaError, OSError) as error:
        raise SinkError(words(error, options)) from error
