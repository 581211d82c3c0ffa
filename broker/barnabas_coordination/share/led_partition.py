"""A share partition that this broker leads: loads its state, and does what its core decides, until it is let go of.

May touch:  the replica, the persister, dead letters, due times, loop timers.   Must not touch: sockets, sessions, the bytes of records.
Invariants: one core, of one leader epoch; at most one write, one post of dead letters and one look for due times are under way; what was
            dropped changes nothing any more, whatever comes back to it.
Read next:  partition.py (the core), parked_fetches.py (who waits here); ../share_state/messages.py (the persister).

Not obvious: nothing waits for a lock. A core decides between two turns of the loop, so two fetches never meet in one; what Kafka calls its
fetch lock has no need here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol

from barnabas_coordination.internal_topic import MetadataSource
from barnabas_coordination.share.due_times import Looked
from barnabas_coordination.share.letters import EXHAUSTED, REJECTED, DeadLetter, DeadLettersFailed
from barnabas_coordination.share.partition import SharePartition
from barnabas_coordination.share.sessions import SharedPartition
from barnabas_coordination.share.window import Change
from barnabas_coordination.share_settings import BY_DURATION, ShareSettings, duration_ms
from barnabas_coordination.share_state.messages import Persister, ShareKey
from barnabas_log.disk import FileRange
from barnabas_log.errors import OffsetOutOfRange
from barnabas_replication.errors import NotLeaderOrFollower
from barnabas_replication.leader.offset_lookup import LATEST_TIMESTAMP, list_offset
from barnabas_replication.leader.purgatory import Waiter
from barnabas_replication.leader.reads import fetch_from
from barnabas_replication.manager import ReplicaManager
from barnabas_replication.partition import Partition
from barnabas_replication.requests import FetchOutcome, FetchPartitionSpec, FetchSpec
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_OFFSET, Epoch, Offset
from barnabas_wire.lazy_dataclass import dataclass

logger = logging.getLogger("barnabas_broker.coordinator.share")  # the name that operators set a level of

_FENCED: Final = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH)
_UNAVAILABLE: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
_TOLD: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

RespondAcknowledged = Callable[[KafkaError | None], None]
"""Called exactly once, at once or later."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the share partitions of one broker have around them."""

    replicas: ReplicaManager
    persister: Persister
    letters: LetterWriter
    due_times: DueTimeReader
    metadata: MetadataSource
    settings: Callable[[str], ShareSettings]
    """What holds for a group now."""
    has_members: Callable[[str], bool]
    """Whether members of a group have sessions here."""
    spawn: Callable[[Coroutine[Any, Any, None]], None]
    """Run in the service's group of tasks; does nothing once that is over."""
    forget: Callable[[LedPartition], None]
    """It was dropped."""
    fetch_bytes_max: int
    clock_ms: Callable[[], int]
    stats: ShareStats


