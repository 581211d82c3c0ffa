"""The judge of the demo: every acknowledged record is in the log exactly once, by key and value, and the queries are right."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

import rows as source
from confluent_kafka import Consumer, KafkaError, TopicPartition

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


def read_everything(client: Mapping[str, Any], topics: Sequence[str]) -> list[tuple[str, int, int, bytes, bytes]]:
    """(topic, partition, offset, key, value) of every record, from the first offset to the last; `client`: how to get in."""
    settings = {**client, "group.id": "demo-verify", "enable.auto.commit": False}
    # The last offset of a partition may be a transaction's marker, which no consumer gets: the end is reported as an event.
    consumer = Consumer(settings | {"isolation.level": "read_committed", "enable.partition.eof": True})
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
                if message.error() and message.error().code() == KafkaError._PARTITION_EOF:
                    ends.pop((message.topic(), message.partition()), None)
                    continue
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


def wrong_topic(
    found: list[tuple[str, int, int, bytes, bytes]], computed: list[dict[str, Any]]
) -> tuple[list[str], int]:
    """(what is wrong, records) of the topic that query 1 wrote to exactly once.

    Each micro-batch writes every key once, with its own time, and no key goes away: no two records have the same key and time, a
    micro-batch has no fewer keys than the one before, and the last one of each key is what the query found.
    """
    last: dict[str, dict[str, Any]] = {}
    seen: set[tuple[str, str]] = set()
    keys: Counter[str] = Counter()
    wrong = []
    for _, _, _, key, value in sorted(found):
        row = json.loads(value)
        place = (key.decode(), row["batch"])
        if place in seen:
            wrong.append(f"{place[0]} of the micro-batch of {place[1]} is there twice")
        seen.add(place)
        keys[row["batch"]] += 1
        last[key.decode()] = row
    sizes = [keys[batch] for batch in sorted(keys)]
    if sizes != sorted(sizes):
        wrong.append(f"the micro-batches wrote {sizes} keys")
    expected = {f"{row['origin']} {row['day']}": row for row in computed}
    wrong += [f"{key} is missing or not wanted" for key in expected.keys() ^ last.keys()]
    wrong += [
        f"{key}: {last[key]} is not {row}"
        for key, row in expected.items()
        if key in last and last[key]["departures"] != row["departures"]
    ]
    return wrong, len(found)


def wrong_departures(computed: list[dict[str, Any]]) -> list[str]:
    """Where query 1 differs from the files, by the date in their own columns; empty when it is right."""
    delays: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in source.flights():
        if row["dep_time"] is not None:
            day = date(row["year"], row["month"], row["day"]).isoformat()
            delays[(row["origin"], day)].append(row["dep_delay"])
    return _differences(delays, {(row["origin"], row["day"]): row for row in computed})


def wrong_weather(results: dict[str, Any]) -> list[str]:
    """Where the delays by rain and visibility differ from the files; empty when they are right."""
    observed = {(row["origin"], row["time_hour"]): row for row in source.weather()}
    by_rain: dict[tuple[str, ...], list[float]] = defaultdict(list)
    by_visibility: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for row in source.flights():
        weather = observed.get((row["origin"], row["time_hour"]))
        if weather is None or row["dep_delay"] is None:
            continue
        by_rain[(_first_below(RAIN, -weather["precip"]),)].append(row["dep_delay"])
        by_visibility[(_first_below(VISIBILITY, -weather["visib"]),)].append(row["dep_delay"])
    return _differences(by_rain, {(row["weather"],): row for row in results["by_rain"]}) + _differences(
        by_visibility, {(row["weather"],): row for row in results["by_visibility"]}
    )


RAIN = ((-0.3, "heavy"), (-0.1, "moderate"), (-1e-9, "light"), (0.0, "none"))
VISIBILITY = ((-10.0, "10 and more"), (-3.0, "3 to 10"), (-1.0, "1 to 3"), (0.0, "under 1"))
"""(minus the least value, name), from the most on."""


def _first_below(classes: Sequence[tuple[float, str]], value: float) -> str:
    return next(name for bound, name in classes if value <= bound)


def _differences(delays: Mapping[Any, list[float]], computed: Mapping[Any, dict[str, Any]]) -> list[str]:
    wrong = [f"{' '.join(place)} is missing" for place in delays if place not in computed]
    for place, row in computed.items():
        values = delays.get(place, [])
        mean = sum(values) / len(values) if values else 0.0
        if row["departures"] != len(values) or abs(row["mean_delay"] - mean) > 1e-6:
            wrong.append(
                f"{' '.join(place)}: {row['departures']} departures, {row['mean_delay']:.6f} min; "
                f"the files say {len(values)}, {mean:.6f}"
            )
    return wrong
