"""Keys of traces.

May touch:  its fields.               Must not touch: files, environment, OpenTelemetry.
Invariants: every field with a `key` is documented; without an address nothing is traced.
Read next:  export.py.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from barnabas_wire.config_key import config_key
from barnabas_wire.lazy_dataclass import dataclass

SCHEMES = ("http", "https")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingConfig:
    """Which produces are traced, and who gets the traces."""

    otlp_endpoint: str = config_key(
        "tracing.otlp.endpoint",
        "",
        "Where traces of produce requests go, by OTLP over gRPC: http://HOST:4317, or https://HOST:4317 for TLS with the system's "
        "authorities. Empty: nothing is traced. It needs the extra barnabas[otel].",
    )
    sample_ratio: float = config_key(
        "tracing.sample.ratio",
        0.01,
        "Share of the produce requests that are traced, from 0 to 1. Each that is costs about as much as two that are not.",
    )

    def __post_init__(self) -> None:
        if not 0 <= self.sample_ratio <= 1:
            raise ValueError(f"tracing.sample.ratio={self.sample_ratio} is no share: write a number from 0 to 1")
        if not self.otlp_endpoint:
            return
        parts = urlsplit(self.otlp_endpoint)
        if parts.scheme not in SCHEMES or not parts.hostname:
            raise ValueError(f"tracing.otlp.endpoint={self.otlp_endpoint}: write http://HOST:4317, or https:// for TLS")
