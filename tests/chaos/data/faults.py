"""What breaks: each fault begins, lasts, and is undone by the function that its begin returned.

May touch:  the cluster, its network, its clocks and disks.   Must not touch: clients, verdicts.
Invariants: who is hit is the seed's choice among those that run; undoing leaves every node running and every way open.
Read next:  run.py, which begins and undoes them; the table of FAULTS below.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.chaos.clock_node import shift_seen
from tests.chaos.data import operating
from tests.chaos.data.plan import COPIES, CROWD, CROWD_MEMBERS, KEPT, LOOSE, SHARE_GROUP
from tests.chaos.data.replicas import find_rot, rot
from tests.chaos.data.stage import CLIENT_HOSTS, ENDED_WITHIN_S, LATE_HOST, Stage, proxy_port
from tests.chaos.network import address_of
from tests.chaos.nodes import KAFKA_PORT, ChaosNode
from tests.checker.data_history import CLIENTS_CUT
from tests.cluster.exactly_once import GROUP_KEY, TRANSACTION_KEY, coordinator_of
from tests.power.journal import JOURNAL_FILE
from tests.power.recording_disk import FlushFault, write_faults
from tests.power.rollback import roll_back

DISK_BYTES = 64 * 1024 * 1024
"""Of the sized tmpfs that a node's disk is, where it is to be filled."""
SLOW_FLUSH_MS = 300
FLIPS = 3
COPIERS = sum(copy.copiers for copy in COPIES)
KILL_SHARE = 0.3
"""Of the times when EndTxn is held back."""
REPAIRED_WITHIN_S = 90.0
CLOCK_JUMP_S = 3600
CLOCK_SEEN_WITHIN_S = 15.0
"""A node that just starts reads its shift then."""
SHARE_KEY = 2
"""FindCoordinator's kind of a share coordinator."""
FRAMES_MIN = 100
"""A relay that passed fewer was beside the way."""

Undo = Callable[[], None]


class Fault(NamedTuple):
    """One line of the table."""

    begin: Callable[[Stage], Undo]
    hold_s: tuple[float, float]
    """Shortest and longest time that it lasts."""
    meaning: str
    is_combined: bool = True
    """Whether its cluster is three combined nodes; else three controllers and three brokers."""
    prepare: Callable[[Sequence[ChaosNode]], None] | None = None
    """Before any node starts."""
    needs_sync: bool = False
    """Whether all replicas must be in sync before the next one begins: it takes away what a replica had."""
    permits_errors: bool = False
    """Whether nodes may write errors into their logs, for it is their disks that fail."""
    needs: str = ""
    """A path that must be there."""
    clients: tuple[str, ...] = ()
    """Modules of clients that run beside the others."""

    @property
    def transacts(self) -> bool:
        """Whether some of them write in transactions."""
        return not {"copiers", "late"}.isdisjoint(self.clients)


# -- processes ---------------------------------------------------------------------------------------------------------


def _kill(stage: Stage, nodes: list[ChaosNode]) -> Undo:
    ids = [node.id for node in nodes]
    stage.cluster.kill(ids)
    stage.note(f"SIGKILL {ids}")

    def undo() -> None:
        for node_id in ids:
            stage.cluster.start(node_id)
        stage.note(f"started {ids}")

    return undo


def kill(stage: Stage) -> Undo:
    """SIGKILL of one node."""
    return _kill(stage, [stage.pick(stage.running)])


def kill_all(stage: Stage) -> Undo:
    """SIGKILL of every node at once."""
    return _kill(stage, list(stage.cluster.nodes.values()))


def pause(stage: Stage) -> Undo:
    """SIGSTOP of one node, then SIGCONT."""
    node = stage.pick(stage.running)
    stage.cluster.pause(node.id)
    stage.note(f"SIGSTOP {node.id}")

    def undo() -> None:
        stage.cluster.resume(node.id)
        stage.note(f"SIGCONT {node.id}")

    return undo


