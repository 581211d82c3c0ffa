"""The demo's Spark job: two streaming queries over Barnabas topics, and one batch query, in a process of its own.

Usage: python job.py BOOTSTRAP OUTPUT_DIRECTORY. Opens no gRPC channel; knows nothing but Kafka addresses.

Query 1 (complete mode): departures and mean departure delay per origin and day.
Query 2 (append mode): every flight joined to the weather of its origin and hour.
Query 3 (batch): flights whose hour has no weather.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

FLIGHT = "carrier string, flight int, origin string, dest string, tailnum string, dep_time int, dep_delay double, time_hour string"
WEATHER = "origin string, temp double, wind_speed double, precip double, visib double, time_hour string"
FLIGHTS_PER_TRIGGER = 120_000
WEATHER_PER_TRIGGER = 9_400
"""The same share of each topic, so that both streams walk through the year together."""
WATERMARK = "30 days"
QUERY_TIMEOUT_S = 300


def main() -> int:
    """Run the three queries; results and figures go to the output directory as JSON."""
    bootstrap, output = sys.argv[1], Path(sys.argv[2])
    started = time.monotonic()
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("barnabas-demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "3g")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    session_s = time.monotonic() - started

    delays, first_s = departures(spark, bootstrap, output)
    joined, dropped, second_s = flights_with_weather(spark, bootstrap, output)
    missing = flights_without_weather(spark, bootstrap)
    result = {
        "departures": delays,
        "joined_rows": joined,
        "rows_dropped_as_late": dropped,
        "without_weather": missing,
        "seconds": {"session": session_s, "departures": first_s, "join": second_s, "all": time.monotonic() - started},
        "grpc_was_imported": any(name == "grpc" or name.startswith("grpc.") for name in sys.modules),
    }
    (output / "results.json").write_text(json.dumps(result, default=str))
    spark.stop()
    return 0


def stream(spark: SparkSession, bootstrap: str, topic: str, per_trigger: int) -> DataFrame:
    """A topic as a stream, from its first record."""
    return (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", per_trigger)
        .load()
    )


def parsed(rows: DataFrame, schema: str) -> DataFrame:
    """The JSON values as columns, with the hour as a timestamp."""
    value = F.from_json(F.col("value").cast("string"), schema).alias("row")
    return rows.select(value).select("row.*").withColumn("hour", F.to_timestamp("time_hour"))


def departures(spark: SparkSession, bootstrap: str, output: Path) -> tuple[list[dict[str, Any]], float]:
    """Query 1: rows of (origin, day, departures, mean_delay) after the last micro-batch, and seconds."""
    started = time.monotonic()
    flown = parsed(stream(spark, bootstrap, "flights", FLIGHTS_PER_TRIGGER), FLIGHT).where("dep_time is not null")
    per_day = flown.groupBy("origin", F.to_date("hour").alias("day")).agg(
        F.count("*").alias("departures"), F.avg("dep_delay").alias("mean_delay")
    )
    query = (
        per_day.writeStream.outputMode("complete")
        .format("memory")
        .queryName("departures")
        .option("checkpointLocation", str(output / "checkpoint-departures"))
        .trigger(availableNow=True)
        .start()
    )
    finish(query)
    rows = [row.asDict() for row in spark.table("departures").orderBy("origin", "day").collect()]
    return rows, time.monotonic() - started


def flights_with_weather(spark: SparkSession, bootstrap: str, output: Path) -> tuple[int, int, float]:
    """Query 2: rows joined, rows dropped as late, seconds."""
    started = time.monotonic()
    flights = parsed(stream(spark, bootstrap, "flights", FLIGHTS_PER_TRIGGER), FLIGHT).withWatermark("hour", WATERMARK)
    weather = (
        parsed(stream(spark, bootstrap, "weather", WEATHER_PER_TRIGGER), WEATHER)
        .withColumnsRenamed({"origin": "station", "hour": "observed"})
        .withWatermark("observed", WATERMARK)
    )
    joined = flights.join(weather, (flights.origin == weather.station) & (flights.hour == weather.observed))
    query = (
        joined.select(
            "carrier", "flight", "origin", "dest", "hour", "dep_delay", "temp", "wind_speed", "precip", "visib"
        )
        .writeStream.outputMode("append")
        .format("parquet")
        .option("path", str(output / "flights_with_weather"))
        .option("checkpointLocation", str(output / "checkpoint-join"))
        .trigger(availableNow=True)
        .start()
    )
    finish(query)
    dropped = sum(
        operator["numRowsDroppedByWatermark"] for p in query.recentProgress for operator in p["stateOperators"]
    )
    rows = spark.read.parquet(str(output / "flights_with_weather")).count()
    return rows, dropped, time.monotonic() - started


def flights_without_weather(spark: SparkSession, bootstrap: str) -> list[dict[str, Any]]:
    """Query 3, a batch read: how many flights of each origin have no weather in their hour."""

    def table(topic: str, schema: str) -> DataFrame:
        rows = (
            spark.read.format("barnabas").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic).load()
        )
        return parsed(rows, schema)

    missing = table("flights", FLIGHT).join(table("weather", WEATHER), ["origin", "hour"], "left_anti")
    return [row.asDict() for row in missing.groupBy("origin").count().orderBy("origin").collect()]


def finish(query: StreamingQuery) -> None:
    """Wait for an availableNow query; raises its failure, or TimeoutError."""
    if not query.awaitTermination(QUERY_TIMEOUT_S):
        query.stop()
        raise TimeoutError(f"query {query.name or query.id} did not end within {QUERY_TIMEOUT_S} s")


if __name__ == "__main__":
    sys.exit(main())
