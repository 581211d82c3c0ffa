"""Parked requests: answered once, in order, whatever happens to them."""

from __future__ import annotations

from barnabas_replication.errors import NotLeaderOrFollower, RequestTimedOut
from barnabas_replication.leader.purgatory import ParkedFetch, ParkedProduce, ProduceQueue, WaitingList
from barnabas_replication.requests import AppendOutcome, FetchSpec
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import Offset


class Answers:
    """Collects what respond was called with."""

    def __init__(self) -> None:
        self.given: list[list[AppendOutcome]] = []

    def produce(self, partitions: int = 1, deadline_ms: int = 1000) -> ParkedProduce:
        outcomes = [AppendOutcome("t", number, None, Offset(5)) for number in range(partitions)]
        return ParkedProduce(outcomes, self.given.append, deadline_ms)

    @property
    def errors(self) -> list[type[KafkaError] | None]:
        return [None if outcome.error is None else type(outcome.error) for outcome in self.given[0]]


def test_a_produce_is_answered_when_the_offset_has_passed_it_and_not_before() -> None:
    answers, queue = Answers(), ProduceQueue()
    produce = answers.produce()
    queue.park(Offset(6), produce, 0)
    produce.settle()
    queue.release(Offset(5))
    assert not answers.given
    queue.release(Offset(6))
    queue.release(Offset(7))
    assert len(answers.given) == 1
    assert answers.errors == [None]
    assert len(queue) == 0


def test_a_produce_of_two_partitions_waits_for_both_and_tells_them_apart() -> None:
    answers, first, second = Answers(), ProduceQueue(), ProduceQueue()
    produce = answers.produce(partitions=2)
    first.park(Offset(6), produce, 0)
    second.park(Offset(6), produce, 1)
    produce.settle()
    first.release(Offset(6))
    assert not answers.given
    second.fail_all(NotLeaderOrFollower("moved"))
    assert answers.errors == [None, NotLeaderOrFollower]
    assert answers.given[0][1].base_offset == 5, "written, and may yet commit"


def test_no_answer_leaves_while_its_maker_is_still_appending() -> None:
    answers, first, second = Answers(), ProduceQueue(), ProduceQueue()
    produce = answers.produce(partitions=2)
    first.park(Offset(6), produce, 0)
    first.fail_all(NotLeaderOrFollower("the second append failed the directory of the first"))
    assert not answers.given
    second.park(Offset(6), produce, 1)
    produce.settle()
    second.release(Offset(6))
    assert answers.errors == [NotLeaderOrFollower, None]


def test_only_what_is_due_expires() -> None:
    early, late, queue = Answers(), Answers(), ProduceQueue()
    for required, produce in ((6, late.produce(deadline_ms=200)), (7, early.produce(deadline_ms=100))):
        queue.park(Offset(required), produce, 0)
        produce.settle()
    assert queue.expire(99, RequestTimedOut) == 0
    assert queue.expire(100, RequestTimedOut) == 1
    assert early.errors == [RequestTimedOut]
    queue.release(Offset(9))
    assert late.errors == [None]
    assert len(early.given) == 1


def test_failing_while_an_answer_parks_anew_neither_loses_nor_repeats() -> None:
    queue, given = ProduceQueue(), []

    def respond(outcomes: list[AppendOutcome]) -> None:
        given.append(outcomes)
        if len(given) == 1:
            park(9)

    def park(required: int) -> None:
        produce = ParkedProduce([AppendOutcome("t", 0, None)], respond, 0)
        queue.park(Offset(required), produce, 0)
        produce.settle()

    park(6)
    queue.fail_all(RequestTimedOut())
    assert len(given) == 1
    assert len(queue) == 1
    queue.release(Offset(9))
    assert len(given) == 2


def test_a_fetch_stands_in_all_its_lists_and_leaves_all_at_once() -> None:
    looked: list[ParkedFetch] = []
    lists = [WaitingList(), WaitingList()]
    fetch = ParkedFetch(FetchSpec(), [], lambda outcomes: None, looked.append, looked.append)
    cancelled: list[bool] = []
    fetch.cancel_timer = lambda: cancelled.append(True)
    fetch.wait_in(lists)
    lists[0].wake()
    lists[1].wake()
    assert looked == [fetch, fetch]
    fetch.leave()
    fetch.leave()
    assert not lists[0] and not lists[1]
    assert cancelled == [True]


def test_a_fetch_that_is_answered_during_a_wake_is_not_woken_again() -> None:
    looked: list[ParkedFetch] = []
    waiting = WaitingList()

    def look(fetch: ParkedFetch) -> None:
        looked.append(fetch)
        for each in parked:
            each.leave()

    parked = [ParkedFetch(FetchSpec(), [], lambda outcomes: None, look, look) for _ in range(2)]
    for fetch in parked:
        fetch.wait_in([waiting])
    waiting.wake()
    assert len(looked) == 1
