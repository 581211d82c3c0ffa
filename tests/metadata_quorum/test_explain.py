"""Chains of causes, each drawn from decisions of the real controller: the records it wrote, and what is known live."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas_quorum.controller.config import ControllerConfig
from barnabas_quorum.controller.partition_rules import rules_of
from barnabas_quorum.explain.brokers import LiveFacts, Reach, SessionFact, explain_broker
from barnabas_quorum.explain.chain import CAUSES_MAX, Cause, Explanation, newest
from barnabas_quorum.explain.history import LogEntry, QuorumLeaderElected
from barnabas_quorum.explain.leaders import RECOVERY_COMMAND, ControllerReport, Silence, explain_leader, votes_for
from barnabas_quorum.explain.partitions import explain_partition, find_partition
from barnabas_quorum.explain.reassignments import explain_reassignment, explain_refusal
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.raft.damage import UNKNOWN_END, LogEnd
from barnabas_quorum.raft.epoch_history import RECOVERY_EPOCH_GAP
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_quorum.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    ConfigResourceType,
    FaultyReplica,
    LeaderRecoveryState,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    ReplicaFault,
    TopicRecord,
    UnregisterBrokerRecord,
)
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Endpoint, Epoch, Offset, Uuid

TOPIC_ID = Uuid((77).to_bytes(16, "big"))
CORRUPT, NO_ROOM, EMPTIED = ReplicaFault.CORRUPT, ReplicaFault.NO_ROOM, ReplicaFault.LOST
B1, B2, B3, B4 = (BrokerId(number) for number in (1, 2, 3, 4))
FENCED_MS = 100_000


def directory(number: int) -> Uuid:
    return Uuid((1000 + number).to_bytes(16, "big"))


class Log:
    """Builds a log of batches, and the image after it."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self.image = MetadataImage.EMPTY
        self.now_ms = 1000
        self.offset = 0

    def elect(self, leader: int, epoch: int) -> None:
        record = QuorumLeaderElected(leader_id=BrokerId(leader), epoch=Epoch(epoch))
        self.entries.append(
            LogEntry(
                offset=Offset(self.offset), timestamp_ms=self.now_ms, batch_offset=Offset(self.offset), record=record
            )
        )
        self.offset += 1

    def write(self, *records: Record, at_ms: int | None = None) -> None:
        self.now_ms = self.now_ms + 1000 if at_ms is None else at_ms
        base, delta = Offset(self.offset), MetadataDelta(self.image)
        for record in records:
            self.entries.append(
                LogEntry(offset=Offset(self.offset), timestamp_ms=self.now_ms, batch_offset=base, record=record)
            )
            delta.replay(record)
            self.offset += 1
        self.image = delta.apply(Offset(self.offset - 1), Epoch(1), self.now_ms)

    def register(self, *brokers: int, host: str | None = None) -> None:
        for number in brokers:
            epoch = self.offset
            self.write(
                RegisterBrokerRecord(
                    broker_id=BrokerId(number),
                    incarnation_id=directory(number),
                    broker_epoch=epoch,
                    endpoints=(Endpoint("PLAINTEXT", "h", 9092 + number, "PLAINTEXT"),),
                    directories=(directory(number),),
                    host=host,
                )
            )
            self.write(change(number, epoch, is_fenced=False))

    def epoch_of(self, number: int) -> int:
        broker = self.image.cluster.broker(BrokerId(number))
        assert broker is not None
        return broker.epoch

    def create(self, *replicas: int) -> None:
        ids = tuple(BrokerId(number) for number in replicas)
        self.write(
            TopicRecord(name="t", topic_id=TOPIC_ID),
            PartitionRecord(
                topic_id=TOPIC_ID,
                partition_id=0,
                replicas=ids,
                directories=tuple(directory(number) for number in replicas),
                isr=ids,
                leader=ids[0],
            ),
        )

    def fence(self, number: int, *partition: Record, at_ms: int | None = None) -> None:
        self.write(*partition, change(number, self.epoch_of(number), is_fenced=True), at_ms=at_ms)


def change(number: int, epoch: int, *, is_fenced: bool | None = None, leaves: bool | None = None) -> Record:
    return BrokerRegistrationChangeRecord(
        broker_id=BrokerId(number), broker_epoch=epoch, is_fenced=is_fenced, is_in_controlled_shutdown=leaves
    )


