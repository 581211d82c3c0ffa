"""Requests about the cluster as a whole: feature levels, and the registration of controllers.

May touch:  records, barnabas_wire.kafka.   Must not touch: everything else.
Invariants: those of requests.py.
Read next:  features.py, controllers.py, which decide them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from barnabas_quorum.controller.request import Request
from barnabas_quorum.records import FeatureRange
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Uuid
from barnabas_wire.lazy_dataclass import dataclass


class FeatureUpgrade(IntEnum):
    """The kind of change that the caller intends; Kafka's numbers (KIP-584)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureUpdate:
    """The new level of one feature; 0 = not finalized."""

    name: str
    level: int
    kind: FeatureUpgrade = FeatureUpgrade.UPGRADE


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFeatures(Request["UpdateFeaturesReply"]):
    """Set feature levels, all or none."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureUpdateResult:
    """One feature of the reply."""

    name: str
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFeaturesReply:
    """In the order of the request; a single error means that nothing changed."""

    results: tuple[FeatureUpdateResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterController(Request["RegisterControllerReply"]):
    """A controller process registers its address and supported features at its start (KIP-919)."""

    is_nodes_own: ClassVar[bool] = True
    controller_id: BrokerId
    cluster_id: str
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterControllerReply:
    """The registration is committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterController(Request["UnregisterControllerReply"]):
    """Forget a controller that is gone for good. A running one registers itself again."""

    controller_id: BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterControllerReply:
    """It is forgotten."""
