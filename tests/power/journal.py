"""What of a node's files is durable: a journal beside its data, written as it works and read after a kill.

May touch:  its own directory.        Must not touch: the node's files (recording_disk.py and rollback.py do).
Invariants: a flush is noted after it succeeded and before anybody is told; a cut is noted before it happens. The journal
            itself need not be flushed: only the process is killed, and the page cache is the kernel's.
Read next:  recording_disk.py, which writes it; rollback.py, which reads it.

Files are append-only but for `truncate`. So all that must be known of a file is how many of its first bytes are durable as
they stand (`durable_size`) and what was durable after them before a cut that is not flushed yet (`lost_tail`). Appends need
no entry: the file's own length says what was written. Of names the operations are kept that no flush of their directory has
confirmed yet, oldest first; each can be taken back.

Layout: `journal`, a JSON list a line, and `graves/<number>`: what was removed or replaced and may come back.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

JOURNAL_FILE = "journal"
GRAVES = "graves"


@dataclass(slots=True)
class FileState:
    """What is durable of one file: its first `durable_size` bytes as they stand, then `lost_tail`."""

    path: str
    """Where it is now; in a grave when it was removed."""
    durable_size: int
    lost_tail: bytes = b""
    is_failed: bool = False
    """A flush failed: the kernel forgets what it could not write, so later flushes make nothing durable."""
    flushing: list[list[int]] = field(default_factory=list)
    """Of each flush under way the bytes it makes durable, less what is cut meanwhile, and 1 if some was."""


@dataclass(slots=True)
class NameChange:
    """An operation on names that no flush of its directory has confirmed. Its paths follow later renames."""

    kind: str
    """created, made (a directory), removed (a file or a tree) or renamed."""
    path: str
    """What came or went; of a rename the new name."""
    source: str = ""
    """Of a rename: the old name."""
    grave: str = ""
    """Where that is which was removed or replaced; empty: there was nothing, or it cannot come back."""


class Journal:
    """One node's. Not safe for threads: recording_disk.py holds a lock.

    Args: directory: of the journal, on the file system of the node's data, outside its log directories; made if missing.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._graves = directory / GRAVES
        self._graves.mkdir(parents=True, exist_ok=True)
        self.files: dict[str, FileState] = {}
        """By present path. What is not here was not touched, and is durable."""
        self.changes: list[NameChange] = []
        path = directory / JOURNAL_FILE
        for line in path.read_bytes().splitlines() if path.exists() else ():
            try:
                entry = json.loads(line)
            except ValueError:  # torn by the kill, so nobody was told
                continue
            self._count(*entry)
        self._graves_made = max((int(name) for name in os.listdir(self._graves)), default=0)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        os.write(self._descriptor, b"\n")

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)

    def erase(self) -> None:
        """Begin anew: everything is durable as it stands."""
        self.close()
        (self.directory / JOURNAL_FILE).unlink()
        shutil.rmtree(self._graves)

    def note(self, kind: str, *details: Any) -> None:
        """Write an entry, and let it count. For kinds and details see the methods `_on_…`."""
        os.write(self._descriptor, json.dumps([kind, *details], separators=(",", ":")).encode() + b"\n")
        self._count(kind, *details)

    def new_grave(self) -> str:
        """A path for something that is removed or replaced."""
        self._graves_made += 1
        return str(self._graves / str(self._graves_made))

    def _count(self, kind: str, *details: Any) -> None:
        getattr(self, f"_on_{kind}")(*details)

    # -- contents --------------------------------------------------------------------------------------------------

    def _on_found(self, path: str, size: int) -> None:
        """A file that nothing is known of is opened: it was there before, whole."""
        self.files[path] = FileState(path, size)

    def _on_flushed(self, path: str, size: int, was_cut: int) -> None:
        """`size`: what it had when the flush began, or was cut to meanwhile."""
        state = self.files[path]
        if not state.is_failed and (size > state.durable_size or not was_cut):
            state.durable_size, state.lost_tail = size, b""

    def _on_failed(self, path: str) -> None:
        self.files[path].is_failed = True

    def _on_cut(self, path: str, size: int, durable: str) -> None:
        """`durable`: the bytes from `size` on that are durable as they stand, in base64."""
        state = self.files[path]
        for flush in state.flushing:
            if flush[0] > size:
                flush[:] = size, 1
        if size < state.durable_size:
            state.durable_size, state.lost_tail = size, base64.b64decode(durable) + state.lost_tail

    # -- names -----------------------------------------------------------------------------------------------------

    def _on_created(self, path: str) -> None:
        self.files[path] = FileState(path, 0)
        self.changes.append(NameChange("created", path))

    def _on_made(self, path: str) -> None:
        self.changes.append(NameChange("made", path))

    def _on_removed(self, path: str, grave: str) -> None:
        self._bury(path, grave)
        self.changes.append(NameChange("removed", path, grave=grave))

    def _on_renamed(self, source: str, target: str, grave: str) -> None:
        self._bury(target, grave)
        self.move(source, target)
        self.changes.append(NameChange("renamed", target, source=source, grave=grave))

    def _on_names_flushed(self, directory: str) -> None:
        for change in [each for each in self.changes if os.path.dirname(each.path) == directory]:
            self.changes.remove(change)
            if change.grave:
                self._bury(change.grave, "")
                remove(change.grave)

    def move(self, source: str, target: str) -> None:
        """A file or a directory has another name now."""
        for state in [state for path, state in self.files.items() if is_at_or_below(path, source)]:
            del self.files[state.path]
            state.path = target + state.path[len(source) :]
            self.files[state.path] = state
        for change in self.changes:
            for name in ("path", "source", "grave"):
                path = getattr(change, name)
                if path.startswith(f"{source}/"):
                    setattr(change, name, target + path[len(source) :])

    def _bury(self, path: str, grave: str) -> None:
        if grave:
            self.move(path, grave)
            return
        for gone in [each for each in self.files if is_at_or_below(each, path)]:
            del self.files[gone]
        self.changes = [each for each in self.changes if not each.path.startswith(f"{path}/")]


def is_at_or_below(path: str, place: str) -> bool:
    """Whether it is the place, or in the directory that is."""
    return path == place or path.startswith(f"{place}/")


def remove(path: str) -> None:
    """Remove a file or a tree that may be gone already."""
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.unlink(path)
