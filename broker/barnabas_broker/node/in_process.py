"""A node in a thread of somebody else's process: started, waited for, stopped.

May touch:  its own thread, the sockets that it binds, the node's directory.   Must not touch: what else is in the
            process: its signals, limits, collector, loggers beyond our rooms' (room_logs.py); gRPC.
Invariants: `start` returns once clients are served, or has left nothing behind; after `stop` no thread, descriptor or socket is left.
Read next:  in_process_world.py; process.py, the same for a separate process; barnabas/in_process.py, the face of this.

One thread has the loop of both lanes. A node in a test has no load under which heartbeats would come late, and each crossing between
two threads costs a wait of 5 ms for the interpreter where a third one computes (measured: see docs/testing.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path

from barnabas_broker.config.keys import ConfigError
from barnabas_broker.node.control_lane import LoopLane
from barnabas_broker.node.descriptor_budget import UNLIMITED, split_descriptors
from barnabas_broker.node.in_process_world import InProcessWorld
from barnabas_broker.node.node import Node
from barnabas_broker.node.properties import NodeConfig, node_config, refuse_unknown, split_address
from barnabas_broker.node.room_logs import RoomLog, keep_log, stop_log
from barnabas_broker.node.service_manager import ServiceManager
from barnabas_broker.node.storage import format_storage, is_formatted
from barnabas_broker.node.world import Served
from barnabas_log.disk import RealDisk
from barnabas_log.unflushed_disk import UnflushedDisk
from barnabas_quorum.raft.voters import VoterSet
from barnabas_wire.error_groups import first_error
from barnabas_wire.kafka.ids import Endpoint, Uuid

NODE_ID = 1
HOST = "127.0.0.1"
CONTROLLER = "CONTROLLER"
CONTROLLER_PORT = 1
"""The port in the voter's address, which a formatted voter must have; it is neither bound nor called."""
READY_TIMEOUT_S = 60.0
"""How long a start may take; recovering a large directory is most of it."""
STOP_TIMEOUT_S = 30.0
OWN_KEYS = {
    "node.id": "it is node 1",
    "process.roles": "it is broker and controller",
    "log.dirs": "give broker(directory=…)",
    "log.dir": "give broker(directory=…)",
    "metadata.log.dir": "give broker(directory=…)",
    "controller.listener.names": "its controller has no listener",
    "controller.quorum.bootstrap.servers": "its controller has no listener",
    "controller.quorum.voters": "its controller has no listener",
    "admin.listeners": "it has no gRPC; Kafka's admin clients are served",
    "metrics.listeners": "it serves no metrics",
    "log.file": "it keeps its last lines in memory: read .log",
    "log.format": "it keeps its last lines in memory: read .log",
}
"""Keys that a broker in a process cannot be given, and why."""
DEFAULTS = {
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    # Fifty would be made at the first commit: a tenth of a suite's CPU.
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # In production it waits for more members of a new group; here the first poll of a test would wait 3 s.
    "group.initial.rebalance.delay.ms": "0",
}
"""What differs from a node in production, mostly as in `barnabas dev`."""


