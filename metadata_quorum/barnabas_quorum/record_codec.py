"""Metadata records to bytes and back. Generated protobuf types stop here.

May touch:  records, barnabas_wire.rpc.metadata_records_pb2.   Must not touch: image, controller, asyncio.
Invariants: decode(encode(r)) == r; equal records encode to equal bytes (no map fields, fixed field order);
            a record this code does not know is an error, never skipped.
Read next:  records.py.

Layout of a value: one protobuf MetadataRecord with exactly one member of its oneof set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from google.protobuf.message import DecodeError

from barnabas_quorum.record_codec_integrity import INTEGRITY_DECODERS, INTEGRITY_ENCODERS
from barnabas_quorum.record_codec_security import SECURITY_DECODERS, SECURITY_ENCODERS
from barnabas_quorum.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    ConfigResourceType,
    EndTransactionRecord,
    FaultyReplica,
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
    ReplicaFault,
    ReplicaFaults,
    TopicRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)
from barnabas_wire.kafka.errors import InvariantViolated
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Epoch, Uuid
from barnabas_wire.rpc import metadata_records_pb2 as pb

T = TypeVar("T")

SHARED_MAX = 50_000
"""Different lists of brokers, or of directories, that are remembered so that equal ones share their memory."""
_BROKER_TUPLES: dict[tuple[BrokerId, ...], tuple[BrokerId, ...]] = {}
_UUID_TUPLES: dict[Any, Any] = {}


class UnknownRecord(InvariantViolated):
    """The metadata log holds a record this code cannot read: a newer node wrote it, or the log is damaged."""


def encode(record: Record) -> bytes:
    """The value of one log record. Raises TypeError on what is not a metadata record."""
    encoder = ENCODERS.get(type(record))
    if encoder is None:
        raise TypeError(f"{type(record).__name__} is not a metadata record")
    data: bytes = encoder(record).SerializeToString(deterministic=True)
    return data


def decode(data: bytes) -> Record:
    """Read one value. Raises UnknownRecord on a record or an enum value this code does not know."""
    message = pb.MetadataRecord()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise UnknownRecord(f"not a metadata record ({len(data)} bytes): {error}") from error
    kind = message.WhichOneof("record")
    decoder = DECODERS.get(kind or "")
    if decoder is None:
        raise UnknownRecord(
            f"the metadata log holds a record that this version does not know ({len(data)} bytes); "
            "run the version that wrote it"
        )
    try:
        return decoder(getattr(message, str(kind)))
    except ValueError as error:
        raise UnknownRecord(f"the metadata log holds a {kind} record that this version cannot read: {error}") from error


def _register_broker(record: RegisterBrokerRecord) -> Any:
    return pb.MetadataRecord(
        register_broker=pb.RegisterBroker(
            broker_id=record.broker_id,
            incarnation_id=bytes(record.incarnation_id),
            broker_epoch=record.broker_epoch,
            endpoints=_endpoints_out(record.endpoints),
            rack=record.rack,
            is_fenced=record.is_fenced,
            is_in_controlled_shutdown=record.is_in_controlled_shutdown,
            directories=[bytes(directory) for directory in record.directories],
            features=_features_out(record.features),
        )
    )


def _read_register_broker(message: Any) -> Record:
    return RegisterBrokerRecord(
        broker_id=BrokerId(message.broker_id),
        incarnation_id=Uuid(message.incarnation_id),
        broker_epoch=message.broker_epoch,
        endpoints=_endpoints_in(message.endpoints),
        rack=message.rack if message.HasField("rack") else None,
        is_fenced=message.is_fenced,
        is_in_controlled_shutdown=message.is_in_controlled_shutdown,
        directories=_uuids_in(message.directories),
        features=_features_in(message.features),
    )


def _unregister_broker(record: UnregisterBrokerRecord) -> Any:
    return pb.MetadataRecord(
        unregister_broker=pb.UnregisterBroker(broker_id=record.broker_id, broker_epoch=record.broker_epoch)
    )


def _read_unregister_broker(message: Any) -> Record:
    return UnregisterBrokerRecord(broker_id=BrokerId(message.broker_id), broker_epoch=message.broker_epoch)


def _broker_registration_change(record: BrokerRegistrationChangeRecord) -> Any:
    return pb.MetadataRecord(
        broker_registration_change=pb.BrokerRegistrationChange(
            broker_id=record.broker_id,
            broker_epoch=record.broker_epoch,
            is_fenced=record.is_fenced,
            is_in_controlled_shutdown=record.is_in_controlled_shutdown,
            directories=_optional_uuids_out(record.directories),
        )
    )


def _read_broker_registration_change(message: Any) -> Record:
    return BrokerRegistrationChangeRecord(
        broker_id=BrokerId(message.broker_id),
        broker_epoch=message.broker_epoch,
        is_fenced=message.is_fenced if message.HasField("is_fenced") else None,
        is_in_controlled_shutdown=(
            message.is_in_controlled_shutdown if message.HasField("is_in_controlled_shutdown") else None
        ),
        directories=_uuids_in(message.directories.ids) if message.HasField("directories") else None,
    )


def _register_controller(record: RegisterControllerRecord) -> Any:
    return pb.MetadataRecord(
        register_controller=pb.RegisterController(
            controller_id=record.controller_id,
            incarnation_id=bytes(record.incarnation_id),
            endpoints=_endpoints_out(record.endpoints),
            features=_features_out(record.features),
        )
    )


def _read_register_controller(message: Any) -> Record:
    return RegisterControllerRecord(
        controller_id=BrokerId(message.controller_id),
        incarnation_id=Uuid(message.incarnation_id),
        endpoints=_endpoints_in(message.endpoints),
        features=_features_in(message.features),
    )


def _unregister_controller(record: UnregisterControllerRecord) -> Any:
    return pb.MetadataRecord(unregister_controller=pb.UnregisterController(controller_id=record.controller_id))


def _read_unregister_controller(message: Any) -> Record:
    return UnregisterControllerRecord(controller_id=BrokerId(message.controller_id))


def _begin_transaction(record: BeginTransactionRecord) -> Any:
    return pb.MetadataRecord(begin_transaction=pb.BeginTransaction(name=record.name))


def _read_begin_transaction(message: Any) -> Record:
    return BeginTransactionRecord(name=message.name)


def _end_transaction(record: EndTransactionRecord) -> Any:
    return pb.MetadataRecord(end_transaction=pb.EndTransaction())


def _read_end_transaction(message: Any) -> Record:
    return EndTransactionRecord()


def _abort_transaction(record: AbortTransactionRecord) -> Any:
    return pb.MetadataRecord(abort_transaction=pb.AbortTransaction(reason=record.reason))


def _read_abort_transaction(message: Any) -> Record:
    return AbortTransactionRecord(reason=message.reason)


def _topic(record: TopicRecord) -> Any:
    return pb.MetadataRecord(topic=pb.Topic(name=record.name, topic_id=bytes(record.topic_id)))


def _read_topic(message: Any) -> Record:
    return TopicRecord(name=message.name, topic_id=Uuid(message.topic_id))


def _remove_topic(record: RemoveTopicRecord) -> Any:
    return pb.MetadataRecord(remove_topic=pb.RemoveTopic(topic_id=bytes(record.topic_id)))


def _read_remove_topic(message: Any) -> Record:
    return RemoveTopicRecord(topic_id=Uuid(message.topic_id))


def _partition(record: PartitionRecord) -> Any:
    return pb.MetadataRecord(
        partition=pb.Partition(
            topic_id=bytes(record.topic_id),
            partition_id=record.partition_id,
            replicas=record.replicas,
            directories=[bytes(directory) for directory in record.directories],
            isr=record.isr,
            removing_replicas=record.removing_replicas,
            adding_replicas=record.adding_replicas,
            elr=record.elr,
            last_known_elr=record.last_known_elr,
            leader=record.leader,
            leader_recovery_state=int(record.leader_recovery_state),
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            faults=_faults_out(record.faults),
        )
    )


def _read_partition(message: Any) -> Record:
    return PartitionRecord(
        topic_id=Uuid(message.topic_id),
        partition_id=message.partition_id,
        replicas=_brokers_in(message.replicas),
        directories=_uuids_in(message.directories),
        isr=_brokers_in(message.isr),
        removing_replicas=_brokers_in(message.removing_replicas),
        adding_replicas=_brokers_in(message.adding_replicas),
        elr=_brokers_in(message.elr),
        last_known_elr=_brokers_in(message.last_known_elr),
        leader=BrokerId(message.leader),
        leader_recovery_state=LeaderRecoveryState(message.leader_recovery_state),
        leader_epoch=Epoch(message.leader_epoch),
        partition_epoch=message.partition_epoch,
        faults=_faults_in(message.faults),
    )


def _partition_change(record: PartitionChangeRecord) -> Any:
    recovery = record.leader_recovery_state
    return pb.MetadataRecord(
        partition_change=pb.PartitionChange(
            topic_id=bytes(record.topic_id),
            partition_id=record.partition_id,
            isr=_optional_brokers_out(record.isr),
            leader=record.leader,
            replicas=_optional_brokers_out(record.replicas),
            removing_replicas=_optional_brokers_out(record.removing_replicas),
            adding_replicas=_optional_brokers_out(record.adding_replicas),
            leader_recovery_state=None if recovery is None else int(recovery),
            directories=_optional_uuids_out(record.directories),
            elr=_optional_brokers_out(record.elr),
            last_known_elr=_optional_brokers_out(record.last_known_elr),
            faults=None if record.faults is None else pb.FaultyReplicas(replicas=_faults_out(record.faults)),
        )
    )


def _read_partition_change(message: Any) -> Record:
    def brokers(name: str) -> tuple[BrokerId, ...] | None:
        return _brokers_in(getattr(message, name).ids) if message.HasField(name) else None

    return PartitionChangeRecord(
        topic_id=Uuid(message.topic_id),
        partition_id=message.partition_id,
        isr=brokers("isr"),
        leader=BrokerId(message.leader) if message.HasField("leader") else None,
        replicas=brokers("replicas"),
        removing_replicas=brokers("removing_replicas"),
        adding_replicas=brokers("adding_replicas"),
        leader_recovery_state=(
            LeaderRecoveryState(message.leader_recovery_state) if message.HasField("leader_recovery_state") else None
        ),
        directories=_uuids_in(message.directories.ids) if message.HasField("directories") else None,
        elr=brokers("elr"),
        last_known_elr=brokers("last_known_elr"),
        faults=_faults_in(message.faults.replicas) if message.HasField("faults") else None,
    )


def _clear_elr(record: ClearElrRecord) -> Any:
    return pb.MetadataRecord(clear_elr=pb.ClearElr(topic_name=record.topic_name))


def _read_clear_elr(message: Any) -> Record:
    return ClearElrRecord(topic_name=message.topic_name)


def _quorum_recovery(record: QuorumRecoveryRecord) -> Any:
    return pb.MetadataRecord(
        quorum_recovery=pb.QuorumRecovery(
            incarnation=record.incarnation,
            epoch_gap=record.epoch_gap,
            producer_id_gap=record.producer_id_gap,
        )
    )


def _read_quorum_recovery(message: Any) -> Record:
    return QuorumRecoveryRecord(
        incarnation=message.incarnation,
        epoch_gap=message.epoch_gap,
        producer_id_gap=message.producer_id_gap,
    )


def _config(record: ConfigRecord) -> Any:
    return pb.MetadataRecord(
        config=pb.Config(
            resource_type=int(record.resource_type),
            resource_name=record.resource_name,
            key=record.key,
            value=record.value,
        )
    )


def _read_config(message: Any) -> Record:
    return ConfigRecord(
        resource_type=ConfigResourceType(message.resource_type),
        resource_name=message.resource_name,
        key=message.key,
        value=message.value if message.HasField("value") else None,
    )


def _feature_level(record: FeatureLevelRecord) -> Any:
    return pb.MetadataRecord(feature_level=pb.FeatureLevel(name=record.name, level=record.level))


def _read_feature_level(message: Any) -> Record:
    return FeatureLevelRecord(name=message.name, level=message.level)


def _producer_ids(record: ProducerIdsRecord) -> Any:
    return pb.MetadataRecord(
        producer_ids=pb.ProducerIds(
            broker_id=record.broker_id,
            broker_epoch=record.broker_epoch,
            next_producer_id=record.next_producer_id,
        )
    )


def _read_producer_ids(message: Any) -> Record:
    return ProducerIdsRecord(
        broker_id=BrokerId(message.broker_id),
        broker_epoch=message.broker_epoch,
        next_producer_id=message.next_producer_id,
    )


def _no_op(record: NoOpRecord) -> Any:
    return pb.MetadataRecord(no_op=pb.NoOp())


def _read_no_op(message: Any) -> Record:
    return NoOpRecord()


def _faults_out(faults: ReplicaFaults) -> list[Any]:
    return [pb.FaultyReplica(broker_id=broker_id, fault=int(fault)) for broker_id, fault in faults]


def _faults_in(messages: Iterable[Any]) -> ReplicaFaults:
    return tuple(FaultyReplica(BrokerId(m.broker_id), ReplicaFault(m.fault)) for m in messages)


def _brokers_in(ids: Iterable[int]) -> tuple[BrokerId, ...]:
    return _shared(cast(tuple[BrokerId, ...], tuple(ids)), _BROKER_TUPLES)


def _optional_brokers_out(ids: tuple[BrokerId, ...] | None) -> Any:
    return None if ids is None else pb.BrokerIds(ids=ids)


def _uuids_in(values: Iterable[bytes]) -> tuple[Uuid, ...]:
    raw = tuple(values)
    found = _UUID_TUPLES.get(raw)
    return _shared(tuple(map(Uuid, raw)), _UUID_TUPLES) if found is None else found


def _shared(value: T, known: dict[T, T]) -> T:
    """An equal value that others hold already, so that 100 000 partitions do not hold 300 000 lists of the same brokers."""
    found = known.get(value)
    if found is None:
        if len(known) >= SHARED_MAX:
            known.clear()
        found = known[value] = value
    return found


def _optional_uuids_out(values: tuple[Uuid, ...] | None) -> Any:
    return None if values is None else pb.Uuids(ids=[bytes(value) for value in values])


def _endpoints_out(endpoints: Iterable[Endpoint]) -> list[Any]:
    return [
        pb.EndpointValue(listener=e.listener, host=e.host, port=e.port, security_protocol=e.security_protocol)
        for e in endpoints
    ]


def _endpoints_in(messages: Iterable[Any]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(m.listener, m.host, m.port, m.security_protocol) for m in messages)


def _features_out(features: Iterable[FeatureRange]) -> list[Any]:
    return [pb.FeatureRangeValue(name=f.name, min_level=f.min_level, max_level=f.max_level) for f in features]


def _features_in(messages: Iterable[Any]) -> tuple[FeatureRange, ...]:
    return tuple(FeatureRange(m.name, m.min_level, m.max_level) for m in messages)


ENCODERS: dict[type, Callable[[Any], Any]] = {
    RegisterBrokerRecord: _register_broker,
    UnregisterBrokerRecord: _unregister_broker,
    BrokerRegistrationChangeRecord: _broker_registration_change,
    RegisterControllerRecord: _register_controller,
    TopicRecord: _topic,
    RemoveTopicRecord: _remove_topic,
    PartitionRecord: _partition,
    PartitionChangeRecord: _partition_change,
    ClearElrRecord: _clear_elr,
    QuorumRecoveryRecord: _quorum_recovery,
    ConfigRecord: _config,
    FeatureLevelRecord: _feature_level,
    ProducerIdsRecord: _producer_ids,
    NoOpRecord: _no_op,
    UnregisterControllerRecord: _unregister_controller,
    BeginTransactionRecord: _begin_transaction,
    EndTransactionRecord: _end_transaction,
    AbortTransactionRecord: _abort_transaction,
    **SECURITY_ENCODERS,
    **INTEGRITY_ENCODERS,
}

DECODERS: dict[str, Callable[[Any], Record]] = {
    "register_broker": _read_register_broker,
    "unregister_broker": _read_unregister_broker,
    "broker_registration_change": _read_broker_registration_change,
    "register_controller": _read_register_controller,
    "topic": _read_topic,
    "remove_topic": _read_remove_topic,
    "partition": _read_partition,
    "partition_change": _read_partition_change,
    "clear_elr": _read_clear_elr,
    "quorum_recovery": _read_quorum_recovery,
    "config": _read_config,
    "feature_level": _read_feature_level,
    "producer_ids": _read_producer_ids,
    "no_op": _read_no_op,
    "unregister_controller": _read_unregister_controller,
    "begin_transaction": _read_begin_transaction,
    "end_transaction": _read_end_transaction,
    "abort_transaction": _read_abort_transaction,
    **SECURITY_DECODERS,
    **INTEGRITY_DECODERS,
}
