"""Named profiles: where clusters are and how they let us in, so that commands name one word instead of addresses.

May touch:  one JSON file of this user.   Must not touch: network.
Invariants: the file is replaced whole; a profile keeps paths of secrets, never secrets.
Read next:  invocation.py for what beats what.

The file is $XDG_CONFIG_HOME/barnabas/profiles.json: {"api_version": "v1", "current": "prod", "profiles": {"prod": {"admin": …,
"brokers": …, "client_config": …}}}
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from barnabas_admin.errors import WrongUsage


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
    path = profiles_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    content = {
        "api_version": "v1",
        "current": profiles.current,
        "profiles": {name: asdict(profile) for name, profile in sorted(profiles.named.items())},
    }
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(json.dumps(content, indent=2) + "\n")
    temporary.replace(path)


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
