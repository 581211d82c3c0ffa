"""Brokers: register, heartbeat, fence, unfence, controlled shutdown. Image in, records out.

May touch:  image, partitions.         Must not touch: sessions (their verdict comes in as an argument), what waits.
Invariants: the broker epoch is the offset of its registration record, so it grows with every process start (C7);
            fencing writes partition changes first and then the fence, unfencing the reverse, so that no reader ever
            sees a fenced leader; a new incarnation is fenced and in no ISR where another member remains, whatever was
            on its disk: an unclean stop in page-cache mode needs no rule of its own.
Read next:  partitions.py; sessions.py for who is alive.
"""

from __future__ import annotations

from barnabas_quorum.controller.partitions import (
    AllowsUnclean,
    elect_leaderless,
    leads_any,
    leave_partitions,
    registered_broker,
)
from barnabas_quorum.controller.requests import (
    BrokerHeartbeat,
    BrokerHeartbeatReply,
    RegisterBroker,
    RegisterBrokerReply,
)
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.cluster import BrokerRegistration
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.records import BrokerRegistrationChangeRecord, Record, RegisterBrokerRecord
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Offset, Uuid

RESERVED_DIRECTORY_IDS = 100
"""Directory ids below this number mean something else than a directory (KIP-858): MIGRATING, UNASSIGNED, LOST, …"""
UNASSIGNED_DIRECTORY = Uuid((1).to_bytes(16, "big"))
"""The directory of a replica whose broker has more than one and has not said which (KIP-858)."""
NO_RECORDS_LIMIT = 2**31


def register_broker(
    image: MetadataImage,
    request: RegisterBroker,
    *,
    cluster_id: str,
    next_offset: Offset,
    has_live_session: bool,
    allows_unclean: AllowsUnclean,
) -> ControllerResult[RegisterBrokerReply]:
    """A broker process asks to be part of the cluster (kraft 2.4).

    Args:
        next_offset: what the first record of this result will get.
        has_live_session: the broker id is held by a process that heartbeats to this controller right now. A process
            whose connection broke does not count, so a killed broker that restarts at once gets in at once.

    Raises INCONSISTENT_CLUSTER_ID, INVALID_REGISTRATION, UNSUPPORTED_VERSION, DUPLICATE_BROKER_REGISTRATION.
    """
    if request.cluster_id != cluster_id:
        raise KafkaError.of(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"broker {request.broker_id} belongs to cluster {request.cluster_id}, this is {cluster_id}; "
            "point it at its own controllers, or give it empty directories",
        )
    _check_shape(image, request)
    _check_features(image, request)
    present = image.cluster.broker(request.broker_id)
    if present is not None and present.incarnation_id == request.incarnation_id:
        return _amend(present, request)
    if present is not None and present.is_active and has_live_session:
        raise KafkaError.of(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"another process is running as broker {request.broker_id} (incarnation {present.incarnation_id}); "
            "stop it, or give this one another node.id",
        )
    records: list[Record] = []
    if present is not None and not present.is_fenced:
        records += leave_partitions(image, request.broker_id, allows_unclean=allows_unclean)
    broker_epoch = next_offset + len(records)
    records.append(_registration(request, broker_epoch=broker_epoch, is_fenced=True, is_in_controlled_shutdown=False))
    return ControllerResult(records=records, response=RegisterBrokerReply(broker_epoch=broker_epoch), is_atomic=False)


def heartbeat(
    image: MetadataImage,
    request: BrokerHeartbeat,
    *,
    lowest_active_offset: Offset,
    shutdown_offset: Offset | None,
    allows_unclean: AllowsUnclean,
) -> ControllerResult[BrokerHeartbeatReply]:
    """What follows from a heartbeat: nothing, or a change of the broker's state (kraft 2.5).

    Args:
        lowest_active_offset: how far the metadata is read by every other active broker.
        shutdown_offset: last record of the change that moved its leaders away, None while it does not shut down.

    Raises BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH.
    """
    broker = registered_broker(image, request.broker_id, request.broker_epoch)
    is_caught_up = request.metadata_offset >= broker.epoch

    def answer(
        records: list[Record], *, is_fenced: bool, should_shutdown: bool = False
    ) -> ControllerResult[BrokerHeartbeatReply]:
        reply = BrokerHeartbeatReply(is_caught_up=is_caught_up, is_fenced=is_fenced, should_shutdown=should_shutdown)
        return ControllerResult(records=records, response=reply, is_atomic=False)

    if broker.is_fenced:
        if request.want_shutdown:
            return answer([], is_fenced=True, should_shutdown=True)
        if not request.want_fence and is_caught_up and not broker.is_in_controlled_shutdown:
            return answer(unfence_broker(image, broker, allows_unclean=allows_unclean), is_fenced=False)
        return answer([], is_fenced=True)
    if broker.is_in_controlled_shutdown:
        # everybody must know the new leaders before the old one goes, or clients and followers would find nobody
        is_free = not leads_any(image, broker.id) and lowest_active_offset >= (shutdown_offset or 0)
        if is_free:
            return answer(
                fence_broker(image, broker, allows_unclean=allows_unclean), is_fenced=True, should_shutdown=True
            )
        return answer([], is_fenced=False)
    if request.want_shutdown:
        if leads_any(image, broker.id):
            return answer(begin_controlled_shutdown(image, broker, allows_unclean=allows_unclean), is_fenced=False)
        return answer(fence_broker(image, broker, allows_unclean=allows_unclean), is_fenced=True, should_shutdown=True)
    if request.want_fence:
        return answer(fence_broker(image, broker, allows_unclean=allows_unclean), is_fenced=True)
    return answer([], is_fenced=False)


