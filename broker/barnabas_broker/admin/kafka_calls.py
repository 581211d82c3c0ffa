"""Kafka requests that come through the admin listener: the handlers of the Kafka listeners answer them, on every node.

May touch:  the table of Kafka APIs, the caller's rights.    Must not touch: gRPC, logs, the data lane, what is answered.
Invariants: there is no second way: bounds, rights and answer of an API are those of its row and its handler; only what needs no
            more than ControlServices is answered here (registry.CARRIED).
Read next:  ../api/registry.py; barnabas_wire/rpc/admin_verbs.py, what is asked so; service.py.

Not obvious: an operator's right on the cluster counts for every topic here (OperatorAccess), as it always did at this listener.
"""

from __future__ import annotations

from inspect import isawaitable
from typing import Any

from barnabas_broker.admin.edge import AdminEdge, current_caller
from barnabas_broker.api import registry
from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.services import ControlServices
from barnabas_broker.security.access import Access
from barnabas_quorum.image.authorizer import CLUSTER_NAME
from barnabas_quorum.image.rights import CLUSTER, DESCRIBE, DESCRIBE_CONFIGS, TOPIC
from barnabas_quorum.records_security import AclOperation, AclResourceType
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, decode_response, encode_response, message_classes
from barnabas_wire.rpc import admin_pb2
from barnabas_wire.rpc.admin_verbs import VERSIONS

CHECKED_WITHOUT_CHANGE = frozenset({ApiKey.ALTER_PARTITION_REASSIGNMENTS})
"""APIs whose handlers read RequestContext.is_dry."""


class KafkaCalls:
    """Answers for one node. Belongs to the control lane."""

    def __init__(self, services: ControlServices, edge: AdminEdge) -> None:
        self._services = services
        self._edge = edge

    async def carry(self, call: admin_pb2.KafkaCall) -> admin_pb2.KafkaAnswer:
        """The answer to a request in bytes. Raises KafkaError for what is not served here, what is malformed, and what the handler
        refuses as a whole."""
        api = registry.api_of(call.api_key) if call.api_key in registry.CARRIED else None
        if api is None:
            raise KafkaError.of(
                ErrorCode.UNSUPPORTED_VERSION,
                f"API {call.api_key} is not answered at an admin listener: ask a Kafka listener, or a newer node",
            )
        if not api.min_version <= call.api_version <= api.max_version:
            raise KafkaError.of(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{api.key.name} is answered here in versions {api.min_version} to {api.max_version}, and version "
                f"{call.api_version} was asked for: use the command line of this node's version",
            )
        if call.validate_only and api.key not in CHECKED_WITHOUT_CHANGE:
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"{api.key.name} says itself whether it only checks")
        if len(call.body) > api.request_bytes_max:
            raise KafkaError.of(
                ErrorCode.INVALID_REQUEST,
                f"a request of {len(call.body)} bytes; {api.key.name} has at most {api.request_bytes_max}: ask for less at once",
            )
        request = registry.decode_request(api, call.api_version, memoryview(call.body), 0)
        response = await self._handled(api, request, call.api_version, is_dry=call.validate_only)
        if isinstance(response, bytes):
            return admin_pb2.KafkaAnswer(body=response)
        out = bytearray()
        encode_response(response, call.api_version, out)
        return admin_pb2.KafkaAnswer(body=bytes(out))

    async def ask(self, request: Message, *, is_dry: bool = False) -> Any:
        """The response to a request that this process has made itself. Raises the KafkaError that refuses the whole."""
        api = registry.api_of(request.API_KEY)
        assert api is not None and api.key in registry.CARRIED, f"{request} is not answered here"
        version = VERSIONS[api.key]
        response = await self._handled(api, request, version, is_dry=is_dry)
        if isinstance(response, bytes):
            return decode_response(message_classes(api.key)[1], version, response)
        return response

    async def _handled(self, api: registry.Api, request: Any, version: int, *, is_dry: bool) -> Any:
        whose = current_caller()
        access = self._edge.access_of(whose)
        if api.cluster_right is not None:
            access.require(*api.cluster_right)
        context = RequestContext(
            api_key=api.key,
            api_version=version,
            correlation_id=0,
            client_id="",
            listener_name="",
            client_host=whose.host,
            now_ms=self._services.clock_ms(),
            principal=whose.principal,
            access=access if access.is_open else OperatorAccess(access),
            is_dry=is_dry,
        )
        response = api.handler(self._services, context, request)
        return await response if isawaitable(response) else response


def name_of(api_key: int) -> str:
    """How a call is counted: the name of its API, as CreateTopics."""
    return ApiKey(api_key).name.title().replace("_", "") if api_key in registry.CARRIED else "CallKafka"


class OperatorAccess(Access):
    """What the caller of an admin listener may do: whoever may describe the cluster, or its configs, may describe those of every
    topic, since the typed methods of this listener ask for no more."""

    __slots__ = ("_own",)

    is_open = False

    def __init__(self, own: Access) -> None:
        """own: by the ACLs alone."""
        super().__init__(own.principal, own.host)
        self._own = own

    def may(
        self,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str = CLUSTER_NAME,
        *,
        is_noted: bool = True,
    ) -> bool:
        """See Access."""
        if (
            resource_type is TOPIC
            and operation in (DESCRIBE, DESCRIBE_CONFIGS)
            and self._own.may(operation, CLUSTER, is_noted=False)
        ):
            return True
        return self._own.may(operation, resource_type, name, is_noted=is_noted)

    def may_any(self, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """See Access."""
        return self._own.may_any(operation, resource_type)
