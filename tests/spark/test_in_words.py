"""What Spark shows of an error that says in words what is wrong, and of one that does not."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from pyspark_barnabas.client import SourceError
from pyspark_barnabas.in_words import HIDE, InWords, in_words
from pyspark_barnabas.kafka_properties import OptionError
from pyspark_barnabas.one_dict import for_sink, for_source
from pyspark_barnabas.options import parse_options
from pyspark_barnabas.reader import DataLossError
from pyspark_barnabas.sink_options import parse_sink_options
from pyspark_barnabas.writer import SinkError


@in_words("plan", "rows")
class Reader:
    def plan(self, error: Exception) -> None:
        raise error

    def rows(self, error: Exception) -> Iterator[int]:
        yield 1
        raise error


@pytest.fixture(params=["PYTHON_WORKER_FACTORY_SECRET", "PYTHON_UNIX_DOMAIN_ENABLED"])
def in_spark(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(request.param, "x")
    monkeypatch.delenv(HIDE, raising=False)


def is_hidden() -> bool:
    import os

    return HIDE in os.environ


@pytest.mark.usefixtures("in_spark")
@pytest.mark.parametrize("kind", [SourceError, OptionError, DataLossError, SinkError])
def test_an_error_in_words_is_shown_alone_by_a_process_of_spark(
    kind: type[InWords], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(kind):
        Reader().plan(kind("there is no topic x"))
    assert is_hidden()
    monkeypatch.delenv(HIDE)
    rows = pickle.loads(pickle.dumps(Reader())).rows(kind("gone"))
    assert next(rows) == 1 and not is_hidden()
    with pytest.raises(kind):
        next(rows)
    assert is_hidden()


@pytest.mark.usefixtures("in_spark")
def test_a_bug_keeps_its_frames() -> None:
    with pytest.raises(KeyError):
        Reader().plan(KeyError("x"))
    assert not is_hidden()


def test_the_driver_keeps_its_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HIDE, raising=False)
    with pytest.raises(OptionError):
        Reader().plan(OptionError("x"))
    assert not is_hidden()


BOTH = {
    "kafka.bootstrap.servers": "a:1",
    "subscribe": "in",
    "startingOffsets": "earliest",
    "kafka.group.id": "g",
    "kafka.max.poll.records": "7",
    "topic": "out",
    "kafka.acks": "all",
    "checkpointLocation": "/x",
}


def test_one_dict_of_options_serves_source_and_sink() -> None:
    source = parse_options(for_source(BOTH | {"mode": "exactly_once"}), is_stream=True)
    assert source.topics == ("in",) and not source.is_table
    sink = parse_sink_options(for_sink(BOTH | {"mode": "table"}))
    assert sink.topic == "out" and not sink.is_exactly_once
    for slip in ("subscrib", "topics", "kafka.ack"):
        with pytest.raises(OptionError, match=slip):
            parse_options(for_source(BOTH | {slip: "x"}), is_stream=True)
        with pytest.raises(OptionError, match=slip):
            parse_sink_options(for_sink(BOTH | {slip: "x"}))
