"""Blocks of producer ids (KIP-730). Image in, record out.

May touch:  image.                    Must not touch: everything else.
Invariants: blocks never overlap.
Read next:  image/producer_ids.py.
"""

from __future__ import annotations

from barnabas_quorum.controller.decisions import DecisionContext, decides
from barnabas_quorum.controller.partitions import registered_broker
from barnabas_quorum.controller.requests import AllocateProducerIds, AllocateProducerIdsReply
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.records import ProducerIdsRecord

PRODUCER_IDS_PER_BLOCK = 1000


@decides(AllocateProducerIds)
def allocate_producer_ids(
    image: MetadataImage, request: AllocateProducerIds, context: DecisionContext
) -> ControllerResult[AllocateProducerIdsReply]:
    """The next block, for a registered broker. Raises BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH."""
    registered_broker(image, request.broker_id, request.broker_epoch)
    first = image.producer_ids.next_producer_id
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=first + PRODUCER_IDS_PER_BLOCK,
    )
    return ControllerResult(
        records=[record], response=AllocateProducerIdsReply(first=first, count=PRODUCER_IDS_PER_BLOCK)
    )
