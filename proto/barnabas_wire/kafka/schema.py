"""How a Kafka message is declared, and the compiler from a declaration to straight-line code per version.

May touch:  primitives.py, ids.py, errors.py, messages.ApiKey.     Must not touch: sockets, files, clock.
Invariants: one declaration serves all versions; every length and count is checked against the bytes that remain before
            anything is allocated; unknown tagged fields are skipped; a decoder raises MalformedMessage, nothing else.
Read next:  messages/metadata.py (a typical declaration), primitives.py (the layout of each type).

A message is a slotted dataclass (lazy_dataclass.py) whose fields are declared with the functions below:

    @dataclass(slots=True)
    class MetadataResponseBroker:
        node_id: int = int32()
        host: str = string()
        rack: str | None = string("1+", nullable="1+", default=None)

The first argument is the range of versions that carry the field ("3+", "0-12"). A field that the asked version lacks is
left out when encoding and has its default after decoding; a tagged field is written when it differs from its default.

`encoder(cls, version)` and `decoder(cls, version)` write one flat Python function for a message at one version, with
all nested structures inlined, and compile it at first use. Why: adjacent fixed-width fields, the length that follows
them and the empty tag section become one struct call; a Metadata response of 1,000 partitions encodes in about 0.6 ms,
where a codec that walks its declaration takes 4 to 10 (measured).

Not obvious:
- error codes are decoded as plain ints: a peer may know more codes than we do;
- fields of type `records` come out as slices of the given view (no copy) and die with its buffer; others are copies;
- an element's least encoded size bounds a count: 2^31 elements in a frame of 20 bytes fail before any list is made;
- an element of two bytes becomes an object of a hundred: a reader of strangers' bytes bounds the elements of the whole message,
  too. Each array is checked before its list is made; unknown tagged fields count;
- no text is longer than STRING_BYTES_MAX, as Kafka's own readers have it, though the compact length could say more.
"""

from __future__ import annotations

import dataclasses
import importlib
import linecache
import struct as struct_module
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import ZERO_UUID
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.primitives import (
    ELEMENTS_UNBOUNDED,
    ONE_BYTE,
    STRING_BYTES_MAX,
    TAGGED_FIELDS_MAX,
    Buffer,
    MalformedMessage,
    malformed,
    new_uuid,
    read_uvarint,
    read_uvarint_tail,
    skip_tagged_fields,
    too_many,
    write_uvarint,
)
from barnabas_wire.lazy_dataclass import dataclass

NEVER_FLEXIBLE = 1 << 15
"""FLEXIBLE_FROM of a message that has no flexible version."""
_LATEST = 1 << 15


class UnsupportedVersion(KafkaError):
    """No such API here, or not in that version."""

    code = ErrorCode.UNSUPPORTED_VERSION


class Message:
    """What every request, response and versioned blob states about itself."""

    __slots__ = ()

    API_KEY: ClassVar[ApiKey]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]


# ---------------------------------------------------------------------------------------------------------------------
# Declaring


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """The wire side of one dataclass field; sits in its metadata under "wire"."""

    kind: str
    since: int
    until: int
    nullable_since: int
    tag: int | None
    default: Any
    element: Any = None

    def exists(self, version: int) -> bool:
        """Whether `version` carries the field."""
        return self.since <= version <= self.until


def _field(
    kind: str, versions: str, *, default: Any, nullable: str = "", tag: int | None = None, element: Any = None
) -> Any:
    since, _, until = versions.partition("-") if "-" in versions else (versions.removesuffix("+"), "", "")
    spec = FieldSpec(
        kind=kind,
        since=int(since),
        until=int(until) if until else _LATEST,
        nullable_since=int(nullable.removesuffix("+")) if nullable else _LATEST + 1,
        tag=tag,
        default=default,
        element=element,
    )
    if isinstance(default, type):
        return dataclasses.field(default_factory=default, metadata={"wire": spec})
    return dataclasses.field(default=default, metadata={"wire": spec})


def boolean(versions: str = "0+", *, default: bool = False, tag: int | None = None) -> Any:
    """One byte, 0 or 1."""
    return _field("boolean", versions, default=default, tag=tag)


