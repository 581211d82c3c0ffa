"""Who runs, by locks: over the death of a parent, and whatever is in the files."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas_broker.config.keys import ConfigError
from barnabas_broker.host.directory import Holder, HostDirectory
from barnabas_wire.java_properties import read_properties_file

NAME = "broker-101"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[HostDirectory]:
    here = Path(f"/tmp/hd-{os.getpid()}")
    yield HostDirectory(str(here))
    subprocess.run(["rm", "-rf", str(here)], check=True)


def test_one_process_supervises_a_directory(directory: HostDirectory) -> None:
    held = directory.lock()
    with pytest.raises(ConfigError, match="another process supervises"):
        directory.lock()
    os.close(held)
    os.close(directory.lock())


def test_a_node_holds_its_lock_while_it_lives_though_its_parent_has_closed_it(directory: HostDirectory) -> None:
    lock = directory.lock_node(NAME)
    assert lock is not None
    node = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock,))
    os.pwrite(lock, json.dumps({"pid": node.pid, "digest": "d"}).encode(), 0)
    os.close(lock)
    try:
        assert directory.is_held(NAME) and directory.lock_node(NAME) is None
        assert directory.names_held() == [NAME]
        assert directory.holder(NAME) == Holder(node.pid, "d")
    finally:
        node.kill()
        node.communicate()
    assert not directory.is_held(NAME) and directory.names_held() == []
    again = directory.lock_node(NAME)
    assert again is not None and directory.holder(NAME) is None, "the former one is forgotten"
    os.close(again)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x", "digest": "d"}', '{"pid": 1}', "\xff"])
def test_a_lock_without_sense_names_nobody(directory: HostDirectory, text: str) -> None:
    (directory.path / f"{NAME}.lock").write_text(text)
    assert directory.holder(NAME) is None and not directory.is_held(NAME)


def test_readiness_is_that_of_one_process(directory: HostDirectory) -> None:
    assert not directory.was_ready(NAME, 7)
    directory.note_ready(NAME, 7)
    assert directory.was_ready(NAME, 7) and not directory.was_ready(NAME, 8)


def test_properties_are_their_owners_alone_and_read_back(directory: HostDirectory) -> None:
    properties = {"a": "b\\c\td ", "ssl.key.password": "hush"}
    for _ in range(2):
        directory.write_properties(NAME, properties)
    file = directory.properties_file(NAME)
    assert read_properties_file(file) == {"a": "b\\c\td", "ssl.key.password": "hush"}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(directory.path.stat().st_mode) == 0o700


def test_a_path_that_no_socket_takes_is_refused() -> None:
    with pytest.raises(ConfigError, match="too long by"):
        HostDirectory("/tmp/" + "x" * 90)
