"""Why a broker is in service, fenced, leaving or unknown.

May touch:  image, history.           Must not touch: asyncio, clock, the sessions themselves (what they say comes in).
Invariants: the log states that a broker was fenced and never why, so every reason of a fence but a controlled shutdown and a
            new registration is a guess; it is drawn from the active controller's memory only where that controller wrote
            the fence itself.
Read next:  partitions.py.

What the log shows: RegisterBroker (a process started, fenced), a change with is_in_controlled_shutdown (it asked to leave), a
fence or an unfencing. What only the active controller knows: when the broker was last heard of. That memory begins with its
leadership, so a fence by a former controller leaves no more than its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import Enum

from barnabas_quorum.explain.chain import Cause, Explanation, NextStep, newest, seconds
from barnabas_quorum.explain.history import LogEntry, QuorumLeaderElected, concerns_broker, leader_at
from barnabas_quorum.image.cluster import BrokerRegistration
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.records import BrokerRegistrationChangeRecord, RegisterBrokerRecord, UnregisterBrokerRecord
from barnabas_wire.kafka.ids import NO_BROKER, NO_OFFSET, BrokerId, Offset
from barnabas_wire.lazy_dataclass import dataclass
from barnabas_wire.rpc.options import address_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFact:
    """One broker as the active controller hears it."""

    broker_epoch: int
    silent_ms: int
    """Since its last heartbeat, or since that controller took over."""
    connections: int
    disconnected_ms: int = -1
    """Since its last stream broke; -1 = it is connected, or never was to this controller."""
    metadata_offset: Offset = NO_OFFSET
    """Up to which it has read the metadata; -1 = it never said."""
    clock_skew_ms: int = 0
    """How far its clock is ahead of the voters', where that is too far."""


class Reach(Enum):
    """What came of a connection to a broker's listeners, at the moment of asking and from the node that was asked."""

    UNKNOWN = "not tried"
    REFUSED = "its host answers, and nobody listens"
    LISTENS = "connected"
    NO_ANSWER = "no answer"


