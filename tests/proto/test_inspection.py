"""The walk over a batch's records: every kind of poison is found and its record named, what Kafka takes passes, both walks agree."""

from __future__ import annotations

import gzip
from random import Random

import pytest

from barnabas_wire.records.batch import CorruptBatch, Record, build_batch, read_header
from barnabas_wire.records.compression import CompressionType
from barnabas_wire.records.inspection import (
    INT64_MAX,
    INT64_MIN,
    Fault,
    UnsoundRecords,
    find_time,
    inspect_batch,
    opened_section,
    walk_records,
)
from tests.support.poison import GZIP, OK, POISON, TAKEN, batch, record

SECTION_BYTES_MAX = 1 << 20


@pytest.mark.parametrize("kind", POISON)
def test_poison_is_found_and_the_record_is_named(kind: str) -> None:
    data, to_blame = POISON[kind]
    with pytest.raises(UnsoundRecords) as caught:
        inspect_batch(data, read_header(data), bytes_max=SECTION_BYTES_MAX)
    assert caught.value.record == (-1 if to_blame is None else to_blame)
    assert caught.value.message


@pytest.mark.parametrize("kind", TAKEN)
def test_what_kafka_takes_passes(kind: str) -> None:
    inspect_batch(TAKEN[kind], read_header(TAKEN[kind]), bytes_max=SECTION_BYTES_MAX)


def test_the_oldest_and_the_newest_time_are_those_of_the_records() -> None:
    data = build_batch([Record(i, time, b"k", b"v") for i, time in enumerate((1_000, 900, 1_700, -4))])
    found = inspect_batch(data, read_header(data), bytes_max=SECTION_BYTES_MAX)
    assert (found.oldest_ms, found.newest_ms) == (-1_004, 700)


@pytest.mark.attack("A2", "a batch that claims more than it has is not expanded")
def test_a_bomb_is_refused_and_not_expanded() -> None:
    data = batch(gzip.compress(record(0, value=bytes(30 << 20))), codec=GZIP)
    with pytest.raises(UnsoundRecords, match="more than 1048576 bytes"):
        inspect_batch(data, read_header(data), bytes_max=SECTION_BYTES_MAX)


@pytest.mark.attack("A2", "a walk over records takes no more steps than it may")
def test_a_walk_takes_no_more_steps_than_it_may() -> None:
    data = batch(record(0, headers=[(b"h", b"v")] * 10) + record(1), 2)
    records = opened_section(data, read_header(data), bytes_max=SECTION_BYTES_MAX)
    for steps, fault in ((11, Fault.UNFINISHED), (1, Fault.UNFINISHED), (12, Fault.NONE)):
        assert walk_records(records, count=2, last_offset_delta=1, steps_max=steps).fault == fault


def test_every_prefix_and_every_tail_of_a_section_is_unsound() -> None:
    whole = record(0, headers=[(b"name", b"content"), (b"n", None)]) + record(1, key=None, value=b"x" * 200)
    for cut in range(len(whole)):
        assert walk_records(whole[:cut], count=2, last_offset_delta=1).fault
    assert walk_records(whole + b"\0", count=2, last_offset_delta=1).fault == Fault.REST
    assert walk_records(whole, count=2, last_offset_delta=1).fault == Fault.NONE


def test_the_walk_in_machine_code_says_what_the_plain_one_says() -> None:
    pytest.importorskip("numba")
    from barnabas_wire.records.compiled_inspection import walk_records as compiled

    random = Random(39)
    samples = [
        b"".join(
            record(
                index,
                elapsed_ms=random.choice((0, 1, -37, 1 << 40, INT64_MAX, INT64_MIN)),
                key=random.choice((None, b"", b"key")),
                value=random.choice((None, b"v" * random.randrange(200))),
                headers=[(b"h%d" % n, random.choice((None, b"x"))) for n in range(random.randrange(4))],
            )
            for index in range(12)
        ),
        b"".join(record(index, key=b"k" if index % 3 else None) for index in range(12)),
        OK * 3,
    ]
    samples += [
        opened_section(data, read_header(data), bytes_max=1 << 20)
        for data, _ in POISON.values()
        if read_header(data).compression == CompressionType.NONE
    ]
    faults, named = set(), set()
    for turn in range(12_000):
        data = bytearray(samples[turn % len(samples)])
        for _ in range(random.randrange(4)):
            at = random.randrange(len(data) + 1)
            if random.random() < 0.6 and at < len(data):
                data[at] = random.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF, random.randrange(256)))
            elif random.random() < 0.5:
                data[at:at] = random.choices((0, 1, 0x80, 0xFF), k=random.randrange(1, 6))
            else:
                del data[at : at + random.randrange(1, 5)]
        count = random.choice((0, 1, 2, 3, 12, 13))
        last = count - 1 + random.choice((0, 0, 0, 5, -1))
        asked = {"count": count, "last_offset_delta": last, "keyless_max": random.choice((0, 1, 3, 99))}
        plain = walk_records(bytes(data), **asked)
        assert compiled(bytes(data), **asked) == plain, (bytes(data).hex(), asked)
        faults.add(plain.fault)
        named.add(len(plain.keyless))
    assert faults == set(Fault) - {Fault.UNFINISHED}, "every verdict was among them"
    assert {0, 1, 3, 4} <= named


def test_records_without_a_key_are_named_as_far_as_was_asked_for() -> None:
    keys = (b"k", None, b"", None, None, b"k")
    data = b"".join(record(index, key=key) for index, key in enumerate(keys))
    for asked, found in ((0, ()), (1, (1,)), (2, (1, 3)), (3, (1, 3, 4)), (4, (1, 3, 4))):
        assert walk_records(data, count=6, last_offset_delta=5, keyless_max=asked) == (0, -1, 0, 0, found)
    cut = data[:-1]
    assert walk_records(cut, count=6, last_offset_delta=5, keyless_max=4).fault, (
        "what is unsound is not for want of a key"
    )


def test_a_search_by_time_finds_what_a_look_at_each_record_finds() -> None:
    random = Random(40)
    for _ in range(400):
        deltas = sorted(random.sample(range(40), random.randrange(1, 9)))
        times = [random.choice((-9, 0, 3, 5, 5, 1 << 40)) for _ in deltas]
        rows = list(zip(deltas, times, strict=True))
        data = b"".join(record(delta, elapsed_ms=ms, value=b"v" * random.choice((0, 200))) for delta, ms in rows)
        from_offset, from_ms = random.choice((0, 7, 41, -1, -(1 << 40))), random.choice((INT64_MIN, 0, 4, 6, INT64_MAX))
        late = [row for row in rows if row[0] >= from_offset]
        greatest = max((ms for _, ms in late), default=None)
        wanted = next((row for row in late if row[1] >= from_ms), next((r for r in late if r[1] == greatest), None))
        assert find_time(data, count=len(rows), from_offset=from_offset, from_ms=from_ms) == wanted
        with pytest.raises(CorruptBatch):
            find_time(data, count=len(rows) + 1, from_offset=0, from_ms=INT64_MAX)
