"""`barnabas cluster`: what the cluster is, and whether it is well.

May touch:  the admin clients.        Must not touch: the Kafka listeners.
Invariants: `health` ends with 10 when the cluster is unhealthy, and says why and what to type next; a node that does not answer
            here makes nobody unhealthy: the reasons of the controller name it.
Read next:  quorum.py.
"""

from __future__ import annotations

import time
from datetime import UTC
from typing import TYPE_CHECKING, Any

import click

from barnabas_admin.commands.features import find_metadata_version
from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options
from barnabas_admin.output import ExitCode, print_fields, print_json, print_line, print_table, talk
from barnabas_wire.moments import iso_text
from barnabas_wire.rpc.options import address_of

if TYPE_CHECKING:
    from barnabas_admin.client import AdminClient

WATCH_PAUSE_S = 1.0
METADATA_TIMEOUT_S_MAX = 2.0
"""How long one node is waited for when each is asked for its metadata's state: one that hangs must not hide the rest."""
NODES_AT_ONCE = 16

_NEXT = {
    "recovered_twice": "barnabas explain leader",
    "no_controller": "barnabas explain leader",
    "voter_down": "barnabas quorum replicas",
    "no_broker": "barnabas broker list",
    "no_room": "barnabas broker logdirs",
    "metadata_blocked": "barnabas quorum quarantine list",
    "metadata_differs": "barnabas quorum verify",
}
"""Reason -> what says more about it. Of brokers and partitions the first that suffers is named instead."""


@click.command()
@common_options
def info(invocation: Invocation) -> None:
    """Show the cluster's id, controller, brokers and size."""
    found = invocation.admin.describe_cluster()
    version = find_metadata_version(invocation)
    brokers = [describe_broker(broker) for broker in found.brokers]
    controllers = [
        {
            "id": controller.id,
            "endpoint": ",".join(address_of(point.host, point.port) for point in controller.listeners),
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
        "metadata_version": version.finalized,
        "metadata_offset": found.metadata_offset,
        "topics": found.topic_count,
        "partitions": found.partition_count,
        "answered_by": found.answered_by,
    }
    if invocation.is_json:
        print_json(fields | {"brokers": brokers, "controllers": controllers})
        return
    answered_by = f"{found.answered_by} ({','.join(found.answered_by_roles)})"
    controller_id = found.controller_id if found.controller_id >= 0 else None
    if found.metadata_offset < 0:
        talk(f"node {found.answered_by} has read no metadata yet: ask again in a moment")
    if version.finalized < version.max_level:
        talk(f"every node serves metadata.version {version.max_level}: barnabas cluster features upgrade")
    print_fields(fields | {"controller_id": controller_id, "answered_by": answered_by})
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
            "brokers_in_maintenance": list(found.brokers_in_maintenance),
            "partitions": found.partitions,
            "leaderless": found.leaderless,
            "under_min_isr": found.under_min_isr,
            "under_replicated": found.under_replicated,
            "not_preferred_leader": found.not_preferred_leader,
            "acls_in_vain": list(found.acls_in_vain),
            "acls_in_vain_count": found.acls_in_vain_count,
            "sharing_host": found.sharing_host,
            "hosts_lost": [
                {"host": each.host, "brokers": list(each.brokers), "at_min_isr": each.at_min_isr}
                for each in found.hosts_lost
            ],
            "as_of": _as_of(found),
        }
        _add_what_nodes_say(fields, invocation)
        fields["next"] = _next_steps(fields, invocation)
        if fields != last:
            last = fields
            _print_health(fields, is_json=invocation.is_json)
        if (exit_when_healthy and fields["healthy"]) or not (watch or exit_when_healthy):
            raise SystemExit(ExitCode.OK if fields["healthy"] else ExitCode.UNHEALTHY)
        time.sleep(WATCH_PAUSE_S)


