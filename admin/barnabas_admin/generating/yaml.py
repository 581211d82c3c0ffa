"""Plain data as YAML, in the order it has.

May touch:  its arguments.            Must not touch: everything else.
Invariants: what is written reads back as what was given; every text that is not a plain word is quoted as JSON, which YAML reads.
Read next:  kubernetes.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_PLAIN = re.compile(r"[A-Za-z/][\w./-]*")
_WORDS_WITH_A_MEANING = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def to_yaml(value: Any) -> str:
    """A document: mappings, lists, texts, numbers, booleans."""
    return "\n".join(_lines(value, 0)) + "\n"


def _lines(value: Any, depth: int) -> Iterator[str]:
    pad = "  " * depth
    if isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(item, Mapping | list) and item:
                yield f"{pad}{_scalar(key)}:"
                yield from _lines(item, depth + 1)
            else:
                yield f"{pad}{_scalar(key)}: {_scalar(item)}"
    else:
        for item in value:
            if isinstance(item, Mapping | list) and item:
                first, *rest = _lines(item, depth + 1)
                yield f"{pad}- {first.lstrip()}"
                yield from rest
            else:
                yield f"{pad}- {_scalar(item)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS_WITH_A_MEANING:
        return value
    return json.dumps(value, ensure_ascii=False)
