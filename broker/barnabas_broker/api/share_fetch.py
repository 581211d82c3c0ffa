"""ShareFetch v1-2: records for a member of a share group, with what became of earlier ones (KIP-932, KIP-1206, KIP-1222).

May touch:  share partitions, names and ids of topics in the image.    Must not touch: logs, the bytes of the ranges.
Invariants: acknowledgements are taken before anything is acquired; a file range goes into the answer as it is; what a connection's
            sessions had is let go of when it is gone.
Read next:  share_acknowledge.py; barnabas_coordination/share/leader.py.

Behaviour: refused with UNSUPPORTED_VERSION while share.version is 0. An answer has the partitions with records, acknowledgements or
errors; its records are whole batches, of which the acquired ranges count. A broker with as many sessions as it may have says so only
after the request's MaxWaitMs.
"""

from __future__ import annotations

import asyncio
from functools import partial

from barnabas_broker.api.answers import message_of
from barnabas_broker.api.context import hold
from barnabas_broker.api.leaders import node_endpoints
from barnabas_broker.api.registry import (
    APIS,
    PARTITION_ELEMENTS_MAX,
    PARTITIONS_BYTES_MAX,
    decode_request,
    handles_directly,
)
from barnabas_broker.api.services import BrokerServices
from barnabas_broker.api.share_acknowledge import (
    PARTITIONS_MAX,
    acknowledgements,
    held_name,
    leader_of,
    require_share_groups,
    require_topic,
)
from barnabas_broker.api.slot import ResponseSlot
from barnabas_broker.security.access import Access
from barnabas_coordination.share.parked_fetches import ShareFetch, ShareOutcome
from barnabas_coordination.share.partition import Acknowledgement
from barnabas_coordination.share.sessions import (
    ENDS,
    OPENS,
    SharedPartition,
    ShareSession,
    ShareSessionLimitReached,
)
from barnabas_replication.requests import CurrentLeader
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.share_fetch import RECORD_LIMIT, ShareFetchRequest
from barnabas_wire.kafka.messages.share_fetch_response import (
    NO_LEADER,
    ShareFetchResponsePartition,
    encode_share_fetch_response,
)
from barnabas_wire.kafka.primitives import TooManyElements

UNKNOWN_MODE = "the acquire mode is 0 (whole batches) or 1 (no more records than asked for)"


@handles_directly(
    ApiKey.SHARE_FETCH,
    versions=(1, 2),
    request_bytes_max=PARTITIONS_BYTES_MAX,
    elements_max=PARTITION_ELEMENTS_MAX,
)
def share_fetch(services: BrokerServices, slot: ResponseSlot, version: int, frame: memoryview, position: int) -> None:
    """Take acknowledgements and acquire records; the slot is filled now, or when there is enough or the time has come."""
    request: ShareFetchRequest = decode_request(APIS[ApiKey.SHARE_FETCH], version, frame, position)
    named = sum(len(topic.partitions) for topic in request.topics)
    if named + sum(len(topic.partitions) for topic in request.forgotten_topics_data) > PARTITIONS_MAX:
        raise TooManyElements(f"a share fetch names more than {PARTITIONS_MAX:,} partitions")
    connection = slot.connection
    assert connection is not None, "the client is there while it asks"
    guard = connection.guard
    sessions = services.shares.sessions
    try:
        group_id, member_id = require_share_groups(services, guard, request.group_id, request.member_id)
        _check(request)
        session = sessions.take(group_id, member_id, request.share_session_epoch)
    except ShareSessionLimitReached as error:
        timer = asyncio.get_running_loop().call_later(max(0, request.max_wait_ms) / 1000, _refuse, slot, error)
        slot.cancel = timer.cancel
        return
    except KafkaError as error:
        _refuse(slot, error)
        return
    answer = _Answer(services, slot, session)
    if request.share_session_epoch == OPENS:
        hold(connection.held, held_name(group_id, member_id), partial(services.shares.end_session, session))
    answer.take_acknowledgements(request, version, guard)
    if request.share_session_epoch == ENDS:
        services.shares.end_session(session)
        connection.held.pop(held_name(group_id, member_id), None)
        answer.take_outcomes([])
        return
    asked = [
        SharedPartition(topic.topic_id, each.partition_index) for topic in request.topics for each in topic.partitions
    ]
    forgotten = [
        SharedPartition(topic.topic_id, each) for topic in request.forgotten_topics_data for each in topic.partitions
    ]
    sessions.change(session, asked, forgotten)
    if len(session.partitions) > PARTITIONS_MAX:
        services.shares.end_session(session)
        reason = f"a share session has at most {PARTITIONS_MAX:,} partitions: use more members"
        answer.refuse(KafkaError.of(ErrorCode.INVALID_REQUEST, reason))
        return
    if request.is_renew_ack or request.max_records <= 0 or request.max_bytes <= 0:
        answer.take_outcomes([])
        return
    allowed = answer.admit(session.rotated(), guard)
    ask = ShareFetch(
        session,
        0 if answer.outcomes else request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.max_records,
        request.batch_size,
        request.share_acquire_mode == RECORD_LIMIT,
    )
    cancel = services.shares.fetch(ask, allowed, answer.take_outcomes)
    if not slot.is_done:
        slot.cancel = cancel


