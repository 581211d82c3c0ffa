"""What a node lets its groups set for themselves: each such key of a group has a least and a most among the node's keys.

May touch:  its arguments.            Must not touch: files, environment.
Invariants: a node's own value lies within its bounds.
Read next:  config.py, streams_config.py and share_group_config.py, whose fields these are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from barnabas_wire.config_key import config_key


def least_key(name: str, default: int) -> Any:
    """The node's key for the least of a group's key: group.share.min.session.timeout.ms of share.session.timeout.ms."""
    return _bound_key(name, "min", default, "Least", "less")


def most_key(name: str, default: int) -> Any:
    """The same for the most."""
    return _bound_key(name, "max", default, "Most", "more")


def _bound_key(name: str, word: str, default: int, bound: str, beyond: str) -> Any:
    protocol, _, rest = name.partition(".")
    unit = ", in ms" if name.endswith(".ms") else ""
    doc = f"{bound} {name} of a group{unit}; what is {beyond} counts as this."
    return config_key(f"group.{protocol}.{word}.{rest}", default, doc)


def bounds_of(config: Any, protocol: str, names: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Least and most of what a group of the protocol may set for itself, by the ends of the fields' names."""
    return {
        name: (getattr(config, f"group_{protocol}_min_{name}"), getattr(config, f"group_{protocol}_max_{name}"))
        for name in names
    }


def check_bounds(config: Any, protocol: str, bounds: dict[str, tuple[int, int]]) -> None:
    """Raise ValueError where the node's own value is out of bounds, or a member that is heard in time would be out."""
    for name, (least, most) in bounds.items():
        value, key = getattr(config, f"group_{protocol}_{name}"), name.replace("_", ".")
        if not least <= value <= most:
            raise ValueError(
                f"group.{protocol}.{key}={value} must be from group.{protocol}.min.{key}={least} to group.{protocol}.max.{key}={most}"
            )
    if getattr(config, f"group_{protocol}_session_timeout_ms") <= getattr(
        config, f"group_{protocol}_heartbeat_interval_ms"
    ):
        raise ValueError(
            f"group.{protocol}.session.timeout.ms must be more than group.{protocol}.heartbeat.interval.ms: raise it"
        )
