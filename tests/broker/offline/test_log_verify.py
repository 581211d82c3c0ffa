"""The offline check of data logs: what is sound, what is damaged, what a broker would do; exit status and both outputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas_broker.main import main
from barnabas_log.directories import checkpoints
from barnabas_log.disk import RealDisk
from barnabas_wire.kafka.ids import Offset, TopicPartition
from barnabas_wire.records.batch import iterate_batches
from tests.support.logs import append, make_batch, open_log
from tests.support.poison import POISON

TP = TopicPartition("orders", 0)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log directory whose broker stopped cleanly: 40 offsets in some segments, all committed."""
    disk = RealDisk(wants_ring=False)
    log = open_log(disk, directory=str(tmp_path / "orders-0"), topic_partition=TP)
    for number in range(40):
        append(log, make_batch(1, value=b"v" * 200), epoch=number // 15)
    end = log.log_end_offset
    log.close()
    for name in (checkpoints.RECOVERY_POINTS_FILE, checkpoints.HIGH_WATERMARKS_FILE):
        checkpoints.write_offsets(disk, str(tmp_path / name), {TP: end})
    checkpoints.write_clean_shutdown(disk, str(tmp_path / checkpoints.CLEAN_SHUTDOWN_FILE), broker_epoch=1)
    disk.close()
    return tmp_path


def flip(directory: Path, offset: int, at: int) -> tuple[int, int]:
    """Damage the batch at an offset; returns its segment and position."""
    for path in sorted((directory / "orders-0").glob("*.log")):
        data = bytearray(path.read_bytes())
        for position, header in iterate_batches(bytes(data)):
            if header.base_offset == offset:
                data[position + at] ^= 1
                path.write_bytes(data)
                return int(path.stem), position
    raise AssertionError(f"no batch at {offset}")


def test_sound_logs_are_told_to_be_sound(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "verify", str(directory)]) == 0
    out, err = capsys.readouterr()
    assert not out and "all sound" in err


@pytest.mark.parametrize(("offset", "at"), [(3, 80), (39, 80), (20, 14), (39, 9)])
def test_damage_is_listed_with_its_offsets_and_place(
    directory: Path, offset: int, at: int, capsys: pytest.CaptureFixture[str]
) -> None:
    segment, position = flip(directory, offset, at)
    before = sorted((path, path.stat().st_mtime_ns) for path in directory.rglob("*"))
    assert main(["log", "verify", str(directory / "orders-0"), "-o", "json"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert (found["topic"], found["partition"], found["segment"], found["position"]) == ("orders", 0, segment, position)
    assert found["first_offset"] == found["last_offset"] == offset
    assert main(["log", "verify", str(directory)]) == 1
    table = capsys.readouterr().out
    assert table.startswith("PARTITION") and f"{offset}..{offset}" in table
    assert main(["log", "repair", "--dry-run", str(directory)]) == 0
    assert "refetched from the leader" in capsys.readouterr().out
    assert sorted((path, path.stat().st_mtime_ns) for path in directory.rglob("*")) == before


def test_what_is_not_committed_may_be_cut(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    disk = RealDisk(wants_ring=False)
    checkpoints.write_offsets(disk, str(directory / checkpoints.HIGH_WATERMARKS_FILE), {TP: Offset(30)})
    disk.close()
    flip(directory, 35, 80)
    assert main(["log", "repair", "--dry-run", "-o", "json", str(directory)]) == 0
    assert "else cut at 35" in json.loads(capsys.readouterr().out)["next_step"]


def test_an_unfinished_write_behind_what_was_flushed_is_no_damage(directory: Path) -> None:
    last = sorted((directory / "orders-0").glob("*.log"))[-1]
    with last.open("ab") as file:
        file.write(b"\x00" * 30)
    assert main(["log", "verify", str(directory)]) == 0


def test_wrong_usage_says_what_to_name(directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "absent", tmp_path / "empty"):
        assert main(["log", "verify", str(path)]) == 2
        assert "log.dirs" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["offset deltas 0, 0", "gzip truncated", "count 3, two records"])
def test_a_batch_that_nobody_can_read_is_listed_though_its_bytes_are_sound(
    directory: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said: all sound."""
    poisoned = POISON[kind][0]
    disk = RealDisk(wants_ring=False)
    log = open_log(disk, directory=str(directory / "orders-0"), topic_partition=TP)
    append(log, poisoned, epoch=2)
    append(log, make_batch(1), epoch=2)
    end = log.log_end_offset
    log.close()
    for name in (checkpoints.RECOVERY_POINTS_FILE, checkpoints.HIGH_WATERMARKS_FILE):
        checkpoints.write_offsets(disk, str(directory / name), {TP: end})
    disk.close()
    flip(directory, 3, 80)
    assert main(["log", "verify", str(directory), "-o", "json"]) == 1
    out, err = capsys.readouterr()
    damaged, unreadable = map(json.loads, out.splitlines())
    assert (damaged["kind"], damaged["first_offset"]) == ("damage", 3)
    assert (unreadable["kind"], unreadable["first_offset"]) == ("records", 40)
    assert (unreadable["last_offset"], unreadable["size"]) == (end - 2, len(poisoned))
    assert "nobody can read" in unreadable["reason"]
    assert "group skip" in unreadable["next_step"]
    assert "1 damaged range and 1 batch that nobody can read" in err
    assert main(["log", "repair", "--dry-run", str(directory)]) == 0
    assert "nothing repairs it" in capsys.readouterr().out
