"""What the gRPC doors of a node demand of who calls: the controller listener of nodes, the admin listeners of operators.

May touch:  what the node's properties name, through door_credentials.py.     Must not touch: sockets.
Invariants: the controller listener is plain text or mutual TLS, never less: there is no TLS without certificates of the callers;
            a door off loopback without authentication needs a key that says so.
Read next:  door_credentials.py; callers.py, the admin listeners' callers; barnabas_wire/rpc/peers.py, the controller listener's.

A door's protocol is in listener.security.protocol.map, by the name of the controller listener (CONTROLLER:SSL) or by ADMIN:
PLAINTEXT is the default of both; SSL: callers show a certificate; ADMIN:SASL_SSL: operators log in with SCRAM over TLS. Its `ssl.*`
keys may have the prefix listener.name.controller. or listener.name.admin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas_broker.config.keys import ConfigError
from barnabas_broker.security.config import SecurityConfig, SecurityProtocol
from barnabas_broker.security.listener_security import PROTOCOL_MAP, config_of, protocols_by_listener
from barnabas_broker.security.principal_mapping import MappingRule, parse_rules
from barnabas_broker.security.sasl.mechanism import SCRAM

if TYPE_CHECKING:
    from barnabas_broker.security.door_credentials import DoorCredentials
    from barnabas_wire.rpc.dialing import Dialer

ADMIN = "ADMIN"
"""What stands for admin.listeners in the map."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorSecurity:
    """One door's."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    config: SecurityConfig = field(default_factory=SecurityConfig)
    credentials: DoorCredentials | None = None
    """None: plain text."""
    rules: tuple[MappingRule, ...] = ()
    """Names of callers that show a certificate."""

    @property
    def is_authenticated(self) -> bool:
        """Whether nobody is served who has not shown who it is."""
        return self.credentials is not None

    def dialer(self, cluster_id: str) -> Dialer:
        """How this node calls at such doors of others."""
        from barnabas_wire.rpc.dialing import (  # loads gRPC, which who reads a config may not want
            PLAIN_DIALER,
            TlsDialer,
        )

        return PLAIN_DIALER if self.credentials is None else TlsDialer(self.credentials.current, cluster_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """Both doors of a node. One without the controller role calls at the controllers' with these credentials."""

    controller: DoorSecurity = field(default_factory=DoorSecurity)
    admin: DoorSecurity = field(default_factory=DoorSecurity)


def load_doors(controller_listener: str, properties: Mapping[str, str]) -> Doors:
    """What a node's properties say. Raises ConfigError."""
    return Doors(
        controller=_door(controller_listener, (SecurityProtocol.SSL,), properties),
        admin=_door(ADMIN, (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL), properties),
    )


def _door(name: str, served: tuple[SecurityProtocol, ...], properties: Mapping[str, str]) -> DoorSecurity:
    named = protocols_by_listener(properties).get(name, SecurityProtocol.PLAINTEXT.value).upper()
    if named == SecurityProtocol.PLAINTEXT.value:
        return DoorSecurity()
    protocol = next((each for each in served if each.value == named), None)
    if protocol is None:
        names = ", ".join(each.value for each in (SecurityProtocol.PLAINTEXT, *served))
        raise ConfigError(f"{PROTOCOL_MAP}={name}:{named}: this listener is gRPC and speaks {names}")
    from barnabas_broker.security.door_credentials import DoorCredentials  # cryptography is loaded where there is TLS

    config = config_of(name, properties)
    if protocol.has_sasl:
        wrong = [mechanism for mechanism in config.sasl_enabled_mechanisms if mechanism not in SCRAM]
        if wrong or not config.sasl_enabled_mechanisms:
            raise ConfigError(
                f"{PROTOCOL_MAP}={name}:{named}: operators log in with SCRAM alone: set listener.name.{name.lower()}."
                f"sasl.enabled.mechanisms={SCRAM[1]}"
            )
    return DoorSecurity(
        protocol=protocol,
        config=config,
        credentials=DoorCredentials(config, name),
        rules=parse_rules(config.ssl_principal_mapping_rules),
    )
