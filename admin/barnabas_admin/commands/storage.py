"""`barnabas storage`: a node's directories, by the offline verbs of `barnabas-server`.

May touch:  subprocesses; the directory that `init` fills.   Must not touch: a node's directories themselves.
Invariants: what the server says is passed on word for word, its exit status too.
Read next:  ../local_cluster.py, which formats its own nodes the same way.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import click

from barnabas_admin.cluster_directory import random_uuid as new_uuid
from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import errors_end_the_process, output_option
from barnabas_admin.local_node import describe_exit, server_command
from barnabas_admin.output import print_fields, print_json, print_line, talk
from barnabas_admin.samples import copy_samples
from barnabas_wire.kafka.errors import ErrorCode

SERVER_TIMEOUT_S = 60.0

config_option = click.option(
    "-c", "--config", required=True, type=click.Path(path_type=Path), help="The node's server.properties."
)


@click.command("init")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--secure", is_flag=True, help="A closed cluster on --hosts: authority, certificates, a first user, ACLs."
)
@click.option(
    "--hosts",
    metavar="HOST,…",
    help="Machines of a secured cluster: a broker on each, a controller on one, three or five.",
)
@click.option(
    "--home",
    type=click.Path(path_type=Path),
    help="Where the directory will lie on those machines; default: where it is here.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=Path("/var/lib/barnabas"),
    show_default=True,
    help="Where those machines keep their data.",
)
@output_option
def init_directory(
    directory: Path, secure: bool, hosts: str | None, home: Path | None, data: Path, output: str
) -> None:
    """Write sample configs of three controllers and three brokers, and of Prometheus with alerts.

    With --secure --hosts a,b,c: a closed cluster's properties, certificates and the files that commands and other clients log in with,
    ready to be copied to the machines; first-start.sh says what is done there once.
    """
    if secure != bool(hosts):
        raise click.UsageError(
            "--secure and --hosts belong together, as in --secure --hosts a.example,b.example,c.example"
        )
    is_json = output == "json"
    with errors_end_the_process(is_json=is_json):
        try:
            if hosts:
                from barnabas_admin.secured_files import write_secured_cluster

                written = write_secured_cluster(directory, hosts.split(","), home=home, data=data)
            else:
                written = copy_samples(directory)
        except FileExistsError as error:
            raise AdminError(f"{error} exists already; nothing was written", hint="name a new directory") from error
        except OSError as error:
            raise AdminError(
                f"cannot write {error.filename}: {error.strerror}", code=ErrorCode.KAFKA_STORAGE_ERROR
            ) from error
        if is_json:
            print_json({"files": [str(path) for path in written]})
        else:
            print_line("\n".join(str(path) for path in written))
            talk(
                "next: copy to each machine its nodes' files of config/ and pki/, and pki/ca.pem; do there what first-start.sh says. "
                "pki/ca-key.pem belongs offline"
                if hosts
                else "next: edit the addresses and log.dirs, then barnabas storage format -c FILE for each controller"
            )


@click.command("format")
@config_option
@click.option("--cluster-id", help="The cluster's id; all its nodes have the same. Default: a new one.")
@click.option("--standalone", is_flag=True, help="This controller is the only voter.")
@click.option("--initial-controllers", metavar="ID@HOST:PORT:DIRECTORY_ID,…", help="The first voters.")
@click.option(
    "--no-initial-controllers", is_flag=True, help="This controller joins a quorum that runs: an observer until added."
)
@click.option(
    "--add-scram",
    multiple=True,
    metavar="MECHANISM=[name=NAME,password=PASSWORD]",
    help="A user of the new cluster; with super.users it is closed from its first second. For each controller the same.",
)
@click.option("--ignore-formatted", is_flag=True, help="Leave directories alone that are formatted already.")
@output_option
def format_storage(
    config: Path,
    cluster_id: str | None,
    standalone: bool,
    initial_controllers: str | None,
    no_initial_controllers: bool,
    add_scram: tuple[str, ...],
    ignore_formatted: bool,
    output: str,
) -> None:
    """Write a node's identity and, for a controller, its first voters."""
    if sum((standalone, bool(initial_controllers), no_initial_controllers)) > 1:
        raise click.UsageError(
            "--standalone, --initial-controllers and --no-initial-controllers exclude each other: a controller begins a "
            "quorum alone, begins one with others, or joins one that runs"
        )
    is_json = output == "json"
    with errors_end_the_process(is_json=is_json):
        arguments = ["-c", str(config), "--cluster-id", cluster_id or str(new_uuid())]
        if standalone:
            arguments.append("--standalone")
        if initial_controllers:
            arguments += ["--initial-controllers", initial_controllers]
        if no_initial_controllers:
            arguments.append("--no-initial-controllers")
        for user in add_scram:
            arguments += ["--add-scram", user]
        if ignore_formatted:
            arguments.append("--ignore-formatted")
        said = _run_server("format", *arguments)
        if is_json:
            print_json(_identity(config) | {"said": said.splitlines()})
        else:
            print_line(said)


@click.command()
@config_option
@output_option
def info(config: Path, output: str) -> None:
    """Show what a node's directories say."""
    is_json = output == "json"
    with errors_end_the_process(is_json=is_json):
        found = _identity(config)
        if is_json:
            print_json(found)
        else:
            print_fields(found)


@click.command()
@output_option
def random_uuid(output: str) -> None:
    """Print a new id for a cluster or a directory."""
    with errors_end_the_process(is_json=output == "json"):
        said = _run_server("random-uuid")
        if output == "json":
            print_json({"uuid": said})
        else:
            print_line(said)


def _identity(config: Path) -> dict[str, Any]:
    found = json.loads(_run_server("info", "-c", str(config)))
    return {key: value for key, value in found.items() if key != "api_version"}


def _run_server(*arguments: str) -> str:
    """stdout of an offline verb; raises AdminError with what it said on stderr."""
    done = subprocess.run(
        server_command(*arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SERVER_TIMEOUT_S,
        check=False,
    )
    before, refusal, reason = done.stderr.strip().rpartition("barnabas-server: ")
    if before:
        talk(before.strip())
    if done.returncode != 0:
        ending = f"`barnabas-server {arguments[0]}` {describe_exit(done.returncode)}: {reason or done.stdout.strip()}"
        raise AdminError(reason if refusal else ending)
    if reason:
        talk(reason)
    return done.stdout.strip()
