"""Every small file with each of its bits flipped and cut to each of its lengths, taken by what reads it.

May touch:  memory disks.              Must not touch: real files, nodes.
Invariants: all single-bit flips and all lengths of each file are taken, none is drawn.
Read next:  damage.py, which damages files of whole nodes.

Two kinds. A *decoder* alone: it raises nothing but the error that its docstring names, and where the file has a checksum it
never takes a changed file for a sound one that says something else. A file of a *log*: the log is opened as after a clean stop and as
after a crash, and must have what it had: it starts and ends where it did, every batch is read, the leader epochs, the producers and the
aborted transactions are those that the batches tell. What only such a file knows (where the log starts, its topic id) may be lost, but
never so that records go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from barnabas_broker.metadata.flush_marks import encode_mark, last_mark
from barnabas_broker.metadata.incarnation_file import (
    INCARNATION_FILE,
    StoredIncarnation,
    load_incarnation,
    save_incarnation,
)
from barnabas_broker.metadata.meta_properties import META_PROPERTIES, MetaProperties, StorageError
from barnabas_broker.metadata.quorum_state import DamagedQuorumState, decode_hard_state, encode_hard_state
from barnabas_log.directories.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARKS_FILE,
    LEADER_EPOCHS_FILE,
    LOG_START_OFFSETS_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINTS_FILE,
    read_clean_shutdown,
    read_epochs,
    read_offsets,
    read_partition_metadata,
    read_start_over,
)
from barnabas_log.directories.manager import LogManager
from barnabas_log.errors import CorruptCheckpoint, InconsistentTopicId
from barnabas_log.memory_disk import Inode, MemoryDisk
from barnabas_log.tail.aborted_transactions import TXN_INDEX_SUFFIX
from barnabas_log.tail.producer_snapshots import decode_snapshot, encode_snapshot
from barnabas_log.unified_log import UnifiedLog
from barnabas_quorum.driver.incarnation import Incarnation
from barnabas_quorum.driver.snapshot_content import DamagedSnapshot, bootstrap_snapshot, bootstrap_voters
from barnabas_quorum.raft.damage import FlushMark, LogEnd
from barnabas_quorum.raft.messages import HardState
from barnabas_quorum.raft.voters import ReplicaKey, VoterSet
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset, TopicPartition, Uuid
from barnabas_wire.records.control import build_transaction_marker
from tests.support.logs import NOW_MS, append, content, flush, make_batch, make_config

DATA = "data"
ORDERS, TOPIC_ID = TopicPartition("orders", 0), Uuid(b"topic-id-of-ours")
LOG = f"{DATA}/{ORDERS}"
Files = dict[str, bytes]
Judged = tuple[str, int, list[str]]
"""A file's name, how many forms of it were taken, and which were taken wrongly."""


def judge_all() -> Iterator[Judged]:
    """All decoders, then all files of a log."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield from (_judge_decoder(each) for each in decoders())
        yield from judge_log_files()
    finally:
        logging.disable(disabled)


def forms(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Every length, then every single-bit flip; each with its name."""
    for size in range(len(data)):
        yield f"cut to {size} of {len(data)} bytes", data[:size]
    yield "zeroed", bytes(len(data))
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            yield f"bit {bit} of byte {position} of {len(data)} flipped", bytes(flipped)


# -- decoders alone ----------------------------------------------------------------------------------------------------


class Decoder(NamedTuple):
    """What reads one small file."""

    name: str
    data: bytes
    decode: Callable[[bytes], Any]
    errors: tuple[type[Exception], ...]
    """What it may raise."""
    has_checksum: bool = False
    also: tuple[Any, ...] = ()
    """With a checksum: what else it may say of a changed file."""


