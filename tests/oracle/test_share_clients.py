"""Clients that know share groups, Kafka's own tools and librdkafka's ShareConsumer, at Apache Kafka and at Barnabas: both serve them alike.

Each test drives the same clients at both brokers at once, and compares what they printed or were given. A record that is delivered
again may come in another batch at each broker; what is compared are records, delivery counts and outcomes.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import AcknowledgeType, Consumer, Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.samples import DEADLINE_S, until
from tests.oracle.answers import Side
from tests.oracle.apache import run_tool
from tests.oracle.cases.share import alter_group
from tests.oracle.conftest import Pair

TOOLS = "org.apache.kafka.tools."
VERIFIABLE = TOOLS + "VerifiableShareConsumer"
CONSOLE = TOOLS + "consumer.ConsoleShareConsumer"
GROUPS = TOOLS + "consumer.group.ShareGroupCommand"
CONFIGS = TOOLS + "ConfigCommand"
COMMAND = Path(sys.executable).with_name("barnabas")
RECORDS = 12
DELIVERIES_MAX = 5
"""The default of share.delivery.count.limit."""
LOCK_S = 1.0
LATE_S = 10.0
"""A loaded machine."""
_numbers = itertools.count(1)
pytestmark = pytest.mark.timeout(900)
"""Some run thirty of Kafka's tools, each of which takes a second where nothing else runs, and ten beside a busy machine's work."""

Seen = TypeVar("Seen")


class At:
    """One of the two brokers, for clients."""

    def __init__(self, side: Side, name: str) -> None:
        self.side = side
        self.bootstrap = f"{side.host}:{side.port}"
        self.name = name
        """Of the test's topic and of its group."""

    def write(self, *, partitions: int = 2, records: int = RECORDS) -> None:
        """Make the topic, write records to its partitions in turn, and have the group read from the beginning."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(self.name, partitions, 1)])[self.name].result(DEADLINE_S)
        self.side.wait_for_topic(self.name, partitions)
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(records):
            producer.produce(self.name, b"%d" % number, b"key-%d" % number, partition=number % partitions)
        assert producer.flush(DEADLINE_S) == 0
        self.alter({"share.auto.offset.reset": "earliest"})

    def alter(self, configs: dict[str, str]) -> None:
        """The group's configs."""
        alter_group(self.side, self.name, configs)

    def tool(self, main_class: str, *arguments: str, fails: str | None = None) -> str:
        """What one of Kafka's tools prints, the names of the test and of the broker left out; `fails` is in what it says as it fails."""
        said = run_tool(main_class, "--bootstrap-server", self.bootstrap, *arguments, timeout_s=2 * DEADLINE_S)
        if fails is None:
            assert said.exit_code == 0 and "Exception" not in said.stdout + said.stderr, (self.side.name, said)
        else:
            assert fails in said.stdout + said.stderr, (self.side.name, said)
        shown = said.stdout.replace(self.bootstrap, "BROKER").replace(self.name, "NAME")
        return re.sub(r"[ \t]+", " ", shown)

    def consumer(self, mode: str = "explicit", **more: Any) -> ShareConsumer:
        """A librdkafka share consumer of the group, subscribed."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": self.name, "share.acknowledgement.mode": mode}
        consumer = ShareConsumer(settings | {"log_level": 0} | more)
        consumer.subscribe([self.name])
        return consumer

    def poll(self, consumer: ShareConsumer) -> list[Message]:
        """What comes next; waits for it."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            found = list(consumer.poll(0.5))
            if found:
                assert not any(message.error() for message in found), [message.error() for message in found]
                return found
            assert time.monotonic() < deadline, f"{self.side.name} delivers nothing"


@pytest.fixture
def alike(pair: Pair) -> Callable[[Callable[[At], Seen]], Seen]:
    """Runs something at both brokers at once, compares what it returns, and returns it."""

    def run(drive: Callable[[At], Seen]) -> Seen:
        name = f"shared-{next(_numbers)}"
        with ThreadPoolExecutor() as at_once:
            theirs, ours = at_once.map(drive, [At(pair.apache, name), At(pair.ours, name)])
        assert ours == theirs, f"Apache Kafka {theirs!r}, Barnabas {ours!r}"
        return theirs

    return run


Alike = Callable[[Callable[[At], Any]], Any]


