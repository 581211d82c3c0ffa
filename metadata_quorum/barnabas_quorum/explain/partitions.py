"""Why a partition has no leader, is under its min ISR, or is led by another than the preferred replica.

May touch:  image, controller's rules, history.   Must not touch: asyncio, clock, logs of partitions.
Invariants: who may lead is asked of the controller's own rules (partition_rules.acceptable), so that an explanation never
            contradicts the election; a way that can lose records says so.
Read next:  reassignments.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from barnabas_quorum.controller.elr import effective_min_isr
from barnabas_quorum.controller.partition_rules import PartitionRules, acceptable
from barnabas_quorum.explain.brokers import LiveFacts, broker_causes
from barnabas_quorum.explain.chain import Cause, Explanation, NextStep, ids, leader_name, newest
from barnabas_quorum.explain.history import (
    BrokerRecord,
    LogEntry,
    PartitionStep,
    concerns_broker,
    concerns_partition,
    partition_steps,
)
from barnabas_quorum.image.directories import is_directory_online
from barnabas_quorum.image.hosts import shared_hosts
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    LeaderRecoveryState,
    PartitionRecord,
    QuorumRecoveryRecord,
    RegisterBrokerRecord,
    ReplicaFault,
    UnregisterBrokerRecord,
)
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Uuid
from barnabas_wire.lazy_dataclass import dataclass

_FAULTY = {
    ReplicaFault.CORRUPT: "is corrupt: records below the high watermark are damaged",
    ReplicaFault.NO_ROOM: "has no room: its log directory is full, so it takes no records",
    ReplicaFault.LOST: "has lost records that it had, or its log directory is an older copy: it leads nothing until it is refilled "
    "from another replica, or an operator accepts the loss",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionName:
    """Which partition, found in an image."""

    topic: str
    topic_id: Uuid
    index: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


def find_partition(image: MetadataImage, topic: str, index: int) -> tuple[PartitionName, PartitionRegistration]:
    """Raises UNKNOWN_TOPIC_OR_PARTITION."""
    found = image.topics.get(topic)
    if found is None:
        raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} does not exist")
    partition = found.partitions.get(index)
    if partition is None:
        count = len(found.partitions)
        raise KafkaError.of(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} has partitions 0 to {count - 1}, and no {index}"
        )
    return PartitionName(topic=topic, topic_id=found.id, index=index), partition


def explain_partition(
    name: PartitionName,
    partition: PartitionRegistration,
    *,
    history: Iterable[LogEntry],
    base: PartitionRegistration | None,
    image: MetadataImage,
    rules: PartitionRules,
    live: LiveFacts,
) -> Explanation:
    """The chain for one partition.

    Args:
        partition: as the image has it now.
        history: at least the entries that concern it, committed, in order.
        base: the partition as it was where the history begins; None when that is not known, or it was made later.
    """
    concerns = concerns_partition(name.topic, name.topic_id, name.index)
    entries = [entry for entry in history if concerns(entry.record)]
    causes = newest(partition_causes(name, entries, base=base, live=live))
    min_isr = effective_min_isr(rules.min_insync_replicas(name.topic), len(partition.replicas))
    facts = _facts(name, partition, image=image, rules=rules, min_isr=min_isr)
    if live.leader_id == NO_BROKER:
        facts += ("this is what the metadata says; no controller is active, so nothing of it can change now",)
    subject = f"partition {name}"

    def answer(status: str, summary: str, steps: Sequence[NextStep] = ()) -> Explanation:
        first = (
            (NextStep(purpose="find out why no controller is active", command="barnabas explain leader"),)
            if live.leader_id == NO_BROKER
            else ()
        )
        return Explanation(
            subject=subject, status=status, summary=summary, causes=causes, facts=facts, next=(*first, *steps)
        )

    if not partition.has_leader:
        why = why_no_leader(name, partition, image=image, rules=rules)
        steps = _steps_to_a_leader(name, partition, image=image)
        return answer("leaderless", f"{name} has NO LEADER: nobody can write or read it. {why}", steps)
    lagging = [replica for replica in partition.replicas if replica not in partition.isr]
    if partition.fault_of(partition.leader) is ReplicaFault.NO_ROOM:
        return answer(
            "no-room",
            f"{name} TAKES NO RECORDS: the log directory of its leader, broker {partition.leader}, is full, and no replica with "
            "room is in sync. It can be read.",
            [*_steps_against_faults(name, partition), *_steps_to_sync(partition, lagging, image=image)],
        )
    if len(partition.isr) < min_isr:
        return answer(
            "under-min-isr",
            f"{name} is UNDER MIN ISR: {len(partition.isr)} in sync, {min_isr} wanted, so writes with acks=all are refused "
            "and the high watermark stands still.",
            [*_steps_against_faults(name, partition), *_steps_to_sync(partition, lagging, image=image)],
        )
    if partition.adding_replicas or partition.removing_replicas:
        return answer(
            "reassigning",
            f"{name} is served by broker {partition.leader} while it moves to other brokers.",
            (
                NextStep(
                    purpose="see what it waits for", command=f"barnabas explain reassignment {name.topic} {name.index}"
                ),
            ),
        )
    if partition.fault_of(partition.leader) is ReplicaFault.CORRUPT:
        return answer(
            "corrupt",
            f"{name} is CORRUPT: its leader, broker {partition.leader}, has damaged records, and no whole replica is in sync. It "
            "is written, and read but for the damaged records.",
            [*_steps_against_faults(name, partition), *_steps_to_sync(partition, lagging, image=image)],
        )
    if lagging:
        return answer(
            "under-replicated",
            f"{name} is UNDER-REPLICATED: {_replicas(lagging)} not in sync; it is written and read as usual.",
            [*_steps_against_faults(name, partition), *_steps_to_sync(partition, lagging, image=image)],
        )
    if partition.leader != partition.preferred_leader:
        return answer(
            "not-preferred",
            f"{name} is well; it is led by broker {partition.leader} and not by the preferred {partition.preferred_leader}.",
            (
                NextStep(
                    purpose="wait for leader balancing, or hand it back now",
                    command=f"barnabas topic elect {name.topic}:{name.index}",
                ),
            ),
        )
    return answer("healthy", f"{name} is well: led by broker {partition.leader}, all replicas in sync.")


def partition_causes(
    name: PartitionName, entries: Sequence[LogEntry], *, base: PartitionRegistration | None, live: LiveFacts
) -> list[Cause]:
    """Every change of the partition, each behind the broker's event that brought it."""
    fences = _broker_causes(entries, live)
    reported: set[int] = set()
    causes: list[Cause] = []
    steps = {step.entry.offset: step for step in partition_steps(entries, base=base)}
    for entry in entries:
        step = steps.get(entry.offset)
        if step is not None:
            for beside in step.beside:
                # The fence stands behind what it brings, but a reader wants the cause first.
                if beside.offset not in reported and beside.offset in fences:
                    reported.add(beside.offset)
                    causes.append(fences[beside.offset])
            causes.append(_step_cause(name, step))
            continue
        setting = _setting_cause(entry)
        if setting is not None:
            causes.append(setting)
    return causes


