"""Kafka's `sasl.jaas.config`: one line that names a login module and its options. The module's name is read, never run.

May touch:  its arguments.            Must not touch: files, classes, imports by name (CVE-2023-25194).
Invariants: no error text shows a value.
Read next:  properties.py; broker/security/listener_security.py.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" password="secret" user_alice="hers";
"""

from __future__ import annotations

import re
from typing import NamedTuple

PLAIN_MODULE = "PlainLoginModule"
SCRAM_MODULE = "ScramLoginModule"
_USER_PREFIX = "user_"
_LINE = re.compile(
    r"\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(?P<options>.*);\s*", re.DOTALL
)
_OPTION = re.compile(
    r"""\s*(?P<name>[^\s="';]+)\s*=\s*(?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>[^']*)'|(?P<bare>[^\s"';]+))"""
)


class JaasLine(NamedTuple):
    """What a line says."""

    module: str
    """The last part of the module's class name."""
    username: str
    """Who this broker is to others; empty if the line names nobody."""
    password: str
    users: dict[str, str]
    """Passwords of the users that this broker lets in, by name."""
    options: dict[str, str]
    """All that the line says."""


def parse(key: str, text: str) -> JaasLine:
    """Read the value of `key`. Raises ValueError, without any part of the value."""
    line = _LINE.fullmatch(text)
    if line is None:
        raise ValueError(f'{key} is not a JAAS line: write MODULE required username="…" password="…" user_NAME="…";')
    options: dict[str, str] = {}
    rest = line["options"].strip()
    while rest:
        option = _OPTION.match(rest)
        if option is None:
            raise ValueError(f'{key}: an option is not NAME="VALUE"; quote values and end the line with a semicolon')
        value = option["double"] if option["double"] is not None else option["single"] or option["bare"] or ""
        options[option["name"]] = re.sub(r"\\(.)", r"\1", value) if option["double"] is not None else value
        rest = rest[option.end() :].strip()
    users = {name.removeprefix(_USER_PREFIX): value for name, value in options.items() if name.startswith(_USER_PREFIX)}
    return JaasLine(
        line["module"].rpartition(".")[2], options.get("username", ""), options.get("password", ""), users, options
    )
