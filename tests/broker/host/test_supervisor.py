"""The process that supervises, where no node need be started to see what it does."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas_broker.config.keys import ConfigError
from barnabas_broker.host import supervisor
from barnabas_broker.host.directory import HostDirectory
from barnabas_broker.host.layout import HostPlan, plan_host
from barnabas_broker.host.supervision import Wish
from barnabas_broker.host.supervisor import HostFacts, Supervisor
from barnabas_broker.node.service_manager import ServiceManager

PROPERTIES = {
    "node.id": "101",
    "brokers": "2",
    "log.dirs": "/nowhere",
    "controller.quorum.bootstrap.servers": "127.0.0.1:1",
}


@pytest.fixture
def directory() -> Iterator[HostDirectory]:
    here = Path(f"/tmp/hs-{os.getpid()}")
    yield HostDirectory(str(here))
    subprocess.run(["rm", "-rf", str(here)], check=True)


def make_supervisor(directory: HostDirectory) -> Supervisor:
    plan = plan_host(PROPERTIES, cores=range(2), host_name="h")
    facts = HostFacts(
        plan=plan,
        digests={node.name: "d" for node in plan.nodes},
        descriptors_max=1024,
        is_forked=True,
        service_manager=ServiceManager(),
        watchdog_s=None,
        environment={},
    )
    return Supervisor(
        facts, directory, plan=lambda more: plan_host(PROPERTIES | dict(more), cores=range(2), host_name="h")
    )


class Replaced(Exception):
    """The process would be another one now."""


def test_an_upgraded_package_is_not_run_from_memory(directory: HostDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(self: Supervisor) -> None:
        raise Replaced

    monkeypatch.setattr(Supervisor, "_replace", replace)
    monkeypatch.setattr(supervisor, "start_node", lambda launch: pytest.fail("it was started from memory"))
    host = make_supervisor(directory)
    monkeypatch.setattr(supervisor, "installed_package", lambda: (1, 2))
    with pytest.raises(Replaced):
        host._obey()
    assert not directory.names_held()


def test_what_cannot_be_started_waits_with_its_reason(
    directory: HostDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(launch: object) -> int:
        raise BlockingIOError(11, "too many processes")

    monkeypatch.setattr(supervisor, "start_node", fail)
    host = make_supervisor(directory)
    host._obey()
    nodes = host._status()["nodes"]
    assert [node["state"] for node in nodes] == ["waiting", "waiting"]
    assert all("too many processes" in node["reason"] for node in nodes) and not directory.names_held()


@pytest.mark.parametrize("name", ["broker-102", "102"])
def test_a_node_is_named_by_its_id_too(directory: HostDirectory, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    host = make_supervisor(directory)
    asked: list[tuple[str, Wish]] = []
    monkeypatch.setattr(host._supervision, "wants", lambda node, wish, now_ms: asked.append((node, wish)))
    assert host._reply(["restart", name]) == {"node": "broker-102"}
    assert asked == [("broker-102", Wish.RESTART)]


@pytest.mark.parametrize("words", [[], ["restart"], ["restart", "7"], ["kill", "102"], ["status", "102"], ["plan"]])
def test_what_nobody_understands_is_answered_in_words(directory: HostDirectory, words: list[str]) -> None:
    assert "ask for status" in make_supervisor(directory)._reply(words)["error"]


def test_it_says_which_brokers_there_would_be_before_a_file_is_changed(directory: HostDirectory) -> None:
    host = make_supervisor(directory)
    assert host._reply(["plan", "4"]) == {"brokers": [101, 102, 103, 104]}
    assert "use auto" in host._reply(["plan", "0"])["error"]
    assert not host._is_outdated


def test_asked_to_read_its_properties_anew_it_answers_and_is_replaced(directory: HostDirectory) -> None:
    host = make_supervisor(directory)
    assert host._reply(["reload"]) == {"brokers": [101, 102]}
    assert host._is_outdated


def test_properties_that_would_be_refused_are_not_read_anew(directory: HostDirectory) -> None:
    def refuse(more: object) -> HostPlan:
        raise ConfigError("two nodes have one port")

    host = make_supervisor(directory)
    host._plan = refuse
    assert host._reply(["reload"]) == {"error": "two nodes have one port"}
    assert not host._is_outdated
