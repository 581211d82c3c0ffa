"""Settings of replication, under Kafka's own keys.

May touch:  nothing.                      Must not touch: files, environment.
Invariants: frozen; every field has its key and a doc.
Read next:  manager.py.
"""

from __future__ import annotations

from barnabas_replication.leader.read_replica import LEADER_SELECTOR, RACK_AWARE_SELECTOR, SELECTORS
from barnabas_wire.config_key import config_key
from barnabas_wire.lazy_dataclass import dataclass

SESSIONLESS_SIZE = 4
"""With no more partitions than this every fetch of a follower names all, and no session is opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    """How a broker replicates. Durations in ms, sizes in bytes. min.insync.replicas is the log's (a topic may override it)."""

    replica_lag_time_ms_max: int = config_key(
        "replica.lag.time.max.ms",
        30_000,
        "A follower that has not reached the leader's log end for this long leaves the ISR (checked every half of it, so it leaves "
        "after one to one and a half times this).",
    )
    replica_fetch_silence_ms_max: int = config_key(
        "replica.fetch.silence.time.max.ms",
        5_000,
        "A follower from which no fetch has come for this long leaves the ISR where acks=all writes wait for it alone and "
        "min.insync.replicas permits it. Kafka has no such key: there the writes wait for replica.lag.time.max.ms, which still judges "
        "followers that fetch and those that no write waits for.",
    )
    replica_fetch_wait_ms_max: int = config_key(
        "replica.fetch.wait.max.ms",
        1_000,
        "How long the leader may park a follower's fetch while there is nothing to send. Keep it well below "
        "replica.fetch.silence.time.max.ms and replica.lag.time.max.ms. Kafka's default is 500: of 48 idle brokers, each of which "
        "follows all others, 2,208 fetches twice a second took more than half the CPU (measured).",
    )
    replica_fetch_bytes_min: int = config_key(
        "replica.fetch.min.bytes", 1, "Bytes a follower's fetch waits for. More than 1 delays every acks=all."
    )
    replica_fetch_bytes_max: int = config_key(
        "replica.fetch.max.bytes",
        2 << 20,
        "Bytes per partition in one follower fetch. A single batch above it is still sent. Kafka's default of 1 MiB gives every batch "
        "of 1 MiB a fetch of its own: measured, a third fewer fetches and 4 % less CPU of all brokers with 2 MiB, which is the bound of "
        "the whole response.",
    )
    replica_fetch_response_bytes_max: int = config_key(
        "replica.fetch.response.max.bytes",
        2 << 20,
        "Bytes of one whole follower fetch response. Larger ones block the event loop of the follower: measured, 8 MiB gives a loop lag "
        "p99 of 33 ms and 2 MiB one of 5 ms at the same throughput. Kafka's default is 10 MiB.",
    )
    replica_fetch_backoff_ms: int = config_key(
        "replica.fetch.backoff.ms",
        1_000,
        "Longest pause of a follower after a failed fetch; the first pauses are a fiftieth of it and double.",
    )
    replica_socket_timeout_ms: int = config_key(
        "replica.socket.timeout.ms",
        30_000,
        "How long a follower waits for an answer of its leader, and for the connection to it. Above replica.fetch.wait.max.ms.",
    )
    high_watermark_checkpoint_interval_ms: int = config_key(
        "replica.high.watermark.checkpoint.interval.ms",
        5_000,
        "How often high watermarks are written to replication-offset-checkpoint.",
    )
    fetch_bytes_max: int = config_key(
        "fetch.max.bytes", 57_671_680, "Bytes of one whole fetch response to a consumer, whatever it asks for."
    )
    replica_selector_class: str = config_key(
        "replica.selector.class",
        "",
        "Where consumers that set client.rack read: org.apache.kafka.common.replica.RackAwareReplicaSelector sends them to an in-sync "
        "replica in their rack (broker.rack), the default and org.apache.kafka.common.replica.LeaderSelector keep them at the leader.",
    )
    inter_broker_listener_name: str = config_key(
        "inter.broker.listener.name", "PLAINTEXT", "Name of the listener by which brokers reach each other."
    )

    sessionless_size: int = SESSIONLESS_SIZE
    """Without a key: only a simulation has a reason to set it."""

    def __post_init__(self) -> None:
        if self.replica_selector_class not in SELECTORS:
            raise ValueError(
                f"replica.selector.class={self.replica_selector_class}: use {RACK_AWARE_SELECTOR} or {LEADER_SELECTOR}"
            )
