"""Starts `barnabas-server` quickly: a process that has imported everything and forks one for each that is asked for.

May touch:  its socket, its children.      Must not touch: gRPC beyond the import, threads (it forks).
Invariants: what is forked has the standard streams, the session and the inherited descriptors that Popen would give it; the
            nursery ends with the process that uses it, and nodes with their cluster's lifeline.
Read next:  clusters.py.

Of a node's start 1 s of CPU are imports. That the console script starts a node is what tests/admin and tests/package show.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, cast

SERVER = "barnabas_broker.main:main"
IMPORTED = (
    "barnabas_broker.node.process",
    "barnabas_broker.node.properties",
    "barnabas_broker.offline.recover_command",
)
REQUEST_BYTES_MAX = 65536
DESCRIPTORS_MAX = 8
CLONE_NEWNET = 0x40000000


class Nursery:
    """This process's end of one; see `nursery`."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.nursery", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def popen(
        self,
        arguments: Sequence[str],
        *,
        run: str = SERVER,
        stdin: Any = subprocess.DEVNULL,
        stdout: Any,
        stderr: Any,
        pass_fds: Sequence[int] = (),
        start_new_session: bool = False,
        network: int | None = None,
    ) -> subprocess.Popen[bytes]:
        """As Popen of `barnabas-server` with these arguments, or of the function `run` (module:name) that takes them.

        network: a process in whose network namespace it runs; None for that of this process.
        """
        with contextlib.ExitStack() as ours:
            reading: int | None = None
            if stdout == subprocess.PIPE:
                reading, stdout = os.pipe()
                ours.callback(os.close, stdout)
            if stdin == subprocess.DEVNULL:
                stdin = ours.enter_context(open(os.devnull, "rb"))
            streams = [stdin, stdout, stdout if stderr == subprocess.STDOUT else stderr]
            descriptors = [each if isinstance(each, int) else each.fileno() for each in streams]
            request = {"run": run, "arguments": list(arguments), "is_leader": start_new_session, "network": network}
            pid = self._ask(request, [*descriptors, *pass_fds])
        return cast("subprocess.Popen[bytes]", ForkedProcess(pid, self._status, reading))

    def run(self, arguments: Sequence[str], *, timeout_s: float) -> subprocess.CompletedProcess[str]:
        """Run an offline verb to its end."""
        with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
            status = self.popen(arguments, stdout=stdout, stderr=stderr).wait(timeout_s)
            for stream in (stdout, stderr):
                stream.seek(0)
            return subprocess.CompletedProcess(arguments, status, stdout.read(), stderr.read())

    def _status(self, pid: int) -> int:
        return self._ask({"ended": pid}, [])

    def _ask(self, request: dict[str, Any], descriptors: list[int]) -> int:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
            return int(self._socket.recv(64))


@functools.cache
def nursery() -> Nursery:
    """The one of this process."""
    return Nursery()


class ForkedProcess:
    """As much of Popen as is used, of a process that is the nursery's child."""

    def __init__(self, pid: int, status: Callable[[int], int], reading: int | None) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status
        self._reading = reading
        self._descriptor = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """See Popen."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """See Popen."""
        if self.returncode is None:
            waiting = select.poll()  # select(2) ends at descriptor 1,023, which a whole run in one process passes
            waiting.register(self._descriptor, select.POLLIN)
            if not waiting.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(f"barnabas-server of pid {self.pid}", timeout or 0.0)
            os.close(self._descriptor)
            self.returncode = self._status(self.pid)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[bytes, None]:
        """See Popen: what it prints must fit into a pipe."""
        assert self._reading is not None, "its output was asked for"
        self.wait(timeout)
        with open(self._reading, "rb") as stream:
            return stream.read(), None

    def send_signal(self, number: int) -> None:
        """See Popen."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    def terminate(self) -> None:
        """See Popen."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """See Popen."""
        self.send_signal(signal.SIGKILL)


def main() -> int:
    """Fork for each request, until the other end is closed."""
    for name in IMPORTED:
        importlib.import_module(name)
    importlib.import_module("barnabas_broker.api.registry").load_handlers()
    importlib.import_module("barnabas_wire.lazy_dataclass").realise_all()
    gc.freeze()  # else each child would copy the pages that its collector touches
    assert threading.active_count() == 1, "a thread would be missing in the children"
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        while True:
            data, descriptors, _, _ = socket.recv_fds(asked, REQUEST_BYTES_MAX, DESCRIPTORS_MAX)
            if not data:
                return 0
            request: dict[str, Any] = json.loads(data)
            if "ended" in request:
                answer = os.waitstatus_to_exitcode(os.waitpid(request["ended"], 0)[1])
            else:
                module, name = request["run"].split(":")
                run = getattr(importlib.import_module(module), name)
                answer = os.fork()
                if answer == 0:
                    asked.close()
                    _become(run, request, descriptors)
            for each in descriptors:
                os.close(each)
            asked.send(b"%d" % answer)


def _become(run: Callable[[list[str]], int], request: dict[str, Any], descriptors: list[int]) -> NoReturn:
    if request["is_leader"]:
        os.setsid()
    if request["network"] is not None:
        _enter_network(request["network"])
    for number, each in enumerate(descriptors[:3]):
        os.dup2(each, number)
        os.close(each)
    status: object = 1
    try:
        status = run(request["arguments"])
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else 1)


def _enter_network(pid: int) -> None:
    """setns(2), which os has from Python 3.12 on."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/proc/{pid}/ns/net", "rb") as namespace:
        if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")


if __name__ == "__main__":
    sys.exit(main())
