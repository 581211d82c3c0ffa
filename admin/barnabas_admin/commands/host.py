"""`barnabas host`: the processes of this host, through the one that supervises them.

May touch:  the host.properties, the local socket that it leads to; `resize` alone the cluster.   Must not touch: processes.
Invariants: where nobody supervises that is said, and nothing is made up from what lies around; `resize` changes nothing that the
            host or the cluster would refuse, takes no broker that holds something, and continues where it was broken off.
Read next:  the broker's host/directory.py, which says where the socket is; host/supervisor.py, which answers; decommission.py,
            ../balance.py.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from barnabas_admin.balance import copied_bytes, plan_balance
from barnabas_admin.commands.balance import (
    carry_out,
    partition_sizes,
    present_and_coming,
    throttle_option,
    wait_max_option,
)
from barnabas_admin.commands.decommission import Moved, plan_leaving, take_out
from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import (
    Invocation,
    common_options,
    confirm,
    errors_end_the_process,
    output_option,
    yes_option,
)
from barnabas_admin.output import ExitCode, print_json, print_line, print_table, size_text, talk
from barnabas_admin.patience import patiently
from barnabas_admin.progress import duration_text
from barnabas_wire.java_properties import (
    decode_properties,
    is_continued,
    parse_line,
    property_line,
    read_properties_file,
)
from barnabas_wire.kafka.errors import ErrorCode

ANSWER_TIMEOUT_S = 10.0
IN_SERVICE = "in service"
REFUSED = "refused"
BROKERS = "brokers"
START_WAIT_S = 600.0
"""How long a broker may take to its service."""
POLL_PAUSE_S = 0.2


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
    """Stop a node of this host in order, until it is restarted or the host reads its properties again.

    NODE is its id, or its name as in `barnabas host status`. The command does not wait.
    """
    _wish("stop", node, config, output, "stops")


@click.command()
@click.argument("count", type=click.IntRange(min=1), metavar="N")
@config_option
@throttle_option
@wait_max_option
@yes_option
@common_options
def resize(
    invocation: Invocation, count: int, config: Path, throttle: int | None, wait_s_max: float | None, yes: bool
) -> None:
    """Make the host run N brokers: more start, and replicas move onto them; fewer give everything away first, from the last id down.

    `brokers` in the properties file becomes N. Broken off, the same command continues, or the one with another number.
    """
    planned: list[int] = _ask(config, f"plan {count}")["brokers"]
    registered = {broker.id for broker in patiently(lambda: invocation.admin.list_brokers()).brokers}
    present = _brokers(_ask(config, "status"))
    leaving = [broker for broker in present if broker not in planned]
    coming = [broker for broker in planned if broker not in present]
    if leaving and coming:
        raise AdminError(
            f"brokers {leaving} would go and {coming} come: the ids in {config} have changed too",
            hint="have them read as they are (`systemctl reload barnabas-host`), then resize",
        )
    moved = Moved(0, 0)
    if leaving:
        held = [broker for broker in leaving if broker in registered]
        moved = _shrink(invocation, leaving, held, config, throttle=throttle, wait_s_max=wait_s_max, yes=yes)
    _write_brokers(config, count)
    if leaving or coming:
        talk("the host reads its properties anew")
        found: list[int] = _ask(config, "reload")["brokers"]
        if found != planned:
            raise AdminError(
                f"{config} says brokers={count}, and the host still plans {len(found)}: its command line says otherwise",
                hint="take --override brokers=… off it, restart the host (its brokers go on), and run this again",
            )
    _wait_for_service(config, planned)
    if not leaving:
        _wait_for_registration(invocation, planned)
        moved = _spread(invocation, throttle=throttle, wait_s_max=wait_s_max)
    if invocation.is_json:
        print_json(
            {
                "brokers": planned,
                "started": coming,
                "unregistered": leaving,
                "replicas_moved": moved.replicas,
                "bytes_copied": moved.size_bytes,
            }
        )
        return
    words = [f"{len(planned)} brokers"]
    if coming:
        words.append(f"{_listed(coming)} started")
    if leaving:
        words.append(f"{_listed(leaving)} stopped and unregistered")
    print_line(f"{', '.join(words)}, {moved.replicas} replicas moved, {size_text(moved.size_bytes)} copied")
    outdated = [node["id"] for node in _ask(config, "status")["nodes"] if node["restart_needed"]]
    if outdated:
        talk(
            f"nodes {_listed(outdated)} take their new shares of memory from their next start on: barnabas cluster roll "
            f"{' '.join(map(str, outdated))} --restart-command 'barnabas host restart {{id}} -c {config}'"
        )


def _shrink(
    invocation: Invocation,
    leaving: Sequence[int],
    held: Sequence[int],
    config: Path,
    *,
    throttle: int | None,
    wait_s_max: float | None,
    yes: bool,
) -> Moved:
    """Empty, stop and unregister these brokers, of which the cluster knows `held`; nothing is done where the others cannot take what
    they hold."""
    plan, size = plan_leaving(invocation, held)
    if not yes:
        confirm(
            f"brokers {_listed(leaving)} leave the cluster: {len(plan)} partitions move ({size_text(size)})",
            typed=_listed(leaving),
            yes=yes,
        )

    def stop(broker: int) -> None:
        _ask(config, f"stop {broker}")

    moved = take_out(invocation, held, stop=stop, throttle=throttle, wait_s_max=wait_s_max)
    for broker in leaving:
        stop(broker)  # also one that had been unregistered before, and was started again since
    return moved


def _spread(invocation: Invocation, *, throttle: int | None, wait_s_max: float | None) -> Moved:
    """Even out replicas over all brokers in service, as `barnabas topic reassign balance --execute --wait` does."""
    brokers = patiently(lambda: invocation.admin.list_brokers()).brokers
    present = present_and_coming(invocation)
    sizes = partition_sizes(invocation, present)
    racks = {broker.id: broker.rack or None for broker in brokers if not broker.fenced and not broker.in_maintenance}
    hosts = {broker.id: broker.host or None for broker in brokers}
    plan = plan_balance(present, racks=racks, hosts=hosts, sizes=sizes)
    moved = Moved(
        sum(len(set(now) - set(present[name])) for name, now in plan.items()), copied_bytes(present, plan, sizes)
    )
    if plan:
        talk(f"{moved.replicas} replicas move, {size_text(moved.size_bytes)} to copy")
        carry_out(invocation, plan, moved.size_bytes, throttle=throttle, is_waiting=True, wait_s_max=wait_s_max)
    return moved


def _wait_for_service(config: Path, brokers: Sequence[int]) -> None:
    """All of them are in service; whoever supervises is being replaced meanwhile. Raises AdminError for one that is refused."""
    deadline = time.monotonic() + START_WAIT_S
    told: list[str] = []
    while True:
        try:
            nodes = {node["id"]: node for node in _ask(config, "status")["nodes"] if node["role"] == "broker"}
        except AdminError:
            if time.monotonic() > deadline:
                raise
            nodes = {}
        if list(nodes) == list(brokers):
            waiting = [node["name"] for node in nodes.values() if node["state"] != IN_SERVICE]
            for node in nodes.values():
                if node["state"] == REFUSED:
                    raise AdminError(
                        f"{node['name']} was refused: {node['reason']}",
                        hint=f"mend that, `barnabas host restart {node['id']}`, and run this again",
                    )
            if not waiting:
                return
            if waiting != told:
                told = waiting
                talk(f"waiting for {', '.join(waiting)}")
        if time.monotonic() > deadline:
            raise AdminError(
                f"the brokers are not in service after {START_WAIT_S:g} s",
                code=ErrorCode.REQUEST_TIMED_OUT,
                hint=f"`barnabas host status -c {config}` says why; then run this again",
            )
        time.sleep(POLL_PAUSE_S)


def _wait_for_registration(invocation: Invocation, brokers: Sequence[int]) -> None:
    deadline = time.monotonic() + START_WAIT_S
    while True:
        found = {
            broker.id for broker in patiently(lambda: invocation.admin.list_brokers()).brokers if not broker.fenced
        }
        if missing := [broker for broker in brokers if broker not in found]:
            if time.monotonic() > deadline:
                raise AdminError(
                    f"brokers {_listed(missing)} are in service here, and fenced or unknown in the cluster",
                    hint=f"`barnabas explain broker {missing[0]}` says why; does --admin name this host's cluster?",
                )
            time.sleep(POLL_PAUSE_S)
            continue
        return


def _write_brokers(config: Path, count: int) -> None:
    """`brokers` in the file, whose other lines stay as they are. Raises AdminError."""
    path = config.resolve()
    try:
        lines = decode_properties(path.read_bytes()).splitlines(keepends=True)
        after = with_property(lines, BROKERS, str(count))
        if after == lines:
            return
        draft = path.with_name(f"{path.name}.new")
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
            stream.writelines(after)
            stream.flush()
            os.fsync(stream.fileno())
        shutil.copystat(path, draft)
        owner = path.stat()
        os.chown(draft, owner.st_uid, owner.st_gid)
        draft.replace(path)
    except (OSError, ValueError) as error:
        raise AdminError(
            f"{config} cannot be changed: {error}",
            hint=f"write {BROKERS}={count} into it, and run this again; nothing else was left half done",
        ) from error


def with_property(lines: Sequence[str], key: str, value: str) -> list[str]:
    """The lines of a properties file with this value for a key: in its place, or at the end. Raises ValueError for one that continues over
    several lines."""
    after: list[str] = []
    is_done = was_continued = False
    for line in lines:
        text = line.strip()
        is_ours = bool(text) and text[0] not in "#!" and not was_continued and parse_line(text)[0] == key
        was_continued = bool(text) and text[0] not in "#!" and is_continued(line.rstrip("\r\n"))
        if is_ours and was_continued:
            raise ValueError(f"{key} goes on over several lines; write it in one")
        if is_ours:
            if not is_done:
                after.append(property_line(key, value))
            is_done = True
        else:
            after.append(line)
    if not is_done:
        if after and not after[-1].endswith(("\n", "\r")):
            after[-1] += "\n"
        after.append(property_line(key, value))
    return after


def _brokers(status: Mapping[str, Any]) -> list[int]:
    return [node["id"] for node in status["nodes"] if node["role"] == "broker"]


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))


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
