"""DescribeCluster (key 60): cluster id, controller and brokers (KIP-700).

Declared from Kafka's own message definitions (Apache License 2.0), whose words the field comments keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, boolean, int8, int16, int32, string


@dataclass(slots=True)
class DescribeClusterRequest(Message):
    """DescribeCluster request.

    Version 1 adds EndpointType for KIP-919 support. Version 2 adds IncludeFencedBrokers for KIP-1073 support.
    """

    API_KEY = ApiKey.DESCRIBE_CLUSTER
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 0

    include_cluster_authorized_operations: bool = boolean()  # Whether to include cluster authorized operations
    endpoint_type: int = int8("1+", default=1)  # The endpoint type to describe. 1=brokers, 2=controllers
    include_fenced_brokers: bool = boolean("2+")  # Whether to include fenced brokers when listing brokers


@dataclass(slots=True)
class DescribeClusterBroker:
    """Each broker in the response."""

    broker_id: int = int32()  # The broker ID
    host: str = string()  # The broker hostname
    port: int = int32()  # The broker port
    # The rack of the broker, or null if it has not been assigned to a rack
    rack: str | None = string(nullable="0+", default=None)
    is_fenced: bool = boolean("2+")  # Whether the broker is fenced


@dataclass(slots=True)
class DescribeClusterResponse(Message):
    """DescribeCluster response.

    Version 1 adds the EndpointType field, and makes MISMATCHED_ENDPOINT_TYPE and UNSUPPORTED_ENDPOINT_TYPE valid
    top-level response error codes. Version 2 adds IsFenced field to Brokers for KIP-1073 support.
    """

    API_KEY = ApiKey.DESCRIBE_CLUSTER
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 0

    # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    # request did not violate any quota
    throttle_time_ms: int = int32()
    error_code: int = int16()  # The top-level error code, or 0 if there was no error
    # The top-level error message, or null if there was no error
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)  # The endpoint type that was described. 1=brokers, 2=controllers
    cluster_id: str = string()  # The cluster ID that responding broker belongs to
    # The ID of the controller. When handled by a controller, returns the current voter leader ID. When handled by a
    # broker, returns a random alive broker ID as a fallback
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)  # Each broker in the response
    # 32-bit bitfield to represent authorized operations for this cluster
    cluster_authorized_operations: int = int32(default=-2147483648)
