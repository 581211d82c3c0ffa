"""DescribeCluster (key 60): cluster id, controller and brokers (KIP-700)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int8, int16, int32, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class DescribeClusterRequest(Message):
    """Ask who is in the cluster. v1 can ask for controllers (KIP-919), v2 for fenced brokers too (KIP-1073)."""

    API_KEY = ApiKey.DESCRIBE_CLUSTER
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 0

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)  # 1: brokers, 2: controllers
    include_fenced_brokers: bool = boolean("2+")


@dataclass(slots=True)
class DescribeClusterBroker:
    """A node of the kind asked for, and where to reach it."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)  # null: in none
    is_fenced: bool = boolean("2+")


@dataclass(slots=True)
class DescribeClusterResponse(Message):
    """The cluster's nodes. v1 may fail with MISMATCHED_ENDPOINT_TYPE or UNSUPPORTED_ENDPOINT_TYPE."""

    API_KEY = ApiKey.DESCRIBE_CLUSTER
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)  # 1: brokers, 2: controllers
    cluster_id: str = string()
    controller_id: int = int32(default=-1)  # the quorum leader from a controller; from a broker any live broker
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-2147483648)  # a bit per operation; the default: not asked for
