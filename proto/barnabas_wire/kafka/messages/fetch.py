"""Fetch (key 1): read record batches from partitions; consumers and followers alike.

The declared classes serve tests and simple callers; broker, followers and readers use the functions at the end, written by hand
for every version because one fetch may name hundreds of partitions and carry megabytes: they build tuples only and touch no
record.

    broker      parse_fetch_request, encode_fetch_response (framing bytes with the records' own parts, such as file ranges,
                set between them: nothing is joined); split_poll, parse_poll and PollAnswers for who asks for one partition
    client      encode_fetch_request, parse_fetch_response (records are slices of the frame)

Version 13 and later name topics by id, earlier ones by name: `topic` is a Uuid or a str accordingly.

Ours alone, between our brokers: a follower's fetch may carry a partition's flushed offset, in a tagged field far above Kafka's
own, which whoever does not know it skips.
"""

from __future__ import annotations

import struct as struct_module
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.primitives import (
    ONE_BYTE,
    Buffer,
    MalformedMessage,
    malformed,
    new_uuid,
    read_compact_string,
    read_string,
    read_tagged_fields,
    read_uvarint,
    read_uvarint_tail,
    skip_tagged_fields,
    too_many,
    write_compact_string,
    write_string,
    write_uvarint,
)
from barnabas_wire.kafka.schema import Message, array, int8, int16, int32, int64, records, string, struct, uuid

REQUEST_ELEMENTS_MAX = 100_000
"""Most topics and partitions, counted together, that the broker takes in one request. A follower asks for all that it follows
of one leader."""


@dataclass(slots=True)
class ReplicaState:
    """Which broker follows, in which of its lives (KIP-903)."""

    replica_id: int = int32("15+", default=-1)  # -1: a consumer
    replica_epoch: int = int64("15+", default=-1)  # the broker epoch


@dataclass(slots=True)
class FetchPartition:
    """Where to read a partition on."""

    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1)  # the asker's; -1 asks for no check (KIP-320)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)  # -1: no check for divergence
    log_start_offset: int = int64("5+", default=-1)  # a follower's own; -1 from consumers
    partition_max_bytes: int = int32()  # a first batch larger than this is given all the same (KIP-74)
    replica_directory_id: Uuid = uuid("17+", tag=0)
    # what a replica of the quorum knows (KIP-1166); -1: nothing yet, the default: it does not tell
    high_watermark: int = int64("18+", default=9223372036854775807, tag=1)


@dataclass(slots=True)
class FetchTopic:
    """The partitions asked for of one topic, by name or by id."""

    topic: str = string("0-12")
    topic_id: Uuid = uuid("13+")
    partitions: list[FetchPartition] = array(FetchPartition)


@dataclass(slots=True)
class ForgottenTopic:
    """Partitions that a fetch session shall ask for no more."""

    topic: str = string("7-12")
    topic_id: Uuid = uuid("13+")
    partitions: list[int] = array(int32, "7+")


@dataclass(slots=True)
class FetchRequest(Message):
    """Ask for records, of each partition in turn until the bounds are reached.

    v12 carries the last record's epoch, so that the answer can say where logs diverge; v13 takes topic ids (KIP-516).
    """

    API_KEY = ApiKey.FETCH
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 4, 18, 12

    # of the metadata quorum's fetches alone
    cluster_id: str | None = string("12+", nullable="12+", default=None, tag=0)
    replica_id: int = int32("0-14", default=-1)  # -1: a consumer, as in replica_state
    replica_state: ReplicaState = struct(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32("3+", default=2147483647)  # as partition_max_bytes, for the whole answer
    # 0: every record, 1: of transactions only what is committed, below the last stable offset
    isolation_level: int = int8("4+")
    session_id: int = int32("7+")  # 0: none (KIP-227)
    session_epoch: int = int32("7+", default=-1)  # -1: no session, 0: begin one
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+")  # lets a consumer be sent to a replica close by (KIP-392)


@dataclass(slots=True)
class EpochEndOffset:
    """Where the asker's log leaves the leader's: the last epoch both can have, and its end at the leader."""

    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


@dataclass(slots=True)
class LeaderIdAndEpoch:
    """Who leads now, for whoever asked the wrong broker."""

    leader_id: int = int32("12+", default=-1)  # -1: not known
    leader_epoch: int = int32("12+", default=-1)


@dataclass(slots=True)
class SnapshotId:
    """The snapshot to load where the log no longer reaches back far enough; only the metadata quorum's."""

    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


@dataclass(slots=True)
class AbortedTransaction:
    """From this offset on the producer's records are void, up to its abort marker."""

    producer_id: int = int64("4+")
    first_offset: int = int64("4+")


@dataclass(slots=True)
class PartitionData:
    """What was read of a partition, or why nothing was."""

    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64("4+", default=-1)  # no transaction is undecided below it
    log_start_offset: int = int64("5+", default=-1)
    diverging_epoch: EpochEndOffset = struct(EpochEndOffset, "12+", tag=0)  # left out while the logs agree
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId = struct(SnapshotId, "12+", tag=2)
    # those within the records, where committed ones alone were asked for
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, "4+", nullable="4+")
    preferred_read_replica: int = int32("11+", default=-1)  # -1: stay here
    records: Buffer | None = records(nullable="0+")


