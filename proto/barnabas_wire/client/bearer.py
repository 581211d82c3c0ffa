"""Where a client's bearer token comes from: a file that somebody renews, or a token endpoint (RFC 6749, 4.4).

May touch:  the file, and the endpoint over HTTPS, at a login.      Must not touch: Kafka's listeners.
Invariants: a token is asked for again before it ends; no secret and no token is in an error or a repr; no answer is followed
            elsewhere, where the secret would go too.
Read next:  security.py, whose OAUTHBEARER login sends it (RFC 7628, KIP-768).

    sasl.mechanism=OAUTHBEARER
    sasl.oauthbearer.token.endpoint.url=file:///run/secrets/token        # or https://login.example.org/token, and then
    sasl.jaas.config=…OAuthBearerLoginModule required clientId="spark" clientSecret="…" scope="kafka";
"""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 1 << 20
USED_SHARE = 0.8
"""The share of a token's life in which it is used; then the endpoint is asked again."""


def token_source(url: str, options: Mapping[str, str], *, authorities: str | None = None) -> Callable[[], str]:
    """What gives the token of the next login.

    options: clientId, clientSecret and scope for an endpoint. authorities: the PEM file of those that vouch for it; None: the
    system's. Raises ValueError that names the key; what is returned raises OSError.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
        return lambda: path.read_text(encoding="ascii", errors="replace").strip()
    if parts.scheme != "https":
        raise ValueError(f"{ENDPOINT}: name a file:///PATH with a token, or a token endpoint by https://")
    if not options.get("clientId") or not options.get("clientSecret"):
        raise ValueError(f'{ENDPOINT} needs who asks: sasl.jaas.config=… required clientId="…" clientSecret="…";')
    return _Endpoint(url, options, authorities)


class _Endpoint:
    def __init__(self, url: str, options: Mapping[str, str], authorities: str | None) -> None:
        self._url = url
        self._authorities = authorities
        secret = f"{quote_plus(options['clientId'])}:{quote_plus(options['clientSecret'])}".encode()
        self._authorization = "Basic " + base64.b64encode(secret).decode()
        scope = {"scope": options["scope"]} if options.get("scope") else {}
        self._form = urlencode({"grant_type": "client_credentials", **scope}).encode()
        self._kept = ("", 0.0)
        """The token, and until when it is used: seconds of the monotonic clock."""

    def __call__(self) -> str:
        token, until_s = self._kept
        if time.monotonic() < until_s:
            return token
        request = urllib.request.Request(
            self._url, self._form, {"Authorization": self._authorization, "Accept": "application/json"}
        )
        context = ssl.create_default_context(cafile=self._authorities)
        opener = urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=context))
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            raw = answer.read(ANSWER_BYTES_MAX)
        try:
            found = json.loads(raw)
            token, life_s = str(found["access_token"]), float(found.get("expires_in", 0))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise OSError(f"{ENDPOINT} answers without an access_token") from None
        self._kept = (token, time.monotonic() + USED_SHARE * life_s)
        return token


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None
