"""What clients say of themselves: once each, of whichever broker they pushed to last, in words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas_admin.client_view import SHOWN_MAX, facts, read
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsResponse,
    PushingClient,
    Reading,
)

ONE, OTHER = Uuid(bytes(15) + b"\x07"), Uuid(bytes(15) + b"\x08")
CONSUMER = "org.apache.kafka.consumer."


def client(instance: Uuid, ago_ms: int, *readings: Reading, name: str = "app") -> PushingClient:
    return PushingClient(instance, name, "10.0.0.1", "java 4.4.0", "g", "m", ago_ms, list(readings))


class Brokers:
    """Stands in for a ClusterClient: what each broker answers, or raises."""

    def __init__(self, **answers: Any) -> None:
        self._answers = {int(name[1:]): answer for name, answer in answers.items()}

    async def metadata(self) -> Any:
        return SimpleNamespace(brokers=self._answers)

    async def call(self, request: Any, *, broker_id: int) -> Any:
        answer = self._answers[broker_id]
        if isinstance(answer, Exception):
            raise answer
        return GetTelemetrySubscriptionsResponse(clients=answer)


def brokers(**answers: Any) -> Any:
    return Brokers(**answers)


async def test_the_newest_push_of_a_client_counts_whichever_broker_has_it() -> None:
    lag = CONSUMER + "fetch.manager.records.lag.max"
    rows = await read(
        brokers(
            b1=[client(ONE, 90_000, Reading(lag, "t", "0", "", 9.0))],
            b2=[client(ONE, 5_000, Reading(lag, "t", "0", "", 1.0), Reading(lag, "u", "1", "", 3.0), name="App")],
            b3=KafkaError.of(ErrorCode.UNSUPPORTED_VERSION, "a former version"),
            b4=OSError("away"),
            b5=[client(OTHER, 0, Reading("some.thing", "", "", "", 1.0))],
        ),
        group="g",
    )
    assert [(row["client"], row["broker"], row["figures"]) for row in rows] == [
        ("App", 2, {"lag": 3.0}),
        ("app", 5, {}),
    ]
    first, second = facts(rows)
    assert first == "client App at 10.0.0.1 (java 4.4.0) said 5s ago: records behind 3"
    assert "nothing that is known here by name" in second
    (row,) = await read(
        brokers(b1=[client(ONE, 1, Reading(lag, "t", "0", "", 1), Reading(lag, "u", "0", "", 3))]), topic="t"
    )
    assert row["figures"] == {"lag": 1}, "of this topic"


async def test_what_a_client_counted_is_the_sum_over_the_brokers_that_it_pushed_to() -> None:
    counted, told = CONSUMER + "coordinator.rebalance.total", CONSUMER + "coordinator.rebalance.latency.avg"
    first, then = Reading(counted, "", "", "", 2.0), Reading(counted, "", "", "", 0.0)
    (row,) = await read(
        brokers(
            b1=[client(ONE, 9_000, first, Reading(told, "", "", "", 7.0))],
            b2=[client(ONE, 10, then, Reading(told, "", "", "", 5.0))],
            b3=[client(ONE, 20_000)],
        ),
        group="g",
    )
    assert row["figures"] == {"rebalances": 2.0, "rebalance_ms": 5.0}


async def test_who_may_not_see_it_is_told_so() -> None:
    refused = KafkaError.of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")
    with pytest.raises(KafkaError):
        await read(brokers(b1=refused), topic="t")


def test_many_clients_are_counted() -> None:
    row = {"client": "c", "host": "h", "software": "s", "pushed_ago_ms": 1_000, "figures": {"latency_ms": 1.23456}}
    said = facts([row] * (SHOWN_MAX + 3))
    assert len(said) == SHOWN_MAX + 1 and said[-1] == "and 3 clients more" and "request latency 1.235 ms" in said[0]
