"""compression.type: batches of another codec than their topic's are recompressed before they are appended.

May touch:  asyncio (the loop it is made on), threads of its own.    Must not touch: partitions, logs, network.
Invariants: requests for one partition are appended in the order in which they came; every request that is taken is passed on or
            refused once; at most WAITING_BYTES_MAX of copied batches wait; no record is opened, the records section is one blob.
Read next:  appends.py, which asks `takes` for each produce request once a topic has a codec of its own.

Behaviour: a batch in its topic's codec is never copied here. A batch that is not sound (length, CRC) is passed on as it is: the log
refuses it and knows why. Differences from Kafka: Kafka opens, checks and builds anew every record, on the request's thread; here
only the codec's bits, the length and the CRC of the header change, so what a batch says of its records is kept as the producer
wrote it, as with compression.type=producer. A records section that grows beyond SECTION_BYTES_MAX is refused.

Not obvious: a request waits as a whole, so a later request for any of its partitions has to wait behind it, recompressed or not.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from barnabas_log.config import BatchCompression, LogConfig
from barnabas_replication.errors import NotLeaderOrFollower, RequestTimedOut
from barnabas_replication.requests import AppendEntry, AppendOutcome, RespondAppend
from barnabas_replication.stats import Stats
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.records.batch import COMPRESSION_MASK, HEADER_BYTES, crc_is_valid, read_header, with_records_section
from barnabas_wire.records.compression import CompressionType, CorruptCompressedData

THREADS_MAX = 2
"""Codecs release the interpreter, and two cores are what brokers here have."""
WAITING_BYTES_MAX = 64 * 1024 * 1024
"""Copied batches that wait for a thread or for the request before them. Beyond it clients are asked to try again."""
SECTION_BYTES_MAX = 64 * 1024 * 1024
"""Largest records section that a batch may decompress to."""
FIRST_SECTION_BYTES_MAX = 8 * 1024 * 1024
"""Larger ones are opened one at a time, so that THREADS_MAX hostile batches take the memory of one."""
_one_at_a_time = threading.Lock()
_ATTRIBUTES_POSITION = 22
"""The low byte of a batch's attributes."""

Append = Callable[..., None]
"""Called with entries that are ready and `respond=`, who gets their outcomes."""


@dataclass(slots=True, eq=False)
class _Request:
    """One produce request that waits."""

    entries: list[AppendEntry]
    errors: dict[int, KafkaError]
    """Of entries whose records do not open, by their place."""
    size_bytes: int
    unready: int
    """Batches that are still with a thread."""
    append: Append
    respond: RespondAppend
    keys: frozenset[tuple[str, int]]


