"""The properties of a simulated node: a product's, but for sizes that no operator may choose, so that soon something happens.

May touch:  its arguments.            Must not touch: the run.
Invariants: what a node does follows from its NodeConfig alone, as for a process.
Read next:  nodes.py; barnabas_broker/node/properties.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import fields, replace

from barnabas_broker.node.properties import NodeConfig, node_config
from barnabas_coordination.config import GroupCoordinatorConfig
from barnabas_log.config import FlushOnAcks, LogConfig
from barnabas_quorum.config import QuorumConfig
from barnabas_quorum.raft.voters import Voter
from barnabas_simulation.compaction import BACKOFF_MS, MAP_BYTES
from barnabas_simulation.group_laws import SESSION_S
from barnabas_simulation.group_members import BEAT_S, INTERVAL_S
from barnabas_simulation.hosts import host_of
from barnabas_simulation.listener_laws import CLIENTS_PORT, PASSWORDS
from barnabas_simulation.operators import SEGMENT_BYTES_UNIT
from barnabas_simulation.swarm import LogShape, Swarm
from barnabas_wire.kafka.ids import BrokerId

QUORUM_SEGMENT_BYTES = 1_200
FILE_DELETE_DELAY_MS = 300
SCRUB_BYTES_PER_SECOND = 40_000_000
"""Where bits flip: 10 ms a segment. Elsewhere there is no scrub, whose steps would be most of a run."""
PROPERTIES = {
    "process.roles": "broker,controller",
    "controller.listeners.allow.remote": "true",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # whoever asks in a run; voters are changed by an anonymous caller
    "super.users": "User:simulated;User:operator;User:ANONYMOUS",
    "min.insync.replicas": "2",
    "log.retention.ms": "-1",
    "broker.session.timeout.ms": "3000",
    "broker.disconnect.grace.ms": "500",
    "broker.heartbeat.interval.ms": "500",
    "controlled.shutdown.timeout.ms": "2000",
    "metadata.image.hash.interval.ms": "1000",
    "metadata.image.hash.interval.records": "25",
    "metadata.max.retention.bytes": "4000",
    # snapshots are fetched in several slices, and a log soon begins at one
    "controller.quorum.fetch.snapshot.max.bytes": "300",
    "replica.fetch.backoff.ms": "300",
    "log.dir.free.check.interval.ms": "100",
    # of each directory: small, for every crash copies it
    "log.dir.reserve.bytes": "8192",
    "log.cleaner.backoff.ms": str(BACKOFF_MS),
    "log.cleaner.dedupe.buffer.size": str(MAP_BYTES),
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
}
"""What every simulated node has in its file."""


SECURED = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.name.clients.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.clients.plain.sasl.jaas.config": "PlainLoginModule required "
    + " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    + ";",
    # so few that clients which send several requests at once are made to wait
    "connection.in.flight.requests.max": "3",
}
"""What a node has beside, whose clients connect."""


GROUPS = {
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(int(SESSION_S * 1000)),
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": str(int(BEAT_S * 1000)),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": str(int(INTERVAL_S * 1000)),
    "group.streams.initial.rebalance.delay.ms": "100",
    "group.streams.session.timeout.ms": str(int(SESSION_S * 1000)),
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.heartbeat.interval.ms": str(int(BEAT_S * 1000)),
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.assignment.interval.ms": str(int(INTERVAL_S * 1000)),
    "offsets.retention.check.interval.ms": "300",
}
"""What a node has beside, to which members of a group come."""
RETENTION_MINUTES = 0.02
"""Retention of committed offsets in runs with group members: short, so that unattended offsets expire within a run."""


class _TinyQuorumConfig(QuorumConfig):
    """One that takes any size."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Nothing is refused."""


def tiny_quorum(config: QuorumConfig, **sizes: int) -> QuorumConfig:
    """The same quorum with these fields, unchecked."""
    values = {field.name: getattr(config, field.name) for field in fields(QuorumConfig)}
    return _TinyQuorumConfig(**values | sizes)


