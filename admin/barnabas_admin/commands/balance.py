"""`barnabas topic reassign balance`: replicas, leaders and bytes evened out over the brokers.

May touch:  the admin client; brokers for sizes.    Must not touch: how a plan is made (../balance.py).
Invariants: without --execute nothing changes; what is carried out is the plan that was printed.
Read next:  ../balance.py, ../moving.py.
"""

from __future__ import annotations

from typing import Any

import click

from barnabas_admin.balance import Load, Placement, copied_bytes, loads_of, plan_balance
from barnabas_admin.commands.topic import end_with_errors, parse_broker_ids
from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options
from barnabas_admin.moving import Moves, present_replicas, replica_sizes, set_throttle, wait_for_moves
from barnabas_admin.output import print_json, print_line, print_table, size_text, talk
from barnabas_wire.kafka.errors import ErrorCode

SHOWN_MOVES_MAX = 20
wait_option = click.option(
    "--wait", "is_waiting", is_flag=True, help="Wait, with progress; then take the throttle off."
)
wait_max_option = click.option(
    "--wait-max", "wait_s_max", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Wait no longer."
)
throttle_option = click.option(
    "--throttle", type=click.IntRange(min=1), metavar="BYTES/S", help="Bytes per second and broker, both ways."
)


@click.command(short_help="Even out replicas, leaders and bytes over the brokers.")
@click.argument("topics", nargs=-1, metavar="[TOPIC…]")
@click.option("--to", "targets", metavar="ID,ID,…", help="Brokers that may receive replicas; default: all in service.")
@click.option(
    "--remove-broker", "leaving", type=click.IntRange(min=0), multiple=True, metavar="ID", help="Empty this broker."
)
@click.option("--execute", "is_executing", is_flag=True, help="Carry the plan out; without it the plan is only shown.")
@throttle_option
@wait_option
@wait_max_option
@common_options
def balance(
    invocation: Invocation,
    topics: tuple[str, ...],
    targets: str | None,
    leaving: tuple[int, ...],
    is_executing: bool,
    throttle: int | None,
    is_waiting: bool,
    wait_s_max: float | None,
) -> None:
    """Even out replicas, leaders and bytes over the brokers, with the fewest moves; racks are kept apart.

    Shows what each broker has before and after, and what would move. --execute moves it, --wait waits until it has moved.
    """
    if (is_waiting or throttle is not None) and not is_executing:
        raise click.UsageError("--wait and --throttle are for --execute")
    brokers = {broker.id: broker for broker in invocation.admin.list_brokers().brokers}
    named = parse_broker_ids(targets) if targets else [b.id for b in brokers.values() if not b.fenced]
    for broker in (*named, *leaving):
        if broker not in brokers:
            raise AdminError(
                f"broker {broker} is not registered",
                code=ErrorCode.BROKER_ID_NOT_REGISTERED,
                hint="`barnabas broker list` shows the brokers",
            )
    fenced = [broker for broker in named if brokers[broker].fenced]
    if fenced:
        raise AdminError(
            f"broker {fenced[0]} is out of service and cannot receive replicas",
            hint=f"start it, or leave it out of --to; `barnabas explain broker {fenced[0]}` says why",
        )
    present = present_and_coming(invocation, topics)
    sizes = partition_sizes(invocation, present)
    racks = {broker: brokers[broker].rack or None for broker in named if broker not in leaving}
    hosts = {broker.id: broker.host or None for broker in brokers.values()}
    planned = plan_balance(present, racks=racks, hosts=hosts, sizes=sizes, leaving=leaving)
    _show(invocation, brokers, present, planned, sizes, is_executing=is_executing)
    if is_executing and planned:
        size_bytes = copied_bytes(present, planned, sizes)
        carry_out(invocation, planned, size_bytes, throttle=throttle, is_waiting=is_waiting, wait_s_max=wait_s_max)


def present_and_coming(invocation: Invocation, topics: tuple[str, ...] = ()) -> Placement:
    """The replicas of each partition; of one that is being reassigned those that it will have. No topics = all, internal too."""
    names = topics or tuple(topic.name for topic in invocation.admin.list_topics(include_internal=True))
    present = present_replicas(invocation, names)
    for item in invocation.admin.list_reassignments(names):
        staying = [broker for broker in item.replicas if broker not in item.removing]
        present[item.topic, item.partition] = tuple(staying)
    return present


