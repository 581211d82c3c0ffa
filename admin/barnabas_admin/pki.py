"""A certificate authority of a cluster's own, and certificates of its nodes and users: ECDSA P-256, PEM.

May touch:  the directory it is given, the clock, the system's randomness.     Must not touch: sockets, the cluster.
Invariants: private keys are files of mode 0600; nothing is written over; a certificate says for what it is: a node's for servers and
            clients, a user's for clients alone.
Read next:  commands/pki.py.

    DIR/ca.pem       the authority's certificate: ssl.truststore.location
    DIR/ca-key.pem   its private key; belongs offline
    DIR/NAME.pem     private key, certificate: ssl.keystore.location, or a client's
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from barnabas_wire.lazy_dataclass import dataclass

AUTHORITY = "ca"
AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 825
CLOCKS_DIFFER = timedelta(hours=1)
"""Certificates are valid a little before they are made: clocks differ."""
_SECRET_MODE = 0o600


class PkiError(Exception):
    """What cannot be done; `hint` says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFacts:
    """What a certificate says."""

    path: str
    subject: str
    issuer: str
    hosts: tuple[str, ...]
    is_authority: bool
    not_after: datetime

    def days_left(self, now: datetime) -> int:
        """Whole days until it ends; negative when it has."""
        return (self.not_after - now).days


def init(directory: Path, *, name: str = "Barnabas", days: int = AUTHORITY_DAYS) -> Path:
    """Make the authority; returns its certificate's file. Raises PkiError if there is one."""
    directory.mkdir(parents=True, exist_ok=True)
    certificate_file = directory / f"{AUTHORITY}.pem"
    key_file = directory / f"{AUTHORITY}-key.pem"
    for file in (certificate_file, key_file):
        if file.exists():
            raise PkiError(
                f"{file} exists", "an authority is made once: choose another directory, or go on with `pki issue`"
            )
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _builder(subject, subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    _write(key_file, _pem_of(key))
    _write(certificate_file, certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)
    return certificate_file


def issue(
    directory: Path, name: str, *, hosts: Sequence[str] = (), days: int = CERTIFICATE_DAYS, is_renewal: bool = False
) -> Path:
    """A new key and certificate, DIR/NAME.pem.

    Args:
        hosts: names and addresses of a node; none: a user's certificate, good for clients alone.
        is_renewal: replaces a file that is there, at once: a broker takes it for the connections to come.

    Raises PkiError.
    """
    if not name or "/" in name or name.startswith((".", f"{AUTHORITY}-")) or name == AUTHORITY:
        raise PkiError(f"{name!r} cannot name a certificate", "use letters, digits, dots and hyphens")
    file = directory / f"{name}.pem"
    if file.exists() and not is_renewal:
        raise PkiError(f"{file} exists", f"`barnabas pki renew {name}` replaces it")
    authority, authority_key = _authority(directory)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = _builder(subject, authority.subject, key.public_key(), days)
    if hosts:
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
        )
    certificate = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    _write(file, _pem_of(key) + certificate.public_bytes(serialization.Encoding.PEM))
    return file


def renew(directory: Path, name: str, *, days: int = CERTIFICATE_DAYS) -> Path:
    """Replace DIR/NAME.pem by a new key and certificate for the same hosts. Raises PkiError."""
    facts = show(directory / f"{name}.pem")
    return issue(directory, name, hosts=facts.hosts, days=days, is_renewal=True)


def show(file: Path) -> CertificateFacts:
    """What the first certificate of a PEM file says. Raises PkiError."""
    try:
        certificate = x509.load_pem_x509_certificates(file.read_bytes())[0]
    except OSError as error:
        raise PkiError(
            f"cannot read {file}: {error.strerror}", "`barnabas pki show DIR` lists what there is"
        ) from error
    except (ValueError, IndexError) as error:
        raise PkiError(f"{file} has no certificate in PEM: {error}", "name a file that `barnabas pki` wrote") from error
    try:
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        hosts = tuple(str(name.value) for name in alternatives)
    except x509.ExtensionNotFound:
        hosts = ()
    try:
        is_authority = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        is_authority = False
    return CertificateFacts(
        path=str(file),
        subject=certificate.subject.rfc4514_string(),
        issuer=certificate.issuer.rfc4514_string(),
        hosts=hosts,
        is_authority=is_authority,
        not_after=certificate.not_valid_after_utc,
    )


def _authority(directory: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate((directory / f"{AUTHORITY}.pem").read_bytes())
        key = serialization.load_pem_private_key((directory / f"{AUTHORITY}-key.pem").read_bytes(), password=None)
    except OSError as error:
        raise PkiError(
            f"{directory} has no authority: {error.strerror}", f"make one: barnabas pki init {directory}"
        ) from error
    except ValueError as error:
        raise PkiError(f"the authority in {directory} cannot be read: {error}", "restore its two files") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise PkiError(
            f"the authority in {directory} has another kind of key", "use the one that `barnabas pki init` made"
        )
    return certificate, key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(file: Path, content: bytes, *, mode: int = _SECRET_MODE) -> None:
    """Whole or not at all: a broker looks at the file at any time."""
    new = file.with_name(f".{file.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    os.replace(new, file)
