"""`barnabas broker config`, `cluster config`, `group config`, `cluster client-metrics`, `broker log-level`: read and changed.

May touch:  the brokers (DescribeConfigs, IncrementalAlterConfigs).   Must not touch: files of nodes.
Invariants: a broker's configs come from that broker itself, its file included; a change is all keys or none; values that are
            secret are never shown.
Read next:  topic.py, which has a topic's.

The commands are made of one shape: of a broker (its id comes first), of all brokers (the defaults in the metadata), of a group (its
name comes first; it need not exist yet), of a subscription of client metrics (likewise).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from barnabas_admin.commands.topic import dry_option, parse_pairs
from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options
from barnabas_admin.output import print_json, print_line, print_table
from barnabas_wire.kafka.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas_wire.client.cluster import ClusterClient

BROKER = 4
BROKER_LOGGER = 8
CLIENT_METRICS = 16
GROUP = 32
NAMED = {CLIENT_METRICS: "subscription", GROUP: "group"}
"""Resources that any broker knows, as they are called here."""
SET, DELETE = 0, 1
SOURCES = {
    1: "topic",
    2: "broker",
    3: "cluster",
    4: "file",
    5: "default",
    6: "logger",
    7: "subscription",
    8: "group",
}
"""Kafka's numbers of where a value comes from: the dynamic configs of a broker and of all, its properties, the built-in default."""
CLUSTER = ""
"""The resource name of all brokers."""


@click.group("config")
def broker_config() -> None:
    """A broker's configs: get, set, unset, diff."""


@click.group("config")
def cluster_config() -> None:
    """The configs of all brokers: get, set, unset, diff."""


@click.group("config")
def group_config() -> None:
    """The configs of a consumer group (KIP-848): get, set, unset."""


id_argument = click.argument("broker_id", type=click.IntRange(min=0), metavar="ID")


@broker_config.command("get")
@id_argument
@click.argument("keys", nargs=-1, metavar="[KEY…]")
@click.option("--overrides", is_flag=True, help="Leave out what is a default.")
@common_options
def get_broker_config(invocation: Invocation, broker_id: int, keys: tuple[str, ...], overrides: bool) -> None:
    """Show a broker's configs and where each value comes from."""
    rows = _select(_describe(invocation, [str(broker_id)])[str(broker_id)], keys, overrides=overrides)
    _print_configs(invocation, {"broker": broker_id}, rows)


@broker_config.command("set")
@id_argument
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE…")
@dry_option
@common_options
def set_broker_config(invocation: Invocation, broker_id: int, pairs: tuple[str, ...], dry: bool) -> None:
    """Set configs of one broker while it runs."""
    _change(invocation, str(broker_id), dict(parse_pairs(pairs)), dry=dry)


@broker_config.command("unset")
@id_argument
@click.argument("keys", nargs=-1, required=True, metavar="KEY…")
@dry_option
@common_options
def unset_broker_config(invocation: Invocation, broker_id: int, keys: tuple[str, ...], dry: bool) -> None:
    """Take configs of one broker back: those of all brokers, its file or the default hold again."""
    _change(invocation, str(broker_id), dict.fromkeys(keys), dry=dry)


@broker_config.command("diff")
@id_argument
@click.argument("other_id", type=click.IntRange(min=0), metavar="ID")
@common_options
def diff_broker_configs(invocation: Invocation, broker_id: int, other_id: int) -> None:
    """Show the configs in which two brokers differ. Exit status 1 when they do."""
    found = _describe(invocation, [str(broker_id), str(other_id)])
    _print_differences(invocation, {str(b): _values(found[str(b)]) for b in (broker_id, other_id)})


@cluster_config.command("get")
@click.argument("keys", nargs=-1, metavar="[KEY…]")
@common_options
def get_cluster_config(invocation: Invocation, keys: tuple[str, ...]) -> None:
    """Show the configs that are set for all brokers."""
    rows = _select(_describe(invocation, [CLUSTER])[CLUSTER], keys, overrides=False)
    _print_configs(invocation, {}, rows)


