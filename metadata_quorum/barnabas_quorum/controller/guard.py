"""Whether the caller of a forwarded request may have what it asks: checked again where it is carried out.

May touch:  image/authorizer.py, image/rights.py, the requests.   Must not touch: asyncio, gRPC, what a decision means.
Invariants: what a node asks for itself is not checked here: the listener lets in nodes only (Door.PEER); a request that somebody else asked
            for is refused as a whole if one thing in it is refused, for the node that forwarded it has sorted those out already.
Read next:  driver/controller_driver.py, which asks before it decides; driver/membership.py, before it changes the voters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from barnabas_quorum.controller.request import Request
from barnabas_quorum.controller.requests import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
)
from barnabas_quorum.controller.requests_security import CreateDelegationToken
from barnabas_quorum.image.authorizer import CLUSTER_NAME, Authorizer, Verdict
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.rights import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CREATE,
    CREATE_TOKENS,
    DELETE,
    GROUP,
    RPC_RIGHTS,
    TOPIC,
    USER,
    Right,
    refusal,
)
from barnabas_quorum.raft.messages import VoterChange
from barnabas_quorum.records import ConfigResourceType
from barnabas_quorum.records_security import AclResourceType
from barnabas_wire.kafka.ids import NODE_PRINCIPAL

Asked = tuple[tuple[Right, str], ...]
"""Rights with the names of resources, of which any will do."""
OnVerdict = Callable[[str, str, Right, str, Verdict], None]
"""(principal, host, right, name of the resource, verdict): for the audit log."""

_CONFIG_RESOURCES: dict[ConfigResourceType, AclResourceType] = {
    ConfigResourceType.TOPIC: TOPIC,
    ConfigResourceType.BROKER: CLUSTER,
    ConfigResourceType.CLIENT_METRICS: CLUSTER,
    ConfigResourceType.GROUP: GROUP,
}


class RequestGuard:
    """What one controller admits. Belongs to the control lane."""

    def __init__(self, authorizer: Authorizer, *, on_verdict: OnVerdict | None = None) -> None:
        self._authorizer = authorizer
        self._on_verdict = on_verdict

    def check(self, image: MetadataImage, request: Request[Any], *, principal: str, host: str) -> None:
        """Raises the KafkaError that refuses it. `image` has the ACLs."""
        if request.is_nodes_own or principal == NODE_PRINCIPAL:
            return
        self._authorizer.follow(image.acls.entries)
        for asked in _asked(image, request):
            self._check(principal, host, asked)

    def check_voters(self, image: MetadataImage, change: VoterChange, *, principal: str, host: str) -> None:
        """The same for a change of the quorum's voters, which its leader carries out and no controller decides."""
        if change.is_replicas_own:
            return
        right = RPC_RIGHTS["Quorum/ChangeVoters"].cluster_right
        assert right is not None, "the table says what an operator needs"
        self._authorizer.follow(image.acls.entries)
        self._check(principal, host, ((right, CLUSTER_NAME),))

    def _check(self, principal: str, host: str, asked: Asked) -> None:
        verdicts = []
        for right, name in asked:
            verdict = self._authorizer.authorize(principal, host, right.operation, right.resource_type, name)
            if verdict.is_allowed:
                return
            verdicts.append(verdict)
        right, name = asked[-1]
        if self._on_verdict is not None:
            self._on_verdict(principal, host, right, name, verdicts[-1])
        raise refusal(principal, right, name)


def _asked(image: MetadataImage, request: Request[Any]) -> Iterator[Asked]:
    row = RPC_RIGHTS[f"Controller/{type(request).__name__}"]
    if row.cluster_right is not None:
        yield ((row.cluster_right, CLUSTER_NAME),)
    if isinstance(request, CreateTopics):
        for topic in request.topics:
            yield ((Right(CREATE, CLUSTER), CLUSTER_NAME), (Right(CREATE, TOPIC), topic.name))
    elif isinstance(request, DeleteTopics):
        for reference in request.topics:
            name = reference.name
            if name is None:
                known = image.topics.get_by_id(reference.topic_id)
                if known is None:
                    continue  # nothing to delete, and the answer says so
                name = known.name
            yield ((Right(DELETE, TOPIC), name),)
    elif isinstance(request, CreatePartitions):
        for growth in request.topics:
            yield ((Right(ALTER, TOPIC), growth.name),)
    elif isinstance(request, IncrementalAlterConfigs):
        for resource in request.resources:
            kind = _CONFIG_RESOURCES[resource.resource_type]
            yield ((Right(ALTER_CONFIGS, kind), CLUSTER_NAME if kind is CLUSTER else resource.resource_name),)
    elif isinstance(request, CreateDelegationToken) and request.owner != request.requester:
        yield ((Right(CREATE_TOKENS, USER), request.owner),)
