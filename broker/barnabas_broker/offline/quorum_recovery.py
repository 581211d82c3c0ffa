"""Recovery of the controller quorum when most of its voters are lost for good: look at what is left, choose, restart.

May touch:  metadata directories of stopped nodes, through the Disk.   Must not touch: a running node (the directory's lock), data logs.
Invariants: nothing is deleted; what is written begins and ends with the incarnation file, which says in between that the recovery
            is unfinished: such a node does not start, and the command can be given again, from the beginning; the new epoch
            is above every epoch that any voter can have reached.
Read next:  recover_command.py; barnabas_quorum/driver/incarnation.py, which says why epochs alone do not fence.

What one survivor knows and what not. Everything in its log counts as committed after the recovery, whether it was or not (a
record that no majority had may become committed: its asker heard nothing, or that it failed). What others committed without it
is lost, and its own log does not show how much that is: only other survivors' logs, and those of brokers, can.

What the others may have given out, and may still give out where the recovered quorum is not seen: leader epochs of
partitions and producer ids. Were they given out twice, two leaders would write different records in one leader epoch,
and no follower could notice. So the recovery leaves a gap (QuorumRecoveryRecord): no island counts across it. What lies
before it in the uncertain end of the log, which an island may have decided otherwise, is reported as committed only to
replicas that have the gap too (raft/replica.py), so no replica is cut off between the two. What is left are the
milliseconds in which one node reads on from the one to the other.

Why one voter, where two have survived. A first set of two would have to be written into two directories, mostly on two hosts,
with a crash between them that leaves neither able to lead; and two voters stop when one is down. One voter is one
directory and leads at once. The other survivor loses nothing by it: it rejoins, fetches the log, and is given its vote.

Two recoveries of one quorum, by operators who did not know of each other, count as two quorums that refuse each other (Verdict
CONFLICT). Which one stays is for a human to say: recover that one once more, with the other's report. Its incarnation is then the
higher one, the voters of the other stop at the first word, and brokers of either side join it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from barnabas_broker.metadata.incarnation_file import (
    StoredIncarnation,
    load_incarnation,
    save_incarnation,
    set_log_aside,
)
from barnabas_broker.metadata.meta_properties import StorageError, read_meta
from barnabas_broker.metadata.metadata_log import MetadataLog
from barnabas_log.disk import Disk, RealDisk
from barnabas_quorum.driver.committed import data_batch, voters_batch
from barnabas_quorum.driver.incarnation import FIRST, Incarnation
from barnabas_quorum.driver.snapshot_content import bootstrap_voters
from barnabas_quorum.raft.damage import UNKNOWN_END
from barnabas_quorum.raft.epoch_history import RECOVERY_EPOCH_GAP
from barnabas_quorum.raft.messages import HardState, Voters
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_quorum.record_codec import encode
from barnabas_quorum.records import EPOCHS_PER_RECOVERY, QuorumRecoveryRecord
from barnabas_wire.kafka.ids import METADATA_TOPIC, NO_BROKER, BrokerId, Epoch, Offset, Uuid
from barnabas_wire.lazy_dataclass import dataclass
from barnabas_wire.records.batch import read_header

PRODUCER_IDS_PER_RECOVERY = 10**12
"""So many producer ids are left out: a billion blocks."""
EPOCH_MAX = 2**31 - 1
TAIL_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivorReport:
    """What one metadata directory holds."""

    directory: str
    cluster_id: str
    node_id: int
    directory_id: str
    incarnation: str
    voters: str
    """id@host:port:directory-id,…: the last set in this log, committed or not."""
    is_voter: bool
    """Whether this node is in that set."""
    epoch: int
    """The highest this node has seen."""
    last_epoch: int
    """The epoch of its last record."""
    log_start_offset: int
    log_end_offset: int
    committed_offset: int
    """Everything below was committed for certain: the newest snapshot ends there. What is above may or may not have been."""
    last_record_ms: int
    """When its last record was appended; -1 = its log is empty."""
    superseded_by: str = ""
    """The incarnation that the quorum was recovered as without this voter; empty = none that it has heard of."""
    is_unfinished: bool = False
    """A recovery from this directory was begun and is not complete."""
    lost_epoch: int = -1
    lost_end_offset: int = -1
    """Where its log ended, in which epoch, before its disk damaged it; -1 = it is whole. Such a voter votes as if it had all of
    it, and is not elected (barnabas_quorum/raft/damage.py)."""

    @property
    def has_forgotten(self) -> bool:
        """Whether its directory does not show what it has promised: it votes for no candidate. The two above are beyond
        every log then."""
        return self.lost_end_offset == UNKNOWN_END.end_offset

    @property
    def end(self) -> tuple[int, int]:
        """The end of its log, (last epoch, end offset), as elections compare it."""
        return self.last_epoch, self.log_end_offset

    @property
    def vote_end(self) -> tuple[int, int]:
        """What it asks of a candidate's log."""
        return max(self.end, (self.lost_epoch, self.lost_end_offset))

    @property
    def rank(self) -> tuple[int, int, int]:
        """What survivors are compared by: the incarnation, then the last epoch, then the length (Raft 5.4.1)."""
        return Incarnation.parse(self.incarnation).number, *self.end

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> SurvivorReport:
        """Read what `dataclasses.asdict` gave. Raises StorageError."""
        try:
            made = cls(**{field.name: content[field.name] for field in dataclasses.fields(cls)})
            Incarnation.parse(made.incarnation), VoterSet.parse(made.voters), Uuid.parse(made.directory_id)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StorageError(f"not a report of `quorum recover --inspect` ({error!r})") from None
        for name in _INTEGERS:
            if type(getattr(made, name)) is not int:
                raise StorageError(f"not a report of `quorum recover --inspect` ({name} is no number)")
        return made


