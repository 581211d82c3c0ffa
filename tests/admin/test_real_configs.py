"""Configs and log levels of brokers that run, read and changed by the command line."""

from __future__ import annotations

import time

import pytest

from barnabas_admin.local_cluster import LocalCluster
from tests.admin.test_real_cluster import Cli

pytestmark = pytest.mark.cluster

KEY = "message.max.bytes"


@pytest.fixture
def commands(barnabas_cluster: LocalCluster) -> Cli:
    return Cli(barnabas_cluster.admin_addresses)


def value(commands: Cli, broker: str) -> tuple[str, str]:
    (row,) = commands.json("broker", "config", "get", broker, KEY)["configs"]
    return row["value"], row["source"]


def wait_for(commands: Cli, **wanted: tuple[str, str]) -> None:
    """Brokers read the metadata a moment after a change is answered."""
    deadline = time.monotonic() + 10
    while (found := {name: value(commands, name[1:]) for name in wanted}) != wanted:
        assert time.monotonic() < deadline, found


def test_a_config_is_set_for_one_broker_for_all_and_taken_back(commands: Cli) -> None:
    default = value(commands, "1")
    assert default[1] in ("default", "file")
    commands.run("cluster", "config", "set", f"{KEY}=2000000")
    wait_for(commands, b1=("2000000", "cluster"), b2=("2000000", "cluster"))
    commands.run("broker", "config", "set", "2", f"{KEY}=3000000")
    wait_for(commands, b1=("2000000", "cluster"), b2=("3000000", "broker"))
    commands.run("broker", "config", "set", "2", f"{KEY}=4000000", "--dry")
    assert value(commands, "2") == ("3000000", "broker")
    (differs,) = commands.json("cluster", "config", "diff", status=1)["differences"]
    assert (differs["key"], differs["values"]["2"]) == (KEY, "3000000")
    (differs,) = commands.json("broker", "config", "diff", "1", "2", status=1)["differences"]
    assert differs["values"] == {"1": "2000000", "2": "3000000"}
    commands.run("broker", "config", "unset", "2", KEY)
    wait_for(commands, b2=("2000000", "cluster"))
    commands.run("broker", "config", "diff", "1", "2")
    assert KEY in [row["key"] for row in commands.json("cluster", "config", "get")["configs"]]
    commands.run("cluster", "config", "unset", KEY)
    wait_for(commands, b1=default, b2=default)


def test_a_group_has_configs_before_it_has_members(commands: Cli) -> None:
    key = "consumer.session.timeout.ms"

    def value_of_group() -> tuple[str, str]:
        (row,) = commands.json("group", "config", "get", "shop", key)["configs"]
        return row["value"], row["source"]

    def wait_until(wanted: tuple[str, str]) -> None:
        deadline = time.monotonic() + 10
        while (found := value_of_group()) != wanted:
            assert time.monotonic() < deadline, found

    wait_until(("45000", "default"))
    commands.run("group", "config", "set", "shop", f"{key}=50000", "--dry")
    wait_until(("45000", "default"))
    assert b"group shop: set" in commands.run("group", "config", "set", "shop", f"{key}=50000").stdout
    wait_until(("50000", "group"))
    assert [row["key"] for row in commands.json("group", "config", "get", "shop", "--overrides")["configs"]] == [key]
    assert b"60000" in commands.run("group", "config", "set", "shop", f"{key}=70000", status=1).stderr
    commands.run("group", "config", "unset", "shop", key)
    wait_until(("45000", "default"))


def test_what_cannot_be_is_refused_in_words(commands: Cli) -> None:
    commands.run("broker", "config", "get", "9", status=3)
    assert (
        b"did you mean message.max.bytes"
        in commands.run("broker", "config", "get", "1", "mesage.max.bytes", status=3).stderr
    )
    assert b"INVALID_CONFIG" in commands.run("cluster", "config", "set", f"{KEY}=much", status=1).stderr
    assert b"node.id" in commands.run("broker", "config", "set", "1", "node.id=7", status=1).stderr


def test_log_levels_change_while_a_broker_runs(commands: Cli, barnabas_cluster: LocalCluster) -> None:
    logger = "barnabas_replication"
    commands.run("broker", "log-level", "3", f"{logger}=debug")
    shown = commands.run("broker", "log-level", "3").stdout.decode().splitlines()
    assert f"{logger} DEBUG" in [" ".join(line.split()) for line in shown]
    commands.run("broker", "log-level", "3", f"{logger}=")
    assert not any(
        f"{logger} " in line for line in commands.run("broker", "log-level", "3").stdout.decode().splitlines()
    )
    assert b"there is no logger" in commands.run("broker", "log-level", "3", "nonsense=INFO", status=1).stderr
