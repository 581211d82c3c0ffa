"""Which brokers are alive: heartbeats and connections as the active controller sees them. Never replicated.

May touch:  its arguments.            Must not touch: the image, clock, network.
Invariants: soft state: a new controller begins with fresh sessions (KAFKA-19130); a session belongs to one broker epoch,
            and an older process can neither keep a newer one alive nor end its session.
Read next:  brokers.py for the consequences; driver/controller_driver.py, which feeds it.

The time for which the controller itself stalled (its loop was blocked, its process or machine paused) says nothing about the
brokers: their heartbeats arrived and were not read. Every session gets that time back (`give_back`).

When is a broker dead?  On an open connection that is silent: after the session time-out. After its connection broke: when the
disconnect grace ends without a new one, or at once when a probe finds its listener closed. Where the probe finds that it listens,
its process runs, and the grace waits for nothing: after the session time-out. (A broker hangs up on a controller that is slow to
answer, and where both are starved of CPU it takes longer than the grace to call again; fenced for that, many at once, they make
the controller slower still.) A broker that never connected to this controller (just elected): after the session time-out, or when
the probe finds its listener closed.

Brokers before metadata.version 4 send a heartbeat every 2 s by default, for a session of 9 s. With a session of 3 s a single
late heartbeat would fence them. While versions are mixed, they keep their longer session (`least_session_ms`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas_quorum.image.features import METADATA_VERSION, METADATA_VERSION_REPLICA_FAULTS
from barnabas_quorum.records import FeatureRange
from barnabas_wire.kafka.ids import NO_OFFSET, BrokerId, Offset
from barnabas_wire.lazy_dataclass import dataclass

SLOW_HEARTBEAT_SESSION_MS = 9000
"""The default session of the versions that send a heartbeat every 2 s by default."""


def least_session_ms(features: Iterable[FeatureRange]) -> int:
    """The shortest session that a broker with these features supports; 0 where the configured one applies. The registration
    names no release, but these versions do not serve metadata.version 4."""
    highest = next(
        (feature.max_level for feature in features if feature.name == METADATA_VERSION), METADATA_VERSION_REPLICA_FAULTS
    )
    return SLOW_HEARTBEAT_SESSION_MS if highest < METADATA_VERSION_REPLICA_FAULTS else 0


@dataclass(slots=True)
class BrokerSession:
    """One unfenced or connected broker."""

    broker_epoch: int
    contact_ms: int
    """Last heartbeat, or when this controller took over."""
    metadata_offset: Offset = NO_OFFSET
    connections: int = 0
    """Open heartbeat streams; briefly two when the broker reconnects before the end of its old stream is seen."""
    lost_ms: int | None = None
    """When the last stream broke; None while connected, or if there never was one."""
    listens: bool = False
    """Whether its listener has taken a connection since."""
    unfenced_ms: int | None = None
    """Since when the broker is in service, or this controller leads; None while it is fenced."""
    refused_ms: int | None = None
    """From when on it counts as dead because its listener refused connections; None where that is not proven."""
    clock_skew_ms: int = 0
    """How far its clock is off, where that is too far."""
    shutdown_offset: Offset | None = None
    """Last record of its controlled shutdown; every broker must have read it before this one may stop."""


class BrokerSessions:
    """All sessions of the active controller. Times in ms of one monotonic clock."""

    def __init__(self, *, session_timeout_ms: int, disconnect_grace_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._disconnect_grace_ms = disconnect_grace_ms
        self._sessions: dict[BrokerId, BrokerSession] = {}

    def begin(self, unfenced: Iterable[tuple[BrokerId, int]], *, now_ms: int) -> None:
        """This controller becomes active: every unfenced broker (id, epoch) gets a fresh session; fenced ones get none
        (KAFKA-19130)."""
        self._sessions = {
            broker_id: BrokerSession(broker_epoch=epoch, contact_ms=now_ms, unfenced_ms=now_ms)
            for broker_id, epoch in unfenced
        }

    def end(self) -> None:
        """This controller is no longer active."""
        self._sessions.clear()

    def get(self, broker_id: BrokerId) -> BrokerSession | None:
        """The broker's session, if it has one."""
        return self._sessions.get(broker_id)

    def all(self) -> Mapping[BrokerId, BrokerSession]:
        """Every session, for reading."""
        return self._sessions

    def connect(self, broker_id: BrokerId, broker_epoch: int, *, now_ms: int) -> None:
        """A heartbeat stream of this registration was opened."""
        session = self._session(broker_id, broker_epoch, now_ms)
        session.connections += 1
        session.lost_ms = session.refused_ms = None
        session.listens = False
        session.contact_ms = now_ms

    def disconnect(self, broker_id: BrokerId, broker_epoch: int, *, now_ms: int) -> bool:
        """A stream of this registration ended; True when it was its last one."""
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch or session.connections == 0:
            return False
        session.connections -= 1
        if session.connections > 0:
            return False
        session.lost_ms = now_ms
        return True

    def touch(self, broker_id: BrokerId, broker_epoch: int, *, metadata_offset: Offset, now_ms: int) -> None:
        """Note a heartbeat. The caller has checked the epoch."""
        session = self._session(broker_id, broker_epoch, now_ms)
        session.contact_ms = now_ms
        session.refused_ms = None
        session.metadata_offset = metadata_offset

    def give_back(self, late_ms: int, *, now_ms: int) -> None:
        """This controller stalled for `late_ms` until now; that time counts against no broker. No session's clock moves beyond
        now, so a broker that was heard from meanwhile gets no extra time."""
        for session in self._sessions.values():
            session.contact_ms = min(session.contact_ms + late_ms, now_ms)
            if session.lost_ms is not None:
                session.lost_ms = min(session.lost_ms + late_ms, now_ms)

    def note_refused(self, broker_id: BrokerId, *, from_ms: int) -> None:
        """The broker's connection broke and its listener refuses others: it is dead, and fenced from then on, or earlier with another."""
        session = self._sessions.get(broker_id)
        if session is not None and session.connections == 0:
            session.refused_ms = from_ms

    def note_listens(self, broker_id: BrokerId) -> None:
        """The broker's connection broke and its listener takes others: its process runs, so only its silence is judged. A new process
        of that broker does not listen before it is unfenced, so it is not taken for its former one."""
        session = self._sessions.get(broker_id)
        if session is not None and session.connections == 0:
            session.listens = True

    def is_refused(self, broker_id: BrokerId) -> bool:
        """Whether it is proven dead."""
        session = self._sessions.get(broker_id)
        return session is not None and session.refused_ms is not None

    def note_fenced(self, broker_id: BrokerId) -> None:
        """The broker is fenced, whether decided just now or long ago."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.unfenced_ms = None

    def note_unfenced(self, broker_id: BrokerId, *, now_ms: int) -> None:
        """The broker is in service, whether decided just now or long ago."""
        session = self._sessions.get(broker_id)
        if session is not None and session.unfenced_ms is None:
            session.unfenced_ms = now_ms

    def unfenced_since_ms(self) -> dict[BrokerId, int]:
        """Since when each broker is in service, as far as this controller has seen."""
        return {
            broker_id: session.unfenced_ms
            for broker_id, session in self._sessions.items()
            if session.unfenced_ms is not None
        }

    def forget(self, broker_id: BrokerId) -> None:
        """The registration ended."""
        self._sessions.pop(broker_id, None)

    def is_live(self, broker_id: BrokerId, *, now_ms: int, at_least_ms: int = 0) -> bool:
        """Whether a process heartbeats as this broker right now: connected and not silent. `at_least_ms` as in deadline_ms."""
        session = self._sessions.get(broker_id)
        if session is None or session.connections == 0:
            return False
        return now_ms - session.contact_ms < max(self._session_timeout_ms, at_least_ms)

    def is_absent(self, broker_id: BrokerId) -> bool:
        """Whether the broker has a session but no open stream: the case for a probe."""
        session = self._sessions.get(broker_id)
        return session is not None and session.connections == 0

    def deadline_ms(self, broker_id: BrokerId, *, at_least_ms: int = 0) -> int | None:
        """When the broker's session expires; None if it has none. `at_least_ms`: the minimum length of its session
        (least_session_ms)."""
        session = self._sessions.get(broker_id)
        if session is None:
            return None
        deadline = session.contact_ms + max(self._session_timeout_ms, at_least_ms)
        if session.connections == 0 and session.lost_ms is not None and not session.listens:
            deadline = min(deadline, session.lost_ms + self._disconnect_grace_ms)
        return deadline if session.refused_ms is None else min(deadline, session.refused_ms)

    def lowest_offset(self, broker_ids: Iterable[BrokerId], *, default: Offset) -> Offset:
        """The lowest metadata offset these brokers reported (-1 for one that reported none); `default` without brokers."""
        offsets = [
            session.metadata_offset if (session := self._sessions.get(broker_id)) is not None else NO_OFFSET
            for broker_id in broker_ids
        ]
        return min(offsets, default=default)

    def _session(self, broker_id: BrokerId, broker_epoch: int, now_ms: int) -> BrokerSession:
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch:
            session = self._sessions[broker_id] = BrokerSession(broker_epoch=broker_epoch, contact_ms=now_ms)
        return session
