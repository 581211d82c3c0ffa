"""`barnabas broker`: the brokers.

May touch:  the admin client.         Must not touch: the Kafka listeners.
Invariants: a fenced broker is listed too.
Read next:  cluster.py, which shares the table.
"""

from __future__ import annotations

import click

from barnabas_admin.commands.cluster import describe_broker, print_broker_table
from barnabas_admin.invocation import Invocation, common_options
from barnabas_admin.output import print_json


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
