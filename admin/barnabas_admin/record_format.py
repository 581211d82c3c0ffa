"""How a record is printed, and which are: kcat's format string, columns, JSON, filters.

May touch:  its arguments.            Must not touch: the brokers, output streams.
Invariants: what -o json prints, `topic produce --input jsonl` reads; bytes that are no UTF-8 travel as base64.
Read next:  commands/consume.py.
"""

from __future__ import annotations

import base64
import fnmatch
import json
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from barnabas_admin.errors import WrongUsage
from barnabas_admin.output import API_VERSION, json_text
from barnabas_wire.lazy_dataclass import dataclass
from barnabas_wire.moments import iso_text

if TYPE_CHECKING:
    from barnabas_wire.records.batch import Record

Formatter = Callable[[str, int, "Record"], bytes]
"""(topic, partition, record) -> what is printed, its line end included."""

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
VERBS = "%t topic, %p partition, %o offset, %k key, %s or %v value, %K and %S their lengths (-1 for none), %h headers, %T timestamp, %%"


def _headers_text(record: Record) -> bytes:
    from barnabas_wire.records.batch import header_name_bytes

    return b",".join(
        header_name_bytes(name) + b"=" + (b"NULL" if value is None else value) for name, value in record.headers
    )


_PARTS: dict[str, Formatter] = {
    "t": lambda topic, partition, record: topic.encode(),
    "p": lambda topic, partition, record: b"%d" % partition,
    "o": lambda topic, partition, record: b"%d" % record.offset,
    "k": lambda topic, partition, record: record.key or b"",
    "s": lambda topic, partition, record: record.value or b"",
    "v": lambda topic, partition, record: record.value or b"",
    "K": lambda topic, partition, record: b"%d" % (-1 if record.key is None else len(record.key)),
    "S": lambda topic, partition, record: b"%d" % (-1 if record.value is None else len(record.value)),
    "h": lambda topic, partition, record: _headers_text(record),
    "T": lambda topic, partition, record: b"%d" % record.timestamp_ms,
}


