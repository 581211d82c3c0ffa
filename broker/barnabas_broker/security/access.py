"""What the principal of one connection may do: asked once, then a dictionary that any change of the ACLs empties.

May touch:  the authorizer, the image's ACLs.     Must not touch: sockets, requests, clock.
Invariants: an answer is never older than the image that this broker answers from; without an authorizer everything is allowed, and costs
            one comparison; every denial is reported, the hundredth like the first.
Read next:  barnabas_quorum/image/authorizer.py (the rules), image/rights.py (the table).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from barnabas_quorum.image.acls import AccessControlEntry, AclsImage
from barnabas_quorum.image.authorizer import CLUSTER_NAME, Authorizer, Verdict
from barnabas_quorum.image.rights import Right, refusal
from barnabas_quorum.records_security import AclOperation, AclResourceType
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import ANONYMOUS, Uuid

KNOWN_MAX: Final = 4096
"""Answers that one connection remembers. A client that asks about more starts with none."""
NAME_LENGTH_MAX: Final = 249
"""The longest name of a resource that is remembered, as topics have at most: with longer ones a client without rights
would fill the memory."""
OnDenied = Callable[[str, str, Right, str, Verdict], None]
"""(principal, host, right, name of the resource, verdict)."""


class Access:
    """The rights of a connection in a cluster without an authorizer: everything."""

    __slots__ = ("host", "principal")

    is_open = True
    """Whether there is nothing to ask."""

    def __init__(self, principal: str = ANONYMOUS, host: str = "") -> None:
        self.principal = principal
        self.host = host

    def may(
        self,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str = CLUSTER_NAME,
        *,
        is_noted: bool = True,
    ) -> bool:
        """Whether the principal may do this to the resource. `is_noted=False`: a denial only hides something, and is not reported."""
        return True

    def may_any(self, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """Whether it may do this to at least one resource of the type."""
        return True

    def require(self, operation: AclOperation, resource_type: AclResourceType, name: str = CLUSTER_NAME) -> None:
        """Raises the KafkaError that refuses it, where `may` says no."""
        if not self.may(operation, resource_type, name):
            raise self.refusal(operation, resource_type, name)

    def refusal(self, operation: AclOperation, resource_type: AclResourceType, name: str = CLUSTER_NAME) -> KafkaError:
        """The error to answer where `may` returns False."""
        return refusal(self.principal, Right(operation, resource_type), name)

    def operations(
        self, supported: Iterable[AclOperation], resource_type: AclResourceType, name: str = CLUSTER_NAME
    ) -> int:
        """Which of the operations it may do, as Kafka's bit set."""
        bits = 0
        for operation in supported:
            if self.may(operation, resource_type, name, is_noted=False):
                bits |= 1 << operation
        return bits


OPEN_ACCESS: Final = Access()
"""For callers that need no separate one."""


class GuardedAccess(Access):
    """The rights of a connection in a cluster with an authorizer."""

    __slots__ = ("_control", "_entries", "_known")

    is_open = False

    def __init__(self, control: AccessControl, principal: str, host: str) -> None:
        super().__init__(principal, host)
        self._control = control
        self._entries: Mapping[Uuid, AccessControlEntry] | None = None
        self._known: dict[tuple[AclOperation, AclResourceType, str], Verdict] = {}

    def may(
        self,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str = CLUSTER_NAME,
        *,
        is_noted: bool = True,
    ) -> bool:
        """See Access."""
        entries = self._control.acls().entries
        if entries is not self._entries:
            self._known.clear()
            self._entries = entries
        key = (operation, resource_type, name)
        verdict = self._known.get(key)
        if verdict is None:
            verdict = self._control.authorize(self.principal, self.host, operation, resource_type, name)
            if len(name) <= NAME_LENGTH_MAX:
                if len(self._known) >= KNOWN_MAX:
                    self._known.clear()
                self._known[key] = verdict
        if not verdict.is_allowed and is_noted:
            self._control.on_denied(self.principal, self.host, Right(operation, resource_type), name, verdict)
        return verdict.is_allowed

    def may_any(self, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """See Access."""
        verdict = self._control.authorize_any(self.principal, self.host, operation, resource_type)
        if not verdict.is_allowed:
            self._control.on_denied(self.principal, self.host, Right(operation, resource_type), "(any)", verdict)
        return verdict.is_allowed


class AccessControl:
    """Gives connections their access. One for each lane that asks."""

    def __init__(
        self,
        authorizer: Authorizer | None = None,
        *,
        acls: Callable[[], AclsImage] | None = None,
        on_denied: OnDenied | None = None,
    ) -> None:
        """`authorizer`: None allows everything. `acls`: those of the image that is current on this lane."""
        assert authorizer is None or acls is not None, "an authorizer needs ACLs"
        self._authorizer = authorizer
        self._acls = acls
        self._on_denied = on_denied

    def of(self, principal: str, host: str) -> Access:
        """The rights of a client that comes as `principal` from the address `host`."""
        return Access(principal, host) if self._authorizer is None else GuardedAccess(self, principal, host)

    def acls(self) -> AclsImage:
        """The current ones."""
        assert self._acls is not None, "only an authorizer asks for ACLs"
        return self._acls()

    def authorize(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> Verdict:
        """By the current ACLs."""
        return self._current().authorize(principal, host, operation, resource_type, name)

    def authorize_any(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType
    ) -> Verdict:
        """By the current ACLs."""
        return self._current().authorize_any(principal, host, operation, resource_type)

    def on_denied(self, principal: str, host: str, right: Right, name: str, verdict: Verdict) -> None:
        """Report a denial."""
        if self._on_denied is not None:
            self._on_denied(principal, host, right, name, verdict)

    def _current(self) -> Authorizer:
        authorizer = self._authorizer
        assert authorizer is not None, "without an authorizer nobody asks"
        authorizer.follow(self.acls().entries)
        return authorizer
