"""ssl.principal.mapping.rules: the name of a client from the subject of its certificate.

May touch:  its arguments.            Must not touch: files, certificates.
Invariants: the first rule whose pattern matches the whole subject decides; a subject that none matches is refused.
Read next:  tls.py.

Rules are Kafka's: `RULE:PATTERN/REPLACEMENT/[LU]` and `DEFAULT`, with commas between them. Patterns are regular expressions;
`$1` in the replacement is the first group; L and U write the name in lower or upper case.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from barnabas_broker.config.keys import ConfigError

KEY = "ssl.principal.mapping.rules"
DEFAULT = "DEFAULT"
_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")


class MappingRule(NamedTuple):
    """One rule; a pattern of None takes every subject as it is."""

    pattern: re.Pattern[str] | None
    replacement: str
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
            rules.append(MappingRule(None, "", ""))
        else:
            try:
                compiled = re.compile(pattern)
            except re.error as error:
                raise ConfigError(f"{KEY}: {pattern!r} is not a regular expression: {error}") from None
            if (
                len(re.findall(r"\$(\d)", replacement))
                and max(map(int, re.findall(r"\$(\d)", replacement))) > compiled.groups
            ):
                raise ConfigError(f"{KEY}: {replacement!r} names a group that {pattern!r} does not have")
            rules.append(MappingRule(compiled, re.sub(r"\$(\d)", r"\\g<\1>", replacement), case))
        position = found.end()
    return tuple(rules) or (MappingRule(None, "", ""),)


def map_subject(rules: Sequence[MappingRule], subject: str) -> str | None:
    """The name of who shows a certificate with this subject (RFC 4514); None when no rule takes it."""
    for pattern, replacement, case in rules:
        if pattern is None:
            return subject
        found = pattern.fullmatch(subject)
        if found is not None:
            name = found.expand(replacement)
            return name.lower() if case == "L" else name.upper() if case == "U" else name
    return None
