"""A history that both brokers write before the tests begin, on disk when both are stopped cleanly.

May touch:  a Side; files of brokers that do not run.    Must not touch: files of brokers that run.
Invariants: both sides get the same batches, so their files may differ only in the topic's id.
Read next:  test_files.py; conftest.py, which stops, exchanges and starts again.
"""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

from barnabas_log.directories.checkpoints import RECOVERY_POINTS_FILE
from barnabas_wire.records.batch import Record, build_batch
from barnabas_wire.records.compression import CompressionType
from tests.oracle.answers import Side
from tests.oracle.cases.produce import produce

KEPT = "kept"
"""Each side goes on with what it wrote."""
EXCHANGED = "exchanged"
"""Each side goes on with what the other wrote."""
TORN = "torn"
"""Each side goes on with what a power cut could have left: the last batch cut off, the last indexes gone."""
TOPICS = (KEPT, EXCHANGED, TORN)
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
TORN_BYTES = 1000
BATCHES = 150
BATCH_RECORDS = 20
RECORDS = BATCHES * BATCH_RECORDS
PRODUCER_ID = 1_000_000
STARTED_MS = int(time.time() * 1000) - 3_600_000
"""Lately: Kafka forgets a producer whose records are a day old when it starts."""
OWN_FILES = ("partition.metadata", "topic-id.witness")
"""Say which topic it is, by id."""


def write(side: Side) -> None:
    """All topics: four segments, every compression, an idempotent producer, times that rise, fall and stand still."""
    for topic in TOPICS:
        random = Random(7)
        side.topic(topic, segment_bytes=str(1 << 20))
        for number in range(BATCHES):
            assert produce(side, topic, batch_of(number, random)).error_code == 0


def batch_of(number: int, random: Random) -> bytes:
    """The batch of that number: every third is large, the others so small that the sparse index leaves some of them out."""
    started_ms = STARTED_MS + 1000 * (number - 3 * (number % 7))
    size = 1800 if number % 3 == 0 else 60
    records = [
        Record(index, started_ms + 10 * (index % 5), b"%d" % index, random.randbytes(size).hex().encode())
        for index in range(BATCH_RECORDS)
    ]
    return build_batch(
        records,
        compression=list(CompressionType)[number % len(CompressionType)],
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        base_sequence=number * BATCH_RECORDS,
    )


def files_of(data: Path, topic: str) -> dict[str, bytes]:
    """The partition's files as a stopped broker left them, without those that name the topic's id."""
    directory = data / f"{topic}-0"
    files = (path for path in sorted(directory.iterdir()) if path.is_file() and path.name not in OWN_FILES)
    return {path.name: path.read_bytes() for path in files}


def exchange(theirs: Path, ours: Path, *, topic: str = EXCHANGED) -> None:
    """Give each stopped broker the other's files of a topic's one partition."""
    first, second = files_of(theirs, topic), files_of(ours, topic)
    for data, old, new in ((theirs, first, second), (ours, second, first)):
        for name in old:
            (data / f"{topic}-0" / name).unlink()
        for name, content in new.items():
            (data / f"{topic}-0" / name).write_bytes(content)


def tear(data: Path) -> None:
    """Make the stopped broker's directory one that was not shut down, and tear TORN-0."""
    (data / CLEAN_SHUTDOWN_FILE).unlink()
    segment = max((data / f"{TORN}-0").glob("*.log"))
    segment.write_bytes(segment.read_bytes()[:-TORN_BYTES])
    for suffix in (".index", ".timeindex"):
        segment.with_suffix(suffix).unlink()
    # Nor can a power cut take what the disk had confirmed: below its recovery point Barnabas keeps a range as damaged.
    points = data / RECOVERY_POINTS_FILE
    flushed = f"{TORN} 0 {int(segment.stem)}"
    lines = [flushed if line.startswith(f"{TORN} 0 ") else line for line in points.read_text().splitlines()]
    points.write_text("\n".join(lines) + "\n")
