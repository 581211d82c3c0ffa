"""`barnabas explain`: why something is as it is, from the metadata log, and what to type next.

May touch:  the admin client; for transactions and groups the brokers.   Must not touch: anything that changes the cluster.
Invariants: a guess is marked as one; every time and offset of a cause is that of a record in the metadata log, or is left
            out.
Read next:  quorum.py.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import click

from barnabas_admin.commands.topic import parse_broker_ids
from barnabas_admin.invocation import Invocation, common_options
from barnabas_admin.output import ExitCode, local_time, print_json, print_line
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas_admin import group_explanation
    from barnabas_wire.client.cluster import ClusterClient
    from barnabas_wire.rpc import explain_pb2

WITHOUT_LEADER = ("unknown", "leaderless")
LEADER_TIMEOUT_S = 3.0
"""How long a partition's leader is waited for: the rest of the answer is there already."""


@click.command()
@common_options
def leader(invocation: Invocation) -> None:
    """Say who leads the controller quorum, or why it has no leader.

    Every controller is asked directly, so this works without a leader: give the admin address of any live node.
    """
    _show(invocation, invocation.admin.explain_leader())


@click.command()
@click.argument("broker_id", type=click.IntRange(min=0), metavar="ID")
@common_options
def broker(invocation: Invocation, broker_id: int) -> None:
    """Say why a broker is fenced, leaving or unknown, and what brought it there."""
    _show(invocation, invocation.admin.explain_broker(broker_id))


@click.command()
@click.argument("topic", metavar="TOPIC")
@click.argument("partition", required=False, type=click.IntRange(min=0), metavar="PARTITION")
@common_options
def partition(invocation: Invocation, topic: str, partition: int | None) -> None:
    """Say why a partition lacks a leader or in-sync replicas, what readers of committed data wait for, what is not compacted.

    TOPIC PARTITION, or TOPIC:PARTITION in one word.
    """
    name, index = _partition(topic, partition)
    found = invocation.admin.explain_partition(name, index)
    key = TopicPartition(name, index)
    if found.status not in WITHOUT_LEADER:
        _add_open_transactions(invocation, found, key)
        _add_uncleanable(invocation, found, key)
    _show(invocation, found)


@click.command()
@click.argument("topic", metavar="TOPIC")
@click.argument("partition", required=False, type=click.IntRange(min=0), metavar="PARTITION")
@click.option(
    "--replicas",
    metavar="ID,ID,…",
    help="The brokers that were wanted and refused: the controller says why, and changes nothing.",
)
@common_options
def reassignment(invocation: Invocation, topic: str, partition: int | None, replicas: str | None) -> None:
    """Say what a reassignment waits for, or why the controller refuses one."""
    name, index = _partition(topic, partition)
    wanted = parse_broker_ids(replicas) if replicas is not None else []
    _show(invocation, invocation.admin.explain_reassignment(name, index, replicas=wanted))


@click.command()
@click.argument("group", metavar="NAME")
@common_options
def group(invocation: Invocation, group: str) -> None:
    """Say why a consumer group is not stable, who has not given up what, whose heartbeats are late, and what happens next.

    The group's coordinator is asked. What it does not know yet, because it has just become that, is left out. Where clients push
    their metrics (telemetry.receiver), what those of the group say of themselves stands beside it.
    """
    from barnabas_admin import client_view, group_explanation
    from barnabas_admin.kafka import run_with_cluster
    from barnabas_wire.rpc import explain_pb2

    async def ask(client: ClusterClient) -> tuple[group_explanation.Explanation, list[dict[str, Any]]]:
        return await group_explanation.explain(client, group), await client_view.read(client, group=group)

    said, clients = run_with_cluster(invocation, ask)
    found = explain_pb2.ExplainResponse(
        subject=f"group {group}",
        status=said.status,
        summary=said.summary,
        facts=[*said.facts, *client_view.facts(clients)],
        next=[explain_pb2.NextStep(purpose=purpose, command=command) for purpose, command in said.steps],
        log_from=-1,
        log_to=-1,
        answered_by=-1,
        answered_at_ms=int(time.time() * 1000),
    )
    _show(invocation, found, findings=said.findings, clients=clients)


@click.command()
@click.argument("topic", metavar="TOPIC")
@common_options
def topic(invocation: Invocation, topic: str) -> None:
    """Say what the clients of a topic say of themselves: latency, retries, lag.

    They are those whose pushed metrics name the topic, which needs telemetry.receiver and a subscription of client metrics.
    """
    from barnabas_admin import client_view
    from barnabas_admin.kafka import run_with_cluster
    from barnabas_wire.rpc import explain_pb2

    clients = run_with_cluster(invocation, lambda client: client_view.read(client, topic=topic))
    count = f"{len(clients)} client{'' if len(clients) == 1 else 's'}"
    found = explain_pb2.ExplainResponse(
        subject=f"topic {topic}",
        status="described" if clients else "silent",
        summary=f"{count} pushed metrics of topic {topic}"
        if clients
        else f"no client has pushed metrics of topic {topic}",
        facts=client_view.facts(clients),
        log_from=-1,
        log_to=-1,
        answered_by=-1,
        answered_at_ms=int(time.time() * 1000),
    )
    _show(invocation, found, clients=clients)


