"""Opening after a clean stop, a kill and a power cut: always a prefix, at least what was flushed, the same twice."""

from __future__ import annotations

import errno
from contextlib import suppress
from copy import deepcopy
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from barnabas_log.directories.checkpoints import START_OVER_FILE, write_epochs, write_start_over
from barnabas_log.disk import File
from barnabas_log.errors import StorageFailed
from barnabas_log.memory_disk import MemoryDisk
from barnabas_log.recovery import recovery
from barnabas_log.tail import retiring, truncating
from barnabas_log.tail.producer_snapshots import encode_snapshot, list_snapshots
from barnabas_log.tail.producer_state import ProducerBatch, ProducerEntry, ProducerState
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.records.batch import crc_is_valid, iterate_batches
from tests.log.cleaner.test_early_end import damages
from tests.support.logs import (
    DIRECTORY,
    NOW_MS,
    append,
    batch_offsets,
    content,
    flush,
    make_batch,
    make_config,
    open_log,
    take,
)


def path(base: int, suffix: str) -> str:
    return f"{DIRECTORY}/{base:020d}{suffix}"


def fingerprint(log: UnifiedLog) -> tuple:
    """Everything that opening decides, with the files it leaves."""
    producers = sorted((entry.producer_id, entry.epoch, tuple(entry.batches)[-1:]) for entry in log.producers)
    return (
        log.log_start_offset,
        log.log_end_offset,
        log.base_offsets,
        log.leader_epochs.entries,
        producers,
        content(log),
        [segment.max_timestamp for segment in log.segments],
    )


