"""Three secured nodes with ACLs: brokers replicate and coordinate as themselves, forwarded changes are judged by who asked."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from barnabas_quorum.image.authorizer import STANDARD_AUTHORIZER

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("authorized")
    overrides = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin;User:node-1;User:node-2;User:node-3",
        "audit.log.path": str(directory / "audit.log"),
    }
    with LocalCluster(directory, nodes=3, base_port=find_base_port(), is_secured=True, overrides=overrides) as running:
        yield running


def barnabas(cluster: LocalCluster, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    assert cluster.security is not None
    where = ["--admin", cluster.admin_addresses, "-b", cluster.bootstrap_servers]
    command = [sys.executable, "-m", "barnabas_admin.main", *words, *where]
    command += ["--client-config", str(cluster.security.client_file)]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    return done


def settings(cluster: LocalCluster, user: str) -> dict[str, str]:
    assert cluster.security is not None
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "log_level": "0",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(cluster.security.authority),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": f"of-{user}",
    }


def test_every_broker_judges_alike_and_the_controller_again(cluster: LocalCluster) -> None:
    barnabas(cluster, "user", "create", "ann", stdin="of-ann\n")
    barnabas(cluster, "topic", "create", "orders", "-p", "6", "-r", "3")
    allow = ("acl", "create", "--allow", "User:ann", "--operation", "write", "--operation", "idempotent-write")
    barnabas(cluster, *allow[:-2], "--resource", "topic", "--name", "orders")
    barnabas(cluster, *allow[:4], "--operation", "write", "--resource", "transactional-id", "--name", "ann-1")
    producer = Producer({**settings(cluster, "ann"), "transactional.id": "ann-1", "acks": "all"})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    for number in range(60):
        producer.produce("orders", str(number), str(number))
    producer.commit_transaction(DEADLINE_S)
    consumed = barnabas(cluster, "topic", "consume", "orders", "-n", "60")
    assert len(consumed.stdout.splitlines()) == 60
    ann, new = AdminClient(settings(cluster, "ann")), NewTopic("wages", 1, 3)
    with pytest.raises(KafkaException) as refused:
        ann.create_topics([new], operation_timeout=20)["wages"].result(DEADLINE_S)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    barnabas(
        cluster,
        "acl",
        "create",
        "--allow",
        "User:ann",
        "--operation",
        "create",
        "--resource",
        "topic",
        "--name",
        "wages",
    )
    ann.create_topics([new], operation_timeout=20)["wages"].result(DEADLINE_S)
    described = json.loads(barnabas(cluster, "cluster", "health", "-o", "json").stdout)
    assert not described.get("under_replicated"), described


def test_who_changed_what_is_in_the_audit_log(cluster: LocalCluster) -> None:
    files = sorted(cluster.directory.glob("audit.log*"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    made = [
        (line["principal"], change["after"].get("name"))
        for line in lines
        if line["kind"] == "change" and line["request"] == "CreateTopics"
        for change in line["changes"]
        if change["record"] == "Topic"
    ]
    assert ("User:admin", "orders") in made and ("User:ann", "wages") in made
    denied = [line for line in lines if line["kind"] == "denied" and line["principal"] == "User:ann"]
    assert {line["resource"] for line in denied} == {"wages"}
    assert not [file for file in files if "of-ann" in file.read_text()]
