"""What makes a local cluster a secured one: its own authority, certificates, a first user, and the properties of nodes and clients.

May touch:  files below the cluster's directory, the system's randomness.     Must not touch: sockets, processes.
Invariants: files with a secret have mode 0600; what a directory has once is kept: a second start finds the same authority and user.
Read next:  local_cluster.py; pki.py.

    pki/ca.pem, ca-key.pem, node-N.pem, admin.pem     the authority, a certificate for each node and one for the operator
    client.properties      how a client logs in as `admin`: over SASL_SSL with SCRAM, at admin listeners by its certificate
    peer.properties        the same by certificate alone, over the brokers' own listener: how the first user is made
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas_admin import pki
from barnabas_admin.local_node import LocalNode
from barnabas_wire.client.properties import AdminSecurity, admin_security, read_client_properties
from barnabas_wire.rpc.peers import peer_name

if TYPE_CHECKING:
    from collections.abc import Iterable

USER = "admin"
MECHANISM = "SCRAM-SHA-512"
CLIENT_LISTENER = "SASL_SSL"
BROKER_LISTENER = "INTERNAL"
_PASSWORD = "sasl.password"


class LocalSecurity:
    """Of one cluster's directory."""

    def __init__(self, directory: Path, cluster_id: str, host: str) -> None:
        self._pki = directory / "pki"
        self._cluster_id = cluster_id
        self._host = host
        self.client_file = directory / "client.properties"
        self.peer_file = directory / "peer.properties"

    @property
    def authority(self) -> Path:
        """The certificate that clients trust."""
        return self._pki / "ca.pem"

    @property
    def certificate(self) -> Path:
        """The operator's private key and certificate."""
        return self._pki / f"{USER}.pem"

    @property
    def password(self) -> str:
        """Of the first user; there once `write` has run."""
        return read_client_properties(self.client_file)[_PASSWORD]

    def write(self, nodes: Iterable[LocalNode]) -> None:
        """Make what is not there yet."""
        if not self.authority.exists():
            pki.init(self._pki, name="Barnabas dev")
        for node in nodes:
            if not self._certificate_of(node).exists():
                hosts = [self._host, "localhost", peer_name(node.id, self._cluster_id)]
                pki.issue(self._pki, self._certificate_of(node).stem, hosts=hosts)
        if not self.certificate.exists():
            pki.issue(self._pki, USER)
        by_certificate = {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificate),
            "admin.security.protocol": "SSL",
        }
        if not self.peer_file.exists():
            _write_secret(self.peer_file, {"security.protocol": "SSL", **by_certificate})
        if not self.client_file.exists():
            login = {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": MECHANISM,
                "sasl.username": USER,
                _PASSWORD: secrets.token_urlsafe(18),
            }
            _write_secret(self.client_file, login | by_certificate)

    def properties(self, node: LocalNode) -> dict[str, str]:
        """Of a node."""
        found = {
            "listener.security.protocol.map": f"{CLIENT_LISTENER}:SASL_SSL,{BROKER_LISTENER}:SSL,CONTROLLER:SSL,ADMIN:SSL",
            "ssl.keystore.location": str(self._certificate_of(node)),
            "ssl.truststore.location": str(self.authority),
            "ssl.principal.mapping.rules": r"RULE:^CN=([^,]+)$/$1/,DEFAULT",
        }
        if node.is_broker:
            found |= {
                "inter.broker.listener.name": BROKER_LISTENER,
                f"listener.name.{BROKER_LISTENER.lower()}.ssl.client.auth": "required",
                f"listener.name.{CLIENT_LISTENER.lower()}.sasl.enabled.mechanisms": f"{MECHANISM},SCRAM-SHA-256",
            }
        return found

    def listeners(self, node: LocalNode) -> list[str]:
        """The Kafka listeners of a broker, the clients' first."""
        return [
            f"{CLIENT_LISTENER}://{self._host}:{node.kafka_port}",
            f"{BROKER_LISTENER}://{self._host}:{node.internal_port}",
        ]

    def admin_security(self) -> AdminSecurity | None:
        """How the admin listeners let the operator in."""
        return admin_security(read_client_properties(self.peer_file))

    def make_first_user(self, brokers: str, *, timeout_s: float) -> None:
        """Give `admin` its password, over the brokers' own listener; again at each start, since it does no harm."""
        from barnabas_admin.commands.user import MECHANISMS, give_password
        from barnabas_admin.invocation import Invocation

        invocation = Invocation(
            output="text", admin=None, brokers=brokers, timeout_s=timeout_s, client_config=str(self.peer_file)
        )
        for mechanism in MECHANISMS:
            give_password(invocation, USER, self.password, mechanism=mechanism)

    def _certificate_of(self, node: LocalNode) -> Path:
        return self._pki / f"node-{node.id}.pem"


def _write_secret(file: Path, properties: dict[str, str]) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.writelines(f"{key}={value}\n" for key, value in properties.items())
