"""Which function decides each request about the cluster as a whole or about security, and what it gets beside the image.

May touch:  the other files of controller/.   Must not touch: sessions, everything that waits.
Invariants: one row per request; a row only hands on.
Read next:  controller.py, which asks this table for what it does not decide itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from barnabas_quorum.controller import acls, controllers, features, quotas, scram, tokens
from barnabas_quorum.controller.config import ControllerConfig
from barnabas_quorum.controller.requests_cluster import RegisterController, UnregisterController, UpdateFeatures
from barnabas_quorum.controller.requests_security import (
    AlterClientQuotas,
    AlterUserScramCredentials,
    CreateAcls,
    CreateDelegationToken,
    DeleteAcls,
    ExpireDelegationToken,
    RenewDelegationToken,
)
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.metadata import MetadataImage


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionContext:
    """What these decisions need beside image and request."""

    config: ControllerConfig
    cluster_id: str
    random: Random
    wall_ms: int
    """Wall clock when the request was taken up, ms since 1970."""
    records_max: int
    """Most records that one request may lead to."""


Decision = Callable[[MetadataImage, Any, DecisionContext], ControllerResult[Any]]

DECISIONS: dict[type, Decision] = {
    UpdateFeatures: lambda image, request, context: features.update_features(
        image, request, min_insync_replicas=context.config.min_insync_replicas
    ),
    RegisterController: lambda image, request, context: controllers.register_controller(
        image, request, cluster_id=context.cluster_id
    ),
    UnregisterController: lambda image, request, context: controllers.unregister_controller(image, request),
    AlterClientQuotas: lambda image, request, context: quotas.alter_client_quotas(
        image, request, records_max=context.records_max
    ),
    CreateAcls: lambda image, request, context: acls.create_acls(
        image, request, random=context.random, records_max=context.records_max
    ),
    DeleteAcls: lambda image, request, context: acls.delete_acls(image, request, records_max=context.records_max),
    AlterUserScramCredentials: lambda image, request, context: scram.alter_scram_credentials(
        image, request, records_max=context.records_max
    ),
    CreateDelegationToken: lambda image, request, context: tokens.create_token(
        image, request, config=context.config, random=context.random, wall_ms=context.wall_ms
    ),
    RenewDelegationToken: lambda image, request, context: tokens.renew_token(
        image, request, config=context.config, wall_ms=context.wall_ms
    ),
    ExpireDelegationToken: lambda image, request, context: tokens.expire_token(
        image, request, config=context.config, wall_ms=context.wall_ms
    ),
}
"""By type of request."""
