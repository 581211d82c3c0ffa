"""The records of a topic, a page at a time: from an offset, a time or the end, with a filter, within a budget.

May touch:  ClusterClient.            Must not touch: HTTP, the admin service.
Invariants: one call reads at most SCAN_RECORDS_MAX records and SCAN_S_MAX seconds, and returns how far it came; the cursor that
            it returns goes on exactly there; control batches are no records.
Read next:  pages.py.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from typing import Any

from barnabas_admin.errors import AdminError, WrongUsage
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.client.metadata import EARLIEST, LATEST
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.records.batch import Record, header_name_bytes, iterate_batches, iterate_records

LIMIT_MAX = 500
"""Records on one page."""
SCAN_RECORDS_MAX = 50_000
SCAN_S_MAX = 3.0
WINDOW_RECORDS = 1_000
"""Of each partition, where a search backwards begins."""
FETCH_BYTES_MAX = 1 << 20
SHOWN_BYTES_MAX = 20_000
"""Of one key or value; the rest is cut, with a mark."""


class Positions(dict[int, int]):
    """Partition -> the next offset to read, as a cursor in a page's address: `0:120-1:88`."""

    @classmethod
    def parse(cls, text: str) -> Positions:
        """Raises WrongUsage."""
        try:
            return cls((int(a), int(b)) for a, _, b in (part.partition(":") for part in text.split("-") if part))
        except ValueError:
            raise WrongUsage(f"{text!r} is no cursor of this page; open the topic's messages again") from None

    def __str__(self) -> str:
        return "-".join(f"{partition}:{offset}" for partition, offset in sorted(self.items()))


async def bounds(client: ClusterClient, topic: str) -> dict[int, tuple[int, int]]:
    """Partition -> (log start offset, high watermark). Raises KafkaError for a topic that does not exist."""
    view = await client.metadata([topic])
    wanted = [TopicPartition(topic, index) for index in sorted(view.topics.get(topic, {}))]
    starts = await client.list_offsets(dict.fromkeys(wanted, EARLIEST))
    ends = await client.list_offsets(dict.fromkeys(wanted, LATEST))
    return {each.partition: (int(starts[each].offset), int(ends[each].offset)) for each in wanted}


async def find_positions(
    client: ClusterClient, topic: str, known: dict[int, tuple[int, int]], *, start: str
) -> Positions:
    """Where a page begins that goes forward: `oldest`, `end`, an offset, or `@` and a time in ms. Raises WrongUsage."""
    found = Positions()
    times = {}
    if start.startswith("@") and start[1:].isdigit():
        times = await client.list_offsets(
            dict.fromkeys((TopicPartition(topic, each) for each in known), int(start[1:]))
        )
    elif start not in ("oldest", "end") and not start.isdigit():
        raise WrongUsage(f"{start!r} is no place to start: newest, oldest, an offset, or @ and a time in milliseconds")
    for partition, (first, end) in known.items():
        if start == "oldest":
            offset = first
        elif start == "end":
            offset = end
        elif times:
            listed = int(times[TopicPartition(topic, partition)].offset)
            offset = end if listed < 0 else listed  # no record is that late
        else:
            offset = int(start)
        found[partition] = min(max(offset, first), end)
    return found


async def browse(
    client: ClusterClient,
    topic: str,
    positions: Positions,
    known: dict[int, tuple[int, int]],
    *,
    limit: int,
    contains: str = "",
) -> dict[str, Any]:
    """Read on from `positions` to the ends in `known` until `limit` records match, or the budget is used up.

    Args:
        contains: text that a key, value or header must contain; letters count as they are. Empty: every record.

    Returns `records` (by time, oldest first), `scanned`, `left` (records not read yet), `is_done`, and `cursor`, which goes on.
    Raises KafkaError, OSError.
    """
    needle = contains.encode()
    cursor = Positions(positions)
    found: list[dict[str, Any]] = []
    scanned = 0
    deadline_s = asyncio.get_running_loop().time() + SCAN_S_MAX
    pending = {partition for partition, (_, end) in known.items() if cursor.get(partition, end) < end}
    while pending and len(found) < limit and scanned < SCAN_RECORDS_MAX:
        if asyncio.get_running_loop().time() >= deadline_s:
            break
        for partition in sorted(pending):
            end = known[partition][1]
            records, cursor[partition] = await _read(client, TopicPartition(topic, partition), cursor[partition])
            for record in records:
                if record.offset >= end or len(found) >= limit:
                    cursor[partition] = record.offset
                    break
                scanned += 1
                if not needle or _contains(record, needle):
                    found.append(shown(partition, record))
            if cursor[partition] >= end:
                pending.discard(partition)
            if len(found) >= limit:
                break
    found.sort(key=lambda each: (each["timestamp_ms"], each["partition"], each["offset"]))
    left = sum(max(0, end - cursor.get(partition, end)) for partition, (_, end) in known.items())
    return {"records": found, "scanned": scanned, "left": left, "is_done": left == 0, "cursor": str(cursor)}


