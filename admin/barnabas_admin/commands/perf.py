"""`barnabas perf`: how much a cluster takes and gives, and how long a record takes.

May touch:  the brokers.              Must not touch: topics beyond those named (none is created).
Invariants: what was written stays: a topic for it is the user's to make and to delete.
Read next:  ../load.py.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from barnabas_admin.commands.records import ACKS
from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options
from barnabas_admin.output import print_json, print_table, talk
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas_admin.load import Measured
    from barnabas_wire.client.cluster import ClusterClient

DURATION_S = 10.0
SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99_9": 0.999}

duration_option = click.option(
    "-d", "--duration", "duration_s", type=click.FloatRange(min=0.1), metavar="SECONDS", help="End after so long."
)
records_option = click.option("-n", "--records", type=click.IntRange(min=1), help="End once it was so many records.")


@click.command()
@click.argument("topic", metavar="TOPIC")
@records_option
@duration_option
@click.option(
    "-s", "--record-size", "record_bytes", type=click.IntRange(1, 1 << 20), default=100, help="Bytes; default 100."
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="RECORDS/S",
    help="Default: as fast as it goes, which shows the throughput; times mean something at a rate below that.",
)
@click.option(
    "--batch-size",
    "batch_bytes",
    type=click.IntRange(1, 1 << 20),
    default=16384,
    help="Most bytes of a batch; default 16384.",
)
@click.option(
    "--linger",
    "linger_ms",
    type=click.FloatRange(min=0.1),
    default=5.0,
    metavar="MS",
    help="With --rate: how long records wait for others; default 5.",
)
@click.option("--acks", type=click.Choice(list(ACKS)), default="all", help="Who must have a record; default all.")
@click.option(
    "-z", "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none", help="Codec."
)
@common_options
def produce(
    invocation: Invocation,
    topic: str,
    records: int | None,
    duration_s: float | None,
    record_bytes: int,
    rate: float | None,
    batch_bytes: int,
    linger_ms: float,
    acks: str,
    compression: str,
) -> None:
    """Write records to a topic and show rate and times.

    For 10 seconds unless -n or -d says otherwise. A record's time is from when it was due until it was acknowledged. The records stay in
    the topic: make one for this.
    """
    from barnabas_admin.kafka import run_with_cluster
    from barnabas_admin.load import WriteLoad, Writer
    from barnabas_wire.records.compression import CompressionType

    load = WriteLoad(
        record_bytes=record_bytes,
        batch_bytes=batch_bytes,
        rate=rate,
        linger_s=linger_ms / 1000,
        records_max=records,
        duration_s=duration_s if duration_s or records else DURATION_S,
        acks=ACKS[acks],
        compression=CompressionType[compression.upper()],
    )

    async def work(client: ClusterClient) -> Measured:
        partitions = await partitions_of(client, topic)
        return await Writer(client, partitions, load).run(_progress("written"))

    measured = run_with_cluster(invocation, work)
    _end_progress()
    fields = {"topic": topic, "record_bytes": record_bytes, "acks": acks, "compression": compression, "rate": rate}
    _print(invocation, measured, fields, "acknowledged")


@click.command()
@click.argument("topic", metavar="TOPIC")
@records_option
@duration_option
@click.option(
    "--fetch-size",
    "fetch_bytes",
    type=click.IntRange(min=1),
    default=1 << 20,
    help="Most bytes of a fetch of one partition; default 1048576.",
)
@common_options
def consume(
    invocation: Invocation, topic: str, records: int | None, duration_s: float | None, fetch_bytes: int
) -> None:
    """Read a topic from its start to where its end was, and show rate and times.

    All partitions at once, one fetch of each at a time; times are those of fetches. Every batch's CRC is checked; records are counted, not
    opened.
    """
    from barnabas_admin.kafka import run_with_cluster
    from barnabas_admin.load import Reader
    from barnabas_wire.client.metadata import EARLIEST, LATEST

    damaged = 0

    async def work(client: ClusterClient) -> Measured:
        nonlocal damaged
        partitions = await partitions_of(client, topic)
        starts = await client.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = await client.list_offsets(dict.fromkeys(partitions, LATEST))
        reader = Reader(client, fetch_bytes=fetch_bytes, records_max=records)
        ranges = {p: (int(starts[p].offset), int(ends[p].offset)) for p in partitions}
        done = await reader.run(ranges, _progress("read"), duration_s=duration_s)
        damaged = reader.damaged
        return done

    measured = run_with_cluster(invocation, work)
    _end_progress()
    _print(invocation, measured, {"topic": topic, "fetch_bytes": fetch_bytes, "damaged_batches": damaged}, "fetched")
    if damaged:
        raise AdminError(
            f"{damaged} batches do not fit their CRC",
            code=ErrorCode.CORRUPT_MESSAGE,
            hint="see `barnabas cluster health`, and `barnabas log verify DIRECTORY` on the brokers",
        )


async def partitions_of(client: ClusterClient, topic: str) -> list[TopicPartition]:
    """All of the topic's. Raises AdminError when it does not exist."""
    from barnabas_admin.kafka import is_topic_known

    if not await is_topic_known(client, topic):
        raise AdminError(
            f"topic {topic!r} does not exist",
            code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            hint=f"`barnabas topic create {topic} -p 3` makes it",
        )
    return [TopicPartition(topic, index) for index in sorted((await client.metadata([topic])).topics[topic])]


def _progress(verb: str) -> Any:
    """A line on stderr that is renewed, where somebody watches."""

    def show(measured: Measured) -> None:
        if sys.stderr.isatty():
            text = f"{measured.records} records {verb}, {measured.records_per_s:,.0f}/s, {measured.mb_per_s:.1f} MB/s"
            print(f"\r\x1b[2K{text}", end="", file=sys.stderr, flush=True)

    return show


def _end_progress() -> None:
    if sys.stderr.isatty():
        print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def _print(invocation: Invocation, measured: Measured, fields: dict[str, Any], what: str) -> None:
    times = {name: measured.times.quantile_ms(share) for name, share in SHARES.items()}
    longest = round(measured.times.longest_s * 1000, 3) if measured.times.total else None
    if invocation.is_json:
        print_json(
            {
                **fields,
                "records": measured.records,
                "bytes": measured.size_bytes,
                "requests": measured.requests,
                "seconds": round(measured.span_s, 3),
                "records_per_s": round(measured.records_per_s, 1),
                "mb_per_s": round(measured.mb_per_s, 3),
                "times_ms": {**times, "max": longest},
            }
        )
        return
    columns = ["RECORDS", "SECONDS", "RECORDS/S", "MB/S", "REQUESTS", "P50", "P95", "P99", "P99.9", "MAX"]
    row = [
        measured.records,
        f"{measured.span_s:.1f}",
        f"{measured.records_per_s:.0f}",
        f"{measured.mb_per_s:.1f}",
        measured.requests,
        *(None if time_ms is None else f"{time_ms:.1f}ms" for time_ms in (*times.values(), longest)),
    ]
    print_table(columns, [row])
    if not measured.records:
        talk(f"{fields['topic']}: nothing was {what}")
