"""What requests and answers of Fetch share in bytes: counts, topics by name or id, numbers.

May touch:  ../primitives.py.        Must not touch: the declared classes.
Invariants: nothing is allocated by a count that the bytes may not bear out.
Read next:  fetch_request.py, fetch_response.py.
"""

from __future__ import annotations

import struct as struct_module
from collections.abc import Sequence
from typing import Any

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.primitives import malformed, new_uuid, read_compact_string, read_string, read_uvarint

unpack_int32 = struct_module.Struct(">i").unpack_from
unpack_int64 = struct_module.Struct(">q").unpack_from
pack_int32 = struct_module.Struct(">i").pack


def read_count(view: memoryview, p: int, is_flexible: bool) -> tuple[int, int]:
    """Count of a non-null array. It bounds a loop, never an allocation: each turn must find its own bytes."""
    if is_flexible:
        count = view[p]
        if count < 0x80:
            p += 1
        else:
            count, p = read_uvarint(view, p)
        count -= 1
    else:
        (count,) = unpack_int32(view, p)
        p += 4
    if count < 0:
        malformed("array", count)
    return count, p


def read_topic(view: memoryview, p: int, end: int, version: int) -> tuple[str | Uuid, int]:
    """A topic's name, or its id from version 13 on, and where it ends. Raises MalformedMessage."""
    if version >= 13:
        stop = p + 16
        if stop > end:
            malformed("topic id", 16)
        return new_uuid(view[p:stop]), stop
    name, p = (read_compact_string if version >= 12 else read_string)(view, p, end)
    return (malformed("topic", -1) if name is None else name), p


def by_topic(partitions: Sequence[Any]) -> list[tuple[str | Uuid, list[Any]]]:
    """(topic, its partitions) of plain tuples that begin with the topic, as far as those of one topic stand together."""
    groups: list[tuple[str | Uuid, list[Any]]] = []
    last: str | Uuid | None = None
    for partition in partitions:
        if partition[0] != last:
            last = partition[0]
            groups.append((last, []))
        groups[-1][1].append(partition)
    return groups
