"""`barnabas debug bundle`: one archive for whoever helps.

May touch:  the cluster, to read; the files named; of a `barnabas dev` cluster its directory.   Must not touch: anything else.
Invariants: each file of the cluster's state is what the command named in the manifest prints, so that it can be asked for again.
Read next:  ../bundle.py, ../redaction.py.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import click

from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options
from barnabas_admin.output import print_json, print_line, print_table, size_text, talk
from barnabas_wire.java_properties import decode_properties, parse_properties
from barnabas_wire.kafka.errors import KafkaError

EXPLAINED_MAX = 20
"""Partitions, and brokers, that are explained."""
PACKAGES = (
    "barnabas",
    "grpcio",
    "protobuf",
    "prometheus-client",
    "fastcrc",
    "google-re2",
    "cramjam",
    "cryptography",
    "rpds-py",
)
METRICS_LISTENERS = "metrics.listeners"
COMMANDS = {
    "health": ["cluster", "health"],
    "cluster": ["cluster", "info"],
    "features": ["cluster", "features"],
    "quorum-status": ["quorum", "status"],
    "quorum-replicas": ["quorum", "replicas"],
    "quorum-verify": ["quorum", "verify"],
    "explain-leader": ["explain", "leader"],
    "brokers": ["broker", "list"],
    "logdirs": ["broker", "logdirs"],
    "topics": ["topic", "list", "--internal"],
    "reassignments": ["topic", "reassignments"],
    "groups": ["group", "list"],
    "group-lag": ["group", "lag"],
    "transactions": ["txn", "list"],
    "config-cluster": ["cluster", "config", "get"],
    "metadata-log": ["quorum", "log", "--last", "200"],
}
"""File -> command."""


@click.command()
@click.option(
    "-f", "--file", "target", type=click.Path(path_type=Path, dir_okay=False), help="Default: barnabas-TIME.zip, here."
)
@click.option(
    "--log",
    "logs",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A node's log on this host: its end; repeatable. Those of `barnabas dev` are found.",
)
@click.option(
    "-c",
    "--config",
    "configs",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A node's server.properties on this host; repeatable.",
)
@click.option(
    "--metrics", multiple=True, metavar="HOST:PORT", help="A metrics listener that brokers do not name; repeatable."
)
@common_options
def bundle(
    invocation: Invocation,
    target: Path | None,
    logs: tuple[Path, ...],
    configs: tuple[Path, ...],
    metrics: tuple[str, ...],
) -> None:
    """Collect what the nodes know, without secrets, in one archive.

    Health, quorum, explanations, configs, metrics, the ends of logs, versions; manifest.json says what each file is and what could not be
    had. Passwords, keys and tokens are replaced; names of topics, groups, users and hosts are not.
    """
    from barnabas_admin.bundle import Bundle

    path = target or Path(time.strftime("barnabas-%Y%m%d-%H%M%S.zip"))
    try:
        made = Bundle(path)
    except FileExistsError:
        raise AdminError(f"{path} exists already; nothing was written", hint="name another with --file") from None
    try:
        _collect(made, invocation, logs, configs, metrics)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    missing = [entry for entry in made.files if entry["file"] is None]
    if invocation.is_json:
        print_json({"file": str(path), "bytes": path.stat().st_size, "files": made.files})
        return
    for entry in missing:
        talk(f"not there: {entry['source']}: {entry['error']}")
    print_table(
        ["FILE", "SIZE", "FROM"],
        [[entry["file"], size_text(entry["bytes"]), entry["source"]] for entry in made.files if entry["file"]],
    )
    print_line(f"{path}: {len(made.files) - len(missing)} files, {size_text(path.stat().st_size)}")


def _collect(
    made: Any, invocation: Invocation, logs: tuple[Path, ...], configs: tuple[Path, ...], metrics: tuple[str, ...]
) -> None:
    from barnabas_admin.main import cli

    def run(words: list[str]) -> Any:
        return cli.main(words, prog_name="barnabas")

    options = invocation.same_cluster()
    found = {name: made.add_command(name, words, options, run) for name, words in COMMANDS.items()}
    health: dict[str, Any] = found["health"] or {}
    for broker in health.get("brokers_fenced", [])[:EXPLAINED_MAX]:
        made.add_command(f"explain-broker-{broker}", ["explain", "broker", str(broker)], options, run)
    for topic, partition in _suffering(invocation) if health else ():
        words = ["explain", "partition", topic, str(partition)]
        made.add_command(f"explain-partition-{topic}-{partition}", words, options, run)
    pages = dict.fromkeys(metrics, "named with --metrics")
    for broker in (found["brokers"] or {}).get("brokers", []):
        got = made.add_command(
            f"config-broker-{broker['id']}", ["broker", "config", "get", str(broker["id"])], options, run
        )
        pages |= dict.fromkeys(_metrics_of(got, broker), "of the broker's configs")
    context = invocation.local_context()
    if context is not None:
        directories = sorted(Path(context.directory).glob("node-*"))
        configs += tuple(directory / "server.properties" for directory in directories)
        logs += tuple(directory / "stderr.log" for directory in directories)
        for directory in directories:
            pages |= dict.fromkeys(_metrics_in(directory / "server.properties"), "of a local node")
    for address in pages:
        host = address.replace(":", "-")
        made.add_page(f"metrics/{host}.txt", f"http://{address}/metrics")
        made.add_page(f"metrics/{host}-readyz.txt", f"http://{address}/readyz")
    for file in configs:
        made.add_properties(f"configs/{_name_of(file)}", file)
    for file in logs:
        made.add_tail(f"logs/{_name_of(file)}", file)
    made.add_json("versions", _versions(), "this host")
    made.close({"cluster_id": (found["cluster"] or {}).get("cluster_id"), "healthy": health.get("healthy")})


def _suffering(invocation: Invocation) -> list[tuple[str, int]]:
    """Partitions without a leader, or that lack replicas; the worst topics first."""
    try:
        topics = [
            topic
            for topic in invocation.admin.list_topics(include_internal=True)
            if topic.leaderless or topic.under_replicated
        ]
        topics.sort(key=lambda topic: (-topic.leaderless, -topic.under_replicated))
        described = invocation.admin.describe_topics([topic.name for topic in topics[:EXPLAINED_MAX]]) if topics else []
    except (KafkaError, OSError):
        return []
    bad = {"leaderless", "under-replicated", "corrupt", "lost"}
    found = [
        (topic.name, part.partition)
        for topic in described
        for part in topic.partitions
        if not bad.isdisjoint(part.flags)
    ]
    return found[:EXPLAINED_MAX]


def _metrics_of(configs: dict[str, Any] | None, broker: dict[str, Any]) -> list[str]:
    from barnabas_admin.discovery import listeners_of

    host = str(broker["endpoint"]).partition(",")[0].rpartition(":")[0].strip("[]")
    values = [row["value"] or "" for row in (configs or {}).get("configs", []) if row["key"] == METRICS_LISTENERS]
    return [address for value in values for address in listeners_of(value, host)]


def _metrics_in(file: Path) -> list[str]:
    from barnabas_admin.discovery import LOOPBACKS, listeners_of

    try:
        found = {key: value for _, key, value in parse_properties(decode_properties(file.read_bytes()))}
    except (OSError, ValueError):
        return []
    values = [found[METRICS_LISTENERS]] if METRICS_LISTENERS in found else []
    return [address for value in values for address in listeners_of(value, LOOPBACKS[0])]


def _name_of(file: Path) -> str:
    """Names of files of several nodes must differ: the directory's is put before."""
    return f"{file.absolute().parent.name}-{file.name}"


def _versions() -> dict[str, Any]:
    packages: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            packages[name] = None
    return {
        "python": sys.version,
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "packages": packages,
    }
