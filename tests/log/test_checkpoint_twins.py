"""A checkpoint and its twin: what is believed where they agree, where one is gone or damaged, and where they differ."""

from __future__ import annotations

import pytest

from barnabas_log.directories.checkpoint_twins import decode_twin, encode_twin, settle
from barnabas_log.directories.checkpoints import encode_offsets
from barnabas_wire.kafka.ids import Offset, TopicPartition, Uuid

A, B = TopicPartition("a", 0), TopicPartition("b", 3)
IDS = {A: Uuid(b"a" * 16)}


def offsets(**entries: int) -> dict[TopicPartition, Offset]:
    return {{"a": A, "b": B}[name]: Offset(offset) for name, offset in entries.items()}


@pytest.mark.parametrize(
    ("main", "twin", "taken", "is_proved", "is_doubted"),
    [
        (offsets(a=5), offsets(a=5), offsets(a=5), True, False),
        ({}, {}, {}, True, False),
        (None, None, {}, False, False),
        (offsets(a=5), None, offsets(a=5), False, False),  # a version without twins wrote it
        (offsets(a=5), b"", offsets(a=5), False, True),
        (None, offsets(a=5), offsets(a=5), False, True),
        (None, {}, {}, False, False),
        (b"garbage", offsets(a=5), offsets(a=5), False, True),
        (b"garbage", None, {}, False, True),
        (b"garbage", b"garbage", {}, False, True),
        (offsets(a=9), offsets(a=5), offsets(a=5), False, True),
        (offsets(a=5), offsets(a=9), offsets(a=5), False, True),
        (offsets(a=5, b=7), offsets(a=5), offsets(a=5, b=0), False, True),  # an entry of a deleted log, or an old twin
        (offsets(a=5), offsets(a=5, b=7), offsets(a=5, b=7), False, True),
    ],
)
def test_what_is_believed(
    main: bytes | dict[TopicPartition, Offset] | None,
    twin: bytes | dict[TopicPartition, Offset] | None,
    taken: dict[TopicPartition, Offset],
    is_proved: bool,
    is_doubted: bool,
) -> None:
    settled = settle(
        encode_offsets(main) if isinstance(main, dict) else main,
        encode_twin("checkpoint", twin, IDS) if isinstance(twin, dict) else twin,
        path="d/checkpoint",
    )
    assert (settled.offsets, settled.is_proved, bool(settled.doubt)) == (taken, is_proved, is_doubted)
    assert settled.twin == ((twin, IDS) if isinstance(twin, dict) else None)


def test_no_flipped_bit_of_either_raises_an_offset_or_counts_as_proved() -> None:
    right = offsets(a=100, b=1)
    sound = encode_offsets(right), encode_twin("checkpoint", right, IDS)
    for which in (0, 1):
        for position in range(len(sound[which])):
            for bit in range(8):
                pair = [bytearray(each) for each in sound]
                pair[which][position] ^= 1 << bit
                settled = settle(bytes(pair[0]), bytes(pair[1]), path="d/checkpoint")
                assert not settled.is_proved
                assert all(settled.offsets.get(name, 0) <= offset for name, offset in right.items())
                assert all(offset == 0 for name, offset in settled.offsets.items() if name not in right)


def test_a_twin_is_read_whole_or_not_at_all() -> None:
    whole = encode_twin("x", offsets(a=5), IDS)
    assert decode_twin(whole, "d/x") == (offsets(a=5), IDS)
    assert decode_twin(whole, "d/y") is None, (
        "of another checkpoint: recovery points as log starts would empty every log"
    )
    for size in range(len(whole)):
        assert decode_twin(whole[:size], "x") is None
    assert decode_twin(whole + b"x", "x") is None
