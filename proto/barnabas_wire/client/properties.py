"""A client's security from Kafka's client properties, as its tools take them (`--command-config FILE`).

May touch:  the PEM files that are named.     Must not touch: sockets.
Invariants: a file with a secret that others may read is refused; no error shows a value that is secret.
Read next:  security.py.

    security.protocol=SASL_SSL
    ssl.truststore.location=ca.pem                    # PEM; the system's authorities if not set
    ssl.keystore.location=alice.pem                   # PEM: private key and certificate, where brokers ask for one
    sasl.mechanism=SCRAM-SHA-512
    sasl.jaas.config=…ScramLoginModule required username="alice" password="…";      # or sasl.username, sasl.password
    admin.security.protocol=SASL_SSL                  # of the admin listeners, by the same keys: PLAINTEXT, SSL or SASL_SSL
"""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from barnabas_wire.client import jaas
from barnabas_wire.client.security import PLAINTEXT, ClientSecurity, SaslLogin
from barnabas_wire.java_properties import read_properties_file
from barnabas_wire.lazy_dataclass import dataclass

ADMIN_PROTOCOL = "admin.security.protocol"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SECRET_KEYS = ("sasl.jaas.config", "sasl.password", "ssl.key.password")


def read_client_properties(path: str | Path) -> dict[str, str]:
    """A file as Java reads it (java_properties.py). Raises ValueError that says what to do."""
    found = read_properties_file(path)
    secret = next((key for key in SECRET_KEYS if found.get(key)), None)
    mode = os.stat(path).st_mode
    if secret is not None and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ValueError(f"{path} has a secret ({secret}) and mode {stat.S_IMODE(mode):04o}: chmod 600 {path}")
    return found


def client_security(properties: Mapping[str, str]) -> ClientSecurity:
    """What the properties say. Raises ValueError that names the key and the fix."""
    protocol = properties.get("security.protocol", PROTOCOLS[0]).upper()
    if protocol not in PROTOCOLS:
        raise ValueError(f"security.protocol={protocol}: use {', '.join(PROTOCOLS)}")
    if protocol == PROTOCOLS[0]:
        return PLAINTEXT
    context = _tls(properties) if protocol.endswith("SSL") else None
    return ClientSecurity(
        tls=None if context is None else lambda: context,
        login=_login(properties) if protocol.startswith("SASL") else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSecurity:
    """How the admin listeners let us in: PEM, and who logs in."""

    roots: bytes | None
    """None: the authorities that gRPC trusts by itself."""
    own: bytes | None = field(default=None, repr=False)
    """Private key and certificate."""
    login: SaslLogin | None = None


def admin_security(properties: Mapping[str, str]) -> AdminSecurity | None:
    """What the properties say of admin listeners; None: plain text. Raises ValueError that names the key and the fix."""
    protocol = properties.get(ADMIN_PROTOCOL, "PLAINTEXT").upper()
    if protocol not in ("PLAINTEXT", "SSL", "SASL_SSL"):
        raise ValueError(f"{ADMIN_PROTOCOL}={protocol}: use PLAINTEXT, SSL or SASL_SSL")
    if protocol == "PLAINTEXT":
        return None
    _tls(properties)  # says what is wrong with the files
    roots = _authorities(properties)
    own = properties.get("ssl.keystore.location")
    if protocol == "SSL" and own is None:
        raise ValueError(
            f"{ADMIN_PROTOCOL}=SSL shows a certificate: set ssl.keystore.location to a PEM file with private key and certificate"
        )
    if own is not None and properties.get("ssl.key.password"):
        raise ValueError(
            f"{ADMIN_PROTOCOL}={protocol} takes a private key without ssl.key.password: chmod 600 keeps it"
        )
    login = _login(properties) if protocol == "SASL_SSL" else None
    if login is not None and not login.mechanism.startswith("SCRAM"):
        raise ValueError(f"sasl.mechanism={login.mechanism}: admin listeners take SCRAM-SHA-256 and SCRAM-SHA-512")
    return AdminSecurity(
        roots=Path(roots).read_bytes() if roots else None,
        own=Path(own).read_bytes() if own and protocol == "SSL" else None,
        login=login,
    )


def _tls(properties: Mapping[str, str]) -> ssl.SSLContext:
    trusted = _authorities(properties)
    own = properties.get("ssl.keystore.location")
    try:
        context = ssl.create_default_context(cafile=trusted)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(
            f"ssl.truststore.location={trusted}: {_reason(error)}; name a PEM file of authorities"
        ) from None
    if not properties.get("ssl.endpoint.identification.algorithm", "https"):
        context.check_hostname = False
    if own:
        try:
            context.load_cert_chain(own, password=properties.get("ssl.key.password", ""))
        except (OSError, ssl.SSLError) as error:
            raise ValueError(
                f"ssl.keystore.location={own}: {_reason(error)}; name a PEM file with private key and certificate"
            ) from None
    return context


def _authorities(properties: Mapping[str, str]) -> str | None:
    return properties.get("ssl.truststore.location") or properties.get("ssl.ca.location")


def _login(properties: Mapping[str, str]) -> SaslLogin:
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms", "")
    if mechanism not in MECHANISMS:
        raise ValueError(f"sasl.mechanism={mechanism}: use {', '.join(MECHANISMS)}")
    if mechanism == "OAUTHBEARER":
        from barnabas_wire.client import bearer  # urllib's HTTP takes 20 ms to import

        text = properties.get("sasl.jaas.config", "")
        options = jaas.parse("sasl.jaas.config", text).options if text else {}
        url = properties.get(bearer.ENDPOINT, "")
        if not url:
            raise ValueError(
                f"sasl.mechanism=OAUTHBEARER needs a token: set {bearer.ENDPOINT} to file:///PATH or https://…"
            )
        return SaslLogin(
            mechanism, "", "", token=bearer.token_source(url, options, authorities=_authorities(properties))
        )
    username, password = properties.get("sasl.username", ""), properties.get("sasl.password", "")
    if properties.get("sasl.jaas.config"):
        line = jaas.parse("sasl.jaas.config", properties["sasl.jaas.config"])
        username, password = line.username, line.password
    if not username or not password:
        raise ValueError(
            f"sasl.mechanism={mechanism} needs who logs in: set sasl.username and sasl.password, or sasl.jaas.config"
        )
    return SaslLogin(mechanism, username, password)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
