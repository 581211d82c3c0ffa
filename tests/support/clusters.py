"""Clusters of real processes that start quickly.

May touch:  what LocalCluster may.      Must not touch: what a node does.
Invariants: a node is a process of its own, with the streams, the session and the ends that LocalCluster gives it.
Read next:  nursery.py.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_node import LocalNode
from tests.support.nursery import nursery


class ForkedCluster(LocalCluster):
    """A LocalCluster whose processes are forked where everything has been imported."""

    def _run_server(self, node: LocalNode, arguments: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        return nursery().start(arguments, **options)
