"""Seeded bugs of the control plane, each a patch, and the hunt that must find each of them.

May touch:  a temporary copy of the real code, subprocesses of its own.      Must not touch: the real code.
Invariants: every patch applies to the code as it stands; the hunt searches random seeds with the simulation that judges the
            clean code too, without any script.
Read next:  ../raft_simulator.py and ../controllers.py, which are searched; __main__.py, the table.

A simulator that finds nothing proves nothing until it has found these. Bugs of the core are hunted in the simulation of the
core; those of snapshots on disk, recovery, images and decisions in the one of whole controllers. "Outcome laws" look only at
what a user or a disk could see; a bug that hurts nobody by itself is marked, and found by the mechanism it breaks.

Not among them, for random seeds need luck: "who rejoins votes in the former quorum with an empty log" fell after 51 CPU s from
one start and not within 600 from another. tests/broker/offline/test_quorum_recovery.py holds it.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import barnabas_broker
import barnabas_quorum
from tests.simulation.watchdog import HANG_CPU_S

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
STEPS = {"raft": 5_000, "controllers": 6_000}
CPU_LIMIT_S = 600.0
"""For each bug."""
OTHER_SEEDS = 1 << 30
"""How far from the first try's seeds those of the second are."""
CLEAN_CPU_S_MIN, CLEAN_CPU_S_MAX = 100.0, 600.0
CLEAN_TIMES = 10
"""Clean code is searched for so many times as long as the slowest bug took to be found, within these bounds: a hunt that had no luck is
to make no run of hours. `make sim-long` searches on, and `python -m tests.simulation --only nodes --slant rot --seeds 1000`."""
KILL_CPU_S = int(2 * HANG_CPU_S)
"""Beyond its limit a search is killed: a seed of it neither ends nor lets the watchdog end it."""
SEEDS_MAX = 1_000_000
COPIES = (("metadata_quorum", barnabas_quorum), ("broker", barnabas_broker))
"""What a patch may change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A patch, and which simulation is to find it."""

    name: str
    bug: str
    simulation: Literal["raft", "controllers"] = "raft"
    needs_mechanisms: bool = False
    """Harmless by itself, or harmful once in many thousand seeds: only a law on how the code works finds it in time."""
    is_tested: bool = False
    """Whether `make test` looks for it too, from its fixed seed on; `make sim-mutants` looks for all."""

    @property
    def patch(self) -> Path:
        """The patch file."""
        return HERE / f"{self.name}.patch"


