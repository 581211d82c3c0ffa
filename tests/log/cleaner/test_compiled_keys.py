"""The machine code of the cleaner says of every batch what the plain loops say, byte for byte, also of bytes that are no records."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_log.cleaner.key_scan import Kept
from barnabas_log.cleaner.survival import KeyOffsets
from barnabas_wire.records.batch import HEADER_BYTES, CorruptBatch, Record, build_batch
from tests.log.cleaner.logs_to_clean import BATCHES, KEYS, VALUES, CompactedLog, segments_of
from tests.support.logs import NOW_MS

pytest.importorskip("numba")
from barnabas_log.cleaner import compiled_keys

NULLABLE_KEYS = st.one_of(st.none(), KEYS, st.binary(max_size=40))
TIMES = st.one_of(st.integers(-200, 200), st.integers(-(2**40), 2**40))
SECTIONS = st.lists(
    st.tuples(st.lists(st.tuples(NULLABLE_KEYS, VALUES, TIMES), min_size=1, max_size=8), st.integers(0, 300)),
    min_size=1,
    max_size=6,
)
"""(rows, offsets left out before them)"""
FLIPS = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), max_size=3)


def maps(bytes_max: int = 1 << 20) -> list[KeyOffsets]:
    return [KeyOffsets(bytes_max=bytes_max), compiled_keys.CompiledKeyOffsets(bytes_max=bytes_max)]


def noted(keys: KeyOffsets, records: bytes, *, count: int, base_offset: int) -> int | None:
    try:
        keys.note_records(records, count=count, base_offset=base_offset)
    except CorruptBatch:
        return None
    return keys.key_count


def kept(keys: KeyOffsets, records: bytes, *, count: int, base_offset: int, drops: bool) -> Kept | None:
    try:
        return keys.keep(records, count=count, base_offset=base_offset, drops_tombstones=drops)
    except CorruptBatch:
        return None


@settings(max_examples=400, deadline=None)
@given(SECTIONS, FLIPS, st.integers(-1, 2), st.booleans(), st.integers(-1, 60))
def test_both_say_the_same_of_any_bytes(sections: Any, flips: Any, miscount: int, drops: bool, latest: int) -> None:
    both = maps()
    batches: list[tuple[bytes, int, int]] = []
    offset = 0
    for rows, gap in sections:
        offset += gap
        built = [Record(offset + n, NOW_MS + ms, key, value) for n, (key, value, ms) in enumerate(rows)]
        batches.append((build_batch(built)[HEADER_BYTES:], len(rows), offset))
        offset += len(rows)
    damaged = bytearray(batches[-1][0])
    for at, bits in flips:
        damaged[at % len(damaged)] ^= bits
    count = batches[-1][1] + miscount if flips else batches[-1][1]
    batches[-1] = (bytes(damaged), max(0, count), batches[-1][2])
    for records, count, base in batches:
        found = [noted(keys, records, count=count, base_offset=base) for keys in both]
        if found[0] is None:
            assert found[1] is None
            break  # a run ends there, with what of the batch was noted
        assert found[0] == found[1]
    for keys in both:
        keys.latest = latest  # type: ignore[assignment]
    for records, count, base in batches:
        first, second = (kept(keys, records, count=count, base_offset=base, drops=drops) for keys in both)
        if noted(KeyOffsets(bytes_max=1), records, count=count, base_offset=base) is not None:
            assert first == second
        else:
            assert (first is None) == (second is None)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=24), min_size=1, max_size=3), st.integers(1, 3))
def test_both_take_the_same_bytes_for_records(pieces: list[bytes], count: int) -> None:
    """Varints of every length among them: most are cut off, too long or out of bounds."""
    records = b"".join(bytes([len(piece) << 1]) + piece for piece in pieces)
    plain, machine = maps()
    assert noted(plain, records, count=count, base_offset=7) == noted(machine, records, count=count, base_offset=7)
    first, second = (kept(keys, records, count=count, base_offset=7, drops=False) for keys in maps())
    assert first == second


LONG = b"\xff" * 9 + b"\x01"


@pytest.mark.parametrize(
    "record",
    [
        b"\x00" + LONG + b"\x00\x02k\x01\x00",
        b"\x00" + b"\xff" * 10 + b"\x01\x00\x02k\x01\x00",
        b"\x00\x00" + LONG + b"\x02k\x01\x00",
        b"\x00\x00\xfe\xff\xff\xff\x0f\x02k\x01\x00",
        b"\x00\x00\x80\x80\x80\x80\x10\x02k\x01\x00",
        b"\x00\x00\x00" + LONG,
        b"\x00\x00\x00\x02k\x01\x00",
        b"\x00\x00\x00\x02k",
        b"\x00\x00\x00\x01",
        b"\x00\x00\x80\x00\x82\x00k\x01\x00",
    ],
)
def test_numbers_at_their_bounds(record: bytes) -> None:
    records = bytes([len(record) << 1]) + record
    for latest in (-1, 1 << 40):
        both = maps()
        found = [noted(keys, records, count=1, base_offset=5) for keys in both]
        assert found[0] == found[1]
        for keys in both:
            keys.latest = latest  # type: ignore[assignment]
        first, second = (kept(keys, records, count=1, base_offset=5, drops=False) for keys in both)
        assert first == second


@settings(max_examples=60, deadline=None)
@given(BATCHES, st.integers(0, 3 * 86_400_000))
def test_a_run_leaves_the_same_bytes(content: Any, wait_ms: int) -> None:
    plain, machine = CompactedLog(segments_of(content)), CompactedLog(segments_of(content))
    for now_ms in (NOW_MS, NOW_MS + wait_ms):
        first = plain.round(now_ms=now_ms)
        second = machine.round(now_ms=now_ms, make_keys=compiled_keys.CompiledKeyOffsets)
        assert first == second
        assert plain.content() == machine.content()


def test_the_table_grows_and_forgets_no_key() -> None:
    plain, machine = maps(bytes_max=1 << 24)
    for base in range(0, 40_000, 100):
        rows = [Record(base + n, NOW_MS, b"%d" % ((base + n) * 7 % 30_000) * 4, b"v") for n in range(100)]
        records = build_batch(rows)[HEADER_BYTES:]
        for keys in (plain, machine):
            keys.note_records(records, count=100, base_offset=base)
    assert machine.key_count == plain.key_count == 30_000
    for keys in (plain, machine):
        keys.latest = 40_000  # type: ignore[assignment]
    for base in range(0, 40_000, 100):
        rows = [Record(base + n, NOW_MS, b"%d" % ((base + n) * 7 % 30_000) * 4, b"v") for n in range(100)]
        records = build_batch(rows)[HEADER_BYTES:]
        assert kept(plain, records, count=100, base_offset=base, drops=True) == kept(
            machine, records, count=100, base_offset=base, drops=True
        )


def test_a_full_map_says_so_and_the_first_batch_fits_anyhow() -> None:
    keys = compiled_keys.CompiledKeyOffsets(bytes_max=24 * 8)
    assert keys.entries_max == 6 and keys.has_room(100)
    records = build_batch([Record(n, NOW_MS, b"%d" % n, b"v") for n in range(100)])[HEADER_BYTES:]
    keys.note_records(records, count=100, base_offset=0)
    keys.latest = 99  # type: ignore[assignment]
    assert keys.key_count == 100 and not keys.has_room(1)


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (b"", "a3817f04ba25a8e66df67214c7550293"),
        (b"\0", "da87c1d86b99af44347659119b22fc45"),
        (bytes(range(8)), "3b62a9ba6258f5610f83e264f31497b4"),
        (bytes(range(7)), "a1f1ebbed8dbc153c0b84aa61ff08239"),
        (bytes(range(12)), "d626b266905ef35882634df68532c125"),
        (bytes(range(15)), "5493e99933b0a8117e08ec0f97cfc3d9"),
    ],
)
def test_the_hash_is_siphash(data: bytes, digest: str) -> None:
    """Of the vectors that its authors publish for a secret of the bytes 0 to 15."""
    assert compiled_keys.sip_hash(data, bytes(range(16))).hex() == digest
