"""What the configs of one Streams group come to, within what the broker allows.

May touch:  its arguments.            Must not touch: asyncio, clock, files.
Invariants: a stored value beyond the broker's bounds counts as the nearest within: bounds may differ after a restart (KIP-1240).
Read next:  heartbeat.py, the user.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas_coordination.group.streams.messages import StreamsSettings
from barnabas_coordination.streams_config import StreamsGroupConfig


def settings_of(config: StreamsGroupConfig, overrides: Mapping[str, str]) -> StreamsSettings:
    """`overrides`: the group's own configs, by Kafka's names."""

    def own(what: str, least: int = 0, most: int = 2**31 - 1) -> int:
        text = overrides.get(f"streams.{what.replace('_', '.')}")
        value: int = getattr(config, f"group_streams_{what}")
        return value if text is None else min(max(int(text), least), most)

    bounds = config.streams_bounds
    tags = overrides.get("streams.rack.aware.assignment.tags")
    return StreamsSettings(
        **{what: own(what, *bounds[what]) for what in bounds},
        initial_rebalance_delay_ms=own("initial_rebalance_delay_ms"),
        standby_replicas=own("num_standby_replicas", 0, config.group_streams_max_standby_replicas),
        task_offset_interval_ms=config.group_streams_task_offset_interval_ms,
        acceptable_recovery_lag=config.group_streams_acceptable_recovery_lag,
        rack_tags=(
            config.group_streams_rack_aware_assignment_tags
            if tags is None
            else tuple(tag for tag in map(str.strip, tags.split(",")) if tag)
        ),
    )
