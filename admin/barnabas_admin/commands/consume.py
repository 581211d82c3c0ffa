"""`barnabas topic consume`: lines, or anything else, from records.

May touch:  standard output, the file named, the brokers.     Must not touch: the admin service beyond finding the brokers.
Invariants: what -o json prints, produce reads; a group's offsets are committed only for what was printed; no mistyped name becomes
            a topic.
Read next:  ../consuming.py, ../record_format.py, ../group_member.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import click

from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options
from barnabas_admin.output import printable, talk
from barnabas_admin.record_format import Columns, Filter, compile_format, json_line, text_formatter
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas_wire.client.cluster import ClusterClient
    from barnabas_wire.records.batch import Record

IDLE_PAUSE_S = 0.1
COMMIT_PAUSE_S = 1.0


@click.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC…")
@click.option("-n", "--count", type=click.IntRange(min=1), help="End after this many records.")
@click.option(
    "-p", "--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Only these; repeatable."
)
@click.option(
    "--offset",
    default="start",
    metavar="WHERE",
    help="start (default), end, N, -N (N before the end), @WHEN (a moment).",
)
@click.option("--from-beginning", "offset", flag_value="start", help="The same as --offset start.")
@click.option("--until", metavar="WHERE", help="End before this place: N, -N, @WHEN.")
@click.option("-e", "--exit-at-end", is_flag=True, help="End at what is the end of the topic now; else follow it.")
@click.option(
    "-r", "--regex", "is_regex", is_flag=True, help="TOPIC is a regular expression that a whole name matches."
)
@click.option("-g", "--group", metavar="GROUP", help="Read as a member of this group, and commit what was printed.")
@click.option("-f", "--format", "form", metavar="FORMAT", help="As kcat: '%t %p %o %k %s %h %T\\n'; see --format help.")
@click.option("-k", "--key-separator", metavar="TEXT", help="Print key, separator, value.")
@click.option("--keys", "has_keys", is_flag=True, help="Print the key and a tab before the value.")
@click.option("--headers", "has_headers", is_flag=True, help="Print the headers before it.")
@click.option("--timestamps", "has_timestamps", is_flag=True, help="Print the time before it.")
@click.option("--offsets", "has_offsets", is_flag=True, help="Print partition and offset before it.")
@click.option("--filter-key", "keys", multiple=True, metavar="GLOB", help="Only records whose key matches; repeatable.")
@click.option("--filter-value", "values", multiple=True, metavar="GLOB", help="Only records whose value matches.")
@click.option("--filter-header", "headers", multiple=True, metavar="NAME=GLOB", help="Only records with such a header.")
@click.option(
    "--filter-field",
    "fields",
    multiple=True,
    metavar="PATH=GLOB",
    help="Only records whose value is JSON with such a field: user=u7, to.code=J*, items.0.sku=A?.",
)
@click.option(
    "--to-file", "target", metavar="FILE", type=click.Path(dir_okay=False), help="Write there, not to standard output."
)
@click.option("--raw", "is_raw", is_flag=True, help="Give a terminal control characters as they are in the records.")
@common_options
def consume(
    invocation: Invocation,
    topics: tuple[str, ...],
    count: int | None,
    partitions: tuple[int, ...],
    offset: str,
    until: str | None,
    exit_at_end: bool,
    is_regex: bool,
    group: str | None,
    form: str | None,
    key_separator: str | None,
    has_keys: bool,
    has_headers: bool,
    has_timestamps: bool,
    has_offsets: bool,
    keys: tuple[str, ...],
    values: tuple[str, ...],
    headers: tuple[str, ...],
    fields: tuple[str, ...],
    target: str | None,
    is_raw: bool,
) -> None:
    """Print the records of a topic.

    In order within a partition, in no order between partitions. Follows the topic until Ctrl-C, -n, -e or --until ends it. With
    -o json one object per line; a key, value or header that is no UTF-8 comes as key_base64, value_base64. WHEN is
    milliseconds since 1970, 2026-11-25T10:00, or -2h from now.
    """
    from barnabas_admin.consuming import Consumer, parse_offset
    from barnabas_admin.kafka import run_with_cluster
    from barnabas_admin.record_format import VERBS, pairs_of

    if form == "help":
        click.echo(f"{VERBS}; \\n, \\t, \\xHH as in C")
        return
    if group is not None and (partitions or until is not None):
        raise click.UsageError("a group says who reads which partition, and from where: leave -p and --until out")
    now_ms = int(time.time() * 1000)
    begin = parse_offset(offset, now_ms=now_ms)
    end = None if until is None else parse_offset(until, now_ms=now_ms)
    is_bounded = exit_at_end or until is not None
    if form is not None:
        line_of = compile_format(form)
    elif invocation.is_json:
        line_of = json_line
    else:
        line_of = text_formatter(
            Columns(
                has_topic=is_regex or len(topics) > 1,
                has_timestamp=has_timestamps,
                has_partition=has_offsets,
                has_offset=has_offsets,
                has_headers=has_headers,
                key_separator=key_separator if key_separator is not None else "\t" if has_keys else None,
            )
        )
    wanted = Filter(
        keys=keys,
        values=values,
        headers=pairs_of(headers, what="--filter-header"),
        fields=pairs_of(fields, what="--filter-field"),
    )

    async def work(client: ClusterClient) -> None:
        names = await _matching(client, topics) if is_regex else list(dict.fromkeys(topics))
        consumer = Consumer(client)
        left = count
        async with open_output(target, is_raw=is_raw) as write:

            async def print_some(found: list[tuple[TopicPartition, Record]]) -> int:
                """How many of what was found were taken, those that no filter let through included."""
                nonlocal left
                taken, lines = 0, []
                for partition, record in found:
                    if left == 0:
                        break
                    taken += 1
                    if wanted.passes(record):
                        lines.append(line_of(partition.topic, partition.partition, record))
                        left = None if left is None else left - 1
                await write(b"".join(lines))
                return taken

            if group is not None:
                await _consume_as_member(
                    client,
                    consumer,
                    group,
                    names,
                    begin,
                    print_some,
                    lambda: left == 0,
                    is_bounded=is_bounded,
                    timeout_s=invocation.timeout_s,
                )
                return
            await consumer.start(await consumer.partitions_of(names, partitions), begin, until=end)
            while left != 0 and not (is_bounded and consumer.is_at_end):
                found = await consumer.poll(is_bounded=is_bounded)
                await print_some(found)
                if not found and not (is_bounded and consumer.is_at_end):
                    await asyncio.sleep(IDLE_PAUSE_S)

    with contextlib.suppress(KeyboardInterrupt):
        run_with_cluster(invocation, work)


async def _matching(client: ClusterClient, patterns: tuple[str, ...]) -> list[str]:
    try:
        compiled = [re.compile(pattern) for pattern in patterns]
    except re.error as error:
        raise click.UsageError(f"not a regular expression: {error}") from None
    known = (await client.metadata()).topics
    found = sorted(
        name for name in known if not name.startswith("__") and any(pattern.fullmatch(name) for pattern in compiled)
    )
    if not found:
        raise AdminError(
            f"no topic matches {' or '.join(patterns)}",
            code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            hint="`barnabas topic list` shows the topics; internal ones are matched by none",
        )
    return found


async def _consume_as_member(
    client: ClusterClient,
    consumer: object,
    group: str,
    names: list[str],
    begin: tuple[str, int],
    print_some: Callable[[list[tuple[TopicPartition, Record]]], Awaitable[int]],
    is_done: Callable[[], bool],
    *,
    is_bounded: bool,
    timeout_s: float,
) -> None:
    """Read as a member until done. What was printed is committed now and then, before a rebalance, and at the end."""
    from barnabas_admin.consuming import Consumer
    from barnabas_admin.group_member import GroupMember

    assert isinstance(consumer, Consumer)
    await consumer.partitions_of(names, ())
    # the coordinator answers a join when all have come, or when this is over: the answer must find us waiting
    member = GroupMember(client, group, names, join_timeout_s=max(1.0, timeout_s - 3.0))
    printed: dict[TopicPartition, int] = {}
    loop = asyncio.get_running_loop()
    try:
        while not is_done():
            assigned = await member.join()
            talk(f"{group}: reading {', '.join(map(str, assigned)) or 'nothing: others read all partitions'}")
            await consumer.start(assigned, begin, known=await member.committed(assigned))
            printed, committed_at_s = {}, loop.time()
            while not is_done() and not (is_bounded and assigned and consumer.is_at_end):
                if await member.must_rejoin():
                    break
                found = await consumer.poll(is_bounded=is_bounded)
                taken = await print_some(found)
                printed |= {partition: record.offset + 1 for partition, record in found[:taken]}
                if printed and loop.time() - committed_at_s > COMMIT_PAUSE_S:
                    await member.commit(printed)
                    printed, committed_at_s = {}, loop.time()
                if not found:
                    await asyncio.sleep(IDLE_PAUSE_S)
            else:
                return
            await member.commit(printed)
            printed = {}
    finally:
        await member.commit(printed)
        await member.leave()


@contextlib.asynccontextmanager
async def open_output(path: str | None, *, is_raw: bool = False) -> AsyncIterator[Callable[[bytes], Awaitable[None]]]:
    """Where records go: the function that writes bytes to a new file, or to standard output. A terminal is shown control characters
    as text unless `is_raw`. Raises OSError."""
    if path is not None:
        import aiofiles

        async with aiofiles.open(path, "wb") as file:

            async def write_to_file(data: bytes) -> None:
                await file.write(data)
                await file.flush()  # Ctrl-C loses nothing that was consumed

            yield write_to_file
        return

    is_shown = sys.stdout.isatty() and not is_raw

    async def write_to_stdout(data: bytes) -> None:
        if is_shown:
            data = printable(data.decode(errors="backslashreplace")).encode()
        sys.stdout.buffer.write(data)
        sys.stdout.flush()

    yield write_to_stdout