@dataclass(slots=True)
class FetchableTopicResponse:
    """What was read of one topic."""

    topic: str = string("0-12")
    topic_id: Uuid = uuid("13+")
    partitions: list[PartitionData] = array(PartitionData)


@dataclass(slots=True)
class NodeEndpoint:
    """Where a leader named in the answer is reached, so that the client need not ask for metadata (KIP-951)."""

    node_id: int = int32("16+")
    host: str = string("16+")
    port: int = int32("16+")
    rack: str | None = string("16+", nullable="16+", default=None)


@dataclass(slots=True)
class FetchResponse(Message):
    """What was read. v7 knows fetch sessions, v12 tells of diverging logs and leaders, v16 where those are reached."""

    API_KEY = ApiKey.FETCH
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 4, 18, 12

    throttle_time_ms: int = int32("1+")
    error_code: int = int16("7+")
    session_id: int = int32("7+")  # 0: none
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)


# ---------------------------------------------------------------------------------------------------------------------
# The hot path, both ends


class FetchRequestPartition(NamedTuple):
    """One partition to fetch; a plain tuple of the same order serves as well. Epochs of -1 ask for no check."""

    topic: str | Uuid
    partition: int
    current_leader_epoch: int = -1
    fetch_offset: int = 0
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    max_bytes: int = 1 << 20
    flushed_offset: int = -1
    """Up to where the follower has flushed, when that is less than the fetch offset; version 12 on. -1: not less."""


AskedPartition = tuple[str | Uuid, int, int, int, int, int, int, int]
"""A FetchRequestPartition without its name, which would be a good part of what reading it costs."""


class ParsedFetchRequest(NamedTuple):
    """A fetch request, partitions flat and in the order sent (from version 3 on that order is the client's priority).

    replica_id is -1 for consumers; replica_epoch -1 before version 15.  forgotten: (topic, partitions) of a fetch session.
    """

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    partitions: list[AskedPartition]
    forgotten: list[tuple[str | Uuid, list[int]]]
    rack_id: str


class FetchedPartition(NamedTuple):
    """One partition to answer; a plain tuple of the same order serves as well.

    parts: what makes up the records, handed through untouched (file ranges, bytes); size_bytes: their sum.
    diverging_epoch: (epoch, end offset), version 12 on.  current_leader: (leader id, leader epoch), version 12 on.
    aborted_transactions: (producer id, first offset) pairs for read_committed; None for read_uncommitted.
    """

    topic: str | Uuid
    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    parts: Sequence[Any] = ()
    size_bytes: int = 0
    diverging_epoch: tuple[int, int] | None = None
    current_leader: tuple[int, int] | None = None
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = -1


class ReceivedPartition(NamedTuple):
    """One partition of a fetch response as the client sees it; `records` is a slice of the frame, empty when there are none."""

    topic: str | Uuid
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: list[tuple[int, int]]
    preferred_read_replica: int
    records: memoryview
    diverging_epoch: tuple[int, int] | None
    current_leader: tuple[int, int] | None


class ParsedFetchResponse(NamedTuple):
    """A fetch response with its partitions flat. node_endpoints: (node id, host, port, rack), version 16 on (KIP-951)."""

    throttle_time_ms: int
    error_code: int
    session_id: int
    partitions: list[ReceivedPartition]
    node_endpoints: list[tuple[int, str, int, str | None]]


FLUSHED_OFFSET_TAG = 64
"""Kafka counts its own tags of a partition from 0 and has come to 1."""
_unpack_int32 = struct_module.Struct(">i").unpack_from
_unpack_int64 = struct_module.Struct(">q").unpack_from
_pack_int32 = struct_module.Struct(">i").pack
_pack_int64 = struct_module.Struct(">q").pack
_pack_two_int32 = struct_module.Struct(">ii").pack

