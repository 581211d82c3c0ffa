"""What a restore reads of a directory that others may have written to, and what an export writes there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas_admin.backup import (
    MANIFEST,
    SavedPartition,
    SavedTopic,
    follow_no_link,
    read_manifest,
    restored_records,
    write_manifest,
)
from barnabas_admin.errors import AdminError

SECRET = b"a segment of somebody else"


def backup(directory: Path, *, partition: Any = 0) -> SavedPartition:
    directory.mkdir()
    part = SavedPartition(partition=partition, start=0, end=0, size_bytes=0)
    write_manifest(
        directory,
        SavedTopic(
            topic="t", exported_at_ms=0, replication_factor=1, configs={}, partitions=(part,), groups={"g": {0: 5}}
        ),
    )
    return part


def test_what_was_exported_is_read(tmp_path: Path) -> None:
    part = backup(tmp_path / "t")
    (tmp_path / "t" / "0.log").write_bytes(b"")
    assert read_manifest(tmp_path / "t").partitions == (part,)
    assert list(restored_records(tmp_path / "t" / "0.log", part)) == []


@pytest.mark.attack("A9", "topic import follows no link, and opens no file that the manifest leads to")
@pytest.mark.parametrize("kind", [os.symlink, lambda target, link: os.mkfifo(link)], ids=["link", "fifo"])
def test_a_link_is_not_followed(tmp_path: Path, kind: Callable[[Path, Path], None]) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"")
    part = backup(tmp_path / "t")
    kind(elsewhere, tmp_path / "t" / "0.log")
    with pytest.raises(AdminError, match=r"0\.log is damaged"):
        list(restored_records(tmp_path / "t" / "0.log", part))
    (tmp_path / "t" / MANIFEST).rename(tmp_path / "manifest")
    kind(tmp_path / "manifest", tmp_path / "t" / MANIFEST)
    with pytest.raises(AdminError, match="holds no whole backup"):
        read_manifest(tmp_path / "t")


@pytest.mark.attack("A9", "topic import follows no link in place of a topic's directory")
def test_a_link_in_place_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    part = backup(tmp_path / "real")
    (tmp_path / "real" / "0.log").write_bytes(b"")
    (tmp_path / "t").symlink_to(tmp_path / "real")
    with pytest.raises(AdminError, match="holds no whole backup"):
        read_manifest(tmp_path / "t")
    with pytest.raises(AdminError, match="is damaged"):
        list(restored_records(tmp_path / "t" / "0.log", part))


@pytest.mark.attack("A9", "a manifest's partition is a number, and leads to no other file")
@pytest.mark.parametrize("partition", ["../../etc/passwd", "0", -1, True, 0.0, None])
def test_a_partition_is_a_number(tmp_path: Path, partition: Any) -> None:
    backup(tmp_path / "t", partition=partition)
    with pytest.raises(AdminError, match="is no partition"):
        read_manifest(tmp_path / "t")


@pytest.mark.attack("A9", "topic export writes through no link")
def test_an_export_writes_through_no_link(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_bytes(SECRET)
    (tmp_path / "0.log").symlink_to(own)
    with pytest.raises(OSError), open(tmp_path / "0.log", "wb", opener=follow_no_link):
        pass
    assert own.read_bytes() == SECRET
