"""Brokers: register, heartbeat, fence, unfence, controlled shutdown. Image in, records out.

May touch:  image, partitions.         Must not touch: sessions (their verdict is an argument), everything that waits.
Invariants: the broker epoch is the offset of its registration record, so it grows with every process start;
            fencing writes the partition changes before the fence, unfencing the reverse, so that no reader ever sees a
            fenced leader; a fenced broker is in no ISR; a broker that stopped uncleanly is in no ELR either where that
            may have lost records; one that returns without its replica's directory is in none of the sets (elr.py), nor is one
            whose directory is an older copy (older_copies).
Read next:  partitions.py; sessions.py for who is alive; directories.py for disks that fail.
"""

from __future__ import annotations

from dataclasses import replace

from barnabas_quorum.controller.directories import fail_directories
from barnabas_quorum.controller.elections import elect_leaderless
from barnabas_quorum.controller.elr import known_holders
from barnabas_quorum.controller.features import require_served
from barnabas_quorum.controller.partition_rules import PartitionRules, is_replica_gone
from barnabas_quorum.controller.partitions import (
    PlacedPartition,
    held_partitions,
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
from barnabas_quorum.controller.requests_partitions import UnregisterBroker, UnregisterBrokerReply
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.cluster import BrokerRegistration
from barnabas_quorum.image.directories import directory_of, is_reserved
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.records import (
    BrokerRegistrationChangeRecord,
    Record,
    RegisterBrokerRecord,
    ServedDirectory,
    UnregisterBrokerRecord,
)
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Endpoint, Offset, Uuid, is_host

NO_RECORDS_LIMIT = 2**31


def register_broker(
    image: MetadataImage,
    request: RegisterBroker,
    *,
    cluster_id: str,
    next_offset: Offset,
    has_live_session: bool,
    rules: PartitionRules,
) -> ControllerResult[RegisterBrokerReply]:
    """Register a broker process (BrokerRegistration, KIP-631).

    Args:
        next_offset: the offset that the first record of this result will get.
        has_live_session: a process with this broker id heartbeats to this controller now. A process whose connection
            broke does not count, so a killed broker that restarts at once can register at once.

    Raises INCONSISTENT_CLUSTER_ID, INVALID_REGISTRATION, UNSUPPORTED_VERSION, DUPLICATE_BROKER_REGISTRATION.
    """
    if request.cluster_id != cluster_id:
        raise KafkaError.of(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"broker {request.broker_id} belongs to cluster {request.cluster_id} by its meta.properties, this is {cluster_id}: correct its "
            "controller.quorum.bootstrap.servers, give it empty log.dirs, or restore meta.properties where it was damaged",
        )
    _check_shape(image, request)
    require_served(image, request.features, f"broker {request.broker_id}")
    present = image.cluster.broker(request.broker_id)
    if present is not None and present.incarnation_id == request.incarnation_id:
        return _amend(image, present, request, rules=rules)
    if present is not None and present.is_active and has_live_session:
        raise KafkaError.of(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"another process is running as broker {request.broker_id} (incarnation {present.incarnation_id}); "
            "stop it, or give this one another node.id",
        )
    records: list[Record] = []
    if present is not None:
        is_unclean = request.previous_broker_epoch != present.epoch
        before = present.directories

        def is_lost(placed: PlacedPartition) -> bool:
            return is_unclean and not rules.is_durable(placed.topic.name)

        def is_gone(placed: PlacedPartition) -> bool:
            return is_replica_gone(
                placed.partition,
                request.broker_id,
                before=before,
                now=request.directories,
                has_offline=request.has_offline_directories,
            )

        copies = older_copies(present, request) if image.features.has_proof else frozenset()

        def is_copied(placed: PlacedPartition) -> bool:
            directory = directory_of(placed.partition, request.broker_id)
            return directory in copies or (bool(copies) and is_reserved(directory))

        records += leave_partitions(
            image, [request.broker_id], rules=rules, is_lost=is_lost, is_gone=is_gone, is_copied=is_copied
        )
    broker_epoch = next_offset + len(records)
    records.append(
        _registration(
            image,
            request,
            broker_epoch=broker_epoch,
            is_fenced=True,
            is_in_controlled_shutdown=False,
            # a broker is restarted in maintenance more often than not: it must not lead again by that
            is_in_maintenance=present is not None and present.is_in_maintenance,
            served=() if present is None else _still_served(present, request),
        )
    )
    return ControllerResult(records=records, response=RegisterBrokerReply(broker_epoch=broker_epoch), is_atomic=False)


def older_copies(present: BrokerRegistration, request: RegisterBroker) -> frozenset[Uuid]:
    """The directories that a broker registers with and that name an older epoch than one in which it served from them: somebody put a
    copy from before in their place.

    A broker writes its epoch into its directories after it is registered and before it serves. If it crashes in between, the epoch
    that it names is older than that of its registration, but it never served in that one: so it is compared with the last
    epoch in which it was unfenced. A directory that says nothing (-1) is of a version that wrote no epoch.
    """
    served = dict(present.served)
    named = zip(request.directories, request.directory_epochs, strict=False)
    return frozenset(directory for directory, epoch in named if 0 <= epoch < served.get(directory, epoch))


def _still_served(present: BrokerRegistration, request: RegisterBroker) -> tuple[ServedDirectory, ...]:
    """What stays known of directories: of those that do not work now as well, if there may be any."""
    return tuple(
        each for each in present.served if request.has_offline_directories or each.directory in request.directories
    )


def heartbeat(
    image: MetadataImage,
    request: BrokerHeartbeat,
    *,
    lowest_active_offset: Offset,
    shutdown_offset: Offset | None,
    rules: PartitionRules,
) -> ControllerResult[BrokerHeartbeatReply]:
    """Decide what a heartbeat changes in the broker's state, if anything (BrokerHeartbeat, KIP-631).

    Args:
        lowest_active_offset: the offset up to which every other active broker has read the metadata.
        shutdown_offset: last record of the change that moved its leaders away, None while it is not shutting down.

    Raises BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH.
    """
    broker = registered_broker(image, request.broker_id, request.broker_epoch)
    is_caught_up = request.metadata_offset >= broker.epoch
    failed = fail_directories(image, broker, request.offline_directories, rules=rules)
    if failed:
        # the next heartbeat gets its other wishes, decided on an image that knows of the failed directories
        return ControllerResult(
            records=failed,
            response=BrokerHeartbeatReply(is_caught_up=is_caught_up, is_fenced=broker.is_fenced),
            is_atomic=False,
        )

    def answer(
        records: list[Record], *, is_fenced: bool, should_shutdown: bool = False
    ) -> ControllerResult[BrokerHeartbeatReply]:
        reply = BrokerHeartbeatReply(is_caught_up=is_caught_up, is_fenced=is_fenced, should_shutdown=should_shutdown)
        return ControllerResult(records=records, response=reply, is_atomic=False)

    if broker.is_fenced:
        if request.want_shutdown:
            return answer([], is_fenced=True, should_shutdown=True)
        if not request.want_fence and is_caught_up and not broker.is_in_controlled_shutdown:
            return answer(unfence_broker(image, broker, rules=rules), is_fenced=False)
        return answer([], is_fenced=True)
    if broker.is_in_controlled_shutdown:
        # every broker must know the new leaders before the old one stops, or clients and followers would find no leader
        is_free = not leads_any(image, broker.id) and lowest_active_offset >= (shutdown_offset or 0)
        if is_free:
            return answer(fence_brokers(image, broker, rules=rules), is_fenced=True, should_shutdown=True)
        return answer([], is_fenced=False)
    if request.want_shutdown:
        if leads_any(image, broker.id):
            return answer(begin_controlled_shutdown(image, broker, rules=rules), is_fenced=False)
        return answer(fence_brokers(image, broker, rules=rules), is_fenced=True, should_shutdown=True)
    if request.want_fence:
        return answer(fence_brokers(image, broker, rules=rules), is_fenced=True)
    return answer([], is_fenced=False)


def fence_brokers(image: MetadataImage, *brokers: BrokerRegistration, rules: PartitionRules) -> list[Record]:
    """The brokers leave their ISRs and lead nothing; then they are fenced. The reverse order would show a fenced leader. Those that
    are lost together are fenced together: no partition is handed from one of them to another."""
    records = leave_partitions(image, [broker.id for broker in brokers], rules=rules)
    records += [
        BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, is_fenced=True)
        for broker in brokers
    ]
    return records


