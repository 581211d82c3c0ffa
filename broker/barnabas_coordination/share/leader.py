"""Share groups at the leader: serves members' fetches and acknowledgements, and does what the cores of share partitions decide.

May touch:  replicas led here, the persister, dead letters, due times, loop timers.   Must not touch: sockets, the bytes of records.
Invariants: one core for each share partition, of one leader epoch; it is let go of before another leader can be heard of here; a fetch
            is answered at most once; of each core at most one write, one post of dead letters and one look for due times are under way.
Read next:  partition.py (the core), sessions.py, batches.py; ../share_state/messages.py (the persister).

Not obvious:
- Nothing waits for a lock: a core decides between two turns of the loop, so two fetches never meet in one. What Kafka calls its fetch
  lock has no need here.
- A fetch that finds too little waits in the lists of its partitions, and looks again when records come there, or are let go of.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Protocol

from barnabas_coordination.internal_topic import MetadataSource
from barnabas_coordination.share.acquiring import Acquired, AcquireRequest
from barnabas_coordination.share.batches import BatchReader
from barnabas_coordination.share.due_times import Looked
from barnabas_coordination.share.letters import EXHAUSTED, REJECTED, DeadLetter, DeadLettersFailed
from barnabas_coordination.share.partition import Acknowledgement, ShareDescription, SharePartition
from barnabas_coordination.share.sessions import SharedPartition, ShareSession, ShareSessions
from barnabas_coordination.share.window import Change
from barnabas_coordination.share_settings import BY_DURATION, ShareSettings, duration_ms
from barnabas_coordination.share_state.messages import Persister, ShareKey
from barnabas_log.disk import FileRange
from barnabas_log.errors import OffsetOutOfRange, StorageFailed
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_replication.errors import NotLeaderOrFollower
from barnabas_replication.leader.offset_lookup import LATEST_TIMESTAMP, list_offset
from barnabas_replication.leader.reads import fetch_from
from barnabas_replication.manager import ReplicaManager
from barnabas_replication.partition import Partition
from barnabas_replication.requests import Cancel, CurrentLeader, FetchOutcome, FetchPartitionSpec, FetchSpec
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_OFFSET, BrokerId, Epoch, Offset, TopicPartition

logger = logging.getLogger("barnabas_broker.coordinator.share")  # the name that operators set a level of

HEADERS_MAX: Final = 4_096
"""Batches that one fetch looks at in a turn of the loop: about 5 ms."""
LOOKS_MAX: Final = 4
"""Reads of one partition for one fetch, where what was read is nobody's: aborted, or not due."""
SHARE_VERSION_DEAD_LETTERS: Final = 2
_FENCED: Final = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH)
_UNAVAILABLE: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
_TOLD: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class LetterWriter(Protocol):
    """Writes dead letters (dead_letters.py)."""

    async def write(self, settings: ShareSettings, letters: Sequence[DeadLetter]) -> None:
        """See DeadLetters.write."""
        ...


class DueTimeReader(Protocol):
    """Opens records to see when they are due (due_times.py)."""

    async def look(self, part: FileRange, *, header: str, now_ms: int) -> Looked:
        """See DueTimes.look."""
        ...


class ShareFetch(NamedTuple):
    """What a member asks of all partitions of its session."""

    session: ShareSession
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    records_max: int
    batch_size: int
    is_strict: bool


class ShareOutcome(NamedTuple):
    """What one partition gave. The ranges in `parts` are the receiver's to release."""

    shared: SharedPartition
    error: KafkaError | None = None
    current_leader: CurrentLeader | None = None
    parts: tuple[FileRange, ...] = ()
    size_bytes: int = 0
    acquired: Sequence[Acquired] = ()


RespondShare = Callable[[list[ShareOutcome]], None]
"""Called at most once, never after its Cancel; with the partitions that have something to say."""
RespondAcknowledged = Callable[[KafkaError | None], None]
"""Called exactly once, at once or later."""


@dataclass(slots=True)
class ShareStats:
    """Counters."""

    fetches_parked: int = 0
    acquired_records: int = 0
    acknowledgements: int = 0
    """Ranges that members acknowledged."""
    refused_acknowledgements: int = 0
    """Requests about one partition that were refused."""
    writes: int = 0
    """Asked of the persister, each for all that had changed in a share partition."""
    failed_writes: int = 0
    loads: int = 0
    failed_loads: int = 0
    failed_letters: int = 0
    """Dead letters that could not be written; they are held, or given up, as the group says."""