_REQUEST_HEAD = {  # replica id until 14, max wait, min bytes, max bytes, isolation level, session id and epoch from 7
    version: struct_module.Struct(">" + ("i" if version < 15 else "") + "iiib" + ("ii" if version >= 7 else ""))
    for version in range(4, 19)
}
_unpack_partition_v12 = struct_module.Struct(">iiqiqiB").unpack_from
_unpack_partition_v9 = struct_module.Struct(">iiqqi").unpack_from
_unpack_partition_v5 = struct_module.Struct(">iqqi").unpack_from
_unpack_partition_v4 = struct_module.Struct(">iqi").unpack_from
_pack_partition_v12 = struct_module.Struct(">iiqiqix").pack
_pack_flushed_offset = struct_module.Struct(">BBBq").pack  # one tagged field: its number, 8 bytes
_pack_partition_v9 = struct_module.Struct(">iiqqi").pack
_pack_partition_v5 = struct_module.Struct(">iqqi").pack
_pack_partition_v4 = struct_module.Struct(">iqi").pack

_pack_fetched = struct_module.Struct(">ihqqqBi").pack
_pack_fetched_before_aborted = struct_module.Struct(">ihqqq").pack
_pack_fetched_before_aborted_v4 = struct_module.Struct(">ihqq").pack
_pack_aborted = struct_module.Struct(">qqx").pack
_pack_aborted_legacy = struct_module.Struct(">qq").pack
_pack_epoch_and_offset = struct_module.Struct(">BBiqx").pack
_pack_leader = struct_module.Struct(">BBiix").pack
_pack_response_head = struct_module.Struct(">iixihi").pack
_pack_response_head_v7 = struct_module.Struct(">iiihi").pack
_pack_response_head_v4 = struct_module.Struct(">iii").pack
_unpack_fetched = struct_module.Struct(">ihqqqB").unpack_from
_unpack_fetched_v5 = struct_module.Struct(">ihqqqi").unpack_from
_unpack_fetched_v4 = struct_module.Struct(">ihqqi").unpack_from
_unpack_aborted = struct_module.Struct(">qqB").unpack_from
_unpack_aborted_legacy = struct_module.Struct(">qq").unpack_from
_unpack_pair = struct_module.Struct(">ii").unpack_from
_unpack_epoch_and_offset = struct_module.Struct(">iq").unpack_from

# A request of one partition, its topic by id (version 13 on), nothing tagged but who the follower is: what a follower of one
# busy partition sends all the time, and how the answer to it begins. B where a count, a tag or a length of one byte stands.
_ONE_REQUEST = struct_module.Struct(">iiibiiB16sBiiqiqiBBBB")  # ... topic's tags, nothing forgotten, no rack
_ONE_REQUEST_COUNTS = (0, 0, 1, 1)
_ONE_AHEAD = struct_module.Struct(">iiibiiB16sBiiqiqiBBBqBBB")  # the same with a flushed offset
_ONE_FOLLOWER = struct_module.Struct(">BBBiqB")  # one tagged field: number 1, 13 bytes, replica id and epoch, no tags
# A poll: the request of one partition, asked with another fetch offset each time. What stands around that:
POLL_BYTES_MAX = 512
_POLL_TAIL_BYTES = {  # behind the fetch offset: fetched epoch, log start, max bytes, nothing forgotten, no rack, no tags
    version: 21 if version >= 12 else 4 + 8 * (version >= 5) + 4 * (version >= 7) + 2 * (version >= 11)
    for version in _REQUEST_HEAD
}
_POLL_COUNTS = {  # low byte of the topic count, from the start; of the partition count, from the end; what says one
    version: (head.size, -38, 2)
    if version >= 12
    else (head.size + 3, -_POLL_TAIL_BYTES[version] - (17 if version >= 9 else 13), 1)
    for version, head in _REQUEST_HEAD.items()
}
_FOLLOWER_BYTES = _ONE_FOLLOWER.size - 1
"""How much longer a follower's poll is, from version 15 on: it says who it is in a tagged field."""
_FOLLOWER_POLL_BYTES = _ONE_REQUEST.size + _ONE_FOLLOWER.size
_AHEAD_POLL_BYTES = _ONE_AHEAD.size + _ONE_FOLLOWER.size
_FLUSHED_AT = 19
"""Where the flushed offset stands behind the fetch offset: fetched epoch, log start, max bytes, and what tags it."""
_AHEAD_TAIL_BYTES = _POLL_TAIL_BYTES[15] + _FOLLOWER_BYTES + _AHEAD_POLL_BYTES - _FOLLOWER_POLL_BYTES
_FLUSHED_MOST = (1 << 63) - 1

_pack_one_request = _ONE_REQUEST.pack
_pack_one_ahead = _ONE_AHEAD.pack
_pack_one_follower = _ONE_FOLLOWER.pack
_ONE_RESPONSE_BODY = struct_module.Struct(">ihiB16sBihqqqBiB")  # up to the first byte of the records' length


