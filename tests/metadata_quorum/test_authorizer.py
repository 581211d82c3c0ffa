"""The authorizer beside one that looks at every entry, and Kafka's rules one by one."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from random import Random

import pytest

from barnabas_quorum.image.acls import AccessControlEntry
from barnabas_quorum.image.authorizer import Authorizer, parse_super_users
from barnabas_quorum.records_security import AclOperation, AclPatternType, AclPermission, AclResourceType
from barnabas_wire.kafka.ids import Uuid

SETS = int(os.environ.get("BARNABAS_ACL_SETS", "3000"))
"""Random sets of entries; `BARNABAS_ACL_SETS=100000` is the full form."""
STEPS = 4
"""Changes of one set: each asks again, so that an index that forgets or keeps too much shows itself (CVE-2024-27309)."""
QUESTIONS = 8
PRINCIPALS = ("User:ann", "User:bob", "User:*", "Group:ann")
HOSTS = ("10.0.0.1", "10.0.0.2", "*")
NAMES = ("a", "ab", "abc", "b", "*", "ac")
TYPES = (AclResourceType.TOPIC, AclResourceType.GROUP)
OPERATIONS = tuple(operation for operation in AclOperation if operation is not AclOperation.ANY)
ASKED = tuple(operation for operation in OPERATIONS if operation is not AclOperation.ALL)
IMPLIES = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}


def entry(
    principal: str,
    operation: AclOperation,
    name: str = "a",
    *,
    kind: AclResourceType = AclResourceType.TOPIC,
    pattern: AclPatternType = AclPatternType.LITERAL,
    host: str = "*",
    permission: AclPermission = AclPermission.ALLOW,
) -> AccessControlEntry:
    return AccessControlEntry(
        resource_type=kind,
        resource_name=name,
        pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission=permission,
    )


def authorizer(*entries: AccessControlEntry, allows: bool = False, super_users: Collection[str] = ()) -> Authorizer:
    made = Authorizer(super_users=super_users, allows_everyone_if_no_acl=allows)
    made.follow({Uuid(index.to_bytes(16, "big")): each for index, each in enumerate(entries, 1)})
    return made


def is_allowed(
    by: Authorizer,
    principal: str,
    operation: AclOperation,
    name: str = "a",
    *,
    kind: AclResourceType = AclResourceType.TOPIC,
    host: str = "10.0.0.1",
) -> bool:
    return by.authorize(principal, host, operation, kind, name).is_allowed


# ---- the naive one ---------------------------------------------------------------------------------------------------


def fits(each: AccessControlEntry, kind: AclResourceType, name: str) -> bool:
    if each.resource_type is not kind:
        return False
    if each.pattern_type is AclPatternType.PREFIXED:
        return name.startswith(each.resource_name)
    return each.resource_name in ("*", name)


def is_whose(each: AccessControlEntry, principal: str, host: str) -> bool:
    return each.principal in (principal, "User:*") and each.host in (host, "*")


def naively(
    entries: Collection[AccessControlEntry],
    principal: str,
    host: str,
    operation: AclOperation,
    kind: AclResourceType,
    name: str,
    *,
    allows: bool,
    super_users: Collection[str],
) -> bool:
    if principal in super_users:
        return True
    of_resource = [each for each in entries if fits(each, kind, name)]
    if not of_resource:
        return allows
    own = [each for each in of_resource if is_whose(each, principal, host)]
    about: tuple[AclOperation, ...] = (operation, AclOperation.ALL)
    if any(each.permission is AclPermission.DENY and each.operation in about for each in own):
        return False
    about = (*about, *IMPLIES.get(operation, ()))
    return any(each.permission is AclPermission.ALLOW and each.operation in about for each in own)


def naively_any(
    entries: Collection[AccessControlEntry],
    principal: str,
    host: str,
    operation: AclOperation,
    kind: AclResourceType,
    *,
    allows: bool,
    super_users: Collection[str],
) -> bool:
    """As the Javadoc of Kafka's authorizeByResourceType has it."""
    if naively(entries, principal, host, operation, kind, "hardcode", allows=allows, super_users=super_users):
        return True
    own = [
        each
        for each in entries
        if each.resource_type is kind
        and is_whose(each, principal, host)
        and each.operation in (operation, AclOperation.ALL)
    ]
    denied = [each for each in own if each.permission is AclPermission.DENY]
    for each in own:
        if each.permission is not AclPermission.ALLOW:
            continue
        is_literal = each.pattern_type is AclPatternType.LITERAL
        if not any(
            (no.pattern_type is AclPatternType.LITERAL and no.resource_name == "*")
            or (
                each.resource_name.startswith(no.resource_name)
                if no.pattern_type is AclPatternType.PREFIXED
                else is_literal and no.resource_name == each.resource_name
            )
            for no in denied
            if not (is_literal and each.resource_name == "*" and no.resource_name != "*")
        ):
            return True
    return False