def compile_format(text: str) -> Formatter:
    r"""A formatter of kcat's -f: % verbs, \n \t \r \0 \\ \xHH. Raises WrongUsage for another verb."""
    pieces: list[bytes | Formatter] = []
    for found in re.finditer(r"%(.)|%$|\\x([0-9A-Fa-f]{2})|\\(.)|[^%\\]+|.", text, re.DOTALL):
        verb, code, escape = found.groups()
        if found[0] == "%" or (verb and verb not in _PARTS and verb != "%"):
            raise WrongUsage(f"-f: %{verb or ''} is not known", hint=f"use {VERBS}")
        if verb:
            pieces.append(b"%" if verb == "%" else _PARTS[verb])
        elif code:
            pieces.append(bytes([int(code, 16)]))
        else:
            pieces.append(_ESCAPES.get(escape, escape.encode()) if escape else found[0].encode())

    def format_one(topic: str, partition: int, record: Record) -> bytes:
        return b"".join(piece if isinstance(piece, bytes) else piece(topic, partition, record) for piece in pieces)

    return format_one


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What stands before the value in a line of text."""

    has_topic: bool = False
    has_timestamp: bool = False
    has_partition: bool = False
    has_offset: bool = False
    has_headers: bool = False
    key_separator: str | None = None
    """The key and this come before the value."""


def text_formatter(columns: Columns) -> Formatter:
    """Columns that are asked for, tabs between them, then the value."""

    def format_one(topic: str, partition: int, record: Record) -> bytes:
        before = []
        if columns.has_timestamp:
            before.append(iso_text(record.timestamp_ms).encode() if record.timestamp_ms >= 0 else b"-")
        if columns.has_topic:
            before.append(topic.encode())
        if columns.has_partition:
            before.append(b"%d" % partition)
        if columns.has_offset:
            before.append(b"%d" % record.offset)
        if columns.has_headers:
            before.append(_headers_text(record))
        key = b""
        if columns.key_separator is not None:
            key = (record.key or b"") + columns.key_separator.encode()
        return b"".join(column + b"\t" for column in before) + key + (record.value or b"") + b"\n"

    return format_one


def json_line(topic: str, partition: int, record: Record) -> bytes:
    """A record as one line of JSON."""
    from barnabas_wire.records.batch import header_name_bytes

    fields: dict[str, Any] = {
        "api_version": API_VERSION,
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_to_json("key", record.key),
        **_to_json("value", record.value),
        "headers": [
            {**_to_json("name", header_name_bytes(name)), **_to_json("value", value)} for name, value in record.headers
        ],
    }
    return json_text(fields).encode() + b"\n"


def _to_json(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


class Filter:
    """Which records are printed: all globs must match. A record without a key matches no glob of keys.

    Args:
        keys, values: globs (`*`, `?`, `[a-c]`).
        headers: (name, glob of its value).
        fields: (path, glob) of a field of a value that is JSON: names and numbers with dots, `order.items.0.sku`. Text is matched
            as it is, anything else as JSON writes it.
        contains: a text that key, value or a header's value must contain; letters count as they are.
    """

    def __init__(
        self,
        *,
        keys: Sequence[str] = (),
        values: Sequence[str] = (),
        headers: Sequence[tuple[str, str]] = (),
        fields: Sequence[tuple[str, str]] = (),
        contains: str = "",
    ) -> None:
        self._keys = [_compiled(glob) for glob in keys]
        self._values = [_compiled(glob) for glob in values]
        self._headers = [(name, _compiled(glob)) for name, glob in headers]
        self._fields = [(path.split("."), _compiled(glob)) for path, glob in fields]
        self._needle = contains.encode()

    def __bool__(self) -> bool:
        """Whether it leaves out any record."""
        return bool(self._keys or self._values or self._headers or self._fields or self._needle)

    def passes(self, record: Record) -> bool:
        """Whether it is printed."""
        return (
            all(_matches(glob, record.key) for glob in self._keys)
            and all(_matches(glob, record.value) for glob in self._values)
            and all(
                any(name == wanted and _matches(glob, value) for name, value in record.headers)
                for wanted, glob in self._headers
            )
            and (not self._needle or _contains(record, self._needle))
            and (not self._fields or self._has_fields(record.value))
        )

    def _has_fields(self, value: bytes | None) -> bool:
        """Whether a value is JSON that has all fields."""
        if value is None or value[:1] not in (b"{", b"["):
            return False
        try:
            whole = json.loads(value)
        except (ValueError, RecursionError):
            return False
        return all(_matches(glob, _field_bytes(whole, path)) for path, glob in self._fields)


def pairs_of(texts: Sequence[str], *, what: str) -> list[tuple[str, str]]:
    """NAME=GLOB, each cut at its first `=`. Raises WrongUsage, which begins with `what`."""
    found = []
    for text in texts:
        name, separator, glob = text.partition("=")
        if not (name and separator):
            raise WrongUsage(f"{what}: {text!r} is not NAME=GLOB")
        found.append((name, glob))
    return found


def _contains(record: Record, needle: bytes) -> bool:
    parts = (record.key, record.value, *(part for _, part in record.headers))
    return any(part is not None and needle in part for part in parts)


def _field_bytes(whole: Any, path: Sequence[str]) -> bytes | None:
    """What a path leads to, as a glob sees it; None where there is nothing."""
    for name in path:
        if isinstance(whole, dict) and name in whole:
            whole = whole[name]
        elif isinstance(whole, list) and name.isdecimal() and int(name) < len(whole):
            whole = whole[int(name)]
        else:
            return None
    return (whole if isinstance(whole, str) else json.dumps(whole, ensure_ascii=False)).encode(errors="surrogatepass")


def _compiled(glob: str) -> re.Pattern[bytes]:
    return re.compile(fnmatch.translate(glob).encode(), re.DOTALL)


def _matches(glob: re.Pattern[bytes], data: bytes | None) -> bool:
    return data is not None and glob.match(data) is not None
