"""Whole nodes from seeds: clean code breaks no law, planted bugs of the data plane are found, and one seed is one run.

What a deposed leader answers. Seed 3 of an early version: a leader that did not know yet that another was elected got a batch of
a producer whose earlier batches the other had taken, and answered OUT_OF_ORDER_SEQUENCE_NUMBER. Apache Kafka does the same: its
check (4.2.1, ProducerAppendInfo.checkSequence; read in its bytecode, not run) knows the producer state of this replica alone, and
to it a gap looks the same whether the producer is broken or the leader is deposed. It is no defect for clients that keep to the
newest leader epoch they have seen (KIP-320, as the Java client does): they do not go back to a leader whose successor has
answered them, and so the simulated client does not either. A client that trusts any broker's metadata can be hit with Kafka as
with us; Java's idempotent producer would take a new producer epoch and go on (TransactionManager.canRetry), others stop. To
answer NOT_LEADER_OR_FOLLOWER instead would let a producer whose sequences really have a gap retry for ever.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.records import RemoveTopicRecord, TopicRecord
from barnabas_simulation.cluster import Cluster
from barnabas_simulation.loop import Livelock, VirtualLoop
from barnabas_simulation.partition_model import LawBroken
from barnabas_simulation.run import Figures
from barnabas_simulation.swarm import Slant
from barnabas_wire.kafka.ids import NO_BROKER, Epoch, Offset, Uuid
from tests.simulation.moments import (
    COMPACTED,
    CORRUPT,
    CUT,
    DAMAGED,
    DAMAGED_AT_START,
    DELETED,
    FULL,
    LEADS_DAMAGED,
    OFFLINE,
    REPAIRED,
    SHORT_OF_DESCRIPTORS,
    START_MOVED,
    STEPS,
    TRANSACTIONS,
    WHOLE,
    listening,
    missed,
    until_reached,
)
from tests.simulation.mutant_seeds import load_seeds
from tests.simulation.node_mutants import MUTANTS, Hunt, NodeMutant, hunt
from tests.simulation.side_by_side import chosen, drop, processes, telling

pytestmark = pytest.mark.filterwarnings("ignore")

ROT = 1
"""Where seeds of ROT begin."""
HUNT_CPU_S = 90.0
OUTCOME_SEED = 41053


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Nodes that are crashed a thousand times have much to say."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run(seed: int, slant: Slant = Slant.NONE) -> Figures:
    """One seed, to its end."""
    with telling(seed):
        return Cluster(seed, steps=STEPS, slant=slant).run()


def run_quietly(seed: int) -> Figures:
    """In a process of its own."""
    logging.disable(logging.CRITICAL)
    return run(seed)


def test_a_run_leaves_the_collector_of_its_process_alone() -> None:
    """A snapshot is loaded in it. What a node freezes stays, and a search runs thousands of clusters in one process."""
    before = gc.get_freeze_count()
    Cluster(501, steps=STEPS, slant=Slant.NONE).run()
    assert gc.isenabled() and gc.get_freeze_count() == before


def test_a_sample_of_seeds_breaks_no_law() -> None:
    with processes() as pool:
        figures = list(pool.map(run_quietly, range(200, 212)))
    assert len(figures) == 12
    assert sum(figure.is_void for figure in figures) <= 4
    assert sum(figure.acknowledged for figure in figures) > 600
    assert sum(figure.crashes for figure in figures) > 20
    whole = Figures()
    for figure in figures:
        whole.add(figure)
    assert min(whole.stops, whole.reassignments, whole.voter_changes, whole.directories_offline, whole.throttles) > 0
    assert whole.directories_filled > 0
    assert whole.hashes_compared > 100


def test_who_goes_round_without_waiting_is_caught_though_time_stands_still() -> None:
    async def go_round() -> None:
        while True:
            await asyncio.sleep(0)

    loop = VirtualLoop()
    task = loop.create_task(go_round())
    with pytest.raises(Livelock):
        loop.run_until_complete(task)
    loop.advance(1.0)
    task.cancel()
    loop.run_until_complete(asyncio.wait((task,)))
    loop.close()


def test_a_timer_never_runs_before_its_time() -> None:
    loop = VirtualLoop()
    seen: list[float] = []
    due_s = 5.423
    loop.call_at(due_s - 4e-10, seen.append, 0.0)
    loop.call_at(due_s, lambda: seen.append(loop.time()))
    loop.run_until_complete(asyncio.sleep(6.0))
    assert seen == [0.0, due_s]
    loop.close()


def test_a_directory_works_again_before_its_broker_is_started_again() -> None:
    cluster = Cluster(1, steps=1)
    node = cluster.nodes[0]
    path = next(iter(node.directory_ids))
    node.disk.broken[path] = errno.EIO
    cluster.faults._in_repair = node, path
    cluster.faults._start_later(node, 0.0)
    assert not node.disk.broken, "mended under the next life, which has given it up by then, it is never in sync again"


def test_a_replica_counts_as_there_while_the_directory_that_does_not_work_may_hold_it() -> None:
    cluster = Cluster(1, steps=1)
    node = cluster.nodes[0]
    former, successor, other = (Uuid(letter * 16) for letter in (b"f", b"s", b"o"))
    node.directory_ids = {"replaced": successor, "other": other}
    node.replaced_by = {former: successor}
    replica = PartitionRegistration(
        replicas=(node.id,),
        directories=(former,),
        isr=(),
        elr=(node.id,),
        leader=NO_BROKER,
        leader_epoch=Epoch(0),
        partition_epoch=1,
    )

    def image(*directories: Uuid) -> Any:
        broker = SimpleNamespace(directories=directories)
        return SimpleNamespace(cluster=SimpleNamespace(broker=lambda broker_id: broker))

    cluster.invariants._check_directories(image(successor), "records", replica)
    with pytest.raises(LawBroken, match="may not lead"):
        cluster.invariants._check_directories(image(successor, other), "records", replica)


def test_a_topic_counts_as_deleted_though_another_was_made_at_once() -> None:
    invariants = Cluster(1, steps=1).invariants
    stats = SimpleNamespace(hash_mismatches=0, hashes_compared=0)
    node: Any = SimpleNamespace(id=1, life=1, loader=SimpleNamespace(stats=stats))
    former, latter = Uuid(b"f" * 16), Uuid(b"l" * 16)
    model = invariants.model("churned", former, 0)
    first = MetadataDelta(MetadataImage.EMPTY)
    first.replay(TopicRecord(name="churned", topic_id=former))
    image = first.apply(Offset(1), Epoch(1), 0)
    invariants._check_image(node, image)
    assert not model.is_deleted
    second = MetadataDelta(image)
    second.replay(RemoveTopicRecord(topic_id=former))
    second.replay(TopicRecord(name="churned", topic_id=latter))
    invariants._check_image(node, second.apply(Offset(3), Epoch(1), 0))
    assert model.is_deleted, "as many topics as before, but not the same"


def test_one_seed_is_one_run_in_any_process() -> None:
    def trace_hash(hash_seed: str) -> str:
        done = subprocess.run(
            [
                sys.executable,
                "-W",
                "ignore",
                "-m",
                "tests.simulation",
                "--only",
                "nodes",
                "--seed",
                "4",
                "--steps",
                "8000",
            ],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        found = re.search(r"trace hash (\w+)", done.stdout)
        assert found is not None, done.stdout
        return found[1]

    with ThreadPoolExecutor() as at_once:
        assert len(set(at_once.map(trace_hash, ("1", "2")))) == 1


def hunt_for(bug: str, outcomes_only: bool) -> Hunt:
    """Plant it in this process, and search for it."""
    mutant = next(each for each in MUTANTS if each.bug == bug)
    seed = OUTCOME_SEED if outcomes_only else load_seeds()[bug]
    return hunt(mutant.plant, seed=seed, cpu_limit_s=HUNT_CPU_S, outcomes_only=outcomes_only, slant=mutant.slant)


BROKE_A_LAW_ONCE: tuple[tuple[int, Slant, str, *tuple[str, ...]], ...] = (
    (
        1,
        Slant.BEGUN_ANEW,
        "no log is begun for what an older image calls new while a directory is out of service",
        OFFLINE,
        r"churned-\d+-0: leading epoch",
    ),
    (7, Slant.NONE, "a log that one directory does not take is begun in another", FULL),
    (1, Slant.NONE, "a topic of this life is hosted beside a directory that failed before it was heard of", OFFLINE),
    (ROT, Slant.ROT, "a directory that comes back costs no replica that was made without it", OFFLINE),
    (ROT, Slant.ROT, "a repaired replica knows what producers wrote in what was damaged", REPAIRED),
    (1, Slant.NONE, "retention takes no batches whose producers no snapshot knows", START_MOVED),
    (ROT, Slant.ROT, "damage in the batch that the log start lies in is repaired", DAMAGED, START_MOVED),
    (ROT, Slant.ROT, "an epoch that began in damage is known after a restart", DAMAGED_AT_START),
    (ROT, Slant.ROT, "a replica that cut its log before damage is whole once it has the records again", CUT, WHOLE),
    (52, Slant.ROT, "a cut before damage waits for descriptors", DAMAGED, SHORT_OF_DESCRIPTORS),
    (ROT, Slant.ROT, "a cut within damage waits until the replica is no more eligible", CUT),
    (52, Slant.ROT, "a damaged leader takes no batch that may be a repeat", LEADS_DAMAGED),
    (
        1,
        Slant.COORDINATORS,
        "offsets committed behind their marker open no transaction",
        TRANSACTIONS,
        "^offsets_given_up: ",
    ),
    (52, Slant.ROT, "a repair that finds no descriptor fails no directory", DAMAGED, SHORT_OF_DESCRIPTORS),
    (52, Slant.ROT, "a corrupt leader alone in the isr gives way to an eligible replica", CORRUPT, LEADS_DAMAGED),
    (ROT, Slant.ROT, "rot below the log start makes no replica differ", DAMAGED, START_MOVED),
    (
        ROT,
        Slant.ROT,
        "a log that is cut where its damage ends keeps what lies before",
        "sound only up to",
        DAMAGED_AT_START,
    ),
    (ROT, Slant.ROT, "repaired records are kept as long as others", REPAIRED, "^settings: "),
    (847183437, Slant.DELETING, "a log that starts over on a full disk does not begin at 0", FULL, DELETED),
    (ROT, Slant.ROT, "a transaction whose first record was repaired stays aborted", DAMAGED, TRANSACTIONS),
    (ROT, Slant.ROT, "the last stable offset does not go back where a marker is damaged", DAMAGED, TRANSACTIONS),
    (
        ROT,
        Slant.ROT,
        "a run of the cleaner brings back no transactions as they were read beside damage",
        DAMAGED,
        TRANSACTIONS,
    ),
    (ROT, Slant.ROT, "a snapshot from beside damage refuses no producer once the damage is gone", DAMAGED, REPAIRED),
    (ROT, Slant.ROT, "a damaged segment that retention took refuses no producer", DAMAGED, START_MOVED),
    (ROT, Slant.ROT, "damage below the log start refuses no producer", DAMAGED, START_MOVED),
    (1, Slant.TRANSACTIONS, "the power may go in the turn in which the last disk fails", OFFLINE, TRANSACTIONS),
    (ROT, Slant.ROT, "who lost a disk may be called in sync until all its directories work", OFFLINE, DAMAGED),
    (ROT, Slant.ROT, "a segment begun behind a damaged end may go with it", DAMAGED, CUT),
    (1, Slant.NONE, "a clean stop that reaches into the calm is waited for", "has stopped cleanly"),
    (ROT, Slant.ROT, "a report of a fault that is over takes no replica out of the isr", CORRUPT, WHOLE),
    (ROT, Slant.ROT, "rot below the log start is passed over and sent to nobody", DAMAGED, START_MOVED),
    (ROT, Slant.ROT, "what found no room is flushed when there is room", FULL, "has room again"),
    (ROT, Slant.ROT, "bits flip in no log that is being deleted", "^bits_flipped: ", r"churned-\d"),
    (ROT, Slant.ROT, "the only other copy is not one in a broken directory", CUT),
    (1, Slant.NONE, "a node that crashed sends nothing more", "^crashes: "),
    (
        132,
        Slant.FORGETTING,
        "a deleted key stays deleted where a new leaders high watermark is old",
        COMPACTED,
        r"compacted-\d: leading epoch [1-9]",
    ),
    (
        950310058,
        Slant.OLDER_COPIES,
        "the clock of the active controller jumps after it heard the voters",
        "off the median of the voters' clocks",
    ),
    (
        309282018,
        Slant.SMALL_FILES,
        "a log of two topics is lost, flushed or not, and refilled unflushed",
        "leads nothing until it is refilled",
    ),
)
"""Rules that came of what seeds found, with a seed whose run, or that of one after it, reaches the moments that the rule is about
(moments.py). Rules of one slant begin with one seed, and share runs: what a rule's own seed did once, it does no more once the code is
another. A moment is in one seed of ten at least, so that a change of the code makes none unreachable."""


@pytest.mark.parametrize(
    ("seed", "slant", "moments"),
    [pytest.param(seed, slant, moments, id=rule) for seed, slant, rule, *moments in BROKE_A_LAW_ONCE],
)
def test_what_broke_a_law_once_breaks_none(seed: int, slant: Slant, moments: list[str]) -> None:
    assert moments
    until_reached(seed, slant, moments)


def test_a_moment_that_was_not_reached_is_named() -> None:
    with listening() as lines:
        logging.getLogger("a.room").info("repaired %d", 7)
        logging.getLogger("a.room").debug("too quiet")
    assert missed(["paired 7$", "^crashes: 2", "too quiet", "^stops: "], lines, Figures(crashes=2)) == [
        "too quiet",
        "^stops: ",
    ]


@pytest.fixture(scope="module")
def hunts(request: pytest.FixtureRequest) -> Iterator[dict[tuple[str, bool], Future[Hunt]]]:
    """The searches for all bugs that this run asks for, by name and whether clients alone judge."""
    pool = processes()
    wanted = [(mutant.bug, test == "test_clients_alone_see_a_bug_too") for test, mutant in chosen(request, "mutant")]
    yield {(bug, outcomes_only): pool.submit(hunt_for, bug, outcomes_only) for bug, outcomes_only in wanted}
    drop(pool)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mutant", [each for each in MUTANTS if each.is_tested], ids=lambda each: each.bug)
def test_a_planted_bug_is_found(mutant: NodeMutant, hunts: dict[tuple[str, bool], Future[Hunt]]) -> None:
    """Those that cost little; `make sim-mutants` hunts them all, from random seeds."""
    found = hunts[mutant.bug, False].result()
    assert found.is_found, f"not found in {found.seeds_tried} seeds"


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "mutant",
    [each for each in MUTANTS if each.bug == "anybody may join the ISR, its end unchecked"],
    ids=lambda each: each.bug,
)
def test_clients_alone_see_a_bug_too(mutant: NodeMutant, hunts: dict[tuple[str, bool], Future[Hunt]]) -> None:
    """Without the laws of mechanism: what was acknowledged is lost."""
    found = hunts[mutant.bug, True].result()
    assert found.is_found, f"not found in {found.seeds_tried} seeds"
