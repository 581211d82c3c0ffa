"""A stranger's pattern of transactional ids, as ListTransactions v2 has it (KIP-1152), in RE2's syntax.

May touch:  the bytes of a pattern.             Must not touch: transactions.
Invariants: barnabas_wire/linear_pattern.py's.
Read next:  service.py, whose ids it filters; barnabas_broker/api/transactions.py.

Kafka matches with RE2/J, we with RE2 itself, whose syntax it is: both refuse back-references and look-around.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.linear_pattern import InvalidPattern, compile_linear


def compile_id_pattern(pattern: str) -> Callable[[str], bool]:
    """Whether an id as a whole matches the pattern.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION, with RE2's words for what is wrong, or that it is not installed.
    """
    try:
        full_match = compile_linear(pattern).fullmatch
    except InvalidPattern as error:
        raise KafkaError.of(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"the pattern of transactional ids {pattern[:100]!r} is refused: {error}",
        ) from error
    return lambda transactional_id: full_match(transactional_id) is not None
