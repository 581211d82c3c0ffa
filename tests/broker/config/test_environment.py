"""Properties from the environment, as Kafka's container images take them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas_broker.config.environment import key_of, properties_of
from barnabas_broker.config.keys import ConfigError
from barnabas_broker.main import EXIT_USAGE, main


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKA_NODE_ID", "node.id"),
        ("KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS", "controller.quorum.bootstrap.servers"),
        (
            "KAFKA_LISTENER_NAME_CLIENTS_SCRAM___SHA___512_SASL_JAAS_CONFIG",
            "listener.name.clients.scram-sha-512.sasl.jaas.config",
        ),
        ("KAFKA_MY__OWN_KEY", "my_own.key"),
        ("KAFKA_CFG_PROCESS_ROLES", "process.roles"),
        ("KAFKA_CFG_MY__OWN_KEY", "my_own.key"),
        ("KAFKA_A____B", "a-.b"),
    ],
)
def test_a_variable_is_the_key_that_kafkas_images_make_of_it(variable: str, key: str) -> None:
    assert key_of(variable) == key


def test_what_is_of_a_jvm_is_no_property() -> None:
    environment = {
        "KAFKA_HEAP_OPTS": "-Xmx1G",
        "KAFKA_JMX_PORT": "1",
        "KAFKA_": "x",
        "PATH": "/bin",
        "KAFKA_LOG_DIRS": " /d ",
    }
    assert properties_of(environment) == {"log.dirs": "/d"}


def test_two_spellings_of_one_key_must_agree() -> None:
    agreed = {"KAFKA_CFG_NODE_ID": "1", "KAFKA_NODE_ID": "1 ", "KAFKA_CFG_": "x"}
    assert properties_of(agreed) == {"node.id": "1"}
    with pytest.raises(ConfigError, match=r"KAFKA_CFG_NODE_ID=1 and KAFKA_NODE_ID=2 both set node\.id"):
        properties_of(agreed | {"KAFKA_NODE_ID": "2"})


def test_a_flag_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker\nnode.id=1\nlog.dirs=/one\nbroker.rack=file\ncontroller.quorum.bootstrap.servers=127.0.0.1:1\n"
    )
    monkeypatch.setenv("KAFKA_BROKER_RACK", "environment")
    monkeypatch.setenv("KAFKA_NODE_ID", "2")
    monkeypatch.setenv("KAFKA_SSL_KEY_PASSWORD", "hush")
    words = ["check", "-c", str(file), "--override", "node.id=3", "--values"]
    assert main([*words, "-o", "json"]) == 0
    found = {row["key"]: (row["value"], row["source"]) for row in json.loads(capsys.readouterr().out)["values"]}
    assert found["node.id"] == ("3", "flag")
    assert found["broker.rack"] == ("environment", "environment")
    assert found["log.dirs"] == ("/one", "file")
    assert found["log.format"] == ("text", "default")
    assert found["ssl.key.password"] == ("(hidden)", "environment")
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "hush" not in text and any(line.split() == ["node.id", "flag", "3"] for line in text.splitlines())


@pytest.mark.parametrize("variable", ["KAFKA_PROCESS_ROLES", "KAFKA_CFG_PROCESS_ROLES"])
def test_no_file_is_needed_where_the_environment_says_what_the_node_is(
    variable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info"]) == EXIT_USAGE
    assert "name the node's properties file" in capsys.readouterr().err
    monkeypatch.setenv(variable, "broker")
    assert main(["info"]) == EXIT_USAGE
    assert "node.id is required" in capsys.readouterr().err, "not the file"
    assert main(["check"]) == EXIT_USAGE
    assert "node.id is required" in capsys.readouterr().err
