"""`barnabas cluster`: what the cluster is, and whether it is well.

May touch:  the admin client.         Must not touch: the Kafka listeners.
Invariants: `health` ends with 10 when the cluster is unhealthy, and says why.
Read next:  quorum.py.
"""

from __future__ import annotations

import time
from typing import Any

import click

from barnabas_admin.invocation import Invocation, common_options
from barnabas_admin.output import ExitCode, print_fields, print_json, print_line, print_table

WATCH_PAUSE_S = 1.0


@click.command()
@common_options
def info(invocation: Invocation) -> None:
    """Show the cluster's id, controller, brokers and size."""
    found = invocation.admin.describe_cluster()
    brokers = [describe_broker(broker) for broker in found.brokers]
    controllers = [
        {
            "id": controller.id,
            "endpoint": ",".join(f"{point.host}:{point.port}" for point in controller.listeners),
            "voter": controller.voter,
            "registered": controller.registered,
            "incarnation_id": controller.incarnation_id or None,
        }
        for controller in found.controllers
    ]
    fields = {
        "cluster_id": found.cluster_id,
        "controller_id": found.controller_id,
        "controller_epoch": found.controller_epoch,
        "metadata_offset": found.metadata_offset,
        "topics": found.topic_count,
        "partitions": found.partition_count,
        "answered_by": found.answered_by,
    }
    if invocation.is_json:
        print_json(fields | {"brokers": brokers, "controllers": controllers})
        return
    print_fields(fields | {"answered_by": f"{found.answered_by} ({','.join(found.answered_by_roles)})"})
    print_line()
    print_broker_table(brokers, found.controller_id)
    print_line()
    rows = [
        [_marked(item["id"], found.controller_id), item["endpoint"], item["voter"], item["registered"]]
        for item in controllers
    ]
    print_table(["CONTROLLER", "ENDPOINT", "VOTER", "REGISTERED"], rows)


@click.command()
@click.option("-w", "--watch", is_flag=True, help="Print again every second whenever something changes.")
@click.option("-e", "--exit-when-healthy", is_flag=True, help="Wait until the cluster is healthy.")
@common_options
def health(invocation: Invocation, watch: bool, exit_when_healthy: bool) -> None:
    """Say whether the cluster is well, and why not; exit status 10 when it is not."""
    last: dict[str, Any] | None = None
    while True:
        found = invocation.admin.describe_health()
        fields = {
            "healthy": found.is_healthy,
            "reasons": list(found.reasons),
            "controller_id": found.controller_id,
            "controller_epoch": found.controller_epoch,
            "voters": list(found.voters),
            "voters_down": list(found.voters_down),
            "brokers": list(found.brokers),
            "brokers_fenced": list(found.brokers_fenced),
            "partitions": found.partitions,
            "leaderless": found.leaderless,
            "under_min_isr": found.under_min_isr,
            "under_replicated": found.under_replicated,
            "not_preferred_leader": found.not_preferred_leader,
        }
        if fields != last:
            last = fields
            _print_health(fields, is_json=invocation.is_json)
        if (exit_when_healthy and found.is_healthy) or not (watch or exit_when_healthy):
            raise SystemExit(ExitCode.OK if found.is_healthy else ExitCode.UNHEALTHY)
        time.sleep(WATCH_PAUSE_S)


def _print_health(fields: dict[str, Any], *, is_json: bool) -> None:
    if is_json:
        print_json(fields)
        return
    verdict = "HEALTHY" if fields["healthy"] else f"UNHEALTHY   ({', '.join(fields['reasons'])})"
    print_line(f"HEALTH   {verdict}")
    leader = f"controller {fields['controller_id']}" if fields["controller_id"] >= 0 else "no controller"
    voters = _with_state(fields["voters"], fields["voters_down"], "unreachable")
    brokers = _with_state(fields["brokers"], fields["brokers_fenced"], "fenced")
    print_line(f"{leader} (epoch {fields['controller_epoch']})   voters {voters}   brokers {brokers}")
    counts = ("partitions", "leaderless", "under_min_isr", "under_replicated", "not_preferred_leader")
    print_line("   ".join(f"{name} {fields[name]}" for name in counts))


def _with_state(ids: list[int], bad: list[int], state: str) -> str:
    return " ".join(f"[{item} {state}]" if item in bad else str(item) for item in ids) or "none"


def describe_broker(broker: Any) -> dict[str, Any]:
    """A broker of the admin service as JSON fields."""
    state = "fenced" if broker.fenced else "stopping" if broker.in_controlled_shutdown else "active"
    return {
        "id": broker.id,
        "state": state,
        "endpoint": ",".join(f"{point.host}:{point.port}" for point in broker.listeners),
        "rack": broker.rack or None,
        "broker_epoch": broker.epoch,
        "leaders": broker.leader_count,
        "replicas": broker.replica_count,
    }


def print_broker_table(brokers: list[dict[str, Any]], controller_id: int) -> None:
    """Brokers as a table; `*` marks the active controller."""
    rows = [
        [
            _marked(item["id"], controller_id),
            item["state"],
            item["endpoint"],
            item["rack"],
            item["broker_epoch"],
            item["leaders"],
            item["replicas"],
        ]
        for item in brokers
    ]
    print_table(["BROKER", "STATE", "ENDPOINT", "RACK", "EPOCH", "LEADERS", "REPLICAS"], rows)


def _marked(node_id: Any, controller_id: int) -> str:
    return f"{node_id}*" if node_id == controller_id else str(node_id)
