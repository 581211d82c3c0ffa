"""Kafka's console tools against a cluster of three nodes: what an operator's hands know must work here.

Each test runs one tool through its usual verbs and reads what it prints, since that is what scripts read.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas_admin.local_cluster import LocalCluster
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.client.metadata import LATEST
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages import streams_group_heartbeat as streams
from barnabas_wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.oracle.apache import ToolOutput, run_tool
from tests.oracle.test_dump_log_segments import dump
from tests.support.transactional_producer import TransactionalProducer

TOOLS = "org.apache.kafka.tools."
GROUPS = TOOLS + "consumer.group.ConsumerGroupCommand"
_numbers = itertools.count(1)

Run = Callable[..., str]


@pytest.fixture
def tool(jars: None, cluster: LocalCluster) -> Run:
    """Runs a tool with --bootstrap-server; returns what it printed. It must succeed, unless `fails` says how it ends."""

    def run(main_class: str, *arguments: str, stdin: str = "", fails: str | None = None) -> str:
        server = ("--bootstrap-server", cluster.bootstrap_servers)
        output: ToolOutput = run_tool(main_class, *server, *arguments, stdin=stdin)
        if fails is None:
            assert output.exit_code == 0 and "Exception" not in output.stdout + output.stderr, output
        else:
            assert fails in output.stdout + output.stderr, output
        return output.stdout

    return run


@pytest.fixture
def topic(tool: Run) -> str:
    """A topic of three partitions, made by kafka-topics."""
    name = f"console-{next(_numbers)}"
    said = tool(TOOLS + "TopicCommand", "--create", "--topic", name, "--partitions", "3", "--replication-factor", "3")
    assert f"Created topic {name}." in said
    return name


def test_topics(tool: Run) -> None:
    command, name = TOOLS + "TopicCommand", f"console-{next(_numbers)}"
    tool(command, "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=3600000")
    said = tool(command, "--describe", "--topic", name)
    assert re.search(rf"Topic: {name}\tTopicId: \S{{22}}\tPartitionCount: 2\tReplicationFactor: 3\t", said)
    assert "retention.ms=3600000" in said
    assert (
        len(re.findall(r"Partition: \d\tLeader: [123]\tReplicas: [123],[123],[123]\tIsr: [123],[123],[123]\t", said))
        == 2
    )
    tool(command, "--create", "--topic", name, fails="already exists")
    tool(command, "--create", "--topic", name, "--if-not-exists")
    tool(command, "--alter", "--topic", name, "--partitions", "4")
    assert "PartitionCount: 4" in tool(command, "--describe", "--topic", name)
    tool(command, "--alter", "--topic", name, "--partitions", "3", fails="can only grow")
    assert tool(command, "--describe", "--under-replicated-partitions") == ""
    assert name in tool(command, "--list").split()
    tool(command, "--delete", "--topic", name)
    assert name not in tool(command, "--list").split()
    tool(command, "--describe", "--topic", name, fails="does not exist as expected")


def test_configs(tool: Run, topic: str) -> None:
    command = "org.apache.kafka.tools.ConfigCommand"
    tool(command, "--alter", "--topic", topic, "--add-config", "retention.ms=7200000,max.message.bytes=2000000")
    said = tool(command, "--describe", "--topic", topic)
    assert "retention.ms=7200000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=7200000" in said
    tool(command, "--alter", "--topic", topic, "--delete-config", "retention.ms")
    said = tool(command, "--describe", "--topic", topic)
    assert "retention.ms=" not in said and "max.message.bytes=2000000" in said
    assert "min.insync.replicas=2" in tool(command, "--describe", "--topic", topic, "--all")
    tool(command, "--alter", "--topic", topic, "--add-config", "retention.ms=soon", fails="retention.ms")
    said = tool(command, "--describe", "--broker", "2", "--all")
    assert "node.id=2" in said and "log.dirs=" in said
    tool(command, "--alter", "--broker-defaults", "--add-config", "log.retention.bytes=1000000000")
    assert "log.retention.bytes=1000000000" in tool(command, "--describe", "--broker-defaults")
    tool(command, "--alter", "--broker-defaults", "--delete-config", "log.retention.bytes")


def test_metadata_quorum(tool: Run, cluster: LocalCluster) -> None:
    command = TOOLS + "MetadataQuorumCommand"
    said = dict(re.findall(r"^(\w+):\s+(.*)$", tool(command, "describe", "--status"), re.MULTILINE))
    assert said["ClusterId"] == cluster.cluster_id
    leader = int(said["LeaderId"])  # the leader is removed: whoever is asked next has to find its successor
    assert leader in cluster.nodes and int(said["HighWatermark"]) > 0
    voters = {voter["id"]: voter for voter in json.loads(said["CurrentVoters"])}
    assert set(voters) == set(cluster.nodes) and json.loads(said["CurrentObservers"]) == []
    port = cluster.nodes[leader].controller_port
    assert voters[leader]["endpoints"] == [f"CONTROLLER://127.0.0.1:{port}"]
    directory_id = voters[leader]["directoryId"]

    def roles() -> dict[int, str]:
        rows = [line.split() for line in tool(command, "describe", "--replication").splitlines()[1:]]
        # a leader that is new has not heard of every observer yet
        assert {row[1] for row in rows if row[0] == str(leader)} <= {directory_id}
        return {int(row[0]): row[-1] for row in rows}

    assert sorted(roles().values()) == ["Follower", "Follower", "Leader"]
    removing = ("remove-controller", "--controller-id", str(leader), "--controller-directory-id")
    assert f"Removed KRaft controller {leader} with directory id {directory_id}" in tool(
        command, *removing, directory_id
    )
    tool(command, *removing, directory_id, fails="VoterNotFoundException")
    cluster.wait_until(lambda: roles().get(leader) == "Observer", what="the removed one to fetch as an observer")
    properties = ("--command-config", str(cluster.nodes[leader].properties_file), "add-controller")
    assert f"Added controller {leader} with directory id {directory_id}" in tool(command, *properties)
    tool(command, *properties, fails="DuplicateVoterException")
    cluster.wait_until(lambda: roles().get(leader) in ("Follower", "Leader"), what="it to vote again")


def test_console_producer_and_consumer(tool: Run, topic: str) -> None:
    lines = [f"h1:one,h2:{n}\tkey-{n}\tvalue {n}\n" for n in range(20)] + ["NULL\tkey-0\tno headers\n"]
    tool(
        TOOLS + "ConsoleProducer",
        *("--topic", topic, "--compression-codec", "zstd", "--reader-property", "parse.key=true"),
        *("--reader-property", "parse.headers=true", "--reader-property", "null.marker=NULL"),
        stdin="".join(lines),
    )
    shown = [
        option
        for name in ("key", "headers", "partition", "offset")
        for option in ("--formatter-property", f"print.{name}=true")
    ]
    group = f"{topic}-readers"
    said = tool(
        TOOLS + "consumer.ConsoleConsumer",
        *("--topic", topic, "--from-beginning", "--group", group, "--max-messages", str(len(lines)), *shown),
    )
    found = [line.split("\t", 2) for line in said.splitlines() if line.startswith("Partition:")]
    assert sorted(rest for _, _, rest in found) == sorted(
        line.rstrip("\n").replace("NULL\t", "NO_HEADERS\t") for line in lines
    )
    positions = [(partition, offset) for partition, offset, _ in found]
    assert len(set(positions)) == len(lines)
    one = tool(
        TOOLS + "consumer.ConsoleConsumer",
        *(
            "--topic",
            topic,
            "--partition",
            found[0][0].removeprefix("Partition:"),
            "--offset",
            "0",
            "--max-messages",
            "1",
        ),
    )
    assert one.strip() in {line.rsplit("\t", 1)[1].strip() for line in lines}


def test_consumer_groups(tool: Run, topic: str) -> None:
    tool(TOOLS + "ConsoleProducer", "--topic", topic, stdin="".join(f"{n}\n" for n in range(30)))
    group = f"{topic}-group"
    read = ("--topic", topic, "--from-beginning", "--group", group, "--max-messages", "30")
    assert len(tool(TOOLS + "consumer.ConsoleConsumer", *read).split()) == 30
    assert group in tool(GROUPS, "--list").split()
    assert re.search(rf"{group} +Empty", tool(GROUPS, "--list", "--state"))
    said = tool(GROUPS, "--describe", "--group", group)
    rows = [line.split() for line in said.splitlines() if line.startswith(group)]
    assert sum(int(row[3]) for row in rows) == 30 and {row[5] for row in rows} == {"0"}
    assert re.search(
        rf"{group} +127\.0\.0\.1:\d+ +\([123]\) .* Empty +0", tool(GROUPS, "--describe", "--group", group, "--state")
    )
    reset = ("--reset-offsets", "--group", group, "--topic", topic)
    assert len(re.findall(rf"{topic} +\d +0$", tool(GROUPS, *reset, "--to-earliest", "--dry-run"), re.MULTILINE)) == 3
    said = tool(GROUPS, *reset, "--to-earliest", "--execute")
    assert re.findall(rf"{topic} +\d +(\d+)", said) == ["0", "0", "0"]
    said = tool(GROUPS, *reset, "--to-datetime", "2020-01-01T00:00:00.000", "--execute")
    assert re.findall(rf"{topic} +\d +(\d+)", said) == ["0", "0", "0"]
    tool(GROUPS, *reset, "--shift-by", "2", "--execute")
    said = tool(GROUPS, "--describe", "--offsets", "--group", group)
    assert sum(int(line.split()[5]) for line in said.splitlines() if line.startswith(group)) < 30
    assert "Successful" in tool(GROUPS, "--delete-offsets", "--group", group, "--topic", topic)
    assert "was successful" in tool(GROUPS, "--delete", "--group", group)
    tool(GROUPS, "--describe", "--group", group, fails="GroupIdNotFound")


def test_kafkas_java_consumer_in_a_group_of_the_consumer_protocol(tool: Run, topic: str) -> None:
    """KIP-848 from end to end: join, read, commit by epoch, leave; and Kafka's tools show the group and its configs."""
    tool(TOOLS + "ConsoleProducer", "--topic", topic, stdin="".join(f"{n}\n" for n in range(60)))
    group = f"{topic}-consumers"
    read = ("--topic", topic, "--group-id", group, "--group-protocol", "consumer", "--max-messages", "60")
    for assignor in ("uniform-rack", "range"):
        said = tool(TOOLS + "VerifiableConsumer", *read, "--group-remote-assignor", assignor)
        events = [json.loads(line) for line in said.splitlines()]
        assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 60
        assert all(event["success"] for event in events if event["name"] == "offsets_committed")
        (given,) = (event["partitions"] for event in events if event["name"] == "partitions_assigned")
        assert len(given) == 3
        assert re.search(rf"{group} +Consumer +consumer", tool(TOOLS + "GroupsCommand", "--list"), re.IGNORECASE)
        assert re.search(rf"{group} .* Empty +0", tool(GROUPS, "--describe", "--group", group, "--state"))
        said = tool(GROUPS, "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
        assert re.findall(rf"{topic} +\d +(\d+)", said) == ["0", "0", "0"]
    configs, key = TOOLS + "ConfigCommand", "consumer.session.timeout.ms"
    tool(configs, "--alter", "--group", group, "--add-config", f"{key}=50000")
    assert f"{key}=50000" in tool(configs, "--describe", "--group", group)
    tool(configs, "--alter", "--group", group, "--add-config", f"{key}=70000", fails=key)
    tool(configs, "--alter", "--group", group, "--delete-config", key)
    assert "was successful" in tool(GROUPS, "--delete", "--group", group)


def test_streams_groups(tool: Run, topic: str, cluster: LocalCluster) -> None:
    command, group = TOOLS + "streams.StreamsGroupCommand", f"{topic}-app"
    tool(TOOLS + "ConsoleProducer", "--topic", topic, stdin="".join(f"{n}\n" for n in range(30)))
    topology = streams.Topology(
        subtopologies=[
            streams.Subtopology(
                subtopology_id="0",
                source_topics=[topic],
                state_changelog_topics=[streams.TopicInfo(name=f"{group}-store-changelog")],
            )
        ]
    )
    joining = streams.StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id="thread-1",
        endpoint_information_epoch=-1,
        rebalance_timeout_ms=60_000,
        topology=topology,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="instance-1",
    )

    def say(request: Any, **how: Any) -> Any:
        async def run() -> Any:
            client = ClusterClient(cluster.bootstrap_servers, client_id="app")
            try:
                return await client.call_coordinator(group, request, **how)
            finally:
                await client.close()

        answer = asyncio.run(run())
        assert not getattr(answer, "error_code", 0), answer.error_message
        return answer

    told = say(joining)
    deadline = time.monotonic() + 60
    while told.status or not told.active_tasks:
        assert time.monotonic() < deadline, told
        time.sleep(0.5)
        beat = streams.StreamsGroupHeartbeatRequest(
            group_id=group, member_id="thread-1", member_epoch=told.member_epoch
        )
        told = say(beat)
    assert re.search(rf"{group} +Stable", tool(command, "--list", "--state"))
    assert re.search(rf"{group} .* Stable +1", tool(command, "--describe", "--group", group, "--state"))
    said = tool(command, "--describe", "--group", group, "--members", "--verbose")
    assert "thread-1" in said and "instance-1" in said and re.search(r"0:\s*\[0,1,2\]", said), said
    committed = [OffsetCommitRequestPartition(number, 0) for number in range(3)]
    say(
        OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=told.member_epoch,
            member_id="thread-1",
            topics=[OffsetCommitRequestTopic(name=topic, partitions=committed)],
        ),
        version_max=9,
    )
    say(replace(beat, member_epoch=-1))
    to_end = ("--reset-offsets", "--group", group, "--input-topic", topic, "--to-latest")
    said = tool(command, *to_end, "--dry-run")
    assert len(re.findall(rf"^{group} +{topic} +\d +\d+ *$", said, re.MULTILINE)) == 3, said
    assert topic in tool(command, *to_end, "--execute")
    assert "was successful" in tool(command, "--delete", "--group", group)
    assert group not in tool(command, "--list")


