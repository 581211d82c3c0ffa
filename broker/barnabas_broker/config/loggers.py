"""Log levels of this process, which Kafka's tools read and change while a broker runs (KIP-412).

May touch:  the logging module.       Must not touch: files, metadata.
Invariants: a change is checked whole before any of it is made; nothing is kept: a restart has the levels of its command line.
Read next:  api/configs.py, which serves the resource BROKER_LOGGER with it.

Names are those of Barnabas's own loggers and packages (barnabas_replication.fetcher, barnabas_replication), and `root` for what no
other name sets. Levels are Kafka's words; TRACE shows all that DEBUG does and what other libraries write below it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from barnabas_wire.kafka.errors import ErrorCode, KafkaError

ROOT: Final = "root"
PREFIX: Final = "barnabas_"
LEVELS: Final[Mapping[str, int]] = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}

FORMER: Final[Mapping[str, str]] = {
    "barnabas_log.log_writer": "barnabas_log.log_tail",
}
"""Loggers that had another name in the version before: whoever says that still means them, for this version."""


def present_name(name: str) -> str:
    """What a logger is called now that may be named as in the version before."""
    return FORMER.get(name, name)


def levels() -> dict[str, str]:
    """Level in effect by logger name, `root` first."""
    own = sorted(name for name in logging.root.manager.loggerDict if name.startswith(PREFIX))
    return {ROOT: _word(logging.root)} | {name: _word(logging.getLogger(name)) for name in own}


def change_levels(changes: Mapping[str, str | None], *, validate_only: bool) -> None:
    """Set levels by logger name; None takes a logger's own level back, so that it has its parent's.

    Raises INVALID_CONFIG for a logger or a level that is not known, INVALID_REQUEST where root would have none.
    """
    known = levels()
    changes = {present_name(name): level for name, level in changes.items()}
    for name, level in changes.items():
        if name not in known:
            raise KafkaError.of(
                ErrorCode.INVALID_CONFIG, f"there is no logger {name}; describe the broker's loggers for names"
            )
        if level is not None and level not in LEVELS:
            raise KafkaError.of(ErrorCode.INVALID_CONFIG, f"{name}={level!r}: use one of {', '.join(LEVELS)}")
        if level is None and name == ROOT:
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, "root always has a level: set another one")
    if validate_only:
        return
    for name, level in changes.items():
        logger = logging.root if name == ROOT else logging.getLogger(name)
        logger.setLevel(logging.NOTSET if level is None else LEVELS[level])


def _word(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return next((word for word, number in LEVELS.items() if level >= number), "TRACE")
