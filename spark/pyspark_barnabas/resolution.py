"""What a spec of offsets means on the cluster now: one offset for each partition that is read.

May touch:  client.py, the clock.     Must not touch: Spark.
Invariants: every partition of `latest` gets an offset inside its log; what had to be moved there is complained about, once, and the
    caller decides whether that is fatal.
Read next:  offset_spec.py for the specs, source.py and stream.py for the callers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyspark_barnabas.client import SourceClient
from pyspark_barnabas.kafka_properties import OptionError
from pyspark_barnabas.offset_spec import EARLIEST, LATEST, Ago, AtTime, AtTimes, Committed, Last, OffsetSpec
from pyspark_barnabas.offsets import Offsets, SourcePartition, missing


class Resolved(NamedTuple):
    """Offsets, and the error to raise where one of them was moved into the log and loss is fatal."""

    offsets: Offsets
    complaint: OptionError | None = None


def resolve(
    client: SourceClient, spec: OffsetSpec, option: str, latest: Offsets, *, is_none_fatal: bool, group_id: str
) -> Resolved:
    """Offsets for the partitions of `latest`, which holds their ends.

    option: where the spec comes from, for errors. is_none_fatal: a time after the last record is an error (else the end).
    Raises OptionError, SourceError.
    """
    keys = list(latest)
    if isinstance(spec, int):
        return Resolved(dict(latest) if spec == LATEST else client.list_offsets(dict.fromkeys(keys, spec)))
    if isinstance(spec, Last):
        earliest = client.list_offsets(dict.fromkeys(keys, EARLIEST))
        return Resolved({key: max(earliest[key], latest[key] - spec.offsets) for key in keys})
    if isinstance(spec, Ago):
        since = int(time.time() * 1000) - spec.milliseconds
        return Resolved(_at_times(client, dict.fromkeys(keys, since), option, latest, is_none_fatal=False))
    if isinstance(spec, AtTime):
        times = dict.fromkeys(keys, spec.timestamp_ms)
        return Resolved(_at_times(client, times, option, latest, is_none_fatal=is_none_fatal))
    if isinstance(spec, AtTimes):
        times = _given(spec.timestamps_ms, option, latest, "timestamp")
        return Resolved(_at_times(client, times, option, latest, is_none_fatal=is_none_fatal))
    if isinstance(spec, Committed):
        committed = client.committed(group_id, keys)
        earliest = client.list_offsets(dict.fromkeys(keys, EARLIEST))
        return _moved(earliest | committed, earliest, latest, f"the group {group_id} has committed")
    given = _given(spec, option, latest, "offset")
    earliest = client.list_offsets({key: EARLIEST for key, at in given.items() if at != LATEST})
    meant = {key: {EARLIEST: earliest.get(key, 0), LATEST: latest[key]}.get(at, at) for key, at in given.items()}
    return _moved(meant, earliest | {key: 0 for key, at in given.items() if at == LATEST}, latest, f"{option} asks for")


def _given(
    by_topic: Mapping[str, Mapping[int, int]], option: str, latest: Offsets, what: str
) -> dict[SourcePartition, int]:
    given = {SourcePartition(topic, index): at for topic, parts in by_topic.items() for index, at in parts.items()}
    left_out, unknown = missing(latest, given), missing(given, latest)
    if left_out:
        raise OptionError(f"{option} has no {what} for {named(left_out)}: give one for every partition that is read")
    if unknown:
        raise OptionError(f"{option} names partitions that are not read: {named(unknown)}")
    return given


def _moved(meant: Offsets, earliest: Offsets, latest: Offsets, who: str) -> Resolved:
    found = {key: max(earliest[key], min(at, latest[key])) for key, at in meant.items()}
    outside = [key for key in sorted(meant) if found[key] != meant[key]]
    if not outside:
        return Resolved(found)
    key = outside[0]
    return Resolved(
        found,
        OptionError(
            f"{who} {meant[key]} of {key}, whose log holds offsets {earliest[key]} to {latest[key]}: "
            "name one of these, or set failOnDataLoss=false to take the nearest"
        ),
    )


def _at_times(
    client: SourceClient, times: Mapping[SourcePartition, int], option: str, latest: Offsets, *, is_none_fatal: bool
) -> Offsets:
    found = client.list_offsets(times)
    late = sorted(key for key, at in found.items() if at < 0)
    if late and is_none_fatal:
        raise OptionError(
            f"{option}: no record of {named(late)} is at or after {times[late[0]]} ms. Name an earlier time, or set "
            "startingOffsetsByTimestampStrategy=latest to begin at the end there"
        )
    # A record that came after the ends were looked at belongs to the next look.
    return {key: latest[key] if at < 0 else min(at, latest[key]) for key, at in found.items()}


def named(keys: Sequence[SourcePartition]) -> str:
    """Partitions in an error: the first few."""
    return ", ".join(str(key) for key in keys[:10]) + (f" and {len(keys) - 10} more" if len(keys) > 10 else "")
