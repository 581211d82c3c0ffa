"""The errors of the command line and its clients: a code, a message, and what mends it.

May touch:  its arguments.            Must not touch: everything else.
Invariants: whatever a command raises on purpose is an AdminError; the exit code follows from the error code.
Read next:  invocation.py, which prints them.
"""

from __future__ import annotations

from barnabas_wire.kafka.errors import RETRIABLE_CODES, ErrorCode, KafkaError


class AdminError(KafkaError):
    """What was asked cannot be done; `hint` says what mends it, as a command where there is one."""

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode = ErrorCode.INVALID_REQUEST,
        hint: str = "",
        is_retriable: bool | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.hint = hint
        self._is_retriable = code in RETRIABLE_CODES if is_retriable is None else is_retriable

    @property
    def is_retriable(self) -> bool:
        """Whether the same request may succeed later, as the server says."""
        return self._is_retriable

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"


class WrongUsage(AdminError):
    """The command line or the environment says something that cannot be meant: the process ends with status 2, as for options."""


class NotAsked(AdminError):
    """No admin listener has taken the call: it may be made elsewhere without being made twice."""


class NoAdminListener(WrongUsage, NotAsked):
    """Kafka listeners are named, and no admin listener of their cluster is found from there."""


class LocalClusterError(AdminError):
    """A local cluster cannot be started or changed as asked."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, code=ErrorCode.UNKNOWN_SERVER_ERROR, hint=hint)
