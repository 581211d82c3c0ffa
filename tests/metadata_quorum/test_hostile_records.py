"""Committed records of every kind with whatever values: no node dies of one, and all that read the same log stand alike."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from barnabas_quorum.image.entities import hash_of
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.image.snapshot import in_one_go, loaded_delta, record_groups
from barnabas_quorum.raft.messages import CommittedBatch
from barnabas_quorum.record_codec import encode
from barnabas_quorum.records_integrity import QuarantineRecord
from barnabas_wire.kafka.ids import NO_EPOCH, NO_OFFSET, Epoch, Offset
from barnabas_wire.rpc import metadata_records_pb2 as pb

KINDS = [field for field in pb.MetadataRecord.DESCRIPTOR.fields if field.name != "quarantine"]
NUMBERS = (0, 0, 1, 1, 2, 2, 3, 4, -1, 2**31 - 1, -(2**31))
WORDS = ("", "a", "b", "c.d", "c_d", "1", "metadata.version", "user")
IDS = tuple(bytes(15) + bytes([number]) for number in range(1, 4))


def hostile(random: Random, message: Any) -> Any:
    """The protobuf message with fields as they come."""
    for field in message.DESCRIPTOR.fields:
        if field.containing_oneof is not None and random.random() < 0.4:
            continue
        draw = DRAW.get(field.type)
        count = random.choice((0, 1, 1, 2, 3)) if field.is_repeated else 1
        if field.is_repeated:
            values = getattr(message, field.name)
            for _ in range(count):
                if draw is None:
                    hostile(random, values.add())
                else:
                    values.append(draw(random, field))
        elif draw is None:
            hostile(random, getattr(message, field.name)).SetInParent()
        else:
            setattr(message, field.name, draw(random, field))
    return message


def _number(random: Random, field: Any) -> int:
    number = random.choice(NUMBERS)
    return abs(number) if field.type in (field.TYPE_UINT32, field.TYPE_UINT64) else number


def _bytes(random: Random, field: Any) -> bytes:
    return random.choice(IDS) if random.random() < 0.98 else b"short"


F = pb.MetadataRecord.DESCRIPTOR.fields[0]
DRAW: dict[int, Callable[[Random, Any], Any]] = {
    F.TYPE_STRING: lambda random, field: random.choice(WORDS),
    F.TYPE_BYTES: _bytes,
    F.TYPE_BOOL: lambda random, field: random.random() < 0.5,
    F.TYPE_DOUBLE: lambda random, field: random.choice((0.0, 1.5, float("nan"), float("inf"))),
    **dict.fromkeys((F.TYPE_INT32, F.TYPE_SINT32, F.TYPE_UINT32, F.TYPE_INT64, F.TYPE_SINT64, F.TYPE_UINT64), _number),
}


def hostile_record(random: Random) -> bytes:
    if random.random() < 0.05:
        return random.randbytes(random.randrange(12))
    message = pb.MetadataRecord()
    kind = random.choice(KINDS)
    getattr(message, kind.name).SetInParent()
    hostile(random, getattr(message, kind.name))
    data: bytes = message.SerializeToString(deterministic=True)
    return data


@pytest.mark.parametrize("seed", range(8))
def test_no_record_kills_a_node_and_all_that_read_the_same_log_stand_alike(seed: int) -> None:
    random = Random(seed)
    batches: list[CommittedBatch] = []
    pilot = MetadataLoader()

    def commit(*values: bytes) -> None:
        base = batches[-1].last_offset + 1 if batches else 0
        batches.append(CommittedBatch(Offset(base), Epoch(1), base, values))
        pilot.on_commit(batches[-1:])

    for _ in range(120):
        commit(*[hostile_record(random) for _ in range(random.choice((1, 1, 2, 4)))])
        while pilot.blocked is not None and random.random() < 0.8:
            bad = pilot.blocked.record
            assert pilot.blocking_records[0].offset == bad.offset
            sign_off = QuarantineRecord(
                offset=bad.offset, epoch=bad.epoch, digest=bad.digest, principal="User:ops", reason="r"
            )
            commit(encode(sign_off))
    assert pilot.image.offset > 200, "the log shall be read, not only held"
    for size in (3, len(batches)):
        loader = MetadataLoader()
        for at in range(0, len(batches), size):
            loader.on_commit(batches[at : at + size])
        assert (loader.image.offset, loader.blocked and loader.blocked.record) == (
            pilot.image.offset,
            pilot.blocked and pilot.blocked.record,
        )
        assert loader.image.hash == pilot.image.hash == hash_of(loader.image)
    assert _read_back(pilot).hash == pilot.image.hash


def _read_back(loader: MetadataLoader) -> Any:
    """The image as a snapshot of it would be loaded."""
    return in_one_go(loaded_delta(record_groups(loader.image))).apply(NO_OFFSET, NO_EPOCH, -1)
