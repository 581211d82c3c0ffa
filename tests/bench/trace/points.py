"""The functions whose calls a traced node marks, by name.

May touch:  the classes it names.     Must not touch: what they do.
Invariants: a name that is gone is an error that says so, in a test first; a mark costs a clock and an append to a list.
Read next:  path.py.

Not obvious: what sends is marked as it begins. On a busy machine the other process runs first, and a mark behind the system
call came after what it caused in one record of ten (seen).
"""

from __future__ import annotations

import enum
import importlib
from collections.abc import Callable
from time import monotonic_ns
from typing import Any, NamedTuple

Marks = list[tuple[int, str]]
"""(ns of CLOCK_MONOTONIC, which all processes of a host share; point)"""


class Moment(enum.Enum):
    """When a call is marked."""

    ENTER = "enter"
    EXIT = "exit"


class Point(NamedTuple):
    """One mark."""

    name: str
    module: str
    owner: str
    """A class of the module."""
    function: str
    moment: Moment
    by: str = ""
    """An attribute of the instance whose value is put behind the name, such as which request an answer is of."""


ENTER, EXIT = Moment.ENTER, Moment.EXIT
POINTS = (
    Point("listener receives", "barnabas_broker.network.connection", "Connection", "buffer_updated", ENTER),
    Point("append asked", "barnabas_replication.leader.appends", "Appends", "append_records", ENTER),
    Point("leader appended", "barnabas_log.tail.log_tail", "LogTail", "append_as_leader", EXIT),
    Point("write begins", "barnabas_log.tail.log_tail", "LogTail", "write_pending", ENTER),
    Point("write ends", "barnabas_log.tail.log_tail", "LogTail", "write_pending", EXIT),
    Point("parked fetches woken", "barnabas_replication.leader.purgatory", "WaitingList", "wake", ENTER),
    Point("answer filled", "barnabas_broker.api.slot", "ResponseSlot", "fill", ENTER, by="api_key"),
    Point("answer sent", "barnabas_broker.network.output", "SocketOutput", "send", ENTER),
    Point("fetcher receives", "barnabas_wire.client.aio", "AioConnection", "buffer_updated", ENTER),
    Point("answer taken in", "barnabas_replication.follower.fetcher_partitions", "FetcherPartitions", "take_in", ENTER),
    Point("follower appended", "barnabas_log.tail.log_tail", "LogTail", "append_as_follower", EXIT),
    Point("fetch sent", "barnabas_wire.client.aio", "AioConnection", "_write", ENTER),
    Point("HW set", "barnabas_replication.partition", "Partition", "set_high_watermark", EXIT),
)


class PointGone(Exception):
    """A traced function has another name now."""


def find(point: Point) -> tuple[type, Callable[..., Any]]:
    """(owner, function) of a point. Raises PointGone."""
    try:
        owner = getattr(importlib.import_module(point.module), point.owner)
        function = vars(owner)[point.function]
    except (ImportError, AttributeError, KeyError) as error:
        raise PointGone(
            f"bench-trace marks {point.module}.{point.owner}.{point.function} as {point.name!r}, which is not there: "
            "name what does that step now in tests/bench/trace/points.py"
        ) from error
    return owner, function


def install(marks: Marks) -> None:
    """Wrap every point in this process. Raises PointGone before anything is wrapped."""
    for point in POINTS:
        find(point)
    for point in POINTS:
        owner, function = find(point)
        setattr(owner, point.function, wrap(function, point, marks))


def wrap(function: Callable[..., Any], point: Point, marks: Marks) -> Callable[..., Any]:
    """The function, with its calls marked."""
    name, attribute = point.name, point.by
    add, now = marks.append, monotonic_ns
    if attribute:

        def named(self: Any, *arguments: Any, **keywords: Any) -> Any:
            add((now(), f"{name} {getattr(self, attribute)}"))
            return function(self, *arguments, **keywords)

        return named
    if point.moment is Moment.ENTER:

        def entered(*arguments: Any, **keywords: Any) -> Any:
            add((now(), name))
            return function(*arguments, **keywords)

        return entered

    def left(*arguments: Any, **keywords: Any) -> Any:
        try:
            return function(*arguments, **keywords)
        finally:
            add((now(), name))

    return left
