"""Refusals of `barnabas-server`: one line on stderr that names what is wrong, exit status 2, never a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas_broker.main import EXIT_USAGE, main


def test_a_file_where_a_directory_is_meant_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.json"
    report.write_text("{}")
    assert main(["quorum", "recover", str(report), "--inspect"]) == EXIT_USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("barnabas-server: ") and str(report) in line
    assert main(["quorum", "recover", str(report), "--inspect", "-o", "json"]) == EXIT_USAGE
    told = json.loads(capsys.readouterr().err)["error"]
    assert told.keys() == {"code", "name", "message", "hint", "retriable"} and str(report) in told["message"]
