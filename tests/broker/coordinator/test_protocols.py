"""What members share and choose, and the topics of their subscriptions, as real clients and kio write them."""

from __future__ import annotations

import importlib
import io

import pytest
from kio.serial import entity_writer

from barnabas_coordination.group.protocols import (
    Offer,
    all_subscribed_topics,
    choose_protocol,
    common_protocols,
    subscribed_topics,
)

READ_A, READ_B = bytes.fromhex("0000000000010001 61 ffffffff"), bytes.fromhex("0000000000010001 62 ffffffff")
"""Subscriptions to a and to b."""


def offer(*names: str) -> Offer:
    return tuple((name, b"") for name in names)


def test_common_is_what_everybody_offers() -> None:
    assert common_protocols([offer("range", "sticky"), offer("sticky", "own")]) == {"sticky"}
    assert common_protocols([offer("range"), offer("own")]) == common_protocols([]) == set()


@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        ([("range", "sticky"), ("sticky", "range"), ("sticky", "range")], "sticky"),
        ([("range", "sticky"), ("sticky", "range")], "range"),
        ([("sticky", "range"), ("range", "sticky")], "sticky"),
        ([("own", "range"), ("range", "own", "sticky"), ("sticky", "range")], "range"),
        ([("range",)], "range"),
    ],
    ids=["most votes", "a draw is the first member's", "either way", "only what all share", "alone"],
)
def test_the_choice(offers: list[tuple[str, ...]], chosen: str) -> None:
    assert choose_protocol([offer(*names) for names in offers]) == chosen


def test_topics_of_all_are_unknown_when_those_of_one_are() -> None:
    assert all_subscribed_topics([READ_A, READ_B, READ_A]) == {"a", "b"}
    assert all_subscribed_topics([READ_A, b"?"]) is None
    assert all_subscribed_topics([]) == frozenset()


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
