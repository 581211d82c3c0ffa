"""AddRaftVoter v0-1, RemoveRaftVoter v0 and UnregisterController v0: the metadata quorum's voters (KIP-853).

May touch:  the verb that brings a change to the quorum's leader, the controller client.    Must not touch: the rules (raft/membership.py).
Invariants: a change is answered when it is committed; a refusal is in the leader's words.
Read next:  ../admin/voters.py, the same for the gRPC admin service.

Differences from Kafka: AckWhenCommitted=false waits for the commit all the same. Of several endpoints the first is taken:
controllers have one listener, and gRPC is spoken there. UpdateRaftVoter (82) is how controllers inform their leader of
themselves; Kafka serves it on controller listeners alone, and here it is gRPC.
"""

from __future__ import annotations

from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.registry import handles
from barnabas_broker.api.services import BrokerServices
from barnabas_broker.api.topics import within
from barnabas_quorum.controller.requests_cluster import UnregisterController
from barnabas_quorum.raft.messages import VoterChange, VoterChangeKind
from barnabas_quorum.raft.voters import ReplicaKey, Voter
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import ZERO_UUID, BrokerId, Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from barnabas_wire.kafka.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from barnabas_wire.kafka.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)


@handles(ApiKey.ADD_RAFT_VOTER, versions=(0, 1))
async def add_raft_voter(
    services: BrokerServices, context: RequestContext, request: AddRaftVoterRequest
) -> AddRaftVoterResponse:
    """Let a controller vote that runs and has caught up."""
    _check_cluster(services, request.cluster_id)
    if not request.listeners:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, "a new voter needs the address of its controller listener")
    if request.voter_directory_id == ZERO_UUID:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, "a new voter needs the id of its metadata directory")
    endpoint = request.listeners[0]
    voter = Voter(_key(request.voter_id, request.voter_directory_id), endpoint.host, endpoint.port)
    await within(_change(services, context, VoterChangeKind.ADD, voter), request.timeout_ms)
    return AddRaftVoterResponse()


@handles(ApiKey.REMOVE_RAFT_VOTER, versions=(0, 0))
async def remove_raft_voter(
    services: BrokerServices, context: RequestContext, request: RemoveRaftVoterRequest
) -> RemoveRaftVoterResponse:
    """Take a controller's vote."""
    _check_cluster(services, request.cluster_id)
    voter = Voter(_key(request.voter_id, request.voter_directory_id), "", 0)
    await _change(services, context, VoterChangeKind.REMOVE, voter)
    return RemoveRaftVoterResponse()


@handles(ApiKey.UNREGISTER_CONTROLLER, versions=(0, 0))
async def unregister_controller(
    services: BrokerServices, context: RequestContext, request: UnregisterControllerRequest
) -> UnregisterControllerResponse:
    """Forget a controller that is gone for good."""
    wanted = UnregisterController(controller_id=BrokerId(request.controller_id))
    await services.ask(context, wanted)
    return UnregisterControllerResponse()


async def _change(services: BrokerServices, context: RequestContext, kind: VoterChangeKind, voter: Voter) -> None:
    """Change a voter on the client's behalf: the leader checks its right again."""
    change = VoterChange(kind, voter, 0)
    await services.change_voters(change, principal=context.principal, client_host=context.client_host)


def _check_cluster(services: BrokerServices, cluster_id: str | None) -> None:
    if cluster_id not in (None, services.cluster_id):
        raise KafkaError.of(
            ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {services.cluster_id}, the request is for {cluster_id}"
        )


def _key(voter_id: int, directory_id: Uuid) -> ReplicaKey:
    if voter_id < 0:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"{voter_id} is no node id")
    return ReplicaKey(BrokerId(voter_id), directory_id)
