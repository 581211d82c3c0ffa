"""The records of a topic, a page at a time: from an offset, a time or the end, with a filter, within a budget.

May touch:  ClusterClient.            Must not touch: HTTP, the admin service.
Invariants: one call reads at most SCAN_RECORDS_MAX records and SCAN_S_MAX seconds, and returns how far it came; the cursor that
            it returns continues exactly there; control batches are no records.
Read next:  pages.py.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter, deque
from collections.abc import Sequence
from datetime import UTC
from typing import Any

from barnabas_admin.consuming import parse_offset
from barnabas_admin.errors import AdminError, WrongUsage
from barnabas_admin.record_format import Filter
from barnabas_admin.time_argument import FORMS
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
"""Records of each partition in the first window of a search."""
FETCH_BYTES_MAX = 1 << 20
SHOWN_BYTES_MAX = 20_000
"""The most bytes of one key or value; the rest is cut, with a mark."""
HEX_BYTES = 16
"""On a line of a hexadecimal dump."""
FIELDS_MAX = 16
"""Columns of a table by field."""


Bounds = dict[int, tuple[int, int]]
"""Partition -> (the first offset that is there, the offset behind the last)."""


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


async def bounds(client: ClusterClient, topic: str) -> Bounds:
    """Partition -> (log start offset, high watermark). Raises KafkaError for a topic that does not exist."""
    view = await client.metadata([topic])
    wanted = [TopicPartition(topic, index) for index in sorted(view.topics.get(topic, {}))]
    starts = await client.list_offsets(dict.fromkeys(wanted, EARLIEST))
    ends = await client.list_offsets(dict.fromkeys(wanted, LATEST))
    return {each.partition: (int(starts[each].offset), int(ends[each].offset)) for each in wanted}


async def find_positions(client: ClusterClient, topic: str, known: Bounds, *, start: str, now_ms: int = 0) -> Positions:
    """Where a page begins that goes forward: `oldest`, `end`, an offset N, -N for N before the end, or `@` and a moment, which
    without a zone is UTC's, as the page shows it. Raises WrongUsage."""
    found = Positions()
    try:
        kind, number = parse_offset({"oldest": "start"}.get(start, start), now_ms=now_ms, zone=UTC)
    except WrongUsage:
        hint = f"write newest, oldest, an offset, -N for N before the end, or @ and a moment: {FORMS}"
        raise WrongUsage(f"{start!r} is no place to start", hint=hint) from None
    late = await _offsets_at(client, topic, known, number) if kind == "time" else {}
    for partition, (first, end) in known.items():
        wanted = {"start": first, "end": end, "absolute": number, "before_end": end - number}
        found[partition] = min(max(late[partition] if kind == "time" else wanted[kind], first), end)
    return found


async def bounds_until(client: ClusterClient, topic: str, known: Bounds, until: str, *, now_ms: int) -> Bounds:
    """The bounds without what is at or behind a place that `find_positions` knows. Raises WrongUsage."""
    ends = await find_positions(client, topic, known, start=until, now_ms=now_ms)
    return {partition: (first, ends[partition]) for partition, (first, _) in known.items()}


async def _offsets_at(client: ClusterClient, topic: str, known: Bounds, moment_ms: int) -> dict[int, int]:
    """The first offset of each partition that is as late; its end where none is."""
    listed = await client.list_offsets(dict.fromkeys((TopicPartition(topic, each) for each in known), moment_ms))
    found = {each.partition: int(offset.offset) for each, offset in listed.items()}
    return {partition: found[partition] if found[partition] >= 0 else end for partition, (_, end) in known.items()}


