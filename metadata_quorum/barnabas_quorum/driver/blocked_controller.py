"""What an active controller does while a bad record blocks its image: hears heartbeats, takes a sign-off in, nothing else.

May touch:  asyncio futures, the loader (reading), the quorum's `propose`.   Must not touch: decisions, gRPC.
Invariants: while blocked nothing is written but sign-offs; a broker that heartbeats meanwhile is not dead afterwards; a sign-off
            is answered when it is committed and the loader has acted on it.
Read next:  ../image/bad_records.py, the rules; ../controller/record_sign_off.py, the decision; controller_driver.py.

Why no broker registers meanwhile. Its registration would stand behind the bad record, decided from an image that what is put
aside, or read after all by an upgraded controller, may change: which directories and features others have, who leads. And it
would help nobody: every image stands still, so the broker could not see it and not be unfenced. It waits for as long as the
refusal is this one (broker/metadata/lifecycle.py); brokers that are registered serve on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from barnabas_quorum.controller.controller import Controller
from barnabas_quorum.controller.partitions import registered_broker
from barnabas_quorum.controller.record_sign_off import blocked_refusal, sign_off
from barnabas_quorum.controller.requests import BrokerHeartbeat, BrokerHeartbeatReply
from barnabas_quorum.controller.requests_integrity import SignOffRecord, SignOffRecordReply
from barnabas_quorum.image.bad_records import Blocked
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.record_codec import encode
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_OFFSET, Epoch, Offset


class SignOffWriter(Protocol):
    """What this needs of the quorum."""

    def propose(self, records: Sequence[bytes], *, epoch: Epoch, is_urgent: bool = True) -> Offset:
        """Append one atomic batch; the offset of its last record."""
        ...


class _Waiter(NamedTuple):
    offset: Offset
    future: asyncio.Future[SignOffRecordReply]


class BlockedController:
    """One controller node's; belongs to the control lane. `loader` may be given later, but before the first commit."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._loader: MetadataLoader | None = None
        self._waiters: deque[_Waiter] = deque()
        self.written_offset = NO_OFFSET
        """The offset of the last sign-off that was proposed here."""

    def attach(self, loader: MetadataLoader) -> None:
        """Whose image may be blocked."""
        self._loader = loader

    @property
    def blocked(self) -> Blocked | None:
        """Where the image stands still."""
        return None if self._loader is None else self._loader.blocked

    def refusal(self) -> KafkaError | None:
        """Why nothing may be decided now; None = it may."""
        blocked = self.blocked
        return None if blocked is None else blocked_refusal(blocked)

    def beat(self, heartbeat: BrokerHeartbeat, *, now_ms: int) -> BrokerHeartbeatReply:
        """A heartbeat, answered with the broker as it stands in the blocked image. Raises STALE_BROKER_EPOCH,
        BROKER_ID_NOT_REGISTERED."""
        controller = self._controller
        broker = registered_broker(controller.pending, heartbeat.broker_id, heartbeat.broker_epoch)
        controller.sessions.touch(broker.id, broker.epoch, metadata_offset=heartbeat.metadata_offset, now_ms=now_ms)
        return BrokerHeartbeatReply(is_caught_up=heartbeat.metadata_offset >= broker.epoch, is_fenced=broker.is_fenced)

    def sign_off(
        self, request: SignOffRecord, *, principal: str, quorum: SignOffWriter
    ) -> asyncio.Future[SignOffRecordReply]:
        """Propose the sign-off; the future resolves when the loader has read it. Raises the KafkaError that refuses it,
        NotController."""
        loader, controller = self._loader, self._controller
        assert loader is not None, "attach() comes before the first request"
        if loader.blocked is not None and not loader.can_be_signed_off:
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"no sign-off helps: {loader.blocked.record.error}")
        record = sign_off(
            request,
            bad_records=loader.blocking_records,
            applied_offset=loader.image.offset,
            features=loader.features,
            broker_offsets={
                broker_id: session.metadata_offset for broker_id, session in controller.sessions.all().items()
            },
            principal=principal,
        )
        self.written_offset = quorum.propose([encode(record)], epoch=controller.epoch)
        future: asyncio.Future[SignOffRecordReply] = asyncio.get_running_loop().create_future()
        self._waiters.append(_Waiter(self.written_offset, future))
        return future

    def settle(self) -> None:
        """The loader has read on: answer those whose sign-off it has read."""
        assert self._loader is not None
        while self._waiters and self._waiters[0].offset <= self._loader.read_offset:
            waiter = self._waiters.popleft()
            if not waiter.future.done():
                waiter.future.set_result(SignOffRecordReply(offset=waiter.offset))

    def drop(self, refusal: KafkaError) -> None:
        """Leadership is gone."""
        self.written_offset = NO_OFFSET
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if not waiter.future.done():
                waiter.future.set_exception(refusal)
