"""Flushes by io_uring: told once and later, errors as they are, and threads wherever the kernel does not take one."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import os
import platform
import re
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from barnabas_log import disk as disk_module
from barnabas_log.disk import RealDisk, RealFile
from barnabas_log.tail import flush_ring, stalled_flushes
from barnabas_log.tail.flush_ring import ENTRIES, FlushRing
from barnabas_log.tail.flush_workers import PERIOD_S, SLICE_NS
from barnabas_log.tail.stalled_flushes import OnFlushed


@pytest.fixture
async def ring() -> Iterator[FlushRing]:  # type: ignore[misc]
    try:
        ring = FlushRing(asyncio.get_running_loop())
    except OSError as error:
        pytest.skip(f"no io_uring here: {error}")
    yield ring
    ring.close()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[RealFile]:
    with contextlib.closing(RealDisk(wants_ring=False)) as disk:
        opened = disk.open(tmp_path / "f", create=True)
        assert isinstance(opened, RealFile)
        yield opened
        opened.close()


class Told:
    """What a ring told, and a wait for it."""

    def __init__(self) -> None:
        self.errors: list[OSError | None] = []

    def __call__(self, error: OSError | None) -> None:
        self.errors.append(error)

    async def wait(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.errors) < count:
                await asyncio.sleep(0.001)


async def test_every_flush_is_reported_once_and_later(ring: FlushRing, file: RealFile) -> None:
    reported = Told()
    for count in range(1, 3 * ENTRIES):  # around both rings
        file.append([b"x"])
        assert ring.fdatasync(file.send_descriptor(), reported)
        assert len(reported.errors) == count - 1, "within the call nobody is told"
        await reported.wait(count)
    assert set(reported.errors) == {None} and len(ring._free) == ENTRIES and not ring._waiting


async def test_many_in_flight_and_no_more_than_there_is_room_for(ring: FlushRing, file: RealFile) -> None:
    reported = Told()
    taken = [ring.fdatasync(file.send_descriptor(), reported) for _ in range(ENTRIES + 5)]
    assert taken == [True] * ENTRIES + [False] * 5
    await reported.wait(ENTRIES)
    assert ring.fdatasync(file.send_descriptor(), reported)
    await reported.wait(ENTRIES + 1)
    assert set(reported.errors) == {None}


async def test_a_callback_that_fails_keeps_no_other_flush_from_being_reported(ring: FlushRing, file: RealFile) -> None:
    failures: list[str] = []
    ring.loop.set_exception_handler(lambda loop, context: failures.append(str(context["exception"])))
    reported = Told()

    def broken(error: OSError | None) -> None:
        raise RuntimeError("broken")

    callbacks: list[OnFlushed] = [broken, *[reported] * 30]
    for callback in callbacks:
        assert ring.fdatasync(file.send_descriptor(), callback)
    time.sleep(0.2)  # noqa: ASYNC251  # all end in one turn of the loop, the broken one hardly the last
    await reported.wait(30)
    assert failures == ["broken"] and len(ring._free) == ENTRIES


async def test_an_error_is_that_of_its_own_file(ring: FlushRing, file: RealFile) -> None:
    good, bad = Told(), Told()
    assert ring.fdatasync(file.send_descriptor(), good) and ring.fdatasync(1 << 20, bad)
    await good.wait(1)
    await bad.wait(1)
    assert good.errors == [None] and bad.errors[0] is not None and bad.errors[0].errno == errno.EBADF


async def test_a_flush_that_the_kernel_does_not_take_was_not_begun(ring: FlushRing, file: RealFile) -> None:
    reported, real = Told(), ring._syscall

    def busy(*arguments: int) -> int:
        ctypes.set_errno(errno.EBUSY)
        return -1

    ring._syscall = busy  # type: ignore[assignment]
    assert not ring.fdatasync(file.send_descriptor(), reported)
    ring._syscall = real
    assert ring.fdatasync(file.send_descriptor(), reported)
    await reported.wait(1)
    await asyncio.sleep(0.01)
    assert reported.errors == [None] and len(ring._free) == ENTRIES


async def test_the_disk_flushes_by_ring_and_what_has_no_room_by_threads(
    ring: FlushRing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(RealFile, "sync", lambda self: synced.append(self.path))
    disk = RealDisk()
    files = [disk.open(tmp_path / str(n), create=True) for n in range(ENTRIES + 3)]
    files.append(disk.directory(tmp_path))
    await disk.flush(files)
    assert synced == [file.path for file in files[ENTRIES:]] or sorted(synced) == sorted(
        f.path for f in files[ENTRIES:]
    )
    for file in files:
        assert file._holders == 1  # type: ignore[attr-defined]
        file.close()
    disk.close()


async def test_a_flush_by_ring_holds_its_files_and_raises_their_error(
    ring: FlushRing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk()
    sound, broken = disk.open(tmp_path / "sound", create=True), disk.open(tmp_path / "broken", create=True)
    reported = Told()
    disk.begin_flush([sound], reported)
    sound.close()
    assert sound.read(0, 1) == b"", "still open"
    await reported.wait(1)
    with pytest.raises(OSError, match="Bad file"):
        sound.read(0, 1)
    monkeypatch.setattr(RealFile, "send_descriptor", lambda self: 1 << 20)
    with pytest.raises(OSError, match="Bad file"):
        await disk.flush([broken])
    disk.close()


async def test_where_there_is_no_ring_threads_flush(
    file: RealFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refused:
        def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
            raise PermissionError(errno.EPERM, "a sandbox")

    monkeypatch.setattr(disk_module, "FlushRing", Refused)
    disk = RealDisk()
    reported: list[object] = []
    on_done: OnFlushed = reported.append
    disk.begin_flush([file], on_done)
    await disk.flush([file])
    assert reported == [None] and disk._ring is None
    disk.close()


def slice_ns(thread: int) -> int | None:
    """The slice of a thread as sched_getattr(2) tells it; None where that is unknown."""
    number = {"x86_64": 315, "aarch64": 275, "riscv64": 275}.get(platform.machine())
    attributes = ctypes.create_string_buffer(48)
    if number is None or ctypes.CDLL(None).syscall(number, thread, attributes, len(attributes), 0):
        return None
    return int.from_bytes(attributes.raw[24:32], sys.byteorder) or None  # 0 before Linux 6.12


def workers() -> list[int]:
    """The kernel's flush workers of this process."""
    found = []
    for path in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # it may end meanwhile
            if path.read_text().startswith("iou-wrk-"):
                found.append(int(path.parent.name))
    return found


