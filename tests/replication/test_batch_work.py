"""Laws of the work on batches: compression.type keeps the records, validate.batches lets no unsound ones in, requests keep their
order, what waits is bounded, and nothing is refused twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from threading import Event, Thread
from threading import enumerate as living_threads
from typing import Any

import pytest

from barnabas_log.batch_inspection import KEYLESS_MAX, BatchInspector
from barnabas_log.config import BatchCompression, CleanupPolicy, LogConfig, TimestampType, ValidateBatches
from barnabas_log.errors import InvalidBatch
from barnabas_replication.leader import batch_work as module
from barnabas_replication.leader.batch_work import BatchWork
from barnabas_replication.leader.recompression import CODECS, Codec, recompressed
from barnabas_replication.leader.scrutiny import DRAWN_ONE_IN, FIRST_REQUESTS, UNTOUCHED_REQUESTS, Scrutiny
from barnabas_replication.requests import AppendEntry, AppendOutcome
from barnabas_replication.stats import Stats
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.records.batch import (
    BatchHeader,
    Record,
    build_batch,
    crc_is_valid,
    iterate_records,
    read_header,
    with_max_timestamp,
)
from barnabas_wire.records.compression import CompressionType
from barnabas_wire.records.crc32c import crc32c
from barnabas_wire.records.inspection import Walk, opened_section, walk_records
from tests.support.poison import OK, POISON, TAKEN, TWO, record
from tests.support.poison import batch as raw_batch

GZIP = LogConfig(compression_type=BatchCompression.GZIP)
PLAIN = LogConfig()
ALL = LogConfig(validate_batches=ValidateBatches.ALL)
HEADER = LogConfig(validate_batches=ValidateBatches.HEADER)
COMPACTED = LogConfig(cleanup_policy=CleanupPolicy.COMPACT, validate_batches=ValidateBatches.HEADER)
POISONED = POISON["count 3, two records"][0]
NOW_MS = 1_700_000_000_000


def batch(text: str = "v", kind: CompressionType = CompressionType.NONE) -> bytes:
    records = [Record(i, 1_000 + i, b"k%d" % i, f"{text}{i}".encode() * 20, (("h", b"x"),)) for i in range(30)]
    return build_batch(records, compression=kind, producer_id=7, producer_epoch=1, base_sequence=5)


class NoProcess:
    """Instead of the inspection process: remembers, and walks here."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def walk(self, data: bytes, *, keyless_max: int = 0) -> Walk:
        self.asked.append(data)
        header = read_header(data)
        records = opened_section(data, header, bytes_max=1 << 24)
        return walk_records(
            records,
            count=header.record_count,
            last_offset_delta=header.last_offset_delta,
            keyless_max=keyless_max,
        )

    def close(self) -> None: ...


class Bench:
    """A BatchWork whose appends are remembered."""

    def __init__(self, **topics: LogConfig) -> None:
        self.topics = topics
        self.appended: list[AppendEntry] = []
        self.answers: list[list[AppendOutcome]] = []
        self.stats = Stats()
        self.epoch = 4
        self.known: set[bytes] = set()
        """Batches that the log has."""
        self.inspector = BatchInspector()
        self.inspector.load = lambda: None  # type: ignore[method-assign]  # plain Python is what is tested
        self.process = self.inspector.process = NoProcess()  # type: ignore[assignment]
        self.under_test = BatchWork(
            self,  # type: ignore[arg-type]  # as BatchPartitions has it
            inspector=self.inspector,
            random=Random(1),
            clock_ms=lambda: NOW_MS,
            stats=self.stats,
        )
        for topic, config in topics.items():
            self.under_test.note(topic, config)

    def config_of(self, topic: str, number: int) -> LogConfig | None:
        return self.topics.get(topic)

    def standing_of(self, topic: str, number: int, batches: Any) -> object:
        return self.epoch

    def refused(self, topic: str, number: int, error: KafkaError) -> AppendOutcome:
        return AppendOutcome(topic, number, error)

    def has_batch(self, topic: str, number: int, header: BatchHeader) -> bool:
        return any(read_header(each) == header for each in self.known)

    def send(self, *entries: tuple[str, int, bytes], scrutiny: Scrutiny | None = None) -> bool:
        """Whether the request has to wait."""
        wanted = [AppendEntry(topic, number, memoryview(bytearray(batches))) for topic, number, batches in entries]
        is_taken = self.under_test.takes(wanted, self.append, self.answers.append, scrutiny)
        if not is_taken:
            self.append(wanted, respond=self.answers.append)
        for entry in wanted:  # the receive buffer is used again
            assert isinstance(entry.batches, memoryview)
            entry.batches[:] = bytes(len(entry.batches))
        return is_taken

    def append(self, entries: Sequence[AppendEntry], *, respond: Any) -> None:
        self.appended += [AppendEntry(topic, number, bytes(batches)) for topic, number, batches in entries]
        respond([AppendOutcome(topic, number, None) for topic, number, _ in entries])

    def codes(self) -> list[list[ErrorCode | None]]:
        return [[None if each.error is None else each.error.code for each in answer] for answer in self.answers]

    async def answered(self, count: int) -> None:
        for _ in range(2_000):
            if len(self.answers) >= count:
                return
            await asyncio.sleep(0.005)
        raise AssertionError(f"{len(self.answers)} answers of {count}")


