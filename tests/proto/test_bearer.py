"""A client's login with a bearer token: where the token comes from, and what crosses the wire."""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs

import pytest

from barnabas_admin import pki
from barnabas_wire.client.properties import client_security
from barnabas_wire.client.security import login_steps
from barnabas_wire.kafka.messages.sasl_authenticate import SaslAuthenticateResponse
from barnabas_wire.kafka.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
BASE = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
WHO = 'org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId="spark" clientSecret="s:1" scope="kafka";'


def first_message(properties: dict[str, str]) -> bytes:
    """What a login sends after the handshake."""
    login = client_security(properties).login
    assert login is not None
    steps = login_steps(login)
    handshake = next(steps)
    assert isinstance(handshake, SaslHandshakeRequest) and handshake.mechanism == "OAUTHBEARER"
    request = steps.send(SaslHandshakeResponse(error_code=0, mechanisms=["OAUTHBEARER"]))
    with pytest.raises(StopIteration) as ended:
        steps.send(SaslAuthenticateResponse(session_lifetime_ms=90_000))
    assert ended.value.value == 90_000
    return bytes(request.auth_bytes)


def test_a_token_in_a_file_is_read_at_each_login(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    properties = BASE | {ENDPOINT: file.as_uri()}
    for token in ("one", "two"):
        file.write_text(f"{token}\n")
        assert first_message(properties) == f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    file.unlink()
    with pytest.raises(OSError, match="a token"):
        first_message(properties)


def test_a_refusal_that_the_server_explains_is_acknowledged(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    login = client_security(BASE | {ENDPOINT: (tmp_path / "token").as_uri()}).login
    assert login is not None and "token" not in repr(login)
    steps = login_steps(login)
    next(steps)
    steps.send(SaslHandshakeResponse(error_code=0, mechanisms=["OAUTHBEARER"]))
    answer = steps.send(SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}'))
    assert answer.auth_bytes == b"\x01"


class Endpoint:
    """A token endpoint: what it was asked, and what it answers."""

    def __init__(self, url: str, authority: Path) -> None:
        self.url, self.authority = url, authority
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.answer: dict[str, Any] = {}
        self.moved_to = ""


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    pki.init(tmp_path / "pki")
    pki.issue(tmp_path / "pki", "server", hosts=["127.0.0.1"])

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["content-length"] or 0)).decode()
            found.asked.append((self.headers["authorization"] or "", parse_qs(form)))
            self.send_response(302 if found.moved_to else 200)
            if found.moved_to:
                self.send_header("Location", found.moved_to)
            self.end_headers()
            self.wfile.write(json.dumps(found.answer).encode())

        do_GET = do_POST

        def log_message(self, *_: Any) -> None:
            """Not a test's output."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pki/server.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    found = Endpoint(f"https://127.0.0.1:{server.server_address[1]}/token", tmp_path / "pki/ca.pem")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield found
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_endpoint_is_asked_once_in_a_tokens_life_and_never_followed_elsewhere(endpoint: Endpoint) -> None:
    properties = BASE | {
        ENDPOINT: endpoint.url,
        "sasl.jaas.config": WHO,
        "ssl.truststore.location": str(endpoint.authority),
    }
    endpoint.answer = {"access_token": "abc", "expires_in": 3600}
    login = client_security(properties).login
    assert login is not None and login.token is not None
    assert [login.token(), login.token()] == ["abc", "abc"]
    ((authorization, form),) = endpoint.asked
    assert authorization == "Basic " + base64.b64encode(b"spark:s%3A1").decode()
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
    endpoint.answer = {"access_token": "short"}
    login = client_security(properties).login
    assert login is not None and login.token is not None
    assert [login.token(), login.token()] == ["short", "short"] and len(endpoint.asked) == 3, (
        "nobody says how long it lives"
    )
    endpoint.answer = {"error": "invalid_client"}
    with pytest.raises(OSError, match="without an access_token"):
        login.token()
    endpoint.moved_to = endpoint.url.replace("/token", "/elsewhere")
    before = len(endpoint.asked)
    with pytest.raises(HTTPError):
        login.token()
    assert len(endpoint.asked) == before + 1, "the secret goes nowhere else"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "file:///PATH"),
        ({ENDPOINT: "http://login.example/token", "sasl.jaas.config": WHO}, "https://"),
        ({ENDPOINT: "https://login.example/token"}, "clientId"),
    ],
)
def test_what_is_missing_is_said(given: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        client_security(BASE | given)
    assert "s:1" not in str(raised.value)