def roll(stage: Stage) -> Undo:
    """SIGTERM of every node, one after the other, each started and in sync before the next."""
    for node in list(stage.cluster.nodes.values()):
        stage.note(f"SIGTERM {node.id}")
        stage.stop(node.id)
        stage.cluster.start(node.id)
        stage.wait_until_in_sync()
    return lambda: None


# -- transactions -----------------------------------------------------------------------------------------------------


def break_copy(stage: Stage) -> Undo:
    """SIGKILL of a copier, or of a broker, a copier's transaction coordinator or its group's; or a copier becomes a zombie."""
    number = stage.random.randrange(COPIERS)
    victim = stage.random.choice(("copier", "zombie", "broker", "transaction coordinator", "group coordinator"))
    if victim in ("copier", "zombie"):
        order = "kill" if victim == "copier" else "zombie"
        stage.tell("copiers", f"{order} {number}")
        stage.note(f"{order} copier {number}")
        return lambda: None
    if victim == "broker":
        return _kill(stage, [stage.pick_broker()])
    copy, place = [(copy, place) for copy in COPIES for place in range(copy.copiers)][number]
    key, kind = (f"{copy.group}-{place}", TRANSACTION_KEY) if victim.startswith("t") else (copy.group, GROUP_KEY)
    return _kill_coordinator(stage, key, kind, victim)


# -- groups ------------------------------------------------------------------------------------------------------------


def break_group(stage: Stage) -> Undo:
    """SIGKILL of a member, or of a broker or the group's coordinator; a member stops for longer than its session, or leaves."""
    return _disturb_group(stage, ("kill", "stop", "leave", "broker", "coordinator"))


def migrate_group(stage: Stage) -> Undo:
    """The same while members leave and come back with the other protocol: the group moves up and down."""
    return _disturb_group(stage, ("move", "move", "move", "kill", "stop", "broker", "coordinator"))


def _disturb_group(stage: Stage, victims: Sequence[str]) -> Undo:
    victim = stage.random.choice(victims)
    if victim == "broker":
        return _kill(stage, [stage.pick_broker()])
    if victim == "coordinator":
        return _kill_coordinator(stage, CROWD, GROUP_KEY, "coordinator")
    order = f"{victim} {stage.random.randrange(CROWD_MEMBERS)}"
    stage.tell("members", order)
    stage.note(f"member: {order}")
    return lambda: None


def break_share(stage: Stage) -> Undo:
    """A broker, the leader of what the share group reads, its share coordinator or its group coordinator is killed or stands still, or a
    broker's disk is lost."""
    victim = stage.random.choice(
        ("broker", "leader", "share coordinator", "share coordinator", "group", "pause", "disk")
    )
    stage.note(f"share: {victim}")
    if victim == "disk":
        return lose_disk(stage)
    if victim == "group":
        return _kill_coordinator(stage, SHARE_GROUP, GROUP_KEY, "coordinator")
    with stage.admin() as admin:
        (topic,) = admin.describe_topics([KEPT])
    partition = stage.random.choice(topic.partitions)
    if victim == "share coordinator":
        return _kill_coordinator(stage, f"{SHARE_GROUP}:{topic.id}:{partition.partition}", SHARE_KEY, victim)
    leaders = [node for node in stage.running if node.id == partition.leader] if victim == "leader" else []
    node = leaders[0] if leaders else stage.pick_broker()
    if victim != "pause":
        return _kill(stage, [node])
    stage.cluster.pause(node.id)
    stage.note(f"SIGSTOP {node.id}")
    return lambda: stage.cluster.resume(node.id)


def _kill_coordinator(stage: Stage, key: str, kind: int, what: str) -> Undo:
    bootstrap = ",".join(f"{node.address}:{KAFKA_PORT}" for node in stage.running if node.is_broker)
    found = asyncio.run(coordinator_of(bootstrap, key, kind))
    stage.note(f"the {what} of {key} is {found}")
    known = [node for node in stage.running if node.id == found]
    return _kill(stage, known or [stage.pick_broker()])


def hold_flag(directory: Path) -> Path:
    """The file that tells the proxies to hold EndTxn back."""
    return directory / "hold-ends"


