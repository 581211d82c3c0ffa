"""Random record sequences over every record type: an image written as records and read again is the same image (C2).

The strategies follow from the types of the records' fields, so that a record added tomorrow is covered tomorrow.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.image.snapshot import DELTAS, difference, in_one_go, loaded_delta, record_groups
from barnabas_quorum.record_codec import RECORD_TYPES as CODECS
from barnabas_quorum.record_codec import decode, encode
from barnabas_quorum.records import ConfigRecord, NoOpRecord, Record
from barnabas_quorum.records_security import (
    ClientQuotaRecord,
    DelegationTokenRecord,
    QuotaEntityPart,
    RemoveDelegationTokenRecord,
    ScramMechanism,
    UserScramCredentialRecord,
    redacted,
)
from barnabas_wire.kafka.errors import InvariantViolated
from barnabas_wire.kafka.ids import Epoch, Offset, Uuid
from barnabas_wire.rpc import metadata_records_pb2 as pb


def record_types(union: Any) -> list[type]:
    """Every member of a union of unions."""
    members = typing.get_args(union)
    return [kind for member in members for kind in (record_types(member) if typing.get_args(member) else [member])]


RECORD_TYPES = record_types(Record)


def strategy_of(hint: Any, *, is_narrow: bool) -> st.SearchStrategy[Any]:
    """Values of a type; from a handful when `is_narrow`, so that records of one sequence meet each other."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([strategy_of(argument, is_narrow=is_narrow) for argument in arguments])
    if origin is tuple:
        members = strategy_of(arguments[0], is_narrow=is_narrow)
        return st.lists(members, max_size=3, unique=is_narrow).map(tuple)
    if hint is type(None):
        return st.none()
    if hasattr(hint, "__supertype__"):
        return strategy_of(hint.__supertype__, is_narrow=is_narrow)
    if hint is Uuid:
        numbers = st.integers(100, 102) if is_narrow else st.integers(0, 2**128 - 1)
        return numbers.map(lambda number: Uuid(number.to_bytes(16, "big")))
    if issubclass(hint, enum.Enum):
        return st.sampled_from(list(hint))
    if issubclass(hint, tuple):
        return of_fields(hint, typing.get_type_hints(hint), is_narrow=is_narrow)
    plain: dict[type, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        int: st.integers(0, 2 if is_narrow else 2**31 - 1),
        float: st.sampled_from([1.0, 2.5]) if is_narrow else st.floats(allow_nan=False),
        str: st.sampled_from(["a", "b"]) if is_narrow else st.text(max_size=12),
        bytes: st.binary(max_size=2 if is_narrow else 40),
    }
    return plain[hint]


def of_fields(kind: Any, hints: dict[str, Any], *, is_narrow: bool) -> st.SearchStrategy[Any]:
    return st.builds(kind, **{name: strategy_of(hint, is_narrow=is_narrow) for name, hint in hints.items()})


def record(kind: Any, *, is_narrow: bool) -> st.SearchStrategy[Any]:
    fields = {field.name for field in dataclasses.fields(kind)}
    hints = {name: hint for name, hint in typing.get_type_hints(kind).items() if name in fields}
    return of_fields(kind, hints, is_narrow=is_narrow)


def test_every_record_has_its_codec_and_every_number_its_record() -> None:
    assert set(CODECS) == set(RECORD_TYPES)
    assert {found.member for found in CODECS.values()} == {field.name for field in pb.MetadataRecord.DESCRIPTOR.fields}


@pytest.mark.parametrize("kind", RECORD_TYPES, ids=lambda kind: kind.__name__)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_every_record_is_read_as_it_was_written(kind: Any, data: st.DataObject) -> None:
    written = data.draw(record(kind, is_narrow=False))
    assert decode(encode(written)) == written
    assert encode(decode(encode(written))) == encode(written)


def accepted(records: Sequence[Record]) -> tuple[list[Record], MetadataImage]:
    """Those that fit, one after the other, and the image after them."""
    image, taken = MetadataImage.EMPTY, []
    for one in records:
        delta = MetadataDelta(image)
        try:
            delta.replay(one)
        except InvariantViolated:
            continue
        taken.append(one)
        image = delta.apply(Offset(image.offset + 1), Epoch(1), 0)
    return taken, image


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(RECORD_TYPES).flatmap(lambda kind: record(kind, is_narrow=True)), max_size=40))
def test_an_image_written_as_records_and_read_again_is_the_same_image(records: list[Record]) -> None:
    taken, image = accepted(records)

    again = MetadataDelta(MetadataImage.EMPTY)
    for one in image.to_records():
        again.replay(decode(encode(one)))
    assert again.apply(image.offset, image.epoch, image.timestamp_ms) == image
    assert again.apply(image.offset, image.epoch, image.timestamp_ms).content_hash() == image.content_hash()

    at_once = MetadataDelta(MetadataImage.EMPTY)
    for one in taken:
        at_once.replay(one)
    assert at_once.apply(image.offset, image.epoch, image.timestamp_ms) == image  # one delta or many

    loaded = in_one_go(loaded_delta(record_groups(image)))
    assert loaded.apply(image.offset, image.epoch, image.timestamp_ms) == image
    half = accepted(taken[: len(taken) // 2])[1]
    assert in_one_go(difference(half, image)).apply(image.offset, image.epoch, image.timestamp_ms) == image
    back = in_one_go(difference(image, half)).apply(half.offset, half.epoch, half.timestamp_ms)
    for part in DELTAS:  # of topics no log goes back so: partitions are only ever added
        assert getattr(back, part) == getattr(half, part), part


def test_the_random_sequences_reach_every_part_of_the_image() -> None:
    reached = MetadataDelta(MetadataImage.EMPTY)
    reached.replay(ClientQuotaRecord(entity=(QuotaEntityPart("user", None),), key="k", value=1.0))
    reached.replay(ClientQuotaRecord(entity=(QuotaEntityPart("user", None),), key="k", value=None))
    image = reached.apply(Offset(1), Epoch(1), 0)
    assert image.quotas == MetadataImage.EMPTY.quotas  # an entity without a key has no entry
    with pytest.raises(InvariantViolated):
        MetadataDelta(image).replay(RemoveDelegationTokenRecord(token_id="x"))


def test_no_repr_and_no_redacted_record_tells_a_secret() -> None:
    secret = UserScramCredentialRecord(
        name="u",
        mechanism=ScramMechanism.SCRAM_SHA_256,
        salt=b"pepper",
        stored_key=b"stored!",
        server_key=b"server!",
        iterations=4096,
    )
    for word in ("pepper", "stored!", "server!"):
        assert word not in repr(secret) and word.encode() not in encode(redacted(secret))
    assert redacted(NoOpRecord()) == NoOpRecord()
    assert {ConfigRecord, DelegationTokenRecord} <= set(RECORD_TYPES)
