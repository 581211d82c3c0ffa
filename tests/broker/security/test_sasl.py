"""A login, token by token: what lets a client in, and everything that does not."""

from __future__ import annotations

import base64
import hashlib
import hmac
from functools import partial

import pytest
from scramp import ScramClient, ScramMechanism

from barnabas_broker.security.sasl.mechanism import SCRAM as NAMES
from barnabas_broker.security.sasl.mechanism import LoginRefused
from barnabas_broker.security.sasl.plain import TOKEN_BYTES_MAX, Plain
from barnabas_broker.security.sasl.scram import FindToken, Scram, TokenVerifier, Verifier
from barnabas_broker.security.sasl.session import LoginState, SaslSession
from barnabas_broker.security.unknown_users import Likeness
from barnabas_wire.client.security import SaslLogin, login_steps
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas_wire.kafka.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

PASSWORDS = {"alice": "in the looking-glass", "émile": "ça"}
LIKE = partial(Likeness, b"of this cluster")


def verifier_of(mechanism: str, password: str = "hers", iterations: int = 4096) -> Verifier:
    salt, stored_key, server_key, count = ScramMechanism(mechanism).make_auth_info(password, iterations)
    return Verifier(salt, stored_key, server_key, count)


def scram(mechanism: str = NAMES[0], **users: Verifier) -> Scram:
    return Scram(mechanism, users.get, unknown=LIKE)


@pytest.mark.parametrize("user", PASSWORDS)
@pytest.mark.parametrize("is_named", [False, True])
def test_plain_lets_in_who_knows_the_password(user: str, is_named: bool) -> None:
    exchange = Plain(PASSWORDS)
    authorization_id = user if is_named else ""
    assert exchange.step(f"{authorization_id}\0{user}\0{PASSWORDS[user]}".encode()) == b""
    assert exchange.user == user


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (b"\0alice\0wrong", "user or password is wrong"),
        (b"\0bob\0wrong", "user or password is wrong"),
        (b"\0bob\0", "is not"),
        (b"\0\0in the looking-glass", "is not"),
        (b"alice in the looking-glass", "is not"),
        (b"\0alice\0in the looking-glass\0", "is not"),
        (b"admin\0alice\0in the looking-glass", "for itself only"),
        (b"\0alice\0\xff", "UTF-8"),
        (b"\0alice\0" + b"x" * TOKEN_BYTES_MAX, "longer than"),
    ],
)
def test_plain_refuses_all_others(token: bytes, reason: str) -> None:
    exchange = Plain(PASSWORDS)
    with pytest.raises(LoginRefused, match=reason):
        exchange.step(token)
    assert exchange.user is None


@pytest.mark.parametrize("mechanism", NAMES)
def test_scram_lets_in_who_knows_the_password(mechanism: str) -> None:
    exchange = scram(mechanism, alice=verifier_of(mechanism))
    client = ScramClient([mechanism], "alice", "hers")
    client.set_server_first(exchange.step(client.get_client_first().encode()).decode())
    assert exchange.user is None
    client.set_server_final(exchange.step(client.get_client_final().encode()).decode())
    assert exchange.user == "alice"
    with pytest.raises(LoginRefused, match="over"):
        exchange.step(b"again")


@pytest.mark.parametrize("mechanism", NAMES)
@pytest.mark.parametrize(("user", "password"), [("alice", "his"), ("bob", "hers")])
def test_scram_refuses_a_wrong_password_and_an_unknown_user_alike(mechanism: str, user: str, password: str) -> None:
    exchange = scram(mechanism, alice=verifier_of(mechanism))
    client = ScramClient([mechanism], user, password)
    client.set_server_first(exchange.step(client.get_client_first().encode()).decode())
    with pytest.raises(LoginRefused, match=r"^user or password is wrong$"):
        exchange.step(client.get_client_final().encode())
    assert exchange.user is None and exchange.claimed == user


def test_an_unknown_user_has_the_same_salt_each_time_and_another_than_others() -> None:
    def salt(user: str) -> str:
        client = ScramClient([NAMES[0]], user, "guess")
        return scram().step(client.get_client_first().encode()).decode().split(",")[1]

    assert salt("bob") == salt("bob") != salt("carol")


@pytest.mark.parametrize("mechanism", NAMES)
def test_scram_lets_in_librdkafka_before_2_6_1_which_puts_its_own_nonce_before_the_whole_one(mechanism: str) -> None:
    server = scram(mechanism, alice=verifier_of(mechanism))
    client = ScramClient([mechanism], "alice", "hers")
    client.set_server_first(server.step(client.get_client_first().encode()).decode())
    client.nonce = type(client.nonce)(f"{client.c_nonce}{client.nonce}")
    client.set_server_final(server.step(client.get_client_final().encode()).decode())
    assert server.user == "alice"


