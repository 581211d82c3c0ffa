"""`barnabas topic produce` and `topic consume`: records from lines, and lines from records.

May touch:  standard input and output, the file named, the brokers.     Must not touch: the admin service beyond finding the brokers.
Invariants: with acks=all a line is written exactly once (producer id and sequence), or the command fails; what consume
            prints with -o json, produce reads with --input jsonl; bytes that are no UTF-8 travel as base64; no mistyped name
            becomes a topic.
Read next:  ../kafka.py.

Differs from Kafka's console producer, which creates a topic that does not exist: here --create says that it is meant.
"""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
import contextlib
import itertools
import json
import os
import random
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options
from barnabas_admin.output import API_VERSION, print_json, talk
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas_wire.client.cluster import ClusterClient
    from barnabas_wire.records.batch import Record

READ_BYTES = 256 * 1024
INPUT_PIECES_MAX = 2
"""Pieces of input that wait while the brokers are slower than the input."""
LINE_BYTES_MAX = 16 * 1024 * 1024
BATCH_BYTES_MAX = 512 * 1024
FETCH_BYTES_MAX = 1024 * 1024
IDLE_PAUSE_S = 0.1
ACKS = {"all": -1, "1": 1, "0": 0}
Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(slots=True)
class Line:
    """One record to be: what a line of input says."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None = None
    timestamp_ms: int | None = None


@click.command()
@click.argument("topic", metavar="TOPIC")
@click.option("-k", "--key-separator", metavar="TEXT", help="Split each line: key, separator, value.")
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Header of each record; repeatable."
)
@click.option("-p", "--partition", type=click.IntRange(min=0), help="Write to this partition; default: by key.")
@click.option("--acks", type=click.Choice(list(ACKS)), default="all", help="Who must have the record; default all.")
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    help="Compression of the batches; default none.",
)
@click.option(
    "--create", "is_creating", is_flag=True, help="Create a topic that does not exist, with the cluster's defaults."
)
@click.option(
    "--input",
    "form",
    type=click.Choice(["text", "jsonl"]),
    default="text",
    help="Lines of text, or as consume -o json prints.",
)
@click.option(
    "-f",
    "--from-file",
    "source",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Not standard input.",
)
@common_options
def produce(
    invocation: Invocation,
    topic: str,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    acks: str,
    compression: str,
    is_creating: bool,
    form: str,
    source: str | None,
) -> None:
    """Write a record for every line of standard input, or of a file.

    A topic that does not exist is refused, for its name may be mistyped; --create has the brokers create it, where they allow
    it (auto.create.topics.enable).
    """
    from barnabas_admin.commands.topic import parse_pairs
    from barnabas_admin.kafka import run_with_cluster

    if key_separator == "":
        raise click.UsageError("-k: the separator is empty; name the text between key and value, such as -k :")
    fixed: Headers = tuple((name, value.encode()) for name, value in parse_pairs(headers).items())
    separator = key_separator.encode() if key_separator is not None else None

    numbers = itertools.count(1)

    def parse(text: bytes) -> Line:
        number = next(numbers)
        line = parse_json_line(text) if form == "jsonl" else parse_text_line(text, separator, number)
        line.headers += fixed
        if partition is not None:
            line.partition = partition
        return line

    async def work(client: ClusterClient) -> Producer:
        producer = Producer(client, topic, acks=ACKS[acks], compression=compression)
        await producer.start(is_creating=is_creating)
        if partition is not None:
            producer.check_partition(partition)  # also when there is nothing to write
        rest = b""
        async for data in read_input() if source is None else read_file(source):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > LINE_BYTES_MAX:
                raise AdminError(f"a line of input is longer than {LINE_BYTES_MAX} bytes")
            await producer.send([parse(line) for line in lines])
        if rest:
            await producer.send([parse(rest)])
        return producer

    done = run_with_cluster(invocation, work)
    rows = [{"partition": index, **fields} for index, fields in sorted(done.written.items())]
    if invocation.is_json:
        print_json({"topic": topic, "records": done.records, "partitions": rows})
    else:
        where = ", ".join(f"{row['partition']}@{row['first_offset']}-{row['last_offset']}" for row in rows)
        talk(
            f"{topic}: {done.records} record{'s' if done.records != 1 else ''} written{f' ({where})' if where else ''}"
        )


async def read_input() -> AsyncIterator[bytes]:
    """Standard input in pieces, as they come. A daemon thread reads: the loop cannot wait for a file, and a thread of the
    loop's executor would hold up the end of the process (Ctrl-C) until the next line."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes | OSError] = asyncio.Queue(maxsize=INPUT_PIECES_MAX)

    def read() -> None:
        data: bytes | OSError = b"-"
        while data and not isinstance(data, OSError):
            try:
                data = os.read(sys.stdin.fileno(), READ_BYTES)
            except OSError as error:
                data = error
            try:
                asyncio.run_coroutine_threadsafe(pieces.put(data), loop).result()
            except (RuntimeError, concurrent.futures.CancelledError):
                return  # the loop has ended without us

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while True:
        data = await pieces.get()
        if isinstance(data, OSError):
            raise data
        if not data:
            return
        yield data