def unfence_broker(image: MetadataImage, broker: BrokerRegistration, *, rules: PartitionRules) -> list[Record]:
    """The broker may lead and join ISRs again; then partitions without a leader elect it where it may lead."""
    records: list[Record] = [
        BrokerRegistrationChangeRecord(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            is_fenced=False,
            serves=True if image.features.has_proof else None,
        )
    ]
    records += elect_leaderless(image, rules=rules, records_max=NO_RECORDS_LIMIT, joining=broker.id)
    return records


def begin_controlled_shutdown(
    image: MetadataImage, broker: BrokerRegistration, *, rules: PartitionRules
) -> list[Record]:
    """The broker hands its leaderships over and leaves its ISRs while it still serves."""
    records = leave_partitions(image, [broker.id], rules=rules)
    records.append(
        BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, is_in_controlled_shutdown=True)
    )
    return records


def unregister_broker(
    image: MetadataImage, request: UnregisterBroker, *, rules: PartitionRules
) -> ControllerResult[UnregisterBrokerReply]:
    """Forget a broker that will not come back. Raises BROKER_ID_NOT_REGISTERED, INVALID_REQUEST while it is in service or
    while it is the only broker known to hold some partition's committed records."""
    broker = image.cluster.broker(request.broker_id)
    if broker is None:
        raise KafkaError.of(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"broker {request.broker_id} is not registered; `barnabas broker list` shows those that are",
        )
    if not broker.is_fenced:
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST,
            f"broker {broker.id} is in service; stop it first, or it would register again",
        )
    for topic, index, partition in held_partitions(image, broker.id):
        if known_holders(partition) == {broker.id}:
            raise KafkaError.of(
                ErrorCode.INVALID_REQUEST,
                f"only broker {broker.id} is known to hold every committed record of {topic.name}-{index}; start it, or "
                f"give these records up with `barnabas topic elect {topic.name}:{index} --unclean`, after a reassignment "
                "where no other broker has a replica, or delete the topic",
            )
    records = leave_partitions(image, [broker.id], rules=rules, is_gone=lambda placed: True)
    records.append(UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch))
    return ControllerResult(records=records, response=UnregisterBrokerReply(), is_atomic=False)