async def test_workers_get_short_slices_and_nobody_else_does(ring: FlushRing, file: RealFile) -> None:
    reported = Told()
    own = slice_ns(0)
    if own is None:
        pytest.skip("this kernel knows no slices of single threads")
    slices: set[int | None] = set()
    async with asyncio.timeout(10):
        while slices != {SLICE_NS}:  # a worker made just now is found the next time
            assert ring.fdatasync(file.send_descriptor(), reported)
            await reported.wait(len(reported.errors) + 1)
            await asyncio.sleep(PERIOD_S)
            slices = {slice_ns(thread) for thread in workers()} - {None}  # one may end meanwhile
    assert slice_ns(0) == own != SLICE_NS
    assert all(os.getpriority(os.PRIO_PROCESS, thread) == os.getpriority(os.PRIO_PROCESS, 0) for thread in workers())


async def test_flushes_go_on_where_the_system_refuses(
    ring: FlushRing, file: RealFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "refused")

    reported = Told()
    for count, name in enumerate(("sched_getscheduler", "listdir"), start=1):
        monkeypatch.setattr(os, name, refuse)
        ring._workers._due_s = 0.0
        assert ring.fdatasync(file.send_descriptor(), reported)
        await reported.wait(count)
    assert reported.errors == [None, None] and ring._workers._due_s == float("inf")


async def test_flushes_that_the_kernel_does_not_announce_are_reported_late(
    file: RealFile, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(flush_ring, "LOOK_S", 0.02)
    try:
        ring = FlushRing(asyncio.get_running_loop())
    except OSError as error:
        pytest.skip(f"no io_uring here: {error}")
    ring.loop.remove_reader(ring._event)
    try:
        for count in range(1, 4):
            reported = Told()
            assert ring.fdatasync(file.send_descriptor(), reported)
            await reported.wait(1)
            assert (reported.errors, caplog.text.count("did not announce")) == ([None], count)
    finally:
        ring.close()


@pytest.fixture
async def stalled(file: RealFile, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[FlushRing, Told]]:
    """A ring, and a flush that it has taken, as it says, and the kernel has not."""
    try:
        ring = FlushRing(asyncio.get_running_loop())
    except OSError as error:
        pytest.skip(f"no io_uring here: {error}")
    ended, told = Told(), Told()
    assert ring.fdatasync(file.send_descriptor(), ended)  # the kernel keeps its worker for some seconds
    await ended.wait(1)
    monkeypatch.setattr(flush_ring, "LOOK_S", 0.02)
    ring._timer.cancel()
    ring._look()
    monkeypatch.setattr(ring, "_call", lambda *_: 1)
    assert ring.fdatasync(file.send_descriptor(), told)
    yield ring, told
    ring.close()


async def test_flushes_that_nobody_works_on_are_done_by_a_thread(
    stalled: tuple[FlushRing, Told], file: RealFile, caplog: pytest.LogCaptureFixture
) -> None:
    ring, told = stalled
    await told.wait(1)
    assert told.errors == [None] and not ring.fdatasync(file.send_descriptor(), Told()), "threads flush from now on"
    assert re.search(r"1 flushes have not ended .*a thread does them.* workers: iou-wrk-\d+ S \w+.*SqTail", caplog.text)
    await asyncio.sleep(0.2)
    assert (len(told.errors), caplog.text.count("have not ended")) == (1, 1)


@pytest.mark.parametrize(("module", "name"), [(stalled_flushes, "flush_data"), (stalled_flushes, "_syncfs")])
async def test_a_stalled_flush_that_meets_an_error_reports_it(
    stalled: tuple[FlushRing, Told], monkeypatch: pytest.MonkeyPatch, module: object, name: str
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(module, name, fail)
    _, told = stalled
    await told.wait(1)
    assert [error and error.errno for error in told.errors] == [errno.EIO]


async def test_flushes_that_the_kernel_works_on_are_told_and_left_to_it(
    stalled: tuple[FlushRing, Told], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ring, told = stalled
    monkeypatch.setattr(
        ring._workers, "states", lambda: ["iou-wrk-1 S io_wq_worker", "iou-wrk-1 D jbd2_log_wait_commit"]
    )
    await asyncio.sleep(0.3)
    assert told.errors == [] and caplog.text.count("look at the disk") == caplog.text.count("have not ended") > 1