def _print_health(fields: dict[str, Any], *, is_json: bool) -> None:
    if is_json:
        print_json(fields)
        return
    verdict = "HEALTHY" if fields["healthy"] else f"UNHEALTHY   ({', '.join(fields['reasons'])})"
    print_line(f"HEALTH   {verdict}")
    leader = f"controller {fields['controller_id']}" if fields["controller_id"] >= 0 else "no controller"
    if fields["as_of"] is not None:
        print_line(f"as of {fields['as_of']}: no controller has confirmed since then what follows")
    voters = _with_state(fields["voters"], fields["voters_down"], "unreachable")
    states = dict.fromkeys(fields["brokers_in_maintenance"], "in maintenance")
    states |= {b: f"fenced, {states[b]}" if b in states else "fenced" for b in fields["brokers_fenced"]}
    brokers = " ".join(f"[{b} {states[b]}]" if b in states else str(b) for b in fields["brokers"]) or "none"
    print_line(f"{leader} (epoch {fields['controller_epoch']})   voters {voters}   brokers {brokers}")
    counts = ("partitions", "leaderless", "under_min_isr", "under_replicated", "not_preferred_leader")
    print_line("   ".join(f"{name} {fields[name]}" for name in counts))
    for lost in fields["hosts_lost"]:
        brokers = " ".join(map(str, lost["brokers"]))
        print_line(
            f"host {lost['host']} is lost, brokers {brokers}: {lost['at_min_isr']} partitions at min.insync.replicas or below"
        )
    for blocked in fields["metadata_blocked"]:
        print_line(f"metadata of node {blocked['node']} is blocked at offset {blocked['offset']}: {blocked['reason']}")
    for node in fields["metadata_differs"]:
        print_line(f"metadata of node {node} differs from the active controller's")
    for each in fields["logs_uncleanable"]:
        logs = "a log, which grows: it" if each["logs"] == 1 else f"{each['logs']} logs, which grow; the first"
        print_line(f"node {each['node']} cannot compact {logs} is {each['topic']}-{each['partition']}: {each['fault']}")
    if fields["sharing_host"]:
        print_line(
            f"{fields['sharing_host']} partitions have replicas on one host that could be on more: `barnabas topic reassign balance` "
            "moves them"
        )
    for acl in fields["acls_in_vain"]:
        print_line(f"ACL matches no client: {acl}")
    if fields["acls_in_vain_count"] > len(fields["acls_in_vain"]):
        print_line(f"{fields['acls_in_vain_count'] - len(fields['acls_in_vain'])} more ACLs match no client")
    for command in fields["next"]:
        talk(f"next: {command}")


def _as_of(found: Any) -> str | None:
    """When what is shown was true, where no controller confirms it now: brokers may have died since. None = it is true now."""
    if "no_controller" not in found.reasons or found.metadata_timestamp_ms <= 0:
        return None
    return iso_text(found.metadata_timestamp_ms, UTC, timespec="seconds")


def _add_what_nodes_say(fields: dict[str, Any], invocation: Invocation) -> None:
    """Ask each node whose admin listener is known how its own metadata and its cleaner do: nobody else knows."""
    blocked, differs, uncleanable = [], [], []
    for view in _ask_nodes(invocation):
        if view.HasField("blocked"):
            record = view.blocked.record
            blocked.append({"node": view.node_id, "offset": record.offset, "reason": record.reason})
        elif view.comparisons and not view.comparisons[-1].matches:
            differs.append(view.node_id)
        if view.uncleanable:
            first = view.uncleanable[0]
            uncleanable.append(
                {
                    "node": view.node_id,
                    "logs": view.uncleanable_count,
                    "topic": first.topic,
                    "partition": first.partition,
                    "fault": first.fault,
                }
            )
    fields["metadata_blocked"] = sorted(blocked, key=lambda each: each["node"])
    fields["metadata_differs"] = sorted(differs)
    fields["logs_uncleanable"] = sorted(uncleanable, key=lambda each: each["node"])
    found = [reason for reason in ("metadata_blocked", "metadata_differs", "logs_uncleanable") if fields[reason]]
    fields["reasons"] += found
    fields["healthy"] = fields["healthy"] and not found


def _ask_nodes(invocation: Invocation) -> list[Any]:
    from concurrent.futures import ThreadPoolExecutor

    from barnabas_wire.rpc import inspection_pb2

    def ask(client: AdminClient) -> Any:
        try:
            return client.inspect("DescribeImage", inspection_pb2.DescribeImageRequest())
        except AdminError:
            return None
        finally:
            client.close()

    clients = invocation.every_admin(timeout_s_max=METADATA_TIMEOUT_S_MAX)
    with ThreadPoolExecutor(min(NODES_AT_ONCE, len(clients))) as threads:
        return [view for view in threads.map(ask, clients.values()) if view is not None]


