"""InitializeShareGroupState v0, ReadShareGroupState v0, WriteShareGroupState v0-1, DeleteShareGroupState v0, ReadShareGroupStateSummary
v0-1: what leaders and group coordinators ask of the share coordinator (KIP-932).

May touch:  the share coordinator.    Must not touch: logs, the image, group coordinators.
Invariants: every partition of a request is answered once, when its change is replicated or was refused; none waits for another.
Read next:  barnabas_coordination/share_state/service.py; persister.py there, who sends.

Behaviour: each partition of a request has its own coordinator, and is refused alone. Differences from Kafka: a batch of
Write and Read has one tagged field more, until when its offsets wait (share.retry.backoff.ms, share.deliver.at.header);
a state that no reader would know is refused, where Kafka stores any number; Delete and the summary know state whose
topic is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from barnabas_broker.api.answers import error_fields
from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.registry import PARTITIONS_BYTES_MAX, ErrorResponse, handles
from barnabas_broker.api.services import BrokerServices
from barnabas_coordination.share_state import records
from barnabas_coordination.share_state.messages import ShareKey
from barnabas_coordination.share_state.state import Change
from barnabas_quorum.image.rights import CLUSTER, CLUSTER_ACTION
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages import delete_share_group_state as delete
from barnabas_wire.kafka.messages import initialize_share_group_state as initialize
from barnabas_wire.kafka.messages import read_share_group_state as read
from barnabas_wire.kafka.messages import read_share_group_state_summary as summary
from barnabas_wire.kafka.messages import write_share_group_state as write

PARTITIONS_PER_TURN: Final = 200
"""Each is a separate step, up to 2 ms together."""
WRITE_ELEMENTS_MAX: Final = 22_528
"""A window of 20,000 offsets that are all in another state, which the group configs allow, and who they belong to: 380,000 calls."""

R = TypeVar("R")


class _Answer(NamedTuple, Generic[R]):
    """What an answer is made of: the response, its topics, their partitions."""

    response: Callable[[list[Any]], R]
    topic: Any
    partition: Any

    @property
    def on_error(self) -> ErrorResponse:
        """The answer in which every partition has the error."""
        return lambda request, error: self.response(
            [
                self.topic(
                    topic.topic_id, [self.partition(each.partition, **error_fields(error)) for each in topic.partitions]
                )
                for topic in request.topics
            ]
        )

    async def of(
        self, context: RequestContext, request: Any, ask: Callable[[ShareKey, Any], Awaitable[dict[str, Any]]]
    ) -> R:
        """The answer to a request. ask: the fields of one partition's."""
        context.access.require(CLUSTER_ACTION, CLUSTER)
        if not request.group_id:
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, "share state is that of a group: name one")

        async def one(key: ShareKey, data: Any) -> Any:
            try:
                return self.partition(key.partition, **await ask(key, data))
            except KafkaError as error:
                return self.partition(key.partition, **error_fields(error))

        asked = [
            (ShareKey(request.group_id, topic.topic_id, data.partition), data)
            for topic in request.topics
            for data in topic.partitions
        ]
        if len(asked) == 1:
            found = iter([await one(*asked[0])])
        else:
            waiting: list[asyncio.Task[Any]] = []
            async with asyncio.TaskGroup() as tasks:
                for each in asked:
                    waiting.append(tasks.create_task(one(*each)))
                    if not len(waiting) % PARTITIONS_PER_TURN:
                        await asyncio.sleep(0)
            found = iter([task.result() for task in waiting])
        return self.response(
            [self.topic(topic.topic_id, [next(found) for _ in topic.partitions]) for topic in request.topics]
        )


INITIALIZED: Final = _Answer(
    initialize.InitializeShareGroupStateResponse, initialize.InitializeStateResult, initialize.PartitionResult
)
READ: Final = _Answer(read.ReadShareGroupStateResponse, read.ReadStateResult, read.PartitionResult)
WRITTEN: Final = _Answer(write.WriteShareGroupStateResponse, write.WriteStateResult, write.PartitionResult)
DELETED: Final = _Answer(delete.DeleteShareGroupStateResponse, delete.DeleteStateResult, delete.PartitionResult)
SUMMARY: Final = _Answer(
    summary.ReadShareGroupStateSummaryResponse, summary.ReadStateSummaryResult, summary.PartitionResult
)


