"""OAUTHBEARER: the one token that lets a client in, and all the ways in which others are not it."""

from __future__ import annotations

import base64
import hmac
import http.server
import json
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from barnabas_admin import pki
from barnabas_broker.config.keys import ConfigError
from barnabas_broker.security.jwks import JwksSource, parse_jwks
from barnabas_broker.security.listener_security import load_listeners
from barnabas_broker.security.sasl.mechanism import LoginRefused
from barnabas_broker.security.sasl.oauthbearer import OAuthBearer, TokenRules
from barnabas_broker.security.sasl.session import SaslSession
from barnabas_wire.kafka.messages import ApiKey

DAY_S = 86_400
"""Tokens are made when tests are collected, and shown when they run."""
ISSUER, AUDIENCE = "https://login.example", "kafka"
RULES = TokenRules(algorithms=("ES256", "RS256"), issuer=ISSUER, audiences=(AUDIENCE, "others"))
EC_KEY = ec.generate_private_key(ec.SECP256R1())
RSA_KEY = rsa.generate_private_key(65537, 2048)
OTHER_KEY = ec.generate_private_key(ec.SECP256R1())


def jwk(key: Any, kid: str, **more: str) -> dict[str, Any]:
    kind = jwt.algorithms.ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else jwt.algorithms.RSAAlgorithm
    return {**kind.to_jwk(key.public_key(), as_dict=True), "kid": kid, "use": "sig", **more}


JWKS = json.dumps({"keys": [jwk(EC_KEY, "ec"), jwk(RSA_KEY, "rsa", alg="RS256")]}).encode()


def token(key: Any = EC_KEY, *, kid: str | None = "ec", algorithm: str = "ES256", **claims: Any) -> str:
    """One that is let in, but for what is changed; None leaves a claim out."""
    now = int(time.time())
    said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": now + DAY_S, "iat": now} | claims
    headers = {"kid": kid} if kid is not None else {}
    return jwt.encode({k: v for k, v in said.items() if v is not None}, key, algorithm=algorithm, headers=headers)


