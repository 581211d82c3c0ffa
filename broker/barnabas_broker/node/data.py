"""Builds what runs on a broker's data lane: data logs, replication, coordinators, the Kafka listeners, and the crossing to it.

May touch:  every room, to build it.   Must not touch: the order of start and stop.
Invariants: what `build` returns is frozen; its logs are recovered and its listeners bound, nothing of it runs yet.
Read next:  node.py, which runs it; control.py.
"""

from __future__ import annotations

from functools import partial
from uuid import UUID

from barnabas_broker.api.local_calls import serve_local_calls
from barnabas_broker.api.services import BrokerServices
from barnabas_broker.controller_client.client import ControllerClient
from barnabas_broker.controller_client.producer_ids import ProducerIds
from barnabas_broker.metadata.broker_requests import BrokerRequests
from barnabas_broker.metadata.cache import MetadataCache
from barnabas_broker.metadata.isolation import IsolationWatch
from barnabas_broker.metadata.lifecycle import BrokerIdentity, BrokerLifecycle
from barnabas_broker.metadata.publisher import BrokerMetadataPublisher, CoordinatorTopic
from barnabas_broker.metadata.readiness import Readiness
from barnabas_broker.metadata.replica_reports import ReplicaReports, ReportQueue
from barnabas_broker.metadata.voters_clock import VotersClock
from barnabas_broker.node.context import NodeContext
from barnabas_broker.node.control import ControlParts
from barnabas_broker.node.storage import NodeStorage
from barnabas_broker.node.surroundings import KafkaListeners, Lane, OwnBrokers
from barnabas_broker.security.access import AccessControl
from barnabas_broker.telemetry.receiver import ClientTelemetry
from barnabas_broker.tracing.export import Traces, open_traces
from barnabas_coordination.group.service import OFFSETS_TOPIC, GroupCoordinator
from barnabas_coordination.replicated_log import ReplicatedLog
from barnabas_coordination.share.dead_letters import DeadLetters
from barnabas_coordination.share.due_times import DueTimes
from barnabas_coordination.share.leader import SharePartitions
from barnabas_coordination.share_settings import settings_of
from barnabas_coordination.share_state.persister import BrokersPersister
from barnabas_coordination.share_state.service import ShareCoordinator
from barnabas_coordination.transaction.service import TRANSACTION_TOPIC, TransactionCoordinator
from barnabas_coordination.transaction.verification import Verification
from barnabas_coordination.transaction.writes import TransactionalWrites
from barnabas_log.directories.manager import LogManager
from barnabas_log.disk import Disk
from barnabas_log.errors import StorageFailed
from barnabas_quorum.controller.requests import NO_BROKER_EPOCH
from barnabas_quorum.controller.requests_partitions import ReplicaFaultReport, ReplicaPlacement
from barnabas_quorum.image.features import SUPPORTED_FEATURES
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_replication.manager import ReplicaManager
from barnabas_wire.kafka.ids import SHARE_STATE_TOPIC, Offset, Uuid
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DataParts:
    """A broker's parts."""

    disk: Disk
    logs: LogManager
    lifecycle: BrokerLifecycle
    """Runs on the control lane."""
    replicas: ReplicaManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    transactional: TransactionalWrites
    share_state: ShareCoordinator
    persister: BrokersPersister
    """Asks the share coordinators of all brokers."""
    shares: SharePartitions
    dead_letters: DeadLetters
    due_times: DueTimes
    brokers: OwnBrokers
    """Other brokers, as the coordinators speak to them."""
    share_brokers: OwnBrokers
    """The same for the persister: a request that waits for share state to be replicated holds up nothing else."""
    letter_brokers: OwnBrokers
    """The same for dead letters."""
    server: KafkaListeners
    placements: ReportQueue[ReplicaPlacement]
    faults: ReportQueue[ReplicaFaultReport]
    cache: MetadataCache
    readiness: Readiness
    watch: IsolationWatch
    clock: VotersClock
    publisher: BrokerMetadataPublisher
    traces: Traces | None
    telemetry: ClientTelemetry

    async def announce_ready(self) -> None:
        """The logs are recovered and the listeners bound: the broker may be unfenced. On the control lane."""
        self.lifecycle.set_ready()

    @property
    def epoch_to_keep(self) -> int:
        """The broker epoch of a clean stop. A broker that never registered has changed nothing: what the former start
        left as clean is as clean as it was."""
        epoch = self.lifecycle.broker_epoch
        return epoch if epoch != NO_BROKER_EPOCH else self.logs.previous_broker_epoch