@cluster_config.command("set")
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE…")
@dry_option
@common_options
def set_cluster_config(invocation: Invocation, pairs: tuple[str, ...], dry: bool) -> None:
    """Set configs of all brokers while they run."""
    _change(invocation, CLUSTER, dict(parse_pairs(pairs)), dry=dry)


@cluster_config.command("unset")
@click.argument("keys", nargs=-1, required=True, metavar="KEY…")
@dry_option
@common_options
def unset_cluster_config(invocation: Invocation, keys: tuple[str, ...], dry: bool) -> None:
    """Take configs of all brokers back: each broker's file or the default holds again."""
    _change(invocation, CLUSTER, dict.fromkeys(keys), dry=dry)


@cluster_config.command("diff")
@common_options
def diff_cluster_config(invocation: Invocation) -> None:
    """Show the configs in which brokers differ from each other, ids, addresses and directories aside. Exit status 1 when they do."""
    in_service = [str(broker.id) for broker in invocation.admin.list_brokers().brokers if not broker.fenced]
    found = _describe(invocation, in_service)
    _print_differences(invocation, {broker: _values(rows) for broker, rows in found.items()})


group_argument = click.argument("group", metavar="GROUP")


@group_config.command("get")
@group_argument
@click.argument("keys", nargs=-1, metavar="[KEY…]")
@click.option("--overrides", is_flag=True, help="Leave out what is a default.")
@common_options
def get_group_config(invocation: Invocation, group: str, keys: tuple[str, ...], overrides: bool) -> None:
    """Show a group's configs and where each value comes from."""
    rows = _select(_describe(invocation, [group], resource_type=GROUP)[group], keys, overrides=overrides)
    _print_configs(invocation, {"group": group}, rows)


@group_config.command("set")
@group_argument
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE…")
@dry_option
@common_options
def set_group_config(invocation: Invocation, group: str, pairs: tuple[str, ...], dry: bool) -> None:
    """Set configs of one group, such as consumer.session.timeout.ms; they hold from its members' next heartbeats on."""
    _change(invocation, group, dict(parse_pairs(pairs)), resource_type=GROUP, dry=dry)


@group_config.command("unset")
@group_argument
@click.argument("keys", nargs=-1, required=True, metavar="KEY…")
@dry_option
@common_options
def unset_group_config(invocation: Invocation, group: str, keys: tuple[str, ...], dry: bool) -> None:
    """Take configs of one group back: those of the brokers hold again."""
    _change(invocation, group, dict.fromkeys(keys), resource_type=GROUP, dry=dry)


@click.group("client-metrics")
def client_metrics() -> None:
    """Which of their metrics clients push (KIP-714): list, get, set, delete."""


subscription_argument = click.argument("subscription", metavar="NAME")


@client_metrics.command("list")
@common_options
def list_client_metrics(invocation: Invocation) -> None:
    """List the subscriptions."""
    from barnabas_admin.kafka import check, run_with_cluster
    from barnabas_wire.kafka.messages.list_config_resources import ListConfigResourcesRequest

    request = ListConfigResourcesRequest(resource_types=[CLIENT_METRICS])
    answer = run_with_cluster(invocation, lambda client: client.call(request))
    check(answer)
    names = [found.resource_name for found in answer.config_resources]
    if invocation.is_json:
        print_json({"subscriptions": names})
    else:
        print_table(["SUBSCRIPTION"], [[name] for name in names])


@client_metrics.command("get")
@subscription_argument
@common_options
def get_client_metrics(invocation: Invocation, subscription: str) -> None:
    """Show which metrics a subscription asks for, how often and of which clients."""
    rows = _select(
        _describe(invocation, [subscription], resource_type=CLIENT_METRICS)[subscription], (), overrides=False
    )
    _print_configs(invocation, {"subscription": subscription}, rows)


