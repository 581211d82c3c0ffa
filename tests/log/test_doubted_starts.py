"""A log of which nobody here knows for sure where it starts says so, and no other log does."""

from __future__ import annotations

import logging

import pytest

from barnabas_log.directories.checkpoint_twins import encode_twin, is_start_doubted, settle
from barnabas_log.directories.checkpoints import (
    CLEAN_OFFSETS_FILE,
    HIGH_WATERMARKS_FILE,
    LOG_START_OFFSETS_FILE,
    RECOVERY_POINTS_FILE,
    encode_offsets,
    read_offsets,
)
from barnabas_log.directories.directory_state import OWN_DIRECTORY
from barnabas_log.directories.manager import LogManager
from barnabas_log.memory_disk import MemoryDisk
from barnabas_wire.kafka.ids import Epoch, Offset, TopicPartition, Uuid
from tests.log.test_lost_checkpoints import started
from tests.support.logs import append, flush, make_config

NAME = TopicPartition("trimmed", 0)
OTHER = TopicPartition("whole", 0)
TOPIC_ID = Uuid(b"topic-id-0123456")
FILE = f"data/{LOG_START_OFFSETS_FILE}"
TWIN = f"data/{OWN_DIRECTORY}/{LOG_START_OFFSETS_FILE}"
ALL = tuple(
    f"data/{below}{name}"
    for name in (RECOVERY_POINTS_FILE, LOG_START_OFFSETS_FILE, HIGH_WATERMARKS_FILE, CLEAN_OFFSETS_FILE)
    for below in ("", f"{OWN_DIRECTORY}/")
)
GARBAGE = b"\xff\x00garbage"


async def written() -> MemoryDisk:
    """A broker's directory with a log of ten records that starts at 4, and one that was never trimmed, as a kill leaves it."""
    disk = MemoryDisk()
    manager = await started(disk)
    for name in (NAME, OTHER):
        log = manager.get_or_create(name, TOPIC_ID, make_config())
        log.tail.assign_epoch_start(Epoch(0), Offset(0))
        for _ in range(10):
            append(log)
        flush(log)
        log.update_high_watermark(Offset(10))
    await manager.checkpoints.write_offsets()
    await manager.checkpoints.write_high_watermarks()
    await manager.checkpoints.raise_log_starts({manager.logs[NAME]: Offset(4)})
    return disk


