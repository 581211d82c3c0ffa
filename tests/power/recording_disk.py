"""The operating system's disk, which remembers in a journal what is not flushed yet, and whose flushes can be slow, fail or lie.

May touch:  a node's files through RealDisk, the journal, the file of faults.     Must not touch: what the bytes mean.
Invariants: see journal.py. Both lanes and the disk's threads come here, so everything noted is noted under one lock.
Read next:  rollback.py.

Faults are rules in a JSON file that may be replaced at any time (`write_faults`); it is looked at before every flush. Flushes go
through threads, never the ring: what a flush is told must be noted before its waiter hears of it.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock

from barnabas_log.disk import File, RealDisk, StrPath
from barnabas_wire.records.batch import Buffer
from tests.power.journal import FileState, Journal


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushFault:
    """What befalls the flush of a file or of a directory's names whose path is matched."""

    paths: str = ""
    """A regular expression, searched for in the absolute path; the empty one matches all."""
    slow_ms: float = 0.0
    """Wait this long before it."""
    is_failing: bool = False
    """It raises EIO, and what was not durable of that file never will be, as after Linux's first error."""
    is_lying: bool = False
    """It succeeds and does nothing."""


def write_faults(path: Path, faults: Sequence[FlushFault]) -> None:
    """Replace the rules of a node that runs; no rules: its disk works again. All that match count together."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(json.dumps([asdict(fault) for fault in faults]))
    temporary.replace(path)


class Recorder:
    """What the disks of one process share: the journal, and the faults."""

    def __init__(self, journal: Journal, faults_file: Path | None) -> None:
        self.journal = journal
        self.lock = Lock()
        self._faults_file = faults_file
        self._faults: list[FlushFault] = []
        self._read_at = (-1, -1)

    def open_disk(self) -> RecordingDisk:
        """See run_node."""
        return RecordingDisk(self)

    def before_flush(self, path: str) -> bool:
        """Obey the faults; whether the flush is to happen. Raises OSError."""
        matching = [fault for fault in self._current_faults() if re.search(fault.paths, path)]
        slow_ms = sum(fault.slow_ms for fault in matching)
        if slow_ms:
            time.sleep(slow_ms / 1000)
        if any(fault.is_failing for fault in matching):
            raise OSError(errno.EIO, "injected error of fsync", path)
        return not any(fault.is_lying for fault in matching)

    def _current_faults(self) -> list[FlushFault]:
        if self._faults_file is None:
            return []
        try:
            status = os.stat(self._faults_file)
            if (status.st_ino, status.st_mtime_ns) != self._read_at:
                rules = json.loads(self._faults_file.read_text())
                self._faults = [FlushFault(**rule) for rule in rules]
                self._read_at = (status.st_ino, status.st_mtime_ns)
        except FileNotFoundError:
            self._faults, self._read_at = [], (-1, -1)
        return self._faults


class RecordingFile:
    """A RealFile that notes what becomes durable. For the rest see File."""

    def __init__(self, recorder: Recorder, file: File, state: FileState) -> None:
        self._recorder = recorder
        self._file = file
        self._state = state
        self.path = file.path
        self.append = file.append
        self.read = file.read
        self.read_aside = file.read_aside
        self.send_descriptor = file.send_descriptor
        self.acquire = file.acquire
        self.release = file.release
        self.rest = file.rest
        self.close = file.close

    @property
    def size_bytes(self) -> int:
        """See File."""
        return self._file.size_bytes

    @size_bytes.setter
    def size_bytes(self, value: int) -> None:
        raise AssertionError("set by appending")

    def overwrite(self, position: int, data: Buffer) -> None:
        """See File.overwrite. Durable at once, for the journal knows ends and no places within."""
        self._file.overwrite(position, data)
        self._file.sync()

    def truncate(self, size_bytes: int) -> None:
        """See File.truncate."""
        state = self._state
        with self._recorder.lock:
            if self._is_known():
                durable = self._file.read(size_bytes, max(0, state.durable_size - size_bytes))
                self._recorder.journal.note("cut", state.path, size_bytes, base64.b64encode(durable).decode())
            self._file.truncate(size_bytes)

    def sync(self) -> None:
        """See File.sync."""
        recorder, state = self._recorder, self._state
        flush = [self._file.size_bytes, 0]
        with recorder.lock:
            state.flushing.append(flush)
        try:
            if recorder.before_flush(state.path):
                self._file.sync()
                with recorder.lock:
                    if self._is_known():
                        recorder.journal.note("flushed", state.path, *flush)
        except OSError:
            with recorder.lock:
                if self._is_known():
                    recorder.journal.note("failed", state.path)
            raise
        finally:
            with recorder.lock:
                state.flushing.remove(flush)

    def _is_known(self) -> bool:
        """Not once the file was removed for good."""
        return self._recorder.journal.files.get(self._state.path) is self._state


class RecordingDirectory:
    """A handle on a directory's names. For the rest see File."""

    size_bytes = 0

    def __init__(self, recorder: Recorder, file: File) -> None:
        self._recorder = recorder
        self._file = file
        self.path = file.path
        self.send_descriptor = file.send_descriptor
        self.acquire = file.acquire
        self.release = file.release
        self.rest = file.rest
        self.close = file.close

    def append(self, parts: Sequence[Buffer]) -> int:
        """See File.append."""
        raise OSError(errno.EISDIR, "a directory cannot be written", self.path)

    def read(self, position: int, size: int) -> bytes:
        """See File.read."""
        raise OSError(errno.EISDIR, "a directory cannot be read", self.path)

    def read_aside(self, position: int, size: int) -> bytes:
        """See File.read_aside."""
        raise OSError(errno.EISDIR, "a directory cannot be read", self.path)

    def overwrite(self, position: int, data: Buffer) -> None:
        """See File.overwrite."""
        raise OSError(errno.EISDIR, "a directory cannot be written", self.path)

    def truncate(self, size_bytes: int) -> None:
        """See File.truncate."""
        raise OSError(errno.EISDIR, "a directory cannot be cut", self.path)

    def sync(self) -> None:
        """See File.sync."""
        if self._recorder.before_flush(self.path):
            self._file.sync()
            with self._recorder.lock:
                self._recorder.journal.note("names_flushed", self.path)