_INTEGERS = tuple(field.name for field in dataclasses.fields(SurvivorReport) if field.type == "int")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPlan:
    """What a recovery from one survivor would do, and cost."""

    chosen: SurvivorReport
    ranked: tuple[SurvivorReport, ...]
    """All that were given, best first."""
    unasked: tuple[str, ...]
    """Voters of the chosen log of which no directory was given, or an emptied one: what they committed without it is not known."""
    missing_records: int
    """At least so many records the chosen log lacks that another one here has."""
    damaged_records: int
    """At least so many records the chosen log lacks that a disk here had flushed and has lost; they may have been committed."""
    uncertain_records: int
    """So many records at its end may never have been committed; they count from now on."""
    can_have_lost: bool
    """Whether a majority of the old voters may have committed without any of those that were given."""
    given_up: tuple[SurvivorReport, ...]
    """Those that belong to another recovery of the same quorum: all that was written there since is given up."""
    incarnation: Incarnation
    epoch: Epoch
    recoveries: int
    """So many lie between the chosen log and the new incarnation, this one with them: another log may have gone through them."""
    voters: VoterSet
    """The new set: the chosen replica alone."""

    @property
    def record(self) -> QuorumRecoveryRecord:
        """The record that is written behind the new voters."""
        return QuorumRecoveryRecord(
            incarnation=str(self.incarnation),
            epoch_gap=self.recoveries * EPOCHS_PER_RECOVERY,
            producer_id_gap=self.recoveries * PRODUCER_IDS_PER_RECOVERY,
        )


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


async def inspect(
    directory: str, *, open_disk: Callable[[], Disk] = RealDisk, clock_ms: Callable[[], int] = wall_ms
) -> SurvivorReport:
    """Look at the metadata directory of a stopped node; cuts a torn tail as its own start would.

    Raises StorageError when it is none, DirectoryLocked while its node runs, what MetadataLog.open raises.
    """
    with contextlib.closing(open_disk()) as disk:
        meta = read_meta(disk, directory)
        log_directory = os.path.join(directory, f"{METADATA_TOPIC}-0")
        if meta is None or not disk.exists(log_directory):
            raise StorageError(
                f"{directory} is no metadata directory: it has no meta.properties, or no {METADATA_TOPIC}-0"
            )
        stored = load_incarnation(disk, directory)
        formatted = _formatted_voters(disk, log_directory)
    log = await MetadataLog.open(disk=open_disk(), metadata_directory=directory, now_ms=clock_ms())
    try:
        key = ReplicaKey(meta.node_id, meta.directory_id)
        voter_sets = log.voter_sets()
        voters = voter_sets[-1][1] if voter_sets else formatted
        starts, snapshots = log.epoch_starts(), log.snapshots()
        last_epoch = starts[-1].epoch if starts else 0
        return SurvivorReport(
            directory=directory,
            cluster_id=meta.cluster_id,
            node_id=meta.node_id,
            directory_id=str(meta.directory_id),
            incarnation=str(stored.current),
            voters=str(voters),
            is_voter=key in voters,
            epoch=max(log.hard_state.epoch, last_epoch),
            last_epoch=last_epoch,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.end_offset,
            committed_offset=snapshots[-1].end_offset if snapshots else 0,
            last_record_ms=_last_record_ms(log),
            superseded_by=str(stored.superseded_by),
            is_unfinished=stored.is_unfinished,
            lost_epoch=-1 if log.lost_end is None else log.lost_end.epoch,
            lost_end_offset=-1 if log.lost_end is None else log.lost_end.end_offset,
        )
    finally:
        await log.close()


