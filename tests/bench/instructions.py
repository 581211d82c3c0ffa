"""`make bench-instructions`: what one request costs the broker's process in instructions, the same on every run.

May touch:  one broker within this process, a temporary directory.    Must not touch: broker code.
Invariants: the requests, the data and their order are fixed; a row is the median of its requests, so that a timer which falls
            into one of them counts for nothing; two runs of different measures are never compared.
Read next:  tests/support/single_broker.py (the parts), frames.py.

    python -m tests.bench.instructions [--json FILE] [--against FILE]

Real parts from socket to log: listener, connection, handler, replica manager, log on a temporary directory, in page cache
mode, for a flush is no instruction of ours. Two measures, and the table says which was used:
- instructions: the processor's count in user space, by perf_event_open(2), of all that this thread does, the asking client and
  the event loop included.
- bytecodes: where the machine has no such counter. What the interpreter executes in product code alone, client and event loop
  excluded. Work within C functions (CRC, copying, system calls) does not show.

Exit status of --against: 1 when a row takes over 3 % more than it did there, 2 when it was measured otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import errno
import json
import os
import platform
import statistics
import struct
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Protocol

import barnabas_broker
import barnabas_coordination
import barnabas_log
import barnabas_quorum
import barnabas_replication
import barnabas_wire
from barnabas_log.config import FlushOnAcks, LogConfig, ValidateBatches
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.fetch_request import FetchRequestPartition, encode_fetch_request
from barnabas_wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_wire.kafka.schema import encode_request
from barnabas_wire.lazy_dataclass import COMPILE_AT
from tests.bench.frames import Load, make_fetch, make_produce
from tests.support.listener import LISTENER, NODE_ID
from tests.support.single_broker import single_broker

REQUESTS = 51
"""Per row; the median of them counts."""
WARM_UP = COMPILE_AT + 4
"""Requests before these: until then, dataclasses of the row have no compiled methods."""
SLACK = 0.03
"""A row may take this much more than before."""
LOAD = Load(100, 1024)
FOLLOWER_ID = NODE_ID + 1
FOLLOWED_PARTITIONS = 10
PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
"""Number of the system call, by machine."""
PRODUCT = tuple(
    os.path.dirname(str(package.__file__)) + os.sep
    for package in (
        barnabas_broker,
        barnabas_coordination,
        barnabas_log,
        barnabas_quorum,
        barnabas_replication,
        barnabas_wire,
    )
)


class Measure(Protocol):
    """Counts while it is entered."""

    name: str

    def __enter__(self) -> Measure: ...

    def __exit__(self, *_: object) -> None: ...

    @property
    def count(self) -> int:
        """Of the last time."""
        ...


class HardwareInstructions:
    """The processor's own count for this thread, in user space. Raises OSError where there is none."""

    name = "instructions"

    def __init__(self) -> None:
        number = PERF_EVENT_OPEN.get(platform.machine())
        if number is None:
            raise OSError(errno.ENOSYS, "no counter is known for this machine")
        size = 112
        # struct perf_event_attr: PERF_TYPE_HARDWARE, size, PERF_COUNT_HW_INSTRUCTIONS, three fields unused, and the flags
        # exclude_kernel and exclude_hv.
        attributes = struct.pack("IIQQQQQ", 0, size, 1, 0, 0, 0, 1 << 5 | 1 << 6).ljust(size, b"\0")
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor: int = libc.syscall(number, ctypes.c_char_p(attributes), 0, -1, -1, 0)
        if self._descriptor < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        self._began = self.count = 0

    def __enter__(self) -> HardwareInstructions:
        self._began = self._read()
        return self

    def __exit__(self, *_: object) -> None:
        self.count = self._read() - self._began

    def _read(self) -> int:
        return int.from_bytes(os.read(self._descriptor, 8), sys.byteorder)


