"""A regular expression whose match takes time linear in the text: RE2, for every pattern or text that a stranger chooses.

May touch:  the pattern, RE2.         Must not touch: what it is matched for.
Invariants: a match takes time linear in the text, and the compiled pattern PATTERN_BYTES_MAX of memory at most, whatever the two are.
Read next:  barnabas_coordination/transaction/id_pattern.py (a stranger's pattern),
            barnabas_broker/security/principal_mapping.py (a stranger's text).

Python's `re` is no choice: it backtracks, and one text would have the loop for ever. RE2 refuses back-references and look-around, as
RE2/J does, which Kafka matches transactional ids with. It is loaded by the first pattern, 6 ms.

RE2 comes with the extra `patterns`: no linear matcher has wheels for musl and for Python 3.15. Without it every pattern is refused
in words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import re2

PATTERN_BYTES_MAX: Final = 256 * 1024
"""Memory for a compiled pattern and the states of its matcher: RE2's own 8 MiB would let one pattern take the loop for a second.
Four thousand letters, or 200 alternatives of ten, fit: 2 us an id (measured; 140 us for the worst pattern found)."""
NO_MATCHER: Final = (
    "there is no matcher whose time is linear in the text here; install google-re2: pip install 'barnabas[patterns]'"
)


class InvalidPattern(ValueError):
    """RE2 does not take a pattern, or is not there; the words say why."""


def compile_linear(pattern: str) -> re2._Regexp:
    """Raises InvalidPattern."""
    try:
        import re2
    except ImportError:
        raise InvalidPattern(NO_MATCHER) from None
    options = re2.Options()
    options.max_mem = PATTERN_BYTES_MAX
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        (said,) = error.args
        raise InvalidPattern(said.decode(errors="replace") if isinstance(said, bytes) else said) from error
