"""Dataclasses as protobuf messages: what is not the same on both sides is found when the mapping is compiled."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import pytest

from barnabas_quorum.controller.decisions import DECISIONS
from barnabas_quorum.driver.grpc_transport import ANSWER_HEADER, CALL_HEADER, REPLICA, RPC_BY_REQUEST
from barnabas_quorum.driver.verbs import HEARTBEAT, HEARTBEAT_ANSWER, VERBS
from barnabas_quorum.message_mapping import MappingMismatch, mapping_of
from barnabas_quorum.record_codec import RECORD_TYPES
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.rpc import controller_pb2 as pb
from barnabas_wire.rpc import metadata_records_pb2 as records_pb


@dataclass(frozen=True)
class Whole:
    name: str
    topic_id: Uuid


@dataclass(frozen=True)
class Lacking:
    name: str


@dataclass(frozen=True)
class TooMuch:
    name: str
    topic_id: Uuid
    more: int


@dataclass(frozen=True)
class OfAnotherKind:
    name: int
    topic_id: Uuid


@dataclass(frozen=True)
class PerhapsNone:
    name: str | None
    topic_id: Uuid


@dataclass(frozen=True)
class OfTwoKinds:
    name: str | int
    topic_id: Uuid


@dataclass(frozen=True)
class AsList:
    name: tuple[str, ...]
    topic_id: Uuid


class Level(IntEnum):
    NONE = 0
    ONE = 1


@dataclass(frozen=True)
class ZeroAndNone:
    name: str
    level: Level | None


def test_equal_fields_are_mapped() -> None:
    mapping = mapping_of(Whole, records_pb.Topic)
    value = Whole("t", Uuid(b"i" * 16))
    assert mapping.read(records_pb.Topic.FromString(mapping.write(value).SerializeToString())) == value


def test_every_mapping_of_the_product_compiles() -> None:
    """A node compiles what it uses when it uses it: a mismatch must not wait for that."""
    mappings = [found.mapping for found in RECORD_TYPES.values()]
    mappings += [mapping for verb in VERBS for mapping in (verb.call, verb.answer)] + [HEARTBEAT, HEARTBEAT_ANSWER]
    mappings += [mapping for rpc in RPC_BY_REQUEST.values() for mapping in (rpc.call, rpc.answer)]
    mappings += [REPLICA, CALL_HEADER, ANSWER_HEADER]
    assert len(mappings) > 70
    for mapping in mappings:
        mapping.compile()


def test_a_mapping_is_compiled_once_when_first_used() -> None:
    mapping = mapping_of(Whole, records_pb.Topic)
    before = mapping.write
    message = mapping.write(Whole("t", Uuid(b"i" * 16)))
    compiled = mapping.write
    assert compiled is not before
    assert mapping.read(message) == Whole("t", Uuid(b"i" * 16))
    assert mapping.write is compiled


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (Lacking, "topic_id"),
        (TooMuch, "more"),
        (OfAnotherKind, "Topic.name"),
        (PerhapsNone, "optional"),
        (OfTwoKinds, "several types"),
        (AsList, "one field"),
    ],
)
def test_a_field_that_is_missing_or_of_another_kind_makes_no_mapping(kind: Any, word: str) -> None:
    with pytest.raises(MappingMismatch, match=word):
        mapping_of(kind, records_pb.Topic).compile()


def test_none_beside_a_zero_that_means_something_makes_no_mapping() -> None:
    with pytest.raises(MappingMismatch, match="optional"):
        mapping_of(ZeroAndNone, records_pb.FeatureLevel).compile()


def test_a_record_or_request_with_a_field_more_or_less_makes_no_mapping() -> None:
    """So no field of any of them can be forgotten on one side."""
    kinds = [
        (found.kind, getattr(records_pb, found.kind.__name__.removesuffix("Record")), frozenset[str]())
        for found in RECORD_TYPES.values()
    ]
    kinds += [(verb.request_type, verb.call_type, frozenset({"caller"})) for verb in VERBS]
    for kind, message_type, envelope in kinds:
        fields = [(field.name, field.type, field) for field in dataclasses.fields(kind)]
        namespace = {"__module__": kind.__module__}
        more: Any = dataclasses.make_dataclass(
            kind.__name__, [*((name, hint) for name, hint, _ in fields), ("added", int)], namespace=namespace
        )
        with pytest.raises(MappingMismatch, match="added"):
            mapping_of(more, message_type, envelope=envelope).compile()
        if fields:
            less: Any = dataclasses.make_dataclass(
                kind.__name__, [(name, hint) for name, hint, _ in fields[1:]], namespace=namespace
            )
            with pytest.raises(MappingMismatch, match=fields[0][0]):
                mapping_of(less, message_type, envelope=envelope).compile()


@dataclass(frozen=True)
class Mapped:
    name: str
    partition_count: int
    replication_factor: int
    assignments: Mapping[int, tuple[int, ...]]
    configs: Mapping[str, str]


def test_a_map_is_read_in_the_order_of_its_keys() -> None:
    mapping = mapping_of(Mapped, pb.NewTopic)
    value = Mapped("t", 1, 2, {5: (3, 1), 1: (), 3: (2,)}, {"b": "1", "c": "", "a": "2"})
    read = mapping.read(mapping.write(value))
    assert read == value
    assert (list(read.assignments), list(read.configs)) == ([1, 3, 5], ["a", "b", "c"])


def test_every_decision_answers_with_the_reply_that_its_request_names() -> None:
    import typing

    from barnabas_quorum.controller.request import reply_type

    wrong = []
    for request_type, decision in DECISIONS.items():
        hints = typing.get_type_hints(decision)
        (answered,) = typing.get_args(hints["return"])
        if (hints["request"], answered) != (request_type, reply_type(request_type)):
            wrong.append(request_type.__name__)
    assert len(DECISIONS) > 20 and not wrong