async def read_file(path: str) -> AsyncIterator[bytes]:
    """A file in pieces, while records of earlier ones are on their way. Raises OSError."""
    import aiofiles

    async with aiofiles.open(path, "rb") as file:
        while data := await file.read(READ_BYTES):
            yield data


class Producer:
    """Writes records of one topic; one batch per partition in flight. With acks=all it is idempotent (KIP-98)."""

    def __init__(self, client: ClusterClient, topic: str, *, acks: int, compression: str) -> None:
        from barnabas_wire.records.compression import CompressionType

        self._client = client
        self._topic = topic
        self._acks = acks
        self._compression = CompressionType[compression.upper()]
        self._partitions: list[int] = []
        self._keyless_at = 0
        self._producer_id = self._producer_epoch = -1
        self._sequences: dict[int, int] = {}
        self.records = 0
        self.written: dict[int, dict[str, int]] = {}
        """Partition -> first and last offset written."""

    async def start(self, *, is_creating: bool) -> None:
        """Learn the partitions, and get a producer id. A topic that does not exist is created (where brokers allow it) or
        raises AdminError."""
        from barnabas_admin.kafka import is_topic_known
        from barnabas_wire.client.metadata import known_code
        from barnabas_wire.kafka.messages.init_producer_id import InitProducerIdRequest

        is_new = not await is_topic_known(self._client, self._topic)
        if is_new and not is_creating:
            raise _unknown_topic(
                self._topic,
                hint=f"add --create, or see `barnabas topic create {self._topic}`; `barnabas topic list` shows the topics",
            )
        view = await self._client.metadata([self._topic], creates_topics=is_new)
        self._partitions = sorted(view.topics[self._topic])
        if is_new:
            count = len(self._partitions)
            talk(f"{self._topic}: created with {count} partition{'s' if count != 1 else ''}")
        self._keyless_at = random.randrange(len(self._partitions))
        if self._acks == -1:
            given = await self._client.call(InitProducerIdRequest(transactional_id=None))
            if given.error_code:
                raise KafkaError.of(known_code(given.error_code), "asking for a producer id")
            self._producer_id, self._producer_epoch = given.producer_id, given.producer_epoch

    def check_partition(self, index: int) -> None:
        """Raises AdminError when the topic does not have it."""
        if index not in self._partitions:
            raise AdminError(
                f"{self._topic} has no partition {index}",
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                hint=f"it has {len(self._partitions)}, counted from 0",
            )

    async def send(self, lines: Sequence[Line]) -> None:
        """Write the lines; returns when all are acknowledged. Records without a key change partition with every call."""
        if not lines:
            return
        shares: dict[int, list[Line]] = {}
        self._keyless_at = (self._keyless_at + 1) % len(self._partitions)
        for line in lines:
            shares.setdefault(self._partition_of(line), []).append(line)
        # Not a task group: the first error shall come out as it is; asyncio.run ends the other writes.
        await asyncio.gather(*(self._send_to(partition, share) for partition, share in shares.items()))

    def _partition_of(self, line: Line) -> int:
        from barnabas_wire.records.partitioning import partition_for_key

        if line.partition is not None:
            self.check_partition(line.partition)
            return line.partition
        if line.key is None:
            return self._partitions[self._keyless_at]
        return self._partitions[partition_for_key(line.key, len(self._partitions))]

    async def _send_to(self, partition: int, lines: Sequence[Line]) -> None:
        from barnabas_wire.records.batch import build_batch

        for records in _batches(lines):
            sequence = self._sequences.get(partition, 0)
            batch = build_batch(
                records,
                compression=self._compression,
                producer_id=self._producer_id,
                producer_epoch=self._producer_epoch,
                base_sequence=sequence if self._producer_id >= 0 else -1,
            )
            base = int(await self._client.produce(TopicPartition(self._topic, partition), batch, acks=self._acks))
            self._sequences[partition] = sequence + len(records)
            self.records += len(records)
            last = base + len(records) - 1 if base >= 0 else -1
            self.written.setdefault(partition, {"first_offset": base})["last_offset"] = last