def moved(**fields: object) -> PartitionChangeRecord:
    return replace(PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0), **fields)  # type: ignore[arg-type]


def make_log(*brokers: int) -> Log:
    log = Log()
    log.elect(1, 1)
    log.register(*brokers)
    return log


def live(log: Log, *, after_ms: int = 5000, active_ms: int = 10**6, **sessions: SessionFact) -> LiveFacts:
    return LiveFacts(
        now_ms=log.now_ms + after_ms,
        leader_id=B1,
        active_ms=active_ms,
        sessions={BrokerId(int(name[1:])): session for name, session in sessions.items()},
    )


def session(log: Log, number: int, *, silent_ms: int, connections: int = 0, disconnected_ms: int = -1) -> SessionFact:
    return SessionFact(
        broker_epoch=log.epoch_of(number),
        silent_ms=silent_ms,
        connections=connections,
        disconnected_ms=disconnected_ms,
        metadata_offset=Offset(log.offset),
    )


# --- brokers ----------------------------------------------------------------------------------------------------------

FENCES = {
    # name: (silent ms, disconnected ms, open streams) 5 s after the fence -> (reason, is a guess)
    "heartbeats fell silent": (
        8200,
        -1,
        1,
        "its heartbeats fell silent for 3.2 s, more than broker.session.timeout.ms=3000: is the network cut, or does it hang?",
    ),
    "silent, and the fence was written a few ms late": (8190, -1, 1, "its heartbeats fell silent"),
    "the network was cut before this controller took over": (
        7999,
        -1,
        0,
        "its heartbeats fell silent: it did not come to this controller within broker.session.timeout.ms=3000: is the network cut?",
    ),
    "connection lost, nobody listens": (6000, 5250, 0, "its connection broke 250 ms before, and nobody listened"),
    "connection lost, grace over": (
        7500,
        6100,
        0,
        "its connection broke 1.1 s before, and it was not back within broker.disconnect.grace.ms=1000",
    ),
    "never came": (5400, -1, 0, "it never came to this controller"),
    "connected all the time": (100, -1, 1, "it is connected all the time, so it asked for it"),
}


@pytest.mark.parametrize("name", FENCES)
def test_the_reason_of_a_fence_is_inferred_from_what_the_controller_heard(name: str) -> None:
    silent_ms, disconnected_ms, connections, reason = FENCES[name]
    log = make_log(1, 2)
    log.fence(2, at_ms=FENCED_MS)
    heard = session(log, 2, silent_ms=silent_ms, connections=connections, disconnected_ms=disconnected_ms)
    found = explain_broker(B2, history=log.entries, image=log.image, live=live(log, b2=heard))
    assert found.status == "fenced"
    last = found.causes[-1]
    assert (last.offset, last.timestamp_ms, last.what) == (log.offset - 1, FENCED_MS, "broker 2 fenced")
    assert reason in last.reason
    assert last.is_guess
    assert found.next, "whoever asks is told what to do"


def test_a_dead_process_is_told_from_a_cut_network_by_its_address() -> None:
    """Asked from the majority: a broker whose host is out of reach never had its process called dead."""
    log = make_log(1, 2)
    log.fence(2, at_ms=FENCED_MS)
    heard = replace(session(log, 2, silent_ms=7000), metadata_offset=Offset(-1))
    facts = live(log, active_ms=7990, b2=heard)

    def explain(reach: Reach) -> Explanation:
        return explain_broker(B2, history=log.entries, image=log.image, live=replace(facts, reach=reach))

    cut = explain(Reach.NO_ANSWER)
    assert "its heartbeats fell silent; is the network cut?" in cut.summary
    assert "network" in cut.next[0].purpose and cut.next[0].command == ""
    assert not any("nobody listened" in cause.reason for cause in cut.causes)
    assert cut.facts[0] == "controller 1 has heard nothing of it since it became active 8.0 s ago"
    assert "nothing answers at h:9094" in cut.facts[1]
    dead = explain(Reach.REFUSED)
    assert "its host answers, and no process listens at h:9094" in dead.summary
    assert dead.next[0].purpose.startswith("start broker 2") and dead.next[0].command == "barnabas-server -c FILE"
    lives = explain(Reach.LISTENS)
    assert (
        "a process listens at h:9094" in lives.summary
        and "network between it and the controllers" in lives.next[0].purpose
    )
    facts = replace(facts, sessions={B2: replace(heard, connections=1, silent_ms=8000)})
    assert "is the network cut" in explain(Reach.NO_ANSWER).summary, "a connection stays open for a while"
    assert "it hangs, or is stopped" in explain(Reach.LISTENS).summary
    open_still = explain(Reach.UNKNOWN)
    assert "is the network cut, or does it hang?" in open_still.summary and "network" in open_still.next[0].purpose
    facts = replace(facts, sessions={B2: heard})
    unknown = explain(Reach.UNKNOWN)
    assert "is its process down, or the network cut?" in unknown.summary and unknown.next[0].command == ""


