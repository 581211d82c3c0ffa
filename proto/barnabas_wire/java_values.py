"""Numbers and booleans as Java spells them in configs: what Kafka's tools take, is taken, and what they refuse, is not.

May touch:  its arguments.            Must not touch: the keys that have these values.
Invariants: every function raises ValueError for what Java's parser refuses; Python's own spellings (1_000, inf, nan) are among it.
Read next:  broker/barnabas_broker/config/keys.py and log/barnabas_log/config.py.
"""

from __future__ import annotations

import re

_FLOAT = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_NO_DIGITS = re.compile(r"([+-]?)(NaN|Infinity)")


def java_boolean(text: str) -> bool:
    """`true` or `false` in any case, as ConfigDef takes them."""
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError("use true or false")
    return word == "true"


def java_int(text: str) -> int:
    """As Long.parseLong reads it, whatever its size: a sign and digits."""
    if "_" in text:
        raise ValueError(f"{text!r} is no whole number: leave out the _")
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is no whole number") from None


def java_float(text: str) -> float:
    """As Double.parseDouble reads it, but for hexadecimal digits: 0.5, .5, 1e-3, 1.0f, NaN, Infinity."""
    stripped = text.strip()
    found = _FLOAT.fullmatch(stripped) or _NO_DIGITS.fullmatch(stripped)
    if found is None:
        raise ValueError(f"{text!r} is no number")
    return float(stripped.rstrip("fFdD") if found.re is _FLOAT else stripped)
