"""What breaks, and when: crashes, clean stops, disks that are lost, break or fill up, cut and clogged links, stalled
disks, a machine that stalls, and crashes at telling moments.

May touch:  the nodes' power, the network, the disks.   Must not touch: the state of a node in any other way.
Invariants: a node comes back without its logs only while two others are up, the network is whole and nothing else breaks
            until the controllers know of its new life: nothing less can be survived with three replicas and min ISR 2.
            One directory is broken at a time; its broker runs on, and is stopped to mend it.
Read next:  swarm.py for how often; cluster.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Awaitable, Collection
from random import Random

from barnabas_quorum.controller.reassignment import original_replicas
from barnabas_quorum.controller.requests import AlterPartition
from barnabas_quorum.image.directories import DOUBTED_DIRECTORY, directory_of, is_reserved
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_simulation.hosts import HostLosses
from barnabas_simulation.node_parts import NodeParts
from barnabas_simulation.rot import Rot
from barnabas_simulation.run import Run
from barnabas_simulation.small_files import KINDS_OF, SmallFiles
from barnabas_simulation.swarm import Slant, Swarm
from barnabas_wire.kafka.ids import BrokerId, TopicPartition, Uuid

ALL_NODES_SHARE = 0.3
"""The share of crashes after an acknowledgement that stop every node."""
HELD_BACK_AFTER_WIPE = 0.7
REPLACED_SHARE = 0.4
"""The share of mended directories that are empty then, where the others can bear it."""
CLEAN_MENDING_SHARE = 0.4
"""The share of brokers stopped to mend a directory that are stopped cleanly."""
HAUNT_STALL_S = 0.5
"""Most time in which a follower is to hold more than its stalled leader has flushed, and for which it is stalled itself."""
HAUNT_STEP_S = 0.005
ROOM_AGAIN_SHARE = 0.7
"""The share of full directories that have room again while their broker runs, without a stop."""
LATE_S = 3.0
LATE_STEP_S = 0.01
SHORT_S = 0.01
"""The least time for which a node is down."""
ROLLED_S = 0.1
"""Most time between a new segment and a crash for it."""
STALLED_SHARE = 0.15
"""The share of runs in which the whole machine stalls now and then."""
STALL_EVERY_S = 2.0
STALL_S_MAX = 5.0
LAG_METADATA_S = 6.0
"""Most time for which metadata lags on one node."""
CLOCK_EVERY_S = 1.0
CLOCK_S = 2.0
"""The average time for which one node's clock is wrong."""
CLOCK_AHEAD_MS = 20 * 86_400_000
STALL_SHARE = 0.3
"""The share of followers held back that have a slow disk instead of a bad way to their leader."""


