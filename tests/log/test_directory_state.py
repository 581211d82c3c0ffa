"""What a log directory says of itself: kept over restarts, and silent when it is damaged."""

from __future__ import annotations

from barnabas_log.directories.directory_state import OWN_DIRECTORY, STATE_FILE, DirectoryState, LostReplica, StoredState
from barnabas_log.memory_disk import MemoryDisk
from barnabas_wire.kafka.ids import Offset, TopicPartition, Uuid

A0, B1 = TopicPartition("a", 0), TopicPartition("b", 1)
LOST = LostReplica(Uuid(b"t" * 16), Offset(7), "gone")


def state(disk: MemoryDisk) -> DirectoryState:
    found = DirectoryState(disk, "one")
    found.load()
    return found


def test_it_says_after_a_restart_what_was_written() -> None:
    disk = MemoryDisk()
    disk.make_directory("one")
    first = state(disk)
    assert (first.broker_epoch, first.has_second_witness, first.lost) == (-1, False, {})
    first.note_second_witness()
    first.note_registration(12)
    first.add_lost({A0: LOST, B1: LOST})
    first.forget_lost([B1])
    again = state(disk)
    assert (again.broker_epoch, again.has_second_witness, again.lost) == (12, True, {A0: LOST})


def test_every_damage_makes_it_say_nothing() -> None:
    whole = StoredState(broker_epoch=3, has_second_witness=True, lost=((A0, LOST),)).encode()
    assert StoredState.decode(whole) is not None
    for position in range(len(whole)):
        assert StoredState.decode(whole[:position]) is None
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[position] ^= 1 << bit
            assert StoredState.decode(bytes(flipped)) is None


def test_a_former_version_takes_its_directory_for_a_log_on_its_way_out() -> None:
    assert OWN_DIRECTORY.endswith("-delete") and STATE_FILE == "directory-state"