class Recompression:
    """The produce requests of one broker that wait for a codec. Lives on the data loop."""

    def __init__(self, config_of: Callable[[str, int], LogConfig | None], stats: Stats) -> None:
        """config_of: settings of the log of (topic, partition); None where no replica is here."""
        self._stats = stats
        self.is_needed = False
        """Whether requests have to be shown to `takes`: a topic here has a codec of its own, or requests still wait. An attribute,
        since it is read for every produce request."""
        self._topics: set[str] = set()
        """Those with a codec of their own."""
        self._config_of = config_of
        self._waiting_bytes = 0
        self._queues: dict[tuple[str, int], deque[_Request]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._is_closed = False

    def note(self, topic: str, config: LogConfig) -> None:
        """The settings of a topic that has a replica here."""
        if config.compression_type is BatchCompression.PRODUCER:
            self.forget(topic)
        else:
            self._topics.add(topic)
            self.is_needed = True

    def forget(self, topic: str) -> None:
        """The topic has no replica here any more, or no codec of its own."""
        self._topics.discard(topic)
        self.is_needed = bool(self._topics or self._queues)

    def takes(self, entries: Sequence[AppendEntry], append: Append, respond: RespondAppend) -> bool:
        """Take a request that has to wait; False where it may be appended at once.

        append: called with the entries in the topics' codecs once it is the request's turn. respond: called instead where the
        request is refused. Both on the loop, neither before this returns. The entries' bytes are copied.
        """
        queues = self._queues
        codecs = [self._codec_of(entry) for entry in entries]
        if not any(codecs) and not any((topic, number) in queues for topic, number, _ in entries):
            return False
        size_bytes = sum(len(batches) for _, _, batches in entries)
        loop = asyncio.get_running_loop()
        if self._waiting_bytes + size_bytes > WAITING_BYTES_MAX and self._waiting_bytes:
            busy = RequestTimedOut("the broker recompresses as much as it can at present; send it again")
            loop.call_soon(respond, [AppendOutcome(topic, number, busy) for topic, number, _ in entries])
            return True
        self._waiting_bytes += size_bytes
        request = _Request(
            entries=[AppendEntry(topic, number, bytes(batches)) for topic, number, batches in entries],
            errors={},
            size_bytes=size_bytes,
            unready=sum(codec is not None for codec in codecs),
            append=append,
            respond=respond,
            keys=frozenset((topic, number) for topic, number, _ in entries),
        )
        self.is_needed = True
        for key in request.keys:
            queues.setdefault(key, deque()).append(request)
        for index, codec in enumerate(codecs):
            if codec is not None:
                work = self._pool().submit(recompressed, bytes(request.entries[index].batches), codec)
                work.add_done_callback(partial(self._on_done, loop, request, index))
        if not request.unready:
            loop.call_soon(self._advance, request)
        return True

    def close(self) -> None:
        """Refuse what waits; nothing is appended any more."""
        self._is_closed = True
        requests = {request: None for queue in self._queues.values() for request in queue}
        self._queues.clear()
        error = NotLeaderOrFollower("the broker is shutting down")
        for request in requests:
            request.respond([AppendOutcome(topic, number, error) for topic, number, _ in request.entries])
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _codec_of(self, entry: AppendEntry) -> Codec | None:
        """The codec that the entry's batch has to be brought into; None where it may stay as it is."""
        topic, number, batches = entry
        config = self._config_of(topic, number)
        if config is None or config.compression_type is BatchCompression.PRODUCER:
            return None
        if not HEADER_BYTES < len(batches) <= config.max_message_bytes:
            return None  # the log refuses it
        wanted = CODECS[config.compression_type]
        if batches[_ATTRIBUTES_POSITION] & COMPRESSION_MASK == wanted:
            return None
        return Codec(wanted, config.compression_level(config.compression_type))

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="recompress")
        return self._threads

    def _on_done(self, loop: asyncio.AbstractEventLoop, request: _Request, index: int, work: Future[bytes]) -> None:
        """In the thread that did the work."""
        if not work.cancelled() and not loop.is_closed():
            loop.call_soon_threadsafe(self._take, request, index, work)

    def _take(self, request: _Request, index: int, work: Future[bytes]) -> None:
        if self._is_closed:
            return
        topic, number, batches = request.entries[index]
        try:
            request.entries[index] = AppendEntry(topic, number, work.result())
            self._stats.recompressed_batches += 1
            self._stats.recompressed_bytes += len(batches)
        except KafkaError as error:
            # Their frames have what was decompressed, up to SECTION_BYTES_MAX, until the garbage collector comes.
            error.__traceback__ = error.__cause__ = error.__context__ = None
            request.errors[index] = error
        request.unready -= 1
        self._advance(request)

    def _advance(self, request: _Request) -> None:
        """Pass on the request and those behind it whose turn has come."""
        queues = self._queues
        candidates = deque([request])
        while candidates and not self._is_closed:
            ready = candidates.popleft()
            # One that was passed on already is the first of no queue.
            if ready.unready or not all(key in queues and queues[key][0] is ready for key in ready.keys):
                continue
            for key in ready.keys:
                queue = queues[key]
                queue.popleft()
                if queue:
                    candidates.append(queue[0])
                else:
                    del queues[key]
            self._waiting_bytes -= ready.size_bytes
            self.is_needed = bool(self._topics or queues)
            _pass_on(ready)


@dataclass(frozen=True, slots=True)
class Codec:
    """What to compress with. level: the codec's own; None where it has none."""

    kind: CompressionType
    level: int | None


CODECS = {
    BatchCompression.UNCOMPRESSED: CompressionType.NONE,
    BatchCompression.GZIP: CompressionType.GZIP,
    BatchCompression.SNAPPY: CompressionType.SNAPPY,
    BatchCompression.LZ4: CompressionType.LZ4,
    BatchCompression.ZSTD: CompressionType.ZSTD,
}


def recompressed(batch: bytes, codec: Codec) -> bytes:
    """The batch with its records section in another codec; the same bytes where it is not one sound batch.

    Raises CorruptBatch or CorruptCompressedData where the records section does not open within SECTION_BYTES_MAX.
    """
    header = read_header(batch)
    if header.size_bytes != len(batch) or not crc_is_valid(memoryview(batch), 0, header):
        return batch
    try:
        return with_records_section(
            batch, codec.kind, level=codec.level, decompressed_bytes_max=FIRST_SECTION_BYTES_MAX
        )
    except CorruptCompressedData:  # or a large one
        with _one_at_a_time:
            return with_records_section(batch, codec.kind, level=codec.level, decompressed_bytes_max=SECTION_BYTES_MAX)


def _pass_on(request: _Request) -> None:
    """Append what could be recompressed, and answer for all entries in their order."""
    if not request.errors:
        request.append(request.entries, respond=request.respond)
        return
    sound = [entry for index, entry in enumerate(request.entries) if index not in request.errors]

    def respond(outcomes: list[AppendOutcome]) -> None:
        appended = iter(outcomes)
        request.respond(
            [
                AppendOutcome(topic, number, request.errors[index]) if index in request.errors else next(appended)
                for index, (topic, number, _) in enumerate(request.entries)
            ]
        )

    if sound:
        request.append(sound, respond=respond)
    else:
        respond([])