def random_entry(random: Random) -> AccessControlEntry:
    is_prefixed = random.random() < 0.35
    return entry(
        random.choice(PRINCIPALS),
        random.choice(OPERATIONS),
        random.choice(NAMES[:4] if is_prefixed else NAMES),
        kind=random.choice(TYPES),
        pattern=AclPatternType.PREFIXED if is_prefixed else AclPatternType.LITERAL,
        host=random.choice(HOSTS),
        permission=AclPermission.DENY if random.random() < 0.3 else AclPermission.ALLOW,
    )


def changed(random: Random, entries: Mapping[Uuid, AccessControlEntry]) -> dict[Uuid, AccessControlEntry]:
    """Some go, some come."""
    kept = {acl_id: each for acl_id, each in entries.items() if random.random() < 0.7}
    present = set(kept.values())
    for _ in range(random.randrange(8)):
        new = random_entry(random)
        if new not in present:
            present.add(new)
            kept[Uuid(random.randbytes(16))] = new
    return kept


def test_it_agrees_with_one_that_looks_at_every_entry() -> None:
    random = Random(20261125)
    answers = {True: 0, False: 0}
    for _ in range(SETS):
        allows = random.random() < 0.3
        super_users = ("User:bob",) if random.random() < 0.1 else ()
        indexed = Authorizer(super_users=super_users, allows_everyone_if_no_acl=allows)
        entries: dict[Uuid, AccessControlEntry] = {}
        for _ in range(STEPS):
            entries = changed(random, entries)
            indexed.follow(entries)
            for _ in range(QUESTIONS):
                principal, host = random.choice(PRINCIPALS[:2]), random.choice(HOSTS[:2])
                operation, kind, name = random.choice(ASKED), random.choice(TYPES), random.choice(NAMES)
                found = indexed.authorize(principal, host, operation, kind, name).is_allowed
                expected = naively(
                    entries.values(), principal, host, operation, kind, name, allows=allows, super_users=super_users
                )
                assert found is expected, (principal, host, operation, kind, name, sorted(entries.values()))
                answers[found] += 1
            principal, operation, kind = random.choice(PRINCIPALS[:2]), random.choice(ASKED), random.choice(TYPES)
            found = indexed.authorize_any(principal, "10.0.0.1", operation, kind).is_allowed
            expected = naively_any(
                entries.values(), principal, "10.0.0.1", operation, kind, allows=allows, super_users=super_users
            )
            assert found is expected, (principal, operation, kind, sorted(entries.values()))
    assert min(answers.values()) > sum(answers.values()) / 10, f"the questions have one answer: {answers}"


# ---- rules, one by one -----------------------------------------------------------------------------------------------


def test_a_denial_outweighs_every_permission() -> None:
    by = authorizer(
        entry("User:ann", AclOperation.READ, "a"),
        entry("User:*", AclOperation.ALL, "*"),
        entry("User:ann", AclOperation.READ, "a", permission=AclPermission.DENY, host="10.0.0.1"),
    )
    assert not is_allowed(by, "User:ann", AclOperation.READ)
    assert is_allowed(by, "User:ann", AclOperation.READ, host="10.0.0.2")
    assert is_allowed(by, "User:bob", AclOperation.READ)