class RecordingDisk(RealDisk):
    """See the module."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(wants_ring=False)
        self._recorder = recorder
        self._journal = recorder.journal

    def open(self, path: StrPath, *, create: bool = False) -> File:
        """See Disk.open."""
        path = os.path.abspath(path)
        with self._recorder.lock:
            is_new = create and not os.path.exists(path)
            file = super().open(path, create=create)
            if is_new:
                self._journal.note("created", path)
            elif path not in self._journal.files:
                self._journal.note("found", path, file.size_bytes)
            return RecordingFile(self._recorder, file, self._journal.files[path])

    def directory(self, path: StrPath) -> File:
        """See Disk.directory."""
        return RecordingDirectory(self._recorder, super().directory(os.path.abspath(path)))

    def make_directory(self, path: StrPath, *, below: StrPath | None = None) -> None:
        """See Disk.make_directory."""
        path = os.path.abspath(path)
        with self._recorder.lock:
            if below is not None and not os.path.exists(below):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(below))
            missing = []
            while not os.path.exists(path):
                missing.append(path)
                path = os.path.dirname(path)
            for each in reversed(missing):
                super().make_directory(each)
                self._journal.note("made", each)

    def rename(self, source: StrPath, target: StrPath) -> None:
        """See Disk.rename."""
        source, target = os.path.abspath(source), os.path.abspath(target)
        with self._recorder.lock:
            grave = self._bury(target, is_moved=False)
            super().rename(source, target)
            self._journal.note("renamed", source, target, grave)

    def remove(self, path: StrPath) -> None:
        """See Disk.remove."""
        self._remove(os.path.abspath(path))

    def remove_tree(self, path: StrPath) -> None:
        """See Disk.remove_tree."""
        self._remove(os.path.abspath(path))

    def _remove(self, path: str) -> None:
        with self._recorder.lock:
            if os.path.exists(path):
                grave = self._bury(path, is_moved=True)
                super().remove_tree(path) if os.path.isdir(path) else super().remove(path)
                self._journal.note("removed", path, grave)

    def _bury(self, path: str, *, is_moved: bool) -> str:
        """Keep what is there for the case that it comes back; a name that is about to be replaced stays. Returns the grave,
        or nothing where there is nothing to keep, or the journal is on another file system."""
        if not os.path.exists(path):
            return ""
        grave = self._journal.new_grave()
        try:
            os.rename(path, grave) if is_moved else os.link(path, grave)
        except OSError as error:
            if error.errno == errno.EXDEV:
                return ""
            raise
        return grave

    def sync_directory(self, path: StrPath) -> None:
        """See Disk.sync_directory."""
        directory = self.directory(path)
        try:
            directory.sync()
        finally:
            directory.close()
