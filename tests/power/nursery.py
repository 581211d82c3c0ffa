"""Starts nodes quickly: a process that has imported everything and forks a node for each line it is given.

May touch:  its standard input and output, its children.      Must not touch: gRPC beyond the import, threads (it forks).
Invariants: a node's standard input, output and session are those that LocalCluster would give it; the nursery ends with its
            standard input, and the nodes with the cluster's lifeline.
Read next:  cluster.py.

Of a node's start 1.2 s of CPU are imports, which 3 nodes and hundreds of power cuts would pay again and again.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO, Any

IMPORTED = ("barnabas_broker.node.process", "barnabas_broker.config.server", "tests.power.node")


class Nursery:
    """The harness's end of one. `lifeline` becomes the nodes' standard input."""

    def __init__(self, lifeline: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.power.nursery", str(lifeline)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(lifeline,),
            start_new_session=True,
        )

    def start(self, arguments: Sequence[str], *, stdout: str, stderr: str) -> ForkedProcess:
        """Run tests.power.node with these arguments, its output appended to the files."""
        assert self._process.stdin is not None and self._process.stdout is not None
        line = json.dumps({"arguments": list(arguments), "stdout": stdout, "stderr": stderr})
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        return ForkedProcess(int(self._process.stdout.readline()))

    def close(self) -> None:
        """End it; nodes that run are not touched."""
        self._process.communicate(timeout=10)


class ForkedProcess:
    """As much of Popen as LocalCluster uses, of a process that is another's child: how it ended is not known."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._descriptor = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """0 once it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """See Popen."""
        if self.returncode is None:
            if not select.select([self._descriptor], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"node of pid {self.pid}", timeout or 0.0)
            os.close(self._descriptor)
            self.returncode = 0
        return self.returncode

    def send_signal(self, number: int) -> None:
        """See Popen."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    def kill(self) -> None:
        """See Popen."""
        self.send_signal(signal.SIGKILL)


def main() -> int:
    """Fork a node a line, until standard input ends."""
    for name in IMPORTED:
        importlib.import_module(name)
    importlib.import_module("barnabas_broker.api.registry").load_handlers()
    assert threading.active_count() == 1, "a thread would be missing in the children"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended, so that they leave no zombies
    lifeline = int(sys.argv[1])
    for line in iter(sys.stdin.readline, ""):
        request: dict[str, Any] = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become_node(lifeline, request)
        print(pid, flush=True)
    return 0


def _become_node(lifeline: int, request: dict[str, Any]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.dup2(lifeline, 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream: IO[bytes]
        with open(request[name], "ab") as stream:
            os.dup2(stream.fileno(), number)
    status = 1
    try:
        from tests.power.node import run

        status = run(request["arguments"])
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
