"""Member epochs and assignment epochs, alike in groups of every protocol in which the coordinator assigns.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: a member that is behind is let in only if it lost one answer; a clock that went back holds nothing back.
Read next:  consumer/heartbeat.py and streams/heartbeat.py, the users. KIP-848, KIP-1263.
"""

from __future__ import annotations

from typing import Any

from barnabas_coordination.group.consumer.errors import FencedMemberEpoch
from barnabas_coordination.group.led_group import LedGroupState, LedMember
from barnabas_coordination.group.led_records import JOINS


def check_epoch(member: LedMember, said: int, *, owns_what_it_has: bool) -> None:
    """A member that joins again is let in. One that is an epoch behind, and owns what it was given, lost an answer.

    Args:
        said: the epoch that the member names.
        owns_what_it_has: whether it names what it owns, and was given all of that.

    Raises:
        FencedMemberEpoch: it is ahead, or further behind.
    """
    if said in (JOINS, member.epoch):
        return
    if said > member.epoch:
        raise FencedMemberEpoch(f"epoch {said} is ahead of the member's, {member.epoch}: join again")
    if said != member.previous_epoch or not owns_what_it_has:
        raise FencedMemberEpoch(f"epoch {said} is behind the member's, {member.epoch}: join again")


def are_targets_due(group: LedGroupState[Any, Any, Any], epoch: int, *, interval_ms: int, now_ms: int) -> bool:
    """Whether the group, now in this epoch, is to get targets.

    Args:
        interval_ms: least time between two assignments of the group.
    """
    if epoch <= group.assignment_epoch:
        return False
    made_ms = group.assignment_timestamp_ms
    return made_ms == 0 or interval_ms == 0 or now_ms >= made_ms + interval_ms or now_ms < made_ms
