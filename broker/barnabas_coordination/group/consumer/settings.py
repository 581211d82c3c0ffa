"""What the configs of one group come to, within what the broker allows.

May touch:  its arguments.            Must not touch: asyncio, clock, files.
Invariants: a stored value beyond the broker's bounds counts as the nearest within: bounds may differ after a restart (KIP-1240).
Read next:  heartbeat.py, the user.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas_coordination.config import GroupCoordinatorConfig
from barnabas_coordination.group.consumer.messages import GroupSettings


def settings_of(config: GroupCoordinatorConfig, overrides: Mapping[str, str]) -> GroupSettings:
    """`overrides`: the group's own configs, by Kafka's names."""
    found = {}
    for what, (least, most) in config.consumer_bounds.items():
        text = overrides.get(f"consumer.{what.replace('_', '.')}")
        own: int = getattr(config, f"group_consumer_{what}")
        found[what] = own if text is None else min(max(int(text), least), most)
    return GroupSettings(**found)
