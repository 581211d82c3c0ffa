"""Fetch v4-18: byte ranges of the log to consumers and followers.

May touch:  the replica manager, topic names and ids of the image.    Must not touch: logs, the bytes of the ranges.
Invariants: every partition of the request is answered once, in the request's order; a file range goes into the answer
            as it is and the connection releases it; a parked fetch is cancelled with its connection.
Read next:  barnabas_replication/manager.py, network/output.py.

Behaviour: from v11 on followers serve consumers, and the leader may name one (KIP-392). v13 names topics by id. A refused
partition carries the leader hint (v12, endpoints from v16 on, KIP-951).
Differences from Kafka: fetch sessions are for followers alone. A consumer's request that would open one is answered with
session id 0, which every client takes as "full fetches, please" (KIP-227); one that continues a session gets
FETCH_SESSION_ID_NOT_FOUND.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from barnabas_broker.api.leaders import node_endpoints
from barnabas_broker.api.registry import PARTITIONS_BYTES_MAX, handles_directly
from barnabas_broker.api.services import BrokerServices
from barnabas_broker.api.slot import ResponseSlot
from barnabas_broker.security.access import Access
from barnabas_quorum.image.rights import CLUSTER, CLUSTER_ACTION, READ, TOPIC
from barnabas_replication.requests import NO_SESSION_EPOCH, FetchOutcome, FetchPartitionSpec, FetchSpec
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import ZERO_UUID, BrokerId, Uuid
from barnabas_wire.kafka.leader_endpoints import LeaderEndpoint
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.fetch import REQUEST_ELEMENTS_MAX
from barnabas_wire.kafka.messages.fetch_poll import PollAnswers, parse_poll, split_poll
from barnabas_wire.kafka.messages.fetch_request import FetchRequestPartition, ParsedFetchRequest, parse_fetch_request
from barnabas_wire.kafka.messages.fetch_response import FetchResponsePartition, encode_fetch_response
from barnabas_wire.kafka.primitives import TooManyElements
from barnabas_wire.tuples import new_tuple

TOPIC_IDS_FROM = 13
_unpack_int32 = Struct(">i").unpack_from
CONSUMER_PARTITIONS_MAX = 16_384
"""Partitions that one fetch of a consumer may name; a follower may have more of one leader. Each takes up to 10 us of the loop."""
RACKS_FROM = 11
"""From here on consumers know of followers that serve them (KIP-392)."""
READ_COMMITTED = 1
FOLLOWERS_POLL_FROM = 15
FULL_SESSION_EPOCHS = (0, -1)
"""A request with one of these names all its partitions: it opens a session, or closes one."""
UNKNOWN_TOPIC_CODES = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


@handles_directly(
    ApiKey.FETCH, versions=(4, 18), request_bytes_max=PARTITIONS_BYTES_MAX, elements_max=REQUEST_ELEMENTS_MAX
)
def fetch(services: BrokerServices, slot: ResponseSlot, version: int, frame: memoryview, position: int) -> None:
    """Read from the asked partitions; the slot is filled now, or when enough bytes or the time have come."""
    guard = slot.connection.guard  # type: ignore[union-attr]  # the client is there while it asks
    split = split_poll(frame, position, version)
    if split is not None and not (version >= FOLLOWERS_POLL_FROM and _is_in_session(frame, position)):
        head, offset, tail, flushed = split
        poll = _read_poll(head, tail, version)
        if poll is not None and _poll(services, slot, version, poll, offset, flushed, guard):
            return
    request = parse_fetch_request(frame, position, version)
    if len(request.partitions) > CONSUMER_PARTITIONS_MAX:
        # More only for a follower, and no more than there are to follow.
        known = services.metadata.image.topics.partition_count if request.replica_id >= 0 else 0
        if len(request.partitions) > known:
            raise TooManyElements(f"a fetch names {len(request.partitions):,} partitions")
    spec = _spec_of(request, version)
    if guard is not None and spec.replica_id >= 0 and not guard.may(CLUSTER_ACTION, CLUSTER):
        _refuse_follower(services, slot, version, request)
        return
    try:
        if spec.session_epoch != NO_SESSION_EPOCH:
            if spec.replica_id not in services.metadata.image.cluster.brokers:  # one is kept for each
                raise KafkaError.of(
                    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                    f"broker {spec.replica_id} is not registered, as far as is known here",
                )
            spec = services.replica_manager.fetches.in_session(spec)
        elif request.session_epoch not in FULL_SESSION_EPOCHS:
            raise KafkaError.of(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "consumers have no fetch sessions")
    except KafkaError as error:
        slot.count_errors((error.code,))
        slot.fill(*encode_fetch_response(slot.correlation_id, version, (), error_code=error.code))
        return
    answer = _Answer(
        services,
        slot,
        version,
        request.isolation_level == READ_COMMITTED,
        session_id=spec.session_id,
        replica_id=spec.replica_id,
    )
    partitions: list[FetchPartitionSpec] = []
    if version >= TOPIC_IDS_FROM:
        partitions = answer.admit(request.partitions, guard)
    elif guard is not None:
        partitions = answer.admit_named(request.partitions, guard)
    else:
        for asked in request.partitions:
            name, *fields = asked
            partitions.append(new_tuple(FetchPartitionSpec, (name, ZERO_UUID, *fields)))
    if spec.replica_id >= 0:
        slot.note_broker()
    elif not partitions:
        answer.respond([])
        return
    if answer.refused:
        spec = spec._replace(max_wait_ms=0)
    cancel = services.replica_manager.fetches.fetch(spec, partitions, respond=answer.respond)
    if not slot.is_done:
        slot.cancel = cancel


def _refuse_follower(services: BrokerServices, slot: ResponseSlot, version: int, request: ParsedFetchRequest) -> None:
    """As Kafka answers: each partition is refused. A session that was opened while it was allowed is known no more."""
    error = KafkaError.of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "followers need CLUSTER_ACTION on the cluster")
    if not request.partitions and request.session_epoch not in FULL_SESSION_EPOCHS:
        error = KafkaError.of(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "a session of who may not follow")
        slot.count_errors((error.code,))
        slot.fill(*encode_fetch_response(slot.correlation_id, version, (), error_code=error.code))
        return
    answer = _Answer(services, slot, version, is_read_committed=False)
    answer.asked = request.partitions
    answer.refused = dict.fromkeys(range(len(request.partitions)), error)
    answer.respond([])


def _may_read(access: Access, replica_id: int, topic: str) -> bool:
    """A follower needs a separate right, whatever the topic."""
    return access.may(CLUSTER_ACTION, CLUSTER) if replica_id >= 0 else access.may(READ, TOPIC, topic)


class _Poll(NamedTuple):
    """What a request of one partition asks, but for its fetch offset and flushed offset."""

    spec: FetchSpec
    answers: PollAnswers | None
    topic: str | Uuid
    partition: int
    current_leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


@lru_cache(1024)
def _read_poll(head: bytes, tail: bytes, version: int) -> _Poll | None:
    """The poll of which these are the bytes before and behind the fetch offset; None if they are none, or of a session.

    A client that fetches one partition asks with the same bytes again and again: to parse them and to make the specs
    was half of a poll's way to the replica manager.
    """
    request = parse_poll(head, tail, version)
    if request is None or request.session_epoch not in FULL_SESSION_EPOCHS:
        return None
    if request.replica_id >= 0 and request.session_epoch != NO_SESSION_EPOCH:
        return None
    topic, index, leader_epoch, _, fetched_epoch, start, most, _ = request.partitions[0]
    spec = _spec_of(request, version)
    answers = None
    if version >= PollAnswers.VERSION_MIN:
        answers = PollAnswers(version, topic, index, is_read_committed=spec.is_read_committed)
    return _Poll(spec, answers, topic, index, leader_epoch, fetched_epoch, start, most)


def _poll(
    services: BrokerServices,
    slot: ResponseSlot,
    version: int,
    poll: _Poll,
    offset: int,
    flushed: int,
    guard: Access | None,
) -> bool:
    """Read for a poll; False if its topic id names no topic, or the client may not read it."""
    spec, answers, topic, index, leader_epoch, fetched_epoch, start, most = poll
    topic_id = ZERO_UUID
    if version >= TOPIC_IDS_FROM:
        topic_id = topic  # type: ignore[assignment]
        known = services.metadata.image.topics.get_by_id(topic_id)
        if known is None:
            return False
        topic = known.name
    if guard is not None and not _may_read(guard, spec.replica_id, topic):  # type: ignore[arg-type]  # a name by now
        return False
    asked = (topic, topic_id, index, leader_epoch, offset, fetched_epoch, start, most, flushed)
    answer = _Answer(services, slot, version, spec.is_read_committed, answers)
    if spec.replica_id >= 0:
        slot.note_broker()
    cancel = services.replica_manager.fetches.fetch_one(spec, asked, answer.respond)  # type: ignore[arg-type]  # a spec's order
    if not slot.is_done:
        slot.cancel = cancel
    return True


def _is_in_session(frame: memoryview, position: int) -> bool:
    """Whether the request continues a session: each has another epoch, so that none is worth remembering."""
    (session_epoch,) = _unpack_int32(frame, position + 17)  # behind three numbers, the isolation level and the id
    return bool(session_epoch > 0)


def _spec_of(request: ParsedFetchRequest, version: int) -> FetchSpec:
    return FetchSpec(
        BrokerId(request.replica_id),
        request.replica_epoch,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level == READ_COMMITTED,
        request.rack_id,
        request.replica_id < 0 and version >= RACKS_FROM,
        *((request.session_id, request.session_epoch) if request.replica_id >= 0 and version >= 7 else ()),
    )


class _Answer:
    """What the answer of one fetch needs later."""

    __slots__ = (
        "answers",
        "asked",
        "is_read_committed",
        "refused",
        "replica_id",
        "services",
        "session_id",
        "slot",
        "version",
    )

    def __init__(
        self,
        services: BrokerServices,
        slot: ResponseSlot,
        version: int,
        is_read_committed: bool,
        answers: PollAnswers | None = None,
        session_id: int = 0,
        replica_id: int = -1,
    ) -> None:
        self.replica_id = replica_id
        self.services = services
        self.slot = slot
        self.version = version
        self.is_read_committed = is_read_committed
        self.answers = answers
        self.session_id = session_id
        self.asked: list[FetchRequestPartition] = []
        """From v13 on: the entries of the request."""
        self.refused: dict[int, KafkaError] = {}
        """Entries that are not tried, by their place in the request."""

    def admit_named(self, asked: list[FetchRequestPartition], access: Access) -> list[FetchPartitionSpec]:
        """The partitions that the client may read; the others are noted as refused."""
        self.asked = asked
        specs = []
        for position, entry in enumerate(asked):
            name, *fields = entry
            assert isinstance(name, str), "topics are named by name before v13"
            if _may_read(access, self.replica_id, name):
                specs.append(new_tuple(FetchPartitionSpec, (name, ZERO_UUID, *fields)))
            else:
                self.refused[position] = access.refusal(READ, TOPIC, name)
        return specs

    def admit(self, asked: list[FetchRequestPartition], guard: Access | None) -> list[FetchPartitionSpec]:
        """The partitions whose topic id is known, by name; the others are noted as refused."""
        topics = self.services.metadata.image.topics
        specs = []
        self.asked = asked
        for position, entry in enumerate(asked):
            known = topics.get_by_id(entry.topic)  # type: ignore[arg-type]  # an id, from this version on
            if known is None:
                self.refused[position] = KafkaError.of(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has id {entry.topic}")
            elif guard is not None and not _may_read(guard, self.replica_id, known.name):
                self.refused[position] = guard.refusal(READ, TOPIC, known.name)
            else:
                specs.append(new_tuple(FetchPartitionSpec, (known.name, *entry)))
        return specs

    def respond(self, outcomes: list[FetchOutcome]) -> None:
        """Called by the replica manager, at most once."""
        slot = self.slot
        answers = self.answers
        if answers is not None:
            # The usual poll, flat: of all that a fetch costs, most is our own steps.
            _, _, _, error, high, stable, start, _, parts, size_bytes, _, _, aborted, forgotten = outcomes[0]
            is_plain = error is None and not aborted and forgotten < 0
            if is_plain and answers.RECORDS_BYTES_MIN <= size_bytes <= answers.RECORDS_BYTES_MAX:
                head = answers.head(slot.correlation_id, high, stable, start, size_bytes)
                slot.fill((head, *parts, answers.TAIL), size_bytes + answers.framing_bytes)
                return
        by_id = self.version >= TOPIC_IDS_FROM
        if self.refused:
            outcomes = self._with_refused(outcomes)
        failed: list[FetchOutcome] = []
        partitions: list[FetchResponsePartition] = []
        for outcome in outcomes:
            (
                topic,
                topic_id,
                index,
                error,
                high,
                stable,
                start,
                diverging,
                parts,
                size_bytes,
                leader,
                preferred,
                aborted,
                forgotten_below,
            ) = outcome
            code, marks = 0, aborted if self.is_read_committed else None
            if error is not None:
                code = error.code
                failed.append(outcome)
                if code in UNKNOWN_TOPIC_CODES:
                    marks = ()  # as Kafka has it
            partitions.append(
                (
                    topic_id if by_id else topic,
                    index,
                    code,
                    high,
                    stable,
                    start,
                    parts,
                    size_bytes,
                    diverging,
                    leader,
                    marks,
                    preferred,
                    forgotten_below,
                )  # type: ignore[arg-type]
            )
        endpoints: list[LeaderEndpoint] = []
        if failed:
            slot.count_errors(outcome.error.code for outcome in failed if outcome.error is not None)
            leaders = (outcome.current_leader for outcome in failed)
            endpoints = node_endpoints(self.services, slot.listener_name, leaders)
        slot.fill(
            *encode_fetch_response(
                slot.correlation_id,
                self.version,
                partitions,
                session_id=self.session_id,
                node_endpoints=endpoints,
            )
        )

    def _with_refused(self, outcomes: list[FetchOutcome]) -> list[FetchOutcome]:
        tried = iter(outcomes)
        merged = []
        if self.session_id:  # its outcomes are of what has changed, in no order of the request
            merged.extend(outcomes)
        for position, asked in enumerate(self.asked):
            error = self.refused.get(position)
            if error is None and self.session_id:
                continue
            if error is None:
                merged.append(next(tried))
            else:
                topic, topic_id = (asked.topic, ZERO_UUID) if isinstance(asked.topic, str) else ("", asked.topic)
                merged.append(FetchOutcome(topic, topic_id, asked.partition, error))
        return merged
