"""The process of a host: starts its nodes, hears them, and says how they are.

May touch:  child processes, signals, the host's directory.   Must not touch: threads, gRPC beyond the import, an event loop.
Invariants: it waits in one place, with every descriptor that it has; it is never the way of a byte that a node reads or writes: were it
            gone, nodes would run on; a process that it did not start is signalled only while that holds a node's lock.
Read next:  supervision.py, which decides; starting.py; directory.py.

When it dies, nodes keep their streams, their locks and the path that they tell that they are alive. Its successor, started by the service
manager or by hand, finds the locks taken, takes those processes for its own, and is told within a third of host.watchdog.ms that
they are alive; only how they end it does not learn, for their parent is another. SIGHUP, and an upgrade of the package that is found
before a start, replace this process by a new one under the same id, which adopts the nodes in the same way.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from barnabas_broker.host.directory import Holder, HostDirectory
from barnabas_broker.host.layout import HostPlan
from barnabas_broker.host.starting import HANDLED, Launch, node_environment, start_node
from barnabas_broker.host.supervision import (
    HAS_PROCESS,
    Finish,
    Signal,
    Start,
    Supervised,
    Supervision,
    Tell,
    Wish,
)
from barnabas_broker.host.system_calls import memory_bytes
from barnabas_broker.node.fork_server import installed_package
from barnabas_broker.node.service_manager import ServiceManager
from barnabas_broker.version import VERSION
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.lazy_dataclass import dataclass

logger = logging.getLogger("barnabas_broker.host")

DATAGRAM_BYTES_MAX = 65536
HOLDER_WAIT_S = 2.0
"""A process that holds a node's lock has written its id into it within this time, or is stopped during its first
steps."""
WATCHDOG_SHARE = 3
REQUEST_BYTES_MAX = 4096
ASKERS_MAX = 16
BROKERS = "brokers"
ANSWER_S_MAX = 1.0
"""One slow reader holds up the others no longer than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What supervisors of one host agree on."""

    plan: HostPlan
    digests: Mapping[str, str]
    """The digest of each node's properties, by its name."""
    descriptors_max: int
    """Open files that each node may have."""
    is_forked: bool
    service_manager: ServiceManager
    watchdog_s: float | None
    """How long the service manager bears this process's silence."""
    environment: Mapping[str, str]


