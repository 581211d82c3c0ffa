"""The demo's Spark job: two streaming queries over Barnabas topics, and two batch ones, in a process of its own.

Usage: python job.py BOOTSTRAP OUTPUT_DIRECTORY [OPTIONS], a file with options of source and sink, one a line. Opens no gRPC channel;
knows nothing but Kafka addresses. Says on standard output how far it is, one line at a time, and when it fails why (`failed: …`);
results are in OUTPUT_DIRECTORY/results.json.

Query 1 (stream, complete mode): departures and mean departure delay per origin and day, written back into the topic `departures` exactly
once: each micro-batch writes all that is known by then, with its own time.
Query 2 (stream, append mode): every flight joined to the weather of its origin and hour.
Then in batch: delays by rain and visibility, from what query 2 wrote; flights whose hour has no weather.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_barnabas import configure

FLIGHT = "carrier string, flight int, origin string, dest string, tailnum string, dep_time int, dep_delay double, time_hour string"
WEATHER = "origin string, temp double, wind_speed double, precip double, visib double, time_hour string"
FLIGHTS_PER_TRIGGER = 120_000
WEATHER_PER_TRIGGER = 9_400
"""The same share of each topic, so that both streams walk through the year together."""
DEPARTURES = "departures"
"""Topic that query 1 writes to."""
WATERMARK = "30 days"
QUERY_TIMEOUT_S = 300
RAIN = "CASE WHEN precip >= 0.3 THEN 'heavy' WHEN precip >= 0.1 THEN 'moderate' WHEN precip > 0 THEN 'light' ELSE 'none' END"
"""Inches in the hour of departure."""
VISIBILITY = "CASE WHEN visib >= 10 THEN '10 and more' WHEN visib >= 3 THEN '3 to 10' WHEN visib >= 1 THEN '1 to 3' ELSE 'under 1' END"
"""Miles."""
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "3g",
    # A job of a minute on two cores: the second compiler costs more than it gives (measured: 49 CPU seconds instead of 63).
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "America/New_York",
}


def main() -> int:
    """Run the queries; returns the exit status."""
    output = Path(sys.argv[2])
    client = {"kafka.bootstrap.servers": sys.argv[1]}
    if len(sys.argv) > 3:
        client |= dict(line.split("=", 1) for line in Path(sys.argv[3]).read_text(encoding="utf-8").splitlines())
    started = time.monotonic()
    builder = SparkSession.builder.master("local[2]").appName("barnabas-demo")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    session_s = time.monotonic() - started
    say(f"Spark {spark.version} is up after {session_s:.0f} s")

    by_day, behind, first_s = departures(spark, client, output)
    join = flights_with_weather(spark, client, output)
    batch_started = time.monotonic()
    missing = flights_without_weather(spark, client)
    result = {
        "departures": by_day,
        "records_behind": behind,
        **join,
        "without_weather": missing,
        "seconds": {
            "session": session_s,
            "departures": first_s,
            "join": join["seconds"],
            "batch": time.monotonic() - batch_started,
            "all": time.monotonic() - started,
        },
        "grpc_was_imported": any(name == "grpc" or name.startswith("grpc.") for name in sys.modules),
    }
    (output / "results.json").write_text(json.dumps(result, default=str))
    spark.stop()
    return 0


def say(text: str) -> None:
    """One line for whoever started this."""
    print(text, flush=True)


def stream(spark: SparkSession, client: dict[str, str], topic: str, per_trigger: int) -> DataFrame:
    """A topic as a stream, from its first record."""
    return (
        spark.readStream.format("barnabas")
        .options(**client)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", per_trigger)
        .load()
    )


def parsed(rows: DataFrame, schema: str) -> DataFrame:
    """The JSON values as columns, with the hour as a timestamp."""
    value = F.from_json(F.col("value").cast("string"), schema).alias("row")
    return rows.select(value).select("row.*").withColumn("hour", F.to_timestamp("time_hour"))


def departures(spark: SparkSession, client: dict[str, str], output: Path) -> tuple[list[dict[str, Any]], int, float]:
    """Query 1: rows of (origin, day, departures, mean_delay) as the topic has them last, records it is behind, and seconds."""
    started = time.monotonic()
    flown = parsed(stream(spark, client, "flights", FLIGHTS_PER_TRIGGER), FLIGHT).where("dep_time is not null")
    per_day = flown.groupBy("origin", F.to_date("hour").alias("day")).agg(
        F.count("*").alias("departures"), F.avg("dep_delay").alias("mean_delay")
    )
    columns = ("origin", "day", "departures", "mean_delay")
    query = (
        per_day.select(
            F.concat_ws(" ", "origin", "day").alias("key"),
            F.to_json(F.struct(*columns, F.current_timestamp().alias("batch"))).alias("value"),
        )
        .writeStream.outputMode("complete")
        .format("barnabas")
        .options(**client)
        .option("topic", DEPARTURES)
        .option("mode", "exactly_once")
        .option("transactionalIdPrefix", "demo-departures")
        .option("checkpointLocation", str(output / "checkpoint-departures"))
        .trigger(availableNow=True)
        .start()
    )
    behind = finish(query, "query 1 (departures per origin and day)")
    written = spark.read.format("barnabas").options(**client).option("subscribe", DEPARTURES)
    last = written.load().groupBy("key").agg(F.max_by(F.col("value").cast("string"), "offset").alias("value"))
    row = F.from_json("value", "origin string, day date, departures long, mean_delay double").alias("row")
    rows = [found.asDict() for found in last.select(row).select("row.*").orderBy("origin", "day").collect()]
    return rows, behind, time.monotonic() - started


def flights_with_weather(spark: SparkSession, client: dict[str, str], output: Path) -> dict[str, Any]:
    """Query 2: how many rows were joined and how many dropped as late, delays by rain and visibility, seconds."""
    started = time.monotonic()
    flights = parsed(stream(spark, client, "flights", FLIGHTS_PER_TRIGGER), FLIGHT).withWatermark("hour", WATERMARK)
    weather = (
        parsed(stream(spark, client, "weather", WEATHER_PER_TRIGGER), WEATHER)
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
    finish(query, "query 2 (flights joined to weather)")
    dropped = sum(
        operator["numRowsDroppedByWatermark"] for p in query.recentProgress for operator in p["stateOperators"]
    )
    written = spark.read.parquet(str(output / "flights_with_weather")).cache()

    def delays(by: str) -> list[dict[str, Any]]:
        flown = written.where("dep_delay is not null").groupBy(F.expr(by).alias("weather"))
        figures = flown.agg(F.count("*").alias("departures"), F.avg("dep_delay").alias("mean_delay"))
        return [row.asDict() for row in figures.orderBy(F.desc("departures")).collect()]

    return {
        "joined_rows": written.count(),
        "rows_dropped_as_late": dropped,
        "by_rain": delays(RAIN),
        "by_visibility": delays(VISIBILITY),
        "seconds": time.monotonic() - started,
    }


def flights_without_weather(spark: SparkSession, client: dict[str, str]) -> list[dict[str, Any]]:
    """A batch read of both topics: how many flights of each origin have no weather in their hour."""

    def table(topic: str, schema: str) -> DataFrame:
        rows = spark.read.format("barnabas").options(**client).option("subscribe", topic).load()
        return parsed(rows, schema)

    missing = table("flights", FLIGHT).join(table("weather", WEATHER), ["origin", "hour"], "left_anti")
    rows = [row.asDict() for row in missing.groupBy("origin").count().orderBy("origin").collect()]
    say("batch read of both topics: flights without weather counted")
    return rows


def records_behind(progress: Any) -> int:
    """How many records the sources have beyond what the micro-batch read."""

    def total(offsets: str) -> int:
        return sum(at for parts in json.loads(offsets).values() for index, at in parts.items() if index.isdecimal())

    return sum(total(source["latestOffset"]) - total(source["endOffset"]) for source in progress["sources"])


def finish(query: StreamingQuery, name: str) -> int:
    """Wait for an availableNow query and print its micro-batches; returns how many records it is behind in the end.

    Raises its failure, or TimeoutError.
    """
    deadline = time.monotonic() + QUERY_TIMEOUT_S
    reported: set[int] = set()
    rows = behind = 0
    is_over = False
    while not is_over:
        is_over = bool(query.awaitTermination(0.2))  # type: ignore[arg-type]  # it takes fractions of a second
        for progress in query.recentProgress:
            if progress["batchId"] not in reported and progress["numInputRows"]:
                reported.add(progress["batchId"])
                rows += progress["numInputRows"]
                seconds = progress["durationMs"]["triggerExecution"] / 1000
                behind = records_behind(progress)
                say(
                    f"{name}: micro-batch {len(reported)}, {rows:,} rows so far, {behind:,} records behind, {seconds:.1f} s"
                )
        if not is_over and time.monotonic() > deadline:
            query.stop()
            raise TimeoutError(f"{name} did not end within {QUERY_TIMEOUT_S} s")
    return behind


def reason(error: Exception) -> str:
    """One line that says why the job failed."""
    gateway = SparkContext._gateway
    status = gateway.proc.poll() if gateway is not None and gateway.proc is not None else None
    if status is not None:
        return f"Spark's JVM ended with status {status}"
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception as error:
        traceback.print_exc()
        say(f"failed: {reason(error)}")
        sys.exit(1)
