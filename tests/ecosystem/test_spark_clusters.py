"""Source and sink where Spark is not one process: a client of Spark Connect; a standalone master with two workers, one executor killed."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from tests.ecosystem.java import IS_FULL
from tests.ecosystem.spark_jobs import commits, committed, create, send
from tests.support.clusters import ForkedCluster

pytest.importorskip("pyspark")
pytestmark = [
    pytest.mark.timeout(1_500),
    pytest.mark.skipif(not IS_FULL, reason="make ecosystem runs it"),
]
CLIENT_S = 600.0
RECORDS = 4_000


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17 or newer")
    with ForkedCluster(tmp_path_factory.mktemp("brokers"), nodes=3, base_port=find_base_port()) as running:
        yield running


def asked(brokers: LocalCluster, place: Path, name: str, **how: Any) -> dict[str, Any]:
    """What the client is to do, with a filled topic and two empty ones."""
    source, written, exact = (f"{name}-{part}" for part in ("in", "written", "exact"))
    create(brokers, source, written, exact)
    send(brokers, source, ((str(at), {"at": at}) for at in range(RECORDS)))
    options = {"kafka.bootstrap.servers": brokers.bootstrap_servers, "subscribe": source}
    return {"source": options, "written": written, "exact": exact, "checkpoint": str(place / "checkpoint"), **how}


def judge(brokers: LocalCluster, wanted: dict[str, Any], found: dict[str, Any]) -> None:
    """Each record once in both targets, each with its key; all of them read; the metadata tables know the topics."""
    assert sum(found["by_executor"].values()) == RECORDS
    assert {wanted["source"]["subscribe"], wanted["written"], wanted["exact"]} <= set(found["topics"])
    for topic in (wanted["written"], wanted["exact"]):
        rows = committed(brokers, topic)
        assert Counter(row["at"] for _, row in rows) == Counter(range(RECORDS)), topic
        assert all(key == str(row["at"]) for key, row in rows)


def test_a_client_of_spark_connect_reads_and_writes(brokers: LocalCluster, tmp_path: Path) -> None:
    pytest.importorskip("grpc_status", reason="a client of Spark Connect: pip install 'pyspark[connect]'")
    from tests.ecosystem.spark_processes import connect_server, run_client

    with connect_server(tmp_path) as (_, port):
        wanted = asked(brokers, tmp_path, "connect", remote=f"sc://127.0.0.1:{port}")
        found = run_client(wanted, tmp_path / "client.log", timeout_s=CLIENT_S)
    judge(brokers, wanted, found)


def test_two_standalone_workers_read_and_write_also_when_an_executor_dies(
    brokers: LocalCluster, tmp_path: Path
) -> None:
    from tests.ecosystem.spark_processes import executors, run_client, standalone

    checkpoint = tmp_path / "checkpoint"
    killed: list[int] = []
    with standalone(tmp_path, workers=2) as (address, workers):
        conf = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}
        wanted = asked(brokers, tmp_path, "standalone", master=address, conf=conf, executors=2)

        def kill_one() -> None:
            """The executor of the first worker, in the middle of the stream."""
            if not killed and 1 <= commits(checkpoint) <= 4:
                for one in executors(workers[0]):
                    one.kill()
                    killed.append(one.pid)

        found = run_client(wanted, tmp_path / "client.log", timeout_s=CLIENT_S, meanwhile=kill_one)
    assert len(found["by_executor"]) == 2, "one executor read everything"
    assert killed and str(killed[0]) in found["by_executor"], "no executor that had read was killed"
    judge(brokers, wanted, found)
