"""How another terminal asks a running `barnabas dev` to kill, stop, start, restart, pause or resume one of its nodes.

May touch:  a Unix socket of this user, the cluster it is given.    Must not touch: the terminal, files.
Invariants: only processes of the same user are heard; one request per connection, answered once; `serve_waiting` never waits for a
            client longer than REQUEST_TIMEOUT_S.
Read next:  commands/dev.py, which serves it in its watch and sends the verbs.

The socket's name is in Linux's abstract namespace and comes from the cluster's directory: it needs no file that could be left over,
and no path that could be too long. Anybody on the host may connect to such a name, so the peer's user is checked.

Request and answer are one JSON line each: {"verb": "kill", "node": 2} -> {"done": "killed node 2"} or {"error": "..."}.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import struct
from pathlib import Path
from typing import Any

from barnabas_admin.errors import AdminError, LocalClusterError
from barnabas_admin.local_cluster import LocalCluster

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
_PEER = struct.Struct("3i")
"""struct ucred: pid, uid, gid."""


class DevControl:
    """The serving end, in the `dev` that owns the cluster."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.bind(_name(cluster.directory))
        except OSError as error:  # the directory's lock was taken before: nobody of ours has it
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

    def _serve(self, connection: socket.socket) -> dict[str, Any]:
        connection.settimeout(REQUEST_TIMEOUT_S)
        _, user, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        if user != os.getuid():
            return {"error": "this cluster belongs to another user"}
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
            connection.connect(_name(directory))
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


def _name(directory: Path) -> str:
    return "\0barnabas-dev-" + hashlib.sha256(os.fsencode(directory.resolve())).hexdigest()[:32]


def _read_line(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n") and len(data) < LINE_BYTES_MAX:
        piece = connection.recv(LINE_BYTES_MAX)
        if not piece:
            break
        data += piece
    return data
