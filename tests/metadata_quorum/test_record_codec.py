"""Records to bytes and back."""

from __future__ import annotations

import typing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_quorum.record_codec import RECORD_TYPES, UnknownRecord, decode, encode
from barnabas_quorum.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    ConfigResourceType,
    FeatureLevelRecord,
    FeatureRange,
    LeaderRecoveryState,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuorumRecoveryRecord,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Uuid
from barnabas_wire.rpc import metadata_records_pb2 as pb

broker_ids = st.integers(0, 2**31 - 1)
epochs = st.integers(0, 2**31 - 1)
offsets = st.integers(0, 2**63 - 1)
uuids = st.binary(min_size=16, max_size=16).map(Uuid)
text = st.text(max_size=12)
brokers = st.lists(broker_ids, max_size=4).map(tuple)
directories = st.lists(uuids, max_size=3).map(tuple)
endpoints = st.lists(st.builds(Endpoint, text, text, st.integers(0, 65535), text), max_size=3).map(tuple)
features = st.lists(st.builds(FeatureRange, text, st.integers(0, 2**31), st.integers(0, 2**31)), max_size=3).map(tuple)
recovery = st.sampled_from(LeaderRecoveryState)


def maybe(strategy: st.SearchStrategy[typing.Any]) -> st.SearchStrategy[typing.Any]:
    return st.none() | strategy


records = st.one_of(
    st.builds(
        RegisterBrokerRecord,
        broker_id=broker_ids,
        incarnation_id=uuids,
        broker_epoch=offsets,
        endpoints=endpoints,
        rack=maybe(text),
        is_fenced=st.booleans(),
        is_in_controlled_shutdown=st.booleans(),
        directories=directories,
        features=features,
        is_in_maintenance=st.booleans(),
    ),
    st.builds(UnregisterBrokerRecord, broker_id=broker_ids, broker_epoch=offsets),
    st.builds(
        BrokerRegistrationChangeRecord,
        broker_id=broker_ids,
        broker_epoch=offsets,
        is_fenced=maybe(st.booleans()),
        is_in_controlled_shutdown=maybe(st.booleans()),
        directories=maybe(directories),
        is_in_maintenance=maybe(st.booleans()),
    ),
    st.builds(
        RegisterControllerRecord, controller_id=broker_ids, incarnation_id=uuids, endpoints=endpoints, features=features
    ),
    st.builds(TopicRecord, name=text, topic_id=uuids),
    st.builds(RemoveTopicRecord, topic_id=uuids),
    st.builds(
        PartitionRecord,
        topic_id=uuids,
        partition_id=broker_ids,
        replicas=brokers,
        directories=directories,
        isr=brokers,
        leader=st.integers(-1, 2**31 - 1),
        leader_recovery_state=recovery,
        leader_epoch=epochs,
        partition_epoch=epochs,
        removing_replicas=brokers,
        adding_replicas=brokers,
        elr=brokers,
        last_known_elr=brokers,
    ),
    st.builds(
        PartitionChangeRecord,
        topic_id=uuids,
        partition_id=broker_ids,
        isr=maybe(brokers),
        leader=maybe(st.integers(-1, 2**31 - 1)),
        replicas=maybe(brokers),
        removing_replicas=maybe(brokers),
        adding_replicas=maybe(brokers),
        leader_recovery_state=maybe(recovery),
        directories=maybe(directories),
        elr=maybe(brokers),
        last_known_elr=maybe(brokers),
    ),
    st.builds(
        ConfigRecord,
        resource_type=st.sampled_from(ConfigResourceType),
        resource_name=text,
        key=text,
        value=maybe(text),
    ),
    st.builds(QuorumRecoveryRecord, incarnation=text, epoch_gap=epochs, producer_id_gap=offsets),
    st.builds(FeatureLevelRecord, name=text, level=st.integers(0, 2**31)),
    st.builds(ProducerIdsRecord, broker_id=broker_ids, broker_epoch=offsets, next_producer_id=offsets),
    st.builds(NoOpRecord),
)


@given(records)
@settings(max_examples=300, deadline=None)
def test_every_record_reads_back_as_it_was_written(record: Record) -> None:
    assert decode(encode(record)) == record


@given(records)
@settings(max_examples=100, deadline=None)
def test_a_cut_or_longer_value_is_a_record_or_an_unknown_record(record: Record) -> None:
    data = encode(record)
    for changed in [data[:length] for length in range(len(data))] + [data + b"\xff"]:
        try:
            decode(changed)
        except UnknownRecord:
            continue


def test_every_record_type_has_both_conversions() -> None:
    kinds = set(typing.get_args(Record))
    members = {field.name for field in pb.MetadataRecord.DESCRIPTOR.fields}
    assert set(RECORD_TYPES) == kinds
    assert {found.member for found in RECORD_TYPES.values()} == members and len(members) == len(kinds)


def test_unchanged_and_changed_to_nothing_differ() -> None:
    nothing = PartitionChangeRecord(topic_id=Uuid(bytes(16)), partition_id=0, adding_replicas=())
    unchanged = PartitionChangeRecord(topic_id=Uuid(bytes(16)), partition_id=0)
    assert decode(encode(nothing)) == nothing
    assert decode(encode(unchanged)) == unchanged


@pytest.mark.parametrize("data", [b"", b"\xff\xff", b"\xd2\x09\x00", b"\x12\x04\x12\x02ab"])
def test_a_record_this_version_does_not_know_stops_the_reader(data: bytes) -> None:
    """Empty, not protobuf, a field number of the future, a topic id of two bytes."""
    with pytest.raises(UnknownRecord):
        decode(data)


def test_an_enum_value_of_the_future_stops_the_reader() -> None:
    data = pb.MetadataRecord(config=pb.Config(resource_type=77, resource_name="t", key="k")).SerializeToString()
    with pytest.raises(UnknownRecord, match="config"):
        decode(data)


def test_what_is_no_record_cannot_be_written() -> None:
    with pytest.raises(TypeError):
        encode(typing.cast(Record, "a string"))


def test_equal_lists_of_brokers_and_directories_share_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def partition(number: int) -> PartitionRecord:
        read = decode(
            encode(
                PartitionRecord(
                    topic_id=Uuid(bytes(16)),
                    partition_id=number,
                    replicas=(BrokerId(7001), BrokerId(7002)),
                    directories=(Uuid(b"a" * 16), Uuid(b"b" * 16)),
                    isr=(BrokerId(7001), BrokerId(7002)),
                )
            )
        )
        assert isinstance(read, PartitionRecord)
        return read

    first, second = partition(1), partition(2)
    assert first.replicas is first.isr is second.replicas is second.isr
    assert first.directories is second.directories
    assert all(type(directory) is Uuid for directory in first.directories)
    monkeypatch.setattr("barnabas_quorum.record_codec.SHARED_MAX", 0)  # full: begun anew, and nothing is lost
    decode(
        encode(
            RegisterBrokerRecord(
                broker_id=BrokerId(1),
                incarnation_id=Uuid(bytes(16)),
                broker_epoch=1,
                endpoints=(),
                directories=(Uuid(b"c" * 16),),
            )
        )
    )
    assert partition(3) == PartitionRecord(**{**{f: getattr(first, f) for f in first.__slots__}, "partition_id": 3})
    assert partition(3).directories is not first.directories
