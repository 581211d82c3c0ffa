"""ssl.principal.mapping.rules: the name of a client from the subject of its certificate.

May touch:  its arguments.            Must not touch: files, certificates.
Invariants: the first rule whose pattern matches the whole subject decides; a subject that none matches is refused; a match takes
            time linear in the subject, which whoever got the certificate chose.
Read next:  barnabas_wire/linear_pattern.py; tls.py.

Rules are Kafka's: `RULE:PATTERN/REPLACEMENT/[LU]` and `DEFAULT`, with commas between them. Patterns are regular expressions;
`$1` in the replacement is the first group, a backslash takes the next character as it is; L and U write the name in lower or upper case.
Difference from Kafka: patterns are RE2's, without back-references and look-around; a node with one of those does not start and says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from barnabas_broker.config.keys import ConfigError
from barnabas_wire.linear_pattern import InvalidPattern, compile_linear

if TYPE_CHECKING:
    import re2

KEY = "ssl.principal.mapping.rules"
DEFAULT = "DEFAULT"
_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_PART = re.compile(r"\$(\d)|\\(.)|([^$\\]+|.)", re.DOTALL)


class MappingRule(NamedTuple):
    """One rule; a pattern of None takes every subject as it is."""

    pattern: re2._Regexp | None
    replacement: tuple[str | int, ...]
    """Text as it is, and numbers of groups."""
    case: str


def parse_rules(text: str) -> tuple[MappingRule, ...]:
    """The rules of the key's value. Raises ConfigError."""
    rules = []
    position = 0
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None or found.end() == position:
            raise ConfigError(
                f"{KEY}: cannot read {text[position:]!r}: write RULE:PATTERN/REPLACEMENT/[LU] or DEFAULT, with commas"
            )
        default, pattern, replacement, case = found.groups()
        if default:
            rules.append(MappingRule(None, (), ""))
        else:
            try:
                compiled = compile_linear(pattern)
            except InvalidPattern as error:
                raise ConfigError(
                    f"{KEY}: {pattern!r} is not a regular expression of RE2, which has neither look-around nor back-references: {error}"
                ) from None
            parts = _parts(replacement)
            if max((part for part in parts if isinstance(part, int)), default=0) > compiled.groups:
                raise ConfigError(f"{KEY}: {replacement!r} names a group that {pattern!r} does not have")
            rules.append(MappingRule(compiled, parts, case))
        position = found.end()
    return tuple(rules) or (MappingRule(None, (), ""),)


def _parts(replacement: str) -> tuple[str | int, ...]:
    return tuple(int(group) if group else escaped or plain for group, escaped, plain in _PART.findall(replacement))


def map_subject(rules: Sequence[MappingRule], subject: str) -> str | None:
    """The name of who shows a certificate with this subject (RFC 4514); None when no rule takes it."""
    for pattern, replacement, case in rules:
        if pattern is None:
            return subject
        found = pattern.fullmatch(subject)
        if found is not None:
            name = "".join((found.group(part) or "") if isinstance(part, int) else part for part in replacement)
            return name.lower() if case == "L" else name.upper() if case == "U" else name
    return None
