"""What every command shares: its common options, where the cluster is, and how its errors end.

May touch:  environment, the context file; clients are opened on first use.   Must not touch: printing of results.
Invariants: option beats environment beats profile beats context; importing this module loads neither gRPC nor rich.
Read next:  main.py, the command tree.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import math
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from barnabas_admin.errors import AdminError, NoAdminListener, WrongUsage
from barnabas_admin.output import ExitCode, exit_code_of_error, print_error, talk
from barnabas_wire.kafka.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas_admin.client import AdminClient
    from barnabas_admin.console.cluster import ConsoleCluster
    from barnabas_admin.known_clusters import Context
    from barnabas_wire.client.properties import AdminSecurity
    from barnabas_wire.client.security import ClientSecurity
    from barnabas_wire.kafka.schema import Message

DEFAULT_TIMEOUT_S = 10.0


class Invocation:
    """One run of one command: its output form, its time limit (seconds) and its way to the cluster."""

    def __init__(
        self,
        *,
        output: str,
        admin: str | None,
        brokers: str | None,
        timeout_s: float,
        client_config: str | None = None,
        profile: str | None = None,
    ) -> None:
        self.is_json = output == "json"
        self.timeout_s = timeout_s
        if profile or not (admin or brokers):
            from barnabas_admin.known_clusters import Profile, find_profile

            found = find_profile(profile) or Profile()
            if not (admin or brokers):
                # one address of the line means another cluster than the profile's: none of its addresses is taken then
                admin, brokers = found.admin, found.brokers
            client_config = client_config or found.client_config
        self._admin = admin
        self._brokers = brokers
        self._client_config = client_config
        self._client: AdminClient | None = None

    @property
    def admin(self) -> AdminClient:
        """The admin client, opened on first use. Where -b names brokers without admin listeners, it asks those what Kafka has.

        Raises AdminError when no address is known.
        """
        if self._client is None:
            from barnabas_admin.client import AdminClient

            addresses, absent = "", None
            try:
                addresses = self.admin_addresses()
            except NoAdminListener as error:
                absent = error
            self._client = AdminClient(
                addresses,
                timeout_s=self.timeout_s,
                security=self.admin_security(),
                ask_brokers=self._ask_brokers if self._brokers else None,
                absent=absent,
            )
        return self._client

    def _ask_brokers(self, request: Message) -> Any:
        """Have one of the brokers that are named answer a Kafka request. Raises KafkaError, OSError."""
        from barnabas_admin.discovery import ask_one_broker

        assert self._brokers is not None, "it is there where brokers are named"
        return ask_one_broker(self._brokers, self.client_security(), request, timeout_s=self.timeout_s)

    def every_admin(self, *, timeout_s_max: float = math.inf) -> dict[str, AdminClient]:
        """A client of each node whose admin address is known, by address: for what must be asked of every node itself. The
        caller closes them."""
        from barnabas_admin.client import AdminClient, parse_addresses

        timeout_s = min(self.timeout_s, timeout_s_max)
        security = self.admin_security()
        return {
            address: AdminClient(address, timeout_s=timeout_s, security=security)
            for address in parse_addresses(self.admin_addresses())
        }

    def console_cluster(self) -> ConsoleCluster:
        """The cluster as the web console asks it. Raises AdminError when no address is known."""
        from barnabas_admin.client import AdminClient
        from barnabas_admin.console.cluster import ConsoleCluster

        addresses, admin_security = self.admin_addresses(), self.admin_security()
        return ConsoleCluster(
            lambda: AdminClient(addresses, timeout_s=self.timeout_s, security=admin_security),
            brokers=self._brokers,
            security=self.client_security(),
            timeout_s=self.timeout_s,
        )

    def console_cluster_as(self, user: str, password: str) -> ConsoleCluster:
        """The cluster in the name of one of its users, over the TLS and by the mechanism of --client-config.

        Raises WrongUsage where those listeners know no login.
        """
        from dataclasses import replace

        from barnabas_admin.client import AdminClient
        from barnabas_admin.console.cluster import ConsoleCluster
        from barnabas_wire.client.security import SaslLogin

        addresses, admin_security, security = self.admin_addresses(), self.admin_security(), self.client_security()
        if admin_security is None or security.login is None:
            raise WrongUsage(
                "nobody can sign in: the listeners of this cluster ask for no login",
                hint="--client-config names how a user comes in: security.protocol, sasl.mechanism and the like",
            )
        login = SaslLogin(security.login.mechanism, user, password)
        as_user = replace(admin_security, own=None, login=login)
        return ConsoleCluster(
            lambda: AdminClient(addresses, timeout_s=self.timeout_s, security=as_user),
            brokers=self._brokers,
            security=replace(security, login=login),
            timeout_s=self.timeout_s,
        )

    def bootstrap_servers(self) -> str:
        """host:port,… of the Kafka listeners: as given, else as the admin service reports them."""
        if self._brokers:
            return self._brokers
        return self.admin.kafka_addresses()

    def client_security(self) -> ClientSecurity:
        """How the Kafka listeners let us in: by --client-config. Raises WrongUsage."""
        from barnabas_wire.client.properties import client_security

        with self._client_properties() as properties:
            return client_security(properties)

    def admin_security(self) -> AdminSecurity | None:
        """How the admin listeners let us in: by --client-config; None: they are plain text. Raises WrongUsage."""
        from barnabas_wire.client.properties import admin_security

        with self._client_properties() as properties:
            return admin_security(properties)

    @contextlib.contextmanager
    def _client_properties(self) -> Iterator[Mapping[str, str]]:
        """Those of --client-config, else of the context. A ValueError in the block is wrong usage."""
        from barnabas_admin.known_clusters import read_context
        from barnabas_wire.client.properties import read_client_properties

        file = self._client_config
        if not file and (context := read_context()) is not None and self._is_of(context):
            file = context.client_config
        try:
            yield read_client_properties(file) if file else {}
        except ValueError as error:
            raise WrongUsage(str(error), hint="--client-config takes Kafka's client properties") from None

    def local_context(self) -> Context | None:
        """The `barnabas dev` cluster of this host, where this run means it."""
        from barnabas_admin.known_clusters import read_context

        context = read_context()
        return context if context is not None and self._is_of(context) else None

    def same_cluster(self) -> list[str]:
        """Options that make another command mean the cluster of this one."""
        given = {"--admin": self._admin, "-b": self._brokers, "--client-config": self._client_config}
        words = [word for option, value in given.items() if value for word in (option, value)]
        return [*words, "--timeout", f"{self.timeout_s:g}"]

    def _is_of(self, context: Context) -> bool:
        """Whether this run means the context's cluster: its credentials go to nobody else."""
        return all(
            named is None or set(named.split(",")) <= set(known.split(","))
            for named, known in ((self._admin, context.admin), (self._brokers, context.brokers))
        )

    def close(self) -> None:
        """Close what was opened."""
        if self._client is not None:
            self._client.close()

    def knows_cluster(self) -> bool:
        """Whether an address is given, or a context is there."""
        from barnabas_admin.known_clusters import read_context

        return bool(self._admin or self._brokers) or read_context() is not None

    def admin_addresses(self) -> str:
        """host:port,… of the admin listeners: as given, found from the brokers, or of the context. Raises WrongUsage without any."""
        if self._admin:
            return self._admin
        from barnabas_admin.known_clusters import read_context

        context = read_context()
        if self._brokers and (context is None or not set(self._brokers.split(",")) <= set(context.brokers.split(","))):
            # Taken from the context, the answer, or the deletion, would be another cluster's.
            self._admin = self._found_admin_addresses(self._brokers)
            return self._admin
        if context is not None:
            return context.admin
        raise WrongUsage(
            "no cluster is known: start one with `barnabas dev`",
            hint="or name the admin listeners of one that runs, with --admin HOST:PORT or BARNABAS_ADMIN",
        )

    def _found_admin_addresses(self, brokers: str) -> str:
        """The admin listeners of the cluster that these Kafka listeners belong to, as its brokers report. Raises AdminError where no
        Kafka listener is there, and NoAdminListener."""
        from barnabas_admin.discovery import find_admin_listeners
        from barnabas_admin.unanswered import refuse_other_listeners, unreachable

        reason = "and its brokers name none"
        security = self.client_security()
        try:
            found = find_admin_listeners(brokers, security, timeout_s=self.timeout_s)
        except (ConnectionRefusedError, socket.gaierror) as error:
            raise unreachable(error, brokers) from error
        except (KafkaError, OSError, ValueError) as error:
            if not isinstance(error, ValueError):
                refuse_other_listeners(brokers, error, is_tls=security.tls is not None)
            found, reason = [], f"and none was found: {error}"
        if not found:
            raise NoAdminListener(
                f"this command asks the admin listeners, and -b names Kafka listeners ({brokers}), {reason}",
                hint="name the admin listeners of that cluster with --admin HOST:PORT or BARNABAS_ADMIN",
            )
        return ",".join(found)


