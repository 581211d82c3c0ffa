"""What runs in a Spark task: fetch one offset range from the partition's leader and yield it as Arrow.

May touch:  client.py, the decoder, one thread that fetches ahead.   Must not touch: gRPC, Spark's driver.
Invariants: a range is read whole or the task fails; offsets that hold no record (control batches, compaction) are passed
    over; what is missing below the log's start or beyond its end is data loss, and failOnDataLoss decides; the client is used
    by one thread at a time.
Read next:  decoder.py.
"""

from __future__ import annotations

import functools
import gc
import logging
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from barnabas_wire.client.metadata import UNKNOWN_TOPIC_CODES, FetchedRecords
from barnabas_wire.kafka.errors import ErrorCode
from pyspark_barnabas.client import SourceClient, SourceError, connected
from pyspark_barnabas.in_words import InWords
from pyspark_barnabas.kafka_properties import FETCH_BYTES_MIN
from pyspark_barnabas.offsets import SourcePartition
from pyspark_barnabas.options import EARLIEST, LATEST, SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_barnabas.decoder import FetchPlan, RecordDecoder

logger = logging.getLogger(__name__)

RECORD_BYTES_GUESSED = 1024
"""Bytes of a record until the first fetch has shown them: a short range must not fetch megabytes that it throws away."""

REFUSALS_MAX = 30
REFUSAL_RETRY_S = 0.1
"""How often, and after what pause, an offset is asked for again that a leader refused and that the cluster says is there."""


class DataLossError(InWords, RuntimeError):
    """Offsets that the query was to read are gone."""


class Range(Protocol):
    """Offsets start … end − 1 of one partition of the topic with that id (None: whatever bears the name)."""

    @property
    def topic(self) -> str: ...

    @property
    def topic_id(self) -> str | None: ...

    @property
    def partition(self) -> int: ...

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...


def read_range(wanted: Range, options: SourceOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield every record of the range.

    Raises DataLossError when part of it is gone and failOnDataLoss is true, SourceError when the cluster does not answer or
    nothing came within kafkaConsumer.pollTimeoutMs, ImportError that says what to install.
    """
    from pyspark_barnabas.spark_versions import arrow_schema

    try:
        from pyspark_barnabas.decoder import RecordDecoder
    except ImportError as error:
        raise lacking(error) from error
    spare_the_collector()
    decoder = RecordDecoder(
        topic=wanted.topic,
        partition=wanted.partition,
        schema=arrow_schema(schema),
    )
    for at, records, plan in _fetches(wanted, options, decoder):
        yield from decoder.decode(records, plan, start=at, end=wanted.end)


def lacking(error: ImportError) -> ImportError:
    """The error of a worker that cannot load what decodes."""
    return ImportError(
        f"format barnabas decodes in Spark's Python workers, and theirs lacks a library ({error}): "
        "pip install 'barnabas[spark]' there"
    )


@functools.cache
def spare_the_collector() -> None:
    """Once a worker, after its imports: Spark's daemon has every worker collect after each task, which looked at all that numba,
    numpy and pyarrow had made, 70 ms each time, and freed none of it."""
    gc.freeze()


def _fetches(
    wanted: Range, options: SourceOptions, decoder: RecordDecoder
) -> Iterator[tuple[int, memoryview, FetchPlan]]:
    """(offset asked for, bytes, plan) of each fetch; while one is decoded the next is under way."""
    client = connected(options.cluster)
    part = SourcePartition(wanted.topic, wanted.partition)
    patience_s = options.poll_timeout_ms / 1000
    record_bytes = float(RECORD_BYTES_GUESSED)
    at = wanted.start
    silent_since: float | None = None
    refusals = 0

    bytes_limit = options.cluster.fetch_bytes_max

    def fetch(offset: int) -> FetchedRecords:
        guess = int((wanted.end - offset) * record_bytes)
        bytes_max = min(max(FETCH_BYTES_MIN, guess), bytes_limit)
        return client.fetch(part, offset, topic_id=wanted.topic_id, bytes_max=bytes_max, patience_s=patience_s)

    with ThreadPoolExecutor(1, thread_name_prefix=f"fetch-{part}") as ahead:
        under_way: Future[FetchedRecords] | None = None
        while at < wanted.end:
            try:
                fetched = fetch(at) if under_way is None else under_way.result()
            except SourceError as error:
                going_on = _after_loss(error, client, wanted, at, options)
                under_way = None
                if going_on == at:
                    refusals += 1
                    if refusals > REFUSALS_MAX:
                        raise
                    time.sleep(REFUSAL_RETRY_S)
                at = going_on
                continue
            records = fetched.records
            plan = decoder.plan(records, start=at, end=wanted.end, aborted=fetched.aborted)
            if plan.next_offset > at:
                record_bytes = len(records) / (plan.next_offset - at)
                silent_since = None
            elif silent_since is None:
                silent_since = time.monotonic()
            elif time.monotonic() - silent_since > patience_s:
                raise SourceError(
                    f"{part} gave nothing at offset {at} (up to {wanted.end}) for {options.poll_timeout_ms} ms "
                    "(kafkaConsumer.pollTimeoutMs)",
                    ErrorCode.REQUEST_TIMED_OUT,
                )
            under_way = ahead.submit(fetch, plan.next_offset) if plan.next_offset < wanted.end else None
            if plan.batches:
                yield at, records, plan
            at = plan.next_offset


def _after_loss(error: SourceError, client: SourceClient, wanted: Range, at: int, options: SourceOptions) -> int:
    """Where to continue after the leader refused offset `at`: there again if it is not gone, else behind what is.

    Raises DataLossError when it is gone and that is fatal, `error` when it is about something else.
    """
    part, end = SourcePartition(wanted.topic, wanted.partition), wanted.end
    if error.code in UNKNOWN_TOPIC_CODES:
        # A broker that has just started may not know a topic that is there: the cluster's metadata decides.
        found = client.topics([part.topic], may_be_missing=True).get(part.topic)
        if found is not None and wanted.topic_id in (None, found.id) and part.partition in found.partitions:
            return at
        what, going_on = f"{part} is gone, or its topic was made again, before offsets {at} to {end} were read", end
    elif error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
        earliest = client.list_offsets({part: EARLIEST})[part]
        latest = client.list_offsets({part: LATEST})[part]
        if earliest > at:
            what, going_on = f"{part} begins at {earliest}, offsets from {at} on were removed", min(earliest, end)
        elif latest >= end:
            return at  # asked of a leader that was just elected, or was just deposed
        else:
            what, going_on = f"{part} ends before offset {at}, but was to be read up to {end}", end
    else:
        raise error
    if options.is_data_loss_fatal:
        raise DataLossError(f"{what}. Set failOnDataLoss=false to go on with what is there") from error
    logger.warning("%s; going on at %d as failOnDataLoss=false", what, going_on)
    return going_on