async def browse_back(
    client: ClusterClient,
    topic: str,
    ends: Positions,
    known: dict[int, tuple[int, int]],
    *,
    limit: int,
    contains: str = "",
) -> dict[str, Any]:
    """The `limit` newest records that match, below `ends` in every partition; the budget may end the search before.

    Reads ever longer windows backwards, of all partitions in turn, and takes what they hold by time: of each partition from its
    end on, so that the cursor goes on below what was taken.

    Returns what `browse` does, newest first; `left` are the older records that were not looked at. Raises KafkaError, OSError.
    """
    needle = contains.encode()
    begun = {partition: min(ends.get(partition, end), end) for partition, (_, end) in known.items()}
    below = dict(begun)
    matches: dict[int, list[Record]] = {partition: [] for partition in known}
    scanned, window = 0, WINDOW_RECORDS if needle else limit
    deadline_s = asyncio.get_running_loop().time() + SCAN_S_MAX
    while (pending := [each for each in sorted(known) if below[each] > known[each][0]]) and scanned < SCAN_RECORDS_MAX:
        for partition in pending:
            begin = max(known[partition][0], below[partition] - window)
            records = await _read_range(client, TopicPartition(topic, partition), begin, below[partition])
            matches[partition][:0] = [each for each in records if not needle or _contains(each, needle)]
            scanned += len(records)
            below[partition] = begin
        if sum(map(len, matches.values())) >= limit or asyncio.get_running_loop().time() >= deadline_s:
            break
        window = min(4 * window, SCAN_RECORDS_MAX)
    found: list[dict[str, Any]] = []
    while len(found) < limit and any(matches.values()):
        partition = max((each for each in matches if matches[each]), key=lambda each: matches[each][-1].timestamp_ms)
        record = matches[partition].pop()
        found.append(shown(partition, record))
        begun[partition] = int(record.offset)
    # What matched and was not taken is looked for again.
    cursor = Positions((partition, begun[partition] if matches[partition] else below[partition]) for partition in known)
    left = sum(max(0, cursor[partition] - first) for partition, (first, _) in known.items())
    return {"records": found, "scanned": scanned, "left": left, "is_done": left == 0, "cursor": str(cursor)}


async def _read_range(client: ClusterClient, partition: TopicPartition, begin: int, end: int) -> list[Record]:
    """All records of [begin, end) that are there."""
    found: list[Record] = []
    position = begin
    while position < end:
        records, position = await _read(client, partition, position)
        found += (record for record in records if record.offset < end)
    return found


async def _read(client: ClusterClient, partition: TopicPartition, position: int) -> tuple[list[Record], int]:
    """The next records from a position on, and the position behind them."""
    try:
        fetched = await client.fetch(partition, position, bytes_max=FETCH_BYTES_MAX, wait_ms_max=0, bytes_min=0)
    except KafkaError as error:
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        start = int((await client.list_offsets({partition: EARLIEST}))[partition].offset)
        return [], max(start, position + 1)  # retention was faster
    found: list[Record] = []
    after = position
    for start, header in iterate_batches(fetched.records):
        if not header.is_control:
            batch = fetched.records[start : start + header.size_bytes]
            found += [record for record in iterate_records(batch) if record.offset >= position]
        after = int(header.next_offset)
    return found, after


def _contains(record: Record, needle: bytes) -> bool:
    parts: Sequence[bytes | None] = (record.key, record.value, *(part for _, part in record.headers))
    return any(part is not None and needle in part for part in parts)


def shown(partition: int, record: Record) -> dict[str, Any]:
    """A record as pages and their JSON twins show it."""
    return {
        "partition": partition,
        "offset": int(record.offset),
        "timestamp_ms": record.timestamp_ms,
        "key": text_of(record.key),
        "value": text_of(record.value),
        "headers": [
            {"name": header_name_bytes(name).decode(errors="backslashreplace"), "value": text_of(value)}
            for name, value in record.headers
        ],
        "size_bytes": len(record.key or b"") + len(record.value or b""),
    }


def text_of(data: bytes | None) -> dict[str, Any] | None:
    """Bytes for people: `kind` is json, text or base64, `text` at most SHOWN_BYTES_MAX of it. None stays None."""
    if data is None:
        return None
    cut = len(data) > SHOWN_BYTES_MAX
    part = data[:SHOWN_BYTES_MAX]
    try:
        text = part.decode() if not cut else part.decode(errors="ignore")
    except UnicodeDecodeError:
        return {"kind": "base64", "text": base64.b64encode(part).decode(), "cut": cut}
    if not cut and text[:1] in ("{", "["):
        try:
            json.loads(text)
        except ValueError:
            return {"kind": "text", "text": text, "cut": False}
        return {"kind": "json", "text": text, "cut": False}
    return {"kind": "text", "text": text, "cut": cut}


def require_topic(known: dict[int, tuple[int, int]], topic: str) -> None:
    """Raise AdminError when the topic has no partitions, so does not exist."""
    if not known:
        raise AdminError(f"topic {topic!r} does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
