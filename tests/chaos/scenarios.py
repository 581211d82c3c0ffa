"""What is done to a quorum under load, and what must hold while it is done.

May touch:  the cluster, its network, the load.   Must not touch: how histories are judged.
Invariants: each scenario leaves everything healed and every node running; only laws without a clock's precision are laws
            here (elections a minute, a leader within a bound); all other times are figures.
Read next:  run.py, which surrounds a scenario with load and judgement; the table of SCENARIOS below.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tests.chaos.network import CLIENTS
from tests.chaos.report import percentile
from tests.chaos.stage import LEADER_WITHIN_S, SETTLED_WITHIN_S, Bounds, Stage
from tests.chaos.voters import grow_and_shrink, lose_disk

ELECTIONS_PER_MINUTE_MAX = 2
PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 60.0
DEPOSED_S = 1.2
"""How long a successor writes before the deposed leader goes on; calls that wait for that one must not time out."""


async def kill_leader(stage: Stage) -> None:
    """SIGKILL the active controller, again and again."""
    index = 0
    while stage.may_go_on(index):
        await stage.settle()
        victim = await stage.leader()
        await _kill_and_measure(stage, [victim])
        index += 1


async def kill_quorum(stage: Stage) -> None:
    """SIGKILL every controller at once, and start them again."""
    index = 0
    while stage.may_go_on(index):
        await stage.settle()
        await _kill_and_measure(stage, list(stage.cluster.voter_ids))
        index += 1


async def _kill_and_measure(stage: Stage, victims: list[int]) -> None:
    figures, watch = stage.figures, stage.watch
    killed = stage.cluster.kill(victims)
    figures.faults += 1
    is_whole_quorum = len(victims) == len(stage.cluster.voter_ids)
    if is_whole_quorum:
        for node_id in victims:
            stage.cluster.start(node_id)
    reign = await watch.until_new_leader(killed, timeout_s=LEADER_WITHIN_S)
    figures.new_leader_s.append(reign.since - killed)
    figures.first_write_s.append(await stage.await_first_write(killed))
    if not is_whole_quorum:
        for node_id in victims:
            stage.cluster.start(node_id)
    await watch.until(watch.is_settled, timeout_s=SETTLED_WITHIN_S, what="the killed to be back")
    figures.elections += len(watch.elections_since(killed))


async def pause_leader(stage: Stage) -> None:
    """SIGSTOP the active controller for 1 to 60 s (short ones likelier), then SIGCONT: it wakes up deposed, with its
    sockets full of requests."""
    figures, watch = stage.figures, stage.watch
    index = 0
    lengths = []
    while stage.may_go_on(index):
        await stage.settle()
        longest = min(PAUSE_S_MAX, stage.bounds.hold_s)
        length = PAUSE_S_MIN * (longest / PAUSE_S_MIN) ** stage.random.random()
        victim = await stage.leader()
        paused = stage.cluster.pause(victim)
        try:
            await asyncio.sleep(length)
        finally:
            stage.cluster.resume(victim)
        figures.faults += 1
        lengths.append(round(length, 1))
        figures.first_write_s.append(await stage.await_first_write(paused))
        await watch.until(watch.is_settled, timeout_s=SETTLED_WITHIN_S, what="the paused to be back")
        elections = watch.elections_since(paused)
        figures.elections += len(elections)
        if elections and elections[0].leader != victim:
            figures.new_leader_s.append(elections[0].since - paused)
        _law_of_elections(stage, len(elections), max(60.0, length), f"pause of {length:.0f} s")
        index += 1
    figures.notes["pauses s"] = lengths


async def cut_leader(stage: Stage) -> None:
    """Cut the leader off one way, in turn: nothing that it sends reaches the other controllers; nothing that they send
    reaches it; nothing that it sends reaches anybody. Clients still reach it in all three."""
    figures, watch = stage.figures, stage.watch
    index = 0
    per_cut = []
    while stage.may_go_on(index):
        await stage.settle()
        victim = await stage.leader()
        others = [node.id for node in stage.cluster.controllers if node.id != victim]
        brokers = [node.id for node in stage.cluster.brokers]
        network = stage.cluster.network
        kind = ("to controllers", "from controllers", "to everybody")[index % 3]
        cut = time.monotonic()
        if kind == "from controllers":
            for other in others:
                network.cut(other, victim)
        else:
            network.cut_outbound(victim, [*others, *([*brokers, CLIENTS] if kind == "to everybody" else [])])
        try:
            await asyncio.sleep(stage.bounds.hold_s)
            await watch.until_new_leader(
                cut, timeout_s=LEADER_WITHIN_S
            )  # a short cut may end before a slow machine has one
            during = watch.elections_since(cut)
        finally:
            network.heal()
        figures.faults += 1
        figures.new_leader_s.append(during[0].since - cut)
        figures.first_write_s.append(await stage.await_first_write(cut))
        healed = time.monotonic()
        await watch.until(watch.is_settled, timeout_s=SETTLED_WITHIN_S, what="the cut-off to be back")
        figures.elections += len(watch.elections_since(cut))
        per_cut.append(f"{kind}: {len(during)} during, {len(watch.elections_since(healed))} after")
        _law_of_elections(stage, len(watch.elections_since(cut)), max(60.0, healed - cut), f"cut {kind}")
        index += 1
    figures.notes["elections"] = per_cut


async def ask_deposed(stage: Stage) -> None:
    """In turn, stop an idle leader and cut its words to the other controllers. Loyal clients go on asking it whether topics
    exist, while the others change them through its successor; then it goes on. Whatever it answers must be true by then."""
    figures, watch, load = stage.figures, stage.watch, stage.load
    index = 0
    overlaps = []
    while stage.may_go_on(index):
        await stage.settle()
        await asyncio.sleep(1.5)  # some topics come to exist
        victim = await stage.leader()
        load.part(victim)
        await load.until_quiet()
        await asyncio.sleep(0.2)
        is_pause = index % 2 == 0
        if is_pause:
            stage.cluster.pause(victim)
        else:
            stage.cluster.network.cut_outbound(victim, [n.id for n in stage.cluster.controllers if n.id != victim])
        begun = time.monotonic()
        figures.faults += 1
        try:
            reign = await watch.until_new_leader(begun, timeout_s=LEADER_WITHIN_S)
            figures.new_leader_s.append(reign.since - begun)
            load.is_writing = True
            await asyncio.sleep(DEPOSED_S)
        finally:
            if is_pause:
                stage.cluster.resume(victim)
            overlaps.append(round(time.monotonic() - reign.since, 2))
            await asyncio.sleep(0.5)
            stage.cluster.network.heal()
            load.join()
        figures.first_write_s.append(await stage.await_first_write(begun))
        await watch.until(watch.is_settled, timeout_s=SETTLED_WITHIN_S, what="the deposed to be back")
        figures.elections += len(watch.elections_since(begun))
        index += 1
    figures.notes["deposed for s"] = overlaps


def _law_of_elections(stage: Stage, elections: int, window_s: float, what: str) -> None:
    allowed = ELECTIONS_PER_MINUTE_MAX * window_s / 60
    if elections > allowed:
        stage.figures.broken.append(f"{elections} elections in {window_s:.0f} s after a {what}")


async def restart_one_by_one(stage: Stage, *, is_leader_only: bool = False) -> None:
    """SIGTERM each controller in turn, leader last, and start it again once it has ended: leadership is handed over."""
    figures, watch = stage.figures, stage.watch
    index = 0
    gaps: list[float] = []
    handed: list[float] = []
    while stage.may_go_on(index):
        await stage.settle()
        leader = await stage.leader()
        order = [node_id for node_id in stage.cluster.voter_ids if node_id != leader] + [leader]
        for node_id in order[-1:] if is_leader_only else order:
            await watch.until(watch.is_settled, timeout_s=SETTLED_WITHIN_S, what="a settled quorum")
            await asyncio.sleep(1.0)
            was_leader = await stage.leader() == node_id
            reported = stage.cluster.begin_stop(node_id)
            await stage.cluster.finish_stop(node_id)
            if was_leader:
                reign = await watch.until_new_leader(reported, timeout_s=LEADER_WITHIN_S)
                handed.append(reign.since - reported)
            write = await stage.await_first_write(reported)
            stage.cluster.start(node_id)
            await watch.until(watch.is_settled, timeout_s=SETTLED_WITHIN_S, what="the restarted to be back")
            gap = stage.load.longest_gap(reported, time.monotonic())
            gaps.append(gap)
            if was_leader:
                figures.first_write_s.append(write)
            figures.elections += len(watch.elections_since(reported))
            figures.faults += 1
        index += 1
    figures.new_leader_s += handed
    figures.notes["longest gap without an acknowledged write"] = (
        f"p50 {percentile(gaps, 50):.2f} s, p99 {percentile(gaps, 99):.2f} s" if gaps else "-"
    )


async def sample(stage: Stage) -> None:
    """One fault of every kind, on one cluster: what the test suite has time for."""
    once = stage._replace(bounds=Bounds(times=1, hold_s=5.0, budget_s=stage.bounds.budget_s))
    for scenario in (kill_leader, pause_leader, cut_leader, kill_quorum):
        await scenario(once)
    await restart_one_by_one(once, is_leader_only=True)


class Scenario(NamedTuple):
    """One line of the table."""

    run: Callable[[Stage], Awaitable[None]]
    bounds: Bounds
    meaning: str


SCENARIOS = {
    "kill-leader": Scenario(kill_leader, Bounds(50, 0, 900), "SIGKILL of the active controller"),
    "pause-leader": Scenario(pause_leader, Bounds(12, 60, 900), "SIGSTOP of it for 1 to 60 s"),
    "cut-leader": Scenario(cut_leader, Bounds(9, 30, 900), "one-way partition of it, in three ways"),
    "ask-deposed": Scenario(ask_deposed, Bounds(20, 0, 300), "questions to a leader that another has replaced"),
    "kill-quorum": Scenario(kill_quorum, Bounds(20, 0, 600), "SIGKILL of every controller at once"),
    "rolling-restart": Scenario(restart_one_by_one, Bounds(5, 0, 300), "SIGTERM of each controller, one by one"),
    "lose-disk": Scenario(lose_disk, Bounds(6, 0, 300), "a controller's disk wiped, and rebuilt under a new identity"),
    "grow-and-shrink": Scenario(grow_and_shrink, Bounds(3, 0, 300), "3 to 5 to 3 voters, a leader killed among five"),
    "sample": Scenario(sample, Bounds(1, 0, 120), "one fault of each kind, as the test suite does (only when named)"),
}
"""In the order of the table."""
