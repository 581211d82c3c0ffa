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
from typing import Any

from barnabas_admin.local_cluster import STOP_TIMEOUT_S
from barnabas_admin.local_node import LocalNode
from barnabas_admin.local_ports import find_base_port
from tests.power.recording_disk import FlushFault, write_faults
from tests.power.rollback import RolledBack, roll_back
from tests.support.clusters import ForkedCluster
from tests.support.nursery import nursery

JOURNAL = "power"
FAULTS = "faults.json"
NODE = "tests.power.node:run"


class PowerCluster(ForkedCluster):
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
        for node in self.nodes.values():
            node.directory.mkdir(parents=True, exist_ok=True)
            write_faults(self.faults_file(node.id), faults)

    def journal_directory(self, node_id: int) -> Path:
        """Where the node's disk remembers."""
        return self.nodes[node_id].directory / JOURNAL

    def faults_file(self, node_id: int) -> Path:
        """What write_faults is to be given."""
        return self.nodes[node_id].directory / FAULTS

    def _run_server(self, node: LocalNode, arguments: Sequence[str], **options: Any) -> Popen[bytes]:
        """See LocalCluster: nodes, unlike what formats them, run on disks that remember."""
        if arguments[0] == "format":
            return super()._run_server(node, arguments, **options)
        recording = ("--journal", str(self.journal_directory(node.id)), "--faults", str(self.faults_file(node.id)))
        return nursery().start((*recording, *arguments), run=NODE, **options)

    def cut_power(self, node_ids: Iterable[int], random: Random) -> dict[int, RolledBack]:
        """All of them at one instant; then what was not flushed is taken away. They are down afterwards."""
        victims = [self.nodes[node_id] for node_id in node_ids]
        self._stop_nodes(victims, is_clean=False, timeout_s=STOP_TIMEOUT_S)
        return {
            node.id: roll_back(self.journal_directory(node.id), random)
            for node in victims
            if self.journal_directory(node.id).exists()
        }
