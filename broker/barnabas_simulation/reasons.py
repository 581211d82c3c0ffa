"""Why the laws hold where something changes: one plain sentence, from the numbers of that moment.

May touch:  its arguments.            Must not touch: the run.
Invariants: a sentence says nothing that invariants.py does not check; every number in it is one of that moment.
Read next:  watch.py, which asks; invariants.py, which judges.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from barnabas_wire.run_journal import Belief


class Reason(NamedTuple):
    """A law, and why it holds."""

    law: str
    why: str


NOTHING_ASKED = Reason(
    "D7 durable before acknowledged",
    "Nothing is asked of a node that is down but this: what it had promised is on its disk, and it will be held to it when it is back.",
)
NO_LINK = Reason(
    "R1 one leader per epoch",
    "The laws promise nothing of links. Whoever cannot reach a majority can neither be elected nor commit, whatever it believes.",
)
MENDED = Reason(
    "R17 it comes back by itself",
    "Once everything is mended the cluster must be whole again without anybody's help, within a minute.",
)


def numbers(members: Collection[int]) -> str:
    """`{1, 2, 3}`."""
    return "{" + ", ".join(map(str, sorted(members))) + "}"


def records(first: int, end: int) -> str:
    """Offsets from first to before end, in words."""
    return f"record {first}" if end == first + 1 else f"records {first} to {end - 1}"


# -- the quorum ------------------------------------------------------------------------------------------------------


def vote(voter: Belief, candidate: Belief | None, votes: Mapping[int, int]) -> Reason:
    """votes: of this epoch so far, by voter."""
    law = "R3 one vote per epoch and voter"
    if voter.voted == voter.node:
        return Reason(
            law, f"It has voted for nobody else in epoch {voter.epoch}, and writes this one to its disk before it asks."
        )
    end = (
        ""
        if candidate is None
        else f" That log ends at {candidate.metadata_end}, its own at {voter.metadata_end}: it is no step back."
    )
    others = sum(1 for each in votes.values() if each == voter.voted)
    return Reason(
        law,
        f"It had voted for nobody in epoch {voter.epoch}, and the vote is on its disk before the answer leaves: a crash does not make "
        f"it vote twice.{end} Node {voter.voted} has {others} of {len(voter.voters)} votes now.",
    )


def elected(leader: Belief, votes: Mapping[int, int]) -> Reason:
    """votes: of this epoch, by voter."""
    law = "R1 one leader per epoch"
    granted = [voter for voter, chosen in votes.items() if chosen == leader.node and voter in leader.voters]
    count = len(leader.voters)
    if count == 1:
        return Reason(law, "It is the only voter: its own vote is a majority.")
    return Reason(
        law,
        f"{numbers(granted)} of the voters {numbers(leader.voters)} voted for it in epoch {leader.epoch}: {len(granted)} of {count} are a "
        "majority, any two majorities share a voter, and nobody votes twice in an epoch. So nobody else can lead this one.",
    )


def role(before: Belief, now: Belief) -> Reason:
    """The reason for a change to a role in the quorum other than leader."""
    match now.role:
        case "prospective":
            return Reason(
                "R16 who lost sight of a leader does not depose it",
                "It only asks whether the others would vote for it (pre-vote, KIP-996), and raises no epoch before a majority says yes. "
                "Whoever still hears a leader says no.",
            )
        case "candidate":
            return Reason(
                "R2 epochs only rise",
                f"A majority would vote for it, so it raises the epoch to {now.epoch}, and writes that to its disk before it says so.",
            )
        case "resigned" if not before.is_up:
            return Reason(
                "R10 nobody leads an epoch twice",
                f"It led epoch {now.epoch} before, which is on its disk. What it had not flushed may be gone, and no offset may name two "
                "records: so it waits for a higher epoch, and votes for nobody in this one.",
            )
        case "resigned":
            return Reason(
                "R17 a leader without a majority gives up",
                f"It has committed up to {now.metadata_committed} and can commit no more. It never leads epoch {now.epoch} again: what it "
                "had not flushed may be gone, and no offset may name two records.",
            )
        case "follower" | "observer" if now.leader >= 0:
            return Reason(
                "R6 logs are equal below the high watermark",
                f"It fetches from node {now.leader}. Where its log (up to {now.metadata_end}) differs from the leader's it cuts it, but "
                f"never below what it knows to be committed ({now.metadata_committed}).",
            )
        case _:
            return Reason(
                "R15 nobody runs without the right to",
                f"It knows no leader of epoch {now.epoch}. It keeps its log and its vote, and follows nobody until it hears of a leader or "
                "wins an election.",
            )


def voters(now: Belief, before: Collection[int]) -> Reason:
    """The set of voters has changed."""
    return Reason(
        "R11 voters change by one",
        f"From {numbers(before)} to {numbers(now.voters)}: a majority of the one and a majority of the other share a voter, so no two "
        "leaders can be elected past each other. The set counts as soon as it is written, and the next change waits until it is committed.",
    )


def begun(now: Belief, flushed: int) -> Reason:
    """A node is up. flushed: what it had on its disk of the partition when it went down; -1: it held no replica."""
    law = "D7 durable before acknowledged"
    if flushed < 0:
        return Reason(law, f"Its metadata log ends at {now.metadata_end}; it holds no replica yet.")
    return Reason(
        law,
        f"It had flushed {flushed} records of the partition when it went down: none of these may be missing now. Its metadata log ends "
        f"at {now.metadata_end}.",
    )


# -- the controller ---------------------------------------------------------------------------------------------------


def leader(new: int, isr: Collection[int], epoch: int, *, flushed: int, committed: int) -> Reason:
    """isr: before, with those that were eligible though they had left it. flushed: of the new one."""
    law = "C4 nobody leads who may lack what is committed"
    if new < 0:
        return Reason(
            law,
            f"Of {numbers(isr)} nobody serves. Rather no leader than one that lacks a record: unclean elections are off.",
        )
    if new not in isr:
        return Reason(
            law,
            f"The cluster does not know whether node {new} lacks anything: the operator answers for it. On its disk are {flushed}, and "
            f"{committed} are committed: it lacks nothing.",
        )
    holds = "It has not opened its replica yet" if flushed < 0 else f"It holds {flushed} records on its disk"
    return Reason(
        law,
        f"Node {new} was in sync before ({numbers(isr)}). {holds}, committed are {committed}. In leader epoch {epoch} replicas and clients "
        "refuse whoever led before.",
    )


CREATED = Reason(
    "C4 nobody leads who may lack what is committed",
    "The partition is new: all its replicas are in sync, and there is nothing yet that one could lack.",
)


def isr_shrunk(
    left: Collection[int], isr: Collection[int], *, down: Collection[int], committed: int, min_insync: int
) -> Reason:
    """left: replicas that have gone. down: those of the in-sync set that are not up, known or not."""
    if len(isr) < min_insync:
        return Reason(
            "P3 nothing is committed below min.insync.replicas",
            f"{numbers(isr)} are fewer than {min_insync}: the high watermark stays at {committed}, and the client gets no answer. Whoever "
            "has left while it stands still lacks nothing that was committed, so it may be elected (KIP-966).",
        )
    if down:
        return Reason(
            "P1 whoever is in sync holds all that is committed",
            f"Records wait no longer for {numbers(left)}. That {numbers(down)} of {numbers(isr)} are down is not found out yet; what is "
            f"committed ({committed}) was on their disks before it was called so.",
        )
    return Reason(
        "P1 whoever is in sync holds all that is committed",
        f"Records wait no longer for {numbers(left)}. Each of {numbers(isr)} holds the {committed} that are committed, and "
        f"{len(isr)} are at least min.insync.replicas ({min_insync}).",
    )


def isr_grown(joined: Collection[int], flushed: Mapping[int, int], *, committed: int) -> Reason:
    """flushed: on the disks of those who joined."""
    held = ", ".join(f"node {each} has {flushed[each]}" for each in sorted(joined) if each in flushed)
    return Reason(
        "P1 whoever is in sync holds all that is committed",
        f"Committed are {committed}; on its disk {held or 'it has them all'}. From now on it may be elected, and every write waits for it.",
    )


def fence(broker: int, *, silent_ms: int, led_by: int, is_reborn: bool) -> Reason:
    """silent_ms: since the controller last heard it; -1: it had heard nothing of it since it leads. is_reborn: it has just registered."""
    if is_reborn:
        return Reason(
            "C5 a fenced broker leads nothing",
            "It has registered anew, after a restart. The controller cannot know what this life has left of the former one: it is out of "
            "the in-sync set where somebody else is in it, until it has caught up.",
        )
    heard = "has heard nothing of it since it leads" if silent_ms < 0 else f"last heard it {silent_ms / 1000:.1f} s ago"
    now = "nobody leads the partition" if led_by < 0 else f"node {led_by} leads the partition"
    return Reason(
        "C5 a fenced broker leads nothing",
        f"The controller {heard}, and counts only time in which it ran itself. In the same decision broker {broker} leads nothing "
        f"more: {now}.",
    )


UNFENCED = Reason(
    "C5 a fenced broker leads nothing",
    "It has applied all metadata up to its own registration, so it knows what it holds and who leads. Only now may it lead or be in sync.",
)


# -- replicas and clients ---------------------------------------------------------------------------------------------


def appended(now: Belief, isr: Collection[int]) -> Reason:
    """By the leader."""
    return Reason(
        "E1 what is acknowledged is committed",
        f"Nobody has an answer yet: they count when each of {numbers(isr)} has them on its disk. "
        f"The high watermark is {now.high_watermark}.",
    )


def copied(now: Belief) -> Reason:
    """By a follower."""
    return Reason(
        "P4 one content per offset and epoch",
        f"Node {now.partition_leader} gave them in leader epoch {now.leader_epoch}, byte for byte as it has them; {now.flushed_end} are on "
        "this disk, and its next fetch says so.",
    )


def deposed(now: Belief, committed: int) -> Reason:
    """A leader learns that another leads."""
    return Reason(
        "P6 what is acknowledged is kept",
        f"It follows from now on, and cuts what the new leader does not have. It holds {now.log_end}, and {committed} are committed: "
        "whatever goes was promised to nobody.",
    )


def cut(now: Belief, committed: int) -> Reason:
    """A replica has dropped its end."""
    return Reason(
        "P6 what is acknowledged is kept",
        "Its new leader never had these records: no client has an acknowledgement of them. "
        f"Committed are {committed}, and it keeps {now.log_end}.",
    )


def committed_by_leader(now: Belief, flushed: Mapping[int, int], min_insync: int) -> Reason:
    """flushed: on the disks of the in-sync replicas that are up."""
    ends = ", ".join(f"node {member} {end}" for member, end in sorted(flushed.items()))
    return Reason(
        "P3 committed is what every in-sync replica has on its disk",
        f"On the disks of {numbers(now.isr)}: {ends}. The least covers {now.high_watermark}, and {len(now.isr)} replicas are at least "
        f"min.insync.replicas ({min_insync}).",
    )


def committed_by_follower(now: Belief, committed: int) -> Reason:
    """It has heard of it."""
    return Reason(
        "P9 only a leader commits",
        f"Its leader had committed {committed} before it said so. A follower may know less than that, never more.",
    )


def acknowledged(end: int, flushed: Mapping[int, int], committed: int) -> Reason:
    """end: one past the last record that is acknowledged. flushed: on the disks of the in-sync replicas that are up."""
    holders = [member for member, held in flushed.items() if held >= end]
    return Reason(
        "E1 what is acknowledged is committed",
        f"The high watermark is {committed}. {numbers(holders)} have it on their disks: whichever of them leads next "
        "has it, so it is never lost.",
    )


def damaged(now: Belief, others: Collection[int]) -> Reason:
    """others: in sync, and not known to be damaged."""
    return Reason(
        "P2 what is committed is there, byte for byte",
        f"The checksum of the batch says so. {numbers(others)} hold sound copies, so a sound one leads and what rotted is fetched from it; "
        "nobody is given the rotten bytes.",
    )


REPAIRED = Reason(
    "P2 what is committed is there, byte for byte",
    "The batch was fetched from the leader, checked, and written in place: the replica is equal to the others again.",
)


# -- a disk, a majority -----------------------------------------------------------------------------------------------


def damaged_unseen(offset: int) -> Reason:
    """The damage has not been read yet."""
    return Reason(
        "P2 what is committed is there, byte for byte",
        f"Record {offset} is committed, so every in-sync replica has a copy, and the checksum of its batch covers the bit: whoever "
        "reads it refuses it. The scrub reads everything again, at most ten seconds after its last pass.",
    )


def lost_machine(survivor: int) -> Reason:
    """survivor: the node that is left."""
    return Reason(
        "E1 what is acknowledged is committed",
        f"Every acknowledged record is on the disks of the whole in-sync set, so node {survivor} has them all. But one of "
        "three voters is no majority: it can elect nobody, itself included, and decide nothing.",
    )


def recovered(*, end: int, uncertain: int, epoch: int) -> Reason:
    """end: of the survivor's metadata log. uncertain: records at its end that may never have been committed."""
    return Reason(
        "R19 a recovery says what may be lost",
        f"Its metadata log ends at {end}. The last {uncertain} may or may not have been committed; they count from now on. What the two "
        f"others decided without it is lost, if there was anything. Epoch {epoch} is above all that they can have reached.",
    )


NEW_MACHINE = Reason(
    "R14 only an operator lets a replica vote that lost its disk",
    "Its directory id is another, so it is another replica: it observes, fetches the whole log, and votes for nobody.",
)
ADDED = Reason(
    "R11 voters change by one",
    "It has caught up with the leader's log, so a majority that counts on it has what is committed.",
)


VOUCHED = Reason(
    "C4 nobody leads who may lack what is committed",
    "The cluster cannot know that this replica has everything: when it came back the others still seemed to be alive, and might have "
    "gone on without it. The operator knows that they are gone, and vouches for it. Had it lacked a record, P1 would be broken now.",
)