def why_no_leader(
    name: PartitionName, partition: PartitionRegistration, *, image: MetadataImage, rules: PartitionRules
) -> str:
    """One sentence: why no replica is elected now."""
    eligible = (*partition.isr, *partition.elr)
    may_lead = acceptable(image, partition)
    others = [replica for replica in partition.replicas if replica not in eligible and may_lead(replica)]
    unclean = "on" if rules.allows_unclean(name.topic) else "off"
    known = f"ISR {ids(partition.isr)}, ELR {ids(partition.elr)}"
    reasons = "; ".join(f"broker {replica} {why_not(partition, replica, image=image)}" for replica in eligible)
    sentence = f"Only {known} hold every committed record, and none of them may lead: {reasons}."
    if not eligible:
        last = f"; last leader known: {ids(partition.last_known_elr)}" if partition.last_known_elr else ""
        sentence = f"Nobody is known to hold every committed record ({known}{last})."
    if others:
        return f"{sentence} {_replicas(others)} alive but may lack records, and unclean.leader.election.enable is {unclean}."
    return f"{sentence} No other replica is alive either."


def why_not(partition: PartitionRegistration, replica: BrokerId, *, image: MetadataImage) -> str:
    """Why a replica may not lead, or what it lacks."""
    broker = image.cluster.broker(replica)
    if broker is None:
        return "is not registered"
    if broker.is_fenced:
        return "is fenced"
    if broker.is_in_controlled_shutdown:
        return "is shutting down"
    if not is_directory_online(image, partition, replica):
        return "has lost the log directory of this replica"
    fault = partition.fault_of(replica)
    if fault is not None:
        return _FAULTY[fault]
    if replica in partition.isr:
        return "is in sync"
    if replica in partition.elr:
        return "is eligible"
    return "is alive, not in sync: it may lack records"