def decoders() -> list[Decoder]:
    """One of each small file that the product reads."""
    key = ReplicaKey(BrokerId(2), Uuid(b"directory-of-two"))
    voters = VoterSet.parse(f"2@127.0.0.1:9093:{key.directory_id}")
    mark = FlushMark(Offset(40), LogEnd(Epoch(3), Offset(41)), None)
    former = FlushMark(Offset(30), LogEnd(Epoch(2), Offset(31)), None)
    properties = MetaProperties(cluster_id="c" * 22, node_id=BrokerId(2), directory_id=key.directory_id)
    checkpoint, epochs = b"0\n2\norders 0 12\norders 11 7\n", b"0\n2\n0 0\n3 14\n"
    clean_stop = b'{"version": 0, "brokerEpoch": 71}'
    metadata = f"version: 0\ntopic_id: {TOPIC_ID}\n".encode()
    state = HardState(Epoch(7), BrokerId(-1), key)
    incarnation = _saved(
        lambda disk: save_incarnation(disk, DATA, StoredIncarnation(current=Incarnation(1, key.directory_id)))
    )
    log = _open(_written())
    producers = encode_snapshot(log.producers)
    return [
        Decoder("an offset checkpoint", checkpoint, _from_disk(read_offsets), (CorruptCheckpoint,)),
        Decoder("leader epochs", epochs, _from_disk(read_epochs), (CorruptCheckpoint,)),
        Decoder("a start over", b"0\n1\n12\n", _from_disk(read_start_over), (CorruptCheckpoint,)),
        Decoder("partition.metadata", metadata, _from_disk(read_partition_metadata), ()),
        Decoder("a clean stop", clean_stop, _from_disk(read_clean_shutdown), ()),
        Decoder("meta.properties", properties.encode(), _meta, (StorageError,)),
        Decoder("quorum-state", encode_hard_state(state), _hard_state, (DamagedQuorumState,)),
        Decoder("quorum-incarnation", incarnation, _incarnation, (StorageError,)),
        Decoder("a producer snapshot", producers, _producers, (CorruptCheckpoint,), has_checksum=True),
        Decoder("flush marks", encode_mark(former) + encode_mark(mark), last_mark, (), has_checksum=True, also=(former, None)),
        Decoder("a bootstrap checkpoint", bootstrap_snapshot(voters), bootstrap_voters, (DamagedSnapshot,), has_checksum=True),
    ]  # fmt: skip


def _judge_decoder(decoder: Decoder) -> Judged:
    sound = decoder.decode(decoder.data)
    count, wrong = 0, []
    for what, data in forms(decoder.data):
        count += 1
        try:
            found = decoder.decode(data)
        except decoder.errors:
            continue
        except Exception as error:
            wrong.append(f"{what}: {error!r}")
            continue
        if decoder.has_checksum and found != sound and found not in decoder.also:
            wrong.append(f"{what}: it says {found}")
    return decoder.name, count, wrong


def _from_disk(read: Callable[[Any, str], Any]) -> Callable[[bytes], Any]:
    def decode(data: bytes) -> Any:
        return read(_disk_of({f"{DATA}/file": data}), f"{DATA}/file")

    return decode


def _meta(data: bytes) -> MetaProperties:
    return MetaProperties.decode(data, META_PROPERTIES)


def _hard_state(data: bytes) -> HardState:
    return decode_hard_state(data, path="quorum-state")


def _incarnation(data: bytes) -> StoredIncarnation:
    return load_incarnation(_disk_of({f"{DATA}/{INCARNATION_FILE}": data}), DATA)


def _producers(data: bytes) -> bytes:
    return encode_snapshot(decode_snapshot(data, Offset(9)))


def _saved(save: Callable[[MemoryDisk], None]) -> bytes:
    disk = MemoryDisk()
    disk.make_directory(DATA)
    save(disk)
    (inode,) = disk.names.values()
    return bytes(inode.content)


def _disk_of(files: Files) -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory(DATA)
    disk.make_directory(LOG)
    for path, data in files.items():
        inode = disk.names[path] = Inode()
        inode.content += data
        inode.durable = data
    disk.durable_names = dict(disk.names)
    return disk


# -- files of a log ------------------------------------------------------------------------------------------------------


class Facts(NamedTuple):
    """What a log must have whatever happened to a small file of it."""

    start: int
    end: int
    content: bytes
    epochs: tuple[tuple[int, int], ...]
    producers: bytes
    aborted: list[tuple[int, int, int]]


CONFIG = {"segment_bytes": 500, "index_interval_bytes": 0}
START_FILES = (LOG_START_OFFSETS_FILE,)
"""Without it a log may start where its first segment does: what was deleted of that one is there again."""


