"""Sign-in with the cluster's own users: nothing without it, each with its own rights; sessions end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, cast

import httpx
import pytest

from barnabas_admin.console import sign_in as sign_in_module
from barnabas_admin.console.application import make_application
from barnabas_admin.console.cluster import ConsoleCluster
from barnabas_admin.console.sign_in import PROOF_S_MAX, REST_S_MAX, SignIn
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from tests.admin.console.conftest import Console
from tests.support.clusters import ForkedCluster

PASSWORD = "a-password-of-ada"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("signed-in")
    with ForkedCluster(directory, nodes=1, base_port=find_base_port(), is_secured=True) as running:
        yield running


@pytest.fixture(scope="module")
def console(secured: LocalCluster) -> Iterator[Console]:
    assert secured.security is not None
    login = ["--client-config", str(secured.security.client_file)]
    found = Console(secured, "--sign-in", "-b", secured.bootstrap_servers, *login)
    yield found
    found.close()


def come_in(console: Console, user: str, password: str) -> httpx.Client:
    client = httpx.Client(base_url=console.address, timeout=30)
    token = client.get("/sign-in").cookies["barnabas_token"]
    answer = client.post(
        "/sign-in", data={"token": token, "user": user, "password": password, "back": "/access?tab=users"}
    )
    assert answer.status_code == 303 and answer.headers["location"] == "/access?tab=users", answer.text
    return client


@pytest.mark.attack("A1", "a console with sign-in shows nothing and acts for nobody who is not signed in")
def test_nothing_is_shown_before_the_sign_in(console: Console) -> None:
    for path in ("/", "/topics", "/topics/new", "/tv", "/nowhere"):
        answer = console.client.get(path)
        assert answer.status_code == 303 and answer.headers["location"].startswith("/sign-in?back=%2F"), path
    assert console.client.get("/overview.json").status_code == 401
    assert console.client.post("/topics/new", data={"name": "never"}).headers["location"].startswith("/sign-in")
    part = console.client.get("/topics/seen/tail", headers={"hx-request": "true"})
    assert part.status_code == 401 and part.headers["hx-redirect"] == "/sign-in"
    assert console.client.get("/static/console.css").status_code == 200
    assert console.client.get("/livez").text == "alive\n", "a probe signs in nowhere"
    page = console.client.get("/sign-in?back=//elsewhere.example")
    assert 'name="back" value="/"' in page.text and 'href="/topics"' not in page.text


def test_each_signs_in_with_its_own_rights(console: Console, secured: LocalCluster) -> None:
    assert secured.security is not None
    console.client.get("/sign-in")
    wrong = console.post("/sign-in", user="admin", password="not-the-admins", back="/")
    assert (
        wrong.status_code == 403
        and "barnabas_session" not in console.client.cookies
        and "not-the-admins" not in wrong.text
    )
    admin = come_in(console, "admin", secured.security.password)
    token = {"token": admin.cookies["barnabas_token"]}
    ada = {"name": "ada", "mechanism": "SCRAM-SHA-512", "password": PASSWORD, "again": PASSWORD}
    assert admin.post("/access/users/set", data=token | ada).status_code == 303
    assert admin.post("/topics/new", data=token | {"name": "hidden", "replicas": "1"}).status_code == 303
    page = admin.get("/")
    assert "Sign out" in page.text and "admin" in page.text

    guest = come_in(console, "ada", PASSWORD)
    assert guest.get("/access.json?tab=users").json()["error"]["code"] == "CLUSTER_AUTHORIZATION_FAILED"
    refused = guest.post(
        "/topics/new", data={"token": guest.cookies["barnabas_token"], "name": "mine", "replicas": "1"}
    )
    assert refused.status_code == 400 and "AUTHORIZATION_FAILED" in refused.text.upper().replace(" ", "_")
    assert guest.post("/sign-out", data={"token": guest.cookies["barnabas_token"]}).status_code == 303
    assert guest.get("/overview.json").status_code == 401
    assert admin.get("/overview.json").status_code == 200, "another's sign-out ends nobody else's session"


def test_a_plain_cluster_has_nobody_to_sign_in(cluster: LocalCluster) -> None:
    command = [sys.executable, "-m", "barnabas_admin.main", "console", "--port", "0", "--sign-in", "--no-history"]
    done = subprocess.run([*command, "--admin", cluster.admin_addresses], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "ask for no login" in done.stderr
    open_wide = subprocess.run(
        [*command, "--admin", cluster.admin_addresses, "--host", "0.0.0.0"], capture_output=True, text=True, timeout=60
    )
    assert open_wide.returncode == 2 and "plain text" in open_wide.stderr


class _Asked:
    """Stands for a cluster that takes one password."""

    def __init__(self, password: str) -> None:
        self.password = password
        self.is_closed = False
        self.history: Any = None

    async def admin(self, ask: object) -> None:
        if self.password != "right":
            raise KafkaError.of(ErrorCode.SASL_AUTHENTICATION_FAILED, "no")

    async def close(self) -> None:
        self.is_closed = True


async def test_sessions_that_rest_end_and_the_oldest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in_module, "SESSIONS_MAX", 2)
    monkeypatch.setattr(sign_in_module, "REFUSAL_PAUSE_S", 0)
    now = [0.0]
    opened: list[_Asked] = []

    def open_as(user: str, password: str) -> ConsoleCluster:
        opened.append(_Asked(password))
        return cast(ConsoleCluster, opened[-1])

    found = SignIn(open_as, clock_s=lambda: now[0])
    with pytest.raises(KafkaError):
        await found.begin("ada", "wrong", None)
    assert opened[0].is_closed
    first = await found.begin("ada", "right", None)
    now[0] = 1
    second = await found.begin("bob", "right", None)
    now[0] = 2
    assert await found.find(first) is not None
    third = await found.begin("eve", "right", None)
    assert await found.find(second) is None and opened[2].is_closed, "the one that rested longest made room"
    now[0] = 2 + REST_S_MAX + 1
    assert await found.find(first) is None and await found.find(third) is None
    await asyncio.sleep(0)
    assert all(each.is_closed for each in opened)


@pytest.mark.attack("A9", "205 sign-ins of one user end nobody else's session")
async def test_who_begins_too_many_sessions_ends_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in_module, "SESSIONS_MAX", 3)
    found = SignIn(lambda user, password: cast(ConsoleCluster, _Asked(password)))
    admin = await found.begin("admin", "right", None)
    for _ in range(10):
        await found.begin("alice", "right", None)
    assert await found.find(admin) is not None
    newcomer = await found.begin("bob", "right", None)
    assert await found.find(newcomer) is not None and await found.find(admin) is not None


@pytest.mark.attack("A9", "wrong sign-ins of one address delay no other's")
async def test_wrong_logins_of_one_address_delay_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in_module, "REFUSAL_PAUSE_S", 3600)
    found = SignIn(lambda user, password: cast(ConsoleCluster, _Asked(password)))
    wrong = [asyncio.create_task(found.begin("x", "wrong", None, address="10.0.0.9")) for _ in range(60)]
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        assert await found.begin("ada", "right", None, address="10.0.0.1")
    for task in wrong:
        task.cancel()
    await asyncio.gather(*wrong, return_exceptions=True)


@pytest.mark.attack("A9", "a form of another site with a planted cookie is refused")
def test_a_form_of_another_site_changes_nothing(console: Console, secured: LocalCluster) -> None:
    """Cookies are shared among the ports of a host, so that another site can plant a token and its cookie."""
    assert secured.security is not None
    admin = come_in(console, "admin", secured.security.password)
    form = {"token": admin.cookies["barnabas_token"], "name": "planted", "replicas": "1"}
    for headers in ({"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "same-site"}):
        assert admin.post("/topics/new", data=form, headers=headers).status_code == 403, headers
    admin.cookies.set("barnabas_token", "planted", domain="127.0.0.1", path="/")
    assert admin.post("/topics/new", data=form | {"token": "planted"}).status_code == 403
    assert admin.post("/topics/new", data=form, headers={"origin": console.address}).status_code == 303


@pytest.mark.attack("A9", "an endless body to /theme and /sign-in is not read")
def test_no_body_without_a_length_is_read(console: Console) -> None:
    pieces = (b"theme=dark&" * 1000 for _ in range(1000))
    for path in ("/theme", "/sign-in"):
        with httpx.Client(base_url=console.address, timeout=30) as stranger:
            assert stranger.post(path, content=pieces).status_code == 413, path


@pytest.mark.attack("A9", "over TLS no page of another port plants the console's cookies")
@pytest.mark.parametrize(
    ("base", "prefix", "is_strict"),
    [
        ("https://console.example", "__Host-", True),
        ("https://console.example:8443", "__Host-", False),
        ("https://localhost", "__Host-", False),
        ("http://console.example", "", False),
    ],
)
async def test_over_tls_cookies_are_of_this_host_alone(base: str, prefix: str, is_strict: bool) -> None:
    sign_in = SignIn(lambda user, password: cast(ConsoleCluster, _Asked(password)))
    application = make_application(cast(ConsoleCluster, _Asked("right")), sign_in=sign_in, hosts=["console.example"])
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url=base) as client:
        page = await client.get("/sign-in")
        form = {"token": client.cookies[f"{prefix}barnabas_token"], "user": "ada", "password": "right", "back": "/"}
        if prefix:
            planted = {"cookie": "barnabas_token=planted"}
            refused = await client.post("/sign-in", data=form | {"token": "planted"}, headers=planted)
            assert refused.status_code == 403
            form["token"] = client.cookies[f"{prefix}barnabas_token"]  # of the page that says so
        answer = await client.post("/sign-in", data=form)
        assert answer.status_code == 303
        cookies = answer.headers.get_list("set-cookie")
        left = await client.post("/sign-out", data={"token": client.cookies[f"{prefix}barnabas_token"]})
    assert len(cookies) == 2 and left.status_code == 303
    for cookie in cookies + left.headers.get_list("set-cookie"):
        name, _, attributes = cookie.partition("=")
        assert name.startswith(f"{prefix}barnabas_") and "Path=/;" in cookie and "domain" not in attributes.lower()
        assert ("Secure" in attributes) is bool(prefix) and "HttpOnly" in attributes
    assert f"{prefix}barnabas_session" not in client.cookies
    assert ("strict-transport-security" in page.headers) is is_strict


@pytest.mark.attack("A9", "a console's session ends after its user's password was changed")
async def test_a_session_ends_with_the_password_that_it_began_with() -> None:
    now, asked = [0.0], _Asked("right")
    found = SignIn(lambda user, password: cast(ConsoleCluster, asked), clock_s=lambda: now[0])
    session = await found.begin("ada", "right", None)
    now[0] = PROOF_S_MAX
    assert await found.find(session) is not None, "who is let in still goes on"
    asked.password = "the former one"
    now[0] += PROOF_S_MAX - 1
    assert await found.find(session) is not None, "it is not asked at every page"
    now[0] += 1
    assert await found.find(session) is None and asked.is_closed