@client_metrics.command("set")
@subscription_argument
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE…")
@dry_option
@common_options
def set_client_metrics(invocation: Invocation, subscription: str, pairs: tuple[str, ...], dry: bool) -> None:
    """Make or change a subscription: metrics=PREFIX,… (or *), interval.ms=MS, match=SELECTOR=REGEX,….

    Clients push where a broker has telemetry.receiver=true.
    """
    _change(invocation, subscription, dict(parse_pairs(pairs)), resource_type=CLIENT_METRICS, dry=dry)


@client_metrics.command("delete")
@subscription_argument
@dry_option
@common_options
def delete_client_metrics(invocation: Invocation, subscription: str, dry: bool) -> None:
    """Delete a subscription: clients push for it no more."""
    rows = _describe(invocation, [subscription], resource_type=CLIENT_METRICS)[subscription]
    _change(
        invocation,
        subscription,
        {row["key"]: None for row in rows if row["source"] != "default"},
        resource_type=CLIENT_METRICS,
        dry=dry,
    )


@click.command("log-level")
@id_argument
@click.argument("changes", nargs=-1, metavar="[LOGGER=LEVEL]…")
@click.option("--all", "shows_all", is_flag=True, help="Show every logger, not only those that differ from root.")
@common_options
def log_level(invocation: Invocation, broker_id: int, changes: tuple[str, ...], shows_all: bool) -> None:
    """Show or change the log levels of a broker while it runs, until it stops.

    LEVEL is FATAL, ERROR, WARN, INFO, DEBUG or TRACE; an empty one (LOGGER=) takes a logger's own level back. LOGGER is `root` or
    a name from --all, such as barnabas_replication.
    """
    wanted = {name: level.upper() or None for name, level in parse_pairs(changes).items()}
    if wanted:
        _change(invocation, str(broker_id), wanted, resource_type=BROKER_LOGGER)
        return
    rows = _describe(invocation, [str(broker_id)], resource_type=BROKER_LOGGER)[str(broker_id)]
    root = next((row["value"] for row in rows if row["key"] == "root"), None)
    shown = [row for row in rows if shows_all or row["key"] == "root" or row["value"] != root]
    if invocation.is_json:
        print_json({"broker": broker_id, "loggers": [{"logger": r["key"], "level": r["value"]} for r in shown]})
    else:
        print_table(["LOGGER", "LEVEL"], [[row["key"], row["value"]] for row in shown])


_OWN_KEYS = (
    "node.id",
    "broker.id",
    "listeners",
    "advertised.listeners",
    "log.dirs",
    "log.dir",
    "metadata.log.dir",
    "broker.rack",
)
"""Every broker has its own."""


def _values(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        row["key"]: row["value"]
        for row in rows
        if row["key"] not in _OWN_KEYS and not row["key"].endswith(".listeners") and not row["sensitive"]
    }


def _describe(
    invocation: Invocation, names: Sequence[str], *, resource_type: int = BROKER
) -> dict[str, list[dict[str, Any]]]:
    """Config rows of resources, each asked of its own broker."""
    from barnabas_admin.kafka import check, run_with_cluster
    from barnabas_wire.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

    async def work(client: ClusterClient) -> dict[str, list[dict[str, Any]]]:
        await client.metadata([])
        found = {}
        for name in names:
            request = DescribeConfigsRequest(
                resources=[DescribeConfigsResource(resource_type, name, None)], include_documentation=True
            )
            answer = await client.call(request, broker_id=_asked(resource_type, name))
            (result,) = answer.results
            check(result)
            found[name] = [
                {
                    "key": entry.name,
                    "value": None if entry.is_sensitive else entry.value,
                    "source": SOURCES.get(entry.config_source, "unknown"),
                    "read_only": entry.read_only,
                    "sensitive": entry.is_sensitive,
                    "doc": entry.documentation,
                }
                for entry in result.configs
            ]
        return found

    if resource_type not in NAMED:
        _check_registered(invocation, names)
    return run_with_cluster(invocation, work)


