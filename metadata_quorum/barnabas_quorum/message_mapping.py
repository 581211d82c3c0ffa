"""How a dataclass becomes a protobuf message and back: compiled from the dataclass's annotations, once, when first used.

May touch:  its arguments, protobuf's descriptors.   Must not touch: records, requests, asyncio, files.
Invariants: a dataclass and its message have the same fields by the same names, or there is no mapping (MappingMismatch;
            tests/metadata_quorum/test_message_mapping.py compiles every mapping there is); what was written reads back equal;
            reading raises ValueError for a value that does not fit, nothing else.
Read next:  record_codec.py and driver/verbs.py, which say which dataclass is which message.

The annotation of a field says how it travels:

    int, str, bool, bytes, float, NewTypes of them, Uuid, IntEnum    the scalar of the same kind
    X | None                       `optional` in the message, and absent for None; a number without `optional` is 0 for None
    tuple[X, ...]                  `repeated`
    Mapping[K, V]                  a map, which is read in the order of its keys: a decision must not depend on protobuf's
    a dataclass, a NamedTuple      a message with the same fields
    tuple[X, Y]                    a message of as many fields, in the order of their numbers
    INLINED in its metadata        a dataclass whose fields stand in the message itself

What a dataclass has that its message lacks, or has elsewhere (`omitted`), is given by name when it is read; what the message has
besides (`envelope`), when it is written.

A message of one field wraps its value where the annotation has no level of its own for it: lists that may be absent, lists
of lists, items that may be None.

Two flat functions are written as source and compiled, as kafka/schema.py does for Kafka's messages: nothing is looked up
while a record of a million is read. A node uses few of the mappings, and all of them are a tenth of its start.
"""

from __future__ import annotations

import dataclasses
import linecache
import types
import typing
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from google.protobuf.message_factory import GetMessageClass

from barnabas_wire.kafka.ids import Uuid

INLINED = {"inlined": True}
"""Metadata of a field whose own fields stand in the message."""


class MappingMismatch(TypeError):
    """A dataclass and its message do not have the same fields, or a field of the one cannot hold what the other says."""


class MessageMapping:
    """One dataclass and one message. `write` gives the message of a value, with the envelope's fields that are given by name;
    `read` the value of a message, with the omitted fields that are (raises ValueError)."""

    __slots__ = ("_functions", "read", "write")

    def __init__(self, functions: Callable[[], tuple[Callable[..., Any], Callable[..., Any]]]) -> None:
        """functions: compiles `write` and `read`. Raises MappingMismatch."""
        self._functions = functions
        self.write: Callable[..., Any] = lambda value, **others: self.compile().write(value, **others)
        self.read: Callable[..., Any] = lambda message, **others: self.compile().read(message, **others)

    def compile(self) -> MessageMapping:
        """Put the two functions in place, as the first use does. Raises MappingMismatch."""
        self.write, self.read = self._functions()
        return self


class Conversion(NamedTuple):
    """A type with conversions of its own."""

    message_type: Any
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def mapping_of(
    kind: type,
    message_type: Any,
    *,
    envelope: frozenset[str] = frozenset(),
    omitted: frozenset[str] = frozenset(),
    conversions: Mapping[type, Conversion] | None = None,
    list_readers: Mapping[Any, Callable[[Any], Any]] | None = None,
) -> MessageMapping:
    """The mapping of a dataclass, which the first use compiles.

    Args:
        envelope: fields of the message that are not the dataclass's.
        omitted: fields of the dataclass that are not the message's.
        conversions: by type.
        list_readers: what makes a tuple of a repeated field, by its annotation, in place of `tuple`.
    """

    def functions() -> tuple[Callable[..., Any], Callable[..., Any]]:
        source = _Source(dict(conversions or {}), dict(list_readers or {}))
        write = source.writer(kind, message_type.DESCRIPTOR, envelope, omitted)
        read = source.reader(kind, message_type.DESCRIPTOR, envelope, omitted)
        namespace = source.compile(f"{kind.__name__} as {message_type.DESCRIPTOR.full_name}")
        return namespace[write], namespace[read]

    return MessageMapping(functions)


