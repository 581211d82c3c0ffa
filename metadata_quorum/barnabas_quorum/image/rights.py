"""What a caller must be allowed for each Kafka API and each gRPC method: the one table, of which the checks, the page of the docs and the
matrix test are made.

May touch:  ACL operations and resource types, API keys.   Must not touch: principals, requests, who checks.
Invariants: whatever a node serves has a row, or the node does not start; a row says everything that is checked for it, and nothing that is
            not.
Read next:  authorizer.py (the rules); controller/guard.py and the broker room's security/access.py (who checks).

The rows are Kafka's (AclAuthorizer's matrix in its documentation, and KafkaApis). A row's needs hold together; within one need any of the
alternatives will do. The right on the cluster is checked before the handler sees the request; the others are checked by the handler for
each thing that a request names, so that one thing that is refused takes nothing from the rest of the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from barnabas_quorum.records_security import AclOperation, AclResourceType
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages import ApiKey

TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
TRANSACTIONAL_ID, TOKEN, USER = (
    AclResourceType.TRANSACTIONAL_ID,
    AclResourceType.DELEGATION_TOKEN,
    AclResourceType.USER,
)
READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
ALTER, DESCRIBE, CLUSTER_ACTION = AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
TWO_PHASE_COMMIT = AclOperation.TWO_PHASE_COMMIT
IDEMPOTENT_WRITE = AclOperation.IDEMPOTENT_WRITE
CREATE_TOKENS, DESCRIBE_TOKENS = AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS

REFUSALS: Mapping[AclResourceType, ErrorCode] = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The error code for a client that may not touch a resource of the type."""


class Right(NamedTuple):
    """To do something to a resource of a type."""

    operation: AclOperation
    resource_type: AclResourceType

    def __str__(self) -> str:
        return f"{self.operation.name} {self.resource_type.name}"


Need = tuple[Right, ...]
"""Any of these will do."""


class Audience(Enum):
    """Who gets as far as the check."""

    CALLER = "who has logged in, or anybody where the listener asks for no login"
    ANYBODY = "anybody, before a login too"
    PEER = "a node of this cluster, over its controller listener"


class Row(NamedTuple):
    """One API or method."""

    needs: tuple[Need, ...] = ()
    cluster_right: Right | None = None
    """About the cluster as a whole, checked before anything else."""
    audience: Audience = Audience.CALLER
    note: str = ""
    """What the needs do not say: who is exempt, what is only hidden."""

    @property
    def rights(self) -> frozenset[Right]:
        """Every right that some check of this row asks for."""
        cluster = () if self.cluster_right is None else (self.cluster_right,)
        return frozenset((*cluster, *(right for need in self.needs for right in need)))


def _need(*rights: tuple[AclOperation, AclResourceType]) -> Need:
    return tuple(Right(*right) for right in rights)


def _on_cluster(operation: AclOperation, note: str = "") -> Row:
    return Row(cluster_right=Right(operation, CLUSTER), note=note)


def _each(operation: AclOperation, resource_type: AclResourceType, note: str = "") -> Row:
    return Row(needs=(_need((operation, resource_type)),), note=note)


OPEN = Row(audience=Audience.ANYBODY)
OF_PEERS = Row(audience=Audience.PEER)
_READ_GROUP = _need((READ, GROUP))
_READ_TOPIC = _need((READ, TOPIC))
_WRITE_ID = _need((WRITE, TRANSACTIONAL_ID))
_CONFIGS_NOTE = (
    "a topic's by its name, a group's by its id, a broker's, its loggers' and those of client metrics by the cluster"
)

