"""Topics of a consumer's subscription, as real clients and kio write it."""

from __future__ import annotations

import importlib
import io

import pytest
from kio.serial import entity_writer

from barnabas_broker.coordinator.group.consumer_protocol import subscribed_topics


@pytest.mark.parametrize("version", range(4))
def test_topics_are_read_from_every_version_of_the_subscription(version: int) -> None:
    module = importlib.import_module(f"kio.schema.consumer_protocol_subscription.v{version}.data")
    more = {"owned_partitions": ()} if version >= 1 else {}
    out = io.BytesIO()
    entity_writer(module.ConsumerProtocolSubscription)(
        out, module.ConsumerProtocolSubscription(topics=("flights", "wetter-grün"), user_data=b"\x01", **more)
    )
    metadata = version.to_bytes(2, "big") + out.getvalue()
    assert subscribed_topics(metadata) == {"flights", "wetter-grün"}


@pytest.mark.parametrize(
    "metadata",
    [b"", b"\x00\x01", b"\x00\x00\xff\xff\xff\xff", b"\x00\x00\x7f\xff\xff\xff", b"\x00\x00\x00\x00\x00\x01\x00\x05ab"],
)
def test_metadata_that_is_no_subscription_tells_nothing(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None


def test_a_subscription_to_nothing_is_known() -> None:
    assert subscribed_topics(bytes.fromhex("000000000000ffffffff")) == frozenset()