def _amend(
    image: MetadataImage, present: BrokerRegistration, request: RegisterBroker, *, rules: PartitionRules
) -> ControllerResult[RegisterBrokerReply]:
    """The same process registers again because it lost the first reply: epoch and fencing stay. Directories may have failed
    since; a failed one stays failed until the next process start."""
    gone = [directory for directory in present.directories if directory not in request.directories]
    records = fail_directories(image, present, gone, rules=rules)
    record = _registration(
        image,
        replace(request, directories=tuple(d for d in present.directories if d not in gone)),
        broker_epoch=present.epoch,
        is_fenced=present.is_fenced,
        is_in_controlled_shutdown=present.is_in_controlled_shutdown,
        is_in_maintenance=present.is_in_maintenance,
        served=present.served,
    )
    is_same = (present.endpoints, present.rack, present.host, present.features) == (
        record.endpoints,
        record.rack,
        record.host,
        record.features,
    )
    return ControllerResult(
        records=records if is_same else [*records, record],
        response=RegisterBrokerReply(broker_epoch=present.epoch),
        is_atomic=False,
    )


def _registration(
    image: MetadataImage,
    request: RegisterBroker,
    *,
    broker_epoch: int,
    is_fenced: bool,
    is_in_controlled_shutdown: bool,
    is_in_maintenance: bool,
    served: tuple[ServedDirectory, ...],
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
        is_in_maintenance=is_in_maintenance,
        served=served,
        host=request.host if image.features.has_hosts else None,
    )


def _check_shape(image: MetadataImage, request: RegisterBroker) -> None:
    def refuse(reason: str) -> KafkaError:
        return KafkaError.of(ErrorCode.INVALID_REGISTRATION, f"broker {request.broker_id}: {reason}")

    if request.broker_id < 0:
        raise refuse("a broker id must be 0 or greater; set node.id")
    if not request.endpoints:
        raise refuse("it has no listener; set listeners or advertised.listeners")
    for endpoint in request.endpoints:
        if not is_address(endpoint):
            raise refuse(f"{endpoint.host!r}, port {endpoint.port}, is not an address; set advertised.listeners")
    names = [endpoint.listener for endpoint in request.endpoints]
    if len(set(names)) != len(names):
        raise refuse(f"{names} contains a listener name twice")
    if not request.directories:
        raise refuse("it has no log directory; set log.dirs")
    if len(set(request.directories)) != len(request.directories):
        raise refuse("two of its log directories have the same directory.id; format the copy again")
    for directory in request.directories:
        if is_reserved(directory):
            raise refuse(f"directory.id {directory} is reserved; format the directory again")
    for other in image.cluster.sorted_brokers():
        shared = set(other.directories) & set(request.directories)
        if other.id != request.broker_id and shared:
            named = ", ".join(sorted(str(directory) for directory in shared))
            raise refuse(f"directory {named} belongs to broker {other.id}; format a copied disk again")


def is_address(endpoint: Endpoint) -> bool:
    """Whether others can try to connect there: an invalid host makes Python raise in each of them, and not an OSError."""
    try:
        endpoint.host.encode("idna")
    except UnicodeError:
        return False
    return is_host(endpoint.host) and 0 <= endpoint.port < 1 << 16
