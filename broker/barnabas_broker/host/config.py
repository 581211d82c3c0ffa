"""The keys that a host.properties has beside those of its nodes.

May touch:  its arguments.            Must not touch: files, processes.
Invariants: no node is given one of these keys.
Read next:  layout.py, which makes nodes of them.
"""

from __future__ import annotations

from barnabas_wire.config_key import config_key
from barnabas_wire.lazy_dataclass import dataclass

AUTO = "auto"
BROKERS_MAX = 256
NODE_PREFIX = "node."
"""`node.ID.KEY=VALUE` is KEY of one node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConfig:
    """How many nodes a host runs, and how it keeps them."""

    brokers: str = config_key(
        "brokers",
        AUTO,
        f"Brokers of this host, 1 to {BROKERS_MAX}; auto: one for each core that this process may use, less one where a controller runs "
        "beside them.",
    )
    controller_node_id: int | None = config_key(
        "controller.node.id",
        None,
        "Id of the controller that runs beside the brokers where process.roles has controller.",
    )
    directory: str | None = config_key(
        "host.directory",
        None,
        "Directory of the nodes' generated properties, their locks and the socket for `barnabas host status`; `host` in the first of "
        "log.dirs if not set. Its path has room for 80 characters.",
    )
    fork_allow_remote: bool = config_key(
        "host.fork.allow.remote",
        False,
        "Start brokers by fork although a listener is off loopback: less memory for each, and a faster start. They then share the seed of "
        "their hashes and the layout of their address space, so that what a stranger learns of one holds for all.",
    )
    pin_cores: bool = config_key(
        "host.pin.cores", False, "Bind each broker, with all its threads, to a core of its own. On Linux alone."
    )
    watchdog_ms: int = config_key(
        "host.watchdog.ms",
        60_000,
        "A node in service whose event loops have not turned for so long, in ms, is killed and started again; 0 = never.",
    )
    stop_timeout_ms: int = config_key(
        "host.stop.timeout.ms",
        100_000,
        "How long the brokers, and after them the controller, may take to stop in order, in ms; then they are killed.",
    )

    def __post_init__(self) -> None:
        if self.brokers != AUTO and not (self.brokers.isdigit() and 1 <= int(self.brokers) <= BROKERS_MAX):
            raise ValueError(f"brokers={self.brokers}: use {AUTO}, or a number from 1 to {BROKERS_MAX}")
        if self.controller_node_id is not None and self.controller_node_id < 0:
            raise ValueError(f"controller.node.id={self.controller_node_id}: use 0 or greater")
        if self.watchdog_ms < 0 or self.stop_timeout_ms < 1:
            raise ValueError("host.watchdog.ms must be at least 0 and host.stop.timeout.ms at least 1")
