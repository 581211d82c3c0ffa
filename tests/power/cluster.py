"""A local cluster whose nodes run on RecordingDisks: kill, then roll back, is a power cut.

May touch:  its directory and processes, as LocalCluster does.     Must not touch: a node that runs, but by its faults file.
Invariants: formatting is durable; a node's power is cut only when its process is gone.
Read next:  rollback.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from subprocess import Popen
from typing import cast

from barnabas_admin.local_cluster import STOP_TIMEOUT_S, LocalCluster, find_base_port
from barnabas_admin.local_node import LocalNode, live_processes, prepare_output
from tests.power.nursery import Nursery
from tests.power.recording_disk import FlushFault, write_faults
from tests.power.rollback import RolledBack, roll_back

JOURNAL = "power"
FAULTS = "faults.json"


class PowerCluster(LocalCluster):
    """LocalCluster's arguments; `faults` count on every node from the start."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        nodes: int = 3,
        overrides: Mapping[str, str] | None = None,
        faults: Sequence[FlushFault] = (),
    ) -> None:
        super().__init__(directory, nodes=nodes, base_port=find_base_port(), overrides=overrides)
        self._nursery: Nursery | None = None
        for node in self.nodes.values():
            node.directory.mkdir(parents=True, exist_ok=True)
            write_faults(self.faults_file(node.id), faults)

    def journal_directory(self, node_id: int) -> Path:
        """Where the node's disk remembers."""
        return self.nodes[node_id].directory / JOURNAL

    def faults_file(self, node_id: int) -> Path:
        """What write_faults is to be given."""
        return self.nodes[node_id].directory / FAULTS

    def _spawn(self, node: LocalNode) -> None:
        """See LocalCluster: by the nursery."""
        assert self._lifeline is not None, "the cluster is launched"
        if self._nursery is None:
            self._nursery = Nursery(self._lifeline[0])
        node.stderr_start = prepare_output(node.stderr_file)
        node.stdout_start = prepare_output(node.stdout_file)
        recording = ("--journal", str(self.journal_directory(node.id)), "--faults", str(self.faults_file(node.id)))
        forked = self._nursery.start(
            (*recording, "-c", str(node.properties_file), "--until-stdin-ends"),
            stdout=str(node.stdout_file),
            stderr=str(node.stderr_file),
        )
        node.process = cast("Popen[bytes]", forked)
        live_processes.add(node.process)
        node.is_expected_to_run = True
        node.is_paused = False

    def stop(self, *, is_clean: bool = True, timeout_s: float = STOP_TIMEOUT_S) -> list[int]:
        """See LocalCluster.stop."""
        killed = super().stop(is_clean=is_clean, timeout_s=timeout_s)
        if self._nursery is not None:
            self._nursery.close()
            self._nursery = None
        return killed

    def cut_power(self, node_ids: Iterable[int], random: Random) -> dict[int, RolledBack]:
        """All of them at one instant; then what was not flushed is taken away. They are down afterwards."""
        victims = [self.nodes[node_id] for node_id in node_ids]
        self._stop_nodes(victims, is_clean=False, timeout_s=STOP_TIMEOUT_S)
        return {
            node.id: roll_back(self.journal_directory(node.id), random)
            for node in victims
            if self.journal_directory(node.id).exists()
        }