def filled(disk: MemoryDisk, batches: int = 40) -> UnifiedLog:
    log = open_log(disk, config=make_config(segment_bytes=1500))
    for n in range(batches):
        batch = make_batch(2, producer_id=n % 3, producer_epoch=0, base_sequence=n // 3 * 2, timestamp_ms=NOW_MS + n)
        append(log, batch, epoch=n // 15)
    return log


def test_a_cut_at_every_byte_of_the_last_batch_leaves_all_before_it() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    whole = content(log)
    *_, (last_at, last_header) = iterate_batches(whole)
    file = disk.names[path(log.base_offsets[-1], ".log")].content
    batch = bytes(file[len(file) - last_header.size_bytes :])
    sound = bytes(file[: len(file) - len(batch)])
    for cut in range(len(batch)):
        for tail in (b"", bytes(30), b"\xff" * 70):
            if (batch[:cut] + tail).startswith(batch):
                continue  # the zeros after the cut are the batch's own last bytes
            file[:] = sound + batch[:cut] + tail
            again = open_log(disk)
            assert content(again) == whole[:last_at], f"cut at byte {cut} of {len(batch)}"
            assert again.log_end_offset == again.flushed_end_offset == last_header.base_offset
            assert again.recovery_report.truncated_bytes == cut + len(tail)
            once = fingerprint(again)
            assert fingerprint(open_log(disk)) == once, "recovering twice gives the same"
    file[:] = sound + batch
    assert content(open_log(disk)) == whole


def test_a_log_whose_only_batch_is_torn_is_empty() -> None:
    disk = MemoryDisk()
    append(open_log(disk), epoch=3)
    file = disk.names[path(0, ".log")].content
    for cut in range(len(file)):
        del file[len(file) - 1 :]
        again = open_log(disk)
        assert (again.log_end_offset, again.size_bytes, again.latest_epoch) == (0, 0, -1), cut


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_stopped_log_opens_as_it_was(is_clean: bool) -> None:
    disk = MemoryDisk()
    log = filled(disk)
    before = fingerprint(log)
    log.close()
    again = open_log(disk, is_clean_shutdown=is_clean)
    assert fingerprint(again) == before
    assert again.recovery_report.scanned_bytes == (0 if is_clean else len(content(again)))
    for offset in range(again.log_end_offset):
        assert batch_offsets(
            take(again.read(Offset(offset), bytes_max=1, end=again.log_end_offset, at_least_one_batch=True))
        )[0] == (offset // 2 * 2, offset // 2 * 2 + 1)
    append(again, make_batch(1, producer_id=0, producer_epoch=0, base_sequence=28), epoch=3)


def test_only_segments_from_the_recovery_point_on_are_scanned() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    bases = log.base_offsets
    assert len(bases) > 2
    sizes = [segment.size_bytes for segment in log.segments]
    log.close()
    for point, scanned in ((bases[-1] + 1, sizes[-1:]), (bases[-1], sizes[-2:]), (bases[-2], sizes[-3:]), (0, sizes)):
        again = open_log(disk, recovery_point=Offset(point))
        assert again.recovery_report.scanned_bytes == sum(scanned)


def test_a_bad_byte_in_the_middle_ends_the_log_there_and_later_segments_go() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    whole, bases = content(log), log.base_offsets
    log.close()
    target = disk.names[path(bases[1], ".log")].content
    (_, _), (second_at, second) = list(iterate_batches(target))[:2]
    target[second_at + 70] ^= 1
    again = open_log(disk)
    assert again.log_end_offset == second.base_offset and again.base_offsets == bases[:2]
    assert whole.startswith(content(again))
    assert not again.recovery_report.is_flushed_data_lost
    assert all(
        base <= bases[1]
        for base in (int(name[:20]) for name in disk.list_directory(DIRECTORY) if name[0] == "0")
        if base != again.log_end_offset  # the snapshot of what was kept
    )


def test_damage_below_the_recovery_point_is_kept_and_told() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    log.close()
    last = disk.names[path(log.base_offsets[-1], ".log")].content
    last[-1] ^= 1
    again = open_log(disk, recovery_point=Offset(80))
    assert again.log_end_offset == 80 and again.recovery_report.is_flushed_data_lost
    assert [(damage.first_offset, damage.end_offset) for damage in again.damage] == [(78, 80)]


@pytest.mark.parametrize("kept_bytes", [29, 100])
def test_a_torn_batch_is_cut_though_the_stop_was_clean(kept_bytes: int) -> None:
    """Of a log that was being deleted nobody flushes anything, and a power cut undoes its removal. Nodes ended: what is left of a batch
    counted as expired, and the roll that was to follow began a segment of the same offset."""
    disk = MemoryDisk()
    log = open_log(disk, config=make_config(retention_ms=1))
    append(log)
    log.close()
    del disk.names[path(Offset(0), ".log")].content[kept_bytes:]
    again = open_log(disk, is_clean_shutdown=True, config=log.config)
    assert again.log_end_offset == again.size_bytes == 0
    assert retiring.apply_retention(again, NOW_MS + 10_000) == 0


def test_a_lost_middle_segment_ends_the_log_before_it() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    bases = log.base_offsets
    log.close()
    disk.remove(path(bases[1], ".log"))
    assert open_log(disk).log_end_offset == bases[1]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize(("number", "damage"), [(0, "gone"), (-1, "gone"), (-1, "cut"), (-1, "garbage")])
def test_a_damaged_index_is_made_again(is_clean: bool, suffix: str, number: int, damage: str) -> None:
    disk = MemoryDisk()
    log = filled(disk)
    before, base = fingerprint(log), log.base_offsets[number]
    log.close()
    good = bytes(disk.names[path(base, suffix)].content)
    if damage == "gone":
        disk.remove(path(base, suffix))
    else:
        disk.names[path(base, suffix)].content[:] = good[:-3] if damage == "cut" else b"\xff" * len(good)
    again = open_log(disk, is_clean_shutdown=is_clean)
    assert fingerprint(again) == before
    again.close()
    assert bytes(disk.names[path(base, suffix)].content) == good


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["cut", "zeros", "garbage", "short"])
def test_an_index_of_a_sealed_segment_that_is_not_its_own_is_made_again(
    is_clean: bool, suffix: str, damage: str
) -> None:
    """It kept what it led to from being read, or told retention that all of the segment was from 1970."""
    disk = MemoryDisk()
    log = filled(disk)
    before, bases = fingerprint(log), log.base_offsets
    log.close()
    inode = disk.names[path(bases[1], suffix)]
    good = bytes(inode.content)
    entry = 8 if suffix == ".index" else 12
    inode.content[:] = {
        "cut": good[:-3],
        "zeros": good[:-entry] + bytes(entry),
        "garbage": good + b"\xa5" * entry,
        "short": good[:-entry] if suffix == ".timeindex" else good[: entry // 2],
    }[damage]
    again = open_log(disk, is_clean_shutdown=is_clean, recovery_point=log.flushed_end_offset)
    assert fingerprint(again) == before
    assert again.recovery_report.truncated_bytes == 0
    for offset in range(again.log_end_offset):
        read = again.read(Offset(offset), bytes_max=1, end=again.log_end_offset, at_least_one_batch=True)
        assert batch_offsets(take(read))[0] == (offset // 2 * 2, offset // 2 * 2 + 1)
    assert bytes(inode.content) == good


@pytest.mark.parametrize("is_clean", [True, False])
def test_rot_in_a_sealed_segment_whose_snapshots_are_lost_lets_the_log_open(is_clean: bool) -> None:
    """It ended the start of a whole broker: `barnabas-server: the batch at 570 of … passes the end`."""
    disk = MemoryDisk()
    log = filled(disk)
    whole, bases = content(log), log.base_offsets
    log.close()
    rotten = disk.names[path(bases[1], ".log")].content
    del rotten[-10:]
    for offset in list_snapshots(disk, DIRECTORY):
        disk.remove(f"{DIRECTORY}/{offset:020d}.snapshot")
    again = open_log(disk, is_clean_shutdown=is_clean, recovery_point=log.flushed_end_offset)
    assert again.log_end_offset == log.flushed_end_offset
    read = again.read(Offset(0), bytes_max=1 << 20, end=again.log_end_offset, at_least_one_batch=True)
    assert whole.startswith(take(read))
    assert again.leader_epochs.latest == log.leader_epochs.latest


def test_epochs_behind_rot_are_still_taken_from_the_batches_where_the_file_is_lost() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    entries, bases = log.leader_epochs.entries, log.base_offsets
    log.close()
    del disk.names[path(bases[0], ".log")].content[-10:]
    disk.remove(f"{DIRECTORY}/leader-epoch-checkpoint")
    again = open_log(disk, is_clean_shutdown=True, recovery_point=log.flushed_end_offset)
    assert again.leader_epochs.entries == entries


def test_an_epoch_that_rose_by_rot_costs_nothing_behind_it_where_the_file_is_lost() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    before, entries, bases = content(log), log.leader_epochs.entries, log.base_offsets
    log.close()
    disk.names[path(bases[0], ".log")].content[14] ^= 4  # the leader epoch of the first batch, outside of its CRC
    disk.remove(f"{DIRECTORY}/leader-epoch-checkpoint")
    again = open_log(disk, recovery_point=Offset(bases[-1]))
    assert len(content(again)) == len(before)
    assert again.leader_epochs.entries[1:] == entries[1:]


@pytest.mark.parametrize("is_file_there", [True, False])
def test_an_offset_that_rose_by_rot_moves_no_epoch(is_file_there: bool) -> None:
    disk = MemoryDisk()
    log = filled(disk)
    entries, sealed = log.leader_epochs.entries, log.base_offsets[:-1]
    log.close()
    for base in sealed:
        for position, header in iterate_batches(bytes(disk.names[path(base, ".log")].content)):
            rotten = deepcopy(disk)
            rotten.names[path(base, ".log")].content[position + 2] ^= 64  # outside of the batch's CRC
            if not is_file_there:
                rotten.remove(f"{DIRECTORY}/leader-epoch-checkpoint")
            told = open_log(rotten, is_clean_shutdown=True).leader_epochs.entries
            expected = dict(entries)
            if not is_file_there and header.base_offset in expected.values():
                expected[header.partition_leader_epoch] = header.next_offset
            assert list(told) == list(expected.items()), f"batch at {header.base_offset}"


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("lost", [1, 2])
def test_first_segments_without_their_log_files_are_damage(is_clean: bool, lost: int) -> None:
    disk = MemoryDisk()
    log = filled(disk)
    bases, end = log.base_offsets, log.log_end_offset
    log.close()
    for base in bases[:lost]:
        disk.remove(path(base, ".log"))
    again = open_log(disk, is_clean_shutdown=is_clean, recovery_point=end)
    assert (again.log_start_offset, again.log_end_offset, again.base_offsets) == (0, end, bases)
    assert [(each.first_offset, each.end_offset) for each in again.damage] == list(pairwise(bases[: lost + 1]))
    again.close()
    again = open_log(disk, is_clean_shutdown=is_clean, recovery_point=end)
    assert [(each.first_offset, each.end_offset) for each in damages(again)] == list(pairwise(bases[: lost + 1]))


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_first_offset_below_that_of_its_file_is_damage(is_clean: bool, is_sealed: bool) -> None:
    """The file is another partition's, and ends at the same offset as the one that it replaces."""
    disk = MemoryDisk()
    for directory, start, counts in ((DIRECTORY, 1, (2, 2, 3)), ("other-0", 0, (2, 2, 2, 2))):
        log = open_log(
            disk,
            directory=directory,
            log_start_offset=start,
            config=make_config(segment_bytes=900, index_interval_bytes=4096),
        )
        for records in counts:
            append(log, make_batch(records))
        assert (log.base_offsets, log.log_end_offset) == ([start], 8)
        if is_sealed:
            append(log, make_batch(5))
        flush(log)
        log.close()
    disk.names[path(1, ".log")].content[:] = disk.names[f"other-0/{0:020d}.log"].content
    again = open_log(disk, is_clean_shutdown=is_clean, recovery_point=log.log_end_offset, log_start_offset=1)
    assert again.log_end_offset == log.log_end_offset
    found = [damage for segment in again.segments for damage in segment.damaged]
    assert [(each.first_offset, each.end_offset) for each in found] == [(1, 2)]


def test_indexes_of_segments_before_the_start_go() -> None:
    """Retention was cut short: a start is saved before what lies before it goes."""
    disk = MemoryDisk()
    log = filled(disk)
    bases, end = log.base_offsets, log.log_end_offset
    log.close()
    for base in bases[:2]:
        disk.remove(path(base, ".log"))
    again = open_log(disk, is_clean_shutdown=True, recovery_point=end, log_start_offset=Offset(bases[2]))
    assert (again.base_offsets, again.damage) == (bases[2:], ())
    assert not [name for name in disk.list_directory(DIRECTORY) if name.startswith(f"{bases[1]:020d}")]


def test_garbage_behind_a_sealed_segment_costs_nothing_of_the_next_ones() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    before, bases = fingerprint(log), log.base_offsets
    log.close()
    disk.names[path(bases[1], ".log")].content += b"\xa5" * 12
    again = open_log(disk)
    assert fingerprint(again) == before
    assert again.recovery_report.truncated_bytes == 12 and not again.recovery_report.is_flushed_data_lost


def test_leftovers_of_a_deletion_and_orphans_are_removed() -> None:
    disk = MemoryDisk()
    filled(disk, 5).close()
    for name in ("x.log.deleted", f"{99:020d}.index", f"{99:020d}.timeindex", "leader-epoch-checkpoint.tmp"):
        disk.open(f"{DIRECTORY}/{name}", create=True)
    open_log(disk)
    assert not [n for n in disk.list_directory(DIRECTORY) if "99." in n or n.endswith((".deleted", ".tmp"))]


def test_epochs_are_taken_from_the_batches_where_the_file_is_lost_or_wrong() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    entries = log.leader_epochs.entries
    log.close()
    epoch_file = f"{DIRECTORY}/leader-epoch-checkpoint"
    for damage in (b"", b"0\n7\n", None):
        if damage is None:
            disk.remove(epoch_file)
        else:
            disk.names[epoch_file].content[:] = damage
        assert open_log(disk, is_clean_shutdown=True).leader_epochs.entries == entries
    write_epochs(disk, epoch_file, [*entries, (Epoch(8), Offset(500))])
    assert open_log(disk, is_clean_shutdown=True).leader_epochs.entries == entries, "an epoch past the end goes"


def test_a_log_that_ends_before_its_start_begins_empty_there() -> None:
    disk = MemoryDisk()
    filled(disk).close()
    again = open_log(disk, log_start_offset=Offset(1000), is_clean_shutdown=True)
    assert (again.log_start_offset, again.log_end_offset, again.size_bytes, again.latest_epoch) == (1000, 1000, 0, -1)


def test_epochs_before_the_start_are_forgotten() -> None:
    disk = MemoryDisk()
    filled(disk).close()
    assert open_log(disk, log_start_offset=Offset(35)).leader_epochs.entries == ((1, 35), (2, 60))


@pytest.mark.parametrize("offset", [0, 2, 500])
def test_an_offset_that_does_not_follow_ends_the_log(offset: int) -> None:
    disk = MemoryDisk()
    append(open_log(disk), epoch=5)
    disk.names[path(0, ".log")].content += make_batch(1, offset=offset, leader_epoch=Epoch(5))
    assert open_log(disk).log_end_offset == 1


def test_what_a_kill_left_in_the_page_cache_is_durable_before_it_counts() -> None:
    disk = MemoryDisk()
    filled(disk)
    again = open_log(disk, config=make_config(segment_bytes=1500))
    assert again.flushed_end_offset == again.log_end_offset == 80
    for base in again.base_offsets:
        inode = disk.durable_names[path(base, ".log")]
        assert inode is disk.names[path(base, ".log")] and inode.durable == inode.content


def test_a_snapshot_of_a_tail_that_was_truncated_is_not_believed() -> None:
    disk = MemoryDisk()
    filled(disk, 5)
    stale = ProducerState()
    stale.update(producer_id=42, epoch=9, first_sequence=77, last_offset=Offset(3), offset_delta=0, timestamp_ms=0)
    disk.write_file_atomically(path(4, ".snapshot"), encode_snapshot(stale))
    again = open_log(disk)
    assert again.producers.get(42) is None and again.producer_count == 3


def test_epochs_that_fall_end_the_log() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, epoch=5)
    disk.names[path(0, ".log")].content += make_batch(1, offset=1, leader_epoch=Epoch(4))
    assert open_log(disk).log_end_offset == 1


def test_producers_after_recovery_are_what_replaying_gives() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    live = sorted((entry.producer_id, entry.epoch, entry.last) for entry in log.producers)
    for clean in (False, True):
        log.close()
        log = open_log(disk, is_clean_shutdown=clean)
        assert sorted((entry.producer_id, entry.epoch, entry.last) for entry in log.producers) == live


@pytest.mark.parametrize("seed", range(150))
def test_a_power_cut_loses_nothing_that_was_flushed(seed: int) -> None:
    """Random appends, rolls, flushes, truncations, checkpoints; then any part of what was not flushed is lost or torn."""
    random = Random(seed)
    disk = MemoryDisk()
    config = make_config(segment_bytes=random.choice([600, 1500, 4000]))
    log = open_log(disk, config=config)
    recovery_point, epoch = Offset(0), 0
    written: set[bytes] = set()
    for _life in range(3):
        for _ in range(random.randint(1, 40)):
            action = random.random()
            if action < 0.62:
                batch = make_batch(random.randint(1, 3), value=random.randbytes(random.randint(0, 130)))
                log.tail.append_as_leader(batch, leader_epoch=Epoch(epoch), now_ms=NOW_MS)
                written.add(batch[21:])
                if random.random() < 0.7:
                    log.tail.write_pending()
            elif action < 0.85:
                flush(log)
            elif action < 0.93 and log.log_end_offset:
                truncating.truncate_to(
                    log, Offset(random.randint(max(0, log.flushed_end_offset - 2), log.log_end_offset))
                )
                epoch += 1
                recovery_point = min(recovery_point, log.flushed_end_offset)  # the manager writes it at once
            else:
                log.leader_epochs.save()
                recovery_point = log.flushed_end_offset
        durable_end = log.flushed_end_offset
        durable = b""
        if durable_end:
            log.tail.write_pending()
            whole = content(log)
            durable = whole[: sum(h.size_bytes for _, h in iterate_batches(whole) if h.next_offset <= durable_end)]
        disk = disk.crash(random)
        log = open_log(disk, config=config, recovery_point=recovery_point)
        found = content(log)
        assert log.log_end_offset >= durable_end and found.startswith(durable)
        assert not log.recovery_report.is_flushed_data_lost
        expected, last_epoch = 0, -1
        for position, header in iterate_batches(found):
            assert header.base_offset == expected and crc_is_valid(found, position, header)
            assert header.partition_leader_epoch >= last_epoch
            assert found[position + 21 : position + header.size_bytes] in written
            expected, last_epoch = header.next_offset, header.partition_leader_epoch
        assert expected == log.log_end_offset
        starts = log.leader_epochs.entries
        assert all(
            log.leader_epochs.epoch_at(h.base_offset) == h.partition_leader_epoch for _, h in iterate_batches(found)
        )
        again = open_log(disk, config=config, recovery_point=recovery_point)
        assert content(again) == found and again.leader_epochs.entries == starts
        log, epoch = again, max(epoch, again.latest_epoch) + 1
        recovery_point = min(recovery_point, log.flushed_end_offset)


def test_producers_are_silent_since_their_records_after_a_start_and_since_now_after_a_cut() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for sequence in range(20):
        append(log, make_batch(timestamp_ms=1000, producer_id=4, producer_epoch=0, base_sequence=sequence))
    truncating.truncate_to(log, Offset(5))
    assert log.expire_producers(now_ms=NOW_MS, expiration_ms=1000) == 0
    log.close()
    again = open_log(disk, is_clean_shutdown=True)
    assert again.expire_producers(now_ms=NOW_MS, expiration_ms=1000) == 1


def test_a_start_keeps_the_newest_producer_snapshot_and_those_of_segments() -> None:
    """Each clean stop leaves one: a log that lives through many kept them all, though retention had long taken the records."""
    disk = MemoryDisk()
    for number in range(5):
        log = open_log(disk, is_clean_shutdown=number > 0)
        for sequence in range(30):
            append(log, make_batch(producer_id=4, producer_epoch=0, base_sequence=30 * number + sequence))
        log.close()
    again = open_log(disk, is_clean_shutdown=True)
    kept = list_snapshots(disk, DIRECTORY)
    assert kept == [*again.base_offsets[1:], Offset(150)]
    assert [entry.last.last_sequence for entry in again.producers] == [149]


@pytest.mark.parametrize("doubt", ["none", "damage", "unread", "sole copy"])
def test_no_snapshot_is_made_of_producers_that_were_read_beside_damage(doubt: str) -> None:
    """Retention took the damaged segment, and a start believed the snapshot: a producer whose last batch it lacked was refused."""
    disk = MemoryDisk()
    log = filled(disk)
    flush(log)
    log.tail.is_sole_copy = doubt == "sole copy"
    if doubt == "unread":
        log.producers.unread = (Offset(0),)
    elif doubt != "none":
        log.tail.doubt_producers(Offset(3))
    before, end = list_snapshots(disk, DIRECTORY), log.log_end_offset
    log.tail.roll(NOW_MS)
    rolled = append(log, make_batch(), epoch=2) + 1
    log.close()
    made = [offset for offset in list_snapshots(disk, DIRECTORY) if offset not in before]
    assert made == ([end, rolled] if doubt in ("none", "sole copy") else [])
    again = open_log(disk, is_clean_shutdown=True)
    assert {entry.producer_id: entry.last.last_sequence for entry in again.producers} == {0: 27, 1: 25, 2: 25}


def test_a_snapshot_from_before_what_retention_took_unread_refuses_no_producer() -> None:
    """The segment behind it was damaged, and retention took that before a repair: what it hid of a producer was its last batch."""
    disk = MemoryDisk()
    log = filled(disk)
    flush(log)
    log.close()
    bases, end = log.base_offsets, log.log_end_offset
    for offset in list_snapshots(disk, DIRECTORY):
        disk.remove(f"{DIRECTORY}/{offset:020d}.snapshot")
    known = ProducerState.of([ProducerEntry(each, 0) for each in (0, 1, 2, 7)], Offset(bases[1]))
    for entry in known:
        entry.batches.append(ProducerBatch(9, Offset(3), 0, NOW_MS))
    disk.write_file_atomically(f"{DIRECTORY}/{bases[1]:020d}.snapshot", encode_snapshot(known))
    for base in bases[:-1]:
        disk.remove(path(base, ".log"))
    again = open_log(disk, recovery_point=end, log_start_offset=bases[-1])
    assert (again.log_start_offset, again.log_end_offset) == (bases[-1], end)
    assert 7 not in {entry.producer_id for entry in again.producers}
    assert {entry.last.last_sequence for entry in again.producers} == {27, 25}
    append(again, make_batch(producer_id=7, producer_epoch=0, base_sequence=40), epoch=3)


def test_damage_below_the_log_start_refuses_no_producer() -> None:
    """Nobody repairs it, so what it hides of a producer stays hidden."""
    disk = MemoryDisk()
    log = filled(disk, batches=6)
    flush(log)
    end, hidden = log.log_end_offset, batch_offsets(content(log))[-2][0]
    file = disk.names[path(0, ".log")]
    file.content[log.segments[0].find(Offset(hidden)).position + 70] ^= 1
    again = open_log(disk, recovery_point=end, log_start_offset=end)
    assert again.log_end_offset == end and not again.damage
    assert {entry.producer_id: entry.last.last_sequence for entry in again.producers} == {2: 3}
    append(again, make_batch(producer_id=1, producer_epoch=0, base_sequence=4), epoch=3)


class FailingDisk(MemoryDisk):
    """A memory disk of which nothing works any more after so many changes of names."""

    left: int = 1 << 40

    def _step(self, path: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, "no room", path)

    def open(self, path: Any, *, create: bool = False) -> File:
        if create:
            self._step(str(path))
        return super().open(path, create=create)

    def rename(self, source: Any, target: Any) -> None:
        self._step(str(source))
        super().rename(source, target)

    def remove(self, path: Any) -> None:
        self._step(str(path))
        super().remove(path)

    def sync_directory(self, path: Any) -> None:
        self._step(str(path))
        super().sync_directory(path)

    def write_file_atomically(self, path: Any, data: bytes) -> None:
        self._step(str(path))
        super().write_file_atomically(path, data)

    def after_crash(self, random: Random) -> FailingDisk:
        after = FailingDisk()
        crashed = self.crash(random)
        after.names, after.durable_names, after.directories = (
            crashed.names,
            crashed.durable_names,
            crashed.directories,
        )
        return after


def test_a_full_disk_and_a_power_cut_amid_starting_over_leave_the_old_log_or_the_new() -> None:
    """Of a log that began at 0, empty, while it had promised to hold all up to 7, a leader could have been made."""
    mark = f"{DIRECTORY}/{START_OVER_FILE}"
    for seed in range(40):
        random = Random(seed)
        is_done = False
        for steps in range(1000):
            disk = FailingDisk()
            log = filled(disk, batches=random.choice([3, 12]))
            flush(log)
            log.leader_epochs.save()
            old, end = fingerprint(log), log.log_end_offset
            recovery_point = end
            at = Offset([0, 3, end, 500][seed % 4])
            disk.left = steps
            try:
                truncating.truncate_fully_and_start_at(log, at)
                is_done, recovery_point = True, at  # which the listener saves
                assert mark not in disk.durable_names, "it would end what is appended from now on"
            except StorageFailed:
                assert not is_done
            for _ in range(2):
                disk = disk.after_crash(random)
                disk.left = random.randint(0, 20)
                with suppress(OSError):
                    recovery_point = open_log(disk, recovery_point=recovery_point).log_end_offset
            disk = disk.after_crash(random)
            is_marked = disk.exists(mark)
            again = open_log(disk, recovery_point=recovery_point)
            if is_done or again.log_start_offset != old[0] or not again.size_bytes:
                # Of a recovery point that was not lowered before the next crash the rest is known as lost, to be refetched.
                lost = [Offset(each) for damage in again.damage for each in (damage.first_offset, damage.end_offset)]
                assert lost in ([], [at, end]) and not (lost and (is_done or is_marked)), (seed, steps)
                assert (again.log_start_offset, again.log_end_offset) == (at, end if lost else at), (seed, steps)
                assert (again.leader_epochs.entries, len(again.producers), again.size_bytes) == ((), 0, 0), (
                    seed,
                    steps,
                )
                kept = append(again, epoch=0)
                flush(again)
                third = open_log(disk.crash(random), recovery_point=again.log_end_offset)
                assert (third.log_start_offset, third.log_end_offset) == (at, kept + 1), (seed, steps)
            else:
                assert fingerprint(again) == old, (seed, steps)
            if is_done:
                break
        assert is_done and steps > 8


@pytest.mark.parametrize("rotten", [b"", b"0\n1\n", b"0\n1\n-7\n", b"0\n2\n7\n8\n"])
def test_a_record_of_starting_over_that_is_not_whole_is_passed_over(rotten: bytes) -> None:
    disk = MemoryDisk()
    log = filled(disk)
    before = fingerprint(log)
    log.close()
    disk.write_file_atomically(f"{DIRECTORY}/{START_OVER_FILE}", rotten)
    assert fingerprint(open_log(disk)) == before
    assert not disk.exists(f"{DIRECTORY}/{START_OVER_FILE}")


def test_a_version_that_does_not_know_the_record_of_starting_over_leaves_none_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes the log as it finds it and appends; the version that knows the record must keep that."""
    disk = MemoryDisk()
    filled(disk).close()
    write_start_over(disk, f"{DIRECTORY}/{START_OVER_FILE}", Offset(500))
    with monkeypatch.context() as former:
        former.setattr(recovery, "_finish_starting_over", lambda *_, **__: None)
        log = open_log(disk)
    end = append(log, epoch=3) + 1
    flush(log)
    again = open_log(disk.crash(Random(1)), recovery_point=end)
    assert (again.log_start_offset, again.log_end_offset) == (0, end)


def test_a_rotten_first_header_of_the_active_segment_refuses_no_append() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log)
    log.close()
    again = open_log(disk, is_clean_shutdown=True, recovery_point=Offset(1))
    disk.names[path(0, ".log")].content[11] = 34
    assert append(again) == 1
