"""What the address of a page asks for: numbers, and which part of a long list.

May touch:  its arguments.            Must not touch: everything else.
Invariants: what no number is is refused in words; a page beyond the last is the last.
Read next:  pages.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from barnabas_admin.errors import WrongUsage

Query = Mapping[str, str]


def page_of(rows: Sequence[Any], query: Query, size: int) -> tuple[int, int, list[Any]]:
    """Which page of so many, and the rows on it."""
    pages = max(1, math.ceil(len(rows) / size))
    page = min(pages, max(1, number_of(query.get("page", "1"), "page")))
    return page, pages, list(rows[(page - 1) * size : page * size])


def number_of(text: str, name: str) -> int:
    """The number that a text in an address is. Raises WrongUsage, with the name of what it should be."""
    if not text.isdecimal():
        raise WrongUsage(f"{name} is a number from 0 on, not {text!r}")
    return int(text)
