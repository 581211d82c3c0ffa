"""One node of a local cluster: its place, its ports, its process, and what it said.

May touch:  the node's output files, the process it is given.    Must not touch: the cluster, broker code.
Invariants: a process that was registered as live does not outlive this interpreter.
Read next:  local_cluster.py.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import field
from importlib.util import cache_from_source
from pathlib import Path

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.lazy_dataclass import dataclass

OUTPUT_BYTES_MAX = 16 * 1024 * 1024
"""A node's output file larger than this is renamed to `<name>.1` at the node's next start."""
LAST_WORDS_BYTES = 4096
LAST_WORDS_LINES = 15


@dataclass(slots=True)
class LocalNode:
    """One node: its place on disk, its ports, and its process while there is one. Ports it does not have are None."""

    id: int
    is_broker: bool
    is_controller: bool
    directory: Path
    directory_id: Uuid
    kafka_port: int | None
    controller_port: int | None
    admin_port: int
    metrics_port: int
    internal_port: int | None = None
    """Where brokers of a secured cluster fetch from each other."""
    server: tuple[str, ...] = ()
    """What runs its `barnabas-server`, as of another version; empty = that of this interpreter."""
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    is_expected_to_run: bool = False
    is_paused: bool = False
    stderr_start: int = 0
    stdout_start: int = 0

    @property
    def properties_file(self) -> Path:
        """The server.properties that the node is started with."""
        return self.directory / "server.properties"

    @property
    def data_directory(self) -> Path:
        """The node's log.dirs."""
        return self.directory / "data"

    @property
    def stderr_file(self) -> Path:
        """What the node logs."""
        return self.directory / "stderr.log"

    @property
    def stdout_file(self) -> Path:
        """What the node prints."""
        return self.directory / "stdout.log"

    @property
    def is_running(self) -> bool:
        """Whether its process runs (paused counts)."""
        return self.process is not None and self.process.poll() is None

    @property
    def roles(self) -> str:
        """process.roles."""
        return ",".join([role for role, has in (("broker", self.is_broker), ("controller", self.is_controller)) if has])


@dataclass(frozen=True, slots=True)
class NodeDeath:
    """A node that ended without being asked to."""

    node_id: int
    status: str
    last_words: str


def node_environment() -> dict[str, str]:
    """The environment of a local node: properties come from its file alone, and only we hear whether it is ready."""
    ours = ("KAFKA_", "NOTIFY_SOCKET", "WATCHDOG_", "BARNABAS_FORMAT_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | bytecode_environment()


def bytecode_environment(source: Path = Path(__file__), cache: Path | None = None) -> dict[str, str]:
    """Where Python shall keep what it compiles, for a package that is neither compiled nor may be written beside: every start would
    compile all of it. Nothing where that is not needed, or the user has no cache directory (default: XDG_CACHE_HOME or ~/.cache)."""
    is_chosen = sys.dont_write_bytecode or sys.pycache_prefix is not None
    if is_chosen or os.access(source.parent, os.W_OK) or Path(cache_from_source(str(source))).exists():
        return {}
    try:
        place = (cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")) / "barnabas" / "bytecode"
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: an account without a home
        return {}
    return {"PYTHONPYCACHEPREFIX": str(place)}


def server_command(*arguments: str) -> list[str]:
    """The command line of `barnabas-server`: the console script beside this interpreter, else the module."""
    script = Path(sys.executable).parent / "barnabas-server"
    if script.is_file() and os.access(script, os.X_OK):
        return [str(script), *arguments]
    return [sys.executable, "-m", "barnabas_broker.main", *arguments]


def describe_exit(code: int) -> str:
    """A return code for people: `exited with status 1`, `was killed by SIGKILL`."""
    if code >= 0:
        return f"exited with status {code}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"


def prepare_output(path: Path) -> int:
    """Set a too long output file aside; returns the position where the new run's output will start."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return 0
    if size <= OUTPUT_BYTES_MAX:
        return size
    path.replace(path.with_name(path.name + ".1"))
    return 0


def tail(path: Path, start: int) -> str:
    """The last lines of a file, of what lies at or after `start`."""
    try:
        with path.open("rb") as stream:
            end = stream.seek(0, os.SEEK_END)
            stream.seek(max(start, end - LAST_WORDS_BYTES))
            text = stream.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.strip().splitlines()[-LAST_WORDS_LINES:])


live_processes: set[subprocess.Popen[bytes]] = set()
"""Nodes that were started and not yet reaped."""


def _kill_what_is_left() -> None:
    """An interpreter that ends without stop() leaves no node behind."""
    for process in live_processes:
        if process.poll() is None:
            process.kill()
            process.wait()


atexit.register(_kill_what_is_left)
