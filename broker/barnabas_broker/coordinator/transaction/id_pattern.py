"""A stranger's pattern of transactional ids, as ListTransactions v2 has it (KIP-1152), in RE2's syntax.

May touch:  the bytes of a pattern, RE2.        Must not touch: transactions.
Invariants: a match takes time linear in the id, and the compiled pattern PATTERN_BYTES_MAX of memory at most, whatever the pattern is.
Read next:  service.py, whose ids it filters; ../../api/transactions.py.

Kafka matches with RE2/J, we with RE2 itself, whose syntax it is: both refuse back-references and look-around. Python's `re` is no
choice: it backtracks, and one request of a stranger would have the loop for ever. RE2 is loaded by the first pattern, 6 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas_wire.kafka.errors import ErrorCode, KafkaError

PATTERN_BYTES_MAX: Final = 256 * 1024
"""Of memory for a compiled pattern and the states of its matcher: RE2's own 8 MiB would let one pattern take the loop for a second.
Four thousand letters, or 200 alternatives of ten, fit: 2 us an id (measured; 140 us for the worst pattern found)."""


def compile_id_pattern(pattern: str) -> Callable[[str], bool]:
    """Whether an id as a whole matches the pattern.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION, with RE2's words for what is wrong.
    """
    import re2

    options = re2.Options()
    options.max_mem = PATTERN_BYTES_MAX
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        (said,) = error.args
        words = said.decode(errors="replace") if isinstance(said, bytes) else said
        raise KafkaError.of(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"the pattern of transactional ids {pattern[:100]!r} is invalid: {words}",
        ) from error
    full_match = compiled.fullmatch
    return lambda transactional_id: full_match(transactional_id) is not None
