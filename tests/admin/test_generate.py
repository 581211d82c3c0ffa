"""What `barnabas generate` writes is accepted by those it is for: Kubernetes' schemas, systemd, Prometheus, a node."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

from barnabas_admin.generating.container import dockerfile
from barnabas_admin.generating.grafana import scoped
from barnabas_admin.generating.templates import yaml_scalar
from barnabas_admin.invocation import Invocation
from barnabas_admin.main import cli
from barnabas_broker.main import main as server
from barnabas_broker.node.properties import read_properties
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


OPTIONS = {
    "bare": (),
    "nodeport": ("--external", "nodeport", "--console", "--monitor"),
    "loadbalancer": ("--external", "loadbalancer", "--external-host", "b{id}.example.com"),
    "closed": ("--tls", "certs", "--console", "--external", "nodeport", "--external-host", "edge.example.com"),
}
"""Of `generate k8s`."""


def documents_of(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))


@pytest.mark.parametrize("name", OPTIONS)
def test_kubernetes_takes_every_manifest(name: str) -> None:
    files = generated("k8s", "--namespace", "streams", "--brokers", "4", *OPTIONS[name])
    documents = documents_of(files["barnabas.yaml"]) + documents_of(files["first-start.once"])
    for version in (OLDEST_KUBERNETES, kubernetes_validate.latest_version()):
        for document in documents:
            if document["kind"] != "PodMonitor":  # of the Prometheus operator, which brings its own schema
                kubernetes_validate.validate(document, version, strict=True)
    kinds = [document["kind"] for document in documents]
    assert kinds.count("StatefulSet") == kinds.count("PodDisruptionBudget") == 2 and "NetworkPolicy" in kinds
    assert {document["metadata"]["namespace"] for document in documents} == {"streams"}
    names = [(document["kind"], document["metadata"]["name"]) for document in documents]
    assert len(names) == len(set(names))
    with pytest.raises(kubernetes_validate.ValidationError):
        (broken, *_) = (each for each in documents if each["kind"] == "StatefulSet")
        broken = json.loads(json.dumps(broken).replace('"replicas"', '"copies"'))
        kubernetes_validate.validate(broken, OLDEST_KUBERNETES, strict=True)


def pods(text: str) -> dict[str, dict[str, Any]]:
    """StatefulSets by name."""
    return {each["metadata"]["name"]: each for each in documents_of(text) if each["kind"] == "StatefulSet"}


def services(text: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each["spec"] for each in documents_of(text) if each["kind"] == "Service"}


def pod_environment(
    container: dict[str, Any], facts: Mapping[str, str], *, is_command_run: bool = False
) -> dict[str, str]:
    """What a container's process finds: Kubernetes' own rule, by which a variable may use those before it. facts: by fieldPath.
    is_command_run: the caller runs the container's command, which else changes them here."""
    found: dict[str, str] = {}
    for variable in container["env"]:
        source = variable.get("valueFrom", {})
        if "secretKeyRef" in source:
            continue  # optional, and not there
        value = facts.get(source["fieldRef"]["fieldPath"], "") if source else variable["value"]
        for name, known in found.items():
            value = value.replace(f"$({name})", known)
        found[variable["name"]] = value
    if "command" in container and not is_command_run:  # what the shell makes of it
        shell, flag, script = container["command"]
        script = script.replace("exec barnabas-server", "env -0")
        out = subprocess.run([shell, flag, script], env=found, capture_output=True, check=True).stdout.decode()
        found |= {name: line for name, _, line in (each.partition("=") for each in out.split("\0")) if name in found}
    return found


