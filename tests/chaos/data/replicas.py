"""What replicas hold on the disks of stopped nodes, as events of a history; and the rot that is put there.

May touch:  files of stopped nodes.   Must not touch: running nodes, but to look for rot.
Invariants: reads with the wire's batches, nothing of the node's own log code.
Read next:  tests/checker/data_rules.py, whose E7s, E13l and E16 judge them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

from barnabas_wire.records.batch import crc_is_valid, iterate_batches
from tests.checker.data_history import Batch, Event, Replica

LOG_SUFFIX = ".log"
LOG_STARTS_FILE = "log-start-offset-checkpoint"
CLEAN_STOP_FILE = ".kafka_cleanshutdown"
"""Left by a node that stopped in order: its checkpoints say what it knew."""
EPOCHS_FILE = "leader-epoch-checkpoint"
_BATCH_HEADER_BYTES = 61


def read_replicas(data: Path, node: int, ends: Mapping[str, int]) -> Iterator[Event]:
    """The logs of one node: a Replica and its Batches for each partition but the metadata.

    Args:
        data: its log.dirs.
        node: its id.
        ends: key -> HW as clients were told it; for others the log's own end stands.
    """
    is_clean = (data / CLEAN_STOP_FILE).exists()
    starts = {fields[0] + "-" + fields[1]: int(fields[2]) for fields in _entries(data / LOG_STARTS_FILE, 3)}
    for directory in sorted(data.iterdir()):
        key = directory.name
        if not directory.is_dir() or not key.rpartition("-")[2].isdigit() or key.startswith("__cluster_metadata"):
            continue
        batches = list(_batches(directory, node, key))
        first = min((int(path.stem) for path in directory.glob(f"*{LOG_SUFFIX}")), default=0)
        end = batches[-1].last + 1 if batches else first
        yield Replica(
            node=node,
            key=key,
            start=max(starts.get(key, 0), first),
            end=end,
            high_watermark=ends.get(key, end),
            epochs=[(int(epoch), int(start)) for epoch, start in _entries(directory / EPOCHS_FILE, 2)]
            if is_clean
            else None,
        )
        yield from batches


def _batches(directory: Path, node: int, key: str) -> Iterator[Batch]:
    for path in sorted(directory.glob(f"*{LOG_SUFFIX}")):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            continue  # of a node that runs: deleted meanwhile
        for position, header in iterate_batches(data):
            whole = data[position : position + header.size_bytes]
            yield Batch(
                node=node,
                key=key,
                base=header.base_offset,
                last=header.last_offset,
                digest=hashlib.blake2b(whole, digest_size=12).hexdigest(),
                leader_epoch=header.partition_leader_epoch,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                is_valid=crc_is_valid(data, position, header),
            )


def _entries(path: Path, count: int) -> list[list[str]]:
    if not path.is_file():
        return []
    lines = [line.split() for line in path.read_text().splitlines()[2:]]
    return [fields for fields in lines if len(fields) == count]


def find_rot(data: Path, topics: tuple[str, ...], node: int) -> list[str]:
    """Batches of these topics with a wrong checksum, as the disk holds them. The page cache forgets the files again: a scrub
    may pass over what is in it."""
    found = []
    for topic in topics:
        for directory in sorted(data.glob(f"{topic}-*")):
            found += [
                f"{batch.key} {batch.base}" for batch in _batches(directory, node, directory.name) if not batch.is_valid
            ]
            for path in directory.glob(f"*{LOG_SUFFIX}"):
                _forget_pages(path)
    return found


def _forget_pages(path: Path) -> None:
    """Take a file out of the page cache."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return  # deleted meanwhile
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def rot(data: Path, topics: tuple[str, ...], random: Random, *, flips: int) -> list[str]:
    """Flip single bits in the records of sealed segments of these topics' partitions; where."""
    sealed = []
    for topic in topics:
        for directory in sorted(data.glob(f"{topic}-*")):
            sealed += [path for path in sorted(directory.glob(f"*{LOG_SUFFIX}"))[:-1] if path.stat().st_size > 0]
    done = []
    for path in random.sample(sealed, min(flips, len(sealed))):
        content = bytearray(path.read_bytes())
        batches = [(position, header.size_bytes) for position, header in iterate_batches(bytes(content))]
        position, size = random.choice(batches)
        at = position + random.randrange(_BATCH_HEADER_BYTES, size)
        content[at] ^= 1 << random.randrange(8)
        path.write_bytes(content)
        _forget_pages(path)
        done.append(f"{path.parent.name}/{path.name} at {at}")
    return done
