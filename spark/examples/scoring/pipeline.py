"""Learns from what a topic has so far, then scores what comes in another, in vectorised Python.

    python pipeline.py --brokers 127.0.0.1:9092 --training trips-done --source trips --target estimated --checkpoint /tmp/estimated

Needs barnabas[spark] and Java. Stop it or kill it at any time: started again with the same checkpoint it continues with the same model, and
each trip is in the target once. It reads what is there and ends; with --follow it continues for ever.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf

from pyspark_barnabas import configure
from pyspark_barnabas.json_values import from_json_schema


def trained(done: DataFrame) -> list[float]:
    """Minutes of a trip as a + b·km + c·stops, by least squares over a batch read."""
    frame = from_json_schema(done, schema="km double, stops int, minutes double", into="trip").select("trip.*")
    rows: Any = frame.toPandas()
    features = np.column_stack([np.ones(len(rows)), rows["km"], rows["stops"]])
    found, *_ = np.linalg.lstsq(features, rows["minutes"].to_numpy(), rcond=None)
    return [float(value) for value in found]


def model_of(place: Path, done: DataFrame) -> list[float]:
    """The model of this query: made once, kept beside the checkpoint, so that a restart scores as before."""
    if place.exists():
        return [float(value) for value in json.loads(place.read_text())]
    model = trained(done)
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = place.with_suffix(".new")
    unfinished.write_text(json.dumps(model))
    unfinished.rename(place)
    return model


def scoring(model: list[float]) -> Any:
    """A function of columns that scores a whole Arrow batch at once; the model travels with it."""

    def minutes(km: pd.Series, stops: pd.Series) -> pd.Series:
        return model[0] + model[1] * km + model[2] * stops

    return pandas_udf(minutes, "double")  # type: ignore[call-overload]


def estimated(trips: DataFrame, model: list[float]) -> DataFrame:
    """key: as it came; value: JSON of the trip and its estimate."""
    events = from_json_schema(trips, schema="km double, stops int", into="trip")
    score: Column = scoring(model)("trip.km", "trip.stops")
    value = F.to_json(F.struct("trip.km", "trip.stops", score.alias("minutes")))
    return events.select("key", value.alias("value"))


def main() -> None:
    """Read the command line, train or load, run the query."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--brokers", required=True, metavar="HOST:PORT,…")
    parser.add_argument("--training", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--checkpoint", required=True, help="directory that outlives this program")
    parser.add_argument("--master", default="local[2,4]", help="a failed task is tried four times")
    parser.add_argument("--per-trigger", default="10000", help="most records of a micro-batch")
    parser.add_argument("--follow", action="store_true")
    options = parser.parse_args()

    spark = configure(SparkSession.builder.master(options.master).appName("scoring")).getOrCreate()
    done = (
        spark.read.format("barnabas")
        .option("kafka.bootstrap.servers", options.brokers)
        .option("subscribe", options.training)
        .option("columns", "value,topic,partition,offset")
        .load()
    )
    model = model_of(Path(options.checkpoint + "-model.json"), done)
    trips = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", options.brokers)
        .option("subscribe", options.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.per_trigger)
        .load()
    )
    writer = (
        estimated(trips, model)
        .writeStream.format("barnabas")
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
