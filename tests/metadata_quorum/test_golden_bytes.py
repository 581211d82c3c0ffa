"""What records and controller messages are written as is for ever: golden_bytes.txt keeps it, value by value.

Make the file again, after a record or a message has got a new field: python -m tests.metadata_quorum.test_golden_bytes --rewrite
and look at the difference: only lines of values with new fields may change, and old bytes must still be read (test below).
"""

from __future__ import annotations

import dataclasses
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from barnabas_quorum.driver.faults import error_of, fault_of
from barnabas_quorum.driver.verbs import (
    HEARTBEAT,
    HEARTBEAT_ANSWER,
    VERB_BY_REQUEST,
    VERBS,
    read_answer,
    read_call,
    read_heartbeat_answer,
    write_answer,
    write_call,
)
from barnabas_quorum.record_codec import decode, encode
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.rpc import controller_pb2 as pb
from barnabas_wire.rpc.metadata_records_pb2 import MetadataRecord
from tests.metadata_quorum.golden_values import (
    ERRORS,
    HEARTBEAT_REPLIES,
    HEARTBEATS,
    PRINCIPAL,
    RECORDS,
    REPLIES,
    REQUESTS,
)

FILE = Path(__file__).with_name("golden_bytes.txt")
TITLE = "# Every record and controller message in hex. Make again: python -m tests.metadata_quorum.test_golden_bytes --rewrite"


class Written(NamedTuple):
    """One value as bytes, and what reading them gives."""

    name: str
    value: Any
    data: bytes
    again: Any


def _data(message: Any) -> bytes:
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def written() -> Iterator[Written]:
    """Every value of golden_values.py, written and read by this code."""
    verbs = {verb.method: verb for verb in VERBS}
    for record in RECORDS:
        data = encode(record)
        yield Written(type(record).__name__, record, data, decode(data))
    for request in REQUESTS:
        verb = VERB_BY_REQUEST[type(request)]
        data = _data(write_call(verb, request, principal=PRINCIPAL))
        yield Written(f"{verb.method} call", request, data, read_call(verb, verb.call_type.FromString(data)))
    for method, reply in REPLIES:
        verb = verbs[method]
        data = _data(write_answer(verb, reply))
        yield Written(f"{method} answer", reply, data, read_answer(verb, verb.answer_type.FromString(data)))
    for beat in HEARTBEATS:
        data = _data(HEARTBEAT.write(beat))
        yield Written("heartbeat", beat, data, HEARTBEAT.read(pb.HeartbeatMessage.FromString(data)))
    for answer in HEARTBEAT_REPLIES:
        data = _data(HEARTBEAT_ANSWER.write(answer))
        yield Written("heartbeat answer", answer, data, read_heartbeat_answer(pb.HeartbeatAnswer.FromString(data)))
    for error in ERRORS:
        data = _data(fault_of(error))
        yield Written("fault", error, data, error_of(pb.Fault.FromString(data)))


def numbered() -> list[tuple[str, Written]]:
    """With a name that occurs once: `PartitionRecord`, `PartitionRecord 2`."""
    seen: dict[str, int] = {}
    found = []
    for each in written():
        seen[each.name] = seen.get(each.name, 0) + 1
        found.append((each.name if seen[each.name] == 1 else f"{each.name} {seen[each.name]}", each))
    return found


def golden() -> dict[str, bytes]:
    """What the file keeps, by name."""
    kept: dict[str, str] = {}
    name = ""
    for line in FILE.read_text().splitlines():
        if line.startswith("    "):
            kept[name] += line.strip()
        elif line and not line.startswith("#"):
            name = line
            kept[name] = ""
    return {name: bytes.fromhex(text) for name, text in kept.items()}


def rewrite() -> None:
    """Write the file from what this code writes."""
    lines = [TITLE]
    for name, each in numbered():
        lines += ["", *textwrap.wrap(f"# {each.value!r}", 140, subsequent_indent="#   "), name]
        lines += textwrap.wrap(each.data.hex(), 128, initial_indent="    ", subsequent_indent="    ")
    FILE.write_text("\n".join(lines) + "\n")


def plain(value: Any) -> Any:
    """For comparison: with what no repr shows, and of errors, which have no equality of their own, what travels."""
    if isinstance(value, KafkaError):
        return type(value).__name__, value.code, value.message, vars(value)
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return type(value).__name__, [(name, plain(getattr(value, name))) for name in names]
    if isinstance(value, dict):
        return sorted((key, plain(item)) for key, item in value.items())
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value


@pytest.mark.parametrize(("name", "each"), numbered(), ids=lambda part: part if isinstance(part, str) else "")
def test_every_value_is_written_as_it_always_was_and_read_back(name: str, each: Written) -> None:
    assert each.data.hex() == golden()[name].hex()
    assert plain(each.again) == plain(each.value)


def test_the_file_keeps_nothing_that_no_value_makes() -> None:
    assert sorted(golden()) == sorted(name for name, _ in numbered())


def test_every_record_and_every_call_has_a_full_value() -> None:
    names = {each.name for _, each in numbered()}
    records = {MetadataRecord.FromString(encode(record)).WhichOneof("record") for record in RECORDS}
    assert records == {field.name for field in MetadataRecord.DESCRIPTOR.fields}
    methods = [method.name for method in pb.DESCRIPTOR.services_by_name["Controller"].methods]
    unary = set(methods) - {"Heartbeats"}
    assert names >= {f"{name} call" for name in unary} | {f"{name} answer" for name in unary}


def test_the_values_set_every_protobuf_field_that_there_is() -> None:
    """A field that no value sets could be lost, and no byte would show it."""
    unset: dict[str, set[str]] = {}

    def look(message: Any) -> None:
        kind = message.DESCRIPTOR.full_name
        missing = unset.setdefault(kind, {field.name for field in message.DESCRIPTOR.fields})
        for field, value in message.ListFields():
            missing.discard(field.name)
            if field.message_type is None:
                continue
            if field.message_type.GetOptions().map_entry:
                items = value.values() if field.message_type.fields_by_name["value"].message_type else ()
            else:
                items = value if field.is_repeated else (value,)
            for item in items:
                look(item)

    types = {f"{verb.method} call": verb.call_type for verb in VERBS}
    types |= {f"{verb.method} answer": verb.answer_type for verb in VERBS}
    types |= {"heartbeat": pb.HeartbeatMessage, "heartbeat answer": pb.HeartbeatAnswer, "fault": pb.Fault}
    for _, each in numbered():
        look(types.get(each.name, MetadataRecord).FromString(each.data))
    for verb in VERBS:
        look(verb.answer_type(fault=pb.Fault(code=1)))
    look(pb.HeartbeatAnswer(fault=pb.Fault(code=1)))
    look(pb.Caller(host="10.0.0.9"))  # of a client; test_controller_service.py reads it back
    assert not {kind: sorted(names) for kind, names in unset.items() if names}


if __name__ == "__main__":
    assert sys.argv[1:] == ["--rewrite"], __doc__
    rewrite()
