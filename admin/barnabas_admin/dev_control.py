"""How another terminal asks a running `barnabas dev` to kill, stop, start, restart, pause or resume one of its nodes.

May touch:  a Unix socket in the cluster's directory, the cluster it is given.    Must not touch: the terminal, other files.
Invariants: only who may enter the directory is heard; one request per connection, answered once; `serve_waiting` never waits for a
            client longer than REQUEST_TIMEOUT_S.
Read next:  commands/dev.py, which serves it in its watch and sends the verbs.

The socket is a file in the cluster's directory, which is its owner's alone: no other account can take its name or connect. It is
reached through the directory's descriptor, for a socket's path has room for 107 bytes only. The directory's lock is taken before, so
a file that is there was left over.

Request and answer are one JSON line each: {"verb": "kill", "node": 2} -> {"done": "killed node 2"} or {"error": "..."}.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barnabas_admin.errors import AdminError, LocalClusterError
from barnabas_admin.local_cluster import LocalCluster
from barnabas_wire.host_system import has_linux

VERBS = {
    "kill": "killed",
    "stop": "stopped",
    "start": "started",
    "restart": "restarted",
    "pause": "paused",
    "resume": "resumed",
}
"""What may be asked, and how it is reported."""
REQUEST_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 30.0
"""A node may take its time to stop in order."""
LINE_BYTES_MAX = 4096
SOCKET = "dev.sock"
"""In the cluster's directory."""


class DevControl:
    """The serving end, in the `dev` that owns the cluster."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._file = cluster.directory / SOCKET
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._file.unlink(missing_ok=True)
            with _address(cluster.directory) as address:
                self._socket.bind(address)
        except OSError as error:
            self._socket.close()
            raise LocalClusterError(f"cannot listen for `barnabas dev kill` and its like: {error}") from error
        self._socket.listen()
        self._socket.setblocking(False)

    def serve_waiting(self) -> list[str]:
        """Do what was asked since the last call; what was done, for the terminal of this `dev`."""
        done: list[str] = []
        while True:
            try:
                connection, _ = self._socket.accept()
            except BlockingIOError:
                return done
            with connection:
                answer = self._serve(connection)
                if "done" in answer:
                    done.append(answer["done"])
                with contextlib.suppress(OSError):  # who asked has gone
                    connection.sendall(json.dumps(answer).encode() + b"\n")

    def close(self) -> None:
        """Hear nobody any more."""
        self._socket.close()
        self._file.unlink(missing_ok=True)

    def _serve(self, connection: socket.socket) -> dict[str, Any]:
        connection.settimeout(REQUEST_TIMEOUT_S)
        try:
            request = json.loads(_read_line(connection))
            verb, node_id = request["verb"], int(request["node"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            return {"error": f"not a request: {error!r}"}
        if verb not in VERBS:
            return {"error": f"{verb} is no verb; use one of {', '.join(VERBS)}"}
        if node_id not in self._cluster.nodes:
            return {"error": f"there is no node {node_id}; nodes are {', '.join(map(str, self._cluster.nodes))}"}
        try:
            if verb == "stop":
                self._cluster.stop_node(node_id)
            elif verb == "start":
                self._cluster.start_node(node_id)
            else:
                getattr(self._cluster, verb)(node_id)
        except LocalClusterError as error:
            return {"error": error.message}
        return {"done": f"{VERBS[verb]} node {node_id}", "metrics_port": self._cluster.nodes[node_id].metrics_port}


def ask(directory: Path, verb: str, node_id: int) -> dict[str, Any]:
    """Ask the `dev` that runs the cluster in `directory`. Raises AdminError where none does, or with its refusal."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_TIMEOUT_S)
        try:
            with _address(directory) as address:
                connection.connect(address)
            connection.sendall(json.dumps({"verb": verb, "node": node_id}).encode() + b"\n")
            answer: dict[str, Any] = json.loads(_read_line(connection))
        except (OSError, ValueError) as error:
            raise LocalClusterError(
                f"no `barnabas dev` runs the cluster in {directory} ({error})",
                f"start it with `barnabas dev --data {directory}`, or name another one's directory with --data",
            ) from error
    if "error" in answer:
        raise AdminError(str(answer["error"]))
    return answer


@contextlib.contextmanager
def _address(directory: Path) -> Iterator[str]:
    """The socket's path while its directory is held open; without Linux's /proc the directory's own. Raises OSError."""
    if not has_linux():
        yield str(directory / SOCKET)
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


def _read_line(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n") and len(data) < LINE_BYTES_MAX:
        piece = connection.recv(LINE_BYTES_MAX)
        if not piece:
            break
        data += piece
    return data
