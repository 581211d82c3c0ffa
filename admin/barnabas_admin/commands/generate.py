"""`barnabas generate`: files for the systems that run, scrape and draw a cluster.

May touch:  the directory that is named; `barnabas-server`, for what keys there are.   Must not touch: the cluster.
Invariants: nothing is overwritten; without a directory the text goes to standard output, so that it can be piped.
Read next:  ../generating/.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import click

from barnabas import __version__
from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options, errors_end_the_process, output_option
from barnabas_admin.output import print_json, print_line, talk

METADATA_TIMEOUT_S_MAX = 2.0
"""How long one node is waited for: one that hangs must not hide the rest."""
COMMENTS = (".yml", ".yaml", ".once", ".sh", ".env", ".service", ".properties", "Dockerfile")
directory_option = click.option(
    "-d",
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the files here; default: print them.",
)


@click.command()
@click.option("--namespace", default="default", show_default=True)
@click.option(
    "--image", default=f"barnabas:{__version__}", show_default=True, help="Built from the Dockerfile of compose."
)
@click.option("--controllers", type=click.IntRange(1, 9), default=3, show_default=True)
@click.option("--brokers", type=click.IntRange(1, 100), default=3, show_default=True)
@click.option("--storage", default="100Gi", show_default=True, help="Of each broker's volume.")
@click.option(
    "--external",
    type=click.Choice(["nodeport", "loadbalancer"]),
    help="A way in from outside for each broker: a port of every machine, 31000 and the broker's id, or a load balancer, port 9094.",
)
@click.option(
    "--external-host",
    metavar="HOST",
    help="Where clients outside reach a broker, {id} stands for its id; default with nodeport: the address of the pod's machine.",
)
@click.option("--console", "has_console", is_flag=True, help="The web console, reached by `kubectl port-forward`.")
@click.option("--monitor", "is_monitored", is_flag=True, help="A PodMonitor, for the Prometheus operator.")
@click.option(
    "--tls",
    "tls_secret",
    metavar="SECRET",
    help="Close the cluster: TLS on every listener by the files of this Secret, logins, ACLs; with a script that makes it.",
)
@directory_option
@output_option
def k8s(
    namespace: str,
    image: str,
    controllers: int,
    brokers: int,
    storage: str,
    external: str | None,
    external_host: str | None,
    has_console: bool,
    is_monitored: bool,
    tls_secret: str | None,
    directory: Path | None,
    output: str,
) -> None:
    """Manifests for Kubernetes: StatefulSets, services, probes, disruption budgets, a network policy."""
    from barnabas_admin.cluster_directory import random_uuid
    from barnabas_admin.generating.kubernetes import LOAD_BALANCER, Wanted, kubernetes_files

    if external_host and not external:
        raise click.UsageError("--external-host belongs to --external")
    if external == LOAD_BALANCER and "{id}" not in (external_host or ""):
        raise click.UsageError(
            "each broker's load balancer has an address of its own: name it, as in --external-host 'broker-{id}.example.com'"
        )
    if tls_secret and external and not external_host:
        raise click.UsageError("with --tls a broker's certificate names where it is reached: give --external-host")
    wanted = Wanted(
        namespace=namespace,
        image=image,
        controllers=controllers,
        brokers=brokers,
        storage=storage,
        external=external or "",
        external_host=external_host or "",
        has_console=has_console,
        is_monitored=is_monitored,
        tls_secret=tls_secret or "",
    )
    with errors_end_the_process(is_json=output == "json"):
        directory_ids = [str(random_uuid()) for _ in range(controllers)]
        _give(kubernetes_files(wanted, cluster_id=str(random_uuid()), directory_ids=directory_ids), directory, output)


@click.command()
@click.option(
    "-n", "--nodes", type=click.IntRange(1, 9), default=3, show_default=True, help="Broker and controller each."
)
@click.option(
    "--brokers-per-host",
    type=click.IntRange(1, 16),
    help="Each is a host instead (`barnabas-server host`), with so many brokers and a controller.",
)
@directory_option
@output_option
def compose(nodes: int, brokers_per_host: int | None, directory: Path | None, output: str) -> None:
    """A compose file with Dockerfile: nodes, Prometheus, Grafana and the console."""
    from barnabas_admin.cluster_directory import random_uuid
    from barnabas_admin.generating.compose import compose_files

    with errors_end_the_process(is_json=output == "json"):
        files = compose_files(
            nodes=nodes,
            cluster_id=str(random_uuid()),
            directory_ids=[str(random_uuid()) for _ in range(nodes)],
            alerts=_sample("alerts.yml"),
            brokers_per_host=brokers_per_host,
        )
        _give(files, directory, output)


@click.command()
@click.option("--server", default="/opt/barnabas/bin/barnabas-server", show_default=True, help="Where it is installed.")
@click.option("--config-directory", default="/etc/barnabas", show_default=True)
@click.option("--user", default="barnabas", show_default=True)
@directory_option
@output_option
def systemd(server: str, config_directory: str, user: str, directory: Path | None, output: str) -> None:
    """Hardened units for systemd: one node of a host, several, or a broker for each core."""
    from barnabas_admin.generating.templates import filled_in

    units = {
        "barnabas.service": ("node", "server", ""),
        "barnabas@.service": ("node %i", "%i", ""),
        "barnabas-host.service": ("host", "host", "host "),
    }
    with errors_end_the_process(is_json=output == "json"):
        facts = {"server": PurePosixPath(server), "user": user}
        files = {
            name: filled_in(
                "barnabas.service",
                facts
                | {"what": what, "config": PurePosixPath(config_directory) / f"{file}.properties", "verb": verb}
                | {"is_host": bool(verb), "is_node": not verb},
            )
            for name, (what, file, verb) in units.items()
        }
        _give(files, directory, output)


@click.command()
@directory_option
@output_option
def grafana(directory: Path | None, output: str) -> None:
    """Grafana dashboards: overview, brokers, quorum, groups."""
    from barnabas_admin.generating.grafana import dashboard_files

    with errors_end_the_process(is_json=output == "json"):
        _give(dashboard_files(), directory, output)


@click.command()
@directory_option
@output_option
def alerts(directory: Path | None, output: str) -> None:
    """Alerting rules of Prometheus; each names the command to type next."""
    with errors_end_the_process(is_json=output == "json"):
        _give({"alerts.yml": _sample("alerts.yml")}, directory, output)


@click.command("recording-rules")
@click.argument("names", type=click.Choice(["strimzi", "kafka_exporter"]))
@directory_option
@output_option
def recording_rules(names: str, directory: Path | None, output: str) -> None:
    """Recording rules of Prometheus: metrics under the names that published dashboards ask for."""
    from barnabas_admin.generating.templates import template

    with errors_end_the_process(is_json=output == "json"):
        _give({f"{names}.yml": template(f"{names}.yml")}, directory, output)


@click.command()
@click.argument("targets", nargs=-1, metavar="[ID=HOST:PORT…]")
@click.option(
    "--cluster", metavar="NAME", help="Label of every target, by which dashboards choose; default: the cluster's id."
)
@directory_option
@common_options
def prometheus(invocation: Invocation, targets: tuple[str, ...], cluster: str | None, directory: Path | None) -> None:
    """The configuration of a Prometheus that scrapes the cluster's nodes.

    Targets are metrics listeners by node id; without any they are those that the cluster's nodes report. A node that is down or reports
    none is named: as a target where the others' port is the same, else in a line that says what to add.
    """
    from barnabas_admin.prometheus import prometheus_config

    found: dict[int, str] = {}
    notes: dict[int, str] = {}
    for target in targets:
        node_id, _, address = target.partition("=")
        if not node_id.isdigit() or not address.rpartition(":")[2].isdigit():
            raise click.UsageError(f"{target}: write ID=HOST:PORT, such as 1=broker-1:9464")
        found[int(node_id)] = address
    if not found:
        found, notes, cluster_id = _reported_targets(invocation)
        cluster = cluster or cluster_id
    files = {"prometheus.yml": prometheus_config(found, cluster=cluster or "", notes=notes)}
    if directory is not None:
        files["alerts.yml"] = _sample("alerts.yml")
    _give(files, directory, "json" if invocation.is_json else "text")


@click.command()
@output_option
@directory_option
def config(directory: Path | None, output: str) -> None:
    """A server.properties with every key, its meaning and its default, all commented out."""
    from barnabas_admin.local_node import server_command

    with errors_end_the_process(is_json=output == "json"):
        done = subprocess.run(
            server_command("config-docs", "-o", "json"),
            capture_output=True,
            text=True,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        lines = ["# Every key of a Barnabas node. What is commented out has this value by itself.", ""]
        for key in json.loads(done.stdout)["keys"]:
            default = "" if key["default"] == "(required)" else key["default"]
            note = " Required." if key["default"] == "(required)" else ""
            lines += [f"# {key['doc']}{note} ({key['type']})", f"#{key['name']}={default}", ""]
        _give({"server.properties": "\n".join(lines)}, directory, output)


def _reported_targets(invocation: Invocation) -> tuple[dict[int, str], dict[int, str], str]:
    """Metrics listeners by node id, what must be known of some, the cluster's id. Every registered node is in one of the first two."""
    from barnabas_admin.commands.config import _describe
    from barnabas_admin.commands.debug import METRICS_LISTENERS
    from barnabas_admin.discovery import listeners_of
    from barnabas_wire.rpc.options import address_of

    cluster = invocation.admin.describe_cluster()
    hosts: dict[int, str] = {each.id: each.listeners[0].host for each in cluster.controllers if each.listeners}
    hosts |= {each.id: each.listeners[0].host for each in cluster.brokers if each.listeners}
    roles = {each.id: "controller" for each in cluster.controllers} | {each.id: "broker" for each in cluster.brokers}
    fenced = {broker.id for broker in cluster.brokers if broker.fenced}
    said = dict.fromkeys(hosts, "")
    serving = [str(broker.id) for broker in cluster.brokers if not broker.fenced]
    for broker, rows in _describe(invocation, serving).items():
        said[int(broker)] = next((row["value"] or "" for row in rows if row["key"] == METRICS_LISTENERS), "")
    said |= _said_by_admin_listeners(invocation, METRICS_LISTENERS)
    found = {
        node_id: addresses[0]
        for node_id, value in said.items()
        if node_id in hosts and (addresses := listeners_of(value, hosts[node_id]))
    }
    if not found:
        raise AdminError(
            "no node reports a metrics listener that is reached from here",
            hint="name the targets: barnabas generate prometheus 1=HOST:PORT 2=HOST:PORT",
        )
    ports = {address.rpartition(":")[2] for address in found.values()}
    notes: dict[int, str] = {}
    for node_id in sorted(hosts.keys() - found.keys()):
        state = "is down" if node_id in fenced else "did not say where its metrics are"
        notes[node_id] = f"{roles[node_id]} {node_id} on {hosts[node_id]} {state}"
        if len(ports) == 1 and not said[node_id]:
            found[node_id] = address_of(hosts[node_id], int(next(iter(ports))))
            notes[node_id] += ": this is the port of the others"
        else:
            notes[node_id] += (
                f": add it, as {node_id}=HOST:PORT"
                if not said[node_id]
                else f": {said[node_id]} is not reached from here"
            )
        talk(notes[node_id])
    return dict(sorted(found.items())), notes, cluster.cluster_id


