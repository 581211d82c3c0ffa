"""The node's own log: its form, its levels, its rotation."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas_broker.config.keys import ConfigError
from barnabas_broker.config.log_output import (
    MESSAGE_MAX,
    WHOLE,
    JsonFormatter,
    LogFormat,
    LogOutputConfig,
    TextFormatter,
    start_logging,
)


@pytest.fixture
def root_as_it_was() -> Iterator[None]:
    handlers, level = tuple(logging.root.handlers), logging.root.level
    logging.root.handlers[:] = []  # pytest's own must not be closed
    yield
    for handler in logging.root.handlers:
        handler.close()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    for name in ("barnabas_test", "grpc"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def test_a_line_of_json_is_one_object_with_its_traceback() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("barnabas_x", logging.ERROR, "f", 1, "it \u00e9 %s", ("broke\n",), sys.exc_info())
    record.created = 0.25
    line = JsonFormatter(7).format(record)
    assert "\n" not in line
    found = json.loads(line)
    assert found.pop("exception").endswith("ValueError: two\nlines")
    assert found == {
        "time": "1970-01-01T00:00:00.250Z",
        "level": "ERROR",
        "logger": "barnabas_x",
        "node": 7,
        "message": "it \u00e9 broke\n",
    }


@pytest.mark.attack("A4", "no client's text forges a line of the node's log")
def test_no_message_and_no_exception_forges_a_line_of_text() -> None:
    try:
        raise ValueError("two\n2026-01-01T00:00:00.000 INFO forged \x1b]0;owned\x07")
    except ValueError:
        message = "mechanism \x1b[2J%s\u2028"
        record = logging.LogRecord("barnabas_x", logging.ERROR, "f", 1, message, ("PLAIN\n2026",), sys.exc_info())
    first, *more = TextFormatter().format(record).split("\n")
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d ERROR", first)
    assert first.endswith(r"ERROR barnabas_x mechanism \x1b[2JPLAIN\n2026\u2028")
    assert more and all(line.startswith("  ") or line == "Traceback (most recent call last):" for line in more)
    assert "\x1b" not in "".join(more) and "\x07" not in "".join(more)


@pytest.mark.attack("A4", "a client's text is cut in the node's log, in text and in JSON")
def test_each_line_of_text_names_the_node_that_shares_its_log() -> None:
    record = logging.LogRecord(
        "here", logging.INFO, __file__, 1, "one\ntwo", None, (ValueError, ValueError("a\nb"), None)
    )
    lines = TextFormatter(101).format(record).split("\n")
    assert len(lines) > 1 and all(line.startswith("[101] ") for line in lines)


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter(7)])
def test_a_message_is_cut_unless_it_is_to_be_whole(formatter: logging.Formatter) -> None:
    def line(**extra: bool) -> str:
        record = logging.LogRecord("barnabas_x", logging.INFO, "f", 1, "group %s", ("\x9b" * 32_767,), None)
        record.__dict__ |= extra
        return formatter.format(record)

    assert len(line()) < 6 * MESSAGE_MAX + 200 and "32773 characters" in line()
    assert "\x9b" not in line() and len(line(**WHOLE)) > 4 * 32_767


def test_levels_and_rotation_are_the_configs(root_as_it_was: None, tmp_path: Path) -> None:
    file = tmp_path / "node.log"
    config = LogOutputConfig(
        form=LogFormat.JSON, level="WARN,barnabas_test=DEBUG", file=str(file), file_max_bytes=2000, file_backups=2
    )
    start_logging(config, node_id=1)
    logging.getLogger("barnabas_other").info("not this")
    for number in range(100):
        logging.getLogger("barnabas_test").debug("line %d", number)
    files = sorted(tmp_path.iterdir())
    assert [path.name for path in files] == ["node.log", "node.log.1", "node.log.2"]
    assert all(path.stat().st_size <= 2000 for path in files)
    last = json.loads(file.read_text().splitlines()[-1])
    assert (last["message"], last["level"], last["node"]) == ("line 99", "DEBUG", 1)
    assert "not this" not in "".join(path.read_text() for path in files)


@pytest.mark.parametrize("level", ["LOUD", "INFO,barnabas=LOUD", "=DEBUG"])
def test_a_level_that_is_none_is_refused(level: str) -> None:
    with pytest.raises(ConfigError, match="use one of FATAL, ERROR"):
        LogOutputConfig(level=level)


def test_a_file_that_cannot_be_written_is_refused_in_words(root_as_it_was: None, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"log\.file=.*: No such file or directory; name a file"):
        start_logging(LogOutputConfig(file=str(tmp_path / "none" / "x.log")))
