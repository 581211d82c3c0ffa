"""A real Prometheus server scrapes a real cluster: every target is up, and its queries answer."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_admin.generating.grafana import dashboards
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port, is_port_free
from tests.support.clusters import ForkedCluster

pytestmark = [pytest.mark.tools, pytest.mark.cluster]

SETTLE_S = 60.0
DEPLOYED = Path(__file__).resolve().parents[2] / "admin" / "barnabas_admin" / "samples"


class Prometheus:
    """The server's HTTP API."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str, **parameters: str) -> Any:
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        return [(row["metric"], float(row["value"][1])) for row in self.get("query", query=expression)["result"]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with ForkedCluster(tmp_path_factory.mktemp("scraped"), nodes=3, base_port=find_base_port()) as running:
        yield running


@pytest.fixture(scope="module")
def prometheus(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("needs the Debian package prometheus")
    directory = tmp_path_factory.mktemp("prometheus")
    port = find_base_port()
    assert is_port_free(port)
    # The file that `dev` writes, scraped each second so that the test need not wait.
    written = cluster.prometheus_file.read_text()
    assert "scrape_interval: 5s" in written
    rules = f"rule_files: [{json.dumps(str(DEPLOYED / 'prometheus' / 'alerts.yml'))}]\n"
    (directory / "prometheus.yml").write_text(written.replace("_interval: 5s", "_interval: 1s") + rules)
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={directory}/prometheus.yml",
                f"--storage.tsdb.path={directory}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        server = Prometheus(port)
        deadline = time.monotonic() + SETTLE_S
        while True:
            assert process.poll() is None, (directory / "log").read_text()
            try:
                targets = server.get("targets")["activeTargets"]
                # A target is up a moment before what it told can be queried, and each lane of it tells of its first probe.
                lanes = server.query("barnabas_loop_lag_seconds_count > 0")
                if len(targets) == 3 and all(target["health"] == "up" for target in targets) and len(lanes) == 6:
                    break
            except OSError:
                targets = []
            assert time.monotonic() < deadline, f"not all targets are up: {targets}"
            time.sleep(0.2)
        yield server
    finally:
        process.terminate()
        process.wait(30)


def test_all_targets_are_up(prometheus: Prometheus) -> None:
    assert sorted((labels["node"], value) for labels, value in prometheus.query('up{job="barnabas"}')) == [
        ("1", 1.0),
        ("2", 1.0),
        ("3", 1.0),
    ]


def test_the_queries_of_an_operator_answer(prometheus: Prometheus) -> None:
    assert prometheus.query("sum(barnabas_controller_active)")[0][1] == 1
    assert prometheus.query('barnabas_controller_brokers{state="active"}')[0][1] == 3
    assert prometheus.query("max(barnabas_controller_offline_partitions)")[0][1] == 0
    assert len(prometheus.query("barnabas_raft_high_watermark > 0")) == 3
    lanes = {labels["lane"] for labels, _ in prometheus.query("barnabas_loop_lag_seconds_count")}
    assert lanes == {"control", "data"}
    quantiles = prometheus.query(
        'histogram_quantile(0.99, sum by (le, lane) (barnabas_loop_lag_seconds_bucket{lane="control"}))'
    )
    assert quantiles[0][1] >= 0


def test_every_panel_of_the_dashboards_has_an_answer(prometheus: Prometheus, cluster: LocalCluster) -> None:
    """Each expression, as Grafana asks it, over a cluster with producers, a group, transactions, moves of leaders and one error."""
    use(cluster)
    deadline = time.monotonic() + SETTLE_S
    asked = {all_chosen(expression) for each in dashboards() for expression in each.expressions()}
    waiting = set(asked)
    while waiting and time.monotonic() < deadline:
        waiting = {expression for expression in waiting if not prometheus.query(expression)}
        time.sleep(0.5)
    assert len(asked) > 40 and not waiting


def all_chosen(expression: str) -> str:
    for name in ("$cluster", "$node", "$topic"):
        expression = expression.replace(name, ".*")
    return expression.replace("$__rate_interval", "1m")


def use(cluster: LocalCluster) -> None:
    """Give every family something to count."""
    servers = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
    admin = AdminClient(servers)
    admin.create_topics([NewTopic("drawn", 3, 3)])["drawn"].result(30)
    producer = Producer({**servers, "transactional.id": "drawn"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(300):
        producer.produce("drawn", b"x" * 100, partition=number % 3)
    producer.commit_transaction(30)
    consumer = Consumer({**servers, "group.id": "drawers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["drawn"])
    assert len(consumer.consume(300, 30)) == 300
    consumer.commit(asynchronous=False)
    # It stays a member: a group without members has no rebalances to show.
    KEPT_OPEN.append(consumer)
    beyond = Consumer({**servers, "group.id": "lost", "auto.offset.reset": "error"})
    beyond.assign([TopicPartition("drawn", 0, 1_000_000)])
    message = beyond.poll(30)
    assert message is not None and message.error() is not None, "a Fetch beyond the end is an error"
    beyond.close()


KEPT_OPEN: list[Consumer] = []


@pytest.fixture(scope="module", autouse=True)
def close_consumers(cluster: LocalCluster) -> Iterator[None]:
    yield  # before the cluster stops, or a close waits for its coordinator
    while KEPT_OPEN:
        KEPT_OPEN.pop().close()


def test_the_deployed_alerts_are_evaluated_and_silent(prometheus: Prometheus) -> None:
    deadline = time.monotonic() + SETTLE_S
    while True:
        rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
        if rules and all(rule["health"] == "ok" for rule in rules):
            break
        assert time.monotonic() < deadline, rules
        time.sleep(0.2)
    firing = {rule["name"] for rule in rules if rule["state"] == "firing"}
    assert firing <= {"DiskNearlyFull"}, "but for this machine's own disk all is well"


def test_prometheus_accepts_every_metric(cluster: LocalCluster) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool of the Debian package prometheus")
    status, page = cluster.http_get(1, "/metrics")
    assert status == 200
    done = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, text=True, check=False)
    # Exit status 3 is lint about style; what cannot be parsed is 1.
    complaints = [line for line in done.stderr.splitlines() if "barnabas_" in line]
    assert done.returncode in (0, 3), done.stderr
    assert complaints == []


def test_the_deployed_configuration_names_every_node() -> None:
    file = DEPLOYED / "prometheus" / "prometheus.yml"
    targets = dict(re.findall(r"- targets: \['(.*)'\]\n +labels: {node: '(.*)'}", file.read_text()))
    expected = {}
    for node in (DEPLOYED / "config").glob("*.properties"):
        properties = dict(line.split("=", 1) for line in node.read_text().splitlines() if "=" in line)
        expected[properties["metrics.listeners"]] = properties["node.id"]
    assert targets == expected
    promtool = shutil.which("promtool")
    if promtool is not None:
        subprocess.run([promtool, "check", "config", str(file)], check=True, capture_output=True)
