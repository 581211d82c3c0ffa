"""The table of decisions: one function for each request, and what it gets beside the image and the request.

May touch:  the types of what a decision needs.   Must not touch: any decision, everything that waits.
Invariants: one decision per type of request, of one shape: (image, request, context) -> ControllerResult of the request's reply.
Read next:  controller.py, which asks the table; topics.py for typical decisions; docs/adding-a-verb.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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

Q = TypeVar("Q", bound=Request[Any])

RECORDS_PER_BATCH_MAX = 10_000
"""Most records of one batch, as in Kafka; what is atomic and needs more goes in a transaction."""
RECORDS_PER_REQUEST_MAX = 25_000
"""Most records that one request may lead to. Measured: 29 s of CPU per million partitions, so this many keep the control lane
busy for 0.7 s; a leader that is silent for controller.quorum.fetch.timeout.ms (2 s) is voted out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionContext:
    """What decisions need beside the image and the request; each takes what it needs."""

    config: ControllerConfig
    cluster_id: str
    random: Random
    validators: ConfigValidators
    limits: PartitionLimits
    rules: PartitionRules
    """The effective settings of topics, as in the image."""
    sessions: BrokerSessions
    """Who is alive: the one thing that a decision may change, and only broker_decisions.py does."""
    now_ms: int
    """Of the sessions' clock."""
    wall_ms: int
    """Wall clock when the request was taken up, ms since 1970."""
    next_offset: Offset
    """What the first record of the result will get."""
    transaction_records_max: int
    """Most records of a result that may go in a transaction: as many as metadata.version lets one request make. Other results
    have RECORDS_PER_BATCH_MAX at most."""
    after: Callable[[Sequence[Record]], MetadataImage]
    """The image with these records replayed. Raises UnreplayableDecision."""


Decision = Callable[[MetadataImage, Any, DecisionContext], ControllerResult[Any]]

DECISIONS: dict[type[Request[Any]], Decision] = {}
"""By type of request; whole once controller.py is imported, which imports every file that decides."""


def decides(
    request_type: type[Q],
) -> Callable[
    [Callable[[MetadataImage, Q, DecisionContext], ControllerResult[Any]]],
    Callable[[MetadataImage, Q, DecisionContext], ControllerResult[Any]],
]:
    """Puts a function into the table as the decision of a request."""

    def register(
        decision: Callable[[MetadataImage, Q, DecisionContext], ControllerResult[Any]],
    ) -> Callable[[MetadataImage, Q, DecisionContext], ControllerResult[Any]]:
        assert request_type not in DECISIONS, f"{request_type.__name__} has a decision already"
        DECISIONS[request_type] = decision
        return decision

    return register
