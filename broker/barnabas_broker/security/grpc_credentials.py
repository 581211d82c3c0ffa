"""The credentials of one gRPC listener, or of this node where it calls at others' listeners: PEM, read again when the files change.

May touch:  the PEM files that are named.     Must not touch: sockets, clock.
Invariants: what cannot be applied stops the start (gRPC takes no TLS versions and no ciphers); a renewed file is taken whole or not at
            all; an unreadable one leaves the credentials as they are.
Read next:  grpc_security.py; tls.py, which reads the same keys for Kafka listeners.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from barnabas_broker.config.keys import ConfigError
from barnabas_broker.security.config import SecurityConfig
from barnabas_broker.security.tls import load_keystore, load_truststore, stamps_of, unescaped
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.rpc.dialing import PemIdentity
from barnabas_wire.rpc.peers import nodes_named, peer_name

_KEY_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]*PRIVATE KEY)-----.*?-----END \1-----\s*", re.DOTALL)
_CERTIFICATE_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\s*", re.DOTALL)


class GrpcCredentials:
    """What a listener's `ssl.*` keys name, as gRPC takes it."""

    def __init__(self, config: SecurityConfig, listener: str) -> None:
        """Raises ConfigError that names the key and the fix."""
        self._config = config
        self._listener = listener
        if config.ssl_enabled_protocols != SecurityConfig.__dataclass_fields__["ssl_enabled_protocols"].default:
            raise ConfigError(
                f"listener {listener} is gRPC, which speaks TLSv1.2 and TLSv1.3 and cannot be limited: set "
                f"listener.name.{listener.lower()}.ssl.enabled.protocols=TLSv1.2,TLSv1.3"
            )
        if config.ssl_cipher_suites:
            raise ConfigError(
                f"listener {listener} is gRPC, whose cipher suites cannot be chosen: set "
                f"listener.name.{listener.lower()}.ssl.cipher.suites to nothing"
            )
        self._seen = stamps_of(config)
        self._identity = self._read()
        self._generation = 0

    def current(self) -> tuple[int, PemIdentity]:
        """The credentials of the moment; the number rises whenever they change."""
        return self._generation, self._identity

    def reload_if_changed(self, check: Callable[[GrpcCredentials], None] | None = None) -> bool:
        """Take renewed files; whether there were any. Raises ConfigError, and keeps what it has.

        check: raises ConfigError for credentials that must not be taken.
        """
        seen = stamps_of(self._config)
        if seen == self._seen:
            return False
        former = self._identity
        self._identity = self._read()
        if check is not None:
            try:
                check(self)
            except ConfigError:
                self._identity = former
                raise
        self._seen = seen
        self._generation += 1
        return True

    def own_nodes(self) -> list[tuple[BrokerId, str]]:
        """Node id and cluster id of every node's name in the own certificate."""
        certificate = x509.load_pem_x509_certificates(self._identity.chain)[0]
        try:
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return []
        return nodes_named(names.get_values_for_type(x509.DNSName))

    def cluster_of(self, node_id: int) -> str:
        """The cluster whose node the own certificate says that this one is. Raises ConfigError."""
        clusters = [cluster for node, cluster in self.own_nodes() if node == node_id]
        if len(clusters) != 1:
            raise ConfigError(
                f"the certificate of listener {self._listener} must say once that it is of node {node_id}, and says it "
                f"{len(clusters)} times: barnabas pki issue NAME --host HOST --node {node_id} --cluster-id CLUSTER_ID"
            )
        return clusters[0]

    def check_identity(self, node_id: int, cluster_id: str) -> None:
        """Raise ConfigError unless the own certificate is this node's: others would refuse it, each for itself."""
        if (node_id, cluster_id) not in self.own_nodes():
            raise ConfigError(
                f"the certificate of listener {self._listener} has no DNS name {peer_name(node_id, cluster_id)}: "
                f"barnabas pki issue NAME --host HOST --node {node_id} --cluster-id {cluster_id}"
            )

    def server_credentials(self, *, demands_certificate: bool) -> grpc.ServerCredentials:
        """The credentials for add_secure_port: each handshake takes the credentials of its moment."""
        given = [self._generation]

        def renewed() -> Any:
            # called by gRPC's own threads; None, which its stubs do not know: nothing new
            generation, identity = self.current()
            if generation == given[0]:
                return None
            given[0] = generation
            return _server_configuration(identity)

        return grpc.dynamic_ssl_server_credentials(
            _server_configuration(self._identity), renewed, require_client_authentication=demands_certificate
        )

    def _read(self) -> PemIdentity:
        """Raises ConfigError."""
        probe = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # gRPC says nothing of a file that it cannot use
        if not (self._config.ssl_keystore_location or self._config.ssl_keystore_key):
            raise ConfigError(
                f"listener {self._listener} speaks TLS and has no certificate: set ssl.keystore.location to a PEM file with the "
                "private key and the certificate chain"
            )
        if not (self._config.ssl_truststore_location or self._config.ssl_truststore_certificates):
            raise ConfigError(
                f"listener {self._listener} checks certificates: set ssl.truststore.location to the authorities that it trusts"
            )
        load_keystore(probe, self._config)
        load_truststore(probe, self._config)
        own = _text_of(self._config.ssl_keystore_location, self._config.ssl_keystore_key)
        chain = own
        if not self._config.ssl_keystore_location:
            chain = unescaped(self._config.ssl_keystore_certificate_chain).encode()
        return PemIdentity(
            key=_plain_key(own, self._config.ssl_key_password),
            chain=b"".join(_CERTIFICATE_BLOCK.findall(chain)),
            roots=b"".join(
                _CERTIFICATE_BLOCK.findall(
                    _text_of(self._config.ssl_truststore_location, self._config.ssl_truststore_certificates)
                )
            ),
        )


@lru_cache(maxsize=1024)
def subject_of_pem(certificate: bytes) -> str:
    """The subject of a certificate as RFC 4514 writes it, as Kafka's principals are."""
    return x509.load_pem_x509_certificate(certificate).subject.rfc4514_string()


def _server_configuration(identity: PemIdentity) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(identity.key, identity.chain)], root_certificates=identity.roots)


def _plain_key(text: bytes, password: str | None) -> bytes:
    found = _KEY_BLOCK.search(text)
    assert found is not None, "ssl has read a private key from this text"
    if not password:
        return found[0]
    key = serialization.load_pem_private_key(found[0], password.encode())
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _text_of(path: str | None, inline: str | None) -> bytes:
    if path is None:
        return unescaped(inline).encode()
    with open(path, "rb") as file:
        return file.read()
