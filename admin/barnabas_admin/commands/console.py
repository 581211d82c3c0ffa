"""`barnabas console`: the web console of one cluster, or of every profile's, in a process of its own.

May touch:  listening sockets.        Must not touch: the cluster, but by the console's clients.
Invariants: it listens on loopback unless an address is given; what is missing of its extra is said before anything is opened.
Read next:  ../console/application.py.
"""

from __future__ import annotations

import os
import re
import socket
import sqlite3
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas_admin.errors import AdminError, WrongUsage
from barnabas_admin.invocation import Invocation, common_options
from barnabas_admin.output import print_json, print_line
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.rpc.options import address_of

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette

    from barnabas_admin.console.history import History
    from barnabas_wire.run_journal import Journal

DEFAULT_PORT = 28080
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="0 takes a free one."
)
@click.option("--read-only", is_flag=True, help="Offer nothing that changes the cluster.")
@click.option("--name", "names", multiple=True, metavar="HOST", help="A name by which browsers reach it; repeatable.")
@click.option(
    "--history",
    "history_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where the last day is kept for the charts; default a file of the cluster's addresses below ~/.local/state/barnabas.",
)
@click.option(
    "--journal",
    "journal_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Step through a simulated run, written by `barnabas-server sim --out FILE`; it needs no cluster.",
)
@click.option("--no-history", is_flag=True, help="Keep nothing, and show no charts.")
@click.option(
    "--sign-in",
    "has_sign_in",
    is_flag=True,
    help="Show nothing before a user of the cluster has signed in, with that user's rights.",
)
@click.option(
    "--profiles",
    "has_profiles",
    is_flag=True,
    help="Show every cluster of `barnabas profile list`, each at a port of its own from --port on, with links between them.",
)
@click.option(
    "--certificate", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="TLS: the chain, PEM."
)
@click.option("--key", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="TLS: the private key, PEM.")
@click.option("--allow-remote", is_flag=True, help="Listen beyond loopback without sign-in, or without TLS.")
@common_options
def console(
    invocation: Invocation,
    host: str,
    port: int,
    read_only: bool,
    names: tuple[str, ...],
    history_file: Path | None,
    journal_file: Path | None,
    no_history: bool,
    has_sign_in: bool,
    has_profiles: bool,
    certificate: str | None,
    key: str | None,
    allow_remote: bool,
) -> None:
    """Show the cluster in a browser: health, quorum, topics with their records, groups, events, and why.

    It has transactions, access and charts of the last day too.

    Without --sign-in whoever reaches the page may do what this console may do: it listens on loopback, and beyond it only with
    --sign-in over TLS (--certificate, --key), or with --allow-remote.
    """
    if (certificate is None) != (key is None):
        raise WrongUsage("TLS takes both: --certificate FILE and --key FILE")
    if host not in LOOPBACK and not allow_remote and not (has_sign_in and certificate):
        what = "passwords would cross the network in plain text" if has_sign_in else "nobody signs in to the console"
        raise WrongUsage(
            f"{what}, and {host} may be reached by others",
            hint="add --sign-in with --certificate and --key, or keep it on 127.0.0.1 behind a proxy that asks who it is; "
            "--allow-remote does it all the same (best with --read-only)",
        )
    try:
        import uvicorn

        from barnabas_admin.console.application import make_application
        from barnabas_admin.console.sign_in import SignIn
    except ImportError as error:
        raise AdminError(f"the console needs more: {error}", hint="pip install 'barnabas[console]'") from None
    if has_profiles and (history_file or journal_file):
        raise WrongUsage(
            "--profiles shows several clusters: each has a history of its own, and none is a simulated run"
        )
    journal = None if journal_file is None else _read(journal_file)
    invocations = _of_profiles(invocation) if has_profiles else {"": invocation}
    listening = {name: _listen(host, port + number if port else 0) for number, name in enumerate(invocations)}
    ports = {name: each.getsockname()[1] for name, each in listening.items()} if has_profiles else {}
    servers = []
    for name, each in invocations.items():
        cluster = None
        if journal is None or has_sign_in or each.knows_cluster():
            cluster = each.console_cluster()
        if has_sign_in:
            each.console_cluster_as("", "")  # refused now, not at the first who comes
        application: Starlette = make_application(
            cluster,
            journal=journal,
            history=None if no_history or cluster is None else _history(each, history_file),
            sign_in=SignIn(each.console_cluster_as) if has_sign_in else None,
            is_read_only=read_only,
            hosts=[host, *names],
            clusters=ports,
            own_name=name,
        )
        settings = uvicorn.Config(
            application,
            log_level="warning",
            access_log=False,
            server_header=False,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        servers.append(uvicorn.Server(settings))
        address = f"{'https' if certificate else 'http'}://{address_of(*listening[name].getsockname()[:2])}"
        if invocation.is_json:
            shown = {"event": "listening", "address": address, "read_only": read_only}
            print_json(shown | ({"profile": name} if has_profiles else {}))
        else:
            of = f" of {name}" if has_profiles else ""
            print_line(f"console{of} at {address}{' (read-only)' if read_only else ''}; Ctrl-C ends it")
    _serve(servers, list(listening.values()))


def _of_profiles(invocation: Invocation) -> dict[str, Invocation]:
    """One for each profile, by name. Raises WrongUsage where there is none."""
    from barnabas_admin.known_clusters import read_profiles

    names = sorted(read_profiles().named)
    if not names:
        raise WrongUsage("there is no profile", hint="`barnabas profile create NAME --admin HOST:PORT` makes one")
    output = "json" if invocation.is_json else "text"
    return {
        name: Invocation(output=output, admin=None, brokers=None, timeout_s=invocation.timeout_s, profile=name)
        for name in names
    }


def _history(invocation: Invocation, file: Path | None) -> History:
    from barnabas_admin.console.history import History

    path = file or default_history_file(invocation.admin_addresses())
    try:
        return History(path)
    except (sqlite3.Error, OSError) as error:
        raise AdminError(
            f"{path} cannot be used as the console's history: {error}",
            hint="name another file with --history, or start with --no-history",
        ) from None


def _serve(servers: list[uvicorn.Server], listening: list[socket.socket]) -> None:
    """Serve until a signal: the first server in this thread, which signals come to, the others in threads of their own."""
    others = [
        threading.Thread(target=server.run, kwargs={"sockets": [sock]}, name="console")
        for server, sock in zip(servers[1:], listening[1:], strict=True)
    ]
    for thread in others:
        thread.start()
    try:
        servers[0].run(sockets=listening[:1])
    finally:
        for server in servers[1:]:
            server.should_exit = True
        for thread in others:
            thread.join()


def _read(path: Path) -> Journal:
    from barnabas_wire.run_journal import BYTES_MAX, NotAJournal, read_journal

    try:
        with path.open("rb") as file:
            return read_journal(file.read(BYTES_MAX + 1))
    except NotAJournal as error:
        raise WrongUsage(
            f"{path}: {error}", hint="barnabas-server sim --scenario NAME --out FILE makes a journal"
        ) from None
    except OSError as error:
        raise AdminError(f"{path}: {error.strerror}", hint="name a file that can be read") from None


def default_history_file(addresses: str) -> Path:
    """Where the history of the cluster at these addresses is kept."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return state / "barnabas" / f"console-{re.sub(r'[^A-Za-z0-9.-]+', '_', addresses)[:80]}.sqlite"


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle off only where the protocol is named: an answer's head would wait 40 ms for the client's late acknowledgement.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen()  # who reads the address below may come before the server does
    except OSError as error:
        found.close()
        raise AdminError(
            f"{host}:{port} cannot be listened on: {error.strerror}",
            code=ErrorCode.NETWORK_EXCEPTION,
            hint="name another with --port, or --port 0 for a free one",
        ) from None
    return found