def test_cve_2024_56128_the_last_nonce_must_be_the_whole_one() -> None:
    exchange = scram(alice=verifier_of(NAMES[0]))
    client = ScramClient([NAMES[0]], "alice", "hers")
    first = client.get_client_first()
    server_first = exchange.step(first.encode()).decode()
    nonce, salt, _ = (part[2:] for part in server_first.split(","))
    # a proof that is right for the shortened message
    salted = hashlib.pbkdf2_hmac("sha256", b"hers", base64.b64decode(salt), 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    bare = f"c=biws,r={nonce[:-1]}"
    message = f"{first[3:]},{server_first},{bare}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), message, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    with pytest.raises(LoginRefused):
        exchange.step(f"{bare},p={proof}".encode())
    assert exchange.user is None


@pytest.mark.parametrize(
    "token", [b"", b"\xff", b"n,,n=alice", b"y,,n=alice,r=abc", b"p=tls-unique,,n=alice,r=abc", b"x" * 5000]
)
def test_what_is_no_scram_exchange_is_refused(token: bytes) -> None:
    exchange = scram(alice=verifier_of(NAMES[0]))
    with pytest.raises(LoginRefused):
        for _ in range(2):
            exchange.step(token)


def session(lifetime_ms: int = 0) -> SaslSession:
    verifiers = {"alice": verifier_of(NAMES[0])}
    return SaslSession(
        {"PLAIN": lambda: Plain(PASSWORDS), NAMES[0]: lambda: Scram(NAMES[0], verifiers.get, unknown=LIKE)},
        lifetime_ms=lifetime_ms,
    )


def log_in(server: SaslSession, login: SaslLogin, now_ms: int = 0) -> int:
    """Our own client against our own server."""
    steps = login_steps(login)
    request = next(steps)
    while True:
        assert server.admits(request.API_KEY, now_ms)
        response: SaslHandshakeResponse | SaslAuthenticateResponse
        try:
            if isinstance(request, SaslHandshakeRequest):
                server.choose(request.mechanism, 1)
                response = SaslHandshakeResponse(mechanisms=server.mechanisms)
            else:
                assert isinstance(request, SaslAuthenticateRequest)
                answer, lifetime_ms = server.authenticate(request.auth_bytes, now_ms)
                response = SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=lifetime_ms)
        except KafkaError as error:
            kind = SaslHandshakeResponse if isinstance(request, SaslHandshakeRequest) else SaslAuthenticateResponse
            response = kind(error_code=error.code)
        try:
            request = steps.send(response)
        except StopIteration as end:
            return int(end.value)


@pytest.mark.parametrize(
    "login",
    [SaslLogin("PLAIN", "alice", PASSWORDS["alice"]), SaslLogin(NAMES[0], "alice", "hers")],
    ids=["plain", "scram"],
)
def test_a_session_serves_everything_after_the_login_and_nothing_before(login: SaslLogin) -> None:
    server = session()
    for key in ApiKey:
        is_of_login = key in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
        assert server.admits(key, 0) == is_of_login
    assert log_in(server, login) == 0
    assert server.principal == "User:alice"
    assert all(server.admits(key, 10**15) for key in ApiKey)


@pytest.mark.parametrize(
    ("login", "code"),
    [
        (SaslLogin("PLAIN", "alice", "wrong"), ErrorCode.SASL_AUTHENTICATION_FAILED),
        (SaslLogin(NAMES[0], "alice", "wrong"), ErrorCode.SASL_AUTHENTICATION_FAILED),
        (SaslLogin("GSSAPI", "alice", "wrong"), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
    ids=["plain", "scram", "mechanism"],
)
def test_nothing_is_served_after_a_refusal(login: SaslLogin, code: ErrorCode) -> None:
    server = session()
    with pytest.raises(KafkaError) as refused:
        log_in(server, login)
    assert refused.value.code is code
    assert server.state is LoginState.REFUSED
    assert not any(server.admits(key, 0) for key in ApiKey)


def test_while_a_login_goes_on_only_its_tokens_are_taken() -> None:
    server = session()
    server.choose("PLAIN", 1)
    assert [key for key in ApiKey if server.admits(key, 0)] == [ApiKey.SASL_AUTHENTICATE]


def test_a_login_that_counts_for_a_time_must_be_made_again_by_the_same_user() -> None:
    server = session(lifetime_ms=1_000)
    assert log_in(server, SaslLogin("PLAIN", "alice", PASSWORDS["alice"]), now_ms=5_000) == 1_000
    assert server.admits(ApiKey.PRODUCE, 5_999)
    assert not server.admits(ApiKey.PRODUCE, 6_000)
    assert server.admits(ApiKey.SASL_HANDSHAKE, 6_000)
    log_in(server, SaslLogin(NAMES[0], "alice", "hers"), now_ms=6_500)
    assert server.admits(ApiKey.PRODUCE, 7_499)
    with pytest.raises(KafkaError) as refused:
        log_in(server, SaslLogin("PLAIN", "émile", "ça"), now_ms=7_000)
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert server.state is LoginState.REFUSED


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ("authenticate", ErrorCode.ILLEGAL_SASL_STATE),
        ("choose in v0", ErrorCode.UNSUPPORTED_VERSION),
        ("log in, choose", ErrorCode.ILLEGAL_SASL_STATE),
    ],
)
def test_what_comes_at_the_wrong_time(steps: str, code: ErrorCode) -> None:
    server = session()
    if steps.startswith("log in"):
        log_in(server, SaslLogin("PLAIN", "alice", PASSWORDS["alice"]))
    with pytest.raises(KafkaError) as refused:
        if steps == "authenticate":
            server.authenticate(b"\0alice\0in the looking-glass", 0)
        else:
            server.choose("PLAIN", 0 if steps.endswith("v0") else 1)
    assert refused.value.code is code


