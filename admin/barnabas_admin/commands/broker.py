"""`barnabas broker`: the brokers, and forgetting one.

May touch:  the admin client.         Must not touch: the Kafka listeners.
Invariants: a fenced broker is listed too.
Read next:  cluster.py, which shares the table.
"""

from __future__ import annotations

import click

from barnabas_admin.commands.cluster import describe_broker, print_broker_table
from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options
from barnabas_admin.output import print_json, print_line


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
@click.argument("broker_id", type=click.IntRange(min=0), metavar="ID")
@click.option("--yes", is_flag=True, help="Also while partitions still name it as a replica.")
@common_options
def unregister(invocation: Invocation, broker_id: int, yes: bool) -> None:
    """Forget a broker that will not come back. It must be stopped."""
    held = next((b.replica_count for b in invocation.admin.list_brokers().brokers if b.id == broker_id), 0)
    if held and not yes:
        raise AdminError(
            f"broker {broker_id} holds {held} replicas: forgotten, they stay missing until they are reassigned",
            hint=f"`barnabas topic reassign plan --remove-broker {broker_id}` moves them; --yes goes on without",
        )
    invocation.admin.unregister_broker(broker_id)
    if invocation.is_json:
        print_json({"broker": broker_id, "unregistered": True, "replicas_missing": held})
    else:
        print_line(f"broker {broker_id} is unregistered")
