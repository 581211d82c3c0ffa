"""One range is read whole: fetches follow each other without a gap, silence and loss end as the options say."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from barnabas_wire.client.metadata import FetchedRecords
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.records.batch import Record, build_batch
from pyspark_barnabas import reader as reader_module
from pyspark_barnabas.client import SourceError, SourceTopic
from pyspark_barnabas.kafka_properties import FETCH_BYTES_MAX, FETCH_BYTES_MIN
from pyspark_barnabas.offsets import Offsets, SourcePartition
from pyspark_barnabas.options import EARLIEST, SourceOptions, parse_options
from pyspark_barnabas.reader import DataLossError, read_range
from pyspark_barnabas.source import COLUMNS, RangePartition

OPTIONS = parse_options({"kafka.bootstrap.servers": "x:1", "subscribe": "t"}, is_stream=False)
TOLERANT = replace(OPTIONS, is_data_loss_fatal=False)


def fetching(bytes_max: int) -> SourceOptions:
    return replace(OPTIONS, cluster=replace(OPTIONS.cluster, fetch_bytes_max=bytes_max))


class ScriptedClient:
    """A partition of records earliest … end − 1, one per batch; `steps` come first, one per fetch."""

    def __init__(self, *, earliest: int = 0, end: int = 0, value_bytes: int = 10) -> None:
        self.earliest = earliest
        self.end = end
        self.value_bytes = value_bytes
        self.topic_id = "id"
        self.steps: list[Callable[[int], FetchedRecords]] = []
        self.asked: list[tuple[int, int]] = []
        self.is_busy = threading.Lock()

    def fetch(
        self, partition: SourcePartition, offset: int, *, topic_id: str | None, bytes_max: int, patience_s: float
    ) -> FetchedRecords:
        assert self.is_busy.acquire(blocking=False), "the client is used by two threads at once"
        try:
            self.asked.append((offset, bytes_max))
            return self.steps.pop(0)(offset) if self.steps else self.stored(offset, bytes_max)
        finally:
            self.is_busy.release()

    def list_offsets(self, wanted: dict[SourcePartition, int]) -> Offsets:
        assert not self.is_busy.locked(), "the client is used by two threads at once"
        return {key: self.earliest if spec == EARLIEST else self.end for key, spec in wanted.items()}

    def topics(self, names: list[str], *, may_be_missing: bool) -> dict[str, SourceTopic]:
        return {"t": SourceTopic(self.topic_id, (0,))}

    def stored(self, offset: int, bytes_max: int) -> FetchedRecords:
        if not self.earliest <= offset <= self.end:
            raise SourceError("offset", ErrorCode.OFFSET_OUT_OF_RANGE)
        data = b""
        while offset < self.end and (not data or len(data) < bytes_max):
            data += build_batch([Record(offset, 1, None, bytes(self.value_bytes))])
            offset += 1
        return fetched(data)


def fetched(data: bytes) -> FetchedRecords:
    return FetchedRecords(memoryview(data), Offset(0), Offset(0))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> ScriptedClient:
    scripted = ScriptedClient()
    monkeypatch.setattr(reader_module, "connected", lambda cluster: scripted)
    return scripted


def read(start: int, end: int, options: SourceOptions = OPTIONS) -> Iterator[int]:
    """Offsets of the rows of one range, as they come."""
    wanted = RangePartition("t", "id", 0, start, end)
    for batch in read_range(wanted, options, COLUMNS):
        yield from batch["offset"].to_pylist()


def silence(_: int) -> FetchedRecords:
    return fetched(b"")


def refusal(code: ErrorCode) -> Callable[[int], FetchedRecords]:
    def refuse(_: int) -> FetchedRecords:
        raise SourceError(f"says {code.name}", code)

    return refuse


def test_a_range_of_many_fetches_is_read_whole_and_no_further(client: ScriptedClient) -> None:
    client.end = 100
    assert list(read(7, 93, fetching(400))) == list(range(7, 93))
    assert len(client.asked) > 10


def test_a_short_range_fetches_little_and_a_long_one_much(client: ScriptedClient) -> None:
    client.end = 8200
    list(read(0, 10))
    list(read(0, 8200))
    assert client.asked[0] == (0, FETCH_BYTES_MIN)
    assert client.asked[1] == (0, FETCH_BYTES_MAX)


def test_once_the_size_of_records_is_known_the_rest_is_asked_for_by_it(client: ScriptedClient) -> None:
    client.end, client.value_bytes = 150, 100_000
    assert list(read(0, 120)) == list(range(120))
    (first, few), (second, many) = client.asked[:2]
    assert (first, few) == (0, 120 * 1024)
    assert second == 2
    assert many == FETCH_BYTES_MAX


def test_a_leader_that_has_nothing_yet_is_asked_again(client: ScriptedClient) -> None:
    client.end = 5
    client.steps = [silence, silence]
    assert list(read(0, 5)) == [0, 1, 2, 3, 4]


def test_silence_ends_after_the_poll_timeout(client: ScriptedClient) -> None:
    client.end = 3
    impatient = replace(OPTIONS, poll_timeout_ms=1)
    with pytest.raises(SourceError, match=r"t-0 gave nothing at offset 3 \(up to 5\) for 1 ms \(kafkaConsumer.pollT"):
        list(read(0, 5, impatient))


def test_what_is_gone_from_the_front_fails_the_task(client: ScriptedClient) -> None:
    client.earliest, client.end = 4, 9
    with pytest.raises(
        DataLossError, match=r"t-0 begins at 4, offsets from 1 on were removed\. Set failOnDataLoss=false"
    ):
        list(read(1, 9))


def test_what_is_gone_from_the_front_is_passed_over_if_allowed(client: ScriptedClient) -> None:
    client.earliest, client.end = 4, 9
    assert list(read(1, 9, TOLERANT)) == [4, 5, 6, 7, 8]
    assert list(read(1, 3, TOLERANT)) == []


def test_what_goes_while_it_is_read_is_loss_too(client: ScriptedClient) -> None:
    client.end = 50
    rows = read(0, 50, fetching(100))
    seen = [next(rows) for _ in range(2)]
    client.earliest = 40
    with pytest.raises(DataLossError, match="begins at 40"):
        list(rows)
    assert seen == [0, 1]


def test_a_log_that_became_shorter_is_loss(client: ScriptedClient) -> None:
    client.end = 3
    with pytest.raises(DataLossError, match="t-0 ends before offset 5, but was to be read up to 9"):
        list(read(5, 9))
    assert list(read(5, 9, TOLERANT)) == []


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_a_topic_that_was_made_again_is_loss(client: ScriptedClient, code: ErrorCode) -> None:
    client.end = 9
    client.topic_id = "of another"
    client.steps = [refusal(code)]
    with pytest.raises(DataLossError, match="is gone, or its topic was made again, before offsets 2 to 9 were read"):
        list(read(2, 9))
    client.steps = [refusal(code)]
    assert list(read(2, 9, TOLERANT)) == []


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_OUT_OF_RANGE]
)
def test_a_refusal_of_what_the_cluster_says_is_there_is_no_loss(
    client: ScriptedClient, code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "REFUSAL_RETRY_S", 0)
    client.end = 9
    client.steps = [refusal(code)] * 5
    assert list(read(2, 9)) == [2, 3, 4, 5, 6, 7, 8]
    client.steps = [refusal(code)] * (reader_module.REFUSALS_MAX + 1)
    with pytest.raises(SourceError, match=f"says {code.name}"):
        list(read(2, 9))


def test_any_other_refusal_fails_the_task_whatever_failondataloss_says(client: ScriptedClient) -> None:
    client.steps = [refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    with pytest.raises(SourceError, match="says TOPIC_AUTHORIZATION_FAILED"):
        list(read(0, 9, TOLERANT))


def test_a_reader_that_stops_early_leaves_no_fetch_under_way(client: ScriptedClient) -> None:
    client.end = 50
    rows = read(0, 50, fetching(100))
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    assert not client.is_busy.locked()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fetch-")]


def test_a_worker_without_numba_is_reported_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "numba", None)
    for name in ("pyspark_barnabas.decoder", "pyspark_barnabas.scan"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ImportError, match=r"lacks a library \(.*numba.*\): pip install 'barnabas\[spark\]' there"):
        list(read(0, 1))


def test_a_worker_takes_what_its_imports_made_out_of_the_collectors_sight_once(client: ScriptedClient) -> None:
    gc.unfreeze()
    reader_module.spare_the_collector.cache_clear()
    client.end = 3
    assert list(read(0, 3)) == [0, 1, 2]
    frozen = gc.get_freeze_count()
    assert frozen > 10_000
    assert list(read(0, 3)) == [0, 1, 2]
    assert gc.get_freeze_count() <= frozen, "each time would keep garbage for ever"
    gc.unfreeze()