class Bytecodes:
    """What the interpreter executes in product code, and in code that product code compiled."""

    name = "bytecodes"

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Bytecodes:
        self.count = 0
        sys.settrace(self._enter_frame)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _enter_frame(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        file = frame.f_code.co_filename
        if not file.startswith(PRODUCT) and not (file.startswith("<") and not file.startswith("<frozen")):
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        if event == "opcode":
            self.count += 1
        return self._step


class Comparison(NamedTuple):
    """One row now and before."""

    name: str
    now: int
    before: int | None

    @property
    def ratio(self) -> float | None:
        """None for a row that is new."""
        return None if self.before is None else self.now / self.before

    @property
    def is_worse(self) -> bool:
        """Whether it takes more than the slack allows."""
        return self.ratio is not None and self.ratio > 1 + SLACK

    def __str__(self) -> str:
        ratio = "" if self.ratio is None else f"{self.ratio:8.3f}{'  WORSE' if self.is_worse else ''}"
        return f"{self.name:44}{self.now:14,}{ratio}"


def best_measure() -> Measure:
    """The hardware's count where the kernel gives it, else bytecodes."""
    try:
        return HardwareInstructions()
    except OSError:
        return Bytecodes()


async def measure_all(measure: Measure, directory: Path) -> dict[str, int]:
    """The count of each row, in the order in which they were measured."""
    config = LogConfig(flush_on_acks=FlushOnAcks.PAGE_CACHE)
    rows: dict[str, int] = {}
    async with single_broker(directory, topics={"bench": 1, "other": 10}, log_config=config) as broker:
        broker.create_topic("led", FOLLOWED_PARTITIONS, followers=(FOLLOWER_ID,))
        reader, writer = await asyncio.open_connection(*broker.server.bound[LISTENER])

        async def ask(frame: bytes) -> None:
            writer.write(frame)
            size = struct.unpack(">i", await reader.readexactly(4))[0]
            await reader.readexactly(size)

        async def row(name: str, make_frame: Callable[[], bytes]) -> None:
            counts = []
            for _ in range(WARM_UP + REQUESTS):
                frame = make_frame()
                with measure:
                    await ask(frame)
                counts.append(measure.count)
            rows[name] = int(statistics.median(counts[WARM_UP:]))

        one, all_, followed = (
            make_produce(LOAD, topic, 0, acks=acks) for topic, acks in (("bench", 1), ("bench", -1), ("led", 1))
        )
        poll, _ = make_fetch("bench", 0, offset=0, max_bytes=LOAD.batch_bytes)
        metadata = _metadata("other")
        await row("produce, acks=1", lambda: one.data)
        await row("produce, acks=all, RF 1", lambda: all_.data)
        await row("produce, acks=1, RF 2", lambda: followed.data)
        await row("fetch of a consumer, 1 partition", lambda: poll)
        for count in (1, FOLLOWED_PARTITIONS):
            # Each asks one record on: a follower that asks for the same again and again has the leader check its log.
            offsets = iter(range(WARM_UP + REQUESTS))
            await row(
                f"fetch of a follower, partitions: {count}",
                lambda offsets=offsets, count=count: _follower_fetch(broker.topic_ids["led"], count, next(offsets)),  # type: ignore[misc]
            )
        await row("metadata of a topic, 10 partitions", lambda: metadata)
        # The rows above are of `sampled`, in requests that are not drawn. A walk in a thread is not counted as bytecodes.
        for mode in (ValidateBatches.HEADER, ValidateBatches.ALL):
            broker.create_topic(mode.value)
            settings = {mode.value: replace(config, validate_batches=mode)}
            broker.replicas.apply_delta(None, broker.metadata.image, settings=settings)
            opened = make_produce(LOAD, mode.value, 0, acks=1)
            await row(f"produce, acks=1, validate.batches={mode.value}", lambda opened=opened: opened.data)  # type: ignore[misc]
        writer.close()
    return rows


def compare(rows: dict[str, int], before: dict[str, int]) -> list[Comparison]:
    """Row by row."""
    return [Comparison(name, now, before.get(name)) for name, now in rows.items()]


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, compare."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.instructions")
    parser.add_argument("--json", type=Path, help="write the table there")
    parser.add_argument("--against", type=Path, help="compare with a table written before; exit 1 when a row is worse")
    options = parser.parse_args(arguments)
    measure = best_measure()
    with tempfile.TemporaryDirectory() as directory:
        rows = asyncio.run(measure_all(measure, Path(directory)))
    before: dict[str, Any] = (
        json.loads(options.against.read_text()) if options.against else {"measure": measure.name, "rows": {}}
    )
    print(f"{'per request':44}{measure.name:>14}{'   ratio' if options.against else ''}")
    compared = compare(rows, before["rows"])
    for comparison in compared:
        print(comparison)
    if options.json:
        options.json.write_text(json.dumps({"measure": measure.name, "rows": rows}, indent=1) + "\n")
    if before["measure"] != measure.name:
        print(f"measured in {before['measure']} before: not to be compared", file=sys.stderr)
        return 2
    return 1 if any(comparison.is_worse for comparison in compared) else 0


def _follower_fetch(topic_id: bytes, partitions: int, offset: int) -> bytes:
    """Of records in the first partition and of nothing in the others."""
    version = 17
    out = bytearray(struct.pack(">ihhih", 0, ApiKey.FETCH, version, 1, -1) + b"\0")
    asked = [
        FetchRequestPartition(topic_id, index, fetch_offset=0 if index else offset, max_bytes=LOAD.batch_bytes)  # type: ignore[arg-type]
        for index in range(partitions)
    ]
    encode_fetch_request(
        out,
        version,
        asked,
        replica_id=FOLLOWER_ID,
        replica_epoch=1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=LOAD.batch_bytes,
    )
    struct.pack_into(">i", out, 0, len(out) - 4)
    return bytes(out)


def _metadata(topic: str) -> bytes:
    version = 12
    out = bytearray(struct.pack(">ihhih", 0, ApiKey.METADATA, version, 1, -1) + b"\0")
    encode_request(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), version, out)
    struct.pack_into(">i", out, 0, len(out) - 4)
    return bytes(out)


if __name__ == "__main__":
    sys.exit(main())
