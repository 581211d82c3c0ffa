"""A follower's fetch session (KIP-227): what its leader keeps of it, so that a partition where nothing happens costs nothing.

May touch:  partitions' waiting lists, remote replicas.     Must not touch: asyncio, clock, network, reads.
Invariants: a partition is in the session from the fetch that names it until the answer that brings records, an error or
            a divergence of it: then its follower must report its offset again; one that is not at rest is looked at
            with every fetch; one at rest is at the leader's end, counted and in sync, and nothing has happened to it
            since.
Read next:  fetches.py, which looks and answers; fetcher_partitions.py, the follower's side.

Not obvious:
- A fetch names only what the follower could not be known to ask: where its log has moved. So records go out at most once for
  each time that a partition is named, and a follower that waits for its flush before it names the partition (D7) is sent nothing.
- A partition at rest is caught up as long as its follower fetches at all. That is noted when something happens to it, as of the
  session's last fetch: a follower that went silent long before the record does not count as caught up at the record.
- One that is not in the ISR is never at rest: each fetch is another chance to propose it.
"""

from __future__ import annotations

from barnabas_replication.leader.purgatory import ParkedFetch
from barnabas_replication.leader.replica_state import replica_seen
from barnabas_replication.partition import Partition
from barnabas_replication.requests import OPENS_SESSION_EPOCH, FetchPartitionSpec, FetchSpec
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_OFFSET, BrokerId, Offset

SESSION_EPOCH_MAX = 0x7FFFFFFF


def epoch_after(epoch: int) -> int:
    """The session epoch of the next fetch."""
    return 1 if epoch >= SESSION_EPOCH_MAX else epoch + 1


class Member:
    """One partition of a session; it waits in the partition's list of follower fetches."""

    __slots__ = ("is_done", "partition", "sent_high_watermark", "sent_log_start", "session", "spec")

    def __init__(self, session: FetchSession, spec: FetchPartitionSpec, partition: Partition | None) -> None:
        self.session = session
        self.spec = spec
        self.partition = partition
        self.is_done = False
        self.sent_high_watermark = NO_OFFSET
        self.sent_log_start = NO_OFFSET
        if partition is not None:
            partition.follower_fetches.add(self)

    @property
    def replica_id(self) -> BrokerId:
        """The replica whose session it is."""
        return self.session.replica_id

    def note(self) -> None:
        """Something happened to the partition that the next answer is to cover."""
        session = self.session
        if self not in session.changed:
            self.vouch()
            session.changed[self] = None

    def vouch(self) -> None:
        """Note that it is at rest so far: its follower was caught up when it fetched last."""
        partition, session = self.partition, self.session
        if partition is None:
            return
        replica = partition.remotes.get(session.replica_id)
        if replica is not None and replica.end_offset == self.spec[4]:
            partition.remotes[session.replica_id] = replica_seen(replica, session.fetched_ms)

    def look_again(self) -> None:
        """Something happened that the follower waits for."""
        self.note()
        parked = self.session.parked
        if parked is not None:
            parked.look_again()

    def answer_now(self) -> None:
        """The follower shall hear of the partition now."""
        self.note()
        parked = self.session.parked
        if parked is not None:
            parked.answer_now()

    def leave(self) -> None:
        """Take it out of the session."""
        self.is_done = True
        self.session.changed.pop(self, None)
        if self.partition is not None:
            self.partition.follower_fetches.discard(self)

    def move(self, partition: Partition | None) -> None:
        """The broker hosts the partition again: go by the new object, or None."""
        if self.partition is not None:
            self.partition.follower_fetches.discard(self)
        self.partition = partition
        if partition is not None:
            partition.follower_fetches.add(self)

    def is_at_rest(self) -> bool:
        """Whether nothing is to be done for it before something happens."""
        partition, session = self.partition, self.session
        if partition is None or session.replica_id not in partition.isr.committed:
            return False
        replica = partition.remotes.get(session.replica_id)
        return (
            replica is not None
            and replica.broker_epoch == session.replica_epoch
            and replica.end_offset == self.spec[4] == partition.log.log_end_offset
        )


