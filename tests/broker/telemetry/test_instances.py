"""When a client may ask and push, and what it is answered else: Kafka's order of checks."""

from __future__ import annotations

import pytest

from barnabas_broker.telemetry import instances as module
from barnabas_broker.telemetry.instances import Instance, Instances
from barnabas_broker.telemetry.subscriptions import Client, Subscriptions
from barnabas_quorum.records import ConfigResourceType
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Uuid
from tests.support.images import make_image

INTERVAL_MS = 10_000
NOW_MS = 1_700_000_000_000


def client(number: int = 7) -> Client:
    return Client(Uuid(bytes(15) + bytes((number,))), "c", "java", "4.4.0", "127.0.0.1", 1)


class Broker:
    """Instances, at a time that the test moves."""

    def __init__(self) -> None:
        self.subscriptions = Subscriptions()
        self.subscribe("a.")
        self.instances = Instances(self.subscriptions)
        self.now_ms = NOW_MS

    def subscribe(self, metrics: str) -> None:
        values = {"metrics": metrics, "interval.ms": str(INTERVAL_MS)}
        self.subscriptions.follow(make_image(configs={(ConfigResourceType.CLIENT_METRICS, "s"): values}).configs)

    def get(self, number: int = 7) -> Instance | ErrorCode:
        try:
            return self.instances.get(client(number), self.now_ms)
        except KafkaError as error:
            return error.code

    def push(self, subscription_id: int | None = None, *, number: int = 7, **told: int | bool) -> ErrorCode:
        wanted = self.subscriptions.wanted_of(client(number)).subscription_id
        fields = {"is_last": False, "compression": 4, "size_bytes": 10, "bytes_max": 100} | told
        try:
            self.instances.check_push(
                client(number),
                subscription_id=wanted if subscription_id is None else subscription_id,
                now_ms=self.now_ms,
                **fields,  # type: ignore[arg-type]
            )
        except KafkaError as error:
            assert error.message
            return error.code
        return ErrorCode.NONE


def test_a_client_asks_once_an_interval_and_its_first_push_may_come_at_any_time() -> None:
    broker = Broker()
    found = broker.get()
    assert isinstance(found, Instance) and found.wanted.metrics == ("a.",)
    assert broker.get() is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    broker.now_ms += 3
    assert broker.push() is ErrorCode.NONE
    for _ in range(2):
        broker.now_ms += INTERVAL_MS - 1
        assert broker.push() is broker.get() is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        broker.now_ms += 1
        assert broker.push() is ErrorCode.NONE
    broker.now_ms += INTERVAL_MS
    assert isinstance(broker.get(), Instance)


def test_after_a_change_of_subscriptions_a_client_asks_at_once() -> None:
    broker = Broker()
    broker.get()
    before = broker.subscriptions.wanted_of(client()).subscription_id
    assert broker.push() is ErrorCode.NONE
    broker.now_ms += INTERVAL_MS
    broker.subscribe("b.")
    assert broker.push(before) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    found = broker.get()
    assert isinstance(found, Instance) and found.wanted.metrics == ("b.",)
    assert broker.get() is ErrorCode.THROTTLING_QUOTA_EXCEEDED


@pytest.mark.parametrize(
    ("told", "code"),
    [
        ({"compression": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"compression": -1}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"compression": 0}, ErrorCode.NONE),
        ({"size_bytes": 101}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"size_bytes": 101, "compression": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"subscription_id": 1, "compression": 5}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"number": 0, "subscription_id": 1}, ErrorCode.INVALID_REQUEST),
        ({"number": 1, "subscription_id": 1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_push_is_refused_for_the_first_reason_in_kafkas_order(told: dict[str, int], code: ErrorCode) -> None:
    broker = Broker()
    broker.get()
    assert broker.push(**told) is code


def test_the_last_push_may_be_early_and_nothing_comes_after_it() -> None:
    broker = Broker()
    broker.get()
    assert broker.push() is ErrorCode.NONE
    assert broker.push(is_last=True) is ErrorCode.NONE
    for _ in range(3):
        broker.now_ms += INTERVAL_MS
        assert broker.push() is ErrorCode.INVALID_REQUEST
    broker.subscribe("b.")
    assert broker.push(is_last=True) is ErrorCode.INVALID_REQUEST
    assert broker.push(number=8) is ErrorCode.NONE


def test_instances_are_forgotten_by_time_and_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INSTANCES_MAX", 3)
    broker = Broker()
    for number in (2, 3, 4):
        assert broker.push(number=number, is_last=True) is ErrorCode.NONE
    assert broker.push(number=2) is ErrorCode.INVALID_REQUEST, "and it was heard last now"
    assert broker.push(number=5) is ErrorCode.NONE
    assert len(broker.instances) == 3
    assert broker.push(number=3) is ErrorCode.NONE, "the one that was silent for longest made room"
    broker.now_ms += module.FORGOTTEN_MS + 1
    assert broker.push(number=2) is ErrorCode.NONE
