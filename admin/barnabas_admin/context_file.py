"""The context: where the running `barnabas dev` cluster is, so that later commands on this host need no address.

May touch:  one JSON file below the user's state directory.     Must not touch: network.
Invariants: the newest `dev` wins; a `dev` removes only the context that it wrote, and another that runs then writes its own.
Read next:  invocation.py, which falls back to it.

The file is $BARNABAS_CONTEXT, else $XDG_STATE_HOME/barnabas/context.json, else ~/.local/state/barnabas/context.json:
{"api_version": "v1", "cluster_id": …, "admin": "host:port,…", "brokers": "host:port,…", "directory": …, "pid": …,
"client_config": …}, of mode 0600: the last names the file with which a secured cluster lets its operator in, or is empty.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Addresses of a local cluster; `pid` is the `barnabas dev` that runs it."""

    cluster_id: str
    admin: str
    brokers: str
    directory: str
    pid: int
    client_config: str = ""


def context_path() -> Path:
    """Where the context is kept."""
    named = os.environ.get("BARNABAS_CONTEXT")
    if named:
        return Path(named)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "barnabas" / "context.json"


def data_home() -> Path:
    """Where `barnabas dev` keeps a cluster when no directory is named: $XDG_DATA_HOME/barnabas."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "barnabas"


def read_context() -> Context | None:
    """The context, or None when there is none that can be read."""
    try:
        found = json.loads(context_path().read_text(encoding="utf-8"))
        return Context(**{key: value for key, value in found.items() if key != "api_version"})
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def write_context(context: Context) -> None:
    """Replace the context; raises OSError where the directory cannot be written."""
    path = context_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
        out.write(json.dumps({"api_version": "v1"} | asdict(context), indent=2) + "\n")
    temporary.replace(path)


def remove_context(context: Context) -> None:
    """Remove the context if it is still this one."""
    if read_context() == context:
        context_path().unlink(missing_ok=True)