def prepare_proxied_listeners(nodes: Sequence[ChaosNode]) -> None:
    """Brokers get a listener whose clients know them by their proxies alone."""
    for node in nodes:
        if node.is_broker:
            node.proxied_as = f"{address_of(LATE_HOST)}:{proxy_port(node.id)}"


def hold_ends(stage: Stage) -> Undo:
    """Half of all EndTxn requests come late by seconds, after their clients have asked again and begun the next transaction. At
    times a broker is killed meanwhile."""
    flag = hold_flag(stage.cluster.directory)
    flag.touch()
    stage.note("EndTxn is held back")
    undo_kill = _kill(stage, [stage.pick_broker()]) if stage.random.random() < KILL_SHARE else None

    def undo() -> None:
        if undo_kill is not None:
            undo_kill()
        flag.unlink()
        stage.note("EndTxn passes again")

    return undo


# -- network -----------------------------------------------------------------------------------------------------------


def _heal(stage: Stage) -> Undo:
    def undo() -> None:
        stage.cluster.network.heal()
        stage.note("ways open again")

    return undo


def _others(stage: Stage, node: ChaosNode) -> list[int]:
    return [other for other in stage.cluster.nodes if other != node.id]


def cut(stage: Stage) -> Undo:
    """One broker is cut off from all other nodes, both ways; clients still reach it."""
    node = stage.pick_broker()
    stage.note(f"cut {node.id} off all nodes")
    stage.cluster.network.cut_both_ways(node.id, _others(stage, node))
    return _heal(stage)


def cut_one_way(stage: Stage) -> Undo:
    """Nothing that one broker sends reaches other nodes, or nothing that they send reaches it."""
    node = stage.pick_broker()
    is_outbound = stage.random.random() < 0.5
    stage.note(f"cut {'from' if is_outbound else 'to'} {node.id}, one way")
    for other in _others(stage, node):
        stage.cluster.network.cut(*((node.id, other) if is_outbound else (other, node.id)))
    return _heal(stage)


def cut_ring(stage: Stage) -> Undo:
    """Each broker is not heard by the next one."""
    ids = [node.id for node in stage.cluster.brokers]
    if stage.random.random() < 0.5:
        ids.reverse()
    stage.note(f"each of {ids} is not heard by the next")
    for index, node_id in enumerate(ids):
        stage.cluster.network.cut(node_id, ids[(index + 1) % len(ids)])
    return _heal(stage)


def cut_controllers(stage: Stage) -> Undo:
    """One broker is cut off from every controller, or the active controller from everybody."""
    active = stage.active_controller()
    if active is not None and stage.random.random() < 0.5:
        stage.note(f"cut the active controller {active} off all nodes")
        stage.cluster.network.cut_both_ways(active, [other for other in stage.cluster.nodes if other != active])
    else:
        node = stage.pick_broker()
        controllers = [other.id for other in stage.cluster.controllers if other.id != node.id]
        stage.note(f"cut {node.id} off the controllers {controllers}")
        stage.cluster.network.cut_both_ways(node.id, controllers)
    return _heal(stage)


def cut_clients(stage: Stage) -> Undo:
    """The clients lose one broker, in both directions or one."""
    node = stage.pick_broker()
    way = stage.random.choice(("both", "to", "from"))
    stage.note(f"cut {node.id} off the clients: {way}")
    stage.phase("fault", CLIENTS_CUT)
    for host in CLIENT_HOSTS:
        if way in ("both", "to"):
            stage.cluster.network.cut(host, node.id)
        if way in ("both", "from"):
            stage.cluster.network.cut(node.id, host)
    return _heal(stage)


