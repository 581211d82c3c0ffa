"""`barnabas group seek`, `delete`, `delete-offsets`, `lag`: what a group has read, changed and watched.

May touch:  the brokers.              Must not touch: the offsets topic.
Invariants: nothing is committed before it was shown, nor for a group with members; nothing is deleted without a yes.
Read next:  ../offset_seeking.py for where a seek goes to; ../groups.py.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options, confirm, yes_option
from barnabas_admin.offset_seeking import (
    Kind,
    Seek,
    Target,
    clamped,
    parse_offsets_file,
    parse_partitions,
    parse_target,
    plan_seek,
)
from barnabas_admin.output import exit_code_of, print_error, print_json, print_line, print_table, talk
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas_wire.client.cluster import ClusterClient

WATCH_PAUSE_S = 2.0
IDLE_STATES = ("Empty", "Dead")


@click.command()
@click.argument("group", metavar="GROUP")
@click.argument("topics", nargs=-1, metavar="[TOPIC[:PARTITION,…]]…")
@click.option("--to", "where", metavar="WHERE", help="start, end, an offset, @WHEN (a moment), +N or -N (a shift).")
@click.option(
    "--from-file",
    "path",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Lines topic,partition,offset, or what describe -o json printed.",
)
@click.option("--to-group", "other", metavar="GROUP", help="Where another group is.")
@click.option("--execute", "is_executing", is_flag=True, help="Commit what is shown; without it nothing is changed.")
@common_options
def seek(
    invocation: Invocation,
    group: str,
    topics: tuple[str, ...],
    where: str | None,
    path: str | None,
    other: str | None,
    is_executing: bool,
) -> None:
    """Move a group's offsets: to a place, a moment, by a shift, as a file says, or where another group is.

    Without topics all that the group has committed. Shows where each partition goes; --execute commits it, which a group with
    members refuses. WHEN is milliseconds since 1970, 2026-11-25T10:00, or -2h from now.
    """
    from barnabas_admin.kafka import run_with_cluster

    if sum(option is not None for option in (where, path, other)) != 1:
        raise click.UsageError("name one of --to WHERE, --from-file FILE and --to-group GROUP")
    wanted = parse_partitions(topics)
    target = parse_target(where, now_ms=int(time.time() * 1000)) if where is not None else None
    named = parse_offsets_file(_read(path)) if path is not None else None

    async def work(client: ClusterClient) -> tuple[str, list[Seek]]:
        from barnabas_admin.groups import describe_group

        state, committed = await committed_offsets(client, group, is_new_allowed=bool(topics or named or other))
        if other is not None:
            found = await describe_group(client, other)
            offsets = {
                TopicPartition(row["topic"], row["partition"]): row["committed"]
                for row in found["partitions"]
                if row["committed"] is not None
            }
        else:
            offsets = named or {}
        partitions = await _partitions(client, wanted, offsets if target is None else committed)
        plan = await _plan(client, target, partitions, committed=committed, offsets=offsets)
        if is_executing:
            refuse_members(group, state)
            await commit_seeks(client, group, plan)
        return state, plan

    state, plan = run_with_cluster(invocation, work)
    _show_seek(invocation, group, state, plan, is_executing=is_executing)


def _read(path: str) -> str:
    return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")


async def committed_offsets(
    client: ClusterClient, group: str, *, is_new_allowed: bool
) -> tuple[str, dict[TopicPartition, int]]:
    """(state, committed offsets) of a group; one that nobody knows is empty where a seek may make it."""
    from barnabas_admin.groups import describe_group

    try:
        found = await describe_group(client, group)
    except AdminError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND or not is_new_allowed:
            raise
        return "Dead", {}
    committed = {
        TopicPartition(row["topic"], row["partition"]): row["committed"]
        for row in found["partitions"]
        if row["committed"] is not None
    }
    return found["state"], committed


async def _partitions(
    client: ClusterClient, wanted: dict[str, list[int] | None], known: dict[TopicPartition, int]
) -> list[TopicPartition]:
    """The partitions that are named, else those that are known; all must exist."""
    from barnabas_admin.kafka import is_topic_known

    topics = set(wanted) or {partition.topic for partition in known}
    for topic in sorted(topics):
        if not await is_topic_known(client, topic):
            raise AdminError(f"topic {topic!r} does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    view = await client.metadata(sorted(topics))
    found = []
    if not wanted:
        found = sorted(known)
    for topic, indexes in wanted.items():
        for index in sorted(view.topics[topic]) if indexes is None else indexes:
            found.append(TopicPartition(topic, index))
    for partition in found:
        if partition.partition not in view.topics[partition.topic]:
            raise AdminError(
                f"{partition.topic} has no partition {partition.partition}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
    if not found:
        raise AdminError("the group has committed nothing: name topics", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return found


async def _plan(
    client: ClusterClient,
    target: Target | None,
    partitions: list[TopicPartition],
    *,
    committed: dict[TopicPartition, int],
    offsets: dict[TopicPartition, int],
) -> list[Seek]:
    from barnabas_wire.client.metadata import EARLIEST, LATEST

    starts = {p: int(o.offset) for p, o in (await client.list_offsets(dict.fromkeys(partitions, EARLIEST))).items()}
    ends = {p: int(o.offset) for p, o in (await client.list_offsets(dict.fromkeys(partitions, LATEST))).items()}
    if target is None:
        return [
            clamped(p, offsets[p], now=committed.get(p), start=starts[p], end=ends[p])
            for p in partitions
            if p in offsets
        ]
    at_time = {}
    if target.kind is Kind.TIME:
        listed = await client.list_offsets(dict.fromkeys(partitions, target.number))
        at_time = {p: int(found.offset) for p, found in listed.items()}
    return plan_seek(target, committed=committed, starts=starts, ends=ends, at_time=at_time)


def refuse_members(group: str, state: str) -> None:
    """Raise AdminError NON_EMPTY_GROUP for a group that has members."""
    if state not in IDLE_STATES:
        raise AdminError(
            f"group {group!r} has members ({state}): they would go on from where they are and commit over it",
            code=ErrorCode.NON_EMPTY_GROUP,
            hint=f"stop them, then try again; `barnabas group describe {group}` shows them",
        )


async def group_state(client: ClusterClient, group: str) -> str:
    """A group's state; Dead for one that nobody knows."""
    return (await committed_offsets(client, group, is_new_allowed=True))[0]


