"""`barnabas-server host -c host.properties`: run a broker for each core of this host, and watch over them.

May touch:  arguments, the properties file, what the system allows a process.   Must not touch: nodes.
Invariants: what can be refused is refused, in one line, before a process is started; the environment sets no key: it would set one for all
            nodes.
Read next:  layout.py; supervisor.py.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from barnabas_broker.config.keys import ConfigError, keys_of, load
from barnabas_broker.config.log_output import LogOutputConfig, start_logging
from barnabas_broker.host.config import NODE_PREFIX, HostConfig
from barnabas_broker.host.directory import HostDirectory
from barnabas_broker.host.layout import (
    ID,
    LINE_HAS_ID,
    LOG_DIRS,
    HostPlan,
    may_fork,
    plan_host,
    refuse_overlaps,
    share_descriptors,
)
from barnabas_broker.host.starting import warm_up
from barnabas_broker.host.supervisor import HostFacts, Supervisor
from barnabas_broker.host.system_calls import allowed_cores, system_descriptors
from barnabas_broker.metadata.meta_properties import META_PROPERTIES
from barnabas_broker.node.descriptor_budget import raise_descriptor_limit, split_descriptors
from barnabas_broker.node.properties import NodeConfig, node_config, read_properties, refuse_unknown
from barnabas_broker.node.service_manager import ServiceManager
from barnabas_wire.host_system import has_linux

NAME = "host"
"""What this process is called where nodes have their ids."""


def add_verbs(verbs: Any) -> None:
    """See main.py."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "host", help="run a broker for each core of this host, and watch over them"
    )
    parser.add_argument("-c", "--config", help="the host.properties: keys of its nodes, and the host's own")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--check",
        action="store_true",
        help="say which nodes there would be, or what would be refused, and start nothing",
    )


def run(options: argparse.Namespace) -> int:
    """See main.py. Raises KafkaError for what the operator must mend."""
    properties = _properties(options)
    plan, nodes, descriptors = _planned(properties)
    is_forked = has_linux() and may_fork(plan.config, nodes)
    if options.check:
        _show(plan, is_forked=is_forked)
        return 0
    ours = {LINE_HAS_ID: "true"} | {key: value.replace(ID, NAME) for key, value in properties.items()}
    start_logging(load(LogOutputConfig, ours), default_level=os.environ.get("BARNABAS_LOG_LEVEL", "INFO"), node_id=NAME)
    directory = HostDirectory(plan.directory)
    held = directory.lock()
    if is_forked:
        warm_up()
    manager = ServiceManager.of(os.environ)
    facts = HostFacts(
        plan=plan,
        digests={node.name: _digest(node.properties) for node in plan.nodes},
        descriptors_max=descriptors,
        is_forked=is_forked,
        service_manager=manager,
        watchdog_s=manager.watchdog_s,
        environment=dict(os.environ),
    )
    try:
        return Supervisor(facts, directory, plan=lambda more: _planned(_properties(options) | dict(more))[0]).run()
    finally:
        os.close(held)


def _properties(options: argparse.Namespace) -> dict[str, str]:
    if not options.config:
        raise ConfigError("name the host's properties file: barnabas-server host -c host.properties")
    given = {}
    for override in options.override:
        key, separator, value = override.partition("=")
        if not separator:
            raise ConfigError(f"--override {override}: write KEY=VALUE")
        given[key.strip()] = value.strip()
    ours = {key.name for key in keys_of(HostConfig)}
    refuse_unknown(key for key in given if key not in ours and not _is_of_one_node(key))
    return read_properties(options.config) | given


def _is_of_one_node(key: str) -> bool:
    return key.startswith(NODE_PREFIX) and key.removeprefix(NODE_PREFIX).partition(".")[0].isdigit()


def _planned(properties: Mapping[str, str]) -> tuple[HostPlan, Sequence[NodeConfig], int]:
    """The nodes, each as it would read its properties, and the open files that each may have. Raises ConfigError for what one of them,
    or all together, would refuse."""
    plan = plan_host(properties, cores=allowed_cores(), host_name=socket.gethostname())
    if plan.config.pin_cores and not has_linux():
        raise ConfigError("host.pin.cores=true needs Linux: take it out")
    logging.disable(logging.WARNING)  # each node says it in its own log
    try:
        nodes = [node_config(node.properties) for node in plan.nodes]
    finally:
        logging.disable(logging.NOTSET)
    refuse_overlaps(plan, {node.server.node_id: node.server for node in nodes})
    for root in (each.strip() for each in properties.get(LOG_DIRS, "").split(",")):
        if root and (Path(root) / META_PROPERTIES).exists():
            raise ConfigError(
                f"log.dirs={root} is a node's own directory ({META_PROPERTIES}): stop that node, move what is in it into "
                f"{root}/broker-ID, and let its id be among node.id; or name another directory"
            )
    descriptors = share_descriptors(raise_descriptor_limit(), nodes=len(plan.nodes), system_max=system_descriptors())
    split_descriptors(descriptors, connections_wanted=1, reserve_wanted=0)  # refuses what is too few
    return plan, nodes, descriptors


def _digest(properties: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(dict(properties), sort_keys=True).encode()).hexdigest()


def _show(plan: HostPlan, *, is_forked: bool) -> None:
    print(f"directory {plan.directory}, nodes start by {'fork' if is_forked else 'exec'}")
    for node in plan.nodes:
        core = "" if node.core is None else f"  core {node.core}"
        print(f"{node.name}  {node.properties['listeners']}  {node.properties['log.dirs']}{core}")
