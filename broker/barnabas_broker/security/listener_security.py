"""What each Kafka listener demands of its clients, and how this broker logs in to others: from the node's properties.

May touch:  the PEM files that the keys name.   Must not touch: sockets, the metadata image (credentials are looked up when needed).
Invariants: a node never starts less secure than its properties say; no error shows a secret.
Read next:  config.py, tls.py, jaas.py; ../node/data.py, which gives this to the listeners.

`listener.name.NAME.KEY` counts for one listener, NAME in lower case; KEY alone for all that have none of their own. A mechanism's JAAS line
is `listener.name.NAME.MECHANISM.sasl.jaas.config`, MECHANISM in lower case.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from barnabas_broker.config.keys import ConfigError, keys_of, load
from barnabas_broker.security.config import ClientAuth, SecurityConfig, SecurityProtocol
from barnabas_broker.security.logins import token_rules
from barnabas_broker.security.principal_mapping import MappingRule, parse_rules
from barnabas_broker.security.sasl.mechanism import OAUTHBEARER, PLAIN
from barnabas_broker.security.tls import ClientTls, ServerTls
from barnabas_wire.client import jaas
from barnabas_wire.client.security import PLAINTEXT, ClientSecurity, SaslLogin
from barnabas_wire.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from barnabas_broker.security.jwks import JwksSource

PROTOCOL_MAP = "listener.security.protocol.map"
INTER_BROKER_PROTOCOL = "security.inter.broker.protocol"
LISTENER_PREFIX = "listener.name."
JAAS = "sasl.jaas.config"
SECRET_KEYS = frozenset((JAAS, *(key.name for key in keys_of(SecurityConfig) if key.is_sensitive)))
_KEYS = frozenset(key.name for key in keys_of(SecurityConfig))
_JAAS_MODULES = {PLAIN: jaas.PLAIN_MODULE}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSecurity:
    """One listener's."""

    protocol: SecurityProtocol
    config: SecurityConfig
    tls: ServerTls | None = None
    rules: tuple[MappingRule, ...] = ()
    """Names of clients that show a certificate."""
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The passwords of PLAIN's users, by name."""
    jwks: JwksSource | None = None
    """Keys of OAUTHBEARER's tokens."""

    @property
    def names_clients_by_certificate(self) -> bool:
        """Whether a certificate says who a client is: with SASL the login does."""
        return (
            self.tls is not None and not self.protocol.has_sasl and self.config.ssl_client_auth is not ClientAuth.NONE
        )


def protocol_of(listener: str, properties: Mapping[str, str]) -> SecurityProtocol:
    """What a listener speaks: by the map, else by its name, as in Kafka. Raises ConfigError."""
    protocols = protocols_by_listener(properties)
    name = protocols.get(listener, listener if not protocols else None)
    if name is None:
        raise ConfigError(
            f"{PROTOCOL_MAP} does not name the listener {listener}: add {listener}:PLAINTEXT, or what it speaks"
        )
    try:
        return SecurityProtocol(name.upper())
    except ValueError:
        if listener not in protocols:  # a custom name and no map: plain, as it always was here
            return SecurityProtocol.PLAINTEXT
        raise ConfigError(
            f"{PROTOCOL_MAP}={listener}:{name}: use {', '.join(protocol.value for protocol in SecurityProtocol)}"
        ) from None


def load_listeners(listeners: Iterable[str], properties: Mapping[str, str]) -> dict[str, ListenerSecurity]:
    """The security of every Kafka listener, by name. Raises ConfigError."""
    return {name: _listener(name, properties) for name in listeners}


def client_security(listener: str, properties: Mapping[str, str]) -> tuple[ClientSecurity, ClientTls | None]:
    """How this broker is let in by the inter-broker listener of the others, and what renews its certificate. Raises ConfigError."""
    protocol = protocol_of(listener, properties)
    config = config_of(listener, properties)
    tls = ClientTls(config) if protocol.has_tls else None
    login = None
    if protocol.has_sasl:
        mechanism = config.sasl_mechanism_inter_broker_protocol
        key, line = _jaas(listener, mechanism, properties)
        if line is None or not line.username or not line.password:
            raise ConfigError(
                f"brokers log in to each other over the listener {listener} with {mechanism}, and this one has no name: set {key} "
                'with username="…" and password="…", or sasl.mechanism.inter.broker.protocol'
            )
        login = SaslLogin(mechanism, line.username, line.password)
    if protocol is SecurityProtocol.PLAINTEXT:
        return PLAINTEXT, None
    return ClientSecurity(tls=None if tls is None else lambda: tls.context, login=login), tls


