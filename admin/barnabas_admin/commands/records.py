"""`barnabas topic produce`: records from lines, or from whole files.

May touch:  standard input, the files named, the brokers.     Must not touch: the admin service beyond finding the brokers.
Invariants: with acks=all a line is written exactly once (producer id and sequence), or the command fails; what consume
            prints with -o json, produce reads with --input jsonl; bytes that are no UTF-8 travel as base64; no mistyped name
            becomes a topic.
Read next:  ../kafka.py; consume.py, which prints them.

Differs from Kafka's console producer, which creates a topic that does not exist: here --create says that it is meant.
"""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
import itertools
import json
import os
import random
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options
from barnabas_admin.output import print_json, talk
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.lazy_dataclass import dataclass

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
@click.option("-K", "--key", metavar="TEXT", help="The key of every record that has none of its own.")
@click.option(
    "--headers-separator",
    metavar="TEXT",
    help="Split each line before its key: NAME=VALUE,NAME=VALUE, separator, the rest.",
)
@click.option(
    "-f",
    "--from-file",
    "sources",
    metavar="FILE",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="Not standard input; repeatable.",
)
@click.option("--whole", "is_whole", is_flag=True, help="Each --from-file is one record, not lines.")
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
    key: str | None,
    headers_separator: str | None,
    sources: tuple[str, ...],
    is_whole: bool,
) -> None:
    """Write a record for every line of standard input, or of a file.

    A topic that does not exist is refused, for its name may be mistyped; --create has the brokers create it, where they allow
    it (auto.create.topics.enable).
    """
    from barnabas_admin.commands.topic import parse_pairs
    from barnabas_admin.kafka import run_with_cluster

    if key_separator == "":
        raise click.UsageError("-k: the separator is empty; name the text between key and value, such as -k :")
    if headers_separator == "":
        raise click.UsageError("--headers-separator is empty; name the text behind the headers")
    if is_whole and not sources:
        raise click.UsageError("--whole is for files: name them with --from-file")
    if is_whole and (key_separator is not None or headers_separator is not None or form != "text"):
        raise click.UsageError("a --whole file is a value: give it a key and headers with --key and --header")
    fixed: Headers = tuple((name, value.encode()) for name, value in parse_pairs(headers).items())
    separator = key_separator.encode() if key_separator is not None else None

    numbers = itertools.count(1)

    def parse(text: bytes) -> Line:
        number = next(numbers)
        before: Headers = ()
        if headers_separator is not None and form == "text":
            before, text = parse_headers(text, headers_separator.encode(), number)
        line = parse_json_line(text) if form == "jsonl" else parse_text_line(text, separator, number)
        line.headers = (*before, *line.headers, *fixed)
        if line.key is None and key is not None:
            line.key = key.encode()
        if partition is not None:
            line.partition = partition
        return line

    async def work(client: ClusterClient) -> Producer:
        producer = Producer(client, topic, acks=ACKS[acks], compression=compression)
        await producer.start(is_creating=is_creating)
        if partition is not None:
            producer.check_partition(partition)  # also when there is nothing to write
        for source in sources or (None,):
            rest = b""
            async for data in read_input() if source is None else read_file(source):
                *lines, rest = [rest + data] if is_whole else (rest + data).split(b"\n")
                if len(rest) > LINE_BYTES_MAX:
                    what = source if is_whole else "a line of input"
                    raise AdminError(f"{what} is longer than {LINE_BYTES_MAX} bytes")
                await producer.send([parse(line) for line in lines])
            if rest or is_whole:
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
    loop's executor would block the end of the process (Ctrl-C) until the next line."""
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


def parse_headers(text: bytes, separator: bytes, number: int) -> tuple[Headers, bytes]:
    """`name=value,name=value<separator>rest` as (headers, rest); `name` alone is a header without a value. Raises AdminError for a line
    (its `number`) without the separator."""
    from barnabas_wire.records.batch import header_name

    before, found, rest = text.partition(separator)
    if not found:
        raise AdminError(
            f"line {number} has no {separator.decode()!r} behind its headers: {text[:60].decode(errors='replace')!r}",
            hint="lines before it may be written already; a line without headers begins with the separator",
        )
    headers = []
    for part in before.split(b",") if before else ():
        name, has_value, value = part.partition(b"=")
        headers.append((header_name(name), value if has_value else None))
    return tuple(headers), rest


def parse_json_line(text: bytes) -> Line:
    """A line as consume -o json prints it; offset is ignored, partition and timestamp are kept when present."""
    try:
        fields = json.loads(text)
        headers = tuple(_header_from_json(header) for header in fields.get("headers", []))
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


def _header_from_json(fields: dict[str, Any]) -> tuple[str, bytes | None]:
    from barnabas_wire.records.batch import header_name

    name = _from_json(fields, "name")
    if name is None:
        raise ValueError("a header has no name")
    return header_name(name), _from_json(fields, "value")


def _from_json(fields: dict[str, Any], name: str) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        return base64.b64decode(encoded, validate=True)
    text = fields.get(name)
    return None if text is None else str(text).encode()


def _unknown_topic(topic: str, *, hint: str = "") -> AdminError:
    return AdminError(f"topic {topic!r} does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, hint=hint)