class FetchSession:
    """The session of one follower."""

    __slots__ = ("changed", "epoch", "fetched_ms", "id", "members", "parked", "replica_epoch", "replica_id")

    def __init__(self, session_id: int, replica_id: BrokerId, replica_epoch: int) -> None:
        self.id = session_id
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        self.epoch = OPENS_SESSION_EPOCH
        """The session epoch of its last fetch."""
        self.fetched_ms = 0
        self.members: dict[tuple[str, int], Member] = {}
        self.changed: dict[Member, None] = {}
        """What the next answer is to look at, who waits longest first."""
        self.parked: ParkedFetch | None = None

    def name(self, spec: FetchPartitionSpec, partition: Partition | None) -> None:
        """The follower reports its offset in a partition."""
        topic, _, number, _, _, _, _, _, _ = spec
        known = self.members.get((topic, number))
        if known is not None:
            known.leave()
        member = self.members[topic, number] = Member(self, spec, partition)
        self.changed[member] = None

    def drop(self, member: Member) -> None:
        """Its follower is to name it again."""
        member.leave()
        topic, _, number, _, _, _, _, _, _ = member.spec
        self.members.pop((topic, number), None)

    def end(self) -> None:
        """No fetch continues it."""
        for member in tuple(self.members.values()):
            member.leave()
        self.members.clear()
        self.changed.clear()
        self.send_back()

    def send_back(self) -> None:
        """Answer the parked fetch without anything: another came."""
        parked, self.parked = self.parked, None
        if parked is not None and not parked.is_done:
            parked.leave()
            parked.respond([])

    def vouch(self) -> None:
        """Note of every partition at rest that its follower was caught up when it fetched last."""
        for member in self.members.values():
            if member not in self.changed:
                member.vouch()


class FetchSessions:
    """One for each follower, of its present connection or its last."""

    def __init__(self) -> None:
        self._sessions: dict[BrokerId, FetchSession] = {}
        self._last_id = 0

    def take(self, request: FetchSpec) -> FetchSession:
        """The session that a follower's fetch opens or continues.

        Raises FETCH_SESSION_ID_NOT_FOUND or INVALID_FETCH_SESSION_EPOCH: the follower opens another.
        """
        replica_id = request.replica_id
        session = self._sessions.get(replica_id)
        if request.session_epoch == OPENS_SESSION_EPOCH:
            if session is not None:
                session.end()
            self._last_id += 1
            session = self._sessions[replica_id] = FetchSession(self._last_id, replica_id, request.replica_epoch)
            return session
        if session is None or session.id != request.session_id or session.replica_epoch != request.replica_epoch:
            raise KafkaError.of(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"broker {replica_id} has no fetch session {request.session_id}"
            )
        if request.session_epoch != epoch_after(session.epoch):
            raise KafkaError.of(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session.id} of broker {replica_id} is in epoch {session.epoch}, "
                f"not before {request.session_epoch}",
            )
        session.epoch = request.session_epoch
        return session

    def of(self, request: FetchSpec) -> FetchSession | None:
        """The session of a fetch that was taken."""
        session = self._sessions.get(request.replica_id)
        return session if session is not None and session.id == request.session_id else None

    def end(self, replica_id: BrokerId) -> None:
        """The follower's fetches count no more."""
        session = self._sessions.pop(replica_id, None)
        if session is not None:
            session.end()

    def vouch(self) -> None:
        """See FetchSession.vouch; before ISRs are judged."""
        for session in self._sessions.values():
            session.vouch()


def is_news(member: Member, high_watermark: Offset, log_start: Offset) -> bool:
    """Whether the follower has not heard these marks."""
    return member.sent_high_watermark != high_watermark or member.sent_log_start != log_start
