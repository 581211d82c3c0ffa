"""Whether a principal may do something to a resource: Kafka's StandardAuthorizer, read from the image's ACLs.

May touch:  image/acls.py.            Must not touch: asyncio, clock, files, sockets, what a request is.
Invariants: super users may do everything; one entry that denies outweighs all that allow; a principal that finds entries of the
            resource and none of its own is refused, whatever allow.everyone.if.no.acl.found says; the answer depends on the
            entries alone, never on the order in which they came and went.
Read next:  acls.py; the broker room's security/access.py, which asks for a connection.

Rules (KIP-11, KIP-290, KIP-679): an entry holds for a resource that it names, whose name begins with its own (prefixed), or for all of
the type (literal `*`). It is of the principal or of `User:*`, from the host or from `*`, about the operation or ALL. To be allowed READ,
WRITE, DELETE or ALTER allows DESCRIBE too, and ALTER_CONFIGS allows DESCRIBE_CONFIGS; to be denied them denies nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from barnabas_quorum.image.acls import WILDCARD, AccessControlEntry, normal_host
from barnabas_quorum.records_security import AclOperation, AclPatternType, AclPermission, AclResourceType
from barnabas_wire.kafka.ids import Uuid

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""Kafka's name of the class whose rules these are: authorizer.class.name takes it."""
WILDCARD_PRINCIPAL = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""
ANY_NAME = "hardcode"
"""Stands for a resource that no entry names where Kafka asks for any one of a type: a reserved word of its own making."""