def rank(reports: Sequence[SurvivorReport]) -> tuple[SurvivorReport, ...]:
    """Best first; of two that hold as much the voter, since recovery from a broker is impossible. Raises StorageError
    when they are not of one cluster, or one is given twice."""
    if len({report.cluster_id for report in reports}) > 1:
        raise StorageError(
            "these directories belong to different clusters: "
            + ", ".join(f"{report.directory} to {report.cluster_id}" for report in reports)
        )
    twice = [key for key, count in Counter((each.node_id, each.directory_id) for each in reports).items() if count > 1]
    if twice:
        raise StorageError(
            f"node {twice[0][0]} with directory id {twice[0][1]} is there twice: give either its directory or one report of it"
        )
    return tuple(sorted(reports, key=lambda report: (report.rank, report.is_voter, -report.node_id), reverse=True))


def plan_recovery(reports: Sequence[SurvivorReport], *, chosen: SurvivorReport, recovery_id: Uuid) -> RecoveryPlan:
    """What recovering from `chosen`, one of the reports, means. Pure.

    Raises StorageError when it does not vote, when the quorum was recovered without it, or when those of its voters that are there
    can elect one of them: that quorum is not lost; unless it was recovered twice, or its recovery is unfinished.
    """
    ranked = rank(reports)
    directory = chosen.directory
    if not chosen.is_voter:
        raise StorageError(
            f"{directory} (node {chosen.node_id}) does not vote in its own log: recover from a voter's directory, with --from"
        )
    voters = VoterSet.parse(chosen.voters)
    own_incarnation = Incarnation.parse(chosen.incarnation)
    if chosen.superseded_by and all(each.incarnation != chosen.superseded_by for each in ranked):
        raise StorageError(
            f"the quorum was recovered without {directory}, as incarnation {chosen.superseded_by}: let it come back with "
            f"`barnabas-server quorum rejoin {directory}`. If that quorum is lost too, look at a directory of it with --inspect "
            "and give its --report"
        )
    given_up = tuple(report for report in ranked if _is_other_recovery(report, own_incarnation))
    # Voters of another incarnation refuse each other: they are no majority together.
    given = [each for each in ranked if each.incarnation == chosen.incarnation]
    # One that was emptied cannot say what it committed, as if it were not here.
    telling = [each for each in given if not each.has_forgotten]
    unasked = _absent(chosen, telling)
    is_needed = bool(given_up) or chosen.is_unfinished
    if (elected := _electable(given)) is not None and not is_needed:
        its_voters = VoterSet.parse(elected.voters)
        raise StorageError(
            f"{len(its_voters) - len(_absent(elected, given))} of the {len(its_voters)} voters in the log of node {elected.node_id} are "
            "here, a majority: nothing needs to be given up. Start these controllers; they elect a leader, and lost ones are replaced "
            "with `barnabas quorum remove-voter` and `add-voter`"
        )
    epoch = max(report.epoch for report in ranked) + RECOVERY_EPOCH_GAP
    if epoch > EPOCH_MAX:
        raise StorageError(f"epoch {epoch} does not fit into the log any more")
    own = next(voter for voter in voters if voter.key.id == chosen.node_id)
    gone = [voter.key for voter in voters if voter.key != own.key]
    number = max(Incarnation.parse(report.incarnation).number for report in ranked) + 1
    best = next(report for report in ranked if report not in given_up)
    return RecoveryPlan(
        chosen=chosen,
        ranked=ranked,
        unasked=tuple(str(voter) for voter in unasked),
        missing_records=max(1, best.log_end_offset - chosen.log_end_offset) if best.rank > chosen.rank else 0,
        damaged_records=max(
            (0, *(each.lost_end_offset - chosen.log_end_offset for each in ranked if not each.has_forgotten))
        ),
        uncertain_records=chosen.log_end_offset - chosen.committed_offset,
        # Half of an even set suffices: once a change that the survivors never saw has taken one of them out, or brought one in.
        # After an unfinished recovery the log may name the chosen one alone: the earlier voters are not known.
        can_have_lost=chosen.is_unfinished
        or any(2 * len(_absent(log, telling)) >= len(VoterSet.parse(log.voters)) for log in (chosen, best)),
        given_up=given_up,
        incarnation=Incarnation(number, recovery_id),
        epoch=Epoch(epoch),
        # After an unfinished recovery it is not known whether its own gap is in the log.
        recoveries=number - (0 if chosen.is_unfinished else own_incarnation.number),
        voters=VoterSet([own], kraft_version=1, removed=[*voters.removed, *gone]),
    )


