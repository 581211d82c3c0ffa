"""ShareAcknowledge v1-2: what became of records that a member of a share group had acquired (KIP-932, KIP-1222).

May touch:  share partitions, names and ids of topics in the image.    Must not touch: the core of a share partition, logs.
Invariants: the acknowledgements of a partition count as a whole, or not at all; they are answered once they are kept.
Read next:  share_fetch.py, which takes them too; barnabas_coordination/share/leader.py.

Behaviour: refused with UNSUPPORTED_VERSION while share.version is 0. Epoch -1 ends the session once the acknowledgements are taken.
Difference from Kafka: ranges that overlap by one offset are refused like those that overlap by more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from barnabas_broker.api.answers import error_fields
from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.leaders import node_endpoints
from barnabas_broker.api.registry import PARTITION_ELEMENTS_MAX, PARTITIONS_BYTES_MAX, handles
from barnabas_broker.api.services import BrokerServices
from barnabas_broker.security.access import Access
from barnabas_coordination.share.partition import Acknowledgement
from barnabas_coordination.share.sessions import ENDS, OPENS, InvalidShareSessionEpoch, SharedPartition, ShareSession
from barnabas_quorum.image.rights import GROUP, READ, TOPIC
from barnabas_replication.requests import CurrentLeader
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Offset, TopicPartition, Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartitionResponse,
    AcknowledgeTopicResponse,
    AcknowledgeType,
    LeaderIdAndEpoch,
    NodeEndpoint,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)

MEMBER_ID_MAX: Final = 36
PARTITIONS_MAX: Final = 8_192
"""Partitions that a share session may have, and that one request may name. Each takes up to 50 calls of the loop."""
NO_LEADER: Final = LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
_TYPES: Final = {int(each): each for each in AcknowledgeType}
LEADERLESS_CODES: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def require_share_groups(
    services: BrokerServices, access: Access | None, group_id: str | None, member_id: str | None
) -> tuple[str, str]:
    """The group and the member, where the group may be shared in. Raises KafkaError."""
    if not services.metadata.image.features.share_version:
        raise KafkaError.of(
            ErrorCode.UNSUPPORTED_VERSION,
            "this cluster does not serve share groups: its share.version is 0; once every node runs a version that does, "
            "`barnabas cluster features upgrade --feature share.version=2`",
        )
    if not group_id:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, "the group id is empty")
    if access is not None:
        access.require(READ, GROUP, group_id)
    if not member_id or len(member_id) > MEMBER_ID_MAX:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"a member id has 1 to {MEMBER_ID_MAX} characters")
    return group_id, member_id


def held_name(group_id: str, member_id: str) -> str:
    """What a connection's hold on a share session is called."""
    return f"share session {group_id} {member_id}"


def require_topic(services: BrokerServices, access: Access | None, topic_id: Uuid) -> str:
    """The name of a topic that the client may read. Raises KafkaError."""
    topic = services.metadata.image.topics.get_by_id(topic_id)
    if topic is None:
        raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has id {topic_id}")
    if access is not None:
        access.require(READ, TOPIC, topic.name)
    return topic.name


def acknowledgements(
    batches: Sequence[AcknowledgementBatch], *, version: int, may_renew: bool
) -> list[Acknowledgement]:
    """What a member says of one partition, a range for each type. Raises INVALID_REQUEST."""
    found: list[Acknowledgement] = []
    before = -1
    types_max = AcknowledgeType.REJECT if version < 2 else AcknowledgeType.RENEW
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if not 0 <= first <= last or first < before:
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"offsets {first} to {last} are no range behind {before}")
        if len(types) != 1 and len(types) != last - first + 1:
            raise KafkaError.of(
                ErrorCode.INVALID_REQUEST, f"{len(types)} types are not one for each of {last - first + 1} offsets"
            )
        if not 0 <= min(types) <= max(types) <= types_max:
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"types of acknowledgement are 0 to {int(types_max)} here")
        if not may_renew and AcknowledgeType.RENEW in types:
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, "a lock is renewed, and IsRenewAck does not say so")
        before = last
        if len(types) == 1:
            found.append(Acknowledgement(Offset(first), Offset(last), _TYPES[types[0]]))
            continue
        for type_, alike in groupby(types):
            size = sum(1 for _ in alike)
            found.append(Acknowledgement(Offset(first), Offset(first + size - 1), _TYPES[type_]))
            first += size
    return found


