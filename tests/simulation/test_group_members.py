"""Members of a group at the Kafka listeners of whole nodes: clean code breaks no law of theirs, and what the laws are about happens."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from barnabas_simulation.cluster import Cluster
from barnabas_simulation.group_laws import GroupLaws, Membership, Unanswered
from barnabas_simulation.partition_model import LawBroken
from barnabas_simulation.swarm import Slant
from barnabas_wire.kafka.ids import Uuid
from tests.simulation.side_by_side import processes, telling

pytestmark = pytest.mark.filterwarnings("ignore")

STEPS = 12_000
SEEDS = {Slant.MEMBERS: (20, 11, 14, 22, 21, 25, 23, 17), Slant.STREAMS: (2, 7, 6, 3, 1, 4, 9, 8)}
"""Members of the first mostly begin as classic ones."""
PROOFS = {
    Slant.MEMBERS: ("a static member returned", "a topic came", "a topic went"),
    Slant.STREAMS: ("a static member returned",),
}
AT_ONCE = 2
PART = (Uuid(bytes(range(16))), 0)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Nodes that are crashed a thousand times have much to say."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run(seed: int, slant: Slant) -> dict[str, int]:
    """One seed to its end; how often each thing happened that a law is about."""
    logging.disable(logging.CRITICAL)  # of a process of its own
    with telling(seed):
        cluster = Cluster(seed, steps=STEPS, slant=slant)
        figures = cluster.run()
    assert cluster.listening is not None and cluster.listening.members is not None
    members = cluster.listening.members
    laws = members.laws
    migrations = {
        "upgrades": laws.upgrades,
        "downgrades": laws.downgrades,
        "static members replaced": laws.replaced,
    }
    return {
        "partitions given": laws.given,
        "members fenced": laws.fenced,
        "commits": laws.commits,
        "commits refused": laws.refused,
        "committed offsets read": laws.reads,
        "coordinators": laws.moves,
        "static members returned": laws.returns,
        "static members refused": laws.unreleased,
        "compactions": sum(node.logs.cleaner.stats.runs for node in cluster.nodes),
        "crashes": figures.crashes,
        **(migrations if slant is Slant.MEMBERS else {"standbys given": laws.copied}),
        **members.proofs,
    }


def test_one_seed_gives_one_run_whatever_ran_before() -> None:
    """Whoever joins is given a random id, and assignors go by the order of ids."""
    runs = [Cluster(21, steps=6_000, slant=Slant.MEMBERS).run().trace_hash for _ in range(2)]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("slant", list(SEEDS), ids=lambda slant: slant.value)
def test_a_sample_of_seeds_breaks_no_law_and_reaches_what_each_is_about(slant: Slant) -> None:
    """Few seeds reach everything; which ones changes with whatever nodes write."""
    proofs = ("a member came", "a member left", "the topic grew", *PROOFS[slant])
    whole: Counter[str] = Counter(dict.fromkeys(proofs, 0))
    seeds = SEEDS[slant]
    with processes() as pool:
        for first in range(0, len(seeds), AT_ONCE):
            for each in pool.map(run, seeds[first : first + AT_ONCE], [slant] * AT_ONCE):
                whole.update(each)
            if all(whole.values()):
                return
    raise AssertionError(f"no seed reaches {[what for what, count in whole.items() if not count]}")


class _Judged:
    """The laws of a run that has not begun, at a time of ours."""

    def __init__(self) -> None:
        self.run = Cluster(1, steps=1, slant=Slant.MEMBERS)
        self.laws = GroupLaws(self.run)
        self.former, self.next = Membership("former"), Membership("next")
        self.laws.members += [self.former, self.next]
        self.laws.take(self.former, {PART})
        self.former.heard_s, self.former.term = 0.0, 0

    def give_on(self, *, at_s: float) -> None:
        """The next member is given what the former has."""
        self.run.loop.advance(at_s - self.run.loop.time())
        self.laws.take(self.next, {PART})


def test_who_was_heard_is_protected_for_as_long_as_it_may_take_to_give_up() -> None:
    with pytest.raises(LawBroken, match="one owner"):
        _Judged().give_on(at_s=0.9)
    _Judged().give_on(at_s=1.1)


def test_a_new_coordinator_waits_again() -> None:
    judged = _Judged()
    judged.laws._terms = {0: 0.0, 1: 0.8}
    with pytest.raises(LawBroken, match="one owner"):
        judged.give_on(at_s=1.7)
    late = _Judged()
    late.laws._terms = {0: 0.0, 1: 1.2}
    late.give_on(at_s=1.3)


def test_what_a_deposed_coordinator_answers_protects_nobody() -> None:
    judged = _Judged()
    judged.laws._terms = {0: 0.0, 1: 0.1}
    judged.former.heard_s = 1.5
    judged.give_on(at_s=1.6)


def test_what_an_old_request_may_still_give_up_is_not_protected() -> None:
    judged = _Judged()
    judged.former.unanswered.append(Unanswered(0.0, frozenset()))
    judged.give_on(at_s=0.1)


class _Static(_Judged):
    """The former member is static, and so is the one that comes under its instance id."""

    def __init__(self) -> None:
        super().__init__()
        self.former.instance = self.next.instance = "instance"
        self.laws._instances["instance"] = self.former
        self.former.epoch = 1
        self.run.loop.advance(0.5)

    def let_in(self) -> None:
        """The next one is a member."""
        self.laws.answered(self.next, 2)


def test_an_instance_id_of_a_live_member_is_nobody_elses() -> None:
    with pytest.raises(LawBroken, match="one owner"):
        _Static().let_in()
    for case in ("has_left", "is_classic"):
        static = _Static()
        setattr(static.former, case, True)
        static.let_in()
        assert static.former not in static.laws.members


def test_what_a_static_member_left_goes_to_nobody_else() -> None:
    static = _Static()
    static.former.has_left = True
    with pytest.raises(LawBroken, match="finds again"):
        static.laws.take(static.next, {PART})
    static.let_in()
    static.laws.take(static.next, {PART})


def test_who_is_replaced_is_no_member_and_commits_nothing() -> None:
    static = _Static()
    static.former.has_left = True
    static.laws._terms = {3: 0.0}
    static.let_in()
    static.laws.heard(static.former, 0.4, 3)
    static.laws.heard(static.former, 0.6, 2)
    with pytest.raises(LawBroken, match="one owner"):
        static.laws.heard(static.former, 0.6, 3)
    attempt = static.laws.commit(static.former, PART)
    with pytest.raises(LawBroken, match="lost the partition"):
        static.laws.acknowledged(static.former, attempt)


def test_a_process_has_a_task_once() -> None:
    def beside(process: str) -> _Judged:
        judged = _Judged()
        judged.former.process, judged.next.process = "process", process
        judged.run.loop.advance(0.5)
        return judged

    for is_copied in (True, False):
        judged = beside("process")
        if not is_copied:
            judged.former.owned.clear()
            judged.laws.take_copies(judged.former, {PART})
        with pytest.raises(LawBroken, match="has a task once"):
            (judged.laws.take_copies if is_copied else judged.laws.take)(judged.next, {PART})
    judged = beside("another")
    judged.laws.take_copies(judged.next, {PART})
    judged = beside("process")
    judged.former.unanswered.append(Unanswered(0.4, frozenset()))
    judged.laws.take_copies(judged.next, {PART})


def test_a_commit_of_who_has_lost_the_partition_breaks_a_law() -> None:
    judged = _Judged()
    judged.give_on(at_s=2.0)
    attempt = judged.laws.commit(judged.former, PART)
    with pytest.raises(LawBroken, match="lost the partition"):
        judged.laws.acknowledged(judged.former, attempt)
    with pytest.raises(LawBroken, match="lost the partition"):
        judged.laws.judge_read(PART, attempt.number, at_least=-1)


def test_an_epoch_that_the_log_has_never_falls() -> None:
    judged = _Judged()
    judged.former.heard_s = 0.5
    judged.laws.answered(judged.former, 11)
    judged.laws.answered(judged.former, 13, is_kept=False)
    judged.laws.answered(judged.former, 11)
    with pytest.raises(LawBroken, match="never fall"):
        judged.laws.answered(judged.former, 10, is_kept=False)


def test_what_was_acknowledged_is_read() -> None:
    judged = _Judged()
    judged.run.loop.advance(0.5)
    first, second = (judged.laws.commit(judged.former, PART) for _ in range(2))
    for attempt in (first, second):
        judged.laws.acknowledged(judged.former, attempt)
    judged.laws.judge_read(PART, second.number, at_least=second.number)
    for found in (first.number, -1):
        with pytest.raises(LawBroken, match="stays committed"):
            judged.laws.judge_read(PART, found, at_least=second.number)