@pytest.mark.parametrize("came_as", list(CompressionType))
@pytest.mark.parametrize("wanted", [kind for kind in BatchCompression if kind is not BatchCompression.PRODUCER])
def test_records_and_header_are_the_same_in_the_other_codec(came_as: CompressionType, wanted: BatchCompression) -> None:
    before = batch(kind=came_as)
    for level in (None, LogConfig(compression_gzip_level=9, compression_lz4_level=12).compression_level(wanted)):
        after = recompressed(before, Codec(CODECS[wanted], level))
        old, new = read_header(before), read_header(after)
        assert new.compression is CODECS[wanted]
        assert crc_is_valid(memoryview(after), 0, new) and new.size_bytes == len(after)
        assert new._replace(batch_length=0, crc=0, attributes=0) == old._replace(batch_length=0, crc=0, attributes=0)
        assert list(iterate_records(after)) == list(iterate_records(before))


def test_what_is_not_one_sound_batch_is_left_to_the_log() -> None:
    sound = batch(kind=CompressionType.GZIP)
    flipped = sound[:-1] + bytes([sound[-1] ^ 1])
    for bad in (flipped, sound + b"x", sound[:-3]):
        assert recompressed(bad, Codec(CompressionType.NONE, None)) == bad


async def test_a_batch_in_the_topics_codec_waits_for_nothing() -> None:
    bench = Bench(z=GZIP, p=PLAIN)
    assert not bench.send(("z", 0, batch(kind=CompressionType.GZIP)), ("p", 0, batch()))
    assert bench.stats.recompressed_batches == 0
    assert bench.send(("z", 0, batch()))
    await bench.answered(2)
    assert [read_header(entry.batches).compression for entry in bench.appended] == [1, 0, 1]
    assert (bench.stats.recompressed_batches, bench.stats.recompressed_bytes) == (1, len(batch()))


async def test_requests_for_one_partition_keep_their_order_whatever_takes_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release, real = Event(), recompressed

    def slow_first(data: bytes, codec: Codec) -> bytes:
        if b"slow" in data:
            assert release.wait(10)
        return real(data, codec)

    monkeypatch.setattr(module, "recompressed", slow_first)
    bench = Bench(z=GZIP, p=PLAIN)
    assert bench.send(("z", 0, batch("slow")), ("p", 0, batch("a")))
    assert bench.send(("z", 0, batch("fast")))
    assert bench.send(("p", 0, batch("b"))), "it has nothing to recompress, but waits behind the first request"
    assert bench.send(("z", 0, batch("last", CompressionType.GZIP)))
    assert not bench.send(("p", 1, batch("c"))), "another partition goes on"
    await asyncio.sleep(0.05)
    assert [(topic, number) for topic, number, _ in bench.appended] == [("p", 1)]
    release.set()
    await bench.answered(5)
    texts = [next(iterate_records(entry.batches)).value[:4] for entry in bench.appended]  # type: ignore[index]
    assert texts[0] == b"c0c0"
    assert [text for text in texts if text[:1] in b"sfl"] == [b"slow", b"fast", b"last"], "of the one partition"
    assert [text for text in texts if text[:1] in b"ab"] == [b"a0a0", b"b0b0"], "of the other"
    assert not bench.send(("p", 0, batch("d"))), "nothing is left behind"