def fence_broker(image: MetadataImage, broker: BrokerRegistration, *, allows_unclean: AllowsUnclean) -> list[Record]:
    """The broker leaves its ISRs and leads nothing; then it is fenced. In this order (kraft trap 10)."""
    records = leave_partitions(image, broker.id, allows_unclean=allows_unclean)
    records.append(BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, is_fenced=True))
    return records


def unfence_broker(image: MetadataImage, broker: BrokerRegistration, *, allows_unclean: AllowsUnclean) -> list[Record]:
    """The broker may lead and join ISRs; then partitions without a leader take it, where they may."""

    def is_acceptable(candidate: BrokerId) -> bool:
        return candidate == broker.id or image.cluster.is_active(candidate)

    records: list[Record] = [
        BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, is_fenced=False)
    ]
    records += elect_leaderless(
        image, is_acceptable=is_acceptable, allows_unclean=allows_unclean, records_max=NO_RECORDS_LIMIT
    )
    return records


def begin_controlled_shutdown(
    image: MetadataImage, broker: BrokerRegistration, *, allows_unclean: AllowsUnclean
) -> list[Record]:
    """The broker hands over what it leads and leaves its ISRs, while it still serves."""
    records = leave_partitions(image, broker.id, allows_unclean=allows_unclean)
    records.append(
        BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, is_in_controlled_shutdown=True)
    )
    return records


def replica_directory(image: MetadataImage, broker_id: BrokerId) -> Uuid:
    """The directory a new replica on that broker will be in: its only one, or unassigned."""
    broker = image.cluster.broker(broker_id)
    if broker is not None and len(broker.directories) == 1:
        return broker.directories[0]
    return UNASSIGNED_DIRECTORY


def _amend(present: BrokerRegistration, request: RegisterBroker) -> ControllerResult[RegisterBrokerReply]:
    """The same process registers again (its first reply was lost): epoch and fencing stay."""
    record = _registration(
        request,
        broker_epoch=present.epoch,
        is_fenced=present.is_fenced,
        is_in_controlled_shutdown=present.is_in_controlled_shutdown,
    )
    is_same = (present.endpoints, present.rack, present.directories, present.features) == (
        record.endpoints,
        record.rack,
        record.directories,
        record.features,
    )
    return ControllerResult(
        records=[] if is_same else [record], response=RegisterBrokerReply(broker_epoch=present.epoch)
    )


def _registration(
    request: RegisterBroker, *, broker_epoch: int, is_fenced: bool, is_in_controlled_shutdown: bool
) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=broker_epoch,
        endpoints=request.endpoints,
        rack=request.rack,
        is_fenced=is_fenced,
        is_in_controlled_shutdown=is_in_controlled_shutdown,
        directories=request.directories,
        features=request.features,
    )


def _check_shape(image: MetadataImage, request: RegisterBroker) -> None:
    def refuse(reason: str) -> KafkaError:
        return KafkaError.of(ErrorCode.INVALID_REGISTRATION, f"broker {request.broker_id}: {reason}")

    if request.broker_id < 0:
        raise refuse("a broker id is 0 or greater; set node.id")
    if not request.endpoints:
        raise refuse("it has no listener; set listeners or advertised.listeners")
    names = [endpoint.listener for endpoint in request.endpoints]
    if len(set(names)) != len(names):
        raise refuse(f"a listener name occurs twice in {names}")
    if not request.directories:
        raise refuse("it has no log directory; set log.dirs")
    if len(set(request.directories)) != len(request.directories):
        raise refuse("two of its log directories have the same directory.id; format the copied one anew")
    for directory in request.directories:
        if int.from_bytes(directory, "big") < RESERVED_DIRECTORY_IDS:
            raise refuse(f"directory.id {directory} is reserved; format the directory anew")
    for other in image.cluster.sorted_brokers():
        shared = set(other.directories) & set(request.directories)
        if other.id != request.broker_id and shared:
            named = ", ".join(sorted(str(directory) for directory in shared))
            raise refuse(f"directory {named} belongs to broker {other.id}; a copied disk must be formatted anew")


def _check_features(image: MetadataImage, request: RegisterBroker) -> None:
    ranges = {feature.name: feature for feature in request.features}
    for name in sorted(image.features.levels):
        level = image.features.levels[name]
        served = ranges.get(name)
        if served is None or not served.min_level <= level <= served.max_level:
            has = "does not know it" if served is None else f"serves {served.min_level} to {served.max_level}"
            raise KafkaError.of(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the cluster runs {name}={level}, broker {request.broker_id} {has}; run a version that serves it",
            )
