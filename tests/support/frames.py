"""The other ends of the wire: request headers as a broker reads them, whole frames of either side."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from barnabas_wire.kafka.frame import close_frame, request_head
from barnabas_wire.kafka.primitives import Buffer, MalformedMessage, read_string, skip_tagged_fields
from barnabas_wire.kafka.schema import encode_request, request_header_version, response_header_version

_unpack_request = struct.Struct(">hhi").unpack_from
_pack_response = struct.Struct(">ii").pack


class RequestHeader(NamedTuple):
    """What stands before every request body."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(view: Buffer, position: int = 0) -> tuple[RequestHeader, int]:
    """Header at `position` of a frame without its size -> (header, where the body begins).

    Raises MalformedMessage for bytes that are no header, UnsupportedVersion for an API this house does not speak; for a
    version outside the API's range it still succeeds, so that ApiVersions can be answered in version 0.
    """
    try:
        api_key, version, correlation_id = _unpack_request(view, position)
        end = len(view)
        client_id, position = read_string(view, position + 8, end)
        if request_header_version(api_key, version) == 2:
            position = position + 1 if not view[position] else skip_tagged_fields(view, position, end)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"request header: {error}") from error
    return RequestHeader(api_key, version, correlation_id, client_id), position


def response_head(api_key: int, version: int, correlation_id: int) -> bytearray:
    """The start of a response frame, its size still zero: append the body, then call `close_frame`."""
    out = bytearray(_pack_response(0, correlation_id))
    if response_header_version(api_key, version) == 1:
        out += b"\0"
    return out


def encode_request_frame(request: Any, version: int, correlation_id: int, client_id: str | None) -> bytearray:
    """A whole request frame."""
    out = request_head(request.API_KEY, version, correlation_id, client_id)
    encode_request(request, version, out)
    return close_frame(out)


def encode_response_frame(response: Any, version: int, correlation_id: int) -> bytearray:
    """A whole response frame."""
    out = response_head(response.API_KEY, version, correlation_id)
    encode_request(response, version, out)
    return close_frame(out)
