"""The table of decisions: one function for each request, and the context it gets beside the image and the request.

May touch:  the types of what a decision needs.   Must not touch: any decision, everything that waits.
Invariants: one decision per type of request, all of one shape: (image, request, context) -> ControllerResult of its reply.
Read next:  controller.py, which uses the table; topics.py for typical decisions; docs/adding-a-verb.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

from barnabas_quorum.controller.config import ControllerConfig
from barnabas_quorum.controller.configs import ConfigValidators
from barnabas_quorum.controller.limits import PartitionLimits
from barnabas_quorum.controller.partition_rules import PartitionRules
from barnabas_quorum.controller.request import Request
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.controller.sessions import BrokerSessions
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.records import Record
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.lazy_dataclass import dataclass

Q = TypeVar("Q", bound=Request[Any])

RECORDS_PER_BATCH_MAX = 10_000
"""Most records of one batch, as in Kafka; an atomic result with more goes in a transaction."""
RECORDS_PER_REQUEST_MAX = 25_000
"""Most records that one request may cause. Measured: 29 s of CPU per million partitions, so this many keep the control lane
busy for 0.7 s; the voters replace a leader that is silent for controller.quorum.fetch.timeout.ms (2 s)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionContext:
    """What decisions need beside the image and the request; each uses what it needs."""

    config: ControllerConfig
    cluster_id: str
    random: Random
    validators: ConfigValidators
    limits: PartitionLimits
    rules: PartitionRules
    """The effective settings of topics, as in the image."""
    sessions: BrokerSessions
    """Who is alive: the only state that a decision may change, and only broker_decisions.py does."""
    now_ms: int
    """Time of the sessions' clock."""
    wall_ms: int
    """Wall clock when the decision began, ms since 1970."""
    next_offset: Offset
    """The offset of the first record of the result."""
    transaction_records_max: int
    """Most records of a result that may go in a transaction, as metadata.version allows. Other results have at most
    RECORDS_PER_BATCH_MAX."""
    after: Callable[[Sequence[Record]], MetadataImage]
    """The image with these records replayed. Raises UnreplayableDecision."""


Decision = Callable[[MetadataImage, Any, DecisionContext], ControllerResult[Any]]

DECISIONS: dict[type[Request[Any]], Decision] = {}
"""By type of request; complete once controller.py is imported, which imports every module with decisions."""


def decides(
    request_type: type[Q],
) -> Callable[
    [Callable[[MetadataImage, Q, DecisionContext], ControllerResult[Any]]],
    Callable[[MetadataImage, Q, DecisionContext], ControllerResult[Any]],
]:
    """Register a function as the decision of a request."""

    def register(
        decision: Callable[[MetadataImage, Q, DecisionContext], ControllerResult[Any]],
    ) -> Callable[[MetadataImage, Q, DecisionContext], ControllerResult[Any]]:
        assert request_type not in DECISIONS, f"{request_type.__name__} has a decision already"
        DECISIONS[request_type] = decision
        return decision

    return register