async def commit_seeks(client: ClusterClient, group: str, plan: list[Seek]) -> None:
    """Commit what is planned, as one who is no member; a share group begins again from there. Raises KafkaError."""
    from barnabas_admin.groups import is_share_group
    from barnabas_wire.client.metadata import known_code
    from barnabas_wire.kafka.messages.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )

    if await is_share_group(client, group):
        await _alter_share_offsets(client, group, plan)
        return
    view = await client.metadata(sorted({seek.partition.topic for seek in plan}))
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for item in plan:
        by_topic.setdefault(item.partition.topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=item.partition.partition, committed_offset=item.to, committed_metadata=""
            )
        )
    request = OffsetCommitRequest(
        group_id=group,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(name=topic, topic_id=view.topic_ids[topic], partitions=parts)
            for topic, parts in by_topic.items()
        ],
    )
    answer = await client.call_coordinator(group, request)
    for topic in answer.topics:
        for part in topic.partitions:
            if part.error_code:
                raise KafkaError.of(known_code(part.error_code), f"committing for {topic.name}:{part.partition_index}")


async def _alter_share_offsets(client: ClusterClient, group: str, plan: list[Seek]) -> None:
    from barnabas_wire.client.metadata import known_code
    from barnabas_wire.kafka.messages.alter_share_group_offsets import (
        AlterShareGroupOffsetsRequest,
        RequestPartition,
        RequestTopic,
    )

    by_topic: dict[str, list[RequestPartition]] = {}
    for item in plan:
        by_topic.setdefault(item.partition.topic, []).append(RequestPartition(item.partition.partition, item.to))
    request = AlterShareGroupOffsetsRequest(group, [RequestTopic(*each) for each in by_topic.items()])
    answer = await client.call_coordinator(group, request)
    if answer.error_code:
        raise KafkaError.of(known_code(answer.error_code), f"setting offsets of {group}")
    for topic in answer.responses:
        for part in topic.partitions:
            if part.error_code:
                where = f"{topic.topic_name}:{part.partition_index}"
                raise KafkaError.of(known_code(part.error_code), f"setting the offset of {where}")


