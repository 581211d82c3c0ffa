"""`barnabas cluster roll`: every node restarted, one at a time, and never one more while something is amiss.

May touch:  the admin client, node_control.   Must not touch: nodes in any other way.
Invariants: a node is restarted only while the cluster is healthy, and the next one only when the last has come back as a new
            process; the active controller is the last, whoever that is by then; broken off, `--skip` goes on.
Read next:  ../node_control.py, which restarts.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import click

from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options, confirm, yes_option
from barnabas_admin.node_control import Control, find_control
from barnabas_admin.output import print_json, print_line, print_table, talk
from barnabas_admin.patience import patiently
from barnabas_admin.progress import duration_text
from barnabas_wire.kafka.errors import ErrorCode

POLL_PAUSE_S = 0.3
NODE_WAIT_S = 600.0
"""A broker that stopped uncleanly recovers its logs first."""
TOPICS_AT_ONCE = 200
"""Topics described in one call."""
HEALTHY_TIMES = 2
"""So many looks in a row must find the cluster healthy: one may come just before a follower is found out of sync."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as the roll sees it; `incarnation` changes with every start of its process."""

    id: int
    is_broker: bool
    is_controller: bool
    incarnation: tuple[int, str]


def next_node(waiting: Collection[Node], *, active: int) -> Node:
    """Who is restarted next: brokers without a vote, then other controllers, last the active one; by id."""
    return min(waiting, key=lambda node: (node.id == active, node.is_controller, node.id))


@click.command()
@click.argument("only", nargs=-1, type=click.IntRange(min=0), metavar="[ID…]")
@click.option(
    "--to", "version", metavar="VERSION", help="Nodes must run this version afterwards; those that do are left alone."
)
@click.option(
    "--restart-command",
    metavar="COMMAND",
    help="Restarts a node's process: 'ssh -- {host} systemctl restart barnabas'.",
)
@click.option(
    "--skip", type=click.IntRange(min=0), multiple=True, metavar="ID", help="Leave this node alone; repeatable."
)
@click.option(
    "--node-wait",
    "node_wait_s",
    type=click.FloatRange(min=0, min_open=True),
    default=NODE_WAIT_S,
    metavar="SECONDS",
    help="How long one node may take to come back, and the cluster to be healthy; default 600.",
)
@click.option("--dry", is_flag=True, help="Print the order, and restart nothing.")
@yes_option
@common_options
def roll(
    invocation: Invocation,
    only: tuple[int, ...],
    version: str | None,
    restart_command: str | None,
    skip: tuple[int, ...],
    node_wait_s: float,
    dry: bool,
    yes: bool,
) -> None:
    """Restart the nodes one at a time, each only while the cluster is healthy, the active controller last.

    Restarts are done by --restart-command, or by the `barnabas dev` that runs the cluster. The version of nodes is known of
    those whose admin listeners are named with --admin.
    """
    nodes = find_nodes(invocation)
    unknown = sorted({*only, *skip} - nodes.keys())
    if unknown:
        raise AdminError(
            f"there is no node {unknown[0]}",
            code=ErrorCode.RESOURCE_NOT_FOUND,
            hint=f"nodes are {', '.join(map(str, sorted(nodes)))}",
        )
    versions = find_versions(invocation) if version is not None or dry else {}
    wanted = [
        node
        for node in nodes.values()
        if (not only or node.id in only)
        and node.id not in skip
        and (version is None or versions.get(node.id) != version)
    ]
    restart = find_control(invocation, "restart", restart_command)
    if restart is None and not dry:
        raise click.UsageError(
            "name what restarts a node with --restart-command 'ssh -- {host} systemctl restart barnabas'"
        )
    _warn_of_lone_replicas(invocation, {node.id for node in wanted})
    if dry or not wanted:
        _print_order(invocation, wanted, versions)
        return
    names = ", ".join(str(node.id) for node in sorted(wanted, key=lambda node: node.id))
    confirm(f"this restarts nodes {names}, one at a time", typed="roll", yes=yes)
    assert restart is not None
    started = time.monotonic()
    done = _roll(invocation, wanted, restart, version=version, node_wait_s=node_wait_s)
    if invocation.is_json:
        print_json({"restarted": done, "seconds": round(time.monotonic() - started, 1), "version": version})
    else:
        print_line(
            f"{len(done)} nodes restarted in {duration_text(time.monotonic() - started)}, the cluster is healthy"
        )


def _warn_of_lone_replicas(invocation: Invocation, wanted: Collection[int]) -> None:
    """Say which of these nodes have partitions that nobody else has: they have no leader while such a node restarts."""
    alone: dict[int, list[str]] = {}
    names = [topic.name for topic in patiently(lambda: invocation.admin.list_topics(include_internal=True))]
    for at in range(0, len(names), TOPICS_AT_ONCE):
        for topic in invocation.admin.describe_topics(names[at : at + TOPICS_AT_ONCE]):
            for partition in topic.partitions:
                if len(partition.replicas) == 1 and partition.replicas[0] in wanted:
                    alone.setdefault(partition.replicas[0], []).append(f"{topic.name}-{partition.partition}")
    for node_id, partitions in sorted(alone.items()):
        what = partitions[0] if len(partitions) == 1 else f"{len(partitions)} partitions ({partitions[0]}, …)"
        talk(f"node {node_id} has the only replica of {what}: nobody writes or reads there while it restarts")