def test_transactions(tool: Run, topic: str, cluster: LocalCluster) -> None:
    """kafka-transactions.sh: what is open and what hangs is listed, described, found and aborted."""
    command = TOOLS + "TransactionsCommand"
    honest, stuck = f"{topic}-honest", f"{topic}-stuck"
    opened, hanging = TopicPartition(topic, 0), TopicPartition(topic, 1)

    async def begin(client: ClusterClient) -> tuple[int, int, int]:
        producers = [TransactionalProducer(client, name, is_new=False, timeout_ms=900_000) for name in (honest, stuck)]
        for producer in producers:
            await producer.init()
        await producers[0].write(opened)
        await producers[1].write(hanging, age_ms=3_600_000, is_added=False)
        (leader,) = {client.routing.view.leader(hanging).id}
        return producers[0].producer_id, producers[1].producer_id, leader

    async def stable(client: ClusterClient) -> list[int]:
        found = await client.list_offsets({opened: LATEST, hanging: LATEST}, is_read_committed=True)
        return [int(found[key].offset) for key in (opened, hanging)]

    def with_client(work: Callable[[ClusterClient], Coroutine[Any, Any, Any]]) -> Any:
        async def run() -> Any:
            client = ClusterClient(cluster.bootstrap_servers, client_id="transactions")
            try:
                return await work(client)
            finally:
                await client.close()

        return asyncio.run(run())

    def rows(said: str, name: str) -> list[list[str]]:
        return [line.split() for line in said.splitlines() if name in line]

    producer_id, stuck_id, leader = with_client(begin)
    said = tool(command, "list")
    assert [row[2:] for row in rows(said, honest)] == [[str(producer_id), "Ongoing"]]
    assert [row[2:] for row in rows(said, stuck)] == [[str(stuck_id), "Empty"]]
    (row,) = rows(tool(command, "describe", "--transactional-id", honest), honest)
    assert row[2:5] == [str(producer_id), "0", "Ongoing"] and row[5] == "900000" and row[-1] == f"{topic}-0"
    where = ("--topic", topic, "--partition")
    (row,) = rows(tool(command, "describe-producers", *where, "0"), str(producer_id))
    assert row[:3] == [str(producer_id), "0", "-1"] and row[-1] == "0", "its transaction begins at offset 0"
    assert rows(tool(command, "find-hanging", *where, "0"), topic) == [], "what a coordinator will end hangs not"
    (row,) = rows(tool(command, "find-hanging", "--broker-id", str(leader), "--topic", topic), topic)
    assert row[:5] == [topic, "1", str(stuck_id), "0", "-1"] and row[5] == "0"
    assert with_client(stable) == [0, 0]
    tool(command, "abort", *where, "1", "--start-offset", "0")
    assert rows(tool(command, "find-hanging", *where, "1"), topic) == []
    tool(command, "abort", *where, "0", "--start-offset", "0")
    tool(command, "abort", *where, "0", "--start-offset", "0", fails="Could not find any open transactions")
    cluster.wait_until(lambda: with_client(stable) == [2, 2], what="readers of committed data to go on")

    coordinator = rows(tool(command, "list"), honest)[0][1]
    logs = cluster.nodes[int(coordinator)].data_directory.glob("__transaction_state-*/*.log")
    said = dump(*logs, flags=("--deep-iteration", "--transaction-log-decoder"))
    assert re.search(rf'"transactionalId":"{honest}".*"producerId":{producer_id},', said), said[:2000]


