"""Reads partitions in rounds, from given offsets to given offsets.

May touch:  barnabas_wire.client, stderr.   Must not touch: printing of records, groups.
Invariants: records of a partition come in order and once; an offset that is gone is said, and reading continues at the log's start.
Read next:  commands/consume.py; group_member.py, which gives partitions in a group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING

from barnabas_admin.errors import AdminError, WrongUsage
from barnabas_admin.output import talk
from barnabas_admin.time_argument import FORMS, parse_time
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas_wire.client.cluster import ClusterClient
    from barnabas_wire.records.batch import Record

FETCH_BYTES_MAX = 1024 * 1024


def parse_offset(text: str, *, now_ms: int = 0, zone: tzinfo | None = None) -> tuple[str, int]:
    """A place as (kind, number): start, end, absolute, before_end, time; `zone` is of a moment that names none. Raises WrongUsage."""
    if text in ("start", "end"):
        return text, 0
    if text[:1] == "@" and len(text) > 1:
        return "time", parse_time(text[1:], now_ms=now_ms, zone=zone)
    kind, digits = ("before_end", text[1:]) if text[:1] == "-" else ("absolute", text)
    if not digits.isdigit():
        raise WrongUsage(f"--offset {text}: use start, end, N, -N or @WHEN", hint=f"WHEN is {FORMS}")
    return kind, int(digits)


class Consumer:
    """Reads partitions of topics in rounds. One round asks every partition without waiting, since a connection answers
    in order: a long poll of an idle partition would block the others."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self.positions: dict[TopicPartition, int] = {}
        """The next offset of each partition that is read."""
        self._ends: dict[TopicPartition, int] = {}

    @property
    def is_at_end(self) -> bool:
        """Whether everything was read that was there at the start, or that was asked for."""
        return all(self.positions[partition] >= end for partition, end in self._ends.items())

    async def partitions_of(self, topics: Sequence[str], only: Sequence[int]) -> list[TopicPartition]:
        """The partitions of topics, or of them those numbers. Raises AdminError for a topic or a partition that does not exist."""
        from barnabas_admin.kafka import is_topic_known

        found = []
        for topic in topics:
            if not await is_topic_known(self._client, topic):
                raise AdminError(f"topic {topic!r} does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            known = (await self._client.metadata([topic])).topics[topic]
            missing = [index for index in only if index not in known]
            if missing:
                raise AdminError(
                    f"{topic} has no partition {missing[0]}",
                    code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    hint=f"it has {len(known)}, counted from 0",
                )
            found += [TopicPartition(topic, index) for index in sorted(only or known)]
        return found

    async def start(
        self,
        partitions: Sequence[TopicPartition],
        begin: tuple[str, int],
        *,
        until: tuple[str, int] | None = None,
        known: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Begin with these partitions at a place, or at the `known` offset of one that has one; `until` is the first that is not read."""
        from barnabas_wire.client.metadata import EARLIEST, LATEST

        self.positions, self._ends = {}, {}
        if not partitions:
            return
        starts = {
            p: int(o.offset) for p, o in (await self._client.list_offsets(dict.fromkeys(partitions, EARLIEST))).items()
        }
        ends = {
            p: int(o.offset) for p, o in (await self._client.list_offsets(dict.fromkeys(partitions, LATEST))).items()
        }
        begins = await self._places(begin, starts, ends)
        stops = ends if until is None else await self._places(until, starts, ends)
        for partition in partitions:
            position = (known or {}).get(partition, begins[partition])
            nearest = min(max(position, starts[partition]), ends[partition])
            if nearest != position and begin[0] == "absolute":
                talk(
                    f"{partition}: offset {position} is not there; going on at the nearest of {starts[partition]} to "
                    f"{ends[partition]}"
                )
            self.positions[partition] = nearest
            self._ends[partition] = min(stops[partition], ends[partition])

    async def _places(
        self, place: tuple[str, int], starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        kind, number = place
        match kind:
            case "start":
                return dict(starts)
            case "end":
                return dict(ends)
            case "before_end":
                return {partition: end - number for partition, end in ends.items()}
            case "time":
                found = await self._client.list_offsets(dict.fromkeys(starts, number))
                # No record is that late: the end.
                return {p: int(found[p].offset) if found[p].offset >= 0 else ends[p] for p in starts}
        return dict.fromkeys(starts, number)

    async def poll(self, *, is_bounded: bool = False) -> list[tuple[TopicPartition, Record]]:
        """The next records of every partition, in partition order; empty when there are none now. `is_bounded` stops each partition
        where it was at the start, or where it was asked to."""
        rounds = [
            self._fetch(partition, position, is_bounded=is_bounded)
            for partition, position in self.positions.items()
            if not is_bounded or position < self._ends[partition]
        ]
        return [item for found in await asyncio.gather(*rounds) for item in found]

    async def _fetch(
        self, partition: TopicPartition, position: int, *, is_bounded: bool
    ) -> list[tuple[TopicPartition, Record]]:
        from barnabas_wire.records.batch import iterate_batches, iterate_records

        try:
            fetched = await self._client.fetch(
                partition, position, bytes_max=FETCH_BYTES_MAX, wait_ms_max=0, bytes_min=0
            )
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return await self._begin_again(partition, position)
        found: list[tuple[TopicPartition, Record]] = []
        for start, header in iterate_batches(fetched.records):
            if not header.is_control:
                batch = fetched.records[start : start + header.size_bytes]
                found += [(partition, record) for record in iterate_records(batch) if record.offset >= position]
            self.positions[partition] = int(header.next_offset)
        if is_bounded:
            found = [(p, record) for p, record in found if record.offset < self._ends[partition]]
        return found

    async def _begin_again(self, partition: TopicPartition, position: int) -> list[tuple[TopicPartition, Record]]:
        """Retention has overtaken us, or the log was cut: continue at its start."""
        from barnabas_wire.client.metadata import EARLIEST

        start = int((await self._client.list_offsets({partition: EARLIEST}))[partition].offset)
        talk(f"{partition}: offset {position} is gone, going on at {start}")
        self.positions[partition] = start
        return []
