"""Kafka's topic keys that no log here has to act on: accepted where their meaning holds as it is, refused with the reason else.

May touch:  its arguments.            Must not touch: files, logs.
Invariants: a value is accepted only if a topic with it behaves as it says; every refusal names the key and what to do.
Read next:  ../node/topic_settings.py, which asks this; barnabas_log/config.py for the keys that logs obey.

Why each meaning holds
- flush.messages, flush.ms: how long a record may wait for its fsync. With log.flush.on.acks=fsync none waits at all: it
  counts only once flushed. With page-cache they are refused, since nothing here counts messages between flushes.
- remote.* and local.*: without remote.storage.enable they have no effect, and that is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas_wire.java_values import java_boolean, java_int
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.lazy_dataclass import dataclass

INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedKey:
    """One key."""

    type_name: str
    """boolean, string, int, long, double: as DescribeConfigs types it."""
    default: str
    broker_key: str
    """The broker's key that it stands for in Kafka; empty where there is none."""
    doc: str
    refusal: Callable[[str], str | None]
    """Why a value cannot be honoured; None = it can."""


def refused(key: str, value: str, reason: str) -> KafkaError:
    """INVALID_CONFIG that names the key and the value."""
    return KafkaError.of(ErrorCode.INVALID_CONFIG, f"{key}={value!r}: {reason}")


def _only(value: str, reason: str) -> Callable[[str], str | None]:
    return lambda text: None if text.strip().lower() == value else f"{reason}; leave it at {value}"


def _whole(at_least: int, at_most: int = INT64_MAX) -> Callable[[str], str | None]:
    def refusal(text: str) -> str | None:
        try:
            number = java_int(text)
        except ValueError:
            return "it is no whole number"
        return None if at_least <= number <= at_most else f"it must be between {at_least} and {at_most}"

    return refusal


def _truth(text: str) -> str | None:
    try:
        java_boolean(text)
    except ValueError as error:
        return str(error)
    return None


DEAD_LETTERS_KEY = "errors.deadletterqueue.group.enable"
_NO_TIERS = "there is no tiered storage"

ACCEPTED_TOPIC_KEYS: Mapping[str, AcceptedKey] = {
    DEAD_LETTERS_KEY: AcceptedKey(
        type_name="boolean",
        default="false",
        broker_key="",
        doc="Whether share groups may write dead letters to this topic (KIP-1191).",
        refusal=_truth,
    ),
    "flush.messages": AcceptedKey(
        type_name="long",
        default=str(INT64_MAX),
        broker_key="log.flush.interval.messages",
        doc="Most messages between two fsyncs. With log.flush.on.acks=fsync each counts only once flushed.",
        refusal=_whole(1),
    ),
    "flush.ms": AcceptedKey(
        type_name="long",
        default=str(INT64_MAX),
        broker_key="log.flush.interval.ms",
        doc="Most ms between two fsyncs. With log.flush.on.acks=fsync each message counts only once flushed.",
        refusal=_whole(0),
    ),
    "preallocate": AcceptedKey(
        type_name="boolean",
        default="false",
        broker_key="log.preallocate",
        doc="Whether segment files get their whole size at once; only false.",
        refusal=_only("false", "segment files grow as they are written"),
    ),
    "remote.storage.enable": AcceptedKey(
        type_name="boolean",
        default="false",
        broker_key="remote.log.storage.system.enable",
        doc="Whether old segments go to remote storage; only false.",
        refusal=_only("false", _NO_TIERS),
    ),
    "remote.log.copy.disable": AcceptedKey(
        type_name="boolean",
        default="false",
        broker_key="",
        doc="Whether no more segments go to remote storage; only false.",
        refusal=_only("false", _NO_TIERS),
    ),
    "remote.log.delete.on.disable": AcceptedKey(
        type_name="boolean",
        default="false",
        broker_key="",
        doc="Whether remote segments go when remote storage is turned off; only false.",
        refusal=_only("false", _NO_TIERS),
    ),
    "local.retention.ms": AcceptedKey(
        type_name="long",
        default="-2",
        broker_key="log.local.retention.ms",
        doc="Retention of what is also in remote storage: without effect.",
        refusal=_only("-2", _NO_TIERS),
    ),
    "local.retention.bytes": AcceptedKey(
        type_name="long",
        default="-2",
        broker_key="log.local.retention.bytes",
        doc="Retention of what is also in remote storage: without effect.",
        refusal=_only("-2", _NO_TIERS),
    ),
}
GONE_TOPIC_KEYS: Mapping[str, str] = {
    "message.format.version": "Kafka 4 has it no more: messages are always in format v2; leave it out",
    "message.downconversion.enable": "Kafka 4 has it no more: nothing is converted down; leave it out",
}
"""Refused whatever the value, with the reason."""
FLUSH_KEYS = ("flush.messages", "flush.ms")


def accepted_topic_value(key: str, value: str) -> str | None:
    """The value of a key of this file in its normal form; None for another key. Raises INVALID_CONFIG when the value cannot be
    honoured, or the key is gone."""
    if key in GONE_TOPIC_KEYS:
        raise refused(key, value, GONE_TOPIC_KEYS[key])
    accepted = ACCEPTED_TOPIC_KEYS.get(key)
    if accepted is None:
        return None
    reason = accepted.refusal(value)
    if reason is not None:
        raise refused(key, value, reason)
    return value.strip().lower() if accepted.type_name == "boolean" else str(java_int(value))


def check_together(overrides: Mapping[str, str], *, is_page_cache: bool) -> None:
    """What no single key shows: flush.* with log.flush.on.acks=page-cache. Raises INVALID_CONFIG."""
    for key in FLUSH_KEYS:
        value = overrides.get(key)
        if is_page_cache and value is not None and value != ACCEPTED_TOPIC_KEYS[key].default:
            raise refused(
                key,
                value,
                "with log.flush.on.acks=page-cache nothing counts what waits for its fsync; set log.flush.on.acks=fsync, "
                f"which flushes before it counts, or remove {key}",
            )
