"""What a node's properties may not say: it refuses to start rather than to be less than they promise."""

from __future__ import annotations

import pytest

from barnabas_broker.config.keys import ConfigError
from barnabas_broker.config.server import node_config

BROKER = {
    "process.roles": "broker",
    "node.id": "1",
    "log.dirs": "data",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9112",
}


@pytest.mark.parametrize(
    "secured",
    [
        {"listeners": "SASL_SSL://127.0.0.1:9092"},
        {"listeners": "PLAINTEXT://127.0.0.1:9092,ssl://127.0.0.1:9093"},
        {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT, OUTSIDE:SASL_PLAINTEXT"},
    ],
)
def test_a_listener_that_is_meant_to_be_secured_is_not_opened_in_plain_text(secured: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="there is no TLS and no SASL yet"):
        node_config(BROKER | secured)


def test_listeners_in_plain_text_have_any_other_name() -> None:
    plain = {"listeners": "INSIDE://127.0.0.1:9092", "listener.security.protocol.map": "INSIDE:PLAINTEXT"}
    assert [point.listener for point in node_config(BROKER | plain).server.kafka_endpoints()] == ["INSIDE"]
