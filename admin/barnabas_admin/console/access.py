"""The access screens: ACLs, users and quotas, and the forms that change them.

May touch:  ConsoleCluster.           Must not touch: HTTP, templates.
Invariants: a password is in no dictionary that a page or its JSON twin is made of; ACLs are deleted as they are shown, one by one.
Read next:  ../access.py, which knows the requests; pages.py and writes.py, which use this.
"""

from __future__ import annotations

from typing import Any

from barnabas_admin.access import (
    DEFAULT,
    MECHANISMS,
    OPERATIONS,
    PERMISSIONS,
    RESOURCES,
    acl_filter,
    acl_row,
    deletion_request,
    password_request,
    quota_request,
    quota_rows,
    user_rows,
)
from barnabas_admin.console.cluster import ConsoleCluster
from barnabas_admin.errors import WrongUsage
from barnabas_admin.kafka import check
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas_wire.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas_wire.kafka.messages.describe_acls import DescribeAclsRequest
from barnabas_wire.kafka.messages.describe_client_quotas import DescribeClientQuotasRequest
from barnabas_wire.kafka.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

TABS = ("acls", "users", "quotas")
CLUSTER_NAME = "kafka-cluster"
QUOTA_KEYS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
_ANY = {
    "resource": "any",
    "name": None,
    "pattern": "any",
    "principal": None,
    "host": None,
    "operation": "any",
    "permission": "any",
}
_WORDS = ("resource", "name", "pattern", "principal", "host", "operation", "permission")


async def call(cluster: ConsoleCluster, request: Any) -> Any:
    """Ask one broker; any of them knows, or forwards to the active controller. Raises KafkaError, OSError."""
    return await cluster.kafka(lambda client: client.call(request))


async def read_access(cluster: ConsoleCluster, tab: str) -> dict[str, Any]:
    """What one tab shows. Raises WrongUsage for one that there is not."""
    if tab not in TABS:
        raise WrongUsage(f"access has no tab {tab!r}: {', '.join(TABS)}")
    found: dict[str, Any] = {"tab": tab, "tabs": TABS}
    if tab == "acls":
        answer = await call(cluster, DescribeAclsRequest(**acl_filter(_ANY)))
        if answer.error_code == ErrorCode.SECURITY_DISABLED:
            return found | {"acls": [], "is_enforced": False}
        check(answer)
        rows = [acl_row(resource, entry) for resource in answer.resources for entry in resource.acls]
        return found | {"acls": sorted(rows, key=lambda row: tuple(row.values())), "is_enforced": True}
    if tab == "users":
        answer = await call(cluster, DescribeUserScramCredentialsRequest(users=None))
        for item in (answer, *answer.results):
            check(item)
        return found | {"users": sorted(user_rows(answer), key=lambda row: (row["user"], row["mechanism"]))}
    answer = await call(cluster, DescribeClientQuotasRequest())
    check(answer)
    return found | {"quotas": quota_rows(answer)}


# -- forms -------------------------------------------------------------------------------------------------------------


async def show_acl(cluster: ConsoleCluster, fields: Any) -> dict[str, Any]:
    """The choices of a new ACL."""
    return {
        "resources": list(RESOURCES)[1:],
        "operations": list(OPERATIONS)[1:],
        "permissions": [each for each in PERMISSIONS if each != "any"],
    }


async def create_acl(cluster: ConsoleCluster, fields: Any) -> str:
    """Create one ACL."""
    principal = fields["principal"].strip()
    if ":" not in principal:
        raise WrongUsage("a principal has a type and a name: User:NAME, or User:* for everybody")
    resource = _chosen(fields, "resource", RESOURCES)
    name = fields["name"].strip() or (CLUSTER_NAME if resource == "cluster" else "")
    if not name:
        raise WrongUsage("name the resource, or * for all of its type")
    creation = AclCreation(
        resource_type=RESOURCES[resource],
        resource_name=name,
        resource_pattern_type=4 if fields["prefixed"] else 3,
        principal=principal,
        host=fields["host"].strip() or "*",
        operation=OPERATIONS[_chosen(fields, "operation", OPERATIONS)],
        permission_type=PERMISSIONS[_chosen(fields, "permission", PERMISSIONS)],
    )
    for result in (await call(cluster, CreateAclsRequest(creations=[creation]))).results:
        check(result)
    return "/access?tab=acls"


async def delete_acl(cluster: ConsoleCluster, fields: Any) -> str:
    """Delete the one ACL that the form names."""
    wanted = {word: fields[word] for word in _WORDS}
    try:
        only = acl_filter(wanted)
    except KeyError:
        raise WrongUsage("that is no ACL; choose one of those on the page") from None
    answer = await call(cluster, DeleteAclsRequest(filters=[DeleteAclsFilter(**only)]))
    (result,) = answer.filter_results
    check(result)
    if not result.matching_acls:
        raise WrongUsage("this ACL is gone already")
    return "/access?tab=acls"


async def show_user(cluster: ConsoleCluster, fields: Any) -> dict[str, Any]:
    """The mechanisms of a credential."""
    return {"mechanisms": list(MECHANISMS)}


async def set_password(cluster: ConsoleCluster, fields: Any) -> str:
    """Give a user a credential, or replace it."""
    name, password = fields["name"].strip(), fields["password"]
    mechanism = _chosen(fields, "mechanism", MECHANISMS)
    if not name or not password:
        raise WrongUsage("a user needs a name and a password")
    if password != fields["again"]:
        raise WrongUsage("the two passwords differ")
    await _alter_users(cluster, password_request(name, password, mechanism=mechanism))
    return "/access?tab=users"


async def delete_user(cluster: ConsoleCluster, fields: Any) -> str:
    """Take a credential from a user, whose name was typed."""
    name, mechanism = fields["name"], _chosen(fields, "mechanism", MECHANISMS)
    if fields["typed"] != name:
        raise WrongUsage(f"nothing was deleted: type {name} to take the credential away")
    await _alter_users(cluster, deletion_request(name, mechanism=mechanism))
    return "/access?tab=users"


async def show_quota(cluster: ConsoleCluster, fields: Any) -> dict[str, Any]:
    """The keys of a quota."""
    return {"keys": QUOTA_KEYS, "default": DEFAULT}


async def set_quota(cluster: ConsoleCluster, fields: Any) -> str:
    """Set or remove one bound of one entity."""
    entity = {kind: fields[kind].strip() for kind in ("user", "client-id", "ip") if fields[kind].strip()}
    if not entity:
        raise WrongUsage(
            f"say whose quota: a user, a client id or an address; {DEFAULT} means all without one of their own"
        )
    key, text = _chosen(fields, "key", dict.fromkeys(QUOTA_KEYS, 0)), fields["bound"].strip()
    try:
        bound = float(text) if text else None
    except ValueError:
        raise WrongUsage(f"a bound is a number, or empty to remove it, not {text!r}") from None
    for entry in (await call(cluster, quota_request(entity, {key: bound}))).entries:
        check(entry)
    return "/access?tab=quotas"


async def _alter_users(cluster: ConsoleCluster, request: Any) -> None:
    for result in (await call(cluster, request)).results:
        check(result)


def _chosen(fields: Any, name: str, table: dict[str, int]) -> str:
    word = str(fields[name])
    if word not in table:
        raise WrongUsage(f"{name} is one of {', '.join(table)}, not {word!r}")
    return word
