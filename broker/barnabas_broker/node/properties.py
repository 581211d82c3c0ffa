"""One node's `server.properties`: read, validated, and split into the finished config object of each room.

May touch:  the properties file that is named.   Must not touch: sockets, clocks, the environment.
Invariants: every refusal names the key and the fix; what a room gets is frozen and complete.
Read next:  ../config/keys.py for how fields become keys, node.py for who gets what.

An unknown key is ignored with a warning when a file has it, as Kafka does, with the nearest known one; typed on a
command line it is refused (refuse_unknown), where it is not kept for a Kafka that would know it. Keys that promise what
a node here does not keep are refused wherever they are set (refused_keys.py). Differs from Kafka: listeners bind
loopback when no host is given.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path

from barnabas_broker.api.config import ApiConfig
from barnabas_broker.config.keys import ConfigError, ConfigKey, format_value, keys_of, load, nearest
from barnabas_broker.config.log_output import LogOutputConfig
from barnabas_broker.metadata.config import LifecycleConfig
from barnabas_broker.network.config import NetworkConfig
from barnabas_broker.node.refused_keys import UNDERSTOOD_KEYS, is_understood, refusal
from barnabas_broker.quota import QuotaConfig
from barnabas_broker.security.audit_config import AuditConfig
from barnabas_broker.security.authorization import AuthorizationConfig
from barnabas_broker.security.config import SecurityConfig
from barnabas_broker.security.grpc_security import ADMIN, DIAL_PLAINTEXT, GrpcSecurity, load_grpc_security
from barnabas_broker.security.listener_security import (
    INTER_BROKER_PROTOCOL,
    PROTOCOL_MAP,
    ListenerSecurity,
    client_security,
    has_secret,
    inter_broker_listener,
    is_known,
    load_listeners,
)
from barnabas_broker.security.tls import ClientTls, refuse_readable_by_others
from barnabas_broker.telemetry.config import TelemetryConfig
from barnabas_broker.tracing.config import TracingConfig
from barnabas_coordination.config import GroupCoordinatorConfig
from barnabas_coordination.share_config import ShareCoordinatorConfig
from barnabas_coordination.share_group_config import ShareGroupConfig
from barnabas_coordination.transaction.config import TransactionCoordinatorConfig
from barnabas_log.config import SYNONYM_KEYS, FlushOnAcks, LogConfig, LogManagerConfig, broker_defaults
from barnabas_quorum.config import QuorumConfig
from barnabas_quorum.controller.config import ControllerConfig
from barnabas_replication.config import ReplicationConfig
from barnabas_wire.client.security import ClientSecurity
from barnabas_wire.config_key import config_key
from barnabas_wire.java_properties import read_properties_file
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import BrokerId, Endpoint
from barnabas_wire.lazy_dataclass import dataclass

logger = logging.getLogger("barnabas_broker.config.server")  # the name that operators set a level of

AUTO = "auto"
"""In place of advertised.listeners: the node finds its own address."""
WILDCARDS = ("", "0.0.0.0", "::")
"""Hosts that bind every address."""
BROKER = "broker"
CONTROLLER = "controller"
MIN_INSYNC_REPLICAS = "min.insync.replicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The identity of this node, and where it listens."""

    process_roles: tuple[str, ...] = config_key(
        "process.roles", MISSING, "Roles of this process: broker, controller, or both."
    )
    node_id: int = config_key("node.id", MISSING, "Id of this node, 0 or greater, unique in the cluster.")
    log_dirs: tuple[str, ...] = config_key(
        "log.dirs", MISSING, "Directories of the data logs, comma-separated; each is formatted once."
    )
    metadata_log_dir: str | None = config_key(
        "metadata.log.dir", None, "Directory of the metadata log; the first of log.dirs if not set."
    )
    listeners: tuple[str, ...] = config_key(
        "listeners",
        ("PLAINTEXT://127.0.0.1:9092",),
        "Where this node listens, NAME://host:port; an empty host means loopback.",
    )
    advertised_listeners: tuple[str, ...] = config_key(
        "advertised.listeners",
        (),
        "The addresses that clients connect to; the listeners if not set. auto: where a listener is bound to every address, each client "
        "is told the one of this host that its own connection came to, and brokers the one that leads to the controllers.",
    )
    controller_listener_names: tuple[str, ...] = config_key(
        "controller.listener.names", ("CONTROLLER",), "Listeners that speak gRPC between controllers and brokers."
    )
    inter_broker_listener_name: str | None = config_key(
        "inter.broker.listener.name", None, "Listener that followers fetch from; the first Kafka listener if not set."
    )
    quorum_bootstrap_servers: tuple[str, ...] = config_key(
        "controller.quorum.bootstrap.servers", MISSING, "host:port of controllers' gRPC listeners, comma-separated."
    )
    rack: str | None = config_key("broker.rack", None, "Rack of this broker; replicas spread across racks.")
    host: str | None = config_key(
        "broker.host",
        None,
        "Host of this broker: brokers of one host are lost together, so replicas spread across hosts within their racks. Not set: it is "
        "one of its own. `barnabas-server host` sets it to the host's name. Counts from barnabas.host.version 1 on.",
    )
    admin_listeners: tuple[str, ...] = config_key(
        "admin.listeners",
        ("127.0.0.1:9190",),
        "host:port of the gRPC admin service, which listener.security.protocol.map calls ADMIN; NAME://host:port for one that the map "
        "calls otherwise.",
    )
    admin_allow_remote: bool = config_key(
        "admin.listeners.allow.remote",
        False,
        "Accept an admin listener off loopback although it has no authentication (ADMIN:SSL or ADMIN:SASL_SSL in "
        "listener.security.protocol.map): anyone who reaches it administers the cluster.",
    )
    controller_allow_remote: bool = config_key(
        "controller.listeners.allow.remote",
        False,
        "Accept a controller listener off loopback although it has no authentication (CONTROLLER:SSL in "
        "listener.security.protocol.map): anyone who reaches it may vote, register brokers and change the metadata.",
    )
    controller_dial_plaintext: bool = config_key(
        DIAL_PLAINTEXT,
        False,
        "While controller listeners go over from plain text to TLS, node after node: call each as it speaks, in plain text too. Set it "
        "on every node before the first one changes, take it off after the last: until then who sits between two nodes can keep them in "
        "plain text.",
    )
    metrics_listeners: tuple[str, ...] = config_key(
        "metrics.listeners", ("127.0.0.1:9464",), "host:port of /metrics, /livez, /readyz and /healthz."
    )

    @property
    def id(self) -> BrokerId:
        """node.id as the type the rooms speak of."""
        return BrokerId(self.node_id)

    @property
    def is_broker(self) -> bool:
        """Whether this process serves Kafka clients."""
        return BROKER in self.process_roles

    @property
    def is_controller(self) -> bool:
        """Whether this process votes in the metadata quorum."""
        return CONTROLLER in self.process_roles

    @property
    def metadata_directory(self) -> str:
        """Directory that holds the metadata log."""
        return self.metadata_log_dir or self.log_dirs[0]

    @property
    def all_directories(self) -> tuple[str, ...]:
        """Every directory that `format` writes meta.properties into, each once, in order."""
        directories = self.log_dirs if self.is_broker else ()
        return tuple(dict.fromkeys((*directories, self.metadata_directory)))

    def kafka_endpoints(self) -> tuple[Endpoint, ...]:
        """Listeners that speak the Kafka protocol, as bound."""
        return tuple(
            point for point in map(_listener, self.listeners) if point.listener not in self.controller_listener_names
        )

    def controller_endpoint(self) -> Endpoint | None:
        """The gRPC listener of the controller role, as bound; None on a pure broker."""
        points = [point for point in map(_listener, self.listeners) if point.listener in self.controller_listener_names]
        return points[0] if points else None

    def admin_endpoints(self) -> tuple[Endpoint, ...]:
        """The gRPC listeners of operators, as bound."""
        return tuple(map(_admin_listener, self.admin_listeners))

    @property
    def is_advertised_by_itself(self) -> bool:
        """Whether advertised.listeners leaves the addresses of this host to the node."""
        return self.advertised_listeners == (AUTO,)

    def auto_listeners(self) -> frozenset[str]:
        """Names of the Kafka listeners whose clients are told the address that they came to."""
        if not self.is_advertised_by_itself:
            return frozenset()
        return frozenset(point.listener for point in self.kafka_endpoints() if point.host in WILDCARDS)

    def _advertised(self) -> tuple[Endpoint, ...]:
        return () if self.is_advertised_by_itself else tuple(map(_listener, self.advertised_listeners))

    def bootstrap_servers(self) -> list[tuple[str, int]]:
        """Host and port of each controller that is named. Raises ConfigError."""
        return [split_address(each, "controller.quorum.bootstrap.servers") for each in self.quorum_bootstrap_servers]

    def advertised_controller_endpoint(self) -> Endpoint | None:
        """Where other controllers reach this one, if advertised.listeners says so."""
        points = self._advertised()
        return next((point for point in points if point.listener in self.controller_listener_names), None)

    def advertised_endpoints(self, own_host: str = "") -> tuple[Endpoint, ...]:
        """Where clients and followers connect to. own_host: what stands for a wildcard that advertised.listeners=auto leaves."""
        advertised = {point.listener: point for point in self._advertised()}
        auto = self.auto_listeners() if own_host else ()
        bound: dict[str, Endpoint] = {}
        for point in self.kafka_endpoints():
            bound.setdefault(point.listener, point)
        return tuple(
            point._replace(host=own_host) if name in auto else advertised.get(name, point)
            for name, point in bound.items()
        )

    def inter_broker_listener(self) -> str:
        """Name of the listener that followers fetch from."""
        return self.inter_broker_listener_name or self.kafka_endpoints()[0].listener

    def validate(self, grpc_security: GrpcSecurity | None = None) -> None:
        """Raise ConfigError for the first contradiction, naming the keys that mend it. grpc_security: None: in plain text."""
        grpc_security = grpc_security or GrpcSecurity()
        unknown = [role for role in self.process_roles if role not in (BROKER, CONTROLLER)]
        if unknown or not self.process_roles:
            raise ConfigError(
                f"process.roles={','.join(self.process_roles)}: use broker, controller, or broker,controller"
            )
        if self.node_id < 0:
            raise ConfigError(f"node.id={self.node_id}: use 0 or greater")
        if not self.log_dirs:
            raise ConfigError("log.dirs is empty: name at least one directory")
        if self.is_controller and self.controller_endpoint() is None:
            names = ",".join(self.controller_listener_names)
            raise ConfigError(
                f"a controller needs a listener named {names}: add {names}://127.0.0.1:19092 to listeners"
            )
        if not self.is_controller and self.controller_endpoint() is not None:
            raise ConfigError(
                "listeners has a controller listener, but process.roles has no controller: remove one of them"
            )
        if self.is_broker and not self.kafka_endpoints():
            raise ConfigError("a broker needs a Kafka listener: add PLAINTEXT://127.0.0.1:9092 to listeners")
        if not self.is_broker and self.kafka_endpoints():
            raise ConfigError("listeners has a Kafka listener, but process.roles has no broker: remove one of them")
        if self.is_broker and self.inter_broker_listener() not in {point.listener for point in self.kafka_endpoints()}:
            raise ConfigError(f"inter.broker.listener.name={self.inter_broker_listener_name} is not one of listeners")
        if AUTO in self.advertised_listeners and not self.is_advertised_by_itself:
            raise ConfigError(
                f"advertised.listeners={','.join(self.advertised_listeners)}: {AUTO} stands alone, or not at all"
            )
        for key, points in (("listeners", self.kafka_endpoints()), ("advertised.listeners", self._advertised())):
            _refuse_doubled_names(key, points)
        for point in self._advertised():
            if point.host in WILDCARDS:
                at = f"{point.listener}://{point.host}:{point.port}"
                raise ConfigError(f"advertised.listeners={at}: clients cannot connect to a wildcard, name a host")
        for endpoint in () if self.is_advertised_by_itself else self.advertised_endpoints():
            if endpoint.host in WILDCARDS:
                at = f"{endpoint.listener}://{endpoint.host}:{endpoint.port}"
                raise ConfigError(
                    f"listeners={at} listens on every address, and clients cannot connect to a wildcard: set "
                    f"advertised.listeners={endpoint.listener}://HOST:{endpoint.port} with a HOST that clients can reach, or "
                    f"advertised.listeners={AUTO} where each client is to be told the address that it came to"
                )
        if not self.bootstrap_servers():
            raise ConfigError("controller.quorum.bootstrap.servers is empty: name at least one controller as host:port")
        for address in self.metrics_listeners:
            split_address(address, "metrics.listeners")
        controller = self.controller_endpoint()
        if (
            controller is not None
            and not is_loopback(controller.host)
            and not grpc_security.controller.is_authenticated
            and not self.controller_allow_remote
        ):
            raise ConfigError(
                f"listeners={controller.listener}://{controller.host}:{controller.port} is off loopback and has no authentication: "
                f"give it certificates ({controller.listener}:SSL in {PROTOCOL_MAP}), bind 127.0.0.1, or set "
                "controller.listeners.allow.remote=true if the network keeps strangers out"
            )
        taken = {_listener(point).listener for point in self.listeners}
        for admin in self.admin_endpoints():
            name = admin.listener
            if name in taken:
                raise ConfigError(f"admin.listeners has {name}, which is one of listeners: give it a name of its own")
            is_authenticated = name in grpc_security.admins and grpc_security.admins[name].is_authenticated
            if not is_loopback(admin.host) and not is_authenticated and not self.admin_allow_remote:
                raise ConfigError(
                    f"admin.listeners={admin.host}:{admin.port} is off loopback and has no authentication: give it one ({name}:SSL "
                    f"or {name}:SASL_SSL in {PROTOCOL_MAP}), bind 127.0.0.1, or set admin.listeners.allow.remote=true if the "
                    "network keeps strangers out"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """The finished config objects of one node, one per room, and the cluster-wide topic defaults as text."""

    server: ServerConfig
    network: NetworkConfig
    api: ApiConfig
    log: LogConfig
    log_manager: LogManagerConfig
    replication: ReplicationConfig
    quorum: QuorumConfig
    controller: ControllerConfig
    groups: GroupCoordinatorConfig
    share_groups: ShareGroupConfig
    transactions: TransactionCoordinatorConfig
    share_state: ShareCoordinatorConfig
    lifecycle: LifecycleConfig
    authorization: AuthorizationConfig
    audit: AuditConfig
    quota: QuotaConfig
    tracing: TracingConfig
    telemetry: TelemetryConfig
    log_output: LogOutputConfig
    security: SecurityConfig
    """What listeners have that say nothing else."""
    listener_security: Mapping[str, ListenerSecurity]
    """By name of the Kafka listener."""
    client_security: ClientSecurity
    """How this broker connects to others."""
    client_tls: ClientTls | None
    """What renews its certificate there; None without TLS."""
    grpc_security: GrpcSecurity
    """The security of the gRPC listeners."""
    static_properties: Mapping[str, str]
    shape_log: Callable[[LogConfig], LogConfig] = lambda config: config
    """What becomes of each topic's settings: a simulation has sizes that no operator may choose."""

    def values(self) -> list[tuple[ConfigKey, str]]:
        """Every key of this node with the value in effect, as text, by name."""
        rooms = [getattr(self, field.name) for field in fields(self) if is_dataclass(getattr(self, field.name))]
        found = {
            key.name: (key, format_value(getattr(room, key.field))) for room in rooms for key in keys_of(type(room))
        }
        return [found[name] for name in sorted(found)]


ROOM_CONFIGS: tuple[type, ...] = (
    ServerConfig,
    NetworkConfig,
    ApiConfig,
    LogConfig,
    LogManagerConfig,
    ReplicationConfig,
    QuorumConfig,
    ControllerConfig,
    GroupCoordinatorConfig,
    ShareGroupConfig,
    TransactionCoordinatorConfig,
    ShareCoordinatorConfig,
    LifecycleConfig,
    AuthorizationConfig,
    AuditConfig,
    QuotaConfig,
    TracingConfig,
    TelemetryConfig,
    LogOutputConfig,
    SecurityConfig,
)


def known_keys() -> list[ConfigKey]:
    """Every key of every room, by name; a key that two rooms read is listed once."""
    by_name: dict[str, ConfigKey] = {}
    for room in ROOM_CONFIGS:
        for key in keys_of(room):
            by_name.setdefault(key.name, key)
    return [by_name[name] for name in sorted(by_name)]


def read_properties(path: str | Path) -> dict[str, str]:
    """Parse a properties file as Java does (java_properties.py). Raises ConfigError with the line number."""
    try:
        properties = read_properties_file(path)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    sensitive = {key.name for key in known_keys() if key.is_sensitive}
    secret = next((key for key, value in properties.items() if value and (has_secret(key) or key in sensitive)), None)
    if secret is not None:
        refuse_readable_by_others(str(path), secret)
    return properties


def node_config(properties: Mapping[str, str]) -> NodeConfig:
    """Build every room's config from one node's properties; raises ConfigError that names the key and the fix."""
    for name, hint in _unknown(properties):
        logger.warning("%s is not a key that barnabas knows and is ignored%s", name, hint)
    log = _log_config(properties)
    for name, value in properties.items():
        reason = refusal(name, value, is_page_cache=log.flush_on_acks is FlushOnAcks.PAGE_CACHE)
        if reason is not None:
            raise ConfigError(reason)
    server = load(ServerConfig, properties)
    names = [point.listener for point in server.kafka_endpoints()]
    if server.is_broker and server.inter_broker_listener_name is None:
        server = replace(server, inter_broker_listener_name=inter_broker_listener(names, properties))
    grpc_security = load_grpc_security(
        server.controller_listener_names[0],
        properties,
        admin_listeners=dict.fromkeys(point.listener for point in server.admin_endpoints()),
        dials_plaintext=server.controller_dial_plaintext,
    )
    server.validate(grpc_security)
    if not server.is_controller and MIN_INSYNC_REPLICAS in properties:
        logger.warning(
            "%s of a node without the controller role does not count: the first active controller wrote its own into the "
            "metadata, for all brokers; set it in the controllers' files before their first start, or per topic",
            MIN_INSYNC_REPLICAS,
        )
    listener = server.inter_broker_listener() if server.is_broker else ""
    controller = load(ControllerConfig, properties)
    listener_security = load_listeners(names, properties)
    own_security, own_tls = client_security(listener, properties) if server.is_broker else (ClientSecurity(), None)
    return NodeConfig(
        server=server,
        network=load(NetworkConfig, properties),
        api=load(ApiConfig, properties),
        log=log,
        log_manager=load(LogManagerConfig, properties),
        replication=load(ReplicationConfig, properties, inter_broker_listener_name=listener),
        quorum=load(QuorumConfig, properties),
        controller=controller,
        groups=load(GroupCoordinatorConfig, properties),
        share_groups=load(ShareGroupConfig, properties),
        transactions=load(TransactionCoordinatorConfig, properties),
        share_state=load(ShareCoordinatorConfig, properties),
        lifecycle=load(LifecycleConfig, properties, session_timeout_ms=controller.session_timeout_ms),
        authorization=load(AuthorizationConfig, properties),
        audit=load(AuditConfig, properties),
        quota=load(QuotaConfig, properties),
        tracing=load(TracingConfig, properties),
        telemetry=load(TelemetryConfig, properties),
        log_output=load(LogOutputConfig, properties),
        security=load(SecurityConfig, properties),
        listener_security=listener_security,
        client_security=own_security,
        client_tls=own_tls,
        grpc_security=grpc_security,
        static_properties=dict(properties),
    )


def _log_config(properties: Mapping[str, str]) -> LogConfig:
    """The defaults of topics; raises ConfigError that names the key as the file has it."""
    for name, value in properties.items():
        try:
            LogConfig.from_overrides(broker_defaults({name: value}), {})
        except KafkaError as error:
            raise ConfigError(f"{name}={value}: {error.message}") from error
    return LogConfig.from_overrides(broker_defaults(properties), {})


def refuse_unknown(names: Iterable[str]) -> None:
    """Raise ConfigError for the first unknown key, with the nearest known one."""
    for name, hint in _unknown(names):
        raise ConfigError(f"{name} is not a key that barnabas knows{hint or ': see `barnabas-server config-docs`'}")


def _unknown(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The unknown keys, each with "; did you mean …?" or nothing."""
    known = {key.name for key in known_keys()} | SYNONYM_KEYS | UNDERSTOOD_KEYS | {PROTOCOL_MAP, INTER_BROKER_PROTOCOL}
    for name in names:
        if name not in known and not is_understood(name) and not is_known(name):
            meant = nearest(name, known)
            yield name, f"; did you mean {meant}?" if meant else ""


def split_address(address: str, key: str) -> tuple[str, int]:
    """`host:port` to its parts; raises ConfigError naming `key`."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise ConfigError(f"{key}={address}: write host:port")
    return host.strip("[]") or "127.0.0.1", int(port)


def _listener(text: str) -> Endpoint:
    name, separator, address = text.partition("://")
    if not separator or not name:
        raise ConfigError(f"listeners={text}: write NAME://host:port")
    host, port = split_address(address, f"listener {name}")
    return Endpoint(listener=name, host=host, port=port)


def _refuse_doubled_names(key: str, points: Iterable[Endpoint]) -> None:
    """One name may be at an IPv4 and at an IPv6 address of the same port (KIP-797): clients are told the first. Raises ConfigError."""
    by_name: dict[str, list[Endpoint]] = {}
    for point in points:
        by_name.setdefault(point.listener, []).append(point)
    for name, same in by_name.items():
        is_pair = len(same) == 2 and same[0].port == same[1].port and _families(same) == {4, 6}
        if len(same) > 1 and not is_pair:
            at = ",".join(f"{name}://{point.host}:{point.port}" for point in same)
            raise ConfigError(
                f"{key}={at}: give each its own name; one name may have an IPv4 and an IPv6 address of one port"
            )


def _families(points: Iterable[Endpoint]) -> set[int]:
    """The IP versions of the hosts; 0 stands for a host name."""
    found: set[int] = set()
    for point in points:
        try:
            found.add(ipaddress.ip_address(point.host).version)
        except ValueError:
            found.add(0)
    return found


def _admin_listener(text: str) -> Endpoint:
    name, separator, address = text.rpartition("://")
    host, port = split_address(address, "admin.listeners")
    return Endpoint(listener=name if separator else ADMIN, host=host, port=port)


def is_loopback(host: str) -> bool:
    """Whether only this host reaches what is bound there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
