"""The rules of a recovery: who is ranked first, what is reported as lost, who follows whom afterwards, and what a crash leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas_broker.metadata.incarnation_file import (
    StoredIncarnation,
    go_over,
    guard_incarnation,
    load_incarnation,
    note_superseded,
    open_log,
    own_incarnation,
    save_incarnation,
)
from barnabas_broker.metadata.meta_properties import MetaProperties, StorageError
from barnabas_broker.metadata.metadata_log import MetadataLog
from barnabas_broker.node.bootstrap import QuorumIdentity, choose_quorum
from barnabas_broker.offline.quorum_recovery import SurvivorReport, lost_voters, plan_recovery, rank, rejoin
from barnabas_log.disk import RealDisk
from barnabas_quorum.driver.committed import data_batch
from barnabas_quorum.driver.incarnation import FIRST, Incarnation, IncarnationGuard, Verdict, judge
from barnabas_quorum.driver.snapshot_content import snapshot_batches
from barnabas_quorum.raft.damage import UNKNOWN_END
from barnabas_quorum.raft.epoch_history import RECOVERY_EPOCH_GAP
from barnabas_quorum.raft.messages import LeaderAndEpoch, SnapshotId
from barnabas_quorum.raft.voters import VoterSet
from barnabas_quorum.records import EPOCHS_PER_RECOVERY
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset, Uuid

A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)
IDS = {number: str(Uuid(bytes([number]) * 16)) for number in range(1, 6)}


def report(node: int, *, of: int = 3, epoch: int = 5, end: int = 100, **fields: object) -> SurvivorReport:
    made = SurvivorReport(
        directory=f"/m{node}",
        cluster_id="c",
        node_id=node,
        directory_id=IDS[node],
        incarnation="",
        voters=",".join(f"{n}@h:{9000 + n}:{IDS[n]}" for n in range(1, of + 1)),
        is_voter=True,
        epoch=epoch + 1,
        last_epoch=epoch,
        log_start_offset=0,
        log_end_offset=end,
        committed_offset=60,
        last_record_ms=1,
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def by_node(reports: Sequence[SurvivorReport], node: int) -> SurvivorReport:
    return next(each for each in reports if each.node_id == node)


def test_the_last_epoch_ranks_before_the_length_and_the_incarnation_before_both() -> None:
    recovered = report(4, epoch=1, end=1, incarnation=f"1:{A}")
    ordered = rank([report(1, epoch=5, end=900), report(2, epoch=6, end=10), recovered, report(3, epoch=6, end=11)])
    assert [each.node_id for each in ordered] == [4, 3, 2, 1]


EMPTIED: dict[str, int] = {"lost_epoch": UNKNOWN_END.epoch, "lost_end_offset": UNKNOWN_END.end_offset}
PLANS = {
    # name: (reports, chosen, missing, can have lost)
    "one of three": ([report(1)], 1, 0, True),
    "two of five": ([report(1, of=5), report(2, of=5, end=90)], 1, 0, True),
    "two of four: the others are a majority once a change took one of these out": (
        [report(1, of=4), report(2, of=4)],
        1,
        0,
        True,
    ),
    "a damaged majority": (
        [report(1, lost_epoch=5, lost_end_offset=120), report(2, lost_epoch=5, lost_end_offset=120)],
        1,
        0,
        False,
    ),
    "one that was begun, whose log names the chosen one alone": ([report(1, of=1, is_unfinished=True)], 1, 0, True),
    "the poorer one is chosen": ([report(1, of=5), report(2, of=5, end=90)], 2, 10, True),
    "a majority by the log of one that nobody elects, who lacks the removal of its voter in the other's": (
        [report(1, of=2, end=101), report(3)],
        3,
        1,
        True,
    ),
    "all that are here were emptied": ([report(1, **EMPTIED), report(2, end=90, **EMPTIED)], 1, 0, True),
    "all are here, and two of three were emptied": (
        [report(1), report(2, end=90, **EMPTIED), report(3, end=80, **EMPTIED)],
        1,
        0,
        True,
    ),
    "shorter but of a later epoch": ([report(1, of=5, epoch=6, end=80), report(2, of=5, end=90)], 2, 1, True),
}


@pytest.mark.parametrize("name", PLANS)
def test_what_a_recovery_costs(name: str) -> None:
    reports, chosen, missing, can_have_lost = PLANS[name]
    plan = plan_recovery(reports, chosen=by_node(reports, chosen), recovery_id=A)
    assert (plan.missing_records, plan.can_have_lost) == (missing, can_have_lost)
    assert plan.uncertain_records == plan.chosen.log_end_offset - 60
    assert [voter.key.id for voter in plan.voters] == [chosen]
    assert chosen not in lost_voters(plan)
    assert plan.incarnation == Incarnation(1, A)
    assert plan.epoch == max(each.epoch for each in reports) + RECOVERY_EPOCH_GAP
    assert plan.record.epoch_gap == EPOCHS_PER_RECOVERY


REFUSED = {
    "a majority is there": ([report(1), report(2)], "a majority: nothing needs to be given up"),
    "a majority by the log of another": (
        [report(1, of=2), report(3, end=101), report(2, end=90)],
        "3 of the 3 voters in the log of node 3",
    ),
    "no voter": ([report(1, is_voter=False)], "does not vote in its own log"),
    "two clusters": ([report(1), report(2, cluster_id="d")], "belong to different clusters"),
    "no epoch is left": ([report(1, epoch=2**31 - 10)], "does not fit"),
    "one that was recovered without": ([report(1, superseded_by=f"1:{A}")], "quorum rejoin /m1"),
    "one twice": ([report(1), report(1, directory="/copy")], "is there twice"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_recovery_that_is_refused(name: str) -> None:
    reports, why = REFUSED[name]
    with pytest.raises(StorageError, match=why):
        plan_recovery(reports, chosen=by_node(reports, 1), recovery_id=A)


def test_a_second_recovery_is_a_later_incarnation() -> None:
    only = report(1, incarnation=f"3:{A}")
    plan = plan_recovery([only], chosen=only, recovery_id=B)
    assert plan.incarnation == Incarnation(4, B)
    assert plan.record.epoch_gap == EPOCHS_PER_RECOVERY


def test_a_voter_of_a_later_recovery_is_none_that_elects_with_this_one() -> None:
    stays, goes = report(1, incarnation=f"1:{A}"), report(2, incarnation=f"2:{B}")
    plan = plan_recovery([stays, goes], chosen=stays, recovery_id=A)
    assert plan.given_up == (goes,)
    assert (plan.incarnation.number, len(plan.unasked)) == (3, 2)
    former = report(2)
    plan = plan_recovery([stays, former], chosen=stays, recovery_id=A)
    assert (plan.given_up, plan.incarnation.number, len(plan.unasked)) == ((), 2, 2)


@pytest.mark.parametrize(("other", "is_unfinished", "gaps"), [(1, False, 1), (5, False, 5), (1, True, 2), (5, True, 6)])
def test_leader_epochs_rise_above_those_of_every_other_recovery_that_is_known(
    other: int, is_unfinished: bool, gaps: int
) -> None:
    """Incarnation n counts from n gaps on. Whether an unfinished recovery has written its gap is not known."""
    stays = report(1, of=1, incarnation=f"1:{A}", is_unfinished=is_unfinished)
    goes = report(2, of=1, incarnation=f"{other}:{B}")
    plan = plan_recovery([stays, goes], chosen=stays, recovery_id=A)
    assert plan.record.epoch_gap == gaps * EPOCHS_PER_RECOVERY
    assert plan.record.incarnation == str(plan.incarnation) == f"{other + 1}:{A}"


def test_of_two_recoveries_the_one_that_stays_is_recovered_once_more() -> None:
    stays = report(1, of=1, incarnation=f"1:{A}")
    goes = report(2, of=1, epoch=9, end=500, incarnation=f"1:{B}")
    with pytest.raises(StorageError, match="nothing needs to be given up"):
        plan_recovery([stays], chosen=stays, recovery_id=A)
    plan = plan_recovery([stays, goes], chosen=stays, recovery_id=A)
    assert (plan.incarnation.number, plan.given_up, plan.missing_records) == (2, (goes,), 0)
    assert plan.epoch > goes.epoch
    for other in (stays, goes):
        heard = judge(Incarnation.parse(other.incarnation), plan.incarnation, may_lead=True)
        assert heard is Verdict.SUPERSEDED
        assert judge(Incarnation.parse(other.incarnation), plan.incarnation, may_lead=False) is Verdict.ADOPT


def test_two_recoveries_of_one_quorum_refuse_each_other_and_say_so_once() -> None:
    reported: list[str] = []
    guard = IncarnationGuard(Incarnation(1, A), on_conflict=reported.append)
    for _ in range(3):
        reason = guard.hear(f"1:{B}")
        assert reason is not None
        assert "recover the one that shall stay once more" in reason
    assert (guard.current, guard.superseded_by, len(reported)) == (Incarnation(1, A), None, 1)
    assert guard.recovered_beside == (f"1:{B}",)


def test_who_goes_over_to_a_later_recovery_forgets_that_there_were_two() -> None:
    guard = IncarnationGuard(Incarnation(1, A), may_lead=lambda: False)
    assert guard.hear(f"1:{B}") is not None
    assert guard.hear(f"2:{A}") is None
    assert guard.recovered_beside == ()


@pytest.mark.parametrize(
    ("known", "answers", "believed"),
    [
        (FIRST, [FIRST, Incarnation(1, A)], Incarnation(1, A)),
        (FIRST, [Incarnation(1, A), Incarnation(1, B)], None),
        (Incarnation(1, A), [Incarnation(1, B)], None),
        (Incarnation(1, A), [FIRST], None),
        (Incarnation(1, A), [Incarnation(1, B), Incarnation(2, B)], Incarnation(2, B)),
    ],
)
def test_a_broker_starts_with_no_quorum_that_is_one_of_two(
    known: Incarnation, answers: list[Incarnation], believed: Incarnation | None
) -> None:
    found = [QuorumIdentity("c", VoterSet.unknown(), each) for each in answers]
    chosen = choose_quorum(found, known=known)
    assert (None if chosen is None else chosen.incarnation) == believed


JUDGED = [
    (FIRST, FIRST, True, Verdict.SAME),
    (FIRST, Incarnation(1, A), False, Verdict.ADOPT),
    (FIRST, Incarnation(1, A), True, Verdict.SUPERSEDED),
    (Incarnation(1, A), FIRST, False, Verdict.OUTDATED_PEER),
    (Incarnation(1, A), FIRST, True, Verdict.OUTDATED_PEER),
    (Incarnation(1, A), Incarnation(1, B), False, Verdict.CONFLICT),
    (Incarnation(1, A), Incarnation(2, B), True, Verdict.SUPERSEDED),
]


@pytest.mark.parametrize(("mine", "theirs", "may_lead", "verdict"), JUDGED)
def test_who_follows_whom(mine: Incarnation, theirs: Incarnation, may_lead: bool, verdict: Verdict) -> None:
    assert judge(mine, theirs, may_lead=may_lead) is verdict


def test_a_guard_goes_over_once_and_never_back() -> None:
    reported: list[Incarnation] = []
    guard = IncarnationGuard(may_lead=lambda: False, on_adopted=reported.append)
    assert guard.hear(f"1:{A}") is None
    assert guard.hear("") is not None
    assert guard.hear(f"1:{B}") is not None
    assert (guard.current, reported) == (Incarnation(1, A), [Incarnation(1, A)])


def test_a_superseded_voter_deals_with_nobody_of_the_recovered_quorum() -> None:
    reported: list[Incarnation] = []
    guard = IncarnationGuard(on_superseded=reported.append)
    assert guard.hear(f"1:{A}") is not None
    assert guard.hear(f"1:{A}") is not None
    assert (guard.current, reported) == (FIRST, [Incarnation(1, A)])


def test_a_superseded_voter_ends_though_its_full_disk_cannot_note_it_at_first() -> None:
    reported: list[Incarnation] = []

    def note(found: Incarnation) -> None:
        reported.append(found)
        if len(reported) == 1:
            raise OSError("no space left")

    guard = IncarnationGuard(on_superseded=note)
    with pytest.raises(OSError, match="no space"):
        guard.hear(f"1:{A}")
    for _ in range(2):
        assert guard.hear(f"1:{A}") is not None
    assert (reported, guard.superseded_by) == ([Incarnation(1, A)] * 2, Incarnation(1, A))


class Place:
    """A replica in epoch 7."""

    leader_and_epoch = LeaderAndEpoch(BrokerId(1), Epoch(7))

    def __init__(self, *, may_lead: bool) -> None:
        self.may_lead = may_lead


async def test_a_snapshot_of_the_former_leader_that_lands_after_the_news_is_set_aside_too(tmp_path: Path) -> None:
    """Its download was complete when the node heard that the quorum was recovered, and its epoch is above that of the log."""
    directory = str(tmp_path)
    adopted: list[Incarnation] = []
    guard = guard_incarnation(
        FIRST,
        directory,
        place=lambda: Place(may_lead=False),
        on_adopted=adopted.append,
        on_superseded=lambda error: pytest.fail(str(error)),
    )

    async def open_it() -> MetadataLog:
        return await MetadataLog.open(disk=RealDisk(), metadata_directory=directory, now_ms=0)

    log = await open_it()
    log.append([data_batch([b"x"], base_offset=Offset(0), epoch=Epoch(5), timestamp_ms=0)])
    assert guard.hear(f"1:{A}") is None and adopted == [Incarnation(1, A)]
    late = SnapshotId(Offset(9), Epoch(7))
    log.write_snapshot_part(late, 0, b"".join(snapshot_batches((), epoch=late.epoch, timestamp_ms=0, voters=None)))
    await log.install_snapshot(late)
    await log.close()
    log, was_former = await open_log(directory, open_it=open_it)
    assert was_former and (log.end_offset, list(log.snapshots())) == (0, [])
    await log.close()


def test_who_leads_though_it_was_removed_does_not_go_over_but_ends(disk: RealDisk, tmp_path: Path) -> None:
    ended: list[StoredIncarnation] = []
    guard = guard_incarnation(
        FIRST,
        str(tmp_path),
        place=lambda: Place(may_lead=True),
        on_adopted=lambda found: pytest.fail(f"goes over to {found}"),
        on_superseded=lambda error: ended.append(load_incarnation(disk, str(tmp_path))),
    )
    assert guard.hear(f"1:{A}") is not None
    assert ended == [StoredIncarnation(superseded_by=Incarnation(1, A))], "durable before it is reported"
    assert guard.current == FIRST
    with pytest.raises(StorageError, match="recovered without this voter"):
        own_incarnation(disk, str(tmp_path))


@pytest.mark.parametrize("text", ["x", "1:", "0:" + str(A), "1", "-1:" + str(A)])
def test_nonsense_is_no_incarnation(text: str) -> None:
    with pytest.raises(ValueError):
        Incarnation.parse(text)
    assert Incarnation.parse(str(Incarnation(7, A))) == Incarnation(7, A)


@pytest.fixture
def disk() -> Iterator[RealDisk]:
    made = RealDisk()
    yield made
    made.close()


def test_the_file_keeps_what_a_node_belongs_to(disk: RealDisk, tmp_path: Path) -> None:
    directory = str(tmp_path)
    assert load_incarnation(disk, directory) == StoredIncarnation()
    save_incarnation(disk, directory, StoredIncarnation(current=Incarnation(2, A)))
    assert own_incarnation(disk, directory) == Incarnation(2, A)
    note_superseded(disk, directory, Incarnation(3, B))
    with pytest.raises(StorageError, match="quorum rejoin"):
        own_incarnation(disk, directory)
    (tmp_path / "quorum-incarnation").write_text("{")
    with pytest.raises(StorageError, match="damaged"):
        load_incarnation(disk, directory)


def test_who_rejoins_has_no_vote_for_the_former_quorum(disk: RealDisk, tmp_path: Path) -> None:
    """Its log is empty and its name the old one: a former voter that reaches it before the recovered quorum does would be elected."""
    meta = MetaProperties(cluster_id="c", node_id=BrokerId(1), directory_id=A)
    (tmp_path / "meta.properties").write_bytes(meta.encode())
    note_superseded(disk, str(tmp_path), Incarnation(3, B))
    rejoin(disk, str(tmp_path))
    assert own_incarnation(disk, str(tmp_path)) == Incarnation(3, B)


@pytest.mark.parametrize(("epochs", "is_set_aside"), [((1, 5), True), ((1, 5, 1_000_007), False), ((), False)])
async def test_only_a_log_that_still_is_of_a_former_incarnation_is_set_aside(
    disk: RealDisk, tmp_path: Path, epochs: tuple[int, ...], is_set_aside: bool
) -> None:
    directory = str(tmp_path)

    async def open_it() -> MetadataLog:
        return await MetadataLog.open(disk=RealDisk(), metadata_directory=directory, now_ms=0)

    log = await open_it()
    for offset, epoch in enumerate(epochs):
        log.append([data_batch([b"x"], base_offset=Offset(offset), epoch=Epoch(epoch), timestamp_ms=0)])
    await log.flush()
    await log.close()
    go_over(disk, directory, Incarnation(1, A), former_epoch=5)
    log, was_former = await open_log(directory, open_it=open_it)
    assert was_former is is_set_aside
    assert log.end_offset == (0 if is_set_aside else len(epochs))
    await log.close()
    log, was_former = await open_log(directory, open_it=open_it)
    assert not was_former
    await log.close()
