"""What happened: the metadata log as a timeline.

May touch:  ConsoleCluster.           Must not touch: HTTP, templates.
Invariants: hashes and no-ops are no events; whatever a cluster at rest writes hides no event.
Read next:  event_words.py; templates/events.html.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from barnabas_admin.client import AdminClient
from barnabas_admin.commands.metadata_log import text_of as fields_text
from barnabas_admin.console import event_words
from barnabas_admin.console.cluster import ConsoleCluster
from barnabas_admin.console.query import Query, number_of
from barnabas_wire.rpc import inspection_pb2

EVENTS_PER_PAGE = 50
RECORDS_SHOWN = 100
"""The most records of one event."""
HASHES = 10
"""As many are asked for beyond the newest events that are wanted: hashes are among them."""
_REACHES = (3, 10, 30, 100)
"""How far back the newest events are looked for then, in times of how many are wanted."""


async def events(cluster: ConsoleCluster, query: Query) -> dict[str, Any]:
    """The metadata log as a timeline, newest first; `before` goes back."""
    before = query.get("before", "")
    end = number_of(before, "before") if before else None
    return await cluster.admin(lambda admin: read_events(admin, last=EVENTS_PER_PAGE, before=end))


def read_events(admin: AdminClient, *, last: int, before: int | None = None) -> dict[str, Any]:
    """The newest events, or those before an offset of the metadata log; hashes and no-ops are no events.

    What was written together is one event. A cluster at rest writes a hash now and then: events are looked for in ever longer
    pieces, backwards.
    """
    batches: list[list[Any]] = []
    for reach in [last + HASHES, *(step * last for step in _REACHES)]:
        entries = list(_entries(admin, reach, before))
        batches = event_words.fold([entry for entry in entries if entry.kind != "ImageHashRecord"])
        if len(batches) >= last or len(entries) < reach:
            break
    names = _topic_names(admin, batches[-last:])
    found = [_event(batch, names) for batch in batches[-last:]]
    oldest = found[0]["offset"] if found else 0
    return {"events": found[::-1], "before": oldest if oldest > 0 else None, "now_ms": int(time.time() * 1000)}


def _topic_names(admin: AdminClient, batches: list[list[Any]]) -> dict[str, str]:
    """Id -> name of the topics that events speak of: as the records say, of others as the cluster says."""
    fields = [json.loads(entry.json) for batch in batches for entry in batch if '"topic_id"' in entry.json]
    names = {each["topic_id"]: each["name"] for each in fields if "name" in each}
    if any(each["topic_id"] not in names for each in fields):
        names |= {each.id: each.name for each in admin.list_topics(include_internal=True)}
    return names


def _entries(admin: AdminClient, last: int, before: int | None) -> Iterator[Any]:
    """So many of the newest entries of the log; before an offset those of as many offsets."""
    request = inspection_pb2.ReadLogRequest(last=last)
    setattr(request, "from", -1 if before is None else max(0, before - last))
    for page in admin.inspect_stream("ReadLog", request):
        for entry in page.entries:
            if before is not None and entry.offset >= before:
                return
            yield entry


def _event(batch: list[Any], names: dict[str, str]) -> dict[str, Any]:
    records = [(entry, json.loads(entry.json)) for entry in batch]
    sentence, more = event_words.told([(entry.kind, fields) for entry, fields in records], names)
    shown = [
        {"offset": entry.offset, "kind": entry.kind, "text": fields_text(fields)}
        for entry, fields in records[:RECORDS_SHOWN]
    ]
    return {
        "offset": batch[0].offset,
        "epoch": batch[0].epoch,
        "timestamp_ms": batch[0].timestamp_ms,
        "sentence": sentence,
        "more": more,
        "kind": shown[0]["kind"],
        "text": shown[0]["text"],
        "records": shown,
        "count": len(batch),
    }
