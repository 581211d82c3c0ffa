"""The log lines of nodes that live in threads of somebody else's process: kept with the node, away from the process's own logging.

May touch:  the loggers of our own rooms.      Must not touch: the root logger, its handlers, other packages' loggers.
Invariants: a line of a node's thread is kept with that node and goes nowhere else; a line of any other thread goes where it would have
            gone; when the last node has ended our loggers are as they were.
Read next:  in_process.py.
"""

from __future__ import annotations

import logging
import threading
from collections import deque

from barnabas_broker.config.log_output import LogOutputConfig, TextFormatter

LINES_MAX = 500
"""The last lines of a node that are kept."""
ROOMS = (
    "barnabas_broker",
    "barnabas_coordination",
    "barnabas_log",
    "barnabas_quorum",
    "barnabas_replication",
    "barnabas_wire",
)


class RoomLog:
    """The last lines of one node."""

    def __init__(self) -> None:
        self.level = logging.INFO
        self._lines: deque[str] = deque(maxlen=LINES_MAX)

    def add(self, line: str) -> None:
        """One more line; the oldest goes where there are too many."""
        self._lines.append(line)

    def __str__(self) -> str:
        return "\n".join(self._lines.copy())


class _ByThread(logging.Handler):
    """Gives a line to the node whose thread it comes from, and says whether it is passed on to the root logger's
    handlers."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(TextFormatter())
        self.logs: dict[int, RoomLog] = {}
        self.stays = threading.local()
        """`here`: whether the line that this thread logs now ends here."""

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        log = self.logs.get(record.thread or 0)
        if log is not None and record.levelno >= log.level:
            log.add(self.format(record))
        self.stays.here = log is not None or record.levelno < _host_level(record.name)


class _ByLine(logging.Logger):
    """A room's logger while nodes run. `propagate` is asked right after the handlers, in the thread that logs: so it can differ from
    line to line. False for good would have pytest capture every line of a node as the test's own."""

    @property
    def propagate(self) -> bool:
        """Whether the line that was just handled is passed on; True for any other reader."""
        stays, _handler.stays.here = getattr(_handler.stays, "here", False), False
        return not stays

    @propagate.setter
    def propagate(self, value: bool) -> None:
        """Somebody configures the process's logging: it counts when the last node has ended."""
        self.__dict__["propagate"] = value


_handler = _ByThread()
_guard = threading.Lock()
_before: dict[str, tuple[int, type[logging.Logger]]] = {}
"""Level and class of our loggers before the first node."""


def keep_log(log: RoomLog, config: LogOutputConfig) -> None:
    """From now on the lines of the thread that calls are kept there. log.level says which, those of single loggers aside."""
    log.level = config.levels().get("", logging.INFO)
    with _guard:
        if not _handler.logs:
            for name in ROOMS:
                logger = logging.getLogger(name)
                kind = type(logger)
                _before[name] = logger.level, kind
                logger.__class__ = _ByLine if kind is logging.Logger else type(kind.__name__, (_ByLine, kind), {})
                logger.addHandler(_handler)
        _handler.logs[threading.get_ident()] = log
        _set_levels()


def stop_log() -> None:
    """The thread that calls is no node any more; what was kept stays."""
    with _guard:
        _handler.logs.pop(threading.get_ident(), None)
        if _handler.logs:
            _set_levels()
            return
        for name, (level, kind) in _before.items():
            logger = logging.getLogger(name)
            logger.removeHandler(_handler)
            logger.setLevel(level)
            logger.__class__ = kind
        _before.clear()


def _host_level(name: str) -> int:
    """The level of a logger of ours, but for the nodes."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        level = _before[logger.name][0] if logger.name in _before else logger.level
        if level:
            return level
        logger = logger.parent
    return logging.NOTSET


def _set_levels() -> None:
    wanted = min(log.level for log in _handler.logs.values())
    for name in _before:
        logging.getLogger(name).setLevel(min(wanted, _host_level(name) or wanted))