def test_offsets_and_deleted_records(tool: Run, topic: str, tmp_path: Path) -> None:
    tool(TOOLS + "ConsoleProducer", "--topic", topic, "--reader-property", "parse.key=true", stdin="k\tv\n" * 50)
    command = TOOLS + "GetOffsetShell"

    def ask(*time: str) -> dict[int, int]:
        said = tool(command, "--topic", topic, *time)
        return {int(line.split(":")[1]): int(line.split(":")[2]) for line in said.splitlines()}

    latest = ask()
    (partition,) = (index for index, offset in latest.items() if offset == 50)
    assert sum(latest.values()) == 50
    assert set(ask("--time", "earliest").values()) == {0}
    assert 0 <= ask("--time", "max-timestamp")[partition] < 50
    cut = tmp_path / "cut.json"
    wanted = {"partitions": [{"topic": topic, "partition": partition, "offset": 20}], "version": 1}
    cut.write_text(json.dumps(wanted))
    said = tool(TOOLS + "DeleteRecordsCommand", "--offset-json-file", str(cut))
    assert f"partition: {topic}-{partition}\tlow_watermark: 20" in said
    assert ask("--time", "-2")[partition] == 20


def test_what_the_cluster_says_of_itself(tool: Run, topic: str, cluster: LocalCluster) -> None:
    said = tool(TOOLS + "BrokerApiVersionsCommand")
    assert said.count("isFenced: false") == 3 and said.count("Produce(0): 0 to 13 [usable: 13]") == 3
    said = tool(TOOLS + "MetadataQuorumCommand", "describe", "--status")
    assert f"ClusterId:              {cluster.cluster_id}" in said
    assert re.search(r"LeaderId: +[123]\n", said) and said.count('"endpoints": ["CONTROLLER://127.0.0.1:') == 3
    said = tool(TOOLS + "MetadataQuorumCommand", "describe", "--replication")
    assert said.count("Follower") == 2 and said.count("Leader ") == 1
    said = tool(TOOLS + "LogDirsCommand", "--describe", "--topic-list", topic)
    described = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    assert [broker["broker"] for broker in described["brokers"]] == [1, 2, 3]
    for broker in described["brokers"]:
        (directory,) = broker["logDirs"]
        assert directory["error"] is None
        assert sorted(entry["partition"] for entry in directory["partitions"]) == [f"{topic}-{n}" for n in range(3)]
    said = tool(TOOLS + "FeatureCommand", "describe")
    assert re.search(
        r"metadata\.version\s+SupportedMinVersion: 4\.0-IV0\s+SupportedMaxVersion: 4\.2-IV1\s+FinalizedVersionLevel: 4\.2-IV1",
        said,
    ), said
    assert cluster.cluster_id in run_cluster_tool(cluster, "cluster-id")
    assert run_cluster_tool(cluster, "list-endpoints").count("unfenced") == 3