def test_a_fence_by_a_former_controller_is_not_explained_by_what_this_one_heard() -> None:
    log = make_log(1, 2)
    log.fence(2, at_ms=FENCED_MS)
    log.elect(1, 2)
    heard = session(log, 2, silent_ms=14_200, connections=1)
    found = explain_broker(B2, history=log.entries, image=log.image, live=live(log, active_ms=4000, b2=heard))
    assert "only the controller that fenced it knew" in found.causes[-1].reason


def test_a_fence_soon_after_an_election_is_explained_by_it() -> None:
    log = make_log(1, 2)
    log.now_ms = FENCED_MS - 800
    log.elect(3, 2)
    log.fence(2, at_ms=FENCED_MS)
    found = explain_broker(B2, history=log.entries, image=log.image, live=LiveFacts(now_ms=FENCED_MS + 10**7))
    assert "controller 3 had become active 800 ms before (offset 5)" in found.causes[-1].reason
    assert found.next[0].command == "barnabas explain leader"


def test_a_broker_whose_clock_is_off_says_that_it_destroys_nothing_by_age() -> None:
    log = make_log(1, 2)
    heard = replace(session(log, 2, silent_ms=100, connections=1), clock_skew_ms=20 * 86_400_000)
    found = explain_broker(B2, history=log.entries, image=log.image, live=live(log, b2=heard))
    (fact,) = [each for each in found.facts if "its clock is" in each]
    assert (
        "ahead of the median of the voters' clocks" in fact and "deletes, expires and compacts nothing by age" in fact
    )
    right = replace(heard, clock_skew_ms=0)
    found = explain_broker(B2, history=log.entries, image=log.image, live=live(log, b2=right))
    assert not any("its clock is" in each for each in found.facts)


def test_an_election_does_not_explain_the_fence_of_a_broker_that_came_after_it() -> None:
    log = make_log(1, 2)
    log.fence(2)
    found = explain_broker(B2, history=log.entries, image=log.image, live=LiveFacts(now_ms=FENCED_MS))
    assert "which of the two, only the controller that fenced it knew" in found.causes[-1].reason


def test_a_controlled_shutdown_is_stated_by_the_log_and_no_guess() -> None:
    log = make_log(1, 2)
    log.write(change(2, log.epoch_of(2), leaves=True))
    leaving = explain_broker(B2, history=log.entries, image=log.image, live=live(log))
    log.fence(2)
    gone = explain_broker(B2, history=log.entries, image=log.image, live=live(log))
    assert leaving.status == "leaving"
    assert (gone.status, gone.causes[-1].reason) == ("fenced", "its controlled shutdown is complete")
    assert not gone.causes[-1].is_guess


STILL_FENCED = {
    "gone": (None, "Its heartbeats fell silent: is its process down, or the network cut?", ""),
    "reading": (-1, "It is still reading the metadata", "barnabas explain broker 2"),
    "recovering": (10**6, "asks to stay fenced: it recovers its logs", ""),
}


@pytest.mark.parametrize("name", STILL_FENCED)
def test_why_a_broker_stays_fenced(name: str) -> None:
    metadata_offset, why, command = STILL_FENCED[name]
    log = make_log(1)
    epoch = log.offset
    log.register(2)
    log.fence(2)
    sessions: dict[BrokerId, SessionFact] = {}
    if metadata_offset is not None:
        sessions[B2] = SessionFact(
            broker_epoch=epoch, silent_ms=10, connections=1, metadata_offset=Offset(metadata_offset)
        )
    found = explain_broker(
        B2,
        history=log.entries,
        image=log.image,
        live=replace(live(log), sessions=sessions),
    )
    assert why in found.summary
    assert found.next[0].command == command


