"""What goes into the replica manager and what comes out: append, fetch, list offsets, per partition.

May touch:  nothing but value types of wire and log.     Must not touch: everything else.
Invariants: every entry that comes in gets exactly one outcome, in the order of the entries; an outcome with an error carries
            no bytes. All are NamedTuples: they are built for every request, and a NamedTuple costs a third of a dataclass.
Read next:  appends.py, fetches.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from barnabas_log.disk import FileRange
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import NO_BROKER, NO_EPOCH, NO_OFFSET, ZERO_UUID, BrokerId, Epoch, Offset, Uuid

Buffer = bytes | bytearray | memoryview
"""Bytes of record batches; never kept past the call that is given them."""

NO_SESSION_EPOCH = -1
OPENS_SESSION_EPOCH = 0
CONSUMER_REPLICA_ID = BrokerId(-1)
"""FetchSpec.replica_id of everybody who is not a follower."""


class CurrentLeader(NamedTuple):
    """The leader, as far as this broker knows: the hint of KIP-951 beside NOT_LEADER_OR_FOLLOWER and epoch errors."""

    leader_id: BrokerId
    leader_epoch: Epoch


class AppendEntry(NamedTuple):
    """One partition of a produce request: `batches` is copied before append_records returns. A plain tuple of the same order
    serves as well."""

    topic: str
    partition: int
    batches: Buffer


class AppendOutcome(NamedTuple):
    """What became of one AppendEntry.

    With an error, base_offset is -1 unless the records were written and may yet commit; log_start_offset is given when the log
    judged what the records say.
    """

    topic: str
    partition: int
    error: KafkaError | None
    base_offset: Offset = NO_OFFSET
    log_append_time_ms: int = -1
    log_start_offset: Offset = NO_OFFSET
    current_leader: CurrentLeader | None = None


class TransactionMarker(NamedTuple):
    """How a producer's transaction ended, for its partitions (WriteTxnMarkers)."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int
    """2: the marker's epoch is above that of the transaction's records (KIP-890)."""


class FetchSpec(NamedTuple):
    """What a fetch says once for all its partitions.

    replica_id: broker id of a follower, -1 for a consumer.  replica_epoch: the follower's broker epoch (KIP-903), -1 unknown.
    max_bytes bounds the whole answer, yet the first partition with data gives at least one batch (KIP-74).
    """

    replica_id: BrokerId = CONSUMER_REPLICA_ID
    replica_epoch: int = -1
    max_wait_ms: int = 0
    min_bytes: int = 1
    max_bytes: int = 0x7FFFFFFF
    is_read_committed: bool = False
    rack: str = ""
    may_read_follower: bool = False
    """Whether it is a consumer that knows of KIP-392: a follower serves it too."""
    session_id: int = 0
    session_epoch: int = NO_SESSION_EPOCH
    """The epoch of a follower's fetch session (fetch_session.py); OPENS_SESSION_EPOCH asks for a new session."""


class FetchPartitionSpec(NamedTuple):
    """Where one partition shall be read. Epochs of -1 switch their check off; a zero topic id means asked by name. A plain
    tuple of the same order serves as well."""

    topic: str
    topic_id: Uuid = ZERO_UUID
    partition: int = 0
    current_leader_epoch: Epoch = NO_EPOCH
    fetch_offset: Offset = Offset(0)
    last_fetched_epoch: Epoch = NO_EPOCH
    log_start_offset: Offset = NO_OFFSET
    max_bytes: int = 1 << 20
    flushed_offset: Offset = NO_OFFSET
    """The offset up to which a follower's end counts, when that is not the fetch offset itself: the rest is not flushed
    yet. From a replica that reads as a consumer does, to be refilled, any offset asks for `forgotten_below`."""


class DivergingEpoch(NamedTuple):
    """The leader's largest epoch not above the one asked, and where it ends (KIP-595's truncation on fetch)."""

    epoch: Epoch
    end_offset: Offset


class FetchOutcome(NamedTuple):
    """What one partition gave. The FileRanges in `parts` hold their files (`acquire`d): whoever sends them releases each once.

    With OFFSET_OUT_OF_RANGE, log_start_offset is the leader's true one (the follower restarts there) and the rest is -1.
    """

    topic: str
    topic_id: Uuid
    partition: int
    error: KafkaError | None
    high_watermark: Offset = NO_OFFSET
    last_stable_offset: Offset = NO_OFFSET
    log_start_offset: Offset = NO_OFFSET
    diverging_epoch: DivergingEpoch | None = None
    parts: tuple[FileRange, ...] = ()
    size_bytes: int = 0
    current_leader: CurrentLeader | None = None
    preferred_read_replica: BrokerId = NO_BROKER
    """The follower that the consumer should read from; then there are no bytes."""
    aborted: tuple[tuple[int, int], ...] = ()
    """Producer id and first offset of the aborted transactions in the bytes, for a reader of committed records."""
    forgotten_below: Offset = NO_OFFSET
    """A bound for a follower that asks below it: deletions at lower offsets may be gone from the leader's log."""


class ListedOffset(NamedTuple):
    """Answer of ListOffsets for one partition; -1 everywhere when no record is that late."""

    timestamp_ms: int
    offset: Offset
    leader_epoch: Epoch


RespondAppend = Callable[[list[AppendOutcome]], None]
"""Called exactly once, during append_records or later on the same loop; it must not raise."""
RespondFetch = Callable[[list[FetchOutcome]], None]
"""Called at most once: never after its Cancel was called; it must not raise."""
Cancel = Callable[[], None]
"""Forget a parked fetch (its connection is gone). Harmless after the answer."""

FetchPartitionSpecs = Sequence[FetchPartitionSpec]
