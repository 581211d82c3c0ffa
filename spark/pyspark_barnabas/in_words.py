"""Errors that say in their own words what is wrong: Spark shows those words, and no frames of ours.

May touch:  the environment of a Python process that Spark started.   Must not touch: the driver's environment, sockets.
Invariants: any other error keeps its frames, since it is a bug; a process that raised one of these ends, as Spark's do after every
            error, so nobody else's frames are hidden.
Read next:  __init__.py, whose methods are wrapped.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeVar

HIDE = "SPARK_HIDE_TRACEBACK"
"""Read by pyspark when it reports an error."""
_OF_SPARK = ("PYTHON_WORKER_FACTORY_SECRET", "PYTHON_UNIX_DOMAIN_ENABLED")
"""Variables that only processes have that Spark starts."""

C = TypeVar("C", bound=type)


class InWords(Exception):
    """An error whose message says all."""


def alone(error: InWords) -> InWords:
    """The error as Spark shall show it: by its message alone, without frames and what it came from."""
    if any(name in os.environ for name in _OF_SPARK):
        os.environ[HIDE] = "1"
    return error


def in_words(*methods: str) -> Callable[[C], C]:
    """A decorator of a class: what these methods raise in words is shown alone; rows that they yield, too."""

    def decorate(kind: C) -> C:
        for name in methods:
            setattr(kind, name, _wrapped(getattr(kind, name)))
        return kind

    return decorate


def _wrapped(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **named: Any) -> Any:
        try:
            found = method(*args, **named)
        except InWords as error:
            raise alone(error) from None
        return _rows(found) if isinstance(found, Iterator) else found

    return call


def _rows(found: Iterator[Any]) -> Generator[Any, None, None]:
    try:
        yield from found
    except InWords as error:
        raise alone(error) from None
