"""`barnabas topic reassign`, `reassignments`, `elect`: which brokers hold partitions, and which of them lead.

May touch:  the admin client; `status` asks brokers how much they hold.   Must not touch: records.
Invariants: a plan is printed and never carried out by itself; what a move is measured by comes from the brokers; the worst
            outcome of several gives the exit code.
Read next:  topic.py.

A plan is Kafka's JSON: {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [2, 3]}]}.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from barnabas_admin.commands.balance import balance, throttle_option, wait_max_option, wait_option
from barnabas_admin.commands.topic import end_with_errors, parse_broker_ids
from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options, confirm, yes_option
from barnabas_admin.moving import Moves, remove_throttle, set_throttle, sizes_of_ongoing, wait_for_moves
from barnabas_admin.output import json_text, print_json, print_line, print_table, talk

SHARED_NAMED_MAX = 3
"""So many partitions with replicas that share a host are named."""
ALREADY_SO = "ELECTION_NOT_NEEDED"
"""No failure: the partition is led as it was asked for."""


@click.group()
def reassign() -> None:
    """Move partitions between brokers while they are served."""


reassign.add_command(balance)


@reassign.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC…]")
@click.option("--to", "targets", metavar="ID,ID,…", help="Brokers that may hold replicas; default: all in service.")
@click.option("--remove-broker", type=click.IntRange(min=0), metavar="ID", help="Move everything off this broker.")
@click.option(
    "-r", "--replicas", type=click.IntRange(min=1), help="Replicas of each partition; default: as many as now."
)
@common_options
def plan(
    invocation: Invocation,
    topics: tuple[str, ...],
    targets: str | None,
    remove_broker: int | None,
    replicas: int | None,
) -> None:
    """Print a plan that moves as few replicas as it can. `apply --file` carries it out."""
    brokers = invocation.admin.list_brokers().brokers
    in_service = [b.id for b in brokers if not b.fenced]
    allowed = parse_broker_ids(targets) if targets else in_service
    allowed = [broker for broker in allowed if broker != remove_broker]
    names = topics or tuple(t.name for t in invocation.admin.list_topics(include_internal=remove_broker is not None))
    described = invocation.admin.describe_topics(names)
    end_with_errors(invocation, [topic for topic in described if topic.HasField("error")])
    present = {(t.name, p.partition): tuple(p.replicas) for t in described for p in t.partitions}
    places = {broker.id: (broker.rack, broker.host) for broker in brokers}
    moves = plan_moves(present, allowed, replicas=replicas, places=places)
    entries = [
        {"topic": topic, "partition": index, "replicas": list(wanted)} for (topic, index), wanted in moves.items()
    ]
    talk(f"{len(moves)} of {len(present)} partitions move")
    planned = {"version": 1, "partitions": entries}
    if invocation.is_json:
        print_json(planned)
    else:
        print_line(json_text(planned))


@reassign.command()
@click.argument("moves", nargs=-1, metavar="[TOPIC:PARTITION=ID,ID…]…")
@click.option("-f", "--file", "path", type=click.Path(exists=True, dir_okay=False, allow_dash=True), help="A plan.")
@throttle_option
@wait_option
@wait_max_option
@click.option("--dry", is_flag=True, help="Check, and change nothing.")
@common_options
def apply(
    invocation: Invocation,
    moves: tuple[str, ...],
    path: str | None,
    throttle: int | None,
    is_waiting: bool,
    wait_s_max: float | None,
    dry: bool,
) -> None:
    """Begin to move partitions. A move that is under way takes the new target."""
    wanted = _parse_moves(moves) | (_read_plan(path) if path else {})
    if not wanted and path is None:
        raise click.UsageError("name a move like orders:0=2,3, or a plan with --file")
    throttled: list[str] = []
    if throttle is not None and wanted and not dry:
        throttled = set_throttle(invocation, wanted, throttle, is_taken_off=is_waiting)
    outcomes = invocation.admin.alter_reassignments(wanted, validate_only=dry)
    _print_outcomes(invocation, outcomes, done="would begin" if dry else "begun")
    _warn_of_shared_hosts(invocation, wanted)
    if is_waiting and wanted and not dry:
        wait_for_moves(invocation, wanted, throttled=throttled, wait_s_max=wait_s_max)


@reassign.command(short_help="Show which partitions are moving, and how far.")
@click.argument("topics", nargs=-1, metavar="[TOPIC…]")
@common_options
def status(invocation: Invocation, topics: tuple[str, ...]) -> None:
    """Show which partitions are moving, whom they wait for, and how much has been copied."""
    _show_ongoing(invocation, topics)


@click.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC…]")
@common_options
def reassignments(invocation: Invocation, topics: tuple[str, ...]) -> None:
    """Show which partitions are moving. The same as `topic reassign status`."""
    _show_ongoing(invocation, topics)


def _show_ongoing(invocation: Invocation, topics: tuple[str, ...]) -> None:
    found = invocation.admin.list_reassignments(topics)
    sizes = sizes_of_ongoing(invocation, found) if found else {}
    rows = [_describe(item, sizes) for item in found]
    if invocation.is_json:
        print_json({"reassignments": rows})
        return
    if not rows:
        print_line("nothing is being reassigned")
        return
    columns = ["TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING", "WAITING_FOR", "COPIED"]
    cells = []
    for row in rows:
        waiting = [f"{broker}{' (fenced)' if broker in row['fenced'] else ''}" for broker in row["waiting_for"]]
        copied = " ".join(f"{broker}:{share:.0%}" for broker, share in row["copied"].items() if share is not None)
        keys = ("topic", "partition", "replicas", "adding", "removing")
        cells.append([*(row[key] for key in keys), ", ".join(waiting), copied])
    print_table(columns, cells)


@reassign.command()
@click.argument("partitions", nargs=-1, metavar="[TOPIC[:PARTITION]]…")
@click.option("--all", "is_all", is_flag=True, help="Everything that is under way.")
@click.option(
    "-f", "--file", "path", type=click.Path(exists=True, dir_okay=False, allow_dash=True), help="Those of a plan."
)
@common_options
def cancel(invocation: Invocation, partitions: tuple[str, ...], is_all: bool, path: str | None) -> None:
    """Go back to the replicas that a move began with."""
    if [bool(partitions), is_all, path is not None].count(True) != 1:
        raise click.UsageError("name partitions, or a plan with --file, or give --all")
    wanted: Moves = dict.fromkeys(_read_plan(path), ()) if path is not None else {}
    ongoing = [(item.topic, item.partition) for item in invocation.admin.list_reassignments()]
    for text in partitions:
        topic, index = _parse_partition(text)
        named = [(topic, index)] if index is not None else [name for name in ongoing if name[0] == topic]
        wanted |= dict.fromkeys(named, ())
    if is_all:
        wanted = dict.fromkeys(ongoing, ())
    if not wanted:
        print_line("nothing is being reassigned")
        return
    _print_outcomes(invocation, invocation.admin.alter_reassignments(wanted), done="cancelled")


@reassign.command(short_help="Take the throttle of a finished move off.")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC…")
@common_options
def unthrottle(invocation: Invocation, topics: tuple[str, ...]) -> None:
    """Take the throttle of a finished move off: of the topics, and the rates of all brokers."""
    remove_throttle(invocation, topics)
    if invocation.is_json:
        print_json({"topics": list(topics), "throttled": False})
    else:
        print_line("throttles are off")


@click.command()
@click.argument("partitions", nargs=-1, metavar="[TOPIC[:PARTITION]]…")
@click.option("--all", "is_all", is_flag=True, help="Every partition that needs it.")
@click.option("--preferred", is_flag=True, help="The first replica, where it is in sync (this is the default).")
@click.option("--unclean", is_flag=True, help="Any replica, where none that is in sync is left. Records may be lost.")
@yes_option
@common_options
def elect(
    invocation: Invocation, partitions: tuple[str, ...], is_all: bool, preferred: bool, unclean: bool, yes: bool
) -> None:
    """Elect leaders: preferred ones, or, if you choose, any live replica."""
    if preferred and unclean:
        raise click.UsageError("an election is --preferred or --unclean")
    if bool(partitions) == is_all:
        raise click.UsageError("name partitions, or give --all")
    names: list[tuple[str, int]] | None = None
    if not is_all:
        names = []
        for text in partitions:
            topic, index = _parse_partition(text)
            names += [(topic, index)] if index is not None else _partitions_of(invocation, topic)
    if unclean:
        confirm("an unclean election may lose acknowledged records", typed="unclean", yes=yes)
    outcomes = invocation.admin.elect_leaders(names, unclean=unclean)
    _print_outcomes(invocation, outcomes, done="elected")


def plan_moves(
    present: Mapping[tuple[str, int], Sequence[int]],
    allowed: Sequence[int],
    *,
    replicas: int | None,
    places: Mapping[int, tuple[str, str]] | None = None,
) -> Moves:
    """Wanted replicas of the partitions that must change: replicas on allowed brokers stay where they are, those that go are
    replaced by whoever is in another rack, on another host and holds least, and leaderships follow the same order.

    places: rack and host of brokers, empty for one of its own. Raises AdminError when there are too few brokers.
    """
    apart = places or {}
    held = {broker: sum(broker in now for now in present.values()) for broker in allowed}
    led = {broker: sum(now[0] == broker for now in present.values()) for broker in allowed}
    moves: Moves = {}
    for name, now in sorted(present.items()):
        count = replicas or len(now)
        if count > len(allowed):
            raise AdminError(
                f"{name[0]}:{name[1]} needs {count} brokers and only {len(allowed)} may hold it",
                hint="allow more brokers with --to, or ask for fewer --replicas",
            )
        kept = [broker for broker in now if broker in held]
        for broker in kept[count:]:
            held[broker] -= 1
        wanted = kept[:count]
        while len(wanted) < count:
            racks, hosts = ({apart.get(b, ("", ""))[kind] for b in wanted} - {""} for kind in (0, 1))

            def preference(
                b: int, racks: set[str] = racks, hosts: set[str] = hosts
            ) -> tuple[bool, bool, int, int, int]:
                rack, host = apart.get(b, ("", ""))
                return rack in racks, host in hosts, held[b], led[b], b

            chosen = min((b for b in allowed if b not in wanted), key=preference)
            held[chosen] += 1
            wanted.append(chosen)
        if wanted[0] != now[0]:
            if now[0] in led:
                led[now[0]] -= 1
            leader = min(wanted, key=lambda b: (led[b], wanted.index(b)))
            wanted = [leader, *(b for b in wanted if b != leader)]
            led[leader] += 1
        if tuple(wanted) != tuple(now):
            moves[name] = tuple(wanted)
    return moves


def _warn_of_shared_hosts(invocation: Invocation, wanted: Moves) -> None:
    """An assignment is obeyed; the user who made it hears what is lost together by it."""
    hosts = {broker.id: broker.host for broker in invocation.admin.list_brokers().brokers if broker.host}
    shared = [
        f"{topic}:{index} has {count} replicas on host {host}"
        for (topic, index), replicas in sorted(wanted.items())
        for host, count in Counter(hosts[b] for b in replicas if b in hosts).items()
        if count > 1
    ]
    if shared:
        more = f", and {len(shared) - SHARED_NAMED_MAX} more" if len(shared) > SHARED_NAMED_MAX else ""
        talk(f"lost together: {', '.join(shared[:SHARED_NAMED_MAX])}{more}")


def _parse_moves(texts: Sequence[str]) -> Moves:
    moves: Moves = {}
    for text in texts:
        name, _, brokers = text.partition("=")
        topic, index = _parse_partition(name)
        if not brokers or index is None:  # no brokers would mean to cancel
            raise click.UsageError(f"{text!r} is not TOPIC:PARTITION=ID,ID")
        moves[topic, index] = tuple(parse_broker_ids(brokers))
    return moves


def _read_plan(path: str) -> Moves:
    text = sys.stdin.read() if path == "-" else Path(path).read_text()
    try:
        entries = json.loads(text)["partitions"]
        return {
            (str(entry["topic"]), int(entry["partition"])): tuple(int(broker) for broker in entry["replicas"])
            for entry in entries
        }
    except (KeyError, TypeError, ValueError) as error:
        raise click.UsageError(f'{path} is no plan like {{"version":1,"partitions":[…]}}: {error!r}') from error


def _parse_partition(text: str) -> tuple[str, int | None]:
    topic, separator, index = text.rpartition(":")
    if not separator:
        return text, None
    if not topic or not index.isdecimal():
        raise click.UsageError(f"{text!r} is not TOPIC or TOPIC:PARTITION")
    return topic, int(index)


def _partitions_of(invocation: Invocation, topic: str) -> list[tuple[str, int]]:
    described = invocation.admin.describe_topics([topic])
    end_with_errors(invocation, [found for found in described if found.HasField("error")])
    return [(topic, part.partition) for part in described[0].partitions]


def _describe(item: Any, sizes: Mapping[tuple[str, int, int], int]) -> dict[str, Any]:
    whole = max((sizes.get((item.topic, item.partition, broker), 0) for broker in item.isr), default=0)
    copied: dict[int, float | None] = {}
    for broker in item.waiting_for:
        size = sizes.get((item.topic, item.partition, broker))
        copied[broker] = None if size is None else min(1.0, size / whole) if whole else 1.0
    return {
        "topic": item.topic,
        "partition": item.partition,
        "replicas": list(item.replicas),
        "adding": list(item.adding),
        "removing": list(item.removing),
        "isr": list(item.isr),
        "waiting_for": list(item.waiting_for),
        "fenced": list(item.fenced),
        "copied": copied,
    }


def _status(item: Any, *, done: str) -> str:
    if not item.HasField("error"):
        return done
    name: str = item.error.name
    return "not needed" if name == ALREADY_SO else name


def _print_outcomes(invocation: Invocation, outcomes: Sequence[Any], *, done: str) -> None:
    failed = [item for item in outcomes if item.HasField("error") and item.error.name != ALREADY_SO]
    rows = [
        {
            "topic": item.topic,
            "partition": item.partition,
            "status": _status(item, done=done),
        }
        for item in outcomes
    ]
    if invocation.is_json:
        print_json({"partitions": rows})
    elif rows:
        print_table(["TOPIC", "PARTITION", "STATUS"], [[row["topic"], row["partition"], row["status"]] for row in rows])
    else:
        print_line("nothing to do")
    end_with_errors(invocation, failed)
