"""Groups that do not come to rest: watched for some seconds, because one look shows a state and not who brought it about.

May touch:  barnabas_wire.client, asyncio.    Must not touch: printing.
Invariants: a member is blamed for what was seen of it: that it left and came again, or that the group waited and went on without it.
Read next:  finding.py.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Sequence
from typing import NamedTuple

from barnabas_admin.doctor.finding import Cause, Finding
from barnabas_admin.doctor.standing import REBALANCING
from barnabas_admin.groups import describe_group
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.kafka.errors import KafkaError

WATCH_S = 6.0
LOOK_EVERY_S = 0.25


class Look(NamedTuple):
    """A group at one moment."""

    at_s: float
    state: str
    members: dict[str, str]
    """Member id -> whose it is: client id and host."""


async def watch(client: ClusterClient, groups: Collection[str], *, seconds: float) -> list[Finding]:
    """What is wrong with these groups."""
    loop = asyncio.get_running_loop()
    looks: dict[str, list[Look]] = {group: [] for group in groups}
    ends_s = loop.time() + seconds
    while groups and loop.time() < ends_s:
        for group, look in zip(groups, await asyncio.gather(*(_look(client, each) for each in groups)), strict=True):
            if look is not None:
                looks[group].append(look)
        await asyncio.sleep(LOOK_EVERY_S)
    return [finding for group, seen in looks.items() for finding in judge(group, seen)]


async def _look(client: ClusterClient, group: str) -> Look | None:
    try:
        found = await describe_group(client, group)
    except (KafkaError, OSError, TimeoutError):
        return None
    members = {each["member"]: f"{each['client']} at {each['host']}" for each in found["members"]}
    return Look(asyncio.get_running_loop().time(), found["state"], members)


def judge(group: str, looks: Sequence[Look]) -> list[Finding]:
    """What a row of looks says of a group; nothing of one that stood still."""
    if len(looks) < 2:
        return []
    left: dict[str, int] = {}
    joined: dict[str, int] = {}
    for before, after in itertools.pairwise(looks):
        for member, whose in before.members.items():
            if member not in after.members:
                left[whose] = left.get(whose, 0) + 1
        for member, whose in after.members.items():
            if member not in before.members:
                joined[whose] = joined.get(whose, 0) + 1
    seconds = looks[-1].at_s - looks[0].at_s
    unsettled = sum(look.state in REBALANCING for look in looks) / len(looks)
    where = f"group {group}"
    restless = {whose: times for whose, times in left.items() if whose in joined}
    if restless:
        whose = max(restless, key=lambda each: restless[each])
        return [
            Finding(
                Cause.GROUP_REBALANCES,
                where,
                f"{whose} left it {restless[whose]} times in {seconds:.0f} s and came again; each time all members stop",
                "its poll takes longer than max.poll.interval.ms (do less in a turn: max.poll.records), its heartbeats are later than "
                "session.timeout.ms (a pause of the process, too little CPU), or it is started again and again: see its own log; "
                "group.instance.id keeps its place through a restart",
            )
        ]
    if left and unsettled:
        whose = max(left, key=lambda each: left[each])
        return [
            Finding(
                Cause.GROUP_REBALANCES,
                where,
                f"it waited for {whose}, which did not come back in time, and went on without it",
                "its poll takes longer than max.poll.interval.ms, or it has died: see its own log; max.poll.records makes its turns "
                "shorter",
            )
        ]
    if unsettled == 1:
        here = ", ".join(sorted(set(looks[-1].members.values()))) or "nobody"
        return [
            Finding(
                Cause.GROUP_REBALANCES,
                where,
                f"it stood in {looks[-1].state} for all of {seconds:.0f} s: a member has not joined again, and the group waits for it up "
                f"to its max.poll.interval.ms (members: {here})",
                "a member that works on its records between two polls holds up all others: max.poll.records makes its turns shorter; "
                "`--watch` a longer time shows which one the group goes on without",
            )
        ]
    return []
