"""The console of a `barnabas dev`, or of another cluster on this machine: a process beside the nodes, found by the address it prints.

May touch:  one child process, a browser where there is a screen.    Must not touch: the nodes.
Invariants: it ends with the `dev` that started it; a console that cannot start is an error before any node is.
Read next:  commands/dev.py, commands/console.py.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from pathlib import Path

from barnabas_admin.errors import LocalClusterError

NEEDED = ("starlette", "jinja2", "uvicorn")
STOP_S = 5.0


def ensure_console() -> None:
    """Raises LocalClusterError where the console's extra is not installed."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise LocalClusterError(f"the console needs {', '.join(missing)}", "pip install 'barnabas[console]'")


def start_console(
    *, admin: str, brokers: str, client_config: str, directory: Path
) -> tuple[subprocess.Popen[bytes], str]:
    """Start the console of the cluster at these addresses; its process, and the address of its pages. Its output and its history are
    in the directory. Raises LocalClusterError when it does not start."""
    command = [sys.executable, "-m", "barnabas_admin.main", "console", "--port", "0", "-o", "json"]
    command += ["--history", str(directory / "console.sqlite"), "--admin", admin, "-b", brokers]
    if client_config:  # a closed cluster: whoever of this host reaches the page signs in as a user of it
        command += ["--client-config", client_config, "--sign-in"]
    log_file = directory / "console.log"
    with log_file.open("wb") as log:
        # In a session of its own: Ctrl-C is for who started it, and who ends it after the nodes were asked to stop.
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
    assert process.stdout is not None
    line = process.stdout.readline()  # it prints its address once it listens, or ends
    try:
        return process, str(json.loads(line)["address"])
    except (ValueError, KeyError):
        stop_console(process)
        said = log_file.read_text(errors="replace").strip()[-300:]
        raise LocalClusterError(f"the console did not start: {said or 'it said nothing'}", f"see {log_file}") from None


def stop_console(process: subprocess.Popen[bytes]) -> None:
    """End it; by SIGKILL where it does not go by itself."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def running_console(*, admin: str, brokers: str, client_config: str, directory: Path) -> Iterator[str]:
    """Run the console while the block runs, opened in a browser where there is a screen; gives the address of its pages. Raises
    LocalClusterError."""
    process, address = start_console(admin=admin, brokers=brokers, client_config=client_config, directory=directory)
    try:
        if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
            webbrowser.open(address)
        yield address
    finally:
        stop_console(process)
