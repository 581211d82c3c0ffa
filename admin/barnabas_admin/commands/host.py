"""`barnabas host`: the processes of this host, through the one that supervises them.

May touch:  the host.properties, the local socket that it leads to.   Must not touch: the cluster, processes.
Invariants: where nobody supervises that is said, and nothing is made up from what lies around.
Read next:  the broker's host/directory.py, which says where the socket is; host/supervisor.py, which answers.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import errors_end_the_process, output_option
from barnabas_admin.output import ExitCode, print_json, print_line, print_table, size_text
from barnabas_admin.progress import duration_text
from barnabas_wire.java_properties import read_properties_file
from barnabas_wire.kafka.errors import ErrorCode

ANSWER_TIMEOUT_S = 10.0
IN_SERVICE = "in service"


config_option = click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    default=Path("/etc/barnabas/host.properties"),
    show_default=True,
    help="The host.properties that the host was started with.",
)


@click.command()
@config_option
@output_option
def status(config: Path, output: str) -> None:
    """Show each node of this host: its state, why it was started again; exit status 10 when not all are in service.

    MEMORY is what a node adds: its own pages, and its part of those that it shares with its siblings.
    """
    is_json = output == "json"
    with errors_end_the_process(is_json=is_json):
        found = _ask(config, "status")
        if is_json:
            print_json(found)
        else:
            print_line(
                f"barnabas {found['version']}, pid {found['pid']}, {found['directory']}, nodes start by {found['starts_by']}"
            )
            columns = ["NODE", "STATE", "FOR", "PID", "MEMORY", "STARTS", "LISTENERS", "NOTE"]
            print_table(columns, [_row(node) for node in found["nodes"]])
        if any(node["state"] != IN_SERVICE for node in found["nodes"]):
            raise SystemExit(ExitCode.UNHEALTHY)


@click.command()
@click.argument("node")
@config_option
@output_option
def restart(node: str, config: Path, output: str) -> None:
    """Stop a node of this host in order and start it again, or start one that waits, was refused or was stopped.

    NODE is its id, or its name as in `barnabas host status`. The command does not wait.
    """
    _wish("restart", node, config, output, "restarts")


@click.command()
@click.argument("node")
@config_option
@output_option
def stop(node: str, config: Path, output: str) -> None:
    """Stop a node of this host in order, until it is restarted or the host reads its properties anew.

    NODE is its id, or its name as in `barnabas host status`. The command does not wait.
    """
    _wish("stop", node, config, output, "stops")


def _wish(verb: str, node: str, config: Path, output: str, done: str) -> None:
    with errors_end_the_process(is_json=output == "json"):
        found = _ask(config, f"{verb} {node}")
        if output == "json":
            print_json(found)
        else:
            print_line(f"{found['node']} {done}")


def _row(node: Mapping[str, Any]) -> list[Any]:
    notes = [node["said"], node["reason"] and f"before: {node['reason']}"]
    if node["next_start_ms"] is not None:
        notes.append(f"starts in {duration_text(node['next_start_ms'] / 1000)}")
    if node["restart_needed"]:
        notes.append("its properties have changed since it started")
    return [
        node["name"],
        node["state"],
        duration_text(node["for_ms"] / 1000),
        node["pid"],
        size_text(node["memory_bytes"]),
        f"{node['starts']}{' (adopted)' if node['adopted'] else ''}",
        node["listeners"],
        "; ".join(filter(None, notes)),
    ]


def _directory(config: Path) -> Path:
    """host.directory, by the rule of the server. Raises AdminError."""
    try:
        properties = read_properties_file(config)
    except ValueError as error:
        raise AdminError(str(error), hint="name it with -c, or ask as the user that the host runs as") from error
    first = properties.get("log.dirs", "").split(",")[0].strip()
    named = properties.get("host.directory", "").strip() or (first and str(Path(first) / "host"))
    if not named:
        raise AdminError(f"{config} has neither log.dirs nor host.directory: it is no host.properties")
    return Path(named).absolute()


def _ask(config: Path, words: str) -> dict[str, Any]:
    path = _directory(config) / "status"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
            asked.settimeout(ANSWER_TIMEOUT_S)
            asked.connect(str(path))
            asked.sendall(words.encode())
            said = b""
            while part := asked.recv(65536):
                said += part
        found: dict[str, Any] = json.loads(said)
    except (OSError, ValueError) as error:
        raise AdminError(
            f"nobody who supervises this host answers at {path} ({error}); its nodes may run all the same",
            code=ErrorCode.BROKER_NOT_AVAILABLE,
            hint=f"`barnabas-server host -c {config}` adopts those that run, and starts the others",
        ) from error
    if "error" in found:
        raise AdminError(found["error"], hint=f"`barnabas host status -c {config}` shows the nodes")
    return found
