"""The small text files: Kafka's layout, and nothing half read."""

from __future__ import annotations

import json

import pytest

from barnabas_log.directories import checkpoints
from barnabas_log.errors import CorruptCheckpoint
from barnabas_log.memory_disk import MemoryDisk
from barnabas_wire.kafka.ids import Offset, TopicPartition, Uuid

OFFSETS = {
    TopicPartition("b-b", 3): Offset(12),
    TopicPartition("a", 10): Offset(2**60),
    TopicPartition("a", 9): Offset(0),
}


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory("d")
    return disk


def test_offsets_have_kafkas_layout(disk: MemoryDisk) -> None:
    checkpoints.write_offsets(disk, "d/f", OFFSETS)
    assert disk.read_file("d/f") == b"0\n3\na 9 0\na 10 1152921504606846976\nb-b 3 12\n"
    assert checkpoints.read_offsets(disk, "d/f") == OFFSETS
    assert checkpoints.read_offsets(disk, "d/none") == {}


def test_no_prefix_and_no_extra_line_is_taken_for_a_file(disk: MemoryDisk) -> None:
    checkpoints.write_offsets(disk, "d/f", OFFSETS)
    whole = disk.read_file("d/f")
    damages = [whole[:cut] for cut in range(len(whole))]
    damages += [whole + b"a 1 1\n", whole.replace(b"0\n3", b"1\n3", 1), whole.replace(b"b-b 3", b"b-b x"), b"\xff" * 20]
    for damage in damages:
        disk.write_file_atomically("d/f", damage)
        with pytest.raises(CorruptCheckpoint):
            checkpoints.read_offsets(disk, "d/f")


def test_partition_metadata_is_whole_or_unknown(disk: MemoryDisk) -> None:
    topic_id = Uuid(bytes(range(16)))
    whole = checkpoints.encode_partition_metadata(topic_id)
    assert whole == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"
    for cut in range(len(whole) + 1):
        disk.write_file_atomically("d/m", whole[:cut])
        known = checkpoints.read_partition_metadata(disk, "d/m")
        assert known == (topic_id if cut == len(whole) else None)
    assert checkpoints.read_partition_metadata(disk, "d/none") is None


def test_clean_shutdown_tells_the_broker_epoch(disk: MemoryDisk) -> None:
    assert checkpoints.read_clean_shutdown(disk, "d/c") is None
    checkpoints.write_clean_shutdown(disk, "d/c", broker_epoch=41)
    assert json.loads(disk.read_file("d/c")) == {"version": 0, "brokerEpoch": 41}
    assert checkpoints.read_clean_shutdown(disk, "d/c") == 41
    disk.write_file_atomically("d/c", b"")
    assert checkpoints.read_clean_shutdown(disk, "d/c") == -1
