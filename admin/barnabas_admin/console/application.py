"""The console as an ASGI application: routes, templates, errors, and the headers that keep a browser safe.

May touch:  Starlette, Jinja2.        Must not touch: gRPC, Kafka, but by ConsoleCluster.
Invariants: every page has a twin with `.json` behind its path, made of the same dictionary; with sign-in neither is answered without
            a session; a request whose Host is not one of the console's own names is refused (DNS rebinding); no answer may run a
            script that is not a file of the console's.
Read next:  pages.py, writes.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from barnabas_admin.console import events, pages, template_filters, topics, writes
from barnabas_admin.console.cluster import ConsoleCluster
from barnabas_admin.console.history import History
from barnabas_admin.console.query import Query
from barnabas_admin.console.run import step_page
from barnabas_admin.console.sampler import Sampler
from barnabas_admin.console.sign_in import SignIn
from barnabas_admin.errors import WrongUsage
from barnabas_admin.output import API_VERSION
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.run_journal import Journal

HERE = Path(__file__).parent
TOKEN_COOKIE = "barnabas_token"
THEME_COOKIE = "barnabas_theme"
SESSION_COOKIE = "barnabas_session"
HOST_PREFIX = "__Host-"
HSTS = ("strict-transport-security", "max-age=31536000")
SIGN_IN = "/sign-in"
THEMES = ("system", "light", "dark")
FORM_BYTES_MAX = 1 << 20
HEADERS = {
    "content-security-policy": "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}
_STATUS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: 404,
    ErrorCode.BROKER_ID_NOT_REGISTERED: 404,
    ErrorCode.NETWORK_EXCEPTION: 503,
    ErrorCode.BROKER_NOT_AVAILABLE: 503,
    ErrorCode.REQUEST_TIMED_OUT: 504,
    ErrorCode.TOPIC_ALREADY_EXISTS: 409,
}

Read = Callable[[ConsoleCluster, Query], Awaitable[dict[str, Any]]]
ClusterOf = Callable[[Request], ConsoleCluster]

PAGES: dict[str, tuple[str, Read]] = {
    "/": ("overview", pages.overview),
    "/quorum": ("quorum", pages.quorum),
    "/brokers": ("brokers", pages.brokers),
    "/brokers/{broker}": ("broker", pages.broker),
    "/topics": ("topics", topics.topics),
    "/topics/{topic}": ("topic", topics.topic),
    "/topics/{topic}/tail": ("tail", topics.tail),
    "/groups": ("groups", pages.groups),
    "/groups/{group:path}": ("group", pages.group),
    "/transactions": ("transactions", pages.transactions),
    "/transaction": ("transaction", pages.transaction),
    "/access": ("access", pages.access),
    "/events": ("events", events.events),
    "/explain": ("explain", pages.explain),
    "/tv": ("tv", pages.big_screen),
}
"""Path -> (template, what it asks). The path with `.json` behind it answers the dictionary; `/` has `/overview.json`."""

RUN = "/sim"
"""The page of a simulated run, whose twin is `/sim.json`; it asks no cluster."""

_WITH_TWINS = {"sim", *(template for template, _ in PAGES.values())}


PARTS = {"tail": "tail_rows"}
"""Pages that answer HTMX with a part of theirs; of the others the browser selects what it swaps."""


def make_application(
    cluster: ConsoleCluster | None,
    *,
    journal: Journal | None = None,
    history: History | None = None,
    sign_in: SignIn | None = None,
    is_read_only: bool = False,
    hosts: Collection[str] = (),
    clusters: Mapping[str, int] | None = None,
    own_name: str = "",
) -> Starlette:
    """The console of one cluster, of a simulated run, or of both.

    cluster: None shows the run alone. journal: the run that `/sim` steps through; None has no such page. history: filled while the
    console runs. sign_in: nobody sees a page without; None lets everybody in who reaches it. hosts: names it may be asked by,
    beside the loopback's. clusters: name -> port of the consoles that are linked, with this one's `own_name` among them.
    """
    environment = _environment(is_read_only=is_read_only)
    environment.globals |= {
        "has_sign_in": sign_in is not None,
        "has_cluster": cluster is not None,
        "has_run": journal is not None,
        "clusters": clusters or {},
        "own_name": own_name,
    }
    routes = []
    if cluster is not None:
        cluster.history = history
        routes += _cluster_routes(cluster, environment, has_sign_in=sign_in is not None, is_read_only=is_read_only)
    if journal is not None:
        routes += [Route(f"{RUN}.json", _run_twin(journal)), Route(RUN, _run_page(environment, journal))]
        if cluster is None:
            routes.append(Route("/", _to_the_run))
    routes.append(Route("/theme", _choose_theme, methods=["POST"]))
    routes.append(Route("/livez", _is_alive))
    sign_in_required = []
    if sign_in is not None:
        answer = _sign_in(environment, sign_in, history)
        routes.append(Route(SIGN_IN, answer, methods=["GET", "POST"]))
        routes.append(Route("/sign-out", _sign_out(sign_in), methods=["POST"]))
        sign_in_required.append(Middleware(_SignInRequired, sign_in=sign_in))

    @contextlib.asynccontextmanager
    async def lifespan(application: Starlette) -> AsyncIterator[None]:
        looking = None
        if history is not None and cluster is not None:
            looking = asyncio.create_task(Sampler(cluster, history).run(), name="console-looks")
        yield
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        if sign_in is not None:
            await sign_in.close()
        if cluster is not None:
            await cluster.close()
        if history is not None:
            history.close()

    application = Starlette(
        routes=[*routes, Mount("/static", StaticFiles(directory=HERE / "static"))],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=["localhost", "127.0.0.1", "[::1]", *hosts]),
            Middleware(_Headers),
            *sign_in_required,
        ],
        exception_handlers={
            HTTPException: _refused(environment),
            KafkaError: _failed(environment),
            OSError: _failed(environment),
            TimeoutError: _failed(environment),
        },
        lifespan=lifespan,
    )
    return application


def _cluster_routes(
    cluster: ConsoleCluster, environment: Environment, *, has_sign_in: bool, is_read_only: bool
) -> list[Route]:
    """The routes of every page that asks the cluster, and of its forms."""
    routes = []

    def of(request: Request) -> ConsoleCluster:
        """The cluster as who asks may see it."""
        return request.state.session.cluster if has_sign_in else cluster

    for path, (template, read) in PAGES.items():
        twin = "/overview.json" if path == "/" else f"{path}.json"
        routes.append(Route(twin, _twin(of, read)))
        routes.append(Route(path, _page(of, environment, template, read)))
    if not is_read_only:
        for path, (template, write) in writes.FORMS.items():
            routes.insert(0, Route(path, _form(of, environment, template, write), methods=["GET", "POST"]))
    return routes


def _run_page(environment: Environment, journal: Journal) -> Any:
    async def endpoint(request: Request) -> Response:
        return _render(environment, request, "sim", step_page(journal, _query(request)))

    return endpoint


def _run_twin(journal: Journal) -> Any:
    async def endpoint(request: Request) -> Response:
        return JSONResponse({"api_version": API_VERSION} | step_page(journal, _query(request)))

    return endpoint


async def _is_alive(request: Request) -> Response:
    """For probes: this console answers, whatever the cluster does."""
    return PlainTextResponse("alive\n")


async def _to_the_run(request: Request) -> Response:
    return RedirectResponse(RUN)


def _environment(*, is_read_only: bool) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= template_filters.FILTERS
    environment.globals |= {"is_read_only": is_read_only}
    return environment


def _query(request: Request) -> dict[str, str]:
    return {**request.query_params, **{key: str(value) for key, value in request.path_params.items()}}


def _page(of: ClusterOf, environment: Environment, template: str, read: Read) -> Any:
    async def endpoint(request: Request) -> Response:
        found = await read(of(request), _query(request))
        return _render(environment, request, template, found)

    return endpoint


def _twin(of: ClusterOf, read: Read) -> Any:
    async def endpoint(request: Request) -> Response:
        return JSONResponse({"api_version": API_VERSION} | await read(of(request), _query(request)))

    return endpoint


def _form(of: ClusterOf, environment: Environment, template: str, write: writes.Write) -> Any:
    """A page that changes the cluster: shown by GET, done by POST with the token of its form."""

    async def endpoint(request: Request) -> Response:
        cluster = of(request)
        fields = writes.Fields(_query(request))
        if request.method == "GET":
            found = await write.show(cluster, fields)
            return _render(
                environment, request, template, found | {"fields": fields, "error": None, "is_preview": False}
            )
        fields |= await _form_of(request)
        try:
            target = await write.do(cluster, fields)
        except KafkaError as error:
            found = await write.show(cluster, fields)
            found |= {"fields": fields, "error": template_filters.error_fields(error), "is_preview": False}
            return _render(environment, request, template, found, status=400)
        if target is None:
            found = await write.show(cluster, fields)
            found |= {"fields": fields, "error": None, "is_preview": True}
            return _render(environment, request, template, found)
        return RedirectResponse(target, status_code=303)

    return endpoint


async def _fields_of(request: Request) -> writes.Fields:
    """What a POST carries. Raises HTTPException for more than a form may have, and for a page of another site: browsers name the
    site, and share cookies among the ports of a host."""
    if int(request.headers.get("content-length") or FORM_BYTES_MAX + 1) > FORM_BYTES_MAX:
        raise HTTPException(413, f"a form may have {FORM_BYTES_MAX:,} bytes")
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise HTTPException(403, "this form is of another site")
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise HTTPException(403, "this form is of another site")
    return writes.parse_form(await request.body())


async def _form_of(request: Request) -> writes.Fields:
    """What was typed. Raises HTTPException as _fields_of, and for a form that carries another token than the session's."""
    form = await _fields_of(request)
    session = getattr(request.state, "session", None)
    token = request.cookies.get(_cookie(request, TOKEN_COOKIE), "") if session is None else session.token
    if not token or not secrets.compare_digest(token, form.pop("token", "")):
        raise HTTPException(403, "this form is not of this console, or is old; open the page again")
    return form


