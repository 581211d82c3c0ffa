"""Kafka's node keys that promise more than a node here keeps: refused, where a key without effect would only be warned of.

May touch:  its arguments.            Must not touch: files, environment.
Invariants: a node never starts less secure or less durable than its file says; every refusal names the key and the fix; a value
    that promises nothing (Kafka's own "off") is let through, so that a file which spells the defaults out still works.
Read next:  properties.py, which asks this; ../config/topic_keys.py, the same for the keys of topics.

Differs from Kafka, which knows most of these and acts on them, and ignores with a warning those that it has dropped.
Keys that barnabas does not know and that are not here change neither (num.network.threads, metric.reporters): they are
ignored with a warning, as unknown keys are in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas_broker.config.topic_keys import ACCEPTED_TOPIC_KEYS, FLUSH_KEYS
from barnabas_broker.security.listener_security import is_known

_NO_SECURITY = (
    "this part of Kafka's TLS and SASL is not served; leave it out, or use what docs/operations.md names instead"
)
_NO_JAVA = "no Java class is run here, so its rules would have no effect; leave it out"

REFUSED_KEYS: Mapping[str, str] = {
    "principal.builder.class": _NO_JAVA,
    "create.topic.policy.class.name": _NO_JAVA,
    "alter.config.policy.class.name": _NO_JAVA,
    "client.quota.callback.class": _NO_JAVA,
    "config.providers": "values are taken as they stand; write them out and leave it out",
    "security.providers": _NO_SECURITY,
    "controller.quorum.voters": (
        "the voters are kept in the quorum's own log (KIP-853), never in a file; name controllers with "
        "controller.quorum.bootstrap.servers=HOST:PORT,… and the first voters with `barnabas storage format "
        "--initial-controllers`"
    ),
    "log.message.format.version": "messages are always in format v2, as in Kafka 4; leave it out",
    "inter.broker.protocol.version": (
        "nodes speak by the feature metadata.version, as in Kafka 4: see `barnabas cluster features`; leave it out"
    ),
}
"""Reason with the fix; an empty value is accepted."""

WITHOUT_EFFECT = frozenset(
    {
        "background.threads",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.principal.to.local.rules",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
    }
)
"""Keys that change a running broker of Kafka's and mean nothing here: taken over the wire with a warning, so that a tool which sets
them continues."""

_SECURITY_WORDS = frozenset({"ssl", "sasl"})
_LISTENER_PREFIX = "listener.name."
_BROKER_KEYS = {accepted.broker_key: accepted for accepted in ACCEPTED_TOPIC_KEYS.values() if accepted.broker_key}
_FLUSH_BROKER_KEYS = {ACCEPTED_TOPIC_KEYS[key].broker_key: ACCEPTED_TOPIC_KEYS[key].default for key in FLUSH_KEYS}

UNDERSTOOD_KEYS = frozenset((*REFUSED_KEYS, *_BROKER_KEYS))
"""Keys that no room reads, of which this file says whether their value holds."""


def is_understood(key: str) -> bool:
    """Whether this file judges the key."""
    return _plain(key) in UNDERSTOOD_KEYS or _is_of_security(key)


def refusal(key: str, value: str, *, is_page_cache: bool) -> str | None:
    """Why a node must not start with this in its file, and the fix; None when it may. Shows no value that may be a secret.

    `is_page_cache`: the node's log.flush.on.acks is page-cache, with which nothing is flushed by count or time.
    """
    value = value.strip()
    if not value:
        return None
    if _is_of_security(key):
        return f"{key}: {_NO_SECURITY}"
    reason = REFUSED_KEYS.get(_plain(key))
    accepted = _BROKER_KEYS.get(key)
    if accepted is not None:
        reason = accepted.refusal(value)
        if is_page_cache and value != _FLUSH_BROKER_KEYS.get(key, value):
            reason = (
                "with log.flush.on.acks=page-cache nothing counts what waits for its fsync; set log.flush.on.acks=fsync"
            )
    return None if reason is None else f"{key}={value}: {reason}"


def _is_of_security(key: str) -> bool:
    """ssl.keystore.password, sasl.kerberos.service.name: a key of security that is not read here."""
    return not _SECURITY_WORDS.isdisjoint(key.split(".")) and not is_known(key)


def _plain(key: str) -> str:
    """A key of one listener (listener.name.NAME.KEY) as the key it is there."""
    return key.removeprefix(_LISTENER_PREFIX).partition(".")[2] if key.startswith(_LISTENER_PREFIX) else key