def _forgetful(config: GroupCoordinatorConfig) -> GroupCoordinatorConfig:
    """The config with offsets that go sooner than an operator may choose."""
    changed = copy(config)
    object.__setattr__(changed, "offsets_retention_minutes", RETENTION_MINUTES)
    return changed


def simulated_config(
    member: Voter,
    directories: Sequence[str],
    members: Sequence[Voter],
    swarm: Swarm,
    *,
    has_rot: bool,
    sessionless_size: int,
) -> NodeConfig:
    """What a node starts with. members: of the whole cluster, whom it may ask for the leader."""
    host = member.host if swarm.is_listening else "simulated"
    checkpoint_ms = str(int(swarm.logs.checkpoint_s * 1000))
    own = {
        "node.id": str(member.key.id),
        "listeners": ",".join(
            (
                f"PLAINTEXT://{host}:{9000 + member.key.id}",
                *((f"CLIENTS://{host}:{CLIENTS_PORT}",) if swarm.is_listening else ()),
                f"CONTROLLER://{member.host}:{member.port}",
            )
        ),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": ",".join(f"{each.host}:{each.port}" for each in members),
        "log.dirs": ",".join(directories),
        "metadata.log.dir": metadata_directory(member.key.id),
        "metadata.log.max.record.bytes.between.snapshots": str(swarm.snapshot_after_bytes),
        "log.retention.bytes": str(swarm.logs.retention_bytes),
        "log.retention.check.interval.ms": checkpoint_ms,
        "log.flush.offset.checkpoint.interval.ms": checkpoint_ms,
        "replica.high.watermark.checkpoint.interval.ms": checkpoint_ms,
        "log.scrub.bytes.per.second.max": str(SCRUB_BYTES_PER_SECOND if has_rot else 0),
        "log.cleaner.enable": str(swarm.is_compacting).lower(),
        "replica.lag.time.max.ms": str(swarm.replica_lag_ms),
        "replica.fetch.silence.time.max.ms": str(swarm.replica_silence_ms),
        "replica.fetch.max.bytes": str(swarm.replica_fetch_bytes),
    }
    if swarm.hosts:
        own["broker.host"] = host_of(member.key.id, swarm.hosts)
    config = node_config(
        PROPERTIES | own | (SECURED if swarm.is_listening else {}) | (GROUPS if swarm.members is not None else {})
    )
    shape = _Shape(swarm.logs)
    return replace(
        config,
        log=shape(config.log),
        shape_log=shape,
        quorum=tiny_quorum(config.quorum, segment_bytes=QUORUM_SEGMENT_BYTES),
        groups=config.groups if swarm.members is None else _forgetful(config.groups),
        replication=replace(config.replication, sessionless_size=sessionless_size),
    )


def retiring_from(config: NodeConfig, delay_s: float) -> NodeConfig:
    """The config with a first look of retention so long after the start: few lives last as long as the product waits.
    Best at any moment: metadata may come as late as that, while the quorum has no leader."""
    log_manager = replace(config.log_manager, retention_initial_delay_ms=int(delay_s * 1000))
    return replace(config, log_manager=log_manager)


def metadata_directory(node_id: BrokerId) -> str:
    """Where a node keeps its metadata log."""
    return f"node-{node_id}"


class _Shape:
    """What becomes of a topic's settings."""

    def __init__(self, shape: LogShape) -> None:
        self._shape = shape

    def __call__(self, config: LogConfig) -> LogConfig:
        shape = self._shape
        is_set = config.segment_bytes % SEGMENT_BYTES_UNIT == 0
        return replace(
            config,
            segment_bytes=config.segment_bytes // SEGMENT_BYTES_UNIT if is_set else shape.segment_bytes,
            index_interval_bytes=shape.index_interval_bytes,
            file_delete_delay_ms=FILE_DELETE_DELAY_MS,
            flush_on_acks=FlushOnAcks.PAGE_CACHE if shape.is_page_cache else FlushOnAcks.FSYNC,
        )
