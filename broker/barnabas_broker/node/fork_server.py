"""Nodes by fork, from where everything has been imported; `barnabas-server fork-server` does it for local clusters.

May touch:  the socket it is given, its children, its own memory's argument line.   Must not touch: gRPC beyond the import, threads.
Invariants: what is forked has the streams, the session, the environment and the directory that an exec would have given
            it; it is asked by its own parent only, through a socket without a name; it ends with that process, nodes
            with their cluster's lifeline.
Read next:  ../main.py, which each child runs; admin's forked.py, which asks; ../host/starting.py, which forks without being asked.

Linux alone: elsewhere, and where it does not answer, nodes are started by exec. Of a node's start most is imports, which a child has: the
process that asks is never forked itself, for it may have threads, gRPC channels and locks.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

IMPORTED: Final = (
    "barnabas_broker.node.process",
    "barnabas_broker.node.properties",
    "barnabas_broker.config.log_output",
    "barnabas_broker.node.service_manager",
    "barnabas_log.disk",
)
REQUEST_BYTES_MAX: Final = 256 * 1024
DESCRIPTORS_MAX: Final = 8
STALE: Final = -1
"""In place of a process id: the package on disk is another one by now."""
Run = Callable[[Mapping[str, Any]], object]
"""What a child does with its request; what it returns is its exit status."""


def add_verbs(verbs: Any) -> None:
    """See main.py."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "fork-server", help="start nodes of a local cluster by fork: `barnabas dev` asks it"
    )
    parser.add_argument("descriptor", type=int, help="of a socket that the parent has the other end of")
    parser.add_argument("room", nargs="?", help="takes the place that the nodes' own lines in `ps` need")


def run(options: argparse.Namespace) -> int:
    """See main.py."""
    main = importlib.import_module("barnabas_broker.main").main  # a floor above, as for whoever types the command
    return serve(options.descriptor, lambda request: main(request["arguments"]))


def serve(descriptor: int, run: Run) -> int:
    """Fork for each request that comes to this socket, until its other end is closed.

    A request is JSON: {"arguments", "environment", "directory", "is_leader"} with three descriptors to be the streams and others that the
    child keeps under any number, answered by its process id; or {"ended": pid}, answered by its exit status once it has ended.
    """
    warm()
    package = installed_package()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who asks
    with socket.socket(fileno=descriptor) as asked:
        while True:
            data, descriptors, _, _ = socket.recv_fds(asked, REQUEST_BYTES_MAX, DESCRIPTORS_MAX)
            if not data:
                return 0
            request: dict[str, Any] = json.loads(data)
            if "ended" in request:
                answer = os.waitstatus_to_exitcode(os.waitpid(request["ended"], 0)[1])
            elif installed_package() != package:
                answer = STALE
            else:
                answer = os.fork()
                if answer == 0:
                    asked.close()
                    become(run, request, descriptors)
            for each in descriptors:
                os.close(each)
            asked.send(b"%d" % answer)


def warm() -> None:
    """Import what a node needs, so that children have it, and find the keys that each would look its properties up in."""
    gc.disable()  # what is imported stays: to look at it takes a fifth of the time, and finds 700 objects
    for name in IMPORTED:
        importlib.import_module(name)
    importlib.import_module("barnabas_broker.node.properties").known_keys()
    gc.freeze()  # else each child would copy the pages that its collector touches
    gc.enable()
    assert threading.active_count() == 1, "a thread would be missing in the children"


def installed_package() -> tuple[int, int]:
    """Which installation of this package is on disk: an upgrade puts another file there."""
    try:
        found = Path(__file__).stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_ino, found.st_mtime_ns


def become(run: Run, request: Mapping[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """In the child: take on what the request says, run, and end this process. See `serve`."""
    status: object = 1
    try:
        if request["is_leader"]:
            os.setsid()
        os.chdir(request["directory"])
        os.environ.clear()
        os.environ.update(request["environment"])
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, each in enumerate(descriptors[:3]):
            os.dup2(each, number)
            os.close(each)
        _show_in_ps(["barnabas-server", *request["arguments"]])
        status = run(request)
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else 1)


def _show_in_ps(words: Sequence[str]) -> None:
    """Have `ps` and `pgrep -f` show this command line: it is written where the kernel reads that of this process from."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()
        start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end of proc(5), counted from the state
        comm = Path("/proc/self/comm")
        comm.write_text(words[0])
    except (OSError, ValueError, IndexError):
        return  # no /proc: the line of the server stays
    line = b"\0".join(os.fsencode(word) for word in words)[: max(0, end - start - 1)]
    if start and line:
        ctypes.memmove(start, line.ljust(end - start, b"\0"), end - start)