def _check(request: ShareFetchRequest) -> None:
    """Raises INVALID_REQUEST for what breaks the protocol's rules."""
    reason = None
    limits = (request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms)
    if request.share_acquire_mode not in (0, 1):
        reason = UNKNOWN_MODE
    elif request.is_renew_ack and any(limits):
        reason = "with IsRenewAck nothing is fetched: MaxBytes, MinBytes, MaxRecords and MaxWaitMs are 0"
    elif request.share_session_epoch == OPENS and any(
        partition.acknowledgement_batches for topic in request.topics for partition in topic.partitions
    ):
        reason = "a request that opens a share session acknowledges nothing"
    if reason is not None:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, reason)


def _refuse(slot: ResponseSlot, error: KafkaError) -> None:
    slot.count_errors((error.code,))
    slot.fill(
        *encode_share_fetch_response(slot.correlation_id, (), error_code=error.code, error_message=message_of(error))
    )


class _Answer:
    """What the answer of one share fetch is made of; it leaves when all of it is there."""

    __slots__ = ("acknowledged", "is_fetched", "outcomes", "services", "session", "slot", "waiting")

    def __init__(self, services: BrokerServices, slot: ResponseSlot, session: ShareSession) -> None:
        self.services = services
        self.slot = slot
        self.session = session
        self.acknowledged: dict[SharedPartition, KafkaError | None] = {}
        self.waiting = 0
        """Acknowledgements that are not kept yet."""
        self.outcomes: list[ShareOutcome] = []
        self.is_fetched = False

    def refuse(self, error: KafkaError) -> None:
        """Answer nothing else."""
        self.is_fetched, self.waiting = False, 0
        _refuse(self.slot, error)

    def take_acknowledgements(self, request: ShareFetchRequest, version: int, guard: Access | None) -> None:
        """Take the acknowledgements of every partition that has some."""
        for topic in request.topics:
            for each in topic.partitions:
                if not each.acknowledgement_batches:
                    continue
                shared = SharedPartition(topic.topic_id, each.partition_index)
                try:
                    require_topic(self.services, guard, topic.topic_id)
                    batches = acknowledgements(
                        each.acknowledgement_batches, version=version, may_renew=request.is_renew_ack
                    )
                except KafkaError as error:
                    self.acknowledged[shared] = error
                else:
                    self._acknowledge(shared, batches)

    def _acknowledge(self, shared: SharedPartition, batches: list[Acknowledgement]) -> None:
        self.waiting += 1
        self.services.shares.acknowledge(self.session, shared, batches, partial(self._take_acknowledged, shared))

    def _take_acknowledged(self, shared: SharedPartition, error: KafkaError | None) -> None:
        self.acknowledged[shared] = error
        self.waiting -= 1
        self._fill_when_whole()

    def admit(self, asked: list[SharedPartition], guard: Access | None) -> list[SharedPartition]:
        """The partitions whose topics are known and may be read; of the others there are outcomes."""
        allowed = []
        for shared in asked:
            try:
                require_topic(self.services, guard, shared.topic_id)
            except KafkaError as error:
                self.outcomes.append(ShareOutcome(shared, error))
            else:
                allowed.append(shared)
        return allowed

    def take_outcomes(self, outcomes: list[ShareOutcome]) -> None:
        """What was acquired; called at most once."""
        self.outcomes += outcomes
        self.is_fetched = True
        self.slot.cancel = None
        self._fill_when_whole()

    def _fill_when_whole(self) -> None:
        if self.waiting or not self.is_fetched:
            return
        services, slot = self.services, self.slot
        found = {outcome.shared: outcome for outcome in self.outcomes}
        for shared in self.acknowledged:
            found.setdefault(shared, ShareOutcome(shared))
        partitions: list[ShareFetchResponsePartition] = []
        leaders: list[CurrentLeader] = []
        codes: list[ErrorCode] = []
        for shared, outcome in sorted(found.items()):
            error, refused = outcome.error, self.acknowledged.get(shared)
            leader = outcome.current_leader or leader_of(services, shared, refused)
            if leader is not None:
                leaders.append(leader)
            codes += [each.code for each in (error, refused) if each is not None]
            partitions.append(
                ShareFetchResponsePartition(
                    shared.topic_id,
                    shared.partition,
                    0 if error is None else error.code,
                    None if error is None else message_of(error),
                    0 if refused is None else refused.code,
                    None if refused is None else message_of(refused),
                    NO_LEADER if leader is None else leader,
                    outcome.parts,
                    outcome.size_bytes,
                    outcome.acquired,
                )
            )
        if codes:
            slot.count_errors(codes)
        slot.fill(
            *encode_share_fetch_response(
                slot.correlation_id,
                partitions,
                lock_timeout_ms=services.shares.settings(self.session.group_id).record_lock_duration_ms,
                node_endpoints=node_endpoints(services, slot.listener_name, leaders),
            )
        )