def inter_broker_listener(listeners: Iterable[str], properties: Mapping[str, str]) -> str | None:
    """The listener that security.inter.broker.protocol means; None if the key is not set. Raises ConfigError."""
    wanted = properties.get(INTER_BROKER_PROTOCOL)
    if not wanted:
        return None
    names = list(listeners)
    for name in names:
        if protocol_of(name, properties).value == wanted.upper():
            return name
    raise ConfigError(f"{INTER_BROKER_PROTOCOL}={wanted}: none of the listeners {', '.join(names)} speaks it")


def is_known(key: str) -> bool:
    """Whether a key is one of these, for all listeners or for one."""
    plain_key = _plain(key)
    return plain_key in _KEYS or plain_key == JAAS or plain_key.endswith(f".{JAAS}")


def has_secret(key: str) -> bool:
    """Whether the value of a key is never shown."""
    plain_key = _plain(key)
    return plain_key in SECRET_KEYS or plain_key.endswith(f".{JAAS}")


def _plain(key: str) -> str:
    return key.removeprefix(LISTENER_PREFIX).partition(".")[2] if key.startswith(LISTENER_PREFIX) else key


def protocols_by_listener(properties: Mapping[str, str]) -> dict[str, str]:
    """listener.security.protocol.map as it is written. Raises ConfigError."""
    entries = [entry.strip() for entry in properties.get(PROTOCOL_MAP, "").split(",") if entry.strip()]
    found = {}
    for entry in entries:
        name, separator, protocol = entry.rpartition(":")
        if not separator:
            raise ConfigError(f"{PROTOCOL_MAP}={entry}: write LISTENER:PROTOCOL")
        found[name.strip()] = protocol.strip()
    return found


def config_of(listener: str, properties: Mapping[str, str]) -> SecurityConfig:
    """What counts for one listener: its own keys before those of all. Raises ConfigError."""
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."
    own = {key.removeprefix(prefix): value for key, value in properties.items() if key.startswith(prefix)}
    return load(SecurityConfig, {**properties, **own})


def _listener(name: str, properties: Mapping[str, str]) -> ListenerSecurity:
    protocol = protocol_of(name, properties)
    config = config_of(name, properties)
    passwords: dict[str, str] = {}
    jwks: JwksSource | None = None
    if protocol.has_sasl:
        if not config.sasl_enabled_mechanisms:
            raise ConfigError(
                f"listener {name} speaks {protocol.value}: set sasl.enabled.mechanisms, for example SCRAM-SHA-512"
            )
        if PLAIN in config.sasl_enabled_mechanisms:
            key, line = _jaas(name, PLAIN, properties)
            if line is None or not line.users:
                raise ConfigError(
                    f'listener {name} takes PLAIN and knows no user: set {key} to PlainLoginModule required user_NAME="PASSWORD" …;'
                )
            passwords = line.users
        if OAUTHBEARER in config.sasl_enabled_mechanisms:
            jwks = _jwks(name, config)
    return ListenerSecurity(
        protocol=protocol,
        config=config,
        tls=ServerTls(config, name) if protocol.has_tls else None,
        rules=parse_rules(config.ssl_principal_mapping_rules),
        passwords=passwords,
        jwks=jwks,
    )


def _jwks(listener: str, config: SecurityConfig) -> JwksSource:
    from barnabas_broker.security.jwks import JwksSource  # PyJWT is loaded where tokens are taken

    token_rules(config)
    if not config.sasl_oauthbearer_jwks_endpoint_url:
        raise ConfigError(
            f"listener {listener} takes OAUTHBEARER and has no keys to check tokens with: set sasl.oauthbearer.jwks.endpoint.url"
        )
    return JwksSource(
        config.sasl_oauthbearer_jwks_endpoint_url,
        refresh_ms=config.sasl_oauthbearer_jwks_endpoint_refresh_ms,
        cafile=config.ssl_truststore_location,
    )


def _jaas(listener: str, mechanism: str, properties: Mapping[str, str]) -> tuple[str, jaas.JaasLine | None]:
    """The key that holds this mechanism's line, and what it says."""
    own = f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.{JAAS}"
    key = next((key for key in (own, f"{mechanism.lower()}.{JAAS}", JAAS) if properties.get(key)), None)
    if key is None:
        return own, None
    try:
        line = jaas.parse(key, properties[key])
    except ValueError as error:
        raise ConfigError(str(error)) from None
    module = _JAAS_MODULES.get(mechanism, jaas.SCRAM_MODULE)
    if line.module != module:
        raise ConfigError(f"{key} names {line.module}: {mechanism} has {module}")
    return key, line