def forged(header: dict[str, Any], signature: bytes = b"", **claims: Any) -> str:
    """Put together by hand, as no library would."""
    said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": int(time.time()) + DAY_S} | claims
    parts = [json.dumps(part).encode() for part in (header, said)] + [signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def hmac_with_public_key() -> str:
    """The algorithm confusion: the public key, which everybody knows, as the secret of an HMAC."""
    pem = RSA_KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    unsigned = forged({"alg": "HS256", "kid": "rsa"}).rpartition(".")[0]
    signature = hmac.digest(pem, unsigned.encode(), "sha256")
    return f"{unsigned}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def changed_in_its_claims() -> str:
    """Another user's name under a signature that was right."""
    header, _, signature = token().split(".")
    return f"{header}.{token(sub='admin').split('.')[1]}.{signature}"


def message(words: str, *, authzid: str = "", extensions: str = "") -> bytes:
    return f"n,{authzid},\x01auth={words}\x01{extensions}\x01".encode()


def log_in(text: str, rules: TokenRules = RULES) -> OAuthBearer:
    keys = parse_jwks(JWKS)
    exchange = OAuthBearer(rules, keys.get)
    assert exchange.step(message(f"Bearer {text}")) == b""
    return exchange


@pytest.mark.parametrize(
    ("change", "exp_in_s"),
    [
        ({}, DAY_S),
        ({"key": RSA_KEY, "kid": "rsa", "algorithm": "RS256"}, DAY_S),
        ({"aud": ["nobody", "others"]}, DAY_S),
        ({}, -5),  # clocks differ
    ],
)
def test_a_signed_token_lets_its_subject_in_until_it_expires(change: dict[str, Any], exp_in_s: int) -> None:
    good = token(**change, exp=int(time.time()) + exp_in_s)
    exchange = log_in(good)
    assert exchange.user == "alice"
    assert exchange.expires_ms == jwt.decode(good, options={"verify_signature": False})["exp"] * 1000


@pytest.mark.attack("A4", "a refused bearer token leaves the name that it claims")
def test_a_refused_token_says_whose_it_claims_to_be() -> None:
    for bad, claimed in (
        (token(OTHER_KEY, sub="mallory"), "mallory"),
        (forged({"alg": "none"}), "alice"),
        ("x.y.z", ""),
    ):
        exchange = OAuthBearer(RULES, parse_jwks(JWKS).get)
        with pytest.raises(LoginRefused):
            exchange.step(message(f"Bearer {bad}"))
        assert (exchange.user, exchange.claimed) == (None, claimed)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (forged({"alg": "none"}), "not allowed"),
        (forged({"alg": "None", "kid": "ec"}), "not allowed"),
        (forged({"alg": "nOnE", "kid": "ec"}), "not allowed"),
        (forged({"kid": "ec"}), "not"),
        (forged({"alg": "ES256", "kid": "ec"}), "not valid"),
        (hmac_with_public_key(), "not allowed"),
        (forged({"alg": ["ES256"], "kid": "ec"}), "not"),
        (token(OTHER_KEY), "not valid"),
        (token(OTHER_KEY, kid="theirs"), "does not know"),
        (token(kid=None), "does not know"),
        (token(RSA_KEY, kid="ec", algorithm="RS256"), "not valid"),
        (token(RSA_KEY, kid="rsa", algorithm="RS512"), "not allowed"),
        (token(aud="accounts"), "another audience"),
        (token(aud=None), "no claim aud"),
        (token(iss="https://login.example.evil"), "another issuer"),
        (token(iss=None), "no claim iss"),
        (token(exp=int(time.time()) - 60), "expired"),
        (token(exp=None), "no claim exp"),
        (token(exp="soon"), "not valid"),
        (token(nbf=int(time.time()) + DAY_S), "not valid"),
        (token(sub=None), "no claim sub"),
        (token(sub=""), "not a name"),
        (changed_in_its_claims(), "not valid"),
        ("a.b.c", "not valid"),
        ("x", "not valid"),
    ],
)
def test_every_other_token_is_refused(bad: str, words: str) -> None:
    with pytest.raises(LoginRefused, match=words) as refused:
        log_in(bad)
    assert bad not in str(refused.value)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic YWxpY2U6\x01\x01",
        b"y,,\x01auth=Bearer x\x01\x01",
        b"n,,auth=Bearer x",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        message("Bearer x", extensions="auth=Bearer y\x01"),
        message(f"Bearer {token()}", authzid="a=bob"),
        message("Bearer " + "x" * 20_000),
    ],
)
def test_what_is_no_message_is_refused(raw: bytes) -> None:
    with pytest.raises(LoginRefused):
        OAuthBearer(RULES, parse_jwks(JWKS).get).step(raw)


def test_extensions_are_read_and_mean_nothing() -> None:
    exchange = OAuthBearer(RULES, parse_jwks(JWKS).get)
    assert exchange.step(message(f"bearer {token()}", authzid="a=alice", extensions="traceId=1\x01")) == b""


def test_without_keys_nobody_is_let_in() -> None:
    exchange = OAuthBearer(RULES, lambda kid: None)
    with pytest.raises(LoginRefused, match="does not know"):
        exchange.step(message(f"Bearer {token()}"))


@pytest.mark.parametrize(
    "change",
    [{"algorithms": ()}, {"issuer": ""}, {"audiences": ()}, {"algorithms": ("HS256",)}, {"algorithms": ("none",)}],
)
def test_no_check_can_be_left_out(change: dict[str, Any]) -> None:
    said = {"algorithms": ("ES256",), "issuer": ISSUER, "audiences": (AUDIENCE,)} | change
    with pytest.raises(ValueError, match=r"token is checked|no algorithm of public keys"):
        TokenRules(**said)


def test_a_login_ends_with_its_token() -> None:
    """Whatever connections.max.reauth.ms says (NATS's CVE-2020-26892)."""
    now_ms = int(time.time() * 1000)
    session = SaslSession({"OAUTHBEARER": lambda: OAuthBearer(RULES, parse_jwks(JWKS).get)})
    session.choose("OAUTHBEARER", 1)
    _, lifetime_ms = session.authenticate(message(f"Bearer {token(exp=now_ms // 1000 + 300)}"), now_ms)
    assert session.principal == "User:alice" and session.is_limited
    assert 290_000 < lifetime_ms <= 300_000
    assert session.admits(ApiKey.PRODUCE, now_ms + lifetime_ms - 1)
    assert not session.admits(ApiKey.PRODUCE, now_ms + lifetime_ms)


# -- where the keys come from -------------------------------------------------------------------------------------------