def _asked(resource_type: int, name: str) -> int | None:
    """The broker that knows: a broker itself, any for the rest."""
    return int(name) if name and resource_type not in NAMED else None


def _check_registered(invocation: Invocation, names: Sequence[str]) -> None:
    """Raises AdminError for a broker that is not there; a Kafka client would look for it until its time is over."""
    brokers = {str(broker.id): broker for broker in invocation.admin.list_brokers().brokers}
    for name in names:
        if name and name not in brokers:
            raise AdminError(
                f"broker {name} is not registered",
                code=ErrorCode.BROKER_ID_NOT_REGISTERED,
                hint="`barnabas broker list` shows the brokers",
            )
        if name and brokers[name].fenced:
            raise AdminError(
                f"broker {name} is out of service, and only it knows its configs",
                code=ErrorCode.BROKER_NOT_AVAILABLE,
                hint=f"`barnabas explain broker {name}` says why",
            )


def _change(
    invocation: Invocation,
    name: str,
    changes: Mapping[str, str | None],
    *,
    resource_type: int = BROKER,
    dry: bool = False,
) -> None:
    from barnabas_admin.kafka import check, run_with_cluster
    from barnabas_wire.kafka.messages.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )

    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type,
                name,
                [AlterableConfig(key, DELETE if value is None else SET, value) for key, value in changes.items()],
            )
        ],
        validate_only=dry,
    )

    async def work(client: ClusterClient) -> Any:
        await client.metadata([])
        return await client.call(request, broker_id=_asked(resource_type, name))

    if resource_type not in NAMED:
        _check_registered(invocation, [name])
    for result in run_with_cluster(invocation, work).responses:
        check(result)
    subject: dict[str, Any]
    if resource_type in NAMED:
        subject, where = {NAMED[resource_type]: name}, f"{NAMED[resource_type]} {name}"
    else:
        subject, where = {"broker": int(name) if name else None}, f"broker {name}" if name else "all brokers"
    if invocation.is_json:
        print_json({**subject, "changes": dict(changes), "dry": dry})
        return
    would = "would " if dry else ""
    for key, value in changes.items():
        print_line(f"{where}: {would}unset {key}" if value is None else f"{where}: {would}set {key}={value}")


def _select(rows: list[dict[str, Any]], keys: tuple[str, ...], *, overrides: bool) -> list[dict[str, Any]]:
    import difflib

    known = [row["key"] for row in rows]
    for key in keys:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            raise KafkaError.of(
                ErrorCode.RESOURCE_NOT_FOUND, f"there is no {key} here{f'; did you mean {close[0]}?' if close else ''}"
            )
    return [
        row
        for row in sorted(rows, key=lambda row: row["key"])
        if (not keys or row["key"] in keys) and not (overrides and row["source"] == "default")
    ]


def _print_configs(invocation: Invocation, fields: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    if invocation.is_json:
        print_json(fields | {"configs": rows})
        return
    if not rows:
        print_line("nothing is set")
        return
    cells = [
        [
            row["key"],
            "(secret)" if row["sensitive"] else row["value"],
            row["source"],
            "restart" if row["read_only"] else "at run time",
        ]
        for row in rows
    ]
    print_table(["KEY", "VALUE", "SOURCE", "CHANGED"], cells)


def _print_differences(invocation: Invocation, values: Mapping[str, Mapping[str, Any]]) -> None:
    keys = sorted(set().union(*values.values()))
    rows: list[dict[str, Any]] = [
        {"key": key, "values": {broker: found.get(key) for broker, found in values.items()}}
        for key in keys
        if len({found.get(key) for found in values.values()}) > 1
    ]
    if invocation.is_json:
        print_json({"differences": rows})
    elif rows:
        print_table(
            ["KEY", *(f"BROKER_{broker}" for broker in values)], [[r["key"], *r["values"].values()] for r in rows]
        )
    else:
        print_line("no difference")
    if rows:
        raise SystemExit(1)