def parse_fetch_request(view: memoryview, position: int, version: int) -> ParsedFetchRequest:
    """Body of a FetchRequest v4 to v18. `view` must end where the frame ends. Raises MalformedMessage, TooManyElements."""
    try:
        return _parse_request(view, position, version)
    except (IndexError, struct_module.error, UnicodeDecodeError) as error:
        raise MalformedMessage(f"FetchRequest v{version}: {error}") from error


def split_poll(view: memoryview, position: int, version: int) -> tuple[bytes, int, bytes, int] | None:
    """(what stands before the fetch offset, the offset, what stands behind with zeros for a flushed offset, the flushed offset
    or -1) of a FetchRequest body v4 to v18 of one partition.

    A consumer or follower begins and ends request after request with the same bytes: what they say is worth remembering, and
    parse_poll says it. Of a request without rack and tagged fields, but for a follower's own; for most others None, else bytes
    that parse_poll refuses.
    """
    tail_bytes = _POLL_TAIL_BYTES[version]
    topics_at, partitions_at, one = _POLL_COUNTS[version]
    size = len(view) - position
    if version >= 15 and size in (_FOLLOWER_POLL_BYTES, _AHEAD_POLL_BYTES):
        longer_bytes = _FOLLOWER_BYTES + size - _FOLLOWER_POLL_BYTES
        tail_bytes += longer_bytes
        partitions_at -= longer_bytes
    if size > POLL_BYTES_MAX or size < topics_at - partitions_at:
        return None
    if view[position + topics_at] != one or view[partitions_at] != one:
        return None
    head, offset, tail = _poll_unpacker(size - tail_bytes - 8, tail_bytes)(view, position)
    if tail_bytes != _AHEAD_TAIL_BYTES:
        return head, offset, tail, -1
    (flushed,) = _unpack_int64(tail, _FLUSHED_AT)
    return head, offset, b"%b\0\0\0\0\0\0\0\0%b" % (tail[:_FLUSHED_AT], tail[_FLUSHED_AT + 8 :]), flushed


@lru_cache
def _poll_unpacker(head_bytes: int, tail_bytes: int) -> Any:
    return struct_module.Struct(f">{head_bytes}sq{tail_bytes}s").unpack_from


def parse_poll(head: bytes, tail: bytes, version: int) -> ParsedFetchRequest | None:
    """What `head`, any fetch offset and `tail` say, with 0 for the offset, and for the flushed offset if there is one; None when
    that is no poll of one partition.

    The parser reads from front to back: if eight bytes are the fetch offset both when all their bits are 0 and when all are
    1, then every bit of it is theirs, and nothing else depends on them. So it is with the flushed offset, but for its sign.
    """
    is_ahead = len(tail) == _AHEAD_TAIL_BYTES
    most = _pack_int64(_FLUSHED_MOST)
    other_tail = tail[:_FLUSHED_AT] + most + tail[_FLUSHED_AT + 8 :] if is_ahead else tail
    try:
        poll = parse_fetch_request(memoryview(head + bytes(8) + tail), 0, version)
        other = parse_fetch_request(memoryview(head + b"\xff" * 8 + other_tail), 0, version)
    except MalformedMessage:
        return None
    offsets = [[(partition[3], partition[7]) for partition in request.partitions] for request in (poll, other)]
    return poll if offsets == ([[(0, 0)], [(-1, _FLUSHED_MOST)]] if is_ahead else [[(0, -1)], [(-1, -1)]]) else None


