"""Which deletions a log has forgotten: said before they go, believed only with its checksum, and carefully guessed without."""

from __future__ import annotations

import pytest

from barnabas_log.directories.refill_names import REFILLED_FILE, decode_record, encode_record, finish_refills
from barnabas_log.forgotten import (
    FORGOTTEN_DELETIONS_FILE,
    Copied,
    ForgottenDeletions,
    UnsoundFile,
    decode,
    encode,
)
from barnabas_log.memory_disk import MemoryDisk
from barnabas_wire.kafka.ids import Epoch, Offset, TopicPartition

DIRECTORY = "/data/t-0"
PATH = f"{DIRECTORY}/{FORGOTTEN_DELETIONS_FILE}"


def on_disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory(DIRECTORY)
    return disk


def loaded(disk: MemoryDisk, *, log_end: int, may_have_gaps: bool = True) -> ForgottenDeletions:
    forgotten = ForgottenDeletions(disk, DIRECTORY)
    forgotten.load(log_end=Offset(log_end), may_have_gaps=may_have_gaps)
    return forgotten


@pytest.mark.parametrize("copied", [None, Copied(Epoch(3), Offset(7))])
def test_every_flipped_bit_and_every_cut_is_seen(copied: Copied | None) -> None:
    content = encode(Offset(12), copied)
    assert decode(content) == (12, copied)
    for place in range(len(content)):
        with pytest.raises(UnsoundFile):
            decode(content[:place])
        for bit in range(8):
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            with pytest.raises(UnsoundFile):
                decode(bytes(flipped))
    with pytest.raises(UnsoundFile):
        decode(content + b"\0")


def test_what_is_saved_is_loaded_and_never_falls() -> None:
    disk = on_disk()
    forgotten = loaded(disk, log_end=0, may_have_gaps=False)
    assert not disk.exists(PATH), "a log that was never compacted has no file"
    forgotten.save(Offset(9))
    assert forgotten.below == 0, "it counts from the swap on"
    forgotten.publish(Offset(9))
    forgotten.save(Offset(4))
    assert loaded(disk, log_end=20).below == 9
    assert loaded(disk, log_end=5).below == 5, "the log was cut"


def test_missing_or_unsound_everything_counts_where_the_log_was_compacted() -> None:
    disk = on_disk()
    assert loaded(disk, log_end=20, may_have_gaps=False).below == 0
    assert loaded(disk, log_end=20).below == 20
    assert loaded(disk, log_end=30).below == 20, "the guess is kept, and does not grow with the log"
    disk.write_file_atomically(PATH, b"0\nbelow 3\ncrc32c 00000000\n")
    assert loaded(disk, log_end=30, may_have_gaps=False).below == 30, "a file is there, so it was compacted"


def test_a_copy_is_one_of_one_leader_epoch_and_is_known_after_a_restart() -> None:
    disk = on_disk()
    forgotten = loaded(disk, log_end=0, may_have_gaps=False)
    copied = Copied(Epoch(3), Offset(7))
    forgotten.begin_copy(copied)
    after = loaded(disk, log_end=2)
    assert (after.copied, after.below) == (copied, 2)
    after.start_over()
    assert after.copied is None


def test_who_copies_from_a_leader_that_says_nothing_trusts_no_file() -> None:
    disk = on_disk()
    forgotten = loaded(disk, log_end=0, may_have_gaps=False)
    forgotten.save(Offset(3))
    forgotten.doubt(Offset(12))
    assert forgotten.below == 12 and not disk.exists(PATH)
    assert loaded(disk, log_end=15).below == 15


def test_a_start_finishes_or_undoes_the_swap_of_a_second_log() -> None:
    name = TopicPartition("t", 0)
    disk = on_disk()
    second = "/data/t-0.abc00-refilled"
    disk.make_directory(second)
    disk.write_file_atomically(f"{second}/{REFILLED_FILE}", encode_record(name))
    finish_refills(disk, "/data")
    assert disk.list_directory("/data") == ["t-0"], "the old one serves"
    disk.make_directory(second)
    disk.write_file_atomically(f"{second}/{REFILLED_FILE}", encode_record(name))
    disk.remove_tree(DIRECTORY)
    finish_refills(disk, "/data")
    assert disk.list_directory("/data") == ["t-0"] and disk.exists(f"{DIRECTORY}/{REFILLED_FILE}")


def test_a_second_log_that_does_not_say_whose_it_is_is_left_alone() -> None:
    disk = MemoryDisk()
    content = encode_record(TopicPartition("t", 0))
    assert decode_record(content) == "t-0"
    for number, bad in enumerate((None, b"", content[:-1], b"u" + content[1:])):
        path = f"/data/t-0.{number}-refilled"
        disk.make_directory(path)
        if bad is not None:
            disk.write_file_atomically(f"{path}/{REFILLED_FILE}", bad)
    before = disk.list_directory("/data")
    finish_refills(disk, "/data")
    assert disk.list_directory("/data") == before
