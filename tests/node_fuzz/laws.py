"""What a damaged file may not lead to.

May touch:  the nodes of one image through their clients' protocols, and its files.   Must not touch: damage.
Invariants: the truth and the undamaged copy say what there was; what a reader gets, and what lies in files, says what there is.
Read next:  images.py.

kept     What was acknowledged and lies intact on an in-sync replica is read again: of replication factor 3 all of it, for one node alone is
         damaged; of replication factor 1 all but the batches that the damaged bytes held. What is not read, but lies on the disk still (set
         aside, its replica faulty, its node not started), is hidden: allowed where the damaged file is of that partition or that node,
         and where somebody is told.
replicas What a replica in the ISR holds is what was acknowledged.
gone     What was aborted, deleted, removed by a compacted topic's tombstone or with its topic stays away. Of replication factor 1 deleted
         records may be read again where the log's start is lost, if somebody is told.
told     Where anything is lost or hidden, a warning names the log.
starts   A node that ends says why in one line that names the file or its directory and what to do. It does not stand still.
healthy  Nothing is HEALTHY that is not: all nodes run, everything is read.

No verdict hangs on how busy the machine is. What the scrub must find is judged when the damaged node's has found it;
all other waiting is counted in looks at the cluster, which take longer where everything does.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

from barnabas_admin.client import AdminClient
from barnabas_admin.errors import AdminError
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import METADATA_TOPIC, TopicPartition
from barnabas_wire.records.batch import CorruptBatch, crc_is_valid, iterate_batches
from tests.node_fuzz import world
from tests.node_fuzz.cluster import (
    ADMINS,
    BOOTSTRAP,
    HOST,
    KAFKA,
    METRICS,
    NODES,
    Heard,
    RealNodes,
    data_directory,
    port,
)
from tests.node_fuzz.damage import Choice, Damage

PROBE_S = 0.15
"""Between two looks."""
SETTLE_LOOKS = 50
"""For a cluster to be whole, or to be as whole as it gets, once each node that runs takes connections."""
START_LOOKS = 400
"""For each node that runs to take connections."""
STILL_LOOKS = 16
"""What health has said so often is what it stays at."""
TOLD_LOOKS = 75
"""Within which a node that met damage has told the controller."""
REPAIRED_LOOKS = 100
"""Within which what the scrub has found is repaired."""
CALL_S = 2.0
_FOUND = re.compile(r"^barnabas_log_damage_found_total\{[^}]*\} (?!0\.0$)", re.MULTILINE)
_PASSED = re.compile(r"^barnabas_log_scrub_passes_total\{[^}]*\} (?!0\.0$|1\.0$)", re.MULTILINE)
"""Twice: the first pass goes on where the run before had come to."""
_COMMAND = re.compile(r"\bbarnabas|restore|mend|mount|format|correct|remove|take it out|copy", re.IGNORECASE)


@dataclass
class Case:
    """An image that has been started."""

    choice: Choice
    damage: Damage
    nodes: RealNodes
    truth: world.Truth
    undamaged: Path
    heard: Heard
    health_reasons: list[str] | None = None
    """What health said at last; None where nobody answered."""
    unread: dict[TopicPartition, str] = field(default_factory=dict)
    """Partitions that cannot be read, and why."""

    @property
    def partition(self) -> TopicPartition | None:
        """Whose file is damaged; None for a file of the node."""
        directory, slash, _ = self.damage.path.rpartition("/")
        topic, _, index = directory.rpartition("-")
        is_data = bool(slash) and index.isdigit() and topic != METADATA_TOPIC
        return TopicPartition(topic, int(index)) if is_data else None

    @property
    def down(self) -> list[int]:
        """Nodes that have ended."""
        return [each.id for each in self.nodes.nodes.values() if each.task.done()]


class Known(NamedTuple):
    """A class of failures that no verdict counts, until what mends it is here."""

    what: str
    """Pattern of `<file> <kind>: <law>: <words>`."""
    reason: str


KNOWN: tuple[Known, ...] = (
    Known(
        r" old: gone: lone-compacted-\d+ shows removed keys again",
        "an older copy of one segment is sound in itself, and a lone replica has no second witness of what compaction left of it",
    ),
    Known(
        r"^segment another's: (told: |healthy: HEALTHY, but )lone-\d+ lacks \d+ acknowledged records",
        "another partition's segment that begins and ends at the same offsets is sound in itself, and a lone replica has no second witness "
        "of what was in its own",
    ),
)


def reason_of(words: str) -> str | None:
    """Why it does not count; None when it does."""
    return next((known.reason for known in KNOWN if re.search(known.what, words)), None)


async def settle(case: Case, *, without: Collection[int] = ()) -> None:
    """Wait until the cluster is healthy but for those nodes, or stays as it is. While a node is still starting, as on a busy machine it
    does for long, looks prove little: START_LOOKS bounds them."""
    still, last, looks = 0, None, 0.0
    with AdminClient(ADMINS, timeout_s=CALL_S) as admin:
        while looks < SETTLE_LOOKS:
            is_starting = await _is_starting(case)
            try:
                health = await asyncio.to_thread(admin.describe_health)
            except AdminError:
                now = None
            else:
                now = (list(health.reasons), len(health.brokers), len(health.brokers_fenced), list(health.voters_down))
                case.health_reasons = list(health.reasons)
                up = len(health.brokers) - len(health.brokers_fenced)
                is_led = bool(without) and health.controller_id >= 0
                if not is_starting and up >= len(NODES) - len(without) and (is_led or not health.reasons):
                    return
            looks += SETTLE_LOOKS / START_LOOKS if is_starting else 1
            still = still + 1 if not is_starting and now is not None and now == last else 0
            last = now
            if still > STILL_LOOKS:
                return
            await asyncio.sleep(PROBE_S)
    if last is None:
        case.health_reasons = None


async def _is_starting(case: Case) -> bool:
    """Whether a node that runs takes no connection yet, and could: a majority has not ended. Health does not tell: right after a cold
    start it shows brokers as they were before."""
    if 2 * len(case.down) > len(NODES):
        return False
    for node in case.nodes.nodes.values():
        if node.task.done():
            continue
        try:
            _, writer = await asyncio.open_connection(HOST, port(node.id, KAFKA))
        except OSError:
            return True
        writer.close()
    return False


async def judge(case: Case) -> list[str]:
    """The laws that are broken, each with what was seen."""
    await settle(case)
    broken = _judge_starts(case)
    client = ClusterClient(BOOTSTRAP, timeout_s=CALL_S)
    keys = [key for key in case.truth.partitions if key.topic != "gone"]
    missing: dict[TopicPartition, set[int]] = {}
    try:
        await client.metadata()
        for key, found in zip(keys, await asyncio.gather(*(_read(case, client, key) for key in keys)), strict=True):
            truth = case.truth.partitions[key]
            broken += _judge_gone(case, key, truth, found)
            if lacking := _missing(truth, found, is_transactional="copied" in key.topic):
                missing[key] = lacking
        if missing or case.down:
            await _wait_told(case)
        view = await client.metadata()
        if "gone" in view.topics:
            broken.append("gone: the deleted topic is there again")
        broken += await _judge_group(case, client)
        if case.health_reasons == []:
            for topic, partitions in view.topics.items():
                for index, partition in partitions.items():
                    broken += _judge_replicas(case, TopicPartition(topic, index), set(partition.isr))
    except (KafkaError, OSError) as error:
        broken.append(f"kept: the cluster does not answer: {error}")
    finally:
        await client.close()
    for key, offsets in missing.items():
        broken += _judge_missing(case, key, offsets)
    if case.health_reasons == [] and case.down:
        broken.append(f"healthy: HEALTHY with nodes {case.down} down")
    return broken


async def _read(case: Case, client: ClusterClient, key: TopicPartition) -> world.Found:
    is_scrubbed = False
    for _ in range(REPAIRED_LOOKS):
        try:
            found = await world.read_partition(client, key, known=sorted(case.truth.partitions[key].acknowledged))
        except (KafkaError, OSError) as error:
            case.unread[key] = str(error)
            return world.Found(0, 0)
        if not found.damaged:
            return found
        # What rots is found by the scrub: then what lies behind it is read, and comes back from another replica where there is one.
        if not is_scrubbed:
            await _wait_scrubbed(case)
            is_scrubbed = True
        elif world.is_lone(key):
            return found
        else:
            await asyncio.sleep(PROBE_S)
    return found


async def _wait_scrubbed(case: Case) -> None:
    """Until the damaged node has found damage or read its whole directory, or has ended; else the image fails by images.IMAGE_S."""
    page = f"http://{HOST}:{port(case.choice.node, METRICS)}/metrics"
    while case.choice.node not in case.down:
        with suppress(OSError), await asyncio.to_thread(urlopen, page, timeout=CALL_S) as answer:
            told = answer.read().decode()
            if _FOUND.search(told) or _PASSED.search(told):
                return
        await asyncio.sleep(PROBE_S)


async def _wait_told(case: Case) -> None:
    """A report of a damaged replica may be under way to the controller."""
    with AdminClient(ADMINS, timeout_s=CALL_S) as admin:
        for _ in range(TOLD_LOOKS):
            if case.health_reasons != []:
                return
            await asyncio.sleep(PROBE_S)
            with suppress(AdminError):
                case.health_reasons = list((await asyncio.to_thread(admin.describe_health)).reasons)


def _is_about(case: Case, line: str) -> bool:
    """Whether a warning is about what is damaged."""
    for path in (case.damage.path, *case.damage.others):
        directory, _, name = path.rpartition("/")
        if name in line or (directory and directory in line):
            return True
    return False


def _judge_starts(case: Case) -> list[str]:
    broken = []
    for node in case.nodes.nodes.values():
        if not node.task.done():
            continue
        error, refusal = node.error, node.refusal
        if refusal is None:
            broken.append(f"starts: node {node.id} ends with a traceback: {_leaf(error)!r}")
        elif node.id != case.choice.node:
            broken.append(f"starts: node {node.id}, which is sound, ends: {refusal.message}")
        else:
            names = (str(data_directory(case.nodes.root, node.id)), case.damage.path.rpartition("/")[2])
            if not any(name in refusal.message for name in names):
                broken.append(f"starts: no file is named: {refusal.message}")
            if not _COMMAND.search(refusal.message):
                broken.append(f"starts: nothing to do is named: {refusal.message}")
    if case.health_reasons is None and len(case.down) < 2:
        broken.append("starts: no node answers for health")
    elif "broker_down" in (case.health_reasons or []) and not case.down:
        broken.append(f"starts: a broker is down, and no node has ended ({case.health_reasons})")
    for each in case.heard.tracebacks:
        broken.append(f"traceback: {each}")
    return broken


def _leaf(error: BaseException | None) -> BaseException | None:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _missing(truth: world.PartitionTruth, found: world.Found, *, is_transactional: bool) -> set[int]:
    missing = set()
    for offset, value in truth.acknowledged.items():
        record = found.records.get(offset)
        if record is None or record.value != value or (is_transactional and offset not in found.committed):
            missing.add(offset)
    return missing


def _judge_gone(case: Case, key: TopicPartition, truth: world.PartitionTruth, found: world.Found) -> list[str]:
    broken = []
    back = truth.aborted & found.committed
    if back:
        broken.append(f"gone: {key} shows aborted records as committed: {sorted(back)[:5]}")
    below = {offset for offset in found.records if offset < truth.start}
    is_start_lost = world.is_lone(key) and (case.choice.file in _STARTS or case.partition == key)
    if below and not (is_start_lost and _is_anything_told(case)):
        broken.append(
            f"gone: {key} shows {len(below)} deleted records again, from {min(below)}; it started at {truth.start}"
        )
    keys = {record.key for record in found.records.values() if record.value is not None} & truth.removed
    if keys:
        broken.append(f"gone: {key} shows removed keys again: {sorted(filter(None, keys))[:3]}")
    return broken


def _is_anything_told(case: Case) -> bool:
    return case.health_reasons != [] or any(_is_about(case, line) for line in case.heard.lines)


_STARTS = ("log starts", "all checkpoints", "checkpoint twins", "checkpoints and twins")
"""Files without which nobody knows of replication factor 1 where a log starts."""
MAY_HIDE = {"partition.metadata", "topic witness", "meta.properties", "recovery points", "directory state", *_STARTS}
"""Files that say whose a log is or how far it must reach: where they contradict it, it may be set aside, until somebody decides."""


def _judge_missing(case: Case, key: TopicPartition, missing: set[int]) -> list[str]:
    """Of a partition that is not read whole."""
    words = f"{key} lacks {len(missing)} acknowledged records, from {min(missing)}"
    if key in case.unread:
        words = f"{key} is not read: {case.unread[key]}"
    if not world.is_lone(key):
        return [f"kept: {words}"]
    if case.choice.node != key.partition + 1:  # partition 0 of a lone topic is on node 1
        return [f"kept: {words}, on another node than the damaged one"]
    broken = []
    excused = _held_by_damaged_bytes(case, key)
    on_disk = _offsets_on_disk(case, key)
    lost = missing - on_disk - excused
    hidden = (missing & on_disk) - excused
    if lost:
        broken.append(f"kept: {words}; {len(lost)} that the damaged bytes did not hold are on no disk")
    may_hide = case.choice.node in case.down or (case.choice.file in MAY_HIDE and case.partition in (None, key))
    # A log that ends below what was flushed leads nothing before somebody accepts the loss.
    may_hide = may_hide or (
        case.choice.file == "segment" and case.partition == key and "records_lost" in (case.health_reasons or ())
    )
    if hidden and not may_hide:
        broken.append(f"kept: {words}; {len(hidden)} are on the disk and not read")
    if case.health_reasons == []:
        if not any(_is_about(case, line) for line in case.heard.lines):
            broken.append(f"told: {words}, and nobody is told")
        broken.append(f"healthy: HEALTHY, but {words}")
    return broken


def _offsets_on_disk(case: Case, key: TopicPartition) -> set[int]:
    """Offsets in sound batches of any directory whose name begins with the partition's."""
    data = data_directory(case.nodes.root, key.partition + 1)
    found: set[int] = set()
    for directory in data.glob(f"{key.topic}-{key.partition}*"):
        if directory.name.endswith("-delete"):
            continue  # it goes in a moment
        for path in directory.glob("*.log*"):
            found |= _sound_offsets(path)
    return found


