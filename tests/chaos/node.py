"""`python -m tests.chaos.node [--disk-faults FILE] [--bug NAME] -- ARGUMENTS`: a real node on a disk that can be made slow or broken.

May touch:  this process, before the node runs.   Must not touch: what barnabas-server does with ARGUMENTS.
Invariants: without a word in FILE and without a bug the node is `barnabas-server ARGUMENTS`, but that threads flush.
Read next:  data/faults.py, which writes the words; tests/simulation/node_mutants.py, whose planted bugs these are.

The word in FILE, read before each flush: `slow SECONDS` delays it, `fail` makes it an input/output error, anything else nothing.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
import time
from pathlib import Path

from barnabas_broker.main import main as run_server
from barnabas_log.disk import File, RealDisk, RealFile, StrPath


class DiskFaults:
    """What a file says that is to happen to flushes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def meet(self, what: str) -> None:
        """Be as slow, or fail, as the file says now. Raises OSError."""
        try:
            words = self._path.read_text().split()
        except FileNotFoundError:
            return
        if words[:1] == ["slow"]:
            time.sleep(float(words[1]))
        elif words[:1] == ["fail"]:
            raise OSError(errno.EIO, os.strerror(errno.EIO), what)


class FaultyFile(RealFile):
    """A file whose flushes meet the faults."""

    __slots__ = ("faults",)
    faults: DiskFaults

    def sync(self) -> None:
        """See File.sync."""
        self.faults.meet(self.path)
        super().sync()


class FaultyDisk(RealDisk):
    """The real disk, whose flushes meet the faults. The kernel's ring would flush without asking."""

    def __init__(self, faults: DiskFaults) -> None:
        super().__init__(wants_ring=False)
        self._faults = faults

    def open(self, path: StrPath, *, create: bool = False) -> File:
        """See Disk.open."""
        flags = os.O_RDWR | os.O_CLOEXEC
        descriptor = os.open(path, flags | (os.O_CREAT if create else 0), 0o644)
        file = FaultyFile(
            str(path),
            descriptor,
            os.fstat(descriptor).st_size,
            flags=flags,
            descriptors=self.descriptors,
            close_descriptor=self._close_descriptor,
        )
        file.faults = self._faults
        return file

    def sync_directory(self, path: StrPath) -> None:
        """See Disk.sync_directory."""
        self._faults.meet(str(path))
        super().sync_directory(path)

    def write_file_atomically(self, path: StrPath, data: bytes) -> None:
        """See Disk.write_file_atomically."""
        self._faults.meet(str(path))
        super().write_file_atomically(path, data)


def plant(name: str) -> None:
    """Plant one of the bugs of node_mutants.py, for as long as this process lives. Raises SystemExit for no such bug."""
    import pytest

    from tests.simulation.node_mutants import MUTANTS

    found = [mutant for mutant in MUTANTS if mutant.bug == name]
    if not found:
        raise SystemExit(f"no planted bug is called {name!r}; there are: {'; '.join(m.bug for m in MUTANTS)}")
    found[0].plant(pytest.MonkeyPatch())


def main() -> int:
    """Run the node; its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--disk-faults", type=Path)
    parser.add_argument("--bug")
    parser.add_argument("arguments", nargs="+")
    options = parser.parse_args()
    if options.bug:
        plant(options.bug)
    if options.disk_faults:
        faults = DiskFaults(options.disk_faults)
        return run_server(options.arguments, open_disk=lambda: FaultyDisk(faults))
    return run_server(options.arguments)


if __name__ == "__main__":
    sys.exit(main())