def partition_sizes(invocation: Invocation, present: Placement) -> dict[tuple[str, int], int]:
    """Bytes of one replica of each partition, the largest of those that brokers report."""
    in_service = {broker.id for broker in invocation.admin.list_brokers().brokers if not broker.fenced}
    held = {broker for replicas in present.values() for broker in replicas}
    sizes: dict[tuple[str, int], int] = {}
    if not present:
        return sizes
    for (topic, index, _), size in replica_sizes(invocation, present, held & in_service).items():
        sizes[topic, index] = max(size, sizes.get((topic, index), 0))
    return sizes


def carry_out(
    invocation: Invocation,
    planned: Placement,
    size_bytes: int,
    *,
    throttle: int | None,
    is_waiting: bool,
    wait_s_max: float | None,
) -> None:
    """Begin the moves of a plan, with so much to copy, and wait for them if asked to. The process ends with the error of a move that is
    refused."""
    moves: Moves = dict(planned)
    throttled = set_throttle(invocation, moves, throttle, is_taken_off=is_waiting) if throttle is not None else []
    outcomes = invocation.admin.alter_reassignments(moves)
    end_with_errors(invocation, [item for item in outcomes if item.HasField("error")])
    if is_waiting:
        wait_for_moves(invocation, moves, size_bytes=size_bytes, throttled=throttled, wait_s_max=wait_s_max)
        _lead_as_planned(invocation, moves)
    else:
        talk(f"{len(moves)} moves have begun: `barnabas topic reassign status` shows them")


def _lead_as_planned(invocation: Invocation, moves: Moves) -> None:
    """Let the first replicas of what was moved lead; the controller would do it after a while by itself."""
    outcomes = invocation.admin.elect_leaders(list(moves))
    refused = [item for item in outcomes if item.HasField("error") and item.error.name != "ELECTION_NOT_NEEDED"]
    if refused:
        talk(f"{len(refused)} partitions are not led by their preferred leaders yet: {refused[0].error.message}")


def _show(
    invocation: Invocation,
    brokers: dict[int, Any],
    present: Placement,
    planned: Placement,
    sizes: dict[tuple[str, int], int],
    *,
    is_executing: bool,
) -> None:
    before, after = loads_of(present, sizes), loads_of({**present, **planned}, sizes)
    copied = copied_bytes(present, planned, sizes)
    moved = sum(len(set(replicas) - set(present[name])) for name, replicas in planned.items())
    empty = Load(broker=-1, replicas=0, leaders=0, size_bytes=0)
    pairs = {
        b: (before.get(b, empty), after.get(b, empty)) for b in sorted(before.keys() | after.keys() | brokers.keys())
    }
    if invocation.is_json:
        print_json(
            {
                "version": 1,
                "partitions": [
                    {"topic": topic, "partition": index, "replicas": list(replicas)}
                    for (topic, index), replicas in planned.items()
                ],
                "brokers": [
                    {"broker": b, "rack": (brokers[b].rack or None) if b in brokers else None}
                    | {
                        when: {"replicas": load.replicas, "leaders": load.leaders, "bytes": load.size_bytes}
                        for when, load in (("before", pair[0]), ("after", pair[1]))
                    }
                    for b, pair in pairs.items()
                ],
                "replicas_moved": moved,
                "bytes_copied": copied,
                "executed": is_executing and bool(planned),
            }
        )
        return
    rows = [
        [
            broker,
            (brokers[broker].rack or None) if broker in brokers else None,
            _change(was.replicas, will.replicas),
            _change(was.leaders, will.leaders),
            _change(size_text(was.size_bytes), size_text(will.size_bytes)),
        ]
        for broker, (was, will) in pairs.items()
    ]
    print_table(["BROKER", "RACK", "REPLICAS", "LEADERS", "BYTES"], rows)
    if not planned:
        print_line("nothing to do: replicas and leaders are even")
        return
    print_line()
    cells = [
        [topic, index, list(present[topic, index]), list(replicas), size_text(sizes.get((topic, index)))]
        for (topic, index), replicas in list(planned.items())[:SHOWN_MOVES_MAX]
    ]
    print_table(["TOPIC", "PARTITION", "REPLICAS", "PLANNED", "SIZE"], cells)
    if len(planned) > SHOWN_MOVES_MAX:
        print_line(f"… and {len(planned) - SHOWN_MOVES_MAX} more; -o json prints them all")
    print_line()
    print_line(
        f"{len(planned)} of {len(present)} partitions change, {moved} replicas move, {size_text(copied)} to copy"
    )
    if not is_executing:
        talk(
            "nothing was changed: add --execute to do it, --throttle BYTES/S to slow it down, --wait to see it through"
        )


def _change(was: Any, will: Any) -> str:
    return f"{was}" if was == will else f"{was} -> {will}"
