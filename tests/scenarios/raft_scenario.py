"""Interprets scripts about the consensus core: a small cluster in which nothing happens unless a line says so.

Commands (N is a node; time stands still but for `timeout`, `campaign` and `wait`):
  nodes N [observers=M] [dynamic] [blank]   voters 1…N, observers after them; dynamic: kraft.version 1; blank: the disks show nothing
                            of a beginning, as those of real nodes; must come first
  campaign N                let N's timers run until it asks for pre-votes
  timeout N                 let N's next timer run
  wait MS                   let MS pass for all timers, delivering
  deliver                   deliver messages, also those that answers cause, until none is left
  deliver A>B               only those from A to B that are in flight now
  drop A>B                  lose those in flight from A to B; `drop` alone loses all
  cut A B / heal [A B]      lose everything between A and B from now on / stop losing
  elect N [without M…]      campaign N + deliver, unprinted; each M has given its leader up too, and asks in vain
  propose N X [X…]          N appends records
  quiet N X [X…]            N appends records whose commit need not be announced at once
  fetch N COUNT             N's fetches bring at most COUNT records from now on
  delay N / flush N         N's flushes do not end / the one in flight ends
  resign N                  N gives up leadership
  add L N / remove L N      an operator asks L to add or remove voter N (N' is N after its disk was replaced)
  update L N PORT / upgrade L   … to give voter N another port; … to raise kraft.version to 1
  join N                    N asks the leader it knows for what it needs to become a voter by itself
  snapshot N OFFSET [SLICES]   N freezes a snapshot of what is below OFFSET; it is sent in so many slices
  clean N OFFSET            N's log begins at OFFSET, the end of a snapshot
  replace N                 N crashes and comes back with an empty disk that knows no voters
  wipe N [unformatted]      N crashes and comes back with an empty disk of the same directory id; unformatted: without its checkpoint
  crash N / restart N       crash loses what was not flushed, and its own messages; requests to it may be late
  recover N                 N, which is down, becomes the only voter of a recovered quorum, as `quorum recover` writes it
  show                      one line per node
  disks                     what is durable, one line per node
Everything that is delivered is printed, and which node ends because its core asserts something that does not hold.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas_quorum.config import QuorumConfig
from barnabas_quorum.raft import snapshots
from barnabas_quorum.raft.core import QuorumCore
from barnabas_quorum.raft.damage import UNKNOWN_END, FlushMark, LogEnd, has_forgotten
from barnabas_quorum.raft.epoch_history import RECOVERY_EPOCH_GAP
from barnabas_quorum.raft.journal import INITIAL_HARD_STATE
from barnabas_quorum.raft.messages import (
    BeginQuorumEpochReply,
    BeginQuorumEpochRequest,
    EndQuorumEpochReply,
    EndQuorumEpochRequest,
    EpochStart,
    FetchReply,
    FetchRequest,
    FetchSnapshotReply,
    FetchSnapshotRequest,
    HardState,
    LeaderChange,
    Reply,
    ReplyError,
    Request,
    SnapshotId,
    VoterChange,
    VoterChangeKind,
    VoteReply,
    VoteRequest,
    Voters,
)
from barnabas_quorum.raft.roles import Prospective
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, Offset, Uuid
from tests.scenarios.runner import Scenario

SLICE_BYTES = 10


@dataclass
class Snapshot:
    """A frozen one."""

    id: SnapshotId
    voters: VoterSet | None
    slices: int


@dataclass
class Node:
    """A core with its own disk. A log entry is (epoch, text); `base` is the offset of the first."""

    key: ReplicaKey
    bootstrap_voters: VoterSet
    core: QuorumCore | None = None
    hard_state: HardState = INITIAL_HARD_STATE
    log: list[tuple[int, str]] = field(default_factory=list)
    base: int = 0
    durable_end: int = 0
    sets: list[tuple[Offset, VoterSet]] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    is_delayed: bool = False
    records_max: int = 1000
    is_blank: bool = False
    """Its disk shows nothing of a beginning."""
    lost: LogEnd | None = None
    """As the newest flush mark has it."""
    life: int = 1

    @property
    def name(self) -> str:
        return key_text(self.key)

    @property
    def end(self) -> int:
        return self.base + len(self.log)

    @property
    def is_forgetful(self) -> bool:
        if self.lost == UNKNOWN_END and not self.hard_state.has_begun:
            return True
        mark = FlushMark(Offset(0), LogEnd(Epoch(0), Offset(0)), None)
        found = LogEnd(Epoch(0), Offset(self.end))
        return self.is_blank and has_forgotten(
            mark, found=found, has_hard_state=True, has_begun=self.hard_state.has_begun
        )

    def truncate(self, end: int) -> None:
        del self.log[max(0, end - self.base) :]
        self.sets = [(at, voters) for at, voters in self.sets if at < end]
        self.durable_end = self.end

    def restart_at(self, snapshot: Snapshot) -> None:
        self.log, self.base, self.durable_end = [], snapshot.id.end_offset, snapshot.id.end_offset
        self.snapshots = [snapshot]
        self.sets = [] if snapshot.voters is None else [(Offset(self.base - 1), snapshot.voters)]


class RaftScenario(Scenario):
    """See the module."""

    def __init__(self) -> None:
        self._nodes: dict[int, Node] = {}
        self._voters: VoterSet
        self._now_ms = 0
        self._wire: list[Request | Reply] = []
        self._cuts: set[frozenset[int]] = set()
        self._printed: list[str] = []
        self._sets: dict[str, VoterSet] = {}
        """Text of a Voters record -> its set."""
        self._changes = 0

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

    def _do_nodes(self, count: str, *words: str) -> None:
        voters = int(count)
        observers = next((word for word in words if word.startswith("observers=")), "observers=0")
        keys = [
            ReplicaKey(BrokerId(i), Uuid(bytes([i]) * 16)) for i in range(1, voters + int(observers.split("=")[1]) + 1)
        ]
        self._voters = VoterSet([voter_of(key) for key in keys[:voters]], kraft_version=int("dynamic" in words))
        self._nodes = {key.id: Node(key, self._voters, is_blank="blank" in words) for key in keys}
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

    def _do_propose(self, name: str, *texts: str, is_urgent: bool = True) -> None:
        node = self._nodes[int(name)]
        core = self._core(node)
        entries = [(core.epoch, text) for text in texts]
        core.propose(entries, record_count=len(entries), now_ms=self._now_ms, is_urgent=is_urgent)
        self._obey(node)

    def _do_quiet(self, name: str, *texts: str) -> None:
        self._do_propose(name, *texts, is_urgent=False)

    def _do_fetch(self, name: str, count: str) -> None:
        self._nodes[int(name)].records_max = int(count)

    def _do_delay(self, name: str) -> None:
        self._nodes[int(name)].is_delayed = True

    def _do_flush(self, name: str) -> None:
        node = self._nodes[int(name)]
        node.is_delayed = False
        node.durable_end = node.end
        self._core(node).flushed(Offset(node.durable_end), self._now_ms)
        self._obey(node)

    def _do_resign(self, name: str) -> None:
        node = self._nodes[int(name)]
        self._core(node).resign(self._now_ms)
        self._obey(node)

    def _do_crash(self, name: str) -> None:
        node = self._nodes[int(name)]
        node.lost, node.core = self._core(node).lost_end, None
        node.truncate(node.durable_end)
        self._wire = [
            m for m in self._wire if m.source != node.key and (m.target != node.key or isinstance(m, Request))
        ]

    def _do_restart(self, name: str) -> None:
        self._start(self._nodes[int(name)])

    def _do_add(self, leader: str, name: str) -> None:
        self._change(leader, VoterChangeKind.ADD, voter_of(key_of(name)))

    def _do_remove(self, leader: str, name: str) -> None:
        self._change(leader, VoterChangeKind.REMOVE, voter_of(key_of(name)))

    def _do_update(self, leader: str, name: str, port: str) -> None:
        self._change(leader, VoterChangeKind.UPDATE, voter_of(key_of(name))._replace(port=int(port)))

    def _do_upgrade(self, leader: str) -> None:
        self._change(leader, VoterChangeKind.UPGRADE, voter_of(key_of(leader)))

    def _do_join(self, name: str) -> None:
        node = self._nodes[int(name.strip("'"))]
        change = self._core(node).auto_join(voter_of(node.key))
        leader = self._core(node).leader_endpoint
        if change is None or leader is None:
            self._printed.append(f"{node.name} asks for nothing")
            return
        self._printed.append(f"{node.name} asks to {change.kind.value} {key_text(change.voter.key)}")
        self._change(str(leader.key.id), change.kind, change.voter, joiner=change.joiner)

    def _change(self, leader: str, kind: VoterChangeKind, voter: Voter, *, joiner: ReplicaKey | None = None) -> None:
        node = self._nodes[int(leader)]
        self._changes += 1
        refusal = self._core(node).change_voters(VoterChange(kind, voter, self._changes, joiner), self._now_ms)
        if refusal is not None:
            self._printed.append(f"{refusal.error.name}: {refusal.reason}")
        self._obey(node)

    def _do_snapshot(self, name: str, offset: str, slices: str = "1") -> None:
        node = self._nodes[int(name)]
        core = self._core(node)
        end = Offset(int(offset))
        snapshot_id = SnapshotId(end, core.history.epoch_before(end))
        refusal = core.snapshot_refusal(snapshot_id)
        if refusal is not None:
            self._printed.append(refusal)
            return
        voters = core.voter_history.before(end)
        node.snapshots.append(Snapshot(snapshot_id, voters if voters.kraft_version else None, int(slices)))
        assert core.snapshot_taken(snapshot_id, self._now_ms)

    def _do_clean(self, name: str, offset: str) -> None:
        node = self._nodes[int(name)]
        start = int(offset)
        self._core(node).log_start_moved(Offset(start), self._now_ms)
        del node.log[: start - node.base]
        node.base = start
        node.snapshots = [snapshot for snapshot in node.snapshots if snapshot.id.end_offset >= start]

    def _do_replace(self, name: str) -> None:
        node = self._nodes[int(name)]
        if node.core is not None:
            self._do_crash(name)
        number = node.key.directory_id[0]
        key = ReplicaKey(node.key.id, Uuid(bytes([number + 100]) + node.key.directory_id[1:]))
        self._nodes[int(name)] = Node(key, VoterSet.unknown())
        self._start(self._nodes[int(name)])

    def _do_wipe(self, name: str, kind: str = "") -> None:
        node = self._nodes[int(name)]
        if node.core is not None:
            self._do_crash(name)
        voters = VoterSet.unknown() if kind else node.bootstrap_voters
        self._nodes[int(name)] = Node(node.key, voters, is_blank=True, life=node.life)
        self._start(self._nodes[int(name)])

    def _do_recover(self, name: str) -> None:
        node = self._nodes[int(name)]
        assert node.core is None, f"{name} is up"
        voters = node.sets[-1][1] if node.sets else node.bootstrap_voters
        own = next(voter for voter in voters if voter.key == node.key)
        gone = [voter.key for voter in voters if voter.key != node.key]
        epoch = Epoch(node.hard_state.epoch + RECOVERY_EPOCH_GAP)
        node.hard_state = HardState(epoch, NO_BROKER, None)
        recovered = VoterSet([own], kraft_version=1, removed=[*voters.removed, *gone])
        self._write(node, Voters(recovered, writes_version=True), epoch)
        node.durable_end = node.end

    def _do_show(self) -> None:
        for node in self._nodes.values():
            if node.core is None:
                self._printed.append(f"{node.name}: down")
                continue
            core = node.core
            leader = f" leader={core.leader_id}" if core.leader_id >= 0 else ""
            voted = f" voted={core.voted.id}" if core.voted else ""
            voters = f" voters={set_text(core.voters)}" if core.voters.kraft_version else ""
            self._printed.append(
                f"{node.name}: {core.role.__class__.__name__.lower()} epoch={core.epoch}{leader}{voted} "
                f"hw={core.high_watermark}{voters} log=[{node_log_text(node, node.log)}]"
            )

    def _do_disks(self) -> None:
        for node in self._nodes.values():
            epoch, leader_id, voted, _ = node.hard_state
            self._printed.append(
                f"{node.name}: epoch={epoch} leader={leader_id} voted={voted.id if voted else '-'} "
                f"log=[{node_log_text(node, node.log[: node.durable_end - node.base])}]"
            )

    # --- the driver's part --------------------------------------------------------------------------------------------

    def _core(self, node: Node) -> QuorumCore:
        if node.core is None:
            raise ValueError(f"{node.name} is down")
        return node.core

    def _start(self, node: Node) -> None:
        starts = [
            EpochStart(epoch, Offset(node.base + index))  # type: ignore[arg-type]
            for index, (epoch, _) in enumerate(node.log)
            if index == 0 or node.log[index - 1][0] != epoch
        ]
        point = snapshots.restart_point(
            [snapshot.id for snapshot in node.snapshots],
            epoch_starts=starts,
            log_start=Offset(node.base),
            end_offset=Offset(node.end),
        )
        if point is not None:
            node.restart_at(next(snapshot for snapshot in node.snapshots if snapshot.id == point))
            starts = []
        node.core = QuorumCore(
            timing=QuorumConfig(fetch_snapshot_bytes_max=SLICE_BYTES),
            me=node.key,
            voters=node.bootstrap_voters,
            hard_state=node.hard_state,
            epoch_starts=starts,
            end_offset=Offset(node.end),
            draw=lambda: 0.0,
            now_ms=self._now_ms,
            log_start=Offset(node.base),
            snapshots=[snapshot.id for snapshot in node.snapshots],
            voter_sets=node.sets,
            bootstrap=[] if node.bootstrap_voters.keys else self._voters.voters,
            lost_end=UNKNOWN_END if node.is_forgetful else None,
            life=node.life,
        )
        node.life += 1
        node.is_delayed = False
        self._obey(node)

    def _obey(self, node: Node) -> None:
        core = self._core(node)
        while (ready := core.ready()) is not None:
            if ready.hard_state is not None:
                node.hard_state = ready.hard_state
            if ready.truncate_to is not None:
                node.truncate(ready.truncate_to)
            if ready.install is not None:
                source = ready.snapshot_parts[-1].data
                ready.install.voters = source.voters
                node.restart_at(Snapshot(ready.install.snapshot_id, source.voters, 1))
                self._printed.append(f"{node.name} loads snapshot {ready.install.snapshot_id}")
            for append in ready.appends:
                self._write(node, append.payload, append.epoch)
            for message in ready.send:
                if isinstance(message, FetchReply) and message.end_offset > message.base_offset:
                    self._fill(message, node)
                elif isinstance(message, FetchSnapshotReply) and message.error is ReplyError.NONE:
                    self._fill_slice(message, node)
                self._wire.append(message)
            core.advance(ready)
            for result in ready.finished:
                self._printed.append(f"{node.name}: change of voters {result.error.name} {result.reason}".rstrip())
            if node.durable_end < node.end and not node.is_delayed:
                node.durable_end = node.end
                core.flushed(Offset(node.durable_end), self._now_ms)

    def _write(self, node: Node, payload: object, epoch: int) -> None:
        if isinstance(payload, LeaderChange):
            entries = [(epoch, "*")]
        elif isinstance(payload, Voters):
            text = f"V{set_text(payload.voter_set)}"
            if payload.voter_set.removed:
                text += f"-{','.join(key_text(key) for key in payload.voter_set.removed)}"
            self._sets[text] = payload.voter_set
            entries = [(epoch, "K"), (epoch, text)] if payload.writes_version else [(epoch, text)]
        else:
            assert isinstance(payload, list)
            entries = payload
        for entry in entries:
            if entry[1] in self._sets:
                node.sets.append((Offset(node.end), self._sets[entry[1]]))
            node.log.append(entry)

    def _fill(self, reply: FetchReply, node: Node) -> None:
        reader = self._nodes[reply.target.id]
        end = min(reply.end_offset, reply.base_offset + reader.records_max)
        entries = node.log[reply.base_offset - node.base : end - node.base]
        reply.payload = entries
        reply.end_offset = Offset(end)
        reply.epochs = tuple(
            EpochStart(epoch, Offset(reply.base_offset + index))  # type: ignore[arg-type]
            for index, (epoch, _) in enumerate(entries)
            if index == 0 or entries[index - 1][0] != epoch
        )

        reply.voter_sets = tuple(
            (Offset(reply.base_offset + index), self._sets[text])
            for index, (_, text) in enumerate(entries)
            if text in self._sets
        )

    def _fill_slice(self, reply: FetchSnapshotReply, node: Node) -> None:
        snapshot = next(each for each in node.snapshots if each.id == reply.snapshot_id)
        reply.size = snapshot.slices * SLICE_BYTES
        if reply.position >= reply.size:
            reply.error = ReplyError.POSITION_OUT_OF_RANGE
        else:
            reply.payload = Slice(snapshot.voters)

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
        try:
            node.core.step(message, self._now_ms)
            self._obey(node)
        except AssertionError as error:
            self._printed.append(f"{node.name} ends: {error}")
            self._do_crash(str(target))


@dataclass
class Slice:
    """A slice of a snapshot; of its content only the voters matter here."""

    voters: VoterSet | None

    def __len__(self) -> int:
        return SLICE_BYTES


def voter_of(key: ReplicaKey) -> Voter:
    """With the address that its node has."""
    return Voter(key, "localhost", 9000 + key.id)


def key_of(name: str) -> ReplicaKey:
    """`2` is node 2 with its first disk, `2'` with the one that replaced it."""
    number = int(name.strip("'"))
    return ReplicaKey(BrokerId(number), Uuid(bytes([number + 100 * name.count("'")]) + bytes([number]) * 15))


def key_text(key: ReplicaKey) -> str:
    """The name that key_of reads."""
    return f"{key.id}" + "'" * (key.directory_id[0] // 100)


def set_text(voters: VoterSet) -> str:
    """The voters' names; a port that was changed is said."""
    return ",".join(
        key_text(voter.key) + (f":{voter.port}" if voter.port != 9000 + voter.key.id else "") for voter in voters
    )


def node_log_text(node: Node, log: list[tuple[int, str]]) -> str:
    """A log that begins with a snapshot says so."""
    if not node.base:
        return log_text(log)
    return f"{node.base}-{node.snapshots[0].id.epoch}| {log_text(log)}".rstrip()


def log_text(log: list[tuple[int, str]]) -> str:
    """Entries grouped by epoch: `1: * a b, 2: *`; the star is a LeaderChange, V a voter set (- who was removed), K
    kraft.version."""
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
        case FetchSnapshotRequest():
            return f"snapshot? epoch={message.epoch} {message.snapshot_id} byte {message.position}"
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
            if message.snapshot_id is not None:
                diverging += f" snapshot={message.snapshot_id}"
            count = message.end_offset - message.base_offset
            return f"fetched {count} epoch={message.epoch}{leader} hw={message.high_watermark}{diverging}{error}"
        case FetchSnapshotReply():
            return f"slice {message.position}+{len(message.payload)} of {message.size} epoch={message.epoch}{leader}{error}"
