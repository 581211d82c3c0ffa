"""Fetch (key 1): read record batches from partitions; consumers and followers alike.

The declared classes here serve tests and simple callers. Broker, followers and readers use functions written by hand for every
version, because one fetch may name hundreds of partitions and carry megabytes: they build tuples only and touch no record.

    fetch_request.py    broker parse_fetch_request, client encode_fetch_request
    fetch_response.py   broker encode_fetch_response (framing bytes with the records' own parts, such as file ranges, set between
                        them: nothing is joined), client parse_fetch_response (records are slices of the frame)
    fetch_poll.py       split_poll, parse_poll and PollAnswers, for a client that fetches one partition again and again

Version 13 and later name topics by id, earlier ones by name: `topic` is a Uuid or a str accordingly.
"""

from __future__ import annotations

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.primitives import (
    Buffer,
)
from barnabas_wire.kafka.schema import Message, array, int8, int16, int32, int64, records, string, struct, uuid
from barnabas_wire.lazy_dataclass import dataclass

REQUEST_ELEMENTS_MAX = 100_000
"""Most topics and partitions, counted together, that the broker takes in one request. A follower asks for all that it follows
of one leader."""


@dataclass(slots=True)
class ReplicaState:
    """Which broker follows, in which incarnation (KIP-903)."""

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
    # what a replica of the quorum knows (KIP-1166); -1: nothing yet, the default: it does not say
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
    """The leader now, for a client that asked the wrong broker."""

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
    # Ours alone, far above Kafka's tags, for followers: below this offset, which is past the one asked for, deletions may be gone
    forgotten_below: int = int64("12+", default=-1, tag=64)
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
    """What was read. v7 knows fetch sessions, v12 reports diverging logs and leaders, v16 where those are reached."""

    API_KEY = ApiKey.FETCH
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 4, 18, 12

    throttle_time_ms: int = int32("1+")
    error_code: int = int16("7+")
    session_id: int = int32("7+")  # 0: none
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)