class Supervisor:
    """All nodes of this host, from this process's start to its end."""

    def __init__(
        self, facts: HostFacts, directory: HostDirectory, *, plan: Callable[[Mapping[str, str]], HostPlan]
    ) -> None:
        """plan: reads the properties again, with these in place of those in the file, and raises KafkaError for what
        would be refused."""
        self._facts = facts
        self._directory = directory
        self._plan = plan
        self._is_outdated = False
        """Whether this process is to be replaced by one that reads the properties again."""
        self._package = installed_package()
        self._supervision = Supervision(
            facts.plan.nodes,
            watchdog_ms=facts.plan.config.watchdog_ms,
            stop_timeout_ms=facts.plan.config.stop_timeout_ms,
            now_ms=_now_ms(),
        )
        self._names: dict[int, str] = {}
        """Node by process id, of children."""
        self._digests: dict[str, str] = {}
        """The digest of the properties that each process was started with, by the node's name."""
        self._heard: dict[int, tuple[str, socket.socket]] = {}
        """Node and socket by descriptor."""
        self._asking: dict[int, socket.socket] = {}
        """The clients that ask, by descriptor, from the connection to the answer."""
        self._alive_s = -1e9
        """When the service manager was last told that this process turns."""

    def run(self) -> int:
        """Until every node has stopped; returns the exit status."""
        waker, woken = socket.socketpair()
        for end in (waker, woken):
            end.setblocking(False)
        for number in HANDLED:
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(waker.fileno())
        poll = select.poll()
        poll.register(woken, select.POLLIN)
        status = self._directory.open_status()
        poll.register(status, select.POLLIN)
        for name in self._supervision.nodes:
            hears = self._directory.open_notify(name)
            self._heard[hears.fileno()] = name, hears
            poll.register(hears, select.POLLIN)
        self._adopt()
        while True:
            ended = self._obey()
            if ended is not None:
                return ended
            for descriptor, _ in poll.poll(self._supervision.wait_ms(_now_ms())):
                if descriptor == woken.fileno():
                    self._on_signals(woken)
                elif descriptor == status.fileno():
                    self._accept(status, poll)
                elif descriptor in self._asking:
                    poll.unregister(descriptor)
                    self._answer(self._asking.pop(descriptor))
                else:
                    self._hear(*self._heard[descriptor])
            self._reap()
            if self._is_outdated:
                logger.info("reads its properties anew: this process is replaced, its nodes go on")
                self._replace()

    def _adopt(self) -> None:
        for name in self._directory.names_held():
            if name in self._supervision.nodes:
                self._adopt_node(name)
            elif (holder := self._holder(name)) is not None:
                logger.warning(
                    "%s runs (pid %d), and host.properties has no such node: it is left alone. Drain it with `barnabas broker drain`, "
                    "then stop it: kill %d",
                    name,
                    holder.pid,
                    holder.pid,
                )

    def _adopt_node(self, name: str) -> None:
        holder = self._holder(name)
        if holder is None:
            self._supervision.ended(name, None, _now_ms(), why="another process has its lock and does not say which")
            return
        is_ready = self._directory.was_ready(name, holder.pid)
        self._supervision.adopted(name, holder.pid, was_ready=is_ready, now_ms=_now_ms())
        self._digests[name] = holder.digest
        if _is_child(holder.pid):
            self._names[holder.pid] = name
        logger.info("%s runs already (pid %d): it is adopted", name, holder.pid)

    def _holder(self, name: str) -> Holder | None:
        """The holder of the lock; waits for a process that has just begun."""
        ends_s = time.monotonic() + HOLDER_WAIT_S
        while self._directory.is_held(name):
            holder = self._directory.holder(name)
            if holder is not None or time.monotonic() > ends_s:
                return holder
            time.sleep(0.01)
        return None

    def _obey(self) -> int | None:
        for each in self._supervision.decide(_now_ms()):
            match each:
                case Start(name):
                    self._start(name)
                case Signal(name, number, why):
                    self._signal(name, number, why)
                case Tell(lines):
                    logger.info("%s", "; ".join(lines))
                    self._facts.service_manager.notify(*lines)
                case Finish(status):
                    return status
        now_s = time.monotonic()
        if self._facts.watchdog_s is not None and now_s - self._alive_s >= self._facts.watchdog_s / WATCHDOG_SHARE:
            self._alive_s = now_s
            self._facts.service_manager.notify("WATCHDOG=1")
        return None

    def _start(self, name: str) -> None:
        if installed_package() != self._package:
            logger.info("the package was upgraded: this process is replaced, its nodes go on")
            self._replace()
        node = self._supervision.nodes[name]
        plan = node.plan
        lock = self._directory.lock_node(name)
        if lock is None:
            self._adopt_node(name)
            return
        try:
            self._directory.write_properties(name, plan.properties)
            launch = Launch(
                name=name,
                properties_file=self._directory.properties_file(name),
                digest=self._facts.digests[name],
                environment=node_environment(
                    self._facts.environment,
                    notify=self._directory.notify_path(name),
                    watchdog_ms=self._facts.plan.config.watchdog_ms,
                    formats=not plan.is_broker,
                ),
                lock=lock,
                core=plan.core,
                descriptors_max=self._facts.descriptors_max,
                is_forked=self._facts.is_forked,
            )
            pid = start_node(launch)
        except OSError as error:
            logger.error("%s cannot be started: %s", name, error)
            self._supervision.ended(name, None, _now_ms(), why=f"could not be started: {error}")
            return
        finally:
            os.close(lock)
        self._names[pid] = name
        self._digests[name] = launch.digest
        self._supervision.started(name, pid, _now_ms())
        logger.info("%s started, pid %d", name, pid)

    def _signal(self, name: str, number: int, why: str) -> None:
        node = self._supervision.nodes[name]
        if node.pid is None or (node.pid not in self._names and not self._directory.is_held(name)):
            return
        logger.info("%s gets %s: %s", name, signal.Signals(number).name, why)
        os.kill(node.pid, number)

    def _reap(self) -> None:
        """Children by their status, the adopted by their locks."""
        while self._names:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            name = self._names.pop(pid, None)
            if name is not None:
                self._on_end(name, os.waitstatus_to_exitcode(status))
        for name, node in self._supervision.nodes.items():
            if node.state in HAS_PROCESS and node.pid not in self._names and not self._directory.is_held(name):
                self._on_end(name, None)

    def _on_end(self, name: str, status: int | None) -> None:
        for known, hears in self._heard.values():
            if known == name:
                self._hear(known, hears)  # its last words
        self._supervision.ended(name, status, _now_ms())
        node = self._supervision.nodes[name]
        is_asked = self._supervision.is_stopping and status in (0, None)
        logger.log(logging.INFO if is_asked else logging.WARNING, "%s %s: %s", name, node.state.value, node.reason)

    def _hear(self, name: str, hears: socket.socket) -> None:
        while True:
            try:
                lines = hears.recv(DATAGRAM_BYTES_MAX).decode(errors="replace").split("\n")
            except BlockingIOError:
                return
            node = self._supervision.nodes[name]
            if self._supervision.heard(name, lines, _now_ms()) and node.pid is not None:
                self._directory.note_ready(name, node.pid)
                logger.info("%s in service", name)

    def _on_signals(self, woken: socket.socket) -> None:
        numbers = set(woken.recv(4096))
        if not {signal.SIGTERM, signal.SIGINT}.isdisjoint(numbers):
            self._supervision.stop(_now_ms())
        elif signal.SIGHUP in numbers and not self._supervision.is_stopping:
            try:
                self._reload()
            except KafkaError as error:
                logger.error("the properties are not read anew: %s", error.message)

    def _reload(self) -> list[int]:
        """Be replaced, once what is under way is answered; the ids of the brokers that there will be. Raises KafkaError."""
        plan = self._plan({})
        self._is_outdated = not self._supervision.is_stopping
        return _broker_ids(plan)

    def _replace(self) -> NoReturn:
        """The same command line under the same process id, whose children these nodes stay."""
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])

    def _accept(self, status: socket.socket, poll: select.poll) -> None:
        try:
            asker, _ = status.accept()
        except BlockingIOError:
            return
        if len(self._asking) >= ASKERS_MAX:
            asker.close()
            return
        asker.settimeout(ANSWER_S_MAX)
        self._asking[asker.fileno()] = asker
        poll.register(asker, select.POLLIN)

    def _answer(self, asker: socket.socket) -> None:
        """One word asks: status; reload, to read the properties again; plan and a number, for the brokers that there
        would be with so many; restart or stop, and the name or the id of a node."""
        with asker:
            try:
                words = asker.recv(REQUEST_BYTES_MAX).decode().split()
                asker.sendall(json.dumps(self._reply(words)).encode())
            except (OSError, ValueError) as error:
                logger.debug("who asked has not waited for the answer: %s", error)

    def _reply(self, words: Sequence[str]) -> dict[str, Any]:
        if words == ["status"]:
            return self._status()
        if words == ["reload"] or (len(words) == 2 and words[0] == "plan"):
            try:
                ids = self._reload() if len(words) == 1 else _broker_ids(self._plan({BROKERS: words[1]}))
            except KafkaError as error:
                return {"error": error.message}
            return {"brokers": ids}
        wishes = {wish.value: wish for wish in Wish}
        found = [
            name for name in self._supervision.nodes if len(words) == 2 and words[1] in (name, name.partition("-")[2])
        ]
        if not found or words[0] not in wishes:
            names = ", ".join(self._supervision.nodes)
            return {
                "error": f"{' '.join(words)!r}: ask for status, reload, plan NUMBER, or restart or stop one of {names}"
            }
        self._supervision.wants(found[0], wishes[words[0]], _now_ms())
        return {"node": found[0]}

    def _status(self) -> dict[str, Any]:
        now_ms = _now_ms()
        return {
            "api_version": "v1",
            "version": VERSION,
            "pid": os.getpid(),
            "directory": str(self._directory.path),
            "starts_by": "fork" if self._facts.is_forked else "exec",
            "nodes": [self._node_status(name, node, now_ms) for name, node in self._supervision.nodes.items()],
        }

    def _node_status(self, name: str, node: Supervised, now_ms: int) -> dict[str, Any]:
        properties = node.plan.properties
        return {
            "name": name,
            "id": node.plan.id,
            "role": node.plan.role,
            "state": node.state.value,
            "for_ms": now_ms - node.since_ms,
            "pid": node.pid,
            "adopted": node.is_adopted,
            "starts": node.starts,
            "next_start_ms": max(0, node.start_ms - now_ms) if node.state.value == "waiting" else None,
            "reason": node.reason,
            "said": node.said,
            "restart_needed": node.pid is not None and self._digests.get(name) != self._facts.digests[name],
            "core": node.plan.core,
            "listeners": properties["listeners"],
            "directories": properties["log.dirs"],
            "memory_bytes": None if node.pid is None else memory_bytes(node.pid),
        }


def _broker_ids(plan: HostPlan) -> list[int]:
    return [node.id for node in plan.nodes if node.is_broker]


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _is_child(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False
