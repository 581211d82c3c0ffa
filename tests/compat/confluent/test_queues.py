"""The programs of docs/queues.md, run as they stand: with another address, and with the functions that they leave to the reader."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

import barnabas
from tests.compat.samples import DEADLINE_S, until

PAGE = (Path(__file__).parents[3] / "docs" / "queues.md").read_text(encoding="utf-8")
PROPERTIES = {
    "errors.deadletterqueue.auto.create.topics.enable": "true",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.min.heartbeat.interval.ms": "200",
}


FAILING = """
tried = []

def ship(value):
    tried.append(value)
    print(value.decode(), flush=True)
    if value == b"bad":
        raise ValueError
    if value == b"hopeless" or (value == b"late" and tried.count(value) < 3):
        raise ConnectionError
"""
MENDED = """
def ship(value):
    print(value.decode(), flush=True)
"""
"""What a worker does with its records: it tells their values."""


def program(title: str) -> str:
    """The Python block of a section."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert isinstance(block, str)
    return block


@pytest.fixture
def bootstrap() -> Iterator[str]:
    """A broker's address."""
    with barnabas.broker(properties=PROPERTIES) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def run(bootstrap: str) -> Callable[..., dict[str, Any]]:
    """Runs a section's program on the broker; returns what it has named."""

    def execute(title: str, **given: Any) -> dict[str, Any]:
        named: dict[str, Any] = dict(given)
        exec(compile(program(title).replace("127.0.0.1:9092", bootstrap), title, "exec"), named)
        return named

    return execute


def set_group(bootstrap: str, group: str, configs: Mapping[str, str]) -> None:
    """Configs of a group."""
    entries = [ConfigEntry(*each, incremental_operation=AlterConfigOpType.SET) for each in configs.items()]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)


def begin_with_what_is_there(bootstrap: str, group: str) -> None:
    """Not at the end."""
    set_group(bootstrap, group, {"share.auto.offset.reset": "earliest"})


def write(bootstrap: str, *values: bytes) -> None:
    """Records of the topic `orders`."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce("orders", value, b"key of " + value)
    assert producer.flush(DEADLINE_S) == 0


@contextmanager
def worker(bootstrap: str, ship: str) -> Iterator[list[str]]:
    """The page's worker, a process that goes on until it is ended; what it has told so far."""
    told: list[str] = []
    text = ship + program("A worker").replace("127.0.0.1:9092", bootstrap)
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        listener = threading.Thread(target=lambda: told.extend(line.strip() for line in process.stdout or ()))
        listener.start()
        try:
            yield told
        finally:
            process.terminate()
            listener.join()


def test_the_worker_its_retries_its_dead_letters_and_their_replay(
    bootstrap: str, run: Callable[..., dict[str, Any]]
) -> None:
    write(bootstrap, b"good", b"late", b"bad", b"hopeless")
    run("Retries and dead letters")
    with worker(bootstrap, FAILING) as told:
        until(lambda: told.count("hopeless") >= 4 and told.count("late") >= 3, lambda: time.sleep(0.1))
        assert Counter(told) == {"good": 1, "bad": 1, "late": 3, "hopeless": 4}, told
    begin_with_what_is_there(bootstrap, "replay")
    run("Replay of dead letters")
    with worker(bootstrap, MENDED) as told:
        until(lambda: len(told) >= 2, lambda: time.sleep(0.1))
        assert sorted(told) == ["bad", "hopeless"]


def test_work_for_later_is_delivered_then_and_holds_up_nothing(
    bootstrap: str, run: Callable[..., dict[str, Any]]
) -> None:
    set_group(bootstrap, "later", {"share.auto.offset.reset": "earliest", "share.deliver.at.header": "due"})
    write(bootstrap, b"before")
    seen: list[tuple[bytes, float]] = []
    with ShareConsumer({"bootstrap.servers": bootstrap, "group.id": "later"}) as worker:

        def poll() -> None:
            seen.extend((each.value(), time.time()) for each in worker.poll(0.2))

        worker.subscribe(["orders"])
        until(lambda: len(seen) >= 1, poll)  # a member by now: how long it takes to join is none of the two seconds
        begun = time.time()
        due = run("Work for later")["due"] / 1000
        write(bootstrap, b"at once")
        until(lambda: len(seen) >= 3, poll)
    _, (first, at_once), (second, later) = seen
    assert (first, second) == (b"at once", b"remind me")
    assert at_once < due <= later, (begun, at_once, due, later)


def test_the_test_of_the_page_passes(run: Callable[..., dict[str, Any]]) -> None:
    named = run("In a test", begin_with_what_is_there=begin_with_what_is_there)
    named["test_an_order_that_failed_comes_again"]()
