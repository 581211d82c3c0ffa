"""Keys that say whether ACLs are enforced, and by whom everything may be done.

May touch:  its fields.               Must not touch: files, environment, ACLs.
Invariants: names and defaults are Kafka's; without authorizer.class.name no right is asked for.
Read next:  access.py; barnabas_quorum/image/authorizer.py.
"""

from __future__ import annotations

from barnabas_quorum.image.authorizer import STANDARD_AUTHORIZER, Authorizer, parse_super_users
from barnabas_wire.config_key import config_key
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationConfig:
    """What a node takes from its properties; the same on every node."""

    authorizer_class_name: str = config_key(
        "authorizer.class.name",
        "",
        f"Enforce the cluster's ACLs: {STANDARD_AUTHORIZER}, whose rules are followed. Empty: everybody may do everything.",
    )
    super_users: str = config_key(
        "super.users",
        "",
        "Principals that may do everything, User:NAME with semicolons between them. The brokers' own belong here, or they need an ACL "
        "that allows CLUSTER_ACTION.",
    )
    allow_everyone_if_no_acl_found: bool = config_key(
        "allow.everyone.if.no.acl.found",
        False,
        "Whether a resource that no ACL is about is open to everybody, or only to super users.",
    )

    def __post_init__(self) -> None:
        if self.authorizer_class_name not in ("", STANDARD_AUTHORIZER):
            raise ValueError(
                f"authorizer.class.name={self.authorizer_class_name}: no Java class is run here; use {STANDARD_AUTHORIZER}, whose rules "
                "are built in, or leave it empty"
            )
        try:
            parse_super_users(self.super_users)
        except ValueError as error:
            raise ValueError(f"super.users={self.super_users}: {error}") from None
        if not self.authorizer_class_name:
            for key, is_set in (
                ("super.users", bool(self.super_users)),
                ("allow.everyone.if.no.acl.found", self.allow_everyone_if_no_acl_found),
            ):
                if is_set:
                    raise ValueError(
                        f"{key} has no effect without an authorizer: set authorizer.class.name={STANDARD_AUTHORIZER}"
                    )

    def new_authorizer(self) -> Authorizer | None:
        """One for each lane; None where no right is asked for."""
        if not self.authorizer_class_name:
            return None
        return Authorizer(
            super_users=parse_super_users(self.super_users),
            allows_everyone_if_no_acl=self.allow_everyone_if_no_acl_found,
        )