async def build(context: NodeContext, disk: Disk, storage: NodeStorage, control: ControlParts) -> DataParts:
    """Recover the logs, bind the listeners, and make everything between; on the data lane."""
    config, world = context.config, context.world
    settings = control.settings
    clock = VotersClock(
        wall_ms=world.wall_ms,
        monotonic_ms=world.monotonic_ms,
        skew_ms_max=config.log_manager.retention_clock_skew_ms_max,
    )
    logs = LogManager(
        disk=disk,
        directories=config.server.log_dirs,
        default_config=config.log,
        clock_ms=world.wall_ms,
        directory_ids=storage.directory_ids,
        offline=storage.offline,
        config=config.log_manager,
        transform=world.cleaner(disk),
        may_judge_age=clock.may_judge_age,
    )
    await logs.load()
    cache = MetadataCache(MetadataImage.EMPTY)
    lifecycle = _lifecycle(context, storage, control.client, logs, clock)

    def report_offline_directories() -> None:
        lifecycle.set_offline_directories(
            {storage.directory_ids[path] for path in logs.health.offline_directories if path in storage.directory_ids},
            count=len(logs.health.offline_directories),
        )

    report_offline_directories()
    broker_requests = BrokerRequests(
        control.client, broker_id=config.server.id, broker_epoch=lambda: lifecycle.broker_epoch
    )
    placements = ReportQueue(broker_requests.assign_replicas_to_directories)
    faults = ReportQueue(broker_requests.alter_replica_faults)

    def on_directory_failed(directory: str, error: OSError) -> None:
        # One of several directories may fail: its partitions go offline. Without any, a broker that stayed would
        # keep its leaderships and answer nothing.
        if not logs.health.online_directories:
            failure = StorageFailed(f"the last log directory, {directory}, failed: {error}")
            world.control.loop.call_soon_threadsafe(control.failure.fail, failure)
            return
        world.control.loop.call_soon_threadsafe(report_offline_directories)

    replicas = ReplicaManager(
        broker_id=config.server.id,
        broker_epoch=lambda: lifecycle.broker_epoch,
        config=config.replication,
        logs=logs,
        log_config=settings.log_config,
        controller=broker_requests,
        peers=partial(world.peer, config=config),
        clock_ms=world.wall_ms,
        random=context.new_random(),
        submit_work=world.batch_worker(),
        listener=ReplicaReports(placements=placements, faults=faults, on_directory_failed=on_directory_failed),
    )
    producer_ids = ProducerIds(broker_requests.allocate_producer_ids)
    brokers = world.brokers(replicas.endpoint_of, config=config)
    transactions = TransactionCoordinator(
        config=config.transactions,
        log=ReplicatedLog(TRANSACTION_TOPIC, replicas=replicas, disk=disk),
        metadata=cache,
        controller=control.client,
        producer_ids=producer_ids,
        brokers=brokers,
        is_current=lambda: readiness.has_read_registration,
        clock_ms=world.wall_ms,
        may_judge_age=clock.may_judge_age,
    )
    share_log = ReplicatedLog(SHARE_STATE_TOPIC, replicas=replicas, disk=disk)
    share_state = ShareCoordinator(
        config=config.share_state,
        log=share_log,
        delete_before=share_log.delete_before,
        metadata=cache,
        controller=control.client,
        is_current=lambda: readiness.has_read_registration,
        clock_ms=world.wall_ms,
    )
    share_brokers = world.brokers(replicas.endpoint_of, config=config)
    persister = BrokersPersister(brokers=share_brokers, find_coordinator=share_state.topic.find_leader_for)
    groups = GroupCoordinator(
        config=config.groups,
        log=ReplicatedLog(OFFSETS_TOPIC, replicas=replicas, disk=disk),
        metadata=cache,
        controller=control.client,
        persister=persister,
        brokers=brokers,
        share_config=config.share_groups,
        clock_ms=world.wall_ms,
        new_id=lambda: str(UUID(bytes=world.random.randbytes(16), version=4)),
        may_judge_age=clock.may_judge_age,
    )
    letter_brokers = world.brokers(replicas.endpoint_of, config=config)
    dead_letters = DeadLetters(
        config=config.share_groups,
        partition_count=config.api.num_partitions,
        replication_factor=config.api.default_replication_factor,
        log_config=settings.log_config,
        metadata=cache,
        controller=control.client,
        brokers=letter_brokers,
        replicas=replicas,
        disk=disk,
        clock_ms=world.wall_ms,
    )
    due_times = DueTimes(disk=disk)
    shares = SharePartitions(
        replicas=replicas,
        persister=persister,
        letters=dead_letters,
        due_times=due_times,
        metadata=cache,
        settings=partial(settings_of, config.share_groups),
        sessions_max=config.share_groups.group_share_max_share_sessions,
        fetch_bytes_max=config.replication.fetch_bytes_max,
        clock_ms=world.wall_ms,
    )
    transactional = TransactionalWrites(
        config=config.transactions,
        replicas=replicas,
        groups=groups,
        verification=Verification(brokers=brokers, coordinator_of=transactions.topic.leader_for),
    )
    telemetry = ClientTelemetry(config.telemetry, submit=world.batch_worker())
    services = BrokerServices(
        node_id=config.server.id,
        cluster_id=storage.cluster_id,
        auto_listeners=config.server.auto_listeners(),
        config=config.api,
        replica_manager=replicas,
        metadata=cache,
        controller=control.client,
        groups=groups,
        transactions=transactions,
        transactional=transactional,
        share_state=share_state,
        shares=shares,
        producer_ids=producer_ids,
        clock_ms=world.wall_ms,
        quorum_description=lambda: world.control.call(control.leader_view.describe()),
        broker_keys=control.facts.described_keys,
        voters=lambda: control.quorum.voters.voters,
        access=AccessControl(
            config.authorization.new_authorizer(), acls=lambda: cache.image.acls, on_denied=context.audit.denied
        ),
        audit=context.audit,
        telemetry=telemetry,
        change_voters=lambda change, *, principal, client_host: world.control.call(
            control.leader_view.change_voters(change, principal=principal, client_host=client_host)
        ),
    )
    brokers.serve = share_brokers.serve = letter_brokers.serve = serve_local_calls(services)
    traces = open_traces(
        config.tracing,
        node_id=config.server.node_id,
        cluster_id=storage.cluster_id,
        draw=context.new_random().random,
    )
    server = world.listen(services, config=config, wrap=None if traces is None else traces.produce.traced)
    await server.start()

    def update_throttles(delta: MetadataDelta, image: MetadataImage) -> None:
        settings.apply_throttles(replicas.throttle, delta, image, replicas.hosted.now_ms())

    readiness = Readiness(
        broker_id=config.server.id, incarnation_id=context.incarnation_id, on_registered=server.listen
    )
    watch = IsolationWatch(
        contact=lifecycle,
        readiness=readiness,
        is_left_alone=replicas.is_left_alone,
        serve_clients=server.serve_clients,
        session_timeout_ms=config.lifecycle.session_timeout_ms,
        clock_ms=world.monotonic_ms,
    )

    def on_applied(offset: Offset) -> None:
        lifecycle.on_metadata_published(offset)
        control.applied.advance(offset)

    publisher = BrokerMetadataPublisher(
        broker_id=config.server.id,
        replicas=replicas,
        coordinators=[
            CoordinatorTopic(OFFSETS_TOPIC, groups),
            CoordinatorTopic(TRANSACTION_TOPIC, transactions),
            CoordinatorTopic(SHARE_STATE_TOPIC, share_state),
        ],
        changed_settings=settings.changed_log_configs,
        update_throttles=update_throttles,
        update_quotas=server.apply_quotas,
        update_shares=shares.follow,
        cache=cache,
        readiness=readiness,
        control_loop=world.control.loop,
        data_loop=world.data.loop,
        on_applied=on_applied,
        on_error=control.failure.fail,
    )
    return DataParts(
        disk=disk,
        logs=logs,
        lifecycle=lifecycle,
        replicas=replicas,
        groups=groups,
        transactions=transactions,
        transactional=transactional,
        share_state=share_state,
        persister=persister,
        shares=shares,
        dead_letters=dead_letters,
        due_times=due_times,
        brokers=brokers,
        share_brokers=share_brokers,
        letter_brokers=letter_brokers,
        server=server,
        placements=placements,
        faults=faults,
        cache=cache,
        readiness=readiness,
        watch=watch,
        clock=clock,
        publisher=publisher,
        traces=traces,
        telemetry=telemetry,
    )


