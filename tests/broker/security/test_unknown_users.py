"""What SCRAM shows of users that do not exist, and of those whose password changes while they log in."""

from __future__ import annotations

import hashlib
from base64 import b64decode

import pytest
from scramp import ScramClient

from barnabas_broker.security.config import SecurityConfig
from barnabas_broker.security.logins import SCRAM_MECHANISMS, Logins
from barnabas_broker.security.sasl.mechanism import LoginRefused, Mechanism
from barnabas_broker.security.sasl.scram import TokenVerifier
from barnabas_quorum.controller.scram import HASHES, derive_keys
from barnabas_quorum.image.scram import ScramCredential, ScramImage, ScramUser
from barnabas_quorum.records_security import ScramMechanism

NAMES = tuple(SCRAM_MECHANISMS)
Users = dict[ScramUser, ScramCredential]


def credential(name: str, password: str, iterations: int, salt: bytes) -> ScramCredential:
    mechanism = SCRAM_MECHANISMS[name]
    keys = derive_keys(mechanism, hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations))
    return ScramCredential(salt=salt, stored_key=keys.stored_key, server_key=keys.server_key, iterations=iterations)


def users(name: str = NAMES[0], **sizes: tuple[int, int]) -> Users:
    """By user name, iterations and bytes of salt."""
    return {
        ScramUser(user, SCRAM_MECHANISMS[name]): credential(name, user, iterations, user.encode().ljust(size, b"!"))
        for user, (iterations, size) in sizes.items()
    }


def listener(present: Users) -> Logins:
    """Of a node that has just started."""
    config = SecurityConfig(sasl_enabled_mechanisms=NAMES)
    tokens = {"tid": TokenVerifier("ann", "hmac", 5_000)}
    return Logins(config, {}, lambda: ScramImage(credentials=present), find_token=tokens.get)


def begun(logins: Logins, user: str, password: str, name: str = NAMES[0]) -> tuple[Mechanism, ScramClient]:
    factory = logins.factory(name)
    assert factory is not None
    exchange, client = factory(), ScramClient([name], user, password)
    client.set_server_first(exchange.step(client.get_client_first().encode()).decode())
    return exchange, client


def shown(logins: Logins, user: str, name: str = NAMES[0], *, extension: str = "") -> tuple[int, bytes]:
    """Iterations and salt that anybody is told."""
    factory = logins.factory(name)
    assert factory is not None
    first = ScramClient([name], user, "guess").get_client_first() + extension
    _, salt, iterations = factory().step(first.encode()).decode().split(",")
    return int(iterations.removeprefix("i=")), b64decode(salt.removeprefix("s="))


@pytest.mark.attack("A8", "SCRAM shows of unknown users what it shows of known ones")
@pytest.mark.parametrize("size", [(8192, 16), (4096, 32), (16384, 26), (8192, 90)])
def test_an_unknown_user_looks_as_most_users_do(size: tuple[int, int]) -> None:
    present = users(ann=size, bob=size, carol=(5000, 17))
    known, unknown = shown(listener(present), "ann"), shown(listener(present), "nobody")
    assert (known[0], len(known[1])) == (unknown[0], len(unknown[1])) == size
    assert shown(listener(present), "nobody") == unknown != shown(listener(present), "no-one")


@pytest.mark.attack("A8", "an unknown user's salt is the same at every listener, broker and restart")
def test_a_made_up_salt_is_the_same_everywhere() -> None:
    present = users(ann=(8192, 16), bob=(8192, 16), carol=(8192, 16), dave=(8192, 16))
    assert shown(listener(present), "nobody") == shown(listener(dict(reversed(present.items()))), "nobody")
    assert shown(listener(present), "nobody", NAMES[1])[1] != shown(listener(present), "nobody", NAMES[0])[1]
    without_the_last = {user: each for user, each in present.items() if user.name != "dave"}
    assert shown(listener(without_the_last), "nobody") == shown(listener(present), "nobody")
    another_password = present | {
        ScramUser("ann", ScramMechanism.SCRAM_SHA_256): credential(NAMES[0], "x", 8192, b"!" * 16)
    }
    assert shown(listener(another_password), "nobody") != shown(listener(present), "nobody")


@pytest.mark.attack("A8", "SCRAM shows of a delegation token that is there what it shows of others")
def test_a_token_looks_as_one_that_is_not_there() -> None:
    logins = listener(users(ann=(8192, 24)))
    there, gone = (shown(logins, token, extension=",tokenauth=true") for token in ("tid", "tie"))
    assert (there[0], len(there[1])) == (gone[0], len(gone[1])) == (8192, 24)
    assert shown(listener(users(ann=(8192, 24))), "tid", extension=",tokenauth=true") == there


def test_without_users_everybody_looks_as_a_new_one() -> None:
    assert [shown(listener({}), user)[0] for user in ("ann", "bob")] == [8192, 8192]
    assert len(shown(listener({}), "ann")[1]) == 16


@pytest.mark.attack("A7", "a login that is finished after its password was changed or its user deleted is refused")
@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_login_is_not_finished_with_the_former_password(is_deleted: bool) -> None:
    present = users(ann=(4096, 16))
    exchange, client = begun(listener(present), "ann", "ann")
    if is_deleted:
        present.clear()
    else:
        present |= {ScramUser("ann", ScramMechanism.SCRAM_SHA_256): credential(NAMES[0], "new", 4096, b"?" * 16)}
    with pytest.raises(LoginRefused, match=r"^user or password is wrong$"):
        exchange.step(client.get_client_final().encode())
    assert exchange.user is None


def test_a_change_of_another_user_keeps_nobody_out() -> None:
    present = users(ann=(4096, 16))
    exchange, client = begun(listener(present), "ann", "ann")
    present |= users(bob=(4096, 16))
    client.set_server_final(exchange.step(client.get_client_final().encode()).decode())
    assert exchange.user == "ann"
