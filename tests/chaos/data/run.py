"""One scenario from nothing to its report: a cluster, clients, faults, everything healed and read, logs compared, judged.

May touch:  a temporary directory, the private namespaces.   Must not touch: what a fault does, how a history is judged.
Invariants: the last read begins when every replica is in sync and the other clients have ended; logs are read when every
            process is dead: by SIGKILL, so that what counts is what was written while it ran, or, for every other seed, in
            order, so that checkpoints say what the nodes knew.
Read next:  faults.py, confluent.py, report.py.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from barnabas_admin.errors import AdminError
from barnabas_wire.kafka.errors import ErrorCode
from tests.chaos.data.faults import FAULTS, Fault, hold_flag
from tests.chaos.data.plan import FLOOR_OPS_PER_S, TOPICS, TRANSACTED_TOPICS, Topic
from tests.chaos.data.replicas import read_replicas
from tests.chaos.data.report import Report, measure
from tests.chaos.data.stage import (
    AIO_HOST,
    CONFLUENT_HOST,
    COPIERS_HOST,
    LATE_HOST,
    MEMBERS_HOST,
    REPLICATION_FACTOR,
    SHARERS_HOST,
    Stage,
)
from tests.chaos.nodes import KAFKA_PORT, ROOT, ChaosCluster, ChaosNode
from tests.checker.data_history import Fault as FaultEvent
from tests.checker.data_history import History, HistoryWriter, read_events
from tests.checker.data_rules import judge

READY_WITHIN_S = 60.0
WARM_UP_S = 4.0
STEADY_S = 4.0
SHORT_S = 2.0
"""In place of both in a run of one fault."""
SETTLE_S = 6.0
"""Load goes on for as long after everything is in sync again: who reads must be shown everything within 5 s."""
STOPPED_WITHIN_S = 60.0
"""The last of combined nodes waits for a quorum that has stopped before it, to hand over what it leads."""
CLIENTS_END_WITHIN_S = 150.0
BASIC_CLIENTS = ("confluent", "aio")
HOSTS = {
    "confluent": CONFLUENT_HOST,
    "aio": AIO_HOST,
    "copiers": COPIERS_HOST,
    "late": LATE_HOST,
    "members": MEMBERS_HOST,
    "sharers": SHARERS_HOST,
}
OVERRIDES = {
    "default.replication.factor": str(REPLICATION_FACTOR),
    "min.insync.replicas": "2",
    "errors.deadletterqueue.auto.create.topics.enable": "true",
    "offsets.topic.replication.factor": str(REPLICATION_FACTOR),
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.share.min.heartbeat.interval.ms": "1000",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.min.session.timeout.ms": "6000",
    "group.share.session.timeout.ms": "6000",
    "group.share.min.record.lock.duration.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "share.coordinator.state.topic.replication.factor": str(REPLICATION_FACTOR),
    "share.coordinator.state.topic.min.isr": "2",
    "share.coordinator.state.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": str(REPLICATION_FACTOR),
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


def run_scenario(name: str, *, seed: int, budget_s: float, patience_s: float, directory: Path, bug: str = "") -> Report:
    """Run one scenario to its report. Raises only when the harness itself cannot go on.

    Args:
        name: of FAULTS.
        seed: decides schedule and targets.
        budget_s: no new fault is begun after this long.
        patience_s: all replicas must be in sync this long after everything was healed.
        directory: where the run's files lie.
        bug: one of tests/simulation/node_mutants.py, planted into every node.
    """
    begun = time.monotonic()
    fault = FAULTS[name]
    cluster = ChaosCluster(
        directory,
        controllers=3,
        brokers=0 if fault.is_combined else 3,
        is_combined=fault.is_combined,
        overrides=OVERRIDES,
    )
    if fault.prepare is not None:
        fault.prepare(list(cluster.nodes.values()))
    if bug:
        _plant(cluster, bug)
    harness = directory / "harness.jsonl"
    writer = HistoryWriter(harness)
    stage = Stage(cluster, Random(f"{name}{seed}"), writer, patience_s)
    in_sync_s = 0.0
    steady = (0.0, 0.0)
    with cluster:
        modules = (*BASIC_CLIENTS, *fault.clients)
        for module in modules:
            cluster.network.add(HOSTS[module])
        _create_topics(stage, [*TOPICS, *(TRANSACTED_TOPICS if fault.transacts else ())])
        stage.clients = _start_clients(cluster, directory, seed, modules)
        try:
            time.sleep(WARM_UP_S if budget_s else SHORT_S)
            stage.phase("healthy")
            since = time.monotonic()
            time.sleep(STEADY_S if budget_s else SHORT_S)
            stage.first_fault = time.monotonic()
            steady = (since, stage.first_fault)
            in_sync_s = _break(stage, fault, budget_s)
            time.sleep(stage.back_off_s + SETTLE_S)
        except TimeoutError as late:
            stage.broken.append(str(late))
        finally:
            for group in (BASIC_CLIENTS, fault.clients):  # copies end after what they copy
                stage.broken += _end_clients({module: stage.clients[module] for module in group})
        _read_last(cluster, directory, "--transacted" if fault.transacts else "")
        # After a cut of all ways every node said what was so before it: a replica may have left its ISR since.
        try:
            stage.wait_until_in_sync()
        except TimeoutError as late:
            stage.broken.append(str(late))
        cluster.look_for_deaths()
        _end_nodes(stage)
        complaints = [] if fault.permits_errors else cluster.complaints()
    writer.close()
    events = list(read_events(sorted(directory.glob("*.jsonl"))))
    ends = {event.key: event.end for event in History(events).listed if event.client == "last-reader"}
    for node in cluster.brokers:
        if node.data.is_dir():
            events += read_replicas(node.data, node.id, ends)
    found = [*cluster.deaths, *complaints, *stage.broken]
    events += [FaultEvent(who="the cluster", what=words) for words in found]
    history = History(events)
    figures = measure(history, steady=steady, in_sync_s=in_sync_s)
    void = "; ".join(stage.ineffective)
    if figures.steady_per_s < FLOOR_OPS_PER_S:
        void = f"only {figures.steady_per_s:.0f} operations/s before the first fault"
    elif not stage.faults:
        void = "no fault happened"
    elif "late" in fault.clients and not figures.late_ends:
        void = "no EndTxn came in a later transaction"
    elif "copiers" in fault.clients and not figures.committed:
        void = "nothing was copied"
    elif "sharers" in fault.clients and not figures.settled:
        void = "no record was settled"
    return Report(
        scenario=name,
        seed=seed,
        budget_s=budget_s,
        nodes="3" if fault.is_combined else "3+3",
        faults=stage.faults,
        figures=figures,
        findings=judge(history),
        notes=stage.notes,
        took_s=time.monotonic() - begun,
        void=void,
    )


def _break(stage: Stage, fault: Fault, budget_s: float) -> float:
    """Begin and undo the fault until the budget is used up; s until all was in sync after the last one."""
    while True:
        stage.phase("fault")
        undo = fault.begin(stage)
        stage.faults += 1
        time.sleep(stage.random.uniform(*fault.hold_s))
        undo()
        is_last = time.monotonic() - stage.first_fault >= budget_s
        if is_last or fault.needs_sync or stage.random.random() < 0.5:
            in_sync_s = stage.wait_until_in_sync()
            stage.note(f"in sync after {in_sync_s:.1f} s")
            stage.phase("healthy")
        if is_last:
            return in_sync_s
        time.sleep(stage.random.uniform(0.5, 3.0))


def _plant(cluster: ChaosCluster, bug: str) -> None:
    for node in cluster.nodes.values():
        disk = node.entry_point[3:]  # after `python -m module`
        node.entry_point = (sys.executable, "-m", "tests.chaos.node", "--bug", bug, *disk)


def _create_topics(stage: Stage, topics: Sequence[Topic]) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    missing = list(topics)
    while missing:
        topic = missing[0]
        try:
            with stage.admin() as admin:
                (outcome,) = admin.create_topics(
                    [topic.name],
                    partitions=topic.partitions,
                    replication_factor=REPLICATION_FACTOR,
                    configs=topic.configs,
                )
            # an answer may have been lost: then it is there
            if outcome.error.code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                missing.pop(0)
                continue
            words = outcome.error.message
        except AdminError as error:
            words = str(error)
        if time.monotonic() > deadline:
            raise RuntimeError(f"topic {topic.name} cannot be created: {words}")
        time.sleep(0.3)
    stage.wait_until_in_sync()


def _bootstrap(nodes: list[ChaosNode]) -> str:
    return ",".join(f"{node.address}:{KAFKA_PORT}" for node in nodes)


def _client_command(cluster: ChaosCluster, module: str, history: Path, *more: str) -> list[str]:
    words = ("--bootstrap", _bootstrap(cluster.brokers), "--history", str(history), *more)
    return [sys.executable, "-m", f"tests.chaos.data.{module}", *words]


def _start_clients(
    cluster: ChaosCluster, directory: Path, seed: int, modules: Sequence[str]
) -> dict[str, subprocess.Popen[bytes]]:
    clients = {}
    for module in modules:
        more = ["--seed", str(seed)]
        if module == "late":
            more += ["--brokers", ",".join(str(node.id) for node in cluster.brokers)]
            more += ["--flag", str(hold_flag(directory))]
        with (directory / f"{module}.stderr").open("wb") as errors:
            command = _client_command(cluster, module, directory / f"{module}.jsonl", *more)
            clients[module] = subprocess.Popen(
                [*cluster.network.inside(HOSTS[module]), *command],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
            )
    return clients


def _end_clients(clients: Mapping[str, subprocess.Popen[bytes]]) -> list[str]:
    """Close what they listen to and wait for their ends; what went wrong."""
    broken = []
    for client in clients.values():
        assert client.stdin is not None
        client.stdin.close()
    deadline = time.monotonic() + CLIENTS_END_WITHIN_S
    for name, client in clients.items():
        try:
            status = client.wait(max(1.0, deadline - time.monotonic()))
            if status != 0:
                broken.append(f"the clients of {name} ended with status {status}")
        except subprocess.TimeoutExpired:
            client.kill()
            client.wait()
            broken.append(f"the clients of {name} did not end within {CLIENTS_END_WITHIN_S:.0f} s")
    return broken


def _end_nodes(stage: Stage) -> None:
    cluster = stage.cluster
    if stage.random.random() < 0.5:
        for group in (cluster.brokers, cluster.controllers):  # brokers need their controllers
            running = [node.id for node in group if node.is_running]
            for node_id in running:
                cluster.begin_stop(node_id)
            for node_id in running:
                asyncio.run(cluster.finish_stop(node_id, timeout_s=STOPPED_WITHIN_S))
    cluster.kill([node.id for node in cluster.nodes.values() if node.process is not None])


def _read_last(cluster: ChaosCluster, directory: Path, *words: str) -> None:
    """Another process reads everything; its history says how that went."""
    history = directory / "last.jsonl"
    command = _client_command(cluster, "confluent", history, "--last", *filter(None, words))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        writer = HistoryWriter(history)
        writer.write(FaultEvent(who="last-reader", what=f"status {done.returncode}: {done.stderr[-2000:]}"))
        writer.close()
