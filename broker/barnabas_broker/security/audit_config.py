"""The keys of the audit log, and its counters. Apart from it, for every verb of the server reads the properties and few need the metadata.

May touch:  its arguments.            Must not touch: anything else.
Invariants: importing this loads no room beside.
Read next:  audit.py.
"""

from __future__ import annotations

from barnabas_wire.config_key import config_key
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditConfig:
    """What a node takes from its properties."""

    audit_log_path: str = config_key(
        "audit.log.path",
        "",
        "File that changes of the metadata are appended to, a JSON object a line; denials, logins and data changes have files beside "
        "it: its name with .denied, .login, .login-refused, .data-change and .offsets. Empty: none is written.",
    )
    audit_log_max_bytes: int = config_key(
        "audit.log.max.bytes",
        64 * 1024 * 1024,
        "Size at which each file of the audit log is renamed to its name with .1, in place of the former one, and begun anew.",
    )

    def __post_init__(self) -> None:
        if self.audit_log_max_bytes < 4096:
            raise ValueError(f"audit.log.max.bytes={self.audit_log_max_bytes}: use 4096 or more")


@dataclass(slots=True)
class AuditStats:
    """Since the start."""

    written: int = 0
    dropped: int = 0
    """Denials, logins and commits of offsets that are in no file and in no sum."""
    changes_elsewhere: int = 0
    """Changes that are in the node's log and in no file of the audit log."""