_NONE: frozenset[str] = frozenset()


class _Part(NamedTuple):
    """One field of a dataclass, a NamedTuple or a fixed tuple."""

    name: str
    hint: Any
    access: str
    """Behind the name of the value that has it."""


_SCALARS: dict[type, frozenset[str]] = {
    bool: frozenset({"BOOL"}),
    int: frozenset({"INT32", "INT64", "UINT32", "UINT64", "SINT32", "SINT64"}),
    float: frozenset({"DOUBLE"}),
    str: frozenset({"STRING"}),
    bytes: frozenset({"BYTES"}),
}


class _Source:
    """The functions of one mapping, as text, and the objects they name."""

    def __init__(self, conversions: dict[type, Conversion], list_readers: dict[Any, Callable[[Any], Any]]) -> None:
        self._conversions = conversions
        self._list_readers = list_readers
        self._functions: list[str] = []
        self._names: dict[str, Any] = {}
        self._known: dict[tuple[str, Any, str], str] = {}
        self._depth = 0

    def compile(self, title: str) -> dict[str, Any]:
        """Run the text; the functions by name."""
        text = "\n\n".join(self._functions) + "\n"
        file = f"<mapping {title}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compile(text, file, "exec"), self._names)
        return self._names

    # --- whole messages -------------------------------------------------------------------------------------------------

    def writer(self, kind: Any, message: Any, envelope: frozenset[str] = _NONE, omitted: frozenset[str] = _NONE) -> str:
        """The name of the function (value, **envelope) -> message."""
        return self._function("write", kind, message, envelope, lambda: self._written(kind, message, envelope, omitted))

    def reader(self, kind: Any, message: Any, envelope: frozenset[str] = _NONE, omitted: frozenset[str] = _NONE) -> str:
        """The name of the function (message, **omitted) -> value."""
        return self._function("read", kind, message, omitted, lambda: self._read(kind, message, envelope, omitted))

    def _function(self, verb: str, kind: Any, message: Any, others: frozenset[str], body: Callable[[], str]) -> str:
        key = (verb, kind, message.full_name)
        name = self._known.get(key)
        if name is None:
            name = self._known[key] = f"{verb}_{len(self._known)}"
            self._functions.append(f"def {name}(o{', **others' if others else ''}):\n    return {body()}")
        return name

    def _written(self, kind: Any, message: Any, envelope: frozenset[str], omitted: frozenset[str]) -> str:
        parts, fields = self._matched(kind, message, envelope, omitted)
        items = [f"{part.name}={self._out(part.hint, fields[part.name], 'o' + part.access)}" for part in parts]
        return f"{self._message(message)}({', '.join([*items, '**others'] if envelope else items)})"

    def _read(self, kind: Any, message: Any, envelope: frozenset[str], omitted: frozenset[str]) -> str:
        _, fields = self._matched(kind, message, envelope, omitted)
        return self._made(kind, message, fields, omitted)

    def _made(self, kind: Any, message: Any, fields: dict[str, Any], omitted: frozenset[str] = _NONE) -> str:
        """The expression that makes a value of the message `o`."""
        if typing.get_origin(kind) is tuple:
            values = [self._in(part.hint, fields[part.name], "o") for part in _parts(kind, message)]
            return f"({', '.join(values)})"
        hints = typing.get_type_hints(kind)
        if not _is_dataclass(kind):
            values = [self._in(hints[name], fields[name], "o") for name in kind._fields]
            return f"{self._constant(kind)}({', '.join(values)})"
        items = []
        for field in dataclasses.fields(kind):
            if field.name in omitted:
                continue
            if field.metadata.get("inlined"):
                value = self._made(hints[field.name], message, fields)
            else:
                value = self._in(hints[field.name], fields[field.name], "o")
            items.append(f"{field.name}={value}")
        return f"{self._constant(kind)}({', '.join([*items, '**others'] if omitted else items)})"

    def _matched(
        self, kind: Any, message: Any, envelope: frozenset[str], omitted: frozenset[str]
    ) -> tuple[list[_Part], dict[str, Any]]:
        parts = [part for part in _parts(kind, message) if part.name not in omitted]
        fields = {field.name: field for field in message.fields if field.name not in envelope}
        names = {part.name for part in parts}
        if names != fields.keys():
            raise MappingMismatch(
                f"{getattr(kind, '__name__', kind)} and protobuf {message.full_name} differ: the one alone has "
                f"{sorted(names - fields.keys())}, the other alone {sorted(fields.keys() - names)}"
            )
        return parts, fields

    # --- values out -----------------------------------------------------------------------------------------------------

    def _out(self, hint: Any, field: Any, value: str) -> str:
        is_optional, kind = _unwrapped(hint)
        _check_presence(hint, field, is_optional)
        written = self._plain_out(kind, field, value)
        # a constructor of protobuf takes None for absent
        return written if not is_optional or written == value else f"(None if {value} is None else {written})"

    def _plain_out(self, kind: Any, field: Any, value: str) -> str:
        if _is_map(field):
            item = f"v{self._depth}"
            written = self._item_out(typing.get_args(kind)[1], field.message_type.fields_by_name["value"], item)
            return f"{{k: {written} for k, {item} in {value}.items()}}"
        if _is_list(kind) and _is_repeated(field):
            item = f"v{self._depth}"
            written = self._item_out(typing.get_args(kind)[0], field, item)
            return value if written == item else f"[{written} for {item} in {value}]"
        if _is_list(kind):
            inner = _sole_field(kind, field)
            return f"{self._message(field.message_type)}({inner.name}={self._plain_out(kind, inner, value)})"
        return self._single_out(kind, field, value)

    def _item_out(self, hint: Any, field: Any, value: str) -> str:
        is_optional, kind = _unwrapped(hint)
        if not is_optional and not _is_list(kind):
            return self._single_out(kind, field, value)
        inner = _sole_field(hint, field)
        self._depth += 1
        written = self._out(hint, inner, value)
        self._depth -= 1
        return f"{self._message(field.message_type)}({inner.name}={written})"

    def _single_out(self, kind: Any, field: Any, value: str) -> str:
        conversion = self._conversion(kind, field)
        if conversion is not None:
            return f"{self._constant(conversion.write)}({value})"
        if field.message_type is None:
            _check_scalar(kind, field)
            return value
        return f"{self.writer(kind, field.message_type)}({value})"

    # --- values in ------------------------------------------------------------------------------------------------------

    def _in(self, hint: Any, field: Any, message: str) -> str:
        is_optional, kind = _unwrapped(hint)
        read = self._plain_in(kind, field, f"{message}.{field.name}")
        if not is_optional:
            return read
        is_there = f"{message}.HasField({field.name!r})" if field.has_presence else f"{message}.{field.name}"
        return f"({read} if {is_there} else None)"

    def _plain_in(self, kind: Any, field: Any, value: str) -> str:
        if _is_map(field):
            read = self._item_in(typing.get_args(kind)[1], field.message_type.fields_by_name["value"], f"{value}[k]")
            return f"{{k: {read} for k in sorted({value})}}"
        if _is_list(kind) and _is_repeated(field):
            item = f"v{self._depth}"
            self._depth += 1
            read = self._item_in(typing.get_args(kind)[0], field, item)
            self._depth -= 1
            reader = self._list_readers.get(kind)
            if reader is not None:
                return f"{self._constant(reader)}({value})"
            return f"tuple({value})" if read == item else f"tuple([{read} for {item} in {value}])"
        if _is_list(kind):
            inner = _sole_field(kind, field)
            return self._plain_in(kind, inner, f"{value}.{inner.name}")
        return self._single_in(kind, field, value)

    def _item_in(self, hint: Any, field: Any, value: str) -> str:
        is_optional, kind = _unwrapped(hint)
        if not is_optional and not _is_list(kind):
            return self._single_in(kind, field, value)
        return self._in(hint, _sole_field(hint, field), value)

    def _single_in(self, kind: Any, field: Any, value: str) -> str:
        conversion = self._conversion(kind, field)
        if conversion is not None:
            return f"{self._constant(conversion.read)}({value})"
        if field.message_type is None:
            plain = _check_scalar(kind, field)
            return value if plain in _SCALARS else f"{self._constant(plain)}({value})"
        return f"{self.reader(kind, field.message_type)}({value})"

    # --- names ----------------------------------------------------------------------------------------------------------

    def _conversion(self, kind: Any, field: Any) -> Conversion | None:
        conversion = self._conversions.get(kind) if isinstance(kind, type) else None
        if conversion is not None and field.message_type is not conversion.message_type.DESCRIPTOR:
            raise MappingMismatch(f"{field.full_name} is not {conversion.message_type.DESCRIPTOR.full_name}")
        return conversion

    def _message(self, message: Any) -> str:
        return self._constant(GetMessageClass(message))

    def _constant(self, value: Any) -> str:
        name: str = value.__name__
        while self._names.setdefault(name, value) is not value:
            name += "_"
        return name