def _own_path(text: str) -> str:
    """A path of this console to go back to; what leads elsewhere is the overview."""
    return text if text.startswith("/") and not text.startswith(("//", "/\\")) else "/"


def _cookie(request: Request, name: str) -> str:
    """Over TLS a name that browsers take over TLS alone, of this host alone: a page of another port cannot plant it."""
    return f"{HOST_PREFIX}{name}" if request.url.scheme == "https" else name


def _set_cookie(response: Response, request: Request, name: str, value: str) -> None:
    is_tls = request.url.scheme == "https"
    response.set_cookie(_cookie(request, name), value, httponly=True, samesite="strict", secure=is_tls)


def _sign_in(environment: Environment, sign_in: SignIn, history: History | None) -> Any:
    async def endpoint(request: Request) -> Response:
        back = _own_path(request.query_params.get("back", "/"))
        if request.method == "GET":
            return _render(environment, request, "sign_in", {"back": back, "user": "", "error": None})
        form = await _form_of(request)
        back = _own_path(form["back"])
        try:
            address = request.client.host if request.client else ""
            name = await sign_in.begin(form["user"].strip(), form["password"], history, address=address)
        except KafkaError as error:
            found = {"back": back, "user": form["user"], "error": template_filters.error_fields(error) | {"hint": None}}
            return _render(environment, request, "sign_in", found, status=403)
        response = RedirectResponse(back, status_code=303)
        _set_cookie(response, request, SESSION_COOKIE, name)
        session = await sign_in.find(name)
        if session is not None:
            _set_cookie(response, request, TOKEN_COOKIE, session.token)
        return response

    return endpoint


