"""UpdateFeatures v0-2 (KIP-584): raise and lower finalized feature levels.

May touch:  the controller client, the quorum's leader.    Must not touch: levels; the controller decides.
Invariants: one refusal means that nothing changed, and the answer says so at its top.
Read next:  metadata_quorum/controller/features.py.
"""

from __future__ import annotations

from barnabas_broker.api.answers import error_fields
from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.kafka_levels import from_kafka
from barnabas_broker.api.registry import handles
from barnabas_broker.api.services import BrokerServices
from barnabas_broker.api.topics import within
from barnabas_broker.controller_client.feature_updates import carry_out
from barnabas_quorum.controller.requests_cluster import (
    FeatureUpdate,
    FeatureUpgrade,
    UpdateFeatures,
)
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


@handles(ApiKey.UPDATE_FEATURES, versions=(0, 2))
async def update_features(
    services: BrokerServices, context: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """Set levels, all or none, or only say whether it could be."""
    updates = tuple(_update(update, context.api_version) for update in request.feature_updates)
    call = carry_out(
        UpdateFeatures(updates=updates, validate_only=request.validate_only),
        ask=lambda wanted: services.ask(context, wanted),
        change_voters=lambda change: services.change_voters(
            change, principal=context.principal, client_host=context.client_host
        ),
    )
    reply = await within(call, request.timeout_ms)
    first = next((result.error for result in reply.results if result.error is not None), None)
    if context.api_version >= 2:
        return UpdateFeaturesResponse(**error_fields(first))
    return UpdateFeaturesResponse(
        results=[
            UpdatableFeatureResult(
                feature=result.name,
                error_code=_code(result.error, first),
                error_message=None if result.error is None else result.error.message or None,
            )
            for result in reply.results
        ]
    )


def _code(error: KafkaError | None, first: KafkaError | None) -> int:
    """Updates that are right in themselves are not made either when another is refused."""
    if error is not None:
        return error.code
    return 0 if first is None else ErrorCode.FEATURE_UPDATE_FAILED


def _update(update: FeatureUpdateKey, version: int) -> FeatureUpdate:
    kind = update.upgrade_type
    if version == 0:
        kind = FeatureUpgrade.SAFE_DOWNGRADE if update.allow_downgrade else FeatureUpgrade.UPGRADE
    try:
        return FeatureUpdate(
            name=update.feature, level=from_kafka(update.feature, update.max_version_level), kind=FeatureUpgrade(kind)
        )
    except ValueError:
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST, f"{update.feature}: upgrade type {kind} is unknown; 1 is an upgrade"
        ) from None
