"""What `barnabas generate` writes is accepted by those it is for: Kubernetes' schemas, systemd, Prometheus, a node."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

from barnabas_admin.generating.container import DOCKERFILE
from barnabas_admin.generating.yaml import to_yaml
from barnabas_admin.main import cli
from barnabas_broker.config.server import read_properties
from barnabas_broker.main import main as server
from barnabas_broker.node.storage import initial_controllers

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
OLDEST_KUBERNETES = "1.31"


def generated(*words: str) -> dict[str, str]:
    done = CliRunner().invoke(cli, ["generate", *words, "-o", "json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout)["files"])


def a_node_takes(
    environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a warning: every key is known."""
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert server(["check"]) == 0
    assert not caplog.messages


def test_kubernetes_takes_every_manifest() -> None:
    (text,) = generated("k8s", "--namespace", "streams", "--brokers", "4").values()
    documents = list(yaml.safe_load_all(text))
    for version in (OLDEST_KUBERNETES, kubernetes_validate.latest_version()):
        for document in documents:
            kubernetes_validate.validate(document, version, strict=True)
    kinds = [document["kind"] for document in documents]
    assert kinds.count("StatefulSet") == kinds.count("PodDisruptionBudget") == 2 and "NetworkPolicy" in kinds
    assert {document["metadata"]["namespace"] for document in documents} == {"streams"}
    with pytest.raises(kubernetes_validate.ValidationError):
        broken = json.loads(json.dumps(documents[4]).replace('"replicas"', '"copies"'))
        kubernetes_validate.validate(broken, OLDEST_KUBERNETES, strict=True)


def pods(text: str) -> dict[str, dict[str, Any]]:
    """StatefulSets by name."""
    return {each["metadata"]["name"]: each for each in yaml.safe_load_all(text) if each["kind"] == "StatefulSet"}


