"""Who stops and restarts a node: a command of the operator's, or the `barnabas dev` that runs it.

May touch:  subprocesses, dev's control socket.     Must not touch: the admin service beyond the node's address.
Invariants: a node is only ever stopped in order (SIGTERM, controlled shutdown); a command that fails stops the work.
Read next:  commands/roll.py, commands/decommission.py.

A command is run by the shell with {id} and {host} replaced: `ssh -- {host} systemctl restart barnabas`.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import is_host

Control = Callable[[int], None]
"""Stops or restarts the node with this id; raises AdminError."""
WORDS_SHOWN_MAX = 500


def node_hosts(invocation: Invocation) -> dict[int, str]:
    """Where each node listens, by id: brokers by their first listener, controllers by theirs."""
    found = invocation.admin.describe_cluster()
    hosts = {node.id: node.listeners[0].host for node in found.controllers if node.listeners}
    return hosts | {node.id: node.listeners[0].host for node in found.brokers if node.listeners}


def find_control(invocation: Invocation, verb: str, command: str | None) -> Control | None:
    """The operator's command, else the running `dev` that this cluster is; None when there is neither. `verb` is stop or restart."""
    if command is not None:
        hosts = node_hosts(invocation)
        return lambda node_id: run_command(command, node_id=node_id, host=hosts.get(node_id, ""))
    from barnabas_admin.known_clusters import read_context

    context = read_context()
    if context is None or context.cluster_id != invocation.admin.describe_cluster().cluster_id:
        return None
    from barnabas_admin.dev_control import ask

    directory = Path(context.directory)
    return lambda node_id: _ask(ask, directory, verb, node_id)


def _ask(ask: Callable[[Path, str, int], object], directory: Path, verb: str, node_id: int) -> None:
    ask(directory, verb, node_id)


def run_command(command: str, *, node_id: int, host: str) -> None:
    """Run the operator's command for one node. Raises AdminError for a host that is none, and with the end of what the command
    printed when it fails."""
    if host and not is_host(host):  # a node of an older version registered with it
        raise AdminError(
            f"node {node_id} says that its host is {host!r}, which is none: no command is run with it",
            code=ErrorCode.INVALID_REGISTRATION,
            hint="look at that node before you trust it; name hosts by {id} in the command",
        )
    words = command.replace("{id}", str(node_id)).replace("{host}", shlex.quote(host))
    done = subprocess.run(words, shell=True, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AdminError(
            f"`{words}` ended with status {done.returncode}: {(done.stderr or done.stdout)[-WORDS_SHOWN_MAX:].strip()}",
            code=ErrorCode.UNKNOWN_SERVER_ERROR,
            hint="nothing else was begun; mend the command, and run this again: it goes on where it stopped",
        )
