"""`barnabas cluster roll`: every node restarted, one at a time or host by host, and never one more while something is amiss.

May touch:  the admin client, node_control.   Must not touch: nodes in any other way.
Invariants: a node is restarted only while the cluster is healthy, and the next one only when the last has come back as a new
            process; a host's brokers go at once only where no partition notices more of it than of one after the other; the active
            controller is the last, whoever that is by then; broken off, `--skip` continues.
Read next:  ../node_control.py, which restarts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import click

from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options, confirm, yes_option
from barnabas_admin.node_control import Control, find_control
from barnabas_admin.output import print_json, print_line, print_table, talk
from barnabas_admin.patience import patiently
from barnabas_admin.progress import duration_text
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.lazy_dataclass import dataclass

POLL_PAUSE_S = 0.3
NODE_WAIT_S = 600.0
"""A broker that stopped uncleanly recovers its logs first."""
TOPICS_AT_ONCE = 200
"""Topics described in one call."""
MIN_INSYNC_REPLICAS = "min.insync.replicas"
HEALTHY_TIMES = 2
"""So many looks in a row must find the cluster healthy: one may come just before a follower is found out of sync."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as the roll sees it; `incarnation` changes with every start of its process."""

    id: int
    is_broker: bool
    is_controller: bool
    incarnation: tuple[int, str]
    host: str | None = None
    """What its broker is lost with; None: it alone."""


def next_step(
    waiting: Collection[Node], *, active: int, may_go_at_once: Callable[[Sequence[Node]], bool]
) -> Sequence[Node]:
    """The node that is restarted next: brokers without a vote, by host and id, then other controllers, last the active one. Brokers of a
    host that have no vote go at once where `may_go_at_once` says so of all of them."""
    first = min(waiting, key=lambda node: (node.id == active, node.is_controller, node.host or "", node.id))
    if first.host is None or first.is_controller:
        return [first]
    together = sorted(
        (node for node in waiting if node.host == first.host and not node.is_controller), key=lambda node: node.id
    )
    return together if len(together) > 1 and may_go_at_once(together) else [first]


