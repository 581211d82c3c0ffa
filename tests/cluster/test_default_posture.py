"""A fresh `barnabas dev`, looked at from another network namespace: nothing listens there for anybody (S6)."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas_admin.local_ports import PORTS_SPAN, find_base_port
from tests.support.clusters import ForkedCluster

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and iproute2"
    ),
]

HOST, GUEST = "10.213.77.1", "10.213.77.2"
SCAN = """
import asyncio, sys
host, first, last, *more = sys.argv[1:]

async def try_one(port):
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), 2)
    except (OSError, asyncio.TimeoutError):
        return None
    writer.close()
    return port

async def scan():
    ports = [*range(int(first), int(last)), *map(int, more)]
    print(*[port for port in await asyncio.gather(*map(try_one, ports)) if port is not None])

asyncio.run(scan())
"""


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no network namespace can be made here: ip {' '.join(words)}: {done.stderr.strip()}")


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """A namespace with a cable to this one; its name."""
    name = f"barnabas-{os.getpid() % 100_000}"
    cable = f"bn{os.getpid() % 100_000}"
    ip("netns", "add", name)
    try:
        ip("link", "add", cable, "type", "veth", "peer", "name", "guest", "netns", name)
        ip("addr", "add", f"{HOST}/30", "dev", cable)
        ip("link", "set", cable, "up")
        ip("-n", name, "addr", "add", f"{GUEST}/30", "dev", "guest")
        ip("-n", name, "link", "set", "guest", "up")
        ip("-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        with contextlib.suppress(FileNotFoundError):
            subprocess.run(["ip", "link", "del", cable], capture_output=True)
        subprocess.run(["ip", "netns", "del", name], capture_output=True)


def open_ports(namespace: str, host: str, first: int, more: int) -> list[int]:
    command = ["ip", "netns", "exec", namespace, sys.executable, "-c", SCAN]
    done = subprocess.run(
        [*command, host, str(first), str(first + PORTS_SPAN), str(more)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return [int(port) for port in done.stdout.split()]


def test_a_fresh_cluster_shows_no_open_port_to_another_host(elsewhere: str, tmp_path: Path) -> None:

    with (
        ForkedCluster(tmp_path, nodes=3, base_port=find_base_port()) as cluster,
        socket.create_server((HOST, 0)) as beacon,
    ):
        seen = beacon.getsockname()[1]  # so that a scan that reaches nothing is noticed
        assert open_ports(elsewhere, HOST, cluster.base_port, seen) == [seen]
        local = subprocess.run(
            [sys.executable, "-c", SCAN, "127.0.0.1", str(cluster.base_port), str(cluster.base_port + PORTS_SPAN)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert len(local.stdout.split()) == 4 * 3, "every listener of three nodes is there, on loopback alone"
