"""A coordinator's topic in memory: appends are kept as batches, and the test moves the high watermark."""

from __future__ import annotations

import asyncio

from barnabas_coordination.runtime import LogEnds
from barnabas_replication.errors import NotLeaderOrFollower
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.records.batch import read_header, stamp


class FakeLog:
    """Meets CoordinatorLog. Every partition is led until the test says otherwise."""

    def __init__(self, *, commits_at_once: bool = True) -> None:
        self.commits_at_once = commits_at_once
        self.batches: dict[int, list[bytes]] = {}
        self.high_watermarks: dict[int, Offset] = {}
        self.starts: dict[int, Offset] = {}
        self.epochs: list[Epoch] = []
        """Leader epoch of each append, in order."""
        self.refuses: KafkaError | None = None
        self.refuses_in_future = False
        self.read_error: KafkaError | None = None
        self.reads = 0
        self.not_led: set[int] = set()
        self._waiting: dict[int, list[tuple[Offset, asyncio.Future[Offset]]]] = {}

    def ends(self, partition: int) -> LogEnds:
        if partition in self.not_led:
            raise NotLeaderOrFollower()
        return LogEnds(
            self.starts.get(partition, Offset(0)), self.high_watermarks.get(partition, Offset(0)), self._end(partition)
        )

    def _end(self, partition: int) -> Offset:
        batches = self.batches.get(partition)
        return read_header(batches[-1]).next_offset if batches else Offset(0)

    async def read(self, partition: int, offset: Offset, *, end: Offset, bytes_max: int) -> bytes:
        self.reads += 1
        await asyncio.sleep(0.001)
        if self.read_error is not None:
            raise self.read_error
        found = b""
        for batch in self.batches.get(partition, []):
            if read_header(batch).next_offset <= offset:
                continue
            if found and len(found) + len(batch) > bytes_max:
                break
            found += batch
        return found

    def append(self, partition: int, batch: bytes, *, leader_epoch: Epoch) -> asyncio.Future[Offset]:
        future: asyncio.Future[Offset] = asyncio.get_running_loop().create_future()
        if self.refuses is not None:
            if not self.refuses_in_future:
                raise self.refuses
            future.set_exception(self.refuses)
            return future
        self.epochs.append(leader_epoch)
        stamped = bytearray(batch)
        stamp(stamped, 0, base_offset=self._end(partition), leader_epoch=leader_epoch)
        self.batches.setdefault(partition, []).append(bytes(stamped))
        last = Offset(self._end(partition) - 1)
        if self.commits_at_once:
            self.high_watermarks[partition] = self._end(partition)
            future.set_result(last)
        else:
            self._waiting.setdefault(partition, []).append((last, future))
        return future

    def commit(self, partition: int, high_watermark: int | None = None) -> None:
        """Move the high watermark, by default to the end."""
        end = self._end(partition) if high_watermark is None else Offset(high_watermark)
        self.high_watermarks[partition] = end
        waiting = self._waiting.pop(partition, [])
        self._waiting[partition] = [(last, future) for last, future in waiting if last >= end]
        for last, future in waiting:
            if last < end and not future.done():
                future.set_result(last)

    async def delete_before(self, partition: int, offset: Offset) -> None:
        """Move the start; whole batches below it are gone."""
        await asyncio.sleep(0.001)
        assert offset <= self.high_watermarks.get(partition, Offset(0)), "what is not committed is deleted"
        self.starts[partition] = offset
        self.batches[partition] = [b for b in self.batches[partition] if read_header(b).next_offset > offset]

    def lose(self, partition: int, error: KafkaError) -> None:
        """Fail every append that is not committed; its records are gone from the log."""
        end = self.high_watermarks.get(partition, Offset(0))
        self.batches[partition] = [b for b in self.batches.get(partition, []) if read_header(b).next_offset <= end]
        for _, future in self._waiting.pop(partition, []):
            future.set_exception(error)

    def successor(self) -> FakeLog:
        """The log as another replica has it: what was committed."""
        other = FakeLog()
        for partition, batches in self.batches.items():
            end = self.high_watermarks.get(partition, Offset(0))
            other.batches[partition] = [b for b in batches if read_header(b).next_offset <= end]
            other.high_watermarks[partition] = end
            other.starts[partition] = self.starts.get(partition, Offset(0))
        return other
