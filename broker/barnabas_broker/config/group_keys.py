"""Kafka's keys of groups, and ours: what a group may set for itself.

May touch:  its arguments.            Must not touch: files, logs.
Invariants: a value is accepted only within the bounds of the node's properties; every refusal names the key and what to do.
Read next:  ../node/topic_settings.py, which asks this; barnabas_coordination/share_settings.py for the keys of share groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from barnabas_broker.config.topic_keys import refused
from barnabas_coordination.share_settings import SHARE_KEYS
from barnabas_wire.java_values import java_int

MODERN_KEYS: Mapping[str, tuple[int, int]] = {
    "consumer.assignment.interval.ms": (0, 15_000),
    "consumer.heartbeat.interval.ms": (5_000, 15_000),
    "consumer.session.timeout.ms": (45_000, 60_000),
    "streams.assignment.interval.ms": (0, 15_000),
    "streams.heartbeat.interval.ms": (5_000, 15_000),
    "streams.initial.rebalance.delay.ms": (0, 2**31 - 1),
    "streams.num.standby.replicas": (0, 2),
    "streams.session.timeout.ms": (45_000, 60_000),
}
"""Keys of groups of the consumer protocol (KIP-848) and of Streams groups (KIP-1071) with the least and the most where no
group.….min/max.… says otherwise."""
GROUP_KEYS = MODERN_KEYS.keys() | SHARE_KEYS.keys()


def check_group_together(overrides: Mapping[str, str], properties: Mapping[str, str]) -> None:
    """A member that beats less often than its session lasts would be put out again and again. Raises INVALID_CONFIG."""
    for protocol in ("consumer", "share", "streams"):
        keys = ((f"{protocol}.session.timeout.ms", "45000"), (f"{protocol}.heartbeat.interval.ms", "5000"))
        session_ms, heartbeat_ms = (
            java_int(overrides.get(key) or properties.get(f"group.{key}", default)) for key, default in keys
        )
        if session_ms <= heartbeat_ms:
            raise refused(
                keys[0][0], str(session_ms), f"{keys[1][0]} is {heartbeat_ms}: a session must be longer than that"
            )


def group_value(key: str, value: str, properties: Mapping[str, str]) -> str:
    """The value of a group's key in its normal form, within the bounds of the node's properties. Raises INVALID_CONFIG for what no group
    may have."""
    if key in MODERN_KEYS:
        return str(_within(java_int, key, value, MODERN_KEYS[key], properties))
    own = SHARE_KEYS.get(key)
    if own is None:
        raise refused(key, value, f"groups have no such key; known are {', '.join(sorted(GROUP_KEYS))}")
    return own.written(_within(own.read, key, value, own.bounds, properties))


def _within(
    read: Callable[[str], Any],
    key: str,
    value: str,
    otherwise: tuple[float, float] | None,
    properties: Mapping[str, str],
) -> Any:
    try:
        found = read(value)
    except ValueError as error:
        raise refused(key, value, str(error)) from None
    if otherwise is not None:
        least, most = _bounds(key, otherwise, properties)
        if not least <= found <= most:
            raise refused(key, value, f"it must be between {least} and {most}")
    return found


def _bounds(key: str, otherwise: tuple[float, float], properties: Mapping[str, str]) -> tuple[float, float]:
    least, most = (
        java_int(properties[name]) if (name := _bound_key(key, end)) in properties else bound
        for end, bound in zip(("min", "max"), otherwise, strict=True)
    )
    return least, most


def _bound_key(key: str, end: str) -> str:
    """The node's key that bounds a group's."""
    protocol, _, what = key.partition(".")
    return f"group.{protocol}.{end}.{what.removeprefix('num.')}"
