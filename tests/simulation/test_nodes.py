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
from tests.simulation.mutant_seeds import load_seeds
from tests.simulation.node_mutants import MUTANTS, Hunt, NodeMutant, hunt
from tests.simulation.side_by_side import chosen, drop, processes, telling

pytestmark = pytest.mark.filterwarnings("ignore")

STEPS = 12_000
HUNT_CPU_S = 90.0
OUTCOME_SEED = 41000


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Nodes that are crashed a thousand times have much to say."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run(seed: int, slant: Slant = Slant.NONE, *, spares_last_copy: bool = True) -> Figures:
    """One seed, to its end."""
    logging.disable(logging.CRITICAL)  # of a process of its own
    with telling(seed):
        return Cluster(seed, steps=STEPS, slant=slant, spares_last_copy=spares_last_copy).run()


def test_a_sample_of_seeds_breaks_no_law() -> None:
    with processes() as pool:
        figures = list(pool.map(run, range(200, 212)))
    assert len(figures) == 12
    assert sum(figure.is_void for figure in figures) <= 4
    assert sum(figure.acknowledged for figure in figures) > 600
    assert sum(figure.crashes for figure in figures) > 30
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


def test_a_removal_that_is_due_within_a_rounding_error_is_no_livelock() -> None:
    run(117598417)  # the timer ran a rounding error before its time, and time stood still


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


def test_no_log_is_begun_for_what_an_older_image_calls_new_while_a_directory_is_out_of_service() -> None:
    run(5100054)  # the replica had been made since, in that directory: an empty log beside it stood in the ISR


def test_a_log_that_one_directory_does_not_take_is_begun_in_another() -> None:
    run(6600037)  # its leader hosted nothing ever after; the others lost their disks, and nobody was left to lead


def test_a_topic_of_this_life_is_hosted_beside_a_directory_that_failed_before_it_was_heard_of() -> None:
    run(267513450)  # its leader hosted nothing, though no earlier life can have had a log of it


def test_a_directory_that_comes_back_costs_no_replica_that_was_made_without_it() -> None:
    run(7000029)  # it was struck from the eligible ones, for it might have been in a directory that was replaced


def test_a_repaired_replica_knows_what_producers_wrote_in_what_was_damaged() -> None:
    run(1312200177)  # it was loaded from damaged batches, led after their repair, and refused a retry as out of order


def test_retention_takes_no_batches_whose_producers_no_snapshot_knows() -> None:
    run(317599126)  # after a crash the state was in memory alone, then the segment that it was read from expired


def test_damage_in_the_batch_that_the_log_start_lies_in_is_repaired() -> None:
    run(753788980)  # its first offset was asked for, which the leader had deleted: the replica stayed corrupt


def test_an_epoch_that_began_in_damage_is_known_after_a_restart() -> None:
    run(753789063)  # its start was forgotten with the batch: committed records were cut as an older epoch's


def test_a_replica_that_cut_its_log_before_damage_is_whole_once_it_has_the_records_again() -> None:
    # its leader counted it by where it had stood, and was not asked from the new end: in the ISR without a record
    run(507396119, spares_last_copy=False)


def test_a_cut_before_damage_waits_for_descriptors() -> None:
    run(753789190)  # the repairs' task ended, and with it the broker


def test_a_cut_within_damage_waits_until_the_replica_is_no_more_eligible() -> None:
    # it was empty and without damage then, and eligible still: elected it had lost a committed record
    run(3856962964, spares_last_copy=False)


def test_a_damaged_leader_takes_no_batch_that_may_be_a_repeat() -> None:
    run(107548368)  # the damage hid the batch that a producer sent again, and it was appended twice


def test_offsets_committed_behind_their_marker_open_no_transaction() -> None:
    run(
        1465930835
    )  # the coordinator had confirmed them, then the marker came, then they: nobody ended what they opened


def test_a_repair_that_finds_no_descriptor_fails_no_directory() -> None:
    run(196679856)  # want of one at the flush of what was replaced took the whole directory offline


def test_a_corrupt_leader_alone_in_the_isr_gives_way_to_an_eligible_replica() -> None:
    run(505477228)  # nobody could fetch what it had lost, so nobody joined its ISR, and nobody took over


def test_rot_below_the_log_start_makes_no_replica_differ() -> None:
    # DeleteRecords had passed it: the replica counted as whole, and the law compared what nobody reads
    run(30000351, spares_last_copy=False)


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


