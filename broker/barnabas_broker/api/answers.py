"""What handlers put into answers alike.

May touch:  its arguments.            Must not touch: everything else.
Invariants: no error is code 0 without a message; an error without words has a null message, as Kafka sends it.
Read next:  registry.py, which answers for a handler that raised.
"""

from __future__ import annotations

from typing import Any

from barnabas_wire.kafka.errors import ErrorCode, KafkaError

ERROR_MESSAGE_MAX = 4_000
"""Characters. The wire's bound is 32,767 bytes, of which a character takes at most four."""


def error_fields(error: KafkaError | None) -> dict[str, Any]:
    """The fields error_code and error_message of an answer, or of one item of it."""
    if error is None:
        return {"error_code": ErrorCode.NONE, "error_message": None}
    return {"error_code": error.code, "error_message": message_of(error)}


def message_of(error: KafkaError) -> str | None:
    """The words of an error, cut where an answer could not carry them: they quote what the client named, of any length."""
    message = error.message
    return f"{message[:ERROR_MESSAGE_MAX]}…" if len(message) > ERROR_MESSAGE_MAX else message or None