def leader_of(services: BrokerServices, shared: SharedPartition, error: KafkaError | None) -> CurrentLeader | None:
    """The leader, for a client that asked the wrong broker; None with any other error."""
    topic = services.metadata.image.topics.get_by_id(shared.topic_id)
    if error is None or topic is None or error.code not in LEADERLESS_CODES:
        return None
    return services.replica_manager.hosted.leader_hint(*TopicPartition(topic.name, shared.partition))


@handles(
    ApiKey.SHARE_ACKNOWLEDGE,
    versions=(1, 2),
    request_bytes_max=PARTITIONS_BYTES_MAX,
    elements_max=PARTITION_ELEMENTS_MAX,
)
async def acknowledge(
    services: BrokerServices, context: RequestContext, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse:
    """Acknowledge, release, reject or renew, in each partition for itself."""
    access = context.access
    group_id, member_id = require_share_groups(services, access, request.group_id, request.member_id)
    shares, epoch = services.shares, request.share_session_epoch
    if epoch == OPENS:
        raise InvalidShareSessionEpoch("an acknowledgement opens no share session: fetch with epoch 0")
    if sum(len(topic.partitions) for topic in request.topics) > PARTITIONS_MAX:
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST, f"a request names at most {PARTITIONS_MAX:,} partitions: send several"
        )
    session = shares.sessions.take(group_id, member_id, epoch)
    waiting: dict[SharedPartition, asyncio.Future[KafkaError | None]] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            shared = SharedPartition(topic.topic_id, partition.partition_index)
            answer = waiting[shared] = asyncio.get_running_loop().create_future()
            try:
                require_topic(services, access, topic.topic_id)
                batches = acknowledgements(
                    partition.acknowledgement_batches, version=context.api_version, may_renew=request.is_renew_ack
                )
            except KafkaError as error:
                answer.set_result(error)
            else:
                _acknowledge(services, session, shared, batches, answer)
    if epoch == ENDS:
        shares.end_session(session)
        context.held.pop(held_name(group_id, member_id), None)
    for answer in waiting.values():
        await answer
    topics: dict[Uuid, AcknowledgeTopicResponse] = {}
    leaders: list[CurrentLeader] = []
    for shared, answer in waiting.items():
        refused = answer.result()
        leader = leader_of(services, shared, refused)
        if leader is not None:
            leaders.append(leader)
        response = topics.setdefault(shared.topic_id, AcknowledgeTopicResponse(topic_id=shared.topic_id))
        response.partitions.append(
            AcknowledgePartitionResponse(
                partition_index=shared.partition,
                current_leader=NO_LEADER if leader is None else LeaderIdAndEpoch(*leader),
                **error_fields(refused),
            )
        )
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=shares.settings(group_id).record_lock_duration_ms,
        responses=list(topics.values()),
        node_endpoints=[NodeEndpoint(*each) for each in node_endpoints(services, context.listener_name, leaders)],
    )


def _acknowledge(
    services: BrokerServices,
    session: ShareSession,
    shared: SharedPartition,
    batches: Sequence[Acknowledgement],
    answer: asyncio.Future[KafkaError | None],
) -> None:
    if not batches:
        answer.set_result(None)
        return

    def respond(error: KafkaError | None) -> None:
        if not answer.done():  # the handler was cancelled
            answer.set_result(error)

    services.shares.acknowledge(session, shared, batches, respond)
