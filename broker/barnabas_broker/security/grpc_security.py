"""What the gRPC listeners of a node demand of who calls: the controller listener of nodes, the admin listeners of operators.

May touch:  what the node's properties name, through grpc_credentials.py.     Must not touch: sockets.
Invariants: the controller listener is plain text or mutual TLS, never less: there is no TLS without certificates of the callers;
            a listener off loopback without authentication needs a key that says so.
Read next:  grpc_credentials.py; callers.py, the admin listeners' callers; barnabas_wire/rpc/peers.py, the controller listener's.

A listener's protocol is in listener.security.protocol.map, by the name of the controller listener (CONTROLLER:SSL) or by ADMIN:
PLAINTEXT is the default of both; SSL: callers show a certificate; ADMIN:SASL_SSL: operators log in with SCRAM over TLS. Its `ssl.*`
keys may have the prefix listener.name.controller. or listener.name.admin. An admin listener may have another name
(admin.listeners=OPEN://127.0.0.1:9190,127.0.0.1:9191), so that one node serves operators in plain text and with TLS.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from barnabas_broker.config.keys import ConfigError
from barnabas_broker.security.config import SecurityConfig, SecurityProtocol
from barnabas_broker.security.listener_security import PROTOCOL_MAP, config_of, protocols_by_listener
from barnabas_broker.security.principal_mapping import MappingRule, parse_rules
from barnabas_broker.security.sasl.mechanism import SCRAM
from barnabas_wire.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from barnabas_broker.security.grpc_credentials import GrpcCredentials
    from barnabas_wire.rpc.dialing import Dialer

DIAL_PLAINTEXT = "controller.listeners.dial.plaintext"
ADMIN = "ADMIN"
"""What stands for admin.listeners in the map."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcListenerSecurity:
    """The security of one gRPC listener: what it shows, what it demands, and how this node calls other nodes' listeners of its kind."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    config: SecurityConfig = field(default_factory=SecurityConfig)
    credentials: GrpcCredentials | None = None
    """The credentials that the listener shows; None: plain text."""
    own: GrpcCredentials | None = None
    """The credentials with which this node calls such listeners of others: those of its listener, or of one that is to
    have TLS. None: plain text."""
    dials_plaintext: bool = False
    """Whether a listener that speaks plain text still is called so all the same."""
    rules: tuple[MappingRule, ...] = ()
    """Names of callers that show a certificate."""

    @property
    def is_authenticated(self) -> bool:
        """Whether only callers that have shown their identity are served."""
        return self.credentials is not None

    def dialer(self, cluster_id: str) -> Dialer:
        """How this node calls at such listeners of others."""
        from barnabas_wire.rpc.dialing import PLAIN_DIALER, EitherDialer, TlsDialer

        if self.own is None:
            return PLAIN_DIALER
        dialer = TlsDialer(self.own.current, cluster_id)
        return EitherDialer(dialer) if self.dials_plaintext else dialer


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcSecurity:
    """The listeners of a node. One without the controller role calls at the controllers' with these credentials."""

    controller: GrpcListenerSecurity = field(default_factory=GrpcListenerSecurity)
    admins: Mapping[str, GrpcListenerSecurity] = field(default_factory=lambda: {ADMIN: GrpcListenerSecurity()})
    """By the name in admin.listeners."""


def load_grpc_security(
    controller_listener: str,
    properties: Mapping[str, str],
    *,
    admin_listeners: Iterable[str] = (ADMIN,),
    dials_plaintext: bool = False,
) -> GrpcSecurity:
    """What a node's properties say. Raises ConfigError.

    Args:
        admin_listeners: the names in admin.listeners.
        dials_plaintext: controller.listeners.dial.plaintext.
    """
    protocols = protocols_by_listener(properties)
    for name in admin_listeners:
        if name != ADMIN and name not in protocols:
            raise ConfigError(
                f"{PROTOCOL_MAP} does not name {name} of admin.listeners: add {name}:PLAINTEXT, or what it speaks"
            )
    return GrpcSecurity(
        controller=_listener_security(
            controller_listener, (SecurityProtocol.SSL,), properties, dials_plaintext=dials_plaintext
        ),
        admins={
            name: _listener_security(name, (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL), properties)
            for name in admin_listeners
        },
    )


def _listener_security(
    name: str, served: tuple[SecurityProtocol, ...], properties: Mapping[str, str], *, dials_plaintext: bool = False
) -> GrpcListenerSecurity:
    named = protocols_by_listener(properties).get(name, SecurityProtocol.PLAINTEXT.value).upper()
    if named == SecurityProtocol.PLAINTEXT.value:
        return _to_be_secured(name, properties) if dials_plaintext else GrpcListenerSecurity()
    protocol = next((each for each in served if each.value == named), None)
    if protocol is None:
        names = ", ".join(each.value for each in (SecurityProtocol.PLAINTEXT, *served))
        raise ConfigError(f"{PROTOCOL_MAP}={name}:{named}: this listener is gRPC and speaks {names}")
    from barnabas_broker.security.grpc_credentials import GrpcCredentials  # cryptography is loaded where there is TLS

    config = config_of(name, properties)
    if protocol.has_sasl:
        wrong = [mechanism for mechanism in config.sasl_enabled_mechanisms if mechanism not in SCRAM]
        if wrong or not config.sasl_enabled_mechanisms:
            raise ConfigError(
                f"{PROTOCOL_MAP}={name}:{named}: operators log in with SCRAM alone: set listener.name.{name.lower()}."
                f"sasl.enabled.mechanisms={SCRAM[1]}"
            )
    credentials = GrpcCredentials(config, name)
    return GrpcListenerSecurity(
        protocol=protocol,
        config=config,
        credentials=credentials,
        own=credentials,
        dials_plaintext=dials_plaintext,
        rules=parse_rules(config.ssl_principal_mapping_rules),
    )


def _to_be_secured(name: str, properties: Mapping[str, str]) -> GrpcListenerSecurity:
    """A listener in plain text, of a node that can call at listeners with TLS already."""
    from barnabas_broker.security.grpc_credentials import GrpcCredentials

    try:
        own = GrpcCredentials(config_of(name, properties), name)
    except ConfigError as error:
        raise ConfigError(
            f"{DIAL_PLAINTEXT}=true lets this node call controllers with TLS too, for which it needs its certificate now: {error}"
        ) from None
    return GrpcListenerSecurity(own=own, dials_plaintext=True)
