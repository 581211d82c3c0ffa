"""DescribeClientQuotas v0-1, AlterClientQuotas v0-1 (KIP-546).

May touch:  the image's quotas, the controller client.    Must not touch: throttling.
Invariants: every entity of a request is answered once; changes are decided by the controller.
Read next:  metadata_quorum/image/quotas.py, which says what a filter means.

Behaviour: reads are answered from this broker's image. ../network/client_quotas.py enforces them.
"""

from __future__ import annotations

from barnabas_broker.api.answers import error_fields
from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.registry import handles
from barnabas_broker.api.services import BrokerServices
from barnabas_quorum.controller.requests_security import AlterClientQuotas, QuotaAlteration
from barnabas_quorum.image.quotas import QuotaFilterPart, QuotaMatch
from barnabas_quorum.records_security import QuotaEntity, QuotaEntityPart
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages import alter_client_quotas as alter_messages
from barnabas_wire.kafka.messages import describe_client_quotas as describe_messages
from barnabas_wire.kafka.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from barnabas_wire.kafka.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

ENTITY_TYPES = ("user", "client-id", "ip")


@handles(
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    versions=(0, 1),
    on_error=lambda request, error: DescribeClientQuotasResponse(**error_fields(error), entries=None),
)
def describe_quotas(
    services: BrokerServices, context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """The quotas of the entities that the filter means; no filter means all."""
    parts = [_filter_part(component) for component in request.components]
    types = [part.type for part in parts]
    if len(set(types)) != len(types):
        raise _invalid(f"a type occurs twice among {types}; once will do")
    if "ip" in types and len(types) > 1:
        raise _invalid("quotas of ips stand alone: ask for ip, or for user and client-id")
    found = services.metadata.image.quotas.find(parts, is_strict=request.strict)
    return DescribeClientQuotasResponse(
        entries=[
            describe_messages.EntryData(
                entity=[describe_messages.EntityData(entity_type=part.type, entity_name=part.name) for part in entity],
                values=[describe_messages.ValueData(key=key, value=values[key]) for key in sorted(values)],
            )
            for entity, values in found
        ]
    )


@handles(
    ApiKey.ALTER_CLIENT_QUOTAS,
    versions=(0, 1),
    on_error=lambda request, error: AlterClientQuotasResponse(
        entries=[_altered(entry.entity, error) for entry in request.entries]
    ),
)
async def alter_quotas(
    services: BrokerServices, context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Set and remove quotas; each entity succeeds or fails as a whole."""
    alterations = tuple(
        QuotaAlteration(
            entity=_entity(entry.entity),
            changes=tuple((op.key, None if op.remove else op.value) for op in entry.ops),
        )
        for entry in request.entries
    )
    reply = await services.ask(context, AlterClientQuotas(alterations=alterations, validate_only=request.validate_only))
    return AlterClientQuotasResponse(
        entries=[_altered(entry.entity, error) for entry, error in zip(request.entries, reply.errors, strict=True)]
    )


def _entity(parts: list[alter_messages.EntityData]) -> QuotaEntity:
    return tuple(
        QuotaEntityPart(part.entity_type, part.entity_name) for part in sorted(parts, key=lambda part: part.entity_type)
    )


def _altered(entity: list[alter_messages.EntityData], error: KafkaError | None) -> alter_messages.AlteredEntryData:
    return alter_messages.AlteredEntryData(**error_fields(error), entity=entity)


def _filter_part(component: describe_messages.ComponentData) -> QuotaFilterPart:
    if component.entity_type not in ENTITY_TYPES:
        raise KafkaError.of(
            ErrorCode.UNSUPPORTED_VERSION,
            f"no quotas are for {component.entity_type!r}; known are {', '.join(ENTITY_TYPES)}",
        )
    try:
        match = QuotaMatch(component.match_type)
    except ValueError:
        raise _invalid(f"match type {component.match_type} is unknown") from None
    if match is QuotaMatch.EXACT and component.match is None:
        raise _invalid(f"{component.entity_type}: an exact match needs a name")
    if match is not QuotaMatch.EXACT and component.match is not None:
        raise _invalid(f"{component.entity_type}: only an exact match has a name")
    return QuotaFilterPart(type=component.entity_type, match=match, name=component.match)


def _invalid(message: str) -> KafkaError:
    return KafkaError.of(ErrorCode.INVALID_REQUEST, message)