MUTANTS = (
    Mutant(name="vote_not_flushed", bug="a vote is not flushed before the reply", is_tested=True),
    Mutant(name="vote_forgotten_by_restart", bug="a restart forgets the vote for another"),
    Mutant(name="vote_forgotten_by_pre_vote", bug="asking for pre-votes forgets the vote of the epoch"),
    Mutant(name="two_votes", bug="two votes in one epoch", is_tested=True),
    Mutant(name="no_up_to_date_check", bug="no up-to-date check on a vote", is_tested=True),
    Mutant(name="vote_given_again_unseen", bug="a vote is given again without a look at the log"),
    Mutant(name="half_is_a_majority", bug="half of an even voter set is a majority"),
    Mutant(name="leader_resumes", bug="a leader runs again for its epoch after a restart"),
    Mutant(name="epoch_not_saved", bug="an epoch that was only heard of is not saved", needs_mechanisms=True),
    Mutant(
        name="pre_vote_despite_live_leader", bug="a pre-vote is granted beside a live leader", needs_mechanisms=True
    ),
    Mutant(name="epoch_raised_without_pre_vote", bug="the epoch is raised without pre-votes", needs_mechanisms=True),
    Mutant(name="check_quorum_ignored", bug="a leader without a majority does not resign", needs_mechanisms=True),
    Mutant(name="log_not_flushed", bug="the log is not flushed before the acknowledgement", is_tested=True),
    Mutant(name="leader_counts_unflushed", bug="a leader counts its own unflushed end"),
    Mutant(name="observers_count", bug="observers count for the high watermark"),
    Mutant(name="old_epoch_commit", bug="entries of an older epoch are committed by count", is_tested=True),
    Mutant(name="follower_high_watermark_unclamped", bug="a follower's high watermark passes its log"),
    Mutant(name="divergence_by_epoch_alone", bug="a longer log of the same epoch is not called divergent"),
    Mutant(name="truncation_to_high_watermark", bug="a follower cuts down to its high watermark"),
    Mutant(name="truncation_within_a_batch", bug="a follower truncates to the leader's end of an epoch that it lacks"),
    Mutant(name="epochs_kept_by_truncation", bug="a cut log keeps its epochs"),
    Mutant(name="epoch_at_log_start_forgotten", bug="cleaning forgets the epoch that the log starts in"),
    Mutant(name="change_while_uncommitted", bug="the voters change while a change is uncommitted"),
    Mutant(
        name="change_before_first_commit",
        bug="the voters change before the epoch's first commit",
        needs_mechanisms=True,
    ),
    Mutant(name="voters_not_rolled_back", bug="a cut does not bring the former voters back"),
    Mutant(name="voters_effective_on_commit", bug="voters count only when they are committed"),
    Mutant(name="high_watermark_of_old_voters", bug="the high watermark is counted with the former voters"),
    Mutant(name="removed_leader_counts_itself", bug="a removed leader counts itself"),
    Mutant(name="removed_voter_joins_by_itself", bug="a removed voter comes back by auto-join", is_tested=True),
    Mutant(name="observer_campaigns", bug="a replica runs for election after its removal"),
    Mutant(name="snapshot_above_high_watermark", bug="a snapshot is taken above the high watermark"),
    Mutant(name="snapshot_names_wrong_epoch", bug="a snapshot names the epoch after it"),
    Mutant(
        name="snapshot_not_needed_at_log_start",
        bug="a divergent log that ends at the leader's start is served",
        needs_mechanisms=True,
    ),
    Mutant(name="slices_of_two_leaders", bug="slices of two leaders' snapshots are put together"),
    Mutant(name="voters_lost_by_install", bug="loading a snapshot does not bring its voters"),
    Mutant(name="install_not_finished_at_start", bug="a load that a crash broke off is not finished"),
    Mutant(name="divergent_log_beside_snapshot", bug="a divergent log stays beside a loaded snapshot"),
    Mutant(
        name="damage_cut_as_unfinished_write",
        bug="damage to what was flushed is cut as an unfinished write",
        is_tested=True,
    ),
    Mutant(name="damaged_voter_votes_with_what_is_left", bug="a damaged voter votes with what is left of its log"),
    Mutant(name="damaged_voter_runs_for_election", bug="a damaged voter runs for election"),
    Mutant(name="damage_forgotten_by_second_restart", bug="a second restart forgets the damage found by the first"),
    Mutant(
        name="emptied_voter_votes", bug="a voter whose directory was emptied votes as if it knew all", is_tested=True
    ),
    Mutant(name="part_of_a_log_believed", bug="a voter that got back its log up to where it was alone leads alone"),
    Mutant(name="new_voter_counts_before_it_has_fetched", bug="a new voter counts before it has fetched"),
    Mutant(
        name="voter_added_before_it_has_caught_up",
        bug="a voter is added before it has caught up",
        needs_mechanisms=True,
    ),
    Mutant(
        name="vote_leaves_before_it_is_saved",
        bug="the driver speaks before the hard state is saved",
        simulation="controllers",
        needs_mechanisms=True,
    ),
    Mutant(
        name="flush_tells_what_came_later",
        bug="a flush also acknowledges what came during it",
        simulation="controllers",
    ),
    Mutant(
        name="announced_before_its_log_is_read",
        bug="a controller begins before it has read the log",
        simulation="controllers",
    ),
    Mutant(
        name="answer_before_commit",
        bug="the controller answers before the commit",
        simulation="controllers",
        is_tested=True,
    ),
    Mutant(
        name="pending_kept_by_deposed_controller",
        bug="a deposed controller keeps its pending image",
        simulation="controllers",
    ),
    Mutant(
        name="transaction_left_open", bug="a new leader leaves the old one's transaction open", simulation="controllers"
    ),
    Mutant(
        name="transaction_shown_in_part",
        bug="a part of a transaction is published",
        simulation="controllers",
        is_tested=True,
    ),
    Mutant(name="full_disk_acknowledged", bug="a write that found no space is acknowledged", simulation="controllers"),
    Mutant(
        name="damage_not_told_to_the_core",
        bug="the driver does not tell the core that the log is damaged",
        simulation="controllers",
    ),
    Mutant(name="broker_epoch_unchecked", bug="an older life of a broker is obeyed", simulation="controllers"),
    Mutant(
        name="partition_epoch_unchecked",
        bug="AlterPartition with a stale partition epoch is accepted",
        simulation="controllers",
    ),
    Mutant(
        name="isr_of_unclean_broker_kept",
        bug="a broker that comes back uncleanly stays in its ISRs",
        simulation="controllers",
    ),
    Mutant(name="faulty_replica_leads", bug="an election passes over the faults of replicas", simulation="controllers"),
    Mutant(name="corrupt_replica_eligible", bug="a corrupt replica stays in the ELR", simulation="controllers"),
    Mutant(name="topic_id_reused", bug="a deleted topic's id is used again", simulation="controllers"),
    Mutant(
        name="producer_ids_cut_from_committed",
        bug="producer ids are cut from the committed image, not the pending one",
        simulation="controllers",
        is_tested=True,
    ),
    Mutant(
        name="snapshot_without_producer_ids", bug="a snapshot leaves the producer ids out", simulation="controllers"
    ),
    Mutant(
        name="snapshot_counts_one_too_many",
        bug="a loaded snapshot counts one record too many",
        simulation="controllers",
    ),
    Mutant(name="snapshot_without_voters", bug="a snapshot leaves the voters out", simulation="controllers"),
    Mutant(
        name="snapshot_with_later_voters", bug="a snapshot holds voters from after its end", simulation="controllers"
    ),
    Mutant(
        name="snapshot_not_flushed",
        bug="a snapshot is renamed before it is flushed",
        simulation="controllers",
        is_tested=True,
    ),
    Mutant(name="snapshot_name_not_flushed", bug="a snapshot's name is not flushed", simulation="controllers"),
    Mutant(
        name="segment_of_log_start_dropped",
        bug="recovery drops the segment that the log starts in",
        simulation="controllers",
    ),
    Mutant(
        name="start_forgets_quorum_state",
        bug="a start forgets the quorum-state file",
        simulation="controllers",
        needs_mechanisms=True,
    ),
    Mutant(
        name="start_reads_no_voters_in_the_log",
        bug="a start does not read the voters in the log",
        simulation="controllers",
    ),
    Mutant(
        name="recovery_without_epoch_gap",
        bug="a recovered quorum begins in the epoch after the survivor's",
        simulation="controllers",
        is_tested=True,
    ),
    Mutant(
        name="recovery_without_producer_id_gap",
        bug="a recovery leaves no producer ids out",
        simulation="controllers",
    ),
    Mutant(
        name="poorest_survivor_ranked_first",
        bug="the poorest survivor is ranked first",
        simulation="controllers",
    ),
    Mutant(
        name="uncertain_end_told_as_committed",
        bug="a survivor's uncertain end is told as committed",
        simulation="controllers",
        is_tested=True,
    ),
    Mutant(
        name="loss_by_change_of_voters_not_told",
        bug="a recovery denies what lost voters committed after a change of voters",
        simulation="controllers",
        is_tested=True,
    ),
    Mutant(
        name="recovery_complete_before_it_is_written",
        bug="a recovery counts as complete before it is written",
        simulation="controllers",
    ),
    Mutant(
        name="former_voter_not_fenced",
        bug="a voter of the former quorum is dealt with",
        simulation="controllers",
        is_tested=True,
    ),
    Mutant(
        name="snapshot_before_the_recovery_taken",
        bug="a snapshot of a survivor's uncertain end is taken",
        simulation="controllers",
        is_tested=True,
    ),
    Mutant(
        name="log_of_former_quorum_kept",
        bug="who follows a recovered quorum keeps the log that diverges",
        simulation="controllers",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunt:
    """How a search ended."""

    is_found: bool
    seed: int | None
    seeds_tried: int
    cpu_s: float
    law: str


def applies(mutant: Mutant, root: Path) -> str | None:
    """Apply the patch to a copy of the code; None when it does, else what `patch` says."""
    applied = subprocess.run(
        ["patch", "-p1", "--fuzz=0", "--no-backup-if-mismatch", "-i", str(mutant.patch)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return None if applied.returncode == 0 else applied.stdout + applied.stderr


def copy_code(root: Path) -> None:
    """What patches may change, as it lies in the repository."""
    for part, package in COPIES:
        source = Path(str(package.__file__)).parent
        shutil.copytree(source, root / part / source.name, ignore=shutil.ignore_patterns("__pycache__"))


def clean_limit_s(slowest_s: float) -> float:
    """CPU seconds for which clean code is searched in each kind of simulation; slowest_s: what the slowest bug took."""
    return min(CLEAN_CPU_S_MAX, max(CLEAN_CPU_S_MIN, CLEAN_TIMES * slowest_s))


def hunt(
    mutant: Mutant | None,
    *,
    seed: int,
    seeds: int = SEEDS_MAX,
    cpu_limit_s: float = CPU_LIMIT_S,
    outcomes_only: bool = True,
    simulation: str = "raft",
) -> Hunt:
    """Search a mutant, or the clean code when there is none (then in `simulation`), through `seeds` seeds from `seed` on, or
    until the CPU time is used up.

    Raises RuntimeError when the patch does not apply or the search itself fails.
    """
    if mutant is not None:
        simulation = mutant.simulation
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        copy_code(root)
        if mutant is not None and (refusal := applies(mutant, root)) is not None:
            raise RuntimeError(f"{mutant.patch.name} does not apply any more:\n{refusal}")
        arguments = ["--seed", str(seed), "--seeds", str(seeds), "--steps", str(STEPS[simulation])]
        arguments += ["--cpu", str(cpu_limit_s)]
        if outcomes_only:
            arguments.append("--outcomes-only")
        paths = [str(REPOSITORY), *(str(root / part) for part, _ in COPIES)]
        running = root / "running"
        arguments += ["--running", str(running)]
        cpu_max = int(cpu_limit_s) + KILL_CPU_S
        program = (
            "import resource, sys\n"
            f"resource.setrlimit(resource.RLIMIT_CPU, ({cpu_max}, {cpu_max + 1}))\n"
            f"sys.path[:0] = {paths!r}\n"
            "import barnabas_quorum, barnabas_broker\n"
            f"assert all(each.__file__.startswith({str(root)!r}) for each in (barnabas_quorum, barnabas_broker))\n"
            f"from tests.simulation.{simulation} import main\n"
            f"sys.exit(main({arguments!r}))\n"
        )
        ran = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False
        )
        last = int(running.read_text()) if running.exists() else seed
    if ran.returncode == -signal.SIGXCPU:
        law = f"SeedNeverEnded: seed {last} was running when the search was killed after {cpu_max} CPU s"
        return Hunt(is_found=True, seed=last, seeds_tried=last - seed + 1, cpu_s=cpu_max, law=law)
    cpu = re.search(r"cpu ([\d.]+) s", ran.stdout)
    if cpu is None:
        raise RuntimeError(f"the search failed with {ran.returncode} in seed {last}:\n{ran.stdout}{ran.stderr}")
    found = re.search(r"FOUND seed (\d+).*?: (.*)", ran.stdout)
    tried = re.search(r"(\d+) seeds, ", ran.stdout)
    return Hunt(
        is_found=found is not None,
        seed=int(found[1]) if found else None,
        seeds_tried=int(found[1]) - seed + 1 if found else int(tried[1]) if tried else 0,
        cpu_s=float(cpu[1]),
        law=found[2] if found else "",
    )
