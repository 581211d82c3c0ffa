"""What becomes of the nodes of a host: when each is started, again, stopped or killed, and what the service manager hears of it.

May touch:  its arguments.            Must not touch: processes, sockets, clocks (now_ms comes in).
Invariants: brokers stop before the controller; a node that was refused is not started again; time without a look is not
            counted as a node's silence; while a node's process may live, no second one is started.
Read next:  supervisor.py, which does what is decided here.

Events come in (`started`, `heard`, `ended`, `stop`, and an operator's wishes), intentions go out of `decide`, to be obeyed in their order.
"""

from __future__ import annotations

import enum
import signal
from collections.abc import Iterable, Sequence

from barnabas_broker.host.layout import NodePlan
from barnabas_wire.lazy_dataclass import dataclass

EXIT_REFUSED = 2
"""A node's properties or directories are refused: another start would say it again."""
BACKOFF_FIRST_MS = 500
BACKOFF_MAX_MS = 60_000
STEADY_MS = 60_000
"""A node that was in service for so long has its earlier failures forgiven."""
LOOK_MS = 1000
"""Nodes are looked at so often at least."""
SAME_REQUEST_MS = 1000
"""A service manager may signal twice what is one request to stop."""


class NodeState(enum.Enum):
    """The state of a node."""

    WAITING = "waiting"
    """The node waits for its start."""
    STARTING = "starting"
    IN_SERVICE = "in service"
    STOPPING = "stopping"
    STOPPED = "stopped"
    REFUSED = "refused"


class Wish(enum.Enum):
    """What an operator wants of one node."""

    RESTART = "restart"
    STOP = "stop"
    """It stays so until it is restarted, or the host reads its properties again."""


HAS_PROCESS = frozenset((NodeState.STARTING, NodeState.IN_SERVICE, NodeState.STOPPING))


@dataclass(slots=True)
class Supervised:
    """One node, and what is known of it."""

    plan: NodePlan
    state: NodeState = NodeState.WAITING
    since_ms: int = 0
    """When it came into its state."""
    pid: int | None = None
    is_adopted: bool = False
    starts: int = 0
    """By this process."""
    failures: int = 0
    """Failures in a row: the back-off's exponent."""
    start_ms: int = 0
    """While it waits: when it is started."""
    alive_ms: int = 0
    """When it was last heard to turn."""
    reason: str = ""
    """Why its last process ended."""
    said: str = ""
    """What keeps it from its service, in its own words."""
    killing: str = ""
    """Why it was killed, while it has not ended."""
    wish: Wish | None = None
    """Not yet fulfilled."""

    def enter(self, state: NodeState, now_ms: int) -> None:
        """Change state."""
        self.state, self.since_ms = state, now_ms


@dataclass(frozen=True, slots=True)
class Start:
    """Start a process for this node; `started` or `ended` follows."""

    name: str


