"""WriteTxnMarkers against kafka-python, the one other implementation that has it; kio knows no message among brokers."""

from __future__ import annotations

from dataclasses import fields
from random import Random
from typing import Any

import pytest
from kafka.protocol.producer import transaction

from barnabas_wire.kafka import schema
from barnabas_wire.kafka.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from barnabas_wire.kafka.primitives import MalformedMessage
from barnabas_wire.kafka.schema import fields_of
from tests.proto import oracle


def to_kafka_python(message: Any, version: int, theirs: type[Any]) -> Any:
    """kafka-python's object with the values of ours; it names nested classes as we do."""
    values = {}
    for name, spec in fields_of(type(message)):
        value = getattr(message, name)
        if not spec.exists(version):
            continue
        if isinstance(spec.element, type):
            nested = getattr(theirs, spec.element.__name__)
            values[name] = [to_kafka_python(item, version, nested) for item in value]
        else:
            values[name] = value
    return theirs(version=version, **values)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("cls", [WriteTxnMarkersRequest, WriteTxnMarkersResponse])
def test_bytes_are_kafka_pythons(cls: type[Any], version: int) -> None:
    theirs = getattr(transaction, cls.__name__)
    random = Random(version)
    for example in range(20):
        message = oracle.generate(cls, version, random) if example else cls()
        data = bytearray()
        schema.encode_request(message, version, data)
        assert to_kafka_python(message, version, theirs).encode() == data
        assert schema.decode(cls, version, memoryview(data)) == message
        for cut in range(min(len(data), 300)):
            with pytest.raises(MalformedMessage):
                schema.decode(cls, version, memoryview(data)[:cut])


def test_the_transactions_version_begins_with_the_second() -> None:
    marker = fields(schema.message_classes(WriteTxnMarkersRequest.API_KEY)[0])[0].metadata["wire"].element
    data = bytearray()
    schema.encode_request(WriteTxnMarkersRequest(markers=[marker(transaction_version=2)]), 1, data)
    assert schema.decode(WriteTxnMarkersRequest, 1, data).markers[0].transaction_version == 0
