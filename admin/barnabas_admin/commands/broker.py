"""`barnabas broker`: the brokers, their disks, and forgetting one.

May touch:  the admin client; the Kafka listeners for the disks.   Must not touch: files.
Invariants: a fenced broker is listed too; one that does not report its disks is an error, not an empty line.
Read next:  cluster.py, which shares the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from barnabas_admin.commands.cluster import describe_broker, print_broker_table
from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options, confirm, yes_option
from barnabas_admin.output import ExitCode, print_json, print_line, print_table, size_text, talk
from barnabas_admin.patience import patiently
from barnabas_wire.kafka.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas_admin.disks import DirectoryTotals


@click.command("list")
@common_options
def list_brokers(invocation: Invocation) -> None:
    """List the brokers with state, address and load."""
    found = invocation.admin.list_brokers()
    brokers = [describe_broker(broker) for broker in found.brokers]
    if invocation.is_json:
        print_json({"brokers": brokers, "controller_id": found.controller_id})
    else:
        print_broker_table(brokers, found.controller_id)


@click.command()
@click.argument("broker_ids", nargs=-1, type=click.IntRange(min=0), metavar="[ID]…")
@common_options
def logdirs(invocation: Invocation, broker_ids: tuple[int, ...]) -> None:
    """Show the brokers' log directories: how full their disks are, and what the replicas in them take.

    Without ID all brokers in service are asked. Exit status 1 when one of them does not answer, 10 when a directory is offline.
    """
    is_fenced = {broker.id: broker.fenced for broker in invocation.admin.list_brokers().brokers}
    unknown = [broker_id for broker_id in broker_ids if broker_id not in is_fenced]
    if unknown:
        raise AdminError(
            f"broker {unknown[0]} is not registered",
            code=ErrorCode.BROKER_ID_NOT_REGISTERED,
            hint="`barnabas broker list` shows the brokers",
        )
    wanted = [broker_id for broker_id in broker_ids or is_fenced if not is_fenced[broker_id]]
    rows, silent = _ask_log_directories(invocation, wanted) if wanted else ([], [])
    silent += [{"broker": each, "error": "it is fenced"} for each in broker_ids if is_fenced[each]]
    if invocation.is_json:
        print_json({"log_dirs": rows, "unreachable": silent})
    elif rows:
        columns = ["BROKER", "DIRECTORY", "STATE", "TOTAL", "FREE", "REPLICAS", "SIZE"]
        keys = ("broker", "directory", "state", "total_bytes", "free_bytes", "replicas", "replica_bytes")
        sizes = ("total_bytes", "free_bytes", "replica_bytes")
        print_table(columns, [[size_text(row[key]) if key in sizes else row[key] for key in keys] for row in rows])
    for item in silent:
        talk(f"broker {item['broker']} does not answer: {item['error']}")
    if silent:
        raise SystemExit(ExitCode.ERROR)
    if any(row["state"] != "online" for row in rows):
        raise SystemExit(ExitCode.UNHEALTHY)


def _ask_log_directories(
    invocation: Invocation, brokers: list[int]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows, one for each directory; and who did not answer, with why."""
    from barnabas_admin.disks import read_totals
    from barnabas_admin.kafka import run_with_cluster
    from barnabas_admin.unanswered import unreachable
    from barnabas_wire.client.cluster import ClusterClient

    async def ask(client: ClusterClient) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        rows: list[dict[str, Any]] = []
        silent: list[dict[str, Any]] = []
        for broker in brokers:
            try:
                rows += [_log_directory(broker, found) for found in await read_totals(client, broker)]
            except (KafkaError, OSError) as error:
                failure = unreachable(error, f"broker {broker}") if isinstance(error, OSError) else error
                silent.append({"broker": broker, "error": failure.message or failure.code.name})
        return rows, silent

    return run_with_cluster(invocation, ask)


def _log_directory(broker: int, found: DirectoryTotals) -> dict[str, Any]:
    return {
        "broker": broker,
        "directory": found.path,
        "state": "offline" if found.error_code else "online",
        "total_bytes": found.total_bytes,
        "free_bytes": found.usable_bytes,
        "replicas": found.replica_count,
        "replica_bytes": found.replica_bytes,
    }


