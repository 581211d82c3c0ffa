"""One address is enough, and a wrong port is recognised, against a real cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from barnabas_admin.discovery import listeners_of
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import HOST
from barnabas_admin.main import cli
from barnabas_admin.port_probe import GRPC, HTTP, KAFKA, recognise

pytestmark = pytest.mark.cluster


def run(*arguments: str, path: Path, timeout_s: int = 5) -> Result:
    """Without any context."""
    environment = {
        "BARNABAS_ADMIN": "",
        "BARNABAS_BROKERS": "",
        "BARNABAS_CONTEXT": str(path / "none"),
        "XDG_CONFIG_HOME": str(path),
    }
    return CliRunner().invoke(cli, [*arguments, "--timeout", str(timeout_s)], env=environment, catch_exceptions=False)


def test_any_nodes_kafka_or_admin_address_finds_the_rest(barnabas_cluster: LocalCluster, tmp_path: Path) -> None:
    for node in barnabas_cluster.nodes.values():
        kafka, admin = f"{HOST}:{node.kafka_port}", f"{HOST}:{node.admin_port}"
        by_kafka = run("cluster", "info", "-b", kafka, path=tmp_path)
        by_admin = run("cluster", "info", "--admin", admin, path=tmp_path)
        for done in (by_kafka, by_admin):
            assert done.exit_code == 0 and barnabas_cluster.cluster_id in done.stdout, done.output
    found = run("group", "list", "--admin", admin, path=tmp_path)
    assert found.exit_code == 0, "Kafka listeners are found from the admin one"


def test_a_wrong_port_is_recognised_and_named(barnabas_cluster: LocalCluster, tmp_path: Path) -> None:
    node = next(iter(barnabas_cluster.nodes.values()))
    kafka, admin, metrics = (f"{HOST}:{port}" for port in (node.kafka_port, node.admin_port, node.metrics_port))
    assert (recognise(kafka), recognise(admin), recognise(metrics)) == (KAFKA, GRPC, HTTP)
    assert recognise(f"{HOST}:1") is None
    for arguments, reported, fix in (
        (("cluster", "info", "--admin", kafka), f"{kafka} is a Kafka listener, not an admin listener", "with -b"),
        (("cluster", "info", "--admin", metrics), f"{metrics} is a metrics listener, not an admin", "admin.listeners"),
        (("group", "list", "-b", admin), f"{admin} is a gRPC listener (admin or controller), not a Kafka", "--admin"),
        (("group", "list", "-b", metrics), f"{metrics} is a metrics listener, not a Kafka listener", "-b"),
        (("cluster", "info", "--admin", f"{HOST}:{node.controller_port}"), "without this service", "admin.listeners"),
    ):
        done = run(*arguments, path=tmp_path, timeout_s=1)  # gRPC waits as long where nobody speaks it
        assert done.exit_code == 1 and reported in done.stderr and fix in done.stderr, done.output


def test_lines_of_kafkas_scripts_work_with_one_kafka_address(barnabas_cluster: LocalCluster, tmp_path: Path) -> None:
    where = ("--bootstrap-server", f"{HOST}:{next(iter(barnabas_cluster.nodes.values())).kafka_port}")

    def kafka(*arguments: str) -> str:
        environment = {"BARNABAS_ADMIN": "", "BARNABAS_BROKERS": "", "XDG_CONFIG_HOME": str(tmp_path)}
        environment["BARNABAS_CONTEXT"] = str(tmp_path / "none")
        done = CliRunner().invoke(cli, [*arguments, *where], env=environment, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    kafka("kafka-topics", "--create", "--topic", "by-script", "--partitions", "2", "--config", "retention.ms=60000")
    assert "by-script" in kafka("kafka-topics.sh", "--list").splitlines()
    assert "retention.ms  60000" in kafka("kafka-configs", "--topic", "by-script", "--describe")
    group = ("kafka-consumer-groups", "--group", "scripted")
    kafka(*group, "--reset-offsets", "--to-earliest", "--topic", "by-script", "--execute")
    assert "scripted" in kafka(*group, "--describe")
    kafka("kafka-topics", "--delete", "--topic", "by-script")


def test_top_shows_brokers_topics_and_groups(barnabas_cluster: LocalCluster, tmp_path: Path) -> None:
    admin = ("--admin", barnabas_cluster.admin_addresses)
    run("topic", "create", "busy", *admin, path=tmp_path)
    done = run("top", "-n", "2", "-i", "0.2", *admin, path=tmp_path)
    assert done.exit_code == 0, done.output
    first, second = done.stdout.split("BROKER")[1:]
    assert "busy" in first and "busy" in second and "HEALTHY" in done.stdout
    assert "\x1b" not in done.stdout, "no terminal"
    run("topic", "delete", "busy", "--yes", *admin, path=tmp_path)


@pytest.mark.parametrize(
    ("value", "host", "found"),
    [
        ("127.0.0.1:9190", "127.0.0.1", ["127.0.0.1:9190"]),
        ("0.0.0.0:9190", "b1.example", ["b1.example:9190"]),
        ("ADMIN://10.0.0.1:9190, [::]:9191", "b1.example", ["10.0.0.1:9190", "b1.example:9191"]),
        ("127.0.0.1:9190", "b1.example", []),
        ("", "b1.example", []),
    ],
)
def test_a_listener_on_every_address_is_where_its_broker_is(value: str, host: str, found: list[str]) -> None:
    assert listeners_of(value, host) == found, "and one on another host's loopback is nobody's"
