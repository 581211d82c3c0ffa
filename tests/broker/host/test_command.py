"""What `barnabas-server host` says and refuses before it starts anything."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from barnabas_broker.host import command
from barnabas_broker.main import main

TEXT = "node.id=1\nbrokers=2\ncontroller.quorum.bootstrap.servers=127.0.0.1:9093\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "host.properties"
    path.write_text(f"{TEXT}log.dirs={tmp_path / 'd'}\n")
    return path


def refused(config: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["host", "--check", "-c", str(config), *words]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    return said


def test_a_check_names_the_nodes_and_starts_nothing(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["host", "--check", "-c", str(config)]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["directory", "broker-1", "broker-2"]
    assert list(config.parent.iterdir()) == [config]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--override", "brokers=0"), "brokers=0: use auto"),
        (("--override", "brokrs=2"), "brokrs is not a key that barnabas knows"),
        (("--override", "brokers"), "write KEY=VALUE"),
        (("--override", "node.2.node.id=7"), "node.id is the host's"),
        (("--override", "node.2.compression.type=zip"), "compression.type"),
        (("--override", "admin.listeners=0.0.0.0:9190"), "is off loopback and has no authentication"),
        (("--override", "metrics.listeners=127.0.0.1:9093"), "have one port"),
    ],
)
def test_bad_properties_are_refused_in_a_line(
    config: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert said in refused(config, capsys, *words)


def test_a_directory_that_is_a_nodes_own_is_refused(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (config.parent / "d").mkdir()
    (config.parent / "d" / "meta.properties").write_text("node.id=1\n")
    assert "is a node's own directory (meta.properties)" in refused(config, capsys)


def test_too_few_descriptors_are_refused(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "system_descriptors", lambda: 500)
    assert "may open 250 files and a node needs at least 256" in refused(config, capsys)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 256


def test_without_a_file_nothing_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["host"]) == 2
    assert "properties file" in capsys.readouterr().err
