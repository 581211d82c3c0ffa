"""Work on batches before they are appended: what a producer sent is opened and judged, and brought into its topic's codec.

May touch:  asyncio (the loop it is made on), its own threads.    Must not touch: partitions, logs, network.
Invariants: requests for one partition are appended in the order in which they came; every request that is taken is passed on or
            refused once, and only while the same leader leads as when it came; at most WAITING_BYTES_MAX of copied batches wait;
            on the loop only a few records of a small batch that is not compressed are walked over, and RECORDS_PER_TURN bounds them.
Read next:  appends.py, which asks `takes` for the requests that may need work; recompression.py and
            barnabas_log/batch_inspection.py, the work; scrutiny.py, which connection's batches are opened.

Behaviour of validate.batches: `header` opens nothing, `all` every batch, `sampled` those of a request that was drawn for its
connection. Whatever it says, a batch whose header shows that its greatest time is wrong is opened, and gets the right one; and
each of a compacted topic is, since its records need keys.

Not obvious:
- A request waits as a whole, so a later request for any of its partitions has to wait behind it, whether it needs work or not.
- A batch that is refused but repeats one that is in the log gets that one's answer: the producer sent it when batches
  were not inspected.
- What a compacted topic gets are mostly few records at a time, and a thread costs as much CPU as the walk over a hundred: so those
  are walked over where they came, from the same budget, unless there is anything to say or to do about them.
- The records that threads walk over in plain Python hold the interpreter, and with it the loop. RECORDS_PER_TURN is what threads
  get between two turns of the loop, which alone gives and takes back; what is more goes to a process. A separate thread
  waits for that, so that two hostile batches, each of millions of records, hold up the first batches of no other
  connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from random import Random
from typing import Any, NamedTuple

from barnabas_log.batch_inspection import BatchInspector, Unfinished, is_unsound_maximum
from barnabas_log.config import BatchCompression, LogConfig, TimestampType, ValidateBatches
from barnabas_log.errors import InvalidBatch, KeylessRecords
from barnabas_replication.errors import NotLeaderOrFollower, RequestTimedOut
from barnabas_replication.leader.batch_partitions import BatchPartitions
from barnabas_replication.leader.recompression import CODECS, Codec, recompressed
from barnabas_replication.leader.scrutiny import Scrutiny
from barnabas_replication.requests import AppendEntry, AppendOutcome, RespondAppend
from barnabas_replication.stats import Stats
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.lazy_dataclass import dataclass
from barnabas_wire.records.batch import COMPRESSION_MASK, HEADER, HEADER_BYTES, BatchHeader, Buffer

logger = logging.getLogger(__name__)

THREADS_MAX = 2
"""Codecs release the interpreter, and two cores are what brokers here have."""
WAITING_BYTES_MAX = 64 * 1024 * 1024
"""Copied batches that wait for a thread or for the request before them. Beyond it clients are asked to try again."""
RECORDS_PER_TURN = 256
"""Records that threads may walk over in plain Python for one turn of the loop. Measured: 1.0 to 1.6 us each, so that a turn is at most
0.4 ms late; a batch of 16 KiB with records of 100 bytes has 160."""
LIGHT_BYTES_MAX = 16 * 1024
"""The largest batch, in bytes, that is walked over on the loop."""
LIGHT_STEPS_PER_RECORD = 4
"""There, a record and three headers of it; what has more is left to a thread."""
_ATTRIBUTES_POSITION = 22
"""The low byte of a batch's attributes."""

Append = Callable[..., None]
"""Called with entries that are ready and `respond=`, who gets their outcomes."""


class _Task(NamedTuple):
    """What has to be done to a batch."""

    config: LogConfig
    is_opened: bool
    codec: Codec | None
    is_light: bool
    """Whether it is for the keys of so few records that the loop itself may look."""


@dataclass(slots=True, eq=False)
class _Request:
    """One produce request that waits."""

    entries: list[AppendEntry]
    standings: list[object]
    """The standing of each entry's partition when the request came."""
    errors: dict[int, KafkaError]
    """The errors of entries that are not to be appended, by their place in `entries`."""
    size_bytes: int
    unready: int
    """Batches that are still with a thread."""
    append: Append
    respond: RespondAppend
    keys: frozenset[tuple[str, int]]
    scrutiny: Scrutiny | None