# --- causes -----------------------------------------------------------------------------------------------------------


def _broker_causes(entries: Sequence[LogEntry], live: LiveFacts) -> dict[int, Cause]:
    """By offset: what happened to brokers."""
    brokers = {entry.record.broker_id for entry in entries if isinstance(entry.record, BrokerRecord)}
    found: dict[int, Cause] = {}
    for broker_id in brokers:
        concerns = concerns_broker(broker_id)
        own = [entry for entry in entries if concerns(entry.record)]
        for cause in broker_causes(broker_id, entries=own, live=live):
            found[cause.offset] = cause
    return found


def _step_cause(name: PartitionName, step: PartitionStep) -> Cause:
    entry, before, after = step.entry, step.before, step.after
    if isinstance(entry.record, PartitionRecord):
        assert after is not None, "a PartitionRecord states everything"
        what = f"{name} created: replicas {ids(after.replicas)}, leader {leader_name(after.leader)}"
        return Cause(what=what, offset=entry.offset, timestamp_ms=entry.timestamp_ms)
    if before is None or after is None:
        return Cause(
            what=f"{name} changed (how it stood before is in no record that is left)",
            offset=entry.offset,
            timestamp_ms=entry.timestamp_ms,
        )
    reason, is_guess = _step_reason(step, before, after)
    return Cause(
        what=f"{name} {', '.join(_differences(before, after)) or 'changed'}",
        reason=reason,
        is_guess=is_guess,
        offset=entry.offset,
        timestamp_ms=entry.timestamp_ms,
    )


def _differences(before: PartitionRegistration, after: PartitionRegistration) -> list[str]:
    found = []
    if before.leader != after.leader:
        found.append(f"leader {leader_name(before.leader)} → {leader_name(after.leader)}")
    elif before.leader_epoch != after.leader_epoch:
        found.append(f"leader {leader_name(after.leader)} in a new epoch {after.leader_epoch}")
    for label, old, new in (
        ("ISR", before.isr, after.isr),
        ("ELR", before.elr, after.elr),
        ("last known leader", before.last_known_elr, after.last_known_elr),
        ("replicas", before.replicas, after.replicas),
        ("adding", before.adding_replicas, after.adding_replicas),
        ("removing", before.removing_replicas, after.removing_replicas),
    ):
        if old != new:
            found.append(f"{label} {ids(old)} → {ids(new)}")
    if before.faults != after.faults:
        found.append(f"faulty replicas {_faults(before)} → {_faults(after)}")
    if before.directories != after.directories and before.replicas == after.replicas:
        found.append("a replica's log directory was reported")
    if before.leader_recovery_state != after.leader_recovery_state:
        is_over = after.leader_recovery_state is LeaderRecoveryState.RECOVERED
        found.append("unclean election recovered from" if is_over else "leader recovering after an unclean election")
    return found


def _fault_beside(partition: PartitionRegistration, replica: BrokerId) -> str:
    fault = partition.fault_of(replica)
    return "" if fault is None else f" and {_FAULTY[fault]}"


def _faults(partition: PartitionRegistration) -> str:
    return "[" + ", ".join(f"{replica} {fault.name}" for replica, fault in partition.faults) + "]"


