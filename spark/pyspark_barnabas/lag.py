"""How far streams are behind, taken from the progress that Spark reports: printed, or exported to Prometheus.

May touch:  Spark's listener, its arguments; prometheus_client inside methods.   Must not touch: sockets, the cluster.
Invariants: a report that is no stream of ours is passed over; nothing that goes wrong here stops a query, and nothing is hidden: it is
    logged with its trace once per query.
Read next:  stream.py, which puts recordsBehind and secondsBehind into latestOffset.

Spark calls listeners in the driver, between micro-batches, on a thread of its own.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from pyspark_barnabas.offsets import RECORDS_BEHIND, SECONDS_BEHIND, from_json

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

logger = logging.getLogger(__name__)


class Lag(NamedTuple):
    """How far one query is behind the end of one topic."""

    query: str
    """Its name, or its id where it has none."""
    batch: int
    topic: str
    records_behind: int
    seconds_behind: float
    """Age of the first record that is not read yet; 0 when all are."""
    end: dict[int, int]
    """Next offset to read of each partition."""
    latest: dict[int, int]
    """End of each partition when the micro-batch was reported."""

    def __str__(self) -> str:
        return f"{self.query}: batch {self.batch}, {self.topic} {self.records_behind:,} records, {self.seconds_behind:.1f} s behind"


def lags(progress: Mapping[str, Any]) -> list[Lag]:
    """One row of each topic that a query reads through `barnabas`, from a progress report as JSON."""
    found = []
    for source in progress.get("sources") or ():
        end, latest = (_offsets(source.get(name)) for name in ("endOffset", "latestOffset"))
        for topic, parts in latest.items():
            if RECORDS_BEHIND not in parts:
                continue  # of another source, or before the first micro-batch
            at, last = (
                {key.partition: offset for key, offset in from_json({topic: offsets}).offsets.items()}
                for offsets in (end.get(topic, {}), parts)
            )
            found.append(
                Lag(
                    str(progress.get("name") or progress["id"]),
                    int(progress["batchId"]),
                    topic,
                    int(parts[RECORDS_BEHIND]),
                    float(parts[SECONDS_BEHIND]),
                    at,
                    last,
                )
            )
    return found


class LagListener(StreamingQueryListener):
    """Reports how far each stream is behind: `spark.streams.addListener(LagListener())` prints a line per micro-batch and topic."""

    def __init__(self, report: Callable[[Lag], object] = print) -> None:
        """report: takes each row; what it raises is logged, once per query."""
        self._report = report
        self._complained: set[str] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # these names are Spark's
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A micro-batch ended, or there was none for a while."""
        progress = json.loads(event.progress.json)
        try:
            for lag in lags(progress):
                self._report(lag)
        except Exception:  # a report is no reason to stop a query, nor to lose this listener
            if progress["id"] not in self._complained:
                self._complained.add(progress["id"])
                logger.exception("the lag of query %s cannot be reported", progress.get("name") or progress["id"])

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing new to report."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The last report stands: what the query had not read, it has not read."""


def lag_metrics(registry: CollectorRegistry | None = None) -> Callable[[Lag], None]:
    """A report for LagListener that keeps Prometheus gauges; the driver serves them with prometheus_client.start_http_server.

    registry: where the gauges are registered (default: prometheus_client's own). Raises ValueError when they are there already.
    """
    from prometheus_client import REGISTRY, Gauge

    names = ("query", "topic")
    where = REGISTRY if registry is None else registry
    records = Gauge(
        "barnabas_spark_records_behind", "Records between a Spark query and the end of a topic", names, registry=where
    )
    seconds = Gauge(
        "barnabas_spark_seconds_behind",
        "Age of the first record that a Spark query has not read, in seconds",
        names,
        registry=where,
    )

    def report(lag: Lag) -> None:
        records.labels(lag.query, lag.topic).set(lag.records_behind)
        seconds.labels(lag.query, lag.topic).set(lag.seconds_behind)

    return report


def _offsets(value: Any) -> Mapping[str, Mapping[str, Any]]:
    """Offsets of one source: Spark gives JSON, or text that is JSON; other sources have offsets of other kinds."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    if not isinstance(value, Mapping) or not all(isinstance(parts, Mapping) for parts in value.values()):
        return {}
    return value
