"""Why a Streams group does not run, or is not stable: what its description shows, in words.

May touch:  its arguments.            Must not touch: the network, printing.
Invariants: nothing is said of a member that has what it is to have in the epoch of the targets.
Read next:  group_explanation.py, which asks; barnabas_coordination/group/streams/reconciliation.py for how members move.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from barnabas_admin.groups import ROLES, tasks_of
from barnabas_wire.kafka.messages.streams_group_describe import DescribedGroup, Member

TASKS_NAMED_MAX = 5
"""Tasks that one line names; of more the number is said."""

Task = tuple[str, int]


def facts_and_findings(described: DescribedGroup) -> tuple[list[str], list[dict[str, Any]]]:
    """What the group waits for, in words and as fields for programs."""
    facts: list[str] = []
    findings: list[dict[str, Any]] = []

    def note(kind: str, fact: str, **fields: Any) -> None:
        facts.append(fact)
        findings.append({"kind": kind, **fields})

    if described.group_state == "Empty":
        note("empty", "it has no members")
    elif described.group_state == "NotReady":
        obstacle = described.obstacle or "its topics are looked at with the next heartbeat of any member"
        note("not-ready", f"its topology cannot run: {obstacle}", detail=described.obstacle)
    elif described.group_state == "Assigning":
        note(
            "assigning",
            "it changed: tasks are handed out anew once the wait for more members, or the interval, is over",
        )
    holders = _holders(described.members)
    for member in sorted(described.members, key=lambda member: member.member_id):
        name = _name(member)
        has, wanted = tasks_of(member.assignment), tasks_of(member.target_assignment)
        gone = sorted({task for role in ROLES for task in has[role] - wanted[role]})
        missing = sorted(wanted["active"] - has["active"])
        copies = sorted((wanted["standby"] | wanted["warmup"]) - has["standby"] - has["warmup"])
        held = [task for task in missing if holders.get(task, member.member_id) != member.member_id]
        if gone:
            note("revoking", f"{name} has to give up {_named(gone)}", member=member.member_id, tasks=_texts(gone))
        elif held:
            others = sorted({holders[task] for task in held})
            fact = f"{name} waits for {_named(held)}, which {', '.join(others)} have not given up yet"
            note("waiting", fact, member=member.member_id, tasks=_texts(held), others=others)
        elif missing or copies or member.member_epoch < described.assignment_epoch:
            tells = f": it gets {_named([*missing, *copies])}" if missing or copies else ""
            fact = f"{name} hears of its newest tasks with its next heartbeat{tells}"
            note("behind", fact, member=member.member_id, tasks=_texts([*missing, *copies]))
    return facts, findings


def _holders(members: list[Member]) -> Mapping[Task, str]:
    """Active task -> the member that has it, or still has to give it up."""
    return dict(_held(members))


def _held(members: list[Member]) -> Iterator[tuple[Task, str]]:
    for member in members:
        for task in tasks_of(member.assignment)["active"]:
            yield task, member.member_id


def _name(member: Member) -> str:
    return f"member {member.instance_id or member.member_id} ({member.client_id} at {member.client_host.removeprefix('/')})"


def _texts(tasks: list[Task]) -> list[str]:
    return [f"{part}_{number}" for part, number in tasks]


def _named(tasks: list[Task]) -> str:
    if len(tasks) > TASKS_NAMED_MAX:
        return f"{len(tasks)} tasks"
    return ", ".join(_texts(tasks))
