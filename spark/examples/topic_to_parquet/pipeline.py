"""Keeps a topic as Parquet files, each record once, and puts the small files of micro-batches together into large ones.

    python pipeline.py --brokers 127.0.0.1:9092 --source events --directory /tmp/events --checkpoint /tmp/events-checkpoint

Needs barnabas[spark] and Java. Stop it or kill it at any time: started again with the same checkpoint it continues. It reads what is there
and ends (for a job that runs every hour); with --follow it continues for ever.

Files lie in DIRECTORY/FIRST-LAST, the micro-batches that they have. A micro-batch that is run again replaces its own directory; one that
lies within another, since the program died between putting together and removing, is removed first.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pyspark_barnabas import configure

STAGING = "_staging"
"""Spark passes over names that begin with an underscore."""


class Store:
    """The directories of a topic, each named after the micro-batches that it has."""

    def __init__(self, directory: Path, merge: int) -> None:
        """merge: how many directories of single micro-batches are put together."""
        self._directory = directory
        self._merge = merge
        directory.mkdir(parents=True, exist_ok=True)

    def write(self, rows: DataFrame, batch: int) -> None:
        """Keep a micro-batch, once however often it comes; then put together what has become many."""
        self.tidy()
        if any(first <= batch <= last for first, last in self.parts() if last > first):
            return  # put together already
        self._replace(rows.coalesce(1), batch, batch)
        single = [first for first, last in self.parts() if first == last]
        if len(single) >= self._merge:
            paths = [str(self._path(at, at)) for at in single]
            self._replace(rows.sparkSession.read.parquet(*paths).coalesce(1), single[0], single[-1])
            self.tidy()

    def parts(self) -> list[tuple[int, int]]:
        """(first, last) micro-batch of each directory."""
        names = [path.name for path in self._directory.iterdir() if not path.name.startswith("_")]
        return sorted((int(first), int(last)) for first, _, last in (name.partition("-") for name in names))

    def tidy(self) -> None:
        """Remove what lies within another directory, and what was not finished."""
        shutil.rmtree(self._directory / STAGING, ignore_errors=True)
        found = self.parts()
        for first, last in found:
            if any(begin <= first and last <= end and (begin, end) != (first, last) for begin, end in found):
                shutil.rmtree(self._path(first, last))

    def _path(self, first: int, last: int) -> Path:
        return self._directory / f"{first:012d}-{last:012d}"

    def _replace(self, rows: DataFrame, first: int, last: int) -> None:
        staged, path = self._directory / STAGING, self._path(first, last)
        rows.write.mode("overwrite").parquet(str(staged))
        shutil.rmtree(path, ignore_errors=True)
        staged.rename(path)


def main() -> None:
    """Read the command line, run the query."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--brokers", required=True, metavar="HOST:PORT,…")
    parser.add_argument("--source", required=True)
    parser.add_argument("--directory", required=True, type=Path)
    parser.add_argument("--checkpoint", required=True, help="directory that outlives this program")
    parser.add_argument("--master", default="local[2,4]", help="a failed task is tried four times")
    parser.add_argument("--per-trigger", default="10000", help="most records of a micro-batch")
    parser.add_argument("--merge", type=int, default=8, help="so many micro-batches become one file")
    parser.add_argument("--follow", action="store_true")
    options = parser.parse_args()

    spark = configure(SparkSession.builder.master(options.master).appName("topic-to-parquet")).getOrCreate()
    events = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", options.brokers)
        .option("subscribe", options.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.per_trigger)
        .load()
    )
    store = Store(options.directory, options.merge)
    writer = events.writeStream.foreachBatch(store.write).option("checkpointLocation", options.checkpoint)
    query = (writer if options.follow else writer.trigger(availableNow=True)).start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