def _parts(kind: Any, message: Any) -> list[_Part]:
    if typing.get_origin(kind) is tuple:
        fields = sorted(message.fields, key=lambda field: field.number)
        items = typing.get_args(kind)
        if len(fields) != len(items):
            raise MappingMismatch(f"{kind} has {len(items)} fields, protobuf {message.full_name} {len(fields)}")
        return [_Part(field.name, item, f"[{i}]") for i, (field, item) in enumerate(zip(fields, items, strict=True))]
    if not _is_dataclass(kind) and not hasattr(kind, "_fields"):
        raise MappingMismatch(f"{kind} is no dataclass, but {message.full_name} is a message")
    hints = typing.get_type_hints(kind)
    if not _is_dataclass(kind):
        return [_Part(name, hints[name], f".{name}") for name in kind._fields]
    parts: list[_Part] = []
    for field in dataclasses.fields(kind):
        if field.metadata.get("inlined"):
            inner = _parts(hints[field.name], message)
            parts += [part._replace(access=f".{field.name}{part.access}") for part in inner]
        else:
            parts.append(_Part(field.name, hints[field.name], f".{field.name}"))
    return parts


def _is_dataclass(kind: Any) -> bool:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def _unwrapped(hint: Any) -> tuple[bool, Any]:
    """Whether None is allowed, and the type beside it."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return False, hint
    beside = [argument for argument in typing.get_args(hint) if argument is not type(None)]
    if len(beside) != 1:
        raise MappingMismatch(f"{hint} may be of several types; a message has one")
    return True, beside[0]


def _is_list(kind: Any) -> bool:
    return typing.get_origin(kind) is tuple and typing.get_args(kind)[-1] is Ellipsis


def _is_repeated(field: Any) -> bool:
    return isinstance(field.default_value, list)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _sole_field(hint: Any, field: Any) -> Any:
    if field.message_type is None or len(field.message_type.fields) != 1:
        raise MappingMismatch(f"{field.full_name} cannot hold {hint}: that takes a message of one field")
    return field.message_type.fields[0]


def _check_presence(hint: Any, field: Any, is_optional: bool) -> None:
    kind = _unwrapped(hint)[1]
    can_be_none = field.has_presence or (isinstance(kind, type) and issubclass(kind, IntEnum) and 0 not in list(kind))
    if is_optional and not can_be_none:
        raise MappingMismatch(f"{field.full_name} must be optional: it may be None")


def _check_scalar(kind: Any, field: Any) -> Any:
    """The type that is called when such a scalar is read."""
    while hasattr(kind, "__supertype__"):
        kind = kind.__supertype__
    plain = next(
        (scalar for scalar in (bool, int, float, str, bytes) if isinstance(kind, type) and issubclass(kind, scalar)),
        None,
    )
    names = _SCALARS.get(plain, frozenset()) if plain is not None else frozenset()
    if field.type not in {getattr(field, f"TYPE_{name}") for name in names} or not (
        kind is plain or kind is Uuid or issubclass(kind, IntEnum)
    ):
        raise MappingMismatch(f"{field.full_name} cannot hold {kind}")
    return kind
