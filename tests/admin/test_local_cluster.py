"""Laws of starting, breaking and stopping nodes; the nodes are fake_server.py, the processes are real."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from barnabas_admin.cluster_directory import random_uuid
from barnabas_admin.errors import LocalClusterError
from barnabas_admin.local_cluster import ADMIN_PORT_OFFSET, CONTROLLER_PORT_OFFSET, METRICS_PORT_OFFSET, LocalCluster
from barnabas_admin.local_node import bytecode_environment, describe_exit
from barnabas_admin.local_ports import PORTS_SPAN, find_base_port, is_port_free
from barnabas_wire.host_system import has_linux
from barnabas_wire.java_properties import read_properties_file

pytestmark = pytest.mark.usefixtures("fake_server")


@pytest.fixture
def base_port() -> int:
    return find_base_port()


@pytest.fixture
def cluster(tmp_path: Path, base_port: int) -> Iterator[LocalCluster]:
    """Three combined nodes, started; whatever a test does, nothing stays."""
    with LocalCluster(tmp_path, nodes=3, base_port=base_port) as found:
        yield found


def test_to_start_a_cluster_and_to_ask_how_it_is_takes_no_grpc(tmp_path: Path, base_port: int) -> None:
    """Half of the CPU that `barnabas dev` itself takes. -S: without what this environment loads at each start."""
    code = f"""
import sys
from pathlib import Path
from barnabas_admin.local_cluster import LocalCluster
with LocalCluster(Path({str(tmp_path / "other")!r}), nodes=3, base_port={base_port}) as cluster:
    cluster.wait_until_healthy()
    print([name for name in ("grpc", "google.protobuf", "http.client", "asyncio", "ssl") if name in sys.modules])
