"""`debug bundle` and `perf` against a real cluster."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from pathlib import Path

import pytest

from barnabas_admin.load import Times
from barnabas_admin.local_cluster import LocalCluster
from tests.admin.test_real_cluster import Cli

pytestmark = pytest.mark.cluster


@pytest.fixture
def commands(barnabas_cluster: LocalCluster) -> Cli:
    return Cli(barnabas_cluster.admin_addresses)


def test_a_bundle_has_what_the_nodes_know_and_no_secret(
    commands: Cli, barnabas_cluster: LocalCluster, tmp_path: Path
) -> None:
    secret = "not-for-anybodys-eyes"
    config, log = tmp_path / "server.properties", tmp_path / "node.log"
    config.write_text(f'node.id=9\nsasl.jaas.config=x required password="{secret}";\n')
    log.write_text("old line\n" * 100_000 + f"ERROR login failed, password={secret}\n")
    target = tmp_path / "b.zip"
    node = barnabas_cluster.nodes[1]
    gone = "127.0.0.1:1"
    done = commands.json("debug", "bundle", "-f", str(target), "-c", str(config), "--log", str(log), "--metrics", gone)
    assert os.stat(target).st_mode & 0o777 == 0o600
    with zipfile.ZipFile(target) as archive:
        files = {name.removeprefix("b/"): archive.read(name) for name in archive.namelist()}
    assert not [name for name, data in files.items() if secret.encode() in data]
    manifest = json.loads(files.pop("manifest.json"))
    assert manifest["files"] == done["files"] and manifest["cluster_id"] == barnabas_cluster.cluster_id
    written = {entry["file"]: entry for entry in manifest["files"] if entry["file"]}
    assert set(written) == set(files)
    assert all(written[name]["sha256"] == hashlib.sha256(data).hexdigest() for name, data in files.items())
    assert json.loads(files["health.json"])["healthy"] == manifest["healthy"]
    assert written["quorum-status.json"]["source"] == "barnabas quorum status"
    assert json.loads(files["quorum-replicas.json"])["replicas"]
    assert {row["key"] for row in json.loads(files["config-broker-1.json"])["configs"]} > {"log.dirs", "node.id"}
    assert b"barnabas_build_info" in files[f"metrics/127.0.0.1-{node.metrics_port}.txt"]
    assert files[f"metrics/127.0.0.1-{node.metrics_port}-readyz.txt"] == b"ok\n"
    tail = files[f"logs/{tmp_path.name}-node.log"]
    assert tail.endswith(b"password=[hidden]\n") and len(tail) < 600_000 and tail.startswith(b"old line\n")
    assert b"password" not in files[f"configs/{tmp_path.name}-server.properties"]
    assert json.loads(files["versions.json"])["packages"]["barnabas"]
    (missing,) = {entry["error"] for entry in manifest["files"] if not entry["file"]}
    assert "refused" in missing, "only what is named and not there is missing"
    commands.run("debug", "bundle", "-f", str(target), status=1)


def test_a_load_is_written_and_read_and_its_figures_add_up(commands: Cli, barnabas_topic: str) -> None:
    written = commands.json("perf", "produce", barnabas_topic, "-n", "20000", "-s", "50", "-z", "lz4")
    assert (written["records"], written["bytes"]) == (20000, 1_000_000)
    times = written["times_ms"]
    assert 0 < times["p50"] <= times["p95"] <= times["p99"] <= times["p99_9"] <= times["max"]
    assert written["records_per_s"] == pytest.approx(20000 / written["seconds"], rel=0.05)
    paced = commands.json("perf", "produce", barnabas_topic, "--rate", "2000", "-d", "1")
    assert 200 <= paced["records"] <= 2000 and paced["requests"] > 5
    found = commands.json("perf", "consume", barnabas_topic)
    assert found["records"] == 20000 + paced["records"] and found["damaged_batches"] == 0
    lines = commands.run("perf", "consume", barnabas_topic).stdout.decode().splitlines()
    assert lines[0].split() == [
        "RECORDS",
        "SECONDS",
        "RECORDS/S",
        "MB/S",
        "REQUESTS",
        "P50",
        "P95",
        "P99",
        "P99.9",
        "MAX",
    ]
    assert lines[1].split()[0] == str(found["records"])
    commands.run("perf", "produce", "no-such-topic", status=3)


def test_quantiles_are_right_to_about_one_per_cent() -> None:
    times = Times()
    for milliseconds in range(1, 1001):
        times.add(milliseconds / 1000)
    assert times.quantile_ms(0.5) == pytest.approx(500, rel=0.012)
    assert times.quantile_ms(0.99) == pytest.approx(990, rel=0.012)
    assert times.quantile_ms(1.0) == 1000
    assert Times().quantile_ms(0.5) is None
