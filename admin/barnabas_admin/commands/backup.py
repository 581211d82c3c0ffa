"""`barnabas topic export` and `topic import`: a topic with its configs and its groups' offsets, to files and back.

May touch:  the brokers, the admin client, files below the directory named.   Must not touch: topics that exist (import makes new ones).
Invariants: an export ends at the last stable offset that each partition had when it began, whatever writers do meanwhile; an import
            writes each record once, with its time, key and headers, into the partition that it came from.
Read next:  ../backup.py for what is in the files.
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from barnabas_admin.commands.topic import end_with_errors
from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options
from barnabas_admin.offset_seeking import Seek
from barnabas_admin.output import print_json, print_table, size_text, talk
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas_admin.backup import RestoredOffsets, SavedPartition, SavedTopic
    from barnabas_wire.client.cluster import ClusterClient

FETCH_BYTES_MAX = 8 * 1024 * 1024
LINES_PER_SEND = 5000


@click.command("export")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC…")
@click.option("-d", "--directory", required=True, type=click.Path(file_okay=False, path_type=Path), help="Where to.")
@common_options
def export(invocation: Invocation, topics: tuple[str, ...], directory: Path) -> None:
    """Save topics to a directory: records, configs, and where groups are; also while they are written to.

    Each partition is saved up to its last stable offset at the beginning, which the manifest and the output report.
    """
    from barnabas_admin.backup import MANIFEST
    from barnabas_admin.kafka import run_with_cluster

    described = list(invocation.admin.describe_topics(topics))
    end_with_errors(invocation, [topic for topic in described if topic.HasField("error")])
    for topic in described:
        if (directory / topic.name / MANIFEST).exists():
            raise AdminError(
                f"{directory / topic.name} holds a backup",
                code=ErrorCode.TOPIC_ALREADY_EXISTS,
                hint="name another directory",
            )
    rows: list[dict[str, Any]] = []
    for topic in described:
        (directory / topic.name).mkdir(parents=True, exist_ok=True)
        saved = run_with_cluster(invocation, partial(_export, topic=topic, directory=directory / topic.name))
        rows += [
            {"topic": saved.topic, "partition": p.partition, "start": p.start, "end": p.end, "size": p.size_bytes}
            for p in saved.partitions
        ]
        talk(f"{saved.topic}: {len(saved.partitions)} partitions, offsets of {len(saved.groups)} groups")
    _print(invocation, rows, ["TOPIC", "PARTITION", "START", "END", "SIZE"])


async def _export(client: ClusterClient, topic: Any, directory: Path) -> SavedTopic:
    from barnabas_admin.backup import SavedTopic, write_manifest
    from barnabas_admin.groups import describe_group, list_groups
    from barnabas_wire.client.metadata import EARLIEST, LATEST

    partitions = [TopicPartition(topic.name, part.partition) for part in topic.partitions]
    # the groups first: an offset that is committed later may lie beyond the point that is saved
    groups: dict[str, dict[int, int]] = {}
    for found in await list_groups(client):
        with contextlib.suppress(AdminError):  # it was deleted since
            rows = (await describe_group(client, found["group"]))["partitions"]
            offsets = {
                r["partition"]: r["committed"] for r in rows if r["topic"] == topic.name and r["committed"] is not None
            }
            if offsets:
                groups[found["group"]] = offsets
    starts = await client.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = await client.list_offsets(dict.fromkeys(partitions, LATEST), is_read_committed=True)
    saved = [
        await _save(client, p, directory / f"{p.partition}.log", start=int(starts[p].offset), end=int(ends[p].offset))
        for p in partitions
    ]
    manifest = SavedTopic(
        topic=topic.name,
        exported_at_ms=int(time.time() * 1000),
        replication_factor=len(topic.partitions[0].replicas),
        configs=dict(sorted(topic.overrides.items())),
        partitions=tuple(saved),
        groups=groups,
    )
    write_manifest(directory, manifest)
    return manifest


async def _save(
    client: ClusterClient, partition: TopicPartition, path: Path, *, start: int, end: int
) -> SavedPartition:
    import aiofiles

    from barnabas_admin.backup import SavedPartition, follow_no_link
    from barnabas_wire.records.batch import iterate_batches

    position, size = start, 0
    async with aiofiles.open(path, "wb", opener=follow_no_link) as file:
        while position < end:
            fetched = await client.fetch(partition, position, bytes_max=FETCH_BYTES_MAX, is_read_committed=True)
            for at, header in iterate_batches(fetched.records):
                if header.base_offset >= end:
                    break
                await file.write(bytes(fetched.records[at : at + header.size_bytes]))
                size += header.size_bytes
                position = max(position, int(header.next_offset))
    return SavedPartition(partition=partition.partition, start=start, end=end, size_bytes=size)


@click.command("import")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIRECTORY")
@click.argument("topics", nargs=-1, metavar="[TOPIC…]")
@click.option("--as", "new_name", metavar="NAME", help="Restore the one topic under this name.")
@click.option("-r", "--replicas", type=click.IntRange(min=1), help="Replicas of each partition; default: as it had.")
@click.option("--no-groups", is_flag=True, help="Leave the groups' offsets out.")
@common_options
def import_topics(
    invocation: Invocation,
    directory: Path,
    topics: tuple[str, ...],
    new_name: str | None,
    replicas: int | None,
    no_groups: bool,
) -> None:
    """Restore topics from a directory that export wrote, into this cluster or another. The topics must not exist.

    Offsets count again from 0; groups get the offsets that stand for what they had read. A group with members is left out.
    """
    from barnabas_admin.backup import MANIFEST, check_file, read_manifest

    names = topics or tuple(sorted(path.parent.name for path in directory.glob(f"*/{MANIFEST}")))
    if not names:
        raise AdminError(f"{directory} holds no backups", code=ErrorCode.RESOURCE_NOT_FOUND)
    if new_name is not None and len(names) != 1:
        raise click.UsageError("--as names one topic: name the one to restore")
    saved = {name: read_manifest(directory / name) for name in names}
    for name, manifest in saved.items():  # before anything is made
        for part in manifest.partitions:
            check_file(directory / name / f"{part.partition}.log", part)
    rows: list[dict[str, Any]] = []
    for name, manifest in saved.items():
        rows += _import(invocation, directory / name, manifest, new_name or name, replicas, with_groups=not no_groups)
    _print(invocation, rows, ["TOPIC", "PARTITION", "RECORDS"])


def _import(
    invocation: Invocation, directory: Path, saved: SavedTopic, name: str, replicas: int | None, *, with_groups: bool
) -> list[dict[str, Any]]:
    from barnabas_admin.backup import RestoredOffsets
    from barnabas_admin.kafka import run_with_cluster

    made = invocation.admin.create_topics(
        [name],
        partitions=len(saved.partitions),
        replication_factor=replicas or saved.replication_factor,
        configs=saved.configs,
    )
    end_with_errors(invocation, [item for item in made if item.HasField("error")])

    async def work(client: ClusterClient) -> list[dict[str, Any]]:
        rows = []
        groups: dict[str, list[Seek]] = {}
        for part in saved.partitions:
            committed = {
                group: offsets[part.partition] for group, offsets in saved.groups.items() if part.partition in offsets
            }
            restored = RestoredOffsets(committed)
            count = await _play(client, name, directory / f"{part.partition}.log", part, restored)
            rows.append({"topic": name, "partition": part.partition, "records": count})
            for group, offset in restored.finish().items():
                partition = TopicPartition(name, part.partition)
                groups.setdefault(group, []).append(
                    Seek(partition=partition, now=None, to=offset, start=0, end=count, is_clamped=False)
                )
        if with_groups:
            await _restore_groups(client, groups)
        return rows

    return run_with_cluster(invocation, work)


async def _play(client: ClusterClient, topic: str, path: Path, part: SavedPartition, restored: RestoredOffsets) -> int:
    """Write a partition's records again; how many."""
    from barnabas_admin.backup import restored_records
    from barnabas_admin.commands.records import ACKS, Line, Producer

    producer = Producer(client, topic, acks=ACKS["all"], compression="none")
    await producer.start(is_creating=False)
    lines: list[Line] = []
    for record in restored_records(path, part):
        restored.note(record)
        lines.append(Line(record.key, record.value, record.headers, part.partition, record.timestamp_ms))
        if len(lines) == LINES_PER_SEND:
            await producer.send(lines)
            lines = []
    await producer.send(lines)
    return producer.records


async def _restore_groups(client: ClusterClient, groups: dict[str, list[Seek]]) -> None:
    from barnabas_admin.commands.group_offsets import IDLE_STATES, commit_seeks, group_state

    for group, seeks in sorted(groups.items()):
        state = await group_state(client, group)
        if state not in IDLE_STATES:
            talk(f"group {group} has members ({state}): its offsets are left out")
            continue
        await commit_seeks(client, group, seeks)
        talk(f"group {group}: offsets of {len(seeks)} partitions restored")


def _print(invocation: Invocation, rows: list[dict[str, Any]], columns: list[str]) -> None:
    if invocation.is_json:
        print_json({"partitions": rows})
    else:
        cells = [[size_text(value) if key == "size" else value for key, value in row.items()] for row in rows]
        print_table(columns, cells)