def _relay(stage: Stage, *, delay_s: float, jitter_s: float, loss: float) -> Undo:
    nodes = stage.running if stage.random.random() < 0.3 else [stage.pick_broker()]
    ids = [node.id for node in nodes]
    for node_id in ids:
        stage.cluster.network.delay(
            node_id, delay_s=delay_s, jitter_s=jitter_s, loss=loss, seed=stage.random.randrange(1 << 30)
        )
    stage.note(f"{ids}: {delay_s:.3f} ± {jitter_s:.3f} s, {loss:.0%} lost")

    def undo() -> None:
        counts = {node_id: stage.cluster.network.undelay(node_id) for node_id in ids}
        stage.note(f"frames passed and lost: {counts}")
        passed, lost = (sum(each) for each in zip(*counts.values(), strict=True))
        if passed < FRAMES_MIN or (loss and not lost):
            stage.ineffective.append(f"the relay passed and lost {counts}")

    return undo


def delay(stage: Stage) -> Undo:
    """Frames to and from one broker, or every node, take 20 to 150 ms each way, with half as much jitter."""
    delay_s = stage.random.uniform(0.02, 0.15)
    return _relay(stage, delay_s=delay_s, jitter_s=delay_s / 2, loss=0.0)


def loss(stage: Stage) -> Undo:
    """3 to 15 % of the frames are lost, the others take a millisecond."""
    return _relay(stage, delay_s=0.001, jitter_s=0.0, loss=stage.random.uniform(0.03, 0.15))


# -- clocks ------------------------------------------------------------------------------------------------------------


def _clock_file(node: ChaosNode) -> Path:
    return node.directory / "clock"


def prepare_clocks(nodes: Sequence[ChaosNode]) -> None:
    """Every node gets a wall clock of its own, that its file shifts."""
    for node in nodes:
        node.directory.mkdir(parents=True, exist_ok=True)
        _shift_clock(node, 0)
        node.entry_point = (sys.executable, "-m", "tests.chaos.clock_node", "--shift", str(_clock_file(node)))


def _shift_clock(node: ChaosNode, shift_s: int) -> None:
    whole = _clock_file(node).with_suffix(".new")  # a node must not read half a number
    whole.write_text(f"{shift_s:+d}\n")
    whole.replace(_clock_file(node))


def jump_clocks(stage: Stage) -> Undo:
    """The wall clocks of one to all nodes jump up to an hour, either way, and stay there; undone, they jump back."""
    nodes = stage.random.sample(list(stage.cluster.nodes.values()), stage.random.randint(1, len(stage.cluster.nodes)))
    for node in nodes:
        shift_s = stage.random.choice((-1, 1)) * int(CLOCK_JUMP_S ** stage.random.random())
        _shift_clock(node, shift_s)
        stage.note(f"clock of {node.id} {shift_s:+d} s")
        if node.is_running:
            stage.wait_until(
                lambda node=node, shift_s=shift_s: shift_seen(_clock_file(node)) == shift_s,  # type: ignore[misc]
                timeout_s=CLOCK_SEEN_WITHIN_S,
                what=f"the clock of {node.id} jumps",
            )

    def undo() -> None:
        for node in nodes:
            _shift_clock(node, 0)
        stage.note("clocks right again")

    return undo


# -- disks -------------------------------------------------------------------------------------------------------------


def prepare_sized_disks(nodes: Sequence[ChaosNode]) -> None:
    """Every node's data lies on a tmpfs of DISK_BYTES."""
    for node in nodes:
        node.data.mkdir(parents=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(node.data)],
            check=True,
            capture_output=True,
        )


def fill_disk(stage: Stage) -> Undo:
    """One broker's disk is full; then there is room again."""
    node = stage.pick_broker()
    filler = node.data / "filler"
    with filler.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(64 * 1024))
        except OSError:  # full
            stage.note(f"disk of {node.id} is full: {filler.stat().st_size:,} bytes of filler")

    def undo() -> None:
        filler.unlink()
        stage.cluster.look_for_deaths()  # it should have stayed
        has_ended = stage.start_if_ended(node.id)
        stage.note(f"room on {node.id} again{', which had ended' if has_ended else ''}")

    return undo


def _faults_file(node: ChaosNode) -> Path:
    return node.directory / "faults.json"


def _journal(node: ChaosNode) -> Path:
    return node.directory / "power"