@pytest.mark.parametrize(("name", "first"), [("barnabas-controller", 101), ("barnabas-broker", 1)])
def test_a_node_takes_the_properties_of_its_pod(
    name: str, first: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (text,) = generated("k8s").values()
    found = pods(text)[name]["spec"]
    assert found["ordinals"]["start"] == first
    (container,) = found["template"]["spec"]["containers"]
    environment = {"POD_NAME": f"{name}-{first}", "KAFKA_NODE_ID": str(first)}
    for variable in container["env"]:
        value = variable.get("value", "")
        if value:
            environment[variable["name"]] = value.replace("$(POD_NAME)", environment["POD_NAME"])
    a_node_takes(environment, monkeypatch, caplog)
    probes = [container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")]
    assert probes == ["/livez", "/livez", "/readyz"]
    own = f"{name}-{first}.barnabas-{name.rpartition('-')[2]}s.default.svc.cluster.local"
    assert own in environment["KAFKA_ADVERTISED_LISTENERS"]
    assert name == "barnabas-broker" or own in environment["KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS"]


def test_the_first_voters_are_those_of_the_first_start() -> None:
    (text,) = generated("k8s", "--controllers", "5").values()
    first = next(iter(yaml.safe_load_all(text)))
    assert first["metadata"]["name"] == "barnabas-first-start"
    voters = initial_controllers(first["data"]["format-for"].partition("/")[2])
    assert sorted(key.id for key in voters.keys) == [101, 102, 103, 104, 105]
    (variable,) = [
        each
        for each in pods(text)["barnabas-controller"]["spec"]["template"]["spec"]["containers"][0]["env"]
        if each["name"] == "BARNABAS_FORMAT_FOR"
    ]
    assert variable["valueFrom"]["configMapKeyRef"]["optional"], "it is deleted once the cluster runs"


def test_a_compose_file_has_nodes_that_start_and_publishes_loopback_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    files = generated("compose")
    compose = yaml.safe_load(files["compose.yml"])
    assert set(compose["services"]) == {"node-1", "node-2", "node-3", "console", "prometheus", "grafana"}
    for service in compose["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    environment = compose["services"]["node-2"]["environment"]
    assert environment.pop("BARNABAS_FORMAT_FOR") == "${BARNABAS_FORMAT_FOR:-}"
    a_node_takes(environment, monkeypatch, caplog)
    voters = initial_controllers(files["first-start.env"].strip().partition("=")[2].partition("/")[2])
    assert {key.id for key in voters.keys} == {1, 2, 3}
    scrape = yaml.safe_load(files["prometheus.yml"])
    assert scrape["rule_files"] == ["alerts.yml"] and "alerts.yml" in files
    assert {name for name in files if name.startswith("grafana/dashboards/")} == {
        f"grafana/dashboards/{path.name}" for path in DEPLOY.glob("grafana/*.json")
    }


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_units_and_finds_them_hardened(tmp_path: Path) -> None:
    for name, text in generated("systemd", "--server", sys.executable, "--user", "root").items():
        path = tmp_path / name.replace("@.", "@1.")
        path.write_text(text.replace("man:systemd.service(5)", "https://example.org"))
        checked = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, check=False
        )
        complaints = [line for line in checked.stderr.splitlines() if path.name in line]
        assert checked.returncode == 0 and not complaints, checked.stderr
        judged = subprocess.run(
            ["systemd-analyze", "security", "--offline=yes", "--threshold=25", "--no-pager", str(path)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert judged.returncode == 0, judged.stdout[-300:] + judged.stderr
        assert "Type=notify" in text and "TimeoutStopSec=120" in text


def test_the_files_of_the_repository_are_what_is_generated() -> None:
    for what in ("grafana", "systemd"):
        files = generated(what)
        assert files == {path.name: path.read_text() for path in (DEPLOY / what).iterdir()}, f"generate {what} anew"
    assert (DEPLOY / "Dockerfile").read_text() == DOCKERFILE


def test_every_key_is_in_the_annotated_config_and_commented_out(tmp_path: Path) -> None:
    (text,) = generated("config").values()
    file = tmp_path / "server.properties"
    file.write_text(text)
    assert read_properties(file) == {}
    assert "#log.retention.ms=" in text and "#node.id=" in text and "Required." in text


def test_prometheus_takes_its_configuration(tmp_path: Path) -> None:
    target = tmp_path / "made"
    words = ["generate", "prometheus", "1=broker-1:9464", "101=c:9464", "-d", str(target)]
    assert CliRunner().invoke(cli, words).exit_code == 0
    found = yaml.safe_load((target / "prometheus.yml").read_text())
    assert [each["labels"]["node"] for each in found["scrape_configs"][0]["static_configs"]] == ["1", "101"]
    again = CliRunner().invoke(cli, words)
    assert again.exit_code == 1 and "exists already; nothing was written" in again.stderr
    assert CliRunner().invoke(cli, ["generate", "prometheus", "broker-1:9464"]).exit_code == 2
    if shutil.which("promtool") is not None:
        subprocess.run(["promtool", "check", "config", str(target / "prometheus.yml")], check=True, capture_output=True)


def test_yaml_reads_back_as_what_was_given() -> None:
    value = {
        "word": "plain", "yes": "yes", "empty": "", "number": 7, "text": "7", "flag": True, "none": [], "map": {},
        "nested": [{"a": [1, {"b": "c: d"}], "e": "#"}, ["x", ["y"]], "- z"], "path/x.y": "127.0.0.1:80", "lines": "a\nb",
    }  # fmt: skip
    assert yaml.safe_load(to_yaml(value)) == value


def test_the_metrics_listeners_of_brokers_are_found(barnabas_cluster: Any) -> None:
    environment = {"BARNABAS_ADMIN": barnabas_cluster.admin_addresses, "BARNABAS_BROKERS": ""}
    done = CliRunner().invoke(cli, ["generate", "prometheus"], env=dict(os.environ) | environment)
    targets = yaml.safe_load(done.stdout)["scrape_configs"][0]["static_configs"]
    assert {each["labels"]["node"]: each["targets"] for each in targets} == {
        str(node.id): [f"127.0.0.1:{node.metrics_port}"] for node in barnabas_cluster.brokers
    }
