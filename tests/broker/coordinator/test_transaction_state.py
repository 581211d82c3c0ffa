"""The rules of one transactional id: the table of what may follow what, and the codes of everything else."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from barnabas_coordination.transaction import state as rules
from barnabas_coordination.transaction.state import (
    AT_REST,
    ENDING,
    EPOCH_LAST,
    EPOCH_MAX,
    LEGAL,
    End,
    Producer,
    ProducerIdNeeded,
    TransactionState,
    TransactionStatus,
)
from barnabas_wire.kafka.errors import ErrorCode, InvariantViolated, KafkaError
from barnabas_wire.kafka.ids import TopicPartition

S = TransactionStatus
PARTITION, ANOTHER = TopicPartition("t", 0), TopicPartition("t", 1)
CURRENT, BEFORE, OTHER = Producer(7, 5), Producer(7, 4), Producer(8, 5)
EVERY = [status for status in S if status not in (S.DEAD, S.PREPARE_EPOCH_FENCE)]


def made(status: TransactionStatus, *, client_version: int = 2, **changes: Any) -> TransactionState:
    is_open = status not in AT_REST
    state = TransactionState(
        producer_id=7,
        previous_producer_id=7,
        producer_epoch=5,
        last_producer_epoch=4,
        timeout_ms=1_000,
        status=status,
        partitions=frozenset({PARTITION} if is_open else ()),
        start_ms=100 if is_open else -1,
        update_ms=100,
        client_version=client_version,
    )
    return replace(state, **changes)


def outcome(
    state: TransactionState, producer: Producer, *, is_commit: bool, client_version: int
) -> ErrorCode | tuple[TransactionStatus | None, Producer]:
    """The code, or the status that EndTxn leads to and how the producer goes on."""
    try:
        ended = rules.end(
            state,
            producer,
            is_commit=is_commit,
            client_version=client_version,
            fresh_producer_id=None,
            now_ms=200,
        )
    except KafkaError as error:
        return error.code
    return (None if ended.state is None else ended.state.status), ended.producer


def test_every_status_says_what_it_may_follow_as_kafka_does() -> None:
    rest = {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}
    assert {status: set(before) for status, before in LEGAL.items()} == {
        S.EMPTY: rest,
        S.ONGOING: rest | {S.ONGOING},
        S.PREPARE_COMMIT: {S.ONGOING, S.PREPARED},
        S.PREPARE_ABORT: rest | {S.ONGOING, S.PREPARED, S.PREPARE_EPOCH_FENCE},
        S.COMPLETE_COMMIT: {S.PREPARE_COMMIT},
        S.COMPLETE_ABORT: {S.PREPARE_ABORT},
        S.DEAD: rest,
        S.PREPARE_EPOCH_FENCE: {S.ONGOING},
        S.PREPARED: {S.ONGOING},
    }
    assert [status.title for status in S] == [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence",
        "Prepared",
    ]  # fmt: skip


FENCED, MAPPING = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING
WRONG, WAIT = ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS
BUMPED = Producer(7, 6)
EPOCHS = {
    # status: (abort of the epoch before, abort, commit of the epoch before, commit); Kafka's table for transaction.version 2
    S.EMPTY: (FENCED, (S.PREPARE_ABORT, BUMPED), FENCED, WRONG),
    S.ONGOING: (FENCED, (S.PREPARE_ABORT, BUMPED), FENCED, (S.PREPARE_COMMIT, BUMPED)),
    # its own epoch: it was told that the last one is decided, and ends the next before the markers are written (KAFKA-18464)
    S.PREPARE_COMMIT: (WRONG, WAIT, WAIT, WAIT),
    S.PREPARE_ABORT: (WAIT, WAIT, WRONG, WAIT),
    S.COMPLETE_COMMIT: (WRONG, (S.PREPARE_ABORT, BUMPED), (None, CURRENT), WRONG),
    S.COMPLETE_ABORT: ((None, CURRENT), (S.PREPARE_ABORT, BUMPED), WRONG, WRONG),
    S.PREPARED: (FENCED, (S.PREPARE_ABORT, BUMPED), FENCED, (S.PREPARE_COMMIT, BUMPED)),
}
CLASSIC = {
    # status: (abort, commit); the epoch before is fenced in each
    S.EMPTY: (WRONG, WRONG),
    S.ONGOING: ((S.PREPARE_ABORT, CURRENT), (S.PREPARE_COMMIT, CURRENT)),
    S.PREPARE_COMMIT: (WRONG, WAIT),
    S.PREPARE_ABORT: (WAIT, WRONG),
    S.COMPLETE_COMMIT: (WRONG, (None, CURRENT)),
    S.COMPLETE_ABORT: ((None, CURRENT), WRONG),
    S.PREPARED: ((S.PREPARE_ABORT, CURRENT), (S.PREPARE_COMMIT, CURRENT)),
}


@pytest.mark.parametrize("status", EVERY)
def test_an_end_with_its_own_epoch_has_kafkas_code_in_every_status(status: TransactionStatus) -> None:
    found = tuple(
        outcome(made(status), producer, is_commit=is_commit, client_version=2)
        for is_commit in (False, True)
        for producer in (BEFORE, CURRENT)
    )
    assert found == EPOCHS[status]
    for is_commit in (False, True):
        assert outcome(made(status), OTHER, is_commit=is_commit, client_version=2) == MAPPING
        for epoch in (3, 6):
            assert outcome(made(status), Producer(7, epoch), is_commit=is_commit, client_version=2) == FENCED


@pytest.mark.parametrize("status", EVERY)
def test_an_end_of_an_old_client_has_kafkas_code_in_every_status(status: TransactionStatus) -> None:
    state = made(status, client_version=0)
    found = tuple(outcome(state, CURRENT, is_commit=is_commit, client_version=0) for is_commit in (False, True))
    assert found == CLASSIC[status]
    for is_commit in (False, True):
        assert outcome(state, OTHER, is_commit=is_commit, client_version=0) == MAPPING
        for producer in (BEFORE, Producer(7, 6)):
            assert outcome(state, producer, is_commit=is_commit, client_version=0) == FENCED


@pytest.mark.parametrize("status", EVERY)
def test_partitions_are_added_by_the_current_producer_when_nothing_is_being_ended(status: TransactionStatus) -> None:
    def add(producer: Producer, partition: TopicPartition = ANOTHER) -> TransactionState | ErrorCode | None:
        try:
            return rules.add_partitions(made(status), producer, {partition}, client_version=2, now_ms=200)
        except KafkaError as error:
            return error.code

    def verify(producer: Producer) -> ErrorCode:
        try:
            return rules.verify_partitions(made(status), producer, {PARTITION})[PARTITION]
        except KafkaError as error:
            return error.code

    assert add(OTHER) == verify(OTHER) == MAPPING
    assert add(BEFORE) == verify(BEFORE) == add(Producer(7, 6)) == verify(Producer(7, 6)) == FENCED
    if status in ENDING:
        assert add(CURRENT) == verify(CURRENT) == WAIT
        return
    if status is S.PREPARED:
        assert add(CURRENT) == add(CURRENT, PARTITION) == verify(CURRENT) == WRONG
        return
    after = add(CURRENT)
    assert isinstance(after, TransactionState)
    assert (after.status, after.start_ms) == (S.ONGOING, 100 if status is S.ONGOING else 200)
    is_open = status is S.ONGOING
    assert after.partitions == {ANOTHER} | ({PARTITION} if is_open else set())
    assert (add(CURRENT, PARTITION) is None) is is_open
    assert verify(CURRENT) == (ErrorCode.NONE if is_open else ErrorCode.TRANSACTION_ABORTABLE)


def initialized(
    state: TransactionState | None, expected: Producer | None = None
) -> TransactionState | ErrorCode | None:
    """None: a producer id is needed."""
    try:
        return rules.initialize(
            state, timeout_ms=2_000, expected=expected, fresh_producer_id=None, server_version=2, now_ms=200
        )
    except ProducerIdNeeded:
        return None
    except KafkaError as error:
        return error.code


@pytest.mark.parametrize("status", EVERY)
def test_initialization_raises_the_epoch_of_a_transactional_id_at_rest_and_aborts_an_open_one(
    status: TransactionStatus,
) -> None:
    after = initialized(made(status))
    if status in ENDING:
        assert after == WAIT
        return
    if status is S.PREPARED:
        assert after == initialized(made(status), CURRENT) == WRONG, "another producer takes another transactional id"
        return
    assert isinstance(after, TransactionState)
    assert after.producer == Producer(7, 6)
    assert after.status is (S.PREPARE_ABORT if status is S.ONGOING else S.EMPTY)
    assert after.last_producer_epoch == -1, "nobody can take it for a repeat of its own"
    assert initialized(made(status), OTHER) == FENCED
    assert isinstance(initialized(made(status), CURRENT), TransactionState)
    if status is not S.ONGOING:
        repeated = initialized(made(status), BEFORE)
        assert isinstance(repeated, TransactionState)
        assert repeated.producer == CURRENT
        assert initialized(made(status), Producer(7, 3)) == FENCED


@pytest.mark.parametrize("status", EVERY)
def test_only_what_is_ongoing_is_prepared_by_its_own_producer(status: TransactionStatus) -> None:
    def prepare(producer: Producer) -> TransactionState | ErrorCode | None:
        try:
            return rules.prepare(made(status), producer, now_ms=200)
        except KafkaError as error:
            return error.code

    assert prepare(OTHER) == MAPPING
    assert prepare(BEFORE) == prepare(Producer(7, 6)) == FENCED
    after = prepare(CURRENT)
    if status is S.ONGOING:
        assert isinstance(after, TransactionState)
        assert after == replace(made(status), status=S.PREPARED, update_ms=200), "nothing else changes"
    else:
        assert after == {S.PREPARED: None, S.PREPARE_COMMIT: WAIT, S.PREPARE_ABORT: WAIT}.get(status, WRONG)


def test_a_new_id_and_a_used_up_one_need_a_producer_id() -> None:
    assert initialized(None) is None
    used_up = made(S.COMPLETE_COMMIT, producer_epoch=EPOCH_LAST, last_producer_epoch=-1)
    assert initialized(used_up) is None
    assert initialized(used_up, Producer(7, EPOCH_LAST)) is None
    assert initialized(used_up, Producer(7, 3)) == FENCED
    # the answer with the new id was lost
    fresh = made(S.EMPTY, producer_id=9, previous_producer_id=7, producer_epoch=0, last_producer_epoch=EPOCH_LAST)
    after = initialized(fresh, Producer(7, EPOCH_LAST))
    assert isinstance(after, TransactionState)
    assert after.producer == Producer(9, 0)


def test_the_epoch_of_a_marker_is_the_ends_and_never_passes_the_last() -> None:
    used_up = made(S.ONGOING, producer_epoch=EPOCH_LAST)
    with pytest.raises(ProducerIdNeeded):
        outcome(used_up, Producer(7, EPOCH_LAST), is_commit=True, client_version=2)
    ended = rules.end(
        used_up,
        Producer(7, EPOCH_LAST),
        is_commit=True,
        client_version=2,
        fresh_producer_id=9,
        now_ms=200,
    )
    assert ended == End(ended.state, Producer(9, 0))
    assert ended.state is not None
    assert ended.state.producer == Producer(7, EPOCH_MAX)
    assert rules.complete(ended.state, now_ms=300).producer == Producer(9, 0)
    fenced = rules.fence(made(S.ONGOING, producer_epoch=EPOCH_MAX), server_version=2, now_ms=200)
    assert fenced.producer_epoch == EPOCH_MAX


@pytest.mark.parametrize("status", sorted(ENDING))
def test_who_goes_on_under_a_new_producer_id_waits_for_the_markers_of_the_used_up_one(
    status: TransactionStatus,
) -> None:
    ending = made(status, producer_epoch=EPOCH_MAX, last_producer_epoch=EPOCH_LAST, next_producer_id=9)
    goes_on = Producer(9, 0)
    assert rules.complete(ending, now_ms=200).producer == goes_on
    for is_commit in (False, True):
        assert outcome(ending, goes_on, is_commit=is_commit, client_version=2) == WAIT
        assert outcome(ending, Producer(9, 1), is_commit=is_commit, client_version=2) == MAPPING
        assert outcome(ending, OTHER, is_commit=is_commit, client_version=2) == MAPPING
    assert outcome(ending, Producer(7, EPOCH_LAST), is_commit=status is S.PREPARE_COMMIT, client_version=2) == WAIT
    for ask in (
        lambda: rules.add_partitions(ending, goes_on, {PARTITION}, client_version=2, now_ms=200),
        lambda: rules.verify_partitions(ending, goes_on, {PARTITION}),
        lambda: rules.prepare(ending, goes_on, now_ms=200),
    ):
        with pytest.raises(KafkaError) as refused:
            ask()
        assert refused.value.code is WAIT
    assert initialized(ending, goes_on) == WAIT
    assert initialized(ending, OTHER) == FENCED


@pytest.mark.parametrize("is_commit", [False, True])
def test_an_abort_of_nothing_before_the_markers_waits_and_its_repeat_changes_nothing(is_commit: bool) -> None:
    def end(state: TransactionState, producer: Producer, *, is_commit: bool = False) -> End:
        return rules.end(state, producer, is_commit=is_commit, client_version=2, fresh_producer_id=None, now_ms=200)

    first = end(made(S.ONGOING), CURRENT, is_commit=is_commit)
    assert first.state is not None
    assert outcome(first.state, first.producer, is_commit=False, client_version=2) == WAIT
    rested = rules.complete(first.state, now_ms=300)
    second = end(rested, first.producer)
    assert second.state is not None
    assert (second.state.partitions, second.producer) == (frozenset(), Producer(7, 7))
    assert outcome(second.state, first.producer, is_commit=False, client_version=2) == WAIT, "its answer was lost"
    assert end(rules.complete(second.state, now_ms=400), first.producer) == End(None, second.producer)


@pytest.mark.parametrize("status", EVERY)
def test_only_what_is_ongoing_is_fenced_and_only_what_is_ending_completes(status: TransactionStatus) -> None:
    if status is S.ONGOING:
        fenced = rules.fence(made(status), server_version=1, now_ms=200)
        assert (fenced.status, fenced.producer, fenced.partitions) == (S.PREPARE_ABORT, BUMPED, {PARTITION})
    else:
        with pytest.raises(InvariantViolated):
            rules.fence(made(status), server_version=1, now_ms=200)
    if status in ENDING:
        done = rules.complete(made(status), now_ms=200)
        assert (done.status in AT_REST, done.partitions, done.producer) == (True, frozenset(), CURRENT)
    else:
        with pytest.raises(InvariantViolated):
            rules.complete(made(status), now_ms=200)


def test_time_outs_are_of_open_transactions_and_expiry_of_those_at_rest() -> None:
    for status in EVERY:
        assert made(status).is_timed_out(now_ms=1_101) is (status is S.ONGOING)
        assert not made(status).is_timed_out(now_ms=1_100)
        assert made(status).is_expired(now_ms=600, expiration_ms=500) is (status in AT_REST)
        assert not made(status).is_expired(now_ms=599, expiration_ms=500)


@pytest.mark.parametrize("seed", range(20))
def test_with_an_epoch_per_transaction_no_request_of_one_transaction_ever_changes_another(seed: int) -> None:
    """Any number of late copies of everything that was ever sent, at any time: no transaction is committed, aborted or written to
    but by its own requests."""
    random = Random(seed)
    state = initialized(None) or rules.initialize(
        None, timeout_ms=1_000, expected=None, fresh_producer_id=7, server_version=2, now_ms=0
    )
    assert isinstance(state, TransactionState)
    ends: list[tuple[Producer, bool]] = []
    producer = state.producer
    for number in range(40):
        partition = TopicPartition("t", number)
        began = rules.add_partitions(state, producer, {partition}, client_version=2, now_ms=number)
        assert began is not None
        state = began
        for late, was_commit in random.choices(ends, k=3) if ends else []:
            for is_commit in (was_commit, not was_commit):
                assert outcome(state, late, is_commit=is_commit, client_version=2) == FENCED
            with pytest.raises(KafkaError):
                rules.add_partitions(state, late, {PARTITION}, client_version=2, now_ms=number)
        is_commit = random.random() < 0.5
        ends.append((producer, is_commit))
        ended = rules.end(state, producer, is_commit=is_commit, client_version=2, fresh_producer_id=None, now_ms=number)
        assert ended.state is not None
        assert ended.state.partitions == {partition}
        assert ended.state.is_commit is is_commit
        state, producer = rules.complete(ended.state, now_ms=number), ended.producer
        # a repeat of the last end is answered and changes nothing
        assert rules.end(
            state, ends[-1][0], is_commit=is_commit, client_version=2, fresh_producer_id=None, now_ms=number
        ) == End(None, producer)