FENCE_SLACK_MS = 100
"""A fence is decided and written so much later than it was due, and two clocks are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFacts:
    """What is known beside the log at the moment of asking."""

    now_ms: int
    """Wall clock."""
    leader_id: BrokerId = NO_BROKER
    """The active controller; -1 = none answers, and then nothing of the following is known."""
    active_ms: int = 0
    """Since when it is active."""
    session_timeout_ms: int = 3000
    disconnect_grace_ms: int = 1000
    sessions: Mapping[BrokerId, SessionFact] = field(default_factory=dict)
    """The sessions of brokers that it has heard of, or that were in service when it took over."""
    reach: Reach = Reach.UNKNOWN
    """Whether the broker that is asked about can be reached."""


def explain_broker(
    broker_id: BrokerId, *, history: Iterable[LogEntry], image: MetadataImage, live: LiveFacts
) -> Explanation:
    """The chain for one broker. `history`: at least the entries that concern it, committed, in order."""
    concerns = concerns_broker(broker_id)
    entries = [entry for entry in history if concerns(entry.record)]
    causes = newest(broker_causes(broker_id, entries=entries, live=live))
    subject = f"broker {broker_id}"
    broker = image.cluster.broker(broker_id)
    if broker is None:
        return _explain_unknown(broker_id, image, causes)
    facts = _facts(broker, live)
    if broker.is_active:
        is_sure = live.leader_id != NO_BROKER
        caveat = (
            "" if is_sure else " That is what the metadata says; no controller is active, so nobody watches it now."
        )
        return Explanation(
            subject=subject,
            status="in-service",
            summary=f"broker {broker_id} is in service.{caveat}",
            causes=causes,
            facts=facts,
            next=_steps_in_service(broker, live),
        )
    if broker.is_in_controlled_shutdown and not broker.is_fenced:
        return Explanation(
            subject=subject,
            status="leaving",
            summary=f"broker {broker_id} is leaving: it hands over what it leads, then it stops.",
            causes=causes,
            facts=facts,
            next=(NextStep(purpose="wait: it is fenced when every broker knows the new leaders"),),
        )
    why, steps = _why_still_fenced(broker, live)
    return Explanation(
        subject=subject,
        status="fenced",
        summary=f"broker {broker_id} is FENCED: it leads nothing and is in no ISR. {why}",
        causes=causes,
        facts=facts,
        next=steps,
    )


def broker_causes(broker_id: BrokerId, *, entries: Iterable[LogEntry], live: LiveFacts) -> list[Cause]:
    """Every event of the broker in the log, with its reason."""
    known = list(entries)
    causes: list[Cause] = []
    is_leaving = False
    for entry in known:
        record = entry.record
        cause: Cause | None = None
        match record:
            case RegisterBrokerRecord() if record.broker_id == broker_id:
                is_leaving = False
                causes.append(
                    Cause(
                        what=f"broker {broker_id} registered with epoch {record.broker_epoch}"
                        + (", fenced" if record.is_fenced else ""),
                        reason="its process started, and is fenced until it has read the metadata up to here and "
                        "recovered its logs"
                        if record.is_fenced
                        else "",
                        offset=entry.offset,
                        timestamp_ms=entry.timestamp_ms,
                    )
                )
            case UnregisterBrokerRecord() if record.broker_id == broker_id:
                cause = _at(entry, f"broker {broker_id} was unregistered", "an operator asked for it")
            case BrokerRegistrationChangeRecord() if record.broker_id == broker_id:
                if record.is_in_controlled_shutdown:
                    is_leaving = True
                    cause = _at(entry, f"broker {broker_id} began its controlled shutdown", "it was asked to stop")
                elif record.is_fenced:
                    cause = fence_cause(entry, record, entries=known, is_leaving=is_leaving, live=live)
                elif record.is_fenced is False:
                    cause = _at(entry, f"broker {broker_id} unfenced", "it has read the metadata and is ready to serve")
                elif record.directories is not None:
                    cause = _at(
                        entry,
                        f"broker {broker_id} keeps {len(record.directories)} log directories",
                        "it reported that another one failed",
                    )
            case _:
                pass
        if cause is not None:
            causes.append(cause)
    return causes


def fence_cause(
    entry: LogEntry,
    record: BrokerRegistrationChangeRecord,
    *,
    entries: Iterable[LogEntry],
    is_leaving: bool,
    live: LiveFacts,
) -> Cause:
    """A fence, and the likeliest reason."""
    what = f"broker {record.broker_id} fenced"
    if is_leaving:
        return _at(entry, what, "its controlled shutdown is complete")
    known = list(entries)
    session = live.sessions.get(record.broker_id)
    since_ms = live.now_ms - entry.timestamp_ms
    election = next(
        (
            other
            for other in reversed(known)
            if other.offset < entry.offset and isinstance(other.record, QuorumLeaderElected)
        ),
        None,
    )
    is_own = leader_at(known, entry.offset) == live.leader_id and live.active_ms >= since_ms
    if is_own and session is not None and session.broker_epoch == record.broker_epoch:
        silent_ms = session.silent_ms - since_ms
        is_over = silent_ms >= live.session_timeout_ms - FENCE_SLACK_MS
        if is_over and session.connections == 0 and session.disconnected_ms < 0:
            return _at(
                entry,
                what,
                "its heartbeats fell silent: it did not come to this controller within "
                f"broker.session.timeout.ms={live.session_timeout_ms}: is the network cut?",
                is_guess=True,
            )
        if is_over:
            return _at(
                entry,
                what,
                f"its heartbeats fell silent for {seconds(silent_ms)}, more than "
                f"broker.session.timeout.ms={live.session_timeout_ms}: is the network cut, or does it hang?",
                is_guess=True,
            )
        if session.disconnected_ms >= since_ms >= 0:
            lost_ms = session.disconnected_ms - since_ms
            how = (
                f"it was not back within broker.disconnect.grace.ms={live.disconnect_grace_ms}"
                if lost_ms >= live.disconnect_grace_ms - FENCE_SLACK_MS
                else "nobody listened at its address any more"
            )
            return _at(entry, what, f"its connection broke {seconds(lost_ms)} before, and {how}", is_guess=True)
        if silent_ms >= 0 and session.connections == 0 and live.reach is Reach.NO_ANSWER:
            why = "its heartbeats fell silent: it never came to this controller: is the network cut?"
            return _at(entry, what, why, is_guess=True)
        if silent_ms >= 0 and session.connections == 0:
            why = "it never came to this controller, and nobody listened at its address"
            return _at(entry, what, why, is_guess=True)
        if session.connections > 0:
            return _at(entry, what, "it is connected all the time, so it asked for it, or stopped", is_guess=True)
    came_since = election is not None and any(
        election.offset < other.offset < entry.offset and not isinstance(other.record, QuorumLeaderElected)
        for other in known
    )
    is_soon = election is not None and 0 <= entry.timestamp_ms - election.timestamp_ms <= 2 * live.session_timeout_ms
    if election is not None and is_soon and not came_since:
        after_ms = entry.timestamp_ms - election.timestamp_ms
        assert isinstance(election.record, QuorumLeaderElected)
        return _at(
            entry,
            what,
            f"controller {election.record.leader_id} had become active {seconds(after_ms)} before (offset "
            f"{election.offset}), and the broker did not come to it",
            is_guess=True,
        )
    return _at(
        entry,
        what,
        "its connection broke or its heartbeats fell silent; which of the two, only the controller that fenced it knew",
        is_guess=True,
    )


def _why_still_fenced(broker: BrokerRegistration, live: LiveFacts) -> tuple[str, tuple[NextStep, ...]]:
    """Why nobody unfences it now, and what to do."""
    session = live.sessions.get(broker.id)
    where = ", ".join(address_of(point.host, point.port) for point in broker.endpoints)
    start = NextStep(purpose=f"start broker {broker.id} (it listened at {where})", command="barnabas-server -c FILE")
    forget = NextStep(
        purpose="or, if it will never come back, forget it", command=f"barnabas broker unregister {broker.id}"
    )
    if live.leader_id == NO_BROKER:
        leader = NextStep(purpose="first find out why no controller is active", command="barnabas explain leader")
        return "No controller is active, so nobody can unfence it.", (leader,)
    is_unheard = session is None or is_silent(session, live)
    if session is None or session.connections == 0 or (is_unheard and live.reach is Reach.NO_ANSWER):
        return _why_silent(broker, live.reach, where, start, forget)
    if session.broker_epoch != broker.epoch:
        return "A former process of it is still connected; wait until its end is seen.", ()
    if is_unheard:
        stuck = NextStep(
            purpose=f"look at the process: its connection is open, but silent for {seconds(session.silent_ms)} (stopped, swapping, "
            "or its data lane hangs); restart it if it does not recover"
        )
        if live.reach is Reach.LISTENS:
            return f"Its connection is open and silent, and a process listens at {where}: it hangs, or is stopped.", (
                stuck,
            )
        network = NextStep(
            purpose="look at the network between it and the controllers: a cut one leaves connections open for a while"
        )
        return "Its connection is open, and its heartbeats fell silent: is the network cut, or does it hang?", (
            network,
            stuck,
        )
    if session.metadata_offset < broker.epoch:
        left = broker.epoch - max(session.metadata_offset, 0)
        return f"It is still reading the metadata: {left} records to go until its registration.", (
            NextStep(purpose="wait, and look again", command=f"barnabas explain broker {broker.id}"),
        )
    if broker.is_in_controlled_shutdown:
        return "It has finished its controlled shutdown.", (start, forget)
    return "It heartbeats and has read the metadata, but asks to stay fenced: it recovers its logs, or stops.", (
        NextStep(purpose="wait, and look again; its own log says what it recovers"),
    )


def is_silent(session: SessionFact, live: LiveFacts) -> bool:
    """Whether its heartbeats have not come for a session's time: a connection that is open says no more then."""
    return session.silent_ms >= live.session_timeout_ms