def _sound_offsets(path: Path) -> set[int]:
    found: set[int] = set()
    data = path.read_bytes() if path.is_file() else b""
    try:
        for position, header in iterate_batches(data):
            if position + header.size_bytes <= len(data) and crc_is_valid(data, position, header):
                found |= set(range(header.base_offset, header.next_offset))
    except (CorruptBatch, ValueError):
        pass
    return found


def _held_by_damaged_bytes(case: Case, key: TopicPartition) -> set[int]:
    """Offsets of the batches that the damaged bytes of the partition's own segment held."""
    if case.partition != key or case.choice.file != "segment":
        return set()
    first, end = case.damage.changed
    held: set[int] = set()
    for position, header in iterate_batches(case.damage.before):
        if position < end and position + header.size_bytes > first:
            held |= set(range(header.base_offset, header.next_offset))
    return held


def _judge_replicas(case: Case, key: TopicPartition, isr: set[int]) -> list[str]:
    """Of a cluster that is HEALTHY."""
    truth = case.truth.partitions.get(key)
    if truth is None or "compacted" in key.topic or world.is_lone(key):
        return []
    broken = []
    for node_id in isr:
        directory = data_directory(case.nodes.root, node_id) / f"{key.topic}-{key.partition}"
        found: set[int] = set()
        for path in directory.glob("*.log"):
            found |= _sound_offsets(path)
        missing = truth.acknowledged.keys() - found
        is_damaged = case.choice.file == "segment" and case.partition == key and case.choice.node == node_id
        if missing and not is_damaged:  # the scrub finds what rots
            broken.append(
                f"replicas: {key} on node {node_id}, in the ISR, lacks {len(missing)} records from {min(missing)}"
            )
    return broken


async def _judge_group(case: Case, client: ClusterClient) -> list[str]:
    try:
        found = await world.read_committed_offsets(client, list(case.truth.committed))
    except (KafkaError, OSError) as error:
        return [f"kept: the group's offsets are not read: {error}"]
    return (
        [] if found == case.truth.committed else [f"kept: the group's offsets are {found}, not {case.truth.committed}"]
    )
