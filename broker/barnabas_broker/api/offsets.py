"""OffsetCommit v2-10, OffsetFetch v1-10, OffsetDelete v0: how far a group has read.

May touch:  the group coordinator, the image (which topics exist).    Must not touch: the group's state, logs.
Invariants: every topic and partition of a request is answered once, in its order; nothing committed is offset -1 without error.
Read next:  barnabas_coordination/group/offsets.py; groups.py for membership.

Behaviour: v10 names topics by id, everything before by name; v8+ of OffsetFetch asks for several groups at once; null topics
(v2+) means everything the group has committed. A group, topic or partition that is named twice is answered once. A commit for a
partition that does not exist is refused, a fetch is not: it has committed nothing. An error of the group
is reported in its own field where the version has one, and in every partition asked for.
An offset is committed for the topic of that name as it is then: one of an earlier topic is not given out for a later one.
Members of the consumer protocol commit and fetch by their epoch, from v9 on: STALE_MEMBER_EPOCH (see
barnabas_coordination/group/consumer/commits.py).
With `require_stable` (KIP-447) a partition that an open transaction has committed an offset for is UNSTABLE_OFFSET_COMMIT.
Differences from Kafka: the topic's id is kept whatever the version of the commit, Kafka keeps it from v10 on; an unknown group with
a generation gets ILLEGAL_GENERATION in v9+, too (consumers know how to continue from that).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.registry import PARTITION_ELEMENTS_MAX, PARTITIONS_BYTES_MAX, handles
from barnabas_broker.api.services import BrokerServices
from barnabas_broker.security.audited_changes import RECORDS_MAX
from barnabas_coordination.group.messages import CommittedOffset, MemberRef, OffsetCommit, OffsetToCommit
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.rights import DELETE, DESCRIBE, GROUP, READ, TOPIC
from barnabas_quorum.image.topics import TopicImage
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_EPOCH, NO_OFFSET, ZERO_UUID, Epoch, Offset, TopicPartition, Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas_wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas_wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

P = TypeVar("P", OffsetFetchResponsePartition, OffsetFetchResponsePartitions)

TOPIC_IDS_FROM = 10
"""First version of OffsetCommit and OffsetFetch that names topics by id."""
EPOCHS_FROM = 9
"""First version that members of the consumer protocol may use."""
COMMITTED_ELEMENTS_MAX = 8_192
"""The most array elements of one OffsetCommit. What it commits is one batch of the offsets topic, and about 10,000
offsets fill the mebibyte of that."""
COMMIT_CALLS_MAX = 700_000
"""A commit is a record, of which key and value are encoded."""
FETCH_CALLS_MAX = 500_000
NOTHING = CommittedOffset(NO_OFFSET, NO_EPOCH, "")


# ---- OffsetCommit ----------------------------------------------------------------------------------------------------


def _not_committed(request: OffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[_commit_answer(topic, [error.code] * len(topic.partitions)) for topic in request.topics]
    )


@handles(
    ApiKey.OFFSET_COMMIT,
    versions=(2, 10),
    on_error=_not_committed,
    request_bytes_max=PARTITIONS_BYTES_MAX,
    elements_max=COMMITTED_ELEMENTS_MAX,
    calls_max=COMMIT_CALLS_MAX,
)
async def offset_commit(
    services: BrokerServices, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    """Commit offsets of partitions that exist; answered once they are replicated."""
    context.access.require(READ, GROUP, request.group_id)
    image = services.metadata.image
    codes: list[list[ErrorCode]] = []
    wanted: list[OffsetToCommit] = []
    places: list[tuple[int, int]] = []
    for row, asked in enumerate(request.topics):
        topic, refusal = find_topic(image, asked.name, asked.topic_id, is_by_id=context.api_version >= TOPIC_IDS_FROM)
        name = asked.name if topic is None else topic.name
        if name and not context.access.may(READ, TOPIC, name):
            topic, refusal = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        codes.append([refusal] * len(asked.partitions))
        for column, partition in enumerate(asked.partitions):
            if topic is None or partition.partition_index not in topic.partitions:
                continue
            places.append((row, column))
            wanted.append(
                OffsetToCommit(
                    topic.name,
                    partition.partition_index,
                    Offset(partition.committed_offset),
                    Epoch(partition.committed_leader_epoch),
                    partition.committed_metadata or "",
                    topic.id,
                )
            )
    if wanted:
        is_outside = not request.member_id and request.generation_id_or_member_epoch < 0
        before = committed_before(services, request.group_id, wanted) if is_outside else []
        outcome = await services.groups.commit_offsets(
            OffsetCommit(
                member=MemberRef(
                    group_id=request.group_id,
                    member_id=request.member_id,
                    generation=request.generation_id_or_member_epoch,
                    instance_id=request.group_instance_id,
                ),
                offsets=tuple(wanted),
                retention_ms=request.retention_time_ms,
                knows_epochs=context.api_version >= EPOCHS_FROM,
            )
        )
        for (row, column), code in zip(places, outcome, strict=True):
            codes[row][column] = code
        note_commit(services, context, request.group_id, before, wanted, outcome)
    return OffsetCommitResponse(
        topics=[_commit_answer(topic, row) for topic, row in zip(request.topics, codes, strict=True)]
    )


def committed_before(
    services: BrokerServices, group_id: str, wanted: Sequence[OffsetToCommit]
) -> list[CommittedOffset]:
    """The offsets committed so far for the first RECORDS_MAX of `wanted`, for the audit log; empty without one."""
    if not services.audit.is_on:
        return []
    try:
        keys = [TopicPartition(offset.topic, offset.partition) for offset in wanted[:RECORDS_MAX]]
        return services.groups.fetch_offsets(group_id, keys)
    except KafkaError:
        return []  # the commit will be refused likewise


def note_commit(
    services: BrokerServices,
    context: RequestContext,
    group_id: str,
    before: Sequence[CommittedOffset],
    wanted: Sequence[OffsetToCommit],
    codes: Sequence[ErrorCode],
) -> None:
    """Have the audit log tell a commit of who is no member. `before`: committed_before, of which the others are only counted."""
    changes: list[dict[str, Any]] = [
        {"topic": new.topic, "partition": new.partition, "before": old.offset, "after": new.offset}
        for old, new, code in zip(before, wanted, codes, strict=False)
        if code is ErrorCode.NONE
    ]
    if changes:
        if len(wanted) > len(before):
            changes.append({"more": len(wanted) - len(before)})
        services.audit.offsets_set(context.principal, context.client_host, group=group_id, changes=changes)


def _commit_answer(topic: OffsetCommitRequestTopic, codes: Sequence[ErrorCode]) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
            for partition, code in zip(topic.partitions, codes, strict=True)
        ],
    )


def find_topic(
    image: MetadataImage, name: str, topic_id: Uuid, *, is_by_id: bool
) -> tuple[TopicImage | None, ErrorCode]:
    """The topic, by id or by name as the version has it, and the code for its partitions that do not exist."""
    if not is_by_id:
        return image.topics.get(name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic = image.topics.get_by_id(topic_id)
    return topic, ErrorCode.UNKNOWN_TOPIC_ID if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# ---- OffsetFetch -----------------------------------------------------------------------------------------------------


class _FetchedTopic(NamedTuple):
    """One topic of the answer: its names, and (partition, what is committed, code) in order."""

    name: str
    topic_id: Uuid
    partitions: list[tuple[int, CommittedOffset, ErrorCode]]


@handles(
    ApiKey.OFFSET_FETCH,
    versions=(1, 10),
    request_bytes_max=PARTITIONS_BYTES_MAX,
    elements_max=PARTITION_ELEMENTS_MAX,
    calls_max=FETCH_CALLS_MAX,
)
def offset_fetch(services: BrokerServices, context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """What groups have committed."""
    if context.api_version < 8:
        asked = None
        if request.topics is not None:
            asked = [(topic.name, ZERO_UUID, topic.partition_indexes) for topic in request.topics]
        topics, code = _fetch_group(services, context, request.group_id, asked, is_stable=request.require_stable)
        return OffsetFetchResponse(
            error_code=code,
            topics=[
                OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=_partitions(OffsetFetchResponsePartition, topic),
                )
                for topic in topics
            ],
        )
    groups = []
    for group in {group.group_id: group for group in request.groups}.values():
        asked = None
        if group.topics is not None:
            asked = [(topic.name, topic.topic_id, topic.partition_indexes) for topic in group.topics]
        # A client that is no member names none; some leave the name empty.
        is_member = bool(group.member_id) or group.member_epoch >= 0
        member = (group.member_id or "", group.member_epoch) if is_member else None
        topics, code = _fetch_group(
            services, context, group.group_id, asked, is_stable=request.require_stable, member=member
        )
        groups.append(
            OffsetFetchResponseGroup(
                group_id=group.group_id,
                error_code=code,
                topics=[
                    OffsetFetchResponseTopics(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partitions=_partitions(OffsetFetchResponsePartitions, topic),
                    )
                    for topic in topics
                ],
            )
        )
    return OffsetFetchResponse(groups=groups)


def _partitions(kind: type[P], topic: _FetchedTopic) -> list[P]:
    return [
        kind(
            partition_index=partition,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            error_code=code,
        )
        for partition, committed, code in topic.partitions
    ]


def _fetch_group(
    services: BrokerServices,
    context: RequestContext,
    group_id: str,
    asked: Iterable[tuple[str, Uuid, Sequence[int]]] | None,
    *,
    is_stable: bool,
    member: tuple[str, int] | None = None,
) -> tuple[list[_FetchedTopic], ErrorCode]:
    """`member`: id and epoch of who fetches as a member of the consumer protocol."""
    image = services.metadata.image
    access = context.access
    is_all = asked is None
    try:
        access.require(DESCRIBE, GROUP, group_id)
        if member is not None:
            services.groups.check_fetch(group_id, *member)
        asked = _everything_committed(services, context, image, group_id) if asked is None else _each_once(asked)
        names = [name for name, _, _ in asked]
        if context.api_version >= TOPIC_IDS_FROM:
            topics = [image.topics.get_by_id(topic_id) for _, topic_id, _ in asked]
            names = [name if topic is None else topic.name for name, topic in zip(names, topics, strict=True)]
            unknown = {topic_id for (_, topic_id, _), topic in zip(asked, topics, strict=True) if topic is None}
        else:
            unknown = set()
        hidden = {
            name
            for name, (_, topic_id, _) in zip(names, asked, strict=True)
            if topic_id not in unknown and not access.may(DESCRIBE, TOPIC, name, is_noted=not is_all)
        }
        if is_all and hidden:
            asked = [each for name, each in zip(names, asked, strict=True) if name not in hidden]
            names = [name for name in names if name not in hidden]
        # Asked for at once: to find a group costs as much as its id is long. One that this broker does not coordinate is refused
        # even when nothing is asked for.
        wanted = [
            TopicPartition(name, index)
            for name, (_, topic_id, partitions) in zip(names, asked, strict=True)
            if topic_id not in unknown and name not in hidden
            for index in partitions
        ]
        committed = iter(services.groups.fetch_offsets(group_id, wanted))
        unstable = services.groups.unstable_partitions(group_id, wanted) if is_stable else frozenset()
    except KafkaError as error:
        return [_told(*topic, error.code) for topic in asked or ()], error.code
    found = []
    for name, (_, topic_id, partitions) in zip(names, asked, strict=True):
        if topic_id in unknown:
            found.append(_told(name, topic_id, partitions, ErrorCode.UNKNOWN_TOPIC_ID))
            continue
        if name in hidden:
            found.append(_told(name, topic_id, partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        present = image.topics.get(name)
        entries = []
        for index in partitions:
            offset = next(committed)
            if unstable and TopicPartition(name, index) in unstable:
                entries.append((index, NOTHING, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            else:
                entries.append((index, NOTHING if _is_of_another(offset, present) else offset, ErrorCode.NONE))
        found.append(_FetchedTopic(name, topic_id, entries))
    return found, ErrorCode.NONE


def _is_of_another(committed: CommittedOffset, topic: TopicImage | None) -> bool:
    """Whether the offset is of an earlier topic of that name: its deletion was not recorded, and it means nothing in this one."""
    return topic is not None and committed.topic_id not in (ZERO_UUID, topic.id)


def _each_once(asked: Iterable[tuple[str, Uuid, Sequence[int]]]) -> list[tuple[str, Uuid, list[int]]]:
    """Topics and partitions as they were named, each once: four bytes that name a partition bring back all of its metadata."""
    partitions_of: dict[tuple[str, Uuid], dict[int, None]] = {}
    for name, topic_id, partitions in asked:
        partitions_of.setdefault((name, topic_id), {}).update(dict.fromkeys(partitions))
    return [(name, topic_id, list(partitions)) for (name, topic_id), partitions in partitions_of.items()]


def _everything_committed(
    services: BrokerServices, context: RequestContext, image: MetadataImage, group_id: str
) -> list[tuple[str, Uuid, list[int]]]:
    by_topic: dict[str, list[int]] = {}
    for key in services.groups.committed_partitions(group_id):
        by_topic.setdefault(key.topic, []).append(key.partition)
    found = []
    for name, partitions in by_topic.items():
        topic = image.topics.get(name)
        if topic is not None or context.api_version < TOPIC_IDS_FROM:
            found.append((name, ZERO_UUID if topic is None else topic.id, partitions))
    return found


def _told(name: str, topic_id: Uuid, partitions: Sequence[int], code: ErrorCode) -> _FetchedTopic:
    return _FetchedTopic(name, topic_id, [(index, NOTHING, code) for index in partitions])


# ---- OffsetDelete ----------------------------------------------------------------------------------------------------


@handles(
    ApiKey.OFFSET_DELETE,
    versions=(0, 0),
    request_bytes_max=PARTITIONS_BYTES_MAX,
    elements_max=PARTITION_ELEMENTS_MAX,
)
async def offset_delete(
    services: BrokerServices, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    """Forget offsets of topics that the group no longer subscribes to (KIP-496)."""
    context.access.require(DELETE, GROUP, request.group_id)
    image = services.metadata.image
    hidden = {topic.name for topic in request.topics if not context.access.may(READ, TOPIC, topic.name)}
    existing = [
        TopicPartition(topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
        if topic.name not in hidden and _exists(image, topic.name, partition.partition_index)
    ]
    codes: dict[TopicPartition, ErrorCode] = {}
    if existing or not hidden:
        codes |= zip(existing, await services.groups.delete_offsets(request.group_id, existing), strict=True)
        services.audit.deleted(
            context.principal,
            context.client_host,
            request="OffsetDelete",
            changes=({"group": request.group_id, **key._asdict()} for key in existing if codes[key] is ErrorCode.NONE),
        )
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes.get(
                            TopicPartition(topic.name, partition.partition_index),
                            ErrorCode.TOPIC_AUTHORIZATION_FAILED
                            if topic.name in hidden
                            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        ),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _exists(image: MetadataImage, name: str, partition: int) -> bool:
    topic = image.topics.get(name)
    return topic is not None and partition in topic.partitions
