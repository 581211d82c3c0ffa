"""`barnabas topic trim`: records removed from a topic's front (DeleteRecords, KIP-107).

May touch:  the brokers.              Must not touch: the admin service beyond finding brokers.
Invariants: nothing is removed without a yes; what is beyond the high watermark is refused by the broker, never clamped.
Read next:  ../offset_seeking.py, whose targets it takes.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options, confirm, yes_option
from barnabas_admin.offset_seeking import Kind, parse_partitions, parse_target, plan_seek
from barnabas_admin.output import exit_code_of, print_error, print_json, print_table
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas_admin.offset_seeking import Seek
    from barnabas_wire.client.cluster import ClusterClient

HINTS = {
    ErrorCode.POLICY_VIOLATION: "its cleanup.policy has no delete",
    ErrorCode.NOT_ENOUGH_REPLICAS: "`barnabas explain partition` says who is eligible and away",
}


@click.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC[:PARTITION,…]…")
@click.option(
    "--to", "where", required=True, metavar="WHERE", help="First record to keep: end (none), an offset, @WHEN, or +N."
)
@click.option("--dry", is_flag=True, help="Say what would go, and change nothing.")
@yes_option
@common_options
def trim(invocation: Invocation, topics: tuple[str, ...], where: str, dry: bool, yes: bool) -> None:
    """Delete the records of partitions before a place: an offset, a moment, or all that is there."""
    from barnabas_admin.kafka import run_with_cluster

    wanted = parse_partitions(topics)
    target = parse_target(where, now_ms=int(time.time() * 1000))
    if target.kind is Kind.START or (target.kind is Kind.SHIFT and target.number < 0):
        raise click.UsageError("--to is the first record to keep: end, an offset, @WHEN, or +N from the start")

    async def plan(client: ClusterClient) -> list[Seek]:
        from barnabas_admin.kafka import is_topic_known
        from barnabas_wire.client.metadata import EARLIEST, LATEST

        for topic in wanted:
            if not await is_topic_known(client, topic):
                raise AdminError(f"topic {topic!r} does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        view = await client.metadata(sorted(wanted))
        partitions = [
            TopicPartition(topic, index)
            for topic, indexes in wanted.items()
            for index in (sorted(view.topics[topic]) if indexes is None else indexes)
        ]
        missing = [p for p in partitions if p.partition not in view.topics[p.topic]]
        if missing:
            raise AdminError(
                f"{missing[0].topic} has no partition {missing[0].partition}",
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        starts = await client.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = await client.list_offsets(dict.fromkeys(partitions, LATEST))
        at_time = (
            await client.list_offsets(dict.fromkeys(partitions, target.number)) if target.kind is Kind.TIME else {}
        )
        return plan_seek(
            target,
            committed={},
            starts={p: int(found.offset) for p, found in starts.items()},
            ends={p: int(found.offset) for p, found in ends.items()},
            at_time={p: int(found.offset) for p, found in at_time.items()},
        )

    planned = run_with_cluster(invocation, plan)
    beyond = [item for item in planned if item.is_clamped and target.kind is Kind.OFFSET and target.number > item.end]
    if beyond:
        raise AdminError(
            f"{beyond[0].partition}: offset {target.number} is beyond the end, {beyond[0].end}",
            code=ErrorCode.OFFSET_OUT_OF_RANGE,
            hint="--to end removes all that is there",
        )
    count = sum(item.to - item.start for item in planned)
    if not dry and count:
        confirm(
            f"this deletes {count} offsets of records in {', '.join(wanted)}, for ever",
            typed=next(iter(wanted)),
            yes=yes,
        )
    errors: dict[TopicPartition, AdminError] = {}
    if not dry and count:
        errors = run_with_cluster(invocation, lambda client: _delete(client, planned, invocation.timeout_s))
    rows = [
        {
            "topic": item.partition.topic,
            "partition": item.partition.partition,
            "start": item.start,
            "first_kept": item.to,
            "end": item.end,
            "status": ErrorCode(errors[item.partition].code).name
            if item.partition in errors
            else ("would trim" if dry else "trimmed")
            if item.to > item.start
            else "unchanged",
        }
        for item in planned
    ]
    if invocation.is_json:
        print_json({"partitions": rows, "dry": dry})
    else:
        print_table(
            ["TOPIC", "PARTITION", "START", "FIRST_KEPT", "END", "STATUS"], [list(row.values()) for row in rows]
        )
    for error in errors.values():
        print_error(error, is_json=invocation.is_json)
    if errors:
        raise SystemExit(exit_code_of(next(iter(errors.values())).code))


async def _delete(client: ClusterClient, planned: list[Seek], timeout_s: float) -> dict[TopicPartition, AdminError]:
    """Ask each partition's leader; the errors."""
    from barnabas_wire.client.metadata import known_code
    from barnabas_wire.kafka.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )

    view = await client.metadata(sorted({item.partition.topic for item in planned}))
    errors: dict[TopicPartition, AdminError] = {}
    for item in planned:
        if item.to <= item.start:
            continue
        leader: Any = view.topics[item.partition.topic][item.partition.partition]
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(item.partition.topic, [DeleteRecordsPartition(item.partition.partition, item.to)])
            ],
            timeout_ms=int(timeout_s * 1000),
        )
        answer = await client.call(request, broker_id=leader.leader)
        for topic in answer.topics:
            for part in topic.partitions:
                if part.error_code:
                    name = TopicPartition(topic.name, part.partition_index)
                    code = known_code(part.error_code)
                    errors[name] = AdminError(part.error_message or str(name), code=code, hint=HINTS.get(code, ""))
    return errors
