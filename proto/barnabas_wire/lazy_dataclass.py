"""Slotted dataclasses, whose methods are compiled only where a class has many objects.

May touch:  dataclasses.               Must not touch: everything else.
Invariants: such a class behaves like the one that `dataclasses.dataclass` makes of the same source, and reports the same fields; it
            stays the same object when its methods are compiled.
Read next:  kafka/messages, barnabas_quorum/records.py and requests.py, which declare hundreds.

`dataclasses` writes the text of up to six methods of each class and has each compiled: 0.25 ms, frozen 0.55 ms, a quarter of a node's
start (measured). Most of these classes are of messages that this process never sees, or of parts that a node has once. Here the class is
made with its slots at once, as `dataclass(slots=True)` makes it, and the source class is kept. The first objects are filled field by
field. `dataclasses.dataclass` writes the methods on the source, and this class takes them over, when COMPILE_AT objects were made, or
when another method is called. A type checker sees `dataclasses.dataclass` itself.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import threading
from collections.abc import Callable
from dataclasses import MISSING
from functools import cache, partial
from typing import TYPE_CHECKING, Any

COMPILE_AT = 16
"""Objects of a class: most parts of a node are made once or twice, and what requests are made of is soon as quick as it gets."""

_sources: dict[type, tuple[type, dict[str, Any]]] = {}
"""Class without methods yet -> the class as it was written, and the arguments of the decorator."""
_lock = threading.RLock()
_NO_FIELDS = ("ClassVar[", "typing.ClassVar[")
_ALWAYS = (
    "__repr__",
    "__match_args__",
    "__dataclass_params__",
    *(("__replace__",) if sys.version_info >= (3, 13) else ()),
)
_EQUAL = ("__eq__", "__hash__")
_FROZEN = ("__setattr__", "__delattr__")
_ORDER = ("__lt__", "__le__", "__gt__", "__ge__")


def compile_all() -> None:
    """Compile the methods of all classes, before a fork: each child would do it again."""
    for cls in tuple(_sources):
        _compile(cls)


def _compile(cls: type) -> None:
    """Give a class the methods of a dataclass, its bases first. Other classes do not change."""
    if not _sources.keys().isdisjoint(cls.__mro__):
        with _lock:
            for each in reversed(cls.__mro__):  # a dataclass reads the fields of its bases
                if each in _sources:
                    _take_methods(each, *_sources[each])


def _take_methods(cls: type, source: type, arguments: dict[str, Any]) -> None:
    before = dict(vars(source))
    dataclasses.dataclass(**arguments)(source)
    names = source.__dataclass_fields__  # type: ignore[attr-defined]
    made = {name: value for name, value in vars(source).items() if before.get(name, source) is not value}
    init = made.pop("__init__")
    for name, value in made.items():
        if name not in names:  # a default: a slot is there
            setattr(cls, name, value)
    cls.__init__ = init  # type: ignore[misc]  # last: until then other threads come here and wait
    del _sources[cls]


class _Late:
    """Stands for a method, or for what a dataclass reports of itself, until the methods are compiled: whoever asks has that done."""

    __slots__ = ("_cls", "_name")

    def __set_name__(self, cls: type, name: str) -> None:
        self._cls, self._name = cls, name

    def __get__(self, instance: object, owner: type) -> Any:
        _compile(self._cls)
        found = vars(self._cls)[self._name]
        return found.__get__(instance, owner) if hasattr(found, "__get__") else found


class _LateFields:
    """Stands for the fields of a dataclass: asking for them compiles nothing."""

    __slots__ = ("_twin",)

    def __init__(self, twin: Callable[[], type]) -> None:
        self._twin = twin

    def __get__(self, instance: object, owner: type) -> Any:
        return self._twin().__dataclass_fields__  # type: ignore[attr-defined]


def _lazy(
    *, slots: bool, frozen: bool = False, kw_only: bool = False, eq: bool = True, order: bool = False
) -> Callable[[type], type]:
    """See dataclasses.dataclass. Annotations are text (`from __future__ import annotations`)."""
    assert slots, "without slots a class is a dataclass at once: take that of the standard library"
    late_names = _ALWAYS + (_EQUAL if eq else ()) + (_FROZEN if frozen else ()) + (_ORDER if order else ())

    def decorate(source: type) -> type:
        hints = inspect.get_annotations(source)
        names = [name for name, hint in hints.items() if not hint.startswith(_NO_FIELDS)]
        inherited = {slot for base in source.__mro__[1:-1] for slot in base.__dict__.get("__slots__", ())}
        filled = 0
        twin = cache(partial(_twin_of, source, kw_only=kw_only, frozen=frozen))

        def fill(self: Any, *args: Any, **given: Any) -> None:
            nonlocal filled
            values = _bind(dataclasses.fields(twin()), args, given)
            filled += 1
            if values is None or filled > COMPILE_AT:
                _compile(cls)
                cls.__init__(self, *args, **given)  # type: ignore[misc]  # which says what is wrong with them
                return
            for name, value in values.items():
                object.__setattr__(self, name, value)
            if hasattr(cls, "__post_init__"):
                self.__post_init__()

        written = _namespace(source)
        if written.get("__hash__", ...) is None:
            del written["__hash__"]  # Python's, beside an __eq__: a frozen dataclass has one all the same
        namespace: dict[str, Any] = {name: _Late() for name in late_names}
        if eq and not frozen:
            namespace["__hash__"] = None
        namespace |= {name: value for name, value in written.items() if name not in names}
        namespace |= {
            "__slots__": tuple(name for name in names if name not in inherited),
            "__qualname__": source.__qualname__,
            "__init__": fill,
            "__dataclass_fields__": _LateFields(twin),
            "__getstate__": _state,
            "__setstate__": _take_state,
        }
        cls = type(source)(source.__name__, source.__bases__, namespace)
        _sources[cls] = (source, {"frozen": frozen, "kw_only": kw_only, "eq": eq, "order": order})
        return cls

    return decorate


def _namespace(source: type) -> dict[str, Any]:
    """The attributes that a second class of the same source needs."""
    return {name: value for name, value in vars(source).items() if name not in ("__dict__", "__weakref__")}


def _twin_of(source: type, *, kw_only: bool, frozen: bool) -> type:
    """A second class of the same source, with the fields that a dataclass has, and no methods."""
    twin = type(source)(source.__name__, source.__bases__, _namespace(source))
    frozen = frozen and any(map(dataclasses.is_dataclass, source.__mro__[1:]))  # as its bases; else that costs methods
    return dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False, kw_only=kw_only, frozen=frozen)(
        twin
    )


def _bind(
    fields: tuple[dataclasses.Field[Any], ...], args: tuple[Any, ...], given: dict[str, Any]
) -> dict[str, Any] | None:
    """Name -> value of each field; None where `__init__` would refuse the arguments."""
    values = dict(zip([field.name for field in fields if not field.kw_only], args, strict=False))
    if len(values) < len(args) or not values.keys().isdisjoint(given):
        return None
    values |= given
    for field in fields:
        if field.name not in values:
            if field.default_factory is not MISSING:
                values[field.name] = field.default_factory()
            elif field.default is not MISSING:
                values[field.name] = field.default
            else:
                return None
    return values if len(values) == len(fields) else None


def _state(self: Any) -> list[Any]:
    """For copies and pickles, of frozen objects too."""
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _take_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _lazy