class BatchWork:
    """The produce requests of one broker that wait for work on their batches. Lives on the data loop."""

    def __init__(
        self,
        partitions: BatchPartitions,
        *,
        inspector: BatchInspector,
        random: Random,
        clock_ms: Callable[[], int],
        stats: Stats,
        submit: Callable[..., Future[Any]] | None = None,
    ) -> None:
        """random: for the draws. clock_ms: wall clock. submit: runs a function off the loop; by default in its own
        threads."""
        self._partitions = partitions
        self._inspector = inspector
        self._random = random
        self._clock_ms = clock_ms
        self._stats = stats
        self.is_needed = False
        """Whether all requests have to be shown to `takes`: a topic here wants work on every batch, or requests still wait. An
        attribute, since it is read for every produce request."""
        self._topics: set[str] = set()
        """Those that want work on every batch."""
        self._is_loaded = False
        """Whether the inspector was told to make ready for many batches."""
        self._waiting_bytes = 0
        self._walked_records = 0
        """Given to threads and not yet taken back."""
        self._queues: dict[tuple[str, int], deque[_Request]] = {}
        self._submit = submit
        self._threads: ThreadPoolExecutor | None = None
        self._process_thread: ThreadPoolExecutor | None = None
        """Waits for the inspector's process."""
        self._is_closed = False

    def note(self, topic: str, config: LogConfig) -> None:
        """The settings of a topic that has a replica here and that clients may write to."""
        is_each_opened = config.validate_batches is ValidateBatches.ALL or config.is_compacted
        if config.compression_type is BatchCompression.PRODUCER and not is_each_opened:
            self.forget(topic)
        else:
            self._topics.add(topic)
            self.is_needed = True
            if config.validate_batches is ValidateBatches.ALL and not self._is_loaded:
                self._is_loaded = True
                self._pool()(self._inspector.load)

    def forget(self, topic: str) -> None:
        """The topic has no replica here any more, or wants no work on every batch."""
        self._topics.discard(topic)
        self.is_needed = bool(self._topics or self._queues)

    def takes(
        self, entries: Sequence[AppendEntry], append: Append, respond: RespondAppend, scrutiny: Scrutiny | None = None
    ) -> bool:
        """Take a request that has to wait; False where it may be appended at once.

        append: called with the entries as they are to be appended once it is the request's turn. respond: called instead where the
        request is refused. Both on the loop, neither before this returns. The entries' bytes are copied. scrutiny: of the
        connection that it came over; None for a caller that is no client.
        """
        queues = self._queues
        is_drawn = scrutiny is not None and scrutiny.is_due
        tasks = [self._task_of(entry, is_drawn) for entry in entries]
        is_behind = any((topic, number) in queues for topic, number, _ in entries)
        if not is_behind and (not any(tasks) or self._pass_here(entries, tasks)):
            if is_drawn:
                scrutiny.draw(self._random, has_looked=False)  # type: ignore[union-attr]
            return False
        size_bytes = sum(len(batches) for _, _, batches in entries)
        loop = asyncio.get_running_loop()
        if self._waiting_bytes + size_bytes > WAITING_BYTES_MAX and self._waiting_bytes:
            busy = RequestTimedOut("the broker opens and recompresses as many batches as it can; send it again")
            loop.call_soon(respond, [self._partitions.refused(topic, number, busy) for topic, number, _ in entries])
            return True
        if is_drawn:  # and taken: one that has to come again is looked at then
            scrutiny.draw(self._random, has_looked=any(task is not None and task.is_opened for task in tasks))  # type: ignore[union-attr]
        self._waiting_bytes += size_bytes
        request = _Request(
            entries=[AppendEntry(topic, number, bytes(batches)) for topic, number, batches in entries],
            standings=[self._partitions.standing_of(topic, number, batches) for topic, number, batches in entries],
            errors={},
            size_bytes=size_bytes,
            unready=sum(task is not None for task in tasks),
            append=append,
            respond=respond,
            keys=frozenset((topic, number) for topic, number, _ in entries),
            scrutiny=scrutiny,
        )
        self.is_needed = True
        for key in request.keys:
            queues.setdefault(key, deque()).append(request)
        for index, task in enumerate(tasks):
            if task is not None:
                self._start(loop, request, index, task)
        if not request.unready:
            loop.call_soon(self._advance, request)
        return True

    async def close(self) -> None:
        """Refuse what waits; nothing is appended any more, and no thread is left when it returns."""
        self._is_closed = True
        requests = {request: None for queue in self._queues.values() for request in queue}
        self._queues.clear()
        error = NotLeaderOrFollower("the broker is shutting down")
        for request in requests:
            request.respond([AppendOutcome(topic, number, error) for topic, number, _ in request.entries])
        self._inspector.close()
        for threads in (self._threads, self._process_thread):
            if threads is not None:  # each may still open a batch, which the loop does not wait for
                await asyncio.to_thread(threads.shutdown, cancel_futures=True)

    def _task_of(self, entry: AppendEntry, is_drawn: bool) -> _Task | None:
        """What has to be done to the entry's batch; None where it may stay as it is."""
        topic, number, batches = entry
        config = self._partitions.config_of(topic, number)
        if config is None or not HEADER_BYTES < len(batches) <= config.max_message_bytes:
            return None  # the log refuses it
        mode = config.validate_batches
        is_opened = mode is ValidateBatches.ALL or (is_drawn and mode is ValidateBatches.SAMPLED)
        if not is_opened and config.message_timestamp_type is TimestampType.CREATE_TIME:
            is_opened = has_unsound_maximum(batches)
        codec, is_light = None, False
        if config.compression_type is not BatchCompression.PRODUCER:
            wanted = CODECS[config.compression_type]
            if batches[_ATTRIBUTES_POSITION] & COMPRESSION_MASK != wanted:
                codec = Codec(wanted, config.compression_level(config.compression_type))
        if config.is_compacted and not is_opened:
            is_opened = True
            is_light = (
                codec is None
                and len(batches) <= LIGHT_BYTES_MAX
                and not batches[_ATTRIBUTES_POSITION] & COMPRESSION_MASK
            )
        return _Task(config, is_opened, codec, is_light) if is_opened or codec is not None else None

    def _pass_here(self, entries: Sequence[AppendEntry], tasks: Sequence[_Task | None]) -> bool:
        """Whether all that has to be done to the batches was done now, and found them as they should be."""
        if any(task is not None and not task.is_light for task in tasks):
            return False
        for (_, _, batches), task in zip(entries, tasks, strict=True):
            if task is None:
                continue
            batch = bytes(batches)
            steps = LIGHT_STEPS_PER_RECORD * max(1, HEADER.unpack_from(batch)[-1])
            if steps + self._walked_records > RECORDS_PER_TURN:
                return False
            self._walked_records += steps
            asyncio.get_running_loop().call_soon(self._give_back, steps)
            try:
                if self._inspector.inspected(batch, task.config, now_ms=self._clock_ms(), steps_max=steps) is not batch:
                    return False
            except (KafkaError, Unfinished):  # seldom, and to be told as all others are
                return False
            self._stats.inspected_batches += 1
            self._stats.inspected_bytes += len(batch)
        return True

    def _give_back(self, records: int) -> None:
        self._walked_records -= records

    def _start(
        self, loop: asyncio.AbstractEventLoop, request: _Request, index: int, task: _Task, *, is_too_much: bool = False
    ) -> None:
        """Give a batch to a thread, with the records that it may walk over; is_too_much: they were too many for that."""
        batch = bytes(request.entries[index].batches)
        records, pool = 0, self._pool
        if task.is_opened and not self._inspector.is_compiled:
            records = max(0, HEADER.unpack_from(batch)[-1])
            if is_too_much or records + self._walked_records > RECORDS_PER_TURN:
                records, pool = 0, self._process_pool
        self._walked_records += records
        work = pool()(_worked_on, batch, task, self._inspector, self._clock_ms(), records)
        work.add_done_callback(partial(self._on_done, loop, request, index, task, records))

    def _pool(self) -> Callable[..., Future[Any]]:
        if self._submit is not None:
            return self._submit
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="batch-work")
        return self._threads.submit

    def _process_pool(self) -> Callable[..., Future[Any]]:
        if self._submit is not None:
            return self._submit
        if self._process_thread is None:
            self._process_thread = ThreadPoolExecutor(1, thread_name_prefix="batch-process")
        return self._process_thread.submit

    def _on_done(
        self,
        loop: asyncio.AbstractEventLoop,
        request: _Request,
        index: int,
        task: _Task,
        records: int,
        work: Future[bytes],
    ) -> None:
        """Called in the thread that did the work: hand its result to the loop."""
        if not work.cancelled() and not loop.is_closed():
            loop.call_soon_threadsafe(self._take, request, index, task, records, work)

    def _take(self, request: _Request, index: int, task: _Task, records: int, work: Future[bytes]) -> None:
        self._give_back(records)
        if self._is_closed:
            return
        if isinstance(work.exception(), Unfinished):
            self._start(asyncio.get_running_loop(), request, index, task, is_too_much=True)
            return
        topic, number, batches = request.entries[index]
        stats = self._stats
        if task.is_opened:
            stats.inspected_batches += 1
            stats.inspected_bytes += len(batches)
        try:
            request.entries[index] = AppendEntry(topic, number, work.result())
            if task.codec is not None:
                stats.recompressed_batches += 1
                stats.recompressed_bytes += len(batches)
        except KafkaError as error:
            # Their frames have what was decompressed, up to SECTION_BYTES_MAX, until the garbage collector comes.
            error.__traceback__ = error.__cause__ = error.__context__ = None
            request.errors[index] = error
            if isinstance(error, InvalidBatch) and not isinstance(error, KeylessRecords):
                stats.unsound_batches += 1
                if request.scrutiny is not None:
                    request.scrutiny.suspect()
        except Exception as bug:  # else everybody would wait behind it for good
            logger.error("%s-%d: work on a batch failed", topic, number, exc_info=bug)
            request.errors[index] = KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(bug).__name__} in the broker")
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
            self._pass_on(ready)

    def _pass_on(self, request: _Request) -> None:
        """Append what may be appended, and answer for all entries in their order."""
        errors = self._settled(request)
        if not errors:
            request.append(request.entries, respond=request.respond)
            return
        refused = {
            index: self._partitions.refused(*request.entries[index][:2], error) for index, error in errors.items()
        }
        sound = [entry for index, entry in enumerate(request.entries) if index not in errors]

        def respond(outcomes: list[AppendOutcome]) -> None:
            appended = iter(outcomes)
            request.respond(
                [refused[index] if index in refused else next(appended) for index in range(len(request.entries))]
            )

        if sound:
            request.append(sound, respond=respond)
        else:
            respond([])

    def _settled(self, request: _Request) -> dict[int, KafkaError]:
        """The errors that hold now that it is the request's turn: leadership may have moved while it waited, a
        transaction may have ended (the next one of the same producer must not get its batch), and a batch that is
        refused may be one that the log has."""
        errors: dict[int, KafkaError] = {}
        for index, (topic, number, batches) in enumerate(request.entries):
            standing = request.standings[index]
            if standing is not None and self._partitions.standing_of(topic, number, batches) != standing:
                errors[index] = NotLeaderOrFollower(
                    f"since the records came, {topic}-{number} got a new leader or was compacted, or their transaction ended: "
                    "send them again"
                )
                continue
            error = request.errors.get(index)
            if error is not None and not self._partitions.has_batch(topic, number, _header_of(batches)):
                errors[index] = error
        return errors


def has_unsound_maximum(batches: Buffer) -> bool:
    """Whether the header of a batch shows that its greatest time cannot be right."""
    header = _header_of(batches)
    return is_unsound_maximum(header.base_timestamp_ms, header.max_timestamp_ms)


def _header_of(batches: Buffer) -> BatchHeader:
    return BatchHeader._make(HEADER.unpack_from(batches))


def _worked_on(batch: bytes, task: _Task, inspector: BatchInspector, now_ms: int, steps_max: int) -> bytes:
    """The batch as it is to be appended. In a thread. Raises KafkaError."""
    if task.is_opened:
        batch = inspector.inspected(batch, task.config, now_ms=now_ms, steps_max=steps_max)
    return batch if task.codec is None else recompressed(batch, task.codec)
