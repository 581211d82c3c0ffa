"""What a partition's replicas hold, followed batch by batch as they write, and what of it is committed.

May touch:  the bytes of the replicas' logs, read only.   Must not touch: a log's own look-ups, which are what is judged.
Invariants: a batch is read once when it is written and once per life of its replica; committed offsets are never taken back.
Read next:  invariants.py, which asks this for every law of P.

A batch is known by (leader epoch, base offset). Its chain is a hash over all bytes from the log's beginning to its end, so two
replicas with an equal chain at an offset are equal byte for byte below it, and comparing them costs nothing.
"""

from __future__ import annotations

from bisect import bisect_right

from barnabas_log.tail.segment import LogSegment
from barnabas_log.unified_log import UnifiedLog
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_replication.partition import Partition
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset, Uuid
from barnabas_wire.lazy_dataclass import dataclass
from barnabas_wire.records.batch import HEADER_BYTES, BatchHeader, iterate_records, read_header

ROOT_CHAIN = 0


class LawBroken(AssertionError):
    """One law, and what broke it."""

    def __init__(self, law: str, what: str) -> None:
        super().__init__(f"{law}: {what}")
        self.law = law


@dataclass(frozen=True, slots=True)
class KnownBatch:
    """The first sight of a batch, which every later one must equal."""

    end_offset: int
    chain: int
    size_bytes: int
    newest_ms: int
    """Time of its newest record."""
    records: tuple[tuple[int, int], ...]
    """(offset, id) of each."""


