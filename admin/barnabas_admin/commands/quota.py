"""`barnabas quota`: client quotas, by the Kafka protocol.

May touch:  the brokers.              Must not touch: the admin service, but to find them.
Invariants: what is set is answered as it now is.
Read next:  ../kafka.py.
"""

from __future__ import annotations

from typing import Any

import click

from barnabas_admin.access import DEFAULT, quota_request, quota_rows
from barnabas_admin.invocation import Invocation, common_options
from barnabas_admin.output import print_json, print_table, talk


@click.command("list")
@common_options
def list_quotas(invocation: Invocation) -> None:
    """List the quotas of users, client ids and addresses."""
    from barnabas_admin.kafka import call_any_broker, check
    from barnabas_wire.kafka.messages.describe_client_quotas import DescribeClientQuotasRequest

    answer = call_any_broker(invocation, DescribeClientQuotasRequest())
    check(answer)
    found = quota_rows(answer)
    if invocation.is_json:
        print_json({"quotas": found})
        return
    rows: list[list[Any]] = [
        [{kind: DEFAULT if name is None else name for kind, name in item["entity"].items()}, item["quotas"]]
        for item in found
    ]
    print_table(["ENTITY", "QUOTAS"], rows)


@click.command("set")
@click.argument("changes", nargs=-1, required=True, metavar="KEY=VALUE|KEY=…")
@click.option("--user", help=f"Of this user; {DEFAULT} = all that have none of their own.")
@click.option("--client-id", help=f"Of this client id; {DEFAULT} as above.")
@click.option("--ip", help=f"Of this address; {DEFAULT} as above.")
@click.option("--dry", is_flag=True, help="Only say whether it could be done.")
@common_options
def set_quota(
    invocation: Invocation, changes: tuple[str, ...], user: str | None, client_id: str | None, ip: str | None, dry: bool
) -> None:
    """Set quotas of one entity; KEY= without a value removes."""
    from barnabas_admin.kafka import call_any_broker, check

    named = {"client-id": client_id, "ip": ip, "user": user}
    entity = {kind: name for kind, name in named.items() if name is not None}
    if not entity:
        raise click.UsageError("say whose quota: --user, --client-id or --ip")
    fields: dict[str, float | None] = {}
    for change in changes:
        key, equals, value = change.partition("=")
        try:
            fields[key] = float(value) if value else None
        except ValueError:
            equals = ""
        if not (key and equals):
            raise click.BadParameter(f"{change!r}: write KEY=NUMBER, or KEY= to remove", param_hint="KEY=VALUE")
    answer = call_any_broker(invocation, quota_request(entity, fields, is_dry=dry))
    for entry in answer.entries:
        check(entry)
    if invocation.is_json:
        print_json(
            {
                "entity": {kind: None if name == DEFAULT else name for kind, name in entity.items()},
                "quotas": fields,
                "dry": dry,
            }
        )
        return
    whose = " ".join(f"{kind}={name}" for kind, name in entity.items())
    for key, new in fields.items():
        talk(f"{whose}: {key} {'removed' if new is None else f'= {new:g}'}{' (would be)' if dry else ''}")
