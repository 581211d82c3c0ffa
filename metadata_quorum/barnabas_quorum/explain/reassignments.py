"""Why a reassignment is stuck, or was refused.

May touch:  image, controller's rules, history.   Must not touch: asyncio, clock.
Invariants: a refusal is in the controller's own words; one that the controller no longer gives is reported as such.
Read next:  leaders.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas_quorum.controller.reassignment import is_reassigning, original_replicas
from barnabas_quorum.explain.brokers import LiveFacts
from barnabas_quorum.explain.chain import Cause, Explanation, NextStep, ids, newest
from barnabas_quorum.explain.history import LogEntry, concerns_partition
from barnabas_quorum.explain.partitions import PartitionName, partition_causes, why_not
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.records import PartitionChangeRecord, PartitionRecord
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import BrokerId


def explain_reassignment(
    name: PartitionName,
    partition: PartitionRegistration,
    *,
    history: Iterable[LogEntry],
    base: PartitionRegistration | None,
    image: MetadataImage,
    live: LiveFacts,
) -> Explanation:
    """What the reassignment under way waits for. Arguments as of explain_partition."""
    subject = f"reassignment of {name}"
    concerns = concerns_partition(name.topic, name.topic_id, name.index)
    entries = [entry for entry in history if concerns(entry.record)]
    causes = partition_causes(name, entries, base=base, live=live)
    if not is_reassigning(partition):
        return Explanation(
            subject=subject,
            status="none",
            summary=f"{name} is not being reassigned; it is on brokers {ids(partition.replicas)}.",
            causes=newest(_moves(causes, entries)),
            next=(
                NextStep(
                    purpose="if one was refused, name the brokers that were wanted, and the controller says why",
                    command=f"barnabas explain reassignment {name.topic} {name.index} --replicas 1,2,3",
                ),
            ),
        )
    wanted = [replica for replica in partition.replicas if replica not in partition.removing_replicas]
    waiting = [replica for replica in wanted if replica not in partition.isr]
    fenced = [replica for replica in waiting if not image.cluster.is_active(replica)]
    cancel = NextStep(
        purpose=f"or go back to brokers {ids(original_replicas(partition))}",
        command=f"barnabas topic reassign cancel {name.topic}:{name.index}",
    )
    facts = tuple(f"broker {replica} {why_not(partition, replica, image=image)}" for replica in wanted)
    steps: tuple[NextStep, ...]
    if not partition.has_leader:
        status, why = "stuck", "It cannot go on: the partition has no leader to copy from."
        steps = (
            NextStep(
                purpose="find out why nobody leads", command=f"barnabas explain partition {name.topic} {name.index}"
            ),
        )
    elif fenced:
        status = "stuck"
        why = (
            f"It cannot go on: {ids(fenced)} must be in sync, and {'is' if len(fenced) == 1 else 'are'} out of service."
        )
        steps = tuple(
            NextStep(purpose=f"start broker {replica}", command=f"barnabas explain broker {replica}")
            for replica in fenced
        )
    elif waiting:
        status, why = (
            "copying",
            f"It goes on: {ids(waiting)} copy from leader {partition.leader} until they are in sync.",
        )
        steps = (
            NextStep(
                purpose="watch it; if it does not move, look at the throttle (follower.replication.throttled.rate)",
                command=f"barnabas topic reassignments {name.topic}",
            ),
        )
    else:
        status, why = (
            "finishing",
            "All wanted brokers are in sync; the controller completes it with the next ISR change.",
        )
        steps = (
            NextStep(
                purpose="wait, and look again", command=f"barnabas explain reassignment {name.topic} {name.index}"
            ),
        )
    moving = f"{name} moves from {ids(original_replicas(partition))} to {ids(wanted)}."
    return Explanation(
        subject=subject,
        status=status,
        summary=f"{moving} {why}",
        causes=newest(causes),
        facts=facts,
        next=(*steps, cancel),
    )


def explain_refusal(
    name: PartitionName, partition: PartitionRegistration, wanted: tuple[BrokerId, ...], error: KafkaError | None
) -> Explanation:
    """What the active controller says to a reassignment when it is asked without changing anything."""
    subject = f"reassignment of {name} to {ids(wanted)}"
    if error is None:
        return Explanation(
            subject=subject,
            status="allowed",
            summary=f"the controller would accept it now; {name} is on brokers {ids(partition.replicas)}.",
            next=(
                NextStep(
                    purpose="ask again: what refused it before has passed",
                    command=f"barnabas topic reassign apply {name.topic}:{name.index}="
                    + ",".join(str(replica) for replica in wanted),
                ),
            ),
        )
    return Explanation(
        subject=subject,
        status="refused",
        summary=f"the controller refuses it: {error.message}",
        facts=(f"{error.code.name}; {name} is on brokers {ids(partition.replicas)}",),
        next=(NextStep(purpose="see which brokers are in service", command="barnabas broker list"),),
    )


def _moves(causes: Iterable[Cause], entries: Iterable[LogEntry]) -> list[Cause]:
    """The causes that are changes of who holds the partition."""
    offsets = {
        entry.offset
        for entry in entries
        if isinstance(entry.record, PartitionRecord)
        or (isinstance(entry.record, PartitionChangeRecord) and entry.record.replicas is not None)
    }
    return [cause for cause in causes if cause.offset in offsets]