"""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def format_calls(cluster: LocalCluster, node_id: int) -> list[list[str]]:
    file = cluster.nodes[node_id].data_directory / "formatted.txt"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.skipif(not has_linux(), reason="abstract names are Linux's")
def test_ports_that_one_was_given_are_given_to_nobody_else_before_its_nodes_listen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("BARNABAS_PORTABLE")
    base_port = find_base_port()
    with pytest.raises(LocalClusterError):
        find_base_port(base_port, base_port + PORTS_SPAN)


def test_nodes_listen_at_fixed_offsets_from_the_first_port(cluster: LocalCluster, base_port: int) -> None:
    second = read_properties_file(cluster.nodes[2].properties_file)
    assert second["process.roles"] == "broker,controller"
    assert second["listeners"] == (
        f"PLAINTEXT://127.0.0.1:{base_port + 1},CONTROLLER://127.0.0.1:{base_port + CONTROLLER_PORT_OFFSET + 1}"
    )
    assert second["admin.listeners"] == f"127.0.0.1:{base_port + ADMIN_PORT_OFFSET + 1}"
    assert second["metrics.listeners"] == f"127.0.0.1:{base_port + METRICS_PORT_OFFSET + 1}"
    assert cluster.bootstrap_servers == ",".join(f"127.0.0.1:{base_port + i}" for i in range(3))


def test_brokers_are_put_on_hosts_in_the_order_of_their_ids(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, nodes=5, roles="separate", brokers_per_host=2)
    hosts = [cluster.properties(node.id)["broker.host"] for node in cluster.brokers]
    assert hosts == ["host-1", "host-1", "host-2", "host-2", "host-3"]
    assert not [node for node in cluster.controllers if "broker.host" in cluster.properties(node.id)]
    alone = LocalCluster(tmp_path / "other", nodes=2)
    assert "broker.host" not in alone.properties(1)


def test_every_voter_is_formatted_with_the_same_voters(cluster: LocalCluster) -> None:
    voters = []
    for node_id in (1, 2, 3):
        (call,) = format_calls(cluster, node_id)
        cluster_id, _, words = call[call.index("--format-for") + 1].partition("/")
        assert cluster_id == cluster.cluster_id
        voters.append(words)
    assert len(set(voters)) == 1
    assert voters[0].count("@") == 3


def test_stop_leaves_no_process(cluster: LocalCluster) -> None:
    pids = [node.process.pid for node in cluster.nodes.values() if node.process]
    assert len(pids) == 3
    assert cluster.stop() == []
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_second_run_on_another_port_is_the_same_cluster(tmp_path: Path, base_port: int) -> None:
    with LocalCluster(tmp_path, nodes=3, base_port=base_port) as first:
        identity = (first.cluster_id, [node.directory_id for node in first.nodes.values()])
    with LocalCluster(tmp_path, base_port=base_port + PORTS_SPAN // 8) as second:
        assert (second.cluster_id, [node.directory_id for node in second.nodes.values()]) == identity
        calls = format_calls(second, 1)
        assert len(calls) == 2
        assert "--ignore-formatted" in calls[1]
        assert f":{base_port + PORTS_SPAN // 8 + CONTROLLER_PORT_OFFSET}:" in " ".join(calls[1])


def test_a_second_run_on_the_same_port_formats_nothing(tmp_path: Path, base_port: int) -> None:
    for _ in range(2):
        with LocalCluster(tmp_path, nodes=1, base_port=base_port) as cluster:
            assert len(format_calls(cluster, 1)) == 1


def test_a_wiped_voter_is_not_formatted_again(tmp_path: Path, base_port: int) -> None:
    with LocalCluster(tmp_path, nodes=2, base_port=base_port) as cluster:
        wiped = cluster.nodes[2].directory
    shutil.rmtree(wiped)
    with pytest.raises(LocalClusterError, match="node 2 has voted before"):
        LocalCluster(tmp_path, base_port=base_port).start()


def test_in_separate_roles_only_controllers_are_formatted(tmp_path: Path, base_port: int) -> None:
    with LocalCluster(tmp_path, nodes=2, base_port=base_port, roles="separate") as cluster:
        assert sorted(cluster.nodes) == [1, 2, 101, 102]
        assert [node.id for node in cluster.controllers] == [101, 102]
        assert format_calls(cluster, 1) == []
        assert len(format_calls(cluster, 101)) == 1
        ports = [
            port
            for node in cluster.nodes.values()
            for port in (node.kafka_port, node.controller_port, node.admin_port, node.metrics_port)
            if port is not None
        ]
        assert len(ports) == len(set(ports)) == 12
        assert max(ports) < base_port + PORTS_SPAN
        controller = read_properties_file(cluster.nodes[101].properties_file)
        assert controller["process.roles"] == "controller"
        assert "advertised.listeners" not in controller


def test_a_node_that_dies_while_starting_is_reported_with_its_last_words(tmp_path: Path, base_port: int) -> None:
    overrides = {"fake.words": "the disk is on fire", "fake.die": "7"}
    cluster = LocalCluster(tmp_path, nodes=1, base_port=base_port, overrides=overrides)
    with pytest.raises(LocalClusterError, match=r"(?s)node 1 exited with status 7.*the disk is on fire"):
        cluster.start()
    assert not cluster.nodes[1].is_running


def test_a_death_is_reported_once_and_a_wanted_one_never(cluster: LocalCluster) -> None:
    cluster.kill(1)
    assert list(cluster.find_deaths()) == []
    victim = cluster.nodes[2].process
    assert victim is not None
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()
    (death,) = cluster.find_deaths()
    assert (death.node_id, death.status) == (2, "was killed by SIGKILL")
    assert list(cluster.find_deaths()) == []
    assert cluster.nodes[3].is_running


def test_a_killed_node_starts_again(cluster: LocalCluster) -> None:
    cluster.kill(3)
    assert not cluster.nodes[3].is_running
    cluster.start_node(3)
    cluster.wait_until(lambda: cluster.is_ready(3), what="node 3 ready")


def test_a_paused_node_answers_nothing_and_goes_on_after_resume(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.pause(1)
    with monkeypatch.context() as patience:
        patience.setattr("barnabas_admin.local_cluster.PROBE_TIMEOUT_S", 0.1)
        assert not cluster.is_ready(1)
    cluster.resume(1)
    cluster.wait_until(lambda: cluster.is_ready(1), what="node 1 ready")


def test_a_paused_node_can_be_stopped(cluster: LocalCluster) -> None:
    cluster.pause(1)
    assert cluster.stop_node(1)


def test_a_node_deaf_to_sigterm_is_killed(tmp_path: Path, base_port: int) -> None:
    cluster = LocalCluster(tmp_path, nodes=1, base_port=base_port, overrides={"fake.deaf": "true"})
    cluster.start()
    assert cluster.stop(timeout_s=0.3) == [1]
    assert not cluster.nodes[1].is_running


def test_a_directory_in_use_is_refused(cluster: LocalCluster) -> None:
    other = LocalCluster(cluster.directory, base_port=find_base_port())
    with pytest.raises(LocalClusterError, match="in use by another cluster"):
        other.start()
    assert all(node.is_running for node in cluster.nodes.values())


def test_a_directory_stays_in_use_while_a_node_lives(cluster: LocalCluster) -> None:
    assert cluster._lock is not None
    cluster._lock.close()  # as if the parent had died: the nodes still hold the lock
    with pytest.raises(LocalClusterError, match="still runs"):
        LocalCluster(cluster.directory, base_port=find_base_port()).start()


def test_a_directory_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    for harmless in (".hidden", "lost+found"):
        (tmp_path / harmless).touch()
    LocalCluster(tmp_path, nodes=1, base_port=find_base_port())
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(LocalClusterError, match=r"no directory of a cluster: it holds thesis\.tex$"):
        LocalCluster(tmp_path, nodes=1, base_port=find_base_port())


def test_a_taken_port_is_named(cluster: LocalCluster, tmp_path: Path, base_port: int) -> None:
    other = LocalCluster(tmp_path / "other", nodes=3, base_port=base_port)
    with pytest.raises(LocalClusterError, match=f"admin port {base_port + ADMIN_PORT_OFFSET} of node 1"):
        other.start()


def test_another_number_of_nodes_is_refused(cluster: LocalCluster) -> None:
    with pytest.raises(LocalClusterError, match="holds a cluster of 3 nodes"):
        LocalCluster(cluster.directory, nodes=5)


def test_a_failed_format_is_reported_and_nothing_runs(tmp_path: Path, base_port: int) -> None:
    cluster = LocalCluster(tmp_path, nodes=1, base_port=base_port, overrides={"fake.format.status": "2"})
    with pytest.raises(LocalClusterError, match="node 1 exited with status 2"):
        cluster.start()
    assert cluster.nodes[1].process is None
    assert not (tmp_path / "voters").exists()


def test_new_ports_that_cannot_be_formatted_are_reported(tmp_path: Path, base_port: int) -> None:
    with LocalCluster(tmp_path, nodes=1, base_port=base_port):
        pass
    other = LocalCluster(tmp_path, base_port=base_port + PORTS_SPAN // 8, overrides={"fake.format.status": "2"})
    with pytest.raises(LocalClusterError, match="formatting node 1 exited with status 2"):
        other.start()
    assert other.nodes[1].process is None


def test_a_node_of_another_version_is_formatted_by_its_own_verb(tmp_path: Path, base_port: int) -> None:
    """The former version knows no --format-for."""
    cluster = LocalCluster(tmp_path, nodes=1, base_port=base_port)
    cluster.nodes[1].server = (sys.executable, str(Path(__file__).with_name("fake_server.py")))
    with cluster:
        (call,) = format_calls(cluster, 1)
        assert call[0] == "format"


def test_found_base_port_has_a_whole_free_span() -> None:
    base = find_base_port()
    assert all(is_port_free(port) for port in range(base, base + PORTS_SPAN))


def test_random_uuid_can_follow_an_option() -> None:
    assert not any(str(random_uuid()).startswith("-") for _ in range(500))


def test_exits_are_reported_in_words() -> None:
    assert describe_exit(0) == "exited with status 0"
    assert describe_exit(-9) == "was killed by SIGKILL"


def test_a_package_that_is_neither_compiled_nor_writable_keeps_bytecode_in_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    package, cache = tmp_path / "package", tmp_path / "cache"
    package.mkdir()
    (package / "node.py").touch()
    assert bytecode_environment(package / "node.py", cache) == {}, "Python compiles beside it"
    # Root may write anywhere, but where nothing can be.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != package)
    assert bytecode_environment(package / "node.py", cache) == {
        "PYTHONPYCACHEPREFIX": str(cache / "barnabas" / "bytecode")
    }
    assert (cache / "barnabas" / "bytecode").stat().st_mode & 0o777 == 0o700
    compiled = Path(cache_from_source(str(package / "node.py")))
    compiled.parent.mkdir()
    compiled.touch()
    assert bytecode_environment(package / "node.py", cache) == {}, "it was compiled when it was installed"
    compiled.unlink()
    cache.joinpath("file").touch()
    assert bytecode_environment(package / "node.py", cache / "file") == {}, "no cache is no error"