def _batches(lines: Sequence[Line]) -> Iterator[list[Record]]:
    """Records of at most about BATCH_BYTES_MAX together, offsets counted from 0 as producers do."""
    from barnabas_wire.records.batch import Record

    now_ms = int(time.time() * 1000)
    batch: list[Record] = []
    size = 0
    for line in lines:
        line_size = len(line.key or b"") + len(line.value or b"")
        if batch and size + line_size > BATCH_BYTES_MAX:
            yield batch
            batch, size = [], 0
        timestamp_ms = now_ms if line.timestamp_ms is None else line.timestamp_ms
        batch.append(Record(len(batch), timestamp_ms, line.key, line.value, line.headers))
        size += line_size
    if batch:
        yield batch


def parse_text_line(text: bytes, separator: bytes | None, number: int) -> Line:
    """`value`, or `key<separator>value`. Raises AdminError for a line (its `number`) that should have a key and has none."""
    if separator is None:
        return Line(None, text, ())
    key, found, value = text.partition(separator)
    if not found:
        raise AdminError(
            f"line {number} has no {separator.decode()!r} between key and value: {text[:60].decode(errors='replace')!r}",
            hint="lines before it may be written already; correct it, or leave -k out to write lines without keys",
        )
    return Line(key, value, ())


def parse_json_line(text: bytes) -> Line:
    """A line as consume -o json prints it; offset is ignored, partition and timestamp are kept when present."""
    try:
        fields = json.loads(text)
        headers = tuple((header["name"], _from_json(header, "value")) for header in fields.get("headers", []))
        return Line(
            _from_json(fields, "key"),
            _from_json(fields, "value"),
            headers,
            fields.get("partition"),
            fields.get("timestamp_ms"),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        shown = text[:80].decode(errors="replace")
        raise AdminError(
            f"not a record in JSON: {shown!r} ({error})", hint="see `barnabas topic consume -o json`"
        ) from None


def _from_json(fields: dict[str, Any], name: str) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        return base64.b64decode(encoded, validate=True)
    text = fields.get(name)
    return None if text is None else str(text).encode()


@click.command()
@click.argument("topic", metavar="TOPIC")
@click.option("-n", "--count", type=click.IntRange(min=1), help="End after this many records.")
@click.option(
    "-p", "--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Only these; repeatable."
)
@click.option(
    "--offset", default="start", metavar="WHERE", help="start (default), end, N, -N (N before the end), @MS (time)."
)
@click.option("--from-beginning", "offset", flag_value="start", help="The same as --offset start.")
@click.option("-e", "--exit-at-end", is_flag=True, help="End at what is the end of the topic now.")
@click.option("-k", "--key-separator", metavar="TEXT", help="Print key, separator, value.")
@click.option(
    "-f",
    "--to-file",
    "target",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write there, not to standard output.",
)
@common_options
def consume(
    invocation: Invocation,
    topic: str,
    count: int | None,
    partitions: tuple[int, ...],
    offset: str,
    exit_at_end: bool,
    key_separator: str | None,
    target: str | None,
) -> None:
    """Print the records of a topic.

    In order within a partition, in no order between partitions. Waits for more until Ctrl-C, -n or -e ends it. With
    -o json one object per line; a key, value or header that is no UTF-8 comes as key_base64, value_base64.
    """
    from barnabas_admin.kafka import run_with_cluster

    parse_offset(offset)

    async def work(client: ClusterClient) -> None:
        consumer = Consumer(client, topic)
        await consumer.start(partitions, offset)
        left = count
        async with open_output(target) as write:
            while left != 0 and not (exit_at_end and consumer.is_at_end):
                found = (await consumer.poll())[:left]
                if left is not None:
                    left -= len(found)
                lines = [
                    format_record(topic, partition, record, key_separator, is_json=invocation.is_json)
                    for partition, record in found
                ]
                await write(b"".join(lines))
                if not found and not (exit_at_end and consumer.is_at_end):
                    await asyncio.sleep(IDLE_PAUSE_S)

    with contextlib.suppress(KeyboardInterrupt):
        run_with_cluster(invocation, work)


@contextlib.asynccontextmanager
async def open_output(path: str | None) -> AsyncIterator[Callable[[bytes], Awaitable[None]]]:
    """Where records go: the function that writes bytes to a new file, or to standard output. Raises OSError."""
    if path is not None:
        import aiofiles

        async with aiofiles.open(path, "wb") as file:

            async def write_to_file(data: bytes) -> None:
                await file.write(data)
                await file.flush()  # Ctrl-C loses nothing that was consumed

            yield write_to_file
        return

    async def write_to_stdout(data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()

    yield write_to_stdout


class Consumer:
    """Reads partitions of one topic in rounds. One round asks every partition without waiting, since a connection answers
    in order: a long poll of an idle partition would hold up the others."""

    def __init__(self, client: ClusterClient, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._positions: dict[int, int] = {}
        self._ends: dict[int, int] = {}

    @property
    def is_at_end(self) -> bool:
        """Whether everything was read that was there at the start."""
        return all(self._positions[index] >= end for index, end in self._ends.items())

    async def start(self, partitions: Sequence[int], offset: str) -> None:
        """Find where to begin. Raises AdminError for a partition that does not exist."""
        from barnabas_admin.kafka import is_topic_known
        from barnabas_wire.client.metadata import EARLIEST, LATEST

        if not await is_topic_known(self._client, self._topic):
            raise _unknown_topic(self._topic)
        view = await self._client.metadata([self._topic])
        known = view.topics[self._topic]
        missing = [index for index in partitions if index not in known]
        if missing:
            raise AdminError(
                f"{self._topic} has no partition {missing[0]}",
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                hint=f"it has {len(known)}, counted from 0",
            )
        wanted = [TopicPartition(self._topic, index) for index in sorted(partitions or known)]
        starts = await self._client.list_offsets(dict.fromkeys(wanted, EARLIEST))
        ends = await self._client.list_offsets(dict.fromkeys(wanted, LATEST))
        kind, number = parse_offset(offset)
        found = await self._client.list_offsets(dict.fromkeys(wanted, number)) if kind == "time" else {}
        for partition in wanted:
            start, end = int(starts[partition].offset), int(ends[partition].offset)
            match kind:
                case "start":
                    position = start
                case "end":
                    position = end
                case "before_end":
                    position = end - number
                case "time":
                    # No record is that late: begin at the end.
                    position = int(found[partition].offset) if found[partition].offset >= 0 else end
                case _:
                    position = number
                    if not start <= position <= end:
                        talk(f"{partition}: offset {number} is not there; going on at the nearest of {start} to {end}")
            self._positions[partition.partition] = min(max(position, start), end)
            self._ends[partition.partition] = end

    async def poll(self) -> list[tuple[int, Record]]:
        """The next records of every partition, in partition order; empty when there are none now."""
        rounds = [self._fetch(index, position) for index, position in self._positions.items()]
        return [item for found in await asyncio.gather(*rounds) for item in found]

    async def _fetch(self, index: int, position: int) -> list[tuple[int, Record]]:
        from barnabas_wire.records.batch import iterate_batches, iterate_records

        partition = TopicPartition(self._topic, index)
        try:
            fetched = await self._client.fetch(
                partition, position, bytes_max=FETCH_BYTES_MAX, wait_ms_max=0, bytes_min=0
            )
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return await self._begin_again(partition, position)
        found: list[tuple[int, Record]] = []
        for start, header in iterate_batches(fetched.records):
            if not header.is_control:
                batch = fetched.records[start : start + header.size_bytes]
                found += [(index, record) for record in iterate_records(batch) if record.offset >= position]
            self._positions[index] = int(header.next_offset)
        return found

    async def _begin_again(self, partition: TopicPartition, position: int) -> list[tuple[int, Record]]:
        """Retention has overtaken us, or the log was cut: go on at its start."""
        from barnabas_wire.client.metadata import EARLIEST

        start = int((await self._client.list_offsets({partition: EARLIEST}))[partition].offset)
        talk(f"{partition}: offset {position} is gone, going on at {start}")
        self._positions[partition.partition] = start
        return []


def _unknown_topic(topic: str, *, hint: str = "") -> AdminError:
    return AdminError(f"topic {topic!r} does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, hint=hint)


def parse_offset(text: str) -> tuple[str, int]:
    """--offset as (kind, number): start, end, absolute, before_end, time. Raises UsageError on anything else."""
    if text in ("start", "end"):
        return text, 0
    kind, digits = (
        ("time", text[1:]) if text[:1] == "@" else ("before_end", text[1:]) if text[:1] == "-" else ("absolute", text)
    )
    if not digits.isdigit():
        raise click.UsageError(f"--offset {text}: use start, end, N, -N or @MILLISECONDS")
    return kind, int(digits)


def format_record(topic: str, partition: int, record: Record, key_separator: str | None, *, is_json: bool) -> bytes:
    """The line of a record, as consume prints it."""
    if not is_json:
        key = b"" if key_separator is None else (record.key or b"") + key_separator.encode()
        return key + (record.value or b"") + b"\n"
    fields: dict[str, Any] = {
        "api_version": API_VERSION,
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_to_json("key", record.key),
        **_to_json("value", record.value),
        "headers": [{"name": name, **_to_json("value", value)} for name, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _to_json(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
