"""What is taken out of anything that leaves the operator's hands: passwords, keys, tokens.

May touch:  its arguments.            Must not touch: files, network.
Invariants: the value goes, the name stays, so that who reads it knows what was set; in doubt a value goes.
Read next:  bundle.py.
"""

from __future__ import annotations

import re
from typing import Any

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
_PROPERTY = re.compile(r"^(\s*([\w.-]+)\s*[=:]\s*)(.+?)\s*$")


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
    """The lines of a properties file; comments too, for old values are left in them."""
    lines = []
    for line in text.splitlines():
        found = _PROPERTY.match(line.lstrip("#! "))
        if found is not None and is_secret(found[2]):
            lines.append(line[: len(line) - len(line.lstrip("#! "))] + found[1] + HIDDEN)
        else:
            lines.append(redact_text(line))
    return "\n".join(lines) + "\n"


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