class LedPartition:
    """One share partition that this broker leads. All methods run on the data lane."""

    __slots__ = (
        "_around",
        "_is_examining",
        "_is_posting",
        "_is_wake_due",
        "_is_writing",
        "_state_epoch",
        "_timer",
        "_timer_ms",
        "core",
        "error",
        "is_dropped",
        "key",
        "leader_epoch",
        "partition",
        "shared",
        "waits",
    )

    def __init__(self, key: ShareKey, partition: Partition, around: Surroundings) -> None:
        """It begins to load."""
        self.key = key
        self.shared = SharedPartition(key.topic_id, key.partition)
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.core: SharePartition | None = None
        """None until it is loaded."""
        self.error: KafkaError | None = None
        """Why it is dropped."""
        self.is_dropped = False
        self.waits: dict[Waiter, None] = {}
        """Fetches that wait for something here, in their order."""
        self._around = around
        self._state_epoch = Epoch(0)
        self._is_writing = self._is_posting = self._is_examining = self._is_wake_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        around.spawn(self._load())

    @property
    def is_led(self) -> bool:
        """Whether the replica manager still says so."""
        partition = self.partition
        return partition.is_leader and partition.leader_epoch == self.leader_epoch

    def check(self) -> KafkaError | None:
        """Why it cannot be served, if so; it is dropped then."""
        if self.is_dropped:
            return self.error
        if not self.is_led or self.partition.storage_error is not None:
            error = self.partition.storage_error or self.partition.not_leader()
            self.drop(error)
            return error
        return None

    # -- loading -----------------------------------------------------------------------------------------------------

    async def _load(self) -> None:
        around, key = self._around, self.key
        around.stats.loads += 1
        try:
            state = await around.persister.read(key, leader_epoch=self.leader_epoch)
            settings = around.settings(key.group_id)
            start = state.start_offset
            if start == NO_OFFSET:
                start = await self._first_offset(settings)
                await self._write_start(state.state_epoch, start)
            core = SharePartition(state, settings, start_offset=start)
        except KafkaError as error:
            self._fail_load(_told(error))
            return
        except ValueError as error:
            text = f"the state of share group {key.group_id} in {self.partition.topic_partition} is none: {error}"
            logger.error("%s; reset the group's offsets there", text)
            self._fail_load(KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, text))
            return
        if self.is_dropped:
            return
        if not self.is_led:
            self.drop(self.partition.not_leader())
            return
        self._state_epoch, self.core = state.state_epoch, core
        core.log_starts_at(self.partition.log.log_start_offset)
        self.obey()

    def _fail_load(self, error: KafkaError) -> None:
        self._around.stats.failed_loads += 1
        self.drop(error)

    async def _write_start(self, state_epoch: Epoch, start: Offset) -> None:
        """Have it kept where the group begins, before any member is served: Kafka has each leader reset again until a
        first acknowledgement, and a group that begins at the end then misses what was written between two leaders.
        Raises KafkaError."""
        self._around.stats.writes += 1
        await self._around.persister.write(
            self.key,
            state_epoch=state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=start,
            complete_count=0,
            batches=(),
        )

    async def _first_offset(self, settings: ShareSettings) -> Offset:
        """Where the group begins that never read the partition. Raises KafkaError."""
        around, partition, reset = self._around, self.partition, settings.auto_offset_reset
        if reset == "earliest":
            return partition.log.log_start_offset
        if reset.startswith(BY_DURATION):
            since_ms = max(0, around.clock_ms() - duration_ms(reset[len(BY_DURATION) :]))
            found = await around.replicas.list_offset_by_time(
                partition.topic_partition, since_ms, is_read_committed=settings.is_read_committed
            )
            if found.offset >= 0:
                return found.offset
        return list_offset(partition, LATEST_TIMESTAMP, is_read_committed=settings.is_read_committed).offset

    # -- reading -----------------------------------------------------------------------------------------------------

    def has_something(self) -> bool:
        """Whether a fetch may find something here, if only an error."""
        core = self.core
        if self.is_dropped or not self.is_led:
            return True
        if core is None:
            return False
        core.tick(self._around.clock_ms())
        return self._next_offset(core) is not None

    def read(self, bytes_max: int, *, is_one_batch_due: bool) -> tuple[Offset, FetchOutcome] | None:
        """What the log has where the next offset to acquire is; None for nothing. The ranges are the caller's to release."""
        core, log = self.core, self.partition.log
        assert core is not None, "it is loaded"
        core.tick(self._around.clock_ms())
        while True:
            if core.window.start < log.log_start_offset:
                core.log_starts_at(log.log_start_offset)
            offset = self._next_offset(core)
            if offset is None:
                return None
            outcome = self._read_at(core, offset, bytes_max, is_one_batch_due=is_one_batch_due)
            if isinstance(outcome.error, OffsetOutOfRange):
                if offset >= log.log_start_offset:
                    return None
                core.log_starts_at(log.log_start_offset)
                continue
            if outcome.error is None and not outcome.parts:
                return None
            return offset, outcome

    def _next_offset(self, core: SharePartition) -> Offset | None:
        """Where to read for the next member, if there is something; has records opened first where they may name a time."""
        if core.settings.deliver_at_header:
            self._examine(core)
        offset = core.fetch_offset()
        return None if offset is None or offset >= self._end(core) else offset

    def _end(self, core: SharePartition) -> Offset:
        """Where the records end that the group may have."""
        partition = self.partition
        return partition.log.last_stable_offset if core.settings.is_read_committed else partition.high_watermark

    def _read_at(self, core: SharePartition, offset: Offset, bytes_max: int, *, is_one_batch_due: bool) -> FetchOutcome:
        topic, index = self.partition.topic_partition
        return fetch_from(
            self.partition,
            FetchPartitionSpec(topic, self.key.topic_id, index, fetch_offset=offset, max_bytes=bytes_max),
            FetchSpec(is_read_committed=core.settings.is_read_committed),
            bytes_max=bytes_max,
            is_one_batch_due=is_one_batch_due,
            is_first_look=False,
            now_ms=0,
        )

    # -- obeying the core --------------------------------------------------------------------------------------------

    def obey(self) -> None:
        """Something has changed: do what the core asks for, and let those look again who wait for it."""
        core = self.core
        if core is None or self.is_dropped:
            return
        now_ms = self._around.clock_ms()
        self._begin_write(core, now_ms)
        if not self._is_posting and core.has_letters(now_ms):
            self._is_posting = True
            self._around.spawn(self._post(core))
        self._set_alarm(core)
        self._wake_soon()

    def _begin_write(self, core: SharePartition, now_ms: int) -> None:
        if not self._is_writing and core.has_to_write(now_ms):
            self._is_writing = True
            self._around.spawn(self._write(core))

    def _wake_soon(self) -> None:
        """In the next turn: a fetch that acquires now must not be called again meanwhile."""
        if self.waits and not self._is_wake_due:
            self._is_wake_due = True
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        self._is_wake_due = False
        for wait in tuple(self.waits):
            if not wait.is_done:
                wait.look_again()

    def _set_alarm(self, core: SharePartition) -> None:
        at_ms = core.alarm_ms
        if self._timer is not None:
            if at_ms is not None and self._timer_ms <= at_ms:
                return  # it comes early enough, and asks again then
            self._timer.cancel()
            self._timer = None
        if at_ms is not None:
            self._timer_ms = at_ms
            wait_s = max(0, at_ms - self._around.clock_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._ring, core)

    def _ring(self, core: SharePartition) -> None:
        self._timer = None
        if self.is_dropped:
            return
        core.follow(self._around.settings(self.key.group_id))
        core.tick(self._around.clock_ms())
        self.obey()
        self.drop_idle()

    async def _write(self, core: SharePartition) -> None:
        """Have the persister keep what has changed, until nothing is left to be kept."""
        around = self._around
        while not self.is_dropped and (write := core.take_write(around.clock_ms())) is not None:
            error: KafkaError | None = None
            around.stats.writes += 1
            try:
                await around.persister.write(
                    self.key,
                    state_epoch=self._state_epoch,
                    leader_epoch=self.leader_epoch,
                    start_offset=write.start_offset,
                    complete_count=write.complete_count,
                    batches=write.batches,
                )
            except KafkaError as raised:
                error = raised
                around.stats.failed_writes += 1
            if self.is_dropped:
                return
            if error is not None and error.code in _FENCED:
                self.drop(_told(error))
                return
            changes = core.written(error, now_ms=around.clock_ms())
            _tell(changes, None if error is None else _told(error))
            self._wake_soon()
        self._is_writing = False
        self.obey()
        self.drop_idle()

    async def _post(self, core: SharePartition) -> None:
        """Write dead letters, until none is due."""
        around, (topic, index) = self._around, self.partition.topic_partition
        while not self.is_dropped and (letters := core.take_letters(around.clock_ms())):
            group_id, topic_id, _ = self.key
            named = [
                DeadLetter(group_id, topic_id, topic, index, each.offset, each.deliveries, _cause(each.is_rejected))
                for each in letters
            ]
            unwritten: list[Offset] = []
            try:
                await around.letters.write(core.settings, named)
            except DeadLettersFailed as error:
                unwritten = [letter.offset for letter in error.unwritten]
                around.stats.failed_letters += len(unwritten)
                what = "they are tried again" if core.settings.holds_on_dead_letter_failure else "they are given up"
                logger.warning(
                    "share group %s, %s-%d: %s; %s", group_id[:100], topic, index, error.message, what
                )  # at most one for each pause
            if self.is_dropped:
                return
            core.posted(unwritten, now_ms=around.clock_ms())
            self._begin_write(core, around.clock_ms())
        self._is_posting = False
        self.obey()

    def _examine(self, core: SharePartition) -> None:
        """Have records opened that may not be due, if there are some to be looked at."""
        if self._is_examining:
            return
        offset = core.examine_from()
        if offset is not None and offset < self._end(core):
            self._is_examining = True
            self._around.spawn(self._look_for_due(core))

    async def _look_for_due(self, core: SharePartition) -> None:
        around, log = self._around, self.partition.log
        try:
            while (offset := core.examine_from()) is not None and not self.is_dropped:
                if offset >= self._end(core):
                    break
                outcome = self._read_at(core, offset, around.fetch_bytes_max, is_one_batch_due=True)
                if isinstance(outcome.error, OffsetOutOfRange) and offset < log.log_start_offset:
                    core.log_starts_at(log.log_start_offset)
                    continue
                if outcome.error is not None or not outcome.parts:
                    break
                try:
                    header = core.settings.deliver_at_header
                    looked = await around.due_times.look(outcome.parts[0], header=header, now_ms=around.clock_ms())
                finally:
                    release(outcome)
                if self.is_dropped:
                    break
                if core.settings.deliver_at_header == header and looked.end > offset:
                    core.delay(offset, Offset(looked.end - 1), looked.waiting, now_ms=around.clock_ms())
                self._wake_soon()
        except (KafkaError, OSError) as error:
            logger.warning(
                "records of %s cannot be opened to see when they are due: %s", self.partition.topic_partition, error
            )
            await asyncio.sleep(1)
        finally:
            self._is_examining = False
        self.obey()

    # -- letting go --------------------------------------------------------------------------------------------------

    def drop(self, error: KafkaError) -> None:
        """Serve it no more: requests that wait there get the error."""
        if self.is_dropped:
            return
        self.is_dropped, self.error = True, error
        self._around.forget(self)
        if self._timer is not None:
            self._timer.cancel()
        if self.core is not None:
            _tell(self.core.abandon(), error)
        self._wake_soon()

    def drop_idle(self) -> None:
        """Forget it where no member of the group is here and nothing is left to be done."""
        core = self.core
        if core is None or self.waits or self._is_writing or self._is_posting:
            return
        if core.is_at_rest and not self._around.has_members(self.key.group_id):
            self.drop(self.partition.not_leader())


def release(outcome: FetchOutcome) -> None:
    """Let go of what a read holds."""
    for part in outcome.parts:
        part.file.release()


def _tell(changes: Sequence[Change], error: KafkaError | None) -> None:
    for change in changes:
        respond: RespondAcknowledged = change.token  # type: ignore[assignment]  # ours, see SharePartitions.acknowledge
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