def _why_silent(
    broker: BrokerRegistration, reach: Reach, where: str, start: NextStep, forget: NextStep
) -> tuple[str, tuple[NextStep, ...]]:
    """Why a broker is silent that is not connected to the active controller: only a refused connection says that its process is down."""
    if reach is Reach.REFUSED:
        return f"It does not heartbeat: its host answers, and no process listens at {where}.", (start, forget)
    if reach is Reach.LISTENS:
        return (
            f"It does not heartbeat to the active controller, but a process listens at {where}.",
            (
                NextStep(
                    purpose="look at the network between it and the controllers, and at its own log: it says whom it asks"
                ),
            ),
        )
    if reach is Reach.NO_ANSWER:
        look = NextStep(
            purpose=f"look at the network between it and the controllers, and on its host whether it runs; start it if not (it "
            f"listened at {where})"
        )
        return f"Nothing answers at {where}: its heartbeats fell silent; is the network cut?", (look, forget)
    look = NextStep(
        purpose=f"look on its host whether it runs, and at the network between it and the controllers; start it if not (it listened "
        f"at {where})"
    )
    return "Its heartbeats fell silent: is its process down, or the network cut?", (look, forget)


def _facts(broker: BrokerRegistration, live: LiveFacts) -> tuple[str, ...]:
    session = live.sessions.get(broker.id)
    if live.leader_id == NO_BROKER:
        return ("no active controller answers, so nothing is known of its heartbeats",)
    reached = _reach_facts(broker, live.reach)
    if session is None:
        return (f"controller {live.leader_id}, active for {seconds(live.active_ms)}, has not heard of it", *reached)
    if session.connections == 0 and session.disconnected_ms < 0:
        since = f"since it became active {seconds(live.active_ms)} ago"
        return (f"controller {live.leader_id} has heard nothing of it {since}", *reached)
    if session.disconnected_ms >= 0:
        connected = f"disconnected for {seconds(session.disconnected_ms)}"
    else:
        connected = "connected" if session.connections else "never connected"
    read = "" if session.metadata_offset < 0 else f", has read the metadata up to offset {session.metadata_offset}"
    heard = f"controller {live.leader_id} heard of it {seconds(session.silent_ms)} ago; {connected}{read}"
    if not session.clock_skew_ms:
        return (heard, *reached)
    place = "ahead of" if session.clock_skew_ms > 0 else "behind"
    off = (
        f"its clock is {seconds(abs(session.clock_skew_ms))} {place} the median of the voters' clocks, more than "
        "log.retention.clock.skew.max.ms: it deletes, expires and compacts nothing by age until its clock is set right"
    )
    return (heard, *reached, off)


