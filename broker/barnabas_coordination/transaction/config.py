"""Keys of the transaction coordinator and of its topic `__transaction_state`, by their Kafka names.

May touch:  its fields.               Must not touch: files, environment.
Invariants: every field with a `key` is a documented Kafka key; time-outs are milliseconds.
Read next:  service.py.
"""

from __future__ import annotations

from barnabas_wire.config_key import config_key
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionCoordinatorConfig:
    """What the transaction coordinator takes from the node's properties."""

    state_log_num_partitions: int = config_key(
        "transaction.state.log.num.partitions",
        50,
        "Partitions of __transaction_state. Used once, when the topic is created: a transactional id belongs to the partition it hashes "
        "to.",
    )
    state_log_replication_factor: int = config_key(
        "transaction.state.log.replication.factor",
        3,
        "Replicas of each __transaction_state partition. With fewer unfenced brokers the topic is not created and transactional "
        "producers get COORDINATOR_NOT_AVAILABLE.",
    )
    state_log_min_isr: int = config_key(
        "transaction.state.log.min.isr",
        2,
        "min.insync.replicas of __transaction_state, used once, when the topic is created; never above its replication factor.",
    )
    state_log_segment_bytes: int = config_key(
        "transaction.state.log.segment.bytes", 100 * 1024 * 1024, "Segment size of __transaction_state, in bytes."
    )
    state_log_load_buffer_size: int = config_key(
        "transaction.state.log.load.buffer.size",
        5 * 1024 * 1024,
        "Bytes read at a time while a newly led __transaction_state partition is loaded.",
    )
    max_timeout_ms: int = config_key(
        "transaction.max.timeout.ms", 900_000, "Longest transaction.timeout.ms that a producer may ask for, in ms."
    )
    transactional_id_expiration_ms: int = config_key(
        "transactional.id.expiration.ms",
        604_800_000,
        "How long a transactional id without an open transaction is remembered after its last use, in ms.",
    )
    abort_timed_out_interval_ms: int = config_key(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        "How often transactions that have been open longer than their time-out are looked for and aborted, in ms.",
    )
    remove_expired_interval_ms: int = config_key(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        "How often transactional ids whose time is over are looked for and forgotten, in ms.",
    )
    is_verification_enabled: bool = config_key(
        "transaction.partition.verification.enable",
        True,
        "Whether the first batch that a transaction writes to a partition is checked with the transaction's coordinator (KIP-890). "
        "Without it a late batch can open a transaction that never ends.",
    )
    add_partitions_retry_backoff_ms: int = config_key(
        "add.partitions.to.txn.retry.backoff.ms",
        20,
        "Pause before a partition is added to a transaction again while the former one is still being ended, in ms.",
    )
    add_partitions_retry_backoff_max_ms: int = config_key(
        "add.partitions.to.txn.retry.backoff.max.ms",
        100,
        "How long a batch waits for the former transaction to be ended, before its producer is sent away, in ms.",
    )

    def __post_init__(self) -> None:
        for name in (
            "state_log_num_partitions",
            "state_log_replication_factor",
            "state_log_min_isr",
            "state_log_segment_bytes",
            "state_log_load_buffer_size",
            "max_timeout_ms",
            "transactional_id_expiration_ms",
            "abort_timed_out_interval_ms",
            "remove_expired_interval_ms",
            "add_partitions_retry_backoff_ms",
        ):
            if getattr(self, name) < 1:
                key = self.__dataclass_fields__[name].metadata["key"]
                raise ValueError(f"{key} must be at least 1")
        if self.add_partitions_retry_backoff_max_ms < 0:
            raise ValueError("add.partitions.to.txn.retry.backoff.max.ms must be at least 0")