def _step_reason(step: PartitionStep, before: PartitionRegistration, after: PartitionRegistration) -> tuple[str, bool]:
    """(why, whether that is inferred)."""
    if isinstance(step.entry.record, QuorumRecoveryRecord):
        return f"the quorum was recovered, as incarnation {step.entry.record.incarnation}", False
    fresh = [
        f"broker {replica} {_FAULTY[fault]}" for replica, fault in after.faults if (replica, fault) not in before.faults
    ]
    lost = [
        replica
        for replica, fault in after.faults
        if fault is ReplicaFault.LOST and (replica, fault) not in before.faults
    ]
    if lost:  # a registration may bring it, and this is why
        return "; ".join(fresh), False
    brokers = [reason for entry in step.beside if (reason := _beside(entry)) is not None]
    if (
        after.leader_recovery_state is LeaderRecoveryState.RECOVERING
        and before.leader_recovery_state is LeaderRecoveryState.RECOVERED
    ):
        return (
            f"unclean election: broker {after.leader} was neither in the ISR nor eligible; records may be lost",
            False,
        )
    if before.has_leader and not after.has_leader:
        left = after.isr or after.elr
        only = f"only {ids(left)} may lead and cannot now" if left else "nobody is left that may lead"
        return f"{brokers[0]}; {only}" if brokers else only, not brokers
    if brokers:
        return brokers[0], False
    if before.faults != after.faults:
        whole = [replica for replica, _ in before.faults if after.fault_of(replica) is None]
        return "; ".join([*fresh, *(f"broker {replica} reported its replica whole" for replica in whole)]), False
    was_moving = before.adding_replicas or before.removing_replicas
    if was_moving and not after.adding_replicas and not after.removing_replicas:
        is_done = set(before.adding_replicas) <= set(after.replicas)
        return ("the reassignment is complete" if is_done else "the reassignment was cancelled"), False
    # One that only takes replicas away or reorders them is over at once.
    if (after.adding_replicas, after.removing_replicas, after.replicas) != (
        before.adding_replicas,
        before.removing_replicas,
        before.replicas,
    ):
        return "an operator reassigned it", False
    if before.leader != after.leader and after.leader == after.preferred_leader and before.has_leader:
        return "leadership was handed back to the preferred replica", True
    gone = [replica for replica in before.isr if replica not in after.isr]
    come = [replica for replica in after.isr if replica not in before.isr]
    if gone and before.leader == after.leader:
        return (
            f"leader {after.leader} dropped {ids(gone)}: lagged (replica.lag.time.max.ms) or was silent "
            "(replica.fetch.silence.time.max.ms)",
            True,
        )
    if come and before.leader == after.leader:
        return f"{ids(come)} caught up with leader {after.leader}", True
    return "", False


def _beside(entry: LogEntry) -> str | None:
    record = entry.record
    match record:
        case BrokerRegistrationChangeRecord(is_in_controlled_shutdown=True):
            return f"broker {record.broker_id} began its controlled shutdown"
        case BrokerRegistrationChangeRecord(is_fenced=True):
            return f"broker {record.broker_id} was fenced"
        case BrokerRegistrationChangeRecord(is_fenced=False):
            return f"broker {record.broker_id} came into service"
        case BrokerRegistrationChangeRecord(directories=directories) if directories is not None:
            return f"broker {record.broker_id} lost a log directory"
        case UnregisterBrokerRecord():
            return f"broker {record.broker_id} was unregistered"
        case RegisterBrokerRecord():
            return f"broker {record.broker_id} started anew after an unclean stop"
        case _:
            return None


def _setting_cause(entry: LogEntry) -> Cause | None:
    match entry.record:
        case ConfigRecord() as record:
            where = f"topic {record.resource_name}" if record.resource_type.name == "TOPIC" else "all brokers"
            value = "removed" if record.value is None else f"set to {record.value}"
            what = f"{record.key} of {where} {value}"
        case ClearElrRecord():
            what = "ELR cleared: min.insync.replicas changed"
        case _:
            return None
    return Cause(what=what, offset=entry.offset, timestamp_ms=entry.timestamp_ms)


# --- how it stands, what to do ----------------------------------------------------------------------------------------


def _facts(
    name: PartitionName,
    partition: PartitionRegistration,
    *,
    image: MetadataImage,
    rules: PartitionRules,
    min_isr: int,
) -> tuple[str, ...]:
    unclean = "on" if rules.allows_unclean(name.topic) else "off"
    replicas = "; ".join(
        f"broker {replica} "
        + (
            f"leads{_fault_beside(partition, replica)}"
            if replica == partition.leader
            else why_not(partition, replica, image=image)
        )
        for replica in partition.replicas
    )
    shared = shared_hosts(image.cluster, partition.replicas)
    return (
        f"leader {leader_name(partition.leader)}, ISR {ids(partition.isr)}, ELR {ids(partition.elr)}, "
        f"min ISR {min_isr}, unclean election {unclean}",
        replicas,
        *(f"brokers {ids(brokers)} are on host {host}, and are lost with it" for host, brokers in shared.items()),
    )


