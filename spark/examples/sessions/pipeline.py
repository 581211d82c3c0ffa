"""Puts clicks of a user together into sessions, which end after ten minutes without a click: state and timers of one's own.

    python pipeline.py --brokers 127.0.0.1:9092 --source clicks --target sessions --checkpoint /tmp/sessions

Needs barnabas[spark] and Java. Stop it or kill it at any time: started again with the same checkpoint it continues, and each session is in
the target once. It reads what is there and ends; with --follow it continues for ever.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from pyspark_barnabas import configure
from pyspark_barnabas.json_values import from_json_schema

GAP_MS = 10 * 60_000
"""A session ends when its user does nothing for so long."""
LATE = "5 minutes"
STATE = "first bigint, last bigint, clicks bigint"
SESSION = "key string, value string"


class Sessions(StatefulProcessor):
    """One open session of each user, and a timer that ends it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state; Spark keeps it from micro-batch to micro-batch, and in the checkpoint."""
        self._handle = handle
        self._open = handle.getValueState("open", STATE)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Clicks of one user; the names are Spark's."""
        times = sorted(int(at) for part in rows for at in part["ms"])
        state = self._open.get()
        first, last, clicks = (times[0], times[0], 0) if state is None else state
        ended = []
        for at in times:
            if at - last > GAP_MS:
                ended.append(session(key[0], first, last, clicks))
                first, last, clicks = at, at, 0
            first, last, clicks = min(first, at), max(last, at), clicks + 1
        self._open.update((first, last, clicks))
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        self._handle.registerTimer(last + GAP_MS)
        if ended:
            yield pd.DataFrame(ended)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        """Nothing came for ten minutes; the names are Spark's."""
        state = self._open.get()
        self._open.clear()
        if state is not None:
            yield pd.DataFrame([session(key[0], *state)])

    def close(self) -> None:
        """Nothing to release."""


def session(user: str, first: int, last: int, clicks: int) -> dict[str, str]:
    """A record of the target."""
    return {"key": user, "value": json.dumps({"first": first, "last": last, "clicks": clicks})}


def sessions(clicks: DataFrame) -> DataFrame:
    """key: the user; value: JSON of the first and last click (ms) and their count."""
    events = from_json_schema(clicks, schema="at bigint", into="event")
    timed = events.select(
        F.col("key").cast("string").alias("user"),
        F.col("event.at").alias("ms"),
        F.timestamp_millis(F.col("event.at")).alias("at"),
    )
    return (
        timed.withWatermark("at", LATE)
        .groupBy("user")
        .transformWithStateInPandas(Sessions(), SESSION, outputMode="Append", timeMode="EventTime")
    )


def main() -> None:
    """Read the command line, run the query."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--brokers", required=True, metavar="HOST:PORT,…")
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--checkpoint", required=True, help="directory that outlives this program")
    parser.add_argument("--master", default="local[2,4]", help="a failed task is tried four times")
    parser.add_argument("--per-trigger", default="10000", help="most records of a micro-batch")
    parser.add_argument("--follow", action="store_true")
    options = parser.parse_args()

    builder = SparkSession.builder.master(options.master).appName("sessions")
    # transformWithState keeps its state in RocksDB alone.
    store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    builder = builder.config("spark.sql.streaming.stateStore.providerClass", store)
    spark = configure(builder.config("spark.sql.shuffle.partitions", "2")).getOrCreate()
    clicks = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", options.brokers)
        .option("subscribe", options.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.per_trigger)
        .load()
    )
    writer = (
        sessions(clicks)
        .writeStream.format("barnabas")
        .outputMode("append")
        .option("kafka.bootstrap.servers", options.brokers)
        .option("topic", options.target)
        .option("mode", "exactly_once")
        .option("transactionalIdPrefix", f"{options.source}-to-{options.target}")
        .option("checkpointLocation", options.checkpoint)
    )
    query = (writer if options.follow else writer.trigger(availableNow=True)).start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
