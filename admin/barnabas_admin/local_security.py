"""What makes a cluster a secured one: its own authority, certificates, a first user, and the properties of nodes and clients.

May touch:  files below the cluster's directory, the system's randomness.     Must not touch: sockets, processes.
Invariants: files with a secret have mode 0600; what a directory has once is kept: a second start finds the same authority and user.
Read next:  local_cluster.py and secured_files.py, whose clusters these are; pki.py.

    pki/ca.pem, ca-key.pem, node-N.pem, admin.pem     the authority, a certificate for each node and one for the operator
    client.properties      how the commands log in as `admin`: over SASL_SSL with SCRAM, at admin listeners too
    librdkafka.properties, java.properties      the same for other clients
    password               of that user, for clients that read no properties
    peer.properties        the same by certificate alone, over the brokers' own listener: how the first user is made
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from barnabas_admin import pki
from barnabas_wire.client.properties import AdminSecurity, admin_security, read_client_properties
from barnabas_wire.java_properties import property_line
from barnabas_wire.rpc.peers import peer_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

USER = "admin"
MECHANISM = "SCRAM-SHA-512"
CLIENT_LISTENER = "SASL_SSL"
BROKER_LISTENER = "INTERNAL"
_PASSWORD = "sasl.password"
_BY_CERTIFICATE = "admin.security.protocol=SSL\n"


class SecuredNode(Protocol):
    """What this needs to know of a node."""

    @property
    def id(self) -> int:
        """node.id."""
        ...

    @property
    def is_broker(self) -> bool:
        """Whether clients come to it."""
        ...

    @property
    def kafka_port(self) -> int | None:
        """The port of a broker's clients."""
        ...

    @property
    def internal_port(self) -> int | None:
        """The port of other brokers."""
        ...


