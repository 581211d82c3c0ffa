"""One scenario from nothing to its report: a cluster, a load, the faults, then everything healed, read, stopped and judged.

May touch:  a temporary directory, the private namespaces.   Must not touch: what a scenario does, how it is judged.
Invariants: the last reads are made when every node has applied a write that was begun after everything else had ended, so
            they are strong; logs are read when every process is dead.
Read next:  report.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random

from tests.chaos.metadata_logs import compare_logs, read_changes, read_log
from tests.chaos.nodes import ChaosCluster
from tests.chaos.report import Figures, Report
from tests.chaos.scenarios import Scenario
from tests.chaos.stage import SETTLED_WITHIN_S, Bounds, Stage
from tests.chaos.watch import Watch
from tests.chaos.workload import WRITES_PER_SECOND, Workload
from tests.checker.metadata_history import check_against_log, check_local_reads, check_metadata

WARM_UP_S = 3.0
STEADY_SHARE_MIN = 0.5
"""Of the writes that are due, this share must be acknowledged before the first fault (most others are refused rightly)."""
APPLIED_WITHIN_S = 60.0
SPARE = 2
"""Controllers that a scenario may add."""


def run_scenario(
    name: str,
    scenario: Scenario,
    *,
    bounds: Bounds,
    seed: int,
    directory: Path,
    controllers: int = 3,
    brokers: int = 1,
    overrides: Mapping[str, str] | None = None,
    rate: float = WRITES_PER_SECOND,
) -> Report:
    """Run one scenario to its report. Raises only when the harness itself cannot go on."""
    return asyncio.run(
        _run(
            name,
            scenario,
            bounds=bounds,
            seed=seed,
            rate=rate,
            cluster=ChaosCluster(
                directory, controllers=controllers, brokers=brokers, spare_controllers=SPARE, overrides=overrides
            ),
        )
    )


async def _run(
    name: str, scenario: Scenario, *, bounds: Bounds, seed: int, rate: float, cluster: ChaosCluster
) -> Report:
    begun = time.monotonic()
    figures = Figures()
    with cluster:
        watch = Watch(cluster)
        load = Workload(cluster, watch, seed=seed, rate=rate)
        watch.start()
        await watch.until(watch.is_settled, timeout_s=SETTLED_WITHIN_S, what="the first leader")
        await _first_write(load, cluster)
        load.start()
        warm = time.monotonic()
        await asyncio.sleep(WARM_UP_S)
        figures.steady_writes_per_s = load.writes_between(warm, time.monotonic())
        stage = Stage(cluster, watch, load, Random(seed), bounds, figures, time.monotonic())
        try:
            await scenario.run(stage)
        except TimeoutError as late:
            figures.broken.append(str(late))
        await load.stop()
        figures.notes["probes"] = dict(load.stats.probes)
        cluster.look_for_deaths()
        await _last_reads(load, watch, cluster, figures)
        await watch.look_again()
        high_watermark = watch.high_watermark
        await watch.stop()
        await load.close()
        cluster.look_for_deaths()
        cluster.kill([node.id for node in cluster.nodes.values() if node.process is not None])
        complaints = cluster.complaints()
    logs = {
        node.id: read_log(node.metadata_directory) for node in cluster.controllers if node.metadata_directory.is_dir()
    }
    changes = read_changes(logs, high_watermark=high_watermark)
    void = None
    if figures.steady_writes_per_s < STEADY_SHARE_MIN * rate:
        void = f"only {figures.steady_writes_per_s:.0f} writes/s were acknowledged before the first fault"
    elif not figures.faults:
        void = "no fault happened"
    return Report(
        scenario=name,
        seed=seed,
        figures=figures,
        took_s=time.monotonic() - begun,
        history=check_metadata(load.operations),
        acknowledged=check_against_log(load.operations, changes),
        local_reads=check_local_reads(load.local_reads, changes),
        logs=compare_logs(logs, high_watermark=high_watermark, voters=cluster.voter_ids),
        outcomes=dict(load.stats.outcomes),
        unknown=dict(load.stats.unknown),
        deaths=cluster.deaths,
        complaints=complaints,
        void=void,
    )


async def _first_write(load: Workload, cluster: ChaosCluster) -> None:
    """Until a topic can be placed: the broker has registered, is unfenced, and every node knows the topic."""
    await _until_applied(load, cluster, await load.write_barrier())


async def _last_reads(load: Workload, watch: Watch, cluster: ChaosCluster, figures: Figures) -> None:
    try:
        await watch.until(watch.is_settled, timeout_s=SETTLED_WITHIN_S, what="a settled quorum in the end")
        await _until_applied(load, cluster, await load.write_barrier())
        for node in cluster.nodes.values():
            if node.is_running:
                await load.read_everything(node)
    except TimeoutError as late:
        figures.broken.append(str(late))


async def _until_applied(load: Workload, cluster: ChaosCluster, topic: str) -> None:
    deadline = time.monotonic() + APPLIED_WITHIN_S
    for node in cluster.nodes.values():
        while node.is_running and not await load.has_topic(node, topic):
            if time.monotonic() > deadline:
                raise TimeoutError(f"node {node.id} has not applied what was committed {APPLIED_WITHIN_S:.0f} s ago")
            await asyncio.sleep(0.05)