async def test_a_batch_that_does_not_open_is_refused_and_the_others_of_its_request_are_not() -> None:
    broken = bytearray(batch())
    broken[21:23] = (4).to_bytes(2, "big")  # says zstd, and its checksum is right
    header = read_header(broken)
    broken[17:21] = crc32c(bytes(broken[21:])).to_bytes(4, "big")
    bench = Bench(z=GZIP)
    assert bench.send(("z", 0, batch()), ("z", 1, bytes(broken)), ("z", 2, batch()))
    await bench.answered(1)
    assert header.size_bytes == len(broken)
    codes = [outcome.error and outcome.error.code for outcome in bench.answers[0]]
    assert codes == [None, ErrorCode.CORRUPT_MESSAGE, None]
    refused = bench.answers[0][1].error
    assert refused is not None
    assert refused.__traceback__ is refused.__cause__ is refused.__context__ is None, (
        "they would keep what was decompressed"
    )
    assert [outcome.partition for outcome in bench.answers[0]] == [0, 1, 2]
    assert [entry.partition for entry in bench.appended] == [0, 2]


async def test_waiting_batches_are_bounded_and_the_client_is_asked_to_try_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release, real = Event(), recompressed

    def slow(data: bytes, codec: Codec) -> bytes:
        assert release.wait(10)
        return real(data, codec)

    monkeypatch.setattr(module, "recompressed", slow)
    monkeypatch.setattr(module, "WAITING_BYTES_MAX", 3 * len(batch()))
    bench = Bench(z=GZIP)
    for _ in range(5):
        assert bench.send(("z", 0, batch()))
    await bench.answered(2)
    assert [answer[0].error.code for answer in bench.answers] == [ErrorCode.REQUEST_TIMED_OUT] * 2  # type: ignore[union-attr]
    release.set()
    await bench.answered(5)
    assert bench.send(("z", 0, batch())), "there is room again"
    await bench.answered(6)
    assert bench.answers[-1][0].error is None


