"""The client's end of one connection, sans-IO: request frames out, response frames in, matched in order.

May touch:  its arguments.            Must not touch: sockets, clock.
Invariants: Kafka answers strictly in request order, so the next response belongs to the oldest request or the peer is broken.
Read next:  aio.py and blocking.py, its two drivers.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Generic, NamedTuple, TypeVar

from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.frame import close_frame, decode_response_header, request_head
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_wire.kafka.primitives import Buffer, MalformedMessage
from barnabas_wire.kafka.schema import (
    UnsupportedVersion,
    decode_response,
    encode_request,
    message_classes,
)

RESPONSE_BYTES_MAX = 512 * 1024 * 1024
"""Larger responses are refused; a fetch states its own bound, and one batch may exceed it."""
_CORRELATION_ID_MAX = 2**31 - 1

Token = TypeVar("Token")


class Answer(NamedTuple):
    """One response: whose it is, and where its body lies in the frame."""

    token: Any
    api_key: int
    version: int
    body: memoryview


class ClientConnection(Generic[Token]):
    """Correlation ids, versions and order of one connection; `Token` is whatever the driver waits with.

    `ranges` holds the broker's versions per API once `learn_versions` has them; before that only ApiVersions may be sent.
    """

    __slots__ = ("_client_id", "_correlation_id", "_pending", "features", "ranges")

    def __init__(self, *, client_id: str) -> None:
        self._client_id = client_id
        self._correlation_id = 0
        self._pending: deque[tuple[int, int, int, Token]] = deque()
        self.ranges: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}
        """Finalized feature levels, as far as the broker reports them."""

    def version_for(self, api_key: int) -> int:
        """Highest version of an API that the broker and these declarations share; UnsupportedVersion if there is none."""
        cls = message_classes(api_key)[0]
        offered = self.ranges.get(api_key)
        if offered is None:
            raise UnsupportedVersion(f"the broker does not offer {ApiKey(api_key).name}")
        version = min(int(cls.MAX_VERSION), offered[1])
        if version < cls.MIN_VERSION or version < offered[0]:
            raise UnsupportedVersion(
                f"the broker offers {ApiKey(api_key).name} in versions {offered[0]} to {offered[1]} only"
            )
        return version

    def request(self, request: Any, version: int, token: Token | None) -> bytearray:
        """The frame of a declared request. A token of None says that no answer will come (acks=0)."""
        out = self._head(request.API_KEY, version)
        encode_request(request, version, out)
        return self._sent(out, request.API_KEY, version, token)

    def request_raw(self, api_key: int, version: int, body: Buffer, token: Token) -> bytearray:
        """The frame of a request whose body is encoded already."""
        out = self._head(api_key, version)
        out += body
        return self._sent(out, api_key, version, token)

    def _head(self, api_key: int, version: int) -> bytearray:
        self._correlation_id = self._correlation_id + 1 if self._correlation_id < _CORRELATION_ID_MAX else 0
        return request_head(api_key, version, self._correlation_id, self._client_id)

    def _sent(self, out: bytearray, api_key: int, version: int, token: Token | None) -> bytearray:
        if token is not None:
            self._pending.append((self._correlation_id, api_key, version, token))
        return close_frame(out)

    def answer(self, frame: memoryview) -> Answer:
        """Match a response frame to the oldest request. Raises MalformedMessage: the connection must then be closed."""
        if not self._pending:
            raise MalformedMessage("a response without a request")
        expected, api_key, version, token = self._pending[0]
        correlation_id, position = decode_response_header(frame, api_key, version)
        if correlation_id != expected:
            raise MalformedMessage(f"response {correlation_id} where {expected} was due")
        self._pending.popleft()
        return Answer(token, api_key, version, frame[position:])

    def abandon(self) -> list[Token]:
        """Tokens of all requests that will get no answer, oldest first."""
        tokens = [pending[3] for pending in self._pending]
        self._pending.clear()
        return tokens

    def versions_request(self) -> tuple[ApiVersionsRequest, int]:
        """The first request of a connection and its version."""
        return ApiVersionsRequest(client_software_name="barnabas", client_software_version="1"), 3

    def learn_versions(self, body: memoryview) -> bool:
        """Take the broker's answer to it; False means that it must be asked again in version 0 (KIP-511)."""
        if int.from_bytes(body[:2], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION:
            return False
        self._learn(decode_response(ApiVersionsResponse, 3, body))
        return True

    def learn_old_versions(self, body: memoryview) -> None:
        """Take the answer in version 0."""
        self._learn(decode_response(ApiVersionsResponse, 0, body))

    def _learn(self, response: ApiVersionsResponse) -> None:
        if response.error_code:
            raise KafkaError.of(ErrorCode(response.error_code), "the broker refused ApiVersions")
        self.ranges = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
        self.features = {entry.name: entry.max_version_level for entry in response.finalized_features}