def _steps_to_a_leader(
    name: PartitionName, partition: PartitionRegistration, *, image: MetadataImage
) -> list[NextStep]:
    eligible = (*partition.isr, *partition.elr) or partition.last_known_elr
    steps = [
        NextStep(purpose=f"{_mend(partition, replica, image=image)}: it has every committed record")
        for replica in eligible
    ]
    may_lead = acceptable(image, partition)
    alive = [replica for replica in partition.replicas if may_lead(replica)]
    if any(fault is ReplicaFault.LOST for _, fault in partition.faults):
        steps += _steps_against_faults(name, partition)
    if alive:
        given_up = (
            f"or give up what only {ids(eligible)} may hold" if eligible else "accept the loss of what none of them has"
        )
        steps.append(
            NextStep(
                purpose=f"{given_up}, and let {ids(alive)} lead: RECORDS MAY BE LOST",
                command=f"barnabas topic elect {name.topic}:{name.index} --unclean --yes",
            )
        )
    elif set(partition.replicas) - set(eligible):
        steps.append(
            NextStep(purpose=f"or start any other of its brokers {ids(partition.replicas)}, for an unclean election")
        )
    return steps


def _steps_to_sync(
    partition: PartitionRegistration, lagging: Sequence[BrokerId], *, image: MetadataImage
) -> list[NextStep]:
    steps = []
    for replica in lagging:
        if partition.fault_of(replica) is not None and image.cluster.is_active(replica):
            continue
        broker = image.cluster.broker(replica)
        if broker is not None and broker.is_active and is_directory_online(image, partition, replica):
            steps.append(NextStep(purpose=f"broker {replica} is catching up: wait", command="barnabas cluster health"))
        else:
            mend = f"{_mend(partition, replica, image=image)}; the reason is shown by"
            steps.append(NextStep(purpose=mend, command=f"barnabas explain broker {replica}"))
    return steps


def _steps_against_faults(name: PartitionName, partition: PartitionRegistration) -> list[NextStep]:
    steps = []
    for replica, fault in partition.faults:
        if fault is ReplicaFault.NO_ROOM:
            steps.append(
                NextStep(
                    purpose=f"free space in the log directory of broker {replica} (shorter retention, fewer partitions, a larger "
                    "disk): it goes on by itself",
                    command=f"barnabas broker logdirs {replica}",
                )
            )
        elif fault is ReplicaFault.LOST:
            refill = "it is refilled from the leader, by itself" if partition.has_leader else "no leader can refill it"
            steps.append(
                NextStep(
                    purpose=f"broker {replica} has lost records: {refill}; logs that it set aside (on its host, LOG_DIR of its "
                    "log.dirs) are shown by",
                    command="barnabas log strays LOG_DIR",
                )
            )
        else:
            others = [other for other in partition.replicas if other != replica and partition.fault_of(other) is None]
            purpose = (
                f"broker {replica} fetches the damaged records anew from {ids(others)}: wait, or see what is damaged"
            )
            if not others:
                purpose = f"see what is damaged on broker {replica}; no other replica has these records"
            steps.append(
                NextStep(
                    purpose=f"{purpose} (on its host, LOG_DIR of its log.dirs)",
                    command=f"barnabas log verify LOG_DIR/{name}",
                )
            )
    return steps


def _mend(partition: PartitionRegistration, replica: BrokerId, *, image: MetadataImage) -> str:
    if image.cluster.is_active(replica) and not is_directory_online(image, partition, replica):
        return f"mend the disk of broker {replica} and restart it"
    return f"start broker {replica}"


def _replicas(replicas: Sequence[BrokerId]) -> str:
    names = ",".join(str(replica) for replica in replicas)
    return f"replica {names} is" if len(replicas) == 1 else f"replicas {names} are"
