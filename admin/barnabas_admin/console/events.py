"""What happened: the metadata log as a timeline.

May touch:  ConsoleCluster.           Must not touch: HTTP, templates.
Invariants: hashes and no-ops are no events; whatever a cluster at rest writes hides no event.
Read next:  templates/events.html.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from barnabas_admin.client import AdminClient
from barnabas_admin.commands.metadata_log import text_of as fields_text
from barnabas_admin.console.cluster import ConsoleCluster
from barnabas_admin.console.query import Query, number_of
from barnabas_wire.rpc import inspection_pb2

EVENTS_PER_PAGE = 50
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
    """The newest records of the metadata log, or those before an offset; hashes and no-ops are no events.

    A cluster at rest writes a hash now and then: the newest events are looked for in ever longer pieces from the end.
    """
    kept: list[Any] = []
    for reach in [last + HASHES, *(step * last for step in _REACHES)] if before is None else [last]:
        entries = list(_entries(admin, reach, before))
        kept = [entry for entry in entries if entry.kind != "ImageHashRecord"]
        if len(kept) >= last or len(entries) < reach:
            break
    found = [_event(entry) for entry in kept[-last:]]
    oldest = found[0]["offset"] if found else 0
    return {"events": found[::-1], "before": oldest if oldest > 0 else None, "now_ms": int(time.time() * 1000)}


def _entries(admin: AdminClient, last: int, before: int | None) -> Iterator[Any]:
    """So many of the newest entries of the log; before an offset those of as many offsets."""
    request = inspection_pb2.ReadLogRequest(last=last)
    setattr(request, "from", -1 if before is None else max(0, before - last))
    for page in admin.inspect_stream("ReadLog", request):
        for entry in page.entries:
            if before is not None and entry.offset >= before:
                return
            yield entry


def _event(entry: Any) -> dict[str, Any]:
    return {
        "offset": entry.offset,
        "epoch": entry.epoch,
        "timestamp_ms": entry.timestamp_ms,
        "kind": entry.kind,
        "text": fields_text(json.loads(entry.json)),
    }
