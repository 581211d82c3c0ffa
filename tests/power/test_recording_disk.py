"""What was flushed outlives a power cut, what was not need not; and flushes fail, wait and lie as they are told to."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.power.journal import JOURNAL_FILE, Journal
from tests.power.recording_disk import FlushFault, Recorder, RecordingDisk, write_faults
from tests.power.rollback import roll_back

SEEDS = range(40)


class Machine:
    """One node's directories, its disk while there is one, and power cuts."""

    def __init__(self, place: Path) -> None:
        self.data = place / "data"
        self.faults = place / "faults"
        self._journal_directory = place / "power"
        self.data.mkdir()
        self.start()

    def start(self) -> None:
        """A process begins; also after one that was only killed."""
        self.recorder = Recorder(Journal(self._journal_directory), self.faults)
        self.disk: RecordingDisk = self.recorder.open_disk()

    def kill(self) -> None:
        self.disk.close()
        self.recorder.journal.close()

    def cut_power(self, seed: int) -> None:
        self.kill()
        roll_back(self._journal_directory, Random(seed))
        self.start()

    def put(self, name: str, data: bytes, *, is_flushed: bool = True) -> None:
        """Append to a file."""
        file = self.disk.open(self.data / name, create=True)
        file.append([data])
        if is_flushed:
            file.sync()
        file.close()

    def cut(self, name: str, size: int) -> None:
        file = self.disk.open(self.data / name)
        file.truncate(size)
        file.close()

    def flush_names(self, directory: str = "") -> None:
        self.disk.sync_directory(self.data / directory)

    def content(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.data)): path.read_bytes() for path in self.data.rglob("*") if path.is_file()}


@pytest.fixture(autouse=True)
def _is_memory_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal decides what is lost; waiting for this machine's own disk would only take time."""
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: None)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Iterator[tuple[int, Machine]]]:
    """A fresh machine per seed."""
    made: list[Machine] = []

    def make() -> Iterator[tuple[int, Machine]]:
        for seed in SEEDS:
            place = tmp_path / str(seed)
            place.mkdir()
            made.append(Machine(place))
            yield seed, made[-1]

    yield make()
    for machine in made:
        machine.kill()


Machines = Iterator[tuple[int, Machine]]


def test_bytes_after_the_flushed_ones_may_go_and_those_before_stay(machines: Machines) -> None:
    ends = set()
    for seed, machine in machines:
        machine.put("f", b"a" * 1000)
        machine.flush_names()
        machine.put("f", b"b" * 1000, is_flushed=False)
        machine.cut_power(seed)
        found = machine.content()["f"]
        assert found[:1000] == b"a" * 1000
        ends.add(len(found) if found[1000:].strip(b"b") == b"" else -1)
    assert {1000, -1} < ends, "of the rest nothing, a part, or a torn one"


def test_a_name_whose_directory_was_not_flushed_may_go_with_all_its_bytes(machines: Machines) -> None:
    outcomes = set()
    for seed, machine in machines:
        machine.put("f", b"a")
        machine.cut_power(seed)
        outcomes.add(machine.content().get("f"))
    assert outcomes == {None, b"a"}


def test_a_cut_that_was_not_flushed_may_be_undone(machines: Machines) -> None:
    outcomes = set()
    for seed, machine in machines:
        machine.put("f", b"abcdef")
        machine.flush_names()
        machine.cut("f", 4)
        machine.cut("f", 2)
        machine.put("f", b"XY", is_flushed=False)
        machine.cut_power(seed)
        outcomes.add(machine.content()["f"])
    assert {b"abcdef", b"abXY"} <= outcomes
    assert all(each.startswith(b"ab") for each in outcomes)


def test_a_flushed_cut_stays(machines: Machines) -> None:
    for seed, machine in machines:
        machine.put("f", b"abcdef")
        machine.flush_names()
        machine.cut("f", 2)
        machine.put("f", b"XY")
        machine.cut_power(seed)
        assert machine.content()["f"] == b"abXY"


def test_a_cut_during_a_flush_leaves_what_it_did_not_touch(machines: Machines) -> None:
    for seed, machine in machines:
        file = machine.disk.open(machine.data / "f", create=True)
        machine.flush_names()
        file.append([b"abcdef"])
        flush = [6, 0]
        state = machine.recorder.journal.files[str(machine.data / "f")]
        state.flushing.append(flush)
        file.truncate(4)
        file.append([b"X"])
        machine.recorder.journal.note("flushed", state.path, *flush)
        file.close()
        machine.cut_power(seed)
        assert machine.content()["f"].startswith(b"abcd")


