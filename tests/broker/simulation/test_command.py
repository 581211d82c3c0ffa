"""`barnabas-server sim`: what it prints, and what it refuses."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas_broker.main import main
from tests.support.journals import small_journal, text_of


@pytest.fixture
def journal_file(tmp_path: Path) -> str:
    path = tmp_path / "run.jsonl"
    path.write_bytes(text_of(small_journal()))
    return str(path)


def test_the_scenarios_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "list"]) == 0
    assert "leader-dies" in capsys.readouterr().out
    assert main(["sim", "list", "-o", "json"]) == 0
    names = {each["name"] for each in json.loads(capsys.readouterr().out)["scenarios"]}
    assert {"leader-dies", "network-splits", "disk-rots", "two-voters-lost"} <= names


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--scenario", "rain"], "there is no scenario 'rain'; there are: leader-dies"),
        (["--seed", "-1"], "give a whole number"),
        (["--seed", "x"], "give a whole number"),
        (["replay", "/nowhere/run.jsonl"], "barnabas-server sim"),
    ],
)
def test_what_is_refused_names_the_fix(words: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", *words]) == 2
    assert reason in capsys.readouterr().err


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other"
    path.write_text("flights\n")
    assert main(["sim", "replay", str(path)]) == 2
    assert f"{path}: line 1" in capsys.readouterr().err


def test_a_replay_shows_what_happened_and_on_request_why(
    journal_file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    assert main(["sim", "replay", journal_file]) == 0
    shown = capsys.readouterr().out
    assert "Node 1 leads the quorum in epoch 2" in shown and "leader 2, 3/1" in shown
    assert "· 1 step of records: 0 acknowledgements, 1 committed" in shown and "Node 2 writes record 2" not in shown
    assert "Two of three voted for it" not in shown
    assert main(["sim", "replay", journal_file, "--all", "--why"]) == 0
    shown = capsys.readouterr().out
    assert "Node 2 writes record 2" in shown and "Two of three voted for it" in shown
    assert main(["sim", "replay", journal_file, "-o", "json"]) == 0
    assert capsys.readouterr().out.encode() == text_of(small_journal())
    monkeypatch.setenv("COLUMNS", "70")
    assert main(["sim", "replay", journal_file]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 70


def test_a_broken_law_is_an_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(text_of(replace(small_journal(), is_kept=False, verdict="P9: it fell")))
    assert main(["sim", "replay", str(path)]) == 1
    assert "BROKEN: P9: it fell" in capsys.readouterr().out


def test_a_replay_goes_step_by_step(
    journal_file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n3\np\nwhat\nq\n"))
    assert main(["sim", "replay", journal_file, "--step"]) == 0
    shown = capsys.readouterr().out
    order = [line.split(",")[0] for line in shown.splitlines() if line.startswith("step ")]
    assert order == ["step 1 of 3", "step 2 of 3", "step 3 of 3", "step 2 of 3", "step 2 of 3"]
    assert "cut: 1 → 3, 3 → 1" in shown and "'what' is none of these" in shown