def _parse_request(view: memoryview, position: int, version: int) -> ParsedFetchRequest:
    end = len(view)
    head = _REQUEST_HEAD[version]
    values = head.unpack_from(view, position)
    p = position + head.size
    replica_id, replica_epoch = -1, -1
    if version < 15:
        replica_id, values = values[0], values[1:]
    max_wait_ms, min_bytes, max_bytes, isolation_level = values[:4]
    session_id, session_epoch = values[4:] if version >= 7 else (0, -1)
    is_flexible = version >= 12
    partitions: list[AskedPartition] = []
    add = partitions.append
    count, p = _read_count(view, p, is_flexible)
    left = REQUEST_ELEMENTS_MAX - count
    for _ in range(count):
        topic, p = _read_topic(view, p, end, version)
        inner, p = _read_count(view, p, is_flexible)
        left -= inner
        if left < 0:
            too_many("FetchTopic.partitions", inner)
        if is_flexible:
            for _ in range(inner):
                index, leader_epoch, offset, fetched_epoch, start, most, tags = _unpack_partition_v12(view, p)
                p += 33
                flushed = -1
                if tags:
                    flushed, p = _read_flushed_offset(view, p - 1, end)
                add((topic, index, leader_epoch, offset, fetched_epoch, start, most, flushed))
            p = p + 1 if not view[p] else skip_tagged_fields(view, p, end)
            continue
        for _ in range(inner):
            if version >= 9:
                index, leader_epoch, offset, start, most = _unpack_partition_v9(view, p)
                p += 28
                add((topic, index, leader_epoch, offset, -1, start, most, -1))
            elif version >= 5:
                index, offset, start, most = _unpack_partition_v5(view, p)
                p += 24
                add((topic, index, -1, offset, -1, start, most, -1))
            else:
                index, offset, most = _unpack_partition_v4(view, p)
                p += 16
                add((topic, index, -1, offset, -1, -1, most, -1))
    forgotten: list[tuple[str | Uuid, list[int]]] = []
    if version >= 7:
        count, p = _read_count(view, p, is_flexible)
        left -= count
        for _ in range(count):
            topic, p = _read_topic(view, p, end, version)
            inner, p = _read_count(view, p, is_flexible)
            left -= inner
            if left < 0:
                too_many("ForgottenTopic.partitions", inner)
            if inner * 4 > end - p:
                malformed("ForgottenTopic.partitions", inner)
            forgotten.append((topic, list(struct_module.unpack_from(f">{inner}i", view, p))))
            p += inner * 4
            if is_flexible:
                p = p + 1 if not view[p] else skip_tagged_fields(view, p, end)
    rack_id = ""
    if version >= 11:
        rack, p = (read_compact_string if is_flexible else read_string)(view, p, end)
        rack_id = malformed("FetchRequest.rack_id", -1) if rack is None else rack
    if is_flexible:
        replica_id, replica_epoch = _read_request_tags(view, p, end, version, replica_id)
    return ParsedFetchRequest(
        replica_id,
        replica_epoch,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        partitions,
        forgotten,
        rack_id,
    )


def _read_flushed_offset(view: memoryview, p: int, end: int) -> tuple[int, int]:
    """A partition's tagged fields: the follower's flushed offset, -1 without it, and where they end."""
    flushed = -1
    fields, p = read_tagged_fields(view, p, end)
    for tag, position, size in fields:
        if tag == FLUSHED_OFFSET_TAG:
            if size != 8:
                malformed("FetchPartition.flushed_offset", size)
            (flushed,) = _unpack_int64(view, position)
    return flushed, p


def _read_request_tags(view: memoryview, p: int, end: int, version: int, replica_id: int) -> tuple[int, int]:
    """Replica id and epoch moved into tag 1 with version 15 (KIP-903)."""
    replica_epoch = -1
    for tag, position, size in read_tagged_fields(view, p, end)[0]:
        if tag == 1 and version >= 15:
            if size < 13:
                malformed("FetchRequest.replica_state", size)
            replica_id, replica_epoch = struct_module.unpack_from(">iq", view, position)
    return replica_id, replica_epoch


def _read_count(view: memoryview, p: int, is_flexible: bool) -> tuple[int, int]:
    """Count of a non-null array. It bounds a loop, never an allocation: each turn must find its own bytes."""
    if is_flexible:
        count = view[p]
        if count < 0x80:
            p += 1
        else:
            count, p = read_uvarint(view, p)
        count -= 1
    else:
        (count,) = _unpack_int32(view, p)
        p += 4
    if count < 0:
        malformed("array", count)
    return count, p


def _read_topic(view: memoryview, p: int, end: int, version: int) -> tuple[str | Uuid, int]:
    if version >= 13:
        stop = p + 16
        if stop > end:
            malformed("topic id", 16)
        return new_uuid(view[p:stop]), stop
    name, p = (read_compact_string if version >= 12 else read_string)(view, p, end)
    return (malformed("topic", -1) if name is None else name), p