@pytest.mark.parametrize("operation", IMPLIES[AclOperation.DESCRIBE])
def test_who_may_do_something_may_see_it_but_who_may_not_do_it_may(operation: AclOperation) -> None:
    assert is_allowed(authorizer(entry("User:ann", operation)), "User:ann", AclOperation.DESCRIBE)
    by = authorizer(
        entry("User:ann", AclOperation.DESCRIBE), entry("User:ann", operation, permission=AclPermission.DENY)
    )
    assert is_allowed(by, "User:ann", AclOperation.DESCRIBE)
    assert not is_allowed(by, "User:ann", operation)


def test_a_resource_with_entries_of_others_only_is_closed() -> None:
    by = authorizer(entry("User:bob", AclOperation.READ), allows=True)
    assert not is_allowed(by, "User:ann", AclOperation.READ)
    assert is_allowed(by, "User:ann", AclOperation.READ, "other")
    assert not is_allowed(authorizer(), "User:ann", AclOperation.READ)


@pytest.mark.attack("A7", "a DENY that is in the metadata with a host as Java writes it denies")
@pytest.mark.parametrize(
    ("written", "host"), [("0:0:0:0:0:0:0:1", "::1"), ("::FFFF:10.0.0.1", "10.0.0.1"), ("FE80::1", "fe80::1")]
)
def test_a_denial_of_an_older_cluster_means_the_address_that_it_names(written: str, host: str) -> None:
    denial = entry("User:ann", AclOperation.READ, host=written, permission=AclPermission.DENY)
    decides = authorizer(denial, entry("User:ann", AclOperation.READ))
    for where, expected in ((host, False), ("10.9.9.9", True)):
        assert is_allowed(decides, "User:ann", AclOperation.READ, "a", host=where) is expected
    decides.follow({})
    assert not is_allowed(decides, "User:ann", AclOperation.READ, "a", host=host)


def test_a_removed_denial_denies_no_more_and_a_removed_permission_permits_no_more() -> None:
    allow, deny = (
        entry("User:ann", AclOperation.READ),
        entry("User:ann", AclOperation.ALL, permission=AclPermission.DENY),
    )
    first, second = Uuid(b"1" * 16), Uuid(b"2" * 16)
    by = Authorizer()
    by.follow({first: allow, second: deny})
    assert not is_allowed(by, "User:ann", AclOperation.READ)
    by.follow({first: allow})
    assert is_allowed(by, "User:ann", AclOperation.READ)
    by.follow({second: deny})
    assert not is_allowed(by, "User:ann", AclOperation.READ)
    by.follow({})
    assert not is_allowed(by, "User:ann", AclOperation.READ)


def test_a_super_user_is_denied_nothing() -> None:
    by = authorizer(entry("User:*", AclOperation.ALL, "*", permission=AclPermission.DENY), super_users=("User:root",))
    assert is_allowed(by, "User:root", AclOperation.ALTER)
    assert not is_allowed(by, "User:ann", AclOperation.ALTER)


def test_a_verdict_says_why() -> None:
    by = authorizer(entry("User:ann", AclOperation.READ, "or", pattern=AclPatternType.PREFIXED))
    verdict = by.authorize("User:ann", "10.0.0.1", AclOperation.READ, AclResourceType.TOPIC, "orders")
    assert verdict.rule == "ALLOW READ to User:ann from * on TOPIC prefixed or"


def test_super_users_are_read_as_kafka_writes_them() -> None:
    assert parse_super_users("User:ann;User:CN=broker,O=Barnabas; User:bob ;") == (
        "User:ann",
        "User:CN=broker,O=Barnabas",
        "User:bob",
    )
    with pytest.raises(ValueError, match="User:NAME"):
        parse_super_users("ann")