def test_an_unknown_broker_is_reported_from_an_unregistered_one() -> None:
    log = make_log(1, 2)
    log.fence(2)
    log.write(UnregisterBrokerRecord(broker_id=B2, broker_epoch=log.epoch_of(2)))
    gone = explain_broker(B2, history=log.entries, image=log.image, live=live(log))
    never = explain_broker(B4, history=log.entries, image=log.image, live=live(log))
    assert (gone.status, gone.causes[-1].what) == ("unknown", "broker 2 was unregistered")
    assert (never.status, never.causes) == ("unknown", ())


# --- partitions -------------------------------------------------------------------------------------------------------


def explain(log: Log, *, unclean: bool = False, min_isr: int = 2) -> Explanation:
    name, partition = find_partition(log.image, "t", 0)
    config = ControllerConfig(unclean_leader_election_enable=unclean, min_insync_replicas=min_isr)
    return explain_partition(
        name,
        partition,
        history=log.entries,
        base=None,
        image=log.image,
        rules=rules_of(log.image, config),
        live=live(log),
    )


def test_an_explanation_says_which_replicas_are_lost_together() -> None:
    log = make_log(1, 2, 3)
    log.create(1, 2, 3)
    assert not [fact for fact in explain(log).facts if "host" in fact]
    log.register(1, 3, host="h2")
    assert "brokers {1,3} are on host h2, and are lost with it" in explain(log).facts


def lose_all_but(log: Log) -> None:
    """Broker 3, then 2 and 1 go; the last was in the ISR alone."""
    log.fence(3, moved(isr=(B1, B2)))
    log.fence(2, moved(isr=(B1,)))
    log.fence(1, moved(leader=NO_BROKER))


def test_a_leaderless_partition_is_a_chain_from_the_fence_to_the_missing_leader() -> None:
    log = make_log(1, 2, 3)
    log.create(1, 2, 3)
    lose_all_but(log)
    log.write(change(2, log.epoch_of(2), is_fenced=False))
    found = explain(log)
    assert found.status == "leaderless"
    reported = [(cause.offset, cause.what) for cause in found.causes]
    assert reported[-2:] == [
        (log.offset - 2, "broker 1 fenced"),
        (log.offset - 3, "t-0 leader 1 → none"),
    ], "the cause stands before what it brought, though the log has them the other way round"
    assert found.causes[-1].reason == "broker 1 was fenced; only {1} may lead and cannot now"
    assert (
        "Only ISR {1}, ELR {} hold every committed record, and none of them may lead: broker 1 is fenced"
        in found.summary
    )
    assert "unclean.leader.election.enable is off" in found.summary
    assert [step.command for step in found.next] == ["", "barnabas topic elect t:0 --unclean --yes"]
    assert "start broker 1" in found.next[0].purpose
    assert "RECORDS MAY BE LOST" in found.next[1].purpose


def test_with_nobody_alive_no_unclean_election_is_offered() -> None:
    log = make_log(1, 2, 3)
    log.create(1, 2, 3)
    lose_all_but(log)
    found = explain(log)
    assert "No other replica is alive either" in found.summary
    assert not any("--unclean" in step.command for step in found.next)


PARTITION_STATES = {
    "healthy": ([], "healthy", ""),
    "lagging": (
        [moved(isr=(B1, B2))],
        "under-replicated",
        "leader 1 dropped {3}: lagged (replica.lag.time.max.ms) or was silent (replica.fetch.silence.time.max.ms)",
    ),
    "caught up": ([moved(isr=(B1, B2)), moved(isr=(B1, B2, B3))], "healthy", "{3} caught up with leader 1"),
    "under min ISR": ([moved(isr=(B1,))], "under-min-isr", "leader 1 dropped {2,3}"),
    "other leader": ([moved(leader=B2)], "not-preferred", ""),
    "handed back": (
        [moved(leader=B2), moved(leader=B1)],
        "healthy",
        "leadership was handed back to the preferred replica",
    ),
    "unclean": (
        [moved(leader=B3, isr=(B3,), leader_recovery_state=LeaderRecoveryState.RECOVERING)],
        "under-min-isr",
        "unclean election: broker 3 was neither in the ISR nor eligible; records may be lost",
    ),
    "reassigned at once": (
        [moved(leader=B2, isr=(B2, B1), replicas=(B2, B1))],
        "healthy",
        "an operator reassigned it",
    ),
    "reassigning": (
        [moved(replicas=(B4, B1, B2, B3), adding_replicas=(B4,), removing_replicas=(B1, B2, B3))],
        "reassigning",
        "an operator reassigned it",
    ),
}