class InProcessNode:
    """One start of one node. `stop` may be called from any thread but its own."""

    def __init__(
        self,
        properties: Mapping[str, str],
        directory: Path,
        *,
        cluster_id: str,
        directory_id: Uuid,
        is_kept: bool,
    ) -> None:
        """
        Args:
            properties: as in server.properties, over DEFAULTS.
            directory: its log.dirs; formatted for this cluster where it is not yet.
            is_kept: whether somebody will look at the directory afterwards; otherwise nothing is flushed, nor put in order.

        Raises KafkaError for properties or a directory that it cannot start with, OSError for files that it cannot write.
        """
        self.addresses: dict[str, str] = {}
        """Listener name -> host:port that clients connect to."""
        self.voters = f"{NODE_ID}@{HOST}:{CONTROLLER_PORT}:{directory_id}"
        """Which a directory that is not formatted is formatted with."""
        self.log = RoomLog()
        self._is_kept = is_kept
        self._sockets: dict[Endpoint, socket.socket] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._is_serving: Future[None] = Future()
        self._ended: Future[BaseException | None] = Future()
        self._thread = threading.Thread(target=self._run, name=f"barnabas-{NODE_ID}", daemon=True)
        refuse_unknown(properties)
        for key, reason in OWN_KEYS.items():
            if key in properties:
                raise ConfigError(f"{key} cannot be set for a broker in this process: {reason}")
        try:
            self.config = self._configure(properties, directory)
            self._format(cluster_id, directory_id)
        except BaseException:
            self._close_sockets()
            raise

    def _configure(self, properties: Mapping[str, str], directory: Path) -> NodeConfig:
        given = DEFAULTS | dict(properties)
        listeners = [text.strip() for text in given.get("listeners", f"PLAINTEXT://{HOST}:0").split(",")]
        bound = [self._bind(text) for text in listeners]
        config = node_config(
            given
            | {
                "node.id": str(NODE_ID),
                "process.roles": "broker,controller",
                "log.dirs": str(directory),
                "listeners": ",".join([*bound, f"{CONTROLLER}://{HOST}:{CONTROLLER_PORT}"]),
                "controller.listener.names": CONTROLLER,
                "controller.quorum.bootstrap.servers": f"{HOST}:{CONTROLLER_PORT}",
                "admin.listeners": "",
                "metrics.listeners": "",
            }
        )
        own_host = HOST if config.server.auto_listeners() else ""
        for point in config.server.advertised_endpoints(own_host):
            self.addresses[point.listener] = f"{point.host}:{point.port}"
        return config

    def _bind(self, listener: str) -> str:
        """Bind the address of a listener; the listener with the port that it got. Raises ConfigError."""
        name, separator, address = listener.partition("://")
        if not separator or not name or name == CONTROLLER:
            raise ConfigError(
                f"listeners={listener}: write NAME://host:port for each Kafka listener; port 0 takes a free one"
            )
        host, port = split_address(address, "listeners")
        asked = Endpoint(name, host, port)
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            bound = self._sockets[asked] = socket.socket(family, kind, protocol)
            if port:  # only this socket may have a port that the kernel chooses
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(place)
        except OSError as error:
            raise ConfigError(
                f"listeners: cannot listen on {host}:{port}: {error.strerror}; stop what listens there, or take port 0, which is a free one"
            ) from error
        bound.setblocking(False)
        point = asked._replace(port=bound.getsockname()[1])
        self._sockets[point] = self._sockets.pop(asked)
        shown = f"[{host}]" if ":" in host else host
        return f"{name}://{shown}:{point.port}"

    def _format(self, cluster_id: str, directory_id: Uuid) -> None:
        disk = RealDisk() if self._is_kept else UnflushedDisk()
        try:
            if not is_formatted(disk, self.config.server):
                format_storage(
                    disk,
                    self.config.server,
                    cluster_id=cluster_id,
                    make_voters=lambda own: VoterSet.parse(self.voters),
                    new_uuid=lambda: directory_id,
                    is_formatted_ignored=True,
                )
        finally:
            disk.close()

    def start(self) -> Future[None]:
        """Begin; done once clients are served. It raises what ended the node before."""
        self._thread.start()
        return self._is_serving

    @property
    def failure(self) -> BaseException | None:
        """What ended the node without a call of `stop`."""
        return self._ended.result() if self._ended.done() else None

    @property
    def is_running(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller is the node itself."""
        return threading.current_thread() is self._thread

    def begin_stop(self) -> Future[BaseException | None]:
        """Ask it to stop; done once it has, but for the end of its thread."""
        loop = self._loop
        if loop is not None and not self._ended.done():
            with contextlib.suppress(RuntimeError):  # the loop closed in this very moment
                loop.call_soon_threadsafe(self._stop.set)
        return self._ended

    def join(self) -> None:
        """Wait for the end of the thread, which has ended its work."""
        self._thread.join(STOP_TIMEOUT_S)

    def _run(self) -> None:
        failure: BaseException | None = None
        keep_log(self.log, self.config.log_output)
        try:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                self._loop = runner.get_loop()
                runner.run(self._live())
        except BaseException as error:
            failure = first_error(error) if isinstance(error, BaseExceptionGroup) else error
        finally:
            self._close_sockets()
            stop_log()
            self._ended.set_result(failure)
            if not self._is_serving.done():
                self._is_serving.set_exception(failure or RuntimeError("it was stopped before it served"))

    async def _live(self) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        network = self.config.network
        lane = LoopLane(asyncio.get_running_loop())
        world = InProcessWorld(
            on_serving=self._on_serving,
            control=lane,
            data=lane,
            descriptors=split_descriptors(
                UNLIMITED if soft == resource.RLIM_INFINITY else soft,
                connections_wanted=network.max_connections,
                reserve_wanted=network.inter_broker_connections_reserved,
            ),
            open_disk=RealDisk if self._is_kept else UnflushedDisk,
            service_manager=ServiceManager(),
            sockets=self._sockets,
        )
        await Node(self.config, world).run(self._stop)

    def _on_serving(self, served: Served) -> None:
        if not self._is_serving.done():
            self._is_serving.set_result(None)

    def _close_sockets(self) -> None:
        for bound in self._sockets.values():
            bound.close()