def run_cluster_tool(cluster: LocalCluster, verb: str) -> str:
    """ClusterTool wants its verb before the servers."""
    output = run_tool(TOOLS + "ClusterTool", verb, "--bootstrap-server", cluster.bootstrap_servers)
    assert output.exit_code == 0, output
    return output.stdout


def test_performance_and_verifiable_tools(tool: Run, topic: str, cluster: LocalCluster) -> None:
    sent = run_tool(
        TOOLS + "ProducerPerformance",
        *(
            "--topic",
            topic,
            "--num-records",
            "20000",
            "--record-size",
            "200",
            "--throughput",
            "-1",
            "--command-property",
        ),
        *(f"bootstrap.servers={cluster.bootstrap_servers}", "acks=all", "compression.type=lz4"),
    )
    assert "20000 records sent" in sent.stdout and sent.exit_code == 0, sent
    said = tool(TOOLS + "ConsumerPerformance", "--topic", topic, "--num-records", "20000")
    assert int(said.splitlines()[-1].split(",")[4]) == 20_000
    checked = f"{topic}-checked"
    said = tool(TOOLS + "VerifiableProducer", "--topic", checked, "--max-messages", "100", "--acks", "-1")
    events = [json.loads(line) for line in said.splitlines()]
    assert events[-1]["sent"] == events[-1]["acked"] == 100
    said = tool(TOOLS + "VerifiableConsumer", "--topic", checked, "--group-id", checked, "--max-messages", "100")
    events = [json.loads(line) for line in said.splitlines()]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 100
    assert all(event["success"] for event in events if event["name"] == "offsets_committed")
