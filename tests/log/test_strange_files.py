"""Files that are not what was written, or not what they are called: none keeps a broker from starting, none passes for a dead disk."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from barnabas_broker.metadata.flush_marks import last_mark
from barnabas_broker.metadata.incarnation_file import INCARNATION_FILE, load_incarnation
from barnabas_broker.metadata.meta_properties import MetaProperties, StorageError
from barnabas_broker.metadata.quorum_state import decode_hard_state
from barnabas_log.cleaner.swap import SwapRecord
from barnabas_log.config import LogManagerConfig
from barnabas_log.directories import checkpoints
from barnabas_log.directories.log_directory import parse_directory_name
from barnabas_log.directories.manager import LogManager
from barnabas_log.disk import RealDisk
from barnabas_log.errors import StorageFailed
from barnabas_log.memory_disk import MemoryDisk
from barnabas_log.recovery.segment_note import decode_note, encode_note
from barnabas_log.tail.producer_snapshots import decode_snapshot, list_snapshots
from barnabas_log.unified_log import UnifiedLog
from barnabas_quorum.driver.snapshot_content import bootstrap_voters
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import Offset, TopicPartition, Uuid
from tests.support.logs import DIRECTORY, NOW_MS, append, batch_offsets, flush, make_config, open_log, take

NOTES = TopicPartition("notes", 1)
CONFIG = make_config(segment_bytes=1500, index_interval_bytes=150)


@pytest.fixture
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def path(base: int, suffix: str) -> str:
    return f"{DIRECTORY}/{base:020d}{suffix}"


def filled(disk: MemoryDisk) -> UnifiedLog:
    log = open_log(disk, config=CONFIG)
    for _ in range(40):
        append(log)
    flush(log)
    return log


def assert_read(log: UnifiedLog) -> None:
    for offset in range(40):
        for bytes_max in (1, 700):
            for segment in log.segments:
                segment.boundaries.clear()
            read = log.read(Offset(offset), bytes_max=bytes_max, end=Offset(40), at_least_one_batch=True)
            batches = batch_offsets(take(read))
            assert batches[0] == (offset, offset) and read.next_offset == batches[-1][1] + 1


@pytest.mark.usefixtures("_quiet")
@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_each_bit_of_an_index_may_flip(suffix: str, number: int, is_clean: bool) -> None:
    """A negative position is an EINVAL for the system, which passed for a dead disk; a position amid a batch gave readers garbage."""
    disk = MemoryDisk()
    log = filled(disk)
    log.close()
    name = path(log.base_offsets[number], suffix)
    saved = {each: bytes(inode.content) for each, inode in disk.names.items()}
    for position in range(len(saved[name])):
        for bit in (0, 3, 7):
            for each, data in saved.items():
                disk.write_file_atomically(each, data)
            disk.names[name].content[position] ^= 1 << bit
            again = open_log(
                disk, config=CONFIG, is_clean_shutdown=is_clean, recovery_point=Offset(40), high_watermark=Offset(40)
            )
            assert not again.damage, (position, bit)
            assert_read(again)


@pytest.mark.parametrize("seed", range(20))
def test_an_index_may_hold_random_bytes(seed: int) -> None:
    random = Random(seed)
    disk = MemoryDisk()
    log = filled(disk)
    log.close()
    for base in log.base_offsets:
        for suffix in (".index", ".timeindex"):
            disk.names[path(base, suffix)].content[:] = random.randbytes(random.randint(0, 60))
    again = open_log(disk, config=CONFIG, is_clean_shutdown=bool(seed % 2), recovery_point=Offset(40))
    assert_read(again)
    assert not again.damage


async def test_an_index_that_rots_while_it_is_used_is_made_again(tmp_path: Path) -> None:
    disk = RealDisk(wants_ring=False)
    manager = _manager(disk, str(tmp_path))
    await manager.load()
    log = manager.get_or_create(NOTES, Uuid(b"t" * 16), CONFIG)
    for _ in range(40):
        append(log)
    flush(log)
    log.update_high_watermark(Offset(40))
    name = Path(log.directory) / f"{log.base_offsets[1]:020d}.index"
    good = name.read_bytes()
    name.write_bytes(b"".join(good[at : at + 4] + b"\x80\x00\x00\x07" for at in range(0, len(good), 8)))
    assert_read(log)
    assert manager.repairs.is_check_requested(log) and not log.is_failed
    assert await manager.repairs.check(log, log.base_offsets[1])
    assert name.read_bytes() == good
    assert_read(log)
    assert not any(segment.is_index_doubted for segment in log.segments)
    await manager.close()
    disk.close()


def _manager(disk: RealDisk | MemoryDisk, directory: str) -> LogManager:
    return LogManager(
        disk=disk,
        directories=[directory],
        default_config=make_config(),
        clock_ms=lambda: NOW_MS,
        config=LogManagerConfig(reserve_bytes=64),
    )


@pytest.mark.parametrize("name", ["notes-1", "notes-1.a-delete", "notes-01", "notes-\u0663", "-1", "notes-"])
async def test_what_is_no_directory_is_passed_over(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / name).write_bytes(b"buy milk")
    disk = RealDisk(wants_ring=False)
    manager = _manager(disk, str(tmp_path))
    await manager.load()
    assert not manager.logs and not manager.health.offline_directories
    assert (tmp_path / name).read_bytes() == b"buy milk"
    if name in ("notes-1", "notes-1.a-delete"):
        assert f"{name} is no directory" in caplog.text
    if name == "notes-1":
        with pytest.raises(StorageFailed, match="notes-1 is a file"):
            manager.get_or_create(NOTES, Uuid(b"t" * 16), make_config())
        assert not manager.health.offline_directories, "the disk is well"
    manager.get_or_create(TopicPartition("notes", 0), Uuid(b"t" * 16), make_config())
    await manager.close()
    disk.close()


@pytest.mark.parametrize(
    "name", ["5.log", "5.snapshot", "0000000000000000000\u0665.log", "5.index", "x.log", "5.txncheck"]
)
def test_a_strange_name_beside_the_segments_is_no_segment(name: str) -> None:
    disk = MemoryDisk()
    log = filled(disk)
    log.close()
    disk.write_file_atomically(f"{DIRECTORY}/{name}", b"strange")
    for is_clean in (True, False):
        again = open_log(disk, config=CONFIG, is_clean_shutdown=is_clean, recovery_point=Offset(40))
        assert again.base_offsets == log.base_offsets and Offset(5) not in list_snapshots(disk, DIRECTORY)
        assert_read(again)


def test_a_partition_has_one_name() -> None:
    """orders-01 was a rival of orders-1, and one of them was set aside."""
    assert parse_directory_name("orders-1") == ("orders", 1)
    assert [parse_directory_name(f"orders-{text}") for text in ("01", "+1", "\u0661", "1_0", "")] == [None] * 5


META = b"version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
QUORUM_STATE = json.dumps(
    {"leaderId": 1, "leaderEpoch": 3, "votedId": 1, "votedDirectoryId": str(Uuid(b"t" * 16)), "data_version": 1}
).encode()
INCARNATION = (
    b'{"incarnation": "1", "superseded_by": "2", "former_epoch": -1, "is_unfinished": false, "data_version": 0}'
)


def _by_disk(read: Callable[[MemoryDisk, str], object], name: str) -> Callable[[bytes], object]:
    def decode(data: bytes) -> object:
        disk = MemoryDisk()
        disk.make_directory("d")
        disk.write_file_atomically(f"d/{name}", data)
        return read(disk, f"d/{name}")

    return decode


DECODERS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "meta.properties": (lambda data: MetaProperties.decode(data, "d/meta.properties"), META),
    "quorum-state": (lambda data: decode_hard_state(data, path="d/quorum-state"), QUORUM_STATE),
    "incarnation": (_by_disk(lambda disk, _: load_incarnation(disk, "d"), INCARNATION_FILE), INCARNATION),
    "flush marks": (last_mark, bytes(60)),
    "bootstrap.checkpoint": (bootstrap_voters, bytes(70)),
    "offsets": (_by_disk(checkpoints.read_offsets, "o"), b"0\n2\norders 0 12\nnotes 1 7\n"),
    "epochs": (_by_disk(checkpoints.read_epochs, "o"), b"0\n2\n0 0\n3 12\n"),
    "start over": (_by_disk(checkpoints.read_start_over, "o"), b"0\n1\n12\n"),
    "partition.metadata": (
        _by_disk(checkpoints.read_partition_metadata, "o"),
        b"version: 0\ntopic_id: " + b"A" * 22 + b"\n",
    ),
    "clean shutdown": (_by_disk(checkpoints.read_clean_shutdown, "o"), b'{"version": 0, "brokerEpoch": 12}'),
    "snapshot": (lambda data: decode_snapshot(data, Offset(0)), bytes(56)),
    "note": (decode_note, encode_note([1, 2])),
}


@pytest.mark.parametrize("name", DECODERS)
def test_every_byte_of_a_small_file_may_be_any(name: str) -> None:
    """What comes of it is a value or an error of ours that main prints; never a traceback."""
    decode, good = DECODERS[name]
    images = [good[:size] for size in range(len(good))]
    images += [good[:at] + bytes([byte]) + good[at + 1 :] for at in range(len(good)) for byte in range(256)]
    random = Random(1)
    images += [random.randbytes(random.randint(0, 80)) for _ in range(200)]
    images += [b"[" * 5000, b'{"version": 0, "brokerEpoch": 1e999}', b"\xff\xfe", good + good]
    for data in images:
        try:
            decode(data)
        except KafkaError as error:
            assert str(error)


def test_the_record_of_a_swap_may_be_any() -> None:
    good = (
        b'{"version": 0, "base_offset": 0, "end_offset": 9, "size_bytes": 70, "sources": [0, 5], "has_aborted": false}'
    )
    for at in range(len(good)):
        for byte in range(0, 256, 5):
            try:
                SwapRecord.decode(good[:at] + bytes([byte]) + good[at + 1 :])
            except (ValueError, KeyError, TypeError):
                continue


def test_meta_properties_that_are_no_text_name_file_and_command() -> None:
    with pytest.raises(StorageError, match=r"d/meta.properties is damaged .* barnabas storage format"):
        MetaProperties.decode(b"version=1\n\xff\xfe=\x00", "d/meta.properties")
