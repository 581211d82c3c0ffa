"""What goes wrong around the consensus core, and what operators do to it meanwhile.

May touch:  the Simulation it belongs to.     Must not touch: asyncio, clock, files, other random generators.
Invariants: intensities come from the swarm alone; in calm nothing goes wrong any more; operators and lost disks leave each
            voter set that any replica may come back to a majority of disks, or the cluster would rightly stand still.
Read next:  raft_simulator.py.

Messages are lost, delayed, duplicated, overtaken in raft_simulator._send. Here: partitions, also in one direction and
in rings of overlapping majorities; clogged links; a leader cut off at the moment of its election, of a voter change,
or of a commit that a follower has not flushed, whose disk is slow from then on; pauses; clocks that drift and jump; fsyncs
that fail; disks without space; bits that flip in what was flushed; crashes at random and, more often, right after a
*telling moment* (a vote given, a log written but not flushed, a hard state saved, a snapshot frozen), with a restart within
20 ms so that the peers have noticed nothing. Uniform faults alone find neither a lost vote nor figure 8 of Raft.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas_quorum.raft.messages import VoterChange, VoterChangeKind
from barnabas_quorum.raft.roles import Candidate
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_wire.kafka.ids import BrokerId, Uuid
from tests.simulation.raft_disk import SimulatedNode
from tests.simulation.raft_swarm import NEVER_US

if TYPE_CHECKING:
    from tests.simulation.raft_simulator import Simulation

VOTERS_MAX = 7
TRIES_MAX = 10
FROZEN_ONLY = 3
"""Stages of a Ready that are done when a snapshot is frozen and the log not yet restarted."""
HOLLOW_RATE = 0.5
"""Of the commits of what a follower has and has not flushed, which are rare, where flushes stall."""
FLUSHED, ASK = 3, 5  # as in raft_simulator
CRASH, PARTITION, HEAL, PAUSE, RESIGN, CLOG, CLOCK, SNAPSHOT, MEMBER, JOIN, DISK, FULL, EMPTY = range(9, 22)


class Faults:
    """Draws what happens next, and lets it happen."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._random = simulation.random
        self._swarm = simulation.swarm
        self.doomed: SimulatedNode | None = None
        """Crashes as soon as the present event is over."""
        self._stalled: SimulatedNode | None = None
        """Whose flushes end only at `_stalled_until_us`."""
        self._stalled_until_us = 0
        self._moments_left = NEVER_US
        self._disks = 100
        self._changes = 0
        self._tries: dict[int, int] = {}
        """Correlation of a voter change -> how often it will still be asked for."""

    def begin(self) -> None:
        """Draw the first of each kind."""
        swarm = self._swarm
        for kind, mean_us in (
            (CRASH, swarm.crash_us),
            (PARTITION, swarm.partition_us),
            (PAUSE, swarm.pause_us),
            (RESIGN, swarm.resign_us),
            (CLOG, swarm.clog_us),
            (CLOCK, swarm.clock_jump_us),
            (SNAPSHOT, swarm.snapshot_us),
            (MEMBER, swarm.member_us),
            (DISK, swarm.replace_disk_us),
            (FULL, swarm.full_disk_us),
            (EMPTY, swarm.empty_disk_us),
        ):
            self._later(kind, mean_us)
        if swarm.auto_join:
            self._later(JOIN, swarm.config.fetch_timeout_ms * 250)
        self._draw_moments()

    def happen(self, kind: int) -> bool:
        """One of the kinds above; False when it met nobody, which is no event."""
        swarm = self._swarm
        simulation = self._simulation
        if simulation.is_quiet:
            return False
        if kind == SNAPSHOT:
            self._later(SNAPSHOT, swarm.snapshot_us)
            return self._snapshot_or_clean()
        if kind == JOIN:
            self._later(JOIN, swarm.config.fetch_timeout_ms * 250)
            return self._join()
        if simulation.is_calm:
            return False
        if kind == CRASH:
            self._later(CRASH, swarm.crash_us)
            node = self._any_node()
            if node.is_alive and simulation.strikes("crash", node.id):
                self.crash(node)
        elif kind == PARTITION:
            self._later(HEAL, swarm.partition_length_us)
            self._partition()
        elif kind == HEAL:
            self._later(PARTITION, swarm.partition_us)
            self.heal()
        elif kind == PAUSE:
            self._later(PAUSE, swarm.pause_us)
            self._pause(self._any_node())
        elif kind == RESIGN:
            self._later(RESIGN, swarm.resign_us)
            for node in simulation.ready_leaders():
                if not simulation.strikes("resign", node.id):
                    continue
                node.core.resign(simulation.clock_ms(node))
                simulation.pump(node)
                simulation.arm(node)
        elif kind == CLOG:
            self._later(CLOG, swarm.clog_us)
            until_us = simulation.now_us + int(self._random.expovariate(1.0) * swarm.partition_length_us)
            source, target = self._any_node().id, self._any_node().id
            if simulation.strikes("clog", source, target):
                simulation.clogged_until_us[source][target] = until_us
        elif kind == CLOCK:
            self._later(CLOCK, swarm.clock_jump_us)
            self._jump_clock(self._any_node())
        elif kind == MEMBER:
            self._later(MEMBER, swarm.member_us)
            return self._operate()
        elif kind == DISK:
            self._later(DISK, swarm.replace_disk_us)
            return self._replace_disk(self._any_node())
        elif kind == FULL:
            self._later(FULL, swarm.full_disk_us)
            self._fill_disk(self._any_node())
        elif kind == EMPTY:
            self._later(EMPTY, swarm.empty_disk_us)
            return self._empty_disk(self._any_node())
        return True

    def _later(self, kind: int, mean_us: int) -> None:
        if mean_us != NEVER_US:
            self._simulation.push(int(self._random.expovariate(1.0) * mean_us), kind)

    def _any_node(self) -> SimulatedNode:
        return self._random.choice(self._simulation.nodes)

    # --- crashes ------------------------------------------------------------------------------------------------------

    def _draw_moments(self) -> None:
        mean = self._swarm.crash_moments
        self._moments_left = 1 + int(self._random.expovariate(1.0) * mean) if mean else NEVER_US

    def moment(self, node: SimulatedNode) -> None:
        """A telling one: this replica may crash right after it."""
        self._moments_left -= 1
        if self._moments_left <= 0 and not self._simulation.is_calm:
            self.doomed = node

    def on_loading(self, node: SimulatedNode) -> None:
        """A snapshot is about to replace a log: freeze and restart are two steps, and a crash may come between."""
        rate = self._swarm.crash_loading_rate
        if rate and not self._simulation.is_calm and self._random.random() < rate:
            self.doomed = node

    def crash_doomed(self) -> None:
        """The event is over."""
        node, self.doomed = self.doomed, None
        self._draw_moments()
        if (
            node is not None
            and node.is_alive
            and not self._simulation.is_calm
            and self._simulation.strikes("crash at a telling moment", node.id)
        ):
            self._simulation.figures.telling_crashes += 1
            self.crash(node, keeps_unflushed=node is not self._stalled)

    def crash(self, node: SimulatedNode, *, keeps_unflushed: bool = True, may_finish_saving: bool = True) -> None:
        """The process dies, or the machine; what it finds afterwards may be damaged."""
        if not node.is_alive:
            return
        simulation = self._simulation
        random = self._random
        simulation.figures.crashes += 1
        ready = simulation.die(node)
        if ready is not None and may_finish_saving:
            # The disk had finished some of it, only the answer had not come.
            stages = int(random.random() * 5)
            if ready.install is not None and random.random() < 0.5:
                stages = FROZEN_ONLY
            simulation.persist(node, ready, stages=stages)
        node.lose_what_is_not_durable(random, keeps_a_part=keeps_unflushed)
        self._flip(node)
        self.set_clock(node)
        if random.random() < self._swarm.quick_restart_rate:
            delay_us = int(random.random() * 20_000)
        else:
            delay_us = int(random.expovariate(1.0) * self._swarm.restart_us)
        simulation.restart_later(node, delay_us)

    def on_commit(self, leader: SimulatedNode) -> None:
        """Cut a leader off that has just committed what a follower has not flushed, and let that flush take longer than the
        follower waits for its leader: so it runs for election with what it has not flushed."""
        simulation = self._simulation
        if not leader.core.is_leader or simulation.is_calm:
            return
        for node in simulation.nodes:
            is_hollow = node is not leader and node.durable_end < leader.core.high_watermark <= node.end
            if is_hollow and node.is_alive and node.core.is_voter and self._random.random() < HOLLOW_RATE:
                if simulation.strikes("leader of a stalled follower cut off", leader.id, node.id):
                    timeout_us = self._swarm.config.fetch_timeout_ms * 1000
                    self._isolate(leader, one_way=False)
                    self._later(HEAL, 2 * timeout_us)
                    self._stalled = node
                    self._stalled_until_us = simulation.now_us + int((1 + self._random.random()) * timeout_us)
                return

    def on_saved(self, node: SimulatedNode) -> None:
        """A hard state is. That of a candidate with unflushed records goes with a question for votes; it is without them when
        it stands again."""
        is_hollow = node is self._stalled and node.core.role.__class__ is Candidate and node.durable_end < node.end
        if is_hollow and not self._simulation.is_calm and self._random.random() < 0.5:
            self.doomed = node
        else:
            self.moment(node)

    def flush_fails(self, node: SimulatedNode) -> bool:
        """An fsync error: the pages are gone, the journal is poisoned, the node stops. Or it has not ended yet."""
        if node is self._stalled and self._stalled_until_us > self._simulation.now_us:
            self._simulation.push_to(node, self._stalled_until_us - self._simulation.now_us, FLUSHED, node.flushing_to)
            return True
        if node.full_until_us > self._simulation.now_us:
            # Where blocks are found only when the pages go to the disk, it is the flush that hears of it.
            self.disk_is_full(node)
            return True
        rate = self._swarm.flush_failure_rate
        if not rate or self._simulation.is_calm or self._random.random() >= rate:
            return False
        if not self._simulation.strikes("flush fails", node.id):
            return False
        self.crash(node, keeps_unflushed=False)
        return True

    def _fill_disk(self, node: SimulatedNode) -> None:
        """No space: from now on each write fails, until somebody makes room."""
        simulation = self._simulation
        if node.full_until_us <= simulation.now_us and simulation.strikes("disk full", node.id):
            length_us = int(self._random.expovariate(1.0) * self._swarm.full_disk_length_us)
            node.full_until_us = simulation.now_us + length_us

    def disk_is_full(self, node: SimulatedNode) -> None:
        """A write found no space. The node stops, as at any error of its metadata log, and whoever watches it starts it again:
        it may read, listen and crash again until there is room."""
        self._simulation.figures.full_disks += 1
        self.crash(node, keeps_unflushed=False, may_finish_saving=False)

    def _flip(self, node: SimulatedNode) -> None:
        """A bit of what was flushed is another one now, on so few that the rest are a majority of every voter set."""
        rate = self._swarm.flip_rate
        mark = node.mark
        if not rate or mark is None or self._simulation.is_calm or self._random.random() >= rate:
            return
        first = node.first_unproved
        if first >= mark.flushed_end or not self._may_lack(node):
            return
        # Mostly the newest records, of which not everybody has heard.
        span = mark.flushed_end - first
        if self._random.random() < 0.7:
            span = min(span, 5)
        at = mark.flushed_end - 1 - int(self._random.random() * span)
        if not self._simulation.strikes("bit flips", node.id):
            return
        self._simulation.figures.flips += 1
        self._simulation.invariants.on_flip(node, node.flip_a_bit(at))

    def look_for_missing(self, node: SimulatedNode) -> None:
        """Whether a flush has brought back what a flip had cost."""
        assert node.missing is not None
        if node.end_at(node.durable_end) >= node.missing:
            node.missing = None
            self._simulation.figures.regained += 1
            self._simulation.invariants.on_regained(node)

    def is_download_damaged(self, node: SimulatedNode) -> bool:
        """Whether a downloaded snapshot fails its checks."""
        rate = self._swarm.damaged_snapshot_rate
        return (
            bool(rate)
            and not self._simulation.is_calm
            and self._random.random() < rate
            and self._simulation.strikes("download damaged", node.id)
        )

    def _pause(self, node: SimulatedNode) -> None:
        if node.is_alive and not node.is_paused and self._simulation.strikes("pause", node.id):
            node.is_paused = True
            delay_us = int(self._random.expovariate(1.0) * self._swarm.config.fetch_timeout_ms * 1000)
            self._simulation.push_to(node, delay_us, 7, None)  # RESUME

    # --- clocks -------------------------------------------------------------------------------------------------------

    def set_clock(self, node: SimulatedNode) -> None:
        """At a start: monotonic clocks of two machines, or of two boots, have nothing in common."""
        drift = self._swarm.clock_drift
        node.clock_us = self._simulation.now_us
        node.clock_ms = 1000 + int(self._random.random() * 1_000_000)
        node.clock_rate = 1.0 + drift * (2 * self._random.random() - 1) if drift else 1.0

    def _jump_clock(self, node: SimulatedNode) -> None:
        """A monotonic clock only jumps ahead (a machine that was suspended)."""
        simulation = self._simulation
        by_ms = int(self._random.expovariate(1.0) * self._swarm.config.fetch_timeout_ms)
        if not simulation.strikes("clock jumps", node.id):
            return
        node.clock_ms = simulation.clock_ms(node) + by_ms
        node.clock_us = simulation.now_us
        if simulation.is_ready(node):
            simulation.arm(node)

    # --- the network --------------------------------------------------------------------------------------------------

    def on_new_leader(self, node: SimulatedNode) -> None:
        """Cut it off at the moment of its election."""
        rate = self._swarm.cut_new_leader_rate
        if rate and self._random.random() < rate and self._simulation.strikes("new leader cut off", node.id):
            self._isolate(node, one_way=False)
            self._later(HEAL, self._swarm.partition_length_us)
        self.moment(node)

    def on_voters_written(self, node: SimulatedNode) -> None:
        """Cut a leader off when it has just written a voter set, so that it may be lost."""
        rate = self._swarm.cut_changing_leader_rate
        if (
            rate
            and not self._simulation.is_calm
            and self._random.random() < rate
            and self._simulation.strikes("changing leader cut off", node.id)
        ):
            self._isolate(node, one_way=False)
            self._later(HEAL, self._swarm.partition_length_us)

    def _partition(self) -> None:
        simulation = self._simulation
        simulation.figures.partitions += 1
        random = self._random
        one_way = random.random() < self._swarm.one_way_rate
        luck = random.random()
        if luck < 0.45:
            node = self._any_node()
            if simulation.strikes("isolated one way" if one_way else "isolated", node.id):
                self._isolate(node, one_way=one_way)
            return
        if luck < 0.6:
            if simulation.strikes("ring of majorities", 0):
                self._ring()
            return
        side = [random.random() < 0.5 for _ in range(len(simulation.nodes) + 1)]
        if not simulation.strikes(
            "split one way" if one_way else "split", sum(side[1:]), len(side) - 1 - sum(side[1:])
        ):
            return
        for a in range(1, len(side)):
            for b in range(1, len(side)):
                if side[a] and not side[b]:
                    simulation.blocked[a][b] = True
                    if not one_way:
                        simulation.blocked[b][a] = True

    def _ring(self) -> None:
        """Every replica sees a majority, no two see the same one; three make a chain."""
        count = len(self._simulation.nodes)
        order = list(range(1, count + 1))
        self._random.shuffle(order)
        reach = max(1, (count // 2 + 1) // 2)
        for i, a in enumerate(order):
            for j, b in enumerate(order):
                distance = min(abs(i - j), count - abs(i - j)) if count > 3 else abs(i - j)
                if distance > reach:
                    self._simulation.blocked[a][b] = True

    def _isolate(self, node: SimulatedNode, *, one_way: bool) -> None:
        blocked = self._simulation.blocked
        is_deaf = one_way and self._random.random() < 0.5
        for other in range(1, len(blocked)):
            if other != node.id:
                if not is_deaf:
                    blocked[node.id][other] = True
                if is_deaf or not one_way:
                    blocked[other][node.id] = True

    def heal(self) -> None:
        """All links work."""
        for row in self._simulation.blocked:
            for index in range(len(row)):
                row[index] = False

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def _snapshot_or_clean(self) -> bool:
        simulation = self._simulation
        node = self._any_node()
        if not simulation.is_ready(node):
            return False
        # Not in calm: who cleans faster than a follower downloads keeps it from ever being served, and no bound holds then.
        if node.snapshots and self._random.random() < self._swarm.clean_rate and not simulation.is_calm:
            offset = self._random.choice(node.snapshots).snapshot_id.end_offset
            if offset > node.base:
                simulation.clean(node, offset)
        end: int = node.core.high_watermark
        luck = self._random.random()
        if luck < 0.5:
            end -= end % 8  # so that two replicas often have snapshots of one name
        elif luck < 0.7 and end > node.base:
            end = node.base + 1 + int(self._random.random() * (end - node.base))
        elif luck < 0.8:
            end = node.end  # which is refused unless all is committed
        if end > node.base and (end := node.batch_boundary(end)) > node.base:
            simulation.take_snapshot(node, end)
        return True

    # --- the voter set ------------------------------------------------------------------------------------------------

    def _next_change(self) -> int:
        self._changes += 1
        return self._changes

    def _endpoint(self, node: SimulatedNode, *, port: int | None = None) -> Voter:
        return Voter(node.key, "localhost", port or 9000 + node.id)

    def _ask(self, leader: SimulatedNode, change: VoterChange) -> None:
        """Through the network, so that it may reach a leader that is none any more."""
        self._simulation.push_to(leader, self._swarm.delay_us, ASK, change)

    def _operate(self) -> bool:
        """An operator adds, removes or updates a voter, or raises kraft.version."""
        leaders = self._simulation.ready_leaders()
        if not leaders:
            return False
        leader = self._random.choice(leaders)
        voters = leader.voters
        luck = self._random.random()
        if voters.kraft_version == 0 and luck < 0.5:
            self._ask(leader, VoterChange(VoterChangeKind.UPGRADE, self._endpoint(leader), self._next_change()))
        elif luck < 0.5 or (len(voters) == 1 and luck < 0.9):
            joining = [node for node in self._simulation.nodes if voters.by_id(node.key.id) is None]
            if joining and len(voters) < VOTERS_MAX:
                node = self._random.choice(joining)
                if self._is_left_alive(voters.with_voter(self._endpoint(node))):
                    self._ask(leader, VoterChange(VoterChangeKind.ADD, self._endpoint(node), self._next_change()))
        elif luck < 0.9:
            # A lost disk is what operators remove first.
            dead = [voter for voter in voters if self._owner(voter.key) is None]
            voter = self._random.choice(dead) if dead else self._random.choice(voters.voters)
            if self._is_left_alive(voters.without_voter(voter.key)):
                self._ask(leader, VoterChange(VoterChangeKind.REMOVE, voter, self._next_change()))
        else:
            voter = self._random.choice(voters.voters)
            port = 9000 + int(self._random.random() * 1000)
            self._ask(leader, VoterChange(VoterChangeKind.UPDATE, voter._replace(port=port), self._next_change()))
        return True

    def try_again(self, change: VoterChange) -> None:
        """An operator that was told to does so, soon and often: that is when a leader is new."""
        leaders = self._simulation.ready_leaders()
        left = self._tries.setdefault(change.correlation, TRIES_MAX)
        if leaders and left and change.joiner is None:
            self._tries[change.correlation] = left - 1
            delay_us = int(self._random.expovariate(1.0) * self._swarm.member_us / 20)
            self._simulation.push_to(self._random.choice(leaders), delay_us, ASK, change)

    def is_wise(self, leader: SimulatedNode, change: VoterChange) -> bool:
        """Whether the cluster could live with it: while the wish was on its way a disk may have been lost."""
        voters = leader.voters
        if change.kind is VoterChangeKind.ADD:
            return self._is_left_alive(voters.with_voter(change.voter))
        if change.kind is VoterChangeKind.REMOVE and len(voters) > 1:
            return self._is_left_alive(voters.without_voter(change.voter.key))
        return True

    def _join(self) -> bool:
        """What the driver of every observer controller does now and then."""
        asked = False
        for node in self._simulation.nodes:
            if not self._simulation.is_ready(node):
                continue
            change = node.core.auto_join(self._endpoint(node))
            leader = node.core.leader_endpoint
            if change is None or leader is None:
                continue
            target = self._simulation.nodes[leader.key.id - 1]
            voters = target.voters
            if target.is_alive and (change.kind is VoterChangeKind.REMOVE or len(voters) < VOTERS_MAX):
                self._ask(target, change._replace(correlation=self._next_change()))
                asked = True
        return asked

    def _owner(self, key: ReplicaKey) -> SimulatedNode | None:
        """The replica that has this disk, None when the disk is lost."""
        return next((node for node in self._simulation.nodes if node.key == key), None)

    def _is_left_alive(self, voters: VoterSet, *, without: SimulatedNode | None = None) -> bool:
        """Whether a majority of this set has its disks with all that was flushed to them, also without one more."""
        owners = [self._owner(key) for key in voters.keys]
        whole = [node for node in owners if node is not None and node is not without and node.is_whole]
        return not voters.keys or len(whole) >= voters.majority

    def _may_lack(self, node: SimulatedNode) -> bool:
        """Whether every voter set that any replica may come back to can do without the disk of this one."""
        simulation = self._simulation
        sets = [voters for other in simulation.nodes for _, voters in other.sets[-2:]]
        sets += [voters for _, voters in simulation.invariants.committed_sets[-1:]]
        return all(self._is_left_alive(voters, without=node) for voters in sets) and self._can_elect_without(node)

    def _can_elect_without(self, lost: SimulatedNode) -> bool:
        """Whether the rest can elect one of them by the voters in its own log.

        A majority of disks is not enough: a replica that votes by the candidate's log alone can have a newer log than every candidate,
        and refuses them all for ever. What the lost replica wrote last may be on its way to it.
        """
        rest = [node for node in self._simulation.nodes if node is not lost and node.is_whole]
        for candidate in rest:
            voters, end = candidate.voters, candidate.end_at(candidate.end)
            votes = sum(
                other.key in voters.keys
                and other.end_at(other.end) <= end
                and (other.key in other.voters.keys or lost.end_at(lost.end) <= end)
                for other in rest
            )
            if candidate.key in voters.keys and votes >= voters.majority:
                return True
        return False

    def _empty_disk(self, node: SimulatedNode) -> bool:
        """A directory is emptied, or another disk is mounted there and formatted with the same ids, or without any voters."""
        simulation = self._simulation
        if not simulation.invariants.committed or not self._may_lack(node):
            return False
        if not simulation.strikes("disk emptied", node.id):
            return False
        if node.is_alive:
            self.crash(node)
        simulation.figures.emptied += 1
        simulation.invariants.on_emptied(node)
        # A static set is nowhere but in the checkpoint: without that no replica could come back as a voter. But whoever formats the disk of
        # the only first voter for a first start, with its old directory id, asks for a new quorum: nothing tells the two apart.
        is_formatted = not self._swarm.kraft_version or self._random.random() < 0.5
        voters = node.bootstrap_voters
        node.wipe(node.key, voters if is_formatted and len(voters) > 1 else VoterSet.unknown())
        node.is_emptied = True
        return True

    def _replace_disk(self, node: SimulatedNode) -> bool:
        """A disk is lost; the node comes back with an empty one, which has a directory id of its own."""
        simulation = self._simulation
        if not self._may_lack(node):
            return False
        if not simulation.strikes("disk lost", node.id):
            return False
        if node.is_alive:
            self.crash(node)
        simulation.figures.new_disks += 1
        self._disks += 1
        simulation.invariants.on_lost_disk(node)
        key = ReplicaKey(BrokerId(node.id), Uuid(self._disks.to_bytes(16, "big")))
        node.wipe(key, VoterSet.unknown())
        simulation.invariants.on_new_disk(node)
        return True
