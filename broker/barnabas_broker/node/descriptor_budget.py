"""How the process's file descriptors are shared out.

May touch:  RLIMIT_NOFILE of this process.     Must not touch: files, sockets.
Invariants: open log files and client connections together leave RESERVED_DESCRIPTORS to everything else.
Read next:  barnabas_log/descriptors.py, which closes log files; network/listener.py, which refuses connections.

A log file without a descriptor is opened again when it is used, a connection is not: so connections are refused while the files
still have FILES_SHARE of what there is. A partition has no open file unless somebody reads or writes it, so no topic is too large
for the limit, and none is refused for it.
"""

from __future__ import annotations

import contextlib
import logging
import resource
from typing import NamedTuple

from barnabas_wire.kafka.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

RESERVED_DESCRIPTORS = 160
"""Descriptors kept for the metadata log, the quorum's and the other brokers' connections, gRPC, metrics, listeners, and
connections on their way to be refused."""
FILES_SHARE = 3
"""One in so many of the rest stays for log files, whatever max.connections says."""
FILES_MIN = 32
RESERVE_SHARE = 4
"""The other brokers' reserve is at most one in so many of the connections."""
CONNECTION_DESCRIPTORS = 2
"""The socket, and its duplicate for writing."""
LIMIT_MIN = 256
UNLIMITED = 1 << 20
"""What a process without a limit counts on."""


class DescriptorBudget(NamedTuple):
    """How many descriptors the process has, and for what."""

    limit: int
    files_max: int
    """Log files that stay open without being used."""
    connections_max: int
    """Client connections, at most max.connections."""
    connections_reserved: int
    """Connections of other brokers beside those, at most inter.broker.connections.reserved."""


def split_descriptors(limit: int, *, connections_wanted: int, reserve_wanted: int) -> DescriptorBudget:
    """Share `limit` descriptors among log files, clients' and brokers' connections. Raises KafkaError when they are too few to run."""
    if limit < LIMIT_MIN:
        raise KafkaError.of(
            ErrorCode.INVALID_CONFIG,
            f"this process may open {limit} files and a node needs at least {LIMIT_MIN}: raise the hard limit "
            "(`ulimit -n`, LimitNOFILE= of systemd, --ulimit nofile= of docker)",
        )
    rest = limit - RESERVED_DESCRIPTORS
    files_min = max(FILES_MIN, rest // FILES_SHARE)
    connections = (rest - files_min) // CONNECTION_DESCRIPTORS
    reserved = min(reserve_wanted, connections // RESERVE_SHARE)
    connections_max = min(connections_wanted, connections - reserved)
    spent = (connections_max + reserved) * CONNECTION_DESCRIPTORS
    return DescriptorBudget(limit, rest - spent, connections_max, reserved)


def raise_descriptor_limit() -> int:
    """Raise the soft limit to the hard one; returns what the process may open now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # a sandbox may forbid it: then the soft one is what there is
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def claim_descriptors(*, connections_wanted: int, reserve_wanted: int) -> DescriptorBudget:
    """Raise the limit as far as it goes and share it. Raises KafkaError when it is too low for a node."""
    budget = split_descriptors(
        raise_descriptor_limit(), connections_wanted=connections_wanted, reserve_wanted=reserve_wanted
    )
    if budget.connections_max < connections_wanted:
        logger.info(
            "the limit of %d open files allows %d client connections, fewer than max.connections=%d: raise it (ulimit -n), or "
            "lower max.connections",
            budget.limit,
            budget.connections_max,
            connections_wanted,
        )
    return budget
