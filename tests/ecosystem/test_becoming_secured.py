"""A cluster in plain text becomes one of TLS, logins and ACLs, node after node, while it takes and gives records.

The steps are those of docs/securing-a-running-cluster.md; what is here is changed there too.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_admin import pki
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_node import LocalNode
from barnabas_admin.local_ports import HOST, find_base_port
from barnabas_wire.rpc import bootstrap_pb2
from barnabas_wire.rpc.bootstrap_pb2_grpc import BootstrapStub
from barnabas_wire.rpc.peers import peer_name
from tests.ecosystem.java import IS_FULL

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not IS_FULL, reason="twenty-seven restarts take two minutes: make ecosystem runs them"),
]

TOPIC, PARTITIONS = "ledger", 6
TIMEOUT_S = 60.0
PAUSE_S = 0.002
BROKERS_PORT_OFFSET, CLIENTS_PORT_OFFSET, ADMIN_PORT_OFFSET = 10, 30, 33
RETRIABLE = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE}
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class Load:
    """Writes numbered records until it is told to stop; knows what came of each."""

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        self.name = name
        self.acknowledged: set[str] = set()
        self.errors: Counter[str] = Counter()
        self.sent = 0
        self._stop = threading.Event()
        self._producer = Producer(
            {
                **settings,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "error_cb": self._heard,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Wait until everything is answered."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(TIMEOUT_S) == 0
        assert not self.errors
        assert len(self.acknowledged) == self.sent > 0

    def _run(self) -> None:
        while not self._stop.is_set():
            key = f"{self.name}-{self.sent}"
            self._producer.produce(TOPIC, b"x" * 200, key=key, on_delivery=self._delivered)
            self.sent += 1
            self._producer.poll(0)
            time.sleep(PAUSE_S)

    def _heard(self, error: KafkaError) -> None:
        if error.code() not in RETRIABLE and not error.retriable():
            self.errors[error.str()] += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.add(message.key().decode())
        else:
            self.errors[error.str()] += 1


class Roll:
    """Gives nodes their properties, one after another, and waits until all replicas are in sync again."""

    def __init__(self, cluster: LocalCluster, authority: Path) -> None:
        self._cluster = cluster
        self._authority = authority
        self._restarts = 0

    def to(
        self,
        step: Mapping[str, str],
        *,
        listeners: list[str],
        admin_listeners: list[str],
        operators: Mapping[str, Sequence[str]],
        watch: AdminClient,
    ) -> None:
        """Restart every node with these.

        Args:
            operators: by an admin listener that serves them, how the command line is let in.
        """
        for node in self._cluster.nodes.values():
            kafka = [self._at(name, node) for name in listeners] if node.is_broker else []
            own = {
                "listeners": ",".join([*kafka, *([self._at("CONTROLLER", node)] if node.is_controller else [])]),
                "advertised.listeners": ",".join(kafka),
                "admin.listeners": ",".join(self._at(name, node) for name in admin_listeners),
                "ssl.keystore.location": str(self._authority / f"node-{node.id}.pem"),
            }
            properties = self._cluster.properties(node.id) | dict(step) | own
            node.properties_file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
            self._cluster.restart(node.id)
            self._cluster.wait_until(partial(self._cluster.is_ready, node.id), timeout_s=TIMEOUT_S, what="a start")
            self._cluster.wait_until(lambda: is_in_sync(watch), timeout_s=TIMEOUT_S, what="full in-sync replicas")
            for name, words in operators.items():
                barnabas("topic", "list", "--admin", self._at(name, node).rpartition("/")[2], *words)
            # and the controllers, of which some may speak TLS and some not yet, decide and commit
            self._restarts += 1
            name = f"after-{self._restarts}"
            watch.create_topics([NewTopic(name, 1, 3)])[name].result(TIMEOUT_S)

    def _at(self, name: str, node: LocalNode) -> str:
        base, index = self._cluster.base_port, sorted(self._cluster.nodes).index(node.id)
        ports = {
            "PLAINTEXT": node.kafka_port,
            "CONTROLLER": node.controller_port,
            "BROKERS": base + BROKERS_PORT_OFFSET + index,
            "CLIENTS": base + CLIENTS_PORT_OFFSET + index,
            "OPEN": node.admin_port,
            "ADMIN": base + ADMIN_PORT_OFFSET + index,
        }
        return f"{name}://{HOST}:{ports[name]}"


def is_in_sync(watch: AdminClient) -> bool:
    try:
        partitions = watch.list_topics(TOPIC, timeout=5).topics[TOPIC].partitions.values()
    except Exception:  # between two leaders; asked again
        return False
    return len(partitions) == PARTITIONS and all(len(each.isrs) == 3 and each.leader > 0 for each in partitions)


@pytest.fixture(params=["combined", "separate"])
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "cluster", nodes=3, base_port=find_base_port(), roles=request.param) as running:
        yield running


async def call_controller(address: str) -> grpc.StatusCode | None:
    """What a stranger hears who asks in plain text; None: he is answered."""
    async with grpc.aio.insecure_channel(address) as channel:
        try:
            await BootstrapStub(channel).DescribeQuorum(bootstrap_pb2.DescribeQuorumRequest(), timeout=10)
        except grpc.aio.AioRpcError as error:
            return error.code()
    return None


def barnabas(*words: str, stdin: str = "") -> None:
    done = subprocess.run(
        [sys.executable, "-m", "barnabas_admin.main", *words], input=stdin, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_a_running_cluster_is_secured_without_an_error_beyond_the_retriable(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    plain = {"bootstrap.servers": cluster.bootstrap_servers}
    open_admin = AdminClient({**plain, "log_level": 0})
    open_admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})])[TOPIC].result(30)

    # Before: an authority, a certificate for each node and for the operator.
    authority = tmp_path / "pki"
    pki.init(authority)
    for node_id in cluster.nodes:
        pki.issue(authority, f"node-{node_id}", hosts=[HOST, peer_name(node_id, cluster.cluster_id)])
    pki.issue(authority, "admin")
    operator = tmp_path / "operator.properties"
    operator.write_text(
        f"admin.security.protocol=SSL\nssl.truststore.location={authority / 'ca.pem'}\n"
        f"ssl.keystore.location={authority / 'admin.pem'}\n"
    )
    with_certificate = ["--client-config", str(operator)]
    roll = Roll(cluster, authority)
    load = Load("plain", plain)

    # Step 1: listeners with TLS beside the plain one.
    protocols = "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL,BROKERS:SSL,CONTROLLER:PLAINTEXT,OPEN:PLAINTEXT,ADMIN:SSL"
    on_both: dict[str, Any] = {
        "listeners": ["PLAINTEXT", "CLIENTS", "BROKERS"],
        "admin_listeners": ["OPEN", "ADMIN"],
        "operators": {"OPEN": [], "ADMIN": with_certificate},
    }
    step = {
        "listener.security.protocol.map": protocols,
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.truststore.location": str(authority / "ca.pem"),
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+)$/$1/",
        "listener.name.brokers.ssl.client.auth": "required",
        "listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "controller.listeners.dial.plaintext": "true",
    }
    roll.to(step, **on_both, watch=open_admin)
    assert load.sent > 100 and not load.errors

    # Step 2: brokers fetch from each other over TLS, and controllers take nothing else.
    step |= {
        "inter.broker.listener.name": "BROKERS",
        "listener.security.protocol.map": protocols.replace("CONTROLLER:PLAINTEXT", "CONTROLLER:SSL"),
    }
    roll.to(step, **on_both, watch=open_admin)

    # Step 3: users and what they may do; then clients move.
    clients = ",".join(f"{HOST}:{cluster.base_port + CLIENTS_PORT_OFFSET + index}" for index in range(3))
    where = ["-b", cluster.bootstrap_servers]
    for user in ("writer", "admin"):
        barnabas("user", "create", user, *where, stdin=f"of {user}\n")
    rights = [("topic", TOPIC, ["read", "write", "describe"]), ("group", "audit", ["read"])]
    for kind, name, operations in rights:
        options = [word for operation in operations for word in ("--operation", operation)]
        barnabas("acl", "create", "--allow", "User:writer", *options, "--resource", kind, "--name", name, *where)

    def secured(user: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": clients,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority / "ca.pem"),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": f"of {user}",
            "log_level": 0,
        }

    moved = Load("secured", secured("writer"))
    cluster.wait_until(lambda: len(moved.acknowledged) > 100, timeout_s=TIMEOUT_S, what="the move")
    load.stop()

    # Step 4: ACLs count, and the plain listener is gone.
    step |= {
        "listener.security.protocol.map": "CLIENTS:SASL_SSL,BROKERS:SSL,CONTROLLER:SSL,ADMIN:SSL",
        "authorizer.class.name": AUTHORIZER,
        "super.users": ";".join(["User:admin", *(f"User:node-{node_id}" for node_id in cluster.nodes)]),
        "controller.listeners.dial.plaintext": "false",
    }
    admin = AdminClient(secured("admin"))
    roll.to(
        step,
        listeners=["CLIENTS", "BROKERS"],
        admin_listeners=["ADMIN"],
        operators={"ADMIN": with_certificate},
        watch=admin,
    )
    moved.stop()

    # After: everything acknowledged is there once, and strangers are out.
    consumer = Consumer(
        {**secured("writer"), "group.id": "audit", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe([TOPIC])
    wanted, seen = load.acknowledged | moved.acknowledged, Counter[str]()
    deadline = time.monotonic() + TIMEOUT_S
    while len(seen) < len(wanted) and time.monotonic() < deadline:
        for message in consumer.consume(1000, 1.0):
            assert message.error() is None
            seen[message.key().decode()] += 1
    consumer.close()
    assert set(seen) == wanted and set(seen.values()) == {1}
    for node in cluster.nodes.values():
        for port in filter(None, (node.kafka_port, node.admin_port)):
            assert f":{port:04X} 00000000:0000 0A" not in Path("/proc/net/tcp").read_text()
        if node.is_controller:
            refused = asyncio.run(call_controller(f"{HOST}:{node.controller_port}"))
            assert refused is grpc.StatusCode.UNAVAILABLE
    writers = AdminClient(secured("writer"))
    futures = writers.create_topics([NewTopic("mine", 1, 1)])
    with pytest.raises(Exception, match="AUTHORIZATION_FAILED"):
        futures["mine"].result(30)
