"""What a node logs, in which form, where to, and how much of it is kept.

May touch:  the logging module, the log file that is named.   Must not touch: other files, metadata.
Invariants: without a key a node logs text to stderr at INFO, as ever; a line of JSON is one object; a file never grows beyond its size.
Read next:  loggers.py, which changes levels while a node runs.
"""

from __future__ import annotations

import datetime
import enum
import json
import logging
import logging.handlers
import re
import sys
from typing import Any

from barnabas_broker.config.keys import ConfigError
from barnabas_broker.config.loggers import LEVELS, present_name
from barnabas_wire.config_key import config_key
from barnabas_wire.lazy_dataclass import dataclass

TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


class LogFormat(enum.Enum):
    """A line for people, or an object for programs."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOutputConfig:
    """Keys of the node's own log; the logs of records are LogConfig's."""

    form: LogFormat = config_key(
        "log.format",
        LogFormat.TEXT,
        "Form of the node's own log: text, or json, an object a line with time, level, logger, node, message, and exception where there "
        "is one.",
    )
    text_has_node: bool = config_key(
        "log.text.node.id",
        False,
        "Begin each line of text with the node's id in brackets, as `[101]`: for nodes that write into one log. An object has it anyway.",
    )
    level: str | None = config_key(
        "log.level",
        None,
        "FATAL, ERROR, WARN, INFO, DEBUG or TRACE; then NAME=LEVEL for single loggers, comma-separated: "
        "INFO,barnabas_replication=DEBUG. Else BARNABAS_LOG_LEVEL, else INFO. While a broker runs: barnabas broker log-level.",
    )
    file: str | None = config_key("log.file", None, "File of the node's own log; standard error if not set.")
    file_max_bytes: int = config_key(
        "log.file.max.bytes",
        100 * 1024 * 1024,
        "Size at which log.file is renamed to its name with .1, and so on; 0 = never.",
    )
    file_backups: int = config_key("log.file.backups", 5, "How many renamed log files are kept.")

    def levels(self) -> dict[str, int]:
        """Level by logger name, "" for all others. Raises ConfigError."""
        found: dict[str, int] = {}
        for part in (self.level or "").split(","):
            name, separator, word = part.strip().rpartition("=")
            if not part.strip():
                continue
            if word.upper() not in LEVELS or (separator and not name):
                raise ConfigError(f"log.level={self.level}: use one of {', '.join(LEVELS)}, or NAME=LEVEL with commas")
            found[name] = LEVELS[word.upper()]
        return found

    def __post_init__(self) -> None:
        self.levels()
        for key, value in (("log.file.max.bytes", self.file_max_bytes), ("log.file.backups", self.file_backups)):
            if value < 0:
                raise ConfigError(f"{key}={value}: use 0 or greater")


MESSAGE_MAX = 4096
"""Characters of a message: it may repeat what a client said, and 500 names of 32 KiB would rotate everything else away."""
WHOLE = {"is_whole": True}
"""`extra` of a message that is written as it is, however long."""
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


class TextFormatter(logging.Formatter):
    """One line for each message; lines of a traceback follow it, indented. What clients say of themselves ends up in messages: a
    control character is written as an escape, so that no client forges a line or commands the reader's terminal."""

    def __init__(self, name: object = None) -> None:
        """name: of the node, in brackets before each line, of a traceback too; None: no line has it."""
        super().__init__(TEXT_FORMAT)
        self._before = "" if name is None else f"[{name}] "

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        return self._before + super().format(record).replace("\n", f"\n{self._before}")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """Local time with its zone: logs of nodes in two zones are read side by side."""
        return datetime.datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        record.message = _bounded(record, record.message)
        return _escaped(super().formatMessage(record)).replace("\n", "\\n")

    def formatException(self, ei: Any) -> str:
        """See logging.Formatter."""
        return _escaped(super().formatException(ei)).replace("\n", "\n  ")


def _bounded(record: logging.LogRecord, message: str) -> str:
    if len(message) <= MESSAGE_MAX or getattr(record, "is_whole", False):
        return message
    return f"{message[:MESSAGE_MAX]}… ({len(message)} characters)"


def _escaped(text: str) -> str:
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class JsonFormatter(logging.Formatter):
    """One JSON object for each message, of one line."""

    def __init__(self, node_id: int | str | None) -> None:
        super().__init__()
        self._node_id = node_id

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        fields: dict[str, object] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "node": self._node_id,
            "message": _bounded(record, record.getMessage()),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(fields, ensure_ascii=False))


def start_logging(config: LogOutputConfig, *, default_level: str = "INFO", node_id: int | str | None = None) -> None:
    """Give the root logger its handler, unless a program that we run in has given it one and the config says nothing else.

    `default_level` counts where the config names none; node_id: of the node, or the name of what else writes here.
    Raises ConfigError for a file that cannot be
    written."""
    if logging.root.handlers and config == LogOutputConfig():
        return
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if config.file:
        try:
            handler = logging.handlers.RotatingFileHandler(
                config.file, maxBytes=config.file_max_bytes, backupCount=config.file_backups, encoding="utf-8"
            )
        except OSError as error:
            raise ConfigError(
                f"log.file={config.file}: {error.strerror}; name a file that this user may write"
            ) from error
    is_json = config.form is LogFormat.JSON
    handler.setFormatter(
        JsonFormatter(node_id) if is_json else TextFormatter(node_id if config.text_has_node else None)
    )
    for former in tuple(logging.root.handlers):
        logging.root.removeHandler(former)
        former.close()
    logging.root.addHandler(handler)
    logging.root.setLevel(default_level)
    logging.getLogger("grpc").setLevel(logging.WARNING)  # at DEBUG it writes a line for every call
    for name, level in config.levels().items():
        logging.getLogger(present_name(name) or None).setLevel(level)
