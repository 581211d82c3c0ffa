"""What is taken out of anything that leaves the operator's hands: passwords, keys, tokens.

May touch:  its arguments.            Must not touch: files, network.
Invariants: the value goes, the name stays, so that who reads it knows what was set; in doubt a value goes.
Read next:  bundle.py.
"""

from __future__ import annotations

import re
from typing import Any

from barnabas_wire.java_properties import LINE_END, is_continued, parse_line

HIDDEN = "[hidden]"
_SECRET_KEY = re.compile(
    r"password|secret|jaas|credential|passphrase|passwd|(^|[._-])(private|keystore)[._-]key$", re.I
)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.S)
_QUOTED = re.compile(
    r"""(?i)\b((?:salted)?passw(?:or)?d|passphrase|secret|user_[\w.@-]+)(\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s,;\]}&"']+)"""
)
_TOKEN = re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]*")  # a JWT's header and claims are JSON objects: base64 of `{"`
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/-]{8,}=*")


def is_secret(key: str) -> bool:
    """Whether the value of a config key, or of a field of this name, must not be shown."""
    return _SECRET_KEY.search(key) is not None


def redact_text(text: str) -> str:
    """Any text: private keys, `password=…` in its forms, JAAS users, bearer tokens."""
    text = _PRIVATE_KEY.sub(f"{HIDDEN} private key", text)
    text = _QUOTED.sub(lambda found: f"{found[1]}{found[2]}{HIDDEN}", text)
    text = _TOKEN.sub(HIDDEN, text)
    return _BEARER.sub(lambda found: f"{found[1]} {HIDDEN}", text)


def redact_properties(text: str) -> str:
    """The lines of a properties file, continued ones joined; comments too, for old values are left in them."""
    lines: list[str] = []
    pending = ""
    for line in LINE_END.sub("\n", text).removesuffix("\n").split("\n"):
        # A comment's continuation is none for Java, but is what was commented out with it.
        joined = pending + line.lstrip("#! \t\f") if pending else line
        if is_continued(joined):
            pending = joined[:-1]
            continue
        pending = ""
        lines.append(_redact_line(joined))
    if pending:
        lines.append(_redact_line(pending))
    return "\n".join(lines) + "\n"


def _redact_line(line: str) -> str:
    plain = line.lstrip("#! \t\f")
    before = line[: len(line) - len(plain)]
    try:
        key, value = parse_line(plain)
    except ValueError:  # text, or what no node takes: where a key could be secret the whole line goes
        return before + HIDDEN if is_secret(plain) else redact_text(line)
    if is_secret(key):
        return f"{before}{key}={HIDDEN}" if value else line
    if redact_text(f"{key}={value}") != f"{key}={value}":
        return before + redact_text(f"{key}={value}")
    return redact_text(line)


def redact_json(value: Any) -> Any:
    """A JSON value: fields of a secret name, and the `value` of an object whose `key` or `name` is one."""
    if isinstance(value, dict):
        named = any(isinstance(value.get(name), str) and is_secret(value[name]) for name in ("key", "name"))
        return {
            key: HIDDEN
            if item not in (None, "", [], {})
            and not isinstance(item, bool)
            and (is_secret(key) or (named and key == "value"))
            else redact_json(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [redact_json(item) for item in value]
    return redact_text(value) if isinstance(value, str) else value
