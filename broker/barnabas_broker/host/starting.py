"""The process of one node: forked from this one, or replaced by another interpreter right after.

May touch:  fork, exec, limits and signals of the child.   Must not touch: how often and when (supervision.py).
Invariants: the child has no descriptor of its parent but the streams and its own lock; it holds that lock and has written its pid into it
            before it does anything else; signals do what they do by default before a node says otherwise.
Read next:  ../node/fork_server.py, whose child it is; supervisor.py.

Not obvious: objects of the parent that own descriptors (its sockets) stay alive in the child, on a stack that never returns; were they
collected there, they would close numbers that are the node's by then.
"""

from __future__ import annotations

import functools
import importlib
import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from barnabas_broker.host.system_calls import bind_to_core
from barnabas_broker.node.fork_server import become
from barnabas_wire.lazy_dataclass import dataclass

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
"""Signals that the parent handles."""
FORMATS = "BARNABAS_FORMAT_"
OURS = ("KAFKA_", "NOTIFY_SOCKET", "WATCHDOG_")
"""What begins so in the environment is the host's, or would give all its nodes one value."""
UNWATCHED_MS = 60_000
"""A node that is not killed for its silence says all the same that it is alive: its next parent hears by it that it is
ready."""
WARM_MODULES = ("barnabas_broker.main", "barnabas_broker.api.registry")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a node's process is started with."""

    name: str
    properties_file: Path
    digest: str
    environment: Mapping[str, str]
    lock: int
    """A descriptor with the node's lock."""
    core: int | None
    descriptors_max: int
    is_forked: bool
    """Whether it runs in the memory that its parent has; else by exec."""


def warm_up() -> None:
    """Before the first fork: import and make what every node needs, so that it has the same pages."""
    from barnabas_broker.api.registry import load_handlers
    from barnabas_broker.node.fork_server import warm
    from barnabas_wire.lazy_dataclass import compile_all

    for name in WARM_MODULES:
        importlib.import_module(name)
    load_handlers()
    compile_all()
    warm()


def node_environment(
    environment: Mapping[str, str], *, notify: Path, watchdog_ms: int, formats: bool
) -> dict[str, str]:
    """What a node sees of this process's environment, and whom it tells that it is well. formats: whether it is a voter to be formatted."""
    found = {
        name: value
        for name, value in environment.items()
        if not name.startswith(OURS) and (formats or not name.startswith(FORMATS))
    }
    found["NOTIFY_SOCKET"] = str(notify)
    found["WATCHDOG_USEC"] = str((watchdog_ms or UNWATCHED_MS) * 1000)
    return found


def start_node(launch: Launch) -> int:
    """Start the process; returns its id. Its parent still has the lock's descriptor, and closes it. Raises OSError."""
    sys.stdout.flush()
    sys.stderr.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    try:
        pid = os.fork()
        if pid == 0:
            request = {
                "arguments": ["-c", str(launch.properties_file)],
                "environment": launch.environment,
                "directory": os.getcwd(),
                "is_leader": True,
            }
            streams = [os.open(os.devnull, os.O_RDONLY), os.dup(1), os.dup(2)]
            become(functools.partial(_run, launch), request, streams)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
    return pid


def _run(launch: Launch, request: Mapping[str, Any]) -> object:
    signal.set_wakeup_fd(-1)
    for number in HANDLED:
        signal.signal(number, signal.SIG_DFL)
    for handler in tuple(logging.root.handlers):
        logging.root.removeHandler(handler)
        handler.close()
    _close_all_but(launch.lock)
    os.pwrite(launch.lock, json.dumps({"pid": os.getpid(), "digest": launch.digest}).encode(), 0)
    if launch.descriptors_max < resource.getrlimit(resource.RLIMIT_NOFILE)[0]:
        resource.setrlimit(resource.RLIMIT_NOFILE, (launch.descriptors_max, launch.descriptors_max))
    if launch.core is not None:
        bind_to_core(launch.core)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
    arguments: Sequence[str] = request["arguments"]
    if launch.is_forked:
        main: Callable[[Sequence[str]], object] = importlib.import_module("barnabas_broker.main").main
        return main(arguments)
    os.set_inheritable(launch.lock, True)
    os.execv(sys.executable, [sys.executable, "-m", "barnabas_broker.main", *arguments])


def _close_all_but(kept: int) -> None:
    highest = max(int(each) for each in os.listdir("/dev/fd"))
    os.closerange(3, kept)
    os.closerange(kept + 1, highest + 1)
