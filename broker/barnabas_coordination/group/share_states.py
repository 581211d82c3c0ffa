"""Asks share coordinators what share groups want of them: to begin share states, to forget them, and how far they are.

May touch:  asyncio, a Persister, other brokers through Brokers, the runtime's shards through its caller.   Must not touch: logs, sockets.
Invariants: at most ASKED_AT_ONCE_MAX calls at a time; what came of a call reaches the group's shard, if it is still
            here; no request waits for a group longer than its own calls take.
Read next:  share/partitions.py, which says what is to be asked; ../share_state/messages.py for the Persister.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas_coordination.brokers import Brokers
from barnabas_coordination.group.share.messages import StateDone, StateWork
from barnabas_coordination.share_state.messages import NO_COUNT, Persister, ShareKey, ShareSummary
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_OFFSET, BrokerId, Epoch, Offset
from barnabas_wire.kafka.messages import list_offsets

ASKED_AT_ONCE_MAX: Final = 256
"""Calls underway: a group that subscribes to a large topic begins thousands of states."""
LATEST: Final = -1
"""ListOffsets' word for the end of a partition."""
NO_LAG: Final = -1


class StateOffset(NamedTuple):
    """How far a group is in one partition."""

    start_offset: Offset = NO_OFFSET
    leader_epoch: Epoch = Epoch(0)
    lag: int = NO_LAG
    """NO_LAG: not known."""


class ShareStates:
    """What one group coordinator asks. Everything runs on the data lane."""

    def __init__(
        self,
        *,
        persister: Persister,
        brokers: Brokers,
        image: Callable[[], MetadataImage],
        take: Callable[[str], StateWork | None],
        finish: Callable[[str, StateDone], None],
    ) -> None:
        """`take` gives what is to be asked for a group, None where it is not here; `finish` hears what came of it."""
        self._persister = persister
        self._brokers = brokers
        self._image = image
        self._take = take
        self._finish = finish
        self._noted: dict[str, None] = {}
        """Groups with something to ask, each once: no more than this broker coordinates."""
        self._has_noted = asyncio.Event()
        self._slots = asyncio.Semaphore(ASKED_AT_ONCE_MAX)

    def note(self, group_id: str) -> None:
        """A group has something to ask."""
        self._noted[group_id] = None
        self._has_noted.set()

    async def run(self) -> None:
        """Owner task: asks until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._has_noted.wait()
                self._has_noted.clear()
                while self._noted:
                    group_id = next(iter(self._noted))
                    del self._noted[group_id]
                    work = self._take(group_id)
                    if work:
                        tasks.create_task(self._do(group_id, work), name=f"share states of {group_id}")

    async def _do(self, group_id: str, work: StateWork) -> None:
        begun = {
            key: self._persister.initialize(key, state_epoch=Epoch(work.state_epoch), start_offset=start)
            for key, start in work.begin.items()
        }
        ended = {key: self._persister.delete(key) for key in work.end}
        outcomes = await asyncio.gather(*(self._outcome(call) for call in (*begun.values(), *ended.values())))
        split = len(begun)
        self._finish(
            group_id,
            StateDone(
                work.state_epoch,
                dict(zip(begun, outcomes[:split], strict=True)),
                dict(zip(ended, outcomes[split:], strict=True)),
            ),
        )

    async def _outcome(self, call: Awaitable[None]) -> KafkaError | None:
        async with self._slots:
            try:
                await call
            except KafkaError as error:
                return error
        return None

    # ---- how far groups are --------------------------------------------------------------------------------------

    async def offsets(self, keys: Sequence[ShareKey]) -> dict[ShareKey, StateOffset]:
        """How far a group is in partitions, and how much is left; the defaults where that is not known."""
        summaries = dict(zip(keys, await asyncio.gather(*map(self._summary, keys)), strict=True))
        ends = await self._ends([key for key in keys if summaries[key].complete_count != NO_COUNT])
        found = {}
        for key, summary in summaries.items():
            lag, end = NO_LAG, ends.get(key)
            if end is not None and summary.start_offset != NO_OFFSET:
                lag = max(0, end - summary.start_offset - summary.complete_count)
            found[key] = StateOffset(summary.start_offset, summary.leader_epoch, lag)
        return found

    async def _summary(self, key: ShareKey) -> ShareSummary:
        async with self._slots:
            try:
                return await self._persister.summary(key)
            except KafkaError:
                return ShareSummary()  # as Kafka: not known

    async def _ends(self, keys: Sequence[ShareKey]) -> Mapping[ShareKey, int]:
        """The ends of partitions, as their leaders say them; without those that cannot be asked."""
        topics = self._image().topics
        by_leader: dict[BrokerId, dict[str, dict[int, ShareKey]]] = {}
        for key in keys:
            topic = topics.get_by_id(key.topic_id)
            if topic is not None and key.partition < len(topic.partitions):
                leader = topic.partitions[key.partition].leader
                by_leader.setdefault(leader, {}).setdefault(topic.name, {})[key.partition] = key
        found = await asyncio.gather(*(self._ends_at(leader, of) for leader, of in by_leader.items()))
        return {key: end for each in found for key, end in each.items()}

    async def _ends_at(self, leader: BrokerId, keys: Mapping[str, Mapping[int, ShareKey]]) -> dict[ShareKey, int]:
        request = list_offsets.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[
                list_offsets.ListOffsetsTopic(
                    name=name,
                    partitions=[list_offsets.ListOffsetsPartition(partition, timestamp=LATEST) for partition in of],
                )
                for name, of in keys.items()
            ],
        )
        try:
            answer = await self._brokers.call(leader, request)
        except (KafkaError, OSError, TimeoutError):
            return {}
        return {
            keys[topic.name][partition.partition_index]: partition.offset
            for topic in answer.topics
            for partition in topic.partitions
            if partition.error_code == ErrorCode.NONE and partition.offset >= 0
        }
