"""Real nodes in one process: the product's own start, in the lanes that it has, over directories on tmpfs.

May touch:  the product's Node, threads, loopback sockets, files below the given directory.   Must not touch: damage, laws.
Invariants: a node's end is kept as the operator would see it: a refusal in one line, or a traceback; who uses this is a forked
            process that ends with `os._exit`, so a node need not be stopped to be gone.
Read next:  world.py, which fills a cluster; images.py, which damages one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from barnabas_broker.node.control_lane import ControlLane
from barnabas_broker.node.descriptor_budget import split_descriptors
from barnabas_broker.node.node import Node
from barnabas_broker.node.process import refusal_of
from barnabas_broker.node.properties import node_config
from barnabas_broker.node.real_world import RealWorld
from barnabas_wire.kafka.errors import KafkaError

HOST = "127.0.0.1"
NODES = (1, 2, 3)
BASE_PORT = 21000
KAFKA, CONTROLLER, ADMIN, METRICS = range(4)
PROPERTIES = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "1",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
    "controlled.shutdown.timeout.ms": "2000",
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "controller.quorum.election.timeout.ms": "300",
}


BUSY = {"log.cleaner.backoff.ms": "200", "log.flush.offset.checkpoint.interval.ms": "200"}
"""Of the cluster that is to be damaged: everything that is written now and then is there soon."""


def port(node_id: int, kind: int) -> int:
    """A listener of a node; the same in every image, for the voters' addresses are in it."""
    return BASE_PORT + 10 * node_id + kind


def properties(root: Path, node_id: int, *, is_busy: bool = False) -> dict[str, str]:
    """The server.properties of a node whose directories lie below `root`."""
    return (
        PROPERTIES
        | (BUSY if is_busy else {})
        | {
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://{HOST}:{port(node_id, KAFKA)},CONTROLLER://{HOST}:{port(node_id, CONTROLLER)}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port(node_id, KAFKA)}",
            "controller.quorum.bootstrap.servers": ",".join(f"{HOST}:{port(each, CONTROLLER)}" for each in NODES),
            "admin.listeners": f"{HOST}:{port(node_id, ADMIN)}",
            "metrics.listeners": f"{HOST}:{port(node_id, METRICS)}",
            "log.dirs": str(data_directory(root, node_id)),
        }
    )


def data_directory(root: Path, node_id: int) -> Path:
    """What a node keeps."""
    return root / f"node-{node_id}"


BOOTSTRAP = ",".join(f"{HOST}:{port(each, KAFKA)}" for each in NODES)
ADMINS = ",".join(f"{HOST}:{port(each, ADMIN)}" for each in NODES)


@dataclass
class RunningNode:
    """One start of one node."""

    id: int
    task: asyncio.Task[None]
    stop: asyncio.Event
    lane: ControlLane

    @property
    def error(self) -> BaseException | None:
        """What ended it, if it has ended so."""
        return self.task.exception() if self.task.done() and not self.task.cancelled() else None

    @property
    def refusal(self) -> KafkaError | None:
        """The one line that its operator reads; None for a node that runs, and for one that ends with a traceback."""
        return None if self.error is None else refusal_of(self.error)


@dataclass
class RealNodes:
    """The nodes of one image."""

    root: Path
    is_busy: bool = False
    nodes: dict[int, RunningNode] = field(default_factory=dict)

    def start(self, ids: Iterable[int] = NODES) -> None:
        """Start nodes; on the loop that runs, which is the data lane of all of them."""
        for node_id in ids:
            lane, stop = ControlLane(), asyncio.Event()
            descriptors = split_descriptors(1024, connections_wanted=100, reserve_wanted=32)
            config = node_config(properties(self.root, node_id, is_busy=self.is_busy))
            node = Node(config, RealWorld(control=lane, descriptors=descriptors))
            self.nodes[node_id] = RunningNode(node_id, asyncio.create_task(node.run(stop)), stop, lane)

    async def stop(self, ids: Iterable[int] = NODES) -> None:
        """Stop nodes in order. Raises what ended one otherwise."""
        chosen = [self.nodes.pop(each) for each in ids]
        for node in chosen:
            node.stop.set()
        for node in chosen:
            await asyncio.wait_for(node.task, 30)
            node.lane.close()


class Heard(logging.Handler):
    """Everything that the nodes log from WARNING on, and whether a traceback was among it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self.tracebacks: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        self.lines.append(f"{record.levelname} {record.name}: {record.getMessage()}")
        if record.exc_info and record.exc_info[1] is not None:
            self.tracebacks.append(f"{record.getMessage()}: {record.exc_info[1]!r}")
