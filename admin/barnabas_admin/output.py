"""What a command prints: tables for people, JSON for programs, errors with a way out; and the exit codes.

May touch:  stdout, stderr.           Must not touch: network, files.
Invariants: stdout carries data, stderr talk; JSON is one object with "api_version"; keys are snake_case and stable.
Read next:  invocation.py.
"""

from __future__ import annotations

import datetime
import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from barnabas_admin.errors import WrongUsage
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.moments import moment_of

API_VERSION = "v1"
FOLDED_WIDTH_MIN = 24
"""The widest column of a table is folded to this at least."""
CELL_BORDER = 3
"""Characters that a terminal's table has between two cells."""


class ExitCode(IntEnum):
    """How a command ends."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND_OR_EXISTS = 3
    TIMEOUT = 4
    AUTHORISATION = 5
    UNHEALTHY = 10


_EXIT_CODES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ExitCode.NOT_FOUND_OR_EXISTS,
    ErrorCode.UNKNOWN_TOPIC_ID: ExitCode.NOT_FOUND_OR_EXISTS,
    ErrorCode.TOPIC_ALREADY_EXISTS: ExitCode.NOT_FOUND_OR_EXISTS,
    ErrorCode.GROUP_ID_NOT_FOUND: ExitCode.NOT_FOUND_OR_EXISTS,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: ExitCode.NOT_FOUND_OR_EXISTS,
    ErrorCode.VOTER_NOT_FOUND: ExitCode.NOT_FOUND_OR_EXISTS,
    ErrorCode.DUPLICATE_VOTER: ExitCode.NOT_FOUND_OR_EXISTS,
    ErrorCode.RESOURCE_NOT_FOUND: ExitCode.NOT_FOUND_OR_EXISTS,
    ErrorCode.BROKER_ID_NOT_REGISTERED: ExitCode.NOT_FOUND_OR_EXISTS,
    ErrorCode.REQUEST_TIMED_OUT: ExitCode.TIMEOUT,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ExitCode.AUTHORISATION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ExitCode.AUTHORISATION,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: ExitCode.AUTHORISATION,
    ErrorCode.SASL_AUTHENTICATION_FAILED: ExitCode.AUTHORISATION,
    ErrorCode.SECURITY_DISABLED: ExitCode.AUTHORISATION,
}


_HINTS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`barnabas topic list` shows the topics",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "a topic's name is 1 to 249 of the letters A-Z and a-z, digits, '.', '_' and '-'",
    ErrorCode.MESSAGE_TOO_LARGE: "`barnabas topic alter TOPIC -c max.message.bytes=BYTES` lets larger ones in",
} | {
    code: "this user lacks a right; a super user can give it: "
    f"`barnabas acl create --allow User:NAME --operation OPERATION --resource {resource} --name NAME`"
    for code, resource in (
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "group"),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional-id"),
    )
}
"""For errors that brokers report without a hint."""


def exit_code_of(code: ErrorCode) -> ExitCode:
    """The exit code that stands for an error code."""
    return _EXIT_CODES.get(code, ExitCode.ERROR)


def exit_code_of_error(error: KafkaError) -> ExitCode:
    """The exit code that an error ends the process with."""
    return ExitCode.USAGE if isinstance(error, WrongUsage) else exit_code_of(error.code)


_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What moves a terminal's cursor, names its window or turns the order of letters around; line ends and tabs are left."""
_BEYOND_ASCII = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""A text of others as a terminal may show it: control characters become \x1b or \u2028. Names, client ids, records and the
    words of brokers are written by whoever may write them, and a terminal would obey."""
    return _CONTROL.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def json_text(value: Any) -> str:
    """One line of JSON in which no control character stands as itself."""
    return _BEYOND_ASCII.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


def print_json(fields: Mapping[str, Any]) -> None:
    """One JSON object on stdout, `api_version` first."""
    print(json_text({"api_version": API_VERSION, **fields}))


def print_line(text: str = "") -> None:
    """A line of data on stdout."""
    print(printable(text))


def talk(text: str) -> None:
    """A line for people on stderr: progress, what was changed."""
    print(printable(text), file=sys.stderr, flush=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table on stdout: with rich on a terminal that is wide enough, in plain aligned columns when piped or too narrow."""
    texts = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(column), *(len(row[i]) for row in texts), 0) for i, column in enumerate(columns)]
    if sys.stdout.isatty() and _fits(widths, shutil.get_terminal_size().columns):
        _print_rich_table(columns, texts, folded=widths.index(max(widths)))
        return
    for row in (list(columns), *texts):
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _fits(widths: Sequence[int], terminal_width: int) -> bool:
    """Whether no column but the widest has to be folded. Rich would fold all of them, to columns of five characters."""
    return sum(widths) - max(widths) + min(max(widths), FOLDED_WIDTH_MIN) + CELL_BORDER * len(widths) <= terminal_width


def _print_rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, folded: int) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=index != folded)
    for row in rows:
        table.add_row(*(Text(text) for text in row))
    Console(highlight=False).print(table)


def print_fields(fields: Mapping[str, Any]) -> None:
    """Name and value per line on stdout."""
    width = max(len(name) for name in fields)
    for name, value in fields.items():
        print(f"{name.ljust(width)}  {_cell(value)}")


def size_text(size_bytes: int | None) -> str | None:
    """Bytes for people, as 9.4KiB; None for what is not known."""
    if size_bytes is None or size_bytes < 1024:
        return None if size_bytes is None else f"{size_bytes}B"
    size = float(size_bytes)
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f}{unit}"
    return f"{size / 1024:.1f}TiB"


def local_time(timestamp_ms: int, *, is_dated: bool = False) -> str:
    """A moment as this host's clock shows it, as the nodes' own logs do; the date too when asked for or not today."""
    if timestamp_ms < 0:
        return "(time unknown)"
    moment = moment_of(timestamp_ms)
    if moment is None:
        return f"@{timestamp_ms}"
    text = moment.strftime("%H:%M:%S.") + f"{timestamp_ms % 1000:03d}"
    return f"{moment:%Y-%m-%d} {text}" if is_dated or moment.date() != datetime.date.today() else text


def print_error(error: KafkaError, *, is_json: bool) -> None:
    """An error on stderr: `error: CODE: message` and the hint, or the same as one JSON object."""
    message = error.message or error.code.name.replace("_", " ").lower()
    hint = getattr(error, "hint", "") or _HINTS.get(error.code, "")
    if is_json:
        fields = {
            "code": int(error.code),
            "name": error.code.name,
            "message": message,
            "hint": hint,
            "retriable": error.is_retriable,
        }
        print(json_text({"api_version": API_VERSION, "error": fields}), file=sys.stderr)
        return
    is_own = error.code is ErrorCode.UNKNOWN_SERVER_ERROR or isinstance(error, WrongUsage)
    name = "" if is_own else f"{error.code.name}: "
    talk(f"error: {name}{message}")
    commands = re.findall(r"`[^`]+`", hint)
    if hint and not (commands and all(command in message for command in commands)):
        talk(f"hint: {hint}")


def _cell(value: Any) -> str:
    return printable(_cell_text(value)).replace("\n", "\\n").replace("\t", "\\t")


def _cell_text(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={item}" for key, item in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value) or "-"
    return str(value)