def _show_seek(invocation: Invocation, group: str, state: str, plan: list[Seek], *, is_executing: bool) -> None:
    rows = [
        {
            "topic": item.partition.topic,
            "partition": item.partition.partition,
            "committed": item.now,
            "to": item.to,
            "start": item.start,
            "end": item.end,
            "lag": item.end - item.to,
            "clamped": item.is_clamped,
        }
        for item in plan
    ]
    if invocation.is_json:
        print_json({"group": group, "state": state, "partitions": rows, "executed": is_executing})
        return
    columns = ["TOPIC", "PARTITION", "COMMITTED", "TO", "START", "END", "LAG", "NOTE"]
    print_table(
        columns, [[*list(row.values())[:-1], "nearest that is there" if row["clamped"] else None] for row in rows]
    )
    if is_executing:
        print_line(f"{group}: {len(rows)} offsets committed")
    elif state not in IDLE_STATES:
        talk(f"nothing was changed; the group has members ({state}): stop them before --execute")
    else:
        talk("nothing was changed: add --execute to commit this")


@click.command()
@click.argument("groups", nargs=-1, required=True, metavar="GROUP…")
@yes_option
@common_options
def delete(invocation: Invocation, groups: tuple[str, ...], yes: bool) -> None:
    """Delete groups with their committed offsets. Refused while a group has members."""
    from barnabas_admin.kafka import run_with_cluster
    from barnabas_wire.client.metadata import known_code
    from barnabas_wire.kafka.messages.delete_groups import DeleteGroupsRequest

    confirm(f"this deletes {', '.join(groups)} and where they have read to", typed=groups[0], yes=yes)

    async def work(client: ClusterClient) -> dict[str, ErrorCode]:
        outcomes: dict[str, ErrorCode] = {}
        for group in groups:
            answer = await client.call_coordinator(group, DeleteGroupsRequest(groups_names=[group]))
            outcomes |= {result.group_id: known_code(result.error_code) for result in answer.results}
        return outcomes

    outcomes = run_with_cluster(invocation, work)
    _print_group_outcomes(invocation, [{"group": group, "code": code} for group, code in outcomes.items()])


def _print_group_outcomes(invocation: Invocation, items: list[dict[str, Any]]) -> None:
    rows = [
        {key: value for key, value in item.items() if key != "code"}
        | {"status": item["code"].name if item["code"] else "deleted"}
        for item in items
    ]
    if invocation.is_json:
        print_json({"groups": rows})
    else:
        print_table([key.upper() for key in rows[0]], [list(row.values()) for row in rows])
    failed = [item for item in items if item["code"]]
    for item in failed:
        hint = {
            ErrorCode.NON_EMPTY_GROUP: "stop its members first",
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "stop its members first",
            ErrorCode.GROUP_ID_NOT_FOUND: "`barnabas group list` shows the groups",
        }.get(item["code"], "")
        print_error(AdminError(f"{item['group']}", code=item["code"], hint=hint), is_json=invocation.is_json)
    if failed:
        raise SystemExit(exit_code_of(failed[0]["code"]))