def test_a_log_that_is_cut_where_its_damage_ends_keeps_what_lies_before() -> None:
    run(1129, Slant.ROT)  # it ended at 0 then, with all its bytes


def test_repaired_records_are_kept_as_long_as_others() -> None:
    run(847183235, Slant.ROT)  # retention took them by the time of those that could be read before their repair


def test_a_log_that_starts_over_on_a_full_disk_does_not_begin_at_0() -> None:
    run(847183437, Slant.DELETING)  # a power cut kept the old names' going, and nothing had made the new one


def test_a_transaction_whose_first_record_was_repaired_stays_aborted() -> None:
    run(847183591, Slant.ROT)  # a power cut brought back a snapshot of the producers that did not know it


def test_the_last_stable_offset_does_not_go_back_where_a_marker_is_damaged() -> None:
    run(847183643, Slant.ROT)


def test_a_run_of_the_cleaner_brings_back_no_transactions_as_they_were_read_beside_damage() -> None:
    run(729190495, Slant.ROT)  # where one ends was not known; what the next one aborted was shown


def test_a_snapshot_from_beside_damage_refuses_no_producer_once_the_damage_is_gone() -> None:
    run(610000104, Slant.ROT)


def test_a_damaged_segment_that_retention_took_refuses_no_producer() -> None:
    run(740000610, Slant.ROT)


def test_damage_below_the_log_start_refuses_no_producer() -> None:
    run(820000053, Slant.ROT)


def test_the_power_may_go_in_the_turn_in_which_the_last_disk_fails() -> None:
    run(645041405, Slant.TRANSACTIONS)  # asyncio reported the error that nobody had looked at


def test_who_lost_a_disk_may_be_called_in_sync_until_all_its_directories_work() -> None:
    run(620000178, Slant.ROT)  # the simulator took it for known too early


def test_a_segment_begun_behind_a_damaged_end_may_go_with_it() -> None:
    run(720000582, Slant.ROT)  # the simulator looked for what follows in the segment behind it


def test_a_clean_stop_that_reaches_into_the_calm_is_waited_for() -> None:
    run(222128925)  # the laws read the files that it had closed


def test_a_report_of_a_fault_that_is_over_takes_no_replica_out_of_the_isr() -> None:
    run(222128994, Slant.ROT)  # nobody was left who could lead
    run(560000110, Slant.ROT)  # the replica had moved away and come back, new; the report was on the former one


def test_rot_below_the_log_start_is_passed_over_and_sent_to_nobody() -> None:
    run(200140, Slant.ROT)  # followers refused for ever what the rotten header stood for; writes waited for them


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
                "9",
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


@pytest.mark.parametrize(
    ("seed", "slant"),
    [
        pytest.param(
            950310056, Slant.OLDER_COPIES, id="the clock of the active controller jumps after it heard the voters"
        ),
        pytest.param(
            309282018, Slant.SMALL_FILES, id="a log of two topics is lost, flushed or not, and refilled unflushed"
        ),
        pytest.param(
            295036252, Slant.SETTINGS, id="a power cut brings a log back whose first segments were being removed"
        ),
        pytest.param(409868001, Slant.SMALL_FILES, id="a log loses its witnesses before the first checkpoint names it"),
    ],
)
def test_what_broke_a_law_once_breaks_none(seed: int, slant: Slant) -> None:
    run(seed, slant)


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


def test_what_found_no_room_is_flushed_when_there_is_room() -> None:
    run(131911560, Slant.HAUNTED)  # the producers only repeated what they waited for, so that no append asked for it


def test_bits_flip_in_no_log_that_is_being_deleted() -> None:
    run(131911671, Slant.ROT)  # its unflushed end was torn, and the node never started again


def test_the_only_other_copy_is_not_one_in_a_broken_directory() -> None:
    run(131911915, Slant.ROT)  # the one was rotten, the other came back after an unclean stop: nobody could lead


def test_a_node_that_crashed_sends_nothing_more() -> None:
    run(935672987, Slant.NONE)  # a flush due with the crash woke the fetcher, and the leader counted what was lost


def test_a_deleted_key_stays_deleted_where_a_new_leaders_high_watermark_is_old() -> None:
    run(
        132, Slant.FORGETTING
    )  # the leader said of its log only what lay below that, and whoever was behind missed the tombstones
