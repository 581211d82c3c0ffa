"""TLS of the Kafka listeners and of this broker's own connections, by the standard library's ssl.

May touch:  the PEM files that are named.     Must not touch: sockets, clock.
Invariants: what cannot be applied stops the start (never a weaker listener); a file with a private key that others may read is
            refused; a renewed certificate is taken for new connections without a restart, an unreadable one is not.
Read next:  config.py for the keys; listener_security.py.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import stat
import tempfile
from collections.abc import Iterator

from barnabas_broker.config.keys import ConfigError
from barnabas_broker.security.config import ClientAuth, SecurityConfig

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
Stamps = tuple[tuple[int, int, int] | None, ...]
OTHERS_BITS = stat.S_IRWXG | stat.S_IRWXO
_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


def refuse_readable_by_others(path: str, key: str) -> None:
    """Raise ConfigError if a file with a secret is not its owner's alone."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise ConfigError(f"{key}={path}: {error.strerror}") from error
    if mode & OTHERS_BITS:
        raise ConfigError(f"{key}={path} has a secret and mode {stat.S_IMODE(mode):04o}: chmod 600 {path}")


class ServerTls:
    """The context of one listener, and whether its files have changed."""

    def __init__(self, config: SecurityConfig, listener: str) -> None:
        """Raises ConfigError that names the key and the fix."""
        self._config = config
        self._listener = listener
        if not _has_keystore(config):
            raise ConfigError(
                f"listener {listener} speaks TLS and has no certificate: set ssl.keystore.location to a PEM file with the private "
                "key and the certificate chain"
            )
        if config.ssl_client_auth is not ClientAuth.NONE and not _has_truststore(config):
            raise ConfigError(
                f"listener {listener}: ssl.client.auth={config.ssl_client_auth.value} needs ssl.truststore.location, the authorities "
                "whose certificates are taken"
            )
        self.context = self._load()
        self._seen = self._state()

    def reload_if_changed(self) -> bool:
        """Take renewed files for the connections to come; whether there were any. Raises ConfigError, and keeps what it has."""
        seen = self._state()
        if seen == self._seen:
            return False
        self.context = self._load()  # half-written files raise: the next look finds them whole
        self._seen = seen
        return True

    def _load(self) -> ssl.SSLContext:
        """A new context each time: OpenSSL forgets no authority of one."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _set_versions(context, self._config)
        context.verify_mode = _VERIFY[self._config.ssl_client_auth]
        load_keystore(context, self._config)
        if self._config.ssl_client_auth is not ClientAuth.NONE:
            load_truststore(context, self._config)
        return context

    def _state(self) -> Stamps:
        return stamps_of(self._config)


class ClientTls:
    """The context with which this broker connects to others, showing its own certificate, and whether its files have changed."""

    def __init__(self, config: SecurityConfig) -> None:
        """Raises ConfigError."""
        self._config = config
        if not _has_truststore(config):
            raise ConfigError(
                "the inter-broker listener speaks TLS, and no authority is named that its certificates are checked with: set "
                "ssl.truststore.location"
            )
        self.context = self._load()
        self._seen = stamps_of(config)

    def reload_if_changed(self) -> bool:
        """As ServerTls has it."""
        seen = stamps_of(self._config)
        if seen == self._seen:
            return False
        self.context = self._load()
        self._seen = seen
        return True

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _set_versions(context, self._config)
        context.check_hostname = bool(self._config.ssl_endpoint_identification_algorithm)
        load_truststore(context, self._config)
        if _has_keystore(self._config):
            load_keystore(context, self._config)
        return context


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate (DER) as RFC 4514 writes it, as Kafka's principals are."""
    from cryptography import x509  # only listeners with client certificates need it

    return x509.load_der_x509_certificate(certificate).subject.rfc4514_string()


def _has_keystore(config: SecurityConfig) -> bool:
    return bool(config.ssl_keystore_location or (config.ssl_keystore_key and config.ssl_keystore_certificate_chain))


def _has_truststore(config: SecurityConfig) -> bool:
    return bool(config.ssl_truststore_location or config.ssl_truststore_certificates)


def _set_versions(context: ssl.SSLContext, config: SecurityConfig) -> None:
    versions = [VERSIONS[name] for name in config.ssl_enabled_protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if config.ssl_cipher_suites:
        try:
            context.set_ciphers(":".join(config.ssl_cipher_suites))
        except ssl.SSLError as error:
            raise ConfigError(f"ssl.cipher.suites: OpenSSL takes none of them: {error}") from error


def stamps_of(config: SecurityConfig) -> Stamps:
    """The stamps of the files, which differ once one of them was replaced."""
    return tuple(_identity(path) for path in (config.ssl_keystore_location, config.ssl_truststore_location))


def load_keystore(context: ssl.SSLContext, config: SecurityConfig) -> None:
    """Give a context the private key and certificate of a listener. Raises ConfigError."""
    key = "ssl.keystore.location" if config.ssl_keystore_location else "ssl.keystore.key"
    try:
        with _keystore_file(config) as path:
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(path, password=config.ssl_key_password or "")
    except ssl.SSLError as error:
        raise ConfigError(
            f"{key}: this is not a private key with its certificate in PEM, or ssl.key.password is wrong: {error}"
        ) from error
    except OSError as error:
        raise ConfigError(f"{key}={config.ssl_keystore_location}: {error.strerror}") from error


@contextlib.contextmanager
def _keystore_file(config: SecurityConfig) -> Iterator[str]:
    """OpenSSL reads keys from files only: a text goes through one that lives as long as it is read."""
    if config.ssl_keystore_location:
        refuse_readable_by_others(config.ssl_keystore_location, "ssl.keystore.location")
        yield config.ssl_keystore_location
        return
    with tempfile.NamedTemporaryFile("w", encoding="ascii") as file:  # mode 0600
        file.write(f"{unescaped(config.ssl_keystore_key)}\n{unescaped(config.ssl_keystore_certificate_chain)}\n")
        file.flush()
        yield file.name


def load_truststore(context: ssl.SSLContext, config: SecurityConfig) -> None:
    """Give a context the authorities that a listener trusts. Raises ConfigError."""
    try:
        if config.ssl_truststore_location:
            context.load_verify_locations(config.ssl_truststore_location)
        else:
            context.load_verify_locations(cadata=unescaped(config.ssl_truststore_certificates))
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"ssl.truststore: these are not certificates in PEM: {error}") from error
    except OSError as error:
        raise ConfigError(f"ssl.truststore.location={config.ssl_truststore_location}: {error.strerror}") from error


def unescaped(text: str | None) -> str:
    r"""PEM text of one line of a properties file, where \n stands for a new line."""
    return (text or "").replace("\\n", "\n")


def _identity(path: str | None) -> tuple[int, int, int] | None:
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