@dataclass(frozen=True, slots=True)
class Signal:
    """Send the node's process a signal."""

    name: str
    number: int
    why: str


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell the service manager these lines."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """End with this exit status."""

    status: int


Intention = Start | Signal | Tell | Finish


def backoff_ms(failures: int) -> int:
    """How long a node waits for its start after so many failures before this one."""
    return min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS << min(failures, 16))


def describe_end(status: int | None) -> str:
    """The end of a process in words. status: negative for a signal; None: no process could wait for it."""
    if status is None:
        return "ended, and its status went to the system: it was adopted"
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


class Supervision:
    """All nodes of one host."""

    def __init__(self, nodes: Iterable[NodePlan], *, watchdog_ms: int, stop_timeout_ms: int, now_ms: int) -> None:
        """watchdog_ms: the longest silence of a node in service; 0: for ever. stop_timeout_ms: of brokers, and then of controllers."""
        self.nodes = {plan.name: Supervised(plan, since_ms=now_ms) for plan in nodes}
        self._watchdog_ms = watchdog_ms
        self._stop_timeout_ms = stop_timeout_ms
        self._looked_ms = now_ms
        self._asked_ms: int | None = None
        """When it was asked to stop."""
        self._wave_ms: dict[bool, int] = {}
        """Whether of brokers -> when they were asked to stop."""
        self._is_urgent = False
        self._was_ready = False
        self._told = ""

    def started(self, name: str, pid: int, now_ms: int) -> None:
        """A process was started for this node."""
        node = self.nodes[name]
        node.pid, node.starts, node.is_adopted = pid, node.starts + 1, False
        node.said = node.killing = ""
        node.enter(NodeState.STARTING, now_ms)

    def adopted(self, name: str, pid: int, *, was_ready: bool, now_ms: int) -> None:
        """A process of this node was found that an earlier process of the host had started. was_ready: it had said so."""
        node = self.nodes[name]
        node.pid, node.is_adopted, node.alive_ms = pid, True, now_ms
        node.enter(NodeState.IN_SERVICE if was_ready else NodeState.STARTING, now_ms)

    def heard(self, name: str, lines: Sequence[str], now_ms: int) -> bool:
        """The node's words to its service manager; returns whether it came into service by them."""
        node = self.nodes[name]
        for line in lines:
            if line.startswith("STATUS="):
                node.said = "" if "READY=1" in lines else line.removeprefix("STATUS=").removeprefix("starting: ")
        if not {"READY=1", "WATCHDOG=1"}.isdisjoint(lines):
            node.alive_ms = now_ms
            if node.state is NodeState.STARTING:
                node.enter(NodeState.IN_SERVICE, now_ms)
                return True
        return False

    def ended(self, name: str, status: int | None, now_ms: int, *, why: str = "") -> None:
        """The node's process is no more, or could not be started. why: in place of what its status says."""
        node = self.nodes[name]
        was_in_service = node.state is NodeState.IN_SERVICE
        wish, node.wish = node.wish, None
        lasted_ms = now_ms - node.since_ms
        words = node.killing or why or describe_end(status)
        node.reason = (
            f"{words}; it last said: {node.said}" if node.said and status != 0 and self._asked_ms is None else words
        )
        node.pid = None
        if self._asked_ms is not None or wish is Wish.STOP:
            node.enter(NodeState.STOPPED, now_ms)
        elif wish is Wish.RESTART:
            self._start_now(node, now_ms)
        elif status == EXIT_REFUSED:
            node.enter(NodeState.REFUSED, now_ms)
        else:
            if was_in_service and (lasted_ms >= STEADY_MS or status == 0):
                node.failures = 0
            node.start_ms = now_ms + (0 if was_in_service and status == 0 else backoff_ms(node.failures))
            node.failures += 1
            node.enter(NodeState.WAITING, now_ms)

    def wants(self, name: str, wish: Wish, now_ms: int) -> None:
        """An operator wants a node restarted, or stopped until it is. Raises KeyError."""
        node = self.nodes[name]
        if node.state in HAS_PROCESS:
            node.wish = wish
        elif wish is Wish.STOP:
            node.enter(NodeState.STOPPED, now_ms)
        elif self._asked_ms is None:
            self._start_now(node, now_ms)

    def _start_now(self, node: Supervised, now_ms: int) -> None:
        node.failures, node.start_ms = 0, now_ms
        node.enter(NodeState.WAITING, now_ms)

    def stop(self, now_ms: int) -> None:
        """The host is asked to stop; asked again after a moment, it does not wait."""
        if self._asked_ms is None:
            self._asked_ms = now_ms
            for node in self.nodes.values():
                if node.state not in HAS_PROCESS:
                    node.enter(NodeState.STOPPED, now_ms)
        elif now_ms - self._asked_ms >= SAME_REQUEST_MS:
            self._is_urgent = True

    @property
    def is_stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._asked_ms is not None

    def decide(self, now_ms: int) -> list[Intention]:
        """What is to be done now. Call it once a second at least, after everything that has come in."""
        unseen_ms = now_ms - self._looked_ms
        self._looked_ms = now_ms
        if unseen_ms > 2 * LOOK_MS:  # this process did not run: that is no silence of theirs
            for node in self.nodes.values():
                node.alive_ms += unseen_ms
        found: list[Intention] = []
        if self._asked_ms is not None:
            found += self._stopping(now_ms)
        else:
            for name, node in self.nodes.items():
                if node.state is NodeState.WAITING and now_ms >= node.start_ms:
                    found.append(Start(name))
                elif node.wish is not None:
                    found += self._ending(name, node, now_ms, since_ms=node.since_ms, why=f"asked to {node.wish.value}")
                elif self._is_silent(node, now_ms):
                    node.killing = f"was killed: its event loops did not turn for {self._watchdog_ms / 1000:g} s"
                    found.append(Signal(name, signal.SIGKILL, node.killing))
        found += self._telling(now_ms)
        if self._asked_ms is not None and all(node.state not in HAS_PROCESS for node in self.nodes.values()):
            found.append(Finish(0))
        elif all(node.state is NodeState.REFUSED for node in self.nodes.values()):
            found.append(Finish(EXIT_REFUSED))
        return found

    def wait_ms(self, now_ms: int) -> int:
        """How long nothing is to be decided unless something comes in."""
        starts = [node.start_ms for node in self.nodes.values() if node.state is NodeState.WAITING]
        return max(0, min([LOOK_MS, *(each - now_ms for each in starts)]))

    def _is_silent(self, node: Supervised, now_ms: int) -> bool:
        is_watched = self._watchdog_ms > 0 and node.state is NodeState.IN_SERVICE and not node.killing
        return is_watched and now_ms - node.alive_ms > self._watchdog_ms

    def _stopping(self, now_ms: int) -> list[Intention]:
        found: list[Intention] = []
        for is_broker in (True, False):
            wave = {
                name: node
                for name, node in self.nodes.items()
                if node.plan.is_broker is is_broker and node.state in HAS_PROCESS
            }
            if not wave:
                continue
            began_ms = self._wave_ms.setdefault(is_broker, now_ms)
            for name, node in wave.items():
                found += self._ending(name, node, now_ms, since_ms=began_ms, why="the host stops")
            if not self._is_urgent:
                return found  # the controller's turn comes when the brokers have gone
        return found

    def _ending(self, name: str, node: Supervised, now_ms: int, *, since_ms: int, why: str) -> list[Intention]:
        """The signals that stop one node: the first at once, the other where it does not stop in time."""
        found: list[Intention] = []
        if node.state is not NodeState.STOPPING:
            since_ms = now_ms
            node.enter(NodeState.STOPPING, now_ms)
            found.append(Signal(name, signal.SIGTERM, why))
        if (self._is_urgent or now_ms - since_ms >= self._stop_timeout_ms) and not node.killing:
            node.killing = "was killed: it did not stop in time"
            found.append(Signal(name, signal.SIGKILL, node.killing))
        return found

    def _telling(self, now_ms: int) -> list[Intention]:
        lines: list[str] = []
        serving = sum(node.state is NodeState.IN_SERVICE for node in self.nodes.values())
        settled = all(
            node.state in (NodeState.IN_SERVICE, NodeState.REFUSED, NodeState.STOPPED) for node in self.nodes.values()
        )
        if settled and serving and not self._was_ready:
            self._was_ready = True
            lines.append("READY=1")
        status = self._status_line(serving, now_ms)
        if status != self._told:
            if self._asked_ms is not None and not self._told.startswith("stopping"):
                lines.append("STOPPING=1")
            self._told = status
            lines.append(f"STATUS={status}")
        return [Tell(tuple(lines))] if lines else []

    def _status_line(self, serving: int, now_ms: int) -> str:
        if self._asked_ms is not None:
            left = [name for name, node in self.nodes.items() if node.state in HAS_PROCESS]
            return f"stopping: {', '.join(left)}" if left else "stopping"
        amiss = [
            f"{name} {node.state.value}" + (f": {words}" if (words := node.reason or node.said) else "")
            for name, node in self.nodes.items()
            if node.state is not NodeState.IN_SERVICE
        ]
        return "; ".join([f"{serving} of {len(self.nodes)} nodes in service", *amiss])
