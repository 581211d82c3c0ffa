"""The client instances of this broker: what each is to push, and when it may ask and push again (KIP-714).

May touch:  its arguments.            Must not touch: clock, sockets, what clients pushed.
Invariants: at most INSTANCES_MAX, of which the one that was silent for longest makes room; two accepted pushes that end nothing are an
            interval apart; after a push that ends an instance nothing of it is accepted.
Read next:  subscriptions.py; receiver.py, which has the rest.

Differs from Kafka: there any push says again whether its instance has ended, so one that is refused revives it.
"""

from __future__ import annotations

from typing import Final

from barnabas_broker.telemetry.subscriptions import Client, Subscriptions, Wanted
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.lazy_dataclass import dataclass
from barnabas_wire.records.compression import CompressionType

INSTANCES_MAX: Final = 16_384
FORGOTTEN_MS: Final = 60_000
"""An instance is forgotten after so long a silence, or after three intervals if they are longer."""
RESERVED: Final = frozenset((Uuid(bytes(16)), Uuid(bytes(15) + b"\x01")))
"""Ids that no instance may have: none, and Kafka's of the metadata topic."""
ASKS_AGAIN: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""After these a client asks at once what it is to push."""


@dataclass(slots=True)
class Instance:
    """One client, as far as it asked and pushed here. Times are ms of the broker's wall clock; -1: never."""

    wanted: Wanted
    version: int
    """The version of the subscriptions that `wanted` was made from."""
    seen_ms: int
    got_ms: int = -1
    pushed_ms: int = -1
    last_error: ErrorCode = ErrorCode.NONE
    has_ended: bool = False

    def is_within_interval(self, since_ms: int, now_ms: int) -> bool:
        """Whether less than an interval is over since then; a clock that went back ends it."""
        return since_ms >= 0 and 0 <= now_ms - since_ms < self.wanted.interval_ms

    def is_forgotten(self, now_ms: int) -> bool:
        """Whether it has been silent for too long."""
        return now_ms - self.seen_ms > max(FORGOTTEN_MS, 3 * self.wanted.interval_ms)


class Instances:
    """All of one broker. Belongs to the data lane."""

    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions
        self._known: dict[Uuid, Instance] = {}
        """The one that was silent for longest first."""

    def __len__(self) -> int:
        return len(self._known)

    def get(self, client: Client, now_ms: int) -> Instance:
        """What is to be pushed. Raises KafkaError THROTTLING_QUOTA_EXCEEDED for who asks before its interval is over."""
        found = self._of(client, now_ms)
        if not found.is_within_interval(max(found.got_ms, found.pushed_ms), now_ms):
            found.got_ms = now_ms
        elif found.last_error not in ASKS_AGAIN:
            raise _too_early(client)
        found.last_error = ErrorCode.NONE
        return found

    def check_push(
        self,
        client: Client,
        *,
        subscription_id: int,
        is_last: bool,
        compression: int,
        size_bytes: int,
        bytes_max: int,
        now_ms: int,
    ) -> Instance:
        """Whether a push counts: raises the KafkaError to answer with, in Kafka's order of checks.

        Args:
            is_last: the client closes.
            size_bytes: as it came, compressed.
        """
        if client.instance_id in RESERVED:
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, "a push needs the client instance id that the broker gave")
        found = self._of(client, now_ms)
        try:
            if found.has_ended:
                raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"client instance {client.instance_id} has ended")
            # The first push after it asked may come at any time, which its client draws.
            if found.got_ms > found.pushed_ms or not found.is_within_interval(found.pushed_ms, now_ms):
                found.pushed_ms = now_ms
            elif not is_last:
                raise _too_early(client)
            if subscription_id != found.wanted.subscription_id:
                raise KafkaError.of(
                    ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
                    f"client instance {client.instance_id} pushes for another subscription than the present one",
                )
            if compression not in tuple(CompressionType):
                raise KafkaError.of(
                    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no compression type {compression}"
                )
            if size_bytes > bytes_max:
                raise KafkaError.of(
                    ErrorCode.TELEMETRY_TOO_LARGE, f"a push of {size_bytes} bytes: telemetry.max.bytes is {bytes_max}"
                )
        except KafkaError as error:
            found.last_error = error.code
            raise
        finally:
            found.has_ended = found.has_ended or is_last
        found.last_error = ErrorCode.NONE
        return found

    def forget(self, instance_id: Uuid) -> None:
        """The connection of an instance is gone."""
        self._known.pop(instance_id, None)

    def _of(self, client: Client, now_ms: int) -> Instance:
        found = self._known.pop(client.instance_id, None)
        if found is not None and found.is_forgotten(now_ms):
            found = None
        if found is None or found.version != self._subscriptions.version:
            has_ended = found is not None and found.has_ended
            wanted = self._subscriptions.wanted_of(client)
            found = Instance(wanted, self._subscriptions.version, now_ms, has_ended=has_ended)
            if len(self._known) >= INSTANCES_MAX:
                del self._known[next(iter(self._known))]
        found.seen_ms = now_ms
        self._known[client.instance_id] = found
        return found


def _too_early(client: Client) -> KafkaError:
    return KafkaError.of(
        ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"client instance {client.instance_id} comes before its interval is over"
    )
