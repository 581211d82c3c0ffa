"""What both know of what they wrote, or were given, before they were stopped: see ../history.py."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from barnabas_wire.kafka.messages.list_offsets import ListOffsetsPartition
from barnabas_wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_wire.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.oracle import history
from tests.oracle.answers import Side
from tests.oracle.cases import batch, case
from tests.oracle.cases.fetch import at, fetch, topic_entry
from tests.oracle.cases.offsets import SPECIAL, list_offsets
from tests.oracle.cases.produce import produce


@case()
def kept_records(side: Side) -> Iterator[tuple[str, Any]]:
    for topic in history.TOPICS:
        for offset in (0, 1, 959, 960, 1919, 1920, 2939, 2940, 2979):
            yield f"{topic} from {offset}", fetch(side, topic_entry(side, topic, at(offset, max_bytes=1)))
        for timestamp in SPECIAL:
            yield f"{topic} at {timestamp}", list_offsets(side, topic, ListOffsetsPartition(0, -1, timestamp))
        for second in range(-20, 160, 7):
            asked = ListOffsetsPartition(0, -1, history.STARTED_MS + 1000 * second)
            yield f"{topic} after {second} s", list_offsets(side, topic, asked)


@case({"*.current_leader.*": "leader-told", "*.node_endpoints": "leader-told"})
def epochs_after_a_restart(side: Side) -> Iterator[tuple[str, Any]]:
    for topic in history.TOPICS:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        epoch = side.call(asked, version=12).topics[0].partitions[0].leader_epoch
        yield f"{topic} epoch rose", epoch > 0

        def ends(*epochs: int, topic: str = topic) -> Any:
            listed = [OffsetForLeaderPartition(0, -1, epoch) for epoch in epochs]
            return side.call(OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic(topic, listed)]), version=4)

        for older in range(epoch + 2):
            yield f"{topic} end of {older}", ends(older)
        before = produce(side, topic, batch(4))
        yield f"{topic} produce", before
        for older in range(epoch + 2):
            yield f"{topic} end of {older} then", ends(older)
            for version in (9, 12, 17):
                entry = topic_entry(side, topic, at(2960, current_leader_epoch=older, max_bytes=1))
                yield f"{topic} fetch v{version} epoch {older}", fetch(side, entry, version=version)
            listed = ListOffsetsPartition(0, older, -1)
            yield f"{topic} list epoch {older}", list_offsets(side, topic, listed)
        for offset in (2980, 3000, before.base_offset + 2):
            entry = topic_entry(side, topic, at(offset, last_fetched_epoch=0, current_leader_epoch=epoch, max_bytes=1))
            yield f"{topic} diverging at {offset - before.base_offset}", fetch(side, entry)


@case(
    {
        "* again.log_append_time_ms": "repeated-batch",
        "* last but one again.*": "longer-memory",
    }
)
def producers_after_a_restart(side: Side) -> Iterator[tuple[str, Any]]:
    for topic in history.TOPICS:
        random = Random(7)
        batches = [history.batch_of(number, random) for number in range(history.BATCHES + 1)]
        last = len(batches) - (3 if topic == history.TORN else 2)
        yield f"{topic} gap", produce(side, topic, batches[last + 2]) if topic == history.TORN else None
        yield f"{topic} last again", produce(side, topic, batches[last])
        yield f"{topic} last but one again", produce(side, topic, batches[last - 1])
        yield f"{topic} long ago", produce(side, topic, batches[10])
        for number in range(last + 1, len(batches)):
            yield f"{topic} number {number}", produce(side, topic, batches[number])
            yield f"{topic} number {number} again", produce(side, topic, batches[number])