async def browse(
    client: ClusterClient,
    topic: str,
    positions: Positions,
    known: Bounds,
    *,
    limit: int,
    wanted: Filter | None = None,
    is_backwards: bool = False,
) -> dict[str, Any]:
    """The first `limit` records that match, by time over all partitions: from `positions` on, or back from below them.

    Reads ever longer windows of every partition in turn, so that each has its share of a page, and takes what they hold by time; the
    budget may end the search before. A partition that `positions` lacks begins at its end.

    Args:
        wanted: which records match; None: every record, and the first window is a page.

    Returns `records`, in the order in which they were met, `scanned`, `left` (records that were not looked at), `total` (all
    between the bounds), `reached_ms` (the time of the last record that was looked at), `is_done`, and `cursor`, which continues.
    Raises KafkaError, OSError.
    """
    taken = {
        partition: min(max(positions.get(partition, end), first), end) for partition, (first, end) in known.items()
    }
    reached = dict(taken)
    matches: dict[int, deque[Record]] = {partition: deque() for partition in known}
    scanned, reached_ms = 0, None
    window = WINDOW_RECORDS if wanted else limit
    deadline_s = asyncio.get_running_loop().time() + SCAN_S_MAX
    is_over = False
    while not is_over:
        pending = [
            each
            for each, (first, end) in sorted(known.items())
            if (reached[each] > first if is_backwards else reached[each] < end)
        ]
        if not pending:
            break
        window = max(1, min(window, (SCAN_RECORDS_MAX - scanned) // len(pending)))
        for partition in pending:
            (first, end), at = known[partition], reached[partition]
            begin, stop = (max(first, at - window), at) if is_backwards else (at, min(end, at + window))
            records, behind = await _read_range(client, TopicPartition(topic, partition), begin, stop)
            if behind < stop:  # its leader has less than it said: nothing is passed over
                is_over, begin = True, at
            reached[partition] = begin if is_backwards else min(behind, end)
            scanned += len(records)
            if is_backwards:
                records.reverse()
            if records:
                reached_ms = records[-1].timestamp_ms
            matches[partition].extend(each for each in records if wanted is None or wanted.passes(each))
            is_over = is_over or scanned >= SCAN_RECORDS_MAX or asyncio.get_running_loop().time() >= deadline_s
            if is_over:
                break
        is_over = is_over or sum(map(len, matches.values())) >= limit
        window *= 4
    found: list[dict[str, Any]] = []
    sign = -1 if is_backwards else 1
    while len(found) < limit and any(matches.values()):
        partition = min(
            (each for each in matches if matches[each]), key=lambda each: sign * matches[each][0].timestamp_ms
        )
        record = matches[partition].popleft()
        found.append(shown(partition, record))
        taken[partition] = int(record.offset) + (0 if is_backwards else 1)
    # What matched and was not taken is looked for again.
    cursor = Positions(
        (partition, taken[partition] if matches[partition] else reached[partition]) for partition in known
    )
    left = sum(cursor[each] - first if is_backwards else end - cursor[each] for each, (first, end) in known.items())
    return {
        "records": found,
        "scanned": scanned,
        "left": left,
        "total": sum(end - first for first, end in known.values()),
        "reached_ms": reached_ms,
        "is_done": left == 0,
        "cursor": str(cursor),
    }


async def _read_range(
    client: ClusterClient, partition: TopicPartition, begin: int, end: int
) -> tuple[list[Record], int]:
    """All records of [begin, end) that are there, and a position behind them: where compaction left nothing it is beyond `end`,
    and below it where the partition gave nothing more."""
    found: list[Record] = []
    position = begin
    while position < end:
        records, behind = await _read(client, partition, position, end)
        found += records
        if behind <= position:
            break
        position = behind
    return found, position


async def _read(client: ClusterClient, partition: TopicPartition, position: int, end: int) -> tuple[list[Record], int]:
    """The next records of [position, end), and the position behind them."""
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
        if header.base_offset >= end:
            return found, int(header.base_offset)
        if not header.is_control:
            for record in iterate_records(fetched.records[start : start + header.size_bytes]):
                if record.offset >= end:
                    return found, int(record.offset)
                if record.offset >= position:
                    found.append(record)
        after = int(header.next_offset)
    return found, after


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
    """Bytes for people: `kind` is json, text or base64, `text` at most SHOWN_BYTES_MAX of it. None stays None.

    What is no UTF-8, or has a NUL, is binary; `schema_id` is the schema's where it begins as a schema registry's clients write.
    """
    if data is None:
        return None
    cut = len(data) > SHOWN_BYTES_MAX
    part = data[:SHOWN_BYTES_MAX]
    try:
        text = part.decode() if not cut else part.decode(errors="ignore")
    except UnicodeDecodeError:
        return _binary(part, cut=cut)
    if "\0" in text:
        return _binary(part, cut=cut)
    if not cut and text[:1] in ("{", "["):
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return {"kind": "text", "text": text, "cut": False}
        return {"kind": "json", "text": text, "cut": False}
    return {"kind": "text", "text": text, "cut": cut}


def _binary(part: bytes, *, cut: bool) -> dict[str, Any]:
    found = {"kind": "base64", "text": base64.b64encode(part).decode(), "cut": cut}
    # magic byte 0, the schema's id in four bytes, the record
    return found | {"schema_id": int.from_bytes(part[1:5])} if part[:1] == b"\0" and len(part) > 5 else found


def hex_dump(text: dict[str, Any]) -> str:
    """What `text_of` returned as hexadecimal, 16 bytes a line: offset, bytes, and the letters among them."""
    data = base64.b64decode(text["text"]) if text["kind"] == "base64" else str(text["text"]).encode()
    lines = []
    for at in range(0, len(data), HEX_BYTES):
        part = data[at : at + HEX_BYTES]
        letters = "".join(chr(each) if 0x20 <= each < 0x7F else "." for each in part)
        lines.append(f"{at:06x}  {part.hex(' '):<{3 * HEX_BYTES}} {letters}")
    return "\n".join(lines)


def fields_table(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Records whose values are JSON objects as a table: `names` are the fields that most of them have, at most FIELDS_MAX, and
    `rows` has a record and the texts of those fields for each; a record of another kind has none."""
    wholes = [
        whole
        if each["value"] is not None
        and each["value"]["kind"] == "json"
        and isinstance(whole := json.loads(each["value"]["text"]), dict)
        else {}
        for each in records
    ]
    counts = Counter(name for whole in wholes for name in whole)
    names = [name for name, _ in counts.most_common(FIELDS_MAX)]
    rows = [
        {"record": each, "fields": [_field_text(whole[name]) if name in whole else None for name in names]}
        for each, whole in zip(records, wholes, strict=True)
    ]
    return {"names": names, "rows": rows, "left_out": len(counts) - len(names)}


def _field_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def require_topic(known: Bounds, topic: str) -> None:
    """Raise AdminError when the topic has no partitions, so does not exist."""
    if not known:
        raise AdminError(f"topic {topic!r} does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