class _Led:
    """One share partition that this broker leads."""

    __slots__ = (
        "core",
        "error",
        "is_dropped",
        "is_examining",
        "is_posting",
        "is_wake_due",
        "is_writing",
        "key",
        "leader_epoch",
        "partition",
        "shared",
        "state_epoch",
        "timer",
        "timer_ms",
        "waits",
    )

    def __init__(self, key: ShareKey, partition: Partition) -> None:
        self.key = key
        self.shared = SharedPartition(key.topic_id, key.partition)
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.state_epoch = Epoch(0)
        self.core: SharePartition | None = None
        """None until it is loaded."""
        self.error: KafkaError | None = None
        """Why it is dropped."""
        self.is_dropped = self.is_writing = self.is_posting = self.is_examining = self.is_wake_due = False
        self.waits: dict[_Wait, None] = {}
        """Fetches that wait for something here, in their order."""
        self.timer: asyncio.TimerHandle | None = None
        self.timer_ms = 0

    @property
    def is_led(self) -> bool:
        """Whether the replica manager still says so."""
        partition = self.partition
        return partition.is_leader and partition.leader_epoch == self.leader_epoch


class _Wait:
    """A fetch, at one partition where it waits. Meets purgatory.Waiter."""

    __slots__ = ("fetch", "is_done", "led")

    replica_id = BrokerId(-1)

    def __init__(self, fetch: _ParkedFetch, led: _Led) -> None:
        self.fetch = fetch
        self.led = led
        self.is_done = False

    def note(self) -> None:
        """See Waiter."""

    def look_again(self) -> None:
        """See Waiter."""
        self.fetch.wake(self.led)

    def answer_now(self) -> None:
        """See Waiter."""
        self.fetch.expire()


class _ParkedFetch:
    """A fetch that is not answered yet."""

    __slots__ = ("ask", "is_done", "leds", "refused", "respond", "service", "timer", "waits")

    def __init__(
        self,
        service: SharePartitions,
        ask: ShareFetch,
        leds: list[_Led],
        refused: list[ShareOutcome],
        respond: RespondShare,
    ) -> None:
        self.service = service
        self.ask = ask
        self.leds = leds
        self.refused = refused
        self.respond = respond
        self.waits: list[_Wait] = []
        self.timer: asyncio.TimerHandle | None = None
        self.is_done = False

    def wake(self, led: _Led) -> None:
        """Something happened there."""
        if not self.is_done and self.service.is_worth_a_look(led, self.ask):
            self.service.look(self, is_due=False)

    def expire(self) -> None:
        """Its time is up."""
        if not self.is_done:
            self.service.look(self, is_due=True)

    def leave(self) -> None:
        """Wait no more."""
        self.is_done = True
        if self.timer is not None:
            self.timer.cancel()
        for wait in self.waits:
            wait.is_done = True
            wait.led.waits.pop(wait, None)
            wait.led.partition.consumer_fetches.discard(wait)
        self.waits.clear()


