"""FindCoordinator v0-6, JoinGroup v0-9, SyncGroup v0-5, Heartbeat v0-4, LeaveGroup v0-5, ListGroups v0-5, DescribeGroups v0-6,
DeleteGroups v0-3: the classic consumer group protocol, and groups of every type as a whole.

May touch:  the coordinators, the image (endpoints).    Must not touch: the group's state, logs.
Invariants: every key, member and group of a request is answered once; addresses are of the listener that was asked.
Read next:  barnabas_coordination/group/service.py and classic.py; consumer_groups.py for the other protocol; offsets.py for commits.

Behaviour: versions are ironed out here: v0-3 of FindCoordinator has one key, v0-2 of LeaveGroup one member, JoinGroup v0 no
rebalance time-out (the session time-out serves), a member id is demanded from v4 on (KIP-394), skipping the assignment from v9
on (KIP-814). DescribeGroups shows an unknown group as Dead, from v6 on with GROUP_ID_NOT_FOUND (KIP-1043). Differences from
Kafka: where transactions are off (transaction.version 0) TRANSACTIONAL_ID_AUTHORIZATION_FAILED says so: it is fatal to every client and
carries the text, where librdkafka would retry INVALID_REQUEST until its time-out. A group of the
consumer protocol is listed as such, and unknown to DescribeGroups, as in Kafka.
DeleteGroups counts a group as empty while a new member has only been given its id; a group that is named
twice is answered once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from barnabas_broker.api.answers import error_fields
from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.operations import GROUP_OPERATIONS, OPERATIONS_UNKNOWN
from barnabas_broker.api.registry import PARTITIONS_BYTES_MAX, handles
from barnabas_broker.api.services import BrokerServices
from barnabas_broker.api.unserved import TRANSACTIONS
from barnabas_coordination.errors import CoordinatorNotAvailable, GroupIdNotFound, MemberIdRequired
from barnabas_coordination.group.messages import (
    JoinRequest,
    LeavingMember,
    MemberRef,
    SyncRequest,
)
from barnabas_coordination.group.states import GroupState
from barnabas_quorum.image.rights import CLUSTER, CLUSTER_ACTION, DELETE, DESCRIBE, GROUP, READ, TRANSACTIONAL_ID
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from barnabas_wire.kafka.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from barnabas_wire.kafka.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas_wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from barnabas_wire.kafka.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from barnabas_wire.kafka.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from barnabas_wire.kafka.messages.sync_group import SyncGroupRequest, SyncGroupResponse

GROUP_KEY_TYPE = 0
TRANSACTION_KEY_TYPE = 1
SHARE_KEY_TYPE = 2
SHARE_KEYS_FROM = 6
SYNC_NAMES_PROTOCOL_FROM = 5
JOIN_NULL_PROTOCOL_FROM = 7


# ---- FindCoordinator -------------------------------------------------------------------------------------------------


@handles(ApiKey.FIND_COORDINATOR, versions=(0, 6))
async def find_coordinator(
    services: BrokerServices, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Which broker coordinates a group or a transactional id, and where it listens."""
    if context.api_version >= 4:
        found = [
            await _coordinator(services, context, key, request.key_type)
            for key in dict.fromkeys(request.coordinator_keys)
        ]
        return FindCoordinatorResponse(coordinators=found)
    one = await _coordinator(services, context, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


async def _coordinator(services: BrokerServices, context: RequestContext, key: str, key_type: int) -> Coordinator:
    try:
        if key_type == GROUP_KEY_TYPE:
            context.access.require(DESCRIBE, GROUP, key)
            node_id = await services.groups.find_coordinator(key)
        elif key_type == TRANSACTION_KEY_TYPE:
            context.access.require(DESCRIBE, TRANSACTIONAL_ID, key)
            if not services.transactions.server_version():
                raise services.unserved.refuse(TRANSACTIONS, context)
            node_id = await services.transactions.find_coordinator(key)
        elif key_type == SHARE_KEY_TYPE and context.api_version >= SHARE_KEYS_FROM:
            context.access.require(CLUSTER_ACTION, CLUSTER)
            node_id = await services.share_state.find_coordinator(key)
        else:
            raise KafkaError.of(
                ErrorCode.INVALID_REQUEST,
                f"no coordinators of type {key_type} are found with version {context.api_version}",
            )
        broker = services.metadata.image.cluster.broker(node_id)
        endpoint = context.endpoint_of(broker, node_id=services.node_id)
        if endpoint is None:
            raise CoordinatorNotAvailable(f"broker {node_id} has no listener {context.listener_name}")
    except KafkaError as error:
        return Coordinator(key=key, node_id=-1, host="", port=-1, **error_fields(error))
    return Coordinator(key=key, node_id=node_id, host=endpoint.host, port=endpoint.port)


# ---- membership ------------------------------------------------------------------------------------------------------


@handles(ApiKey.JOIN_GROUP, versions=(0, 9), request_bytes_max=PARTITIONS_BYTES_MAX, ends_with_client=True)
async def join_group(services: BrokerServices, context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    """Wait until everyone has joined, or the time is up."""
    version = context.api_version
    try:
        context.access.require(READ, GROUP, request.group_id)
        outcome = await services.groups.join_group(
            JoinRequest(
                group_id=request.group_id,
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                client_id=context.client_id,
                client_host=f"/{context.client_host}",  # as Java prints an address: tools cut the slash off
                session_timeout_ms=request.session_timeout_ms,
                rebalance_timeout_ms=request.session_timeout_ms if version == 0 else request.rebalance_timeout_ms,
                protocol_type=request.protocol_type,
                protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
                requires_member_id=version >= 4,
                supports_skipping_assignment=version >= 9,
            )
        )
    except KafkaError as error:
        if isinstance(error, MemberIdRequired):
            let_go = partial(services.groups.forget_pending_member, request.group_id, error.member_id)
            context.hold(f"member id of group {request.group_id}", let_go)
        return JoinGroupResponse(
            error_code=error.code,
            member_id=error.member_id if isinstance(error, MemberIdRequired) else request.member_id,
            protocol_name=None if version >= JOIN_NULL_PROTOCOL_FROM else "",
        )
    return JoinGroupResponse(
        generation_id=outcome.generation,
        protocol_type=outcome.protocol_type,
        protocol_name=outcome.protocol_name or "",
        leader=outcome.leader_id,
        skip_assignment=outcome.skip_assignment,
        member_id=outcome.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in outcome.members
        ],
    )


@handles(ApiKey.SYNC_GROUP, versions=(0, 5), request_bytes_max=PARTITIONS_BYTES_MAX, ends_with_client=True)
async def sync_group(services: BrokerServices, context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    """Wait for the leader's assignment; the leader brings it."""
    context.access.require(READ, GROUP, request.group_id)
    if context.api_version >= SYNC_NAMES_PROTOCOL_FROM and None in (request.protocol_type, request.protocol_name):
        raise KafkaError.of(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "a sync names the protocol it is about")
    outcome = await services.groups.sync_group(
        SyncRequest(
            member=MemberRef(
                group_id=request.group_id,
                member_id=request.member_id,
                generation=request.generation_id,
                instance_id=request.group_instance_id,
            ),
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments=tuple((given.member_id, bytes(given.assignment)) for given in request.assignments),
        )
    )
    return SyncGroupResponse(
        protocol_type=outcome.protocol_type, protocol_name=outcome.protocol_name, assignment=outcome.assignment
    )


@handles(ApiKey.HEARTBEAT, versions=(0, 4))
async def heartbeat(services: BrokerServices, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """A member is alive."""
    context.access.require(READ, GROUP, request.group_id)
    await services.groups.heartbeat(
        MemberRef(
            group_id=request.group_id,
            member_id=request.member_id,
            generation=request.generation_id,
            instance_id=request.group_instance_id,
        )
    )
    return HeartbeatResponse()


@handles(ApiKey.LEAVE_GROUP, versions=(0, 5))
async def leave_group(
    services: BrokerServices, context: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse:
    """Members go: one before v3, several since."""
    context.access.require(READ, GROUP, request.group_id)
    if context.api_version < 3:
        (outcome,) = await services.groups.leave_group(request.group_id, [LeavingMember(request.member_id, None)])
        return LeaveGroupResponse(error_code=outcome.error)
    leaving = [LeavingMember(member.member_id, member.group_instance_id) for member in request.members]
    outcomes = await services.groups.leave_group(request.group_id, leaving)
    return LeaveGroupResponse(
        members=[
            MemberResponse(member_id=outcome.member_id, group_instance_id=outcome.instance_id, error_code=outcome.error)
            for outcome in outcomes
        ]
    )


# ---- groups as a whole -----------------------------------------------------------------------------------------------


@handles(ApiKey.LIST_GROUPS, versions=(0, 5))
def list_groups(services: BrokerServices, context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    """Groups that this broker coordinates; admin clients ask every broker."""
    access = context.access
    sees_all = access.may(DESCRIBE, CLUSTER, is_noted=False)
    states = {state.lower().replace("_", "") for state in request.states_filter}  # Kafka's tools ask for not_ready
    types = {group_type.lower() for group_type in request.types_filter}
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type,
            )
            for group in services.groups.list_groups()
            if (not states or group.state.lower() in states)
            and (not types or group.group_type in types)
            and (sees_all or access.may(DESCRIBE, GROUP, group.group_id, is_noted=False))
        ]
    )


@handles(ApiKey.DESCRIBE_GROUPS, versions=(0, 6))
def describe_groups(
    services: BrokerServices, context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """State and members of each group."""
    described = [_described(services, context, group_id) for group_id in dict.fromkeys(request.groups)]
    if request.include_authorized_operations:
        for group in described:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = context.access.operations(GROUP_OPERATIONS, GROUP, group.group_id)
    return DescribeGroupsResponse(groups=described)


def _described(services: BrokerServices, context: RequestContext, group_id: str) -> DescribedGroup:
    try:
        context.access.require(DESCRIBE, GROUP, group_id)
        group = services.groups.describe_group(group_id)
    except GroupIdNotFound as error:
        is_told = context.api_version >= 6
        return DescribedGroup(
            group_id=group_id,
            group_state=GroupState.DEAD.value,
            error_code=error.code if is_told else ErrorCode.NONE,
            error_message=error.message if is_told else None,
            authorized_operations=OPERATIONS_UNKNOWN,
        )
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, **error_fields(error))
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
    )


@handles(ApiKey.DELETE_GROUPS, versions=(0, 3))
async def delete_groups(
    services: BrokerServices, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    """Forget groups without members, with their offsets."""
    delete: Callable[[str], Awaitable[None]] = services.groups.delete_group
    results = []
    gone = []
    for group_id in dict.fromkeys(request.groups_names):
        try:
            context.access.require(DELETE, GROUP, group_id)
            await delete(group_id)
        except KafkaError as error:
            results.append(DeletableGroupResult(group_id=group_id, **error_fields(error)))
        else:
            gone.append({"group": group_id})
            results.append(DeletableGroupResult(group_id=group_id))
    services.audit.deleted(context.principal, context.client_host, request="DeleteGroups", changes=gone)
    return DeleteGroupsResponse(results=results)