class Faults:
    """The trouble of one run. `calm` ends it for good."""

    def __init__(self, cluster: Run, swarm: Swarm) -> None:
        self.is_calm = True
        """Until `start`, and again after `calm`."""
        self.wiped: NodeParts | None = None
        """Without its logs, and somebody may not know it yet: then the laws do not ask what it should hold."""
        self._cluster = cluster
        self._swarm = swarm
        self._trouble: list[asyncio.Task[None]] = []
        self._haunted: tuple[NodeParts, Uuid, int] | None = None
        """A follower that lost its disk, and the partition of whose leader will hear of its former life once more."""
        self._in_repair: tuple[NodeParts, str] | None = None
        """A node that is stopped, and the directory of it that works again when it starts."""
        self._rot = Rot(cluster, self)
        self._small_files = SmallFiles(Random(f"small files of {cluster.seed}"), cluster.slant)
        self._hosts = HostLosses(cluster, self)
        self._struck: NodeParts | None = None
        """The wiped one, if its small files were damaged: until the controllers know what it lost."""
        self._works_again = asyncio.Event()
        """Set when a directory does without having been mended."""

    def start(self) -> None:
        """Let it begin."""
        self.is_calm = False
        swarm = self._swarm
        self._cluster.network.faults = swarm.links
        self._trouble.append(asyncio.ensure_future(self._crash_now_and_then()))
        if swarm.partition_every_s:
            self._trouble.append(asyncio.ensure_future(self._isolate_now_and_then()))
        if swarm.lag_every_s:
            self._trouble.append(asyncio.ensure_future(self._hold_back_now_and_then()))
        if swarm.stop_every_s:
            self._trouble.append(asyncio.ensure_future(self._stop_now_and_then()))
        if swarm.break_every_s:
            self._trouble.append(asyncio.ensure_future(self._break_now_and_then()))
        if swarm.starve_every_s:
            self._trouble.append(asyncio.ensure_future(self._starve_now_and_then()))
        if swarm.hosts:
            self._trouble.append(asyncio.ensure_future(self._hosts.strike_now_and_then()))
        if swarm.haunt_every_s:
            self._trouble.append(asyncio.ensure_future(self._haunt_now_and_then()))
        self._cluster.network.late_answer_s = swarm.late_answer_s
        if swarm.metadata_lag_s:
            self._trouble.append(asyncio.ensure_future(self._lag_metadata_now_and_then()))
        # drawn apart, so that the seeds without it are the runs that they were before
        stalls = Random(f"stalls of {self._cluster.seed}")
        if not swarm.hosts and stalls.random() < STALLED_SHARE:
            self._trouble.append(asyncio.ensure_future(self._stall_now_and_then(stalls)))
        self._trouble += [asyncio.ensure_future(part) for part in self._rot.parts()]
        if swarm.logs.topic_retention_ms is not None and not swarm.is_transacting:
            clocks = Random(f"clocks of {self._cluster.seed}")
            self._trouble.append(asyncio.ensure_future(self._mislead_now_and_then(clocks)))

    @property
    def is_judging(self) -> bool:
        """Whether trouble must not end yet."""
        return self._hosts.is_judging

    async def _mislead_now_and_then(self, random: Random) -> None:
        """One clock of three is days ahead for a moment, whether its node leads, follows or votes. Not behind: then its broker rightly
        refuses records, which the clients' laws take for a fault (message.timestamp.after.max.ms)."""
        while True:
            await asyncio.sleep(random.expovariate(1 / CLOCK_EVERY_S))
            node = random.choice(self._cluster.nodes)
            length_s = random.expovariate(1 / CLOCK_S)
            if self._cluster.strikes("clock wrong", node.id):
                self._cluster.note("clock ahead", node.id, node.life)
                node.clock_ahead_ms = CLOCK_AHEAD_MS
                await asyncio.sleep(length_s)
                node.clock_ahead_ms = 0

    async def _stall_now_and_then(self, random: Random) -> None:
        """The machine stalls, every node of it."""
        while True:
            await asyncio.sleep(random.expovariate(1 / STALL_EVERY_S))
            stall_s = random.random() * STALL_S_MAX
            if self._cluster.strikes("stall", 0):
                self._cluster.figures.stalls += 1
                self._cluster.note("stall", 0, 0)
                self._cluster.loop.stand_still(stall_s)

    def calm(self) -> None:
        """No more of it, and everything that was broken is whole, but for directories: `mend_all`."""
        self.is_calm = True
        for task in self._trouble:
            task.cancel()
        self._cluster.network.heal()
        for node in self._cluster.nodes:
            node.clock_ahead_ms = 0
            node.disk_faults.slow = 0.0
            node.disk_faults.stalled_until_s = 0.0
            node.disk_faults.are_logs_stalled = False
            node.disk.is_short_of_descriptors = False

    # -- power -----------------------------------------------------------------------------------------------------

    def crash(self, node: NodeParts) -> None:
        """Power off a node that is up, and on again later."""
        cluster = self._cluster
        if not self.may_strike(node, "crash"):
            return
        is_wiped = bool(self._swarm.wipe) and cluster.random.random() < self._swarm.wipe and self._may_wipe(node)
        if is_wiped and cluster.slant in KINDS_OF:
            self.power_off(node)
            what = self._small_files.strike(node.disk, node.directory_ids)
            if what:
                cluster.figures.small_files_struck += 1
                cluster.note(what, node.id, node.life)
                self.wiped = self._struck = node
            return
        replaced = [path for path in node.directory_ids if is_wiped and cluster.random.random() < 0.5]
        self.power_off(node, replaced or (list(node.directory_ids) if is_wiped else []))
        if is_wiped:
            self._hold_back_wiped(node)

    def may_strike(self, node: NodeParts, kind: str) -> bool:
        """Whether this may happen to the node now, and is not left out."""
        return node.is_up and not self.is_calm and self.wiped is None and self._cluster.strikes(kind, node.id)

    def power_off(self, node: NodeParts, replaced: Collection[str] = (), *, is_short: bool = False) -> None:
        """Power off at once, and on again later, or within moments. replaced: these directories are lost."""
        self.put_out(node, replaced)
        self._start_later(node, SHORT_S if is_short else self._swarm.restart_s)

    def put_out(self, node: NodeParts, replaced: Collection[str] = ()) -> int:
        """Power off, and leave it so; the life after. replaced: these directories are lost."""
        figures = self._cluster.figures
        self._rot.forget(node)
        figures.crashes += 1
        figures.wipes += bool(replaced)
        self._cluster.note("wipe" if replaced else "crash", node.id, node.life)
        node.crash(replaced=replaced)
        self._small_files.keep(node.disk, node.directory_ids)
        if replaced:
            self.wiped = node
        return node.life

    def _start_later(self, node: NodeParts, after_s: float) -> None:
        if self._in_repair is not None and self._in_repair[0] is node:
            node.disk.broken.pop(self._in_repair[1], None)
        for path in list(node.disk.broken):
            if self._strikes(self._swarm.works_again):
                self._cluster.note(f"works again {path}", node.id, node.life)
                del node.disk.broken[path]
                self._works_again.set()
        delay_s = after_s * (0.5 + self._cluster.random.random())
        self._cluster.loop.call_later(delay_s, self.bring_back, node, node.life)

    def bring_back(self, node: NodeParts, life: int) -> None:
        """Start a node, if that is still its life."""
        if node.life == life:
            self._cluster.note("restart", node.id, life)
            node.start()

    def _may_wipe(self, node: NodeParts) -> bool:
        """Whether what it holds is safe elsewhere, and stays so until everybody knows that it lost it."""
        nodes = self._cluster.nodes
        if self._rot.is_there:
            return False
        if self._cluster.network.cut_links or not all(other.is_up and self._is_known(other) for other in nodes):
            return False
        if self._cluster.operators.is_asking or any(other.is_leaving for other in nodes):
            return False
        newest = self._cluster.invariants.newest_registrations()
        # not even if a move is turned back just then
        return all(set(each.isr) & set(original_replicas(each)) - {node.id} - self._in_doubt(each) for each in newest)

    def _is_safe_without_unreported(self, node: NodeParts) -> bool:
        """Whether each replica whose directory the node has not reported yet is safe elsewhere. When a directory fails, the
        cluster cannot know that the replica is in another, and once the broker restarts takes it for lost."""
        newest = self._cluster.invariants.newest_registrations()
        return all(
            set(each.isr) & set(original_replicas(each)) - {node.id}
            for each in newest
            if node.id in each.replicas and is_reserved(directory_of(each, node.id))
        )

    def _in_doubt(self, registered: PartitionRegistration) -> set[BrokerId]:
        """Replicas that the cluster may take for lost: their broker had not reported where they are when a directory failed."""
        return {
            node.id
            for node in self._cluster.nodes
            if node.id in registered.replicas
            and is_reserved(directory := directory_of(registered, node.id))
            and (directory == DOUBTED_DIRECTORY or errno.EIO in node.disk.broken.values())
        }

    def _is_known(self, node: NodeParts) -> bool:
        """Whether every node that is up knows the broker's present life."""
        epoch = node.lifecycle.broker_epoch
        images = [other.loader.image for other in self._cluster.nodes if other.is_up]
        known = [image.cluster.brokers.get(node.id) for image in images]
        return epoch >= 0 and all(broker is not None and broker.epoch == epoch for broker in known)

    def look(self) -> None:
        """After every turn: whether everybody knows by now of the node that lost its logs, and whether a haunted follower holds as much
        again as is committed."""
        wiped = self.wiped
        # With a directory that does not work it may still have what is missing, for all that the controllers know.
        if (
            wiped is not None
            and wiped.is_up
            and self._is_known(wiped)
            and wiped.disk.broken.keys().isdisjoint(wiped.directory_ids)
            and (wiped is not self._struck or _has_reported(wiped))
        ):
            self.wiped = self._struck = None
        if self._haunted is not None and self._cluster.slant is Slant.HAUNTED and not self.is_calm:
            follower, topic_id, number = self._haunted
            model = self._cluster.invariants.models[topic_id, number]
            name = TopicPartition(model.topic, number)
            partition = follower.replicas.partition(name) if follower.is_up else None
            if partition is not None and partition.durable_end_offset >= model.committed_end:
                follower.disk_faults.are_logs_stalled = True  # it would hold all that it held before it is let in

    def _hold_back_wiped(self, node: NodeParts) -> None:
        """It may have a bad way to a leader, so that what others still say of its past is heard before it has its logs again.
        Not to a controller: it would be fenced for that."""
        cluster = self._cluster
        others = [other for other in cluster.nodes if other is not node and not other.driver.is_active]
        if others and cluster.random.random() < HELD_BACK_AFTER_WIPE:
            link = (cluster.random.choice(others).id, node.id)
            span_s = self._swarm.restart_s * 1.5 + cluster.random.expovariate(1 / self._swarm.lag_s)
            self._trouble.append(asyncio.ensure_future(self._cut(node.id, [link], span_s)))

    def after_stop(self, node: NodeParts) -> None:
        """A node has ended by itself: it was asked to, or has no directory left that works."""
        self._cluster.note("stopped", node.id, node.life)
        if all(path in node.disk.broken for path in node.directory_ids):
            node.disk.broken.clear()
        self._rot.after_stop(node)
        self._start_later(node, self._swarm.restart_s)

    async def _stop_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._cluster.random.expovariate(1 / self._swarm.stop_every_s))
            self.stop(self._cluster.random.choice(self._cluster.nodes))

    def stop(self, node: NodeParts) -> None:
        """Ask a node for a clean stop; it starts again later."""
        if not node.is_leaving and self.may_strike(node, "stop"):
            self._cluster.figures.stops += 1
            node.disk.is_short_of_descriptors = (
                False  # its clients are gone; a stop without descriptors is none that is clean
            )
            self._cluster.note("stop", node.id, node.life)
            node.stop()

    async def _crash_now_and_then(self) -> None:
        cluster = self._cluster
        while True:
            await asyncio.sleep(cluster.random.expovariate(1 / self._swarm.crash_every_s))
            self.crash(cluster.random.choice(cluster.nodes))

    def _crash_soon(self, node: NodeParts) -> None:
        delay_s = self._swarm.moments.delay_s * self._cluster.random.random()
        self._cluster.loop.call_later(delay_s, self.crash, node)

    # -- telling moments -------------------------------------------------------------------------------------------

    def _strikes(self, probability: float) -> bool:
        return not self.is_calm and bool(probability) and self._cluster.random.random() < probability

    def after_acknowledgement(self, leader: NodeParts) -> None:
        """What was just promised must survive this."""
        if self._strikes(self._swarm.moments.acknowledged):
            everywhere = self._cluster.random.random() < ALL_NODES_SHARE
            for victim in self._cluster.nodes if everywhere else [leader]:
                self.crash(victim)

    def after_proposal(self, leader: NodeParts, request: AlterPartition) -> Awaitable[None] | None:
        """A leader asks for other ISRs. When the request arrives, who it wants in may live another life."""
        if self._haunted is not None and not self.is_calm:
            follower, topic_id, number = self._haunted
            if any(
                item.topic_id == topic_id
                and item.partition_id == number
                and any(member.broker_id == follower.id for member in item.new_isr)
                for item in request.partitions
            ):
                follower.disk_faults.are_logs_stalled = True  # so that what it holds by now is all that it holds
        if not self._strikes(self._swarm.moments.proposed):
            return None
        models = self._cluster.invariants.models
        joiners: set[BrokerId] = set()
        for item in request.partitions:
            registration = models[(item.topic_id, item.partition_id)].registration
            joiners |= {member.broker_id for member in item.new_isr} - set(registration.isr if registration else ())
        candidates = [node for node in self._cluster.nodes if node.id in joiners]
        victim = self._cluster.random.choice([leader, *candidates, *candidates])
        self._crash_soon(victim)
        return self._until_reborn(victim)

    def after_double(self, kind: str, source: NodeParts) -> Awaitable[None] | None:
        """A copy of what a follower says now is heard when it lives another life."""
        if kind != "Fetch" or not self._strikes(self._swarm.moments.doubled):
            return None
        self._crash_soon(source)
        return self._until_reborn(source)

    def is_back(self, node: NodeParts) -> bool:
        """Whether it is in service, as everybody knows."""
        images = [other.loader.image for other in self._cluster.nodes if other.is_up]
        return node.is_up and self._is_known(node) and all(image.cluster.brokers[node.id].is_active for image in images)

    async def _until_reborn(self, node: NodeParts) -> None:
        """Hold a message up until the node's next life is known and unfenced everywhere, or for LATE_S."""
        life = node.life
        loop = self._cluster.loop
        until_s = loop.time() + LATE_S
        while loop.time() < until_s and not (node.life > life and self.is_back(node)):
            await asyncio.sleep(LATE_STEP_S)
        await asyncio.sleep(LATE_STEP_S * self._cluster.random.random())

    async def _haunt_now_and_then(self) -> None:
        cluster = self._cluster
        while True:
            await asyncio.sleep(cluster.random.expovariate(1 / self._swarm.haunt_every_s))
            led = [each for each in cluster.invariants.newest_registrations() if each.has_leader and len(each.isr) > 1]
            if not led or self.wiped is not None:
                continue
            registration = cluster.random.choice(led)
            leader = cluster.network.nodes[registration.leader]
            follower = cluster.network.nodes[
                cluster.random.choice([member for member in registration.isr if member != leader.id])
            ]
            if leader.is_up and cluster.strikes("haunted", follower.id, leader.id):
                await self._haunt(leader, follower)

    async def _haunt(self, leader: NodeParts, follower: NodeParts) -> None:
        """KIP-903: what a follower asks for says how much it holds. It loses that, comes back and joins again; then a copy of
        what it asked for in its former life arrives, while only its leader's late flush keeps the high watermark
        back."""
        cluster = self._cluster
        loop = cluster.loop
        leader.disk_faults.are_logs_stalled = True
        until_s = loop.time() + HAUNT_STALL_S
        while (partition := self._held_further(follower, leader)) is None and loop.time() < until_s:
            await asyncio.sleep(HAUNT_STEP_S)
        if (
            partition is not None
            and self._may_wipe(follower)
            and self.may_strike(follower, "crash of a haunted follower")
        ):
            model = cluster.invariants.models[partition]
            arrives = loop.create_future()
            cluster.network.fetch_again(follower.id, leader.id, arrives)
            life = follower.life
            self._haunted = follower, *partition
            self.power_off(follower, list(follower.directory_ids))
            until_s = loop.time() + LATE_S + 2 * self._swarm.restart_s
            while loop.time() < until_s and not (
                follower.life > life
                and self.is_back(follower)
                and model.registration
                and follower.id in model.registration.isr
            ):
                await asyncio.sleep(HAUNT_STEP_S)
            self._haunted = None
            arrives.set_result(None)
            await asyncio.sleep(HAUNT_STEP_S)
        leader.disk_faults.are_logs_stalled = False
        await asyncio.sleep(HAUNT_STALL_S * cluster.random.random())
        follower.disk_faults.are_logs_stalled = False

    def _held_further(self, follower: NodeParts, leader: NodeParts) -> tuple[Uuid, int] | None:
        """A partition that the one leads and of which the other durably holds more, if there is one."""
        if follower.is_up and leader.is_up:
            for led in leader.replicas.partitions():
                other = follower.replicas.partition(led.topic_partition) if led.is_leader else None
                if other is not None and other.durable_end_offset > led.durable_end_offset:
                    return led.topic_id, led.topic_partition.partition
        return None

    def after_roll(self, node: NodeParts) -> None:
        """What the old segment holds must be durable before anything after it counts."""
        if self._strikes(self._swarm.moments.rolled):
            self._cluster.loop.call_later(ROLLED_S * self._cluster.random.random(), self.crash, node)

    def after_made_again(self) -> None:
        """What was written down of the former topic's logs must not be taken for the new one's."""
        if self._strikes(self._swarm.moments.made_again):
            self._crash_soon(self._cluster.random.choice(self._cluster.nodes))

    def after_registration(self, before: PartitionRegistration, after: PartitionRegistration) -> None:
        """A partition changed. Whoever joined may be elected now."""
        if not after.has_leader:
            return
        leader = self._cluster.network.nodes[after.leader]
        if after.leader_epoch > before.leader_epoch:
            if self._strikes(self._swarm.moments.elected):
                self._crash_soon(leader)
        elif set(after.isr) - set(before.isr) and self._strikes(self._swarm.moments.joined):
            self._crash_soon(leader)

    # -- network and disks -----------------------------------------------------------------------------------------

    async def _isolate_now_and_then(self) -> None:
        """One node is cut off from all others, or only hears, or is only heard."""
        cluster = self._cluster
        while True:
            await asyncio.sleep(cluster.random.expovariate(1 / self._swarm.partition_every_s))
            if self.wiped is not None:
                continue
            lonely = cluster.random.choice(cluster.nodes).id
            links = [(lonely, node.id) for node in cluster.nodes if node.id != lonely]
            if not self._swarm.is_one_way:
                links += [(target, source) for source, target in links]
            elif cluster.random.random() < 0.5:
                links = [(target, source) for source, target in links]
            span_s = cluster.random.expovariate(1 / self._swarm.partition_s)
            if cluster.strikes("isolated", lonely):
                if self._strikes(self._swarm.moments.isolated):
                    self._crash_soon(cluster.network.nodes[lonely])
                await self._cut(lonely, links, span_s)

    async def _hold_back_now_and_then(self) -> None:
        """One follower falls behind one leader and no other, so that neither is fenced for it."""
        cluster = self._cluster
        while True:
            await asyncio.sleep(cluster.random.expovariate(1 / self._swarm.lag_every_s))
            leader, follower = cluster.random.sample(cluster.nodes, 2)
            span_s = cluster.random.expovariate(1 / self._swarm.lag_s)
            is_stall = cluster.random.random() < STALL_SHARE
            if not cluster.strikes("disk stalls" if is_stall else "answers lost", follower.id, leader.id):
                continue
            if is_stall:
                cluster.note("stall", follower.id, follower.life)
                follower.disk_faults.stalled_until_s = cluster.loop.time() + span_s
                await asyncio.sleep(span_s)
            else:  # it asks, the answer is lost: the leader still hears its offset
                await self._cut(follower.id, [(leader.id, follower.id)], span_s)

    async def _lag_metadata_now_and_then(self) -> None:
        """One node after the other, none of which leads the quorum, hears late of what is committed, and of much at once."""
        cluster = self._cluster
        lags_s = cluster.network.metadata_lags_s
        while True:
            node = cluster.random.choice(cluster.nodes)
            if node.is_up and not node.driver.is_active and cluster.strikes("metadata late", node.id):
                lags_s[node.id] = cluster.random.random() * self._swarm.metadata_lag_s
                await asyncio.sleep(LAG_METADATA_S * cluster.random.random())
                lags_s.pop(node.id, None)
            await asyncio.sleep(LATE_STEP_S)

    async def _break_now_and_then(self) -> None:
        """One directory of one node fails, or takes no more bytes."""
        cluster = self._cluster
        while True:
            await asyncio.sleep(cluster.random.expovariate(1 / self._swarm.break_every_s))
            node = cluster.random.choice(cluster.nodes)
            path = cluster.random.choice(list(node.directory_ids))
            is_full = cluster.random.random() < self._swarm.full_share
            if any(other.disk.broken for other in cluster.nodes):
                continue
            if not is_full and not self._is_safe_without_unreported(node):
                continue
            if not self.may_strike(node, "directory full" if is_full else "directory broken"):
                continue
            cluster.figures.directories_full += is_full
            cluster.figures.directories_broken += not is_full
            cluster.note(f"{'full' if is_full else 'broken'} {path}", node.id, node.life)
            node.disk.broken[path] = errno.ENOSPC if is_full else errno.EIO
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(cluster.random.expovariate(1 / self._swarm.repair_s)):
                    await self._works_again.wait()
            self._works_again.clear()
            while self.wiped is not None:
                await asyncio.sleep(LATE_STEP_S)
            if is_full and cluster.random.random() < ROOM_AGAIN_SHARE:
                self._free_space(node)
            else:
                await self._mend(node, path)

    async def _starve_now_and_then(self) -> None:
        """One broker has no descriptor left: its logs open nothing, and files without a holder were closed. That breaks
        no disk."""
        cluster = self._cluster
        while True:
            await asyncio.sleep(cluster.random.expovariate(1 / self._swarm.starve_every_s))
            node = cluster.random.choice(cluster.nodes)
            if node.is_leaving or not self.may_strike(node, "no descriptors"):
                continue
            cluster.figures.descriptor_shortages += 1
            cluster.note("no descriptors", node.id, node.life)
            disk = node.disk
            disk.is_short_of_descriptors = True
            await asyncio.sleep(cluster.random.expovariate(1 / self._swarm.starve_s))
            disk.is_short_of_descriptors = False

    async def _mend(self, node: NodeParts, path: str) -> None:
        """The broker is stopped for it. What the directory held is there again, or another disk is in its place."""
        cluster = self._cluster
        while path in node.disk.broken and not node.is_up:
            await asyncio.sleep(LATE_STEP_S)
        if path in node.disk.broken:
            self._in_repair = node, path
            if cluster.random.random() < CLEAN_MENDING_SHARE:
                life = node.life
                self.stop(node)
                while node.is_leaving and node.life == life:
                    await asyncio.sleep(LATE_STEP_S)
            elif self._may_wipe(node) and cluster.random.random() < REPLACED_SHARE:
                self.power_off(node, [path])
                self._hold_back_wiped(node)
            else:
                self.crash(node)
            self._in_repair = None
        node.disk.broken.pop(path, None)

    def _free_space(self, node: NodeParts) -> None:
        """Somebody freed space: the broker has to find that out."""
        node.disk.spare.clear()
        for path in [path for path, code in node.disk.broken.items() if code == errno.ENOSPC]:
            self._cluster.note(f"room again {path}", node.id, node.life)
            del node.disk.broken[path]

    def mend_all(self) -> None:
        """Make room where a directory is full. Stop every broker that has a broken one, and give it back as it is."""
        for node in self._cluster.nodes:
            self._free_space(node)
            if node.disk.broken or (node.is_up and node.logs.health.offline_directories):
                node.crash()
                node.disk.broken.clear()
                self._start_later(node, self._swarm.restart_s)

    async def _cut(self, lonely: BrokerId, links: list[tuple[BrokerId, BrokerId]], span_s: float) -> None:
        self._cluster.figures.partitions += 1
        self._cluster.note("partition", lonely, len(links))
        network = self._cluster.network
        network.cut(links)
        await asyncio.sleep(span_s)
        network.mend(links)


def _has_reported(node: NodeParts) -> bool:
    """Whether the controllers know of everything that the node knows to have lost."""
    partitions = list(node.replicas.partitions())
    return node.is_serving and not any(each.is_lost and not each.is_known_lost for each in partitions)
