"""The end of a run of the consensus core: everything works again, and then one link or one leader is lost.

May touch:  the Simulation it belongs to.     Must not touch: asyncio, clock, files, other random generators.
Invariants: the laws of liveness (R16, R17) are bounds in virtual time, so that a run either keeps them or does not.
Read next:  raft_simulator.py, which has these phases at its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.raft_disk import LawBroken, SimulatedNode

if TYPE_CHECKING:
    from tests.simulation.raft_simulator import Simulation

CALM_FACTOR = 20
"""Within so many (election + fetch time-outs) of calm the cluster must have settled (R17)."""
QUIET_FACTOR = 2
"""So many of them without work make all replicas equal."""
TRIAL_FACTOR = 4
"""For so many of them a follower that has lost sight of the leader tries what it can."""
RESIGN_FACTOR = 1.3
"""A clock may be slow; the check-quorum time-out times this is long enough for any of them."""


class Calm:
    """One run's end."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        config = simulation.swarm.config
        self._unit_us = 1000 * (config.election_timeout_ms + config.fetch_timeout_ms)

    def settle(self) -> None:
        """R17: within a bound there must be a leader, and what it writes must commit everywhere."""
        simulation = self._simulation
        simulation.is_calm = True
        simulation.faults.heal()
        for node in simulation.nodes:
            node.full_until_us = 0
            if not node.is_alive:
                simulation.start(node)
            simulation.resume(node, node.incarnation)
        bound_us = simulation.now_us + CALM_FACTOR * self._unit_us
        target: int | None = None
        while simulation.now_us < bound_us:
            self._run_for(self._unit_us // 12, bound_us)
            leaders = [node for node in simulation.nodes if node.core.is_leader]
            if target is None:
                if leaders and max(node.core.epoch for node in simulation.nodes) == leaders[-1].core.epoch:
                    target = leaders[-1].end + 1
            elif all(node.core.high_watermark >= target for node in simulation.nodes):
                return
        raise LawBroken(
            f"R17: after {CALM_FACTOR} × (election + fetch time-out) of calm the cluster has not settled: "
            + ", ".join(
                f"{node} {node.core.role.__class__.__name__} epoch {node.core.epoch} HW {node.core.high_watermark} "
                f"end {node.end} voters {[str(key.id) + '/' + str(key.directory_id)[:3] for key in node.voters.keys]}"
                for node in simulation.nodes
            )
        )

    def try_leadership(self) -> None:
        """R16 or R17, as the seed has it: one voter loses sight of the leader, or all do."""
        simulation = self._simulation
        simulation.is_quiet = True
        self._run_for(QUIET_FACTOR * self._unit_us)
        leader = self._settled_leader()
        if leader is None:
            return
        living = [node for node in simulation.nodes if node.key in leader.voters and node is not leader]
        is_chain = simulation.random.random() < 0.5
        # The leader and all but one, or all but the leader, must be a majority of living disks.
        if len(living) < leader.voters.majority:
            return
        if is_chain:
            self._lose_sight(leader, simulation.random.choice(living))
        else:
            self._cut_off(leader)

    def _settled_leader(self) -> SimulatedNode | None:
        nodes = self._simulation.nodes
        leaders = [node for node in nodes if node.core.is_leader and node.key in node.voters]
        if len(leaders) != 1:
            return None
        leader = leaders[0]
        is_known = all(node.core.leader_id == leader.id and node.core.epoch == leader.core.epoch for node in nodes)
        are_equal = all(node.end == leader.end and node.voters == leader.voters for node in nodes)
        return leader if is_known and are_equal else None

    def _lose_sight(self, leader: SimulatedNode, voter: SimulatedNode) -> None:
        epoch = leader.core.epoch
        blocked = self._simulation.blocked
        blocked[leader.id][voter.id] = blocked[voter.id][leader.id] = True
        self._run_for(TRIAL_FACTOR * self._unit_us)
        if not leader.core.is_leader or leader.core.epoch != epoch:
            raise LawBroken(
                f"R16: {leader} led epoch {epoch} and was heard by all voters but {voter}, which deposed it: "
                f"now {leader.core.role.__class__.__name__} in epoch {leader.core.epoch}"
            )

    def _cut_off(self, leader: SimulatedNode) -> None:
        simulation = self._simulation
        epoch = leader.core.epoch
        for node in simulation.nodes:
            if node is not leader:
                simulation.blocked[leader.id][node.id] = simulation.blocked[node.id][leader.id] = True
        self._run_for(int(RESIGN_FACTOR * 1000 * simulation.swarm.config.check_quorum_timeout_ms))
        if leader.core.is_leader:
            raise LawBroken(f"R17: {leader} hears of nobody and still leads epoch {epoch}")
        bound_us = simulation.now_us + CALM_FACTOR * self._unit_us
        while not any(node.core.is_leader and node.core.epoch > epoch for node in simulation.nodes):
            if simulation.now_us >= bound_us:
                raise LawBroken(f"R17: {leader} is cut off and nobody was elected in its place")
            self._run_for(self._unit_us // 6, bound_us)

    def _run_for(self, span_us: int, bound_us: int | None = None) -> None:
        simulation = self._simulation
        until_us = simulation.now_us + span_us
        if bound_us is not None:
            until_us = min(until_us, bound_us)
        simulation.loop(1_000_000, until_us)
        simulation.now_us = until_us