@handles(ApiKey.INITIALIZE_SHARE_GROUP_STATE, versions=(0, 0), on_error=INITIALIZED.on_error)
async def initialize_share_group_state(
    services: BrokerServices, context: RequestContext, request: initialize.InitializeShareGroupStateRequest
) -> initialize.InitializeShareGroupStateResponse:
    """Begin states, or reset them."""

    async def ask(key: ShareKey, data: initialize.PartitionData) -> dict[str, Any]:
        await services.share_state.initialize(
            key, state_epoch=Epoch(data.state_epoch), start_offset=Offset(data.start_offset)
        )
        return {}

    return await INITIALIZED.of(context, request, ask)


@handles(ApiKey.READ_SHARE_GROUP_STATE, versions=(0, 0), on_error=READ.on_error)
async def read_share_group_state(
    services: BrokerServices, context: RequestContext, request: read.ReadShareGroupStateRequest
) -> read.ReadShareGroupStateResponse:
    """Read states, and shut leaders of lower epochs out."""

    async def ask(key: ShareKey, data: read.PartitionData) -> dict[str, Any]:
        state = await services.share_state.read(key, leader_epoch=Epoch(data.leader_epoch))
        return {
            "state_epoch": state.state_epoch,
            "start_offset": state.start_offset,
            "state_batches": records.to_messages(state.batches),
        }

    return await READ.of(context, request, ask)


@handles(
    ApiKey.WRITE_SHARE_GROUP_STATE,
    versions=(0, 1),
    on_error=WRITTEN.on_error,
    request_bytes_max=PARTITIONS_BYTES_MAX,
    elements_max=WRITE_ELEMENTS_MAX,
)
async def write_share_group_state(
    services: BrokerServices, context: RequestContext, request: write.WriteShareGroupStateRequest
) -> write.WriteShareGroupStateResponse:
    """Keep what changed."""

    async def ask(key: ShareKey, data: write.PartitionData) -> dict[str, Any]:
        try:
            batches = records.from_messages(data.state_batches)
        except ValueError as error:
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"{key.coordinator_key}: {error}") from error
        change = Change(
            state_epoch=Epoch(data.state_epoch),
            leader_epoch=Epoch(data.leader_epoch),
            start_offset=Offset(data.start_offset),
            complete_count=data.delivery_complete_count,
            batches=batches,
        )
        await services.share_state.write(key, change)
        return {}

    return await WRITTEN.of(context, request, ask)


@handles(ApiKey.DELETE_SHARE_GROUP_STATE, versions=(0, 0), on_error=DELETED.on_error)
async def delete_share_group_state(
    services: BrokerServices, context: RequestContext, request: delete.DeleteShareGroupStateRequest
) -> delete.DeleteShareGroupStateResponse:
    """Forget states."""

    async def ask(key: ShareKey, data: delete.PartitionData) -> dict[str, Any]:
        await services.share_state.delete(key)
        return {}

    return await DELETED.of(context, request, ask)


@handles(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, versions=(0, 1), on_error=SUMMARY.on_error)
async def read_share_group_state_summary(
    services: BrokerServices, context: RequestContext, request: summary.ReadShareGroupStateSummaryRequest
) -> summary.ReadShareGroupStateSummaryResponse:
    """How far states are."""

    async def ask(key: ShareKey, data: summary.PartitionData) -> dict[str, Any]:
        found = await services.share_state.summary(key)
        return {
            "state_epoch": found.state_epoch,
            "leader_epoch": found.leader_epoch,
            "start_offset": found.start_offset,
            "delivery_complete_count": found.complete_count,
        }

    return await SUMMARY.of(context, request, ask)