class PartitionModel:
    """One partition of one incarnation of a topic, over all its replicas and all their lives."""

    def __init__(self, topic: str, topic_id: Uuid, number: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.number = number
        self.registration: PartitionRegistration | None = None
        """The newest that any node has heard of."""
        self.is_deleted = False
        self.committed_end = 0
        self.committed: dict[int, int] = {}
        """Offset -> id of every committed record."""
        self.chains: dict[int, int] = {0: ROOT_CHAIN}
        """Committed batch boundary -> chain there."""
        self.leaders: dict[Epoch, tuple[BrokerId, float]] = {}
        """The broker that led each leader epoch, and when it began (virtual seconds)."""
        self.log_start = 0
        """The furthest that any replica has let go of records."""
        self.let_go_below = 0
        """The offset up to which operators have asked to delete."""
        self.deleted_below = 0
        """The offset up to which they were told that it is done."""
        self._known: dict[tuple[int, int], KnownBatch] = {}

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"

    def learn(self, header: BatchHeader, chain: int, data: bytes, who: str) -> None:
        """A replica has written a batch."""
        header_epoch, base_offset, end_offset = header.partition_leader_epoch, header.base_offset, header.next_offset
        key = (header_epoch, base_offset)
        known = self._known.get(key)
        if known is None:
            records = tuple(
                (record.offset, int(record.value or b"-1")) for record in iterate_records(data) if not header.is_control
            )
            self._known[key] = KnownBatch(end_offset, chain, len(data), header.max_timestamp_ms, records)
        elif known.end_offset != end_offset or known.chain != chain:
            raise LawBroken(
                "one content per offset and epoch, and one history before it (P4)",
                f"{who} has another batch at {base_offset} in leader epoch {header_epoch} of {self}",
            )

    def retire(self, replica: FollowedLog, *, retention_bytes: int, retention_ms: int | None, now_ms: int) -> None:
        """The first of the replicas has let go of records up to its log start. retention_bytes: what the topic keeps at least;
        -1: everything. retention_ms: for how long it keeps records; None: for ever. A replica that starts later follows
        its leader."""
        before, self.log_start = self.log_start, replica.log.log_start_offset
        gone = [batch for batch in self._known.values() if before < batch.end_offset <= self.log_start]
        for batch in gone:
            age_ms = now_ms - batch.newest_ms
            if batch.end_offset <= self.let_go_below or (retention_ms is not None and age_ms > retention_ms):
                continue
            # of all replicas and epochs, for what this one has held of it may have been cut meanwhile, and what waits to be written
            written = sum(each.size_bytes for each in self._known.values() if each.end_offset > batch.end_offset)
            kept = written + replica.log.tail._pending_bytes
            if not 0 <= retention_bytes <= kept:
                raise LawBroken(
                    "retention takes nothing that the topic is to keep (L1)",
                    f"{replica.who} begins {self} at {self.log_start}: {kept} bytes come after the record before "
                    f"{batch.end_offset}, {age_ms} ms old; retention.bytes is {retention_bytes}, retention.ms {retention_ms}",
                )

    def commit(self, replica: FollowedLog, high_watermark: int) -> None:
        """A leader's high watermark has passed every earlier one: from now on this is the truth."""
        first = bisect_right(replica.ends, self.committed_end)
        for number in range(first, len(replica.ends)):
            end = replica.ends[number]
            if end > high_watermark:
                break
            self.chains[end] = replica.chains[number]
            self.committed.update(self._known[replica.keys[number]].records)
            self.committed_end = end


def _torn_bytes(segment: LogSegment, data: bytes, start: int, *, expected: int) -> int:
    """What a crash left of unfinished writes behind a damaged batch at the end of what was flushed: no start can distinguish the two, and
    the known damage reaches to the file's end. A refetch cuts them off."""
    damage = next((each for each in segment.damaged if each.stop == start + len(data)), None)
    position = 0 if damage is not None else len(data)
    while damage is not None and len(data) - position >= HEADER_BYTES:
        header = read_header(data, position)
        size = header.size_bytes
        if size <= 0 or position + size > len(data) or not expected <= header.base_offset < damage.end_offset:
            break
        expected, position = header.next_offset, position + size
    return len(data) - position


class FollowedLog:
    """What one life of one replica holds, kept up by reading only what is new."""

    def __init__(self, model: PartitionModel, log: UnifiedLog, who: str) -> None:
        self.model = model
        self.log = log
        self.who = who
        self.high_watermark = -1
        self.isr_size = 0
        self.min_isr = 1 << 30
        """All as last looked at."""
        self.ends: list[int] = []
        self.chains: list[int] = []
        self.keys: list[tuple[int, int]] = []
        self.start = 0
        self.end = 0
        self._seen: tuple[object, ...] = ()
        self._chain: int | None = ROOT_CHAIN
        self._segment_base = -1
        self._position = 0
        self._read_all()

    def is_as_seen(self, partition: Partition) -> bool:
        """Whether nothing that a law looks at has changed since this was last asked."""
        log = partition.log
        seen = (
            log,
            log.written_end_offset,
            log.log_start_offset,
            partition.high_watermark,
            partition.is_leader,
            partition.leader_epoch,
            partition.isr,
            partition.replicas,
            log.config,
        )
        if seen == self._seen and not (self.ends and log.log_start_offset >= self.end):
            return True
        self._seen = seen
        return False

    def is_behind(self) -> bool:
        """Whether the log has changed since the last look."""
        return self.log.written_end_offset != self.end or self._is_gone()

    def _is_gone(self) -> bool:
        """Whether nothing is left of what was read here: by retention, or because the log was begun again, perhaps at
        its end."""
        return bool(self.ends) and self.log.segments[0].base_offset >= self.end

    def catch_up(self) -> bool:
        """Read what is new; everything again if something was cut. Whether another segment was begun."""
        segment_base = self._segment_base
        bases = [segment.base_offset for segment in self.log.segments]
        if (
            self.log.written_end_offset < self.end
            or self.log.log_start_offset > self.end
            or bases[0] < self.start
            or segment_base not in bases  # it was empty, behind a damaged end, and was cut off with it
            or self._is_gone()
        ):
            self._read_all()
        else:
            self._read_on()
        return self._segment_base > segment_base

    def chain_at(self, offset: int) -> int | None:
        """The chain at a batch boundary; None where this replica has none."""
        number = bisect_right(self.ends, offset) - 1
        if number >= 0 and self.ends[number] == offset:
            return self.chains[number]
        return self.model.chains.get(offset) if offset == self.start else None

    def _read_all(self) -> None:
        self.ends, self.chains, self.keys = [], [], []
        self._segment_base, self._position = -1, 0
        first: Offset = self.log.segments[0].base_offset
        self.start = self.end = first
        self._chain = self.model.chains.get(first)
        # One that is empty may begin within a batch, as DeleteRecords has it: it begins again with the whole batch.
        is_empty = self.log.log_start_offset == self.log.log_end_offset
        if self._chain is None and not is_empty:
            raise LawBroken(
                "a log starts at a committed batch (P9)",
                f"{self.who} starts {self.model} at {first}, committed up to {self.model.committed_end}",
            )
        self._read_on()

    def _read_on(self) -> None:
        segments = self.log.segments
        for number in range(len(segments)):
            segment = segments[number]
            if segment.base_offset < self._segment_base:
                continue
            if segment.base_offset > self._segment_base:
                self._segment_base, self._position = segment.base_offset, 0
            size = segment.file.size_bytes
            if size > self._position:
                data = segment.file.read(self._position, size - self._position)
                self._read_batches(data, without=_torn_bytes(segment, data, self._position, expected=self.end))
                self._position = size

    def _read_batches(self, data: bytes, *, without: int) -> None:
        """without: bytes at the end that are no batch."""
        position = 0
        while position < len(data) - without:
            header = read_header(data, position)
            batch = data[position : position + header.size_bytes]
            if header.base_offset != self.end:
                raise LawBroken(
                    "offsets have no gap (S1)",
                    f"{self.who}: {self.model} goes on at {header.base_offset} after {self.end}",
                )
            position += header.size_bytes
            self.end = header.next_offset
            self._chain = hash((self._chain, batch))
            key = (header.partition_leader_epoch, header.base_offset)
            self.model.learn(header, self._chain, batch, self.who)
            self.ends.append(self.end)
            self.chains.append(self._chain)
            self.keys.append(key)
