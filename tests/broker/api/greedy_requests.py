"""The greediest requests that a declared message allows: few bytes that are many elements, or name what is dear, again and again.

May touch:  the declarations (schema.fields_of).    Must not touch: sockets, clock.
Invariants: a body is well formed and at most as long as asked; it follows from the declaration alone, so that a new API needs
            nothing here.
Read next:  greedy.py, which sends them to a node and counts what they cost.

A shape is a field that is made as long as fits (an array of the smallest elements, or one string), with one text and one number in
all other fields. Texts: the name of something that exists, null or nothing, names that are all different. Numbers: the kinds and
codes that APIs know, or all different. Whoever looks for the greediest shape tries all at a small size and keeps the worst.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from barnabas_wire.kafka.primitives import STRING_BYTES_MAX, write_uvarint
from barnabas_wire.kafka.schema import FieldSpec, fields_of

DISTINCT = "distinct"
"""In the place of a text or a number: another one each time."""
NUMBERS: tuple[int | str, ...] = (0, 2, 4, DISTINCT)
_CODES = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q"}
_DIGITS = "abcdefghijklmnopqrstuvwxyz0123456789"
_SPARE_BYTES = 16
"""For counts and lengths that grow with what they count."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of greedy request."""

    cls: type[Any]
    version: int
    path: tuple[str, ...]
    """Names of the fields down to the one that is made long."""
    text: str | None
    number: int | str
    topic_id: bytes
    """What stands for an id where numbers are neither 0 nor different."""
    fixed: Mapping[str, Any]
    """Fields by name that have this value instead, such as time-outs."""

    @property
    def is_flexible(self) -> bool:
        """Whether lengths are compact and tagged fields follow."""
        return self.version >= self.cls.FLEXIBLE_FROM

    def body(self, size: int, elements_max: int) -> bytes:
        """A body of at most `size` bytes and so many elements, and nearly as many of the one or the other."""
        least = len(_Body(self, 0).structure(self.cls, ()))
        two = len(_Body(self, 2, serial=1 << 20).structure(self.cls, ()))
        four = len(_Body(self, 4, serial=1 << 20).structure(self.cls, ()))
        each = max(1, (four - two) // 2)
        count = max(0, size - least - _SPARE_BYTES) // each
        *_, last = specs = _specs(self.cls, self.path)
        if last is not None and last.kind == "array":
            arrays_above = sum(spec is not None and spec.kind == "array" for spec in specs[:-1])
            count = min(count, elements_max - arrays_above)
        return _Body(self, count).structure(self.cls, ())

    def __str__(self) -> str:
        return f"{'.'.join(self.path) or '-'} text={self.text} number={self.number}"


def _specs(cls: type[Any], path: tuple[str, ...]) -> list[FieldSpec | None]:
    """The fields of a path; one None for the empty one."""
    found: list[FieldSpec | None] = []
    for name in path:
        spec = dict(fields_of(cls))[name]
        found.append(spec)
        cls = spec.element
    return found or [None]


def shapes(
    cls: type[Any], version: int, *, name: str, topic_id: bytes, fixed: Mapping[str, Any]
) -> Iterator[list[Shape]]:
    """For every field that can be long, its shapes."""
    paths = list(_long_fields(cls, version, ())) or [()]
    for path in paths:
        first = Shape(cls, version, path, name, 0, topic_id, fixed)
        yield [replace(first, number=number, text=text) for text in (name, None, DISTINCT) for number in NUMBERS]


def _long_fields(cls: type[Any], version: int, prefix: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, spec in fields_of(cls):
        if not spec.exists(version) or spec.tag is not None:
            continue
        path = (*prefix, name)
        if spec.kind in ("array", "string", "bytes"):
            yield path
        if spec.kind in ("array", "struct") and isinstance(spec.element, type):
            yield from _long_fields(spec.element, version, path)


class _Body:
    """Writes one body."""

    def __init__(self, shape: Shape, count: int, *, serial: int = 0) -> None:
        self._shape = shape
        self._count = count
        self._serial = serial

    def structure(self, cls: type[Any], prefix: tuple[str, ...]) -> bytes:
        out = bytearray()
        for name, spec in fields_of(cls):
            if spec.exists(self._shape.version) and spec.tag is None:
                out += self._value(spec, (*prefix, name))
        if self._shape.is_flexible:
            out += b"\0"
        return bytes(out)

    def _value(self, spec: FieldSpec, path: tuple[str, ...]) -> bytes:
        shape = self._shape
        is_nullable = shape.version >= spec.nullable_since
        is_on_path = path == shape.path[: len(path)]
        if spec.kind == "struct":
            if is_nullable and not is_on_path:
                return b"\xff"
            return (b"\1" if is_nullable else b"") + self.structure(spec.element, path)
        if spec.kind == "array":
            count = self._count if path == shape.path else int(is_on_path)
            out = bytearray(self._length(count, "i"))
            for _ in range(count):
                is_structure = isinstance(spec.element, type)
                out += self.structure(spec.element, path) if is_structure else self._scalar(spec.element, False)
            return bytes(out)
        if path == shape.path:
            return self._long(spec.kind)
        if path[-1] in shape.fixed:
            return self._written(spec.kind, shape.fixed[path[-1]])
        return self._scalar(spec.kind, is_nullable)

    def _length(self, length: int, legacy: str) -> bytes:
        return write_uvarint(length + 1) if self._shape.is_flexible else struct.pack(f">{legacy}", length)

    def _long(self, kind: str) -> bytes:
        count = min(self._count, STRING_BYTES_MAX) if kind == "string" else self._count
        return self._length(count, "h" if kind == "string" else "i") + b"x" * count

    def _scalar(self, kind: str, is_nullable: bool) -> bytes:
        shape = self._shape
        if kind == "string":
            text = self._next_text() if shape.text == DISTINCT else shape.text
            return self._written(kind, text if text is not None or is_nullable else "")
        if kind in ("bytes", "records"):
            return self._length(-1 if is_nullable else 0, "i")
        if kind == "uuid":
            if shape.number == DISTINCT:
                return self._next_text().encode().ljust(16, b"\0")[:16]
            return shape.topic_id if shape.number else bytes(16)
        if kind in _CODES and shape.number == DISTINCT:
            self._serial += 1
            return self._written(kind, self._serial & (1 << struct.calcsize(_CODES[kind]) * 8 - 1) - 1)
        return self._written(kind, 1.0 if kind == "float64" else kind == "boolean" or shape.number)

    def _written(self, kind: str, value: Any) -> bytes:
        if kind == "string":
            raw = value.encode() if value is not None else b""
            return self._length(len(raw) if value is not None else -1, "h") + raw
        return struct.pack(f">{_CODES.get(kind, {'boolean': '?', 'float64': 'd'}.get(kind))}", value)

    def _next_text(self) -> str:
        self._serial += 1
        number, text = self._serial, ""
        while number:
            number, digit = divmod(number, len(_DIGITS))
            text = _DIGITS[digit] + text
        return text