def prepare_recording_disks(nodes: Sequence[ChaosNode]) -> None:
    """Every node remembers what it has not flushed, and asks its file before it flushes."""
    for node in nodes:
        words = ("--journal", str(_journal(node)), "--faults", str(_faults_file(node)))
        node.entry_point = (sys.executable, "-m", "tests.power.node", *words)


def slow_flushes(stage: Stage) -> Undo:
    """Every flush of one broker, or of all nodes, takes SLOW_FLUSH_MS longer."""
    nodes = stage.running if stage.random.random() < 0.3 else [stage.pick_broker()]
    for node in nodes:
        write_faults(_faults_file(node), [FlushFault(slow_ms=SLOW_FLUSH_MS)])
    before = {node.id: _flushes_of(node) for node in nodes}
    stage.note(f"slow flushes on {[node.id for node in nodes]}")

    def undo() -> None:
        for node in nodes:
            write_faults(_faults_file(node), [])
            if _flushes_of(node) == before[node.id]:
                stage.ineffective.append(f"node {node.id} flushed nothing while its flushes were slow")
        stage.note("flushes as usual")

    return undo


def _flushes_of(node: ChaosNode) -> int:
    """Bytes of its disk's journal: grows with every flush."""
    return (_journal(node) / JOURNAL_FILE).stat().st_size


def fail_flushes(stage: Stage) -> Undo:
    """Every flush of one broker fails with an input/output error. Its only disk is gone: the node must end."""
    node = stage.pick_broker()
    node.is_expected_to_run = False
    write_faults(_faults_file(node), [FlushFault(is_failing=True)])
    stage.note(f"flushes of {node.id} fail")

    def undo() -> None:
        process = node.process
        assert process is not None
        try:
            stage.wait_until(
                lambda: process.poll() is not None,
                timeout_s=ENDED_WITHIN_S,
                what=f"the end of node {node.id}, whose only disk fails",
            )
        except TimeoutError as late:
            stage.broken.append(str(late))
            stage.cluster.kill([node.id])
        write_faults(_faults_file(node), [])
        stage.start_if_ended(node.id)
        stage.note(f"{node.id} started with a good disk")

    return undo


def _cut_power(stage: Stage, nodes: list[ChaosNode]) -> Undo:
    undo = _kill(stage, nodes)
    torn = {node.id: str(roll_back(_journal(node), stage.random)) for node in nodes}
    stage.note(f"power cut, and taken away: {torn}")
    return undo


def cut_power(stage: Stage) -> Undo:
    """The power of every node is cut at once: what was not flushed is gone."""
    return _cut_power(stage, list(stage.cluster.nodes.values()))


def cut_power_and_ways(stage: Stage) -> Undo:
    """One broker is cut off from the others, and another one's power is cut."""
    undo_cut = cut(stage)
    time.sleep(stage.random.uniform(0.0, 3.0))
    undo_power = _cut_power(stage, [stage.pick_broker()])

    def undo() -> None:
        undo_power()
        undo_cut()

    return undo


def flip_bits(stage: Stage) -> Undo:
    """One broker is stopped in order, bits flip in its sealed segments, and it starts again: it must find that by itself, and
    get from the others what it lost."""
    node = stage.pick_broker()
    stage.stop(node.id)
    where = rot(node.data, (KEPT, LOOSE), stage.random, flips=FLIPS)
    stage.note(f"rot on {node.id}: {where}")
    if not where:
        stage.ineffective.append(f"node {node.id} had no sealed segment")
    stage.cluster.start(node.id)

    def undo() -> None:
        begun = time.monotonic()
        while left := find_rot(node.data, (KEPT, LOOSE), node.id):
            if time.monotonic() - begun > REPAIRED_WITHIN_S:
                raise TimeoutError(f"not repaired on {node.id} within {REPAIRED_WITHIN_S:.0f} s: {left}")
            time.sleep(2.0)
        stage.note(f"{node.id} repaired within {time.monotonic() - begun:.0f} s")

    return undo


