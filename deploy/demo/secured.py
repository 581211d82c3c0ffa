"""`make demo SECURE=1`: what makes the demo's six processes a cluster that nobody enters unasked.

TLS on every listener but metrics, certificates between nodes, SCRAM for clients, ACLs for three users that may do their own work alone:
`flights` writes the rows, `spark` reads them and writes its topic in transactions, `judge` reads everything.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from barnabas_admin.local_node import LocalNode
from barnabas_admin.local_security import MECHANISM, LocalSecurity
from barnabas_wire.kafka.ids import Uuid

HOST = "127.0.0.1"
INTERNAL_PORT_OFFSET = 80
"""From a broker's port for clients to the one for other brokers: 9092 and 9172."""
PRODUCER, READER, JUDGE = "flights", "spark", "judge"
Barnabas = Callable[..., str]
"""Runs a command of the CLI as the operator."""


class Secured:
    """Certificates, users and settings of one run."""

    def __init__(self, directory: Path, cluster_id: str, nodes: Sequence[tuple[int, Mapping[str, str]]]) -> None:
        """`nodes`: id and properties of each."""
        self._nodes = {node_id: _local_node(node_id, properties, directory) for node_id, properties in nodes}
        self._local = LocalSecurity(directory, cluster_id, dict.fromkeys(self._nodes, HOST))
        self._local.write(self._nodes.values())
        self._passwords = {name: secrets.token_urlsafe(18) for name in (PRODUCER, READER, JUDGE)}
        self.client_config = self._local.client_file

    @property
    def _brokers(self) -> str:
        return ",".join(f"{HOST}:{node.kafka_port}" for node in self._nodes.values() if node.is_broker)

    def properties(self, node_id: int, plain: Mapping[str, str]) -> dict[str, str]:
        """A node's properties with security."""
        node = self._nodes[node_id]
        found = {**plain, **self._local.properties(node)}
        if node.is_broker:
            listeners = ",".join(self._local.listeners(node))
            found |= {"listeners": listeners, "advertised.listeners": listeners}
        return found

    def make_users(self, barnabas: Barnabas, topics: Sequence[str], result: str) -> list[str]:
        """The first user, then the demo's; returns the lines to show."""
        peers = ",".join(f"{HOST}:{node.internal_port}" for node in self._nodes.values() if node.is_broker)
        self._local.make_first_user(peers, timeout_s=30.0)
        for name, password in self._passwords.items():
            barnabas("user", "create", name, "--mechanism", MECHANISM, "-b", self._brokers, said=password)
        rights: list[tuple[str, tuple[str, ...], str, str]] = [
            (PRODUCER, ("write",), "topic", topic) for topic in topics
        ]
        rights += [(user, ("read",), "topic", topic) for user in (READER, JUDGE) for topic in (*topics, result)]
        rights += [
            (READER, ("write",), "topic", result),
            (READER, ("write", "two-phase-commit"), "transactional-id", f"demo-{result}*"),
            # Where the sink keeps which of its transactions are decided: offsets of a group of its own (docs/spark.md).
            (READER, ("read",), "topic", "__transaction_state"),
            (READER, ("read",), "group", f"demo-{result}.decisions"),
            (JUDGE, ("read",), "group", "demo-verify"),
        ]
        for user, operations, resource, name in rights:
            given = [word for operation in operations for word in ("--operation", operation)]
            pattern = ["--pattern", "prefixed"] if name.endswith("*") else []
            barnabas(
                "acl",
                "create",
                "--allow",
                f"User:{user}",
                *given,
                "--resource",
                resource,
                "--name",
                name.rstrip("*"),
                *pattern,
            )
        return [f"{len(self._passwords)} users with {MECHANISM} over TLS, and {len(rights)} ACLs for them"]

    def librdkafka(self, user: str) -> dict[str, str]:
        """How a librdkafka client comes in."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self._local.authority),
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": self._passwords[user],
        }

    def write_spark_options(self, file: Path) -> None:
        """What Spark's source and sink take, in a file of its owner's alone."""
        jaas = "org.apache.kafka.common.security.scram.ScramLoginModule"
        options = {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(self._local.authority),
            "kafka.sasl.mechanism": MECHANISM,
            "kafka.sasl.jaas.config": f'{jaas} required username="{READER}" password="{self._passwords[READER]}";',
        }
        _write_secret(file, "".join(f"{name}={value}\n" for name, value in options.items()))


def _local_node(node_id: int, properties: Mapping[str, str], directory: Path) -> LocalNode:
    is_broker = properties["process.roles"] == "broker"
    port = int(properties["listeners"].rpartition(":")[2])
    return LocalNode(
        id=node_id,
        is_broker=is_broker,
        is_controller=not is_broker,
        directory=directory,
        directory_id=Uuid(bytes(16)),
        kafka_port=port if is_broker else None,
        controller_port=None if is_broker else port,
        admin_port=int(properties["admin.listeners"].rpartition(":")[2]),
        metrics_port=int(properties["metrics.listeners"].rpartition(":")[2]),
        internal_port=port + INTERNAL_PORT_OFFSET if is_broker else None,
    )


def _write_secret(file: Path, text: str) -> None:
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
        out.write(text)
