"""What survives compaction, against a naive model: a dict from key to last record."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas_log.cleaner.key_scan import keep_last, key_slot, move_times, note_keys
from barnabas_log.cleaner.survival import BYTES_PER_KEY
from barnabas_log.tail.aborted_transactions import AbortedTransaction
from barnabas_log.tail.segment import LOG_SUFFIX, segment_path
from barnabas_wire.records.batch import (
    HEADER_BYTES,
    CorruptBatch,
    Record,
    build_batch,
    iterate_batches,
)
from barnabas_wire.records.control import ControlRecordType
from barnabas_wire.records.inspection import Fault, walk_records
from tests.log.cleaner.logs_to_clean import (
    BATCHES,
    DAY_MS,
    DIRECTORY,
    CompactedLog,
    Row,
    data,
    marker,
    rows_of,
    segments_of,
)
from tests.support.logs import NOW_MS

ABORT, COMMIT = ControlRecordType.ABORT, ControlRecordType.COMMIT


def last_of_each(rows: Sequence[Row]) -> dict[bytes | None, Row]:
    """The newest record of each key."""
    return {row.key: row for row in rows}


@settings(max_examples=150, deadline=None)
@given(BATCHES, st.booleans())
def test_one_round_leaves_the_last_record_of_each_key_and_tombstones(content: Any, has_producers: bool) -> None:
    log = CompactedLog(segments_of(content))
    before = log.rows()
    result = log.round()
    assert result.end_offset == before[-1].offset + 1
    assert log.rows() == sorted(last_of_each(before).values())
    log.headers()


@settings(max_examples=150, deadline=None)
@given(BATCHES, st.lists(st.tuples(st.integers(1, 14), st.integers(0, 2 * DAY_MS)), min_size=1, max_size=5))
def test_rounds_over_a_growing_log_keep_tombstones_for_their_time(content: Any, rounds: list[tuple[int, int]]) -> None:
    """Segment by segment more may be cleaned, and time passes; the model keeps for each tombstone when it was first seen."""
    segments = segments_of(content)
    log, now_ms = CompactedLog(segments), NOW_MS
    everything = log.rows()
    all_sources, cleaned_to = tuple(log.sources), 0
    seen_ms: dict[int, int] = {}
    for count, passes_ms in rounds:
        now_ms += passes_ms
        limit = all_sources[min(count, len(all_sources)) - 1].end_offset
        upper = [source for source in log.sources if source.end_offset <= limit]
        if not upper or upper[-1].end_offset <= log.clean:
            continue  # nothing is dirty: such a log is not chosen
        rest = log.content()[sum(source.size_bytes for source in upper) :]
        alive_before = {row.offset for row in log.rows()}
        horizons = {
            offset: header.delete_horizon_ms
            for header in log.headers()
            if header.delete_horizon_ms is not None
            for offset in range(header.base_offset, header.next_offset)
        }
        log.round(now_ms=now_ms, sources=tuple(upper))
        cleaned_to = max(cleaned_to, log.clean)
        assert log.content().endswith(rest), "what is above the clean point is as it was"
        expected = {
            row.offset
            for row in last_of_each([row for row in everything if row.offset < cleaned_to]).values()
            if row.offset in alive_before and not (row.value is None and horizons.get(row.offset, now_ms + 1) <= now_ms)
        }
        assert {row.offset for row in log.rows() if row.offset < cleaned_to} == expected
        for row in log.rows():
            if row.value is None and row.offset < cleaned_to:
                seen_ms.setdefault(row.offset, now_ms)
        for header in log.headers():
            if header.delete_horizon_ms is not None:
                assert header.delete_horizon_ms in {seen + DAY_MS for seen in seen_ms.values()}
    assert set(log.rows()) <= set(everything), "no offset, key, value or time has changed"


@settings(max_examples=80, deadline=None)
@given(BATCHES, st.integers(1, 3))
def test_a_full_map_cleans_less_and_loses_nothing(content: Any, entries: int) -> None:
    log = CompactedLog(segments_of(content))
    before = log.rows()
    ends: list[int] = []
    while not ends or ends[-1] != before[-1].offset + 1:
        untouched = [row for row in before if row.offset >= (ends[-1] if ends else 0)]
        ends.append(log.round(map_bytes_max=entries * BYTES_PER_KEY).end_offset)
        assert ends[-1] > (ends[-2] if len(ends) > 1 else 0), "each run gets on"
        assert last_of_each(log.rows()) == last_of_each(before)
        assert [row for row in log.rows() if row.offset >= ends[-1]] == [
            row for row in untouched if row.offset >= ends[-1]
        ]
    assert log.rows() == sorted(last_of_each(before).values())


@settings(max_examples=80, deadline=None)
@given(BATCHES)
def test_the_batch_with_the_last_sequence_of_a_live_producer_stays(content: Any) -> None:
    log = CompactedLog(segments_of(content))
    last = {header.producer_id: header for header in log.headers() if header.producer_id >= 0}
    log.producers = tuple((producer, 0, header.last_offset) for producer, header in last.items())
    log.round()
    kept = {header.last_offset: header for header in log.headers()}
    for producer, header in last.items():
        found = kept[header.last_offset]
        assert (found.producer_id, found.producer_epoch, found.base_sequence) == (producer, 0, header.base_sequence)
        assert found.last_offset_delta == header.last_offset_delta


@settings(max_examples=80, deadline=None)
@given(BATCHES)
def test_a_segment_without_a_record_joins_the_next_one_whatever_its_size(content: Any) -> None:
    log = CompactedLog(segments_of(content))
    before = log.rows()
    for _ in range(2):  # the second round begins with what the first one left
        log.round(segment_bytes=1, first_dirty=0)
        *inner, last = log.sources
        for source in inner:
            segment = log.disk.read_file(segment_path(DIRECTORY, source.base_offset, LOG_SUFFIX))
            assert rows_of(segment), f"{source} has no record"
        assert log.headers()[-1].next_offset == last.end_offset
    assert log.rows() == sorted(last_of_each(before).values())


def test_an_empty_batch_says_when_its_records_were_written_and_goes_with_its_producer() -> None:
    mine = data(0, (b"k", b"1"), producer_id=7, is_transactional=False)
    log = CompactedLog([mine + data(1, (b"k", b"2")) + data(2, (b"k", b"3"))])
    log.producers = ((7, 0, 0),)
    log.round()
    empty, last = log.headers()
    assert (empty.record_count, empty.max_timestamp_ms, empty.base_offset) == (0, NOW_MS, 0)
    log.producers = ()
    log.round(first_dirty=0)
    assert log.headers() == [last]


def test_records_without_a_key_go() -> None:
    keyless = build_batch([Record(0, NOW_MS, None, b"x"), Record(1, NOW_MS, b"k", b"y")])
    log = CompactedLog([keyless])
    log.round()
    assert [row.offset for row in log.rows()] == [1]


def test_aborted_data_goes_at_once_and_its_marker_after_it() -> None:
    content = data(0, (b"a", b"lost"), producer_id=5) + data(1, (b"a", b"kept"), producer_id=6)
    content += marker(2, ABORT, producer_id=5) + marker(3, COMMIT, producer_id=6) + data(4, (b"z", b"1"))
    log = CompactedLog([content])
    log.aborted = (AbortedTransaction(5, 0, 2),)
    first = log.round()
    assert [row.offset for row in log.rows()] == [1, 4]
    assert [header.base_offset for header in log.headers()] == [1, 2, 3, 4], "markers stay while data was seen"
    assert first.outputs[0].aborted == (AbortedTransaction(5, 0, 2),)
    again = log.round(first_dirty=0, now_ms=NOW_MS + 1)
    assert again.outputs[0].aborted == (), "nothing is left of it"
    assert [header.delete_horizon_ms for header in log.headers() if header.is_control] == [NOW_MS + 1 + DAY_MS, None]
    log.round(first_dirty=0, now_ms=NOW_MS + DAY_MS)
    assert [header.base_offset for header in log.headers()] == [1, 2, 3, 4], "not a ms too early"
    log.round(first_dirty=0, now_ms=NOW_MS + 1 + DAY_MS)
    assert [header.base_offset for header in log.headers()] == [1, 3, 4]
    assert [row.value for row in log.rows()] == [b"kept", b"1"]


def test_a_commit_marker_goes_when_nothing_of_its_transaction_is_left() -> None:
    log = CompactedLog(
        [data(0, (b"a", b"old"), producer_id=5) + marker(1, COMMIT, producer_id=5) + data(2, (b"a", b"new"))]
    )
    log.round()
    assert [header.base_offset for header in log.headers()] == [1, 2]
    log.round(first_dirty=0, now_ms=NOW_MS + 1)
    log.round(first_dirty=0, now_ms=NOW_MS + 1 + DAY_MS)
    assert [header.base_offset for header in log.headers()] == [2]


def test_an_aborted_write_does_not_hide_the_committed_value_before_it() -> None:
    content = (
        data(0, (b"a", b"committed")) + data(1, (b"a", b"aborted"), producer_id=5) + marker(2, ABORT, producer_id=5)
    )
    log = CompactedLog([content])
    log.aborted = (AbortedTransaction(5, 1, 2),)
    log.round()
    assert [row.value for row in log.rows()] == [b"committed"]


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2), st.sampled_from(["write", "commit", "abort", "plain"]), st.sampled_from([b"a", b"b", b"c"])
    ),
    min_size=1,
    max_size=24,
)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.lists(st.integers(0, 2 * DAY_MS), min_size=1, max_size=4), st.sets(st.integers(1, 23)))
@example([(0, "write", b"a"), (0, "abort", b""), (0, "write", b"a")], [0, 0, DAY_MS, 0], set())
def test_readers_of_committed_data_see_the_last_committed_value_of_each_key(
    steps: Any, waits: list[int], rolls: set[int]
) -> None:
    """Transactions that are all over: what was aborted is never seen, and what was committed last always is."""
    open_since: dict[int, int] = {}
    batches: list[bytes] = []
    aborted: list[AbortedTransaction] = []
    for producer, what, key in [*steps, *product(range(3), ["commit"], [b""])]:
        offset = len(batches)
        if what == "plain":
            batches.append(data(offset, (key, b"%d" % offset)))
        elif what == "write":
            open_since.setdefault(producer, offset)
            batches.append(data(offset, (key, b"%d" % offset), producer_id=producer))
        elif producer in open_since:
            first = open_since.pop(producer)
            batches.append(marker(offset, ABORT if what == "abort" else COMMIT, producer_id=producer))
            if what == "abort":
                aborted.append(AbortedTransaction(producer, first, offset))
    if not batches:
        return
    segments: list[bytes] = []
    for number, batch in enumerate(batches):
        if number in rolls or not segments:
            segments.append(b"")
        segments[-1] += batch
    log, now_ms = CompactedLog(segments), NOW_MS
    log.aborted = tuple(aborted)

    def committed() -> list[Row]:
        hidden = {
            (each.producer_id, offset) for each in log.aborted for offset in range(each.first_offset, each.last_offset)
        }
        content, rows = log.content(), []
        for position, header in iterate_batches(content):
            if header.is_transactional and (header.producer_id, header.base_offset) in hidden:
                continue
            rows += rows_of(content[position : position + header.size_bytes])
        return rows

    def orphans() -> set[int]:
        """Producers with data whose marker has gone: readers would take it for open, or for the next transaction's."""
        left: set[int] = set()
        for header in log.headers():
            if header.is_control:
                left.discard(header.producer_id)
            elif header.is_transactional:
                left.add(header.producer_id)
        return left

    expected = last_of_each(committed())
    for wait_ms in waits:
        now_ms += wait_ms
        result = log.round(now_ms=now_ms, first_dirty=0)
        kept = {each for output in result.outputs for each in output.aborted}
        assert not [each for each in kept if each not in aborted]
        assert last_of_each(committed()) == expected
        assert not orphans()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.binary(max_size=40), st.integers(-(2**40), 2**40)), min_size=1, max_size=9),
    st.integers(-(2**41), 2**41),
)
def test_times_are_the_same_after_the_base_has_moved(rows: Any, by_ms: int) -> None:
    batch = build_batch([Record(n, NOW_MS + ms, key, None, (("h", b"1"),)) for n, (key, ms) in enumerate(rows)])
    moved = move_times(move_times(batch[HEADER_BYTES:], by_ms=by_ms), by_ms=-by_ms)
    assert moved == batch[HEADER_BYTES:]


