"""Subscriptions and assignments against kio, every version, and versions yet to come."""

from __future__ import annotations

import importlib
from random import Random
from typing import Any

import pytest

from barnabas_wire.kafka.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    decode_blob,
    encode_blob,
)
from barnabas_wire.kafka.primitives import MalformedMessage
from tests.proto import oracle


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("cls", [ConsumerProtocolSubscription, ConsumerProtocolAssignment])
def test_blobs_are_kios(cls: type[Any], version: int) -> None:
    module = "subscription" if cls is ConsumerProtocolSubscription else "assignment"
    kio_class = getattr(importlib.import_module(f"kio.schema.consumer_protocol_{module}.v{version}.data"), cls.__name__)
    random = Random(version)
    for _ in range(10):
        message = oracle.generate(cls, version, random, oracle=kio_class)
        data = encode_blob(message, version)
        entity = oracle.to_kio(message, version, kio_class)
        assert data == version.to_bytes(2, "big") + oracle.kio_encode(entity)
        assert oracle.kio_decode(kio_class, data[2:]) == entity
        assert decode_blob(cls, memoryview(data)) == message
        for cut in range(min(len(data), 200)):
            with pytest.raises(MalformedMessage):
                decode_blob(cls, data[:cut])


def test_a_newer_version_is_read_as_the_newest_known() -> None:
    message = ConsumerProtocolAssignment(assigned_partitions=[TopicPartitions("t", [0, 2])])
    data = encode_blob(message, 3)
    assert decode_blob(ConsumerProtocolAssignment, b"\0\x63" + data[2:] + b"more") == message


def test_other_protocols_blobs_are_malformed() -> None:
    for data in (b"", b"\0", b"\xff\xff\0\0", b'{"tasks": []}'):
        with pytest.raises(MalformedMessage):
            decode_blob(ConsumerProtocolAssignment, data)
