"""`barnabas broker decommission`: a broker leaves for good, and nothing is ever one copy short for it.

May touch:  the admin client, node_control.   Must not touch: how a plan is made.
Invariants: a broker is stopped only when it holds nothing; broken off at any point, the same command continues from there.
Read next:  ../balance.py (plan_departure), ../moving.py; host.py, which takes several out of their host.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click

from barnabas_admin.balance import copied_bytes, plan_departure
from barnabas_admin.commands.balance import (
    carry_out,
    partition_sizes,
    present_and_coming,
    throttle_option,
    wait_max_option,
)
from barnabas_admin.commands.broker import alter_maintenance
from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options, confirm, yes_option
from barnabas_admin.moving import wait_for_moves
from barnabas_admin.node_control import Control, find_control
from barnabas_admin.output import print_json, print_line, size_text, talk
from barnabas_admin.patience import patiently
from barnabas_wire.kafka.errors import ErrorCode

ROUNDS_MAX = 5
"""Topics may be created while the broker is emptied: so often it is looked at again."""
POLL_PAUSE_S = 0.2
STOP_WAIT_S = 600.0


@click.command()
@click.argument("broker_id", type=click.IntRange(min=0), metavar="ID")
@click.option("--wait", "is_waiting", is_flag=True, help="See it through: move, wait, stop, unregister.")
@click.option(
    "--stop-command", metavar="COMMAND", help="Stops the broker's process: 'ssh {host} systemctl stop barnabas'."
)
@click.option("--dry", is_flag=True, help="Say what would move, and change nothing.")
@throttle_option
@wait_max_option
@yes_option
@common_options
def decommission(
    invocation: Invocation,
    broker_id: int,
    is_waiting: bool,
    stop_command: str | None,
    dry: bool,
    throttle: int | None,
    wait_s_max: float | None,
    yes: bool,
) -> None:
    """Take a broker out for good: move everything off it, stop it, unregister it.

    Without --wait the moves are begun, and the same command with --wait does the rest. The process is stopped by
    --stop-command, or by the `barnabas dev` that runs it; without either it is you who stop it, and the command waits for that.
    """
    _find(invocation, broker_id)
    if dry or not yes:
        plan, size = plan_leaving(invocation, [broker_id])
        if dry:
            _print_dry(invocation, broker_id, len(plan), size)
            return
        confirm(
            f"broker {broker_id} leaves the cluster: {len(plan)} replicas move ({size_text(size)}), and it is unregistered",
            typed=str(broker_id),
            yes=yes,
        )
    moved = _empty(invocation, [broker_id], throttle=throttle, is_waiting=is_waiting, wait_s_max=wait_s_max)
    if not is_waiting:
        talk(f"`barnabas broker decommission {broker_id} --wait` sees it through")
        return
    _end(invocation, broker_id, lambda: find_control(invocation, "stop", stop_command))
    if invocation.is_json:
        print_json(
            {
                "broker": broker_id,
                "unregistered": True,
                "replicas_moved": moved.replicas,
                "bytes_copied": moved.size_bytes,
            }
        )
    else:
        print_line(f"broker {broker_id} is decommissioned: {moved.replicas} replicas moved, stopped, unregistered")


class Moved(NamedTuple):
    """What brokers gave away."""

    replicas: int
    size_bytes: int


def take_out(
    invocation: Invocation,
    leaving: Sequence[int],
    *,
    stop: Control,
    throttle: int | None,
    wait_s_max: float | None,
) -> Moved:
    """Take these registered brokers out for good, together: none of them gets what another gives away. Raises AdminError."""
    moved = _empty(invocation, leaving, throttle=throttle, is_waiting=True, wait_s_max=wait_s_max)
    for broker_id in leaving:
        _end(invocation, broker_id, lambda: stop)
    return moved


def _empty(
    invocation: Invocation,
    leaving: Sequence[int],
    *,
    throttle: int | None,
    is_waiting: bool,
    wait_s_max: float | None,
) -> Moved:
    """Drain these brokers and move everything off them; without is_waiting the moves are only begun."""
    for broker_id in leaving:
        try:
            if not _find(invocation, broker_id).in_maintenance:
                alter_maintenance(invocation, broker_id, is_in_maintenance=True)
        except AdminError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            talk(f"broker {broker_id} is not drained first: {error.message}")
    names = f"broker{'s' if len(leaving) > 1 else ''} {', '.join(map(str, leaving))}"
    moved = Moved(0, 0)
    for _ in range(ROUNDS_MAX):
        plan, size = plan_leaving(invocation, leaving)
        moved = Moved(moved.replicas + len(plan), moved.size_bytes + size)
        if plan:
            talk(f"{len(plan)} replicas move off {names}, {size_text(size)} to copy")
            carry_out(invocation, plan, size, throttle=throttle, is_waiting=is_waiting, wait_s_max=wait_s_max)
        else:
            _wait_for_what_is_under_way(invocation, leaving, is_waiting=is_waiting, wait_s_max=wait_s_max)
        if not is_waiting or not any(_find(invocation, broker_id).replica_count for broker_id in leaving):
            return moved
    raise AdminError(
        f"{names} still hold replicas after {ROUNDS_MAX} rounds: topics are created faster than they move",
        hint="run it again; `barnabas broker list` shows what each broker holds",
    )


def _end(invocation: Invocation, broker_id: int, find_stop: Callable[[], Control | None]) -> None:
    _stop(invocation, broker_id, find_stop)
    patiently(lambda: _unregister(invocation, broker_id))


def _unregister(invocation: Invocation, broker_id: int) -> None:
    """Forget the broker, which was registered a moment ago: that it is not any more answers a try whose answer was lost."""
    try:
        invocation.admin.unregister_broker(broker_id)
    except AdminError as error:
        if error.code is not ErrorCode.BROKER_ID_NOT_REGISTERED:
            raise


def _find(invocation: Invocation, broker_id: int) -> Any:
    for broker in patiently(lambda: invocation.admin.list_brokers()).brokers:
        if broker.id == broker_id:
            return broker
    raise AdminError(
        f"broker {broker_id} is not registered",
        code=ErrorCode.BROKER_ID_NOT_REGISTERED,
        hint="`barnabas broker list` shows the brokers",
    )


def plan_leaving(invocation: Invocation, leaving: Sequence[int]) -> tuple[dict[tuple[str, int], tuple[int, ...]], int]:
    """The moves that empty these brokers, and the bytes that they copy. Raises AdminError where nobody is left to take a replica."""
    present = present_and_coming(invocation)
    held = {name: replicas for name, replicas in present.items() if not set(leaving).isdisjoint(replicas)}
    sizes = partition_sizes(invocation, held)
    brokers = invocation.admin.list_brokers().brokers
    racks = {broker.id: broker.rack or None for broker in brokers if not broker.fenced and not broker.in_maintenance}
    hosts = {broker.id: broker.host or None for broker in brokers}
    plan = plan_departure(present, leaving=leaving, racks=racks, hosts=hosts, sizes=sizes)
    return plan, copied_bytes(present, plan, sizes)


def _print_dry(invocation: Invocation, broker_id: int, replicas: int, size_bytes: int) -> None:
    if invocation.is_json:
        print_json({"broker": broker_id, "replicas_to_move": replicas, "bytes_to_copy": size_bytes, "dry": True})
    else:
        print_line(f"broker {broker_id}: {replicas} replicas would move, {size_text(size_bytes)} to copy")


def _wait_for_what_is_under_way(
    invocation: Invocation, leaving: Sequence[int], *, is_waiting: bool, wait_s_max: float | None
) -> None:
    ongoing = [
        (item.topic, item.partition)
        for item in invocation.admin.list_reassignments()
        if not set(leaving).isdisjoint((*item.removing, *item.replicas))
    ]
    if ongoing and is_waiting:
        wait_for_moves(invocation, ongoing, wait_s_max=wait_s_max)


def _stop(invocation: Invocation, broker_id: int, find_stop: Callable[[], Control | None]) -> None:
    """Stop the process and wait until the controller has seen its end."""
    if not _find(invocation, broker_id).fenced:
        stop = find_stop()
        if stop is not None:
            talk(f"stopping broker {broker_id}")
            stop(broker_id)
        else:
            talk(f"broker {broker_id} holds nothing now: stop its process (SIGTERM); waiting for that")
    deadline = time.monotonic() + STOP_WAIT_S
    while not _find(invocation, broker_id).fenced:
        if time.monotonic() > deadline:
            raise AdminError(
                f"broker {broker_id} holds nothing and is still in service after {STOP_WAIT_S:g} s",
                code=ErrorCode.REQUEST_TIMED_OUT,
                hint=f"stop its process, then `barnabas broker unregister {broker_id}`",
            )
        time.sleep(POLL_PAUSE_S)
