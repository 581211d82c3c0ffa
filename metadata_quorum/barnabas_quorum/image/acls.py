"""Access control entries: image, delta, and which of them a filter means.

May touch:  records_security.   Must not touch: asyncio, clock, files, controller, who asks.
Invariants: an id is given once; the image holds entries and enforces none (authorizer.py does).
Read next:  metadata.py.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from functools import singledispatchmethod

from barnabas_quorum.records import Record
from barnabas_quorum.records_security import (
    AccessControlEntryRecord,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    RemoveAccessControlEntryRecord,
)
from barnabas_wire.kafka.errors import InvariantViolated
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.lazy_dataclass import dataclass

WILDCARD = "*"
"""The resource name of a literal ACL, or its host, that means every one."""
USER_TYPE = "User"
"""The type of every principal that a listener gives."""


def normal_host(text: str) -> str:
    """An address in the form in which connections have it: `0:0:0:0:0:0:0:1`, as Java writes it, is `::1`. Other text is left."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    return str(getattr(address, "ipv4_mapped", None) or address)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AccessControlEntry:
    """Who may, or may not, do what to which resources from where."""

    resource_type: AclResourceType
    resource_name: str
    pattern_type: AclPatternType
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission


def why_in_vain(entry: AccessControlEntry) -> str | None:
    """Why an entry matches no client, whoever comes; None where it may match one. A DENY of that kind fails open."""
    kind, colon, name = entry.principal.partition(":")
    if not (kind and colon and name):
        return f"needs a principal TYPE:NAME, such as User:alice or User:*, not {entry.principal!r}"
    if kind != USER_TYPE:
        return f"is for {USER_TYPE}:NAME, not for a principal of type {kind!r}, which nobody has here"
    if entry.host != WILDCARD and not _is_address(entry.host):
        return f"takes one address as its host, or * for all: {entry.host!r} would match no client (names and networks are not looked up)"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Means every entry that agrees with it; ANY and None agree with everything."""

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    pattern_type: AclPatternType = AclPatternType.ANY
    """MATCH means all entries that hold for the resource of that name: literal, wildcard and prefixed ones."""
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    def means(self, entry: AccessControlEntry) -> bool:
        """Whether the entry is one of those (Kafka's AclBindingFilter)."""
        return (
            self.resource_type in (AclResourceType.ANY, entry.resource_type)
            and self._means_pattern(entry)
            and self.principal in (None, entry.principal)
            and (self.host in (None, entry.host) or normal_host(self.host or "") == entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (AclPermission.ANY, entry.permission)
        )

    def _means_pattern(self, entry: AccessControlEntry) -> bool:
        name = self.resource_name
        if self.pattern_type is AclPatternType.MATCH and name is not None:
            if entry.pattern_type is AclPatternType.PREFIXED:
                return name.startswith(entry.resource_name)
            return entry.resource_name in (name, WILDCARD)
        is_pattern = self.pattern_type in (AclPatternType.ANY, AclPatternType.MATCH, entry.pattern_type)
        return is_pattern and name in (None, entry.resource_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class AclsImage:
    """Entries by id."""

    entries: Mapping[Uuid, AccessControlEntry]

    def sorted_entries(self) -> list[tuple[Uuid, AccessControlEntry]]:
        """By content: the order for whoever decides or prints."""
        return sorted(self.entries.items(), key=lambda item: (item[1], item[0]))

    def find(self, wanted: AclFilter) -> list[tuple[Uuid, AccessControlEntry]]:
        """The entries a filter means, sorted."""
        return [(acl_id, entry) for acl_id, entry in self.sorted_entries() if wanted.means(entry)]

    def to_records(self) -> Iterator[Record]:
        """Records that replay to this image, canonical order."""
        for acl_id, entry in sorted(self.entries.items()):
            yield AccessControlEntryRecord(
                id=acl_id,
                resource_type=entry.resource_type,
                resource_name=entry.resource_name,
                pattern_type=entry.pattern_type,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission=entry.permission,
            )


EMPTY_ACLS = AclsImage(entries={})


class AclsDelta:
    """Entries that came (by id) or went (None) since an image."""

    __slots__ = ("changed", "image")

    def __init__(self, image: AclsImage) -> None:
        self.image = image
        self.changed: dict[Uuid, AccessControlEntry | None] = {}

    @singledispatchmethod
    def replay(self, record: Record) -> None:
        """Take in one record."""
        raise TypeError(f"ACLs have no replay for {type(record).__name__}")

    @replay.register
    def _(self, record: AccessControlEntryRecord) -> None:
        entry = AccessControlEntry(
            resource_type=record.resource_type,
            resource_name=record.resource_name,
            pattern_type=record.pattern_type,
            principal=record.principal,
            host=record.host,
            operation=record.operation,
            permission=record.permission,
        )
        if self._present(record.id) is not None:
            raise InvariantViolated(f"ACL {record.id} is written twice")
        self.changed[record.id] = entry

    @replay.register
    def _(self, record: RemoveAccessControlEntryRecord) -> None:
        if self._present(record.id) is None:
            raise InvariantViolated(f"ACL {record.id} is removed but does not exist")
        self.changed[record.id] = None

    def _present(self, acl_id: Uuid) -> AccessControlEntry | None:
        return self.changed[acl_id] if acl_id in self.changed else self.image.entries.get(acl_id)

    @classmethod
    def between(cls, before: AclsImage, after: AclsImage) -> AclsDelta:
        """What leads from one image to another, for whoever loads a snapshot."""
        delta = cls(before)
        for key in before.entries.keys() | after.entries.keys():
            found = after.entries.get(key)
            if before.entries.get(key) != found:
                delta.changed[key] = found
        return delta

    def apply(self) -> AclsImage:
        """The image after the delta."""
        entries = {**self.image.entries, **self.changed}
        return AclsImage(entries={acl_id: entry for acl_id, entry in entries.items() if entry is not None})
