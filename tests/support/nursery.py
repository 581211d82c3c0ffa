"""The product's fork server for tests: it runs other functions than a node, too, and in other network namespaces.

May touch:  its socket, its children.      Must not touch: gRPC beyond the import, threads (it forks).
Invariants: those of barnabas_admin/forked.py, whose server this is a form of.
Read next:  clusters.py.

Of a node's start 1 s of CPU are imports. That the console script starts a node is what tests/admin and tests/package show.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from barnabas_admin.forked import ForkServer
from barnabas_admin.local_node import node_environment

SERVER = "barnabas_broker.main:main"
IMPORTED = "barnabas_broker.offline.recover_command"
CLONE_NEWNET = 0x40000000


class Nursery(ForkServer):
    """This process's end of one; see `nursery`."""

    def __init__(self) -> None:
        super().__init__([sys.executable, "-m", "tests.support.nursery"])

    def start(
        self, arguments: Sequence[str], *, run: str = SERVER, network: int | None = None, **options: Any
    ) -> subprocess.Popen[bytes]:
        """As Popen of `barnabas-server` with these arguments, or of the function `run` (module:name) that takes them.

        network: a process in whose network namespace it runs; None for that of this process.
        """
        return self.popen(arguments, environment=node_environment(), run=run, network=network, **options)

    def run(self, arguments: Sequence[str], *, timeout_s: float) -> subprocess.CompletedProcess[str]:
        """Run an offline verb to its end."""
        with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
            status = self.start(arguments, stdout=stdout, stderr=stderr).wait(timeout_s)
            for stream in (stdout, stderr):
                stream.seek(0)
            return subprocess.CompletedProcess(arguments, status, stdout.read(), stderr.read())


@functools.cache
def nursery() -> Nursery:
    """The one of this process."""
    return Nursery()


def _run(request: Mapping[str, Any]) -> object:
    if request["network"] is not None:
        _enter_network(request["network"])
    module, name = request["run"].split(":")
    return getattr(importlib.import_module(module), name)(request["arguments"])


def _enter_network(pid: int) -> None:
    """setns(2), which os has from Python 3.12 on."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/proc/{pid}/ns/net", "rb") as namespace:
        if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")


if __name__ == "__main__":
    from barnabas_broker.api.registry import load_handlers
    from barnabas_broker.node.fork_server import serve
    from barnabas_wire.lazy_dataclass import compile_all

    importlib.import_module(IMPORTED)
    load_handlers()
    compile_all()  # for hundreds of nodes: of three only a part would pay
    sys.exit(serve(int(sys.argv[1]), _run))
