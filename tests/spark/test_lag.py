"""What the listener makes of Spark's progress reports."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from pyspark_barnabas.lag import Lag, LagListener, lag_metrics, lags

END = {"t": {"id": "x", "0": 5, "1": 7, "from": {"1": 3}}, "u": {"0": 1}}
LATEST = {
    "t": {"id": "x", "0": 9, "1": 7, "recordsBehind": 4, "secondsBehind": 2.5},
    "u": {"0": 1, "recordsBehind": 0, "secondsBehind": 0.0},
}


def progress(**given: Any) -> dict[str, Any]:
    source = {"description": "barnabas", "endOffset": END, "latestOffset": LATEST}
    return {"id": "q-1", "name": "flights", "batchId": 3, "sources": [source]} | given


def event(report: dict[str, Any]) -> Any:
    return SimpleNamespace(progress=SimpleNamespace(json=json.dumps(report)))


def test_each_topic_is_a_row_whatever_form_the_offsets_have() -> None:
    expected = [
        Lag("flights", 3, "t", 4, 2.5, {0: 5, 1: 7}, {0: 9, 1: 7}),
        Lag("flights", 3, "u", 0, 0.0, {0: 1}, {0: 1}),
    ]
    assert lags(progress()) == expected
    as_text = [{"endOffset": json.dumps(END), "latestOffset": json.dumps(LATEST)}]
    assert lags(progress(sources=as_text)) == expected
    assert [lag.query for lag in lags(progress(name=None))] == ["q-1", "q-1"]
    assert str(expected[0]) == "flights: batch 3, t 4 records, 2.5 s behind"


@pytest.mark.parametrize("latest", [None, "17", "rate", 5, {"t": {"0": 5}}, {"logOffset": 3}])
def test_other_sources_are_passed_over(latest: Any) -> None:
    assert lags(progress(sources=[{"endOffset": latest, "latestOffset": latest}])) == []
    assert lags(progress(sources=None)) == []


def test_metrics_show_the_last_report() -> None:
    registry = CollectorRegistry()
    listener = LagListener(lag_metrics(registry))
    listener.onQueryProgress(event(progress()))
    labels = {"query": "flights", "topic": "t"}
    assert registry.get_sample_value("barnabas_spark_records_behind", labels) == 4
    assert registry.get_sample_value("barnabas_spark_seconds_behind", labels) == 2.5


def test_a_report_that_fails_is_logged_once_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def failing(lag: Lag) -> None:
        raise OSError("the pipe is closed")

    listener = LagListener(failing)
    with caplog.at_level(logging.ERROR):
        listener.onQueryProgress(event(progress()))
        listener.onQueryProgress(event(progress()))
    assert [record.getMessage() for record in caplog.records] == ["the lag of query flights cannot be reported"]
    assert "the pipe is closed" in caplog.text
