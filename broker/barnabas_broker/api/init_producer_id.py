"""InitProducerId v0-5: a producer id for an idempotent producer.

May touch:  the producer id source.    Must not touch: logs, transactions.
Invariants: an id is given once in a cluster; its epoch begins at 0.
Read next:  ../producer_ids.py.

Behaviour: whoever asks without a transactional id gets a new id with epoch 0, also when it names an id it had
(KIP-360). v6 is unstable in Kafka 4.2 (KIP-939) and not offered there either. Differences from Kafka: a transactional
id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which every client takes as final.
"""

from __future__ import annotations

from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.registry import handles
from barnabas_broker.api.services import BrokerServices
from barnabas_broker.api.unserved import TRANSACTIONS
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def _error(request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)


@handles(ApiKey.INIT_PRODUCER_ID, versions=(0, 5), on_error=_error)
async def init_producer_id(
    services: BrokerServices, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """A fresh producer id."""
    if request.transactional_id == "":
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, "producer id and epoch are given together or not at all")
    if request.transactional_id is not None:
        raise services.unserved.refuse(TRANSACTIONS, context)
    return InitProducerIdResponse(producer_id=await services.producer_ids.next_id(), producer_epoch=0)
