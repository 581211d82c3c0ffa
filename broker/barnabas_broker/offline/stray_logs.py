"""`barnabas-server log strays`, `log adopt` and `log delete-stray`: logs that a broker has set aside, and what becomes of them.

May touch:  files of log directories; stdout, stderr.   Must not touch: a running node's logs that serve, the network.
Invariants: nothing is adopted or deleted but what was named, and ends in -stray; adopting needs the directory's lock, so no broker
            runs there; what was in the place of an adopted log is set aside in its turn; a crash halfway leaves the
            replica on the list of those that have lost records.
Read next:  barnabas_log/directories/topic_witness.py (why logs are set aside), directory_state.py (the list), and
            replication's replica_logs.py.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from barnabas_broker.metadata.meta_properties import StorageError
from barnabas_log.directories.directory_state import DirectoryState, LostReplica
from barnabas_log.directories.disk_space import Reserve
from barnabas_log.directories.log_homes import STRAY_SUFFIX
from barnabas_log.directories.saved_offsets import SavedOffsets
from barnabas_log.directories.topic_witness import read_witnesses, witness_files
from barnabas_log.disk import RealDisk
from barnabas_log.errors import DirectoryLocked
from barnabas_log.tail.segment import LOG_SUFFIX
from barnabas_wire.kafka.ids import NO_OFFSET, ZERO_UUID, Offset, TopicPartition, Uuid
from barnabas_wire.records.batch import HEADER_BYTES, CorruptBatch, read_header

VERBS = ("strays", "adopt", "delete-stray")
_NAME = re.compile(rf"(.+)-(\d+)\.[0-9a-f]{{34}}{STRAY_SUFFIX}")


class Stray(NamedTuple):
    """One log that was set aside."""

    path: Path
    topic_partition: TopicPartition
    metadata: Uuid | None
    """What partition.metadata names."""
    witness: Uuid | None
    """What topic-id.witness names."""
    first_offset: Offset
    end_offset: Offset
    """As far as its headers can be read."""
    size_bytes: int


def add_verbs(actions: Any) -> None:
    """Put them beside `log dump`."""
    strays = actions.add_parser(
        "strays", help="list logs that brokers have set aside, and replicas that have lost records"
    )
    strays.add_argument("paths", nargs="+", metavar="LOG_DIR", help="log directories (log.dirs)")
    adopt = actions.add_parser("adopt", help="put a log that was set aside back into its place (its broker is stopped)")
    adopt.add_argument("paths", nargs=1, metavar="STRAY", help="the directory that ends in -stray")
    adopt.add_argument("--topic-id", help="of the topic; without it, that of the log which is in its place now")
    delete = actions.add_parser("delete-stray", help="remove a log that was set aside, for good")
    delete.add_argument("paths", nargs=1, metavar="STRAY", help="the directory that ends in -stray")
    delete.add_argument("--yes", action="store_true", help="do not ask")
    for parser in (strays, adopt, delete):
        parser.add_argument("-o", "--output", choices=("text", "json"), default="text")


def run(options: argparse.Namespace) -> int:
    """The verb. Raises StorageError that says what is wrong, and what to do."""
    with closing(RealDisk(wants_ring=False)) as disk:
        if options.action == "strays":
            return _list(disk, options)
        stray = _stray(disk, Path(options.paths[0]).resolve())
        if options.action == "adopt":
            return _adopt(disk, stray, options)
        return _delete(disk, stray, options)


# --- the list ---------------------------------------------------------------------------------------------------------


def _list(disk: RealDisk, options: argparse.Namespace) -> int:
    strays: list[Stray] = []
    lost: list[tuple[Path, TopicPartition, LostReplica]] = []
    for text in options.paths:
        directory = Path(text).resolve()
        if not directory.is_dir():
            raise StorageError(f"{text} is no directory; name a log directory (log.dirs)")
        strays += [_stray(disk, path) for path in sorted(directory.iterdir()) if _NAME.fullmatch(path.name)]
        state = DirectoryState(disk, str(directory))
        state.load()
        lost += [(directory, name, replica) for name, replica in sorted(state.lost.items())]
    if options.output == "json":
        for line in (*map(_as_json, strays), *(_lost_as_json(*each) for each in lost)):
            print(json.dumps(line, ensure_ascii=False))
        return 0
    for stray in strays:
        print(
            f"{stray.topic_partition}: offsets {stray.first_offset} to {stray.end_offset}, {stray.size_bytes} bytes, "
            f"partition.metadata names {_named(stray.metadata)}, topic-id.witness {_named(stray.witness)}\n  {stray.path}"
        )
    for directory, name, replica in lost:
        print(f"{name}: has lost records ({replica.why}) and leads nothing until it is refilled\n  {directory}")
    print(f"{len(strays)} set aside, {len(lost)} replicas have lost records", file=sys.stderr)
    if strays:
        print(
            "barnabas-server: with its broker stopped, `barnabas log adopt STRAY` puts one back into its place; `barnabas log "
            "delete-stray STRAY` removes it for good",
            file=sys.stderr,
        )
    return 0


def _as_json(stray: Stray) -> dict[str, Any]:
    return {
        "api_version": "v1",
        "kind": "stray",
        "topic": stray.topic_partition.topic,
        "partition": stray.topic_partition.partition,
        "directory": str(stray.path),
        "metadata_topic_id": None if stray.metadata is None else str(stray.metadata),
        "witness_topic_id": None if stray.witness is None else str(stray.witness),
        "first_offset": stray.first_offset,
        "end_offset": stray.end_offset,
        "size": stray.size_bytes,
    }


def _lost_as_json(directory: Path, name: TopicPartition, replica: LostReplica) -> dict[str, Any]:
    return {
        "api_version": "v1",
        "kind": "lost",
        "topic": name.topic,
        "partition": name.partition,
        "directory": str(directory),
        "topic_id": str(replica.topic_id),
        "end_offset": replica.end_offset,
        "why": replica.why,
    }


def _named(topic_id: Uuid | None) -> str:
    return "no topic" if topic_id is None else f"topic {topic_id}"


def _stray(disk: RealDisk, path: Path) -> Stray:
    found = _NAME.fullmatch(path.name)
    if found is None or not path.is_dir():
        raise StorageError(
            f"{path} is no log that was set aside; `barnabas log strays LOG_DIR` lists those (their names end in {STRAY_SUFFIX})"
        )
    name = TopicPartition(found[1], int(found[2]))
    said = read_witnesses(disk, str(path), name)
    segments = sorted(each for each in path.glob(f"*{LOG_SUFFIX}") if each.stem.isdecimal())
    first = Offset(int(segments[0].stem)) if segments else Offset(0)
    end = first
    for segment in reversed(segments):
        end = max((*_ends(segment), Offset(int(segment.stem))))
        if end > int(segment.stem):
            break
    size = sum(each.stat().st_size for each in segments)
    return Stray(path, name, said.metadata, said.witness, first, end, size)


def _ends(segment: Path) -> Iterator[Offset]:
    """Where its batches end, as far as their headers can be read."""
    size = segment.stat().st_size
    position = 0
    with segment.open("rb") as file:
        while size - position >= HEADER_BYTES:
            file.seek(position)
            try:
                header = read_header(file.read(HEADER_BYTES))
            except CorruptBatch:
                return
            position += header.size_bytes
            if position > size:
                return
            yield header.next_offset


# --- what becomes of one ----------------------------------------------------------------------------------------------


def _adopt(disk: RealDisk, stray: Stray, options: argparse.Namespace) -> int:
    directory, name = stray.path.parent, stray.topic_partition
    place = directory / str(name)
    try:
        disk.lock_directory(str(directory))
    except DirectoryLocked as error:
        raise StorageError(f"{error}: stop the broker that runs there, and adopt the log then") from error
    topic_id = _topic_id(disk, stray, place, options.topic_id)
    state = DirectoryState(disk, str(directory))
    state.load()
    state.add_lost({name: LostReplica(topic_id, NO_OFFSET, f"the adoption of {stray.path.name} was begun")})
    replaced = None
    if place.exists():
        replaced = _free(stray.path)
        disk.rename(str(place), str(replaced))
    for file, content in witness_files(topic_id, name):
        disk.write_file_atomically(str(stray.path / file), content)
    disk.rename(str(stray.path), str(place))
    disk.sync_directory(str(directory))
    saved = SavedOffsets(disk, str(directory), logs={}, reserve=Reserve(disk, "", 0))
    saved.load()
    saved.replace(name, topic_id, end_offset=stray.end_offset)
    state.forget_lost((name,))
    if options.output == "json":
        told = {"api_version": "v1", "topic": name.topic, "partition": name.partition, "topic_id": str(topic_id)}
        kept_in = None if replaced is None else str(replaced)
        print(json.dumps({**told, "directory": str(place), "set_aside": kept_in}))
    else:
        print(f"{name} of topic {topic_id} is in its place again: offsets {stray.first_offset} to {stray.end_offset}")
        if replaced is not None:
            print(f"what was there is kept in {replaced}")
    print(
        f"barnabas-server: start the broker. Where another replica leads, this one follows it; where none does, let it lead with what "
        f"it holds: barnabas topic elect {name.topic}:{name.partition} --unclean",
        file=sys.stderr,
    )
    return 0


def _topic_id(disk: RealDisk, stray: Stray, place: Path, asked: str | None) -> Uuid:
    if asked is not None:
        try:
            return Uuid.parse(asked)
        except ValueError as error:
            raise StorageError(f"--topic-id {asked}: {error}; `barnabas topic describe` shows it") from error
    there = ZERO_UUID if not place.exists() else read_witnesses(disk, str(place), stray.topic_partition).topic_id
    if there == ZERO_UUID:
        raise StorageError(
            f"no log in {place} says which topic is meant: name it with --topic-id (`barnabas topic describe "
            f"{stray.topic_partition.topic}` shows it)"
        )
    return there


def _free(path: Path) -> Path:
    """A name beside that stray that nothing has."""
    stem = path.name.removesuffix(STRAY_SUFFIX)[:-2]
    names: Sequence[Path] = [path.with_name(f"{stem}{number:02x}{STRAY_SUFFIX}") for number in range(256)]
    return next(name for name in names if not name.exists())


def _delete(disk: RealDisk, stray: Stray, options: argparse.Namespace) -> int:
    if not options.yes:
        raise StorageError(
            f"{stray.path} holds offsets {stray.first_offset} to {stray.end_offset} of {stray.topic_partition}, which may be nowhere "
            "else; say --yes to remove it for good"
        )
    disk.remove_tree(str(stray.path))
    disk.sync_directory(str(stray.path.parent))
    if options.output == "json":
        print(json.dumps({"api_version": "v1", "deleted": str(stray.path)}))
    else:
        print(f"{stray.path} is removed")
    return 0
