"""From the frozen config dataclasses of the rooms to one table of keys, and from text to their values.

May touch:  dataclasses.              Must not touch: files, environment, other rooms.
Invariants: a field is a key iff its metadata says `key`; every key has a doc; parse(format(value)) == value.
Read next:  ../node/properties.py, which reads a node's properties with these.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from barnabas_wire.java_values import java_boolean, java_float, java_int
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.lazy_dataclass import dataclass

T = TypeVar("T")


class ConfigError(KafkaError):
    """A property that cannot be used; the message names the key, the value and the fix."""

    code = ErrorCode.INVALID_CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One documented key: its name in a properties file, how it is parsed, and where it goes."""

    name: str
    field: str
    room: str
    value_type: Any
    default: Any
    doc: str
    is_sensitive: bool = False
    """Its value is never shown."""

    @property
    def is_required(self) -> bool:
        """True when the key has no default."""
        return self.default is dataclasses.MISSING

    @property
    def type_name(self) -> str:
        """What the config docs call the type."""
        return describe_type(self.value_type)

    @property
    def default_text(self) -> str:
        """The default as a file would have it."""
        return "(required)" if self.is_required else format_value(self.default)


_KEYS_OF: dict[type, tuple[ConfigKey, ...]] = {}
"""What was found once: to look takes a millisecond, and a start asks for each class several times."""


def keys_of(config_class: type) -> tuple[ConfigKey, ...]:
    """The keys that a room's config dataclass declares. A field's broker-wide name (`broker_key`) wins over `key`."""
    found = _KEYS_OF.get(config_class)
    if found is None:
        found = _KEYS_OF[config_class] = tuple(_find_keys(config_class))
    return found


def _find_keys(config_class: type) -> list[ConfigKey]:
    hints = typing.get_type_hints(config_class)
    found = []
    for field in dataclasses.fields(config_class):
        name = field.metadata.get("broker_key") or field.metadata.get("key")
        if name is None:
            continue
        default = field.default
        if default is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        found.append(
            ConfigKey(
                name=name,
                field=field.name,
                room=config_class.__name__,
                value_type=hints[field.name],
                default=default,
                doc=field.metadata.get("doc", ""),
                is_sensitive=field.metadata.get("sensitive", False),
            )
        )
    return found


def load(config_class: type[T], properties: Mapping[str, str], **given: Any) -> T:
    """Build a config dataclass from properties; `given` sets fields that no file may set.

    Raises ConfigError for a missing required key or a value that does not parse or validate.
    """
    values: dict[str, Any] = dict(given)
    for key in keys_of(config_class):
        if key.field in values:
            continue
        text = properties.get(key.name)
        if text is not None:
            values[key.field] = parse_value(key, text)
        elif key.is_required:
            raise ConfigError(f"{key.name} is required and has no default: {key.doc}")
    try:
        return config_class(**values)
    except (ValueError, KafkaError) as error:
        raise ConfigError(str(error)) from error


def parse_value(key: ConfigKey, text: str) -> Any:
    """One value from its text; raises ConfigError that says what would be accepted."""
    try:
        return _parse(key.value_type, text.strip())
    except ValueError as error:
        raise ConfigError(f"{key.name}={text!r} is not {key.type_name}: {error}") from error


_JAVA_PARSERS: Mapping[Any, Callable[[str], Any]] = {bool: java_boolean, int: java_int, float: java_float}


def _parse(kind: Any, text: str) -> Any:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(kind) if member is not type(None)]
        return None if text == "" else _parse(members[0], text)
    if origin is tuple:
        member = typing.get_args(kind)[0]
        return tuple(_parse(member, part.strip()) for part in text.split(",") if part.strip())
    supertype = getattr(kind, "__supertype__", None)
    if supertype is not None:
        return kind(_parse(supertype, text))
    if kind in _JAVA_PARSERS:
        return _JAVA_PARSERS[kind](text)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"use one of {', '.join(str(member.value) for member in kind)}") from None
    if kind is str:
        return text
    raise TypeError(f"no way to parse {kind!r} from text")


def format_value(value: Any) -> str:
    """A value as a properties file has it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, tuple | list):
        return ",".join(format_value(part) for part in value)
    return str(value)


def describe_type(kind: Any) -> str:
    """The word for a type in the config docs: int, boolean, list, string, double."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return describe_type(next(member for member in typing.get_args(kind) if member is not type(None)))
    if origin is tuple:
        return "list"
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return "one of " + " ".join(str(member.value) for member in kind)
    names = {bool: "boolean", float: "double", int: "int", str: "string"}
    return names.get(getattr(kind, "__supertype__", kind), "string")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known key that a mistyped one most likely meant, or None."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)
    return found[0] if found else None
