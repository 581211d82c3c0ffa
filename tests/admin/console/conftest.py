"""A console over a real cluster of three, asked in-process or by a real browser."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from tests.support.clusters import ForkedCluster
from tests.support.journals import small_journal, text_of


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("console")
    overrides = {"group.initial.rebalance.delay.ms": "0"}
    with ForkedCluster(directory, nodes=3, base_port=find_base_port(), overrides=overrides) as running:
        yield running


class Console:
    """A `barnabas console` process, and a client of its pages."""

    def __init__(self, cluster: LocalCluster, *options: str) -> None:
        kept = ["--history", str(Path(cluster.directory) / f"console-{len(options)}.sqlite")]
        command = [sys.executable, "-m", "barnabas_admin.main", "console", "--port", "0", "-o", "json", *kept, *options]
        self._process = subprocess.Popen(
            [*command, "--admin", cluster.admin_addresses], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.address = line.split('"address": "')[1].split('"')[0] if '"address"' in line else ""
        assert self.address, f"the console did not start: {line}"
        self.client = httpx.Client(base_url=self.address, timeout=15)

    def close(self) -> None:
        self.client.close()
        self._process.terminate()
        self._process.wait(10)

    def post(self, path: str, **fields: str) -> httpx.Response:
        """Send a form as the page's own button does."""
        if "barnabas_token" not in self.client.cookies:
            self.client.get("/")
        return self.client.post(path, data={"token": self.client.cookies["barnabas_token"], **fields})


@pytest.fixture(scope="package")
def console(cluster: LocalCluster) -> Iterator[Console]:
    journal = Path(cluster.directory) / "run.jsonl"
    journal.write_bytes(text_of(small_journal()))
    found = Console(cluster, "--journal", str(journal))
    yield found
    found.close()
