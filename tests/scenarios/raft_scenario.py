"""Interprets scripts about the consensus core: a small cluster in which nothing happens unless a line says so.

Commands (N is a node; time stands still but for `timeout`, `campaign` and `wait`):
  nodes N [observers=M]     voters 1…N, observers after them; must come first
  campaign N                let N's timers run until it asks for pre-votes
  timeout N                 let N's next timer run
  wait MS                   let MS pass for all timers, delivering
  deliver                   deliver messages, also those that answers cause, until none is left
  deliver A>B               only those from A to B that are in flight now
  drop A>B                  lose those in flight from A to B; `drop` alone loses all
  cut A B / heal [A B]      lose everything between A and B from now on / stop losing
  elect N [without M…]      campaign N + deliver, unprinted; each M has given its leader up too, and asks in vain
  propose N X [X…]          N appends records
  fetch N COUNT             N's fetches bring at most COUNT records from now on
  hold N / flush N          N's flushes do not end / the one in flight ends
  resign N                  N gives up leadership
  crash N / restart N       crash loses what was not flushed, and its own messages; requests to it may be late
  show                      one line per node
  disks                     what is durable, one line per node
Everything that is delivered is printed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas_quorum.config import QuorumConfig
from barnabas_quorum.raft.core import QuorumCore
from barnabas_quorum.raft.journal import INITIAL_HARD_STATE
from barnabas_quorum.raft.messages import (
    BeginQuorumEpochReply,
    BeginQuorumEpochRequest,
    EndQuorumEpochReply,
    EndQuorumEpochRequest,
    EpochStart,
    FetchReply,
    FetchRequest,
    HardState,
    LeaderChange,
    Reply,
    ReplyError,
    Request,
    VoteReply,
    VoteRequest,
)
from barnabas_quorum.raft.roles import Prospective
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_wire.kafka.ids import BrokerId, Offset, Uuid


@dataclass
class Node:
    """A core with a disk of its own. A log entry is (epoch, text)."""

    key: ReplicaKey
    core: QuorumCore | None = None
    hard_state: HardState = INITIAL_HARD_STATE
    log: list[tuple[int, str]] = field(default_factory=list)
    durable_end: int = 0
    is_held: bool = False
    records_max: int = 1000

    @property
    def name(self) -> str:
        return str(self.key.id)


class RaftScenario:
    """See the module."""

    def __init__(self) -> None:
        self._nodes: dict[int, Node] = {}
        self._voters: VoterSet
        self._now_ms = 0
        self._wire: list[Request | Reply] = []
        self._cuts: set[frozenset[int]] = set()
        self._printed: list[str] = []

    def run(self, command: str) -> list[str]:
        """See runner.Scenario."""
        verb, *words = command.split()
        method = getattr(self, f"_do_{verb}", None)
        if method is None:
            raise ValueError(f"unknown command {command!r}")
        self._printed = []
        method(*words)
        return self._printed

    # --- commands -----------------------------------------------------------------------------------------------------

    def _do_nodes(self, count: str, observers: str = "observers=0") -> None:
        voters = int(count)
        keys = [
            ReplicaKey(BrokerId(i), Uuid(bytes([i]) * 16)) for i in range(1, voters + int(observers.split("=")[1]) + 1)
        ]
        self._voters = VoterSet([Voter(key, "localhost", 9000 + key.id) for key in keys[:voters]])
        self._nodes = {key.id: Node(key) for key in keys}
        for node in self._nodes.values():
            self._start(node)
        self._wire.clear()

    def _do_campaign(self, name: str) -> None:
        node = self._nodes[int(name)]
        for _ in range(20):
            self._do_timeout(name)
            if self._core(node).role.__class__ is Prospective or self._core(node).is_leader:
                return
        raise ValueError(f"{name} does not campaign: {self._core(node).role}")

    def _do_timeout(self, name: str) -> None:
        node = self._nodes[int(name)]
        self._now_ms = max(self._now_ms, self._core(node).deadline_ms())
        self._core(node).tick(self._now_ms)
        self._obey(node)

    def _do_wait(self, milliseconds: str) -> None:
        end_ms = self._now_ms + int(milliseconds)
        while True:
            self._deliver_all(prints=False)
            due = [(n.core.deadline_ms(), n.key.id) for n in self._nodes.values() if n.core is not None]
            deadline_ms, first = min(due)
            if deadline_ms > end_ms:
                break
            self._now_ms = max(self._now_ms, deadline_ms)
            self._core(self._nodes[first]).tick(self._now_ms)
            self._obey(self._nodes[first])
        self._now_ms = end_ms

    def _do_deliver(self, link: str = "") -> None:
        if not link:
            self._deliver_all(prints=True)
            return
        for message in self._take(link):
            self._deliver(message, prints=True)

    def _do_drop(self, link: str = "") -> None:
        if link:
            self._take(link)
        else:
            self._wire.clear()

    def _do_cut(self, a: str, b: str) -> None:
        self._cuts.add(frozenset({int(a), int(b)}))

    def _do_heal(self, *pair: str) -> None:
        self._cuts -= {frozenset(map(int, pair))} if pair else set(self._cuts)

    def _do_elect(self, name: str, *others: str) -> None:
        for other in others:
            if other != "without":
                self._do_campaign(other)
                self._wire = [m for m in self._wire if m.source.id != int(other)]
        self._do_campaign(name)
        self._deliver_all(prints=False)

    def _do_propose(self, name: str, *texts: str) -> None:
        node = self._nodes[int(name)]
        core = self._core(node)
        entries = [(core.epoch, text) for text in texts]
        core.propose(entries, record_count=len(entries), now_ms=self._now_ms)
        self._obey(node)

    def _do_fetch(self, name: str, count: str) -> None:
        self._nodes[int(name)].records_max = int(count)

    def _do_hold(self, name: str) -> None:
        self._nodes[int(name)].is_held = True

    def _do_flush(self, name: str) -> None:
        node = self._nodes[int(name)]
        node.is_held = False
        node.durable_end = len(node.log)
        self._core(node).flushed(Offset(node.durable_end), self._now_ms)
        self._obey(node)

    def _do_resign(self, name: str) -> None:
        node = self._nodes[int(name)]
        self._core(node).resign(self._now_ms)
        self._obey(node)

    def _do_crash(self, name: str) -> None:
        node = self._nodes[int(name)]
        node.core = None
        del node.log[node.durable_end :]
        self._wire = [
            m for m in self._wire if m.source != node.key and (m.target != node.key or isinstance(m, Request))
        ]

    def _do_restart(self, name: str) -> None:
        self._start(self._nodes[int(name)])

    def _do_show(self) -> None:
        for node in self._nodes.values():
            if node.core is None:
                self._printed.append(f"{node.name}: down")
                continue
            core = node.core
            leader = f" leader={core.leader_id}" if core.leader_id >= 0 else ""
            voted = f" voted={core.voted.id}" if core.voted else ""
            self._printed.append(
                f"{node.name}: {core.role.__class__.__name__.lower()} epoch={core.epoch}{leader}{voted} "
                f"hw={core.high_watermark} log=[{log_text(node.log)}]"
            )

    def _do_disks(self) -> None:
        for node in self._nodes.values():
            epoch, leader_id, voted = node.hard_state
            self._printed.append(
                f"{node.name}: epoch={epoch} leader={leader_id} voted={voted.id if voted else '-'} "
                f"log=[{log_text(node.log[: node.durable_end])}]"
            )

    # --- the driver's part --------------------------------------------------------------------------------------------

    def _core(self, node: Node) -> QuorumCore:
        if node.core is None:
            raise ValueError(f"{node.name} is down")
        return node.core

    def _start(self, node: Node) -> None:
        starts = [
            EpochStart(epoch, offset)  # type: ignore[arg-type]
            for offset, (epoch, _) in enumerate(node.log)
            if offset == 0 or node.log[offset - 1][0] != epoch
        ]
        node.core = QuorumCore(
            timing=QuorumConfig(),
            me=node.key,
            voters=self._voters,
            hard_state=node.hard_state,
            epoch_starts=starts,
            end_offset=Offset(len(node.log)),
            draw=lambda: 0.0,
            now_ms=self._now_ms,
        )
        node.is_held = False
        self._obey(node)

    def _obey(self, node: Node) -> None:
        core = self._core(node)
        while (ready := core.ready()) is not None:
            if ready.hard_state is not None:
                node.hard_state = ready.hard_state
            if ready.truncate_to is not None:
                del node.log[ready.truncate_to :]
                node.durable_end = len(node.log)
            for append in ready.appends:
                entries = append.payload
                if isinstance(entries, LeaderChange):
                    entries = [(append.epoch, "*")]
                node.log.extend(entries)
            for message in ready.send:
                if isinstance(message, FetchReply) and message.end_offset > message.base_offset:
                    self._fill(message, node)
                self._wire.append(message)
            core.advance(ready)
            if node.durable_end < len(node.log) and not node.is_held:
                node.durable_end = len(node.log)
                core.flushed(Offset(node.durable_end), self._now_ms)

    def _fill(self, reply: FetchReply, node: Node) -> None:
        reader = self._nodes[reply.target.id]
        end = min(reply.end_offset, reply.base_offset + reader.records_max)
        entries = node.log[reply.base_offset : end]
        reply.payload = entries
        reply.end_offset = Offset(end)
        reply.epochs = tuple(
            EpochStart(epoch, Offset(reply.base_offset + index))  # type: ignore[arg-type]
            for index, (epoch, _) in enumerate(entries)
            if index == 0 or entries[index - 1][0] != epoch
        )

    def _take(self, link: str) -> list[Request | Reply]:
        source, target = (int(word) for word in link.split(">"))
        taken = [m for m in self._wire if (m.source.id, m.target.id) == (source, target)]
        self._wire = [m for m in self._wire if m not in taken]
        return taken

    def _deliver_all(self, *, prints: bool) -> None:
        for _ in range(10_000):
            if not self._wire:
                return
            self._deliver(self._wire.pop(0), prints=prints)
        raise ValueError("the messages do not come to an end")

    def _deliver(self, message: Request | Reply, *, prints: bool) -> None:
        source, target = message.source.id, message.target.id
        node = self._nodes[target]
        if frozenset({source, target}) in self._cuts or node.core is None:
            return
        if prints:
            self._printed.append(f"{source}>{target} {message_text(message)}")
        node.core.step(message, self._now_ms)
        self._obey(node)


def log_text(log: list[tuple[int, str]]) -> str:
    """Entries grouped by epoch: `1: * a b, 2: *`; the star is a LeaderChange."""
    groups: list[str] = []
    last = -1
    for epoch, text in log:
        if epoch != last:
            groups.append(f"{epoch}:")
            last = epoch
        groups[-1] += f" {text}"
    return ", ".join(groups)


def message_text(message: Request | Reply) -> str:
    """A message as people say it."""
    match message:
        case VoteRequest():
            kind = "pre-vote?" if message.is_pre_vote else "vote?"
            return f"{kind} epoch={message.epoch} log={message.end_offset}@{message.last_epoch}"
        case BeginQuorumEpochRequest():
            return f"begin epoch={message.epoch}"
        case EndQuorumEpochRequest():
            return f"end epoch={message.epoch} successors={','.join(str(key.id) for key in message.successors)}"
        case FetchRequest():
            return f"fetch? epoch={message.epoch} from={message.fetch_offset}@{message.last_epoch}"
    error = "" if message.error is ReplyError.NONE else f" {message.error.name}"
    leader = f" leader={message.leader_id}" if message.leader_id >= 0 else ""
    match message:
        case VoteReply():
            kind = "pre-vote" if message.is_pre_vote else "vote"
            return f"{kind} {'granted' if message.is_granted else 'refused'} epoch={message.epoch}{leader}{error}"
        case BeginQuorumEpochReply():
            return f"begun epoch={message.epoch}{leader}{error}"
        case EndQuorumEpochReply():
            return f"ended epoch={message.epoch}{leader}{error}"
        case FetchReply():
            diverging = (
                f" diverging={message.diverging.epoch}:{message.diverging.start_offset}" if message.diverging else ""
            )
            count = message.end_offset - message.base_offset
            return f"fetched {count} epoch={message.epoch}{leader} hw={message.high_watermark}{diverging}{error}"