class LocalSecurity:
    """The certificates, users and rights of one cluster's directory."""

    def __init__(self, directory: Path, cluster_id: str, hosts: Mapping[int, str], *, home: Path | None = None) -> None:
        """hosts: of each node, by id. home: where the directory lies on the nodes' machines; None: here."""
        self._node_names = [f"node-{node_id}" for node_id in hosts]
        self._pki = directory / "pki"
        self._home = directory if home is None else home
        self._cluster_id = cluster_id
        self._hosts = hosts
        self.client_file = directory / "client.properties"
        self.peer_file = directory / "peer.properties"
        self.librdkafka_file = directory / "librdkafka.properties"
        self.java_file = directory / "java.properties"
        self.password_file = directory / "password"

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
        """The password of the first user; there once `write` has run."""
        return read_client_properties(self.client_file)[_PASSWORD]

    def write(self, nodes: Iterable[SecuredNode]) -> None:
        """Make what is not there yet."""
        if not self.authority.exists():
            pki.init(self._pki, name="Barnabas")
        for node in nodes:
            if not self._certificate_of(node).exists():
                host = self._hosts[node.id]
                names = [
                    host,
                    *(["localhost"] if host.startswith("127.") else []),
                    peer_name(node.id, self._cluster_id),
                ]
                pki.issue(self._pki, self._certificate_of(node).stem, hosts=names)
        if not self.certificate.exists():
            pki.issue(self._pki, USER)
        by_certificate = {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificate),
        }
        if not self.peer_file.exists():
            _write_secret(self.peer_file, {"security.protocol": "SSL", **by_certificate})
        if not self.client_file.exists():
            password = secrets.token_urlsafe(18)
            jaas = "org.apache.kafka.common.security.scram.ScramLoginModule"
            trust = {key: by_certificate[key] for key in ("ssl.truststore.type", "ssl.truststore.location")}
            login = {"security.protocol": "SASL_SSL", "sasl.mechanism": MECHANISM}
            at_admin = {"admin.security.protocol": "SASL_SSL"}
            by_name = {"sasl.username": USER, _PASSWORD: password}
            _write_secret(self.client_file, login | by_name | at_admin | trust)
            _write_secret(self.librdkafka_file, login | by_name | {"ssl.ca.location": str(self.authority)})
            _write_secret(
                self.java_file,
                login | trust | {"sasl.jaas.config": f'{jaas} required username="{USER}" password="{password}";'},
            )
            with open(os.open(self.password_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
                out.write(password)
        elif _BY_CERTIFICATE in (said := self.client_file.read_text(encoding="utf-8")):
            # A version whose admin listeners took certificates left it.
            self.client_file.write_text(
                said.replace(_BY_CERTIFICATE, "admin.security.protocol=SASL_SSL\n"), encoding="utf-8"
            )

    def properties(self, node: SecuredNode) -> dict[str, str]:
        """The properties of a node."""
        return secured_properties(
            keystore=str(self._home / "pki" / self._certificate_of(node).name),
            truststore=str(self._home / "pki" / self.authority.name),
            node_names=self._node_names,
            is_broker=node.is_broker,
        )

    def listeners(self, node: SecuredNode) -> list[str]:
        """The Kafka listeners of a broker, the clients' first."""
        host = self._hosts[node.id]
        return [f"{CLIENT_LISTENER}://{host}:{node.kafka_port}", f"{BROKER_LISTENER}://{host}:{node.internal_port}"]

    def admin_security(self) -> AdminSecurity | None:
        """How the admin listeners let the operator in."""
        return admin_security(read_client_properties(self.client_file))

    def client_settings(self) -> dict[str, list[str]]:
        """How clients come in, in the words of each kind; the password stays in files."""
        return {
            "librdkafka": [
                "security.protocol=SASL_SSL",
                f"ssl.ca.location={self.authority}",
                f"sasl.mechanism={MECHANISM}",
                f"sasl.username={USER}",
                f"sasl.password: in {self.librdkafka_file}, which `kcat -F` takes",
            ],
            "Java": [
                "security.protocol=SASL_SSL",
                "ssl.truststore.type=PEM",
                f"ssl.truststore.location={self.authority}",
                f"sasl.mechanism={MECHANISM}",
                f"sasl.jaas.config: in {self.java_file}, which `--command-config` takes",
            ],
            "Python": [
                f'security_protocol="SASL_SSL", ssl_cafile="{self.authority}",',
                f'sasl_mechanism="{MECHANISM}", sasl_plain_username="{USER}",',
                f'sasl_plain_password=open("{self.password_file}").read()',
            ],
        }

    def make_first_user(self, brokers: str, *, timeout_s: float) -> None:
        """Give `admin` its password, over the brokers' own listener; again at each start, since it does no harm."""
        from barnabas_admin.access import MECHANISMS
        from barnabas_admin.commands.user import give_password
        from barnabas_admin.invocation import Invocation

        invocation = Invocation(
            output="text", admin=None, brokers=brokers, timeout_s=timeout_s, client_config=str(self.peer_file)
        )
        for mechanism in MECHANISMS:
            give_password(invocation, USER, self.password, mechanism=mechanism)

    def _certificate_of(self, node: SecuredNode) -> Path:
        return self._pki / f"node-{node.id}.pem"


def secured_properties(
    *,
    keystore: str,
    truststore: str,
    node_names: Iterable[str],
    is_broker: bool,
    client_listeners: Iterable[str] = (CLIENT_LISTENER,),
) -> dict[str, str]:
    """What closes a node: users log in over TLS, nodes show certificates, and nobody may do what no ACL allows.

    keystore, truststore: files, as the node sees them. node_names: subjects (CN) of the nodes' certificates. client_listeners: names of
    the listeners that clients log in at.
    """
    listeners = tuple(client_listeners)
    protocols = [
        *(f"{name}:SASL_SSL" for name in listeners),
        f"{BROKER_LISTENER}:SSL",
        "CONTROLLER:SSL",
        "ADMIN:SASL_SSL",
    ]
    found = {
        "listener.security.protocol.map": ",".join(protocols),
        "ssl.keystore.location": keystore,
        "ssl.truststore.location": truststore,
        "ssl.principal.mapping.rules": r"RULE:^CN=([^,]+)$/$1/,DEFAULT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": ";".join(f"User:{name}" for name in (USER, *node_names)),
        "listener.name.admin.sasl.enabled.mechanisms": MECHANISM,
    }
    if is_broker:
        found |= {
            "inter.broker.listener.name": BROKER_LISTENER,
            f"listener.name.{BROKER_LISTENER.lower()}.ssl.client.auth": "required",
        }
        found |= {
            f"listener.name.{name.lower()}.sasl.enabled.mechanisms": f"{MECHANISM},SCRAM-SHA-256" for name in listeners
        }
    return found


def _write_secret(file: Path, properties: dict[str, str]) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.writelines(property_line(key, value) for key, value in properties.items())