def certificates(script: str, directory: Path) -> Path:
    """Run the script where kubectl only says what it was asked; the files that it makes."""
    (directory / "bin").mkdir()
    for name, text in {
        "kubectl": 'echo "$@" >> asked',
        "barnabas": f'exec {sys.executable} -m barnabas_admin.main "$@"',
    }.items():
        (directory / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (directory / "bin" / name).chmod(0o755)
    (directory / "certificates.sh").write_text(script)
    environment = dict(os.environ) | {"PATH": f"{directory / 'bin'}:{os.environ['PATH']}"}
    subprocess.run(["sh", "certificates.sh"], cwd=directory, env=environment, check=True, capture_output=True)
    for file in directory.glob("pki/*.pem"):
        if file.stem not in ("ca-key", "admin"):
            assert f"--from-file=pki/{file.name}" in (directory / "asked").read_text()
    return directory / "pki"


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("name", "first"), [("barnabas-controller", 101), ("barnabas-broker", 1)])
def test_a_node_takes_the_properties_of_its_pod(
    name: str,
    first: int,
    options: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    files = generated("k8s", *OPTIONS[options])
    found = pods(files["barnabas.yaml"])[name]["spec"]
    assert found["ordinals"]["start"] == first
    (container,) = found["template"]["spec"]["containers"]
    facts = {
        "metadata.name": f"{name}-{first}",
        "metadata.labels['apps.kubernetes.io/pod-index']": str(first),
        "metadata.labels['topology.kubernetes.io/zone']": "zone-b",
        "status.hostIP": "192.0.2.7",
        "spec.nodeName": "worker-7",
    }
    environment = pod_environment(container, facts)
    if options == "closed":
        made = certificates(files["certificates.sh"], tmp_path)
        environment = {key: value.replace("/etc/barnabas/tls", str(made)) for key, value in environment.items()}
        assert "User:barnabas-broker-3" in environment["KAFKA_SUPER_USERS"]
    a_node_takes(environment, monkeypatch, caplog)
    monkeypatch.setenv("KAFKA_BROKER_RACK", "")
    assert server(["check"]) == 0, "before Kubernetes 1.35 a pod has no label of its zone"
    probes = [container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")]
    assert probes == ["/livez", "/livez", "/readyz"]
    own = f"{name}-{first}.barnabas-{name.rpartition('-')[2]}s.default.svc.cluster.local"
    advertised = environment["KAFKA_ADVERTISED_LISTENERS"]
    assert own in advertised
    assert name == "barnabas-broker" or own in environment["KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS"]
    if name == "barnabas-broker":
        assert environment["KAFKA_BROKER_RACK"] == "zone-b"
        assert environment["KAFKA_BROKER_HOST"] == "worker-7", "pods of one machine are lost together"
        outside = {
            "bare": None,
            "nodeport": "EXTERNAL://192.0.2.7:31001",
            "loadbalancer": "EXTERNAL://b1.example.com:9094",
            "closed": "EXTERNAL://edge.example.com:31001",
        }[options]
        assert [each for each in advertised.split(",") if each.startswith("EXTERNAL")] == ([outside] if outside else [])


def test_each_broker_has_its_own_way_in_from_outside() -> None:
    text = generated("k8s", "--brokers", "2", "--external", "nodeport")["barnabas.yaml"]
    for node in (1, 2):
        found = services(text)[f"barnabas-broker-{node}-external"]
        assert found["type"] == "NodePort" and found["selector"] == {
            "statefulset.kubernetes.io/pod-name": f"barnabas-broker-{node}"
        }
        (port,) = found["ports"]
        assert port["nodePort"] == 31000 + node and port["targetPort"] == "external"
    (container,) = pods(text)["barnabas-broker"]["spec"]["template"]["spec"]["containers"]
    assert {"name": "external", "containerPort": 9094} in container["ports"]
    (policy,) = [each["spec"] for each in documents_of(text) if each["kind"] == "NetworkPolicy"]
    assert 9094 in [port["port"] for port in policy["ingress"][0]["ports"]]
    for words in (("--external", "loadbalancer"), ("--tls", "s", "--external", "nodeport"), ("--external-host", "h")):
        assert CliRunner().invoke(cli, ["generate", "k8s", *words]).exit_code == 2


def test_the_console_and_the_monitor_reach_what_is_there() -> None:
    text = generated("k8s", "--console", "--monitor")["barnabas.yaml"]
    (deployment,) = [each for each in documents_of(text) if each["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["command"][:2] == ["barnabas", "console"]
    assert "barnabas-controller-101.barnabas-controllers.default.svc.cluster.local:9190" in container["command"][-1]
    assert services(text)["barnabas-console"]["ports"][0]["targetPort"] == container["ports"][0]["name"]
    (policy,) = [each["spec"] for each in documents_of(text) if each["kind"] == "NetworkPolicy"]
    assert 8080 not in [port["port"] for rule in policy["ingress"] for port in rule["ports"]], "port-forward alone"
    (monitor,) = [each["spec"] for each in documents_of(text) if each["kind"] == "PodMonitor"]
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert {each["targetLabel"] for each in endpoint["relabelings"]} == {"node", "cluster"}
    for each in pods(text).values():
        (node,) = each["spec"]["template"]["spec"]["containers"]
        assert endpoint["port"] in [port["name"] for port in node["ports"]]
        labels = each["spec"]["template"]["metadata"]["labels"]
        assert labels["app.kubernetes.io/component"] in monitor["selector"]["matchExpressions"][0]["values"]


def test_what_is_applied_again_holds_nothing_that_formats_a_voter() -> None:
    files = generated("k8s", "--controllers", "5")
    (secret,) = documents_of(files["first-start.once"])
    assert (secret["kind"], secret["metadata"]["name"]) == ("Secret", "barnabas-first-start")
    voters = initial_controllers(secret["stringData"]["format-for"].partition("/")[2])
    assert sorted(key.id for key in voters.keys) == [101, 102, 103, 104, 105]
    for key in voters.keys:
        assert str(key.directory_id) not in files["barnabas.yaml"]
    assert {"ConfigMap", "Secret"}.isdisjoint(each["kind"] for each in documents_of(files["barnabas.yaml"]))
    (container,) = pods(files["barnabas.yaml"])["barnabas-controller"]["spec"]["template"]["spec"]["containers"]
    variables = {each["name"]: each for each in container["env"]}
    token = variables["BARNABAS_FORMAT_FOR"]["valueFrom"]["secretKeyRef"]
    assert token == {"name": "barnabas-first-start", "key": "format-for", "optional": True}
    assert variables["BARNABAS_FORMAT_TO_JOIN"]["value"] == "true", "without it an empty controller is an observer"
    taken_by_a_directory = (".yaml", ".yml", ".json")
    assert not [name for name in files if name.endswith(taken_by_a_directory) and name != "barnabas.yaml"]


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
    for service in compose["services"].values():
        assert ":" in service["image"] and not service["image"].endswith(":latest"), "a tag"
    console = compose["services"]["console"]
    assert (
        f"127.0.0.1:{console['entrypoint'][console['entrypoint'].index('--port') + 1]}/livez"
        in console["healthcheck"]["test"][-1]
    )
    a_node_takes(environment, monkeypatch, caplog)
    voters = initial_controllers(files["first-start.env"].strip().partition("=")[2].partition("/")[2])
    assert {key.id for key in voters.keys} == {1, 2, 3}
    scrape = yaml.safe_load(files["prometheus.yml"])
    assert scrape["rule_files"] == ["alerts.yml"] and "alerts.yml" in files
    assert {name for name in files if name.startswith("grafana/dashboards/")} == {
        f"grafana/dashboards/{path.name}" for path in DEPLOY.glob("grafana/*.json")
    }


def test_a_compose_file_of_hosts_has_files_that_a_host_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    files = generated("compose", "--brokers-per-host", "3")
    compose = yaml.safe_load(files["compose.yml"])
    assert set(compose["services"]) == {"host-1", "host-2", "host-3", "console", "prometheus", "grafana"}
    service = compose["services"]["host-2"]
    assert service["entrypoint"] == ["barnabas-server", "host", "-c", "/etc/barnabas/host.properties"]
    assert "./host-2.properties:/etc/barnabas/host.properties:ro" in service["volumes"]
    assert service["ports"] == ["127.0.0.1:19192-19194:19192-19194"] and service["stop_grace_period"] == "4m"
    assert not [name for name in service["environment"] if name.startswith("KAFKA_")], (
        "the environment sets no key of a host"
    )
    path = tmp_path / "host.properties"
    path.write_text(files["host-2.properties"].replace("/var/lib/barnabas", str(tmp_path)))
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert server(["host", "--check", "-c", str(path)]) == 0
    assert not caplog.messages
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines()[1:]] == [
        "controller-2",
        "broker-201",
        "broker-202",
        "broker-203",
    ]
    assert "OUTSIDE://0.0.0.0:19194" in said
    voters = initial_controllers(files["first-start.env"].strip().partition("=")[2].partition("/")[2])
    assert {key.id for key in voters.keys} == {1, 2, 3}
    scraped = {
        target for job in yaml.safe_load(files["prometheus.yml"])["scrape_configs"] for each in job["static_configs"]
        for target in each["targets"]
    }  # fmt: skip
    assert {"host-2:9463", "host-2:9464", "host-2:9466"} <= scraped


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
        is_host = name == "barnabas-host.service"
        assert "Type=notify" in text and f"TimeoutStopSec={240 if is_host else 120}" in text
        assert ("KillMode=process" in text) is is_host, "else the death of the parent would end its brokers"


def test_the_files_of_the_repository_are_what_is_generated() -> None:
    for what in ("grafana", "systemd"):
        files = generated(what)
        assert files == {path.name: path.read_text() for path in (DEPLOY / what).iterdir()}, f"generate {what} anew"
    assert (DEPLOY / "Dockerfile").read_text() == dockerfile()


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


@pytest.mark.parametrize(
    "value", ["plain", "yes", "", 7, "7", True, "path/x.y", "127.0.0.1:80", "a\nb", "c: d", "#", "- z", "x y"]
)
def test_yaml_reads_back_as_what_was_given(value: str | int) -> None:
    assert yaml.safe_load(f"key: {yaml_scalar(value)}\n") == {"key": value}


def test_the_metrics_listeners_of_brokers_are_found(barnabas_cluster: Any) -> None:
    environment = {"BARNABAS_ADMIN": barnabas_cluster.admin_addresses, "BARNABAS_BROKERS": ""}
    done = CliRunner().invoke(cli, ["generate", "prometheus"], env=dict(os.environ) | environment)
    targets = yaml.safe_load(done.stdout)["scrape_configs"][0]["static_configs"]
    assert {each["labels"]["node"]: each["targets"] for each in targets} == {
        str(node.id): [f"127.0.0.1:{node.metrics_port}"] for node in barnabas_cluster.nodes.values()
    }
    assert {each["labels"]["cluster"] for each in targets} == {barnabas_cluster.cluster_id}


@pytest.mark.barnabas(scope="function", roles="separate")
def test_who_is_down_and_the_controllers_are_named(barnabas_cluster: Any) -> None:
    environment = dict(os.environ) | {"BARNABAS_ADMIN": "", "BARNABAS_BROKERS": barnabas_cluster.bootstrap_servers}
    barnabas_cluster.kill(3)
    barnabas_cluster.wait_until(lambda: 3 in fenced(barnabas_cluster), what="broker 3 to be fenced")
    done = CliRunner().invoke(cli, ["generate", "prometheus"], env=environment)
    assert done.exit_code == 0, done.output
    targets = yaml.safe_load(done.stdout)["scrape_configs"][0]["static_configs"]
    assert {each["labels"]["node"] for each in targets} == {"1", "2"}
    assert "# broker 3 on 127.0.0.1 is down: add it, as 3=HOST:PORT" in done.stdout
    for node in (101, 102, 103):
        assert f"# controller {node} on 127.0.0.1 did not say where its metrics are: add it" in done.stdout
    done = CliRunner().invoke(
        cli, ["generate", "prometheus"], env=environment | {"BARNABAS_ADMIN": barnabas_cluster.admin_addresses}
    )
    targets = yaml.safe_load(done.stdout)["scrape_configs"][0]["static_configs"]
    assert {"101", "102", "103"} <= {each["labels"]["node"] for each in targets}, "asked at their own admin listeners"


def fenced(cluster: Any) -> list[int]:
    from barnabas_admin.client import AdminClient

    with AdminClient(cluster.admin_addresses, timeout_s=5.0) as admin:
        return [broker.id for broker in admin.list_brokers().brokers if broker.fenced]


def test_the_others_port_is_a_down_nodes_where_all_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    point = lambda host: [SimpleNamespace(host=host, port=1)]  # noqa: E731
    brokers = [SimpleNamespace(id=each, fenced=each == 3, listeners=point(f"b{each}")) for each in (1, 2, 3)]
    controllers = [SimpleNamespace(id=101, listeners=point("c1"))]
    admin = SimpleNamespace(
        describe_cluster=lambda: SimpleNamespace(
            brokers=brokers, controllers=controllers, cluster_id="C", answered_by=1
        )
    )
    monkeypatch.setattr(Invocation, "admin", property(lambda self: admin))
    monkeypatch.setattr(Invocation, "every_admin", lambda self, **_: {})
    rows = [{"key": "metrics.listeners", "value": "0.0.0.0:9464"}]
    monkeypatch.setattr(
        "barnabas_admin.commands.config._describe", lambda invocation, names: dict.fromkeys(names, rows)
    )
    done = CliRunner().invoke(
        cli, ["generate", "prometheus", "--cluster", "prod", "--admin", "h:1"], catch_exceptions=False
    )
    targets = yaml.safe_load(done.stdout)["scrape_configs"][0]["static_configs"]
    assert {each["labels"]["node"]: each["targets"][0] for each in targets} == {
        "1": "b1:9464", "2": "b2:9464", "3": "b3:9464", "101": "c1:9464"
    }  # fmt: skip
    assert {each["labels"]["cluster"] for each in targets} == {"prod"}
    assert "# broker 3 on b3 is down: this is the port of the others" in done.stdout


def test_dashboards_choose_a_cluster_nodes_and_topics() -> None:
    for dashboard in map(json.loads, generated("grafana").values()):
        variables = {each["name"]: each for each in dashboard["templating"]["list"]}
        assert set(variables) == {"datasource", "cluster", "node", "topic"}
        assert all(each["allValue"] == ".*" for name, each in variables.items() if name != "datasource")
        for panel in dashboard["panels"]:
            for target in panel.get("targets", ()):
                selectors = re.findall(r"\b((?:barnabas|process)_\w+)({[^}]*})?", target["expr"])
                assert selectors
                for metric, matchers in selectors:
                    assert 'cluster=~"$cluster"' in matchers, target["expr"]
                    assert (panel["type"] == "stat") != ('node=~"$node"' in matchers), target["expr"]
                    if metric.startswith("barnabas_topic_"):
                        assert 'topic=~"$topic"' in matchers
    assert scoped('rate(barnabas_x{a="b"}[5m]) / barnabas_y') == (
        'rate(barnabas_x{a="b", cluster=~"$cluster", node=~"$node"}[5m]) / barnabas_y{cluster=~"$cluster", node=~"$node"}'
    )
