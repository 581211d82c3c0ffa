"""What this user's commands know of clusters: the context of the running `barnabas dev`, and named profiles of others.

May touch:  two JSON files of this user.   Must not touch: network.
Invariants: a file is replaced whole and only its user may read it; it keeps paths of secrets, never secrets; the newest `dev` wins; a `dev`
            removes only the context that it wrote, and another that runs then writes its own.
Read next:  invocation.py for what beats what.

The context is $BARNABAS_CONTEXT, else $XDG_STATE_HOME/barnabas/context.json, else ~/.local/state/barnabas/context.json:
{"api_version": "v1", "cluster_id": …, "admin": "host:port,…", "brokers": "host:port,…", "directory": …, "pid": …,
"client_config": …}: the last names the file with which a secured cluster lets its operator in, or is empty.

The profiles are $XDG_CONFIG_HOME/barnabas/profiles.json: {"api_version": "v1", "current": "prod", "profiles": {"prod": {"admin": …,
"brokers": …, "client_config": …}}}
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from barnabas_admin.errors import WrongUsage
from barnabas_wire.lazy_dataclass import dataclass


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
    _replace(context_path(), {"api_version": "v1"} | asdict(context))


def remove_context(context: Context) -> None:
    """Remove the context if it is still this one."""
    if read_context() == context:
        context_path().unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One cluster; None for what it does not say."""

    admin: str | None = None
    brokers: str | None = None
    client_config: str | None = None


@dataclass(slots=True)
class Profiles:
    """All of this user."""

    current: str | None = None
    named: dict[str, Profile] = field(default_factory=dict)


def profiles_path() -> Path:
    """Where they are kept."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "barnabas" / "profiles.json"


def read_profiles() -> Profiles:
    """The profiles; none where there is no file. Raises WrongUsage for a file that cannot be read."""
    path = profiles_path()
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        named = {str(name): Profile(**fields) for name, fields in found["profiles"].items()}
        return Profiles(found.get("current"), named)
    except FileNotFoundError:
        return Profiles()
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise WrongUsage(f"{path} holds no profiles: {error}", hint="mend it, or remove it") from None


def write_profiles(profiles: Profiles) -> None:
    """Replace the file; only this user may read it. Raises OSError."""
    named = {name: asdict(profile) for name, profile in sorted(profiles.named.items())}
    _replace(profiles_path(), {"api_version": "v1", "current": profiles.current, "profiles": named})


def find_profile(name: str | None) -> Profile | None:
    """The profile of that name, or the current one; None when there is none. Raises WrongUsage for a name that nobody has."""
    profiles = read_profiles()
    wanted = name or profiles.current
    if wanted is None:
        return None
    if wanted not in profiles.named:
        known = ", ".join(sorted(profiles.named)) or "none"
        raise WrongUsage(
            f"there is no profile {wanted!r}; there are: {known}", hint="`barnabas profile create` makes one"
        )
    return profiles.named[wanted]


def _replace(path: Path, content: dict[str, Any]) -> None:
    """Only this user may read it. Raises OSError where the directory cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
        out.write(json.dumps(content, indent=2) + "\n")
    temporary.replace(path)