class LogDirectoryEpochs:
    """What the log directories know of registrations; the files are written by the data lane, which owns them."""

    def __init__(self, logs: LogManager, data: Lane) -> None:
        self._logs = logs
        self._data = data

    def epoch_of(self, directory: Uuid) -> int:
        """See DirectoryEpochs."""
        return self._logs.epoch_of(directory)

    async def note_registration(self, broker_epoch: int) -> None:
        """See DirectoryEpochs."""
        await self._data.call(self._logs.note_registration(broker_epoch))


def _lifecycle(
    context: NodeContext, storage: NodeStorage, client: ControllerClient, logs: LogManager, clock: VotersClock
) -> BrokerLifecycle:
    config, world = context.config, context.world
    own_host = ""
    if config.server.auto_listeners():
        own_host = world.address_towards(config.server.bootstrap_servers())
    return BrokerLifecycle(
        identity=BrokerIdentity(
            broker_id=config.server.id,
            cluster_id=storage.cluster_id,
            incarnation_id=context.incarnation_id,
            endpoints=config.server.advertised_endpoints(own_host),
            rack=config.server.rack,
            host=config.server.host,
            directories=tuple(
                storage.directory_ids[path] for path in config.server.log_dirs if path in storage.directory_ids
            ),
            features=SUPPORTED_FEATURES,
            previous_broker_epoch=logs.previous_broker_epoch,
        ),
        config=config.lifecycle,
        client=client,
        directories=LogDirectoryEpochs(logs, world.data),
        data_lane_last_tick_ms=lambda: context.data_probe.last_tick_ms,
        clock_ms=world.monotonic_ms,
        on_voters_clock=clock.hear,
        clock_skew_ms=lambda: clock.told_skew_ms,
    )
