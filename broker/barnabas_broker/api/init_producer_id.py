"""InitProducerId v0-5: a producer id and epoch, for an idempotent producer or for a transactional id.

May touch:  the producer id source, the transaction coordinator.    Must not touch: logs.
Invariants: an id is given once and never again in this cluster; without a transactional id its epoch begins at 0.
Read next:  ../controller_client/producer_ids.py, barnabas_coordination/transaction/state.py (`initialize`).

Behaviour: whoever asks without a transactional id gets a new id with epoch 0, also when it names an id it had (KIP-360). With one, the
epoch rises and fences whoever had the id before; an open transaction is aborted first, and the client asks again while it gets
CONCURRENT_TRANSACTIONS. While the cluster's transaction.version is 0 a transactional id is refused with
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which every client takes as final. PRODUCER_FENCED is INVALID_PRODUCER_EPOCH before v4.
v6 is unstable in Kafka 4.3 (KIP-939) and not offered there either.
"""

from __future__ import annotations

from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.registry import handles
from barnabas_broker.api.services import BrokerServices
from barnabas_broker.api.unserved import TRANSACTIONS
from barnabas_coordination.transaction.state import Producer
from barnabas_quorum.image.rights import CLUSTER, IDEMPOTENT_WRITE, TOPIC, TRANSACTIONAL_ID, WRITE
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

FENCED_FROM = 4
"""First version with PRODUCER_FENCED."""


def _error(request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)


@handles(ApiKey.INIT_PRODUCER_ID, versions=(0, 5), on_error=_error)
async def init_producer_id(
    services: BrokerServices, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """A producer id and epoch to continue with."""
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, "producer id and epoch are given together or not at all")
    access = context.access
    if request.transactional_id is not None:
        access.require(WRITE, TRANSACTIONAL_ID, request.transactional_id)
    elif not access.may(IDEMPOTENT_WRITE, CLUSTER, is_noted=False) and not access.may_any(WRITE, TOPIC):
        raise access.refusal(IDEMPOTENT_WRITE, CLUSTER)
    if request.transactional_id is None:
        return InitProducerIdResponse(producer_id=await services.producer_ids.next_id(), producer_epoch=0)
    if not services.transactions.server_version():
        raise services.unserved.refuse(TRANSACTIONS, context)
    expected = None if request.producer_id == -1 else Producer(request.producer_id, request.producer_epoch)
    try:
        producer = await services.transactions.initialize(
            request.transactional_id, timeout_ms=request.transaction_timeout_ms, expected=expected
        )
    except KafkaError as error:
        if error.code is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_FROM:
            raise KafkaError.of(ErrorCode.INVALID_PRODUCER_EPOCH, error.message) from error
        raise
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)
