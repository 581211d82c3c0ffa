"""Which nodes a host runs: from one host.properties to the properties of each.

May touch:  its arguments.            Must not touch: files, sockets, processes.
Invariants: a node's properties depend on its id, its place among the brokers and the shares, and on nothing that happened; two nodes never
            share a port, a directory or a log file.
Read next:  ../node/properties.py, which reads what comes out of here; supervision.py.

By rule, of broker i of n (from 0), where host.properties says
    node.id=100                      100 + i; a list, as in 3,7,12, names the ids instead
    listeners, advertised.listeners, admin.listeners, metrics.listeners      each port + i; port 0 stays
    log.dirs=/a,/b                   /a/broker-ID,/b/broker-ID; so metadata.log.dir
    queued.max.request.bytes, log.cleaner.dedupe.buffer.size, log.cleaner.io.max.bytes.per.second      its share of the host's
    broker.host                      the host's name, if it is not set
    replica.fetch.wait.max.ms        2000, if it is not set
The controller has the listeners that controller.listener.names names, as they are written, and the admin and metrics ports before the
brokers' first, so that a host may grow. `{node.id}` stands for the id in every value, and node.ID.KEY=VALUE wins over every rule.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from barnabas_broker.config.keys import ConfigError, format_value, keys_of, load
from barnabas_broker.host.config import AUTO, NODE_PREFIX, HostConfig
from barnabas_broker.node.properties import (
    BROKER,
    CONTROLLER,
    WILDCARDS,
    NodeConfig,
    ServerConfig,
    is_loopback,
    split_address,
)
from barnabas_log.config import LogManagerConfig
from barnabas_wire.lazy_dataclass import dataclass

ID = "{node.id}"
NODE_ID, ROLES, LISTENERS, ADVERTISED = "node.id", "process.roles", "listeners", "advertised.listeners"
LOG_DIRS, METADATA_DIR, LOG_FILE = "log.dirs", "metadata.log.dir", "log.file"
HOST = "broker.host"
FETCH_WAIT, FETCH_WAIT_MS = "replica.fetch.wait.max.ms", "2000"
"""Twice the default: the brokers of hosts follow all others, and at rest these fetches take most of the CPU."""
ADMIN, METRICS = "admin.listeners", "metrics.listeners"
REQUEST_BYTES, CLEANER_BYTES = "queued.max.request.bytes", "log.cleaner.dedupe.buffer.size"
CLEANER_RATE = "log.cleaner.io.max.bytes.per.second"
CLEANER_BYTES_MIN = 16 * 1024 * 1024
"""A share is not smaller: a cleaner with less would read its log very often."""
FILES = (LOG_FILE, "audit.log.path")
"""Files that a node writes and renames by itself: each has its own."""
LINE_HAS_ID = "log.text.node.id"
PORT_MAX = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """One node of the host."""

    id: int
    role: str
    properties: Mapping[str, str]
    core: int | None = None
    """The core that it is bound to; None: as the system likes."""

    @property
    def name(self) -> str:
        """What its directories and files are called."""
        return f"{self.role}-{self.id}"

    @property
    def is_broker(self) -> bool:
        """Whether it serves Kafka clients."""
        return self.role == BROKER


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlan:
    """What a host.properties says."""

    config: HostConfig
    directory: str
    nodes: tuple[NodePlan, ...]
    """The controller first, then the brokers by their place."""


def plan_host(properties: Mapping[str, str], *, cores: Sequence[int], host_name: str) -> HostPlan:
    """The nodes of a host. Raises ConfigError that names the key and the fix.

    cores: those that this process may use, by number. host_name: what brokers are lost with, where the properties do not say it.
    """
    config = load(HostConfig, properties)
    roles = _parts(properties.get(ROLES, BROKER))
    if BROKER not in roles or not {BROKER, CONTROLLER}.issuperset(roles):
        raise ConfigError(
            f"process.roles={','.join(roles)}: a host runs brokers; use broker, or broker,controller for a controller process beside them"
        )
    has_controller = CONTROLLER in roles
    if has_controller and config.controller_node_id is None:
        raise ConfigError("process.roles has controller: give it an id of its own, controller.node.id=")
    if not has_controller and config.controller_node_id is not None:
        raise ConfigError(
            f"controller.node.id={config.controller_node_id}, but process.roles has no controller: add it, or take the id out"
        )
    count = max(1, len(cores) - has_controller) if config.brokers == AUTO else int(config.brokers)
    ids = _broker_ids(properties.get(NODE_ID, ""), count, is_auto=config.brokers == AUTO)
    if config.controller_node_id in ids:
        raise ConfigError(f"controller.node.id={config.controller_node_id} is a broker's id, too: give it another one")
    if config.pin_cores and len(cores) < len(ids):
        raise ConfigError(
            f"host.pin.cores=true, and {len(ids)} brokers have {len(cores)} cores: lower brokers, or take it out"
        )
    controllers = [] if config.controller_node_id is None else [config.controller_node_id]
    shared, own = _split(properties, known={*ids, *controllers})
    for key in FILES:
        if shared.get(key) and ID not in shared[key]:
            raise ConfigError(
                f"{key}={shared[key]}: two nodes would write and rename one file; write {ID} into its name"
            )
    brokers = {HOST: host_name, FETCH_WAIT: FETCH_WAIT_MS} | _share(shared, len(ids))
    nodes = [
        NodePlan(id=node, role=CONTROLLER, properties=_finished(node, _controller(shared, node), own))
        for node in controllers
    ]
    for place, node in enumerate(ids):
        core = cores[place] if config.pin_cores else None
        plan = NodePlan(id=node, role=BROKER, properties=_finished(node, _broker(brokers, node, place), own), core=core)
        nodes.append(plan)
    roots = _parts(shared.get(LOG_DIRS, ""))
    if not roots and not config.directory:
        raise ConfigError("log.dirs is required: the directories that each broker gets one of its own in")
    return HostPlan(config=config, directory=config.directory or os.path.join(roots[0], "host"), nodes=tuple(nodes))


def _broker_ids(text: str, count: int, *, is_auto: bool) -> list[int]:
    words = _parts(text)
    if not words or not all(word.isdigit() for word in words):
        raise ConfigError(f"node.id={text}: write the id of the first broker, or a list of the ids of all")
    if len(words) == 1:
        return list(range(int(words[0]), int(words[0]) + count))
    if len(set(words)) < len(words) or (not is_auto and len(words) != count):
        raise ConfigError(
            f"node.id={text} names {len(set(words))} brokers" + ("" if is_auto else f", and brokers={count}") + ": "
            "name each once, or write the first one's alone"
        )
    return [int(word) for word in words]


def _split(properties: Mapping[str, str], known: set[int]) -> tuple[dict[str, str], dict[int, dict[str, str]]]:
    """What all nodes have, and what node.ID.KEY gives one of them."""
    ours = {key.name for key in keys_of(HostConfig)}
    shared: dict[str, str] = {}
    own: dict[int, dict[str, str]] = {}
    for name, value in properties.items():
        node, _, key = name.removeprefix(NODE_PREFIX).partition(".")
        if not name.startswith(NODE_PREFIX) or not node.isdigit() or not key:
            if name not in ours:
                shared[name] = value
            continue
        if int(node) not in known:
            raise ConfigError(f"{name}: this host has no node {node}, only {', '.join(map(str, sorted(known)))}")
        if key in (NODE_ID, ROLES) or key in ours:
            raise ConfigError(f"{name}: {key} is the host's; take it out")
        own.setdefault(int(node), {})[key] = value
    return shared, own


def _share(shared: Mapping[str, str], brokers: int) -> dict[str, str]:
    """Each broker's properties, with its part of what the host has for all."""
    found = dict(shared)
    for key in (REQUEST_BYTES, CLEANER_RATE):
        if key in shared:
            try:
                found[key] = str(int(float(shared[key])) // brokers)
            except (ValueError, OverflowError):
                raise ConfigError(f"{key}={shared[key]}: write a number of bytes for the whole host") from None
    limit, largest = found.get(REQUEST_BYTES), shared.get("socket.request.max.bytes", str(100 * 1024 * 1024))
    if limit is not None and largest.isdigit() and int(limit) < int(largest):
        raise ConfigError(
            f"{REQUEST_BYTES}={shared[REQUEST_BYTES]} gives each of {brokers} brokers {limit}, and the largest request, "
            f"socket.request.max.bytes={largest}, would find no room: raise it to {int(largest) * brokers}, or lower that"
        )
    cleaner = shared.get(CLEANER_BYTES) or _default(LogManagerConfig, CLEANER_BYTES)
    if cleaner.isdigit():
        found[CLEANER_BYTES] = str(max(min(int(cleaner), CLEANER_BYTES_MIN), int(cleaner) // brokers))
    return found


def _broker(shared: Mapping[str, str], node: int, place: int) -> dict[str, str]:
    names = _controller_names(shared)
    found = dict(shared) | {ROLES: BROKER, NODE_ID: str(node)}
    found[LISTENERS] = _moved(
        shared.get(LISTENERS) or _default(ServerConfig, LISTENERS), place, LISTENERS, without=names
    )
    for key in (ADMIN, METRICS):
        found[key] = _moved(shared.get(key) or _default(ServerConfig, key), place, key)
    if shared.get(ADVERTISED, AUTO) != AUTO:
        found[ADVERTISED] = _moved(shared[ADVERTISED], place, ADVERTISED, without=names)
    return found | _directories(shared, f"{BROKER}-{node}")


def _controller(shared: Mapping[str, str], node: int) -> dict[str, str]:
    names = _controller_names(shared)
    found = dict(shared) | {ROLES: CONTROLLER, NODE_ID: str(node)}
    found[LISTENERS] = _moved(shared.get(LISTENERS, ""), 0, LISTENERS, only=names)
    for key in (ADMIN, METRICS):
        found[key] = _moved(shared.get(key) or _default(ServerConfig, key), -1, key)
    advertised = found.pop(ADVERTISED, AUTO)
    if advertised != AUTO and (mine := _moved(advertised, 0, ADVERTISED, only=names)):
        found[ADVERTISED] = mine
    found.pop("inter.broker.listener.name", None)
    return found | _directories(shared, f"{CONTROLLER}-{node}")


def _directories(shared: Mapping[str, str], name: str) -> dict[str, str]:
    return {
        key: ",".join(os.path.join(each, name) for each in _parts(shared[key]))
        for key in (LOG_DIRS, METADATA_DIR)
        if shared.get(key)
    }


def _finished(node: int, properties: Mapping[str, str], own: Mapping[int, Mapping[str, str]]) -> dict[str, str]:
    whole = {LINE_HAS_ID: "true", **properties, **own.get(node, {})}
    return {key: value.replace(ID, str(node)) for key, value in whole.items()}


def _controller_names(shared: Mapping[str, str]) -> list[str]:
    key = "controller.listener.names"
    return _parts(shared.get(key) or _default(ServerConfig, key))


def _moved(text: str, by: int, key: str, *, without: Iterable[str] = (), only: Iterable[str] | None = None) -> str:
    """A list of [NAME://]host:port with other ports: of all listeners, those not named in `without`, or `only` those."""
    found = []
    for part in _parts(text):
        name, separator, _ = part.partition("://")
        if separator and (name in without or (only is not None and name not in only)):
            continue
        address, _, port = part.rpartition(":")
        if not port.isdigit():
            raise ConfigError(f"{key}={part}: write its port")
        moved = int(port) + by if int(port) else 0
        if not 0 <= moved <= PORT_MAX:
            raise ConfigError(
                f"{key}={part} has no room for the ports of all brokers, up to {moved}: choose another one"
            )
        found.append(f"{address}:{moved}")
    return ",".join(found)


def _default(config_class: type, name: str) -> str:
    return next(format_value(key.default) for key in keys_of(config_class) if key.name == name)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


class _Port(NamedTuple):
    node: int
    key: str
    host: str
    port: int


def refuse_overlaps(plan: HostPlan, servers: Mapping[int, ServerConfig]) -> None:
    """Raise ConfigError for two nodes that would have one port or one directory. servers: by node id."""
    ports = itertools.chain.from_iterable(_ports(node, server) for node, server in servers.items())
    for one, other in itertools.combinations(sorted(ports, key=lambda each: each.port), 2):
        if one.port and one.port == other.port and _meet(one.host, other.host):
            raise ConfigError(
                f"{one.key} of node {one.node} and {other.key} of node {other.node} have one port, {one.host}:{one.port}: move "
                f"{other.key}, or set node.{other.node}.{other.key}"
            )
    homes = [
        (f"node {node}", os.path.abspath(each)) for node, server in servers.items() for each in server.all_directories
    ]
    homes.append(("host.directory", os.path.abspath(plan.directory)))
    for (owner, home), (other_owner, other_home) in itertools.combinations(homes, 2):
        if owner != other_owner and os.path.commonpath((home, other_home)) in (home, other_home):
            raise ConfigError(
                f"{home} of {owner} and {other_home} of {other_owner} lie in one another: name directories beside each other"
            )


def _ports(node: int, server: ServerConfig) -> Iterator[_Port]:
    controller = server.controller_endpoint()
    for point in (*server.kafka_endpoints(), *([controller] if controller else ())):
        yield _Port(node, LISTENERS, point.host, point.port)
    for point in server.admin_endpoints():
        yield _Port(node, ADMIN, point.host, point.port)
    for address in server.metrics_listeners:
        yield _Port(node, METRICS, *split_address(address, METRICS))


def _meet(one: str, other: str) -> bool:
    named = {"127.0.0.1" if host == "localhost" else host for host in (one, other)}
    return len(named) == 1 or not named.isdisjoint(WILDCARDS)


def is_on_loopback(server: ServerConfig) -> bool:
    """Whether no stranger reaches a listener of this node."""
    return all(is_loopback(point.host) for point in _ports(server.node_id, server))


def may_fork(config: HostConfig, nodes: Iterable[NodeConfig]) -> bool:
    """Whether siblings may share hash seed and address layout: no other host talks to them, or the operator allows
    it."""
    return config.fork_allow_remote or all(is_on_loopback(node.server) for node in nodes)


def share_descriptors(limit: int, *, nodes: int, system_max: int) -> int:
    """How many files each node may open: its process's own limit, and no more than its part of what the whole system has."""
    return min(limit, system_max // max(1, nodes))