output_option = click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to print; default text."
)


def common_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command -o, --admin, -b, --client-config, --profile and --timeout, and pass it an Invocation as `invocation`."""

    @output_option
    @click.option("--admin", envvar="BARNABAS_ADMIN", metavar="HOST:PORT,…", help="gRPC admin listeners.")
    @click.option("-b", "--brokers", envvar="BARNABAS_BROKERS", metavar="HOST:PORT,…", help="Kafka listeners.")
    @click.option(
        "--client-config",
        envvar="BARNABAS_CLIENT_CONFIG",
        metavar="FILE",
        help="Kafka client properties: TLS and the login for Kafka listeners that demand them.",
    )
    @click.option("--profile", envvar="BARNABAS_PROFILE", metavar="NAME", help="A cluster of `barnabas profile list`.")
    @click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0, min_open=True),
        default=DEFAULT_TIMEOUT_S,
        metavar="SECONDS",
        help="Time limit of each request; default 10.",
    )
    @functools.wraps(function)
    def wrapper(
        *args: Any,
        output: str,
        admin: str | None,
        brokers: str | None,
        timeout_s: float,
        client_config: str | None,
        profile: str | None,
        **options: Any,
    ) -> Any:
        with errors_end_the_process(is_json=output == "json"):
            invocation = Invocation(
                output=output,
                admin=admin,
                brokers=brokers,
                timeout_s=timeout_s,
                client_config=client_config,
                profile=profile,
            )
            try:
                return function(*args, invocation=invocation, **options)
            finally:
                invocation.close()

    return wrapper


yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


def confirm(what: str, *, typed: str, yes: bool) -> None:
    """The one way in which a command is sure that what cannot be undone is meant.

    Args: `what` will happen, as a sentence without its full stop; `typed` is what must be typed at a terminal (the name of what
    goes); `yes` is --yes, with which nobody is asked. Where standard input is no terminal nobody can be asked: that is wrong
    usage (status 2), with a line that names --yes. Commands that only plan unless they are asked to act (`quorum recover`,
    `topic reassign plan`, --dry) ask nothing: what they print is their work, and they end with 0.

    Raises UsageError, and AdminError when something else was typed.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{what}: add --yes to do it (there is no terminal to ask at)")
    talk(f"{what}.")
    if click.prompt(f"Type {typed} to go on", err=True, default="", show_default=False) != typed:
        raise AdminError(f"nothing was done: {typed!r} was not typed")