@pytest.mark.parametrize("name", PARTITION_STATES)
def test_a_partition_and_the_reason_of_its_last_change(name: str) -> None:
    changes, status, reason = PARTITION_STATES[name]
    log = make_log(1, 2, 3, 4)
    log.create(1, 2, 3)
    for each in changes:
        log.write(each)
    found = explain(log)
    assert found.status == status
    assert reason in found.causes[-1].reason
    assert (found.causes[-1].offset, found.causes[-1].timestamp_ms) == (log.offset - 1, log.now_ms)
    assert bool(found.next) == (status != "healthy")


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        (
            {
                "leader": BrokerId(2),
                "isr": (BrokerId(2), BrokerId(3)),
                "faults": (FaultyReplica(BrokerId(1), CORRUPT),),
            },
            "under-replicated",
            ["broker 1 is corrupt", "log verify LOG_DIR/t-0", "from {2,3}"],
        ),
        (
            {"isr": (BrokerId(1),), "faults": (FaultyReplica(BrokerId(1), NO_ROOM),)},
            "no-room",
            ["TAKES NO RECORDS", "It can be read", "broker logdirs 1", "goes on by itself"],
        ),
        (
            {"isr": (BrokerId(1),), "faults": (FaultyReplica(BrokerId(1), CORRUPT),)},
            "corrupt",
            ["but for the damaged records"],
        ),
        (
            {
                "leader": BrokerId(2),
                "isr": (BrokerId(2), BrokerId(3)),
                "faults": (FaultyReplica(BrokerId(1), EMPTIED),),
            },
            "under-replicated",
            ["broker 1 has lost records", "refilled from the leader", "log strays LOG_DIR"],
        ),
        (
            {"leader": NO_BROKER, "isr": (), "faults": (FaultyReplica(BrokerId(1), EMPTIED),)},
            "leaderless",
            ["broker 1 has lost records", "no leader can refill it", "topic elect t:0 --unclean"],
        ),
    ],
)
def test_a_faulty_replica_is_named_with_what_mends_it(fields: dict[str, Any], status: str, words: list[str]) -> None:
    log = make_log(1, 2, 3)
    log.create(1, 2, 3)
    log.write(moved(**fields))
    found = explain(log, min_isr=1)
    assert found.status == status
    reported = " ".join([found.summary, *found.facts, *(f"{step.purpose} {step.command}" for step in found.next)])
    assert all(word in reported for word in words), reported
    assert "faulty replicas [] →" in found.causes[-1].what and found.causes[-1].reason.startswith("broker 1 ")
    assert not any("catching up" in step.purpose and "broker 1" in step.purpose for step in found.next)


def test_without_a_controller_every_answer_says_so() -> None:
    log = make_log(1)
    log.create(1)
    name, partition = find_partition(log.image, "t", 0)
    rules = rules_of(log.image, ControllerConfig())
    found = explain_partition(
        name, partition, history=log.entries, base=None, image=log.image, rules=rules, live=LiveFacts(now_ms=0)
    )
    assert "no controller is active" in found.facts[-1]
    assert found.next[0].command == "barnabas explain leader"


def test_settings_that_rule_elections_are_part_of_the_chain() -> None:
    log = make_log(1)
    log.create(1)
    key = "unclean.leader.election.enable"
    log.write(ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name="t", key=key, value="true"))
    assert explain(log).causes[-1].what == f"{key} of topic t set to true"


def test_an_unknown_partition_is_refused_with_those_that_exist() -> None:
    log = make_log(1)
    log.create(1)
    with pytest.raises(KafkaError, match="has partitions 0 to 0, and no 5"):
        find_partition(log.image, "t", 5)


