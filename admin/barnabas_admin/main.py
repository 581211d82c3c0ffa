"""Console script `barnabas`: the command tree, loaded lazily.

May touch:  arguments.                Must not touch: anything a command needs (gRPC, rich, wire) before it is called.
Invariants: `--help` of any level imports no module of a command it does not show, so it answers in under 300 ms.
Read next:  invocation.py, then commands/<noun>.py.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Any

import click
from click.exceptions import NoSuchCommand

COMPLETION_VARIABLE = "_BARNABAS_COMPLETE"
"""Set by the shell's script while it asks for words."""
Entry = tuple[str, str]
"""(module:attribute of the click command, its line in the help)."""

_NOUNS: dict[str, tuple[str, dict[str, Entry]]] = {
    "storage": (
        "Format a node's directories, and show what they hold.",
        {
            "format": ("storage:format_storage", "Write a node's identity and, for a controller, its first voters."),
            "info": ("storage:info", "Show what a node's directories say."),
            "init": (
                "storage:init_directory",
                "Write sample configs of three controllers and three brokers, and of Prometheus with alerts.",
            ),
            "random-uuid": ("storage:random_uuid", "Print a new id for a cluster or a directory."),
        },
    ),
    "cluster": (
        "The whole cluster: what it is, and whether it is well.",
        {
            "info": ("cluster:info", "Show the cluster's id, controller, brokers and size."),
            "health": (
                "cluster:health",
                "Say whether the cluster is well, and why not; exit status 10 when it is not.",
            ),
            "config": ("config:cluster_config", "The configs of all brokers: get, set, unset, diff."),
            "client-metrics": (
                "config:client_metrics",
                "Which of their metrics clients push (KIP-714): list, get, set, delete.",
            ),
            "roll": (
                "roll:roll",
                "Restart the nodes one at a time, each only while the cluster is healthy, the active controller last.",
            ),
            "features": (
                "features:features",
                "Show feature levels, what all nodes support, and which node blocks a level.",
            ),
            "unregister-controller": (
                "features:unregister_controller",
                "Forget a controller that is gone for good, so that feature levels wait for it no more.",
            ),
        },
    ),
    "quorum": (
        "The controllers' metadata quorum.",
        {
            "status": ("quorum:status", "Show leader, epoch, high watermark and lag of the quorum."),
            "replicas": ("quorum:replicas", "List voters and observers with their log end and lag."),
            "add-voter": ("quorum:add_voter", "Let a controller vote."),
            "replace-voter": (
                "quorum:replace_voter",
                "Replace a voter whose disk or host is gone by one that runs and has caught up.",
            ),
            "remove-voter": ("quorum:remove_voter", "Take a controller's vote."),
            "verify": ("verify:verify", "Have every node compare its metadata with the active controller's."),
            "quarantine": (
                "quarantine:quarantine",
                "Look at committed records that cannot be replayed, and sign them off.",
            ),
            "log": ("metadata_log:log", "Print the committed records of the metadata log."),
            "diff": ("metadata_log:diff", "Show what changed in the metadata between two offsets."),
            "recover": ("recover:recover", "Begin the quorum again from a survivor when a majority is lost for good."),
            "rejoin": (
                "recover:rejoin",
                "Set aside the metadata log of a voter that the quorum was recovered without.",
            ),
        },
    ),
    "broker": (
        "The brokers.",
        {
            "list": ("broker:list_brokers", "List the brokers with state, address and load."),
            "logdirs": (
                "broker:logdirs",
                "Show the brokers' log directories: how full their disks are, and what the replicas in them take.",
            ),
            "config": ("config:broker_config", "A broker's configs: get, set, unset, diff."),
            "log-level": (
                "config:log_level",
                "Show or change the log levels of a broker while it runs, until it stops.",
            ),
            "drain": (
                "broker:drain",
                "Put a broker, or all of a host, into maintenance: it hands its leaderships over and stays in sync",
            ),
            "undrain": (
                "broker:undrain",
                "End the maintenance of a broker, or of all of a host: it may lead again, and gets its leaderships back.",
            ),
            "decommission": (
                "decommission:decommission",
                "Take a broker out for good: move everything off it, stop it, unregister it.",
            ),
            "unregister": ("broker:unregister", "Forget a broker that will not come back."),
        },
    ),
    "topic": (
        "Topics, and the records in them.",
        {
            "create": ("topic:create", "Create topics."),
            "list": ("topic:list_topics", "List the topics."),
            "describe": ("topic:describe", "Show a topic's partitions, replicas, offsets and overrides."),
            "alter": ("topic:alter", "Set or remove config overrides of a topic."),
            "config": ("topic:config", "Show a topic's configs and where each value comes from."),
            "add-partitions": ("topic:add_partitions", "Add partitions to a topic."),
            "delete": ("topic:delete", "Delete topics and all their records."),
            "reassign": ("reassign:reassign", "Move partitions between brokers while they are served."),
            "reassignments": ("reassign:reassignments", "Show which partitions are moving."),
            "elect": ("reassign:elect", "Elect leaders: preferred ones, or, if you choose, any live replica."),
            "trim": (
                "trim:trim",
                "Delete the records of partitions before a place: an offset, a moment, or all that is there.",
            ),
            "export": (
                "backup:export",
                "Save topics to a directory: records, configs, and where groups are; also while they are written to.",
            ),
            "import": (
                "backup:import_topics",
                "Restore topics from a directory that export wrote, into this cluster or another.",
            ),
            "produce": ("records:produce", "Write a record for every line of standard input, or of a file."),
            "consume": ("consume:consume", "Print the records of a topic."),
        },
    ),
    "txn": (
        "Transactions.",
        {
            "list": ("txn:list_transactions", "List the transactional ids with their state and coordinator."),
            "describe": ("txn:describe", "Show a transactional id's producer, and the partitions of its transaction."),
            "find-hanging": (
                "txn:find_hanging",
                "Find transactions that are open in a partition and that no coordinator will end.",
            ),
            "abort": (
                "txn:abort",
                "End an open transaction: all of a transactional id's, or a hanging one in one partition.",
            ),
        },
    ),
    "group": (
        "Consumer groups.",
        {
            "list": ("group:list_groups", "List the groups with their state and coordinator."),
            "describe": ("group:describe", "Show a group's members, committed offsets and lag."),
            "lag": ("group_offsets:lag", "Show how far groups are behind: those named, else all."),
            "seek": (
                "group_offsets:seek",
                "Move a group's offsets: to a place, a moment, by a shift, as a file says, or where another group is.",
            ),
            "skip": (
                "group_skip:skip",
                "Get a group past a batch that nobody can read: the one at its committed offset.",
            ),
            "config": ("config:group_config", "The configs of a consumer group (KIP-848): get, set, unset."),
            "delete": ("group_offsets:delete", "Delete groups with their committed offsets."),
            "delete-offsets": ("group_offsets:delete_offsets", "Forget where a group has read to in topics."),
        },
    ),
}
_NOUNS |= {
    "log": (
        "Log files, offline.",
        {
            "dump": (
                "log:dump",
                "Print what stands in log files: batches, records, indexes, snapshots, checkpoints; a directory means all that is in it.",
            ),
            "verify": (
                "log:verify",
                "Check every batch in log directories (log.dirs), or in partition directories, on this host.",
            ),
            "repair": ("log:repair", "Say how the damage in log directories on this host will be repaired."),
            "strays": (
                "log:strays",
                "List logs that brokers on this host have set aside, and replicas that lost records.",
            ),
            "adopt": ("log:adopt", "Put a log that was set aside back into its place (its broker is stopped)."),
            "delete-stray": ("log:delete_stray", "Remove a log that was set aside, for good."),
        },
    ),
    "acl": (
        "Access control lists: who may do what; they count where authorizer.class.name is set.",
        {
            "list": ("acl:list_acls", "List the ACLs, or those that the options mean."),
            "create": ("acl:create", "Create ACLs: each principal with each operation."),
            "delete": ("acl:delete", "Delete the ACLs that the options mean."),
        },
    ),
    "user": (
        "SCRAM credentials of users, with which they log in to listeners with SASL.",
        {
            "list": ("user:list_users", "List the users that have SCRAM credentials."),
            "create": (
                "user:create",
                "Give a user a credential, or replace it; the password is read from standard input.",
            ),
            "delete": ("user:delete", "Take a credential from a user."),
        },
    ),
    "pki": (
        "A certificate authority of the cluster's own.",
        {
            "init": ("pki:init", "Make the authority: its certificate and its private key, which belongs offline."),
            "issue": ("pki:issue", "Make a private key and its certificate, in one file."),
            "renew": (
                "pki:renew",
                "Replace a key and its certificate, for the same hosts; a broker that runs takes the new one by itself.",
            ),
            "show": ("pki:show", "List the certificates of a directory: whose, for which hosts, until when."),
        },
    ),
    "quota": (
        "Client quotas: bytes, request time, changes, connections of an address.",
        {
            "list": ("quota:list_quotas", "List the quotas of users, client ids and addresses."),
            "set": ("quota:set_quota", "Set quotas of one entity; KEY= without a value removes."),
        },
    ),
}
_NOUNS |= {
    "explain": (
        "Why something is as it is: causes from the metadata log, and what to type next.",
        {
            "leader": ("explain:leader", "Say who leads the controller quorum, or why it has no leader."),
            "broker": ("explain:broker", "Say why a broker is fenced, leaving or unknown, and what brought it there."),
            "partition": (
                "explain:partition",
                "Say why a partition lacks a leader or in-sync replicas, what readers of committed data wait for, what is not compacted.",
            ),
            "reassignment": (
                "explain:reassignment",
                "Say what a reassignment waits for, or why the controller refuses one.",
            ),
            "topic": ("explain:topic", "Say what the clients of a topic say of themselves: latency, retries, lag."),
            "group": (
                "explain:group",
                "Say why a consumer group is not stable, who has not given up what, whose heartbeats are late, and what happens next.",
            ),
        },
    ),
}
_NOUNS |= {
    "perf": (
        "Load on a topic, and what it costs.",
        {
            "produce": ("perf:produce", "Write records to a topic and show rate and times."),
            "consume": ("perf:consume", "Read a topic from its start to where its end was, and show rate and times."),
        },
    ),
    "host": (
        "A host that runs a broker for each core (`barnabas-server host`), from the host itself.",
        {
            "status": (
                "host:status",
                "Show each node of this host: its state, why it was started again; exit status 10 when not all are in service.",
            ),
            "restart": (
                "host:restart",
                "Stop a node of this host in order and start it again, or start one that waits, was refused or was stopped.",
            ),
            "resize": (
                "host:resize",
                "Make the host run N brokers: more start, and replicas move onto them; fewer give everything away first",
            ),
            "stop": (
                "host:stop",
                "Stop a node of this host in order, until it is restarted or the host reads its properties again.",
            ),
        },
    ),
    "generate": (
        "Files for the systems that run, scrape and draw a cluster.",
        {
            "k8s": (
                "generate:k8s",
                "Manifests for Kubernetes: StatefulSets, services, probes, disruption budgets, a network policy.",
            ),
            "compose": (
                "generate:compose",
                "A compose file with Dockerfile: nodes, Prometheus, Grafana and the console.",
            ),
            "systemd": (
                "generate:systemd",
                "Hardened units for systemd: one node of a host, several, or a broker for each core.",
            ),
            "grafana": ("generate:grafana", "Grafana dashboards: overview, brokers, quorum, groups."),
            "alerts": ("generate:alerts", "Alerting rules of Prometheus; each names the command to type next."),
            "recording-rules": (
                "generate:recording_rules",
                "Recording rules of Prometheus: metrics under the names that published dashboards ask for.",
            ),
            "prometheus": (
                "generate:prometheus",
                "The configuration of a Prometheus that scrapes the cluster's nodes.",
            ),
            "config": (
                "generate:config",
                "A server.properties with every key, its meaning and its default, all commented out.",
            ),
        },
    ),
    "debug": (
        "What somebody who helps wants to see.",
        {
            "bundle": ("debug:bundle", "Collect what the nodes know, without secrets, in one archive."),
        },
    ),
    "profile": (
        "Clusters by name.",
        {
            "list": ("profile:list_profiles", "List the profiles; `*` marks the one that is used."),
            "create": ("profile:create", "Make a profile, and use it when it is the first."),
            "use": ("profile:use", "Use a profile where a command names no cluster; `-` for none."),
            "delete": ("profile:delete", "Delete a profile."),
        },
    ),
}
_VERBS: dict[str, Entry] = {
    "dev": ("dev:dev", "Start a local cluster of real processes; Ctrl-C stops it."),
    "console": (
        "console:console",
        "Show the cluster in a browser: health, quorum, topics with their records, groups, events, and why.",
    ),
    "top": ("top:top", "Watch brokers, in-sync replicas, moves, busy topics and group lag, live."),
    "doctor": ("doctor:doctor", "Say what is wrong between a client here and the cluster, and what to type."),
    "completion": ("completion:completion", "Print the completion script of a shell."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called; their help lines are known beforehand."""

    def __init__(self, *args: Any, entries: Mapping[str, Entry] | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.entries = dict(entries or {})

    def list_commands(self, context: click.Context) -> list[str]:
        """Names in the order of the tree."""
        return [*self.entries, *super().list_commands(context)]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import the command that is called."""
        entry = self.entries.get(name)
        if entry is None:
            return super().get_command(context, name)
        module, _, attribute = entry[0].partition(":")
        command = getattr(importlib.import_module(f"barnabas_admin.commands.{module}"), attribute)
        assert isinstance(command, click.Command), f"{entry[0]} is not a command"
        if COMPLETION_VARIABLE in os.environ:
            _complete_names(command)
        return command

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """click's, which looks for the command that was meant among imported ones only."""
        try:
            return super().resolve_command(context, arguments)
        except NoSuchCommand as error:
            raise NoSuchCommand(error.command_name, possibilities=self.list_commands(context), ctx=context) from None

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """The help's list of commands, from what the tree says, without importing them."""
        rows = [(name, line) for name, (_, line) in self.entries.items()]
        rows += [(name, command.get_short_help_str(100)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _complete_names(command: click.Command) -> None:
    """Let a shell complete the topics and groups of the cluster where an argument names some."""
    from barnabas_admin.commands.completion import complete_groups, complete_topics

    for parameter in command.params:
        names = parameter.metavar or ""
        if isinstance(parameter, click.Argument) and names.strip("[]….") in ("TOPIC", "GROUP"):
            parameter._custom_shell_complete = complete_topics if "TOPIC" in names else complete_groups


class _Root(LazyGroup):
    """The whole tree, where wrong usage ends: as JSON for who asked for JSON. Kafka's scripts are called by name and not listed."""

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """LazyGroup's, and Kafka's scripts with their flags."""
        if name.startswith("kafka-"):
            from barnabas_admin.apache_flags import SCRIPTS
            from barnabas_admin.commands.apache import script

            name = name.removesuffix(".sh")
            return script(name) if name in SCRIPTS else None
        return super().get_command(context, name)

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        """click's; the form is found in the words themselves, for click reads no option of a line that it refuses."""
        words = list(sys.argv[1:] if args is None else args)
        if not _asks_for_json(words):
            return super().main(words, *rest, **options)
        try:
            status = super().main(words, *rest, **options | {"standalone_mode": False})
        except (click.ClickException, click.Abort) as error:
            from barnabas_admin.errors import AdminError
            from barnabas_admin.output import print_error

            context = getattr(error, "ctx", None)
            hint = "" if context is None else f"`{context.command_path} --help`"
            message = error.format_message() if isinstance(error, click.ClickException) else "interrupted"
            print_error(AdminError(message, hint=hint), is_json=True)
            status = getattr(error, "exit_code", 1)
        raise SystemExit(status)


def _asks_for_json(words: Sequence[str]) -> bool:
    """Whether -o json is among the words that are ours, in one of its forms; behind --exec stands another command."""
    ours = list(takewhile(lambda word: word not in ("--", "--exec"), words))
    if not {"-ojson", "--output=json"}.isdisjoint(ours):
        return True
    return any(word == "json" and re.fullmatch(r"--output|-\w*o", before) for before, word in pairwise(ours))


def _tree() -> click.Group:
    root = _Root(
        "barnabas",
        entries=_VERBS,
        help="Barnabas: a Kafka-compatible cluster without ZooKeeper, in Python.\n\n"
        "Start with `barnabas dev -n 3`. Every command takes -o json.\n\n"
        "Lines of kafka-topics, kafka-console-producer, kafka-console-consumer, kafka-consumer-groups, kafka-configs and "
        "kafka-reassign-partitions work as they are: `barnabas kafka-topics --create --topic t`.",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    for noun, (line, verbs) in _NOUNS.items():
        root.add_command(LazyGroup(noun, entries=verbs, help=line))
    version = click.version_option(package_name="barnabas", message="barnabas %(version)s")
    return version(root)


cli = _tree()


def main() -> None:
    """Run the command named on the command line; the process ends with its exit code."""
    cli(prog_name="barnabas")


if __name__ == "__main__":
    main()