def _add_open_transactions(invocation: Invocation, found: explain_pb2.ExplainResponse, key: TopicPartition) -> None:
    """Open transactions are not in the metadata: the partition's leader and the coordinators are asked."""
    from barnabas_admin import stable_offset
    from barnabas_admin.kafka import run_with_cluster

    now_ms = int(time.time() * 1000)
    try:
        said = run_with_cluster(
            invocation,
            lambda client: stable_offset.explain(client, key, now_ms=now_ms),
            timeout_s=min(LEADER_TIMEOUT_S, invocation.timeout_s),
        )
    except (KafkaError, OSError) as error:
        found.facts.append(f"whether a transaction is open in it could not be asked: {error}")
        return
    if said is not None:
        found.facts.extend(said.facts)
        for purpose, command in said.steps:
            found.next.add(purpose=purpose, command=command)


def _add_uncleanable(invocation: Invocation, found: explain_pb2.ExplainResponse, key: TopicPartition) -> None:
    """Which replicas are not compacted is in no metadata either: each broker is asked."""
    from barnabas_admin import uncleanable
    from barnabas_admin.kafka import run_with_cluster

    try:
        faults = run_with_cluster(
            invocation,
            lambda client: uncleanable.find(client, key),
            timeout_s=min(LEADER_TIMEOUT_S, invocation.timeout_s),
        )
    except (KafkaError, OSError) as error:
        found.facts.append(f"whether its replicas are compacted could not be asked: {error}")
        return
    facts, steps = uncleanable.describe(key, faults)
    found.facts.extend(facts)
    for purpose, command in steps:
        found.next.add(purpose=purpose, command=command)


def _partition(topic: str, partition: int | None) -> tuple[str, int]:
    if partition is not None:
        return topic, partition
    found = re.fullmatch(r"(.+)[:/](\d+)", topic)
    if found is None:
        raise click.UsageError(f"{topic}: name the partition too, as in `{topic} 0`")
    return found[1], int(found[2])


def _show(invocation: Invocation, found: Any, **more: Any) -> None:
    if invocation.is_json:
        print_json({**explanation_fields(found), **more})
    else:
        _print(found)
    if found.status == "unknown":
        raise SystemExit(ExitCode.NOT_FOUND_OR_EXISTS)


def _print(found: Any) -> None:
    print_line(found.summary)
    if found.causes:
        print_line("")
        offsets = [cause.offset for cause in found.causes if cause.offset >= 0]
        is_turned = offsets != sorted(offsets)
        print_line(f"what happened (oldest first{'; what was decided at once: the cause first' if is_turned else ''})")
    width = max((len(str(cause.offset)) for cause in found.causes if cause.offset >= 0), default=0)
    for cause in found.causes:
        place = f"offset {cause.offset:>{width}}  {local_time(cause.timestamp_ms)}  " if cause.offset >= 0 else ""
        print_line(f"  {place}{cause.what}")
        if cause.reason:
            print_line(f"  {' ' * len(place)}└ {'probably: ' if cause.is_guess else ''}{cause.reason}")
    if found.facts:
        print_line("")
        print_line("now")
    for fact in found.facts:
        print_line(f"  {fact}")
    if found.next:
        print_line("")
        print_line("next")
    for step in found.next:
        print_line(f"  {step.purpose}" + (":" if step.command else ""))
        if step.command:
            print_line(f"      {step.command}")


def explanation_fields(found: Any) -> dict[str, Any]:
    """An explanation of the admin service as JSON fields."""
    return {
        "subject": found.subject,
        "status": found.status,
        "summary": found.summary,
        "causes": [
            {
                "offset": cause.offset if cause.offset >= 0 else None,
                "timestamp_ms": cause.timestamp_ms if cause.timestamp_ms >= 0 else None,
                "what": cause.what,
                "reason": cause.reason or None,
                "is_guess": cause.is_guess,
            }
            for cause in found.causes
        ],
        "facts": list(found.facts),
        "next": [{"command": step.command or None, "purpose": step.purpose} for step in found.next],
        "log_from": found.log_from if found.log_from >= 0 else None,
        "log_to": found.log_to if found.log_to >= 0 else None,
        "answered_by": found.answered_by,
        "answered_at_ms": found.answered_at_ms,
    }