def _said_by_admin_listeners(invocation: Invocation, key: str) -> dict[int, str]:
    """A property of each node whose admin listener is known, which controllers say at theirs alone."""
    from barnabas_wire.rpc import admin_pb2

    found = {}
    for client in invocation.every_admin(timeout_s_max=METADATA_TIMEOUT_S_MAX).values():
        try:
            node_id = client.describe_cluster().answered_by
            entries = client.describe_configs(admin_pb2.RESOURCE_TYPE_BROKER, str(node_id))
            found[node_id] = next((entry.value for entry in entries if entry.key == key), "")
        except AdminError:
            continue
        finally:
            client.close()
    return found


def _sample(name: str) -> str:
    from importlib.resources import files

    return (files("barnabas_admin.samples") / "prometheus" / name).read_text(encoding="utf-8")


def _give(files: Mapping[str, str], directory: Path | None, output: str) -> None:
    """Write the files, or print them. Raises AdminError, before anything is written, for one that exists."""
    if directory is not None:
        existing = [name for name in files if (directory / name).exists()]
        if existing:
            raise AdminError(
                f"{directory / existing[0]} exists already; nothing was written", hint="name a new directory"
            )
        for name, text in files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if output == "json":
        print_json(
            {"files": dict(files)} if directory is None else {"files": [str(directory / name) for name in files]}
        )
    elif directory is not None:
        print_line("\n".join(str(directory / name) for name in files))
    else:
        for name, text in files.items():
            if len(files) > 1:
                print_line(f"{'# ' if name.endswith(COMMENTS) else '// '}---- {name}")
            print_line(text.rstrip("\n"))