def _sign_out(sign_in: SignIn) -> Any:
    async def endpoint(request: Request) -> Response:
        await _form_of(request)
        name = _cookie(request, SESSION_COOKIE)
        await sign_in.end(request.cookies.get(name, ""))
        response = RedirectResponse(SIGN_IN, status_code=303)
        response.delete_cookie(name, httponly=True, samesite="strict", secure=request.url.scheme == "https")
        return response

    return endpoint


def _render(
    environment: Environment, request: Request, template: str, found: dict[str, Any], *, status: int = 200
) -> Response:
    session = getattr(request.state, "session", None)
    known = request.cookies.get(_cookie(request, TOKEN_COOKIE))
    token = (known or secrets.token_urlsafe(24)) if session is None else session.token
    theme = request.cookies.get(THEME_COOKIE, "system")
    path = request.url.path
    twin = "/overview.json" if path == "/" else f"{path}.json"
    is_part = request.headers.get("hx-request") == "true" and template in PARTS
    name = PARTS[template] if is_part else template
    text = environment.get_template(f"{name}.html").render(
        found,
        screen=template,
        has_twin=template in _WITH_TWINS,
        path=path,
        address=f"{path}?{request.url.query}" if request.url.query else path,
        twin=f"{twin}?{request.url.query}" if request.url.query else twin,
        query=dict(request.query_params),
        theme=theme if theme in THEMES else "system",
        themes=THEMES,
        origin=f"{request.url.scheme}://{_bracketed(request.url.hostname or '')}",
        token=token,
        signed_in=session,
    )
    response = HTMLResponse(text, status_code=status)
    if known != token:
        _set_cookie(response, request, TOKEN_COOKIE, token)
    return response


