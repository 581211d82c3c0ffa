"""Whole nodes with transactions, from seeds: clean code breaks no promise, and what once did does not any more."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial

import pytest

from barnabas_simulation.cluster import Cluster
from barnabas_simulation.partition_model import LawBroken
from barnabas_simulation.run import Figures
from barnabas_simulation.swarm import Slant
from barnabas_simulation.transaction_model import Outcome
from barnabas_simulation.transactions import Attempt, TransactionWorkload
from tests.simulation.side_by_side import processes, telling

pytestmark = pytest.mark.filterwarnings("ignore")

STEPS = 12_000


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Nodes that are crashed a thousand times have much to say."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run(seed: int, *, prepares: bool = True, slant: Slant = Slant.TRANSACTIONS) -> Figures:
    """One seed with transactions, to its end."""
    logging.disable(logging.CRITICAL)  # of a process of its own
    with telling(seed):
        return Cluster(seed, steps=STEPS, slant=slant, prepares=prepares).run()


def test_a_sample_of_seeds_breaks_no_promise() -> None:
    whole = Figures()
    with processes() as pool:
        for figures in pool.map(run, range(9, 17)):  # among which each thing asked for below happens
            whole.add(figures)
    assert whole.transactions > 10
    assert whole.prepared_transactions > 5
    assert min(whole.crashes, whole.elections, whole.compactions, whole.zombies_fenced) > 0


def test_a_sample_of_seeds_with_troubled_coordinators_breaks_no_promise() -> None:
    whole = Figures()
    with processes() as pool:
        for figures in pool.map(partial(run, slant=Slant.COORDINATORS), range(1, 6)):
            whole.add(figures)
    assert whole.transactions > 20
    assert min(whole.classic_transactions, whole.offsets_given_up, whole.empty_aborts, whole.coordinators_moved) > 0


def test_a_transaction_whose_marker_is_late_ends_though_its_producer_goes_on() -> None:
    run(
        24, prepares=False
    )  # the next epoch's batch came before the marker, which was refused for ever after: readers never got further


def test_offsets_and_copies_survive_a_cut_before_damage() -> None:
    run(500011, prepares=False)  # a replica was in the ISR without records that it had cut off


def test_a_run_of_the_cleaner_leaves_no_directory_of_a_replica_that_has_just_moved_away() -> None:
    run(3932715335)  # its directory of work was made anew, with that of the log, which had another name by then


def test_an_aborted_transaction_is_known_after_a_crash_that_tore_the_index_of_aborted_ones() -> None:
    run(3932715508)  # the next entry was written behind the rest of the torn one, and not found by the next start


def test_a_decision_whose_answer_was_lost_may_have_been_taken() -> None:
    run(248457689)  # the simulator's own: it took the fence of the next owner, at the second try, for a second decision


def test_offsets_of_a_partition_that_the_coordinator_had_not_heard_of_get_their_marker() -> None:
    run(110996315)  # it took the new partition for a deleted one, and the offsets stayed open for ever


def test_a_value_that_nobody_has_asked_to_commit_may_not_be_read() -> None:
    workload = TransactionWorkload(Cluster(1, steps=1, slant=Slant.TRANSACTIONS))
    reader = workload.readers[0]
    attempt = Attempt(owner=1, first=0)
    value = workload.new_value(attempt)
    with pytest.raises(LawBroken, match="E5"):
        reader.take(0, value)
    attempt.outcome = Outcome.UNKNOWN
    reader.seen.clear()
    reader.take(0, value)