def doubted(manager: LogManager) -> set[TopicPartition]:
    return {name for name, log in manager.logs.items() if log.is_start_doubted}


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "do not prove where" in each.getMessage()]


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        ({}, set()),
        (dict.fromkeys((FILE, TWIN)), {NAME, OTHER}),
        (dict.fromkeys(ALL), {NAME, OTHER}),
        (dict.fromkeys(ALL, GARBAGE), {NAME, OTHER}),
        ({TWIN: None}, {NAME, OTHER}),
        ({FILE: None}, {NAME, OTHER}),
        ({FILE: encode_offsets({NAME: Offset(3)})}, {NAME}),
        (
            dict.fromkeys(each for each in ALL if OWN_DIRECTORY in each),
            set(),
        ),  # as in the minute after a former version
    ],
)
async def test_a_start_is_in_doubt_where_file_or_twin_was_there_and_does_not_prove_it(
    damage: dict[str, bytes | None], expected: set[TopicPartition], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    disk = await written()
    for path, content in damage.items():
        if content is None:
            disk.names.pop(path)
        else:
            disk.write_file_atomically(path, content)
    manager = await started(disk)
    assert doubted(manager) == expected
    assert [LOG_START_OFFSETS_FILE in line for line in told(caplog)] == [True] * bool(expected)
    assert bool(manager.stats.checkpoints_doubted) == bool(expected)


async def test_numbers_of_another_checkpoint_empty_no_log() -> None:
    """The high watermarks and their twin in the place of the log starts: all below them would be gone."""
    disk = await written()
    for below in ("", f"{OWN_DIRECTORY}/"):
        content = disk.read_file(f"data/{below}{HIGH_WATERMARKS_FILE}")
        disk.write_file_atomically(f"data/{below}{LOG_START_OFFSETS_FILE}", content)
    manager = await started(disk)
    assert doubted(manager) == {NAME, OTHER}
    assert {log.log_start_offset for log in manager.logs.values()} == {0}


async def test_an_older_copy_of_both_is_contradicted_by_the_epochs(caplog: pytest.LogCaptureFixture) -> None:
    disk = await written()
    manager = await started(disk)
    await manager.checkpoints.write_offsets()  # the epochs, too
    assert not doubted(manager)
    disk.write_file_atomically(FILE, encode_offsets({}))
    disk.write_file_atomically(TWIN, encode_twin(LOG_START_OFFSETS_FILE, {}, {}))
    again = await started(disk)
    assert again.logs[NAME].log_start_offset == 0
    assert doubted(again) == {NAME} and len(told(caplog)) == 1
    assert again.stats.checkpoints_doubted == 1


async def test_a_doubt_outlives_a_kill_until_it_is_settled() -> None:
    disk = await written()
    for path in ALL:
        disk.names.pop(path)
    manager = await started(disk)
    await manager.checkpoints.write_offsets()
    again = await started(disk)
    assert doubted(again) == {NAME, OTHER}
    again.logs[NAME].update_high_watermark(Offset(5))
    await again.checkpoints.raise_log_starts({again.logs[NAME]: Offset(5)})
    again = await started(disk)
    assert doubted(again) == {NAME, OTHER} and again.logs[NAME].log_start_offset == 5, "the twin names it"
    for log in again.logs.values():
        log.is_start_doubted = False
    await again.checkpoints.write_offsets()
    again = await started(disk)
    assert not doubted(again) and again.logs[NAME].log_start_offset == 5
    assert read_offsets(disk, FILE) == {NAME: 5}


async def test_a_first_start_and_one_after_a_former_version_are_quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    await started(MemoryDisk())
    for has_files in (True, False):  # a former version writes none in its first minute
        disk = await written()
        for path in tuple(disk.names):
            if OWN_DIRECTORY in path or (path in ALL and not has_files):
                disk.names.pop(path)
        manager = await started(disk)
        assert not doubted(manager) and manager.logs[NAME].log_start_offset == (4 if has_files else 0)
        manager = await started(disk)  # killed before it wrote a checkpoint
        assert not doubted(manager)
    assert not told(caplog)


@pytest.mark.parametrize(
    ("main", "twin", "has_twins", "was_written", "expected"),
    [
        (None, None, False, False, False),  # a fresh directory
        (None, None, False, True, True),
        (None, None, True, True, True),
        ({NAME: 4}, None, False, True, False),  # a former version's
        ({NAME: 4}, None, True, True, True),
        ({NAME: 4}, b"", False, True, True),
        (b"", None, False, False, True),
        (None, {NAME: 4}, True, True, True),
        (b"", {NAME: 4}, True, True, True),
        ({NAME: 4}, {NAME: 4}, True, True, False),
        ({NAME: 4}, {NAME: 5}, True, True, True),
        ({OTHER: 4}, {OTHER: 5}, True, True, False),  # of another log
        ({}, {NAME: 0}, True, True, True),
    ],
)
def test_the_rule(
    main: dict[TopicPartition, Offset] | bytes | None,
    twin: dict[TopicPartition, Offset] | bytes | None,
    has_twins: bool,
    was_written: bool,
    expected: bool,
) -> None:
    settled = settle(
        encode_offsets(main) if isinstance(main, dict) else main,
        encode_twin("checkpoint", twin, {}) if isinstance(twin, dict) else twin,
        path="d/checkpoint",
    )
    assert is_start_doubted(settled, NAME, has_twins=has_twins, was_written=was_written) == expected
