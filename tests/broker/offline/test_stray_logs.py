"""Logs that were set aside: listed, adopted, deleted, and nothing but what was named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas_broker.main import main
from barnabas_log.directories.directory_state import LostReplica
from barnabas_log.directories.manager import LogManager
from barnabas_log.directories.topic_witness import WITNESS_FILE
from barnabas_log.disk import RealDisk
from barnabas_log.errors import DirectoryLocked
from barnabas_wire.kafka.ids import Offset, TopicPartition, Uuid
from tests.support.logs import NOW_MS, append, make_config

TP, TOPIC_ID = TopicPartition("a.b-c", 0), Uuid(b"t" * 16)


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


async def opened(directory: Path) -> LogManager:
    manager = LogManager(
        disk=RealDisk(wants_ring=False),
        directories=[str(directory)],
        default_config=make_config(),
        clock_ms=lambda: NOW_MS,
    )
    await manager.load()
    return manager


@pytest.fixture
async def stray(tmp_path: Path) -> Path:
    """A log of 10 offsets without a sound witness, set aside; an empty one is in its place, and on the list."""
    manager = await opened(tmp_path)
    log = manager.get_or_create(TP, TOPIC_ID, make_config())
    for _ in range(10):
        append(log)
    await manager.close()
    for name in ("partition.metadata", WITNESS_FILE):
        (tmp_path / str(TP) / name).write_bytes(bytes(43))
    again = await opened(tmp_path)
    kept_in = again.give_up(TP, LostReplica(TOPIC_ID, Offset(10), "no witness"))
    again.get_or_create(TP, TOPIC_ID, make_config())
    await again.close()
    assert kept_in is not None
    return Path(kept_in)


async def test_they_are_listed_with_what_they_hold_beside_what_was_lost(
    stray: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["log", "strays", str(stray.parent)]) == 0
    out, err = capsys.readouterr()
    assert f"{TP}: offsets 0 to 10" in out and str(stray) in out and "has lost records (no witness)" in out
    assert "log adopt" in err and "log delete-stray" in err
    assert main(["log", "strays", "-o", "json", str(stray.parent)]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["kind"], each["topic"], each["end_offset"]) for each in found] == [
        ("stray", "a.b-c", 10),
        ("lost", "a.b-c", 10),
    ]


async def test_an_adopted_log_is_in_its_place_with_both_witnesses(stray: Path) -> None:
    assert main(["log", "adopt", str(stray)]) == 0
    manager = await opened(stray.parent)
    log = manager.get_or_create(TP, TOPIC_ID, make_config())
    assert (log.log_start_offset, log.log_end_offset, log.damage) == (0, 10, ())
    assert manager.lost_replica(TP, TOPIC_ID) is None
    (replaced,) = [path for path in stray.parent.iterdir() if path.name.endswith("-stray")]
    assert (replaced / WITNESS_FILE).exists(), "what was in its place is kept"
    await manager.close()


async def test_adopting_asks_for_the_topic_where_nothing_says_it(
    stray: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (stray.parent / str(TP)).rename(stray.parent / "elsewhere")
    assert main(["log", "adopt", str(stray)]) != 0
    assert "--topic-id" in capsys.readouterr().err and stray.name in names(stray.parent)
    assert main(["log", "adopt", str(stray), "--topic-id", str(TOPIC_ID)]) == 0


async def test_nothing_is_adopted_beside_a_broker(
    stray: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(self: RealDisk, path: str) -> None:
        raise DirectoryLocked(f"{path} is in use")

    monkeypatch.setattr(RealDisk, "lock_directory", locked)
    before = names(stray.parent)
    assert main(["log", "adopt", str(stray)]) != 0
    assert "stop the broker" in capsys.readouterr().err and names(stray.parent) == before


async def test_only_what_is_set_aside_is_deleted_and_only_by_its_name(
    stray: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["log", "delete-stray", "--yes", str(stray.parent / str(TP))]) != 0
    assert main(["log", "delete-stray", str(stray)]) != 0
    assert "--yes" in capsys.readouterr().err and stray.name in names(stray.parent)
    assert main(["log", "delete-stray", "--yes", str(stray)]) == 0
    assert stray.name not in names(stray.parent) and str(TP) in names(stray.parent)