class PollAnswers:
    """Encodes the answers to one poll that bring records: what is the same in all of them is made once."""

    __slots__ = ("_after_offsets", "_before_offsets", "_pack", "framing_bytes")

    RECORDS_BYTES_MIN, RECORDS_BYTES_MAX = (1 << 14) - 1, (1 << 21) - 2
    """So many take a length of three bytes."""
    TAIL = b"\0\0\0"
    """Behind the records: nothing tagged."""
    VERSION_MIN = 12

    def __init__(self, version: int, topic: str | Uuid, index: int, *, is_read_committed: bool) -> None:
        before = bytearray(b"\2")  # one topic
        if version >= 13:
            before += topic  # type: ignore[arg-type]
        else:
            write_compact_string(before, topic)
        self._before_offsets = bytes(before + b"\2" + _pack_int32(index) + b"\0\0")  # one partition, no error
        # Not one aborted transaction for who asks, null for who does not; no preferred replica.
        self._after_offsets = (b"\1" if is_read_committed else b"\0") + _pack_int32(-1)
        # Zeros behind the correlation id: nothing throttled, no error, no session.
        layout = struct_module.Struct(f">ii11x{len(self._before_offsets)}sqqq5sBBB")
        self._pack = layout.pack
        self.framing_bytes = layout.size + len(self.TAIL)

    def head(self, correlation_id: int, high: int, stable: int, start: int, records_bytes: int) -> bytes:
        """What stands before the records of a frame of framing_bytes + records_bytes, within the bounds above.

        high, stable, start: high watermark, last stable and log start offset.
        """
        length = records_bytes + 1
        return self._pack(
            self.framing_bytes + records_bytes - 4, correlation_id, self._before_offsets, high, stable, start,
            self._after_offsets, length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14,
        )  # fmt: skip


def encode_fetch_response(
    correlation_id: int,
    version: int,
    partitions: Sequence[FetchedPartition],
    *,
    throttle_time_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    node_endpoints: Iterable[tuple[int, str, int, str | None]] = (),
) -> tuple[list[Any], int]:
    """A whole response frame, v4 to v18 -> (parts in sending order, size of all of them in bytes).

    Parts are framing bytes with each partition's own `parts` between them. Partitions of one topic must stand together.
    node_endpoints: (node id, host, port, rack) of the leaders named in current_leader; sent from version 16 on.
    """
    is_flexible = version >= 12
    if is_flexible:
        out = bytearray(_pack_response_head(0, correlation_id, throttle_time_ms, error_code, session_id))
    elif version >= 7:
        out = bytearray(_pack_response_head_v7(0, correlation_id, throttle_time_ms, error_code, session_id))
    else:
        out = bytearray(_pack_response_head_v4(0, correlation_id, throttle_time_ms))
    first = out
    parts: list[Any] = [out]
    records_bytes = 0
    framing_bytes = 0
    groups = _by_topic(partitions)
    out += write_uvarint(len(groups) + 1) if is_flexible else _pack_int32(len(groups))
    for topic, members in groups:
        if version >= 13:
            out += topic  # type: ignore[arg-type]
        elif is_flexible:
            write_compact_string(out, topic)
        else:
            write_string(out, topic)
        out += write_uvarint(len(members) + 1) if is_flexible else _pack_int32(len(members))
        for _, index, error, high, stable, start, own_parts, size, diverging, leader, aborted, preferred in members:
            if is_flexible:
                if aborted is None:
                    out += _pack_fetched(index, error, high, stable, start, 0, preferred)
                else:
                    out += _pack_fetched_before_aborted(index, error, high, stable, start)
                    out += write_uvarint(len(aborted) + 1)
                    for producer_id, first_offset in aborted:
                        out += _pack_aborted(producer_id, first_offset)
                    out += _pack_int32(preferred)
                out += write_uvarint(size + 1)
            else:
                if version >= 5:
                    out += _pack_fetched_before_aborted(index, error, high, stable, start)
                else:
                    out += _pack_fetched_before_aborted_v4(index, error, high, stable)
                if aborted is None:
                    out += b"\xff\xff\xff\xff"
                else:
                    out += _pack_int32(len(aborted))
                    for producer_id, first_offset in aborted:
                        out += _pack_aborted_legacy(producer_id, first_offset)
                out += _pack_two_int32(preferred, size) if version >= 11 else _pack_int32(size)
            if size:
                records_bytes += size
                framing_bytes += len(out)
                parts.extend(own_parts)
                out = bytearray()
                parts.append(out)
            if is_flexible:
                if diverging is None and leader is None:
                    out += b"\0"
                else:
                    out += ONE_BYTE[(diverging is not None) + (leader is not None)]
                    if diverging is not None:
                        out += _pack_epoch_and_offset(0, 13, *diverging)
                    if leader is not None:
                        out += _pack_leader(1, 9, *leader)
        if is_flexible:
            out += b"\0"
    if is_flexible:
        endpoints = list(node_endpoints) if version >= 16 else []
        if endpoints:
            body = bytearray(write_uvarint(len(endpoints) + 1))
            for node_id, host, port, rack in endpoints:
                body += _pack_int32(node_id)
                write_compact_string(body, host)
                body += _pack_int32(port)
                write_compact_string(body, rack)
                body += b"\0"
            out += b"\x01\x00" + write_uvarint(len(body)) + body
        else:
            out += b"\0"
    elif not out:
        parts.pop()
    framing_bytes += len(out)
    total = framing_bytes + records_bytes
    first[0:4] = _pack_int32(total - 4)
    return parts, total


