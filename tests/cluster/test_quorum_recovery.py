"""A controller quorum that has lost two of three disks is recovered from the third: brokers go on, metadata is as it was, and the
old voters that come back can neither lead nor be followed, with the recovered one up or down."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from barnabas_admin.client import AdminClient
from barnabas_admin.cluster_directory import random_uuid
from barnabas_admin.errors import AdminError
from barnabas_admin.local_ports import find_base_port
from barnabas_quorum.records import EPOCHS_PER_RECOVERY
from barnabas_wire.kafka.errors import ErrorCode
from tests.cluster.workload import read_log
from tests.support.nursery import nursery

WAIT_S = 60
CONTROLLERS = (1, 2, 3)
BROKER = 9
BROKER_APART = 8
BROKERS = (BROKER, BROKER_APART)
PARTITIONS = 4

pytestmark = pytest.mark.cluster


class Nodes:
    """Three controllers and two brokers, as processes of their own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        first = find_base_port()  # below the ephemeral ports: nobody takes one while its node is down
        self.ports = {node: first + node for node in (*CONTROLLERS, *BROKERS)}
        self.admin_ports = {node: first + 40 + node for node in (*CONTROLLERS, *BROKERS)}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        bootstrap = ",".join(f"127.0.0.1:{self.ports[node]}" for node in CONTROLLERS)
        for node in self.ports:
            role, listener = ("broker", "PLAINTEXT") if node in BROKERS else ("controller", "CONTROLLER")
            (directory / f"{node}.properties").write_text(
                f"process.roles={role}\nnode.id={node}\nlisteners={listener}://127.0.0.1:{self.ports[node]}\n"
                f"log.dirs={self.data(node)}\ncontroller.quorum.bootstrap.servers={bootstrap}\n"
                "controller.listener.names=CONTROLLER\nlistener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
                f"admin.listeners=127.0.0.1:{self.admin_ports[node]}\nmetrics.listeners=\n"
            )

    def data(self, node: int) -> Path:
        return self.directory / f"data-{node}"

    def format(self) -> None:
        voters = ",".join(f"{node}@127.0.0.1:{self.ports[node]}:{random_uuid()}" for node in CONTROLLERS)
        shared = ("--cluster-id", str(random_uuid()), "--initial-controllers", voters)
        with ThreadPoolExecutor() as at_once:
            configs = [str(self.directory / f"{node}.properties") for node in CONTROLLERS]
            for done in at_once.map(lambda config: self.server("format", "-c", config, *shared), configs):
                assert done.returncode == 0, done.stderr

    def server(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return nursery().run(arguments, timeout_s=WAIT_S)

    def recover(self, node: int, *more: str) -> None:
        asked = ("quorum", "recover", str(self.data(node)), *more)
        plan = self.server(*asked, "-o", "json")
        assert plan.returncode == 0, plan.stderr
        done = self.server(*asked, f"--yes={json.loads(plan.stdout)['chosen_directory_id']}")
        assert done.returncode == 0, done.stderr

    def start(self, *nodes: int) -> None:
        for node in nodes:
            with (self.directory / f"{node}.out").open("wb") as output:
                command = ["-c", str(self.directory / f"{node}.properties")]
                self.processes[node] = nursery().start(command, stdout=output, stderr=output)

    def kill(self, *nodes: int) -> None:
        for node in nodes:
            self.processes[node].send_signal(signal.SIGKILL)
            self.processes.pop(node).wait(WAIT_S)

    def ends(self, node: int) -> str:
        """Wait for it to end by itself; its output."""
        status = self.processes.pop(node).wait(WAIT_S)
        output = (self.directory / f"{node}.out").read_text()
        assert status != 0, output
        return output

    def kafka(self, node: int) -> str:
        return f"127.0.0.1:{self.ports[node]}"

    def send(self, node: int, *values: int) -> None:
        """To the partitions of `both` in turn, with acks=all of whoever is in sync."""
        settings = {"bootstrap.servers": self.kafka(node), "acks": "all", "message.timeout.ms": WAIT_S * 1000}
        refused: list[str] = []
        producer = Producer(settings)
        for value in values:
            producer.produce(
                "both",
                b"%d" % value,
                partition=value % PARTITIONS,
                on_delivery=lambda error, _: refused.append(str(error)) if error is not None else None,
            )
        assert producer.flush(WAIT_S) == 0
        assert not refused

    def segment(self, node: int, index: int) -> bytes:
        (segment,) = (self.data(node) / f"both-{index}").glob("*.log")
        return segment.read_bytes()

    def ask(self, node: int, question: Callable[[AdminClient], Any]) -> Any:
        with AdminClient(f"127.0.0.1:{self.admin_ports[node]}", timeout_s=WAIT_S) as client:
            return question(client)

    def create(self, node: int, names: list[str], *, partitions: int, replication_factor: int) -> None:
        """Until it is taken: a broker that has just registered anew is fenced for a moment, and nothing is placed on it."""

        def is_made(admin: AdminClient) -> bool:
            outcomes = admin.create_topics(names, partitions=partitions, replication_factor=replication_factor)
            return all(outcome.error.code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS) for outcome in outcomes)

        self.until(node, is_made)

    def until(self, node: int, what: Callable[[AdminClient], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        with AdminClient(f"127.0.0.1:{self.admin_ports[node]}", timeout_s=WAIT_S) as client:
            while True:
                try:
                    if what(client):
                        return
                except AdminError:
                    client.close()  # the next question opens a new channel
                assert time.monotonic() < deadline, (self.directory / f"{node}.out").read_text()[-3000:]
                time.sleep(0.1)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path)
    yield made
    made.kill(*made.processes)


def leader(client: AdminClient) -> int:
    found: int = client.describe_quorum().leader_id
    return found


def partitions(client: AdminClient) -> list[Any]:
    (topic,) = client.describe_topics(["both"])
    return list(topic.partitions)


def leads_all(client: AdminClient, broker: int) -> bool:
    return {(each.leader, tuple(each.isr)) for each in partitions(client)} == {(broker, (broker,))}


def leader_epochs(client: AdminClient) -> list[int]:
    return [each.leader_epoch for each in partitions(client)]


def topics(client: AdminClient) -> list[tuple[str, str, int]]:
    return [(topic.name, topic.id, topic.partitions) for topic in client.list_topics(include_internal=True)]


def test_one_disk_of_three_is_enough_to_recover_and_old_voters_stay_out(nodes: Nodes) -> None:
    nodes.format()
    nodes.start(*CONTROLLERS, BROKER)
    nodes.until(BROKER, lambda admin: any(not broker.fenced for broker in admin.list_brokers().brokers))
    nodes.create(BROKER, ["before", "too"], partitions=3, replication_factor=1)
    before = nodes.ask(BROKER, topics)
    broker = nodes.processes[BROKER].pid

    nodes.kill(*CONTROLLERS)
    for node in (2, 3):
        shutil.move(nodes.data(node), nodes.directory / f"old-disk-{node}")
    survivor = str(nodes.data(1))
    dry = json.loads(nodes.server("quorum", "recover", survivor, "-o", "json").stdout)
    assert dry["is_dry_run"]
    assert dry["can_have_lost"]
    assert not (nodes.data(1) / "quorum-incarnation").exists(), "a dry run writes nothing"
    refused = nodes.server("quorum", "recover", survivor, "--yes", "A" * 22)
    assert refused.returncode == 2
    done = nodes.server("quorum", "recover", survivor, "--yes", dry["chosen_directory_id"], "-o", "json")
    assert done.returncode == 0, done.stderr

    nodes.start(1)
    nodes.until(BROKER, lambda admin: leader(admin) == 1)
    nodes.until(BROKER, lambda admin: any(not broker.fenced for broker in admin.list_brokers().brokers))
    assert nodes.ask(BROKER, topics) == before, "what was committed is there"
    nodes.create(BROKER, ["after"], partitions=1, replication_factor=1)
    assert nodes.processes[BROKER].pid == broker
    assert nodes.processes[BROKER].poll() is None, "the broker went on through it all"

    # The old disks come back while the recovered quorum is out of sight. The two may elect each other for a moment, but nobody
    # follows them, and the first word of the broker ends them. They do not start again.
    nodes.kill(1)
    for node in (2, 3):
        shutil.copytree(nodes.directory / f"old-disk-{node}", nodes.data(node))
    nodes.start(2, 3)
    for node in (2, 3):
        assert "the quorum was recovered without this voter" in nodes.ends(node)
    assert nodes.ask(BROKER, leader) not in (2, 3)
    for node in (2, 3):
        nodes.start(node)
        assert "barnabas-server quorum rejoin" in nodes.ends(node)
    nodes.start(1)
    nodes.until(BROKER, lambda admin: leader(admin) == 1)
    assert {name for name, _, _ in nodes.ask(BROKER, topics)} == {"before", "too", "after"}

    # And they come back as what they are now: nobody, until they are given a vote.
    assert nodes.server("quorum", "rejoin", str(nodes.data(2))).returncode == 0
    nodes.start(2)
    nodes.until(1, lambda admin: any(replica.id == 2 for replica in admin.describe_quorum().replicas))
    nodes.until(1, lambda admin: bool(admin.add_voter(2, host="127.0.0.1", port=nodes.ports[2]).id))
    nodes.until(2, lambda admin: topics(admin) == nodes.ask(1, topics))
    # A voter of the recovered quorum keeps its log through a restart, or it could vote twice.
    nodes.kill(2)
    nodes.start(2)
    nodes.until(2, lambda admin: leader(admin) in (1, 2))
    assert len(list(nodes.data(2).glob("set-aside-metadata-log*"))) == 1


def test_what_old_voters_take_where_nobody_sees_the_recovered_quorum_never_becomes_its_own(nodes: Nodes) -> None:
    """Two of three in a corner with a broker of theirs: they elect, as they must. At the first contact that ends."""
    nodes.format()
    nodes.start(*CONTROLLERS, BROKER_APART)
    nodes.until(BROKER_APART, lambda admin: any(not broker.fenced for broker in admin.list_brokers().brokers))
    nodes.create(BROKER_APART, ["before"], partitions=1, replication_factor=1)
    nodes.kill(*CONTROLLERS, BROKER_APART)

    nodes.recover(1)

    nodes.start(2, 3, BROKER_APART)
    nodes.until(BROKER_APART, lambda admin: leader(admin) in (2, 3))
    nodes.create(BROKER_APART, ["elsewhere"], partitions=1, replication_factor=1)
    # The answer comes with the commit, of which the broker hears a moment later.
    nodes.until(BROKER_APART, lambda admin: "elsewhere" in {name for name, _, _ in topics(admin)})

    nodes.start(1)
    for node in (2, 3):
        assert "the quorum was recovered without this voter" in nodes.ends(node)
    # The broker has metadata that the recovered quorum never had: it ends rather than serve it, and begins with an empty log.
    if nodes.processes[BROKER_APART].wait(WAIT_S):
        nodes.start(BROKER_APART)
    nodes.until(BROKER_APART, lambda admin: leader(admin) == 1)
    nodes.until(BROKER_APART, lambda admin: any(not broker.fenced for broker in admin.list_brokers().brokers))
    for node in (1, BROKER_APART):
        assert {name for name, _, _ in nodes.ask(node, topics)} == {"before"}
    assert len(list(nodes.data(BROKER_APART).glob("set-aside-metadata-log*"))) == 1


def test_two_recoveries_are_reported_with_the_command_that_ends_them(nodes: Nodes) -> None:
    nodes.format()
    nodes.start(*CONTROLLERS)
    nodes.until(1, lambda admin: leader(admin) in CONTROLLERS)
    nodes.kill(*CONTROLLERS)
    for node in (1, 2):
        nodes.recover(node)
    nodes.start(1, 2)
    for node in (1, 2):
        nodes.until(node, lambda admin: "recovered_twice" in admin.describe_health().reasons)
    reported = nodes.ask(1, lambda admin: admin.explain_leader())
    assert reported.status == "recovered-twice"
    assert "(controller 1)" in reported.summary and "(controller 2)" in reported.summary
    commands = [step.command for step in reported.next if step.command]
    assert [command.split()[:3] for command in commands] == [["barnabas", "quorum", "recover"]] * 2

    nodes.kill(1, 2)
    report = nodes.directory / "other.json"
    report.write_text(nodes.server("quorum", "recover", str(nodes.data(2)), "--inspect", "-o", "json").stdout)
    nodes.recover(1, "--report", str(report), "--from", str(nodes.data(1)))
    nodes.start(1, 2)
    assert "the quorum was recovered without this voter" in nodes.ends(2)
    nodes.until(1, lambda admin: leader(admin) == 1)
    assert "recovered_twice" not in nodes.ask(1, lambda admin: admin.describe_health()).reasons
    assert nodes.ask(1, lambda admin: admin.explain_leader()).status == "led"


def test_what_leaders_of_both_sides_wrote_is_cut_by_epochs_and_the_replicas_end_alike(nodes: Nodes) -> None:
    """The lost majority goes on in a corner with one broker, the recovered quorum with the other, and both take records for the
    same partitions. Nobody empties anything: the leader epochs say who cuts what. (A broker that is out of sight is paused: one
    that was killed would be in no ISR.)"""
    nodes.format()
    nodes.start(*CONTROLLERS, *BROKERS)
    nodes.until(BROKER, lambda admin: [broker.fenced for broker in admin.list_brokers().brokers] == [False, False])
    nodes.create(BROKER, ["both"], partitions=PARTITIONS, replication_factor=2)
    nodes.send(BROKER, *range(20))
    nodes.processes[BROKER].send_signal(signal.SIGSTOP)
    nodes.kill(*CONTROLLERS)

    nodes.recover(1)

    nodes.start(2, 3)
    nodes.until(BROKER_APART, lambda admin: leads_all(admin, BROKER_APART))
    # A dropped replica costs a leader epoch: as many on either side, or the epochs alone would tell them apart.
    alone = {("both", index): [BROKER_APART] for index in range(PARTITIONS)}
    nodes.ask(BROKER_APART, lambda admin: admin.alter_reassignments(alone))
    nodes.until(BROKER_APART, lambda admin: max(leader_epochs(admin)) == 2)
    nodes.send(BROKER_APART, *range(100, 180))
    apart = nodes.ask(BROKER_APART, leader_epochs)
    nodes.kill(2, 3, BROKER_APART)

    nodes.start(1)
    nodes.processes[BROKER].send_signal(signal.SIGCONT)
    nodes.until(BROKER, lambda admin: leads_all(admin, BROKER))
    nodes.send(BROKER, *range(200, 220))
    assert min(nodes.ask(BROKER, leader_epochs)) >= max(apart) + EPOCHS_PER_RECOVERY // 2

    nodes.start(BROKER_APART)
    nodes.until(BROKER, lambda admin: all(sorted(each.isr) == [*sorted(BROKERS)] for each in partitions(admin)))
    for index in range(PARTITIONS):
        ours, theirs = (nodes.segment(node, index) for node in (BROKER, BROKER_APART))
        assert ours == theirs, f"both-{index} differs"
    read = read_log(nodes.kafka(BROKER), "both")
    assert sorted(value for records in read.values() for _, value in records) == [*range(20), *range(200, 220)]
