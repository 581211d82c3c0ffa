"""Whose log it is: what each pair of witnesses means, and what becomes of the log under each topic that may be there."""

from __future__ import annotations

import pytest

from barnabas_log.directories.topic_witness import (
    Fate,
    Identity,
    Witnesses,
    encode_witness,
    fate_of,
    identity_of,
    read_witnesses,
)
from barnabas_log.memory_disk import MemoryDisk
from barnabas_wire.kafka.ids import ZERO_UUID, TopicPartition, Uuid

A, B, C = Uuid(b"a" * 16), Uuid(b"b" * 16), Uuid(b"c" * 16)
T0 = TopicPartition("t", 0)
SERVE, REMOVE, SET_ASIDE = Fate.SERVE, Fate.REMOVE, Fate.SET_ASIDE


@pytest.mark.parametrize(
    ("metadata", "witness", "holds_records", "has_second", "identity", "under_a", "under_b", "under_c"),
    [
        (A, A, True, True, Identity.PROVED, SERVE, REMOVE, REMOVE),
        (A, B, True, True, Identity.CONTRADICTED, SET_ASIDE, SET_ASIDE, SET_ASIDE),
        (A, None, True, True, Identity.TOLD, SERVE, SET_ASIDE, SET_ASIDE),
        (None, A, True, True, Identity.TOLD, SERVE, SET_ASIDE, SET_ASIDE),
        (None, None, True, True, Identity.UNKNOWN, SET_ASIDE, SET_ASIDE, SET_ASIDE),
        (None, None, False, True, Identity.BLANK, SERVE, SERVE, SERVE),
        # made by a version that writes partition.metadata alone
        (A, None, True, False, Identity.PROVED, SERVE, REMOVE, REMOVE),
        (None, None, True, False, Identity.UNKNOWN, SET_ASIDE, SET_ASIDE, SET_ASIDE),
        (None, None, False, False, Identity.BLANK, SERVE, SERVE, SERVE),
        # and that left a witness of before
        (A, B, True, False, Identity.CONTRADICTED, SET_ASIDE, SET_ASIDE, SET_ASIDE),
        (None, A, True, False, Identity.TOLD, SERVE, SET_ASIDE, SET_ASIDE),
    ],
)
def test_what_two_witnesses_mean(
    metadata: Uuid | None,
    witness: Uuid | None,
    holds_records: bool,
    has_second: bool,
    identity: Identity,
    under_a: Fate,
    under_b: Fate,
    under_c: Fate,
) -> None:
    said = Witnesses(metadata, witness)
    assert identity_of(said, holds_records=holds_records, has_second=has_second) is identity
    assert [fate_of(identity, said.topic_id, topic_id=topic_id) for topic_id in (A, B, C)] == [
        under_a,
        under_b,
        under_c,
    ]


def test_a_log_is_removed_only_where_nothing_contradicts_that_it_is_another_topics() -> None:
    for identity in Identity:
        for named in (A, B, ZERO_UUID):
            if fate_of(identity, named, topic_id=A) is REMOVE:
                assert identity is Identity.PROVED and named != A


def test_a_witness_of_another_partition_cut_or_swollen_proves_nothing() -> None:
    disk = MemoryDisk()
    disk.make_directory("d")
    whole = encode_witness(A, T0)
    for content in (
        encode_witness(A, TopicPartition("t", 1)),
        *(whole[:size] for size in range(len(whole))),
        whole + b"\n",
        bytes(len(whole)),
        whole.replace(b"version: 0", b"version: 1"),
    ):
        disk.write_file_atomically("d/topic-id.witness", content)
        assert read_witnesses(disk, "d", T0) == (None, None)
    disk.write_file_atomically("d/topic-id.witness", whole)
    assert read_witnesses(disk, "d", T0) == (None, A)
