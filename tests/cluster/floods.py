"""Floods against one listener, from a process of their own: python -m tests.cluster.floods PORT SECONDS SLOW DEAF BOMBERS.

Slow connections send the beginning of a large request and then a byte every second; deaf ones ask for records a hundred times and read no
answer; bombers send records of which a mebibyte becomes many when it is decompressed. Who is closed comes again, once a second.

Prints "begun" once every connection was opened, and at the end a line of JSON: how many connections were opened and closed.
"""

from __future__ import annotations

import asyncio
import json
import resource
import struct
import sys
import time
from collections import Counter

import cramjam

from barnabas_wire.records.compression import CompressionType
from barnabas_wire.records.crc32c import crc32c
from tests.cluster.hostile import request

SLOW_BYTES = 60_000
LARGE_BYTES = 1 << 20
BOMB_BYTES = 256 << 20
"""What a bomb becomes."""
PLAIN_TOPIC = "honest"
RECOMPRESSED_TOPIC = "recompressed"
"""Its broker has to decompress what comes."""
ROUND_S = 1.0


def bomb(topic: str) -> bytes:
    """A produce request with one batch that says that it is one record of very many zeroes."""
    inner = bytes(cramjam.zstd.compress(bytes(BOMB_BYTES)))
    head = struct.pack(">hiqqqhii", CompressionType.ZSTD, 0, 0, 0, -1, -1, -1, 1)
    crc = crc32c(head + inner)
    batch = struct.pack(">ibI", -1, 2, crc) + head + inner
    batch = struct.pack(">qi", 0, len(batch)) + batch
    name = topic.encode()
    body = struct.pack(">hhii", -1, -1, 1000, 1) + struct.pack(">h", len(name)) + name
    body += struct.pack(">iii", 1, 0, len(batch)) + batch
    return request(0, 7, body)


class Flood:
    """All connections of one run."""

    def __init__(self, port: int, seconds: float) -> None:
        self._port = port
        self._end = time.monotonic() + seconds
        self.counts: Counter[str] = Counter()
        self.begun = 0

    async def slow(self, index: int) -> None:
        """The beginning of a large request, then a byte every second."""
        beginning = struct.pack(">ihhih", LARGE_BYTES, 0, 9, 7, -1) + bytes(SLOW_BYTES)

        async def attack(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(beginning)
            while not reader.at_eof() and time.monotonic() < self._end:
                await writer.drain()
                await asyncio.sleep(ROUND_S)
                writer.write(b"\0")

        await self._again("slow", attack)

    async def deaf(self, index: int) -> None:
        """Asks for records and never reads."""
        name = PLAIN_TOPIC.encode()
        asked = struct.pack(">iiiibi", -1, 0, 0, 1 << 26, 0, 1) + struct.pack(">h", len(name)) + name
        asked = request(1, 4, asked + struct.pack(">iiqi", 1, 0, 0, 1 << 20)) * 100

        async def attack(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(asked)
            await asyncio.sleep(max(0.0, self._end - time.monotonic()))

        await self._again("deaf", attack)

    async def bomber(self, index: int, bombs: list[bytes]) -> None:
        """One bomb after the other, each answered or its connection closed."""

        async def attack(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for data in bombs:
                writer.write(data)
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                await reader.readexactly(size)
                self.counts["bombs answered"] += 1

        await self._again("bomb", attack)

    async def _again(self, kind: str, attack: object) -> None:
        while time.monotonic() < self._end:
            began = time.monotonic()
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            except OSError:
                self.counts[f"{kind} refused"] += 1
            else:
                self.counts[f"{kind} opened"] += 1
                try:
                    await attack(reader, writer)  # type: ignore[operator]
                except (OSError, TimeoutError, asyncio.IncompleteReadError):
                    self.counts[f"{kind} closed"] += 1
                finally:
                    writer.transport.abort()
            await asyncio.sleep(max(0.0, min(ROUND_S - (time.monotonic() - began), self._end - time.monotonic())))


async def main(port: int, seconds: float, slow: int, deaf: int, bombers: int) -> None:
    """Run them all."""
    bombs = [bomb(topic) for topic in (PLAIN_TOPIC + "-bombed", RECOMPRESSED_TOPIC)] if bombers else []
    flood = Flood(port, seconds)
    attacks = [flood.slow(index) for index in range(slow)]
    attacks += [flood.deaf(index) for index in range(deaf)]
    attacks += [flood.bomber(index, bombs) for index in range(bombers)]
    tasks = []
    for place, attack in enumerate(attacks):
        tasks.append(asyncio.create_task(attack))
        if place % 50 == 49:
            await asyncio.sleep(0.05)
    print("begun", flush=True)
    await asyncio.gather(*tasks)
    print(json.dumps(flood.counts), flush=True)


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]), *map(int, sys.argv[3:6])))
