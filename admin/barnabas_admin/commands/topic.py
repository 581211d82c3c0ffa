"""`barnabas topic`: create, look at, change and delete topics.

May touch:  the admin client; `describe` asks leaders for offsets.   Must not touch: records (records.py).
Invariants: several names per call are several outcomes; the worst one gives the exit code; deleting needs a yes.
Read next:  records.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import click

from barnabas_admin.invocation import Invocation, common_options, confirm, yes_option
from barnabas_admin.output import ExitCode, exit_code_of, print_fields, print_json, print_line, print_table, talk
from barnabas_wire.kafka.errors import ErrorCode, KafkaError

MIN_INSYNC_REPLICAS = "min.insync.replicas"
names_argument = click.argument("names", nargs=-1, required=True, metavar="TOPIC…")
dry_option = click.option("--dry", is_flag=True, help="Check, and change nothing.")


@click.command()
@names_argument
@click.option("-p", "--partitions", type=click.IntRange(min=1), help="Partitions of each; default: the cluster's.")
@click.option(
    "-r", "--replicas", type=click.IntRange(min=1), help="Replicas of each partition; default: the cluster's."
)
@click.option("-c", "--config", "configs", multiple=True, metavar="KEY=VALUE", help="Config override; repeatable.")
@click.option("--if-not-exists", is_flag=True, help="A topic that exists already is no error.")
@dry_option
@common_options
def create(
    invocation: Invocation,
    names: tuple[str, ...],
    partitions: int | None,
    replicas: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    dry: bool,
) -> None:
    """Create topics."""
    outcomes = invocation.admin.create_topics(
        names,
        partitions=partitions or -1,
        replication_factor=replicas or -1,
        configs=parse_pairs(configs),
        validate_only=dry,
    )
    done = "would create" if dry else "created"
    accepted = {ErrorCode.TOPIC_ALREADY_EXISTS} if if_not_exists else set()
    if not dry and not invocation.is_json:
        with contextlib.suppress(
            KafkaError
        ):  # the topics are made: a warning that cannot be given is no failure of that
            _warn_of_no_tolerance(invocation, outcomes)
    _print_outcomes(invocation, outcomes, done=done, accepted=accepted)


def _warn_of_no_tolerance(invocation: Invocation, outcomes: Sequence[Any]) -> None:
    """Say when a topic takes no acks=all write while one broker is down: min.insync.replicas is all of its replicas."""
    from barnabas_wire.rpc import admin_pb2

    for made in outcomes:
        if made.HasField("error") or made.replication_factor < 2:
            continue
        configs = invocation.admin.describe_configs(admin_pb2.RESOURCE_TYPE_TOPIC, made.name, only_overrides=False)
        needed = next((int(entry.value) for entry in configs if entry.key == MIN_INSYNC_REPLICAS), 1)
        if needed >= made.replication_factor:
            talk(
                f"warning: {made.name} has {made.replication_factor} replicas and {MIN_INSYNC_REPLICAS}={needed}: while one "
                f"broker is down it takes no writes with acks=all; use -r {needed + 1}, or "
                f"`barnabas topic alter {made.name} -c {MIN_INSYNC_REPLICAS}={made.replication_factor - 1}`"
            )


@click.command("list")
@click.option("--internal", is_flag=True, help="Show the cluster's own topics too.")
@click.option("--names", "is_names_only", is_flag=True, help="Print names alone, one on each line.")
@common_options
def list_topics(invocation: Invocation, internal: bool, is_names_only: bool) -> None:
    """List the topics."""
    topics = [
        {
            "name": topic.name,
            "id": topic.id,
            "partitions": topic.partitions,
            "replication_factor": topic.replication_factor,
            "internal": topic.internal,
            "under_replicated": topic.under_replicated,
            "leaderless": topic.leaderless,
        }
        for topic in invocation.admin.list_topics(include_internal=internal)
    ]
    if invocation.is_json:
        print_json({"topics": topics})
        return
    if is_names_only:
        for topic in topics:
            print_line(str(topic["name"]))
        return
    columns = ["NAME", "PARTITIONS", "REPLICAS", "UNDER_REPLICATED", "LEADERLESS", "ID"]
    keys = ("name", "partitions", "replication_factor", "under_replicated", "leaderless", "id")
    print_table(columns, [[topic[key] for key in keys] for topic in topics])


@click.command()
@names_argument
@click.option("--no-offsets", is_flag=True, help="Ask no leader for its offsets.")
@common_options
def describe(invocation: Invocation, names: tuple[str, ...], no_offsets: bool) -> None:
    """Show a topic's partitions, replicas, offsets and overrides."""
    topics = invocation.admin.describe_topics(names)
    missing = [topic for topic in topics if topic.HasField("error")]
    found = [topic for topic in topics if not topic.HasField("error")]
    offsets: dict[tuple[str, int], tuple[int, int]] = {}
    if found and not no_offsets:
        from barnabas_admin.kafka import partition_offsets

        wanted = [(topic.name, part.partition) for topic in found for part in topic.partitions if part.leader >= 0]
        offsets = partition_offsets(invocation, wanted)
    described = [_describe(topic, offsets) for topic in found]
    if invocation.is_json:
        print_json({"topics": described})
    else:
        for index, fields in enumerate(described):
            if index:
                print_line()
            _print_description(fields)
    end_with_errors(invocation, missing)


