"""A proxy before one broker that holds some EndTxn requests back, while their clients ask again and go on.

May touch:  its sockets, the file that says whether to hold.   Must not touch: what passes through it otherwise.
Invariants: frames of one connection keep their order; a held frame goes on to the broker although its client has gone.
Read next:  late.py, whose clients see the brokers through these.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from barnabas_wire.kafka.frame import SIZE_BYTES, decode_response_header
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.end_txn import EndTxnResponse
from barnabas_wire.kafka.schema import decode_request, decode_response
from tests.checker.transaction_events import Held
from tests.support.frames import RequestHeader, decode_request_header

HOLD_SHARE = 0.5
HOLD_S = (0.8, 4.0)
"""Longer than a client waits for its answer."""
ANSWERED_WITHIN_S = 5.0
CONNECT_TIMEOUT_S = 2.0
NO_ANSWER = -1
_PIECE_BYTES = 1 << 16


@dataclass(slots=True)
class EndHolder:
    """Before one broker.

    host, port: the broker's. flag: held is only while this file is there. report: is reported of each that was held.
    """

    host: str
    port: int
    random: Random
    flag: Path
    report: Callable[[Held], None]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until both ends have closed it."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                from_broker, to_broker = await asyncio.open_connection(self.host, self.port)
        except OSError:
            writer.close()
            return
        late: dict[int, tuple[RequestHeader, asyncio.Future[int]]] = {}
        back = asyncio.create_task(self._answers(from_broker, writer, late))
        try:
            await self._requests(reader, to_broker, late)
        finally:
            to_broker.close()
            back.cancel()
            writer.close()

    async def _requests(
        self, reader: asyncio.StreamReader, to_broker: asyncio.StreamWriter, late: dict[int, Any]
    ) -> None:
        try:
            while frame := await _frame(reader):
                header, position = decode_request_header(frame)
                is_held = header.api_key == ApiKey.END_TXN and self.flag.exists() and self.random.random() < HOLD_SHARE
                if not is_held:
                    await _send(to_broker, frame)
                    continue
                came = time.monotonic()
                request = decode_request(header.api_key, header.api_version, frame, position)
                await asyncio.sleep(self.random.uniform(*HOLD_S))
                answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
                late[header.correlation_id] = header, answer
                went = time.monotonic()
                await _send(to_broker, frame)
                try:
                    code = await asyncio.wait_for(answer, ANSWERED_WITHIN_S)
                except TimeoutError:
                    code = NO_ANSWER
                name, is_commit = request.transactional_id, request.committed
                self.report(Held(transactional_id=name, is_commit=is_commit, came=came, went=went, answer=code))
        except OSError:  # one of the ends has gone
            return

    @staticmethod
    async def _answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, late: dict[int, Any]) -> None:
        has_client = True
        try:
            while frame := await _frame(reader):
                header, answer = late.pop(int.from_bytes(frame[:4]), (None, None))
                if header is not None:
                    _, position = decode_response_header(frame, header.api_key, header.api_version)
                    answer.set_result(decode_response(EndTxnResponse, header.api_version, frame, position).error_code)
                if has_client:
                    try:
                        await _send(writer, frame)
                    except OSError:  # what comes now nobody waits for but `late`
                        has_client = False
        except OSError:
            return
        finally:
            writer.close()  # the broker has gone: its client must not wait


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """The next frame without its size; empty at the end."""
    try:
        return await reader.readexactly(int.from_bytes(await reader.readexactly(SIZE_BYTES)))
    except asyncio.IncompleteReadError:
        return b""


async def _send(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(len(frame).to_bytes(SIZE_BYTES) + frame)
    await writer.drain()