class SharePartitions:
    """Everything that share groups do at this broker. On the data lane; `run` owns its tasks."""

    def __init__(
        self,
        *,
        replicas: ReplicaManager,
        persister: Persister,
        letters: LetterWriter,
        due_times: DueTimeReader,
        metadata: MetadataSource,
        settings: Callable[[MetadataImage, str], ShareSettings],
        sessions_max: int,
        fetch_bytes_max: int,
        clock_ms: Callable[[], int],
    ) -> None:
        """settings: of a group, by its id. sessions_max: group.share.max.share.sessions. fetch_bytes_max: of one answer.
        clock_ms: wall clock."""
        self.stats = ShareStats()
        self.sessions = ShareSessions(sessions_max=sessions_max)
        self._replicas = replicas
        self._persister = persister
        self._letters = letters
        self._due_times = due_times
        self._metadata = metadata
        self._settings_of = settings
        self._fetch_bytes_max = fetch_bytes_max
        self._clock_ms = clock_ms
        self._led: dict[ShareKey, _Led] = {}
        self._settings: dict[str, tuple[object, object, ShareSettings]] = {}
        """By group: configs and features of the image, and what they come to."""
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Owner task of all that waits, until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self._drop_all(NotLeaderOrFollower("this broker stops"))
                self._tasks = None

    # -- settings and roles ------------------------------------------------------------------------------------------

    def settings(self, group_id: str) -> ShareSettings:
        """What holds for a group now."""
        image = self._metadata.image
        known = self._settings.get(group_id)
        if known is not None and known[0] is image.configs and known[1] is image.features:
            return known[2]
        settings = self._settings_of(image, group_id)
        if image.features.share_version < SHARE_VERSION_DEAD_LETTERS and settings.dead_letter_topic:
            settings = replace(settings, dead_letter_topic="")
        if known is None and not self.sessions.has_members(group_id):
            return settings  # whoever asks may name any group
        self._settings[group_id] = (image.configs, image.features, settings)
        return settings

    def follow(self, image: MetadataImage) -> None:
        """Replicas have taken the roles of this image: let go of what this broker leads no more, and of all once share groups are off."""
        if not image.features.share_version:
            self._drop_all(KafkaError.of(ErrorCode.UNSUPPORTED_VERSION, "share groups are off: share.version is 0"))
            for session in self.sessions.all():
                self.sessions.end(session)
            self._settings.clear()
            return
        for led in list(self._led.values()):
            if not led.is_led or self._replicas.partition(led.partition.topic_partition) is not led.partition:
                self._drop(led, led.partition.not_leader())

    # -- sessions ----------------------------------------------------------------------------------------------------

    def end_session(self, session: ShareSession) -> None:
        """The member leaves, or its connection is gone: let go of its records in the partitions that the session has. Harmless when
        the member has another session by now."""
        if not self.sessions.end(session):
            return
        now_ms = self._clock_ms()
        for shared in session.partitions:
            led = self._led.get(ShareKey(session.group_id, *shared))
            if led is not None and led.core is not None:
                led.core.release(session.member_id, now_ms=now_ms)
                self._obey(led)
        if not self.sessions.has_members(session.group_id):
            self._settings.pop(session.group_id, None)
            for led in list(self._led.values()):
                if led.key.group_id == session.group_id:
                    self._drop_idle(led)

    # -- acknowledging -----------------------------------------------------------------------------------------------

    def acknowledge(
        self,
        session: ShareSession,
        shared: SharedPartition,
        batches: Sequence[Acknowledgement],
        respond: RespondAcknowledged,
    ) -> None:
        """Take a member's acknowledgements in one partition; all count, once they are kept, or none."""
        key = ShareKey(session.group_id, *shared)
        led = self._led.get(key)
        if led is None or led.core is None or not led.is_led:
            respond(self._unknown(shared))
            return
        led.core.follow(self.settings(key.group_id))
        try:
            change = led.core.acknowledge(session.member_id, batches, respond, now_ms=self._clock_ms())
        except KafkaError as error:
            self.stats.refused_acknowledgements += 1
            self._obey(led)
            respond(error)
            return
        self.stats.acknowledgements += len(batches)
        self._obey(led)
        if change is None:
            respond(None)

    def _unknown(self, shared: SharedPartition) -> KafkaError:
        """Why there is no such share partition here."""
        topic = self._metadata.image.topics.get_by_id(shared.topic_id)
        if topic is None:
            return KafkaError.of(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has id {shared.topic_id}")
        try:
            self._replicas.hosted.leader_partition(TopicPartition(topic.name, shared.partition))
        except KafkaError as error:
            return error
        return KafkaError.of(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"nobody has fetched {topic.name}-{shared.partition} here: fetch first",
        )

    # -- fetching ----------------------------------------------------------------------------------------------------

    def fetch(self, ask: ShareFetch, partitions: Sequence[SharedPartition], respond: RespondShare) -> Cancel:
        """Answer one fetch, at once or when there is enough, at latest after max_wait_ms."""
        leds: list[_Led] = []
        refused: list[ShareOutcome] = []
        for shared in partitions:
            try:
                leds.append(self._lead(ShareKey(ask.session.group_id, *shared)))
            except KafkaError as error:
                refused.append(self._refusal(shared, error))
        fetch = _ParkedFetch(self, ask, leds, refused, respond)
        self.look(fetch, is_due=ask.max_wait_ms <= 0 or bool(refused))
        if fetch.is_done:
            return _nothing
        self.stats.fetches_parked += 1
        loop = asyncio.get_running_loop()
        fetch.timer = loop.call_later(ask.max_wait_ms / 1000, fetch.expire)
        for led in leds:
            wait = _Wait(fetch, led)
            fetch.waits.append(wait)
            led.waits[wait] = None
            led.partition.consumer_fetches.add(wait)
        return fetch.leave

    def is_worth_a_look(self, led: _Led, ask: ShareFetch) -> bool:
        """Whether a look may find something there."""
        core = led.core
        if led.is_dropped or not led.is_led:
            return True
        if core is None:
            return False
        core.tick(self._clock_ms())
        if core.settings.deliver_at_header:
            self._examine(led)
        offset = core.fetch_offset()
        return offset is not None and offset < _end_of(led.partition, core.settings)

    def look(self, fetch: _ParkedFetch, *, is_due: bool) -> None:
        """Acquire for a fetch, and answer it if there is something, or it is time."""
        ask = fetch.ask
        outcomes = list(fetch.refused)
        reads: list[tuple[_Led, Offset, FetchOutcome]] = []
        bytes_left = min(ask.max_bytes, self._fetch_bytes_max)
        bytes_each = max(1, bytes_left // max(1, len(fetch.leds)))
        records_left, headers_left, size_bytes = ask.records_max, HEADERS_MAX, 0
        is_greedy = ask.min_bytes <= 1 or is_due
        for led in fetch.leds:
            error = self._error_of(led)
            if error is not None:
                outcomes.append(self._refusal(led.shared, error))
                is_due = True
            elif led.core is not None and records_left > 0 and headers_left > 0:
                led.core.follow(self.settings(led.key.group_id))
                for _ in range(LOOKS_MAX):
                    read = self._read(led, bytes_each, is_one_batch_due=size_bytes < bytes_left)
                    if read is None:
                        break
                    if read[1].error is not None:
                        outcomes.append(self._refusal(led.shared, read[1].error))
                        is_due = True
                        break
                    if not is_greedy:
                        size_bytes += read[1].size_bytes
                        reads.append((led, *read))
                        break
                    end = led.core.window.end
                    outcome, seen = self._acquire(led, read[0], read[1], ask, records_left, headers_left)
                    headers_left -= seen
                    if outcome is not None:
                        records_left -= sum(last - first + 1 for first, last, _ in outcome.acquired)
                        size_bytes += outcome.size_bytes
                        outcomes.append(outcome)
                        break
                    if led.core.window.end == end or headers_left <= 0:
                        break
        if reads:
            is_enough = size_bytes >= ask.min_bytes or is_due
            for led, offset, read_outcome in reads:
                if not is_enough or records_left <= 0 or headers_left <= 0:
                    _release(read_outcome)
                    continue
                outcome, seen = self._acquire(led, offset, read_outcome, ask, records_left, headers_left)
                headers_left -= seen
                if outcome is not None:
                    records_left -= sum(last - first + 1 for first, last, _ in outcome.acquired)
                    outcomes.append(outcome)
        if is_due or outcomes:
            fetch.leave()
            fetch.respond(outcomes)

    def _read(self, led: _Led, bytes_max: int, *, is_one_batch_due: bool) -> tuple[Offset, FetchOutcome] | None:
        """What the log has where the next offset to acquire is; None for nothing."""
        core, partition = led.core, led.partition
        assert core is not None, "it is loaded"
        core.tick(self._clock_ms())
        if core.window.start < partition.log.log_start_offset:
            core.log_starts_at(partition.log.log_start_offset)
        if core.settings.deliver_at_header:
            self._examine(led)
        offset = core.fetch_offset()
        if offset is None or offset >= _end_of(partition, core.settings):
            return None
        outcome = self._read_at(led, offset, bytes_max, is_one_batch_due=is_one_batch_due)
        if isinstance(outcome.error, OffsetOutOfRange):
            if offset >= partition.log.log_start_offset:
                return None
            core.log_starts_at(partition.log.log_start_offset)
            return self._read(led, bytes_max, is_one_batch_due=is_one_batch_due)
        if outcome.error is None and not outcome.parts:
            return None
        return offset, outcome

    def _read_at(self, led: _Led, offset: Offset, bytes_max: int, *, is_one_batch_due: bool) -> FetchOutcome:
        assert led.core is not None, "it is loaded"
        topic, index = led.partition.topic_partition
        return fetch_from(
            led.partition,
            FetchPartitionSpec(topic, led.key.topic_id, index, fetch_offset=offset, max_bytes=bytes_max),
            FetchSpec(is_read_committed=led.core.settings.is_read_committed),
            bytes_max=bytes_max,
            is_one_batch_due=is_one_batch_due,
            is_first_look=False,
            now_ms=0,
        )

    def _acquire(
        self, led: _Led, offset: Offset, read: FetchOutcome, ask: ShareFetch, records_max: int, headers_max: int
    ) -> tuple[ShareOutcome | None, int]:
        """What the member gets of a read, and how many headers were looked at. Takes the hold of the range."""
        core = led.core
        assert core is not None, "it is loaded"
        reader = BatchReader(read.parts[0], read.aborted, headers_max=headers_max)
        request = AcquireRequest(ask.session.member_id, records_max, max(1, ask.batch_size), ask.is_strict)
        acquired = core.acquire(reader.spans(), request, from_offset=offset, now_ms=self._clock_ms())
        parts, size_bytes = reader.pieces(acquired)
        self._obey(led)
        if not acquired:
            if reader.error is None:
                return None, len(reader.seen)
            error = StorageFailed(f"{led.partition.topic_partition} cannot be read: {reader.error}")
            return self._refusal(led.shared, error), len(reader.seen)
        self.stats.acquired_records += sum(last - first + 1 for first, last, _ in acquired)
        led.partition.traffic.bytes_out += size_bytes
        self._replicas.stats.fetched_bytes += size_bytes
        return ShareOutcome(led.shared, None, None, parts, size_bytes, acquired), len(reader.seen)

    def _error_of(self, led: _Led) -> KafkaError | None:
        if led.is_dropped:
            return led.error
        if not led.is_led or led.partition.storage_error is not None:
            error = led.partition.storage_error or led.partition.not_leader()
            self._drop(led, error)
            return error
        return None

    def _refusal(self, shared: SharedPartition, error: KafkaError) -> ShareOutcome:
        hint = None
        topic = self._metadata.image.topics.get_by_id(shared.topic_id)
        if topic is not None and error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            hint = self._replicas.hosted.leader_hint(topic.name, shared.partition)
        return ShareOutcome(shared, error, hint)

    # -- loading -----------------------------------------------------------------------------------------------------

    def _lead(self, key: ShareKey) -> _Led:
        """The share partition, which begins to load if it was not there. Raises KafkaError where this broker does not lead it."""
        led = self._led.get(key)
        if led is not None:
            if self._error_of(led) is None:
                return led
            del led
        topic = self._metadata.image.topics.get_by_id(key.topic_id)
        if topic is None:
            raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has id {key.topic_id}")
        partition = self._replicas.hosted.leader_partition(TopicPartition(topic.name, key.partition))
        if partition.topic_id != key.topic_id:
            raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_ID, f"{topic.name} was made again, and is not here yet")
        if self._tasks is None:
            raise KafkaError.of(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker starts, or stops: ask again")
        led = self._led[key] = _Led(key, partition)
        self._spawn(self._load(led))
        return led

    async def _load(self, led: _Led) -> None:
        self.stats.loads += 1
        key = led.key
        try:
            state = await self._persister.read(key, leader_epoch=led.leader_epoch)
            settings = self.settings(key.group_id)
            start = state.start_offset
            if start == NO_OFFSET:
                start = await self._first_offset(led, settings)
            core = SharePartition(state, settings, start_offset=start)
        except KafkaError as error:
            self._fail_load(led, _told(error))
            return
        except ValueError as error:
            text = f"the state of share group {key.group_id} in {led.partition.topic_partition} is none: {error}"
            logger.error("%s; reset the group's offsets there", text)
            self._fail_load(led, KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, text))
            return
        if led.is_dropped:
            return
        if not led.is_led:
            self._drop(led, led.partition.not_leader())
            return
        led.state_epoch, led.core = state.state_epoch, core
        core.log_starts_at(led.partition.log.log_start_offset)
        self._obey(led)

    def _fail_load(self, led: _Led, error: KafkaError) -> None:
        self.stats.failed_loads += 1
        self._drop(led, error)

    async def _first_offset(self, led: _Led, settings: ShareSettings) -> Offset:
        """Where the group begins that never read the partition. Raises KafkaError."""
        partition, reset = led.partition, settings.auto_offset_reset
        if reset == "earliest":
            return partition.log.log_start_offset
        if reset.startswith(BY_DURATION):
            since_ms = max(0, self._clock_ms() - duration_ms(reset[len(BY_DURATION) :]))
            found = await self._replicas.list_offset_by_time(
                partition.topic_partition, since_ms, is_read_committed=settings.is_read_committed
            )
            if found.offset >= 0:
                return found.offset
        return list_offset(partition, LATEST_TIMESTAMP, is_read_committed=settings.is_read_committed).offset

    # -- obeying the core --------------------------------------------------------------------------------------------

    def _obey(self, led: _Led) -> None:
        """Something has changed: do what the core asks for, and let those look again who wait for it."""
        core = led.core
        if core is None or led.is_dropped:
            return
        now_ms = self._clock_ms()
        if not led.is_writing and core.has_to_write(now_ms):
            led.is_writing = True
            self._spawn(self._write(led))
        if not led.is_posting and core.has_letters(now_ms):
            led.is_posting = True
            self._spawn(self._post(led))
        self._set_alarm(led)
        self._wake_soon(led)

    def _wake_soon(self, led: _Led) -> None:
        """In the next turn: who acquires now must not be called again meanwhile."""
        if led.waits and not led.is_wake_due:
            led.is_wake_due = True
            asyncio.get_running_loop().call_soon(self._wake, led)

    def _wake(self, led: _Led) -> None:
        led.is_wake_due = False
        for wait in tuple(led.waits):
            if not wait.is_done:
                wait.look_again()

    def _set_alarm(self, led: _Led) -> None:
        core = led.core
        assert core is not None, "it is loaded"
        at_ms = core.alarm_ms
        if led.timer is not None:
            if at_ms is not None and led.timer_ms <= at_ms:
                return  # it comes early enough, and asks again then
            led.timer.cancel()
            led.timer = None
        if at_ms is not None:
            led.timer_ms = at_ms
            wait_s = max(0, at_ms - self._clock_ms()) / 1000
            led.timer = asyncio.get_running_loop().call_later(wait_s, self._ring, led)

    def _ring(self, led: _Led) -> None:
        led.timer = None
        if led.is_dropped or led.core is None:
            return
        led.core.follow(self.settings(led.key.group_id))
        led.core.tick(self._clock_ms())
        self._obey(led)
        self._drop_idle(led)

    async def _write(self, led: _Led) -> None:
        """Have the persister keep what has changed, until nothing is left to be kept."""
        core = led.core
        assert core is not None, "it is loaded"
        while not led.is_dropped and (write := core.take_write(self._clock_ms())) is not None:
            error: KafkaError | None = None
            self.stats.writes += 1
            try:
                await self._persister.write(
                    led.key,
                    state_epoch=led.state_epoch,
                    leader_epoch=led.leader_epoch,
                    start_offset=write.start_offset,
                    complete_count=write.complete_count,
                    batches=write.batches,
                )
            except KafkaError as raised:
                error = raised
                self.stats.failed_writes += 1
            if led.is_dropped:
                return
            if error is not None and error.code in _FENCED:
                self._drop(led, _told(error))
                return
            changes = core.written(error, now_ms=self._clock_ms())
            _tell(changes, None if error is None else _told(error))
            self._wake_soon(led)
        led.is_writing = False
        self._obey(led)
        self._drop_idle(led)

    async def _post(self, led: _Led) -> None:
        """Write dead letters, until none is due."""
        core, (topic, index) = led.core, led.partition.topic_partition
        assert core is not None, "it is loaded"
        while not led.is_dropped and (letters := core.take_letters(self._clock_ms())):
            group_id, topic_id, _ = led.key
            of_offset = {
                letter.offset: DeadLetter(
                    group_id, topic_id, topic, index, letter.offset, letter.deliveries, _cause(letter.is_rejected)
                )
                for letter in letters
            }
            unwritten: list[Offset] = []
            try:
                await self._letters.write(core.settings, list(of_offset.values()))
            except DeadLettersFailed as error:
                unwritten = [letter.offset for letter in error.unwritten]
                self.stats.failed_letters += len(unwritten)
                what = "they are tried again" if core.settings.holds_on_dead_letter_failure else "they are given up"
                logger.warning(
                    "share group %s, %s-%d: %s; %s", group_id[:100], topic, index, error.message, what
                )  # at most one for each pause
            if led.is_dropped:
                return
            core.posted(unwritten, now_ms=self._clock_ms())
            if not led.is_writing and core.has_to_write(self._clock_ms()):
                led.is_writing = True
                self._spawn(self._write(led))
        led.is_posting = False
        self._obey(led)

    def _examine(self, led: _Led) -> None:
        """Have records opened that may not be due, if there are some to be looked at."""
        core = led.core
        assert core is not None, "it is loaded"
        if led.is_examining or self._tasks is None:
            return
        offset = core.examine_from()
        if offset is not None and offset < _end_of(led.partition, core.settings):
            led.is_examining = True
            self._spawn(self._look_for_due(led))

    async def _look_for_due(self, led: _Led) -> None:
        core = led.core
        assert core is not None, "it is loaded"
        try:
            while (offset := core.examine_from()) is not None and not led.is_dropped:
                if offset >= _end_of(led.partition, core.settings):
                    break
                outcome = self._read_at(led, offset, self._fetch_bytes_max, is_one_batch_due=True)
                if isinstance(outcome.error, OffsetOutOfRange) and offset < led.partition.log.log_start_offset:
                    core.log_starts_at(led.partition.log.log_start_offset)
                    continue
                if outcome.error is not None or not outcome.parts:
                    break
                try:
                    header = core.settings.deliver_at_header
                    looked = await self._due_times.look(outcome.parts[0], header=header, now_ms=self._clock_ms())
                finally:
                    _release(outcome)
                if led.is_dropped:
                    break
                if core.settings.deliver_at_header == header and looked.end > offset:
                    core.delay(offset, Offset(looked.end - 1), looked.waiting, now_ms=self._clock_ms())
                self._wake_soon(led)
        except (KafkaError, OSError) as error:
            logger.warning(
                "records of %s cannot be opened to see when they are due: %s", led.partition.topic_partition, error
            )
            await asyncio.sleep(1)
        finally:
            led.is_examining = False
        self._obey(led)

    # -- letting go --------------------------------------------------------------------------------------------------

    def _drop(self, led: _Led, error: KafkaError) -> None:
        """Serve it no more: who waits there gets the error."""
        if led.is_dropped:
            return
        led.is_dropped, led.error = True, error
        if self._led.get(led.key) is led:
            del self._led[led.key]
        if led.timer is not None:
            led.timer.cancel()
        if led.core is not None:
            _tell(led.core.abandon(), error)
        self._wake_soon(led)

    def _drop_idle(self, led: _Led) -> None:
        """Forget it where no member of the group is here and nothing is left to be done."""
        core = led.core
        if core is None or led.waits or led.is_writing or led.is_posting or self.sessions.has_members(led.key.group_id):
            return
        if core.is_at_rest:
            self._drop(led, led.partition.not_leader())

    def _drop_all(self, error: KafkaError) -> None:
        for led in list(self._led.values()):
            self._drop(led, error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if self._tasks is None:  # the broker stops
            work.close()
            return
        self._tasks.create_task(work)

    # -- telling -----------------------------------------------------------------------------------------------------

    def describe(self, key: ShareKey) -> ShareDescription | None:
        """How a share partition is; None for one that is not loaded here."""
        led = self._led.get(key)
        return None if led is None or led.core is None else led.core.describe()

    def cores(self) -> list[SharePartition]:
        """The cores of all share partitions that are loaded here, to read their counters."""
        return [led.core for led in self._led.values() if led.core is not None]

    def descriptions(self) -> list[tuple[ShareKey, ShareDescription]]:
        """How each share partition is that is loaded here."""
        return [(key, led.core.describe()) for key, led in self._led.items() if led.core is not None]


def _end_of(partition: Partition, settings: ShareSettings) -> Offset:
    """Where the records end that a group may have."""
    return partition.log.last_stable_offset if settings.is_read_committed else partition.high_watermark


def _tell(changes: Sequence[Change], error: KafkaError | None) -> None:
    for change in changes:
        respond: RespondAcknowledged = change.token  # type: ignore[assignment]  # ours, see acknowledge
        respond(error)


def _told(error: KafkaError) -> KafkaError:
    """What a member is told of the persister's error, as Kafka has it."""
    if error.code in _FENCED:
        return NotLeaderOrFollower(error.message)
    if error.code in _UNAVAILABLE:
        return KafkaError.of(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
    if error.code in _TOLD or isinstance(error, NotLeaderOrFollower):
        return error
    return KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, error.message)


def _cause(is_rejected: bool) -> str:
    return REJECTED if is_rejected else EXHAUSTED


def _release(outcome: FetchOutcome) -> None:
    for part in outcome.parts:
        part.file.release()


def _nothing() -> None:
    """The Cancel of a fetch that was answered already."""