_ALLOWED_BY: Mapping[AclOperation, frozenset[AclOperation]] = {
    **{operation: frozenset((operation, AclOperation.ALL)) for operation in AclOperation},
    AclOperation.DESCRIBE: frozenset(
        (
            AclOperation.DESCRIBE,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.ALL,
        )
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset(
        (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.ALL)
    ),
}
"""What an entry may be about that allows an operation."""


NONE: Mapping[Uuid, AccessControlEntry] = {}


class Verdict(NamedTuple):
    """What an authorizer says, and why."""

    is_allowed: bool
    rule: str
    """For people: the entry that decided, or what stood in its place."""


class _Pattern:
    """The entries of one resource pattern, by principal."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: dict[str, dict[Uuid, AccessControlEntry]] = {}


class _Resources:
    """The patterns of one type of resource."""

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _Pattern] = {}
        self.prefixed: dict[str, _Pattern] = {}
        self.lengths: dict[int, int] = {}
        """How many prefixes there are of each length: a name is looked up once for each length."""

    def patterns_of(self, name: str) -> list[_Pattern]:
        """Every pattern that the name fits."""
        found = []
        literal = self.literal
        for key in (name, WILDCARD) if name != WILDCARD else (name,):
            pattern = literal.get(key)
            if pattern is not None:
                found.append(pattern)
        size = len(name)
        for length in self.lengths:
            if length <= size:
                pattern = self.prefixed.get(name[:length])
                if pattern is not None:
                    found.append(pattern)
        return found

    def add(self, acl_id: Uuid, entry: AccessControlEntry) -> None:
        patterns = self._patterns(entry)
        pattern = patterns.get(entry.resource_name)
        if pattern is None:
            pattern = patterns[entry.resource_name] = _Pattern()
            if patterns is self.prefixed:
                length = len(entry.resource_name)
                self.lengths[length] = self.lengths.get(length, 0) + 1
        pattern.entries.setdefault(entry.principal, {})[acl_id] = entry

    def remove(self, acl_id: Uuid, entry: AccessControlEntry) -> None:
        patterns = self._patterns(entry)
        pattern = patterns[entry.resource_name]
        of_principal = pattern.entries[entry.principal]
        del of_principal[acl_id]
        if of_principal:
            return
        del pattern.entries[entry.principal]
        if pattern.entries:
            return
        del patterns[entry.resource_name]
        if patterns is self.prefixed:
            length = len(entry.resource_name)
            self.lengths[length] -= 1
            if not self.lengths[length]:
                del self.lengths[length]

    def _patterns(self, entry: AccessControlEntry) -> dict[str, _Pattern]:
        return self.prefixed if entry.pattern_type is AclPatternType.PREFIXED else self.literal


class Authorizer:
    """Decides by the entries that it follows. Belongs to one lane."""

    def __init__(self, *, super_users: Iterable[str] = (), allows_everyone_if_no_acl: bool = False) -> None:
        """
        Args:
            super_users: principals, "User:NAME", that may do everything.
            allows_everyone_if_no_acl: what is allowed on a resource that no entry is about.
        """
        self._super_users = frozenset(super_users)
        self._allows_if_none = allows_everyone_if_no_acl
        self._entries: Mapping[Uuid, AccessControlEntry] = {}
        self._resources: dict[AclResourceType, _Resources] = {kind: _Resources() for kind in AclResourceType}

    @property
    def super_users(self) -> frozenset[str]:
        """Principals that may do everything."""
        return self._super_users

    def follow(self, entries: Mapping[Uuid, AccessControlEntry]) -> None:
        """Decide by these entries from now on. Costs what changed since the last call, and a comparison of the ids."""
        before = self._entries
        if entries is before:
            return
        # An id is given once and its entry never changes, so ids say all (image/acls.py).
        for acl_id in before.keys() - entries.keys():
            entry = before[acl_id]
            self._resources[entry.resource_type].remove(acl_id, entry)
        for acl_id in entries.keys() - before.keys():
            entry = entries[acl_id]
            if entry.host != WILDCARD:  # one of an older cluster may be as Java writes it
                entry = replace(entry, host=normal_host(entry.host))
            self._resources[entry.resource_type].add(acl_id, entry)
        self._entries = entries

    def authorize(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> Verdict:
        """Whether `principal` may do this from `host` (an address) to the resource of that name."""
        if principal in self._super_users:
            return SUPER_USER
        patterns = self._resources[resource_type].patterns_of(name)
        if not patterns:
            return NO_ACL_ALLOWS if self._allows_if_none else NO_ACL
        allowed_by = _ALLOWED_BY[operation]
        allowing: AccessControlEntry | None = None
        for pattern in patterns:
            for whose in (principal, WILDCARD_PRINCIPAL) if principal != WILDCARD_PRINCIPAL else (principal,):
                for entry in pattern.entries.get(whose, NONE).values():
                    if entry.host != host and entry.host != WILDCARD:
                        continue
                    if entry.permission is AclPermission.DENY:
                        if entry.operation is operation or entry.operation is AclOperation.ALL:
                            return Verdict(False, _told(entry))
                    elif allowing is None and entry.operation in allowed_by:
                        allowing = entry
        return NO_MATCH if allowing is None else Verdict(True, _told(allowing))

    def authorize_any(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType
    ) -> Verdict:
        """Whether `principal` may do this to at least one resource of the type, there or not (KIP-679: authorizeByResourceType)."""
        verdict = self.authorize(principal, host, operation, resource_type, ANY_NAME)
        if verdict.is_allowed:
            return verdict
        resources = self._resources[resource_type]
        denied: dict[bool, set[str]] = {False: set(), True: set()}
        allowed: list[tuple[bool, AccessControlEntry]] = []
        for is_prefixed, patterns in ((False, resources.literal), (True, resources.prefixed)):
            for name, pattern in patterns.items():
                for whose in {principal, WILDCARD_PRINCIPAL}:
                    for entry in pattern.entries.get(whose, NONE).values():
                        if entry.host not in (host, WILDCARD) or entry.operation not in (operation, AclOperation.ALL):
                            continue
                        if entry.permission is AclPermission.ALLOW:
                            allowed.append((is_prefixed, entry))
                        elif name == WILDCARD and not is_prefixed:
                            return Verdict(False, _told(entry))
                        else:
                            denied[is_prefixed].add(name)
        for is_prefixed, entry in allowed:
            name = entry.resource_name
            if name == WILDCARD and not is_prefixed:
                return Verdict(True, _told(entry))
            if not is_prefixed and name in denied[False]:
                continue
            if not any(name.startswith(prefix) for prefix in denied[True]):
                return Verdict(True, _told(entry))
        return NO_MATCH


SUPER_USER = Verdict(True, "super user")
NO_ACL = Verdict(False, "no ACL is about this resource")
NO_ACL_ALLOWS = Verdict(True, "no ACL is about this resource, and allow.everyone.if.no.acl.found=true")
NO_MATCH = Verdict(False, "no ACL of this resource allows it")


def parse_super_users(text: str) -> tuple[str, ...]:
    """The principals of `super.users`, with semicolons between them. Raises ValueError."""
    found = []
    for part in text.split(";"):
        principal = part.strip()
        if not principal:
            continue
        kind, colon, name = principal.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"{principal!r} is no principal: write User:NAME, with semicolons between several")
        found.append(principal)
    return tuple(found)


def _told(entry: AccessControlEntry) -> str:
    pattern = "" if entry.pattern_type is AclPatternType.LITERAL else f" {entry.pattern_type.name.lower()}"
    return (
        f"{entry.permission.name} {entry.operation.name} to {entry.principal} from {entry.host} on "
        f"{entry.resource_type.name}{pattern} {entry.resource_name}"
    )
