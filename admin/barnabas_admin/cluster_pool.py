"""The clusters of one pytest run: started when first asked for, shared, mended between tests, stopped at the end.

May touch:  LocalCluster, its directories.    Must not touch: pytest.
Invariants: a cluster that is given out is whole; one that cannot be mended is stopped and never given out again.
Read next:  pytest_plugin.py, whose fixtures give these out; local_cluster.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from barnabas_admin.cluster_directory import Roles
from barnabas_admin.errors import LocalClusterError
from barnabas_admin.forked import writes_coverage
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import PORTS_SPAN, find_base_port
from barnabas_wire.lazy_dataclass import dataclass

PORTS_FIRST = 20_000
PORTS_PER_WORKER = 12 * PORTS_SPAN
"""Room for twelve clusters of each of ten xdist workers, below the ephemeral range."""
WORKERS_MAX = 10
STARTS_MAX = 3
"""A port may be taken between the look and the start, by another pytest run."""
LOG_LINES_MAX = 60
"""Last lines of a node's log that a failing test shows."""


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """What a test asks for. owner: who shares it, such as a module; empty for the whole run."""

    nodes: int
    roles: Roles = "combined"
    properties: tuple[tuple[str, str], ...] = ()
    owner: str = ""

    @classmethod
    def of(cls, *, nodes: int, roles: Roles, properties: Mapping[str, object], owner: str = "") -> ClusterSpec:
        """Properties as in server.properties; their values are written as text."""
        return cls(nodes, roles, tuple(sorted((key, str(value)) for key, value in properties.items())), owner)


class ClusterPool:
    """Every cluster of one process of a test run."""

    def __init__(self, new_directory: Callable[[], Path], *, worker: int = 0, ports_first: int = PORTS_FIRST) -> None:
        """worker: number of the xdist worker; each has ports of its own, PORTS_PER_WORKER of them, from ports_first on."""
        self._new_directory = new_directory
        self._ports_from = ports_first + worker % WORKERS_MAX * PORTS_PER_WORKER
        self._shared: dict[ClusterSpec, LocalCluster] = {}
        self.running: list[LocalCluster] = []

    def get(self, spec: ClusterSpec) -> LocalCluster:
        """The shared cluster of that kind, healthy. Raises LocalClusterError where none can be started."""
        cluster = self._shared.get(spec)
        if cluster is None:
            cluster = self._shared[spec] = self.start(spec)
        return cluster

    def start(self, spec: ClusterSpec) -> LocalCluster:
        """A cluster that nobody else gets, healthy. Raises LocalClusterError."""
        for left in reversed(range(STARTS_MAX)):
            directory = self._new_directory()
            cluster = LocalCluster(
                directory,
                nodes=spec.nodes,
                roles=spec.roles,
                base_port=find_base_port(self._ports_from, self._ports_from + PORTS_PER_WORKER),
                overrides=dict(spec.properties),
            )
            try:
                cluster.start()
            except LocalClusterError as error:
                if left and "already in use" in error.message:
                    continue
                raise
            self.running.append(cluster)
            return cluster
        raise AssertionError("the last try raises")

    def mend(self, cluster: LocalCluster) -> None:
        """Undo what a test did to its nodes. Raises LocalClusterError, and stops the cluster, where that fails."""
        try:
            cluster.heal()
        except LocalClusterError:
            self.stop(cluster)
            raise

    def stop(self, cluster: LocalCluster) -> None:
        """End it, and remove what it kept: nodes need not stop in order for that."""
        self._shared = {spec: other for spec, other in self._shared.items() if other is not cluster}
        if cluster in self.running:
            self.running.remove(cluster)
            cluster.stop(is_clean=writes_coverage())
            shutil.rmtree(cluster.directory, ignore_errors=True)

    def close(self) -> None:
        """Stop every cluster."""
        for cluster in list(self.running):
            self.stop(cluster)


def log_ends(cluster: LocalCluster) -> dict[int, int]:
    """How long each node's log is, in bytes."""
    return {node.id: _size(node.stderr_file) for node in cluster.nodes.values()}


def logs_since(cluster: LocalCluster, ends: Mapping[int, int]) -> dict[int, str]:
    """The last lines that each node has logged since `ends`, of nodes that logged something."""
    found = {}
    for node in cluster.nodes.values():
        start = ends.get(node.id, 0)
        if _size(node.stderr_file) < start:  # set aside at the node's start
            start = 0
        if _size(node.stderr_file) > start:
            with node.stderr_file.open("rb") as stream:
                stream.seek(start)
                lines = stream.read().decode(errors="replace").splitlines()
            dropped = [f"… {len(lines) - LOG_LINES_MAX} lines before"] if len(lines) > LOG_LINES_MAX else []
            found[node.id] = "\n".join([*dropped, *lines[-LOG_LINES_MAX:]])
    return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