@click.command()
@click.argument("name", metavar="TOPIC")
@click.option("-c", "--config", "configs", multiple=True, metavar="KEY=VALUE", help="Set an override; repeatable.")
@click.option("-d", "--delete-config", "deleted", multiple=True, metavar="KEY", help="Remove an override; repeatable.")
@dry_option
@common_options
def alter(invocation: Invocation, name: str, configs: tuple[str, ...], deleted: tuple[str, ...], dry: bool) -> None:
    """Set or remove config overrides of a topic."""
    given = parse_pairs(configs)
    changes: dict[str, str | None] = {**given, **dict.fromkeys(deleted)}
    if not changes:
        raise click.UsageError("name at least one --config KEY=VALUE or --delete-config KEY")
    both = sorted(given.keys() & set(deleted))
    if both:
        raise click.UsageError(f"{both[0]} cannot be set and removed at once")
    from barnabas_wire.rpc import admin_pb2

    if deleted:
        entries = invocation.admin.describe_configs(admin_pb2.RESOURCE_TYPE_TOPIC, name, only_overrides=True)
        for key in sorted(set(deleted) - {entry.key for entry in entries}):
            talk(f"{name}: {key} was not overridden")
    invocation.admin.alter_configs(admin_pb2.RESOURCE_TYPE_TOPIC, name, changes, validate_only=dry)
    if invocation.is_json:
        print_json({"topic": name, "changes": changes, "dry": dry})
        return
    for key, value in changes.items():
        what = f"{key}={value}" if value is not None else f"{key} (the default)"
        print_line(f"{name}: {'would set' if dry else 'set'} {what}")


@click.command()
@click.argument("name", metavar="TOPIC")
@click.option("--overrides", is_flag=True, help="Show only what is set on the topic itself.")
@common_options
def config(invocation: Invocation, name: str, overrides: bool) -> None:
    """Show a topic's configs and where each value comes from."""
    from barnabas_wire.rpc import admin_pb2

    entries = invocation.admin.describe_configs(admin_pb2.RESOURCE_TYPE_TOPIC, name, only_overrides=overrides)
    rows = [{"key": e.key, "value": e.value, "source": e.source, "doc": e.doc} for e in entries]
    if invocation.is_json:
        print_json({"topic": name, "configs": rows})
    else:
        print_table(["KEY", "VALUE", "SOURCE"], [[row["key"], row["value"], row["source"]] for row in rows])


@click.command("add-partitions")
@click.argument("name", metavar="TOPIC")
@click.option("-n", "--num", type=click.IntRange(min=1), help="How many to add.")
@click.option("--total", type=click.IntRange(min=1), help="How many the topic shall have.")
@dry_option
@common_options
def add_partitions(invocation: Invocation, name: str, num: int | None, total: int | None, dry: bool) -> None:
    """Add partitions to a topic. Keys may move to other partitions."""
    if (num is None) == (total is None):
        raise click.UsageError("give either --num or --total")
    if total is None:
        (topic,) = invocation.admin.describe_topics([name])
        if topic.HasField("error"):
            end_with_errors(invocation, [topic])
        assert num is not None
        total = len(topic.partitions) + num
    invocation.admin.add_partitions(name, total=total, validate_only=dry)
    if invocation.is_json:
        print_json({"topic": name, "partitions": total, "dry": dry})
    else:
        print_line(f"{name}: {'would have' if dry else 'has'} {total} partitions")


