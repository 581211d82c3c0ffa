"""Apache Kafka's cleaner over segments that we wrote, for `make bench-compaction`.

May touch:  a directory it is given, a Java process it starts, loopback.   Must not touch: broker code, the sources' own files.
Invariants: the same bytes as the other rows; one log after another, the first ones to warm the virtual machine up; what is counted is
            the CPU of the cleaner's own thread, and the broker's memory beyond what it takes with the cleaner off.
Read next:  compaction.py; tests/oracle/apache.py.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from barnabas_admin.local_ports import find_base_port
from barnabas_log.cleaner.rewrite import Job
from barnabas_log.config import LogConfig
from barnabas_log.disk import RealDisk
from barnabas_log.tail.segment import LogSegment
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.records.batch import Record, build_batch
from tests.bench.peer.systems import APACHE_FLAGS, KAFKA_VERSION
from tests.oracle.apache import HOST, ApacheBroker, fetch

CLEANER_THREAD = "kafka-log-clean"
"""Its name, as far as the system keeps it."""
CLEAN_WITHIN_S = 120.0
OVERRIDES = {"log.cleaner.backoff.ms": "50", "log.cleaner.threads": "1"}
UNCLEANED = {"cleanup.policy": "delete", "retention.ms": "-1", "min.cleanable.dirty.ratio": "0"}


class Cleaned(NamedTuple):
    """One log."""

    wall_s: float
    """From the change of its policy until its sources were gone, to some 20 ms."""
    cpu_s: float
    left_bytes: int


def why_not() -> str | None:
    """Why Apache Kafka cannot be run here; None when it can."""
    return fetch(KAFKA_VERSION)


def clean_all(jobs: Mapping[str, Job], directory: Path) -> tuple[dict[str, Cleaned], float]:
    """Every log by its topic's name, in order, and the MiB that cleaning took."""
    idle_mib = _with_broker(jobs, directory / "idle", {"log.cleaner.enable": "false"}, lambda broker, admin: {})[1]
    cleaned, busy_mib = _with_broker(
        jobs, directory / "busy", {}, lambda broker, admin: {name: _clean(broker, admin, name) for name in jobs}
    )
    return cleaned, busy_mib - idle_mib


def _with_broker(
    jobs: Mapping[str, Job],
    directory: Path,
    overrides: Mapping[str, str],
    work: Callable[[ApacheBroker, AdminClient], dict[str, Cleaned]],
) -> tuple[dict[str, Cleaned], float]:
    broker = ApacheBroker(
        directory,
        port=find_base_port(),
        overrides={**OVERRIDES, **overrides},
        flags=APACHE_FLAGS,
        version=KAFKA_VERSION,
    )
    with broker:
        admin = AdminClient({"bootstrap.servers": f"{HOST}:{broker.port}", "log_level": 0})
        made = admin.create_topics([NewTopic(name, 1, 1, config=UNCLEANED) for name in jobs])
        for future in made.values():
            future.result(30)
        del admin
    for name, job in jobs.items():
        _put_in_place(job, broker.data / f"{name}-0")
    with broker:
        admin = AdminClient({"bootstrap.servers": f"{HOST}:{broker.port}", "log_level": 0})
        found = work(broker, admin)
        assert broker.process is not None
        return found, _resident_mib(broker.process.pid)


def _put_in_place(job: Job, directory: Path) -> None:
    """Our segments for Kafka's own, and a new one behind them: what is the newest is never cleaned."""
    for path in directory.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for source in job.sources:
        for suffix in (".log", ".index", ".timeindex"):
            name = f"{source.base_offset:020d}{suffix}"
            if suffix == ".log":
                os.link(Path(job.directory) / name, directory / name)  # Kafka removes the name and writes another file
            else:
                shutil.copy(Path(job.directory) / name, directory / name)
    disk = RealDisk(wants_ring=False)
    end = Offset(job.sources[-1].end_offset)
    segment = LogSegment.create(disk, str(directory), end, LogConfig(), now_ms=0)
    batch = build_batch([Record(end, job.now_ms, b"the newest", b"")])
    segment.add_batch(end, job.now_ms, len(batch))
    segment.file.append([batch])
    segment.finish()
    segment.close()
    disk.close()


def _clean(broker: ApacheBroker, admin: AdminClient, name: str) -> Cleaned:
    assert broker.process is not None
    directory = broker.data / f"{name}-0"
    checkpoint = broker.data / "cleaner-offset-checkpoint"
    cpu_before, began_s = _cleaner_cpu_s(broker.process.pid), time.monotonic()
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)
    while not checkpoint.exists() or f"\n{name} 0 " not in checkpoint.read_text():
        assert time.monotonic() < began_s + CLEAN_WITHIN_S, f"{name} was not cleaned"
        time.sleep(0.02)
    wall_s, cpu_s = time.monotonic() - began_s, _cleaner_cpu_s(broker.process.pid) - cpu_before
    return Cleaned(wall_s, cpu_s, sum(path.stat().st_size for path in directory.glob("*.log")))


def _cleaner_cpu_s(pid: int) -> float:
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().startswith(CLEANER_THREAD):
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    raise AssertionError("Kafka's cleaner does not run")


def _resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024
