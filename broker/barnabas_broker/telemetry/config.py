"""Keys of client telemetry.

May touch:  its fields.               Must not touch: files, environment.
Invariants: every field with a `key` is documented; without a receiver clients are not told that they could push.
Read next:  receiver.py.
"""

from __future__ import annotations

from typing import Final

from barnabas_wire.config_key import config_key
from barnabas_wire.lazy_dataclass import dataclass

MAX_BYTES_MAX: Final = 2 * 1024 * 1024
"""Bytes. A push is opened as a whole, and protobuf takes some thirty times as much for the worst of them (measured)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    """Whether clients push their metrics here, and how much."""

    receiver: bool = config_key(
        "telemetry.receiver",
        False,
        "Receive what clients push of their own metrics (KIP-714): latency, retries, rebalances, poll lag, as subscriptions of client "
        "metrics ask for. They are on /metrics, in `barnabas explain group` and in the console. While it is false clients are not told "
        "that they could push.",
    )
    max_bytes: int = config_key(
        "telemetry.max.bytes",
        1024 * 1024,
        "Most bytes of one push, as it comes and after decompression; at most 2097152.",
    )

    def __post_init__(self) -> None:
        if not 1 <= self.max_bytes <= MAX_BYTES_MAX:
            raise ValueError(f"telemetry.max.bytes={self.max_bytes}: use 1 to {MAX_BYTES_MAX}")
