"""The real disk: positioned appends, held files, atomic replacement, flush, lock."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas_log.disk import RealDisk, RealFile
from barnabas_log.errors import DirectoryLocked


@pytest.fixture
def disk() -> Iterator[RealDisk]:
    disk = RealDisk(wants_ring=False)  # with threads; test_flush_ring.py has the ring
    yield disk
    disk.close()


def test_parts_are_appended_in_order_whatever_their_number(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "f", create=True)
    parts = [b"%d," % n for n in range(3000)]
    whole = b"".join(parts)
    assert file.append(parts) == len(whole) == file.size_bytes
    assert file.append([memoryview(b"xyz")[1:], bytearray(b"!")]) == 3
    assert file.read(0, 1 << 20) == whole + b"yz!"
    assert file.read(len(whole) + 1, 2) == b"z!" and file.read(10**6, 5) == b""
    file.close()


def test_a_removed_file_is_closed_by_a_thread_and_any_other_at_once(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, closed = os.close, list[tuple[int, bool]]()

    def close(descriptor: int) -> None:
        closed.append((descriptor, threading.current_thread() is threading.main_thread()))
        real(descriptor)

    named, removed = (disk.open(tmp_path / name, create=True) for name in ("named", "removed"))
    descriptors = named.send_descriptor(), removed.send_descriptor()
    disk.remove(tmp_path / "removed")
    monkeypatch.setattr(os, "close", close)
    named.close()
    assert closed == [(descriptors[0], True)]
    removed.acquire()
    removed.close()
    assert len(closed) == 1
    removed.release()
    disk.close()  # waits for its threads
    assert (descriptors[1], False) in closed


def test_a_removed_file_is_closed_though_the_threads_have_ended(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "f", create=True)
    descriptor = file.send_descriptor()
    disk.remove(tmp_path / "f")
    disk.close()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


@pytest.mark.parametrize("most", [1, 7, 1000])
def test_short_writes_are_finished(disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    real = os.pwritev

    def short(descriptor: int, parts: list[bytes], position: int) -> int:
        return real(descriptor, [b"".join(parts)[:most]], position)

    file = disk.open(tmp_path / "f", create=True)
    monkeypatch.setattr(os, "pwritev", short)
    parts = [b"%d," % n for n in range(1500)]
    assert file.append(parts) == len(b"".join(parts))
    assert file.read(0, 1 << 20) == b"".join(parts)
    file.close()


def test_bytes_of_a_failed_append_are_overwritten(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open(tmp_path / "f", create=True)
    file.append([b"good"])
    real = os.pwritev

    def fails_half_way(descriptor: int, parts: list[bytes], position: int) -> int:
        if position == 4:
            return real(descriptor, [b"ba"], position)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", fails_half_way)
        with pytest.raises(OSError, match="No space"):
            file.append([b"bad", b"bad"])
    assert file.size_bytes == 4
    file.append([b"new"])
    assert file.read(0, 99) == b"goodnew"
    file.close()


def test_a_held_file_outlives_close_and_removal(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "f", create=True)
    file.append([b"content"])
    file.acquire()
    file.close()
    file.close()
    disk.remove(tmp_path / "f")
    assert file.read(0, 7) == b"content" and os.pread(file.send_descriptor(), 3, 4) == b"ent"
    file.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read(0, 1)
    with pytest.raises(AssertionError):
        file.acquire()


def test_truncated_files_shrink_and_reopen_as_they_are(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "f", create=True)
    file.append([b"abcdef"])
    file.truncate(2)
    file.append([b"X"])
    file.sync()
    file.close()
    again = disk.open(tmp_path / "f")
    assert (again.size_bytes, again.read(0, 9)) == (3, b"abX")
    again.close()
    with pytest.raises(FileNotFoundError):
        disk.open(tmp_path / "none")


def test_a_replaced_file_is_old_or_new(disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.write_file_atomically(tmp_path / "f", b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda source, target: (_ for _ in ()).throw(OSError(5, "broken")))
        with pytest.raises(OSError, match="broken"):
            disk.write_file_atomically(tmp_path / "f", b"new")
    assert disk.read_file(tmp_path / "f") == b"old"
    disk.write_file_atomically(tmp_path / "f", b"new")
    assert disk.list_directory(tmp_path) == ["f"] and disk.read_file(tmp_path / "f") == b"new"


async def test_a_flush_takes_files_and_directories(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(RealFile, "sync", lambda self: synced.append(self.path))
    files = [disk.open(tmp_path / str(n), create=True) for n in range(9)]
    files.append(disk.directory(tmp_path))
    await disk.flush(files)
    assert sorted(synced) == sorted(file.path for file in files)
    for file in files:
        file.close()


async def test_an_error_of_one_file_is_raised_after_all_were_tried(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def sync(self: RealFile) -> None:
        tried.append(self.path)
        if self.path.endswith("1"):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(RealFile, "sync", sync)
    files = [disk.open(tmp_path / str(n), create=True) for n in range(5)]
    with pytest.raises(OSError, match="Input/output"):
        await disk.flush(files)
    assert len(tried) == 5
    with pytest.raises(OSError, match="Input/output"):
        await disk.flush(files[1:2])
    for file in files:
        file.close()
        with pytest.raises(OSError, match="Bad file"):
            file.read(0, 1)


async def test_a_flush_holds_its_files_until_the_disk_is_done_with_them(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    real_sync = RealFile.sync

    def sync(self: RealFile) -> None:
        begun.set()
        may_end.wait(10)
        real_sync(self)

    monkeypatch.setattr(RealFile, "sync", sync)
    file = disk.open(tmp_path / "f", create=True)
    flushing = disk.flush([file])
    assert await asyncio.to_thread(begun.wait, 10), "it begins before it is awaited"
    asyncio.ensure_future(flushing).cancel()
    file.close()
    await asyncio.sleep(0)
    assert file.read(0, 1) == b"", "still open: its descriptor must not become another file's meanwhile"
    may_end.set()
    for _ in range(1000):
        if file._holders == 0:  # type: ignore[attr-defined]
            break
        await asyncio.sleep(0.001)
    with pytest.raises(OSError, match="Bad file"):
        file.read(0, 1)


async def test_real_syncs_and_blocking_work_do_not_run_on_the_loop(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "f", create=True)
    directory = disk.directory(tmp_path)
    file.append([b"x"])
    await disk.flush([file, directory])
    assert await disk.run(lambda path: disk.read_file(path), tmp_path / "f") == b"x"
    file.close()
    directory.close()


def test_a_directory_is_served_by_one_process(disk: RealDisk, tmp_path: Path) -> None:
    disk.lock_directory(tmp_path)
    program = (
        "import sys; from barnabas_log.disk import RealDisk; from barnabas_log.errors import DirectoryLocked\n"
        "try: RealDisk().lock_directory(sys.argv[1])\n"
        "except DirectoryLocked: print('locked')\n"
        "else: print('free')"
    )

    def ask() -> str:
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    assert ask() == "locked"
    disk.close()
    assert ask() == "free"
    assert DirectoryLocked("x").code.name == "KAFKA_STORAGE_ERROR"


def test_directories_come_and_go(disk: RealDisk, tmp_path: Path) -> None:
    disk.make_directory(tmp_path / "a/b")
    disk.make_directory(tmp_path / "a/b")
    disk.write_file_atomically(tmp_path / "a/b/f", b"")
    disk.rename(tmp_path / "a", tmp_path / "c")
    assert disk.exists(tmp_path / "c/b/f") and not disk.exists(tmp_path / "a")
    disk.sync_directory(tmp_path)
    disk.remove_tree(tmp_path / "c")
    disk.remove_tree(tmp_path / "c")
    disk.remove(tmp_path / "none")
    assert disk.list_directory(tmp_path) == [] and disk.free_bytes(tmp_path) > 0