def _by_topic(partitions: Sequence[Any]) -> list[tuple[str | Uuid, list[Any]]]:
    groups: list[tuple[str | Uuid, list[Any]]] = []
    last: str | Uuid | None = None
    for partition in partitions:
        if partition[0] != last:
            last = partition[0]
            groups.append((last, []))
        groups[-1][1].append(partition)
    return groups


def encode_fetch_request(
    out: bytearray,
    version: int,
    partitions: Sequence[FetchRequestPartition],
    *,
    replica_id: int = -1,
    replica_epoch: int = -1,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    isolation_level: int = 0,
    rack_id: str = "",
) -> None:
    """Append the body of a sessionless FetchRequest, v4 to v18. Partitions of one topic must stand together."""
    if version >= 15 and len(partitions) == 1 and replica_id >= 0 and not rack_id:
        topic, index, leader_epoch, offset, fetched_epoch, start, most, flushed = partitions[0]
        for_all = (max_wait_ms, min_bytes, max_bytes, isolation_level, 0, -1, 2, topic, 2)
        one = (index, leader_epoch, offset, fetched_epoch, start, most)
        if flushed < 0:
            out += _pack_one_request(*for_all, *one, *_ONE_REQUEST_COUNTS)
        else:
            out += _pack_one_ahead(*for_all, *one, 1, FLUSHED_OFFSET_TAG, 8, flushed, *_ONE_REQUEST_COUNTS[1:])
        out += _pack_one_follower(1, 1, 13, replica_id, replica_epoch, 0)
        return
    is_flexible = version >= 12
    head: list[int] = [replica_id] if version < 15 else []
    head += max_wait_ms, min_bytes, max_bytes, isolation_level
    if version >= 7:
        head += 0, -1  # session id 0, epoch -1: a full fetch outside any session
    out += _REQUEST_HEAD[version].pack(*head)
    groups = _by_topic(partitions)
    out += write_uvarint(len(groups) + 1) if is_flexible else _pack_int32(len(groups))
    for topic, members in groups:
        if version >= 13:
            out += topic  # type: ignore[arg-type]
        elif is_flexible:
            write_compact_string(out, topic)
        else:
            write_string(out, topic)
        out += write_uvarint(len(members) + 1) if is_flexible else _pack_int32(len(members))
        for _, index, leader_epoch, offset, fetched_epoch, start, most, flushed in members:
            if is_flexible:
                out += _pack_partition_v12(index, leader_epoch, offset, fetched_epoch, start, most)
                if flushed >= 0:
                    out[-1:] = _pack_flushed_offset(1, FLUSHED_OFFSET_TAG, 8, flushed)
            elif version >= 9:
                out += _pack_partition_v9(index, leader_epoch, offset, start, most)
            elif version >= 5:
                out += _pack_partition_v5(index, offset, start, most)
            else:
                out += _pack_partition_v4(index, offset, most)
        if is_flexible:
            out += b"\0"
    if is_flexible:
        out += b"\x01"  # nothing forgotten
        write_compact_string(out, rack_id)
        if version >= 15 and (replica_id, replica_epoch) != (-1, -1):
            out += struct_module.pack(">BBBiqx", 1, 1, 13, replica_id, replica_epoch)
        else:
            out += b"\0"
        return
    if version >= 7:
        out += b"\0\0\0\0"
    if version >= 11:
        write_string(out, rack_id)


def parse_fetch_response(view: memoryview, position: int, version: int) -> ParsedFetchResponse:
    """Body of a FetchResponse v4 to v18; records are slices of `view`, which ends where the frame ends. Raises MalformedMessage."""
    try:
        return (_parse_one_response(view, position) if version >= 13 else None) or _parse_response(
            view, position, version
        )
    except (IndexError, struct_module.error, UnicodeDecodeError) as error:
        raise MalformedMessage(f"FetchResponse v{version}: {error}") from error


def _parse_one_response(view: memoryview, position: int) -> ParsedFetchResponse | None:
    """A response of one partition that has records and nothing tagged; None for any other."""
    end = len(view)
    p = position + _ONE_RESPONSE_BODY.size
    if p >= end:
        return None
    (
        throttle_time_ms,
        failure,
        session_id,
        topics,
        topic,
        partitions,
        index,
        error,
        high,
        stable,
        start,
        aborted,
        preferred,
        length,
    ) = _ONE_RESPONSE_BODY.unpack_from(view, position)
    if topics != 2 or partitions != 2 or aborted > 1:
        return None
    if length > 0x7F:
        length, p = read_uvarint_tail(view, p, length)
    stop = p + length - 1 if length else p
    if stop + 3 != end or view[stop:] != b"\0\0\0":
        return None
    one = ReceivedPartition(new_uuid(topic), index, error, high, stable, start, [], preferred, view[p:stop], None, None)
    return ParsedFetchResponse(throttle_time_ms, failure, session_id, [one], [])


