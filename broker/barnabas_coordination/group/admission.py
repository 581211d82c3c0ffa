"""Bounds on members, alike in groups of every protocol.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: a group's members take a bounded number of bytes and places.
Read next:  joining.py, consumer/heartbeat.py and streams/heartbeat.py, the users.
"""

from __future__ import annotations

from barnabas_coordination.errors import GroupMaxSizeReached
from barnabas_coordination.group.consumer.errors import UnreleasedInstanceId

MEMBERS_BYTES_MAX = 16 * 1024 * 1024
"""How many bytes the members of one group may send of themselves. The record of a classic generation has to fit into one batch,
which is far less."""


def require_memory(group_id: str, size_bytes: int) -> None:
    """Raise GroupMaxSizeReached where the members of a group would take `size_bytes`, and that is too much."""
    if size_bytes > MEMBERS_BYTES_MAX:
        raise GroupMaxSizeReached(f"the members of group {group_id} take {MEMBERS_BYTES_MAX >> 20} MiB")


def require_place(group_id: str, members: int, *, size_max: int, size_key: str) -> None:
    """Raise GroupMaxSizeReached where a group has as many members as its key `size_key` allows."""
    if members >= size_max:
        raise GroupMaxSizeReached(f"group {group_id} has {size_key}={size_max} members")


def refuse_unreleased(instance_id: str, member_id: str, what: str) -> UnreleasedInstanceId:
    """The error for another `what` that comes under the instance id of a member that has not left."""
    return UnreleasedInstanceId(
        f"group.instance.id {instance_id} is member {member_id}, which has not left: close that {what}, or wait for the end of its session"
    )
