"""What a compacted log has forgotten: the offset below which deletions (tombstones, ends of transactions) may be gone from it.

May touch:  the Disk it is given, blocking.   Must not touch: asyncio, clocks, the log.
Invariants: the offset is durable before a deletion goes from the log's files, and before records are taken in from a log that has
            forgotten some of what comes with them; it falls with the log's end alone; where the file is missing or not sound,
            everything that the log holds by then counts.
Read next:  cleaner/driver.py, which raises it; barnabas_replication/follower/missed_deletions.py for what a follower does about it.

Layout of forgotten-deletions.deleted (text): "0" (version) / "below" OFFSET / "copy" LEADER_EPOCH OFFSET, left out where the log is
no copy / "crc32c" of the lines before, as 8 hex digits. It is replaced atomically; a crash leaves the old or the new. The suffix
makes a version that does not know the file, and Kafka, remove it as it opens the log: what that forgets is in no file, so
everything counts afterwards.

A replica that lacks the records below an offset where deletions are gone, and holds older ones, would keep what was
deleted, and show it once it leads. A log that began empty and took all it holds from one leader in one epoch, with one
such offset, lacks nothing: the values went from there before their tombstones did. That is what "copy" says.
"""

from __future__ import annotations

import logging
import threading
from typing import Final, NamedTuple

from barnabas_log.disk import Disk
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.records.crc32c import crc32c

logger = logging.getLogger(__name__)

FORGOTTEN_DELETIONS_FILE: Final = "forgotten-deletions.deleted"
_VERSION: Final = "0"


class Copied(NamedTuple):
    """What a log was copied from, all of it so far."""

    leader_epoch: Epoch
    below: Offset
    """What the leader had forgotten."""


class _Saved(NamedTuple):
    below: Offset
    copied: Copied | None


class UnsoundFile(Exception):
    """The file is not one that was written whole."""


def encode(below: Offset, copied: Copied | None) -> bytes:
    """Content of the file."""
    lines = [_VERSION, f"below {below}"]
    if copied is not None:
        lines.append(f"copy {copied.leader_epoch} {copied.below}")
    text = "".join(f"{line}\n" for line in lines).encode()
    return text + f"crc32c {crc32c(text):08x}\n".encode()


def decode(content: bytes) -> tuple[Offset, Copied | None]:
    """What `encode` was given. Raises UnsoundFile."""
    text, mark, checksum = content.rpartition(b"crc32c ")
    if not mark or checksum != f"{crc32c(text):08x}\n".encode():
        raise UnsoundFile("its checksum does not fit")
    try:
        lines = text.decode().split("\n")
        word, below = lines[1].split(" ")
        copied = None
        if len(lines) == 4:
            copy, epoch, offset = lines[2].split(" ")
            copied = Copied(Epoch(int(epoch)), Offset(int(offset)))
            word += copy
        if lines[0] != _VERSION or word not in ("below", "belowcopy") or lines[-1]:
            raise UnsoundFile(f"it is not of version {_VERSION}")
        return Offset(int(below)), copied
    except (ValueError, IndexError):
        raise UnsoundFile(f"it is not of version {_VERSION}") from None


class ForgottenDeletions:
    """What one log has forgotten. Its loop owns it; what blocks may run in a disk thread, one at a time by the lock."""

    __slots__ = ("_directory", "_disk", "_lock", "_saved", "below", "copied")

    def __init__(self, disk: Disk, directory: str) -> None:
        self.below = Offset(0)
        """Deletions at lower offsets may be gone."""
        self.copied: Copied | None = None
        self._disk = disk
        self._directory = directory
        self._saved: _Saved | None = None
        self._lock = threading.Lock()

    @property
    def _path(self) -> str:
        return f"{self._directory}/{FORGOTTEN_DELETIONS_FILE}"

    def load(self, *, log_end: Offset, may_have_gaps: bool) -> None:
        """Read the file, blocking. may_have_gaps: whether the log was compacted, or copied from one that was. Raises OSError."""
        try:
            below, copied = decode(self._disk.read_file(self._path))
        except (FileNotFoundError, UnsoundFile) as error:
            if isinstance(error, UnsoundFile):
                logger.warning("%s: %s; deletions below the log's end %d count as gone", self._path, error, log_end)
            elif not may_have_gaps:
                return
            self.save(log_end)
            self.publish(log_end)
            return
        self._saved = _Saved(below, copied)
        self.below, self.copied = min(below, log_end), copied

    def save(self, below: Offset) -> None:
        """Say durably that deletions below the offset may be gone; what was said before stays said. Blocks. Raises OSError."""
        with self._lock:
            saved = self._saved or _Saved(Offset(-1), self.copied)
            if below > saved.below:
                self._write(_Saved(below, saved.copied))

    def keep(self) -> None:
        """Have the file there at least: that it is missing shall mean something. Blocks. Raises OSError."""
        self.save(self.below)

    def publish(self, below: Offset) -> None:
        """They may be gone from now on."""
        self.below = max(self.below, below)

    def begin_copy(self, copied: Copied) -> None:
        """The log holds nothing, and takes in what that leader has, from now on. Blocks. Raises OSError."""
        with self._lock:
            below = max(copied.below, self._saved.below if self._saved else copied.below)
            if self._saved != (below, copied):
                self._write(_Saved(below, copied))
        self.copied = copied
        self.publish(copied.below)

    def doubt(self, log_end: Offset) -> None:
        """Records with gaps between them came from a leader that does not say what it has forgotten. Blocks, once. Raises OSError."""
        if self._saved is not None:
            with self._lock:
                self._disk.remove(self._path)
                self._disk.sync_directory(self._directory)
                self._saved = None
        self.copied = None
        self.publish(log_end)

    def end_at(self, offset: Offset) -> None:
        """The log ends there now."""
        self.below = min(self.below, offset)

    def start_over(self) -> None:
        """Nothing is left of what the log held."""
        self.copied = None

    def _write(self, saved: _Saved) -> None:
        self._disk.write_file_atomically(self._path, encode(*saved))
        self._saved = saved
