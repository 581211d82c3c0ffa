"""The gRPC channel and server options of the house, each with its reason, and how an address is written; there is no second place.

May touch:  nothing.                  Must not touch: everything.
Invariants: every channel is made with CHANNEL_OPTIONS or VISITOR_OPTIONS, every server with SERVER_OPTIONS; every call has a deadline.
Read next:  quorum.proto.
"""

from __future__ import annotations

MESSAGE_BYTES_MAX = 16 * 1024 * 1024
"""The quorum's Fetch carries up to 8 MiB of batches; gRPC refuses more than 4 MiB unless set."""

WINDOW_BYTES = 4 * 1024 * 1024
"""What may be on its way in one call: 80 MB/s at a round trip of 50 ms."""
KEEPALIVE_TIME_MS = 10_000
KEEPALIVE_TIMEOUT_MS = 5_000
CONNECT_MS_MAX = 2_000
HANDSHAKE_TIMEOUT_KEY = "grpc.server_handshake_timeout_ms"
HANDSHAKE_TIMEOUT_MS = 10_000
CONNECTIONS_MAX_KEY = "grpc.max_allowed_incoming_connections"
"""Connections of a server, from anywhere: gRPC knows no bound by address."""
CONCURRENT_CALLS_MAX = 1_000
"""Calls of one connection; a node has a few, an operator one."""

_SHARED_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    # A peer that vanished without a FIN (cut cable, SIGSTOP) is noticed by pings, also while no call is open.
    ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # By default gRPC measures the connection with pings of its own, and fits the window to it: each message of an idle quorum
    # then costs both sides a ping (a third of gRPC's wake-ups, measured). A window that never matters needs no measuring.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
)

VISITOR_OPTIONS: tuple[tuple[str, int], ...] = (
    *_SHARED_OPTIONS,
    # A proxy variable in the environment would otherwise capture even loopback.
    ("grpc.enable_http_proxy", 0),
    # One process holds several clients of one address (several nodes in a test): they must not share a subchannel,
    # or the back-off of one becomes the back-off of all.
    ("grpc.use_local_subchannel_pool", 1),
)
"""Options of a client that comes once and is not in a hurry to come back: connecting may take as long as its call."""

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    *VISITOR_OPTIONS,
    # By default a peer that was down for 40 s is tried again only 4.0 s after its return; so it is 0.47 s (measured).
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    # In spite of its name the longest time that one attempt may take: two round trips. With 50 ms (then the back-off counts) a
    # first connection took 1.5 s at a round trip of 200 ms and never stood at 300; so it stands at 900, and a peer that a
    # network swallowed for 20 s is back after 0.9 s at most in place of 0.4 (measured). As long as a quorum request may take.
    ("grpc.min_reconnect_backoff_ms", CONNECT_MS_MAX),
)

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    *_SHARED_OPTIONS,
    # By default a second process binds the same port without an error, and gets half of the calls.
    ("grpc.so_reuseport", 0),
    # Accept the clients' keepalive pings instead of answering them with GOAWAY (ENHANCE_YOUR_CALM).
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_TIME_MS // 2),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", KEEPALIVE_TIME_MS // 2),
    ("grpc.http2.max_ping_strikes", 0),
    # By default a stranger may keep a socket for two minutes without a word, and open calls without end.
    (HANDSHAKE_TIMEOUT_KEY, HANDSHAKE_TIMEOUT_MS),
    ("grpc.max_concurrent_streams", CONCURRENT_CALLS_MAX),
)


def address_of(host: str, port: int) -> str:
    """The two as gRPC takes them: an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