# --- reassignments ----------------------------------------------------------------------------------------------------


def reassigned(log: Log) -> Explanation:
    name, partition = find_partition(log.image, "t", 0)
    return explain_reassignment(name, partition, history=log.entries, base=None, image=log.image, live=live(log))


def test_a_reassignment_goes_from_copying_to_stuck_to_done() -> None:
    log = make_log(1, 2)
    log.create(1)
    assert reassigned(log).status == "none"
    log.write(moved(replicas=(B2, B1), adding_replicas=(B2,), removing_replicas=(B1,)))
    copying = reassigned(log)
    assert (copying.status, copying.next[-1].command) == ("copying", "barnabas topic reassign cancel t:0")
    log.fence(2)
    stuck = reassigned(log)
    assert stuck.status == "stuck"
    assert stuck.summary == "t-0 moves from {1} to {2}. It cannot go on: {2} must be in sync, and is out of service."
    log.write(moved(replicas=(B2,), isr=(B2,), leader=B2, adding_replicas=(), removing_replicas=()))
    done = reassigned(log)
    assert (done.status, done.causes[-1].reason) == ("none", "the reassignment is complete")


def test_a_refusal_is_in_the_controllers_words() -> None:
    log = make_log(1, 2)
    log.create(1)
    name, partition = find_partition(log.image, "t", 0)
    error = KafkaError.of(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "t-0: names brokers that are not registered: [9]")
    refused = explain_refusal(name, partition, (BrokerId(9),), error)
    allowed = explain_refusal(name, partition, (B2,), None)
    assert refused.status == "refused"
    assert "names brokers that are not registered: [9]" in refused.summary
    assert (allowed.status, allowed.next[0].command) == ("allowed", "barnabas topic reassign apply t:0=2")


# --- leaders ----------------------------------------------------------------------------------------------------------

VOTERS = VoterSet([Voter(ReplicaKey(BrokerId(n), directory(n)), "h", 9300 + n) for n in (1, 2, 3)], kraft_version=1)