# ---- Kafka's tools ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "pattern", "deliveries"),
    [
        ("auto", "", RECORDS),
        ("sync", "accept", RECORDS),
        ("async", "accept,release", RECORDS // 2 * (1 + DELIVERIES_MAX)),
        ("sync", "reject,accept,renew", RECORDS + RECORDS // 3),
    ],
)
def test_verifiable_share_consumer(alike: Alike, mode: str, pattern: str, deliveries: int) -> None:
    """A partition has as many records as make every place of the pattern equally frequent. A renewed record is shown again."""

    def drive(at: At) -> tuple[Any, Any, Any]:
        at.write(partitions=1)
        arguments = ["--topic", at.name, "--group-id", at.name, "--offset-reset-strategy", "earliest"]
        arguments += ["--acknowledgement-mode", mode, "--max-messages", str(deliveries)]
        arguments += ["--ack-pattern", pattern] if pattern else []
        events = [json.loads(line) for line in at.tool(VERIFIABLE, *arguments).splitlines()]
        consumed: Counter[int] = Counter()
        acknowledged: Counter[int] = Counter()
        for event in events:
            for partition in event.get("partitions", ()):
                {"records_consumed": consumed}.get(event["name"], acknowledged).update(partition["offsets"])
        errors = {event.get("error") for event in events if event["name"] == "offsets_acknowledged"}
        return sorted(consumed.items()), sorted(acknowledged.items()), errors

    consumed, acknowledged, errors = alike(drive)
    assert sum(count for _, count in consumed) == deliveries and len(consumed) == RECORDS
    assert acknowledged and errors == {None}


def test_console_share_consumer(alike: Alike) -> None:
    shown = [
        word for name in ("delivery", "offset", "partition") for word in ("--formatter-property", f"print.{name}=true")
    ]

    def drive(at: At) -> list[list[str]]:
        at.write()
        read = ["--topic", at.name, "--group", at.name, "--max-messages", str(RECORDS), *shown]
        first = at.tool(CONSOLE, *read, "--release")
        second = at.tool(CONSOLE, *read)
        at.alter({"share.auto.offset.reset": "earliest"})
        at.tool(GROUPS, "--reset-offsets", "--group", at.name, "--all-topics", "--to-earliest", "--execute")
        rejected = at.tool(CONSOLE, *read, "--reject")
        nothing = at.tool(CONSOLE, "--topic", at.name, "--group", at.name, "--timeout-ms", "3000")
        return [sorted(said.splitlines()) for said in (first, second, rejected, nothing)]

    released, accepted, rejected, nothing = alike(drive)
    assert len(released) == RECORDS and all("Delivery:1" in line for line in released)
    assert len(accepted) == RECORDS and all("Delivery:2" in line for line in accepted)
    assert len(rejected) == RECORDS and nothing == []


def test_every_verb_of_kafka_share_groups(alike: Alike, tmp_path: Path) -> None:
    def drive(at: At) -> dict[str, Any]:
        at.write()
        said: dict[str, Any] = {}

        def groups(label: str, *arguments: str, fails: str | None = None) -> str:
            shown = at.tool(GROUPS, *arguments, fails=fails)
            # Other tests have groups, too.
            said[label] = [line for line in shown.splitlines() if "NAME" in line and "Exception" not in line]
            return shown

        one = ("--group", at.name)
        reset = ("--reset-offsets", *one)
        member = at.consumer()
        while not list(member.poll(0.5)):
            pass
        said["members"] = at.tool(GROUPS, "--describe", *one, "--members").splitlines()[0].split()
        row = at.tool(GROUPS, "--describe", *one, "--members", "--verbose").splitlines()
        said["member"] = [line.split()[-1] for line in row if line.startswith("NAME")]
        groups("state with a member", "--describe", *one, "--state", "--verbose")
        groups(
            "reset of one that is not empty", *reset, "--all-topics", "--to-earliest", "--execute", fails="not empty"
        )
        groups("delete of one that is not empty", "--delete", *one, fails="GroupNotEmptyException")
        member.close()
        groups("list", "--list")
        groups("list by state", "--list", "--state", "Empty")
        groups("state", "--describe", *one, "--state")
        groups("states of all", "--describe", "--all-groups", "--state")
        groups("dry run", *reset, "--all-topics", "--to-latest", "--dry-run")
        # Which partitions the member had acquired, and so had written of, is chance.
        groups("all to earliest", *reset, "--all-topics", "--to-earliest", "--execute")
        for label, *words in (
            ("to latest", "--topic", f"{at.name}:0", "--to-latest"),
            ("to an offset", "--topic", f"{at.name}:1", "--to-offset", "3"),
            ("to a time", "--all-topics", "--to-datetime", "2020-01-01T00:00:00.000"),
            ("to current", "--all-topics", "--to-current"),
            ("to earliest", "--topic", at.name, "--to-earliest"),
        ):
            groups(label, *reset, *words, "--execute")
            groups(f"offsets {label}", "--describe", *one, "--offsets", "--verbose")
        plan = tmp_path / f"{at.side.name}.csv"
        exported = at.tool(GROUPS, *reset, "--all-topics", "--to-latest", "--dry-run", "--export")
        plan.write_text(exported.replace("NAME", at.name).strip() + "\n")
        groups("from a file", *reset, "--from-file", str(plan), "--execute")
        groups("offsets from a file", "--describe", *one)
        groups("delete offsets", "--delete-offsets", *one, "--topic", at.name)
        groups("offsets deleted", "--describe", *one)
        said["typed"] = [
            line for line in at.tool(TOOLS + "GroupsCommand", "--list", "--share").splitlines() if "NAME" in line
        ]
        groups("delete", "--delete", *one)
        groups("deleted", "--describe", *one, fails="GroupIdNotFound")
        return said

    said = alike(drive)
    assert [line.split()[-2:] for line in said["offsets to latest"]] == [["6", "0"], ["0", "6"]], said[
        "offsets to latest"
    ]
    assert "was successful" in said["delete"][0]


def test_configs_of_groups(alike: Alike) -> None:
    def drive(at: At) -> list[str]:
        one = ("--alter", "--group", at.name, "--add-config")
        at.tool(CONFIGS, *one, "share.record.lock.duration.ms=20000,share.delivery.count.limit=3")
        shown = at.tool(CONFIGS, "--describe", "--group", at.name)
        for bad in (
            "share.delivery.count.limit=1",
            "share.delivery.count.limit=100",
            "share.auto.offset.reset=by_duration:yesterday",
            "share.isolation.level=dirty",
            "share.partition.max.record.locks=99",
            "errors.deadletterqueue.topic.name=__mine",
        ):
            at.tool(CONFIGS, *one, bad, fails=bad.partition("=")[0])
        at.tool(CONFIGS, *one, "share.auto.offset.reset=by_duration:PT1H")
        at.tool(CONFIGS, "--alter", "--group", at.name, "--delete-config", "share.delivery.count.limit")
        shown += at.tool(CONFIGS, "--describe", "--group", at.name)
        return re.findall(r"share\.[a-z.]+=\S+", shown)

    assert "share.delivery.count.limit=3" in alike(drive)


# ---- our command line ------------------------------------------------------------------------------------------------


def test_barnabas_group_knows_share_groups(alike: Alike) -> None:
    def drive(at: At) -> dict[str, Any]:
        at.write(partitions=1)
        member = at.consumer("implicit")
        seen = 0
        while seen < RECORDS:
            seen += len(at.poll(member))
        member.commit_sync(timeout=DEADLINE_S)
        member.close()

        def group(*words: str, code: int = 0) -> str:
            command = [str(COMMAND), "group", *words, "-b", at.bootstrap, "-o", "json"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
            assert done.returncode == code, (at.side.name, words, done)
            return done.stdout.replace(at.name, "NAME")

        said = {
            "described": json.loads(group("describe", at.name)),
            "lag": group("lag", at.name),
            "seek": group("seek", at.name, "--to", "5", "--execute"),
            "lag then": group("lag", at.name),
            "partitions": group("delete-offsets", at.name, f"{at.name}:0", "--yes", code=2),
            "forgotten": group("delete-offsets", at.name, at.name, "--yes"),
            "deleted": group("delete", at.name, "--yes"),
        }
        for row in said["described"]["partitions"]:
            row["committed"] = None  # what is kept may trail by a write
        return said

    said = alike(drive)
    assert (said["described"]["type"], said["described"]["total_lag"]) == ("share", 0)
    assert json.loads(said["lag then"])["groups"][0]["lag"] == RECORDS - 5


# ---- librdkafka ------------------------------------------------------------------------------------------------------


def test_two_share_consumers_divide_the_records_among_them(alike: Alike) -> None:
    def drive(at: At) -> list[tuple[int, int, int]]:
        at.write(records=200)
        consumers = [at.consumer("implicit"), at.consumer("implicit")]
        seen: list[tuple[int, int, int]] = []

        def look() -> None:
            for consumer in consumers:
                for message in consumer.poll(0.2):
                    seen.append((message.partition(), message.offset(), message.delivery_count()))

        until(lambda: len(seen) >= 200, look)
        for consumer in consumers:
            consumer.close()
        return sorted(seen)

    assert alike(drive) == [(partition, offset, 1) for partition in range(2) for offset in range(100)]


def test_accepted_released_and_rejected_records(alike: Alike) -> None:
    """By offset, modulo 3. A released record comes again until its last delivery."""
    types = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)
    deliveries = RECORDS // 3 * (2 + DELIVERIES_MAX)

    def drive(at: At) -> tuple[list[tuple[int, int]], set[str], set[str]]:
        at.write(partitions=1)
        consumer = at.consumer()
        told: set[str] = set()
        consumer.set_acknowledgement_commit_callback(lambda offsets, error: told.add(repr(error)))
        seen: list[tuple[int, int]] = []
        outcomes: set[str] = set()
        while len(seen) < deliveries:
            for message in at.poll(consumer):
                seen.append((message.offset(), message.delivery_count()))
                consumer.acknowledge(message, types[message.offset() % 3])
            outcomes |= {repr(error) for error in consumer.commit_sync(timeout=DEADLINE_S).values()}
        more = list(consumer.poll(1.0))
        consumer.close()
        assert not more, (at.side.name, [(message.offset(), message.delivery_count()) for message in more])
        return sorted(seen), outcomes, told

    seen, outcomes, _ = alike(drive)
    assert Counter(offset for offset, _ in seen)[1] == DELIVERIES_MAX and outcomes == {"None"}


def test_records_of_one_that_closes_or_falls_silent_reach_another(alike: Alike) -> None:
    """Who closes releases what it has; who is silent has it until the lock ends."""

    def drive(at: At) -> tuple[list[int], list[int]]:
        at.write(partitions=1)
        at.alter({"share.record.lock.duration.ms": str(int(1000 * LOCK_S))})
        first, second = at.consumer(), at.consumer()
        held = at.poll(first)
        begun = time.monotonic()
        again = at.poll(second)
        took_s = time.monotonic() - begun
        first.close()
        second.close()
        third = at.consumer("implicit")
        begun = time.monotonic()
        released = at.poll(third)
        third.close()
        assert len(held) == len(again) == len(released) == RECORDS, (at.side.name, len(held), len(again), len(released))
        assert took_s < LOCK_S + LATE_S, (at.side.name, took_s)
        return [message.delivery_count() for message in again], [message.delivery_count() for message in released]

    assert alike(drive) == ([2] * RECORDS, [3] * RECORDS)


def test_dead_letters(alike: Alike) -> None:
    """Rejected and exhausted records are in the dead letter topic, with Kafka's headers, with or without key and value.

    The topic is there before: of what dies while Kafka makes it, Kafka may lose the letters (it finds no id of the topic, and archives).
    """

    def drive(at: At) -> dict[str, Any]:
        at.write(partitions=1, records=2)
        at.side.topic(f"dlq.{at.name}", errors_deadletterqueue_group_enable="true")
        found: dict[str, Any] = {}
        for copied in ("false", "true"):
            at.alter(
                {
                    "errors.deadletterqueue.topic.name": f"dlq.{at.name}",
                    "errors.deadletterqueue.copy.record.enable": copied,
                    "share.delivery.count.limit": "2",
                }
            )
            consumer = at.consumer()
            left = {(0, 1), (1, 1), (1, 2)}
            while left:
                for message in at.poll(consumer):
                    left.discard((message.offset(), message.delivery_count()))
                    wanted = AcknowledgeType.REJECT if message.offset() == 0 else AcknowledgeType.RELEASE
                    consumer.acknowledge(message, wanted)
                consumer.commit_sync(timeout=DEADLINE_S)
            consumer.close()
            found[copied] = _dead_letters(at, 2 if copied == "false" else 4)[-2:]
            at.tool(GROUPS, "--reset-offsets", "--group", at.name, "--all-topics", "--to-earliest", "--execute")
        return found

    found = alike(drive)
    (rejected, exhausted), (copied, _) = found["false"], found["true"]
    assert rejected[:2] == (None, None) and copied[:2] == (b"key-0", b"0")
    assert dict(rejected[2])["__dlq.errors.message"] == b"Offset rejected by client."
    assert dict(exhausted[2])["__dlq.errors.delivery.count"] == b"2"


def _dead_letters(at: At, count: int) -> list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]]:
    """All of them, by the offset of what died; a crash apart there are no doubles."""
    reader = Consumer(
        {
            "bootstrap.servers": at.bootstrap,
            "group.id": f"{at.name}-reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 200,
            "log_level": 0,
        }
    )
    reader.subscribe([f"dlq.{at.name}"])
    seen: list[Message] = []

    def look() -> None:
        seen.extend(message for message in reader.consume(10, 0.2) if message.error() is None)

    until(lambda: len(seen) >= count, look)
    look()
    reader.close()
    assert len(seen) == count, (at.side.name, len(seen))
    in_order = [seen[first : first + 2] for first in range(0, count, 2)]
    return [
        (message.key(), message.value(), [(name, _anonymous(at, value)) for name, value in message.headers() or ()])
        for two in in_order
        for message in sorted(two, key=lambda each: dict(each.headers() or ())["__dlq.errors.offset"])
    ]


def _anonymous(at: At, value: bytes) -> bytes:
    return value.replace(at.name.encode(), b"NAME")
