"""A run of a bundled scenario, and its journal.

May touch:  the virtual loop.         Must not touch: the real clock, real files, sockets.
Invariants: one seed and one scenario give one journal, byte for byte, in any process; a broken law ends the run and is
            in the journal's last line.
Read next:  scenarios.py (what goes wrong), script.py (who does it), watch.py (what is written down); cluster.py (the run).

Three combined nodes, one partition of three replicas, min.insync.replicas 2, one client that writes a few records a second with
acks=all and reads them. Timers are the defaults of quorum and replication; broker sessions are shorter (3 s), as in all simulations.
"""

from __future__ import annotations

from barnabas_replication.config import ReplicationConfig
from barnabas_simulation.cluster import Cluster
from barnabas_simulation.disk import DiskFaults
from barnabas_simulation.invariants import MIN_INSYNC_REPLICAS
from barnabas_simulation.network import LinkFaults
from barnabas_simulation.partition_model import LawBroken
from barnabas_simulation.scenarios import Scenario
from barnabas_simulation.script import Script
from barnabas_simulation.swarm import WHOLE_LOG_BYTES, LogShape, Swarm
from barnabas_simulation.watch import Watch
from barnabas_wire.error_groups import first_error
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.run_journal import Journal

STEPS_MAX = 1_000_000
"""Callbacks of one run: bounds it should the cluster not come back."""
REPLICATION = ReplicationConfig()
CALM = Swarm(
    links=LinkFaults(delay_s=0.001),
    disks=DiskFaults(flush_s=0.002),
    think_s=2.0,
    replica_lag_ms=REPLICATION.replica_lag_time_ms_max,
    replica_silence_ms=REPLICATION.replica_fetch_silence_ms_max,
    replica_fetch_bytes=REPLICATION.replica_fetch_bytes_max,
    logs=LogShape(
        segment_bytes=WHOLE_LOG_BYTES,
        index_interval_bytes=4096,
        retention_bytes=-1,
        topic_retention_bytes=None,
        topic_retention_ms=None,
        is_page_cache=False,
        checkpoint_s=5.0,
    ),
)
"""Nothing goes wrong but by the script."""


class ScriptedRun(Cluster):
    """One scenario under one seed."""

    partitions = 1

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        super().__init__(seed, steps=STEPS_MAX)
        self.has_rot = True  # so that the scrub runs, as it does in a real node
        self.watch = Watch(self, self.clients[0], min_insync=MIN_INSYNC_REPLICAS)

    @property
    def client_partition(self) -> TopicPartition:
        """What the client writes to."""
        return TopicPartition(self.clients[0].topic, self.clients[0].partition)

    def draw_swarm(self) -> Swarm:
        """See Cluster.draw_swarm."""
        return CALM

    def make_faults(self) -> Script:
        """See Cluster.make_faults."""
        return Script(self)

    async def _probe(self) -> None:
        """See Cluster._probe. The client has just written."""

    async def _probe_unheard(self) -> None:
        """See Cluster._probe_unheard: a scenario has its own trouble alone."""

    def _after_turn(self) -> None:
        super()._after_turn()
        self.watch.look()

    def journal(self) -> Journal:
        """Run, and return what happened. Raises nothing for a broken law: that is in the journal."""
        is_kept, verdict = True, ""
        try:
            self.run()
        except Exception as error:
            broken = first_error(error)
            is_kept, verdict = False, f"{type(broken).__name__}: {broken}"[:2000]
            if not isinstance(broken, LawBroken | TimeoutError):
                raise
        acknowledged = sum(len(each.acknowledged) for client in self.clients for each in client.producers)
        if is_kept:
            verdict = (
                f"Every law held after each of the {self.loop.turns:,} turns of the loop. All {acknowledged} acknowledged "
                "records are on all three replicas, once, in their order; every image, log and high watermark agrees."
            )
        return Journal(
            scenario=self.scenario.name,
            title=self.scenario.title,
            about=self.scenario.about,
            seed=self.seed,
            nodes=tuple(int(node.id) for node in self.nodes),
            min_insync=MIN_INSYNC_REPLICAS,
            partition=str(self.clients[0]),
            steps=tuple(self.watch.steps),
            is_kept=is_kept,
            at_ms=round(self.loop.time() * 1000),
            acknowledged=acknowledged,
            verdict=verdict,
        )
