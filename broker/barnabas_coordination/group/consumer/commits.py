"""Offsets by member epoch: which member may commit, and which may fetch with its epoch.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: a member that does not hold a partition since the epoch that it names does not commit for it (KIP-1251); a
            refused request commits nothing.
Read next:  ../offsets.py for what becomes of an offset.

Not obvious: an epoch that is the current one is taken at its word, for any partition, as in Kafka. A consumer commits before it
acknowledges that it gave a partition up, and thereby before anybody else can have it.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from barnabas_coordination.errors import IllegalGeneration, UnknownMemberId
from barnabas_coordination.group.consumer.errors import StaleMemberEpoch
from barnabas_coordination.group.messages import NO_MEMBER, OffsetCommit, OffsetToCommit
from barnabas_wire.kafka.errors import ErrorCode, KafkaError


class _Member(Protocol):
    @property
    def epoch(self) -> int: ...

    @property
    def is_classic(self) -> bool: ...


M = TypeVar("M", bound=_Member)


class CommittingGroup(Protocol[M]):
    """A group of any protocol in which the coordinator assigns."""

    group_id: str
    members: dict[str, M]

    def held_since(self, member: M, offset: OffsetToCommit) -> int | None:
        """The epoch since which a member has what an offset is of; None where it has not."""
        ...


def allow_commit(group: CommittingGroup[Any], commit: OffsetCommit, *, is_transactional: bool = False) -> None:
    """Raises KafkaError: UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH; ILLEGAL_GENERATION in its place to a member of the
    classic protocol, and in a transaction whose version does not know the other code."""
    said = commit.member
    is_anonymous = said.member_id == NO_MEMBER and said.instance_id is None
    if said.generation < 0 and (not group.members or (is_transactional and is_anonymous)):
        return
    member = group.members.get(said.member_id)
    if member is None:
        raise UnknownMemberId(f"{said.member_id!r} is not a member of group {group.group_id}")
    if not (commit.knows_epochs or is_transactional or member.is_classic):
        raise KafkaError.of(
            ErrorCode.UNSUPPORTED_VERSION,
            "a member that the coordinator assigns to commits by OffsetCommit v9 or later",
        )
    stale = StaleMemberEpoch if commit.knows_epochs and not member.is_classic else IllegalGeneration
    if said.generation == member.epoch:
        return
    if said.generation > member.epoch:
        raise stale(f"epoch {said.generation} is ahead of the member's, {member.epoch}")
    for offset in commit.offsets:
        since = group.held_since(member, offset)
        if since is None or said.generation < since:
            raise stale(
                f"the member has not had {offset.topic}-{offset.partition} since epoch {said.generation}; it is in {member.epoch}"
            )


def allow_fetch(group: CommittingGroup[Any], member_id: str, epoch: int) -> None:
    """Raises KafkaError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH; ILLEGAL_GENERATION in its place to a member of the classic protocol."""
    member = group.members.get(member_id)
    if member is None:
        raise UnknownMemberId(f"{member_id!r} is not a member of group {group.group_id}")
    if epoch != member.epoch:
        stale = IllegalGeneration if member.is_classic else StaleMemberEpoch
        raise stale(f"epoch {epoch} is not the member's, {member.epoch}")