@click.command()
@names_argument
@yes_option
@click.option("--if-exists", is_flag=True, help="A topic that does not exist is no error.")
@common_options
def delete(invocation: Invocation, names: tuple[str, ...], yes: bool, if_exists: bool) -> None:
    """Delete topics and all their records."""
    confirm(f"this deletes {', '.join(names)} with all records, for ever", typed=names[0], yes=yes)
    outcomes = invocation.admin.delete_topics(names)
    accepted = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} if if_exists else set()
    _print_outcomes(invocation, outcomes, done="deleted", accepted=accepted)


def parse_pairs(texts: Iterable[str]) -> dict[str, str]:
    """`KEY=VALUE` options as a dict; raises UsageError on another form."""
    found = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise click.UsageError(f"{text!r} is not KEY=VALUE")
        found[key] = value
    return found


def parse_broker_ids(text: str) -> list[int]:
    """`1,2,3` as ids; raises UsageError on another form."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"{text!r} is not a list of broker ids as in 1,2,3") from None


def _print_outcomes(invocation: Invocation, outcomes: Sequence[Any], *, done: str, accepted: set[ErrorCode]) -> None:
    failed = [item for item in outcomes if item.HasField("error") and ErrorCode(item.error.code) not in accepted]
    rows = []
    for item in outcomes:
        if not item.HasField("error"):
            state = done
        elif ErrorCode(item.error.code) in accepted:
            state = "unchanged"
        else:
            state = item.error.name
        rows.append(
            {
                "name": item.name,
                "status": state,
                "id": item.id or None,
                "partitions": item.partitions if item.partitions > 0 else None,
                "replication_factor": item.replication_factor if item.replication_factor > 0 else None,
            }
        )
    if invocation.is_json:
        print_json({"topics": rows})
    else:
        print_table(["TOPIC", "STATUS"], [[row["name"], row["status"]] for row in rows])
    end_with_errors(invocation, failed)


def end_with_errors(invocation: Invocation, items: Sequence[Any]) -> None:
    """Report each item's error; the process ends with the first one's exit code."""
    from barnabas_admin.client import error_from_detail
    from barnabas_admin.output import print_error

    errors = [error_from_detail(item.error) for item in items]
    for error in errors:
        print_error(error, is_json=invocation.is_json)
    if errors:
        raise SystemExit(exit_code_of(errors[0].code) or ExitCode.ERROR)


def _describe(topic: Any, offsets: dict[tuple[str, int], tuple[int, int]]) -> dict[str, Any]:
    partitions = []
    for part in topic.partitions:
        start, end = offsets.get((topic.name, part.partition), (None, None))
        partitions.append(
            {
                "partition": part.partition,
                "leader": part.leader if part.leader >= 0 else None,
                "leader_epoch": part.leader_epoch,
                "replicas": list(part.replicas),
                "isr": list(part.isr),
                "elr": list(part.elr),
                "offline_replicas": list(part.offline_replicas),
                "log_start_offset": start,
                "high_watermark": end,
                "flags": list(part.flags),
            }
        )
    return {
        "name": topic.name,
        "id": topic.id,
        "internal": topic.internal,
        "partitions": partitions,
        "overrides": dict(sorted(topic.overrides.items())),
    }


def _print_description(fields: dict[str, Any]) -> None:
    partitions = fields["partitions"]
    print_fields(
        {
            "topic": fields["name"],
            "id": fields["id"],
            "partitions": len(partitions),
            "replicas": len(partitions[0]["replicas"]) if partitions else 0,
            "overrides": fields["overrides"],
        }
    )
    print_line()
    columns = ["PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "ELR", "START", "HW", "FLAGS"]
    keys = (
        *("partition", "leader", "leader_epoch", "replicas", "isr", "elr"),
        *("log_start_offset", "high_watermark", "flags"),
    )
    print_table(columns, [[part[key] for key in keys] for part in partitions])
