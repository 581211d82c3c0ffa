"""Local nodes by fork: this process's end of a `barnabas-server fork-server`, and the processes that it starts.

May touch:  processes, a socket without a name.       Must not touch: broker code; this process is never forked.
Invariants: what is started has what Popen would give it; where the server does not answer, or the package on disk is another one, the
            caller starts the node by exec; the server ends with this process.
Read next:  local_cluster.py; the broker's node/fork_server.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from barnabas_admin.local_node import bytecode_environment, server_command
from barnabas_wire.host_system import has_linux

ROOM_FOR_LINE = "." * 256
"""The longest line that `ps` can show of a node: it takes the place of the server's own."""
STALE = -1
"""In place of a process id: see fork_server.py."""


class NotForked(Exception):
    """The server cannot start it: exec does."""


class ForkServer:
    """This process's end of one; see `fork_server`."""

    def __init__(self, command: Sequence[str] | None = None) -> None:
        """command: what serves, with the descriptor of its socket to follow."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [*(command or server_command("fork-server")), str(theirs.fileno()), ROOM_FOR_LINE],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=os.environ | bytecode_environment(),
            )

    def popen(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        stdin: Any = subprocess.DEVNULL,
        stdout: Any,
        stderr: Any,
        pass_fds: Sequence[int] = (),
        start_new_session: bool = False,
        **more: Any,
    ) -> subprocess.Popen[bytes]:
        """As Popen of `barnabas-server` with these arguments. Raises NotForked."""
        request = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "directory": os.getcwd(),
            "is_leader": start_new_session,
            **more,
        }
        with contextlib.ExitStack() as ours:
            reading: int | None = None
            if stdout == subprocess.PIPE:
                reading, stdout = os.pipe()
                ours.callback(os.close, stdout)
            if stdin == subprocess.DEVNULL:
                stdin = ours.enter_context(open(os.devnull, "rb"))
            streams = (stdin, stdout, stdout if stderr == subprocess.STDOUT else stderr)
            descriptors = [each if isinstance(each, int) else each.fileno() for each in streams]
            pid = self._ask(request, [*descriptors, *pass_fds])
        if pid == STALE:
            raise NotForked("the package on disk is another one than the server's")
        return cast("subprocess.Popen[bytes]", ForkedProcess(pid, self._status, reading))

    def _status(self, pid: int) -> int:
        return self._ask({"ended": pid}, [])

    def _ask(self, request: dict[str, Any], descriptors: list[int]) -> int:
        try:
            with self._lock:
                socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
                answer = self._socket.recv(64)
        except OSError as error:
            raise NotForked(f"the fork server does not answer: {error}") from error
        if not answer:
            raise NotForked("the fork server has ended")
        return int(answer)


def writes_coverage() -> bool:
    """Whether nodes write down at their end which of their lines ran: then they are let come to one, and are not forked."""
    if not {"COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG"}.isdisjoint(os.environ):
        return True
    coverage = sys.modules.get("coverage")
    return coverage is not None and coverage.Coverage.current() is not None


_servers: dict[int, ForkServer] = {}
"""Process id -> its server: a child that the user forks starts its own."""


def fork_server(*, starts: bool) -> ForkServer | None:
    """The one of this process; None where nodes are started by exec. starts: whether to start it, where it is not there yet."""
    if not has_linux() or writes_coverage():
        return None
    found = _servers.get(os.getpid())
    if found is None and starts:
        found = _servers[os.getpid()] = ForkServer()
    return found


def forget_server() -> None:
    """After it refused: the next node's is a new one."""
    _servers.pop(os.getpid(), None)


class ForkedProcess:
    """As much of Popen as is used, of a process that is the server's child."""

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
        """See Popen. Of a process whose server has ended nobody knows the status: it is 255 then."""
        if self.returncode is None:
            waiting = select.poll()  # select(2) ends at descriptor 1,023, which a whole run in one process passes
            waiting.register(self._descriptor, select.POLLIN)
            if not waiting.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(f"barnabas-server of pid {self.pid}", timeout or 0.0)
            os.close(self._descriptor)
            try:
                self.returncode = self._status(self.pid)
            except NotForked:
                self.returncode = 255
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
