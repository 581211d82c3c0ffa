"""What handlers put into answers alike.

May touch:  its arguments.            Must not touch: everything else.
Invariants: no error is code 0 without a message; an error without words has a null message, as Kafka sends it.
Read next:  registry.py, which answers for a handler that raised.
"""

from __future__ import annotations

from typing import Any

from barnabas_wire.kafka.errors import ErrorCode, KafkaError


def error_fields(error: KafkaError | None) -> dict[str, Any]:
    """The fields error_code and error_message of an answer, or of one item of it."""
    if error is None:
        return {"error_code": ErrorCode.NONE, "error_message": None}
    return {"error_code": error.code, "error_message": error.message or None}