def bears_at_once(isr: Collection[int], leaving: Collection[int], *, min_isr: int) -> bool:
    """Whether a partition continues without all of these brokers at once, as it would without one after the other: with a leader,
    and at its minimum.

    Args:
        isr: its in-sync replicas.
        leaving: the brokers.
        min_isr: the topic's min.insync.replicas, not yet limited to the number of replicas.
    """
    left = len(set(isr) - set(leaving))
    return left >= min(max(min_isr, 1), len(isr) - bool(set(isr) & set(leaving)))


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
@click.option(
    "--one-by-one", is_flag=True, help="Restart a host's brokers one after the other too, where all at once would do."
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
    one_by_one: bool,
    dry: bool,
    yes: bool,
) -> None:
    """Restart the nodes one at a time, each only while the cluster is healthy, the active controller last.

    Brokers that name a host go host by host, and all of a host's at once where every partition keeps a leader and its
    min.insync.replicas. Restarts are done by --restart-command, or by the `barnabas dev` that runs the cluster. The version of nodes
    is known of those whose admin listeners are named with --admin.
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

    def may_go_at_once(nodes: Sequence[Node]) -> bool:
        return not one_by_one and _bear_at_once(invocation, {node.id for node in nodes})

    if dry or not wanted:
        _print_order(invocation, wanted, versions, may_go_at_once)
        return
    names = ", ".join(str(node.id) for node in sorted(wanted, key=lambda node: node.id))
    hosts = any(node.host is not None for node in wanted) and not one_by_one
    confirm(
        f"this restarts nodes {names}, one at a time{', or a host at once' if hosts else ''}", typed="roll", yes=yes
    )
    assert restart is not None
    started = time.monotonic()
    steps = _roll(invocation, wanted, restart, may_go_at_once, version=version, node_wait_s=node_wait_s)
    done = [node_id for step in steps for node_id in step]
    if invocation.is_json:
        seconds = round(time.monotonic() - started, 1)
        print_json({"restarted": done, "steps": steps, "seconds": seconds, "version": version})
    else:
        print_line(
            f"{len(done)} nodes restarted in {duration_text(time.monotonic() - started)}, the cluster is healthy"
        )


def _warn_of_lone_replicas(invocation: Invocation, wanted: Collection[int]) -> None:
    """Say which of these nodes have partitions that nobody else has: they have no leader while such a node restarts."""
    alone: dict[int, list[str]] = {}
    for topic in _topics(invocation):
        for partition in topic.partitions:
            if len(partition.replicas) == 1 and partition.replicas[0] in wanted:
                alone.setdefault(partition.replicas[0], []).append(f"{topic.name}-{partition.partition}")
    for node_id, partitions in sorted(alone.items()):
        what = partitions[0] if len(partitions) == 1 else f"{len(partitions)} partitions ({partitions[0]}, …)"
        talk(f"node {node_id} has the only replica of {what}: nobody writes or reads there while it restarts")


def _bear_at_once(invocation: Invocation, leaving: Collection[int]) -> bool:
    """Whether every partition does; asks for the minimum of those topics alone that have two replicas there."""
    from barnabas_wire.rpc import admin_pb2

    for topic in _topics(invocation):
        isrs = [part.isr for part in topic.partitions if len(set(part.isr) & set(leaving)) > 1]
        if not isrs:
            continue
        entries = invocation.admin.describe_configs(admin_pb2.RESOURCE_TYPE_TOPIC, topic.name)
        min_isr = max((int(entry.value) for entry in entries if entry.key == MIN_INSYNC_REPLICAS), default=1)
        if not all(bears_at_once(isr, leaving, min_isr=min_isr) for isr in isrs):
            return False
    return True


def _topics(invocation: Invocation) -> Iterator[Any]:
    names = [topic.name for topic in patiently(lambda: invocation.admin.list_topics(include_internal=True))]
    for at in range(0, len(names), TOPICS_AT_ONCE):
        yield from invocation.admin.describe_topics(names[at : at + TOPICS_AT_ONCE])


def find_nodes(invocation: Invocation) -> dict[int, Node]:
    """Every node that is registered, by id."""
    found = patiently(lambda: invocation.admin.describe_cluster())
    brokers = {broker.id: broker.epoch for broker in found.brokers}
    hosts = {broker.id: broker.host or None for broker in found.brokers}
    controllers = {node.id: node.incarnation_id for node in found.controllers if node.registered}
    return {
        node_id: Node(
            id=node_id,
            is_broker=node_id in brokers,
            is_controller=node_id in controllers,
            incarnation=(brokers.get(node_id, -1), controllers.get(node_id, "")),
            host=hosts.get(node_id),
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
    invocation: Invocation,
    wanted: Sequence[Node],
    restart: Control,
    may_go_at_once: Callable[[Sequence[Node]], bool],
    *,
    version: str | None,
    node_wait_s: float,
) -> list[list[int]]:
    waiting = {node.id: node for node in wanted}
    steps: list[list[int]] = []
    done: list[int] = []
    while waiting:
        active = _wait_until_healthy(invocation, node_wait_s, done=done)
        step = [node.id for node in next_step(waiting.values(), active=active, may_go_at_once=may_go_at_once)]
        before = find_nodes(invocation)
        talk(
            f"{_place(len(done), len(step))} of {len(wanted)}: restarting {_named([waiting[i] for i in step], active)}"
        )
        with ThreadPoolExecutor(len(step)) as threads:
            list(threads.map(restart, step))
        for node_id in step:
            _wait_for_new_life(invocation, before[node_id], node_wait_s, done=done)
            if version is not None:
                _check_version(invocation, node_id, version)
            del waiting[node_id]
            done.append(node_id)
        steps.append(step)
    _wait_until_healthy(invocation, node_wait_s, done=done)
    return steps


def _place(done: int, coming: int) -> str:
    return str(done + 1) if coming == 1 else f"{done + 1} to {done + coming}"


def _named(step: Sequence[Node], active: int) -> str:
    first = step[0]
    if len(step) > 1:
        return f"host {first.host} (brokers {', '.join(str(node.id) for node in step)} at once)"
    role = "active controller" if first.id == active else "controller" if first.is_controller else "broker"
    return f"node {first.id} ({role}{'' if first.host is None else f' of host {first.host}'})"


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
    """Every role of the node has registered again."""
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


def _print_order(
    invocation: Invocation,
    wanted: Sequence[Node],
    versions: Mapping[int, str],
    may_go_at_once: Callable[[Sequence[Node]], bool],
) -> None:
    active = invocation.admin.describe_health().controller_id
    order: list[tuple[int, Node]] = []
    waiting = list(wanted)
    for step in count(1):
        if not waiting:
            break
        for node in next_step(waiting, active=active, may_go_at_once=may_go_at_once):
            order.append((step, node))
            waiting.remove(node)
    rows = [
        {
            "step": step,
            "node": node.id,
            "host": node.host,
            "roles": [
                *(["broker"] if node.is_broker else []),
                *(["controller"] if node.is_controller else []),
            ],
            "active": node.id == active,
            "version": versions.get(node.id),
        }
        for step, node in order
    ]
    if invocation.is_json:
        print_json({"order": rows})
    elif not rows:
        print_line("nothing to do: every node runs that version")
    else:
        hidden = {"step", "host"} if all(node.host is None for node in wanted) else set()
        print_table(
            [key.upper() for key in rows[0] if key not in hidden],
            [[value for key, value in row.items() if key not in hidden] for row in rows],
        )