async def test_closing_refuses_what_waits_appends_nothing_more_and_leaves_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release, real = Event(), recompressed

    def slow(data: bytes, codec: Codec) -> bytes:
        assert release.wait(10)
        return real(data, codec)

    def workers() -> set[Thread]:
        return {thread for thread in living_threads() if thread.name.startswith("batch-work")}

    monkeypatch.setattr(module, "recompressed", slow)
    before = workers()
    bench = Bench(z=GZIP)
    bench.send(("z", 0, batch()))
    bench.send(("z", 0, batch()), ("z", 1, batch()))
    made = workers() - before
    closing = asyncio.create_task(bench.under_test.close())
    await asyncio.sleep(0)
    assert made and not closing.done()
    release.set()
    await closing
    assert not made & workers()
    assert [[outcome.error.code for outcome in answer] for answer in bench.answers] == [  # type: ignore[union-attr]
        [ErrorCode.NOT_LEADER_OR_FOLLOWER],
        [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2,
    ]
    assert bench.appended == []


def test_a_broker_without_such_topics_shows_no_request() -> None:
    bench = Bench(p=PLAIN)
    assert not bench.under_test.is_needed
    bench.under_test.note("p", GZIP)
    assert bench.under_test.is_needed
    bench.under_test.note("p", PLAIN)
    assert not bench.under_test.is_needed
    bench.under_test.note("q", GZIP)
    bench.under_test.forget("q")
    assert not bench.under_test.is_needed


# -- validate.batches ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", POISON)
@pytest.mark.attack("A2", "a poison batch with a right checksum is refused")
async def test_no_poison_gets_in(kind: str) -> None:
    """With `all`, and with `sampled` as the first batch of its connection; that `header` opens nothing is what makes it fail."""
    bench = Bench(all=ALL, sampled=PLAIN, header=HEADER)
    data, to_blame = POISON[kind]
    assert bench.send(("all", 0, data))
    assert bench.send(("sampled", 0, data), scrutiny=Scrutiny())
    assert not bench.send(("header", 0, data), scrutiny=Scrutiny())
    await bench.answered(3)
    assert [entry.topic for entry in bench.appended] == ["header"]
    for outcomes in bench.answers[1:]:
        error = outcomes[0].error
        assert isinstance(error, InvalidBatch)
        assert tuple(error.records) == (() if to_blame is None else (to_blame,))
        assert error.__traceback__ is error.__context__ is error.__cause__ is None, (
            "they would keep what was decompressed"
        )
    assert bench.stats.unsound_batches == 2


@pytest.mark.parametrize("kind", TAKEN)
async def test_what_kafka_takes_is_taken(kind: str) -> None:
    bench = Bench(all=ALL)
    assert bench.send(("all", 0, TAKEN[kind]))
    await bench.answered(1)
    assert bench.codes() == [[None]]
    assert read_header(bench.appended[0].batches)._replace(crc=0) == read_header(TAKEN[kind])._replace(crc=0)


async def test_the_first_requests_of_a_connection_and_some_later_ones_are_opened() -> None:
    bench = Bench(p=PLAIN)
    scrutiny, sound = Scrutiny(), raw_batch(OK)
    opened = []
    for number in range(20 * DRAWN_ONE_IN):
        if scrutiny.left:  # as appends.py counts
            scrutiny.left -= 1
            continue
        opened.append(number)
        assert bench.send(("p", number, sound), scrutiny=scrutiny)
    await bench.answered(len(opened))
    assert opened[:FIRST_REQUESTS] == list(range(FIRST_REQUESTS))
    assert 10 <= len(opened) - FIRST_REQUESTS <= 40
    gaps = {
        after - before for before, after in zip(opened[FIRST_REQUESTS:], opened[FIRST_REQUESTS + 1 :], strict=False)
    }
    assert len(gaps) > 5, "at random, not in turn"


async def test_who_sent_an_unsound_batch_is_looked_at_for_good() -> None:
    bench = Bench(p=PLAIN)
    scrutiny = Scrutiny()
    assert bench.send(("p", 0, raw_batch(OK)), scrutiny=scrutiny)
    assert bench.send(("p", 0, POISONED), scrutiny=scrutiny)
    await bench.answered(2)
    for _ in range(4):
        assert scrutiny.is_due
        bench.send(("p", 0, POISONED), scrutiny=scrutiny)
    await bench.answered(6)
    assert bench.codes() == [[None]] + [[ErrorCode.INVALID_RECORD]] * 5
    assert not bench.send(("p", 0, raw_batch(OK)), scrutiny=None), "others are not"


def test_a_connection_that_has_nothing_to_open_goes_by_most_of_the_time() -> None:
    bench = Bench(h=HEADER)
    scrutiny = Scrutiny()
    assert not bench.send(("h", 0, raw_batch(OK)), scrutiny=scrutiny)
    assert scrutiny.left == UNTOUCHED_REQUESTS
    assert not bench.under_test.is_needed


@pytest.mark.parametrize("max_ms", [-1, NOW_MS - 7])
@pytest.mark.parametrize("codec", list(CompressionType))
async def test_a_greatest_time_that_cannot_be_right_is_taken_from_the_records(
    max_ms: int, codec: CompressionType
) -> None:
    """Whatever validate.batches says: a log believes it when it lets go of segments, and when it is searched by time."""
    sound = build_batch(
        [Record(i, NOW_MS + time, b"k", b"v" * 30) for i, time in enumerate((0, 20, 10))], compression=codec
    )
    wrong = with_max_timestamp(sound, read_header(sound), max_ms)
    bench = Bench(h=HEADER)
    assert bench.send(("h", 0, wrong))
    assert not bench.send(("h", 1, sound))
    await bench.answered(2)
    assert [bytes(entry.batches) for entry in bench.appended] == [sound, sound], "checksum and all"


async def test_records_may_bear_times_though_neither_base_nor_greatest_time_does() -> None:
    sound = raw_batch(record(0, elapsed_ms=NOW_MS + 1) + record(1, elapsed_ms=NOW_MS), 2, base_ms=-1, max_ms=NOW_MS)
    bench = Bench(h=HEADER)
    assert bench.send(("h", 0, with_max_timestamp(sound, read_header(sound), -1)))
    assert bench.send(("h", 1, TAKEN["no time"]))
    await bench.answered(2)
    assert {entry.partition: bytes(entry.batches) for entry in bench.appended} == {0: sound, 1: TAKEN["no time"]}


async def test_a_walk_corrects_every_wrong_greatest_time() -> None:
    sound = build_batch([Record(i, NOW_MS + time, b"k", b"v") for i, time in enumerate((0, 20, 10))])
    bench = Bench(all=ALL, dated=replace(ALL, message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    for max_ms in (NOW_MS, NOW_MS + 10**6):
        wrong = with_max_timestamp(sound, read_header(sound), max_ms)
        bench.send(("all", 0, wrong))
        bench.send(("dated", 0, wrong))
    await bench.answered(4)
    assert [bytes(entry.batches) == sound for entry in bench.appended if entry.topic == "all"] == [True] * 2
    assert not any(bytes(entry.batches) == sound for entry in bench.appended if entry.topic == "dated"), "the log dates"


async def test_a_record_older_than_the_topic_takes_is_refused() -> None:
    old = build_batch([Record(0, NOW_MS, b"k", b"v"), Record(1, NOW_MS - 10**8, b"k", b"v")])
    bench = Bench(all=replace(ALL, message_timestamp_before_max_ms=60_000))
    scrutiny = Scrutiny()
    bench.send(("all", 0, old), scrutiny=scrutiny)
    await bench.answered(1)
    assert bench.codes() == [[ErrorCode.INVALID_TIMESTAMP]]
    assert bench.stats.unsound_batches == 0, "the records are sound, the client may be replaying"


async def test_what_is_not_one_whole_batch_is_left_to_the_log() -> None:
    flipped = POISONED[:-1] + bytes([POISONED[-1] ^ 1])
    unknown_codec = raw_batch(OK, codec=6)
    bench = Bench(all=ALL)
    for bad in (flipped, POISONED + b"x", POISONED[:-3], unknown_codec, raw_batch(OK, 0)):
        bench.send(("all", 0, bad))
    await bench.answered(5)
    assert bench.codes() == [[None]] * 5


async def test_a_refused_batch_that_the_log_has_gets_its_answer() -> None:
    """It was taken when nobody looked; to refuse the repeat would tell the producer that it is not there."""
    taken, fresh = (raw_batch(TWO, 3, producer_id=7, producer_epoch=0, sequence=sequence) for sequence in (0, 3))
    bench = Bench(all=ALL)
    bench.known.add(taken)
    bench.send(("all", 0, taken))
    bench.send(("all", 0, fresh))
    await bench.answered(2)
    assert bench.codes() == [[None], [ErrorCode.INVALID_RECORD]]
    assert [bytes(entry.batches) for entry in bench.appended] == [taken], "the log knows that it repeats"


async def test_leadership_that_moved_while_a_request_waited_refuses_it() -> None:
    bench = Bench(all=ALL)
    bench.send(("all", 0, raw_batch(OK)))
    bench.send(("all", 0, POISONED))
    bench.epoch += 1
    await bench.answered(2)
    assert bench.codes() == [[ErrorCode.NOT_LEADER_OR_FOLLOWER]] * 2
    assert bench.appended == []
    bench.send(("all", 0, raw_batch(OK)))
    await bench.answered(3)
    assert len(bench.appended) == 1


async def test_requests_behind_a_walk_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    release, real = Event(), BatchInspector.inspected

    def slow(self: BatchInspector, data: bytes, *rest: Any, **named: Any) -> bytes:
        assert release.wait(10)
        return real(self, data, *rest, **named)

    monkeypatch.setattr(BatchInspector, "inspected", slow)
    bench = Bench(p=PLAIN)
    scrutiny = Scrutiny()
    texts = [b"0", b"1", b"2", b"3"]
    datas = [build_batch([Record(0, NOW_MS, None, text)]) for text in texts]
    assert bench.send(("p", 0, datas[0]), scrutiny=scrutiny)
    assert bench.under_test.is_needed, "so that the next is shown, whoever sends it"
    assert all(bench.send(("p", 0, data)) for data in datas[1:])
    await asyncio.sleep(0.05)
    assert not bench.appended
    release.set()
    await bench.answered(4)
    assert [next(iterate_records(entry.batches)).value for entry in bench.appended] == texts
    assert not bench.under_test.is_needed


@pytest.mark.attack("A2", "large batches are walked over in a process, not on the loop")
async def test_threads_walk_over_so_many_records_and_the_process_over_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RECORDS_PER_TURN", 70)
    bench = Bench(all=ALL)
    large, small = (build_batch([Record(i, NOW_MS, None, b"v") for i in range(count)]) for count in (71, 30))
    many_headers = build_batch([Record(0, NOW_MS, None, b"v", (("h", b"x"),) * 100)])
    bench.send(*(("all", number, data) for number, data in enumerate((large, small, small, small))))
    await bench.answered(1)
    assert bench.process.asked == [large, small], "two small ones fit the turn"
    bench.send(("all", 0, small), ("all", 1, small))
    await bench.answered(2)
    assert len(bench.process.asked) == 2, "what threads have done is given back"
    bench.send(("all", 0, many_headers))
    await bench.answered(3)
    assert bench.process.asked[2:] == [many_headers], "headers count, too"
    assert bench.codes() == [[None] * 4, [None] * 2, [None]]


async def test_batches_for_the_process_hold_up_no_small_ones() -> None:
    """Two that take it seconds each would else occupy the threads that first batches of others wait for."""
    bench = Bench(all=ALL)
    release = Event()

    class Slow(NoProcess):
        def walk(self, data: bytes, *, keyless_max: int = 0) -> Walk:
            assert release.wait(10)
            return super().walk(data, keyless_max=keyless_max)

    bench.inspector.process = Slow()  # type: ignore[assignment]
    large = build_batch([Record(i, NOW_MS, None, b"v") for i in range(1_000)])
    many_headers = build_batch([Record(0, NOW_MS, None, b"v", (("h", b"x"),) * 1_000)])
    for number, data in enumerate((large, many_headers, large, many_headers)):
        bench.send(("all", number, data))
    await asyncio.sleep(0.05)
    bench.send(("all", 7, raw_batch(OK)))
    await bench.answered(1)
    assert [entry.partition for entry in bench.appended] == [7]
    release.set()
    await bench.answered(5)
    assert bench.codes() == [[None]] * 5
    assert bench.stats.inspected_batches == 5


async def test_a_bug_in_the_work_refuses_its_batch_and_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: BatchInspector, data: bytes, *rest: Any, **named: Any) -> bytes:
        if b"bug" in data:
            raise ZeroDivisionError("seven")
        return data

    monkeypatch.setattr(BatchInspector, "inspected", broken)
    bench = Bench(all=ALL)
    for text in (b"bug", b"sound"):
        bench.send(("all", 0, build_batch([Record(0, NOW_MS, None, text)])))
    await bench.answered(2)
    assert bench.codes() == [[ErrorCode.UNKNOWN_SERVER_ERROR], [None]]


async def test_a_batch_that_is_opened_is_recompressed_too() -> None:
    bench = Bench(z=replace(GZIP, validate_batches=ValidateBatches.ALL))
    bench.send(("z", 0, batch()))
    bench.send(("z", 0, batch(kind=CompressionType.GZIP)))
    bench.send(("z", 0, POISONED))
    await bench.answered(3)
    assert bench.codes() == [[None], [None], [ErrorCode.INVALID_RECORD]]
    assert [read_header(entry.batches).compression for entry in bench.appended] == [1, 1]
    assert bench.stats.recompressed_batches == 1
    assert bench.stats.inspected_batches == 3


async def test_a_request_that_has_to_come_again_is_looked_at_then(monkeypatch: pytest.MonkeyPatch) -> None:
    release, real = Event(), BatchInspector.inspected

    def slow(self: BatchInspector, data: bytes, *rest: Any, **named: Any) -> bytes:
        assert release.wait(10)
        return real(self, data, *rest, **named)

    monkeypatch.setattr(BatchInspector, "inspected", slow)
    monkeypatch.setattr(module, "WAITING_BYTES_MAX", 2 * len(POISONED))
    bench = Bench(p=PLAIN)
    scrutiny = Scrutiny()
    for number in range(2):
        bench.send(("p", number, raw_batch(TWO, 2)), scrutiny=Scrutiny())
    for _ in range(FIRST_REQUESTS + 1):
        assert bench.send(("p", 2, POISONED), scrutiny=scrutiny)
    await bench.answered(FIRST_REQUESTS + 1)
    assert bench.codes() == [[ErrorCode.REQUEST_TIMED_OUT]] * (FIRST_REQUESTS + 1)
    release.set()
    await bench.answered(FIRST_REQUESTS + 3)
    assert bench.send(("p", 2, POISONED), scrutiny=scrutiny)
    await bench.answered(FIRST_REQUESTS + 4)
    assert bench.codes()[-1] == [ErrorCode.INVALID_RECORD]


async def test_what_a_compacted_topic_gets_is_opened_whatever_validate_batches_says() -> None:
    bench = Bench(c=COMPACTED)
    keyless = build_batch([Record(0, NOW_MS, b"k", b"v"), Record(1, NOW_MS, None, b"v")])
    assert not bench.send(("c", 0, batch())), "few records are looked at where they come"
    assert bench.stats.inspected_batches == 1
    for bad in (keyless, build_batch([Record(0, NOW_MS, None, b"v")], compression=CompressionType.ZSTD), POISONED):
        assert bench.send(("c", 0, bad))
    assert bench.send(("c", 0, batch(kind=CompressionType.LZ4)))
    await bench.answered(5)
    assert bench.codes() == [[None], *[[ErrorCode.INVALID_RECORD]] * 3, [None]]
    refused = [answer[0].error for answer in bench.answers[1:4]]
    assert [isinstance(error, InvalidBatch) and tuple(error.records) for error in refused] == [(1,), (0,), (2,)]
    assert bench.stats.unsound_batches == 1, "to give no key is no unsound batch"


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize(
    ("count", "named"), [(3, 3), (KEYLESS_MAX, KEYLESS_MAX), (KEYLESS_MAX + 1, 0), (5 * KEYLESS_MAX, 0)]
)
async def test_a_refusal_names_the_records_without_a_key_or_none_where_there_are_too_many(
    count: int, named: int, is_compiled: bool
) -> None:
    records = [Record(0, NOW_MS, b"k", b"v")] + [Record(n, NOW_MS, None, b"v") for n in range(1, count + 1)]
    bench = Bench(c=COMPACTED)
    if is_compiled:
        pytest.importorskip("numba")
        bench.inspector.load = BatchInspector.load.__get__(bench.inspector)  # type: ignore[method-assign]
        bench.inspector.load()
    bench.send(("c", 0, build_batch(records)))
    await bench.answered(1)
    error = bench.answers[0][0].error
    assert isinstance(error, InvalidBatch)
    assert error.message.startswith(f"{count if named else f'over {KEYLESS_MAX}'} of {count + 1} records")
    assert list(error.records) == list(range(1, named + 1))


async def test_the_loop_looks_at_so_many_keys_in_a_turn_and_leaves_the_rest_to_threads() -> None:
    bench = Bench(c=COMPACTED)
    many_headers = build_batch([Record(0, NOW_MS, b"k", b"v", (("h", b"x"),) * 1_000)])
    many = build_batch([Record(i, NOW_MS, b"k", b"v") for i in range(65)])
    large = build_batch([Record(0, NOW_MS, b"k", bytes(module.LIGHT_BYTES_MAX))])
    assert [bench.send(("c", number, each)) for number, each in enumerate((many_headers, many, large))] == [True] * 3
    await bench.answered(3)
    assert bench.process.asked == [many_headers], "65 records are what a thread may walk over"
    three = build_batch([Record(i, NOW_MS, b"k", b"v") for i in range(3)])
    taken = [bench.send(("c", number, three)) for number in range(30)]
    assert taken.count(False) == module.RECORDS_PER_TURN // (3 * module.LIGHT_STEPS_PER_RECORD)
    await bench.answered(33)
    assert not bench.send(("c", 0, three)), "in another turn"
    assert bench.codes() == [[None]] * 34
    assert [(topic, number) for topic, number, _ in bench.appended].count(("c", 0)) == 3