def _next_steps(fields: dict[str, Any], invocation: Invocation) -> list[str]:
    steps = [_NEXT[reason] for reason in fields["reasons"] if reason in _NEXT]
    if fields["acls_in_vain_count"]:
        steps.append("barnabas acl list, then acl delete and create for each ACL that matches no client")
    if "quorum_no_tolerance" in fields["reasons"]:
        steps.append(_voter_to_add(invocation))
    if "no_broker" not in fields["reasons"]:
        steps += [f"barnabas explain broker {broker}" for broker in fields["brokers_fenced"][:1]]
    if fields["leaderless"] or fields["under_replicated"] or {"corrupt", "records_lost"} & {*fields["reasons"]}:
        steps += _worst_partition(invocation)
    steps += [f"barnabas explain partition {log['topic']} {log['partition']}" for log in fields["logs_uncleanable"][:1]]
    return steps


def _voter_to_add(invocation: Invocation) -> str:
    """The command that gives the quorum its third voter: with a controller that is registered and does not vote, if there is one."""
    try:
        controllers = list(invocation.admin.describe_cluster().controllers)
    except AdminError:
        controllers = []
    for controller in controllers:
        if controller.registered and not controller.voter and controller.listeners:
            point = controller.listeners[0]
            return f"barnabas quorum add-voter {controller.id}@{address_of(point.host, point.port)}"
    return (
        "barnabas quorum add-voter ID@HOST:PORT, with a controller formatted with --no-initial-controllers and started"
    )


def _worst_partition(invocation: Invocation) -> list[str]:
    """A question about one of the partitions that have no leader, else of those that lack replicas."""
    try:
        topics = invocation.admin.list_topics(include_internal=True)
        worst = max(topics, key=lambda topic: (topic.leaderless, topic.under_replicated), default=None)
        if worst is None:
            return []
        (topic,) = invocation.admin.describe_topics([worst.name])
    except AdminError:
        return ["barnabas topic list --internal"]
    wanted = ("leaderless",) if worst.leaderless else ("under-replicated", "corrupt", "lost")
    bad = [each.partition for each in topic.partitions if not set(wanted).isdisjoint(each.flags)]
    return [f"barnabas explain partition {worst.name} {bad[0]}"] if bad else []


def _with_state(ids: list[int], bad: list[int], state: str) -> str:
    return " ".join(f"[{item} {state}]" if item in bad else str(item) for item in ids) or "none"


def describe_broker(broker: Any) -> dict[str, Any]:
    """A broker of the admin service as JSON fields."""
    state = "fenced" if broker.fenced else "stopping" if broker.in_controlled_shutdown else "active"
    if broker.in_maintenance:
        state = "maintenance" if state == "active" else f"{state}, maintenance"
    return {
        "id": broker.id,
        "state": state,
        "endpoint": ",".join(address_of(point.host, point.port) for point in broker.listeners),
        "rack": broker.rack or None,
        "host": broker.host or None,
        "broker_epoch": broker.epoch,
        "leaders": broker.leader_count,
        "replicas": broker.replica_count,
    }


def print_broker_table(brokers: list[dict[str, Any]], controller_id: int) -> None:
    """Brokers as a table; `*` marks the active controller. Hosts stand in it where a broker names one."""
    has_hosts = any(item["host"] for item in brokers)
    rows = [
        [
            _marked(item["id"], controller_id),
            item["state"],
            item["endpoint"],
            item["rack"],
            *([item["host"]] if has_hosts else []),
            item["broker_epoch"],
            item["leaders"],
            item["replicas"],
        ]
        for item in brokers
    ]
    columns = ["BROKER", "STATE", "ENDPOINT", "RACK", *(["HOST"] if has_hosts else []), "EPOCH", "LEADERS", "REPLICAS"]
    print_table(columns, rows)


def by_host(brokers: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Brokers as JSON fields, by the host that they name, hosts and brokers in order; "" is that of those that name none, the last."""
    hosts = sorted({broker["host"] or "" for broker in brokers}, key=lambda host: (not host, host))
    return {host: [broker for broker in brokers if (broker["host"] or "") == host] for host in hosts}


def _marked(node_id: Any, controller_id: int) -> str:
    return f"{node_id}*" if node_id == controller_id else str(node_id)
