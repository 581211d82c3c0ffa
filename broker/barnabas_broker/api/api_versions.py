"""ApiVersions v0-5: what this broker serves, and the finalized features of the cluster.

May touch:  the registry's table, the metadata image.    Must not touch: everything else.
Invariants: the answer is the table itself but for what waits for a feature level or a receiver; the response header is v0 in every
            version (KIP-511).
Read next:  registry.py.

Behaviour: a version above ours is answered with error UNSUPPORTED_VERSION in the v0 layout and the range of ApiVersions
alone, so that the client retries within it (Java, librdkafka). Features with minimum 0 are hidden from v0-3 clients
(KAFKA-17011). Levels of metadata.version are reported as Kafka's (kafka_levels.py). A v5 client names
both the cluster and the node that it means, or neither; another cluster's or node's gets REBOOTSTRAP_REQUIRED and nothing else
(KIP-1242): the address that it has for that node is no longer the node's.
"""

from __future__ import annotations

from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.kafka_levels import to_kafka
from barnabas_broker.api.registry import SERVED, VERSIONS_SERVED, handles
from barnabas_broker.api.services import BrokerServices
from barnabas_quorum.image.features import SUPPORTED_FEATURES, FeaturesImage
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

ANYBODY = (None, -1)
"""Cluster and node of a client that takes whoever answers."""
SOFTWARE_CHARS_MAX = 256
"""Most characters of a client's name, and of its version, that its connection keeps."""
TELEMETRY = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)
MIN_ZERO_VERSION = 4
"""First version whose clients take a feature with minimum 0 (KAFKA-17011)."""


@handles(ApiKey.API_VERSIONS, versions=(0, 5))
def api_versions(services: BrokerServices, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """The table of this broker and the features of the cluster."""
    meant = (request.cluster_id, request.node_id)
    if meant not in (ANYBODY, (services.cluster_id, services.node_id)):
        is_half = request.cluster_id is None or request.node_id < 0
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST if is_half else ErrorCode.REBOOTSTRAP_REQUIRED)
    if request.client_software_name:
        context.software.name = request.client_software_name[:SOFTWARE_CHARS_MAX]
        context.software.version = request.client_software_version[:SOFTWARE_CHARS_MAX]
    image = services.metadata.image
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=lowest, max_version=highest)
            for key, lowest, highest in VERSIONS_SERVED
            if _is_offered(key, image.features, services)
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=to_kafka(name, lowest), max_version=to_kafka(name, highest))
            for name, lowest, highest in SUPPORTED_FEATURES
            if lowest > 0 or context.api_version >= MIN_ZERO_VERSION
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted((name, to_kafka(name, ours)) for name, ours in image.features.levels.items())
        ],
    )


def unsupported_version() -> ApiVersionsResponse:
    """The answer, in v0 layout, to an ApiVersions version that we do not know."""
    key, (lowest, highest) = ApiKey.API_VERSIONS, SERVED["api_versions"][ApiKey.API_VERSIONS]
    ours = ApiVersion(api_key=key, min_version=lowest, max_version=highest)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ours])


def _is_offered(key: int, features: FeaturesImage, services: BrokerServices) -> bool:
    """Our own API is offered once its answer is not UNSUPPORTED_VERSION in any case, telemetry where somebody receives it: Java's
    clients ask for ever once they see it."""
    if key in TELEMETRY:
        return services.telemetry.config.receiver
    return key != ApiKey.PREPARE_TXN or features.has_prepared_transactions
