"""What is asked of this node: the Kafka listeners and the gRPC admin service.

May touch:  what NodeSources holds, to read.   Must not touch: anything it reads, the event loops.
Invariants: an API or error code that this version does not know is "unknown".
Read next:  exporter.py; ../network/stats.py, ../admin/edge.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from barnabas_broker.metrics.families import counter, gauge, histogram
from barnabas_broker.metrics.sources import NodeSources
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.messages import ApiKey


def network_families(sources: NodeSources) -> Iterator[Metric]:
    """The Kafka listeners."""
    stats = sources.network
    if stats is None:
        return
    yield gauge("connections", "Open connections.", [({}, stats.connections)])
    yield counter(
        "connections",
        "Connections that clients opened, and those of them that were refused beyond max.connections.",
        [
            ({"result": "accepted"}, stats.connections_accepted),
            ({"result": "refused"}, stats.connections_closed["limit"]),
        ],
    )
    yield counter(
        "connections_closed",
        "Connections closed, by reason.",
        [({"reason": reason}, count) for reason, count in list(stats.connections_closed.items())],
    )
    yield counter(
        "requests",
        "Requests by API and version.",
        [
            ({"api": api_name(kind >> 16), "version": str(kind & 0xFFFF)}, count)
            for kind, count in stats.request_counts()
        ],
    )
    answered = list(stats.request_time_s.items())
    yield counter(
        "request_bytes",
        "Bytes of requests (in) and of their answers (out) by API, sizes included; an acks=0 produce has no answer.",
        [
            *(({"api": api_name(key), "direction": "in"}, taken) for key, taken in stats.request_bytes().items()),
            *(({"api": api_name(key), "direction": "out"}, times.answer_bytes) for key, times in answered),
        ],
    )
    yield counter(
        "request_errors",
        "Errors answered, of a whole request or of one of its partitions.",
        [({"api": api_name(key), "error": _error_name(code)}, n) for (key, code), n in list(stats.errors.items())],
    )
    yield histogram(
        "request_seconds",
        "From the whole request to its answer (total), and its phases: of one request in 128 of each kind, and of each that is throttled.",
        [
            *(({"api": api_name(key), "phase": "total"}, times) for key, times in answered),
            *(({"api": api_name(key), "phase": phase}, times) for (key, phase), times in list(stats.phase_s.items())),
        ],
    )
    yield counter(
        "network_bytes",
        "Bytes of the Kafka listeners.",
        [({"direction": "in"}, stats.bytes_in), ({"direction": "out"}, stats.bytes_out)],
    )
    yield counter(
        "network_sendfile_bytes", "Bytes sent from files without copying.", [({}, stats.bytes_sent_from_files)]
    )
    yield counter(
        "network_cold_reads",
        "Ranges read ahead from the disk by a thread before they were sent.",
        [({}, stats.cold_reads)],
    )
    yield gauge(
        "request_memory_bytes",
        "Memory of unfinished and waiting requests and of unread answers; queued.max.request.bytes bounds it.",
        [({}, stats.request_memory_bytes())],
    )
    yield counter("network_wake_ups", "Times a connection was read.", [({}, stats.wake_ups)])


def admin_families(sources: NodeSources) -> Iterator[Metric]:
    """The gRPC admin service."""
    stats = sources.admin
    if stats is None:
        return
    yield counter(
        "admin_requests",
        "Admin calls by method and outcome.",
        [({"method": method, "code": code}, count) for (method, code), count in list(stats.requests.items())],
    )
    yield histogram(
        "admin_request_seconds",
        "Duration of admin calls.",
        [({"method": method}, times) for method, times in list(stats.seconds.items())],
    )


def api_name(key: int) -> str:
    """An API key by the protocol's own name: INIT_PRODUCER_ID is InitProducerId."""
    try:
        return ApiKey(key).name.title().replace("_", "")
    except ValueError:
        return "unknown"


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return "unknown"