def find_nodes(invocation: Invocation) -> dict[int, Node]:
    """Every node that is registered, by id."""
    found = patiently(lambda: invocation.admin.describe_cluster())
    brokers = {broker.id: broker.epoch for broker in found.brokers}
    controllers = {node.id: node.incarnation_id for node in found.controllers if node.registered}
    return {
        node_id: Node(
            id=node_id,
            is_broker=node_id in brokers,
            is_controller=node_id in controllers,
            incarnation=(brokers.get(node_id, -1), controllers.get(node_id, "")),
        )
        for node_id in sorted(brokers.keys() | controllers.keys())
    }


def find_versions(invocation: Invocation) -> dict[int, str]:
    """The version that each node runs whose admin listener is known and answers."""
    versions = {}
    for client in invocation.every_admin().values():
        try:
            answer = client.describe_cluster()
            versions[answer.answered_by] = answer.software_version
        except AdminError:
            continue
        finally:
            client.close()
    return versions


def _roll(
    invocation: Invocation, wanted: Sequence[Node], restart: Control, *, version: str | None, node_wait_s: float
) -> list[int]:
    waiting = {node.id: node for node in wanted}
    done: list[int] = []
    while waiting:
        active = _wait_until_healthy(invocation, node_wait_s, done=done)
        node = next_node(waiting.values(), active=active)
        before = find_nodes(invocation)[node.id]
        role = "active controller" if node.id == active else "controller" if node.is_controller else "broker"
        talk(f"{len(done) + 1} of {len(wanted)}: restarting node {node.id} ({role})")
        restart(node.id)
        _wait_for_new_life(invocation, before, node_wait_s, done=done)
        if version is not None:
            _check_version(invocation, node.id, version)
        del waiting[node.id]
        done.append(node.id)
    _wait_until_healthy(invocation, node_wait_s, done=done)
    return done


def _wait_until_healthy(invocation: Invocation, within_s: float, *, done: Sequence[int]) -> int:
    """The active controller's id, once nothing is amiss."""
    deadline = time.monotonic() + within_s
    in_a_row = 0
    reported: tuple[str, ...] = ()
    while True:
        found = patiently(lambda: invocation.admin.describe_health())
        reasons = tuple(reason for reason in found.reasons if reason != "quorum_no_tolerance")
        in_a_row = in_a_row + 1 if not reasons else 0
        if in_a_row == HEALTHY_TIMES:
            return int(found.controller_id)
        if reasons and reasons != reported:
            reported = reasons
            talk(f"waiting until the cluster is healthy ({', '.join(reasons)})")
        if time.monotonic() > deadline:
            raise _stuck(f"the cluster is not healthy after {within_s:g} s: {', '.join(reasons)}", done)
        time.sleep(POLL_PAUSE_S)


def _wait_for_new_life(invocation: Invocation, before: Node, within_s: float, *, done: Sequence[int]) -> None:
    """Every role of the node has registered anew."""
    deadline = time.monotonic() + within_s
    while True:
        now = find_nodes(invocation).get(before.id)
        if now is not None:
            is_new_broker = not before.is_broker or now.incarnation[0] != before.incarnation[0]
            is_new_controller = not before.is_controller or now.incarnation[1] != before.incarnation[1]
            if is_new_broker and is_new_controller:
                return
        if time.monotonic() > deadline:
            raise _stuck(f"node {before.id} has not come back as a new process within {within_s:g} s", done)
        time.sleep(POLL_PAUSE_S)


def _check_version(invocation: Invocation, node_id: int, version: str) -> None:
    runs = find_versions(invocation).get(node_id)
    if runs is None:
        talk(f"node {node_id}: its version is not known, for --admin does not name its admin listener")
    elif runs != version:
        raise AdminError(
            f"node {node_id} was restarted and runs {runs}, not {version}",
            hint=f"install {version} on its host, then roll again; nodes that run it already are left alone",
        )


def _stuck(message: str, done: Sequence[int]) -> AdminError:
    skip = "".join(f" --skip {node_id}" for node_id in done)
    return AdminError(
        message,
        code=ErrorCode.REQUEST_TIMED_OUT,
        hint="`barnabas cluster health` says what is amiss; "
        + (f"then go on with{skip}" if done else "then roll again"),
    )


def _print_order(invocation: Invocation, wanted: Sequence[Node], versions: Mapping[int, str]) -> None:
    active = invocation.admin.describe_health().controller_id
    order: list[Node] = []
    waiting = list(wanted)
    while waiting:
        order.append(next_node(waiting, active=active))
        waiting.remove(order[-1])
    rows = [
        {
            "node": node.id,
            "roles": [
                *(["broker"] if node.is_broker else []),
                *(["controller"] if node.is_controller else []),
            ],
            "active": node.id == active,
            "version": versions.get(node.id),
        }
        for node in order
    ]
    if invocation.is_json:
        print_json({"order": rows})
    elif not rows:
        print_line("nothing to do: every node runs that version")
    else:
        print_table(["NODE", "ROLES", "ACTIVE", "VERSION"], [list(row.values()) for row in rows])