def lose_disk(stage: Stage) -> Undo:
    """SIGKILL of one broker, whose disk is empty when it starts again."""
    node = stage.pick_broker()
    stage.cluster.kill([node.id])
    stage.cluster.wipe(node.id)
    stage.note(f"disk of {node.id} lost")

    def undo() -> None:
        stage.cluster.start(node.id)
        stage.note(f"{node.id} started with an empty disk")

    return undo


# -- two at once -------------------------------------------------------------------------------------------------------

PAIRS = (
    ("kill", "cut"),
    ("kill", "pause"),
    ("pause", "cut-one-way"),
    ("kill", "delay"),
    ("pause", "loss"),
    ("cut-clients", "kill"),
    ("cut-ring", "kill"),
    ("cut", "cut-clients"),
)


def pair(stage: Stage) -> Undo:
    """Two faults that overlap, on the same node or on two."""
    first, second = stage.random.choice(PAIRS)
    stage.note(f"{first} and {second}")
    undo_first = FAULTS[first].begin(stage)
    time.sleep(stage.random.uniform(0.0, 2.0))
    undo_second = FAULTS[second].begin(stage)

    def undo() -> None:
        undone = [undo_first, undo_second]
        stage.random.shuffle(undone)
        undone[0]()
        time.sleep(stage.random.uniform(0.0, 2.0))
        undone[1]()

    return undo


def pair_with_slow_flushes(stage: Stage) -> Undo:
    """Slow flushes, and on top of them a node that is killed or cut off."""
    undo_slow = slow_flushes(stage)
    time.sleep(stage.random.uniform(0.0, 2.0))
    undo_other = stage.random.choice((kill, cut, cut_one_way, pause))(stage)

    def undo() -> None:
        undo_other()
        undo_slow()

    return undo


def pair_with_clocks(stage: Stage) -> Undo:
    """Clocks that jump, and a node that is killed or paused meanwhile."""
    undo_clocks = jump_clocks(stage)
    undo_other = stage.random.choice((kill, pause, cut))(stage)

    def undo() -> None:
        undo_other()
        undo_clocks()

    return undo


def kill_broker(stage: Stage) -> Undo:
    """SIGKILL of one broker."""
    return _kill(stage, [stage.pick_broker()])


def change_settings(stage: Stage) -> Undo:
    """Settings of topics change under a fault."""
    return operating.change_settings(stage, (kill_broker, pause))


def operate(stage: Stage) -> Undo:
    """Operators' verbs under a fault."""
    return operating.operate(stage, (kill_broker, pause), jump_clocks=jump_clocks)


def sample(stage: Stage) -> Undo:
    """One node and one copier are killed, another copier becomes a zombie, a node is cut off one way; EndTxn comes late."""
    hold_flag(stage.cluster.directory).touch()
    stage.tell("copiers", "kill 0")
    undo_kill = kill(stage)
    time.sleep(1.0)
    undo_kill()
    stage.tell("copiers", "zombie 1")
    stage.wait_until_in_sync()
    return cut_one_way(stage)


