"""The table of Kafka APIs: the handler of each key, its versions, and how an error becomes a response.

May touch:  the handler modules, the codec.       Must not touch: sockets, clock, logs.
Invariants: ApiVersions is answered from this table, so it cannot lie; an exception becomes a code here, nowhere else.
Read next:  api_versions.py (the shortest handler), produce.py (a direct one).

A handler gets `(services, context, request)` and returns a response object (or its encoded body as bytes), or an
awaitable of one. While an awaitable is pending, later requests of the same connection wait (Kafka's rule: one request
of a connection at a time); other connections are served meanwhile. Produce and Fetch are *direct*: they get the
undecoded frame and a slot to fill, and may be pipelined.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from barnabas_broker.api.answers import message_of
from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.services import BrokerServices
from barnabas_quorum.image.rights import KAFKA_RIGHTS, Right
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.primitives import MalformedMessage
from barnabas_wire.kafka.primitives import skip_tagged_fields as skip_tags
from barnabas_wire.kafka.schema import decode_request as decode_body
from barnabas_wire.kafka.schema import encode_response, message_classes
from barnabas_wire.lazy_dataclass import dataclass

REQUEST_BYTES_MAX = 1024 * 1024
"""The largest body of most requests. A handler whose clients may have more to say registers its own bound."""
PARTITIONS_BYTES_MAX = 4 * 1024 * 1024
"""The largest request about the partitions of a large cluster, or with texts of group members."""
ELEMENTS_MAX = 8_192
"""Array elements of most requests. One of two bytes is an object of a hundred and 10 us of the loop in the handler."""
PARTITION_ELEMENTS_MAX = 32_768
"""Array elements of a request that names partitions."""
CALLS_PER_TURN_MAX = 400_000
"""Python and C calls that the greediest request allowed may take in one turn of either loop, 40 to 80 ms."""
MEMORY_BYTES_MAX = 64 * 1024 * 1024
"""Sixty-four times the largest request of most APIs: memory that the greediest request allowed takes at any moment, with its answer."""

Handler = Callable[[BrokerServices, RequestContext, Any], Any | Awaitable[Any]]
ErrorResponse = Callable[[Any, KafkaError], Any]
"""(decoded request, error) -> response in which every item of the request carries the error."""

SERVED: dict[str, dict[ApiKey, tuple[int, int]]] = {
    "acls": {ApiKey.DESCRIBE_ACLS: (1, 3), ApiKey.CREATE_ACLS: (1, 3), ApiKey.DELETE_ACLS: (1, 3)},
    "api_versions": {ApiKey.API_VERSIONS: (0, 5)},
    "cluster": {ApiKey.DESCRIBE_CLUSTER: (0, 2), ApiKey.DESCRIBE_QUORUM: (0, 2)},
    "configs": {
        ApiKey.DESCRIBE_CONFIGS: (1, 4),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
        ApiKey.ALTER_CONFIGS: (0, 2),
        ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
    },
    "consumer_groups": {ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1), ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1)},
    "features": {ApiKey.UPDATE_FEATURES: (0, 2)},
    "fetch": {ApiKey.FETCH: (4, 18)},
    "groups": {
        ApiKey.FIND_COORDINATOR: (0, 6),
        ApiKey.JOIN_GROUP: (0, 9),
        ApiKey.SYNC_GROUP: (0, 5),
        ApiKey.HEARTBEAT: (0, 4),
        ApiKey.LEAVE_GROUP: (0, 5),
        ApiKey.LIST_GROUPS: (0, 5),
        ApiKey.DESCRIBE_GROUPS: (0, 6),
        ApiKey.DELETE_GROUPS: (0, 3),
    },
    "init_producer_id": {ApiKey.INIT_PRODUCER_ID: (0, 5)},
    "list_offsets": {ApiKey.LIST_OFFSETS: (1, 11)},
    "log_dirs": {ApiKey.DESCRIBE_LOG_DIRS: (1, 5), ApiKey.DELETE_RECORDS: (0, 2)},
    "metadata": {ApiKey.METADATA: (0, 13), ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0)},
    "offset_for_leader_epoch": {ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4)},
    "offsets": {ApiKey.OFFSET_COMMIT: (2, 10), ApiKey.OFFSET_FETCH: (1, 10), ApiKey.OFFSET_DELETE: (0, 0)},
    "produce": {ApiKey.PRODUCE: (0, 13)},
    "producers": {ApiKey.DESCRIBE_PRODUCERS: (0, 0)},
    "quotas": {ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1), ApiKey.ALTER_CLIENT_QUOTAS: (0, 1)},
    "reassignments": {
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
        ApiKey.ELECT_LEADERS: (0, 2),
        ApiKey.UNREGISTER_BROKER: (0, 0),
    },
    "sasl": {ApiKey.SASL_HANDSHAKE: (0, 1), ApiKey.SASL_AUTHENTICATE: (0, 2)},
    "share_groups": {
        ApiKey.SHARE_GROUP_HEARTBEAT: (1, 1),
        ApiKey.SHARE_GROUP_DESCRIBE: (1, 1),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (0, 1),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: (0, 0),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: (0, 0),
    },
    "share_acknowledge": {ApiKey.SHARE_ACKNOWLEDGE: (1, 2)},
    "share_fetch": {ApiKey.SHARE_FETCH: (1, 2)},
    "share_state": {
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: (0, 0),
        ApiKey.READ_SHARE_GROUP_STATE: (0, 0),
        ApiKey.WRITE_SHARE_GROUP_STATE: (0, 1),
        ApiKey.DELETE_SHARE_GROUP_STATE: (0, 0),
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (0, 1),
    },
    "streams_groups": {
        ApiKey.STREAMS_GROUP_HEARTBEAT: (0, 1),
        ApiKey.STREAMS_GROUP_DESCRIBE: (0, 1),
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: (0, 0),
    },
    "telemetry": {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0), ApiKey.PUSH_TELEMETRY: (0, 0)},
    "tokens": {
        ApiKey.CREATE_DELEGATION_TOKEN: (1, 3),
        ApiKey.RENEW_DELEGATION_TOKEN: (1, 2),
        ApiKey.EXPIRE_DELEGATION_TOKEN: (1, 2),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: (1, 3),
    },
    "topics": {ApiKey.CREATE_TOPICS: (2, 7), ApiKey.DELETE_TOPICS: (1, 6), ApiKey.CREATE_PARTITIONS: (0, 3)},
    "transaction_markers": {ApiKey.WRITE_TXN_MARKERS: (1, 2)},
    "transactions": {
        ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5),
        ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
        ApiKey.END_TXN: (0, 5),
        ApiKey.PREPARE_TXN: (0, 0),
        ApiKey.TXN_OFFSET_COMMIT: (0, 6),
        ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
        ApiKey.LIST_TRANSACTIONS: (0, 2),
    },
    "users": {ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0), ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0)},
    "voters": {ApiKey.ADD_RAFT_VOTER: (0, 1), ApiKey.REMOVE_RAFT_VOTER: (0, 0), ApiKey.UNREGISTER_CONTROLLER: (0, 0)},
}
"""Every file that registers handlers, with the keys and the versions that it serves: what is asked before a file is imported. Its
import checks them."""
CARRIED = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.UNREGISTER_BROKER,
    }
)
"""Answered on the admin listeners too (../admin/kafka_calls.py): each needs no more than ControlServices."""
VERSIONS_SERVED = tuple(sorted((key, *versions) for keys in SERVED.values() for key, versions in keys.items()))
"""Key, lowest and highest version of all that is served, by key."""
_MODULES = {key: name for name, keys in SERVED.items() for key in keys}
SERVED_KEYS = frozenset(_MODULES)


@dataclass(slots=True, frozen=True, kw_only=True)
class Api:
    """One row of the table."""

    key: ApiKey
    min_version: int
    """Lowest version advertised; a direct handler may still refuse it (Produce 0-2)."""
    max_version: int
    flexible_from: int
    """First version whose request header has tagged fields."""
    handler: Any
    request_bytes_max: int = REQUEST_BYTES_MAX
    """Largest frame. One that claims more closes its connection once its header came, before its body is read."""
    elements_max: int = ELEMENTS_MAX
    """Most elements in all arrays of a request together, see barnabas_wire.kafka.schema; more close the connection."""
    calls_max: int = CALLS_PER_TURN_MAX
    """See CALLS_PER_TURN_MAX; tests/broker/api/test_greedy_requests.py holds every API to it."""
    memory_bytes_max: int = MEMORY_BYTES_MAX
    """See MEMORY_BYTES_MAX; likewise."""
    is_direct: bool = False
    ends_with_client: bool = False
    """Whether the handler is cancelled while it waits when its client is gone. A write for others continues, as in
    Kafka."""
    error_response: ErrorResponse | None = None
    cluster_right: Right | None = None
    """What a caller must be allowed before the handler sees its request; of the table of rights."""


APIS: dict[int, Api] = {}
"""The table, by API key, of the files that are imported: see api_of and load_handlers."""


def handles(
    key: ApiKey,
    *,
    versions: tuple[int, int],
    on_error: ErrorResponse | None = None,
    request_bytes_max: int = REQUEST_BYTES_MAX,
    elements_max: int = ELEMENTS_MAX,
    ends_with_client: bool = False,
    calls_max: int = CALLS_PER_TURN_MAX,
    memory_bytes_max: int = MEMORY_BYTES_MAX,
) -> Callable[[Handler], Handler]:
    """Register a handler.

    Args:
        versions: (lowest, highest) served, both inclusive; this is what ApiVersions advertises.
        on_error: builds the response for a KafkaError raised by the handler. None means: the response class has a
            top-level `error_code` (and perhaps `error_message`), which is all that is set.
        request_bytes_max: largest frame, without its size.
        elements_max: most array elements in a request.
        ends_with_client: see Api.
        calls_max, memory_bytes_max: see the constants; another value needs its reason beside it.
    """

    def register(handler: Handler) -> Handler:
        _add(
            key,
            versions,
            handler,
            on_error=on_error,
            request_bytes_max=request_bytes_max,
            elements_max=elements_max,
            ends_with_client=ends_with_client,
            calls_max=calls_max,
            memory_bytes_max=memory_bytes_max,
        )
        return handler

    return register


def handles_directly(
    key: ApiKey,
    *,
    versions: tuple[int, int],
    request_bytes_max: int,
    elements_max: int,
    calls_max: int = CALLS_PER_TURN_MAX,
) -> Callable[[Any], Any]:
    """Register a handler of undecoded frames: `(services, slot, version, frame, position) -> None`.

    `slot` is a slot.ResponseSlot; `frame` is valid only during the call. The handler's own parser keeps to
    `elements_max`.
    """

    def register(handler: Any) -> Any:
        _add(
            key,
            versions,
            handler,
            is_direct=True,
            request_bytes_max=request_bytes_max,
            elements_max=elements_max,
            calls_max=calls_max,
        )
        return handler

    return register


def load_handlers(keys: Iterable[ApiKey] = SERVED_KEYS) -> None:
    """Import the handler modules of these APIs, by default of all. Harmless when done already.

    For a process that lives long: its package may be upgraded under it, and what it imports later would be of another version.
    """
    for name in {_MODULES[key] for key in keys}:
        importlib.import_module(f"barnabas_broker.api.{name}")


def api_of(key: int) -> Api | None:
    """The row of an API key, whose file is imported now if none was before; None for what is not served."""
    api = APIS.get(key)
    if api is None and key in _MODULES:
        importlib.import_module(f"barnabas_broker.api.{_MODULES[ApiKey(key)]}")
        api = APIS[key]
    return api


def by_kind() -> dict[int, Api]:
    """The table by the first four bytes of a request, api key << 16 | version, of all whose files are imported."""
    return {kind: api for api in APIS.values() for kind in kinds_of(api)}


def kinds_of(api: Api) -> list[int]:
    """What the requests of an API begin with, by version."""
    return [api.key << 16 | version for version in range(api.min_version, api.max_version + 1)]


def skip_tagged_fields(frame: memoryview, position: int) -> int:
    """Position after the tagged fields of a request header; raises MalformedMessage when they do not fit the frame."""
    try:
        return skip_tags(frame, position, len(frame))
    except IndexError as error:
        raise MalformedMessage("the request header is cut off") from error


def decode_request(api: Api, version: int, frame: memoryview, position: int) -> Any:
    """The request body; raises MalformedMessage, TooManyElements."""
    return decode_body(api.key, version, frame, position, elements_max=api.elements_max)


def replica_id_of(api: Api, version: int, frame: memoryview) -> int:
    """The broker that a request names as its sender, -1 for a client's and for any that cannot be read."""
    if api.key not in (ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH):
        return -1
    try:
        position = 10 + max(0, struct.unpack_from(">h", frame, 8)[0])
        if version >= api.flexible_from:
            position = skip_tagged_fields(frame, position)
        request = decode_request(api, version, frame, position)
    except (KafkaError, struct.error):
        return -1
    if api.key is ApiKey.FETCH and version >= 15:
        return int(request.replica_state.replica_id)
    return int(request.replica_id)