@click.command("delete-offsets")
@click.argument("group", metavar="GROUP")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC[:PARTITION,…]…")
@yes_option
@common_options
def delete_offsets(invocation: Invocation, group: str, topics: tuple[str, ...], yes: bool) -> None:
    """Forget where a group has read to in topics. Refused for a topic that a member subscribes to.

    A share group forgets whole topics, and only while it has no members.
    """
    from barnabas_admin.groups import is_share_group
    from barnabas_admin.kafka import run_with_cluster
    from barnabas_wire.client.metadata import known_code
    from barnabas_wire.kafka.messages.offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteRequestTopic,
    )

    wanted = parse_partitions(topics)
    confirm(f"{group} forgets where it has read to in {', '.join(wanted)}", typed=group, yes=yes)

    async def work(client: ClusterClient) -> list[dict[str, Any]]:
        if await is_share_group(client, group):
            return await _delete_share_offsets(client, group, wanted)
        _, committed = await committed_offsets(client, group, is_new_allowed=False)
        known = {p: o for p, o in committed.items() if p.topic in wanted}
        partitions = [p for p in known if (only := wanted[p.topic]) is None or p.partition in only]
        if not partitions:
            raise AdminError(
                f"{group} has committed nothing there",
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                hint=f"`barnabas group describe {group}` shows what it has committed",
            )
        by_topic: dict[str, list[OffsetDeleteRequestPartition]] = {}
        for partition in partitions:
            by_topic.setdefault(partition.topic, []).append(OffsetDeleteRequestPartition(partition.partition))
        request = OffsetDeleteRequest(
            group_id=group, topics=[OffsetDeleteRequestTopic(name, parts) for name, parts in by_topic.items()]
        )
        answer = await client.call_coordinator(group, request)
        if answer.error_code:
            raise KafkaError.of(known_code(answer.error_code), f"deleting offsets of {group}")
        return [
            {
                "group": group,
                "topic": topic.name,
                "partition": part.partition_index,
                "code": known_code(part.error_code),
            }
            for topic in answer.topics
            for part in topic.partitions
        ]

    _print_group_outcomes(invocation, run_with_cluster(invocation, work))


async def _delete_share_offsets(
    client: ClusterClient, group: str, wanted: dict[str, list[int] | None]
) -> list[dict[str, Any]]:
    from barnabas_wire.client.metadata import known_code
    from barnabas_wire.kafka.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest, RequestTopic

    named = [topic for topic, partitions in wanted.items() if partitions is not None]
    if named:
        raise click.UsageError(f"a share group forgets whole topics: name {named[0]} without partitions")
    request = DeleteShareGroupOffsetsRequest(group, [RequestTopic(topic) for topic in wanted])
    answer = await client.call_coordinator(group, request)
    if answer.error_code:
        raise KafkaError.of(known_code(answer.error_code), f"deleting offsets of {group}")
    return [
        {"group": group, "topic": topic.topic_name, "partition": None, "code": known_code(topic.error_code)}
        for topic in answer.responses
    ]


@click.command()
@click.argument("groups", nargs=-1, metavar="[GROUP…]")
@click.option("-w", "--watch", is_flag=True, help="Print again every two seconds, with how fast the lag changes.")
@click.option("--topics", "by_partition", is_flag=True, help="A line for each partition.")
@common_options
def lag(invocation: Invocation, groups: tuple[str, ...], watch: bool, by_partition: bool) -> None:
    """Show how far groups are behind: those named, else all."""
    before: dict[tuple[Any, ...], int] = {}
    last_s = 0.0
    while True:
        found = _read_groups(invocation, groups)
        now_s = time.monotonic()
        if by_partition:
            rows = [
                {"group": group["group"], "state": group["state"]}
                | {key: row[key] for key in ("topic", "partition", "committed", "end", "lag", "member")}
                for group in found
                for row in group["partitions"]
            ]
        else:
            rows = [
                {
                    "group": group["group"],
                    "state": group["state"],
                    "members": len(group["members"]),
                    "partitions": len(group["partitions"]),
                    "lag": group["total_lag"],
                }
                for group in found
            ]
        keys = {(row["group"], row.get("topic"), row.get("partition")): row for row in rows}
        if watch:
            for key, row in keys.items():
                change = (row["lag"] or 0) - before[key] if key in before else None
                row["change_per_s"] = None if change is None else round(change / (now_s - last_s), 1)
            before, last_s = {key: row["lag"] or 0 for key, row in keys.items()}, now_s
        if invocation.is_json:
            print_json({"groups": rows})
        elif rows:
            print_table([key.upper() for key in rows[0]], [list(row.values()) for row in rows])
        else:
            print_line("no group is known")
        if not watch:
            return
        sys.stdout.flush()
        time.sleep(WATCH_PAUSE_S)
        print_line()


def _read_groups(invocation: Invocation, names: tuple[str, ...]) -> list[dict[str, Any]]:
    from barnabas_admin.groups import describe_group, list_groups
    from barnabas_admin.kafka import run_with_cluster

    async def work(client: ClusterClient) -> list[dict[str, Any]]:
        wanted = list(names) or [found["group"] for found in await list_groups(client)]
        return [await describe_group(client, name) for name in wanted]

    return run_with_cluster(invocation, work)
