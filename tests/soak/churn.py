"""`python -m tests.soak.churn --bootstrap … --admin …`: connections, topics, groups and producer ids that come and go.

May touch:  the cluster as its clients.   Must not touch: figures, verdicts.
Invariants: everything that is made is ended: closed, deleted, or left to expire; every wait is bounded.
Read next:  __main__.py, which runs one of these per cycle.

Runs until its standard input ends, then prints one JSON object: what was done how often, and the errors by their words.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_admin.client import AdminClient as GrpcClient
from barnabas_admin.errors import AdminError

STEADY = "steady"
STEADY_PARTITIONS = 6
STEADY_CONFIGS = {"retention.bytes": "1048576", "segment.bytes": "1048576"}
RECORDS = 50
READ_WITHIN_S = 30.0
CALL_TIMEOUT_S = 20.0
MEMBERS = 2
PER_SECOND = 200
"""Of the steady producer."""
CONNECTIONS_PER_SECOND = 40
_COMMON = {"log_level": 2, "reconnect.backoff.max.ms": 500}


class Churn:
    """All kinds of it, a thread each."""

    def __init__(self, bootstrap: str, admin: str, seed: int) -> None:
        self._bootstrap = bootstrap
        self._admin_addresses = admin
        self._addresses = [
            (host, int(port)) for host, _, port in (part.rpartition(":") for part in bootstrap.split(","))
        ]
        self._random = Random(seed)
        self._unique = f"{seed}-{os.getpid()}"
        self._is_over = threading.Event()
        self.done: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()

    def run(self) -> None:
        """Work until standard input ends."""
        works = (self._connect, self._make_topics, self._make_producers, self._make_groups, self._ask_grpc, self._write)
        threads = [threading.Thread(target=self._repeat, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        while os.read(0, 4096):
            pass
        self._is_over.set()
        for thread in threads:
            thread.join()

    def _repeat(self, work: Callable[[int], None]) -> None:
        number = 0
        while not self._is_over.is_set():
            try:
                work(number)
            except (KafkaException, AdminError, OSError, TimeoutError) as error:
                self.errors[f"{work.__name__.strip('_')}: {str(error)[:160]}"] += 1
                self._is_over.wait(0.5)
            number += 1

    # -- connections -----------------------------------------------------------------------------------------------

    def _connect(self, number: int) -> None:
        """One connection of a client of its own name: closed in order, reset, or left in the middle of a frame."""
        with socket.create_connection(self._random.choice(self._addresses), timeout=CALL_TIMEOUT_S) as connection:
            frame = api_versions(number, client_id=f"soak-{self._unique}-{number}", software=f"soak{number}")
            if number % 3 == 2:
                connection.sendall(frame[: len(frame) // 2])
            else:
                connection.sendall(frame)
                read_frame(connection)
            if number % 3 == 1:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.done["connections"] += 1
        self._is_over.wait(1 / CONNECTIONS_PER_SECOND)

    def _ask_grpc(self, number: int) -> None:
        with GrpcClient(self._admin_addresses, timeout_s=CALL_TIMEOUT_S) as admin:
            admin.describe_cluster()
        self.done["admin connections"] += 1
        self._is_over.wait(0.5)

    # -- topics, producer ids, groups --------------------------------------------------------------------------------

    def _make_topics(self, number: int) -> None:
        """A topic is made, written, read by a group that commits, and both are deleted."""
        name = f"soak-{self._unique}-{number}"
        admin = AdminClient(_COMMON | {"bootstrap.servers": self._bootstrap})
        _wait(admin.create_topics([NewTopic(name, num_partitions=3, replication_factor=3)]))
        try:
            self._produce(name)
            self._read(name, f"group-{name}", members=1)
        finally:
            _wait(admin.delete_topics([name]))
        self.done["topics"] += 1

    def _make_producers(self, number: int) -> None:
        self._produce(STEADY)
        self._is_over.wait(0.1)

    def _make_groups(self, number: int) -> None:
        """Members join a group one after the other, read, and leave; the group is deleted."""
        self._read(STEADY, f"churn-{self._unique}-{number}", members=MEMBERS)

    def _write(self, number: int) -> None:
        """The load that goes on: a second of it."""
        producer = self._producer()
        begun = time.monotonic()
        for sent in range(10 * PER_SECOND):
            producer.produce(STEADY, b"x" * 500)
            producer.poll(max(0.0, begun + sent / PER_SECOND - time.monotonic()))
            if self._is_over.is_set():
                break
        self.done["steady records"] += sent + 1
        self._flush(producer)

    # -- parts of these --------------------------------------------------------------------------------------------

    def _producer(self) -> Producer:
        return Producer(
            _COMMON
            | {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 60_000,
            }
        )

    def _flush(self, producer: Producer) -> None:
        if left := producer.flush(CALL_TIMEOUT_S):
            raise TimeoutError(f"{left} records have no report after {CALL_TIMEOUT_S:.0f} s")

    def _produce(self, topic: str) -> None:
        """Through a producer id of its own."""
        producer = self._producer()
        failed: list[str] = []
        for _ in range(RECORDS):
            producer.produce(
                topic, b"x" * 100, on_delivery=lambda error, _: failed.append(str(error)) if error else None
            )
        self._flush(producer)
        if failed:
            raise TimeoutError(f"a record was not taken: {failed[0]}")
        self.done["producer ids"] += 1

    def _read(self, topic: str, group: str, *, members: int) -> None:
        """RECORDS records by a group whose members join one by one, commit and leave; then it is deleted."""
        settings: dict[str, Any] = _COMMON | {
            "bootstrap.servers": self._bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        consumers = []
        read = 0
        deadline = time.monotonic() + READ_WITHIN_S
        try:
            for _ in range(members):
                consumers.append(Consumer(settings))
                consumers[-1].subscribe([topic])
                read += _count(consumers[-1], timeout=0.2)
            while read < RECORDS:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{read} of {RECORDS} records were read within {READ_WITHIN_S:.0f} s")
                read += sum(_count(consumer, timeout=0.1) for consumer in consumers)
            for consumer in consumers:
                if consumer.assignment() and any(
                    place.offset >= 0 for place in consumer.position(consumer.assignment())
                ):
                    consumer.commit(asynchronous=False)
        finally:
            for consumer in consumers:
                consumer.close()
            admin = AdminClient(_COMMON | {"bootstrap.servers": self._bootstrap})
            _wait(admin.delete_consumer_groups([group]))
        self.done["group members"] += members


def _count(consumer: Consumer, *, timeout: float) -> int:
    """Records that came within a time."""
    return sum(message.error() is None for message in consumer.consume(RECORDS, timeout=timeout))


def _wait(futures: dict[str, Any]) -> None:
    for future in futures.values():
        future.result(timeout=CALL_TIMEOUT_S)


def api_versions(correlation: int, *, client_id: str, software: str) -> bytes:
    """A frame with ApiVersions v3."""
    name, version = software.encode(), b"1"
    header = struct.pack(">hhih", 18, 3, correlation & 0x7FFFFFFF, len(client_id)) + client_id.encode() + b"\0"
    body = bytes([len(name) + 1]) + name + bytes([len(version) + 1]) + version + b"\0"
    return struct.pack(">i", len(header) + len(body)) + header + body


def read_frame(connection: socket.socket) -> bytes:
    """One response. Raises OSError when the connection ends before it does."""
    with connection.makefile("rb") as stream:
        (size,) = struct.unpack(">i", stream.read(4).ljust(4, b"\0"))
        data = stream.read(size)
    if not size or len(data) < size:
        raise OSError("the connection ended in the middle of a response")
    return data


def main() -> int:
    """Run as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--admin", required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    churn = Churn(options.bootstrap, options.admin, options.seed)
    churn.run()
    print(json.dumps({"done": churn.done, "errors": churn.errors}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
