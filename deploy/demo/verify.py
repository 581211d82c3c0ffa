"""The judge of the demo: every acknowledged record is in the log exactly once, by key and value, and the queries are right."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import rows as source
from confluent_kafka import Consumer, TopicPartition

REQUEST_TIMEOUT_S = 10.0
POLL_S = 0.2
SILENCE_S = 10.0


class LogVerdict(NamedTuple):
    """What reading the whole log found."""

    read: int
    lost: int
    duplicated: int
    misplaced: int
    unknown: int

    @property
    def is_clean(self) -> bool:
        """Every acknowledged record once, and nothing else."""
        return self.lost == self.duplicated == self.misplaced == self.unknown == 0


def read_everything(bootstrap: str, topics: Sequence[str]) -> list[tuple[str, int, int, bytes, bytes]]:
    """(topic, partition, offset, key, value) of every record, from the first offset to the last."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "demo-verify", "enable.auto.commit": False})
    try:
        found = []
        ends = {}
        for topic in topics:
            for index in consumer.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic].partitions:
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=REQUEST_TIMEOUT_S)
                if high > low:
                    ends[(topic, index)] = high
        consumer.assign([TopicPartition(topic, index, 0) for topic, index in ends])
        silent_since = time.monotonic()
        while ends:
            batch = consumer.consume(10_000, timeout=POLL_S)  # waits this long for the last, smaller batch too
            if batch:
                silent_since = time.monotonic()
            elif time.monotonic() - silent_since > SILENCE_S:
                raise SystemExit(f"the log gave nothing for {SILENCE_S:.0f} s although {ends} are not reached")
            for message in batch:
                if message.error():
                    raise SystemExit(f"cannot read the log: {message.error()}")
                place = (message.topic(), message.partition())
                found.append((*place, message.offset(), message.key(), message.value()))
                if place in ends and message.offset() >= ends[place] - 1:
                    del ends[place]
        return found
    finally:
        consumer.close()


def judge_log(
    acknowledged: dict[tuple[str, int, int], tuple[bytes, bytes]], found: list[tuple[str, int, int, bytes, bytes]]
) -> LogVerdict:
    """Compare the delivery reports (place -> key and value) with everything that is in the log."""
    at = {(topic, partition, offset): (key, value) for topic, partition, offset, key, value in found}
    copies = Counter((topic, key, value) for topic, _, _, key, value in found)
    wanted = Counter((place[0], *record) for place, record in acknowledged.items())
    return LogVerdict(
        read=len(found),
        lost=sum((wanted - copies).values()),
        duplicated=sum(
            count - wanted[record] for record, count in copies.items() if record in wanted and count > wanted[record]
        ),
        misplaced=sum(1 for place, record in acknowledged.items() if at.get(place) != record),
        unknown=sum(count for record, count in copies.items() if record not in wanted),
    )


def expected_departures() -> dict[tuple[str, str], tuple[int, float]]:
    """(origin, day) -> (departures, mean delay), computed from the files."""
    delays: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in source.flights():
        if row["dep_time"] is not None:
            delays[(row["origin"], datetime.fromisoformat(row["time_hour"]).astimezone(UTC).date().isoformat())].append(
                row["dep_delay"]
            )
    return {place: (len(values), sum(values) / len(values)) for place, values in delays.items()}


def wrong_departures(computed: list[dict[str, Any]]) -> list[str]:
    """Where query 1 differs from the files; empty when it is right."""
    wanted = expected_departures()
    wrong = [] if len(computed) == len(wanted) else [f"{len(computed)} rows instead of {len(wanted)}"]
    for row in computed:
        count, mean = wanted.get((row["origin"], row["day"]), (0, 0.0))
        if row["departures"] != count or abs(row["mean_delay"] - mean) > 1e-6:
            wrong.append(
                f"{row['origin']} {row['day']}: {row['departures']}, {row['mean_delay']:.6f}; files say {count}, {mean:.6f}"
            )
    return wrong
