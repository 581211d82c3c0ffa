"""What listens at an address that did not answer as it should: said to who typed the wrong port.

May touch:  sockets.                  Must not touch: gRPC, the Kafka client.
Invariants: only after a failure, and bounded by a second for each connection; what is not recognised is None.
Read next:  client.py and kafka.py, which ask it.

Each kind of listener shows itself to one question of Kafka's: a Kafka listener answers it with the same correlation id; a gRPC
server begins with an HTTP/2 SETTINGS frame whatever comes; a TLS server sends an alert, or shakes hands; an HTTP server needs a request
of its own.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct

PROBE_TIMEOUT_S = 1.0
KAFKA, GRPC, HTTP, TLS = (
    "a Kafka listener",
    "a gRPC listener (admin or controller)",
    "a metrics listener",
    "a TLS listener",
)
TLS_HINT = (
    "give --client-config with security.protocol=SSL, or SASL_SSL where there is a login, and ssl.truststore.location"
)
_CORRELATION_ID = 0x42524E42
_API_VERSIONS = struct.pack(">hhih", 18, 0, _CORRELATION_ID, -1)
_SETTINGS_FRAME = 4
_TLS_ALERT = 21


def recognise(address: str, *, timeout_s: float = PROBE_TIMEOUT_S) -> str | None:
    """One of KAFKA, GRPC, HTTP, TLS; None when nothing answers, or nothing that is known."""
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        return None
    target = (host.strip("[]"), int(port))
    answer = _ask(target, struct.pack(">i", len(_API_VERSIONS)) + _API_VERSIONS, timeout_s)
    if len(answer) >= 8 and struct.unpack_from(">i", answer, 4)[0] == _CORRELATION_ID:
        return KAFKA
    if len(answer) >= 9 and answer[3] == _SETTINGS_FRAME and answer[5:9] == bytes(4):
        return GRPC
    if (answer[:1] == bytes([_TLS_ALERT]) and answer[1:2] == b"\x03") or (
        not answer and _speaks_tls(target, timeout_s)
    ):
        return TLS
    if answer.startswith(b"HTTP/") or _ask(target, b"GET /livez HTTP/1.0\r\n\r\n", timeout_s).startswith(b"HTTP/"):
        return HTTP
    return None


def _speaks_tls(target: tuple[str, int], timeout_s: float) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent to whoever it is
    try:
        with socket.create_connection(target, timeout=timeout_s) as connection, context.wrap_socket(connection):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


def _ask(target: tuple[str, int], question: bytes, timeout_s: float) -> bytes:
    """The first bytes of an answer; empty for none."""
    answer = b""
    with contextlib.suppress(OSError), socket.create_connection(target, timeout=timeout_s) as connection:
        connection.sendall(question)
        while len(answer) < 9 and (piece := connection.recv(64)):
            answer += piece
    return answer
