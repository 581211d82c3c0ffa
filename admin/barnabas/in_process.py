"""`barnabas.broker()`: a real broker in a thread of the process that asks for it, for tests.

May touch:  the broker's directory, the node in its thread.    Must not touch: the process's signals, limits, collector, root logger.
Invariants: whoever has entered a broker can connect to it; a process that has left it leaves nothing behind but a directory that was given;
            a process that was forked from the broker's does not end it.
Read next:  barnabas_broker/node/in_process.py; barnabas_admin/pytest_plugin.py, the fixture.

    with barnabas.broker(properties={"auto.create.topics.enable": False}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, NoReturn, Self

from barnabas_admin.cluster_directory import (
    ClusterIdentity,
    lock_directory,
    new_identity,
    node_directory,
    read_identity,
    refuse_wiped_voter,
    voters_file,
    write_durably,
    write_identity,
)
from barnabas_admin.errors import LocalClusterError
from barnabas_broker.node.in_process import NODE_ID, READY_TIMEOUT_S, STOP_TIMEOUT_S, InProcessNode
from barnabas_wire.kafka.errors import KafkaError

MEMORY_DIRECTORY = Path("/dev/shm")
"""Where Linux has files in memory."""
PREFIX = "barnabas-broker-"
"""The name of a temporary directory begins with it; the process id follows."""
LEFT_AFTER_S = 60.0
"""A temporary directory is that old before anybody takes it for one that was left."""
MEMORY_BYTES_MIN = 256 * 1024 * 1024
"""Free there, or a broker keeps its files where other temporary ones are: containers often have 64 MiB."""
ELSEWHERE = {
    "kill": "cannot be killed: it lives in this process",
    "pause": "cannot be paused: it lives in this process",
    "resume": "cannot be paused: it lives in this process",
    "stop_node": "has no nodes to stop",
    "restart": "cannot be restarted; close it, and open another on the same directory=",
    "start_node": "has no other nodes",
    "heal": "has no nodes to mend",
    "nodes": "is one node, in this process",
    "admin_addresses": "has no gRPC; Kafka's admin clients are served at .bootstrap_servers",
    "metrics_urls": "serves no metrics",
}
"""What a cluster of processes has, and why a broker in this process does not."""


class BrokerError(RuntimeError):
    """A broker in this process cannot do what was asked; says what is wrong and what to do."""


def broker(
    properties: Mapping[str, object] | None = None, *, directory: str | os.PathLike[str] | None = None
) -> Broker:
    """A broker in a thread of this process: enter it by `with` or `async with`, or call `start` and `close`.

    Args:
        properties: as in server.properties; values are written as text, True as true. listeners may name any Kafka listeners; without,
            it is one in plain text on a free port of 127.0.0.1.
        directory: keeps its data, flushed and closed in order, for the next broker or `barnabas dev --data DIRECTORY`. Without, it is
            a temporary one in memory where there is room, which goes with the broker.

    It is one node: groups, transactions, compaction, configs and Kafka's admin APIs are served. What needs several nodes, or one to
    kill or pause, is for the fixture barnabas_cluster or `barnabas dev`, whose nodes are processes.
    """
    return Broker(properties, directory=directory)


class Broker:
    """See `broker`. `start` and `close` may be called from any thread, one at a time; everything else at any time."""

    def __init__(
        self, properties: Mapping[str, object] | None = None, *, directory: str | os.PathLike[str] | None = None
    ) -> None:
        """See `broker`."""
        self._properties = {key: _text(value) for key, value in (properties or {}).items()}
        self._given = None if directory is None else Path(directory).absolute()
        self._directory: Path | None = None
        self._node: InProcessNode | None = None
        self._lock: IO[bytes] | None = None
        self._is_closed = False
        self._cluster_id = ""
        self._pid = os.getpid()
        self._turn = threading.Lock()

    # -- from start to end -----------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start, and return once clients are served. Raises BrokerError."""
        with self._turn:
            serving = self._begin()
            try:
                serving.result(READY_TIMEOUT_S)
            except BaseException as error:
                self._undo()
                _raise_in_words(error)
        return self

    def close(self) -> None:
        """Stop, and remove the directory unless it was given. A second call does nothing. Raises BrokerError where the broker had
        ended by itself."""
        self._refuse_child("closed")
        with self._turn:
            node = self._node
            if self._is_closed or node is None:
                self._is_closed = True
                return
            self._refuse_own_thread(node)
            self._is_closed = True
            try:
                failure = node.begin_stop().result(STOP_TIMEOUT_S)
            except TimeoutError:
                raise BrokerError(
                    f"the broker did not stop within {STOP_TIMEOUT_S:.0f} s: .log has what it said"
                ) from None
            finally:
                self._undo()
            _raise_failure(failure)

    async def astart(self) -> Self:
        """As `start`, while the event loop continues."""
        with self._turn:
            serving = self._begin()
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await asyncio.wrap_future(serving)
        except BaseException as error:
            self._undo()
            _raise_in_words(error)
        return self

    async def aclose(self) -> None:
        """As `close`, while the event loop continues."""
        node = self._node
        if node is not None and not self._is_closed and os.getpid() == self._pid:
            self._refuse_own_thread(node)
            if node.failure is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(STOP_TIMEOUT_S):
                        await asyncio.wrap_future(node.begin_stop())
        self.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if os.getpid() != self._pid:
            return  # a forked child unwinds its parent's `with`: the broker is not its own
        self.close()

    async def __aenter__(self) -> Self:
        return await self.astart()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if os.getpid() == self._pid:
            await self.aclose()

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """host:port for Kafka clients, of this process or any other: of the first listener. Raises BrokerError where it does not run."""
        return next(iter(self.addresses.values()))

    @property
    def addresses(self) -> dict[str, str]:
        """host:port by the listener's name. Raises BrokerError where it does not run."""
        return dict(self._running().addresses)

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, whose only node this is. Raises BrokerError where it does not run."""
        self._running()
        return self._cluster_id

    @property
    def directory(self) -> Path:
        """Where its files are. Raises BrokerError where it does not run."""
        self._running()
        assert self._directory is not None, "a broker that runs has one"
        return self._directory

    @property
    def log(self) -> str:
        """The last lines that it has logged; empty before it was started."""
        return "" if self._node is None else str(self._node.log)

    @property
    def is_running(self) -> bool:
        """Whether it serves, as far as this process knows."""
        return self._node is not None and not self._is_closed and self._node.failure is None and self._node.is_running

    if not TYPE_CHECKING:  # a type checker is to find what is not there

        def __getattr__(self, name: str) -> None:
            if name in ELSEWHERE:
                raise AttributeError(
                    f"a broker in this process {ELSEWHERE[name]}. The fixture barnabas_cluster and `barnabas dev` have nodes that are "
                    "processes"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        if self._node is None:
            return "<barnabas.Broker, not started>"
        state = "closed" if self._is_closed else "running" if self.is_running else "ended"
        return f"<barnabas.Broker at {next(iter(self._node.addresses.values()))}, {state}>"

    # -- how -------------------------------------------------------------------------------------------------------

    def _begin(self) -> Future[None]:
        """Everything until the node is on its way; leaves nothing where it raises BrokerError."""
        self._refuse_child("started")
        if self._is_closed:
            raise BrokerError("this broker is closed: make another with barnabas.broker()")
        if self._node is not None:
            raise BrokerError("this broker is started already: make another with barnabas.broker()")
        try:
            identity = self._take_directory()
            self._cluster_id = identity.cluster_id
            assert self._directory is not None, "it was just taken"
            data = node_directory(self._directory, NODE_ID) / "data"
            refuse_wiped_voter(self._directory, NODE_ID, data)
            self._node = InProcessNode(
                self._properties,
                data,
                cluster_id=identity.cluster_id,
                directory_id=identity.directory_ids[0],
                is_kept=self._given is not None,
            )
            if self._given is not None and not voters_file(self._given).exists():
                write_durably(voters_file(self._given), self._node.voters)
            _live.add(self)
            return self._node.start()
        except BaseException as error:
            self._undo()
            _raise_in_words(error)

    def _take_directory(self) -> ClusterIdentity:
        if self._given is None:
            self._directory = _new_directory()
            self._lock = lock_directory(self._directory)
            return new_identity(nodes=1)
        self._directory = self._given
        self._directory.mkdir(parents=True, exist_ok=True)
        self._lock = lock_directory(self._directory)
        identity = read_identity(self._directory) or new_identity(nodes=1)
        if identity.nodes != 1 or identity.roles != "combined" or identity.is_secured:
            what = "with security" if identity.is_secured else f"of {identity.nodes} nodes ({identity.roles})"
            raise BrokerError(
                f"{self._directory} holds a cluster {what}, and a broker in this process is one node without: start it with "
                f"`barnabas dev --data {self._directory}`, or give another directory"
            )
        write_identity(self._directory, identity)
        return identity

    def _undo(self) -> None:
        """Let go of everything."""
        self._is_closed = True
        _live.discard(self)
        if self._node is not None:
            self._node.begin_stop()
            self._node.join()
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        if self._given is None and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _running(self) -> InProcessNode:
        node = self._node
        if self._is_closed:
            raise BrokerError("this broker is closed: make another with barnabas.broker()")
        if node is None:
            raise BrokerError("this broker is not started: use `with barnabas.broker() as broker`, or call start()")
        _raise_failure(node.failure)
        return node

    def _refuse_child(self, what: str) -> None:
        if os.getpid() != self._pid:
            raise BrokerError(
                f"this process was forked from {self._pid}, in which the broker lives, and cannot have it {what}: do that there. Its "
                "address is good here, too"
            )

    def _refuse_own_thread(self, node: InProcessNode) -> None:
        if node.is_own_thread:
            raise BrokerError(
                "a broker cannot be closed from its own thread, which would wait for itself: close it from another"
            )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _raise_in_words(error: BaseException) -> NoReturn:
    """What a start that failed raises."""
    if isinstance(error, LocalClusterError):
        raise BrokerError(f"{error.message}; {error.hint}" if error.hint else error.message) from error
    if isinstance(error, KafkaError):
        raise BrokerError(error.message) from error
    if isinstance(error, TimeoutError):
        raise BrokerError(f"the broker did not serve within {READY_TIMEOUT_S:.0f} s: .log has what it said") from error
    if isinstance(error, OSError):
        raise BrokerError(f"the broker cannot start: {error}") from error
    raise error


def _raise_failure(failure: BaseException | None) -> None:
    if failure is not None:
        raise BrokerError(f"the broker has ended by itself: {failure}; .log has what it said") from failure


def _new_directory() -> Path:
    parent: str | None = None
    with contextlib.suppress(OSError):
        status = os.statvfs(MEMORY_DIRECTORY)
        if status.f_bavail * status.f_frsize >= MEMORY_BYTES_MIN and os.access(MEMORY_DIRECTORY, os.W_OK):
            parent = str(MEMORY_DIRECTORY)
    directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent))
    for other in directory.parent.glob(f"{PREFIX}*"):
        if other != directory:
            _remove_if_left(other)
    return directory


def _remove_if_left(directory: Path) -> None:
    """Remove a temporary directory whose process was killed: ours, not new, and locked by nobody."""
    with contextlib.suppress(OSError, LocalClusterError):
        status = directory.lstat()
        if (
            status.st_uid != os.getuid()
            or time.time() - status.st_mtime < LEFT_AFTER_S
            or not (directory / "lock").is_file()
        ):
            return
        with lock_directory(directory):
            shutil.rmtree(directory)


_live: set[Broker] = set()
"""Started, and not closed."""


def _close_what_is_left() -> None:
    """A process that ends without closing its brokers leaves no directory behind."""
    for left in list(_live):
        if os.getpid() == left._pid:
            with contextlib.suppress(BrokerError, TimeoutError):
                left.close()


atexit.register(_close_what_is_left)