def int8(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> Any:
    """Signed, one byte."""
    return _field("int8", versions, default=default, tag=tag)


def int16(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> Any:
    """Signed, two bytes."""
    return _field("int16", versions, default=default, tag=tag)


def uint16(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> Any:
    """Unsigned, two bytes (ports)."""
    return _field("uint16", versions, default=default, tag=tag)


def int32(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> Any:
    """Signed, four bytes."""
    return _field("int32", versions, default=default, tag=tag)


def int64(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> Any:
    """Signed, eight bytes."""
    return _field("int64", versions, default=default, tag=tag)


def float64(versions: str = "0+", *, default: float = 0.0, tag: int | None = None) -> Any:
    """IEEE 754 double."""
    return _field("float64", versions, default=default, tag=tag)


def uuid(versions: str = "0+", *, tag: int | None = None) -> Any:
    """Sixteen raw bytes; ZERO_UUID means none."""
    return _field("uuid", versions, default=ZERO_UUID, tag=tag)


def string(versions: str = "0+", *, nullable: str = "", default: str | None = "", tag: int | None = None) -> Any:
    """Utf-8 text; `nullable` says from which version on it may be None."""
    return _field("string", versions, nullable=nullable, default=default, tag=tag)


def raw(versions: str = "0+", *, nullable: str = "", default: bytes | None = b"", tag: int | None = None) -> Any:
    """Opaque bytes, copied out of the frame when decoded."""
    return _field("bytes", versions, nullable=nullable, default=default, tag=tag)


def records(versions: str = "0+", *, nullable: str = "") -> Any:
    """Record batches: decoded as a slice of the frame, not copied; None by default."""
    return _field("records", versions, nullable=nullable, default=None)


def array(
    element: Any,
    versions: str = "0+",
    *,
    nullable: str = "",
    default: type[list[Any]] | None = list,
    tag: int | None = None,
) -> Any:
    """A list of nested dataclasses, or of a type given by its function: `array(int32)`."""
    element = _PRIMITIVE_OF.get(element, element)
    return _field("array", versions, nullable=nullable, default=default, tag=tag, element=element)


def struct(
    element: type, versions: str = "0+", *, nullable: str = "", default: Any = ..., tag: int | None = None
) -> Any:
    """One nested dataclass; its default is the nested dataclass with all defaults unless None is given."""
    default = element if default is ... else default
    return _field("struct", versions, nullable=nullable, default=default, tag=tag, element=element)


_PRIMITIVE_OF: dict[Any, str] = {
    boolean: "boolean",
    int8: "int8",
    int16: "int16",
    uint16: "uint16",
    int32: "int32",
    int64: "int64",
    float64: "float64",
    uuid: "uuid",
    string: "string",
    raw: "bytes",
}

_CODES = {
    "boolean": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}

_INTEGERS_READY = 17
"""Shorter lists of integers (replica lists) have their struct ready: making a format costs as much as the packing."""
_INTEGERS = {
    kind: (
        tuple(struct_module.Struct(f">{count}{_CODES[kind]}").pack for count in range(_INTEGERS_READY)),
        tuple(struct_module.Struct(f">{count}{_CODES[kind]}").unpack_from for count in range(_INTEGERS_READY)),
    )
    for kind in ("int8", "int16", "int32", "int64")
}


def fields_of(cls: type) -> list[tuple[str, FieldSpec]]:
    """Name and wire side of every field of a declared message, in wire order."""
    return [(field.name, field.metadata["wire"]) for field in dataclasses.fields(cls)]


# ---------------------------------------------------------------------------------------------------------------------
# Encoding and decoding


def decode_request(
    api_key: int, version: int, view: Buffer, position: int = 0, *, elements_max: int = ELEMENTS_UNBOUNDED
) -> Any:
    """The request body that begins at `position` and ends where the view ends.

    Args:
        elements_max: most elements in all its arrays together.

    Raises UnsupportedVersion for an API or version that is not declared, MalformedMessage for bytes that are no such message,
    TooManyElements.
    """
    return decode(message_classes(api_key)[0], version, view, position, elements_max=elements_max)


def decode_response(cls: type[Any], version: int, view: Buffer, position: int = 0) -> Any:
    """The response body of class `cls` that begins at `position`; errors as decode_request."""
    return decode(cls, version, view, position)


def decode(
    cls: type[Any], version: int, view: Buffer, position: int = 0, *, elements_max: int = ELEMENTS_UNBOUNDED
) -> Any:
    """Decode any declared message or blob; arguments and errors as decode_request. Bytes after it are ignored, as Kafka does."""
    function = _decoders.get((cls, version)) or decoder(cls, version)
    try:
        return function(view, position, elements_max)
    except (struct_module.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"{cls.__name__} v{version}: {error}") from error


def encode_request(request: Any, version: int, out: bytearray) -> None:
    """Append the body of a request at the given version to `out`."""
    (_encoders.get((request.__class__, version)) or encoder(request.__class__, version))(request, out)


encode_response = encode_request
"""Append the body of a response; the same rules both ways."""


def encode_element(element: Any, whole: type[Message], version: int) -> bytes:
    """One element of an array of `whole` as it stands in there: for an answer that is made piece by piece."""
    function = _element_encoders.get((element.__class__, whole, version))
    if function is None:
        writer = _EncoderWriter(version, is_flexible=version >= whole.FLEXIBLE_FROM)
        function = _element_encoders[element.__class__, whole, version] = writer.build(element.__class__)
    out = bytearray()
    function(element, out)
    return bytes(out)


def join_elements(whole: type[Message], version: int, elements: Sequence[bytes]) -> bytes:
    """The body of a response that is a throttle time (0 here) and one array, from the array's elements."""
    assert [spec.kind for _, spec in fields_of(whole)] == ["int32", "array"], f"{whole.__name__} is of another shape"
    is_flexible = version >= whole.FLEXIBLE_FROM
    count = write_uvarint(len(elements) + 1) if is_flexible else struct_module.pack(">i", len(elements))
    return b"".join((bytes(4), count, *elements, b"\0" if is_flexible else b""))


def message_classes(api_key: int) -> tuple[type[Any], type[Any]]:
    """(request class, response class) of an API, imported at first use; UnsupportedVersion if there is none."""
    known = _classes.get(api_key)
    if known is None:
        try:
            name = ApiKey(api_key).name
            module = importlib.import_module(f"{ApiKey.__module__}.{name.lower()}")
        except (ValueError, ModuleNotFoundError) as error:
            raise UnsupportedVersion(f"no API with key {api_key}") from error
        words = name.title().replace("_", "")
        known = _classes[api_key] = (getattr(module, f"{words}Request"), getattr(module, f"{words}Response"))
    return known


def request_header_version(api_key: int, version: int) -> int:
    """2 (with tagged fields) for flexible versions, else 1; UnsupportedVersion for an API that is not declared."""
    return 2 if version >= message_classes(api_key)[0].FLEXIBLE_FROM else 1


def response_header_version(api_key: int, version: int) -> int:
    """1 (with tagged fields) for flexible versions, else 0; ApiVersions always 0: any client can read it (KIP-511)."""
    if api_key == ApiKey.API_VERSIONS:
        return 0
    return 1 if version >= message_classes(api_key)[0].FLEXIBLE_FROM else 0


_classes: dict[int, tuple[type[Any], type[Any]]] = {}
_decoders: dict[tuple[type, int], Callable[[Buffer, int, int], Any]] = {}
_encoders: dict[tuple[type, int], Callable[[Any, bytearray], None]] = {}
_element_encoders: dict[tuple[type, type, int], Callable[[Any, bytearray], None]] = {}


# ---------------------------------------------------------------------------------------------------------------------
# Compiling


def decoder(cls: type[Any], version: int) -> Callable[[Buffer, int, int], Any]:
    """The compiled function (view, position, elements at most) -> message; raises UnsupportedVersion outside the declared range."""
    _check_version(cls, version)
    writer = _DecoderWriter(version, is_flexible=version >= cls.FLEXIBLE_FROM, is_view=_has_records(cls, version))
    function: Callable[[Buffer, int, int], Any] = writer.build(cls)
    _decoders[cls, version] = function
    return function


def encoder(cls: type[Any], version: int) -> Callable[[Any, bytearray], None]:
    """The compiled function (message, out) -> None; raises UnsupportedVersion outside the declared range."""
    _check_version(cls, version)
    writer = _EncoderWriter(version, is_flexible=version >= cls.FLEXIBLE_FROM)
    function: Callable[[Any, bytearray], None] = writer.build(cls)
    _encoders[cls, version] = function
    return function


def _check_version(cls: type[Any], version: int) -> None:
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise UnsupportedVersion(f"{cls.__name__} has versions {cls.MIN_VERSION} to {cls.MAX_VERSION}, not {version}")


def _has_records(cls: type, version: int) -> bool:
    return any(
        spec.kind == "records" or (isinstance(spec.element, type) and _has_records(spec.element, version))
        for _, spec in fields_of(cls)
        if spec.exists(version)
    )


class _Writer:
    """Lines of one generated function and the objects they name."""

    def __init__(self, version: int, *, is_flexible: bool) -> None:
        self.version = version
        self.is_flexible = is_flexible
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[str, Any] = {"malformed": malformed}
        self.count = 0

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        self.emit(opening)
        self.depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.emit("pass")
        self.depth -= 1

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def constant(self, stem: str, value: Any) -> str:
        for name, known in self.names.items():
            if known is value:
                return name
        name = self.fresh(stem)
        self.names[name] = value
        return name

    def struct_of(self, codes: str) -> struct_module.Struct:
        return _structs.setdefault(codes, struct_module.Struct(">" + codes))

    def present(self, cls: type) -> tuple[list[tuple[str, FieldSpec]], list[tuple[str, FieldSpec]]]:
        """Ordinary and tagged fields that this version carries, in wire order."""
        fields = [(name, spec) for name, spec in fields_of(cls) if spec.exists(self.version)]
        plain = [(name, spec) for name, spec in fields if spec.tag is None]
        tagged = [(name, spec) for name, spec in fields if spec.tag is not None]
        return plain, sorted(tagged, key=lambda item: item[1].tag or 0)

    def compile(self, name: str, header: str) -> Any:
        source = "\n".join([header, *self.lines, ""])
        filename = f"<{name} v{self.version}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        exec(compile(source, filename, "exec"), self.names)
        return self.names["function"]


_structs: dict[str, struct_module.Struct] = {}


class _DecoderWriter(_Writer):
    """Writes `function(view, position, left)`: `data` holds the bytes, `p` the position, `end` where they stop, `left` how many
    elements of arrays may yet come.

    `pending` are fixed-width values not yet unpacked; the length, count or tag-count byte that follows goes with them.
    """

    def __init__(self, version: int, *, is_flexible: bool, is_view: bool) -> None:
        super().__init__(version, is_flexible=is_flexible)
        self.is_view = is_view
        self.pending: list[tuple[str, str]] = []
        self.names |= {"tail": read_uvarint_tail, "uvarint": read_uvarint, "skip_tags": skip_tagged_fields}
        self.names["too_many"] = too_many

    def build(self, cls: type) -> Any:
        if self.is_view:
            # records stay slices of the receive buffer; small fields are copied out one by one
            self.emit("data = view if view.__class__ is memoryview else memoryview(view)")
            self.emit("p = position")
        else:
            # bytes are indexed and sliced twice as fast as a memoryview, and nothing then aliases the receive buffer
            self.emit("data = bytes(view[position:])")
            self.emit("p = 0")
        self.emit("end = len(data)")
        self.emit(f"return {self.structure(cls)}")
        return self.compile(f"decode {cls.__name__}", "def function(view, position, left):")

    def flush(self) -> None:
        if not self.pending:
            return
        if len(self.pending) == 1 and self.pending[0][1] in "B?":
            name, code = self.pending[0]
            self.emit(f"{name} = data[p]" + (" != 0" if code == "?" else ""))
            self.emit("p += 1")
        else:
            unpacker = self.struct_of("".join(code for _, code in self.pending))
            targets = ", ".join(name for name, _ in self.pending)
            function = self.constant("unpack", unpacker)
            self.names[f"{function}_from"] = unpacker.unpack_from
            self.emit(f"{targets}{',' if len(self.pending) == 1 else ''} = {function}_from(data, p)")
            self.emit(f"p += {unpacker.size}")
        self.pending.clear()

    def prefix(self, legacy_code: str, *, text_of: str | None = None) -> str:
        """Read a length or count; afterwards the variable holds it with null as -1. `text_of`: the field whose text follows."""
        name = self.fresh("n")
        self.pending.append((name, "B" if self.is_flexible else legacy_code))
        self.flush()
        if self.is_flexible:
            with self.block(f"if {name} > 127:"):
                self.emit(f"{name}, p = tail(data, p, {name})")
                if text_of is not None:
                    with self.block(f"if {name} > {STRING_BYTES_MAX + 1}:"):
                        self.emit(f"malformed({text_of!r}, {name} - 1)")
            self.emit(f"{name} -= 1")
        return name

    def structure(self, cls: type) -> str:
        """Emit the reading of one structure; returns the expression that builds it."""
        plain, tagged = self.present(cls)
        values = {name: self.value(f"{cls.__name__}.{name}", spec) for name, spec in plain}
        if self.is_flexible:
            values |= self.tag_section(cls, tagged)
        self.flush()
        arguments = [values.get(name) or self.default(spec) for name, spec in fields_of(cls)]
        return f"{self.constant('Cls', cls)}({', '.join(arguments)})"

    def default(self, spec: FieldSpec) -> str:
        if spec.default is list:
            return "[]"
        if isinstance(spec.default, type):
            return f"{self.constant('Cls', spec.default)}()"
        return self.constant("uuid", spec.default) if spec.kind == "uuid" else repr(spec.default)

    def value(self, where: str, spec: FieldSpec) -> str:
        """Emit the reading of one field; returns the expression that holds it once pending is flushed."""
        is_nullable = self.version >= spec.nullable_since
        if spec.kind == "struct":
            return self.nullable_structure(spec.element) if is_nullable else self.structure(spec.element)
        if spec.kind == "array":
            return self.array(where, spec.element, is_nullable)
        return self.primitive(where, spec.kind, is_nullable)

    def primitive(self, where: str, kind: str, is_nullable: bool) -> str:
        name = self.fresh("v")
        if kind in _CODES:
            self.pending.append((name, _CODES[kind]))
            if kind == "uuid":
                self.names["new_uuid"] = new_uuid
                return f"new_uuid({name})"
            return name
        length = self.prefix("h", text_of=where) if kind == "string" else self.prefix("i")
        stop = self.fresh("e")
        with self.block(f"if {length} >= 0:"):
            self.emit(f"{stop} = p + {length}")
            with self.block(f"if {stop} > end:"):
                self.emit(f"malformed({where!r}, {length})")
            chunk = f"data[p:{stop}]"
            if kind == "string":
                chunk = f"{chunk}.tobytes().decode()" if self.is_view else f"{chunk}.decode()"
            elif kind == "bytes" and self.is_view:
                chunk = f"bytes({chunk})"
            self.emit(f"{name} = {chunk}")
            self.emit(f"p = {stop}")
        self.null_branch(where, name, length, is_nullable)
        return name

    def null_branch(self, where: str, name: str, length: str, is_nullable: bool) -> None:
        if is_nullable:
            with self.block(f"elif {length} == -1:"):
                self.emit(f"{name} = None")
        with self.block("else:"):
            self.emit(f"malformed({where!r}, {length})")

    def nullable_structure(self, cls: type) -> str:
        """One signed byte, -1 for null, before the structure (Kafka 3.4 and later)."""
        flag, name = self.fresh("n"), self.fresh("v")
        self.pending.append((flag, "b"))
        self.flush()
        with self.block(f"if {flag} < 0:"):
            self.emit(f"{name} = None")
        with self.block("else:"):
            self.emit(f"{name} = {self.structure(cls)}")
        return name

    def array(self, where: str, element: Any, is_nullable: bool) -> str:
        name = self.fresh("a")
        count = self.prefix("i")
        with self.block(f"if {count} >= 0:"):
            with self.block(f"if {count} * {self.least_size(element)} > end - p:"):
                self.emit(f"malformed({where!r}, {count})")
            self.emit(f"left -= {count}")
            with self.block("if left < 0:"):
                self.emit(f"too_many({where!r}, {count})")
            if element in _INTEGERS:
                table = self.constant("unpack", _INTEGERS[element][1])
                self.names["unpack_from"] = struct_module.unpack_from
                self.emit(f"{name} = list({table}[{count}](data, p) if {count} < {_INTEGERS_READY} else")
                self.emit(f'    unpack_from(f">{{{count}}}{_CODES[element]}", data, p))')
                self.emit(f"p += {count} * {self.least_size(element)}")
            else:
                self.emit(f"{name} = []")
                with self.block(f"for _ in range({count}):"):
                    if isinstance(element, type):
                        item = self.structure(element)
                    else:
                        item = self.primitive(where, element, False)
                        self.flush()
                    self.emit(f"{name}.append({item})")
        self.null_branch(where, name, count, is_nullable)
        return name

    def least_size(self, element: Any) -> int:
        """Fewest bytes one element can take: bounds an array's count before its list is made."""
        if isinstance(element, str):
            if element in _CODES:
                return self.struct_of(_CODES[element]).size
            return 1 if self.is_flexible else 2 if element == "string" else 4
        plain, _ = self.present(element)
        size = 1 if self.is_flexible else 0
        for _, spec in plain:
            if spec.kind == "struct":
                size += 1 if self.version >= spec.nullable_since else self.least_size(spec.element)
            elif spec.kind == "array":
                size += 1 if self.is_flexible else 4
            else:
                size += self.least_size("bytes" if spec.kind == "records" else spec.kind)
        return max(size, 1)

    def tag_section(self, cls: type, tagged: list[tuple[str, FieldSpec]]) -> dict[str, str]:
        """Emit the reading of the tagged fields; unknown ones are skipped (KIP-482)."""
        count = self.fresh("n")
        self.pending.append((count, "B"))
        self.flush()
        if not tagged:
            with self.block(f"if {count}:"):
                self.emit(f"left -= {count}")
                with self.block("if left < 0:"):
                    self.emit(f"too_many({cls.__name__ + ' tagged fields'!r}, {count})")
                self.emit("p = skip_tags(data, p - 1, end)")
            return {}
        values = {name: self.fresh("v") for name, _ in tagged}
        for name, spec in tagged:
            self.emit(f"{values[name]} = {self.default(spec)}")
        with self.block(f"if {count}:"):
            with self.block(f"if {count} > 127:"):
                self.emit(f"{count}, p = tail(data, p, {count})")
            self.emit(f"left -= {count}")
            with self.block(f"if {count} > {TAGGED_FIELDS_MAX} or left < 0:"):
                self.emit(f"too_many({cls.__name__ + ' tagged fields'!r}, {count})")
            tag, stop = self.fresh("t"), self.fresh("e")
            with self.block(f"for _ in range({count}):"):
                self.emit(f"{tag}, p = uvarint(data, p)")
                self.emit(f"{stop}, p = uvarint(data, p)")
                self.emit(f"{stop} += p")
                with self.block(f"if {stop} > end:"):
                    self.emit(f"malformed({cls.__name__ + ' tagged field'!r}, {stop} - p)")
                for name, spec in tagged:
                    with self.block(f"if {tag} == {spec.tag}:"):
                        value = self.value(f"{cls.__name__}.{name}", spec)
                        self.flush()
                        self.emit(f"{values[name]} = {value}")
                        with self.block(f"if p != {stop}:"):
                            self.emit(f"malformed({cls.__name__ + '.' + name!r}, {stop} - p)")
                self.emit(f"p = {stop}")
        return values


class _EncoderWriter(_Writer):
    """Writes `function(message, out)`; `pending` are fixed-width values not yet packed: a length goes with them."""

    def __init__(self, version: int, *, is_flexible: bool) -> None:
        super().__init__(version, is_flexible=is_flexible)
        self.pending: list[tuple[str, str]] = []
        self.out = "out"
        self.names |= {
            "uvarint": write_uvarint,
            "ONE_BYTE": ONE_BYTE,
            "write_tags": _write_tags,
            "pack": struct_module.pack,
        }

    def build(self, cls: type) -> Any:
        self.structure("message", cls)
        self.flush()
        self.emit("return None")
        return self.compile(f"encode {cls.__name__}", "def function(message, out):")

    def packing(self, extra: tuple[str, str] | None = None) -> str:
        """The expression that packs what is pending, with one more value behind it."""
        items = [*self.pending, extra] if extra else self.pending
        packer = self.struct_of("".join(code for _, code in items))
        arguments = ", ".join(expression for expression, code in items if code != "x")
        if not arguments:
            return repr(bytes(packer.size))
        function = self.constant("pack", packer)
        self.names[f"{function}_all"] = packer.pack
        return f"{function}_all({arguments})"

    def flush(self) -> None:
        if self.pending:
            self.emit(f"{self.out} += {self.packing()}")
            self.pending.clear()

    def prefix(self, length: str, legacy_code: str) -> None:
        """Emit a length or count held in a variable, null being -1."""
        if not self.is_flexible:
            self.pending.append((length, legacy_code))
            self.flush()
            return
        if not self.pending:
            self.emit(f"{self.out} += ONE_BYTE[{length} + 1] if {length} < 127 else uvarint({length} + 1)")
            return
        with self.block(f"if {length} < 127:"):
            self.emit(f"{self.out} += {self.packing((f'{length} + 1', 'B'))}")
        with self.block("else:"):
            self.emit(f"{self.out} += {self.packing()}")
            self.emit(f"{self.out} += uvarint({length} + 1)")
        self.pending.clear()

    def structure(self, source: str, cls: type) -> None:
        plain, tagged = self.present(cls)
        for name, spec in plain:
            self.value(f"{source}.{name}", spec)
        if not self.is_flexible:
            return
        if not tagged:
            self.pending.append(("", "x"))
            return
        self.flush()
        self.tag_section(source, tagged)

    def value(self, source: str, spec: FieldSpec) -> None:
        is_nullable = self.version >= spec.nullable_since
        if spec.kind == "struct":
            if is_nullable:
                self.nullable_structure(source, spec.element)
            else:
                name = self.fresh("o")
                self.emit(f"{name} = {source}")
                self.structure(name, spec.element)
        elif spec.kind == "array":
            self.array(source, spec.element, is_nullable)
        else:
            self.primitive(source, spec.kind, is_nullable)

    def primitive(self, source: str, kind: str, is_nullable: bool) -> None:
        if kind in _CODES:
            self.pending.append((source, _CODES[kind]))
            return
        value, length = self.fresh("b"), self.fresh("n")
        self.emit(f"{value} = {source}")
        ready = f"{value}.encode()" if kind == "string" else value
        if is_nullable:
            with self.block(f"if {value} is None:"):
                self.emit(f"{length} = -1")
                self.emit(f"{value} = b''")
            with self.block("else:"):
                self.emit(f"{value} = {ready}")
                self.emit(f"{length} = len({value})")
        else:
            if ready != value:
                self.emit(f"{value} = {ready}")
            self.emit(f"{length} = len({value})")
        self.prefix(length, "h" if kind == "string" else "i")
        self.emit(f"{self.out} += {value}")

    def nullable_structure(self, source: str, cls: type) -> None:
        self.flush()
        name = self.fresh("o")
        self.emit(f"{name} = {source}")
        with self.block(f"if {name} is None:"):
            self.emit(f"{self.out} += b'\\xff'")
        with self.block("else:"):
            self.emit(f"{self.out} += b'\\x01'")
            self.structure(name, cls)
            self.flush()

    def array(self, source: str, element: Any, is_nullable: bool) -> None:
        items, length = self.fresh("a"), self.fresh("n")
        self.emit(f"{items} = {source}")
        if is_nullable:
            with self.block(f"if {items} is None:"):
                self.emit(f"{length} = -1")
                self.emit(f"{items} = ()")
            with self.block("else:"):
                self.emit(f"{length} = len({items})")
        else:
            self.emit(f"{length} = len({items})")
        self.prefix(length, "i")
        if element in _INTEGERS:
            table = self.constant("pack", _INTEGERS[element][0])
            with self.block(f"if 0 < {length} < {_INTEGERS_READY}:"):
                self.emit(f"{self.out} += {table}[{length}](*{items})")
            with self.block(f"elif {length} > 0:"):
                self.emit(f'{self.out} += pack(f">{{{length}}}{_CODES[element]}", *{items})')
            return
        item = self.fresh("o")
        with self.block(f"for {item} in {items}:"):
            if isinstance(element, type):
                self.structure(item, element)
            else:
                self.primitive(item, element, False)
            self.flush()

    def tag_section(self, source: str, tagged: list[tuple[str, FieldSpec]]) -> None:
        """Emit the writing of those tagged fields that differ from their default."""
        tags = self.fresh("tags")
        outside = self.out
        self.emit(f"{tags} = []")
        for name, spec in tagged:
            value = f"{source}.{name}"
            if spec.default is list:
                condition = value
            elif spec.default is None:
                condition = f"{value} is not None"
            else:
                default = spec.default() if isinstance(spec.default, type) else spec.default
                condition = f"{value} != {self.constant('default', default)}"
            with self.block(f"if {condition}:"):
                self.out = self.fresh("t")
                self.emit(f"{self.out} = bytearray()")
                self.value(value, spec)
                self.flush()
                self.emit(f"{tags}.append(({spec.tag}, {self.out}))")
                self.out = outside
        with self.block(f"if {tags}:"):
            self.emit(f"write_tags({outside}, {tags})")
        with self.block("else:"):
            self.emit(f"{outside} += b'\\0'")


def _write_tags(out: bytearray, tags: list[tuple[int, bytearray]]) -> None:
    out += write_uvarint(len(tags))
    for tag, body in tags:
        out += write_uvarint(tag)
        out += write_uvarint(len(body))
        out += body
