"""Share sessions: which partitions a member fetches at this broker, and how far its requests are (KIP-932).

May touch:  its arguments.            Must not touch: asyncio, clock, sockets, partitions.
Invariants: the requests of a session have consecutive epochs; a session is of one (group, member); at most sessions_max.
Read next:  leader.py, which lets go of what a session had.

Differences from Kafka: a connection that carries the sessions of several members ends them all, and not only the last one opened.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Uuid

OPENS: Final = 0
ENDS: Final = -1
EPOCH_MAX: Final = 2**31 - 1


class ShareSessionNotFound(KafkaError):
    """The broker knows no such session: the client opens one, with epoch 0."""

    code = ErrorCode.SHARE_SESSION_NOT_FOUND


class InvalidShareSessionEpoch(KafkaError):
    """A request was lost, or came twice: the client opens another session, with epoch 0."""

    code = ErrorCode.INVALID_SHARE_SESSION_EPOCH


class ShareSessionLimitReached(KafkaError):
    """The broker has as many sessions as it may."""

    code = ErrorCode.SHARE_SESSION_LIMIT_REACHED


class SharedPartition(NamedTuple):
    """A partition of a topic, by the topic's id."""

    topic_id: Uuid
    partition: int


class ShareSession:
    """What this broker knows of one member: its partitions, and the epoch that comes next."""

    __slots__ = ("epoch", "group_id", "member_id", "partitions")

    def __init__(self, group_id: str, member_id: str) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.epoch = 1
        """The epoch of the request that comes next."""
        self.partitions: dict[SharedPartition, None] = {}
        """What it fetches, in the order in which it came."""

    def rotated(self) -> list[SharedPartition]:
        """The partitions, beginning with another one at each request."""
        partitions = list(self.partitions)
        if not partitions:
            return []
        at = self.epoch % len(partitions)
        return partitions[at:] + partitions[:at]


class ShareSessions:
    """All sessions at one broker."""

    def __init__(self, *, sessions_max: int) -> None:
        self._sessions_max = sessions_max
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._members: dict[str, int] = {}
        """Sessions by group."""

    def __len__(self) -> int:
        return len(self._sessions)

    def has_members(self, group_id: str) -> bool:
        """Whether a member of the group has a session."""
        return group_id in self._members

    def take(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """The session of a request, which is the next one then; OPENS begins one, in the place of one that is there.

        Raises ShareSessionNotFound, InvalidShareSessionEpoch, ShareSessionLimitReached.
        """
        key = (group_id, member_id)
        session = self._sessions.get(key)
        if epoch == OPENS:
            if session is None:
                if len(self._sessions) >= self._sessions_max:
                    raise ShareSessionLimitReached(
                        f"this broker has {self._sessions_max} share sessions: raise group.share.max.share.sessions, or ask later"
                    )
                self._members[group_id] = self._members.get(group_id, 0) + 1
            self._sessions[key] = session = ShareSession(group_id, member_id)
            return session
        if session is None:
            raise ShareSessionNotFound("this member has no share session here: open one with epoch 0")
        if epoch != ENDS:
            if epoch != session.epoch:
                raise InvalidShareSessionEpoch(
                    f"the share session is at epoch {session.epoch}, not {epoch}: open another with epoch 0"
                )
            session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return session

    def change(
        self, session: ShareSession, named: Iterable[SharedPartition], forgotten: Iterable[SharedPartition]
    ) -> None:
        """Fetch these partitions, too, and those no more."""
        partitions = session.partitions
        for each in named:
            partitions[each] = None
        for each in forgotten:
            partitions.pop(each, None)

    def end(self, session: ShareSession) -> bool:
        """Forget it; False if it is not the member's session any more."""
        key = (session.group_id, session.member_id)
        if self._sessions.get(key) is not session:
            return False
        del self._sessions[key]
        left = self._members[session.group_id] - 1
        if left:
            self._members[session.group_id] = left
        else:
            del self._members[session.group_id]
        return True

    def all(self) -> list[ShareSession]:
        """Every session."""
        return list(self._sessions.values())
