"""What a fault works with: the cluster, what it says of itself, the phases of the history, and the waits that all share.

May touch:  the cluster's admin service, the history.   Must not touch: faults, verdicts.
Invariants: every wait is bounded, and ends with a TimeoutError that says what did not happen.
Read next:  faults.py, run.py.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from barnabas_admin.client import AdminClient
from barnabas_admin.errors import AdminError
from tests.chaos.data.plan import TOPICS
from tests.chaos.data.spare_topic import SpareTopic
from tests.chaos.nodes import ADMIN_PORT, ChaosCluster, ChaosNode
from tests.checker.data_history import BACK_OFF, CLIENTS_CUT, HistoryWriter, Phase

CONFLUENT_HOST = 251
AIO_HOST = 252
CLIENT_HOSTS = (CONFLUENT_HOST, AIO_HOST)
"""Host numbers of the two client processes, each in a namespace of its own."""
COPIERS_HOST = 250
LATE_HOST = 249
MEMBERS_HOST = 248
SHARERS_HOST = 247
_PROXY_PORTS = 19_000
ENDED_WITHIN_S = 60.0
REPLICATION_FACTOR = 3
_CALL_TIMEOUT_S = 4.0


def proxy_port(broker: int) -> int:
    """Where, on LATE_HOST, the proxy before a broker listens."""
    return _PROXY_PORTS + broker


@dataclass
class Stage:
    """One scenario while it runs."""

    cluster: ChaosCluster
    random: Random
    history: HistoryWriter
    patience_s: float
    """All replicas must be in sync this long after everything was healed."""
    notes: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Laws of the harness itself that did not hold, in words."""
    ineffective: list[str] = field(default_factory=list)
    """Faults that did not bite: the run is void."""
    first_fault: float = 0.0
    cut_off_at: float | None = None
    """When the first of the clients' ways was cut since all was whole."""
    back_off_s: float = 0.0
    """How long clients' connections may be silent after all was whole again."""
    faults: int = 0
    clients: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    """By their module's name."""
    spare: SpareTopic | None = None
    """The topic that faults write to, once one does."""
    verbs_left: list[str] = field(default_factory=list)
    """Operators' verbs of this round that were not used yet."""

    def phase(self, name: str, what: str = "") -> None:
        """Write what the harness did."""
        at = time.monotonic()
        self.history.write(Phase(at=at, name=name, what=what))
        if name == "healthy":
            self.back_off_s = 0.0 if self.cut_off_at is None else BACK_OFF * (at - self.cut_off_at)
            self.cut_off_at = None
        elif what == CLIENTS_CUT and self.cut_off_at is None:
            self.cut_off_at = at

    def note(self, words: str) -> None:
        """Keep what was done, for whoever reads a failed run."""
        self.notes.append(f"{time.monotonic() - self.first_fault if self.first_fault else 0.0:6.1f} s  {words}")

    def tell(self, client: str, order: str) -> None:
        """Write a line to a client process, which obeys it."""
        process = self.clients[client]
        assert process.stdin is not None
        process.stdin.write(f"{order}\n".encode())
        process.stdin.flush()

    # -- who there is ----------------------------------------------------------------------------------------------

    @property
    def running(self) -> list[ChaosNode]:
        """Nodes that run and are not paused."""
        return [node for node in self.cluster.nodes.values() if node.is_running]

    def pick(self, nodes: list[ChaosNode]) -> ChaosNode:
        """One of them, as the seed says."""
        return self.random.choice(sorted(nodes, key=lambda node: node.id))

    def pick_broker(self) -> ChaosNode:
        """A running broker, as the seed says."""
        return self.pick([node for node in self.cluster.brokers if node.is_running])

    def admin(self, *, timeout_s: float = _CALL_TIMEOUT_S) -> AdminClient:
        """A client of every node that runs."""
        return AdminClient(",".join(f"{node.address}:{ADMIN_PORT}" for node in self.running), timeout_s=timeout_s)

    def active_controller(self) -> int | None:
        """node.id of the quorum's leader, where one can be learned."""
        try:
            with self.admin() as admin:
                leader = int(admin.describe_cluster().controller_id)
        except AdminError:
            return None
        return leader if leader in self.cluster.nodes else None

    # -- waits -----------------------------------------------------------------------------------------------------

    def why_not_in_sync(self) -> str | None:
        """None when every partition has a leader and all its replicas in sync, as every node that runs says: one that was cut off a
        moment ago still says what was so before."""
        for node in self.running:
            why = self._why_not_in_sync(f"{node.address}:{ADMIN_PORT}")
            if why is not None:
                return f"node {node.id}: {why}"
        return None

    def _why_not_in_sync(self, address: str) -> str | None:
        try:
            with AdminClient(address, timeout_s=_CALL_TIMEOUT_S) as admin:
                names = [topic.name for topic in admin.list_topics(include_internal=True)]
                topics = admin.describe_topics(names)
        except AdminError as error:
            return f"the admin service answers {error}"
        missing = sorted({topic.name for topic in TOPICS} - set(names))
        if missing:
            return f"topics {missing} are not there"
        behind = [
            f"{topic.name}-{p.partition} leader {p.leader} epoch {p.leader_epoch} ISR {list(p.isr)} of {list(p.replicas)}"
            for topic in topics
            for p in topic.partitions
            if p.leader < 0 or len(p.isr) < len(p.replicas)
        ]
        return "; ".join(behind) or None

    def wait_until_in_sync(self) -> float:
        """Until all replicas are in sync; s that it took. Raises TimeoutError with what is not."""
        begun = time.monotonic()
        while (why := self.why_not_in_sync()) is not None:
            self.cluster.look_for_deaths()
            if time.monotonic() - begun > self.patience_s:
                raise TimeoutError(f"not in sync {self.patience_s:.0f} s after everything was healed: {why}")
            time.sleep(0.3)
        return time.monotonic() - begun

    def wait_until(self, condition: Callable[[], bool], *, timeout_s: float, what: str) -> None:
        """Until the condition holds. Raises TimeoutError with `what`."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {timeout_s:.0f} s: {what}")
            time.sleep(0.05)

    # -- processes -------------------------------------------------------------------------------------------------

    def stop(self, node_id: int) -> None:
        """SIGTERM, and wait for the end."""
        self.cluster.begin_stop(node_id)
        asyncio.run(self.cluster.finish_stop(node_id))

    def start_if_ended(self, node_id: int) -> bool:
        """Start a node that has ended; whether it had."""
        node = self.cluster.nodes[node_id]
        if node.process is not None:
            if node.process.poll() is None:
                return False
            node.process.wait()
            node.process = None
        self.cluster.start(node_id)
        return True