def test_a_key_as_long_as_a_digest_cannot_pose_as_another() -> None:
    victim = b"a key that is longer than a digest"
    assert key_slot(key_slot(victim)) != key_slot(victim)
    assert key_slot(b"x" * 15) == b"x" * 15


@settings(max_examples=200, deadline=None)
@given(BATCHES, st.data())
def test_damaged_records_are_corrupt_and_are_not_let_in(content: Any, draw: st.DataObject) -> None:
    batch = build_batch([Record(n, NOW_MS + n, key, value) for n, (key, value, _) in enumerate(content[0][0])])
    records = bytearray(batch[HEADER_BYTES:])
    for _ in range(draw.draw(st.integers(1, 3))):
        records[draw.draw(st.integers(0, len(records) - 1))] ^= draw.draw(st.integers(1, 255))
    count = len(content[0][0])
    is_let_in = walk_records(bytes(records), count=count, last_offset_delta=count - 1).fault == Fault.NONE
    for call in (
        lambda: note_keys(bytes(records), count=count, base_offset=0, offsets={}),
        lambda: keep_last(bytes(records), count=count, base_offset=0, offsets={}, latest=9, drops_tombstones=True),
    ):
        try:
            call()
        except CorruptBatch:
            assert not is_let_in, "a producer could have a log set aside"


def test_a_damaged_batch_ends_the_run() -> None:
    log = CompactedLog([data(0, (b"a", b"1")) + data(1, (b"b", b"1"))])
    path = f"data/changes-0/{0:020d}.log"
    log.disk.open(path).overwrite(80, b"\xff")
    with pytest.raises(CorruptBatch, match="byte 70"):
        log.round()
