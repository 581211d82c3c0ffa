"""The public keys that OAUTHBEARER tokens are checked with: a JWKS (RFC 7517) from a file, or from an https endpoint.

May touch:  the file or the endpoint that is named, threads for the latter.     Must not touch: tokens.
Invariants: schemes are file and https, and no answer leads elsewhere (CVE-2025-27817); without keys no client logs in;
            symmetric keys are dropped, since what checks with one can sign with it; what cannot be read leaves the keys
            as they are.
Read next:  sasl/oauthbearer.py.
"""

from __future__ import annotations

import json
import logging
import os
import ssl
import time
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import jwt

from barnabas_broker.config.keys import ConfigError

logger = logging.getLogger(__name__)

KEY = "sasl.oauthbearer.jwks.endpoint.url"
DOCUMENT_BYTES_MAX = 1024 * 1024
KEYS_MAX = 100
FETCH_TIMEOUT_S = 10.0
UNKNOWN_KEY_REFRESH_S = 10.0
"""A token of an unknown key has the endpoint asked again, at most once in so long."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Answered as the error that it is here."""


class JwksSource:
    """Keys by id. `refresh` may block and runs in a thread; `find` does not."""

    def __init__(self, url: str, *, refresh_ms: int, cafile: str | None = None) -> None:
        """Raises ConfigError for another scheme, and for a file that cannot be read."""
        parts = urlsplit(url)
        if parts.scheme not in ("file", "https") or (parts.scheme == "https" and not parts.hostname):
            raise ConfigError(f"{KEY}: use a URL of file:///… or https://…, the only places keys are taken from")
        self._url = url
        self._path = parts.path if parts.scheme == "file" else None
        self._refresh_s = refresh_ms / 1000
        self._cafile = cafile
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._stamp: tuple[int, int] | None = None
        self._asked_s = -1e9
        self._is_key_missed = False
        if self._path is not None:
            try:
                self._read_file(self._path)
            except (OSError, ValueError) as error:
                raise ConfigError(f"{KEY}={url}: {error}") from None

    def find(self, kid: str | None) -> jwt.PyJWK | None:
        """A key by its id; without one the only key there is."""
        if kid is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        found = self._keys.get(kid)
        if found is None:
            self._is_key_missed = True
        return found

    @property
    def is_refresh_due(self) -> bool:
        """Whether `refresh` has something to do."""
        if self._path is not None:
            return True
        age_s = time.monotonic() - self._asked_s
        is_urgent = self._is_key_missed or not self._keys
        return age_s >= self._refresh_s or (is_urgent and age_s >= UNKNOWN_KEY_REFRESH_S)

    def refresh(self) -> None:
        """Read the keys again where they may have changed; what fails is logged, and leaves them as they are."""
        try:
            if self._path is not None:
                self._read_file(self._path)
                return
            self._asked_s = time.monotonic()
            self._is_key_missed = False
            self._keys = parse_jwks(self._fetch())
        except (OSError, ValueError) as error:
            logger.warning("no new keys from %s: %s", self._url, error)

    def _read_file(self, path: str) -> None:
        found = os.stat(path)
        stamp = (found.st_ino, found.st_mtime_ns)
        if stamp == self._stamp:
            return
        with open(path, "rb") as file:
            self._keys = parse_jwks(file.read(DOCUMENT_BYTES_MAX + 1))
        self._stamp = stamp

    def _fetch(self) -> bytes:
        context = ssl.create_default_context()
        if self._cafile is not None:
            context.load_verify_locations(self._cafile)
        opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.HTTPSHandler(context=context),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
            _NoRedirects(),
        ):
            opener.add_handler(handler)
        with opener.open(self._url, timeout=FETCH_TIMEOUT_S) as answer:
            document: bytes = answer.read(DOCUMENT_BYTES_MAX + 1)
        return document


def parse_jwks(document: bytes) -> dict[str | None, jwt.PyJWK]:
    """The public signing keys of a JWKS, by id. Raises ValueError if there is none."""
    if len(document) > DOCUMENT_BYTES_MAX:
        raise ValueError(f"a JWKS of more than {DOCUMENT_BYTES_MAX} bytes is not read")
    try:
        entries = json.loads(document)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("this is not a JWKS: a JSON object with keys") from None
    keys: dict[str | None, jwt.PyJWK] = {}
    for entry in entries[:KEYS_MAX] if isinstance(entries, list) else ():
        if not isinstance(entry, Mapping) or entry.get("kty") == "oct" or entry.get("use", "sig") != "sig":
            continue
        try:
            key = jwt.PyJWK(dict(entry))
        except (jwt.PyJWTError, ValueError, TypeError):
            continue  # of a kind that is not known here: its tokens are refused
        keys[key.key_id if isinstance(key.key_id, str) else None] = key
    if not keys:
        raise ValueError("it has no public key that signatures can be checked with")
    return keys
