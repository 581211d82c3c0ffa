"""Slotted dataclasses whose methods are made when the first of their objects is.

May touch:  dataclasses.               Must not touch: everything else.
Invariants: from its first object on such a class is what `dataclasses.dataclass` makes of the same source; before, `realised` makes it
            so for who asks the class itself (`dataclasses.fields`); its identity never changes.
Read next:  kafka/messages, barnabas_quorum/records.py and requests.py, which declare hundreds.

`dataclasses` writes the text of up to six methods of each class and has each compiled: 0.2 ms, frozen 0.4 ms, a fifth of a node's start
(measured), of which most is for messages that this process never sees. Here the class is made with its slots at once, as
`dataclass(slots=True)` makes it, and the source class is kept; the first `__init__` has `dataclasses.dataclass` write the methods on
that, and takes them over. A type checker sees `dataclasses.dataclass` itself.
"""

from __future__ import annotations

import dataclasses
import inspect
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

_sources: dict[type, tuple[type, dict[str, Any]]] = {}
"""Class without methods yet -> the class as it was written, and the arguments of the decorator."""
_lock = threading.RLock()
_NO_FIELDS = ("ClassVar[", "typing.ClassVar[")


def realised(cls: type) -> type:
    """The same class, with all that a dataclass has. Of any other class nothing changes."""
    if not _sources.keys().isdisjoint(cls.__mro__):
        with _lock:
            for each in reversed(cls.__mro__):  # a dataclass reads the fields of its bases
                if each in _sources:
                    _realise(each, *_sources[each])
    return cls


def realise_all() -> None:
    """Before a fork: what all children need is made once."""
    for cls in tuple(_sources):
        realised(cls)


def _realise(cls: type, source: type, arguments: dict[str, Any]) -> None:
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


def _lazy(*, slots: bool, frozen: bool = False, kw_only: bool = False, eq: bool = True) -> Callable[[type], type]:
    """See dataclasses.dataclass. Annotations are text (`from __future__ import annotations`)."""
    assert slots, "without slots a class is a dataclass at once: take that of the standard library"

    def decorate(source: type) -> type:
        hints = inspect.get_annotations(source)
        names = [name for name, hint in hints.items() if not hint.startswith(_NO_FIELDS)]
        inherited = {slot for base in source.__mro__[1:-1] for slot in base.__dict__.get("__slots__", ())}
        namespace = {name: value for name, value in vars(source).items() if name not in names}
        namespace.pop("__dict__", None)
        namespace.pop("__weakref__", None)

        def first_init(self: Any, *args: Any, **fields: Any) -> None:
            realised(cls)
            cls.__init__(self, *args, **fields)  # type: ignore[misc]

        namespace |= {
            "__slots__": tuple(name for name in names if name not in inherited),
            "__qualname__": source.__qualname__,
            "__init__": first_init,
            "__getstate__": _state,
            "__setstate__": _take_state,
        }
        cls = type(source)(source.__name__, source.__bases__, namespace)
        _sources[cls] = (source, {"frozen": frozen, "kw_only": kw_only, "eq": eq})
        return cls

    return decorate


def _state(self: Any) -> list[Any]:
    """For copies and pickles, of frozen objects too."""
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _take_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(realised(type(self))), state, strict=True):
        object.__setattr__(self, field.name, value)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _lazy