def _written() -> Files:
    """A log with an aborted and a committed transaction, two epochs, three segments, deleted records; stopped cleanly."""

    async def write() -> Files:
        disk = MemoryDisk()
        manager = _manager(disk)
        await manager.load()
        log = manager.get_or_create(ORDERS, TOPIC_ID, make_config(**CONFIG))
        for step in range(6):
            append(log, make_batch(2, timestamp_ms=NOW_MS + step), epoch=step // 3)
            producer: dict[str, Any] = {"producer_id": 7 + step % 2, "producer_epoch": 0}
            guard = log.producers.begin_verification(producer["producer_id"], 0)
            log.producers.confirm(producer["producer_id"], guard)
            append(log, make_batch(1, is_transactional=True, base_sequence=step // 2, **producer), epoch=step // 3)
            marker = build_transaction_marker(
                coordinator_epoch=1, is_commit=step % 3 != 1, now_ms=NOW_MS + step, **producer
            )
            log.tail.append_as_leader(marker, leader_epoch=Epoch(step // 3), now_ms=NOW_MS, is_internal=True)
            log.tail.write_pending()
        flush(log)
        log.update_high_watermark(log.log_end_offset)
        log.delete_records_before(Offset(2))
        await manager.checkpoints.write_offsets()
        await manager.checkpoints.write_high_watermarks()
        await manager.close(broker_epoch=7)
        return {path: bytes(inode.content) for path, inode in disk.names.items()}

    return asyncio.run(write())


def _manager(disk: MemoryDisk) -> LogManager:
    return LogManager(disk=disk, directories=[DATA], default_config=make_config(**CONFIG), clock_ms=lambda: NOW_MS)


def _open(files: Files) -> UnifiedLog:
    async def load() -> UnifiedLog:
        manager = _manager(_disk_of(files))
        await manager.load()
        return manager.get_or_create(ORDERS, TOPIC_ID, make_config(**CONFIG))

    return asyncio.run(load())


def facts_of(log: UnifiedLog) -> Facts:
    """By reading it through, from each batch on, as consumers do that seek."""
    whole = content(log)
    for offset in range(log.log_start_offset, log.log_end_offset):
        read = log.read(Offset(offset), bytes_max=1, end=log.log_end_offset, at_least_one_batch=True)
        if read.next_offset <= offset:
            raise AssertionError(f"offset {offset} is not found")
        for part in read.parts:
            part.file.release()
    return Facts(
        log.log_start_offset,
        log.log_end_offset,
        whole,
        tuple((int(epoch), int(start)) for epoch, start in log.leader_epochs.entries),
        encode_snapshot(log.producers),
        [(each.producer_id, each.first_offset, each.last_offset) for each in log.aborted],
    )


def judge_log_files() -> Iterator[Judged]:
    """Every small file of a log, taken by the whole start."""
    files = _written()
    sound = facts_of(_open(files))
    assert sound.aborted, "no transaction was aborted"
    suffixes = (".index", ".timeindex", TXN_INDEX_SUFFIX, ".snapshot")
    names = [LEADER_EPOCHS_FILE, PARTITION_METADATA_FILE]
    node_files = [RECOVERY_POINTS_FILE, LOG_START_OFFSETS_FILE, HIGH_WATERMARKS_FILE, CLEAN_SHUTDOWN_FILE]
    chosen = [f"{DATA}/{each}" for each in node_files] + [f"{LOG}/{each}" for each in names]
    for suffix in suffixes:  # the newest with something in it: what a crash is most likely to leave damaged
        chosen += [path for path, data in sorted(files.items()) if path.endswith(suffix) and data][-1:]
    for path in chosen:
        for is_clean in (True, False):
            yield _judge_log_file(files, path, sound, is_clean=is_clean)


def _judge_log_file(files: Files, path: str, sound: Facts, *, is_clean: bool) -> Judged:
    clean_file = f"{DATA}/{CLEAN_SHUTDOWN_FILE}"
    name = f"{path} after a {'clean stop' if is_clean else 'crash'}"
    if path == clean_file and not is_clean:
        return name, 0, []
    rest = {each: data for each, data in files.items() if is_clean or each != clean_file}
    count, wrong = 0, []
    damaged = [("missing", None), *forms(files[path])]
    for what, data in damaged:
        count += 1
        tried = dict(rest)
        if data is None:
            tried.pop(path)
        else:
            tried[path] = data
        try:
            found = facts_of(_open(tried))
        except InconsistentTopicId as error:
            # Of another topic, as far as the log can know: its owner decides, and whole nodes show how.
            if not path.endswith(PARTITION_METADATA_FILE):
                wrong.append(f"{what}: {error!r}")
            continue
        except Exception as error:
            wrong.append(f"{what}: {error!r}")
            continue
        wrong += [f"{what}: {each}" for each in _differences(sound, found, path)]
    return name, count, wrong


def _differences(sound: Facts, found: Facts, path: str) -> list[str]:
    is_start_lost = path.endswith(START_FILES)
    differences = []
    if found.start > sound.start or (found.start < sound.start and not is_start_lost):
        differences.append(f"it starts at {found.start}, not at {sound.start}")
    if found.end != sound.end:
        differences.append(f"it ends at {found.end}, not at {sound.end}")
    if not found.content.endswith(sound.content):
        differences.append("records are gone")
    if found.aborted != sound.aborted:
        differences.append(f"aborted are {found.aborted}, not {sound.aborted}")
    if found.producers != sound.producers and not is_start_lost:
        differences.append("it knows other producers")
    if found.epochs != sound.epochs and not is_start_lost:
        differences.append(f"leader epochs are {found.epochs}, not {sound.epochs}")
    return differences