def test_symmetric_keys_and_others_uses_are_dropped() -> None:
    oct_key = {"kty": "oct", "k": base64.urlsafe_b64encode(b"secret" * 8).decode(), "kid": "oct", "alg": "HS256"}
    assert set(
        parse_jwks(json.dumps({"keys": [oct_key, jwk(EC_KEY, "ec"), jwk(RSA_KEY, "enc", use="enc")]}).encode())
    ) == {"ec"}
    for document in (b"", b"[]", b"{}", b'{"keys": []}', json.dumps({"keys": [oct_key]}).encode(), b"[" * 100_000):
        with pytest.raises(ValueError, match=r"JWKS|no public key"):
            parse_jwks(document)


def test_a_file_of_keys_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    file.write_bytes(JWKS)
    source = JwksSource(file.as_uri(), refresh_ms=1000)
    assert source.find("ec") is not None and source.find("new") is None and source.find(None) is None
    file.write_text("half a fi")
    source.refresh()
    assert source.find("ec") is not None
    file.unlink()
    file.write_text(json.dumps({"keys": [jwk(OTHER_KEY, "new")]}))
    source.refresh()
    assert source.find("ec") is None and source.find("new") is not None and source.find(None) is not None


@pytest.mark.parametrize(
    "url",
    ["http://login.example/jwks", "ftp://login.example/jwks", "jar:file:/x", "/etc/passwd", "https:///x", "data:,{}"],
)
def test_keys_come_from_files_and_https_alone(url: str) -> None:
    with pytest.raises(ConfigError, match="the only places"):
        JwksSource(url, refresh_ms=1000)


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[tuple[str, Path, dict[str, str]]]:
    """An https endpoint of keys: its URL, the authority to trust, and where it redirects to."""
    pki.init(tmp_path / "pki")
    pki.issue(tmp_path / "pki", "server", hosts=["127.0.0.1"])
    elsewhere: dict[str, str] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_moved = bool(elsewhere) and self.path == "/jwks"
            self.send_response(302 if is_moved else 200)
            if is_moved:
                self.send_header("Location", elsewhere["to"])
            self.end_headers()
            self.wfile.write(JWKS)

        def log_message(self, *_: Any) -> None:
            """Not a test's output."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pki/server.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{server.server_address[1]}/jwks", tmp_path / "pki/ca.pem", elsewhere
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_https_endpoint_is_asked_and_never_followed_elsewhere(
    endpoint: tuple[str, Path, dict[str, str]], tmp_path: Path
) -> None:
    url, authority, elsewhere = endpoint
    untrusting = JwksSource(url, refresh_ms=60_000)
    untrusting.refresh()
    assert untrusting.find("ec") is None  # nobody vouches for it: no keys, no logins
    (tmp_path / "jwks.json").write_bytes(JWKS)
    for place in ((tmp_path / "jwks.json").as_uri(), url.replace("/jwks", "/elsewhere")):
        elsewhere["to"] = place
        led_astray = JwksSource(url, refresh_ms=60_000, cafile=str(authority))
        led_astray.refresh()
        assert led_astray.find("ec") is None
    elsewhere.clear()
    source = JwksSource(url, refresh_ms=60_000, cafile=str(authority))
    assert source.is_refresh_due
    source.refresh()
    assert source.find("ec") is not None and not source.is_refresh_due


LISTENER = {
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "https://login.example/jwks",
    "sasl.oauthbearer.expected.issuer": ISSUER,
    "sasl.oauthbearer.expected.audience": AUDIENCE,
}


def test_a_listener_starts_with_all_of_its_checks() -> None:
    assert load_listeners(["CLIENTS"], LISTENER)["CLIENTS"].jwks is not None


@pytest.mark.parametrize("key", [key for key in LISTENER if key.startswith("sasl.oauthbearer")])
def test_a_listener_without_one_of_them_does_not_start(key: str) -> None:
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        load_listeners(["CLIENTS"], {name: value for name, value in LISTENER.items() if name != key})


@pytest.mark.parametrize("algorithms", ["none", "HS256", "ES256,HS512"])
def test_a_listener_that_would_take_unsigned_tokens_does_not_start(algorithms: str) -> None:
    with pytest.raises(ConfigError, match="no algorithm of public keys"):
        load_listeners(["CLIENTS"], LISTENER | {"sasl.oauthbearer.algorithms": algorithms})
