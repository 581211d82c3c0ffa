"""Laws of the seams: what Linux alone has is called there and nowhere else, and a node does without where it is told so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("proto", "metadata_quorum", "log", "replication", "broker", "admin")
LINUX_ALONE = re.compile(
    r"os\.(sendfile|posix_fadvise|posix_fallocate|RWF_\w+|sched_\w+|fdatasync|eventfd\w*|pidfd_\w+|memfd_\w+|splice|copy_file_range)\b"
    r"|TCP_(CORK|CONGESTION|QUICKACK|USER_TIMEOUT)\b|prctl\(|close_range|[\"']/proc/|sys\.platform|BARNABAS_PORTABLE|\.syscall\b"
)
SEAMS = {
    "proto/barnabas_wire/host_system.py": "says who is asked",
    "log/barnabas_log/disk_calls.py": "the disk's",
    "log/barnabas_log/tail/flush_ring.py": "the disk's io_uring, refused elsewhere",
    "log/barnabas_log/tail/flush_workers.py": "the threads of that",
    "log/barnabas_log/worker_process.py": "the disk's workers",
    "broker/barnabas_broker/network/socket_calls.py": "the network's",
    "admin/barnabas_admin/forked.py": "the fork server, not started elsewhere",
    "broker/barnabas_broker/node/fork_server.py": "what that runs",
    "admin/barnabas_admin/dev_control.py": "a socket's long path",
    "admin/barnabas_admin/local_ports.py": "the range of ephemeral ports, with what is usual where nobody says",
    "admin/barnabas_admin/commands/dev.py": "children of a command that is broken off; none are found elsewhere",
    "broker/barnabas_broker/main.py": "refuses what is neither",
    "broker/barnabas_broker/host/system_calls.py": "cores, the memory of a process, the descriptors of all",
}
"""Who may, and for what."""
BEREFT = """
import builtins, os, signal, socket
for name in (
    "sendfile", "preadv", "posix_fadvise", "RWF_NOWAIT", "fdatasync", "sched_setscheduler", "SCHED_BATCH", "eventfd", "EFD_NONBLOCK",
    "pidfd_open", "POSIX_FADV_RANDOM", "POSIX_FADV_DONTNEED",
):
    delattr(os, name)
for name in ("TCP_CORK", "TCP_CONGESTION"):
    delattr(socket, name)
delattr(signal, "pidfd_send_signal")
_open = builtins.open

def _open_without_proc(file, *arguments, **options):
    if str(file).startswith("/proc/"):
        raise FileNotFoundError(file)
    return _open(file, *arguments, **options)

builtins.open = _open_without_proc
"""
"""Takes from an interpreter what macOS has not."""


def test_what_linux_alone_has_is_called_in_the_seams_alone() -> None:
    found = {
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if not path.stem.endswith(("_pb2", "_pb2_grpc")) and _calls(path.read_text(encoding="utf-8"))
    }
    assert found == SEAMS.keys()


def _calls(text: str) -> bool:
    """Whether a line of code, not of prose, has such a call."""
    code = re.sub(r'"""(?:.|\n)*?"""', "", text)
    return any(LINUX_ALONE.search(line.partition("  #")[0]) for line in code.splitlines())


def portable_environment(directory: Path) -> dict[str, str]:
    """In which an interpreter has no more than every system has, and is told so."""
    (directory / "sitecustomize.py").write_text(BEREFT, encoding="utf-8")
    path = ":".join([str(directory), os.environ.get("PYTHONPATH", "")]).rstrip(":")
    return os.environ | {"BARNABAS_PORTABLE": "1", "PYTHONPATH": path}


WORK = """
import barnabas, sys
from pathlib import Path
from barnabas_wire.client.blocking import BlockingCluster
from barnabas_wire.kafka.ids import Offset, TopicPartition
from barnabas_wire.records.batch import Record, build_batch

for directory in (None, sys.argv[1], sys.argv[1]):
    with barnabas.broker({"log.segment.bytes": 1 << 20}, directory=directory) as broker:
        client = BlockingCluster(broker.bootstrap_servers)
        client.metadata(["t"], creates_topics=True)
        partition = TopicPartition("t", 0)
        for number in range(3):
            client.produce(partition, build_batch([Record(0, 0, None, bytes(900_000))]))
        end = client.list_offsets({partition: -1})[partition]
        got = len(client.fetch(partition, Offset(0), bytes_max=8 << 20).records)
        print(int(end), got > 900_000, "io_uring is Linux's" in broker.log)
        client.close()
"""


def test_a_broker_does_without_what_linux_alone_has(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(WORK), str(tmp_path / "kept")]
    done = subprocess.run(
        command, env=portable_environment(tmp_path), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["3 True False", "3 True True", "6 True True"]


@pytest.mark.cluster
def test_a_cluster_does_without_what_linux_alone_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from barnabas_wire.client.blocking import BlockingCluster
    from barnabas_wire.kafka.ids import Offset, TopicPartition
    from barnabas_wire.records.batch import Record, build_batch

    for name, value in portable_environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    partition = TopicPartition("t", 0)
    with LocalCluster(tmp_path / "cluster", nodes=3, base_port=find_base_port()) as cluster:
        client = BlockingCluster(cluster.bootstrap_servers)
        client.metadata(["t"], creates_topics=True)
        for _ in range(3):
            client.produce(partition, build_batch([Record(0, 0, None, bytes(900_000))]))
        cluster.restart(1)
        assert client.list_offsets({partition: -1})[partition] == 3
        assert len(client.fetch(partition, Offset(0), bytes_max=8 << 20).records) > 900_000
        client.close()
        said = cluster.nodes[2].stderr_file.read_text(encoding="utf-8")
    assert "io_uring is Linux's" in said
