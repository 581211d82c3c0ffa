"""Keys of secured listeners. Each may be set for all listeners, and with the prefix `listener.name.NAME.` for one.

May touch:  its fields.               Must not touch: files, environment.
Invariants: names and defaults are Kafka's, but sasl.enabled.mechanisms, whose default there is GSSAPI: here a listener with SASL
            must name its mechanisms.
Read next:  listener_security.py, which makes a listener's security of these.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum

from barnabas_broker.security.sasl.mechanism import OAUTHBEARER, PLAIN, SCRAM
from barnabas_wire.lazy_dataclass import dataclass


class SecurityProtocol(Enum):
    """What a listener speaks below Kafka's protocol."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """Whether clients log in."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class ClientAuth(Enum):
    """Whether clients show a certificate."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


MECHANISMS = (PLAIN, *SCRAM, OAUTHBEARER)
INTER_BROKER_MECHANISMS = (PLAIN, *SCRAM)


def _key(name: str, doc: str, *, sensitive: bool = False) -> dict[str, object]:
    return {"key": name, "doc": doc, "sensitive": sensitive}


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """What one listener takes from the node's properties."""

    ssl_keystore_type: str = field(
        default="PEM", metadata=_key("ssl.keystore.type", "PEM; Java's JKS and PKCS12 are not read.")
    )
    ssl_keystore_location: str | None = field(
        default=None,
        metadata=_key(
            "ssl.keystore.location",
            "PEM file with this node's private key and its certificate chain, readable by its owner alone.",
        ),
    )
    ssl_keystore_key: str | None = field(
        default=None,
        repr=False,
        metadata=_key("ssl.keystore.key", "The private key as PEM text, in place of a file.", sensitive=True),
    )
    ssl_keystore_certificate_chain: str | None = field(
        default=None,
        metadata=_key("ssl.keystore.certificate.chain", "The certificate chain as PEM text, in place of a file."),
    )
    ssl_key_password: str | None = field(
        default=None, repr=False, metadata=_key("ssl.key.password", "Password of the private key.", sensitive=True)
    )
    ssl_truststore_type: str = field(
        default="PEM", metadata=_key("ssl.truststore.type", "PEM; Java's JKS and PKCS12 are not read.")
    )
    ssl_truststore_location: str | None = field(
        default=None,
        metadata=_key("ssl.truststore.location", "PEM file with the certificates of the authorities that are trusted."),
    )
    ssl_truststore_certificates: str | None = field(
        default=None,
        metadata=_key(
            "ssl.truststore.certificates", "Certificates of the trusted authorities as PEM text, in place of a file."
        ),
    )
    ssl_client_auth: ClientAuth = field(
        default=ClientAuth.NONE,
        metadata=_key("ssl.client.auth", "Whether clients must show a certificate of a trusted authority."),
    )
    ssl_enabled_protocols: tuple[str, ...] = field(
        default=("TLSv1.2", "TLSv1.3"), metadata=_key("ssl.enabled.protocols", "TLS versions that are spoken.")
    )
    ssl_cipher_suites: tuple[str, ...] = field(
        default=(),
        metadata=_key("ssl.cipher.suites", "Cipher suites of TLS 1.2 by OpenSSL's names; OpenSSL's choice if not set."),
    )
    ssl_endpoint_identification_algorithm: str = field(
        default="https",
        metadata=_key(
            "ssl.endpoint.identification.algorithm",
            "https: another broker's certificate must be of the host that is connected to; empty: any host's will do.",
        ),
    )
    ssl_principal_mapping_rules: str = field(
        default="DEFAULT",
        metadata=_key(
            "ssl.principal.mapping.rules",
            "How the subject of a client's certificate becomes its name: RULE:PATTERN/REPLACEMENT/[LU] or DEFAULT, with commas.",
        ),
    )
    sasl_enabled_mechanisms: tuple[str, ...] = field(
        default=(),
        metadata=_key("sasl.enabled.mechanisms", f"Mechanisms that clients log in with: {', '.join(MECHANISMS)}."),
    )
    sasl_mechanism_inter_broker_protocol: str = field(
        default=SCRAM[1],
        metadata=_key("sasl.mechanism.inter.broker.protocol", "Mechanism that this broker logs in to others with."),
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = field(
        default=None,
        metadata=_key(
            "sasl.oauthbearer.jwks.endpoint.url",
            "file:///… or https://… of the public keys that tokens of OAUTHBEARER are signed with; without it the mechanism is refused.",
        ),
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = field(
        default=3_600_000,
        metadata=_key(
            "sasl.oauthbearer.jwks.endpoint.refresh.ms", "How often an https endpoint of keys is asked again."
        ),
    )
    sasl_oauthbearer_expected_issuer: str | None = field(
        default=None,
        metadata=_key(
            "sasl.oauthbearer.expected.issuer",
            "The claim iss that tokens must have; without it the mechanism is refused.",
        ),
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = field(
        default=(),
        metadata=_key(
            "sasl.oauthbearer.expected.audience",
            "Audiences, one of which the claim aud of a token must name; without it the mechanism is refused.",
        ),
    )
    sasl_oauthbearer_algorithms: tuple[str, ...] = field(
        default=("RS256", "PS256", "ES256"),
        metadata=_key(
            "sasl.oauthbearer.algorithms",
            "Signatures of tokens that are taken, of RS, PS and ES with 256, 384 or 512, and EdDSA; HMAC and none never are.",
        ),
    )
    sasl_oauthbearer_clock_skew_seconds: int = field(
        default=30,
        metadata=_key("sasl.oauthbearer.clock.skew.seconds", "By how much the clock of a token's issuer may be off."),
    )
    sasl_oauthbearer_sub_claim_name: str = field(
        default="sub", metadata=_key("sasl.oauthbearer.sub.claim.name", "The claim of a token that names its user.")
    )
    connections_max_reauth_ms: int = field(
        default=0,
        metadata=_key(
            "connections.max.reauth.ms",
            "A login counts for so long; the connection is closed if its client does not log in again. 0: as long as the connection.",
        ),
    )

    def __post_init__(self) -> None:
        for key, kind in (
            ("ssl.keystore.type", self.ssl_keystore_type),
            ("ssl.truststore.type", self.ssl_truststore_type),
        ):
            if kind.upper() != "PEM":
                raise ValueError(
                    f"{key}={kind}: only PEM is read; `keytool` and `openssl pkcs12` write it from a JKS or PKCS12 file"
                )
        unknown = [name for name in self.ssl_enabled_protocols if name not in ("TLSv1.2", "TLSv1.3")]
        if unknown or not self.ssl_enabled_protocols:
            raise ValueError(
                f"ssl.enabled.protocols={','.join(self.ssl_enabled_protocols)}: use TLSv1.2, TLSv1.3 or both"
            )
        if self.ssl_endpoint_identification_algorithm.lower() not in ("https", ""):
            raise ValueError("ssl.endpoint.identification.algorithm: use https, or leave it empty")
        for key, names, known in (
            ("sasl.enabled.mechanisms", self.sasl_enabled_mechanisms, MECHANISMS),
            (
                "sasl.mechanism.inter.broker.protocol",
                (self.sasl_mechanism_inter_broker_protocol,),
                INTER_BROKER_MECHANISMS,
            ),
        ):
            for name in names:
                if name not in known:
                    raise ValueError(f"{key}={name}: use {', '.join(known)}")
        if self.sasl_oauthbearer_clock_skew_seconds < 0 or self.sasl_oauthbearer_jwks_endpoint_refresh_ms < 1:
            raise ValueError(
                "sasl.oauthbearer.clock.skew.seconds must be 0 or greater, and …jwks.endpoint.refresh.ms 1 or greater"
            )
        if self.connections_max_reauth_ms < 0:
            raise ValueError("connections.max.reauth.ms must be 0 or greater")