def encode_answer(api_key: int, version: int, correlation_id: int, response: Any) -> bytearray:
    """A whole answer frame: size, header v0 or v1, body. `response` may be an encoded body (bytes)."""
    out = bytearray(8)
    # ApiVersions keeps header v0 in every version: its reader does not yet know what the broker speaks (KIP-511).
    if api_key != ApiKey.API_VERSIONS and version >= APIS[api_key].flexible_from:
        out.append(0)
    if type(response) is bytes:
        out += response
    else:
        encode_response(response, version, out)
    struct.pack_into(">ii", out, 0, len(out) - 4, correlation_id)
    return out


def error_response(api: Api, request: Any, error: KafkaError) -> Any:
    """What a client gets when the handler raised `error`."""
    if api.error_response is not None:
        return api.error_response(request, error)
    response = message_classes(api.key)[1]()
    response.error_code = int(error.code)
    if hasattr(response, "error_message"):
        response.error_message = message_of(error)
    return response


def _add(
    key: ApiKey,
    versions: tuple[int, int],
    handler: Any,
    *,
    request_bytes_max: int,
    elements_max: int,
    calls_max: int = CALLS_PER_TURN_MAX,
    memory_bytes_max: int = MEMORY_BYTES_MAX,
    is_direct: bool = False,
    ends_with_client: bool = False,
    on_error: ErrorResponse | None = None,
) -> None:
    assert key not in APIS, f"{key.name} has two handlers"
    row = KAFKA_RIGHTS.get(key)
    assert row is not None, f"{key.name} has no row in barnabas_quorum/image/rights.py: say what a caller needs for it"
    assert row.cluster_right is None or not is_direct, f"{key.name} takes undecoded frames and checks for itself"
    module = handler.__module__.rpartition(".")[2]
    assert SERVED.get(module, {}).get(key) == versions, f"{key.name} {versions} is not in SERVED of {module}"
    APIS[key] = Api(
        key=key,
        min_version=versions[0],
        max_version=versions[1],
        flexible_from=message_classes(key)[0].FLEXIBLE_FROM,
        handler=handler,
        request_bytes_max=request_bytes_max,
        elements_max=elements_max,
        calls_max=calls_max,
        memory_bytes_max=memory_bytes_max,
        is_direct=is_direct,
        ends_with_client=ends_with_client,
        error_response=on_error,
        cluster_right=row.cluster_right,
    )
