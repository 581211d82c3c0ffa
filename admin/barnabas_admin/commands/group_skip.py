"""`barnabas group skip`: a group gets past a batch whose records nobody can read.

May touch:  the brokers.              Must not touch: the log, the offsets topic.
Invariants: nothing that can be read is skipped; what is skipped is shown before it is; a group with members is refused.
Read next:  ../unreadable.py; group_offsets.py, which commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from barnabas_admin.commands.group_offsets import IDLE_STATES, commit_seeks, committed_offsets, refuse_members
from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options, confirm, yes_option
from barnabas_admin.offset_seeking import Seek
from barnabas_admin.output import local_time, print_fields, print_json, print_line, size_text, talk
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas_admin.unreadable import Unreadable
    from barnabas_wire.client.cluster import ClusterClient

YEAR_9999_MS = 253_370_764_800_000
"""What an unreadable batch says of its times may be anything; later ones have no date."""


@click.command()
@click.argument("group", metavar="GROUP")
@click.argument("topic", metavar="TOPIC")
@click.argument("partition", type=click.IntRange(min=0), metavar="PARTITION")
@click.option("--dry", is_flag=True, help="Show the batch, and change nothing.")
@yes_option
@common_options
def skip(invocation: Invocation, group: str, topic: str, partition: int, dry: bool, yes: bool) -> None:
    """Get a group past a batch that nobody can read: the one at its committed offset.

    Shows what is skipped, asks, and commits the offset behind the batch for a group without members. The log is not touched: other
    groups meet the same batch. A batch that can be read is not skipped; `group seek` goes anywhere.
    """
    from barnabas_admin.kafka import run_with_cluster

    where = TopicPartition(topic, partition)

    async def look(client: ClusterClient) -> tuple[str, int, Unreadable]:
        return await _look(client, group, where)

    state, committed, found = run_with_cluster(invocation, look)
    fields = {"group": group, "state": state, "topic": topic, "partition": partition, "committed": committed}
    fields |= found.as_fields()
    if not invocation.is_json:
        _show(fields)
    if dry:
        if invocation.is_json:
            print_json(fields | {"skipped": False})
        elif state not in IDLE_STATES:
            talk(f"nothing was changed; the group has members ({state}): stop them before it can be skipped")
        else:
            talk("nothing was changed")
        return
    refuse_members(group, state)
    lost = found.header.next_offset - committed
    confirm(
        f"{group} goes on at offset {found.header.next_offset} of {where} and never sees the {lost} offsets before it",
        typed=group,
        yes=yes,
    )

    async def commit(client: ClusterClient) -> None:
        state_now, committed_now, found_now = await _look(client, group, where)
        refuse_members(group, state_now)
        if (committed_now, found_now.header) != (committed, found.header):
            raise AdminError(
                f"the group has moved to offset {committed_now} meanwhile: nothing was skipped; look again"
            )
        end = found.header.next_offset
        await commit_seeks(
            client, group, [Seek(partition=where, now=committed, to=end, start=committed, end=end, is_clamped=False)]
        )

    run_with_cluster(invocation, commit)
    if invocation.is_json:
        print_json(fields | {"skipped": True})
    else:
        print_line(f"{group} goes on at offset {found.header.next_offset} of {where}")


async def _look(client: ClusterClient, group: str, where: TopicPartition) -> tuple[str, int, Unreadable]:
    """State of the group, where it is, and the batch there that nobody can read. Raises AdminError where that is not so."""
    from barnabas_admin.unreadable import LOOK_BYTES_MAX, first_unreadable

    state, offsets = await committed_offsets(client, group, is_new_allowed=False)
    committed = offsets.get(where)
    if committed is None:
        raise AdminError(
            f"{group} has committed nothing for {where}, so it begins where auto.offset.reset says",
            code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            hint=f"`barnabas group seek {group} {where.topic}:{where.partition} --to OFFSET --execute` puts it in front of the batch",
        )
    found = await first_unreadable(client, where, committed)
    if found is None:
        raise AdminError(
            f"{group} is at offset {committed} of {where}, and {size_text(LOOK_BYTES_MAX)} from there on can be read: nothing was skipped",
            code=ErrorCode.INVALID_REQUEST,
            hint=f"`barnabas group seek {group} {where.topic}:{where.partition} --to OFFSET` goes to any place",
        )
    if found.header.base_offset > committed:
        first = found.header.base_offset
        raise AdminError(
            f"{group} is at offset {committed} of {where}; offsets {committed} to {first - 1} can be read and would be skipped "
            f"with the batch at {first}, which cannot ({found.reason}): nothing was skipped",
            code=ErrorCode.INVALID_REQUEST,
            hint=f"let the group read and commit them, or go there: `barnabas group seek {group} {where.topic}:{where.partition} "
            f"--to {first} --execute`, then skip",
        )
    return state, committed, found


def _show(fields: dict[str, Any]) -> None:
    print_fields(
        {
            **{key: fields[key] for key in ("group", "state", "topic", "partition", "committed")},
            "skipped": f"offsets {fields['first_offset']} to {fields['last_offset']}, {fields['size_bytes']} bytes",
            "why": fields["reason"],
            "records": f"{fields['record_count']} by its header, codec {fields['codec']}, attributes {fields['attributes']:#06x}",
            "times": f"{_time(fields['base_timestamp_ms'])} to {_time(fields['max_timestamp_ms'])}",
            "producer": f"id {fields['producer_id']}, epoch {fields['producer_epoch']}, sequence {fields['base_sequence']}",
            "leader_epoch": fields["leader_epoch"],
            "crc": f"{fields['crc']:#010x}",
            "goes_on_at": fields["next_offset"],
        }
    )


def _time(timestamp_ms: int) -> str:
    return local_time(timestamp_ms, is_dated=True) if timestamp_ms < YEAR_9999_MS else f"{timestamp_ms} ms"