def report(
    number: int, *, epoch: int = 5, end: int = 100, role: str = "unattached", **fields: object
) -> ControllerReport:
    made = ControllerReport(
        key=ReplicaKey(BrokerId(number), directory(number)),
        role=role,
        epoch=Epoch(7),
        leader_id=NO_BROKER,
        voted_id=NO_BROKER,
        last_epoch=Epoch(epoch),
        log_end_offset=Offset(end),
        high_watermark=Offset(90),
        voters=VOTERS,
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def silence(number: int, *, is_refused: bool = True) -> Silence:
    error = "connection refused" if is_refused else "out of reach"
    return Silence(voter=VOTERS.voters[number - 1], error=error, is_refused=is_refused)


CUT = {"unreached": frozenset({BrokerId(2)})}
LOST = {"lost_end": LogEnd(Epoch(5), Offset(100))}
EMPTY = {"lost_end": UNKNOWN_END, "end": 0, "epoch": 0}


def of_recovery(number: int, *, has_read_it: bool) -> ControllerReport:
    epoch = 5 + RECOVERY_EPOCH_GAP
    return replace(report(number, epoch=epoch if has_read_it else 5, incarnation="1:x"), epoch=Epoch(epoch))


LEADERS: dict[str, tuple[list[ControllerReport], list[int], str, str]] = {
    "led": ([report(1, role="leader"), report(2), report(3)], [], "led", "controller 1 leads the quorum in epoch 7"),
    "majority missing": ([report(1)], [2, 3], "majority-missing", "only 1 answer (1); missing: 2, 3"),
    "can elect": ([report(1), report(2)], [3], "electing", "1, 2 can win"),
    "only the longer log can win": ([report(1, end=90), report(2)], [3], "electing", " 2 can win"),
    "later epoch wins over length": ([report(1, epoch=4, end=500), report(2)], [3], "electing", " 2 can win"),
    "cut off": ([report(1, **CUT), report(2)], [3], "cut-off", "do not reach each other"),  # type: ignore[arg-type]
    "two damaged": (
        [report(1, end=70, **LOST), report(2, end=80, **LOST), report(3, end=60)],  # type: ignore[arg-type]
        [],
        "damaged",
        "the disks of controllers 1, 2 have lost records that they had flushed",
    ),
    "one damaged, the whole log wins": ([report(1, end=70, **LOST), report(2)], [3], "electing", " 2 can win"),  # type: ignore[arg-type]
    "damaged and cut off": (
        [report(1, end=95, **LOST, **CUT), report(2, end=90)],  # type: ignore[arg-type]
        [3],
        "cut-off",
        "do not reach each other",
    ),
    "first start": ([report(1, **EMPTY), report(2, **EMPTY)], [3], "first-start", "or 3 holds what they have lost"),  # type: ignore[arg-type]
    "first start, all there": ([report(n, **EMPTY) for n in (1, 2, 3)], [], "electing", "all 3 voters are blank"),  # type: ignore[arg-type]
    "two emptied": (
        [report(1), report(2, **EMPTY), report(3, **EMPTY)],  # type: ignore[arg-type]
        [],
        "emptied",
        "the metadata directories of controllers 2, 3 were emptied",
    ),
    "one emptied": ([report(1), report(2), report(3, **EMPTY)], [], "electing", "1, 2 can win"),  # type: ignore[arg-type]
    "nobody answers": ([], [1, 2, 3], "unreachable", "NO CONTROLLER ANSWERS"),
    "a replaced disk does not vote": (
        [report(1), replace(report(2), key=ReplicaKey(B2, directory(99)))],
        [3],
        "majority-missing",
        "Controller 2 answers with another disk than the voter's",
    ),
    "who has not read of the recovery does not run": (
        [of_recovery(2, has_read_it=False), of_recovery(3, has_read_it=False)],
        [1],
        "recovery-unread",
        "no controller that answers (2, 3) has read its log as far as that",
    ),
    "nor beside one that has": (
        [of_recovery(1, has_read_it=True), of_recovery(2, has_read_it=False), of_recovery(3, has_read_it=False)],
        [],
        "electing",
        " 1 can win",
    ),
    "a recovered quorum's word counts": (
        [
            report(1, end=10, incarnation="1:x", role="leader", voters=VoterSet([VOTERS.voters[0]])),
            report(2),
            report(3),
        ],
        [],
        "led",
        "controller 1 leads",
    ),
}


TWICE: dict[str, list[ControllerReport]] = {
    "both answer": [
        report(1, incarnation="1:a", role="leader", voters=VoterSet([VOTERS.voters[0]])),
        report(2, incarnation="1:b", role="leader", voters=VoterSet([VOTERS.voters[1]])),
    ],
    "one answers and has met the other": [report(1, incarnation="1:a", role="leader", recovered_beside=("1:b",))],
    "nobody leads": [report(1, incarnation="1:a", recovered_beside=("1:b",)), report(2, incarnation="1:a")],
}


@pytest.mark.parametrize("name", TWICE)
def test_two_recoveries_of_one_quorum_are_reported_first_with_the_way_out(name: str) -> None:
    found = explain_leader(TWICE[name], [], history=(), now_ms=0)
    assert found.status == "recovered-twice"
    assert found.summary.startswith("THE QUORUM WAS RECOVERED TWICE: as 1:a (controller 1")
    other = "controller 2" if name == "both answer" else "no controller of it answers here"
    assert f"as 1:b ({other})" in found.summary
    assert [step.command for step in found.next if "--report" in step.command]
    assert any("of the quorum recovered as 1:a" in fact for fact in found.facts)


def test_only_a_follower_follows_and_only_who_is_missing_is_to_be_started() -> None:
    cut = report(1, role="prospective", leader_id=B2, **CUT)  # type: ignore[arg-type]
    other = report(3, role="follower", leader_id=B2, unreached=frozenset({B1, B2}))
    found = explain_leader([cut, report(2), other], [], history=(), now_ms=0)
    assert "follows" not in found.facts[0] and "follows 2" in found.facts[2]
    assert found.status == "cut-off" and [step.command for step in found.next] == [""]


def test_a_former_recovery_is_no_second_one() -> None:
    recovered_again = report(1, incarnation="2:a", role="leader", recovered_beside=("1:b",))
    assert explain_leader([recovered_again, report(2, incarnation="1:b")], [], history=(), now_ms=0).status == "led"


@pytest.mark.parametrize("name", LEADERS)
def test_why_there_is_a_leader_or_none(name: str) -> None:
    reports, silent, status, summary = LEADERS[name]
    found = explain_leader(reports, [silence(number) for number in silent], history=(), now_ms=0)
    assert found.status == status
    assert summary in found.summary
    assert bool(found.next) == (status != "led")


@pytest.mark.parametrize("name", ["one of one", "beside a dead one", "none answers", "damaged", "emptied"])
def test_no_recovery_is_offered_where_a_majority_may_live(name: str) -> None:
    """A cut-off side sees others out of reach: they may lead, and a recovery here would make a second quorum."""
    damaged = [report(1, end=70, **LOST), report(2, end=80, **LOST)]  # type: ignore[arg-type]
    reports, silent = {
        "one of one": ([report(1)], [silence(2, is_refused=False), silence(3, is_refused=False)]),
        "beside a dead one": ([report(1)], [silence(2), silence(3, is_refused=False)]),
        "none answers": ([], [silence(n, is_refused=False) for n in (1, 2, 3)]),
        "damaged": (damaged, [silence(3, is_refused=False)]),
        "emptied": ([report(1), report(2, **EMPTY)], [silence(3, is_refused=False)]),  # type: ignore[arg-type]
    }[name]
    found = explain_leader(reports, silent, history=(), now_ms=0)
    assert found.status not in ("led", "electing")
    assert "network" in found.next[0].purpose and found.next[0].command == ""
    assert not any("recover" in step.command for step in found.next)
    assert "may have a leader" in found.summary


def test_a_recovery_is_offered_once_every_missing_voter_refuses_or_is_another() -> None:
    found = explain_leader([report(1)], [silence(2), silence(3)], history=(), now_ms=0)
    assert found.next[-1].command == RECOVERY_COMMAND and "may have a leader" not in found.summary
    assert "a firewall refuses too" in found.next[-1].purpose


def test_an_ipv6_controller_is_to_be_started_where_its_address_is_typed() -> None:
    silent = replace(silence(2), voter=VOTERS.voters[1]._replace(host="::1"))
    found = explain_leader([report(1)], [silent], history=(), now_ms=0)
    assert "2 ([::1]:9302)" in found.next[0].purpose and "at [::1]:9302 does not answer" in found.facts[-1]


def test_a_damaged_voter_is_reported_with_what_is_left_to_do() -> None:
    damaged = [report(1, end=70, **LOST), report(2, end=80, **LOST)]  # type: ignore[arg-type]
    fact = "controller 1: unattached, epoch 7, log end 70 of epoch 5, high watermark 90; DAMAGED: its disk has lost what it had"
    found = explain_leader(damaged, [silence(3)], history=(), now_ms=0)
    assert found.facts[0].startswith(fact)
    assert [step.command for step in found.next] == ["barnabas-server -c FILE", RECOVERY_COMMAND]
    assert "start controller 3" in found.next[0].purpose
    led = explain_leader([*damaged, report(3, role="leader")], [], history=(), now_ms=0)
    assert led.status == "led" and led.facts[0].startswith(fact) and led.next == ()
    # A voter that remembers where its log ended votes as if it had it all.
    assert votes_for(report(3, end=90), [damaged[0], report(3, end=90)], VOTERS)[B1].startswith("its own log was more")


def test_a_vote_is_refused_to_a_log_that_is_less_complete() -> None:
    behind, ahead = report(1, end=90), report(2)
    assert votes_for(behind, [behind, ahead], VOTERS)[B2].startswith("its own log is more complete")
    assert votes_for(ahead, [behind, ahead], VOTERS) == {B1: "", B2: ""}


def test_voters_of_two_incarnations_do_not_vote_for_each_other() -> None:
    old, recovered = report(1), report(2, incarnation="1:x")
    assert "another incarnation" in votes_for(old, [old, recovered], VOTERS)[B2]
    assert "another incarnation" in votes_for(recovered, [old, recovered], VOTERS)[B1]


def test_of_many_causes_the_newest_are_shown_and_the_others_counted() -> None:
    causes = [Cause(what=str(number)) for number in range(CAUSES_MAX + 5)]
    shown = newest(causes)
    assert len(shown) == CAUSES_MAX
    assert shown[0].what == "(6 earlier events are left out)"
    assert shown[-1].what == str(CAUSES_MAX + 4)