def alter_maintenance(invocation: Invocation, broker_id: int, *, is_in_maintenance: bool) -> Any:
    """Put a broker into maintenance, or end that; how many partitions were handed over, and how many it kept. Raises AdminError."""
    from barnabas_admin.client import FormerNode
    from barnabas_wire.rpc import admin_pb2, controller_pb2

    call = controller_pb2.AlterMaintenanceCall(broker_id=broker_id, is_in_maintenance=is_in_maintenance)
    try:
        return invocation.admin.ask_controller(call, controller_pb2.AlterMaintenanceAnswer)
    except FormerNode:
        former = admin_pb2.AlterMaintenanceRequest(broker_id=broker_id, in_maintenance=is_in_maintenance)
        return invocation.admin.call_former("AlterMaintenance", former)


def brokers_of_host(invocation: Invocation, host: str) -> list[int]:
    """The brokers that registered with this host, by id. Raises AdminError where there are none."""
    brokers = patiently(lambda: invocation.admin.list_brokers()).brokers
    found = sorted(broker.id for broker in brokers if broker.host == host)
    if not found:
        known = ", ".join(sorted({broker.host for broker in brokers if broker.host}))
        raise AdminError(
            f"no broker names host {host}",
            code=ErrorCode.RESOURCE_NOT_FOUND,
            hint=f"hosts are {known}" if known else "brokers name their host with broker.host; these name none",
        )
    return found


host_option = click.option("--host", metavar="HOST", help="All brokers of this host (broker.host), in place of one.")


def _asked(invocation: Invocation, broker_id: int | None, host: str | None) -> list[int]:
    if (broker_id is None) == (host is None):
        raise click.UsageError("name either a broker or a --host")
    if broker_id is not None:
        return [broker_id]
    assert host is not None
    return brokers_of_host(invocation, host)


@click.command()
@click.argument("broker_id", type=click.IntRange(min=0), required=False, metavar="[ID]")
@host_option
@common_options
def drain(invocation: Invocation, broker_id: int | None, host: str | None) -> None:
    """Put a broker, or all of a host, into maintenance: it hands its leaderships over and stays in sync, until undrain, restarts
    included."""
    rows = []
    for each in _asked(invocation, broker_id, host):
        done = alter_maintenance(invocation, each, is_in_maintenance=True)
        rows.append({"broker": each, "in_maintenance": True, "handed_over": done.handed_over, "kept": done.kept})
        if not invocation.is_json:
            print_line(f"broker {each} is in maintenance: {done.handed_over} partitions are led by others now")
    if invocation.is_json:
        print_json(rows[0] if host is None else {"host": host, "brokers": rows})
        return
    if kept := sum(row["kept"] for row in rows):
        talk(
            f"{kept} partitions {'it leads on' if host is None else 'are led on there'}, for nobody else is in sync there; the first "
            "who is takes over (`barnabas topic list` shows what is under-replicated)"
        )


@click.command()
@click.argument("broker_id", type=click.IntRange(min=0), required=False, metavar="[ID]")
@host_option
@common_options
def undrain(invocation: Invocation, broker_id: int | None, host: str | None) -> None:
    """End the maintenance of a broker, or of all of a host: it may lead again, and gets its leaderships back."""
    asked = _asked(invocation, broker_id, host)
    for each in asked:
        alter_maintenance(invocation, each, is_in_maintenance=False)
        if not invocation.is_json:
            print_line(f"broker {each} is in service")
    if invocation.is_json:
        rows = [{"broker": each, "in_maintenance": False} for each in asked]
        print_json(rows[0] if host is None else {"host": host, "brokers": rows})
        return
    talk("its leaderships come back by themselves in a while; at once with `barnabas topic elect --all`")


@click.command()
@click.argument("broker_id", type=click.IntRange(min=0), metavar="ID")
@yes_option
@common_options
def unregister(invocation: Invocation, broker_id: int, yes: bool) -> None:
    """Forget a broker that will not come back. It must be stopped."""
    held = next((b.replica_count for b in invocation.admin.list_brokers().brokers if b.id == broker_id), 0)
    if held:
        confirm(
            f"broker {broker_id} holds {held} replicas, which stay missing until they are reassigned "
            f"(`barnabas topic reassign plan --remove-broker {broker_id}` moves them)",
            typed=str(broker_id),
            yes=yes,
        )
    invocation.admin.unregister_broker(broker_id)
    if invocation.is_json:
        print_json({"broker": broker_id, "unregistered": True, "replicas_missing": held})
    else:
        print_line(f"broker {broker_id} is unregistered")
