"""Why the quorum has no leader: from what each controller says of itself, asked directly.

May touch:  raft's rules of elections.   Must not touch: asyncio, clock, network (the reports come in).
Invariants: who would vote for whom is asked of the quorum's own rule (election.is_up_to_date); a controller that did not
            answer is never said to be dead, only out of reach of the node that asked; where enough of those for a majority may
            live, no recovery is offered: it would make a second quorum.
Read next:  ../raft/election.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from barnabas_quorum.explain.chain import Cause, Explanation, NextStep, newest, plural, seconds
from barnabas_quorum.explain.history import LogEntry, QuorumLeaderElected
from barnabas_quorum.raft.damage import UNKNOWN_END, LogEnd
from barnabas_quorum.raft.election import is_up_to_date
from barnabas_quorum.raft.epoch_history import is_before_recovery
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_quorum.records import QuorumRecoveryRecord
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, Offset
from barnabas_wire.lazy_dataclass import dataclass

SUBJECT = "quorum leader"
ELECTIONS_SHOWN = 5
RECOVERY_COMMAND = "barnabas quorum recover METADATA_DIR --inspect"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerReport:
    """What one controller says of its own place in the quorum."""

    key: ReplicaKey
    role: str
    """leader, follower, candidate, prospective, unattached, resigned."""
    epoch: Epoch
    leader_id: BrokerId
    voted_id: BrokerId
    last_epoch: Epoch
    log_end_offset: Offset
    high_watermark: Offset
    voters: VoterSet
    incarnation: str = ""
    """The quorum's incarnation; empty = never recovered."""
    unreached: frozenset[BrokerId] = frozenset()
    """Voters to which its last request failed, however long ago: who follows a leader asks nobody else."""
    recovered_beside: tuple[str, ...] = ()
    """Incarnations of other recoveries of the same quorum that it has met."""
    lost_end: LogEnd | None = None
    """Where its log ended before its disk damaged it; None when it is whole."""

    @property
    def vote_end(self) -> LogEnd:
        """What it asks of a candidate's log (replica.py)."""
        end = LogEnd(self.last_epoch, self.log_end_offset)
        return end if self.lost_end is None else max(end, self.lost_end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A controller that did not answer."""

    voter: Voter
    error: str
    is_refused: bool = False
    """Its host answers, and nobody listens there. Any other silence may be a cut network, behind which it lives."""


def explain_leader(
    reports: Sequence[ControllerReport], silent: Sequence[Silence], *, history: Iterable[LogEntry], now_ms: int
) -> Explanation:
    """The state of leadership.

    Args:
        reports: of every controller that answered.
        silent: those that are known and did not.
        history: LeaderChange entries of the log of the node that asks.
        now_ms: wall clock.
    """
    causes = newest(election_causes(history, now_ms=now_ms)[-ELECTIONS_SHOWN:])
    if not reports:
        return Explanation(
            subject=SUBJECT,
            status="unreachable",
            summary="NO CONTROLLER ANSWERS, so there is no leader that this node could use." + _elsewhere(silent),
            causes=causes,
            facts=_silent_facts(silent),
            next=_starts(silent),
        )
    best = max(reports, key=_completeness)
    voters = best.voters
    leaders = [report for report in reports if report.role == "leader" and report.incarnation == best.incarnation]
    ordered = sorted(reports, key=lambda report: report.key)
    facts = tuple(_report_fact(report, voters) for report in ordered) + _silent_facts(silent)
    if leaders:
        leader = max(leaders, key=lambda report: report.epoch)
        return _with_other_recoveries(_explain_led(leader, reports, silent, causes, facts), best, reports)
    # Who would vote for whom says something only while nobody leads: a follower's log lags behind the next one's always.
    facts += tuple(_refusals(report, reports, voters) for report in ordered if _refusals(report, reports, voters))
    found = _diagnose(reports, silent, voters)
    return _with_other_recoveries(replace(found, causes=causes, facts=facts), best, reports)


def votes_for(
    candidate: ControllerReport, reports: Sequence[ControllerReport], voters: VoterSet
) -> dict[BrokerId, str]:
    """What each voter would say to this candidate: "" = its vote, else why not. Voters that did not answer are left out."""
    found: dict[BrokerId, str] = {}
    for report in reports:
        if report.key not in voters:
            continue
        if report.key == candidate.key:
            found[report.key.id] = ""
        elif report.incarnation != candidate.incarnation:
            found[report.key.id] = "belongs to another incarnation of the quorum"
        elif candidate.key.id in report.unreached or report.key.id in candidate.unreached:
            found[report.key.id] = f"{report.key.id} and {candidate.key.id} do not reach each other"
        elif report.lost_end == UNKNOWN_END:
            found[report.key.id] = "its metadata directory does not show what it has promised, so it votes for nobody"
        elif not is_up_to_date(
            last_epoch=candidate.last_epoch,
            end_offset=candidate.log_end_offset,
            my_last_epoch=report.vote_end.epoch,
            my_end_offset=report.vote_end.end_offset,
        ):
            found[report.key.id] = (
                f"its own log {'is' if report.lost_end is None else 'was'} more complete (epoch {report.vote_end.epoch}, end "
                f"{report.vote_end.end_offset}, against epoch {candidate.last_epoch}, end {candidate.log_end_offset})"
            )
        else:
            found[report.key.id] = ""
    return found


def election_causes(history: Iterable[LogEntry], *, now_ms: int) -> list[Cause]:
    """Who led when, and when the quorum was recovered."""
    causes = []
    for entry in history:
        record = entry.record
        if isinstance(record, QuorumLeaderElected | QuorumRecoveryRecord):
            causes.append(
                Cause(
                    what=f"controller {record.leader_id} elected leader of epoch {record.epoch}"
                    if isinstance(record, QuorumLeaderElected)
                    else f"the quorum recovered from a survivor, as incarnation {record.incarnation}",
                    reason=f"{seconds(now_ms - entry.timestamp_ms)} ago",
                    offset=entry.offset,
                    timestamp_ms=entry.timestamp_ms,
                )
            )
    return causes


def _with_other_recoveries(
    found: Explanation, best: ControllerReport, reports: Sequence[ControllerReport]
) -> Explanation:
    """The same, unless the quorum was recovered more than once: then that comes first."""
    number = _completeness(best)[0]
    known = {each for report in reports for each in (report.incarnation, *report.recovered_beside)}
    rivals = sorted(each for each in known if number and each.startswith(f"{number}:"))
    if len(rivals) < 2:
        return found
    sides = "; ".join(f"as {rival} ({_answering(rival, reports)})" for rival in rivals)
    return replace(
        found,
        status="recovered-twice",
        summary=f"THE QUORUM WAS RECOVERED TWICE: {sides}. The two refuse each other, and what one takes the other never gets. "
        f"{found.summary}",
        next=(
            NextStep(purpose="decide which one shall stay, and stop the controllers of both"),
            NextStep(
                purpose="on the host of a controller of the one that goes, look at what it holds",
                command="barnabas quorum recover METADATA_DIR --inspect -o json > other.json",
            ),
            NextStep(
                purpose="on the host of a controller of the one that stays, recover it once more: the other's voters stop then, "
                "brokers of either side come over",
                command="barnabas quorum recover METADATA_DIR --report other.json --from METADATA_DIR",
            ),
        ),
    )


def _answering(incarnation: str, reports: Sequence[ControllerReport]) -> str:
    ids = sorted(report.key.id for report in reports if report.incarnation == incarnation)
    return f"controller {_names(ids)}" if ids else "no controller of it answers here"


def _completeness(report: ControllerReport) -> tuple[int, Epoch, Offset]:
    """Whose word about the voters counts most."""
    number, _, _ = report.incarnation.partition(":")
    return int(number or 0), report.last_epoch, report.log_end_offset


def _explain_led(
    leader: ControllerReport,
    reports: Sequence[ControllerReport],
    silent: Sequence[Silence],
    causes: tuple[Cause, ...],
    facts: tuple[str, ...],
) -> Explanation:
    behind = [report for report in reports if report.epoch < leader.epoch and report.key in leader.voters]
    committed = f"high watermark {leader.high_watermark} of log end {leader.log_end_offset}"
    quiet = [each for each in silent if each.voter.key in leader.voters]
    steps = _starts(quiet) if quiet else ()
    note = f" {plural(len(behind), 'controller')} has not heard of it yet." if behind else ""
    return Explanation(
        subject=SUBJECT,
        status="led",
        summary=f"controller {leader.key.id} leads the quorum in epoch {leader.epoch} ({committed}).{note}",
        causes=causes,
        facts=facts,
        next=steps,
    )


def _diagnose(reports: Sequence[ControllerReport], silent: Sequence[Silence], voters: VoterSet) -> Explanation:
    """Status, summary and steps where nobody leads."""
    if not voters.voters:
        return Explanation(
            subject=SUBJECT,
            status="no-voters",
            summary="NO LEADER: no controller that answers knows who votes; all of them were formatted to join a quorum.",
            next=(
                NextStep(
                    purpose="start the controllers that were formatted first, or name them in "
                    "controller.quorum.bootstrap.servers"
                ),
            ),
        )
    if _is_unread(max(reports, key=_completeness)):
        return Explanation(
            subject=SUBJECT,
            status="recovery-unread",
            summary="NO LEADER: the quorum was recovered, and no controller that answers "
            f"({_names([report.key.id for report in reports])}) has read its log as far as that. They know the former voters only, "
            "and do not run for election.",
            next=_starts(silent),
        )
    present = [report for report in reports if report.key in voters]
    replaced = [report for report in reports if report.key not in voters and voters.by_id(report.key.id) is not None]
    missing = [key.id for key in voters.keys if key not in {report.key for report in present}]
    majority = f"{voters.majority} of {len(voters)} voters are needed"
    quiet = [each for each in silent if each.voter.key.id in missing]
    if len(present) < voters.majority:
        may_live = len(present) + sum(not each.is_refused for each in quiet) >= voters.majority
        return Explanation(
            subject=SUBJECT,
            status="majority-missing",
            summary=f"NO LEADER: {majority} for an election, and only {len(present)} answer "
            f"({_names([report.key.id for report in present])}); missing: {_names(missing)}."
            + "".join(f" Controller {r.key.id} answers with another disk than the voter's." for r in replaced)
            + _elsewhere(quiet),
            next=_starts(quiet)
            if may_live
            else (
                *_starts(quiet),
                NextStep(
                    purpose="if the disks of a majority are lost for good (look on their hosts: a firewall refuses too): compare "
                    "what is left, on each survivor's host",
                    command=RECOVERY_COMMAND,
                ),
            ),
        )
    winners = _winners(present, voters)
    if winners:
        return Explanation(
            subject=SUBJECT,
            status="electing",
            summary=f"NO LEADER YET: {len(present)} of {len(voters)} voters answer, and {_names(winners)} can win: an "
            "election is under way, or begins within two election time-outs.",
            next=(
                NextStep(purpose="wait a second or two and look again", command="barnabas explain leader"),
                NextStep(purpose="if it stays so, the controllers' own logs say what interrupts their elections"),
            ),
        )
    start_quiet = _starts(quiet) if quiet else ()
    may_live = any(not each.is_refused for each in quiet)
    forgetful = [report for report in present if report.lost_end == UNKNOWN_END]
    if forgetful:
        return _without_memory(present, forgetful, missing, voters, quiet)
    if _winners([replace(report, lost_end=None) for report in present], voters):
        damaged = _names([report.key.id for report in present if report.lost_end is not None])
        return Explanation(
            subject=SUBJECT,
            status="damaged",
            summary=f"NO LEADER: {len(present)} of {len(voters)} voters answer, and nobody can win: the disks of controllers "
            f"{damaged} have lost records that they had flushed. Such a voter is not elected, and votes as if it had them still."
            + _elsewhere(quiet),
            next=start_quiet
            if may_live
            else (
                *start_quiet,
                NextStep(
                    purpose=f"{'if that does not help, ' if quiet else ''}stop every controller, and see on each one's host what "
                    "is left: a recovery gives up the rest",
                    command=RECOVERY_COMMAND,
                ),
            ),
        )
    best = max(present, key=_completeness)
    refusals = "; ".join(f"{voter}: {why}" for voter, why in sorted(votes_for(best, present, voters).items()) if why)
    return Explanation(
        subject=SUBJECT,
        status="cut-off",
        summary=f"NO LEADER: {len(present)} of {len(voters)} voters answer here, but nobody can win. The best candidate, "
        f"controller {best.key.id}, is not voted for by {refusals}.",
        next=(
            NextStep(purpose=f"mend the network between controllers {_names([r.key.id for r in present])}"),
            *start_quiet,
        ),
    )


def _without_memory(
    present: Sequence[ControllerReport],
    forgetful: Sequence[ControllerReport],
    missing: Sequence[BrokerId],
    voters: VoterSet,
    quiet: Sequence[Silence],
) -> Explanation:
    """Nobody can win, and some of the voters have empty directories, or lack the file with their vote."""
    recover = NextStep(
        purpose="if what is missing is lost for good: stop every controller, and see on each one's host what is left",
        command=RECOVERY_COMMAND,
    )
    steps = _starts(quiet) if quiet else ()
    if all(each.is_refused for each in quiet):
        steps += (recover,)
    answer = f"NO LEADER: {len(present)} of {len(voters)} voters answer"
    if all(report in forgetful and report.log_end_offset == 0 for report in present):
        if not missing:
            return Explanation(
                subject=SUBJECT,
                status="electing",
                summary=f"NO LEADER YET: all {len(voters)} voters are blank: the first election of the quorum begins.",
                next=(NextStep(purpose="wait a second or two and look again", command="barnabas explain leader"),),
            )
        return Explanation(
            subject=SUBJECT,
            status="first-start",
            summary=f"{answer}, and all of them are blank. Whether this is the first start of a new quorum, or {_names(missing)} "
            "holds what they have lost, is known once every voter of the quorum answers: silence proves nothing."
            + _elsewhere(quiet),
            next=steps,
        )
    return Explanation(
        subject=SUBJECT,
        status="emptied",
        summary=f"{answer}, and nobody can win: the metadata directories of controllers "
        f"{_names([report.key.id for report in forgetful])} were emptied. Such a voter votes for nobody before it has caught up with a "
        "leader." + _elsewhere(quiet),
        next=steps,
    )


def _winners(present: Sequence[ControllerReport], voters: VoterSet) -> list[BrokerId]:
    """Whom a majority would vote for, of those that run."""
    return [
        report.key.id
        for report in present
        if report.lost_end is None
        and not _is_unread(report)
        and sum(not why for why in votes_for(report, present, voters).values()) >= voters.majority
    ]


def _is_unread(report: ControllerReport) -> bool:
    """It came back to a recovered quorum, and its log does not reach the recovery (replica.py)."""
    return is_before_recovery(report.last_epoch, known=report.epoch)


def _report_fact(report: ControllerReport, voters: VoterSet) -> str:
    knows = f"follows {report.leader_id}" if report.role == "follower" else ""
    voted = f"voted for {report.voted_id}" if report.voted_id not in (NO_BROKER, report.leader_id) else ""
    quorum = f"of the quorum recovered as {report.incarnation}" if report.incarnation else ""
    cut = f"its last request to {_names(sorted(report.unreached))} failed" if report.unreached else ""
    if report.key in voters:
        place = ""
    elif voters.by_id(report.key.id) is not None:
        place = "NOT the voter of this id: its disk was replaced (remove-voter, then add-voter)"
    else:
        place = "no voter"
    lost = report.lost_end
    damage = (
        "EMPTIED, or not begun yet: its metadata directory does not show what it has promised; it neither votes nor is elected before "
        "it has caught up with a leader, or every initial voter has shown to be blank"
        if lost == UNKNOWN_END
        else f"DAMAGED: its disk has lost what it had flushed up to {lost.end_offset} in epoch {lost.epoch}; not elected before a leader "
        "has given that back"
        if lost is not None
        else ""
    )
    details = [text for text in (damage, place, quorum, knows, voted, cut) if text]
    return (
        f"controller {report.key.id}: {report.role}, epoch {report.epoch}, log end {report.log_end_offset} of epoch "
        f"{report.last_epoch}, high watermark {report.high_watermark}" + "".join(f"; {text}" for text in details)
    )


def _refusals(report: ControllerReport, reports: Sequence[ControllerReport], voters: VoterSet) -> str:
    """The voters that would not vote for it, and why; empty when it is no voter, or everybody would."""
    if report.key not in voters:
        return ""
    refused = [f"{voter} ({why})" for voter, why in sorted(votes_for(report, reports, voters).items()) if why]
    return f"controller {report.key.id} would not get the vote of {'; '.join(refused)}" if refused else ""


def _silent_facts(silent: Sequence[Silence]) -> tuple[str, ...]:
    return tuple(
        f"controller {each.voter.key.id} at {each.voter.address} does not answer: {each.error}" for each in silent
    )


def _elsewhere(silent: Sequence[Silence]) -> str:
    """What must be thought of where others are out of reach."""
    unreached = [each.voter.key.id for each in silent if not each.is_refused]
    if not unreached:
        return ""
    return (
        f" Controllers {_names(unreached)} are out of reach of this node, which proves nothing about them: together they may have a "
        "leader."
    )


def _starts(silent: Sequence[Silence]) -> tuple[NextStep, ...]:
    """The network first, where it may be cut; then whose process is known to be down, or may be."""
    if not silent:
        return (NextStep(purpose="start the missing controllers", command="barnabas-server -c FILE"),)
    unreached = [each for each in silent if not each.is_refused]
    refused = [each for each in silent if each.is_refused]
    steps: list[NextStep] = []
    if unreached:
        steps.append(
            NextStep(
                purpose=f"look at the network between this node and controller {_places(unreached)}, and ask on their side too "
                "(`barnabas explain leader --admin HOST:PORT`); on their hosts, whether they run"
            )
        )
    if refused:
        steps.append(
            NextStep(
                purpose=f"start controller {_places(refused)}; one that stopped by itself says why at the end of its log (a failing "
                "disk, too)",
                command="barnabas-server -c FILE",
            )
        )
    return tuple(steps)


def _places(silent: Sequence[Silence]) -> str:
    return ", ".join(f"{each.voter.key.id} ({each.voter.address})" for each in silent)


def _names(controllers: Sequence[BrokerId]) -> str:
    return ", ".join(str(controller) for controller in controllers) or "none"
