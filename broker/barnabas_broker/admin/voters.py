"""The admin service's verbs on the quorum's voters.

May touch:  this node's quorum member.    Must not touch: grpc, the log, the rules (raft/membership.py has them).
Invariants: a refusal is in the leader's words, which name the rule and the way out.
Read next:  service.py, which serves these; controller_client/quorum_view.py.
"""

from __future__ import annotations

from barnabas_broker.admin.edge import current_caller
from barnabas_broker.controller_client.quorum_health import is_silent
from barnabas_broker.controller_client.quorum_view import LeaderView
from barnabas_quorum.driver.quorum_description import QuorumDescription
from barnabas_quorum.raft.messages import VoterChange, VoterChangeKind
from barnabas_quorum.raft.voters import ReplicaKey, Voter
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Uuid
from barnabas_wire.rpc import admin_pb2

PORT_MAX = 65535


async def change_voters(view: LeaderView, request: admin_pb2.ChangeVotersRequest) -> admin_pb2.ChangeVotersResponse:
    """Add or remove one voter; ends when it is committed. Raises the KafkaError it is refused with."""
    is_added = request.kind == admin_pb2.ChangeVotersRequest.ADD
    if is_added and not (request.host and 0 < request.port <= PORT_MAX):
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, "a new voter needs the host and port of its controller listener")
    node_id = BrokerId(request.id)
    directory_id = _directory(await view.describe(), request, node_id, is_added=is_added, now_ms=view.now_ms())
    voter = Voter(ReplicaKey(node_id, directory_id), request.host, request.port)
    change = VoterChange(VoterChangeKind.ADD if is_added else VoterChangeKind.REMOVE, voter, 0)
    await make_callers_change(view, change)
    return admin_pb2.ChangeVotersResponse(id=node_id, directory_id=str(directory_id))


async def make_callers_change(view: LeaderView, change: VoterChange) -> None:
    """The change that is asked for by whoever made the admin call that runs."""
    whose = current_caller()
    await view.change_voters(change, principal=whose.principal, client_host=whose.host)


def _directory(
    quorum: QuorumDescription, request: admin_pb2.ChangeVotersRequest, node_id: BrokerId, *, is_added: bool, now_ms: int
) -> Uuid:
    """The directory id that is named, or the one that the quorum knows of this node; of a node that came back with a new disk,
    the one it fetches with now."""
    if request.directory_id:
        try:
            return Uuid.parse(request.directory_id)
        except ValueError as error:
            raise KafkaError.of(
                ErrorCode.INVALID_REQUEST, f"{request.directory_id} is not a directory id ({error})"
            ) from None
    voting = [replica.key for replica in quorum.voters if replica.key.id == node_id]
    observers = [replica for replica in quorum.observers if replica.key.id == node_id]
    present = [replica for replica in observers if not is_silent(replica, now_ms=now_ms)]
    fetching = [replica.key for replica in present or observers]
    # the leader refuses one that votes already
    known = (fetching or voting) if is_added else voting
    if len(known) == 1:
        return known[0].directory_id
    if not known and not is_added:
        raise KafkaError.of(
            ErrorCode.VOTER_NOT_FOUND, f"node {node_id} is no voter; `barnabas quorum replicas` lists them"
        )
    if not known:
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST,
            f"the quorum's leader has not heard from node {node_id}: format it with --no-initial-controllers and start it, "
            "then it is listed as an observer by `barnabas quorum replicas`",
        )
    raise KafkaError.of(
        ErrorCode.INVALID_REQUEST,
        f"node {node_id} fetches with {len(known)} directories ({', '.join(str(key.directory_id) for key in known)}): "
        "name the one that is meant, ID@HOST:PORT:DIRECTORY_ID",
    )