def _parse_response(view: memoryview, position: int, version: int) -> ParsedFetchResponse:
    end = len(view)
    is_flexible = version >= 12
    error_code, session_id = 0, 0
    if version >= 7:
        throttle_time_ms, error_code, session_id = struct_module.unpack_from(">ihi", view, position)
        p = position + 10
    else:
        (throttle_time_ms,) = _unpack_int32(view, position)
        p = position + 4
    partitions: list[ReceivedPartition] = []
    topic_count, p = _read_count(view, p, is_flexible)
    for _ in range(topic_count):
        topic, p = _read_topic(view, p, end, version)
        partition_count, p = _read_count(view, p, is_flexible)
        for _ in range(partition_count):
            if is_flexible:
                partition, p = _read_fetched(view, p, end, topic)
            else:
                partition, p = _read_fetched_legacy(view, p, end, topic, version)
            partitions.append(partition)
        if is_flexible:
            p = p + 1 if not view[p] else skip_tagged_fields(view, p, end)
    node_endpoints: list[tuple[int, str, int, str | None]] = []
    if is_flexible:
        for tag, position, size in read_tagged_fields(view, p, end)[0]:
            if tag == 0 and version >= 16:
                node_endpoints = _read_endpoints(view, position, position + size)
    return ParsedFetchResponse(throttle_time_ms, error_code, session_id, partitions, node_endpoints)


def _read_fetched(view: memoryview, p: int, end: int, topic: str | Uuid) -> tuple[ReceivedPartition, int]:
    index, error, high, stable, start, count = _unpack_fetched(view, p)
    p += 31
    aborted: list[tuple[int, int]] = []
    if count > 1:
        count, p = read_uvarint(view, p - 1)
        for _ in range(count - 1):
            producer_id, first_offset, tags = _unpack_aborted(view, p)
            p += 17
            if tags:
                p = skip_tagged_fields(view, p - 1, end)
            aborted.append((producer_id, first_offset))
    (preferred,) = _unpack_int32(view, p)
    length, p = read_uvarint(view, p + 4)
    stop = p + length - 1 if length else p
    if stop > end:
        malformed("PartitionData.records", length)
    records = view[p:stop]
    p = stop
    diverging: tuple[int, int] | None = None
    leader: tuple[int, int] | None = None
    if not view[p]:
        p += 1
    else:
        fields, p = read_tagged_fields(view, p, end)
        for tag, position, size in fields:
            if tag == 0:
                diverging = _unpack_epoch_and_offset(view[position : position + size])
            elif tag == 1:
                leader = _unpack_pair(view[position : position + size])
    partition = ReceivedPartition(
        topic, index, error, high, stable, start, aborted, preferred, records, diverging, leader
    )
    return partition, p


def _read_fetched_legacy(
    view: memoryview, p: int, end: int, topic: str | Uuid, version: int
) -> tuple[ReceivedPartition, int]:
    if version >= 5:
        index, error, high, stable, start, count = _unpack_fetched_v5(view, p)
        p += 34
    else:
        index, error, high, stable, count = _unpack_fetched_v4(view, p)
        start = -1
        p += 26
    aborted: list[tuple[int, int]] = []
    for _ in range(count):
        aborted.append(_unpack_aborted_legacy(view, p))
        p += 16
    preferred = -1
    if version >= 11:
        (preferred,) = _unpack_int32(view, p)
        p += 4
    (length,) = _unpack_int32(view, p)
    p += 4
    stop = p + length if length > 0 else p
    if length < -1 or stop > end:
        malformed("PartitionData.records", length)
    records = view[p:stop]
    return ReceivedPartition(topic, index, error, high, stable, start, aborted, preferred, records, None, None), stop


def _read_endpoints(view: memoryview, p: int, end: int) -> list[tuple[int, str, int, str | None]]:
    endpoints: list[tuple[int, str, int, str | None]] = []
    count, p = _read_count(view, p, True)
    for _ in range(count):
        (node_id,) = _unpack_int32(view, p)
        host, p = read_compact_string(view, p + 4, end)
        (port,) = _unpack_int32(view, p)
        rack, p = read_compact_string(view, p + 4, end)
        p = skip_tagged_fields(view, p, end)
        endpoints.append((node_id, malformed("NodeEndpoint.host", -1) if host is None else host, port, rack))
    return endpoints