@contextlib.contextmanager
def errors_end_the_process(*, is_json: bool) -> Iterator[None]:
    """Turn the errors that a command may raise into a message on stderr and an exit code."""
    try:
        yield
    except KafkaError as error:
        failure = error
    except BrokenPipeError:
        # The reader of our output has gone (`… | head`): nothing more to say, and no error of ours. Whatever is still
        # buffered goes to /dev/null, or the interpreter would complain at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise SystemExit(ExitCode.OK) from None
    except TimeoutError as error:
        failure = AdminError(str(error) or "timed out", code=ErrorCode.REQUEST_TIMED_OUT, hint=_HEALTH_HINT)
    except OSError as error:
        if error.filename is not None or error.errno in _DISK_ERRNOS:
            where = f"{error.filename}: " if error.filename is not None else ""
            failure = AdminError(f"{where}{error.strerror}", code=ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            from barnabas_admin.unanswered import BROKERS_HINT

            failure = AdminError(str(error), code=ErrorCode.NETWORK_EXCEPTION, hint=BROKERS_HINT)
    else:
        return
    print_error(failure, is_json=is_json)
    raise SystemExit(int(exit_code_of_error(failure)))


_DISK_ERRNOS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EROFS))
"""A write that fails names no file."""
_HEALTH_HINT = "see `barnabas cluster health`"
