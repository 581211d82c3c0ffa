"""The Kafka side of the commands: run work against the brokers, and the few formats that clients agree on among themselves.

May touch:  barnabas_wire.client, an event loop of its own.    Must not touch: printing, the admin service.
Invariants: an assignment that cannot be read is unknown.
Read next:  commands/records.py, commands/group.py.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from barnabas_admin.errors import WrongUsage
from barnabas_admin.invocation import Invocation
from barnabas_admin.output import talk
from barnabas_admin.unanswered import refuse_other_listeners, unreachable
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.client.metadata import EARLIEST, LATEST, UNKNOWN_TOPIC_CODES, known_code, metadata_request
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.primitives import MalformedMessage

T = TypeVar("T")

CLIENT_ID = "barnabas-cli"
OFFSETS_TIMEOUT_S = 3.0
UNKNOWN_TOPIC_S = 1.0
"""A topic that was created a moment ago may not have come to the broker that answers."""
UNKNOWN_TOPIC_PAUSE_S = 0.05


def run_with_cluster(
    invocation: Invocation, work: Callable[[ClusterClient], Awaitable[T]], *, timeout_s: float | None = None
) -> T:
    """Run `work` on a loop of its own with a client of the invocation's brokers; `timeout_s` bounds each request.

    Raises AdminError when their addresses cannot be read, and what `work` raises.
    """
    servers = invocation.bootstrap_servers()
    security = invocation.client_security()

    async def run() -> T:
        try:
            client = ClusterClient(
                servers, client_id=CLIENT_ID, timeout_s=timeout_s or invocation.timeout_s, security=security
            )
        except ValueError as error:
            raise WrongUsage(
                str(error), hint="name brokers as HOST:PORT,HOST:PORT with -b or BARNABAS_BROKERS"
            ) from None
        try:
            return await work(client)
        except (ConnectionRefusedError, socket.gaierror) as error:
            raise unreachable(error, servers) from error
        except (OSError, KafkaError, MalformedMessage) as error:
            refuse_other_listeners(servers, error, is_tls=security.tls is not None)
            raise
        finally:
            await client.close()

    return asyncio.run(run())


async def is_topic_known(client: ClusterClient, topic: str) -> bool:
    """Whether the cluster has the topic; nothing is created. ClusterClient by itself would ask for seconds, as long-lived
    clients must, and whoever mistyped a name waits at a terminal."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + UNKNOWN_TOPIC_S
    while True:
        (found,) = (await client.call(metadata_request([topic]))).topics
        if found.error_code not in UNKNOWN_TOPIC_CODES:
            return True
        if loop.time() >= deadline_s:
            return False
        await asyncio.sleep(UNKNOWN_TOPIC_PAUSE_S)


def call_any_broker(invocation: Invocation, request: Any) -> Any:
    """Ask one broker, whichever answers; any of them knows, or forwards to the active controller."""

    async def work(client: ClusterClient) -> Any:
        return await client.call(request)

    return run_with_cluster(invocation, work)


def check(answer: Any) -> None:
    """Raise the error that an answer of the Kafka protocol, or one item of it, carries."""
    if answer.error_code:
        raise KafkaError.of(known_code(answer.error_code), answer.error_message or "")


def partition_offsets(
    invocation: Invocation, wanted: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], tuple[int, int]]:
    """(log start offset, high watermark) of each partition; empty, with a word on stderr, when the leaders do not answer."""

    async def work(client: ClusterClient) -> dict[tuple[str, int], tuple[int, int]]:
        partitions = [TopicPartition(topic, index) for topic, index in wanted]
        starts = await client.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = await client.list_offsets(dict.fromkeys(partitions, LATEST))
        return {(p.topic, p.partition): (int(starts[p].offset), int(ends[p].offset)) for p in partitions}

    if not wanted:
        return {}
    try:
        return run_with_cluster(invocation, work, timeout_s=min(OFFSETS_TIMEOUT_S, invocation.timeout_s))
    except (KafkaError, OSError) as error:
        talk(f"offsets are not known: {error}")
        return {}


def assigned_partitions(assignment: bytes) -> list[TopicPartition]:
    """The partitions in a consumer's assignment (ConsumerProtocolAssignment, any version); empty when unreadable.

    Layout: int16 version, int32 topics × (int16 length, name, int32 partitions × int32); the rest is not read.
    """
    found: list[TopicPartition] = []
    try:
        position = 2
        topics, position = _read_count(assignment, position)
        for _ in range(topics):
            size = int.from_bytes(assignment[position : position + 2], "big")
            name = assignment[position + 2 : position + 2 + size].decode()
            count, position = _read_count(assignment, position + 2 + size)
            for _ in range(count):
                found.append(TopicPartition(name, int.from_bytes(assignment[position : position + 4], "big")))
                position += 4
    except (ValueError, UnicodeDecodeError):
        return []
    return found


def _read_count(data: bytes, position: int) -> tuple[int, int]:
    """An array's length; ValueError when the bytes that remain cannot hold it."""
    if position + 4 > len(data):
        raise ValueError("cut off")
    count = int.from_bytes(data[position : position + 4], "big", signed=True)
    if not 0 <= count <= (len(data) - position - 4) // 4:
        raise ValueError("more items than bytes")
    return count, position + 4
