"""`barnabas pki`: what the certificates are good for, and that nothing is written over."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from barnabas_admin import pki
from barnabas_admin.main import cli


def run(*words: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(cli, ["pki", *words], catch_exceptions=False)
    assert result.exit_code == exit_code, result.output
    return result.output


def test_an_authority_issues_renews_and_shows(tmp_path: Path) -> None:
    directory = tmp_path / "pki"
    run("init", str(directory), "-o", "json")
    run("issue", "node-1", "--host", "127.0.0.1", "--host", "node-1.example", "-d", str(directory), "-o", "json")
    before = (directory / "node-1.pem").read_bytes()
    run("renew", "node-1", "-d", str(directory), "--days", "7")
    assert (directory / "node-1.pem").read_bytes() != before
    run("issue", "alice", "-d", str(directory))
    found = {each["subject"]: each for each in json.loads(run("show", str(directory), "-o", "json"))["certificates"]}
    assert set(found) == {"CN=Barnabas", "CN=node-1", "CN=alice"}
    assert found["CN=node-1"]["hosts"] == ["127.0.0.1", "node-1.example"]
    assert found["CN=node-1"]["days_left"] == 6
    assert found["CN=alice"]["hosts"] == []
    for file in ("ca-key.pem", "node-1.pem", "alice.pem"):
        assert stat.S_IMODE((directory / file).stat().st_mode) == 0o600, file


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("init", "{}"), "an authority is made once"),
        (("issue", "node", "-d", "{}"), "barnabas pki renew node"),
        (("issue", "ca", "-d", "{}"), "cannot name a certificate"),
        (("issue", "../up", "-d", "{}"), "cannot name a certificate"),
        (("renew", "nobody", "-d", "{}"), "lists what there is"),
        (("issue", "node", "-d", "{}/empty"), "barnabas pki init"),
        (("show", "{}/empty"), "has no certificates"),
    ],
)
def test_nothing_is_written_over_and_each_refusal_says_what_to_do(
    tmp_path: Path, words: tuple[str, ...], hint: str
) -> None:
    pki.init(tmp_path)
    pki.issue(tmp_path, "node", hosts=["localhost"])
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    result = CliRunner().invoke(cli, ["pki", *(word.format(tmp_path) for word in words)])
    assert result.exit_code != 0
    assert hint in result.output
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_days_left_of_a_certificate_that_has_ended_are_negative(tmp_path: Path) -> None:
    facts = pki.show(pki.init(tmp_path))
    assert facts.days_left(datetime(2100, 1, 1, tzinfo=UTC)) < 0