FAULTS = {
    "kill": Fault(kill, (0.5, 8), "SIGKILL of a node"),
    "kill-split": Fault(kill, (0.5, 8), "the same of three controllers and three brokers", is_combined=False),
    "kill-all": Fault(kill_all, (0, 2), "SIGKILL of every node at once"),
    "pause": Fault(pause, (2, 12), "SIGSTOP of a node"),
    "roll": Fault(roll, (0, 0), "SIGTERM of each node, one by one"),
    "roll-split": Fault(roll, (0, 0), "the same of three controllers and three brokers", is_combined=False),
    "cut": Fault(cut, (4, 14), "a node cut off from the others, both ways"),
    "cut-one-way": Fault(cut_one_way, (4, 14), "a node cut off one way"),
    "cut-ring": Fault(cut_ring, (4, 14), "a ring of one-way cuts"),
    "cut-controllers": Fault(cut_controllers, (4, 14), "brokers and controllers cut apart", is_combined=False),
    "cut-clients": Fault(cut_clients, (4, 14), "the clients cut off from a broker"),
    "delay": Fault(delay, (5, 12), "slow ways with jitter", needs="/dev/net/tun"),
    "loss": Fault(loss, (5, 12), "lossy ways", needs="/dev/net/tun"),
    "clock": Fault(jump_clocks, (2, 8), "wall clocks jump", prepare=prepare_clocks),
    "disk-full": Fault(
        fill_disk, (6, 12), "a full disk", prepare=prepare_sized_disks, permits_errors=True, needs_sync=True
    ),
    "flush-slow": Fault(slow_flushes, (4, 10), "flushes that take long", prepare=prepare_recording_disks),
    "flush-fail": Fault(
        fail_flushes, (2, 6), "flushes that fail", prepare=prepare_recording_disks, permits_errors=True, needs_sync=True
    ),
    "power": Fault(cut_power, (0, 2), "power cut of every node at once", prepare=prepare_recording_disks),
    "power-cut": Fault(
        cut_power_and_ways, (3, 8), "one node's power cut, another one cut off", prepare=prepare_recording_disks
    ),
    "rot": Fault(
        flip_bits,
        (2, 5),
        "bits flipped on a stopped node's disk",
        is_combined=False,
        permits_errors=True,
        needs_sync=True,
    ),
    "lost-disk": Fault(lose_disk, (2, 8), "a broker's disk lost", is_combined=False, needs_sync=True),
    "pair": Fault(pair, (3, 10), "two of these at once", needs="/dev/net/tun"),
    "pair-split": Fault(
        pair, (3, 10), "the same of three controllers and three brokers", is_combined=False, needs="/dev/net/tun"
    ),
    "pair-flush": Fault(
        pair_with_slow_flushes, (3, 10), "slow flushes and another fault", prepare=prepare_recording_disks
    ),
    "pair-clock": Fault(pair_with_clocks, (3, 10), "jumping clocks and another fault", prepare=prepare_clocks),
    "copy": Fault(
        break_copy,
        (0.5, 4),
        "copiers, brokers and coordinators killed under transactional copies",
        clients=("copiers",),
    ),
    "late-end": Fault(
        hold_ends,
        (4, 8),
        "EndTxn held back past the next transaction",
        prepare=prepare_proxied_listeners,
        clients=("late",),
    ),
    "groups": Fault(
        break_group,
        (0.5, 4),
        "members of the consumer protocol, brokers and their coordinator killed, members stopped beyond their session",
        clients=("members",),
    ),
    "migrate": Fault(
        migrate_group,
        (0.5, 4),
        "the same while members change between the classic and the consumer protocol",
        clients=("members",),
    ),
    "share": Fault(
        break_share,
        (0.5, 6),
        "leaders, share coordinators and disks lost under a share group with a dead letter topic",
        is_combined=False,
        needs_sync=True,
        clients=("sharers",),
    ),
    "settings": Fault(
        change_settings,
        (1, 6),
        "settings that change under a fault: minimum, segments, compression, retention, flushes, cleanup",
        is_combined=False,
        needs_sync=True,
    ),
    "moves": Fault(
        operating.move_leaders, (0.5, 2), "all leaders move several times a second", is_combined=False, needs_sync=True
    ),
    "minimum-rises": Fault(
        operating.raise_the_minimum,
        (1, 3),
        "min.insync.replicas rises while the leader stands still and its followers die",
        is_combined=False,
        needs_sync=True,
    ),
    "restored": Fault(
        operating.restore,
        (1, 3),
        "an old copy of a broker's directory is restored before a cold start",
        is_combined=False,
        needs_sync=True,
    ),
    "verbs": Fault(
        operate,
        (1, 6),
        "operators' verbs under a fault: grow, make again, reassign, elect, drain, voters, directories restored or lost, clocks",
        is_combined=False,
        prepare=prepare_clocks,
        needs_sync=True,
    ),
    "sample": Fault(
        sample,
        (4, 4),
        "a kill, then a one-way cut, under transactions too, as the test suite does (only when named)",
        prepare=prepare_proxied_listeners,
        clients=("copiers", "late"),
    ),
}
"""In the order of the table. Retention and DeleteRecords go on in all of them."""