def server_first(steps_request: SaslAuthenticateRequest, iterations: int) -> SaslAuthenticateResponse:
    nonce = steps_request.auth_bytes.decode().split("r=")[1]
    return SaslAuthenticateResponse(auth_bytes=f"r={nonce}server,s=QSXCR+Q6sek8bf92QSXC,i={iterations}".encode())


def test_our_client_leaves_a_server_that_does_not_know_the_password() -> None:
    steps = login_steps(SaslLogin(NAMES[0], "alice", "hers"))
    next(steps)
    first = steps.send(SaslHandshakeResponse(mechanisms=[NAMES[0]]))
    steps.send(server_first(first, 4096))
    with pytest.raises(KafkaError, match="does not prove"):
        steps.send(SaslAuthenticateResponse(auth_bytes=b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ="))


def test_our_client_does_not_count_for_ever() -> None:
    """CVE-2026-10143: the number of iterations is the server's to say."""
    steps = login_steps(SaslLogin(NAMES[0], "alice", "hers"))
    next(steps)
    first = steps.send(SaslHandshakeResponse(mechanisms=[NAMES[0]]))
    with pytest.raises(KafkaError, match="more iterations"):
        steps.send(server_first(first, 999_999_999))


# -- delegation tokens -------------------------------------------------------------------------------------------------


NOBODY: dict[str, Verifier] = {}


def token_login(token_id: str, password: str, *, signs_extension: bool = True, find: FindToken | None = None) -> Scram:
    """The exchange of a client that logs in with a delegation token, as Java's writes it."""
    tokens = {"tid": TokenVerifier("alice", "the hmac", 5_000)}
    server = Scram(NAMES[0], NOBODY.get, unknown=LIKE, find_token=find or tokens.get)
    client = ScramClient([NAMES[0]], token_id, password)
    first = client.get_client_first() + ",tokenauth=true"
    if signs_extension:
        client.client_first_bare += ",tokenauth=true"
    client.set_server_first(server.step(first.encode()).decode())
    client.set_server_final(server.step(client.get_client_final().encode()).decode())
    return server


def test_who_has_a_delegation_token_is_its_owner_until_it_ends() -> None:
    exchange = token_login("tid", "the hmac")
    assert (exchange.user, exchange.expires_ms, exchange.is_by_delegation_token) == ("alice", 5_000, True)


@pytest.mark.parametrize(
    ("token_id", "password", "signs_extension"),
    [("tid", "guessed", True), ("other", "the hmac", True), ("alice", "hers", True), ("tid", "the hmac", False)],
)
def test_who_has_none_is_refused(token_id: str, password: str, signs_extension: bool) -> None:
    with pytest.raises(LoginRefused, match="user or password is wrong"):
        token_login(token_id, password, signs_extension=signs_extension)


def test_a_token_is_no_user_and_a_user_no_token() -> None:
    server = Scram(NAMES[0], {"alice": verifier_of(NAMES[0])}.get, unknown=LIKE)
    client = ScramClient([NAMES[0]], "alice", "hers")
    first = client.get_client_first() + ",tokenauth=true"
    client.client_first_bare += ",tokenauth=true"
    client.set_server_first(server.step(first.encode()).decode())
    with pytest.raises(LoginRefused):
        server.step(client.get_client_final().encode())


@pytest.mark.parametrize(
    "extension", [",tokenauth=false", ",tokenauth=true,tokenauth=true", ",x=y,tokenauth=true", ",tokenauth"]
)
def test_other_extensions_make_no_token(extension: str) -> None:
    server = Scram(NAMES[0], NOBODY.get, unknown=LIKE, find_token={"tid": TokenVerifier("alice", "p", 1)}.get)
    first = ScramClient([NAMES[0]], "tid", "p").get_client_first() + extension
    with pytest.raises(LoginRefused):
        server.step(first.encode())
        server.step(b"c=biws,r=x,p=eA==")