def _bracketed(host: str) -> str:
    """A host as an address has it."""
    return f"[{host}]" if ":" in host else host


async def _choose_theme(request: Request) -> Response:
    """Keep the theme in a cookie, and go back."""
    form = await _fields_of(request)
    response = RedirectResponse(_own_path(form.get("back", "/")), status_code=303)
    if form.get("theme") in THEMES:
        response.set_cookie(THEME_COOKIE, form["theme"], max_age=365 * 24 * 3600, samesite="strict")
    return response


def _failed(environment: Environment) -> Any:
    async def handle(request: Request, error: Exception) -> Response:
        status = 500
        if isinstance(error, WrongUsage):
            status = 400
        elif isinstance(error, KafkaError):
            status = _STATUS.get(error.code, 502)
        elif isinstance(error, TimeoutError):
            status = 504
        elif isinstance(error, OSError):
            status = 503
        return _error(environment, request, template_filters.error_fields(error), status)

    return handle


def _refused(environment: Environment) -> Any:
    async def handle(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        message = "There is no such page" if error.status_code == 404 else error.detail
        return _error(environment, request, {"message": message, "code": None, "hint": None}, error.status_code)

    return handle


def _error(environment: Environment, request: Request, fields: dict[str, Any], status: int) -> Response:
    if request.url.path.endswith(".json"):
        return JSONResponse({"api_version": API_VERSION, "error": fields}, status_code=status)
    return _render(environment, request, "error", {"error": fields, "status": status}, status=status)


class _SignInRequired:
    """Lets nobody past who is not signed in, but to the page that signs in, and what it is made of."""

    def __init__(self, app: ASGIApp, sign_in: SignIn) -> None:
        self._app = app
        self._sign_in = sign_in

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] != "http" or path.startswith("/static/") or path in (SIGN_IN, "/theme", "/livez"):
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        session = await self._sign_in.find(request.cookies.get(_cookie(request, SESSION_COOKIE), ""))
        if session is not None:
            scope.setdefault("state", {})["session"] = session
            await self._app(scope, receive, send)
            return
        response: Response
        if path.endswith(".json"):
            fields = {"message": "nobody is signed in", "code": None, "hint": f"sign in at {SIGN_IN}"}
            response = JSONResponse({"api_version": API_VERSION, "error": fields}, status_code=401)
        else:
            back = f"{path}?{request.url.query}" if request.url.query else path
            response = RedirectResponse(f"{SIGN_IN}?{urlencode({'back': back})}", status_code=303)
            if request.headers.get("hx-request") == "true":  # a part of a page that is open: the whole of it goes there
                response = Response(status_code=401, headers={"hx-redirect": SIGN_IN})
        await response(scope, receive, send)


def _has_own_host(request: Request) -> bool:
    """Whether a browser may be told to speak TLS alone to this host. That counts for all of its ports: only at the port of HTTPS is the
    host the console's, elsewhere its metrics or another's page could not be reached any more; and never for the loopback's."""
    return request.url.scheme == "https" and request.url.port in (None, 443) and request.url.hostname != "localhost"


class _Headers:
    """Adds HEADERS to every answer; files of the console may be kept by the browser."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_file = scope["path"].startswith("/static/")
        has_own_host = _has_own_host(Request(scope))

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = {key: value for key, value in HEADERS.items() if not (is_file and key == "cache-control")}
                if is_file:
                    extra["cache-control"] = "max-age=3600"
                if has_own_host:
                    extra |= dict([HSTS])
                message["headers"] = [
                    *message.get("headers", []),
                    *((key.encode(), value.encode()) for key, value in extra.items()),
                ]
            await send(message)

        await self._app(scope, receive, send_with_headers)
