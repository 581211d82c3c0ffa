"""How far this node has applied the metadata, and whether what it has is right.

May touch:  what NodeSources holds, to read.   Must not touch: anything it reads, the event loops.
Invariants: the quorum's committed end is the measure, not the active controller's.
Read next:  quorum.py; barnabas_quorum/image/loader.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from barnabas_broker.metrics.families import counter, gauge
from barnabas_broker.metrics.sources import NodeSources


def metadata_families(sources: NodeSources) -> Iterator[Metric]:
    """How far this node has applied the metadata."""
    image = sources.image()
    behind = max(0, sources.quorum.high_watermark - (image.offset + 1))
    yield gauge("metadata_applied_offset", "Last metadata record in the node's image.", [({}, image.offset)])
    yield gauge("metadata_lag_records", "Committed metadata records that are not applied yet.", [({}, behind)])
    if image.timestamp_ms >= 0:
        age_s = max(0, sources.clock_ms() - image.timestamp_ms) / 1000
        yield gauge("metadata_lag_seconds", "Age of the last applied metadata record.", [({}, age_s)])


def integrity_families(sources: NodeSources) -> Iterator[Metric]:
    """Whether this node's metadata is the agreed one, and all of it."""
    loader = sources.loader
    if loader is None:
        return
    stats, blocked = loader.stats, loader.blocked
    yield counter("metadata_records", "Committed metadata records that this node has read.", [({}, stats.records)])
    yield counter(
        "metadata_image_hashes_compared",
        "Image hashes of the active controller that were compared with this node's own.",
        [({}, stats.hashes_compared)],
    )
    yield counter(
        "metadata_image_hash_mismatch",
        "Image hashes of the active controller that this node's own did not equal: its metadata is wrong.",
        [({}, stats.hash_mismatches)],
    )
    yield gauge(
        "metadata_image_diverged",
        "1 while this node's metadata is known to differ.",
        [({}, int(bool(loader.agreement.divergence)))],
    )
    yield counter(
        "metadata_apply_errors", "Committed metadata records that could not be replayed.", [({}, stats.bad_records)]
    )
    yield counter(
        "metadata_records_passed_over",
        "Committed metadata records that were passed over because an operator signed.",
        [({}, stats.records_passed_over)],
    )
    yield gauge(
        "metadata_blocked",
        "1 while a record that cannot be replayed blocks this node's metadata.",
        [({}, int(blocked is not None))],
    )
    yield gauge(
        "metadata_blocked_offset",
        "Offset of the record that blocks this node's metadata, -1 = none.",
        [({}, -1 if blocked is None else blocked.record.offset)],
    )
