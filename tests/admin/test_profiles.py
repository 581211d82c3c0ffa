"""Profiles are kept, chosen and beaten by what a line says; a shell gets its script and the names it asks for."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from barnabas_admin.known_clusters import profiles_path
from barnabas_admin.main import COMPLETION_VARIABLE, cli
from tests.admin.admin_server import AdminServer
from tests.support.images import make_image


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("BARNABAS_CONTEXT", str(tmp_path / "none"))
    for name in ("BARNABAS_ADMIN", "BARNABAS_BROKERS", "BARNABAS_PROFILE", "BARNABAS_CLIENT_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run(*arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(cli, list(arguments), catch_exceptions=False)
    assert result.exit_code == status, result.output
    return result


def test_a_profile_names_a_cluster(admin_server: AdminServer, monkeypatch: pytest.MonkeyPatch) -> None:
    run("topic", "list", status=2)
    run("profile", "create", "here", "--admin", admin_server.address)
    run("profile", "create", "gone", "--admin", "127.0.0.1:1")
    run("profile", "create", "here", "--admin", "127.0.0.1:2", status=3)
    assert stat.S_IMODE(profiles_path().stat().st_mode) == 0o600
    assert "here*" in run("profile", "list").stdout
    assert run("topic", "list").exit_code == 0, "the first one is used"
    run("topic", "list", "--profile", "gone", "--timeout", "0.5", status=1)
    monkeypatch.setenv("BARNABAS_PROFILE", "gone")
    run("topic", "list", "--timeout", "0.5", status=1)
    assert run("topic", "list", "--admin", admin_server.address).exit_code == 0, "what the line says wins"
    monkeypatch.delenv("BARNABAS_PROFILE")
    run("profile", "use", "gone")
    run("topic", "list", "--timeout", "0.5", status=1)
    assert "no profile 'nobody'" in run("topic", "list", "--profile", "nobody", status=2).stderr
    run("profile", "use", "-")
    run("profile", "delete", "gone", status=2)
    run("profile", "delete", "gone", "--yes")
    listed = json.loads(run("profile", "list", "-o", "json").stdout)["profiles"]
    assert [(p["name"], p["current"]) for p in listed] == [("here", False)]


def test_a_broken_file_is_named() -> None:
    profiles_path().parent.mkdir(parents=True)
    profiles_path().write_text("{")
    assert str(profiles_path()) in run("topic", "list", status=2).stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(shell: str) -> None:
    assert COMPLETION_VARIABLE in run("completion", shell).stdout


def test_commands_and_the_clusters_topics_are_completed(
    admin_server: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin_server.node.image = make_image(topics={"orders": [((1,), (1,), 1)], "other": [((1,), (1,), 1)]})
    monkeypatch.setenv(COMPLETION_VARIABLE, "bash_complete")
    monkeypatch.setenv("BARNABAS_ADMIN", admin_server.address)

    def completed(words: list[str], incomplete: str) -> list[str]:
        shell = ShellComplete(cli, {}, "barnabas", COMPLETION_VARIABLE)
        return [item.value for item in shell.get_completions(words, incomplete)]

    assert completed(["topic", "reassign"], "ba") == ["balance"]
    assert completed(["topic", "describe"], "or") == ["orders"]
    admin_server.close()
    monkeypatch.setenv("BARNABAS_ADMIN", "127.0.0.1:1")
    assert completed(["topic", "describe"], "or") == [], "a cluster that does not answer completes nothing"
