"""Laws of compression.type: same records in the topic's codec, in the order in which they came, bounded, and nothing refused twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from threading import Event
from typing import Any

import pytest

from barnabas_log.config import BatchCompression, LogConfig
from barnabas_replication import recompression as module
from barnabas_replication.recompression import CODECS, Codec, Recompression, recompressed
from barnabas_replication.requests import AppendEntry, AppendOutcome
from barnabas_replication.stats import Stats
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.records.batch import Record, build_batch, crc_is_valid, iterate_records, read_header
from barnabas_wire.records.compression import CompressionType
from barnabas_wire.records.crc32c import crc32c

GZIP = LogConfig(compression_type=BatchCompression.GZIP)
PLAIN = LogConfig()


def batch(text: str = "v", kind: CompressionType = CompressionType.NONE) -> bytes:
    records = [Record(i, 1_000 + i, b"k%d" % i, f"{text}{i}".encode() * 20, (("h", b"x"),)) for i in range(30)]
    return build_batch(records, compression=kind, producer_id=7, producer_epoch=1, base_sequence=5)


class Bench:
    """A Recompression whose appends are remembered."""

    def __init__(self, **topics: LogConfig) -> None:
        self.topics = topics
        self.appended: list[AppendEntry] = []
        self.answers: list[list[AppendOutcome]] = []
        self.stats = Stats()
        self.under_test = Recompression(lambda topic, number: self.topics.get(topic), self.stats)
        for topic, config in topics.items():
            self.under_test.note(topic, config)

    def send(self, *entries: tuple[str, int, bytes]) -> bool:
        """Whether the request has to wait."""
        wanted = [AppendEntry(topic, number, memoryview(bytearray(batches))) for topic, number, batches in entries]
        is_taken = self.under_test.takes(wanted, self.append, self.answers.append)
        if not is_taken:
            self.append(wanted, respond=self.answers.append)
        for entry in wanted:  # the receive buffer is used again
            assert isinstance(entry.batches, memoryview)
            entry.batches[:] = bytes(len(entry.batches))
        return is_taken

    def append(self, entries: Sequence[AppendEntry], *, respond: Any) -> None:
        self.appended += [AppendEntry(topic, number, bytes(batches)) for topic, number, batches in entries]
        respond([AppendOutcome(topic, number, None) for topic, number, _ in entries])

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
    release, real = Event(), module.recompressed

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
    release, real = Event(), module.recompressed

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


async def test_closing_refuses_what_waits_and_appends_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    release, real = Event(), module.recompressed

    def slow(data: bytes, codec: Codec) -> bytes:
        assert release.wait(10)
        return real(data, codec)

    monkeypatch.setattr(module, "recompressed", slow)
    bench = Bench(z=GZIP)
    bench.send(("z", 0, batch()))
    bench.send(("z", 0, batch()), ("z", 1, batch()))
    bench.under_test.close()
    release.set()
    await asyncio.sleep(0.1)
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
