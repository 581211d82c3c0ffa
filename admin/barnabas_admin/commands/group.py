"""`barnabas group`: consumer groups, by the Kafka protocol.

May touch:  the brokers.              Must not touch: the offsets topic.
Invariants: a group without members is shown with its committed offsets and lag too.
Read next:  ../groups.py.
"""

from __future__ import annotations

import click

from barnabas_admin.invocation import Invocation, common_options
from barnabas_admin.output import print_fields, print_json, print_line, print_table


@click.command("list")
@common_options
def list_groups(invocation: Invocation) -> None:
    """List the groups with their state and coordinator."""
    from barnabas_admin import groups as on_brokers
    from barnabas_admin.kafka import run_with_cluster

    groups = run_with_cluster(invocation, on_brokers.list_groups)
    if invocation.is_json:
        print_json({"groups": groups})
        return
    columns = ["GROUP", "STATE", "TYPE", "PROTOCOL_TYPE", "COORDINATOR"]
    print_table(columns, [list(group.values()) for group in groups])


@click.command()
@click.argument("group", metavar="GROUP")
@common_options
def describe(invocation: Invocation, group: str) -> None:
    """Show a group's members, committed offsets and lag."""
    from barnabas_admin.groups import describe_group
    from barnabas_admin.kafka import run_with_cluster

    found = run_with_cluster(invocation, lambda client: describe_group(client, group))
    if invocation.is_json:
        print_json(found)
        return
    partitions, members = found["partitions"], found["members"]
    print_fields(
        {
            "group": found["group"],
            "state": found["state"],
            "protocol": f"{found['protocol_type'] or '-'}/{found['protocol'] or '-'}",
            **({"epoch": f"{found['epoch']}, targets of {found['assignment_epoch']}"} if "epoch" in found else {}),
            "coordinator": found["coordinator"],
            "members": len(members),
            "total_lag": found["total_lag"],
        }
    )
    if partitions:
        print_line()
        columns = ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER", "CLIENT", "HOST"]
        print_table(columns, [list(row.values()) for row in partitions])
    idle = [member for member in members if not member["partitions"]]
    if idle:
        print_line()
        print_table(["IDLE_MEMBER", "CLIENT", "HOST"], [[m["member"], m["client"], m["host"]] for m in idle])
    if found["protocol_type"] == "streams" and members:
        print_line()
        tasks = [(member, {role: " ".join(of) or "-" for role, of in member["tasks"].items()}) for member in members]
        print_table(
            ["MEMBER", "PROCESS", "EPOCH", "ACTIVE", "STANDBY", "TO_GIVE_UP", "TO_GET"],
            [
                [m["member"], m["process"], m["epoch"], of["active"], of["standby"], m["to_give_up"], m["to_get"]]
                for m, of in tasks
            ],
        )
    elif "epoch" in found and members:
        print_line()
        columns = ["MEMBER", "PROTOCOL", "EPOCH", "HAS", "TO_GIVE_UP", "TO_GET"]
        shown = ("member", "protocol", "epoch", "partitions", "to_give_up", "to_get")
        rows = [[len(m[key]) if key == "partitions" else m[key] for key in shown] for m in members]
        print_table(columns, rows)