def test_a_replaced_file_is_old_or_new_and_an_atomic_one_is_new(machines: Machines) -> None:
    outcomes = set()
    for seed, machine in machines:
        machine.disk.write_file_atomically(machine.data / "sure", b"old")
        machine.disk.write_file_atomically(machine.data / "sure", b"new")
        machine.put("f", b"old")
        machine.flush_names()
        machine.put("g", b"new")
        machine.disk.rename(machine.data / "g", machine.data / "f")
        machine.cut_power(seed)
        found = machine.content()
        assert found.pop("sure") == b"new"
        outcomes.add(tuple(sorted(found.items())))
    assert {(("f", b"new"),), (("f", b"old"), ("g", b"new")), (("f", b"old"),)} == outcomes


def test_removed_files_and_trees_may_come_back_and_flushed_removals_do_not(machines: Machines) -> None:
    outcomes = set()
    for seed, machine in machines:
        machine.disk.make_directory(machine.data / "tree")
        machine.put("tree/f", b"f")
        machine.put("g", b"g")
        machine.put("gone", b"gone")
        machine.flush_names("tree")
        machine.flush_names()
        machine.disk.remove(machine.data / "gone")
        machine.flush_names()
        machine.disk.rename(machine.data / "tree", machine.data / "tree-delete")
        machine.put("tree-delete/f", b"lost", is_flushed=False)
        machine.disk.remove_tree(machine.data / "tree-delete")
        machine.disk.remove(machine.data / "g")
        machine.cut_power(seed)
        found = machine.content()
        assert "gone" not in found and all(data.startswith(name[-1].encode()) for name, data in found.items())
        outcomes.add(tuple(sorted(found)))
    assert outcomes == {("g", "tree/f"), ("g", "tree-delete/f"), ("g",), ()}


def test_a_kill_without_a_power_cut_loses_nothing_and_forgets_nothing(machines: Machines) -> None:
    outcomes = set()
    for seed, machine in machines:
        machine.put("f", b"a")
        machine.flush_names()
        machine.put("f", b"b", is_flushed=False)
        machine.kill()
        with open(machine.data.parent / "power" / JOURNAL_FILE, "ab") as stream:
            stream.write(b'["flushed","' + os.fsencode(machine.data))  # torn by the kill
        machine.start()
        assert machine.content()["f"] == b"ab"
        machine.put("f", b"c", is_flushed=False)
        machine.cut_power(seed)
        outcomes.add(machine.content()["f"])
    assert {b"a", b"ab", b"abc"} <= outcomes
    assert all(each.startswith(b"a") for each in outcomes)


def test_a_lying_flush_loses_what_it_confirmed(machines: Machines) -> None:
    outcomes = set()
    for seed, machine in machines:
        machine.put("f", b"a")
        machine.flush_names()
        write_faults(machine.faults, [FlushFault(paths="/f$", is_lying=True)])
        machine.put("f", b"b")
        machine.cut_power(seed)
        outcomes.add(machine.content()["f"])
    assert b"a" in outcomes


def test_a_failing_flush_raises_and_a_later_one_does_not_bring_the_bytes_back(machines: Machines) -> None:
    outcomes = set()
    for seed, machine in machines:
        machine.put("f", b"a")
        machine.flush_names()
        write_faults(machine.faults, [FlushFault(paths="data/f$", is_failing=True)])
        machine.put("g", b"g")
        with pytest.raises(OSError, match="injected") as raised:
            machine.put("f", b"b")
        assert raised.value.errno == errno.EIO
        write_faults(machine.faults, [])
        machine.put("f", b"c")
        machine.flush_names()
        machine.cut_power(seed)
        outcomes.add(machine.content()["f"])
        assert machine.content()["g"] == b"g"
    assert b"a" in outcomes


def test_a_slow_flush_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path)
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    write_faults(machine.faults, [FlushFault(slow_ms=70), FlushFault(paths="nowhere", slow_ms=1000)])
    machine.put("f", b"a")
    machine.flush_names()
    machine.faults.unlink()
    machine.put("f", b"b")
    machine.kill()
    assert waits == [0.07, 0.07]
