"""The files through which a produced batch passes on its leader are those that docs/architecture.md walks through."""

from __future__ import annotations

import asyncio
import struct
import sys
from pathlib import Path
from types import FrameType

from barnabas_log.config import FlushOnAcks, LogConfig
from tests.bench.frames import Load, make_produce
from tests.bench.instructions import PRODUCT
from tests.support.listener import LISTENER
from tests.support.single_broker import single_broker

ROOT = Path(__file__).parents[3]
FILES_MAX = 19
"""On the straight road: nothing waits for a flush or a follower. It was 22."""


async def test_the_walk_of_a_produce_names_every_file_on_its_road(tmp_path: Path) -> None:
    roads: list[set[str]] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PRODUCT):
            roads[-1].add(frame.f_code.co_filename)

    config = LogConfig(flush_on_acks=FlushOnAcks.PAGE_CACHE)
    async with single_broker(tmp_path, topics={"t": 1}, log_config=config) as broker:
        reader, writer = await asyncio.open_connection(*broker.server.bound[LISTENER])
        produce = make_produce(Load(100, 1024), "t", 0, acks=-1)

        async def ask() -> None:
            writer.write(produce.data)
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            await reader.readexactly(size)

        for _ in range(20):  # the first of a connection are opened, which is another road
            await ask()
        sys.setprofile(note)
        try:
            for _ in range(4):
                roads.append(set())
                await ask()
        finally:
            sys.setprofile(None)
        writer.close()
    passed = set.intersection(*roads)  # a timer falls into one or the other
    walk = (ROOT / "docs" / "architecture.md").read_text().partition("## The walk of a produce request")[2]
    walk = walk.partition("\n## ")[0]
    assert not [path for path in sorted(passed) if f"{Path(path).name}`" not in walk]
    assert 10 < len(passed) <= FILES_MAX, sorted(passed)
