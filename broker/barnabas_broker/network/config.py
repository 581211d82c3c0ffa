"""Keys of the listeners: sizes, limits and idle times of client connections.

May touch:  its fields.               Must not touch: files, environment.
Invariants: every field with a `key` is documented; names are Kafka's where Kafka has the key.
Read next:  listener.py.
"""

from __future__ import annotations

import ipaddress

from barnabas_wire.config_key import config_key
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfig:
    """What listeners and connections take from the node's properties."""

    socket_request_max_bytes: int = config_key(
        "socket.request.max.bytes",
        100 * 1024 * 1024,
        "Largest request in bytes. A frame that claims more closes its connection before anything is read.",
    )
    connections_max_idle_ms: int = config_key(
        "connections.max.idle.ms",
        600_000,
        "A connection without a complete request or a byte of response for this long is closed. A request that trickles in does not "
        "count as activity until it is whole.",
    )
    request_log_sample_every: int = config_key(
        "request.log.sample.every",
        0,
        "One in so many requests is logged by barnabas_broker.requests: API, principal, address, time, size; 0 = none.",
    )
    max_connections: int = config_key(
        "max.connections",
        10_000,
        "Most open connections of the node; one more is closed at once, unless it is another broker's.",
    )
    max_connections_per_ip: int = config_key(
        "max.connections.per.ip",
        2_147_483_647,
        "Most open connections from one address; one more is closed at once. Of a gRPC listener (admin, controller) one address has at "
        "most 512 in any case, or a sixteenth of the open files that the process may have (but 64); what is more is closed within a "
        "second.",
    )
    max_connections_per_ip_overrides: tuple[str, ...] = config_key(
        "max.connections.per.ip.overrides",
        (),
        "Other limits for some addresses, at gRPC listeners too: ADDRESS:COUNT with commas, an IPv6 address in brackets.",
    )
    tls_handshakes_per_second_max: int = config_key(
        "tls.handshakes.per.second.max",
        200,
        "TLS handshakes of a listener in a second, each about a millisecond of CPU; who comes later waits for its turn.",
    )
    inter_broker_connections_reserved: int = config_key(
        "inter.broker.connections.reserved",
        32,
        "Connections beyond max.connections that are kept back for other brokers, so that clients which take all of them do not stop "
        "replication. Kafka has a listener for them instead, on which max.connections does not count.",
    )
    socket_listen_backlog_size: int = config_key(
        "socket.listen.backlog.size", 512, "Connections the kernel may queue before they are accepted."
    )
    # 256 kept a durable producer of 16 KiB batches at 4 MiB in flight: 1,024 is 19 % more MB/s at RF 3 (20 runs each, in turn).
    in_flight_requests_max: int = config_key(
        "connection.in.flight.requests.max",
        1024,
        "Requests of one connection that may be waiting for their answer, each of them about 1.3 KiB; beyond it the connection is not "
        "read.",
    )
    queued_response_bytes_max: int = config_key(
        "connection.queued.response.bytes.max",
        4 * 1024 * 1024,
        "Bytes of answers of one connection that may wait for their turn or for a slow client. Beyond it no further request is taken "
        "up, so it is exceeded by one answer at most.",
    )

    queued_max_request_bytes: int = config_key(
        "queued.max.request.bytes",
        100 * 1024 * 1024,
        "Memory in bytes that requests of all clients of the node may take: those that have not come whole, those that wait for their "
        "turn or their answer, and answers that are not read. Beyond half of it clients without progress are closed; beyond it nothing "
        "more is read of a request that has begun. In Kafka it is off by default, with -1.",
    )

    def __post_init__(self) -> None:
        if self.socket_request_max_bytes < 1024:
            raise ValueError("socket.request.max.bytes must be at least 1024")
        if self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise ValueError(
                "queued.max.request.bytes must be at least socket.request.max.bytes, or the largest request would find no room"
            )
        if self.max_connections_per_ip < 0 or self.tls_handshakes_per_second_max < 1:
            raise ValueError("max.connections.per.ip must be at least 0 and tls.handshakes.per.second.max at least 1")
        self.address_overrides()
        if self.request_log_sample_every < 0:
            raise ValueError("request.log.sample.every must be at least 0")
        if self.inter_broker_connections_reserved < 0:
            raise ValueError("inter.broker.connections.reserved must be at least 0")
        if self.in_flight_requests_max < 1 or self.max_connections < 1 or self.queued_response_bytes_max < 1:
            raise ValueError(
                "connection.in.flight.requests.max, connection.queued.response.bytes.max and max.connections "
                "must be at least 1"
            )

    def address_overrides(self) -> dict[str, int]:
        """max.connections.per.ip.overrides by address. Raises ValueError."""
        found = {}
        for entry in self.max_connections_per_ip_overrides:
            address, separator, count = entry.rpartition(":")
            try:
                parsed = ipaddress.ip_address(address.strip("[]"))
            except ValueError:
                separator = ""
            if not separator or not count.isdecimal():
                raise ValueError(f"max.connections.per.ip.overrides={entry}: write ADDRESS:COUNT, with numbers")
            found[str(parsed)] = int(count)
        return found