def _reach_facts(broker: BrokerRegistration, reach: Reach) -> tuple[str, ...]:
    where = ", ".join(address_of(point.host, point.port) for point in broker.endpoints)
    said = {
        Reach.REFUSED: f"nobody listens at {where}, says its host",
        Reach.LISTENS: f"a process listens at {where}",
        Reach.NO_ANSWER: f"nothing answers at {where}, seen from the node that was asked",
    }
    return (said[reach],) if reach in said else ()


def _steps_in_service(broker: BrokerRegistration, live: LiveFacts) -> tuple[NextStep, ...]:
    if live.leader_id == NO_BROKER:
        return (NextStep(purpose="find out why no controller is active", command="barnabas explain leader"),)
    session = live.sessions.get(broker.id)
    if session is None or session.connections or session.silent_ms < live.disconnect_grace_ms:
        return ()
    left_ms = live.session_timeout_ms - session.silent_ms
    return (NextStep(purpose=f"it does not heartbeat now: it is fenced in {seconds(left_ms)} unless it comes back"),)


def _explain_unknown(broker_id: BrokerId, image: MetadataImage, causes: tuple[Cause, ...]) -> Explanation:
    is_controller = broker_id in image.cluster.controllers
    role = " It is a controller without a broker." if is_controller else ""
    return Explanation(
        subject=f"broker {broker_id}",
        status="unknown",
        summary=f"no broker {broker_id} is registered.{role}",
        causes=causes,
        next=(
            NextStep(purpose="see who is registered", command="barnabas broker list"),
            NextStep(
                purpose=f"or start it: a broker registers itself when node.id={broker_id} and "
                "controller.quorum.bootstrap.servers names this cluster's controllers",
                command="barnabas-server -c FILE",
            ),
        ),
    )


def _at(entry: LogEntry, what: str, reason: str = "", *, is_guess: bool = False) -> Cause:
    return Cause(what=what, reason=reason, is_guess=is_guess, offset=entry.offset, timestamp_ms=entry.timestamp_ms)