async def carry_out(
    plan: RecoveryPlan, *, open_disk: Callable[[], Disk] = RealDisk, clock_ms: Callable[[], int] = wall_ms
) -> None:
    """Write the new beginning into the chosen directory. Raises what inspect raises; StorageError when it has changed since."""
    directory = plan.chosen.directory
    if await inspect(directory, open_disk=open_disk, clock_ms=clock_ms) != plan.chosen:
        raise StorageError(f"{directory} has changed since it was looked at: look again")
    now_ms = clock_ms()
    log = await MetadataLog.open(disk=open_disk(), metadata_directory=directory, now_ms=now_ms)
    try:
        with contextlib.closing(open_disk()) as disk:
            save_incarnation(disk, directory, StoredIncarnation(current=plan.incarnation, is_unfinished=True))
        await log.save_hard_state(HardState(plan.epoch, NO_BROKER, None))
        voters = voters_batch(
            Voters(plan.voters, writes_version=True),
            base_offset=Offset(log.end_offset),
            epoch=plan.epoch,
            timestamp_ms=now_ms,
        )
        gaps = data_batch([encode(plan.record)], base_offset=voters.end_offset, epoch=plan.epoch, timestamp_ms=now_ms)
        if log.lost_end is not None:
            await log.note_regained()  # given up: it is not missed in the new incarnation
        log.append([voters, gaps])
        await log.flush()
    finally:
        await log.close()
    with contextlib.closing(open_disk()) as disk:
        save_incarnation(disk, directory, StoredIncarnation(current=plan.incarnation))


def rejoin(disk: Disk, directory: str) -> str | None:
    """Let a node that is no part of the recovered quorum start over: its metadata log is set aside, its identity and
    data stay.
    Returns where the log is now. Raises StorageError, DirectoryLocked while its node runs."""
    if read_meta(disk, directory) is None:
        raise StorageError(f"{directory} has no meta.properties: it is no directory of a node")
    log_directory = os.path.join(directory, f"{METADATA_TOPIC}-0")
    if disk.exists(log_directory):
        disk.lock_directory(log_directory)
    stored = load_incarnation(disk, directory)
    if stored.is_unfinished:
        raise StorageError(
            f"a recovery was begun in {directory} and did not end: finish it with `barnabas-server quorum recover {directory}`"
        )
    if stored.superseded_by == FIRST:
        raise StorageError(
            f"{directory} has not heard of a recovery that it is no part of: start its node. To replace a voter's disk, use "
            "`barnabas quorum remove-voter` and `add-voter`"
        )
    aside = set_log_aside(disk, directory, before=stored.superseded_by)
    # The incarnation of the quorum that it was given: with its old name and an empty log it would vote for whoever of
    # the former one asks.
    save_incarnation(disk, directory, StoredIncarnation(current=stored.superseded_by))
    return aside


def _absent(report: SurvivorReport, given: Sequence[SurvivorReport]) -> list[Voter]:
    """The voters of its log that are not among those given."""
    here = {(each.node_id, each.directory_id) for each in given}
    return [voter for voter in VoterSet.parse(report.voters) if (voter.key.id, str(voter.key.directory_id)) not in here]


def _electable(given: Sequence[SurvivorReport]) -> SurvivorReport | None:
    """The survivor that can be elected by these: its log is whole and enough for the votes of a majority. A candidate
    counts by the voters in its own log, which may differ from those in another's."""
    for each in given:
        voters = VoterSet.parse(each.voters)
        granting = [one for one in given if one.vote_end <= each.end]
        votes = len(voters) - len(_absent(each, granting))
        if each.is_voter and each.lost_end_offset < 0 and votes >= voters.majority:
            return each
    return None


def _is_other_recovery(report: SurvivorReport, own: Incarnation) -> bool:
    theirs = Incarnation.parse(report.incarnation)
    return theirs.number >= own.number and theirs != own


def _formatted_voters(disk: Disk, log_directory: str) -> VoterSet:
    path = os.path.join(log_directory, "00000000000000000000-0000000000.checkpoint")
    return bootstrap_voters(disk.read_file(path)) if disk.exists(path) else VoterSet.unknown()


def _last_record_ms(log: MetadataLog) -> int:
    offset = max(log.log_start_offset, Offset(log.end_offset - 1))
    if log.end_offset <= log.log_start_offset:
        return -1
    batches = log.read(offset, end_offset=log.end_offset, bytes_max=TAIL_BYTES)
    return read_header(batches[-1].data).max_timestamp_ms


def lost_voters(plan: RecoveryPlan) -> list[BrokerId]:
    """The ids of the voters that are no part of the recovered quorum."""
    kept = {voter.key.id for voter in plan.voters}
    return [voter.key.id for voter in VoterSet.parse(plan.chosen.voters) if voter.key.id not in kept]