KAFKA_RIGHTS: Mapping[ApiKey, Row] = {
    ApiKey.PRODUCE: Row(
        needs=(_need((WRITE, TOPIC)), _WRITE_ID), note="the transactional id if the request or a batch is transactional"
    ),
    ApiKey.FETCH: Row(needs=(_need((READ, TOPIC), (CLUSTER_ACTION, CLUSTER)),), note="a follower needs the second"),
    ApiKey.LIST_OFFSETS: _each(DESCRIBE, TOPIC),
    ApiKey.METADATA: Row(
        needs=(_need((DESCRIBE, TOPIC)), _need((CREATE, TOPIC), (CREATE, CLUSTER)), _need((DESCRIBE, CLUSTER))),
        note="CREATE where the request makes a topic; DESCRIBE CLUSTER for the cluster's authorized operations; who asks for all topics "
        "gets those that the principal may describe",
    ),
    ApiKey.OFFSET_COMMIT: Row(needs=(_READ_GROUP, _READ_TOPIC)),
    ApiKey.OFFSET_FETCH: Row(
        needs=(_need((DESCRIBE, GROUP)), _need((DESCRIBE, TOPIC))),
        note="a request for all topics gets those that the principal may describe",
    ),
    ApiKey.FIND_COORDINATOR: Row(
        needs=(_need((DESCRIBE, GROUP), (DESCRIBE, TRANSACTIONAL_ID), (CLUSTER_ACTION, CLUSTER)),),
        note="by what is looked for; the last of a share partition's coordinator, which brokers look for",
    ),
    ApiKey.JOIN_GROUP: _each(READ, GROUP),
    ApiKey.HEARTBEAT: _each(READ, GROUP),
    ApiKey.LEAVE_GROUP: _each(READ, GROUP),
    ApiKey.SYNC_GROUP: _each(READ, GROUP),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Row(
        needs=(_READ_GROUP, _need((DESCRIBE, TOPIC))),
        note="every topic that is named, or the heartbeat is refused; what a regular expression matches is left out without the second",
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Row(
        needs=(_need((DESCRIBE, GROUP)), _need((DESCRIBE, TOPIC))),
        note="every topic that a member has or is to have, or the group is refused",
    ),
    ApiKey.STREAMS_GROUP_HEARTBEAT: Row(
        needs=(_READ_GROUP, _need((DESCRIBE, TOPIC)), _need((CREATE, CLUSTER), (CREATE, TOPIC))),
        note="every topic that the topology names, or the heartbeat is refused; without the third, internal topics are not made, which the "
        "answer says in a status",
    ),
    ApiKey.STREAMS_GROUP_DESCRIBE: Row(
        needs=(_need((DESCRIBE, GROUP)), _need((DESCRIBE, TOPIC))),
        note="every topic of the group's topology, or the group is refused",
    ),
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: _each(READ, GROUP),
    ApiKey.SHARE_GROUP_HEARTBEAT: Row(
        needs=(_READ_GROUP, _need((DESCRIBE, TOPIC))), note="every topic that is named, or the heartbeat is refused"
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: Row(
        needs=(_need((DESCRIBE, GROUP)), _need((DESCRIBE, TOPIC))),
        note="every topic that a member has, or the group is refused",
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Row(
        needs=(_need((DESCRIBE, GROUP)), _need((DESCRIBE, TOPIC))),
        note="a request for all topics gets those that the principal may describe",
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Row(needs=(_READ_GROUP, _READ_TOPIC)),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Row(needs=(_need((DELETE, GROUP)), _READ_TOPIC)),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _each(CLUSTER_ACTION, CLUSTER),
    ApiKey.READ_SHARE_GROUP_STATE: _each(CLUSTER_ACTION, CLUSTER),
    ApiKey.WRITE_SHARE_GROUP_STATE: _each(CLUSTER_ACTION, CLUSTER),
    ApiKey.DELETE_SHARE_GROUP_STATE: _each(CLUSTER_ACTION, CLUSTER),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _each(CLUSTER_ACTION, CLUSTER),
    ApiKey.SHARE_FETCH: Row(needs=(_READ_GROUP, _READ_TOPIC)),
    ApiKey.SHARE_ACKNOWLEDGE: Row(needs=(_READ_GROUP, _READ_TOPIC)),
    ApiKey.DESCRIBE_GROUPS: _each(DESCRIBE, GROUP),
    ApiKey.LIST_GROUPS: Row(
        needs=(_need((DESCRIBE, CLUSTER), (DESCRIBE, GROUP)),),
        note="without the first, only groups that the principal may describe are listed",
    ),
    ApiKey.DELETE_GROUPS: _each(DELETE, GROUP),
    ApiKey.OFFSET_DELETE: Row(needs=(_need((DELETE, GROUP)), _READ_TOPIC)),
    ApiKey.API_VERSIONS: OPEN,
    ApiKey.SASL_HANDSHAKE: OPEN,
    ApiKey.SASL_AUTHENTICATE: OPEN,
    ApiKey.CREATE_TOPICS: Row(
        needs=(_need((CREATE, CLUSTER), (CREATE, TOPIC)), _need((DESCRIBE_CONFIGS, TOPIC))),
        note="without the second, the answer leaves out the new topic's size and configs",
    ),
    ApiKey.DELETE_TOPICS: Row(
        needs=(_need((DELETE, TOPIC)), _need((DESCRIBE, TOPIC))),
        note="the second follows from the first, unless it is denied",
    ),
    ApiKey.CREATE_PARTITIONS: _each(ALTER, TOPIC),
    ApiKey.DELETE_RECORDS: _each(DELETE, TOPIC),
    ApiKey.INIT_PRODUCER_ID: Row(
        needs=(_need((WRITE, TRANSACTIONAL_ID), (IDEMPOTENT_WRITE, CLUSTER), (WRITE, TOPIC)),),
        note="with a transactional id the first; without one the second, or to write to any one topic",
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Row(needs=(_need((CLUSTER_ACTION, CLUSTER), (DESCRIBE, TOPIC)),)),
    ApiKey.ADD_PARTITIONS_TO_TXN: Row(
        needs=(_need((WRITE, TRANSACTIONAL_ID), (CLUSTER_ACTION, CLUSTER)), _need((WRITE, TOPIC))),
        note="from v4 on brokers send it, who need CLUSTER_ACTION alone",
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: Row(needs=(_WRITE_ID, _READ_GROUP)),
    ApiKey.END_TXN: _each(WRITE, TRANSACTIONAL_ID),
    ApiKey.PREPARE_TXN: Row(
        needs=(_WRITE_ID, _need((TWO_PHASE_COMMIT, TRANSACTIONAL_ID))),
        note="an API of ours; the second right is KIP-939's",
    ),
    ApiKey.WRITE_TXN_MARKERS: Row(needs=(_need((ALTER, CLUSTER), (CLUSTER_ACTION, CLUSTER)),)),
    ApiKey.TXN_OFFSET_COMMIT: Row(needs=(_WRITE_ID, _READ_GROUP, _READ_TOPIC)),
    ApiKey.DESCRIBE_PRODUCERS: _each(READ, TOPIC),
    ApiKey.DESCRIBE_TRANSACTIONS: Row(
        needs=(_need((DESCRIBE, TRANSACTIONAL_ID)), _need((DESCRIBE, TOPIC))),
        note="of a transaction's topics those that the principal may describe are returned",
    ),
    ApiKey.LIST_TRANSACTIONS: _each(DESCRIBE, TRANSACTIONAL_ID, "others are left out"),
    ApiKey.DESCRIBE_ACLS: _on_cluster(DESCRIBE),
    ApiKey.CREATE_ACLS: _on_cluster(ALTER),
    ApiKey.DELETE_ACLS: _on_cluster(ALTER),
    ApiKey.DESCRIBE_CONFIGS: Row(
        needs=(_need((DESCRIBE_CONFIGS, TOPIC), (DESCRIBE_CONFIGS, CLUSTER), (DESCRIBE_CONFIGS, GROUP)),),
        note=_CONFIGS_NOTE,
    ),
    ApiKey.ALTER_CONFIGS: Row(
        needs=(_need((ALTER_CONFIGS, TOPIC), (ALTER_CONFIGS, CLUSTER), (ALTER_CONFIGS, GROUP)),), note=_CONFIGS_NOTE
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Row(
        needs=(_need((ALTER_CONFIGS, TOPIC), (ALTER_CONFIGS, CLUSTER), (ALTER_CONFIGS, GROUP)),), note=_CONFIGS_NOTE
    ),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Row(
        needs=(_need((DESCRIBE, GROUP), (READ, TOPIC)),),
        note="to see what clients of a group, or of a topic, pushed; none to ask what to push",
    ),
    ApiKey.PUSH_TELEMETRY: Row(
        needs=(_need((READ, GROUP)), _need((DESCRIBE, TOPIC))),
        note="none; what is pushed counts for a group and for topics only with the right to them",
    ),
    ApiKey.LIST_CONFIG_RESOURCES: _on_cluster(DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_LOG_DIRS: _on_cluster(DESCRIBE),
    ApiKey.CREATE_DELEGATION_TOKEN: _each(CREATE_TOKENS, USER, "for another owner than himself"),
    ApiKey.RENEW_DELEGATION_TOKEN: Row(note="the token's owner and its renewers"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Row(note="the token's owner and its renewers"),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Row(
        needs=(_need((DESCRIBE, TOKEN), (DESCRIBE_TOKENS, USER)),),
        note="owner, requester and renewers see a token without either; others are left out",
    ),
    ApiKey.ELECT_LEADERS: _on_cluster(ALTER),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _on_cluster(ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _on_cluster(DESCRIBE),
    ApiKey.UNREGISTER_BROKER: _on_cluster(ALTER),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _on_cluster(DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: _on_cluster(ALTER_CONFIGS),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _on_cluster(DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _on_cluster(ALTER),
    ApiKey.DESCRIBE_CLUSTER: _each(DESCRIBE, CLUSTER, "for the cluster's authorized operations alone"),
    ApiKey.DESCRIBE_QUORUM: _on_cluster(DESCRIBE),
    ApiKey.UPDATE_FEATURES: _on_cluster(ALTER),
    ApiKey.ADD_RAFT_VOTER: _on_cluster(ALTER),
    ApiKey.REMOVE_RAFT_VOTER: _on_cluster(ALTER),
    ApiKey.UNREGISTER_CONTROLLER: _on_cluster(ALTER),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _each(
        DESCRIBE, TOPIC, "a request for all topics gets those that the principal may describe"
    ),
}

RPC_RIGHTS: Mapping[str, Row] = {
    # ---- admin.listeners
    "Login/BeginLogin": OPEN,
    "Login/FinishLogin": OPEN,
    "Admin/CallKafka": Row(
        note="what the API needs that it carries; DESCRIBE and DESCRIBE_CONFIGS of the cluster count for every topic"
    ),
    "Admin/DescribeCluster": _on_cluster(DESCRIBE),
    "Admin/DescribeHealth": _on_cluster(DESCRIBE),
    "Admin/DescribeQuorum": _on_cluster(DESCRIBE),
    "Admin/ListBrokers": _on_cluster(DESCRIBE),
    "Admin/ListTopics": _on_cluster(DESCRIBE),
    "Admin/DescribeTopics": _on_cluster(DESCRIBE),
    "Admin/CreateTopics": Row(needs=(_need((CREATE, CLUSTER), (CREATE, TOPIC)),)),
    "Admin/DeleteTopics": _each(DELETE, TOPIC),
    "Admin/AddPartitions": _each(ALTER, TOPIC),
    "Admin/DescribeConfigs": _on_cluster(DESCRIBE_CONFIGS),
    "Admin/AlterConfigs": Row(
        needs=(_need((ALTER_CONFIGS, TOPIC), (ALTER_CONFIGS, CLUSTER), (ALTER_CONFIGS, GROUP)),), note=_CONFIGS_NOTE
    ),
    "Admin/ElectLeaders": _on_cluster(ALTER),
    "Admin/AlterReassignments": _on_cluster(ALTER),
    "Admin/ListReassignments": _on_cluster(DESCRIBE),
    "Admin/UnregisterBroker": _on_cluster(ALTER),
    "Admin/AlterMaintenance": _on_cluster(ALTER),
    "Admin/DescribeFeatures": _on_cluster(DESCRIBE),
    "Admin/UpdateFeatures": _on_cluster(ALTER),
    "Admin/UnregisterController": _on_cluster(ALTER),
    "Admin/ChangeVoters": _on_cluster(ALTER),
    "Explainer/Explain": _on_cluster(DESCRIBE),
    "Inspection/DescribeImage": _on_cluster(DESCRIBE),
    "Inspection/CompareImages": _on_cluster(ALTER),
    "Inspection/ListEntities": _on_cluster(DESCRIBE),
    "Inspection/ReadLog": _on_cluster(DESCRIBE),
    "Inspection/DiffImages": _on_cluster(DESCRIBE),
    "Inspection/SignOff": _on_cluster(ALTER),
    # ---- the controller listener: only nodes come here, the rights are those of the caller on whose behalf they ask
    "Controller/RegisterBroker": OF_PEERS,
    "Controller/Heartbeats": OF_PEERS,
    "Controller/AlterPartition": OF_PEERS,
    "Controller/AllocateProducerIds": OF_PEERS,
    "Controller/AssignReplicasToDirectories": OF_PEERS,
    "Controller/AlterReplicaFaults": OF_PEERS,
    "Controller/RegisterController": OF_PEERS,
    "Controller/CreateTopics": Row(needs=(_need((CREATE, CLUSTER), (CREATE, TOPIC)),), audience=Audience.PEER),
    "Controller/DeleteTopics": Row(needs=(_need((DELETE, TOPIC)),), audience=Audience.PEER),
    "Controller/CreatePartitions": Row(needs=(_need((ALTER, TOPIC)),), audience=Audience.PEER),
    "Controller/IncrementalAlterConfigs": Row(
        needs=(_need((ALTER_CONFIGS, TOPIC), (ALTER_CONFIGS, CLUSTER), (ALTER_CONFIGS, GROUP)),),
        audience=Audience.PEER,
        note=_CONFIGS_NOTE,
    ),
    "Controller/ElectLeaders": Row(cluster_right=Right(ALTER, CLUSTER), audience=Audience.PEER),
    "Controller/AlterPartitionReassignments": Row(cluster_right=Right(ALTER, CLUSTER), audience=Audience.PEER),
    "Controller/ListPartitionReassignments": Row(cluster_right=Right(DESCRIBE, CLUSTER), audience=Audience.PEER),
    "Controller/AlterMaintenance": Row(cluster_right=Right(ALTER, CLUSTER), audience=Audience.PEER),
    "Controller/UnregisterBroker": Row(cluster_right=Right(ALTER, CLUSTER), audience=Audience.PEER),
    "Controller/UpdateFeatures": Row(cluster_right=Right(ALTER, CLUSTER), audience=Audience.PEER),
    "Controller/UnregisterController": Row(cluster_right=Right(ALTER, CLUSTER), audience=Audience.PEER),
    "Controller/AlterClientQuotas": Row(cluster_right=Right(ALTER_CONFIGS, CLUSTER), audience=Audience.PEER),
    "Controller/CreateAcls": Row(cluster_right=Right(ALTER, CLUSTER), audience=Audience.PEER),
    "Controller/DeleteAcls": Row(cluster_right=Right(ALTER, CLUSTER), audience=Audience.PEER),
    "Controller/AlterUserScramCredentials": Row(cluster_right=Right(ALTER, CLUSTER), audience=Audience.PEER),
    "Controller/CreateDelegationToken": Row(
        needs=(_need((CREATE_TOKENS, USER)),), audience=Audience.PEER, note="for another owner than himself"
    ),
    "Controller/RenewDelegationToken": Row(audience=Audience.PEER, note="the token's owner and its renewers"),
    "Controller/ExpireDelegationToken": Row(audience=Audience.PEER, note="the token's owner and its renewers"),
    "Controller/WriteImageHash": Row(cluster_right=Right(ALTER, CLUSTER), audience=Audience.PEER),
    "Controller/SignOffRecord": Row(cluster_right=Right(ALTER, CLUSTER), audience=Audience.PEER),
    "Quorum/Vote": OF_PEERS,
    "Quorum/BeginQuorumEpoch": OF_PEERS,
    "Quorum/EndQuorumEpoch": OF_PEERS,
    "Quorum/Fetch": OF_PEERS,
    "Quorum/FetchSnapshot": OF_PEERS,
    "Quorum/DescribeReplica": OF_PEERS,
    "Quorum/ChangeVoters": Row(
        cluster_right=Right(ALTER, CLUSTER),
        audience=Audience.PEER,
        note="a controller that joins or has moved asks for itself without",
    ),
    "Bootstrap/DescribeQuorum": OF_PEERS,
    "QuorumView/DescribeOwnQuorum": OF_PEERS,
    "ControllerFacts/DescribeOwnReplica": OF_PEERS,
    "ControllerFacts/DescribeSessions": OF_PEERS,
}
"""By "Service/Method"."""


def refusal(principal: str, right: Right, name: str) -> KafkaError:
    """The error for a principal that may not do this. It names what was asked, and nothing of the ACLs."""
    what = (
        "the cluster"
        if right.resource_type is CLUSTER
        else f"{right.resource_type.name.lower().replace('_', ' ')} {name}"
    )
    return KafkaError.of(
        REFUSALS[right.resource_type],
        f"{principal} may not {right.operation.name} {what}: an ACL must allow it (`barnabas acl create`)",
    )
