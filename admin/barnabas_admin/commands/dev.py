"""`barnabas dev`: a local cluster of real processes in the foreground.

May touch:  signals, the context file, LocalCluster.    Must not touch: the nodes' files.
Invariants: no node outlives the command, however it ends; a node that dies is reported and the rest continues.
Read next:  ../local_cluster.py.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from barnabas_admin.dev_console import ensure_console, running_console
from barnabas_admin.dev_control import VERBS, DevControl, ask
from barnabas_admin.errors import AdminError, LocalClusterError, WrongUsage
from barnabas_admin.forked import writes_coverage
from barnabas_admin.invocation import errors_end_the_process, output_option
from barnabas_admin.known_clusters import Context, data_home, read_context, remove_context, write_context
from barnabas_admin.local_cluster import READY_TIMEOUT_S, LocalCluster, wait_until_ready
from barnabas_admin.local_ports import DEFAULT_PORT, find_dev_port
from barnabas_admin.output import print_json, print_line, talk
from barnabas_wire.kafka.errors import ErrorCode

WATCH_PAUSE_S = 0.2
DEV_PROPERTIES = {"controller.quorum.election.timeout.ms": "500"}
"""Half of the default: nobody leads when a whole cluster starts, so every start waits for this timer once or twice."""


class _Stopped(Exception):
    """Ctrl-C or SIGTERM: the cluster shall end. Its argument is the signal's number."""


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("-n", "--nodes", type=click.IntRange(1, 10), help="Nodes, each broker and controller; default 3.")
@click.option(
    "--brokers-per-host",
    type=click.IntRange(1, 10),
    help="So many brokers say that they are on one host (broker.host), and are lost with it.",
)
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="Directory that keeps the cluster.")
@click.option(
    "--ephemeral", is_flag=True, help="Keep nothing: a temporary directory, removed at the end unless the nodes failed."
)
@click.option("--port", type=int, help=f"First Kafka port; default {DEFAULT_PORT}, or where there is room.")
@click.option(
    "--secure",
    "is_secured",
    is_flag=True,
    help="TLS, logins and ACLs on every listener but metrics, with an authority and a user of its own; prints how clients come in.",
)
@click.option("--console", "has_console", is_flag=True, help="The web console beside it; needs barnabas[console].")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A property for every node; repeatable.")
@output_option
@click.option(
    "--exec", "is_exec", is_flag=True, help="Run COMMAND against the cluster, then stop with its exit status."
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def dev(
    nodes: int | None,
    brokers_per_host: int | None,
    data: Path | None,
    ephemeral: bool,
    port: int | None,
    is_secured: bool,
    has_console: bool,
    overrides: tuple[str, ...],
    output: str,
    is_exec: bool,
    command: tuple[str, ...],
) -> None:
    """Start a local cluster of real processes; Ctrl-C stops it.

    From another terminal, `barnabas dev kill 2` breaks a node of a cluster that runs; so do stop, start, restart, pause and resume.
    They mean the newest one, or that of --data.

    Without --data or --ephemeral the cluster is kept below $XDG_DATA_HOME/barnabas/dev. A second run on the same
    directory keeps its topics and records, on another --port too. With --exec the command gets BARNABAS_ADMIN and
    BARNABAS_BROKERS; a single word is run by the shell: `--exec 'barnabas topic list | wc -l'`.
    """
    if ephemeral and data is not None:
        raise click.UsageError("--data and --ephemeral exclude each other")
    is_json = output == "json"
    if command and command[0] in VERBS and not is_exec:
        with errors_end_the_process(is_json=is_json):
            _break_a_node(data, command, is_json=is_json)
        return
    if is_exec != bool(command):
        raise click.UsageError(
            f"--exec needs a COMMAND, and a COMMAND needs --exec before it; without, there are {', '.join(VERBS)}"
        )
    with errors_end_the_process(is_json=is_json), _directory(data, is_ephemeral=ephemeral) as directory:
        properties = DEV_PROPERTIES | _parse_overrides(overrides)
        cluster = LocalCluster(
            directory,
            nodes=nodes,
            base_port=find_dev_port() if port is None else port,
            overrides=properties,
            is_secured=True if is_secured else None,
            brokers_per_host=brokers_per_host,
        )
        if overrides and (refusal := cluster.find_refusal()) is not None:
            raise click.UsageError(f"--set: {refusal}")
        if has_console:
            ensure_console()
        session = _Session(cluster, command, is_json=is_json, has_console=has_console, is_ephemeral=ephemeral)
        status = session.run()
    raise SystemExit(status)


def _break_a_node(data: Path | None, words: tuple[str, ...], *, is_json: bool) -> None:
    """`barnabas dev kill 2` and its like: ask the `dev` that runs the cluster, and wait until a started node is ready."""
    verb, *rest = words
    if len(rest) != 1 or not rest[0].isdecimal():
        raise WrongUsage(f"name one node by its number: barnabas dev {verb} 2")
    context = read_context()
    if data is None and context is None:
        raise LocalClusterError("no `barnabas dev` is known to run", "start one, or name its directory with --data")
    directory = data if data is not None else Path(context.directory if context else "")
    answer = ask(directory, verb, int(rest[0]))
    is_ready = verb not in ("start", "restart") or wait_until_ready(answer["metrics_port"], timeout_s=READY_TIMEOUT_S)
    if is_json:
        print_json({"event": VERBS[verb], "node_id": int(rest[0]), "ready": is_ready})
    else:
        print_line(f"{answer['done']}{'' if is_ready else '; it is not ready yet, see `barnabas cluster health`'}")


class _Session:
    """One run: start, announce, watch or execute, stop."""

    def __init__(
        self,
        cluster: LocalCluster,
        command: tuple[str, ...],
        *,
        is_json: bool,
        has_console: bool = False,
        is_ephemeral: bool = False,
    ) -> None:
        """is_ephemeral: what the nodes leave behind is deleted, so that they need not stop in order."""
        self._cluster = cluster
        self._is_ephemeral = is_ephemeral
        self._has_console = has_console
        self._command = command
        self._is_json = is_json
        self._control: DevControl | None = None
        self._has_died = False
        """Whether a node ended unasked: where all were stopped by `barnabas dev stop`, they may be started again."""
        self._context = Context(
            cluster_id=cluster.cluster_id,
            admin=cluster.admin_addresses,
            brokers=cluster.bootstrap_servers,
            directory=str(cluster.directory),
            pid=os.getpid(),
            client_config=str(cluster.security.client_file) if cluster.security is not None else "",
        )

    def run(self) -> int:
        """The exit status of the session."""
        started = time.monotonic()
        if not self._is_json:
            count = len(self._cluster.nodes)
            talk(f"starting {count} node{'s' if count > 1 else ''} in {self._cluster.directory}")
        with _signals_stop():
            try:
                self._start()
                self._control = DevControl(self._cluster)
                seconds = time.monotonic() - started
                with self._written_context(), self._console() as console:
                    self._announce(seconds, console)
                    return self._execute() if self._command else self._watch()
            except _Stopped as stopped:
                return 0 if not self._command else 128 + int(stopped.args[0])
            finally:
                with _signals_ignored():
                    if self._control is not None:
                        self._control.close()
                    self._stop()

    def _start(self) -> None:
        try:
            self._cluster.start()
        except OSError as error:
            hint = "name a directory that you may write with --data, or keep nothing with --ephemeral"
            where = f"{error.filename or self._cluster.directory}: {error.strerror}"
            raise AdminError(where, code=ErrorCode.KAFKA_STORAGE_ERROR, hint=hint) from error

    def _announce(self, seconds: float, console: str | None) -> None:
        cluster = self._cluster
        if self._is_json and not self._command:
            print_json(
                {
                    "event": "ready",
                    "cluster_id": cluster.cluster_id,
                    "ready_seconds": round(seconds, 3),
                    "brokers": cluster.bootstrap_servers,
                    "admin": cluster.admin_addresses,
                    "metrics": cluster.metrics_urls,
                    "console": console,
                    "directory": str(cluster.directory),
                    "prometheus_config": str(cluster.prometheus_file),
                    "client_config": self._context.client_config,
                    "nodes": [
                        {
                            "id": node.id,
                            "pid": node.process.pid if node.process else None,
                            "kafka_port": node.kafka_port,
                            "controller_port": node.controller_port,
                            "admin_port": node.admin_port,
                            "metrics_port": node.metrics_port,
                            "config": str(node.properties_file),
                            "log": str(node.stderr_file),
                        }
                        for node in cluster.nodes.values()
                    ],
                }
            )
            sys.stdout.flush()
            return
        # With --exec, stdout belongs to the command.
        write = talk if self._command else print_line
        count = len(cluster.nodes)
        write(
            f"cluster  {cluster.cluster_id}  KRaft  {count} node{'s' if count > 1 else ''} (broker+controller)"
            f"  ready in {seconds:.1f} s"
        )
        write(f"kafka    {cluster.bootstrap_servers}")
        write(f"admin    {cluster.admin_addresses}")
        write(f"metrics  {' '.join(cluster.metrics_urls)}")
        if console is not None:
            write(f"console  {console}")
        write(f"data     {cluster.directory}")
        write(f"scrape   prometheus --config.file={cluster.prometheus_file}")
        if cluster.security is None:
            write("secured  no: plain text on loopback, open to everybody on this host; `barnabas dev --secure` is not")
        else:
            write(f"secured  TLS, logins and ACLs; barnabas commands use {cluster.security.client_file}")
            for kind, lines in cluster.security.client_settings().items():
                write(f"{kind}")
                for line in lines:
                    write(f"         {line}")
        if not self._command:
            write(
                "try      barnabas topic create hello -p 3 && echo hi | barnabas topic produce hello"
                " && barnabas topic consume hello -n 1"
            )
            write("break    barnabas dev kill 1; barnabas dev start 1")
            write("stop     Ctrl-C")
            sys.stdout.flush()

    def _watch(self) -> int:
        while True:
            self._look_around()
            if not any(node.is_running for node in self._cluster.nodes.values()) and self._has_died:
                raise LocalClusterError(
                    "no node is left",
                    f"their logs are below {self._cluster.directory}; start again with "
                    f"`barnabas dev --data {self._cluster.directory}`",
                )
            time.sleep(WATCH_PAUSE_S)

    def _execute(self) -> int:
        environment = os.environ | {
            "BARNABAS_ADMIN": self._cluster.admin_addresses,
            "BARNABAS_BROKERS": self._cluster.bootstrap_servers,
        }
        if self._cluster.security is not None:
            environment["BARNABAS_CLIENT_CONFIG"] = str(self._cluster.security.client_file)
        words = list(self._command)
        arguments: list[str] = ["/bin/sh", "-c", words[0]] if len(words) == 1 else words
        try:
            process = subprocess.Popen(arguments, env=environment)
        except OSError as error:
            talk(f"cannot run {shlex.join(words)}: {error.strerror}")
            return 127
        try:
            while True:
                try:
                    code = process.wait(WATCH_PAUSE_S)
                except subprocess.TimeoutExpired:
                    self._look_around()
                    continue
                self._report_deaths()
                return code if code >= 0 else 128 - code
        except _Stopped:
            for pid in _descendants(process.pid):  # of a shell, which would end without what it runs
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(WATCH_PAUSE_S * 10)
            if process.poll() is None:
                process.kill()
                process.wait()
            raise

    def _look_around(self) -> None:
        self._report_deaths()
        for done in self._control.serve_waiting() if self._control is not None else ():
            if not self._is_json:
                talk(f"{done}, as another terminal asked")
        if read_context() is None:
            # A later `dev` took it with it: commands without an address are meant for this one again.
            with contextlib.suppress(OSError):
                write_context(self._context)

    def _report_deaths(self) -> None:
        for death in self._cluster.find_deaths():
            self._has_died = True
            if self._is_json and not self._command:
                print_json(
                    {
                        "event": "node_died",
                        "node_id": death.node_id,
                        "status": death.status,
                        "last_words": death.last_words,
                    }
                )
                sys.stdout.flush()
                continue
            talk(f"node {death.node_id} {death.status}; it last said:")
            talk("\n".join(f"  | {line}" for line in death.last_words.splitlines()))
            others = "; the other nodes go on" if any(node.is_running for node in self._cluster.nodes.values()) else ""
            talk(f"  its whole output: {self._cluster.nodes[death.node_id].stderr_file}{others}")

    def _stop(self) -> None:
        if not any(node.process for node in self._cluster.nodes.values()):
            return
        started = time.monotonic()
        killed = self._cluster.stop(is_clean=not self._is_ephemeral or writes_coverage())
        if not self._is_json:
            for node_id in killed:
                talk(f"node {node_id} did not stop in time and was killed")
            talk(f"stopped in {time.monotonic() - started:.1f} s")

    def _console(self) -> contextlib.AbstractContextManager[str | None]:
        if not self._has_console:
            return contextlib.nullcontext()
        return running_console(
            admin=self._context.admin,
            brokers=self._context.brokers,
            client_config=self._context.client_config,
            directory=self._cluster.directory,
        )

    @contextlib.contextmanager
    def _written_context(self) -> Iterator[None]:
        try:
            write_context(self._context)
        except OSError as error:
            talk(f"later commands will need --admin {self._context.admin}: {error}")
        try:
            yield
        finally:
            remove_context(self._context)


def _descendants(pid: int) -> Iterator[int]:
    """Processes that a process started, and those that they did. In its process group they stay: it has the terminal."""
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            for child in map(int, children.read_text().split()):
                yield from _descendants(child)
                yield child


@contextlib.contextmanager
def _directory(data: Path | None, *, is_ephemeral: bool) -> Iterator[Path]:
    if not is_ephemeral:
        yield data if data is not None else data_home() / "dev"
        return
    directory = Path(tempfile.mkdtemp(prefix="barnabas-dev-"))
    is_kept = False
    try:
        yield directory
    except LocalClusterError:
        is_kept = any(directory.glob("node-*/stderr.log"))  # the error names them
        raise
    finally:
        if not is_kept:
            shutil.rmtree(directory, ignore_errors=True)


def _parse_overrides(overrides: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in overrides:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise click.UsageError(f"--set {text}: write KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


@contextlib.contextmanager
def _signals_stop() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP raise _Stopped in the main thread."""

    def on_signal(number: int, frame: Any) -> None:
        raise _Stopped(number)

    with _handlers(on_signal):
        yield


@contextlib.contextmanager
def _signals_ignored() -> Iterator[None]:
    """While nodes are stopped, a second Ctrl-C must not leave them behind: stop() has its own bound."""
    with _handlers(signal.SIG_IGN):
        yield


@contextlib.contextmanager
def _handlers(handler: Any) -> Iterator[None]:
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # under nohup it stays ignored
        numbers.append(signal.SIGHUP)
    before = [signal.signal(number, handler) for number in numbers]
    try:
        yield
    finally:
        for number, old in zip(numbers, before, strict=True):
            signal.signal(number, old)
