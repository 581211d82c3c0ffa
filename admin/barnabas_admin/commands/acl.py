"""`barnabas acl`: list, create and delete access control entries, by the Kafka protocol.

May touch:  the brokers.              Must not touch: the admin service, but to find them.
Invariants: creating ACLs reports where they count; nothing is deleted that was not shown or meant by --yes.
Read next:  ../kafka.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from barnabas_admin.access import OPERATIONS, PATTERNS, PERMISSIONS, RESOURCES, acl_filter, acl_row, word
from barnabas_admin.invocation import Invocation, common_options, confirm, yes_option
from barnabas_admin.output import print_json, print_table, talk

NOTE = "note: ACLs count where a broker's properties have authorizer.class.name; elsewhere they are kept and ask nobody"
COLUMNS = ["RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION"]


def _filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--permission", type=click.Choice(list(PERMISSIONS)), default="any", help="Of this permission."),
        click.option("--operation", type=click.Choice(list(OPERATIONS)), default="any", help="About this operation."),
        click.option("--host", help="For this host."),
        click.option("--principal", metavar="User:NAME", help="For this principal."),
        click.option(
            "--pattern",
            type=click.Choice(list(PATTERNS)),
            default="any",
            help="How the name is meant; match = all that apply to the resource of that name.",
        ),
        click.option("--name", help="About the resource of this name."),
        click.option("--resource", type=click.Choice(list(RESOURCES)), default="any", help="About this type."),
    ):
        function = option(function)
    return function


def _print(invocation: Invocation, rows: list[dict[str, str]], **more: Any) -> None:
    if invocation.is_json:
        print_json({"acls": rows, **more})
        return
    print_table(COLUMNS, [list(row.values()) for row in rows])


@click.command("list")
@_filter_options
@common_options
def list_acls(invocation: Invocation, **options: Any) -> None:
    """List the ACLs, or those that the options mean."""
    _print(invocation, _find(invocation, options))


def _find(invocation: Invocation, options: dict[str, Any]) -> list[dict[str, str]]:
    from barnabas_admin.kafka import call_any_broker, check
    from barnabas_wire.kafka.messages.describe_acls import DescribeAclsRequest

    answer = call_any_broker(invocation, DescribeAclsRequest(**acl_filter(options)))
    check(answer)
    return [acl_row(resource, entry) for resource in answer.resources for entry in resource.acls]


@click.command()
@click.option("--allow", "allowed", multiple=True, metavar="User:NAME", help="Who may; repeatable.")
@click.option("--deny", "denied", multiple=True, metavar="User:NAME", help="Who may not; repeatable.")
@click.option("--host", default="*", help="From which address; default every one.")
@click.option(
    "--operation",
    "operations",
    multiple=True,
    required=True,
    type=click.Choice(list(OPERATIONS)[1:]),
    help="What; repeatable.",
)
@click.option("--resource", type=click.Choice(list(RESOURCES)[1:]), required=True, help="With what type of resource.")
@click.option("--name", help="Its name, * for all; not needed for the cluster.")
@click.option("--pattern", type=click.Choice(["literal", "prefixed"]), default="literal", help="How the name is meant.")
@common_options
def create(
    invocation: Invocation,
    allowed: tuple[str, ...],
    denied: tuple[str, ...],
    host: str,
    operations: tuple[str, ...],
    resource: str,
    name: str | None,
    pattern: str,
) -> None:
    """Create ACLs: each principal with each operation."""
    from barnabas_admin.kafka import call_any_broker, check
    from barnabas_wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest

    if not allowed and not denied:
        raise click.UsageError("name somebody: --allow User:NAME or --deny User:NAME")
    if name is None:
        if resource != "cluster":
            raise click.UsageError("name the resource: --name NAME, or --name '*' for all")
        name = "kafka-cluster"
    wanted = [(principal, "allow") for principal in allowed] + [(principal, "deny") for principal in denied]
    creations = [
        AclCreation(
            resource_type=RESOURCES[resource],
            resource_name=name,
            resource_pattern_type=PATTERNS[pattern],
            principal=principal,
            host=host,
            operation=OPERATIONS[operation],
            permission_type=PERMISSIONS[permission],
        )
        for principal, permission in wanted
        for operation in operations
    ]
    answer = call_any_broker(invocation, CreateAclsRequest(creations=creations))
    for result in answer.results:
        check(result)
    rows = [
        {
            "resource_type": resource,
            "resource_name": name,
            "pattern": pattern,
            "principal": creation.principal,
            "host": host,
            "operation": word(OPERATIONS, creation.operation),
            "permission": word(PERMISSIONS, creation.permission_type),
        }
        for creation in creations
    ]
    _print(invocation, rows)
    talk(NOTE)
    talk(f"created {_count(rows)}")


def _count(rows: list[dict[str, str]]) -> str:
    return f"{len(rows)} ACL{'s' if len(rows) != 1 else ''}"


@click.command()
@_filter_options
@yes_option
@common_options
def delete(invocation: Invocation, yes: bool, **options: Any) -> None:
    """Delete the ACLs that the options mean."""
    from barnabas_admin.kafka import call_any_broker, check
    from barnabas_wire.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest

    if not yes:
        found = _find(invocation, options)
        for row in found:
            talk("  ".join(row.values()))
        confirm(f"this deletes {_count(found)}", typed="delete", yes=yes)
    answer = call_any_broker(invocation, DeleteAclsRequest(filters=[DeleteAclsFilter(**acl_filter(options))]))
    (result,) = answer.filter_results
    check(result)
    rows = [acl_row(entry, entry) for entry in result.matching_acls]
    _print(invocation, rows, deleted=True)
    talk(f"deleted {_count(rows)}")
